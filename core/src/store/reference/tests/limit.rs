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

#[test]
fn of_what_waits_for_a_limit_each_priority_is_let_go_by_its_weight_and_no_place_is_left() {
    let mut world = with(&[]);
    let job = |at: usize| JobId::from_u128(0x300 + at as u128);
    let names: Vec<String> = (0..60).map(|number| format!("e{number}")).collect();
    for (at, priority) in ["low", "normal", "high"].into_iter().enumerate() {
        let text = format!(
            r#"{{"schema":1,"definition":{{"name":"k","handler":{{"name":"noop"}},"schedule":{{"kind":"manual"}},"priority":"{priority}"}}}}"#
        );
        world.apply(Command::CreateJob(CreateJob {
            tenant: TENANT,
            job: job(at),
            request: None,
            definition: definition(&text),
            planned_at: world.now,
            recorded_through: world.now,
            next_fire_time: None,
            next_flex: Span::ZERO,
        }));
        for name in &names {
            world.pass(secs(1));
            let execution = Occurrence::Manual { key: name.as_str().into() }.execution_id(job(at));
            world.apply(Command::TriggerJob(TriggerJob {
                tenant: TENANT,
                job: job(at),
                execution,
                key: name.as_str().into(),
                payload: None,
                node: WORKER,
            }));
        }
    }
    world.set(limit(None, Some(1)));
    let waiting = |world: &World| -> Vec<ExecutionRow> {
        let all = world.store.tables().executions().iter();
        all.filter(|row| row.waiting == Some(WaitReason::TenantLimit)).cloned().collect()
    };
    let ask = |world: &mut World, execution: ExecutionId| {
        let item =
            AcquireExecution { execution, nonce: world.nonce(), published_at: world.now, held: Span::ZERO };
        world.apply(Command::AcquireExecutions(AcquireExecutions {
            node: WORKER,
            ttl: TTL,
            items: vec![item],
        }))
    };
    let everything: Vec<ExecutionId> = world.store.tables().executions().iter().map(|row| row.id).collect();
    everything.iter().for_each(|execution| drop(ask(&mut world, *execution)));
    let mut running = *everything.first().expect("there are some");
    let mut let_go = [0_usize; 3];
    for _ in 0..80 {
        let before = waiting(&world);
        let run = RunId {
            execution: running,
            token: world.store.tables().executions().get(&running).expect("it runs").token,
        };
        world.finish(WORKER, run, RunOutcome::Completed);
        let after: Vec<ExecutionId> = waiting(&world).iter().map(|row| row.id).collect();
        let gone: Vec<_> = before.into_iter().filter(|row| !after.contains(&row.id)).collect();
        assert_eq!(gone.len(), 1, "one place, one let go");
        running = gone[0].id;
        let_go[(0..3).find(|at| job(*at) == gone[0].job).expect("one of the three")] += 1;
        ask(&mut world, running);
    }
    let [low, normal, high] = let_go;
    assert!(low >= 4 && normal >= 10 && high >= 40, "{let_go:?}, though all of the low ones were due first");
}
