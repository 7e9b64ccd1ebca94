//! Promotion and the outbox.

use super::*;
use crate::execution::ExecutionState;
use crate::limits::OUTBOX_DELAY_MAX;
use crate::store::command::{ReturnOutbox, ScanOutbox};
use crate::store::reply::RemovalReply;
use crate::store::row::{OutboxRow, RefusedAction};

impl World {
    fn read_outbox(&mut self, node: NodeId) -> (Vec<OutboxId>, Option<Timestamp>) {
        let ask =
            ScanOutbox { node, partitions: vec![partition()], own_grace: GRACE, delay: DELAY, limit: 10 };
        match self.apply(Command::ScanOutbox(ask)) {
            Reply::Outbox { dispatches, next_due } => {
                let id =
                    |read: &Dispatch| OutboxId { execution: read.execution, dispatch_no: read.dispatch_no };
                (dispatches.iter().map(id).collect(), next_due)
            }
            other => panic!("another reply: {other:?}"),
        }
    }

    fn confirm(&mut self, row: OutboxId) -> RemovalReply {
        match self.apply(Command::RemoveOutbox(RemoveOutbox { rows: vec![row], grace: GRACE })) {
            Reply::OutboxRemoved(mut replies) => replies.remove(0),
            other => panic!("another reply: {other:?}"),
        }
    }

    fn give_back(&mut self, row: OutboxId) -> RemovalReply {
        let ask = ReturnOutbox { rows: vec![(row, WaitReason::NoRoute)], delay: DELAY };
        match self.apply(Command::ReturnOutbox(ask)) {
            Reply::OutboxReturned(mut replies) => replies.remove(0),
            other => panic!("another reply: {other:?}"),
        }
    }

    /// The first execution waits for its retry, which is due after this delay.
    fn with_retry(delay: Span) -> Self {
        let (mut world, run) = Self::with_run();
        world.finish(WORKER, run, RunOutcome::Retry { delay, error: "no".into() });
        world
    }
}

#[test]
fn a_retry_that_is_due_becomes_pending_with_its_next_outbox_row() {
    let mut world = World::with_retry(TTL);
    let (dispatches, next_due) = world.promote();
    assert_eq!((dispatches.len(), next_due), (1, None));
    assert_eq!((dispatches[0].execution, dispatches[0].dispatch_no), (execution_id(1), DispatchNo(2)));
    assert_eq!(dispatches[0].key, world.execution().key);
    let row = world.execution();
    assert_eq!(
        (row.state, row.next_try_at, row.dispatched_at),
        (ExecutionState::Pending, None, Some(world.now))
    );
    assert_eq!(world.outbox(), [dispatch(1, 2)]);
}

#[test]
fn a_retry_is_not_promoted_before_it_is_due_and_its_time_is_named() {
    let mut world = World::with_retry(TTL.plus(INSTANT));
    assert_eq!(world.promote(), (vec![], Some(fire(1).plus(TTL).plus(INSTANT))));
    assert_eq!(world.execution().state, ExecutionState::RetryWait);
}

#[test]
fn what_waited_for_a_reason_is_dispatched_again() {
    let mut world = World::with_execution();
    world.defer(WaitReason::UnknownHandler);
    assert_eq!(world.promote().0.len(), 1);
    let row = world.execution();
    assert_eq!((row.waiting, row.next_try_at, row.waits), (None, None, 1));
    assert_eq!(world.outbox(), [dispatch(1, 2)]);
}

#[test]
fn a_promotion_sent_again_finds_nothing_left_to_promote() {
    let mut world = World::with_retry(TTL);
    world.pass(TTL);
    let ask = PromoteDue { node: SCHEDULER, leases: vec![world.own(SCHEDULER)], limit: 10 };
    world.apply(Command::PromoteDue(ask.clone()));
    let again = world.changes_nothing(Command::PromoteDue(ask));
    assert_eq!(again, Reply::Promoted { dispatches: vec![], refused: vec![], next_due: None });
}

#[test]
fn a_partition_that_has_passed_on_is_answered_and_recorded_and_the_others_are_served() {
    let mut world = World::with_retry(TTL);
    world.pass(TTL);
    let stale = LeaseResource::from_number(if partition().number() == 0 { 1 } else { 0 });
    let stale = HeldLease { resource: stale.expect("a partition"), token: FencingToken::from_i64(77) };
    let mut leases = vec![stale, world.own(SCHEDULER)];
    leases.sort();
    let ask = PromoteDue { node: SCHEDULER, leases, limit: 10 };
    let Reply::Promoted { dispatches, refused, .. } = world.apply(Command::PromoteDue(ask)) else {
        panic!("another reply")
    };
    let current = world.store.tables().lease(stale.resource).token;
    assert_eq!((dispatches.len(), refused), (1, vec![(stale, current)]));
    assert_eq!(
        (world.refusals()[0].action, world.refusals()[0].token),
        (RefusedAction::Promote, stale.token)
    );
}

#[test]
fn without_its_partition_nothing_is_promoted() {
    let mut world = World::with_retry(TTL);
    world.pass(TTL);
    let held = world.own(SCHEDULER);
    let ask = PromoteDue { node: OTHER_SCHEDULER, leases: vec![held], limit: 10 };
    let reply = world.apply(Command::PromoteDue(ask));
    assert_eq!(
        reply,
        Reply::Promoted { dispatches: vec![], refused: vec![(held, held.token)], next_due: None }
    );
    assert_eq!(world.execution().state, ExecutionState::RetryWait);
}

#[test]
fn an_outbox_row_of_another_is_read_back_at_once_and_an_own_one_after_its_grace() {
    let mut world = World::new();
    world.materialise_due(1);
    let mut other = World { store: world.store.clone(), changes: Vec::new(), ..world };
    assert_eq!(other.read_outbox(OTHER_SCHEDULER).0, [dispatch(1, 1)]);
    assert_eq!(world.read_outbox(SCHEDULER), (vec![], Some(fire(1).plus(GRACE))));
    world.pass(GRACE);
    assert_eq!(world.read_outbox(SCHEDULER), (vec![dispatch(1, 1)], Some(world.now.plus(DELAY))));
}

#[test]
fn an_own_row_that_another_read_back_stays_in_its_grace() {
    let mut world = World::new();
    world.materialise_due(1);
    let ask = |world: &mut World, node, delay| {
        let ask = ScanOutbox { node, partitions: vec![partition()], own_grace: GRACE, delay, limit: 10 };
        world.apply(Command::ScanOutbox(ask))
    };
    ask(&mut world, OTHER_SCHEDULER, secs(1));
    let reply = ask(&mut world, SCHEDULER, secs(1));
    let next_due = Some(fire(1).plus(GRACE));
    assert_eq!(reply, Reply::Outbox { dispatches: vec![], next_due });
}

#[test]
fn an_unconfirmed_row_is_read_back_with_growing_delay_up_to_the_longest() {
    let mut world = World::new();
    world.materialise_due(1);
    world.pass(GRACE);
    for delay in [4, 8, 16, 32, 64, 128, 256, 300, 300] {
        let next_due = Some(world.now.plus(secs(delay)));
        assert_eq!(world.read_outbox(SCHEDULER), (vec![dispatch(1, 1)], next_due));
        assert_eq!(world.read_outbox(SCHEDULER), (vec![], next_due));
        world.pass(OUTBOX_DELAY_MAX);
    }
}

#[test]
fn a_row_is_not_readable_before_it_was_made() {
    let mut world = World::new();
    world.materialise_due(1);
    world.read_outbox(OTHER_SCHEDULER);
    world.pass(DELAY);
    let row = world.store.tables().outbox().get(&dispatch(1, 1)).expect("it was not confirmed");
    // As a clock that has stepped back since would have written it.
    let row = OutboxRow { created_at: world.now.plus(MINUTE), ..row.clone() };
    world.store.tables.put_outbox(row, &mut Vec::new());
    world.read_outbox(OTHER_SCHEDULER);
    let row = world.store.tables().outbox().get(&dispatch(1, 1)).expect("it was not confirmed");
    assert_eq!(row.next_try_at, row.created_at);
}

#[test]
fn a_confirmed_row_goes_once() {
    let mut world = World::new();
    world.materialise_due(1);
    assert_eq!(world.confirm(dispatch(1, 1)), RemovalReply::Removed);
    assert_eq!(world.confirm(dispatch(1, 1)), RemovalReply::Absent);
    assert_eq!(world.outbox(), []);
}

#[test]
fn a_confirm_takes_no_other_dispatch_of_the_same_execution() {
    let mut world = World::with_retry(TTL);
    world.promote();
    assert_eq!(world.confirm(dispatch(1, 1)), RemovalReply::Absent);
    assert_eq!(world.outbox(), [dispatch(1, 2)]);
}

#[test]
fn only_a_late_removal_stamps_the_dispatch() {
    for (age, stamp) in [(GRACE.minus(INSTANT), fire(1)), (GRACE, fire(1).plus(GRACE))] {
        let mut world = World::new();
        world.materialise_due(1);
        world.pass(age);
        world.confirm(dispatch(1, 1));
        assert_eq!(world.execution().dispatched_at, Some(stamp));
    }
}

#[test]
fn a_late_removal_does_not_stamp_what_was_started_or_dispatched_since() {
    let mut world = World::new();
    world.materialise_due(1);
    world.defer(WaitReason::UnknownHandler);
    world.promote();
    let promoted_at = world.now;
    world.pass(MINUTE);
    world.confirm(dispatch(1, 1));
    assert_eq!(world.execution().dispatched_at, Some(promoted_at));
    world.granted(WORKER);
    world.confirm(dispatch(1, 2));
    assert_eq!(world.execution().dispatched_at, Some(promoted_at));
}

#[test]
fn a_returned_message_becomes_a_reason_for_waiting() {
    let mut world = World::new();
    world.materialise_due(1);
    assert_eq!(world.give_back(dispatch(1, 1)), RemovalReply::Removed);
    let row = world.execution();
    assert_eq!((row.state, row.waiting), (ExecutionState::Pending, Some(WaitReason::NoRoute)));
    assert_eq!((row.next_try_at, row.waits), (Some(world.now.plus(DELAY)), 1));
    assert_eq!(world.outbox(), []);
    assert_eq!(world.give_back(dispatch(1, 1)), RemovalReply::Absent);
}

#[test]
fn a_returned_message_of_what_runs_or_waits_or_was_superseded_changes_nothing_else() {
    let mut world = World::new();
    world.materialise_due(1);
    world.defer(WaitReason::UnknownHandler);
    let waiting = world.execution().clone();
    world.give_back(dispatch(1, 1));
    assert_eq!(world.execution(), &waiting);

    let mut world = World::new();
    world.materialise_due(1);
    world.granted(WORKER);
    world.give_back(dispatch(1, 1));
    assert_eq!((world.execution().state, world.execution().waiting), (ExecutionState::Running, None));

    let mut world = World::new();
    world.materialise_due(1);
    world.defer(WaitReason::UnknownHandler);
    world.promote();
    world.give_back(dispatch(1, 1));
    assert_eq!((world.execution().waiting, world.outbox()), (None, vec![dispatch(1, 2)]));
}
