//! What a sweep finds and repairs.

use super::*;
use crate::execution::{AttemptEnd, CancelState, DeadLetterReason, ExecutionState, LeaseSign};
use crate::limits::{LEASE_TTL_MAX, LIVENESS_AHEAD_MAX, REDISPATCH_DELAY_MAX};
use crate::store::command::{Heartbeat, Repair, RepairItem, ScanSweep, TakeOverEnd};
use crate::store::reply::{RepairItemReply, RepairReply, SweepFindings};
use crate::store::row::{NodeRole, NodeState, RefusedAction, RefusedResource};

const REDISPATCH_AFTER: Span = Span::from_secs(30);
const STALE_AFTER: Span = Span::from_secs(60);

impl World {
    fn find(&mut self, limit: u32) -> SweepFindings {
        let ask = ScanSweep { limit, redispatch_after: REDISPATCH_AFTER, node_stale_after: STALE_AFTER };
        match self.changes_nothing(Command::ScanSweep(ask)) {
            Reply::Sweep(findings) => findings,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn expired(&mut self) -> Vec<ExecutionId> {
        self.find(10).expired.into_iter().map(|expired| expired.run.execution).collect()
    }

    fn undelivered(&mut self) -> Vec<OutboxId> {
        self.find(10).undelivered
    }

    /// A repair under fresh leadership.
    fn repair(&mut self, item: RepairItem) -> RepairItemReply {
        let row = self.store.tables().lease(LeaseResource::Leadership);
        let leadership = if row.owner == Some(SCHEDULER) { row.token } else { self.lead(SCHEDULER) };
        let ask = Repair { node: SCHEDULER, leadership, items: vec![item] };
        match self.apply(Command::Repair(ask)) {
            Reply::Repaired(RepairReply::Applied(mut replies)) => replies.remove(0),
            other => panic!("another reply: {other:?}"),
        }
    }

    fn take_over(&mut self, run: RunId, end: TakeOverEnd) -> RepairItemReply {
        let (cancel, sign) = (CancelState::None, LeaseSign::None);
        self.repair(RepairItem::TakeOver { run, cancel, sign, end })
    }

    fn report(&mut self, node: NodeId) {
        let report = Heartbeat {
            node,
            role: NodeRole::Worker,
            label: "host".into(),
            schema: 1,
            state: NodeState::Active,
            capacity: 8,
            live_within: secs(10),
        };
        self.apply(Command::Heartbeat(report));
    }
}

#[test]
fn an_expired_run_is_found_from_the_instant_of_its_expiry() {
    let (mut world, run) = World::with_run();
    world.now = fire(1).plus(TTL).minus(INSTANT);
    assert_eq!(world.expired(), []);
    world.pass(INSTANT);
    let found = world.find(10).expired;
    assert_eq!((found.len(), found[0].run, found[0].sign), (1, run, LeaseSign::None));
    assert_eq!(found[0].definition, definition("one"));
}

#[test]
fn a_run_leased_further_ahead_than_any_lease_reaches_is_found_after_those_that_lapsed() {
    let (mut world, _) = World::with_run();
    let ahead = |world: &World| {
        let mut row = world.execution().clone();
        row.id = execution_id(2);
        row.expires_at = world.now.plus(LEASE_TTL_MAX).plus(INSTANT);
        row
    };
    world.pass(TTL);
    let row = ahead(&world);
    world.store.tables.put_execution(row, &mut Vec::new());
    assert_eq!(world.expired(), [execution_id(1), execution_id(2)]);
    assert_eq!(world.find(1).expired.len(), 1);
    world.pass(INSTANT);
    assert_eq!(world.expired(), [execution_id(1)]);
}

#[test]
fn a_lost_lease_ends_as_decided_and_counts_on_the_budget_of_its_sign() {
    use ExecutionState as State;
    let ends = [
        (TakeOverEnd::Retry(secs(5)), State::RetryWait),
        (TakeOverEnd::Cancelled, State::Cancelled),
        (TakeOverEnd::DeadLettered(DeadLetterReason::RescuesSpent), State::DeadLettered),
        (TakeOverEnd::Failed, State::Failed),
    ];
    for (end, state) in ends {
        for (sign, counts) in [(LeaseSign::None, (0, 1)), (LeaseSign::Started, (1, 0))] {
            let (mut world, run) = World::with_run();
            if sign == LeaseSign::Started {
                world.renew_run(WORKER, run);
            }
            world.pass(TTL);
            let cancel = CancelState::None;
            let done = world.repair(RepairItem::TakeOver { run, cancel, sign, end });
            assert_eq!(done, RepairItemReply::Done);
            let row = world.execution();
            assert_eq!((row.state, row.owner, row.attempts), (state, None, 0));
            assert_eq!((row.rescues, row.lost_starts), counts);
            assert_eq!(row.next_try_at.is_some(), state == State::RetryWait);
            let attempt = world.store.tables().attempts().iter().last().expect("a lost lease is recorded");
            assert_eq!(
                (attempt.end, attempt.node, attempt.token),
                (AttemptEnd::Lost, Some(WORKER), run.token)
            );
            let records = world.store.tables().dead_letters().len();
            assert_eq!(records, usize::from(state == State::DeadLettered));
        }
    }
}

#[test]
fn a_takeover_sent_again_does_nothing() {
    let (mut world, run) = World::with_run();
    world.pass(TTL);
    assert_eq!(world.take_over(run, TakeOverEnd::Retry(secs(1))), RepairItemReply::Done);
    let once = world.store.dump();
    assert_eq!(world.take_over(run, TakeOverEnd::Retry(secs(1))), RepairItemReply::Moved);
    assert_eq!(world.store.dump(), once);
}

#[test]
fn a_run_that_changed_since_it_was_observed_is_not_taken_over() {
    let changes: [fn(&mut World, RunId); 4] = [
        |world, run| {
            world.renew_run(WORKER, run);
        },
        |world, _| world.ask_to_stop(),
        |world, run| {
            world.finish(WORKER, run, RunOutcome::Completed);
        },
        |world, run| {
            world.finish(WORKER, run, RunOutcome::Released);
            world.promote();
            world.granted(OTHER_WORKER);
            world.pass(TTL);
        },
    ];
    for change in changes {
        let (mut world, run) = World::with_run();
        world.pass(TTL);
        change(&mut world, run);
        let before = world.execution().clone();
        assert_eq!(world.take_over(run, TakeOverEnd::Failed), RepairItemReply::Moved);
        assert_eq!(world.execution(), &before);
    }
}

#[test]
fn a_worker_whose_run_was_taken_over_cannot_finish_it() {
    let (mut world, run) = World::with_run();
    world.pass(TTL);
    world.take_over(run, TakeOverEnd::Retry(secs(1)));
    let reply = world.finish(WORKER, run, RunOutcome::Completed);
    assert_eq!(reply, FinishReply::Refused { current: run.token, state: ExecutionState::RetryWait });
}

#[test]
fn what_was_dispatched_and_never_started_is_found_after_a_delay_that_doubles() {
    let mut world = World::with_execution();
    for delay in [30, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600] {
        world.pass(secs(delay).minus(INSTANT));
        assert_eq!(world.undelivered(), []);
        world.pass(INSTANT);
        let dispatch = world.undelivered()[0];
        assert_eq!(world.repair(RepairItem::Redispatch { dispatch }), RepairItemReply::Done);
        let next = OutboxId { dispatch_no: dispatch.dispatch_no.next(), ..dispatch };
        assert_eq!(world.outbox(), [next]);
        world.apply(Command::RemoveOutbox(RemoveOutbox { rows: vec![next], grace: GRACE }));
    }
    world.granted(WORKER);
    assert_eq!(world.execution().redispatches, 0);
}

#[test]
fn what_still_has_an_outbox_row_or_waits_is_not_undelivered() {
    let mut world = World::new();
    world.materialise_due(1);
    world.pass(MINUTE);
    assert_eq!(world.undelivered(), []);
    world.apply(Command::RemoveOutbox(RemoveOutbox { rows: vec![dispatch(1, 1)], grace: GRACE }));
    world.pass(MINUTE);
    assert_eq!(world.undelivered(), [dispatch(1, 1)]);
    world.defer(WaitReason::NoRoute);
    assert_eq!(world.undelivered(), []);
}

#[test]
fn a_dispatch_stamp_too_far_ahead_is_not_waited_for() {
    let mut world = World::with_execution();
    let reaches = world.now.plus(REDISPATCH_DELAY_MAX).minus(REDISPATCH_AFTER);
    world.doctor(|row| row.dispatched_at = Some(reaches));
    assert_eq!(world.undelivered(), []);
    world.doctor(|row| row.dispatched_at = Some(reaches.plus(INSTANT)));
    assert_eq!(world.undelivered(), [dispatch(1, 1)]);
}

#[test]
fn undelivered_ones_come_by_stamp_however_often_they_were_dispatched_again() {
    let mut world = World::with_execution();
    let first = world.execution().clone();
    for (number, redispatches, age) in [(2, 1, 90), (3, 0, 100), (4, 2, 110), (5, 2, 130)] {
        let row = ExecutionRow {
            id: execution_id(number),
            redispatches,
            dispatched_at: Some(world.now.minus(secs(age))),
            ..first.clone()
        };
        world.store.tables.put_execution(row, &mut Vec::new());
    }
    assert_eq!(world.undelivered(), [dispatch(5, 1), dispatch(3, 1), dispatch(2, 1)]);
    assert_eq!(world.find(2).undelivered, [dispatch(5, 1), dispatch(3, 1)]);
}

#[test]
fn a_redispatch_of_another_dispatch_than_the_latest_does_nothing() {
    let mut world = World::with_execution();
    let item = RepairItem::Redispatch { dispatch: dispatch(1, 1) };
    assert_eq!(world.repair(item.clone()), RepairItemReply::Done);
    assert_eq!(world.repair(item.clone()), RepairItemReply::Moved);
    world.apply(Command::RemoveOutbox(RemoveOutbox { rows: vec![dispatch(1, 2)], grace: GRACE }));
    assert_eq!(world.repair(item), RepairItemReply::Moved);
    assert_eq!(world.execution().redispatches, 1);
}

#[test]
fn outbox_rows_of_what_has_ended_are_found_and_dropped() {
    let mut world = World::new();
    world.materialise_due(1);
    let item = RepairItem::DropOutbox { row: dispatch(1, 1) };
    assert_eq!(world.repair(item.clone()), RepairItemReply::Moved);
    world.ask_to_stop();
    assert_eq!(world.find(10).settled, [dispatch(1, 1)]);
    assert_eq!(world.repair(item.clone()), RepairItemReply::Done);
    assert_eq!(world.repair(item), RepairItemReply::Moved);
    assert_eq!((world.outbox(), world.find(10).settled), (vec![], vec![]));
}

#[test]
fn a_silent_node_is_found_retired_and_back_with_its_next_report() {
    let mut world = World::new();
    world.report(WORKER);
    world.pass(STALE_AFTER.minus(INSTANT));
    assert_eq!(world.find(10).stale_nodes, []);
    world.pass(INSTANT);
    assert_eq!(world.find(10).stale_nodes, [(WORKER, START)]);
    let item = RepairItem::RetireNode { node: WORKER, seen_at: START };
    assert_eq!(world.repair(item.clone()), RepairItemReply::Done);
    assert_eq!(world.find(10).stale_nodes, []);
    assert_eq!(world.repair(item.clone()), RepairItemReply::Moved);
    world.report(WORKER);
    assert_eq!(world.repair(item), RepairItemReply::Moved);
    let row = world.store.tables().nodes().get(&WORKER).expect("it reported");
    assert_eq!((row.state, row.started_at), (NodeState::Active, START));
}

#[test]
fn a_report_too_far_ahead_is_stale() {
    let mut world = World::new();
    world.report(WORKER);
    world.step_back(LIVENESS_AHEAD_MAX.plus(INSTANT));
    assert_eq!(world.find(10).stale_nodes, [(WORKER, START)]);
}

#[test]
fn a_leader_that_was_replaced_repairs_nothing_and_that_is_recorded_once() {
    let (mut world, run) = World::with_run();
    let stale = world.lead(SCHEDULER);
    world.pass(TTL);
    let current = world.lead(OTHER_SCHEDULER);
    let (cancel, sign) = (CancelState::None, LeaseSign::None);
    let item = RepairItem::TakeOver { run, cancel, sign, end: TakeOverEnd::Failed };
    let ask = Repair { node: SCHEDULER, leadership: stale, items: vec![item.clone(), item] };
    let reply = world.apply(Command::Repair(ask));
    assert_eq!(reply, Reply::Repaired(RepairReply::StaleLeadership { current }));
    assert_eq!(world.execution().state, ExecutionState::Running);
    let refusal = world.refusals()[0];
    assert_eq!(refusal.resource, RefusedResource::Lease(LeaseResource::Leadership));
    assert_eq!((refusal.action, refusal.count), (RefusedAction::Repair, 1));
}
