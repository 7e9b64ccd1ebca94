//! What the cases are about: one job in the first partition, one execution of it, and a few nodes.
//!
//! Times are seconds after a fixed start. What happens before a case begins ends by the twentieth second; leases that
//! were granted by then have lapsed when the two commands of a case are judged, at the thirtieth.

use std::sync::Arc;

use fencepost_core::execution::{CancelState, DeadLetterReason, LeaseSign, WaitReason};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{
    DispatchNo, EffectId, ExecutionId, JobId, JobVersion, NodeId, Occurrence, TenantId,
};
use fencepost_core::job::{StoredDefinition, Unreadable};
use fencepost_core::lease::{HeldLease, LeaseResource, RunId};
use fencepost_core::partition::PartitionId;
use fencepost_core::store::command::{
    AcquireExecution, AcquireExecutions, AcquireLeadership, AcquirePartitions, CancelExecution, ChangeJob,
    Command, CreateJob, CreateTenant, DeadLetterFilter, DeferExecutions, DeleteJob, FinishExecution,
    FinishExecutions, Heartbeat, JobChange, Materialise, MaterialiseJob, NewExecution, OperatorRequest,
    OutboxId, PromoteDue, PurgeDeadLetter, PutOffJob, PutOffJobs, ReleaseLeases, RemoveOutbox,
    RenewExecutions, RenewLeases, Repair, RepairItem, ReplayDeadLetter, ReplayDeadLetters, ReplayKey,
    ReplayNumber, ReturnOutbox, RunOutcome, TakeOverEnd, TriggerJob,
};
use fencepost_core::store::row::{NodeRole, NodeState};
use fencepost_core::time::{Span, Timestamp};
use uuid::Uuid;

use crate::case::Act;

/// Held partition and leadership, and its time is over.
pub(crate) const OWNER: NodeId = NodeId::from_u128(0xa);
/// Takes over.
pub(crate) const HEIR: NodeId = NodeId::from_u128(0xb);
/// Another one that would.
pub(crate) const RIVAL_HEIR: NodeId = NodeId::from_u128(0xc);
/// Runs the execution.
pub(crate) const WORKER: NodeId = NodeId::from_u128(0xd);
/// Would run it as well.
pub(crate) const OTHER_WORKER: NodeId = NodeId::from_u128(0xe);

pub(crate) const TENANT: TenantId = TenantId::from_u128(0x71);
/// Of every lease that the commands of a case ask for.
pub(crate) const TTL: Span = Span::from_secs(60);
/// Of every lease that was granted before.
const SHORT_TTL: Span = Span::from_secs(10);

/// So many seconds after the start.
pub(crate) fn second(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_767_225_600_000_000).plus(Span::from_secs(seconds))
}

/// A command at that time.
pub(crate) fn at(seconds: u64, command: Command) -> Act {
    Act { now: second(seconds), command }
}

/// The job: the first id that lies in the first partition, which is the one that is granted first.
pub(crate) fn job() -> JobId {
    let is_first = |id: &JobId| PartitionId::of(*id).number() == 0;
    (1..).map(JobId::from_u128).find(is_first).expect("ids are spread over the partitions")
}

/// The first id that lies in the partition after it.
pub(crate) fn next_job() -> JobId {
    let is_second = |id: &JobId| PartitionId::of(*id).number() == 1;
    (1..).map(JobId::from_u128).find(is_second).expect("ids are spread over the partitions")
}

/// Its partition.
pub(crate) fn partition() -> LeaseResource {
    LeaseResource::Partition(PartitionId::of(job()))
}

/// Its first fire, to the second.
const FIRE: u64 = 10;

/// Its execution.
pub(crate) fn execution() -> ExecutionId {
    Occurrence::Scheduled { fire: second(FIRE) }.execution_id(job())
}

/// The first grant of anything.
pub(crate) fn token() -> FencingToken {
    FencingToken::from_i64(1)
}

/// The execution's run.
pub(crate) fn run() -> RunId {
    RunId { execution: execution(), token: token() }
}

fn held(resource: LeaseResource) -> HeldLease {
    HeldLease { resource, token: token() }
}

fn definition() -> Arc<StoredDefinition> {
    let text =
        r#"{"schema":1,"definition":{"name":"a","handler":{"name":"noop"},"schedule":{"kind":"manual"}}}"#;
    Arc::new(StoredDefinition::from_text(text.into()))
}

// ---------------------------------------------------------------------------------------------------------
// What is asked.

pub(crate) fn create_tenant(tenant: TenantId, name: &str) -> Command {
    Command::CreateTenant(CreateTenant { tenant, name: name.into() })
}

/// With a request id, if one is given.
pub(crate) fn create_job(id: JobId, request: Option<&str>, planned: u64) -> Command {
    let request =
        request.map(|request| OperatorRequest { request: request.into(), fingerprint: Uuid::from_u128(1) });
    Command::CreateJob(CreateJob {
        tenant: TENANT,
        job: id,
        request,
        definition: definition(),
        planned_at: second(planned),
        recorded_through: second(planned),
        next_fire_time: Some(second(planned + FIRE)),
        next_flex: Span::ZERO,
    })
}

/// The job with another overlap than the one that allows it; it fires by hand alone.
pub(crate) fn create_limited_job(overlap: &str) -> Command {
    let text = format!(
        r#"{{"schema":1,"definition":{{"name":"a","handler":{{"name":"noop"}},"schedule":{{"kind":"manual"}},"overlap":"{overlap}"}}}}"#
    );
    Command::CreateJob(CreateJob {
        tenant: TENANT,
        job: job(),
        request: None,
        definition: Arc::new(StoredDefinition::from_text(text.into())),
        planned_at: second(0),
        recorded_through: second(0),
        next_fire_time: None,
        next_flex: Span::ZERO,
    })
}

/// The job that is paused after this many failures in a row; it fires by hand alone.
pub(crate) fn create_fragile_job(most: u32) -> Command {
    let text = format!(
        r#"{{"schema":1,"definition":{{"name":"a","handler":{{"name":"noop"}},"schedule":{{"kind":"manual"}},"pause_after_failures":{most}}}}}"#
    );
    Command::CreateJob(CreateJob {
        tenant: TENANT,
        job: job(),
        request: None,
        definition: Arc::new(StoredDefinition::from_text(text.into())),
        planned_at: second(0),
        recorded_through: second(0),
        next_fire_time: None,
        next_flex: Span::ZERO,
    })
}

/// The job whose executions have a deadline of so many seconds, with more fields; it fires by hand alone.
pub(crate) fn create_bounded_job(deadline: u64, rest: &str) -> Command {
    let text = format!(
        r#"{{"schema":1,"definition":{{"name":"a","handler":{{"name":"noop"}},"schedule":{{"kind":"manual"}},"attempt_timeout_ms":1000,"deadline_ms":{deadline}000{rest}}}}}"#
    );
    Command::CreateJob(CreateJob {
        tenant: TENANT,
        job: job(),
        request: None,
        definition: Arc::new(StoredDefinition::from_text(text.into())),
        planned_at: second(0),
        recorded_through: second(0),
        next_fire_time: None,
        next_flex: Span::ZERO,
    })
}

/// Of the execution that was triggered under this key: its first run, or before it had any.
pub(crate) fn manual_run(key: &str, leased: bool) -> RunId {
    RunId { execution: manual(key), token: if leased { token() } else { FencingToken::NEVER } }
}

/// The execution that was triggered under this key.
fn manual(key: &str) -> ExecutionId {
    Occurrence::Manual { key: key.into() }.execution_id(job())
}

pub(crate) fn acquire_manual(key: &str, node: NodeId) -> Command {
    let item = AcquireExecution {
        execution: manual(key),
        nonce: EffectId(7),
        published_at: second(12),
        held: Span::ZERO,
    };
    Command::AcquireExecutions(AcquireExecutions { node, ttl: TTL, items: vec![item] })
}

/// By the worker, under the first grant.
pub(crate) fn finish_manual(key: &str, outcome: RunOutcome) -> Command {
    let run = RunId { execution: manual(key), token: token() };
    let item = FinishExecution { run, outcome, started_ago: None };
    Command::FinishExecutions(FinishExecutions { node: WORKER, items: vec![item] })
}

/// What a change was planned on: the version, the watermark, and the first fire after that.
struct PlannedOn {
    version: u32,
    watermark: u64,
    next_fire: u64,
}

/// The job as it was made: its first fire is not recorded.
const AS_MADE: PlannedOn = PlannedOn { version: 1, watermark: 0, next_fire: FIRE };
/// Its first fire is recorded.
const AFTER_FIRE: PlannedOn = PlannedOn { version: 1, watermark: FIRE, next_fire: 2 * FIRE };

/// Nothing before it is passed over: the watermark stays.
fn change_job(change: JobChange, on: PlannedOn, request: Option<&str>) -> Command {
    let request =
        request.map(|request| OperatorRequest { request: request.into(), fingerprint: Uuid::from_u128(1) });
    Command::ChangeJob(ChangeJob {
        tenant: TENANT,
        job: job(),
        request,
        expected_version: JobVersion(on.version),
        expected_watermark: second(on.watermark),
        planned_at: second(30),
        change,
        actor: Some("somebody".into()),
        reason: Some("some reason".into()),
        effective_from: second(30),
        recorded_through: second(on.watermark),
        next_fire_time: Some(second(on.next_fire)),
        next_flex: Span::ZERO,
    })
}

/// To a definition by another name.
fn another_definition() -> JobChange {
    let text =
        r#"{"schema":1,"definition":{"name":"b","handler":{"name":"noop"},"schedule":{"kind":"manual"}}}"#;
    JobChange::Edit(Arc::new(StoredDefinition::from_text(text.into())))
}

pub(crate) fn edit(request: Option<&str>) -> Command {
    change_job(another_definition(), AS_MADE, request)
}

pub(crate) fn pause() -> Command {
    change_job(JobChange::Pause, AS_MADE, None)
}

pub(crate) fn pause_after_fire() -> Command {
    change_job(JobChange::Pause, AFTER_FIRE, None)
}

/// Of the job that was paused, and nothing else.
pub(crate) fn resume() -> Command {
    change_job(JobChange::Resume, PlannedOn { version: 2, ..AS_MADE }, None)
}

pub(crate) fn resume_after_fire() -> Command {
    change_job(JobChange::Resume, PlannedOn { version: 2, ..AFTER_FIRE }, None)
}

pub(crate) fn edit_paused() -> Command {
    change_job(another_definition(), PlannedOn { version: 2, ..AS_MADE }, None)
}

pub(crate) fn delete_job() -> Command {
    Command::DeleteJob(DeleteJob { tenant: TENANT, job: job() })
}

pub(crate) fn trigger(key: &str) -> Command {
    let execution = Occurrence::Manual { key: key.into() }.execution_id(job());
    Command::TriggerJob(TriggerJob {
        tenant: TENANT,
        job: job(),
        execution,
        key: key.into(),
        payload: None,
        node: OWNER,
    })
}

pub(crate) fn cancel() -> Command {
    Command::CancelExecution(CancelExecution { tenant: TENANT, execution: execution() })
}

/// The first replay of the execution.
pub(crate) fn replay(number: u32, key: ReplayKey) -> Command {
    let number = ReplayNumber::Given(number);
    Command::ReplayDeadLetter(ReplayDeadLetter {
        tenant: TENANT,
        origin: execution(),
        number,
        key,
        node: OWNER,
    })
}

/// The next replay of the execution, whichever that is, under this request id.
pub(crate) fn replay_next(request: &str) -> Command {
    let asked = OperatorRequest { request: request.into(), fingerprint: Uuid::from_u128(2) };
    let (origin, number) = (execution(), ReplayNumber::Next(asked));
    Command::ReplayDeadLetter(ReplayDeadLetter {
        tenant: TENANT,
        origin,
        number,
        key: ReplayKey::Origin,
        node: OWNER,
    })
}

/// All dead letters, in one page.
pub(crate) fn replay_all() -> Command {
    Command::ReplayDeadLetters(ReplayDeadLetters {
        tenant: TENANT,
        filter: DeadLetterFilter::default(),
        after: None,
        limit: 10,
        key: ReplayKey::Origin,
        node: HEIR,
    })
}

pub(crate) fn purge() -> Command {
    Command::PurgeDeadLetter(PurgeDeadLetter { tenant: TENANT, execution: execution() })
}

pub(crate) fn acquire_leadership(node: NodeId) -> Command {
    acquire_leadership_for(node, TTL)
}

fn acquire_leadership_for(node: NodeId, ttl: Span) -> Command {
    Command::AcquireLeadership(AcquireLeadership { node, nonce: EffectId(1), ttl })
}

/// The first one that may be taken.
pub(crate) fn acquire_partition(node: NodeId) -> Command {
    acquire_partition_for(node, TTL)
}

fn acquire_partition_for(node: NodeId, ttl: Span) -> Command {
    Command::AcquirePartitions(AcquirePartitions { node, nonce: EffectId(1), ttl, limit: 1 })
}

/// By the owner.
pub(crate) fn renew(resource: LeaseResource) -> Command {
    Command::RenewLeases(RenewLeases { node: OWNER, ttl: TTL, leases: vec![held(resource)] })
}

/// By the owner.
pub(crate) fn release(resource: LeaseResource) -> Command {
    Command::ReleaseLeases(ReleaseLeases { node: OWNER, leases: vec![held(resource)] })
}

/// By the owner: the fire of that second, with the next one ten seconds later.
pub(crate) fn materialise(fire: u64) -> Command {
    let occurrence = Occurrence::Scheduled { fire: second(fire) };
    let new = NewExecution {
        id: occurrence.execution_id(job()),
        version: JobVersion::FIRST,
        fire: second(fire),
        due_at: second(fire),
        deadline_at: None,
        key: occurrence.idempotency_key(job()).expect("a scheduled fire has one"),
    };
    Command::Materialise(Materialise {
        node: OWNER,
        leases: vec![held(partition())],
        items: vec![MaterialiseJob {
            job: job(),
            partition: PartitionId::of(job()),
            version: JobVersion::FIRST,
            expected_fire: second(fire),
            executions: vec![new],
            skipped: Vec::new(),
            recorded_through: second(fire),
            next_fire_time: Some(second(fire + 10)),
            next_flex: Span::ZERO,
            valid_until: second(1_000),
        }],
    })
}

/// By the owner: the job that was to fire in that second.
pub(crate) fn put_off(fire: u64) -> Command {
    let unreadable = Unreadable { reason: "a new kind".into(), schema: 2, zone_data: "2026a".into() };
    Command::PutOffJobs(PutOffJobs {
        node: OWNER,
        leases: vec![held(partition())],
        items: vec![PutOffJob {
            job: job(),
            partition: PartitionId::of(job()),
            version: JobVersion::FIRST,
            expected_fire: second(fire),
            unreadable,
            delay: Span::from_secs(30),
        }],
    })
}

/// By the owner.
pub(crate) fn promote() -> Command {
    Command::PromoteDue(PromoteDue { node: OWNER, leases: vec![held(partition())], limit: 10 })
}

/// The execution's first dispatch.
pub(crate) fn first_dispatch() -> OutboxId {
    OutboxId { execution: execution(), dispatch_no: DispatchNo(1) }
}

/// Stamps the execution where the row was at least so old.
pub(crate) fn remove_outbox(grace: u64) -> Command {
    Command::RemoveOutbox(RemoveOutbox { rows: vec![first_dispatch()], grace: Span::from_secs(grace) })
}

pub(crate) fn return_outbox() -> Command {
    let rows = vec![(first_dispatch(), WaitReason::NoRoute)];
    Command::ReturnOutbox(ReturnOutbox { rows, delay: Span::from_secs(1) })
}

/// By the owner as the leader.
pub(crate) fn repair(item: RepairItem) -> Command {
    Command::Repair(Repair { node: OWNER, leadership: token(), items: vec![item] })
}

/// The takeover of the run that was granted and never gave a sign.
pub(crate) fn take_over() -> Command {
    let (cancel, sign) = (CancelState::None, LeaseSign::None);
    repair(RepairItem::TakeOver { run: run(), cancel, sign, end: TakeOverEnd::Retry(Span::from_secs(5)) })
}

pub(crate) fn redispatch() -> Command {
    repair(RepairItem::Redispatch { dispatch: first_dispatch() })
}

pub(crate) fn heartbeat() -> Command {
    Command::Heartbeat(Heartbeat {
        node: WORKER,
        role: NodeRole::Worker,
        label: "a host".into(),
        schema: 1,
        state: NodeState::Active,
        capacity: 4,
        live_within: Span::from_secs(10),
    })
}

pub(crate) fn acquire(node: NodeId, nonce: u64) -> Command {
    acquire_for(node, nonce, TTL)
}

fn acquire_for(node: NodeId, nonce: u64, ttl: Span) -> Command {
    let item = AcquireExecution {
        execution: execution(),
        nonce: EffectId(nonce),
        published_at: second(12),
        held: Span::ZERO,
    };
    Command::AcquireExecutions(AcquireExecutions { node, ttl, items: vec![item] })
}

pub(crate) fn renew_run() -> Command {
    Command::RenewExecutions(RenewExecutions { node: WORKER, ttl: TTL, runs: vec![run()] })
}

pub(crate) fn finish(outcome: RunOutcome) -> Command {
    let item = FinishExecution { run: run(), outcome, started_ago: None };
    Command::FinishExecutions(FinishExecutions { node: WORKER, items: vec![item] })
}

/// An end after which another attempt follows.
pub(crate) fn retryably() -> RunOutcome {
    RunOutcome::Retry { delay: Span::from_secs(1), error: "it broke".into() }
}

/// An end after which none follows.
pub(crate) fn for_good() -> RunOutcome {
    RunOutcome::DeadLettered { reason: DeadLetterReason::NonRetryable, error: "it cannot work".into() }
}

pub(crate) fn defer() -> Command {
    let items = vec![(execution(), WaitReason::UnknownHandler)];
    Command::DeferExecutions(DeferExecutions { items, delay: Span::from_secs(1) })
}

// ---------------------------------------------------------------------------------------------------------
// What was there before.

fn after(mut before: Vec<Act>, act: Act) -> Vec<Act> {
    before.push(act);
    before
}

/// A tenant.
pub(crate) fn with_tenant() -> Vec<Act> {
    vec![at(0, create_tenant(TENANT, "one"))]
}

/// Its job, to fire in the tenth second; the owner holds partition and leadership until the eleventh.
pub(crate) fn with_job() -> Vec<Act> {
    let before = after(with_tenant(), at(0, create_job(job(), None, 0)));
    let before = after(before, at(1, acquire_partition_for(OWNER, SHORT_TTL)));
    after(before, at(1, acquire_leadership_for(OWNER, SHORT_TTL)))
}

/// Its execution, with its first outbox row.
pub(crate) fn with_pending() -> Vec<Act> {
    after(with_job(), at(12, materialise(FIRE)))
}

/// The job, paused, with its first fire still to be recorded.
pub(crate) fn with_paused() -> Vec<Act> {
    after(with_job(), at(30, pause()))
}

/// The execution, of a job that is paused since.
pub(crate) fn with_held_back() -> Vec<Act> {
    after(with_pending(), at(30, pause_after_fire()))
}

/// The execution, dispatched.
pub(crate) fn with_dispatched() -> Vec<Act> {
    after(with_pending(), at(13, remove_outbox(60)))
}

/// The execution waits and may be dispatched again.
pub(crate) fn with_waiting() -> Vec<Act> {
    after(with_dispatched(), at(14, defer()))
}

/// The execution runs, under a lease that ends in the twenty-fourth second.
pub(crate) fn with_running() -> Vec<Act> {
    after(with_dispatched(), at(14, acquire_for(WORKER, 7, SHORT_TTL)))
}

/// The execution runs and is asked to stop.
pub(crate) fn with_running_to_stop() -> Vec<Act> {
    after(with_running(), at(15, cancel()))
}

/// The execution waits for its next attempt, which is due.
pub(crate) fn with_retry() -> Vec<Act> {
    after(with_running(), at(15, finish(retryably())))
}

/// The execution is dead-lettered.
pub(crate) fn with_dead_letter() -> Vec<Act> {
    after(with_running(), at(15, finish(for_good())))
}

/// The execution is called off, and its outbox row is still there.
pub(crate) fn with_settled() -> Vec<Act> {
    after(with_pending(), at(13, cancel()))
}

/// A worker reported in the fifth second.
pub(crate) fn with_node() -> Vec<Act> {
    after(with_job(), at(5, heartbeat()))
}

/// Leadership and the partition were given back.
pub(crate) fn with_released() -> Vec<Act> {
    let before = after(with_job(), at(2, release(partition())));
    after(before, at(2, release(LeaseResource::Leadership)))
}

/// Leadership and the partition were granted by a clock that has stepped back since.
pub(crate) fn with_leases_far_ahead() -> Vec<Act> {
    let before = after(with_tenant(), at(1_000, acquire_partition_for(OWNER, SHORT_TTL)));
    after(before, at(1_000, acquire_leadership_for(OWNER, SHORT_TTL)))
}
