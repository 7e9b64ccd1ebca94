//! Failures in a row, by the reference semantics: what pauses a job, what ends a row, and what does not count.

use super::{OTHER_WORKER, START, TENANT, TTL, WORKER, World, definition, partition, secs};
use crate::execution::{DeadLetterReason, ExecutionState};
use crate::id::{EffectId, ExecutionId, JobId, JobVersion, Occurrence};
use crate::job::Standing;
use crate::job_plan::{ChangedBy, plan_change};
use crate::lease::RunId;
use crate::partition::PartitionId;
use crate::store::command::{
    AcquireExecution, AcquireExecutions, CancelExecution, Command, CreateJob, FinishExecution,
    FinishExecutions, JobChange, RunOutcome, TriggerJob,
};
use crate::store::row::JobRow;
use crate::time::Span;

/// The job, in the partition of the world's own.
fn fragile() -> JobId {
    let mut ids = (0x2000..).map(JobId::from_u128);
    ids.find(|id| PartitionId::of(*id) == partition()).expect("ids are spread over the partitions")
}

fn id(key: &str) -> ExecutionId {
    Occurrence::Manual { key: key.into() }.execution_id(fragile())
}

fn fails() -> RunOutcome {
    RunOutcome::DeadLettered { error: "boom".into(), reason: DeadLetterReason::NonRetryable }
}

/// A job that is paused after so many failures, and executions of it that run, a second apart.
fn with(most: u32, keys: &[&str]) -> World {
    let mut world = World::new();
    let text = format!(
        r#"{{"schema":1,"definition":{{"name":"f","handler":{{"name":"noop"}},"schedule":{{"kind":"manual"}},"pause_after_failures":{most}}}}}"#
    );
    world.apply(Command::CreateJob(CreateJob {
        tenant: TENANT,
        job: fragile(),
        request: None,
        definition: definition(&text),
        planned_at: START,
        recorded_through: START,
        next_fire_time: None,
        next_flex: Span::ZERO,
    }));
    for key in keys {
        world.start(key);
    }
    world
}

impl World {
    /// Triggers an execution and has it run.
    fn start(&mut self, key: &str) {
        self.pass(secs(1));
        self.apply(Command::TriggerJob(TriggerJob {
            tenant: TENANT,
            job: fragile(),
            execution: id(key),
            key: key.into(),
            payload: None,
            node: WORKER,
        }));
        let item = AcquireExecution {
            execution: id(key),
            nonce: EffectId(7),
            published_at: self.now,
            held: Span::ZERO,
        };
        self.apply(Command::AcquireExecutions(AcquireExecutions {
            node: OTHER_WORKER,
            ttl: TTL,
            items: vec![item],
        }));
    }

    /// Ends runs in one batch.
    fn end_all(&mut self, ends: &[(&str, RunOutcome)]) {
        self.pass(secs(1));
        let item = |(key, outcome): &(&str, RunOutcome)| {
            let token = self.store.tables().executions().get(&id(key)).expect("it was triggered").token;
            FinishExecution {
                run: RunId { execution: id(key), token },
                outcome: outcome.clone(),
                started_ago: None,
            }
        };
        let items = ends.iter().map(item).collect();
        self.apply(Command::FinishExecutions(FinishExecutions { node: OTHER_WORKER, items }));
    }

    fn fragile(&self) -> &JobRow {
        self.store.tables().jobs.get(&fragile()).expect("it was created")
    }

    fn is_paused(&self) -> bool {
        self.fragile().standing == Standing::Paused
    }

    fn resume(&mut self) {
        let by = ChangedBy::new("Zoë", "mended").expect("a name and a reason");
        let plan = plan_change(self.fragile(), None, JobChange::Resume, by, self.now).expect("it is paused");
        self.apply(Command::ChangeJob(plan));
        assert!(!self.is_paused());
    }
}

#[test]
fn the_last_of_so_many_failures_in_a_row_pauses_the_job_and_says_why() {
    let mut world = with(2, &["a", "b", "c"]);
    world.end_all(&[("a", fails())]);
    assert!(!world.is_paused());
    world.end_all(&[("b", fails())]);
    assert!(world.is_paused());
    let version = world.fragile().version;
    let row = world.store.tables().job_versions.get(&(fragile(), version)).expect("a version of its own");
    assert_eq!((row.version, row.actor.as_deref()), (JobVersion::FIRST.next(), Some("fencepost")));
    let reason = row.reason.as_deref().expect("it says why");
    assert!(reason.contains(&id("a").to_string()) && reason.contains("boom"), "{reason}");
    world.end_all(&[("c", fails())]);
    assert_eq!(world.fragile().version, version, "what is paused is not paused again");
}

#[test]
fn a_completion_ends_the_row_and_what_was_cancelled_counts_neither_way() {
    let mut world = with(2, &["a", "b", "c", "d"]);
    world.end_all(&[("a", fails()), ("b", RunOutcome::Completed)]);
    world.end_all(&[("c", fails())]);
    assert!(!world.is_paused(), "one that completed stands between them");
    world.apply(Command::CancelExecution(CancelExecution { tenant: TENANT, execution: id("d") }));
    world.end_all(&[("d", RunOutcome::Cancelled)]);
    assert!(!world.is_paused());
    world.start("e");
    world.end_all(&[("e", RunOutcome::Failed { error: "off".into() })]);
    assert!(world.is_paused(), "c and e, whatever became of d");
}

#[test]
fn the_row_is_that_of_due_times() {
    let mut world = with(2, &["a", "b", "c"]);
    world.end_all(&[("b", RunOutcome::Completed)]);
    world.end_all(&[("a", fails())]);
    world.end_all(&[("c", fails())]);
    assert!(!world.is_paused(), "b was to run between them, however early it ended");
}

#[test]
fn a_batch_is_looked_at_when_all_of_it_has_ended() {
    let mut world = with(1, &["a", "b"]);
    world.end_all(&[("a", fails()), ("b", RunOutcome::Completed)]);
    assert!(!world.is_paused());
}

#[test]
fn a_resume_starts_the_row_anew() {
    let mut world = with(2, &["a", "b"]);
    world.end_all(&[("a", fails()), ("b", fails())]);
    assert!(world.is_paused());
    world.pass(secs(1));
    world.resume();
    world.start("c");
    world.end_all(&[("c", fails())]);
    assert!(!world.is_paused(), "the first since the resume");
    world.start("d");
    world.end_all(&[("d", fails())]);
    assert!(world.is_paused());
}

#[test]
fn without_a_policy_nothing_is_paused_however_often_it_fails() {
    let mut world = World::with_run().0;
    let run = RunId { execution: super::execution_id(1), token: world.execution().token };
    world.finish(WORKER, run, fails());
    assert_eq!(world.execution().state, ExecutionState::DeadLettered);
    assert_eq!(world.job().standing, Standing::Active);
}
