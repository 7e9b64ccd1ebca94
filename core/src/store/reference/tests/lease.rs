//! Leadership and partitions.

use super::*;
use crate::limits::LEASE_TTL_MAX;
use crate::store::command::{ReleaseLeases, RenewLeases};
use crate::store::reply::HoldReply;
use crate::store::row::{LeaseRow, RefusedAction, RefusedResource};

const LEADERSHIP: LeaseResource = LeaseResource::Leadership;

fn token(number: i64) -> FencingToken {
    FencingToken::from_i64(number)
}

fn partition_number(number: u16) -> LeaseResource {
    LeaseResource::from_number(number).expect("there are 128 partitions")
}

impl World {
    fn ask_leadership(&mut self, node: NodeId) -> AcquireLeadership {
        AcquireLeadership { node, nonce: self.nonce(), ttl: TTL }
    }

    fn renew(&mut self, node: NodeId, held: HeldLease) -> HoldReply {
        match self.apply(Command::RenewLeases(RenewLeases { node, ttl: TTL, leases: vec![held] })) {
            Reply::LeasesRenewed(mut replies) => replies.remove(0),
            other => panic!("another reply: {other:?}"),
        }
    }

    fn release(&mut self, node: NodeId, held: HeldLease) -> HoldReply {
        match self.apply(Command::ReleaseLeases(ReleaseLeases { node, leases: vec![held] })) {
            Reply::LeasesReleased(mut replies) => replies.remove(0),
            other => panic!("another reply: {other:?}"),
        }
    }

    fn leader_row(&self) -> &LeaseRow {
        self.store.tables().lease(LEADERSHIP)
    }
}

#[test]
fn a_free_lease_is_granted_under_the_next_token() {
    let mut world = World::new();
    assert_eq!(world.lead(SCHEDULER), token(1));
    let row = world.leader_row();
    assert_eq!((row.owner, row.expires_at), (Some(SCHEDULER), START.plus(TTL)));
}

#[test]
fn a_held_lease_is_not_granted_even_to_its_owner_under_another_nonce() {
    let mut world = World::new();
    world.lead(SCHEDULER);
    for node in [OTHER_SCHEDULER, SCHEDULER] {
        let ask = world.ask_leadership(node);
        assert_eq!(world.acquire_leadership(&ask), LeadershipReply::Held { expires_at: START.plus(TTL) });
    }
}

#[test]
fn an_acquire_sent_again_is_answered_with_the_same_grant_which_lasts_no_longer() {
    let mut world = World::new();
    let ask = world.ask_leadership(SCHEDULER);
    let first = world.acquire_leadership(&ask);
    world.pass(secs(3));
    let Reply::Leadership(again) = world.changes_nothing(Command::AcquireLeadership(ask)) else {
        panic!("another reply")
    };
    assert_eq!(first, again);
}

#[test]
fn an_acquire_sent_again_after_its_lease_lapsed_counts_as_a_new_one() {
    let mut world = World::new();
    let ask = world.ask_leadership(SCHEDULER);
    world.acquire_leadership(&ask);
    world.pass(TTL);
    assert_eq!(world.acquire_leadership(&ask), LeadershipReply::Granted { token: token(2) });
}

#[test]
fn a_lease_is_held_until_the_very_instant_of_its_expiry() {
    let mut world = World::new();
    world.lead(SCHEDULER);
    world.now = START.plus(TTL).minus(INSTANT);
    let ask = world.ask_leadership(OTHER_SCHEDULER);
    assert_eq!(world.acquire_leadership(&ask), LeadershipReply::Held { expires_at: START.plus(TTL) });
    world.pass(INSTANT);
    assert_eq!(world.acquire_leadership(&ask), LeadershipReply::Granted { token: token(2) });
    assert_eq!(world.leader_row().owner, Some(OTHER_SCHEDULER));
}

#[test]
fn a_lease_further_ahead_than_any_grant_reaches_is_dead() {
    let mut world = World::new();
    world.lead(SCHEDULER);
    let ask = world.ask_leadership(OTHER_SCHEDULER);
    world.now = START.plus(TTL).minus(LEASE_TTL_MAX);
    assert_eq!(world.acquire_leadership(&ask), LeadershipReply::Held { expires_at: START.plus(TTL) });
    world.step_back(INSTANT);
    assert_eq!(world.acquire_leadership(&ask), LeadershipReply::Granted { token: token(2) });
}

#[test]
fn a_token_that_cannot_rise_is_granted_to_nobody() {
    let mut world = World::new();
    let row = LeaseRow { token: token(i64::MAX), ..world.leader_row().clone() };
    world.store.tables.leases.put(row, &mut Vec::new());
    let ask = world.ask_leadership(SCHEDULER);
    assert_eq!(world.acquire_leadership(&ask), LeadershipReply::Held { expires_at: Timestamp::EPOCH });

    let first = world.store.tables().lease(partition_number(0)).clone();
    world.store.tables.leases.put(LeaseRow { token: token(i64::MAX), ..first }, &mut Vec::new());
    let ask = world.ask_partitions(SCHEDULER, 1);
    let granted = world.acquire_partitions(&ask);
    assert_eq!(granted, [HeldLease { resource: partition_number(1), token: token(1) }]);
}

#[test]
fn partitions_are_granted_by_number_up_to_the_limit() {
    let mut world = World::new();
    let ask = world.ask_partitions(SCHEDULER, 2);
    let first = world.acquire_partitions(&ask);
    let ask = world.ask_partitions(OTHER_SCHEDULER, 3);
    let second = world.acquire_partitions(&ask);
    let numbers = |leases: &[HeldLease]| leases.iter().map(|held| held.resource.number()).collect::<Vec<_>>();
    assert_eq!((numbers(&first), numbers(&second)), (vec![0, 1], vec![2, 3, 4]));
}

#[test]
fn partitions_asked_for_again_are_those_still_held_and_no_more() {
    let mut world = World::new();
    let ask = world.ask_partitions(SCHEDULER, 3);
    let granted = world.acquire_partitions(&ask);
    world.release(SCHEDULER, granted[1]);
    let Reply::Partitions { granted: again } = world.changes_nothing(Command::AcquirePartitions(ask)) else {
        panic!("another reply")
    };
    assert_eq!(again, [granted[0], granted[2]]);
}

#[test]
fn partitions_whose_lease_lapsed_go_to_another_under_higher_tokens() {
    let mut world = World::new();
    let before = world.own(SCHEDULER);
    world.pass(TTL);
    let after = world.own(OTHER_SCHEDULER);
    assert!(after.token > before.token);
}

#[test]
fn a_lapsed_lease_that_nobody_took_is_renewed() {
    let mut world = World::new();
    let held = HeldLease { resource: LEADERSHIP, token: world.lead(SCHEDULER) };
    world.pass(MINUTE);
    assert_eq!(world.renew(SCHEDULER, held), HoldReply::Done);
    assert_eq!(world.leader_row().expires_at, world.now.plus(TTL));
    assert_eq!(world.leader_row().token, held.token);
}

#[test]
fn a_renewal_of_what_has_passed_on_is_refused_and_recorded_once_for_all_repeats() {
    let mut world = World::new();
    let held = HeldLease { resource: LEADERSHIP, token: world.lead(SCHEDULER) };
    world.pass(TTL);
    let current = world.lead(OTHER_SCHEDULER);
    let refused_at = world.now;
    for _ in 0..3 {
        world.pass(secs(1));
        assert_eq!(world.renew(SCHEDULER, held), HoldReply::Refused { current });
    }
    let expected = RefusalRow {
        resource: RefusedResource::Lease(LEADERSHIP),
        token: held.token,
        node: SCHEDULER,
        action: RefusedAction::RenewLease,
        current,
        first_at: refused_at.plus(secs(1)),
        last_at: refused_at.plus(secs(3)),
        count: 3,
    };
    assert_eq!(world.refusals(), [&expected]);
}

#[test]
fn another_node_cannot_renew_under_the_current_token() {
    let mut world = World::new();
    let held = HeldLease { resource: LEADERSHIP, token: world.lead(SCHEDULER) };
    assert_eq!(world.renew(OTHER_SCHEDULER, held), HoldReply::Refused { current: held.token });
}

#[test]
fn a_released_lease_keeps_its_token_and_is_free_at_once() {
    let mut world = World::new();
    let held = HeldLease { resource: LEADERSHIP, token: world.lead(SCHEDULER) };
    assert_eq!(world.release(SCHEDULER, held), HoldReply::Done);
    let row = world.leader_row();
    assert_eq!((row.owner, row.token, row.expires_at), (None, held.token, Timestamp::EPOCH));
    assert_eq!(world.renew(SCHEDULER, held), HoldReply::Refused { current: held.token });
    assert_eq!(world.lead(OTHER_SCHEDULER), token(2));
}

#[test]
fn a_release_sent_again_is_done_until_another_is_granted() {
    let mut world = World::new();
    let held = HeldLease { resource: LEADERSHIP, token: world.lead(SCHEDULER) };
    world.release(SCHEDULER, held);
    let again = Command::ReleaseLeases(ReleaseLeases { node: SCHEDULER, leases: vec![held] });
    assert_eq!(world.changes_nothing(again), Reply::LeasesReleased(vec![HoldReply::Done]));
    let current = world.lead(OTHER_SCHEDULER);
    assert_eq!(world.release(SCHEDULER, held), HoldReply::Refused { current });
}

#[test]
fn a_refused_release_is_not_recorded() {
    let mut world = World::new();
    let held = HeldLease { resource: LEADERSHIP, token: world.lead(SCHEDULER) };
    assert_eq!(world.release(OTHER_SCHEDULER, held), HoldReply::Refused { current: held.token });
    assert!(world.refusals().is_empty());
}

#[test]
fn refusals_of_one_batch_are_written_once() {
    let mut world = World::new();
    let before = world.own(SCHEDULER);
    world.pass(TTL);
    world.own(OTHER_SCHEDULER);
    let first = world.changes.len();
    let items = vec![due_item(1), due_item(2)];
    let ask = Materialise { node: SCHEDULER, leases: vec![before], items };
    world.apply(Command::Materialise(ask));
    assert_eq!(world.changes.len(), first + 1);
    assert_eq!(world.refusals()[0].count, 2);
}
