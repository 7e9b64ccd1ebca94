//! Overlap, by the reference semantics: who gets a job's slot, who waits for it, and who is passed over.

use super::{OTHER_WORKER, START, TENANT, TTL, WORKER, World, definition, partition, secs};
use crate::execution::{CancelState, ExecutionState, SkipReason, WaitReason};
use crate::id::{ExecutionId, JobId, Occurrence};
use crate::lease::RunId;
use crate::limits::OVERLAP_RECHECK;
use crate::partition::PartitionId;
use crate::store::command::{
    AcquireExecution, AcquireExecutions, CancelExecution, Command, CreateJob, RunOutcome, TriggerJob,
};
use crate::store::reply::{AcquireReply, FinishReply, Reply};
use crate::store::row::ExecutionRow;
use crate::time::Span;

const PASSED_OVER: AcquireReply = AcquireReply::Never { state: ExecutionState::Skipped };
const NOT_NOW: AcquireReply = AcquireReply::NotNow { state: ExecutionState::Pending };

/// The job, in the partition of the world's own.
fn limited() -> JobId {
    let mut ids = (0x1000..).map(JobId::from_u128);
    ids.find(|id| PartitionId::of(*id) == partition()).expect("ids are spread over the partitions")
}

/// A job with this overlap, and an execution of it per key, a second apart.
fn with(overlap: &str, keys: &[&str]) -> World {
    let mut world = World::new();
    let text = format!(
        r#"{{"schema":1,"definition":{{"name":"l","handler":{{"name":"noop"}},"schedule":{{"kind":"manual"}},"overlap":"{overlap}"}}}}"#
    );
    world.apply(Command::CreateJob(CreateJob {
        tenant: TENANT,
        job: limited(),
        request: None,
        definition: definition(&text),
        planned_at: START,
        recorded_through: START,
        next_fire_time: None,
        next_flex: Span::ZERO,
    }));
    for key in keys {
        world.pass(secs(1));
        world.apply(Command::TriggerJob(TriggerJob {
            tenant: TENANT,
            job: limited(),
            execution: id(key),
            key: (*key).into(),
            payload: None,
            node: WORKER,
        }));
    }
    world
}

fn id(key: &str) -> ExecutionId {
    Occurrence::Manual { key: key.into() }.execution_id(limited())
}

impl World {
    /// All of these in one batch.
    fn ask(&mut self, keys: &[&str]) -> Vec<AcquireReply> {
        let items = keys.iter().map(|key| AcquireExecution {
            execution: id(key),
            nonce: self.nonce(),
            published_at: self.now,
            held: Span::ZERO,
        });
        let items = items.collect();
        match self.apply(Command::AcquireExecutions(AcquireExecutions { node: WORKER, ttl: TTL, items })) {
            Reply::Acquired(replies) => replies,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn one(&self, key: &str) -> &ExecutionRow {
        self.store.tables().executions().get(&id(key)).expect("it was triggered")
    }

    fn run_of(&self, key: &str) -> RunId {
        RunId { execution: id(key), token: self.one(key).token }
    }

    fn dispatches_of(&self, key: &str) -> usize {
        self.store.tables().outbox_of(id(key)).count()
    }

    fn end(&mut self, key: &str, outcome: RunOutcome) -> FinishReply {
        let run = self.run_of(key);
        self.finish(WORKER, run, outcome)
    }
}

fn is_granted(reply: &AcquireReply) -> bool {
    matches!(reply, AcquireReply::Granted(_))
}

#[test]
fn skip_passes_over_what_asks_while_the_slot_is_held() {
    let mut world = with("skip", &["a", "b", "c"]);
    let replies = world.ask(&["a", "b"]);
    assert!(is_granted(&replies[0]), "{replies:?}");
    assert_eq!(replies[1], PASSED_OVER, "items of a batch see each other");
    let row = world.one("b");
    assert_eq!((row.state, row.skip_reason), (ExecutionState::Skipped, Some(SkipReason::Overlap)));
    assert_eq!(row.finished_at, Some(world.now));
    world.end("a", RunOutcome::Completed);
    assert!(is_granted(&world.ask(&["c"])[0]), "the slot is free");
}

#[test]
fn a_slot_is_held_through_the_wait_for_a_retry_and_the_retry_itself_is_never_judged() {
    let mut world = with("skip", &["a", "b"]);
    world.ask(&["a"]);
    world.end("a", RunOutcome::Retry { delay: Span::ZERO, error: "it broke".into() });
    assert_eq!(world.one("a").state, ExecutionState::RetryWait);
    assert_eq!(world.ask(&["b"]), [PASSED_OVER]);
    world.promote();
    assert!(is_granted(&world.ask(&["a"])[0]));
}

#[test]
fn of_several_under_buffer_one_the_first_waits_and_the_end_of_the_run_dispatches_it() {
    let mut world = with("buffer_one", &["a", "b", "c"]);
    world.ask(&["a"]);
    assert_eq!(world.ask(&["b", "c", "b"]), [NOT_NOW, PASSED_OVER, NOT_NOW]);
    let row = world.one("b");
    assert_eq!(row.waiting, Some(WaitReason::Buffered));
    assert_eq!(row.next_try_at, Some(world.now.plus(OVERLAP_RECHECK)));
    let before = world.dispatches_of("b");
    world.end("a", RunOutcome::Completed);
    let row = world.one("b");
    assert_eq!((row.waiting, row.next_try_at), (None, None));
    assert_eq!(row.dispatched_at, Some(world.now));
    assert_eq!(world.dispatches_of("b"), before + 1, "its outbox row is of the same transaction");
    assert!(is_granted(&world.ask(&["b"])[0]));
}

#[test]
fn a_cancel_of_what_waits_for_its_retry_lifts_what_waits_for_the_slot() {
    let mut world = with("buffer_one", &["a", "b"]);
    world.ask(&["a", "b"]);
    world.end("a", RunOutcome::Retry { delay: secs(60), error: "it broke".into() });
    assert_eq!(world.one("b").waiting, Some(WaitReason::Buffered));
    world.apply(Command::CancelExecution(CancelExecution { tenant: TENANT, execution: id("a") }));
    assert_eq!(world.one("b").waiting, None);
}

#[test]
fn a_cancel_of_what_waits_for_the_slot_leaves_the_slot_alone() {
    let mut world = with("buffer_one", &["a", "b"]);
    world.ask(&["a", "b"]);
    world.apply(Command::CancelExecution(CancelExecution { tenant: TENANT, execution: id("b") }));
    assert_eq!(world.one("a").cancel, CancelState::None);
    assert_eq!(world.one("b").state, ExecutionState::Cancelled);
}

#[test]
fn cancel_running_asks_what_runs_to_stop_and_waits_until_it_has() {
    let mut world = with("cancel_running", &["a", "b"]);
    world.ask(&["a"]);
    assert_eq!(world.ask(&["b"]), [NOT_NOW]);
    assert_eq!(world.one("a").cancel, CancelState::Requested);
    assert_eq!(
        world.end("a", RunOutcome::Cancelled),
        FinishReply::Applied { state: ExecutionState::Cancelled }
    );
    assert!(is_granted(&world.ask(&["b"])[0]));
}

#[test]
fn cancel_running_ends_what_waits_for_its_retry_at_once() {
    let mut world = with("cancel_running", &["a", "b"]);
    world.ask(&["a"]);
    world.end("a", RunOutcome::Retry { delay: secs(60), error: "it broke".into() });
    assert!(is_granted(&world.ask(&["b"])[0]));
    assert_eq!(world.one("a").state, ExecutionState::Cancelled);
}

#[test]
fn of_several_under_cancel_running_the_latest_fire_stays() {
    let mut world = with("cancel_running", &["a", "b", "c", "d"]);
    world.ask(&["a"]);
    assert_eq!(world.ask(&["c"]), [NOT_NOW]);
    assert_eq!(world.ask(&["b"]), [PASSED_OVER], "one that comes late is not the latest");
    assert_eq!(world.ask(&["d"]), [NOT_NOW]);
    assert_eq!(world.one("c").skip_reason, Some(SkipReason::Overlap));
    assert_eq!(world.one("d").waiting, Some(WaitReason::Buffered));
}

#[test]
fn the_sweep_that_ends_what_held_the_slot_lifts_what_waits() {
    use crate::execution::LeaseSign;
    use crate::store::command::{Repair, RepairItem, TakeOverEnd};
    let mut world = with("buffer_one", &["a", "b"]);
    world.ask(&["a", "b"]);
    world.pass(TTL);
    let leadership = world.lead(OTHER_WORKER);
    let item = RepairItem::TakeOver {
        run: world.run_of("a"),
        cancel: CancelState::None,
        sign: LeaseSign::None,
        end: TakeOverEnd::Failed,
    };
    world.apply(Command::Repair(Repair { node: OTHER_WORKER, leadership, items: vec![item] }));
    assert_eq!(world.one("b").waiting, None);
    let outbox = world.store.tables().outbox_of(id("b")).last().expect("it was dispatched");
    assert_eq!(outbox.created_by, WORKER, "in the name of whom the slot was held by");
}
