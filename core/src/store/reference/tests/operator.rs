//! Tenants, jobs, triggers and cancels.

use super::*;
use crate::execution::{CancelState, ExecutionState};
use crate::job::Payload;
use crate::limits::PLAN_AGE_MAX;
use crate::store::command::{CancelExecution, DeleteJob, OperatorRequest, TriggerJob};
use crate::store::reply::{CancelReply, CreateJobReply, CreateTenantReply, DeleteJobReply, TriggerReply};
use crate::store::row::JobState;

const OTHER_TENANT: TenantId = TenantId::from_u128(0x7f);
const OTHER_JOB: JobId = JobId::from_u128(0x10c);
const API: NodeId = NodeId::from_u128(0x71);

fn manual(key: &str) -> ExecutionId {
    Occurrence::Manual { key: key.into() }.execution_id(JOB)
}

fn trigger(key: &str, payload: Option<&str>) -> TriggerJob {
    TriggerJob {
        tenant: TENANT,
        job: JOB,
        execution: manual(key),
        key: key.into(),
        payload: payload.map(|text| Payload::from_json(text).expect("the tests send JSON")),
        node: API,
    }
}

impl World {
    fn create_tenant(&mut self, tenant: TenantId, name: &str) -> CreateTenantReply {
        match self.apply(Command::CreateTenant(CreateTenant { tenant, name: name.into() })) {
            Reply::TenantCreated(reply) => reply,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn create_job(&mut self, ask: &CreateJob) -> CreateJobReply {
        match self.apply(Command::CreateJob(ask.clone())) {
            Reply::JobCreated(reply) => reply,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn delete(&mut self, tenant: TenantId) -> DeleteJobReply {
        match self.apply(Command::DeleteJob(DeleteJob { tenant, job: JOB })) {
            Reply::JobDeleted(reply) => reply,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn trigger(&mut self, ask: TriggerJob) -> TriggerReply {
        match self.apply(Command::TriggerJob(ask)) {
            Reply::JobTriggered(reply) => reply,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn cancel(&mut self, tenant: TenantId, execution: ExecutionId) -> CancelReply {
        match self.apply(Command::CancelExecution(CancelExecution { tenant, execution })) {
            Reply::ExecutionCancelled(reply) => reply,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn asked(&self, request: &str, fingerprint: u128) -> CreateJob {
        let fingerprint = uuid::Uuid::from_u128(fingerprint);
        let request = Some(OperatorRequest { request: request.into(), fingerprint });
        CreateJob { request, ..self.new_job(OTHER_JOB) }
    }
}

#[test]
fn a_name_is_one_tenants() {
    let mut world = World::new();
    assert_eq!(world.create_tenant(TENANT, "acme"), CreateTenantReply::Repeated);
    assert_eq!(world.create_tenant(OTHER_TENANT, "acme"), CreateTenantReply::NameTaken);
    assert_eq!(world.create_tenant(TENANT, "emca"), CreateTenantReply::NameTaken);
    assert_eq!(world.create_tenant(OTHER_TENANT, "emca"), CreateTenantReply::Created);
}

#[test]
fn a_job_begins_with_its_first_version_and_the_reading_it_was_planned_on() {
    let mut world = World::new();
    let ask = world.new_job(OTHER_JOB);
    world.pass(secs(1));
    assert_eq!(world.create_job(&ask), CreateJobReply::Created);
    let job = world.store.tables().jobs().get(&OTHER_JOB).expect("it was just created");
    assert_eq!((job.version, job.created_at, job.effective_from), (JobVersion::FIRST, START, START));
    assert_eq!((job.next_try_at, job.partition), (START.plus(MINUTE), PartitionId::of(OTHER_JOB)));
    assert!(world.store.tables().job_versions().contains(&(OTHER_JOB, JobVersion::FIRST)));
}

#[test]
fn a_job_of_an_unknown_tenant_is_not_made() {
    let mut world = World::new();
    let ask = CreateJob { tenant: OTHER_TENANT, ..world.new_job(OTHER_JOB) };
    assert_eq!(world.create_job(&ask), CreateJobReply::NoTenant);
}

#[test]
fn a_job_id_is_used_once() {
    let mut world = World::new();
    assert_eq!(world.create_job(&world.new_job(JOB)), CreateJobReply::IdTaken);
    world.delete(TENANT);
    assert_eq!(world.create_job(&world.new_job(JOB)), CreateJobReply::IdTaken);
}

#[test]
fn a_request_sent_again_gets_the_same_job_however_late() {
    let mut world = World::new();
    let ask = world.asked("r1", 7);
    assert_eq!(world.create_job(&ask), CreateJobReply::Created);
    world.pass(PLAN_AGE_MAX.times(2));
    let again = CreateJob { job: JobId::from_u128(0x999), ..ask };
    assert_eq!(world.create_job(&again), CreateJobReply::Repeated { job: OTHER_JOB });
}

#[test]
fn a_request_id_used_for_something_else_is_refused() {
    let mut world = World::new();
    world.create_job(&world.asked("r1", 7));
    assert_eq!(world.create_job(&world.asked("r1", 8)), CreateJobReply::RequestReused);
    world.create_tenant(OTHER_TENANT, "emca");
    let other = CreateJob { tenant: OTHER_TENANT, job: JobId::from_u128(0x999), ..world.asked("r1", 8) };
    assert_eq!(world.create_job(&other), CreateJobReply::Created);
}

#[test]
fn a_plan_made_too_long_ago_or_ahead_of_the_clock_is_not_carried_out() {
    let mut world = World::new();
    let ask = world.asked("r1", 7);
    world.now = START.plus(PLAN_AGE_MAX).plus(INSTANT);
    assert_eq!(world.create_job(&ask), CreateJobReply::PlanExpired);
    world.now = START.minus(INSTANT);
    assert_eq!(world.create_job(&ask), CreateJobReply::PlanExpired);
    assert!(world.store.tables().requests().is_empty());
    world.now = START.plus(PLAN_AGE_MAX);
    assert_eq!(world.create_job(&ask), CreateJobReply::Created);
}

#[test]
fn a_deleted_job_fires_no_more_and_what_was_pending_is_cancelled() {
    let (mut world, _) = World::with_run();
    world.trigger(trigger("waits", None));
    let deleted = DeleteJobReply::Deleted { cancelled: 1, requested: 1 };
    assert_eq!(world.delete(TENANT), deleted);
    let job = world.job();
    assert_eq!((job.state, job.version, job.next_fire_time), (JobState::Deleted, JobVersion(2), None));
    assert_eq!(job.effective_from, fire(1).plus(INSTANT));
    assert_eq!(
        (world.execution().state, world.execution().cancel),
        (ExecutionState::Running, CancelState::Requested)
    );
    let waited = world.store.tables().executions().get(&manual("waits")).expect("it was triggered");
    assert_eq!((waited.state, waited.finished_at), (ExecutionState::Cancelled, Some(world.now)));
    assert_eq!(world.store.tables().outbox_of(manual("waits")).count(), 1, "the sweep drops it");
    assert!(!world.store.tables().job_versions().contains(&(JOB, JobVersion(2))));
}

#[test]
fn a_delete_sent_again_is_a_repeat() {
    let mut world = World::with_execution();
    world.delete(TENANT);
    let again = world.changes_nothing(Command::DeleteJob(DeleteJob { tenant: TENANT, job: JOB }));
    assert_eq!(again, Reply::JobDeleted(DeleteJobReply::Repeated));
}

#[test]
fn a_delete_does_not_count_what_was_asked_to_stop_before_nor_what_has_ended() {
    let (mut world, run) = World::with_run();
    world.cancel(TENANT, execution_id(1));
    world.trigger(trigger("ended", None));
    world.cancel(TENANT, manual("ended"));
    assert_eq!(world.delete(TENANT), DeleteJobReply::Deleted { cancelled: 0, requested: 0 });
    world.finish(WORKER, run, RunOutcome::Released);
    assert_eq!(world.execution().state, ExecutionState::Cancelled);
}

#[test]
fn what_belongs_to_another_tenant_is_not_found() {
    let mut world = World::with_execution();
    world.create_tenant(OTHER_TENANT, "emca");
    assert_eq!(world.delete(OTHER_TENANT), DeleteJobReply::NotFound);
    let ask = TriggerJob { tenant: OTHER_TENANT, ..trigger("k", None) };
    assert_eq!(world.trigger(ask), TriggerReply::NotFound);
    assert_eq!(world.cancel(OTHER_TENANT, execution_id(1)), CancelReply::NotFound);
    assert_eq!(world.cancel(TENANT, execution_id(7)), CancelReply::NotFound);
}

#[test]
fn a_trigger_makes_an_execution_with_its_outbox_row() {
    let mut world = World::new();
    assert_eq!(world.trigger(trigger("order-42", Some("{\"n\":1}"))), TriggerReply::Created);
    let row = world.store.tables().executions().get(&manual("order-42")).expect("it was just made");
    assert_eq!(
        (row.state, row.due_at, row.made_under),
        (ExecutionState::Pending, START, FencingToken::NEVER)
    );
    assert_eq!(&*row.key, format!("{JOB}/key/order-42"));
    assert_eq!(row.payload.as_ref().map(Payload::as_json), Some("{\"n\":1}"));
    let outbox = world.store.tables().outbox_of(manual("order-42")).next().expect("it is to be dispatched");
    assert_eq!(outbox.created_by, API);
    assert_eq!(world.job().runs, 0);
}

#[test]
fn a_key_triggers_once() {
    let mut world = World::new();
    world.trigger(trigger("k", None));
    let again = world.changes_nothing(Command::TriggerJob(trigger("k", None)));
    let pending = TriggerReply::Repeated { state: ExecutionState::Pending };
    assert_eq!(again, Reply::JobTriggered(pending));
    assert_eq!(world.trigger(trigger("k", Some("1"))), TriggerReply::KeyReused);
    assert_eq!(world.trigger(trigger("other", Some("1"))), TriggerReply::Created);
}

#[test]
fn a_deleted_job_is_not_triggered_but_its_triggers_are_recognised() {
    let mut world = World::new();
    world.trigger(trigger("before", None));
    world.delete(TENANT);
    let cancelled = TriggerReply::Repeated { state: ExecutionState::Cancelled };
    assert_eq!(world.trigger(trigger("before", None)), cancelled);
    assert_eq!(world.trigger(trigger("after", None)), TriggerReply::NotFound);
}

#[test]
fn what_does_not_run_is_cancelled_at_once_and_for_good() {
    let mut world = World::with_execution();
    world.defer(WaitReason::NoRoute);
    let cancelled = CancelReply::Cancelled { was: ExecutionState::Pending };
    assert_eq!(world.cancel(TENANT, execution_id(1)), cancelled);
    let row = world.execution();
    assert_eq!((row.state, row.waiting, row.next_try_at), (ExecutionState::Cancelled, None, None));
    let ended = CancelReply::Ended { state: ExecutionState::Cancelled };
    assert_eq!(world.cancel(TENANT, execution_id(1)), ended);
    let ask = world.ask_execution(WORKER);
    assert_eq!(world.acquire(&ask), AcquireReply::Never { state: ExecutionState::Cancelled });
}

#[test]
fn a_retry_is_cancelled_and_ends_no_earlier_than_its_latest_stamp() {
    let (mut world, run) = World::with_run();
    world.finish(WORKER, run, RunOutcome::Retry { delay: secs(5), error: "no".into() });
    world.step_back(MINUTE);
    let cancelled = CancelReply::Cancelled { was: ExecutionState::RetryWait };
    assert_eq!(world.cancel(TENANT, execution_id(1)), cancelled);
    let row = world.execution();
    assert_eq!((row.finished_at, row.lag_clamped), (row.started_at, true));
    assert_eq!(row.attempts, 1);
}

#[test]
fn what_runs_is_asked_to_stop_and_asking_twice_is_asking_once() {
    let (mut world, _) = World::with_run();
    assert_eq!(world.cancel(TENANT, execution_id(1)), CancelReply::Requested);
    assert_eq!(world.execution().state, ExecutionState::Running);
    let ask = CancelExecution { tenant: TENANT, execution: execution_id(1) };
    let again = world.changes_nothing(Command::CancelExecution(ask));
    assert_eq!(again, Reply::ExecutionCancelled(CancelReply::Requested));
}
