//! Concurrency limits, by the reference semantics: what counts, what waits, and who is lifted.

use super::{START, TENANT, TTL, WORKER, World, definition, secs};
use crate::execution::{ExecutionState, WaitReason};
use crate::id::{ExecutionId, JobId, Occurrence};
use crate::lease::RunId;
use crate::limits::LIMIT_RECHECK;
use crate::store::command::{
    AcquireExecution, AcquireExecutions, Command, CreateJob, OperatorRequest, RunOutcome, SetLimit,
    TriggerJob,
};
use crate::store::reply::{AcquireReply, Reply, SetLimitReply};
use crate::store::row::ExecutionRow;
use crate::time::Span;

const KEYED: JobId = JobId::from_u128(0x21b);
const NOT_NOW: AcquireReply = AcquireReply::NotNow { state: ExecutionState::Pending };

/// A job with the key `db`, and an execution of it per name, a second apart.
fn with(names: &[&str]) -> World {
    let mut world = World::new();
    let text = r#"{"schema":1,"definition":{"name":"k","handler":{"name":"noop"},"schedule":{"kind":"manual"},"concurrency_key":"db"}}"#;
    world.apply(Command::CreateJob(CreateJob {
        tenant: TENANT,
        job: KEYED,
        request: None,
        definition: definition(text),
        planned_at: START,
        recorded_through: START,
        next_fire_time: None,
        next_flex: Span::ZERO,
    }));
    for name in names {
        world.pass(secs(1));
        world.apply(Command::TriggerJob(TriggerJob {
            tenant: TENANT,
            job: KEYED,
            execution: id(name),
            key: (*name).into(),
            payload: None,
            node: WORKER,
        }));
    }
    world
}

fn id(name: &str) -> ExecutionId {
    Occurrence::Manual { key: name.into() }.execution_id(KEYED)
}

fn limit(key: Option<&str>, max_running: Option<u32>) -> SetLimit {
    SetLimit {
        tenant: TENANT,
        key: key.map(Into::into),
        max_running,
        request: None,
        actor: "Zoë".into(),
        reason: "the disk is slow".into(),
        node: WORKER,
    }
}

impl World {
    fn set(&mut self, ask: SetLimit) -> SetLimitReply {
        match self.apply(Command::SetLimit(ask)) {
            Reply::LimitSet(reply) => reply,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn asks(&mut self, names: &[&str]) -> Vec<bool> {
        let items = names.iter().map(|name| AcquireExecution {
            execution: id(name),
            nonce: self.nonce(),
            published_at: self.now,
            held: Span::ZERO,
        });
        let items = items.collect();
        match self.apply(Command::AcquireExecutions(AcquireExecutions { node: WORKER, ttl: TTL, items })) {
            Reply::Acquired(replies) => replies.iter().map(|reply| *reply != NOT_NOW).collect(),
            other => panic!("another reply: {other:?}"),
        }
    }

    fn named(&self, name: &str) -> &ExecutionRow {
        self.store.tables().executions().get(&id(name)).expect("it was triggered")
    }

    fn finish_named(&mut self, name: &str, outcome: RunOutcome) {
        let run = RunId { execution: id(name), token: self.named(name).token };
        self.finish(WORKER, run, outcome);
    }
}

#[test]
fn no_more_of_a_key_run_than_its_limit_and_the_end_of_one_dispatches_the_first_that_waits() {
    let mut world = with(&["a", "b", "c", "d"]);
    assert_eq!(world.set(limit(Some("db"), Some(2))), SetLimitReply::Set);
    assert_eq!(world.asks(&["a", "b", "d", "c"]), [true, true, false, false], "items see each other");
    let row = world.named("c");
    assert_eq!(
        (row.waiting, row.next_try_at),
        (Some(WaitReason::KeyLimit), Some(world.now.plus(LIMIT_RECHECK)))
    );
    world.finish_named("a", RunOutcome::Retry { delay: secs(60), error: "it broke".into() });
    assert_eq!(world.named("c").waiting, None, "the first by due time");
    assert_eq!(world.named("d").waiting, Some(WaitReason::KeyLimit));
    assert_eq!(world.asks(&["c", "d"]), [true, false]);
}

#[test]
fn the_limit_of_a_tenant_counts_all_that_it_runs() {
    let mut world = World::with_execution();
    world.set(limit(None, Some(1)));
    world.granted(WORKER);
    assert_eq!(with_trigger(&mut world, "a"), [false]);
    assert_eq!(world.named("a").waiting, Some(WaitReason::TenantLimit));
}

/// One more job in a world that has another, and what is said to an execution of it.
fn with_trigger(world: &mut World, name: &str) -> Vec<bool> {
    let text = r#"{"schema":1,"definition":{"name":"k","handler":{"name":"noop"},"schedule":{"kind":"manual"},"concurrency_key":"db"}}"#;
    world.apply(Command::CreateJob(CreateJob {
        tenant: TENANT,
        job: KEYED,
        request: None,
        definition: definition(text),
        planned_at: world.now,
        recorded_through: world.now,
        next_fire_time: None,
        next_flex: Span::ZERO,
    }));
    world.apply(Command::TriggerJob(TriggerJob {
        tenant: TENANT,
        job: KEYED,
        execution: id(name),
        key: name.into(),
        payload: None,
        node: WORKER,
    }));
    world.asks(&[name])
}

#[test]
fn a_limit_that_is_raised_or_taken_away_lifts_what_waits() {
    let mut world = with(&["a", "b", "c"]);
    world.set(limit(Some("db"), Some(1)));
    world.asks(&["a", "b", "c"]);
    world.set(limit(Some("db"), None));
    assert_eq!((world.named("b").waiting, world.named("c").waiting), (None, None));
}

#[test]
fn the_same_request_sets_a_limit_once_and_another_may_not_use_its_id() {
    let mut world = with(&["a"]);
    let asked = |fingerprint| OperatorRequest {
        request: "r".into(),
        fingerprint: uuid::Uuid::from_u128(fingerprint),
    };
    let ask = |fingerprint| SetLimit { request: Some(asked(fingerprint)), ..limit(None, Some(1)) };
    assert_eq!(world.set(ask(1)), SetLimitReply::Set);
    world.set(limit(None, None));
    assert_eq!(world.changes_nothing(Command::SetLimit(ask(1))), Reply::LimitSet(SetLimitReply::Repeated));
    assert_eq!(
        world.changes_nothing(Command::SetLimit(ask(2))),
        Reply::LimitSet(SetLimitReply::RequestReused)
    );
}
