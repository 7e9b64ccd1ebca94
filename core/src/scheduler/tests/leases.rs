//! Holding, losing and regaining leases.

use super::world::{Link, World, down, up};
use crate::fact::{Fact, LeaseEnd};
use crate::id::NodeId;
use crate::lease::{HeldLease, LeaseResource};
use crate::partition::PartitionId;
use crate::store::command::{AcquirePartitions, Command, CommandKind};
use crate::store::reply::Reply;
use crate::time::{Monotonic, Span};

/// The leases that a command acts under, leaving out their own renewal and release.
fn acts_under(command: &Command) -> usize {
    match command {
        Command::Materialise(command) => command.leases.len(),
        Command::PutOffJobs(command) => command.leases.len(),
        Command::PromoteDue(command) => command.leases.len(),
        Command::ScanDueJobs(command) => command.partitions.len(),
        Command::ScanOutbox(command) => command.partitions.len(),
        Command::Repair(_) | Command::ScanSweep(_) => 1,
        Command::ReadClock
        | Command::Heartbeat(_)
        | Command::AcquireLeadership(_)
        | Command::AcquirePartitions(_)
        | Command::RenewLeases(_)
        | Command::ReleaseLeases(_)
        | Command::RemoveOutbox(_)
        | Command::ReturnOutbox(_)
        | Command::AcquireExecutions(_)
        | Command::RenewExecutions(_)
        | Command::FinishExecutions(_)
        | Command::DeferExecutions(_)
        | Command::RecordMalformed(_)
        | Command::CreateTenant(_)
        | Command::CreateJob(_)
        | Command::ChangeJob(_)
        | Command::DeleteJob(_)
        | Command::TriggerJob(_)
        | Command::CancelExecution(_)
        | Command::SetPause(_)
        | Command::ReplayDeadLetter(_)
        | Command::ReplayDeadLetters(_)
        | Command::PurgeDeadLetter(_)
        | Command::SetLimit(_)
        | Command::SetCalendar(_) => 0,
    }
}

#[test]
fn a_scheduler_that_is_cut_off_falls_silent_before_its_leases_lapse() {
    let mut world = World::with(1);
    world.seconds(20);
    world.link(0, |kind| if kind == CommandKind::RenewLeases { Link::RequestLost } else { Link::Up });
    let cut_at = world.now;
    world.seconds(30);
    let last =
        world.nodes[0].sent.iter().filter(|(_, command)| acts_under(command) > 0).map(|(at, _)| *at).max();
    assert!(last.is_some_and(
        |last| last >= cut_at.plus(Span::from_secs(5)) && last < cut_at.plus(Span::from_secs(8))
    ));
    let silenced = |fact: &&Fact| matches!(fact, Fact::LeaseEnded { how: LeaseEnd::Untrusted, .. });
    assert_eq!(world.nodes[0].facts.iter().filter(silenced).count(), 129, "each lease, told once");
}

#[test]
fn a_lapsed_lease_that_nobody_took_is_renewed() {
    let mut world = World::with(1);
    world.seconds(20);
    let token = world.nodes[0].role.leadership();
    world.link(0, |kind| if kind == CommandKind::RenewLeases { Link::RequestLost } else { Link::Up });
    world.seconds(15);
    assert_eq!((world.nodes[0].role.leadership(), world.nodes[0].role.held_partitions().count()), (None, 0));
    world.link(0, up);
    world.seconds(3);
    assert_eq!(world.shares(), [128]);
    assert_eq!(world.nodes[0].role.leadership(), token, "under the token it had");
}

#[test]
fn trust_is_counted_from_when_the_request_was_sent() {
    let mut world = World::new();
    let node = world.start(|_| {});
    world.link(node, |kind| if kind == CommandKind::RenewLeases { Link::Held } else { Link::Up });
    world.seconds(3);
    let held = world.nodes[node].sent.iter().find(|(_, command)| command.kind() == CommandKind::RenewLeases);
    let sent_at = held.expect("renewed after a cycle").0;
    world.pass(Span::from_millis(2_500));
    let (effect, command) = world.nodes[node].held.pop_front().expect("held");
    let now = world.clock();
    let outcome = crate::store::StoreOutcome::Replied(world.store.apply(now, &command, &mut Vec::new()));
    world.link(node, down);
    world.give(node, crate::event::SchedulerEvent::StoreReplied { effect, outcome });
    let trusted_until = sent_at.plus(Span::from_secs(8));
    world.pass(trusted_until.since(world.now).minus(Span::from_millis(1)));
    assert_eq!(world.nodes[node].role.held_partitions().count(), 128);
    world.pass(Span::from_millis(1));
    assert_eq!(world.nodes[node].role.held_partitions().count(), 0);
}

#[test]
fn an_acquisition_whose_reply_was_lost_is_sent_again_under_its_nonce() {
    let mut world = World::new();
    let node = world.start(|_| {});
    world.kill(node);
    world.seconds(20);
    let node = world.start(|_| {});
    world.link(node, |kind| {
        let acquires = matches!(kind, CommandKind::AcquirePartitions | CommandKind::AcquireLeadership);
        if acquires { Link::ReplyLost } else { Link::Up }
    });
    world.pass(Span::from_millis(2_100));
    assert_eq!(
        world.nodes[node].role.held_partitions().count(),
        64,
        "the first came before the link was bad"
    );
    world.link(node, up);
    world.seconds(3);
    assert_eq!(world.shares()[node], 128);
    let nonces: Vec<_> = world.nodes[node]
        .sent
        .iter()
        .filter_map(|(_, command)| {
            if let Command::AcquirePartitions(AcquirePartitions { nonce, .. }) = command {
                Some(*nonce)
            } else {
                None
            }
        })
        .collect();
    assert!(nonces.len() >= 3 && nonces[1..].iter().all(|nonce| *nonce == nonces[1]), "{nonces:?}");
    let tokens = PartitionId::all()
        .map(|partition| world.store.tables().lease(LeaseResource::Partition(partition)).token.as_i64());
    assert!(tokens.max() <= Some(2), "nothing was granted twice");
}

#[test]
fn a_lease_whose_renewal_is_refused_is_dropped_at_once() {
    let mut world = World::with(1);
    world.seconds(20);
    world.link(0, down);
    world.freeze(Span::from_secs(11));
    let taken = AcquirePartitions {
        node: NodeId::from_u128(77),
        nonce: crate::id::EffectId(1),
        ttl: Span::from_secs(60),
        limit: 128,
    };
    let Reply::Partitions { granted } = world.apply(&Command::AcquirePartitions(taken)) else {
        panic!("not an answer to an acquire")
    };
    assert_eq!(granted.len(), 128);
    world.link(0, up);
    world.seconds(3);
    let refused = |fact: &&Fact| matches!(fact, Fact::WriteRefused { .. });
    assert_eq!(world.nodes[0].facts.iter().filter(refused).count(), 128);
    world.seconds(20);
    assert_eq!(world.nodes[0].facts.iter().filter(refused).count(), 128, "and not renewed again");
}

#[test]
fn a_wedged_owner_loses_everything_and_gets_it_back_once_it_can_work() {
    let mut world = World::with(1);
    world.seconds(20);
    // Renewals get through, work does not.
    world.link(0, |kind| {
        let is_work = matches!(kind, CommandKind::ScanDueJobs | CommandKind::ScanSweep);
        if is_work { Link::RequestLost } else { Link::Up }
    });
    world.seconds(25);
    assert_eq!(world.shares(), [128], "patience first");
    world.seconds(20);
    assert_eq!(world.shares(), [0]);
    let given_back = |resource| world.store.tables().lease(resource).owner.is_none();
    assert!(given_back(LeaseResource::Leadership), "nobody has to wait until it lapses");
    assert!(PartitionId::all().map(LeaseResource::Partition).all(given_back));
    world.seconds(60);
    assert_eq!(world.shares(), [0], "nothing is acquired that could not be worked on");
    world.link(0, up);
    world.seconds(10);
    assert_eq!(world.shares(), [128]);
    assert!(world.owner(LeaseResource::Leadership).is_some());
}

#[test]
fn a_long_standstill_is_survived() {
    let mut world = World::with(2);
    world.seconds(30);
    assert_eq!(world.shares(), [64, 64]);
    world.freeze(Span::from_secs(3_600));
    world.seconds(60);
    assert_eq!(world.shares(), [64, 64]);
    world.one_shot(Span::from_secs(1));
    world.seconds(2);
    assert_eq!(world.published.len(), 1);
}

#[test]
fn leadership_passes_on_when_the_leader_dies() {
    let mut world = World::with(3);
    world.seconds(20);
    let leader = (0..3).find(|node| world.nodes[*node].role.leadership().is_some()).expect("a leader");
    let token = world.nodes[leader].role.leadership();
    world.kill(leader);
    world.pass(Span::from_millis(10_100));
    let next = (0..3).filter(|node| *node != leader && world.nodes[*node].role.leadership().is_some());
    let tokens: Vec<_> = next.map(|node| world.nodes[node].role.leadership()).collect();
    assert_eq!(
        tokens,
        [token.and_then(crate::fencing::FencingToken::next)],
        "one, and just after the expiry"
    );
}

#[test]
fn every_lease_presented_is_one_that_the_store_granted() {
    let mut world = World::with(2);
    world.seconds(60);
    let mut presented: Vec<HeldLease> = Vec::new();
    for (at, command) in world.nodes.iter().flat_map(|node| &node.sent) {
        assert!(*at <= world.now && *at >= Monotonic::ZERO);
        if let Command::PromoteDue(command) = command {
            presented.extend(&command.leases);
        }
    }
    let is_known = |lease: &HeldLease| world.store.tables().lease(lease.resource).token >= lease.token;
    assert!(!presented.is_empty() && presented.iter().all(is_known));
}
