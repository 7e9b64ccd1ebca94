//! Pauses of tenants and queues, by the reference semantics.

use super::*;
use crate::execution::{ExecutionState, WaitReason};
use crate::id::PauseId;
use crate::job::{HandlerName, HandlerRef};
use crate::limits::HELD_RECHECK;
use crate::pause::PauseScope;
use crate::store::command::{ChangeJob, JobChange, OperatorRequest, PauseChange, SetPause, TriggerJob};
use crate::store::reply::SetPauseReply;

const FIRST: PauseId = PauseId::from_u128(1);
const SECOND: PauseId = PauseId::from_u128(2);

fn ask(change: PauseChange, request: Option<&str>) -> SetPause {
    let request =
        request.map(|request| OperatorRequest { request: request.into(), fingerprint: uuid::Uuid::nil() });
    SetPause { tenant: TENANT, request, change, actor: "Zoë".into(), reason: "the disk is full".into() }
}

fn begin(pause: PauseId, scope: PauseScope) -> SetPause {
    ask(PauseChange::Pause { pause, scope }, None)
}

fn end(pause: PauseId, at_once: u32) -> SetPause {
    ask(PauseChange::Resume { pause, at_once }, None)
}

fn queue(name: &str, version: u32) -> PauseScope {
    PauseScope::Queue(HandlerRef { name: HandlerName::parse(name).expect("a name"), version })
}

const NOT_NOW: AcquireReply = AcquireReply::NotNow { state: ExecutionState::Pending };

impl World {
    fn set_pause(&mut self, ask: &SetPause) -> SetPauseReply {
        match self.apply(Command::SetPause(ask.clone())) {
            Reply::PauseSet(reply) => reply,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn asked_for_lease(&mut self) -> AcquireReply {
        let ask = self.ask_execution(WORKER);
        self.acquire(&ask)
    }

    fn by_hand(&mut self, key: &str) -> AcquireExecutions {
        let execution = Occurrence::Manual { key: key.into() }.execution_id(JOB);
        let (tenant, job, node) = (TENANT, JOB, OTHER_WORKER);
        let trigger = TriggerJob { tenant, job, execution, key: key.into(), payload: None, node };
        self.apply(Command::TriggerJob(trigger));
        let nonce = self.nonce();
        let item = AcquireExecution { execution, nonce, published_at: self.now, held: Span::ZERO };
        AcquireExecutions { node: WORKER, ttl: secs(10), items: vec![item] }
    }
}

#[test]
fn a_pause_of_the_tenant_holds_everything_back_until_its_resume() {
    let mut world = World::with_execution();
    assert_eq!(world.set_pause(&begin(FIRST, PauseScope::Tenant)), SetPauseReply::Paused);
    assert_eq!(world.asked_for_lease(), NOT_NOW);
    let row = world.execution().clone();
    assert_eq!((row.waiting, row.held_by), (Some(WaitReason::TenantPaused), Some(FIRST)));
    assert_eq!(row.next_try_at, Some(world.now.plus(HELD_RECHECK)));
    let by_hand = world.by_hand("k");
    assert_eq!(world.acquire(&by_hand), NOT_NOW, "what is triggered by hand waits as well");
    world.pass(secs(5));
    assert_eq!(world.set_pause(&end(FIRST, 10)), SetPauseReply::Resumed);
    assert_eq!(world.execution().next_try_at, Some(world.now), "the owner's next scan dispatches it");
    let pause = world.store.tables().pauses().get(&FIRST).expect("it is kept").clone();
    assert_eq!((pause.ended.map(|end| end.at), pause.lift_until), (Some(world.now), None));
    assert_eq!(world.promote().0.len(), 2);
    assert_eq!((world.execution().waiting, world.execution().held_by), (None, None));
    world.granted(WORKER);
}

#[test]
fn what_a_resume_leaves_waiting_is_picked_up_by_the_partitions_owner() {
    let mut world = World::with_execution();
    world.set_pause(&begin(FIRST, PauseScope::Tenant));
    assert_eq!(world.asked_for_lease(), NOT_NOW);
    world.pass(secs(5));
    assert_eq!(world.set_pause(&end(FIRST, 0)), SetPauseReply::Resumed);
    assert_eq!(world.execution().held_by, Some(FIRST));
    let lift_until = world.store.tables().pauses().get(&FIRST).and_then(|row| row.lift_until);
    assert_eq!(lift_until, Some(world.now.plus(HELD_RECHECK)));
    assert_eq!(world.promote().0.first().map(|dispatch| dispatch.execution), Some(execution_id(1)));
    assert_eq!(world.promote().0, [], "once");
    world.granted(WORKER);
}

#[test]
fn a_pause_of_a_queue_reaches_what_goes_there_alone() {
    let mut world = World::new();
    let text = r#"{"schema":99,"definition":{"handler":{"name":"http","version":2}}}"#;
    let planned = super::change_job::change_of(&world, JobChange::Edit(definition(text)));
    let reply = world.apply(Command::ChangeJob(ChangeJob { next_fire_time: Some(fire(1)), ..planned }));
    assert!(matches!(reply, Reply::JobChanged(_)), "{reply:?}");
    let by_hand = world.by_hand("k");
    for (number, elsewhere) in [queue("http", 1), queue("https", 2)].into_iter().enumerate() {
        let pause = PauseId::from_u128(10 + number as u128);
        assert_eq!(world.set_pause(&begin(pause, elsewhere)), SetPauseReply::Paused);
    }
    assert_eq!(world.set_pause(&begin(FIRST, queue("http", 2))), SetPauseReply::Paused);
    assert_eq!(world.acquire(&by_hand), NOT_NOW);
    let held = |world: &World| {
        let row = world.store.tables().executions().get(&by_hand.items[0].execution);
        row.and_then(|row| Some((row.waiting?, row.held_by?)))
    };
    assert_eq!(held(&world), Some((WaitReason::QueuePaused, FIRST)));
    world.set_pause(&end(FIRST, 0));
    assert!(matches!(world.acquire(&by_hand), AcquireReply::Granted(_)), "the other queues are none of its");
}

#[test]
fn what_stands_as_asked_for_is_answered_so_and_a_request_is_recognised() {
    let mut world = World::new();
    let first = ask(PauseChange::Pause { pause: FIRST, scope: PauseScope::Tenant }, Some("r"));
    assert_eq!(world.set_pause(&first), SetPauseReply::Paused);
    let repeated = world.changes_nothing(Command::SetPause(first));
    assert_eq!(repeated, Reply::PauseSet(SetPauseReply::Repeated { pause: FIRST }));
    let already = world.changes_nothing(Command::SetPause(begin(SECOND, PauseScope::Tenant)));
    assert_eq!(already, Reply::PauseSet(SetPauseReply::Already { pause: FIRST }));
    assert_eq!(world.set_pause(&end(SECOND, 1)), SetPauseReply::NotFound);
    assert_eq!(world.set_pause(&end(FIRST, 1)), SetPauseReply::Resumed);
    let ended = world.changes_nothing(Command::SetPause(end(FIRST, 1)));
    assert_eq!(ended, Reply::PauseSet(SetPauseReply::Already { pause: FIRST }));
    let late = world.changes_nothing(Command::SetPause(begin(FIRST, PauseScope::Tenant)));
    assert_eq!(late, Reply::PauseSet(SetPauseReply::IdTaken), "a pause that has ended does not begin again");
    let elsewhere = SetPause { tenant: TenantId::from_u128(0x99), ..begin(SECOND, PauseScope::Tenant) };
    assert_eq!(world.set_pause(&elsewhere), SetPauseReply::NotFound);
}

#[test]
fn what_runs_goes_on_when_its_tenant_is_paused() {
    let (mut world, run) = World::with_run();
    world.set_pause(&begin(FIRST, PauseScope::Tenant));
    world.renew_run(WORKER, run);
    let done = world.finish(WORKER, run, crate::store::command::RunOutcome::Completed);
    assert_eq!(done, crate::store::reply::FinishReply::Applied { state: ExecutionState::Completed });
}
