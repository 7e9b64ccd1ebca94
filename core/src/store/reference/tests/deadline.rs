//! Deadlines, by the reference semantics: what waits past its own is ended by its message and by the sweep, and frees what
//! it held.

use super::{OTHER_WORKER, START, TENANT, TTL, WORKER, World, definition, partition, secs};
use crate::execution::{DeadLetterReason, ExecutionState};
use crate::id::{EffectId, ExecutionId, JobId, NodeId, Occurrence};
use crate::job::Standing;
use crate::lease::{LeaseResource, RunId};
use crate::partition::PartitionId;
use crate::store::command::{
    AcquireExecution, AcquireExecutions, Command, CreateJob, FinishExecution, FinishExecutions, Repair,
    RepairItem, RunOutcome, ScanSweep, TriggerJob,
};
use crate::store::reply::{AcquireReply, RepairItemReply, RepairReply, Reply};
use crate::store::row::ExecutionRow;
use crate::time::Span;

/// The job, in the partition of the world's own.
fn bounded() -> JobId {
    let mut ids = (0x3000..).map(JobId::from_u128);
    ids.find(|id| PartitionId::of(*id) == partition()).expect("ids are spread over the partitions")
}

fn id(key: &str) -> ExecutionId {
    Occurrence::Manual { key: key.into() }.execution_id(bounded())
}

/// A job whose executions have ten seconds, with more fields.
fn with(rest: &str) -> World {
    let mut world = World::new();
    let text = format!(
        r#"{{"schema":1,"definition":{{"name":"b","handler":{{"name":"noop"}},"schedule":{{"kind":"manual"}},"attempt_timeout_ms":1000,"deadline_ms":10000{rest}}}}}"#
    );
    world.apply(Command::CreateJob(CreateJob {
        tenant: TENANT,
        job: bounded(),
        request: None,
        definition: definition(&text),
        planned_at: START,
        recorded_through: START,
        next_fire_time: None,
        next_flex: Span::ZERO,
    }));
    world
}

impl World {
    fn trigger_bounded(&mut self, key: &str) {
        self.apply(Command::TriggerJob(TriggerJob {
            tenant: TENANT,
            job: bounded(),
            execution: id(key),
            key: key.into(),
            payload: None,
            node: WORKER,
        }));
    }

    fn ask_bounded(&mut self, node: NodeId, keys: &[&str]) -> Vec<AcquireReply> {
        let item = |key: &&str| AcquireExecution {
            execution: id(key),
            nonce: EffectId(self.now.as_micros().unsigned_abs()),
            published_at: self.now,
            held: Span::ZERO,
        };
        let items = keys.iter().map(item).collect();
        match self.apply(Command::AcquireExecutions(AcquireExecutions { node, ttl: TTL, items })) {
            Reply::Acquired(replies) => replies,
            other => panic!("{other:?}"),
        }
    }

    fn bounded_row(&self, key: &str) -> &ExecutionRow {
        self.store.tables().executions().get(&id(key)).expect("it was triggered")
    }

    fn overdue(&mut self) -> Vec<(RunId, ExecutionState)> {
        let (redispatch_after, node_stale_after) = (secs(3_600), secs(3_600));
        match self.apply(Command::ScanSweep(ScanSweep { limit: 10, redispatch_after, node_stale_after })) {
            Reply::Sweep(findings) => findings.overdue,
            other => panic!("{other:?}"),
        }
    }

    fn end_overdue(&mut self, found: &[(RunId, ExecutionState)]) -> Vec<RepairItemReply> {
        let row = self.store.tables().lease(LeaseResource::Leadership);
        let leadership = if row.owner == Some(WORKER) { row.token } else { self.lead(WORKER) };
        let items = found.iter().map(|(run, state)| RepairItem::EndOverdue { run: *run, state: *state });
        let command = Command::Repair(Repair { node: WORKER, leadership, items: items.collect() });
        match self.apply(command) {
            Reply::Repaired(RepairReply::Applied(replies)) => replies,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_lease_says_what_is_left_and_at_the_deadline_none_is_granted() {
    let mut world = with("");
    world.trigger_bounded("in time");
    world.trigger_bounded("late");
    world.pass(secs(4));
    let replies = world.ask_bounded(WORKER, &["in time"]);
    assert!(matches!(&replies[..], [AcquireReply::Granted(grant)] if grant.left == Some(secs(6))));
    world.pass(secs(6));
    let state = ExecutionState::DeadLettered;
    assert_eq!(world.ask_bounded(WORKER, &["late"]), [AcquireReply::Never { state }]);
    let letter = world.store.tables().dead_letters().get(&id("late")).expect("it is kept");
    assert_eq!((letter.reason, letter.attempts), (DeadLetterReason::Deadline, 0));
    assert_eq!(world.bounded_row("in time").state, ExecutionState::Running, "what runs is its worker's");
}

#[test]
fn what_waits_for_its_retry_is_ended_by_the_sweep_once() {
    let mut world = with(r#","dead_letter":"off""#);
    world.trigger_bounded("retried");
    world.ask_bounded(OTHER_WORKER, &["retried"]);
    let run = RunId { execution: id("retried"), token: world.bounded_row("retried").token };
    let outcome = RunOutcome::Retry { delay: secs(100), error: "busy".into() };
    let items = vec![FinishExecution { run, outcome, started_ago: None }];
    world.apply(Command::FinishExecutions(FinishExecutions { node: OTHER_WORKER, items }));
    assert_eq!(world.overdue(), []);
    world.pass(secs(10));
    let found = world.overdue();
    assert_eq!(found, [(run, ExecutionState::RetryWait)]);
    assert_eq!(world.end_overdue(&found), [RepairItemReply::Done]);
    let row = world.bounded_row("retried");
    assert_eq!((row.state, row.error.as_deref()), (ExecutionState::Failed, Some("busy")));
    assert_eq!(world.end_overdue(&found), [RepairItemReply::Moved], "it is not as it was observed");
    assert_eq!(world.overdue(), []);
}

#[test]
fn one_that_held_its_jobs_slot_gives_it_back_and_whoever_waits_for_that_is_dispatched() {
    let mut world = with(r#","overlap":"buffer_one""#);
    world.trigger_bounded("holder");
    world.ask_bounded(OTHER_WORKER, &["holder"]);
    let run = RunId { execution: id("holder"), token: world.bounded_row("holder").token };
    let outcome = RunOutcome::Retry { delay: secs(100), error: "busy".into() };
    let items = vec![FinishExecution { run, outcome, started_ago: None }];
    world.apply(Command::FinishExecutions(FinishExecutions { node: OTHER_WORKER, items }));
    world.pass(secs(5));
    world.trigger_bounded("behind");
    let state = ExecutionState::Pending;
    assert_eq!(world.ask_bounded(WORKER, &["behind"]), [AcquireReply::NotNow { state }]);
    world.pass(secs(5));
    let found = world.overdue();
    world.end_overdue(&found);
    assert_eq!(world.bounded_row("holder").state, ExecutionState::DeadLettered);
    let behind = world.bounded_row("behind");
    assert_eq!((behind.waiting, behind.dispatch_no.0), (None, 2), "it was lifted");
}

#[test]
fn what_is_ended_for_its_deadline_is_a_failure_of_its_job() {
    let mut world = with(r#","pause_after_failures":2"#);
    world.trigger_bounded("first");
    world.trigger_bounded("second");
    world.pass(secs(10));
    world.ask_bounded(WORKER, &["first", "second"]);
    let job = world.store.tables().jobs().get(&bounded()).expect("it was created");
    assert_eq!(job.standing, Standing::Paused);
}
