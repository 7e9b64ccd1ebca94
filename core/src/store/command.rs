//! Commands: everything that may be asked of the store, and by whom.
//!
//! Each is one atomic call. Those of schedulers present the leases they act under ([`HeldLease`]); those
//! of workers the execution token; those of operators the tenant. Batches hold at most
//! [`BATCH_MAX`](crate::limits::BATCH_MAX) items, and name each thing (grant, job, execution, run, row) once. Two
//! grants of one resource are two things: a node may present an older one beside the current one.
//!
//! `expires_at` is the epoch wherever there is no owner. "Held" in a guard means owner and token, lapsed or
//! not. `next_due` of a scan is the earliest instant after now at which a row of the partitions served that
//! does not qualify yet comes to do so; rows that qualify but did not fit into `limit` do not count.

use std::sync::Arc;

use crate::execution::{CancelState, DeadLetterReason, ExecutionState, LeaseSign, SkipReason, WaitReason};
use crate::fencing::FencingToken;
use crate::id::{DispatchNo, EffectId, ExecutionId, JobId, JobVersion, NodeId, TenantId};
use crate::job::{Payload, StoredDefinition, Unreadable};
use crate::lease::{HeldLease, LeaseResource, RunId};
use crate::partition::PartitionId;
use crate::store::row::{NodeRole, NodeState};
use crate::time::{Span, Timestamp};

mod acquire;
mod change_job;
mod dead_letters;
mod set_calendar;
mod set_limit;
mod set_pause;

pub use acquire::{AcquireExecution, AcquireExecutions};
pub use change_job::{ChangeJob, JobChange};
pub use dead_letters::{
    DeadLetterFilter, PurgeDeadLetter, ReplayDeadLetter, ReplayDeadLetters, ReplayKey, ReplayNumber,
};
pub use set_calendar::SetCalendar;
pub use set_limit::SetLimit;
pub use set_pause::{PauseChange, SetPause};

/// One call on the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Reads the store's clock.
    ReadClock,
    /// Reports liveness, and learns which schedulers live.
    Heartbeat(Heartbeat),
    /// Asks for leadership.
    AcquireLeadership(AcquireLeadership),
    /// Asks for free or expired partitions, the first by number.
    AcquirePartitions(AcquirePartitions),
    /// Renews leadership and partitions. Item by item: owner and token.
    RenewLeases(RenewLeases),
    /// Gives leadership or partitions back. Item by item: owner and token.
    ReleaseLeases(ReleaseLeases),
    /// Reads due jobs of the given partitions.
    ScanDueJobs(ScanDueJobs),
    /// Executions, outbox rows, skipped ranges and the new watermark of due jobs.
    Materialise(Materialise),
    /// Puts off jobs whose definition the caller cannot read, visibly.
    PutOffJobs(PutOffJobs),
    /// Promotes due retries and dispatches again what waited, in the given partitions.
    PromoteDue(PromoteDue),
    /// Reads outbox rows back that are to be published, and puts each off by a growing delay.
    ScanOutbox(ScanOutbox),
    /// Removes outbox rows that the broker confirmed.
    RemoveOutbox(RemoveOutbox),
    /// Turns outbox rows that could not be routed or composed into waiting reasons.
    ReturnOutbox(ReturnOutbox),
    /// Reads what a sweep might repair.
    ScanSweep(ScanSweep),
    /// Repairs what a sweep found, under the leadership token.
    Repair(Repair),
    /// Asks for execution leases.
    AcquireExecutions(AcquireExecutions),
    /// Renews execution leases, and learns of cancel requests.
    RenewExecutions(RenewExecutions),
    /// Ends runs with their outcome.
    FinishExecutions(FinishExecutions),
    /// Records why executions wait that arrived but cannot run here.
    DeferExecutions(DeferExecutions),
    /// Records a broker message that could not be read.
    RecordMalformed(RecordMalformed),
    /// Makes a tenant.
    CreateTenant(CreateTenant),
    /// Makes a job.
    CreateJob(CreateJob),
    /// Edits, pauses or resumes a job.
    ChangeJob(ChangeJob),
    /// Deletes a job and cancels what is pending of it.
    DeleteJob(DeleteJob),
    /// Runs a job by hand.
    TriggerJob(TriggerJob),
    /// Cancels an execution, or asks its worker to.
    CancelExecution(CancelExecution),
    /// Pauses or resumes a tenant or a queue.
    SetPause(SetPause),
    /// Makes an execution of a dead letter.
    ReplayDeadLetter(ReplayDeadLetter),
    /// Makes executions of a page of dead letters.
    ReplayDeadLetters(ReplayDeadLetters),
    /// Turns a dead letter's record into a tombstone.
    PurgeDeadLetter(PurgeDeadLetter),
    /// Sets a concurrency limit, or takes it away.
    SetLimit(SetLimit),
    /// Sets a calendar, or takes it away.
    SetCalendar(SetCalendar),
}

/// [`Command::Heartbeat`]: upserts the node's row (`started_at` is kept), then lists live schedulers: active ones with
/// `seen_at + live_within ≥ now` and at most [`LIVENESS_AHEAD_MAX`](crate::limits::LIVENESS_AHEAD_MAX) ahead.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Heartbeat {
    /// Who reports.
    pub node: NodeId,
    /// What it does.
    pub role: NodeRole,
    /// Its host, for people.
    pub label: Arc<str>,
    /// The schema version that it writes.
    pub schema: u16,
    /// What it says of itself.
    pub state: NodeState,
    /// Executions it can run side by side.
    pub capacity: u32,
    /// How recent another scheduler's report must be for it to count as live.
    pub live_within: Span,
}

/// [`Command::AcquireLeadership`]: granted where the lease row allows it (`lease::may_be_taken`, or no owner).
/// Each grant raises the token by one; where it cannot rise, nothing is granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AcquireLeadership {
    /// Who asks.
    pub node: NodeId,
    /// The effect that asks; the same one gets the same grant again while it lasts, not extended. After that
    /// it counts as a new one.
    pub nonce: EffectId,
    /// For how long.
    pub ttl: Span,
}

/// [`Command::AcquirePartitions`]: grants the first `limit` free or expired ones by number. Where rows are still held
/// under this very nonce (and have not lapsed), those are the answer, not extended, and nothing more is granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AcquirePartitions {
    /// Who asks.
    pub node: NodeId,
    /// The effect that asks.
    pub nonce: EffectId,
    /// For how long.
    pub ttl: Span,
    /// How many at most.
    pub limit: u32,
}

/// [`Command::RenewLeases`]: a lease that lapsed but was not replaced is renewed too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RenewLeases {
    /// Who renews.
    pub node: NodeId,
    /// For how long from now.
    pub ttl: Span,
    /// What it holds.
    pub leases: Vec<HeldLease>,
}

/// [`Command::ReleaseLeases`]: the owner goes, token and nonce stay. Where nobody holds it under the token
/// presented, it was released before, and that is `Done`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReleaseLeases {
    /// Who releases.
    pub node: NodeId,
    /// What it holds.
    pub leases: Vec<HeldLease>,
}

/// [`Command::ScanDueJobs`]: active jobs with a next fire, of these partitions, whose `next_try_at` and
/// `next_fire_time` have come, the first `limit` by (`next_try_at`, `id`) after `after`.
///
/// An unreadable job is picked like another; whether to try it again is the caller's decision. With a job come the
/// earlier versions that fires after its watermark may lie in, if its own begins later than that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScanDueJobs {
    /// Whose jobs, ascending.
    pub partitions: Vec<PartitionId>,
    /// Where the previous scan of this pass ended.
    pub after: Option<(Timestamp, JobId)>,
    /// How many at most.
    pub limit: u32,
}

/// [`Command::Materialise`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Materialise {
    /// Who materialises.
    pub node: NodeId,
    /// The partitions it acts under; each item names one of them by its job. Ascending.
    pub leases: Vec<HeldLease>,
    /// What is to be recorded, at most one item per job.
    pub items: Vec<MaterialiseJob>,
}

/// One job's part of a [`Materialise`]: refused unless the partition's lease is the one presented, the job
/// is active, its version and watermark are those expected, every fire is due by the store's clock (`fire` and
/// `due_at` of executions, `through` of ranges), and the decision still holds (`now ≤ valid_until`). Checked in
/// this order. A stale lease and a changed version are recorded as refusals of the partition's lease.
///
/// Applied: executions that are new (`Pending`, dispatch 1 stamped now, `made_under` the token presented) with
/// their outbox rows; ranges, unless one with that start exists; on the job `runs` + executions made, the new
/// watermark and next fire, `next_try_at` = the next fire + `next_flex` (kept where there is none), `unreadable` cleared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MaterialiseJob {
    /// The job.
    pub job: JobId,
    /// Its partition.
    pub partition: PartitionId,
    /// The version that was planned with.
    pub version: JobVersion,
    /// The `next_fire_time` that was planned with: the watermark's compare-and-set.
    pub expected_fire: Timestamp,
    /// What is to run, oldest first.
    pub executions: Vec<NewExecution>,
    /// What was passed over.
    pub skipped: Vec<NewSkippedRange>,
    /// The new watermark.
    pub recorded_through: Timestamp,
    /// The first nominal fire after it.
    pub next_fire_time: Option<Timestamp>,
    /// How long after that it is due.
    pub next_flex: Span,
    /// The latest store time at which this decision is still the right one.
    pub valid_until: Timestamp,
}

/// An execution to be made by [`Materialise`]. One that exists already is left as it is and gets no outbox row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewExecution {
    /// Its id, derived from job and fire.
    pub id: ExecutionId,
    /// The version that its fire lies in: the job's, or an earlier one.
    pub version: JobVersion,
    /// The nominal fire.
    pub fire: Timestamp,
    /// When it is due.
    pub due_at: Timestamp,
    /// When the whole of it has to be over, by its version.
    pub deadline_at: Option<Timestamp>,
    /// The idempotency key.
    pub key: Arc<str>,
}

/// A range of fires passed over, to be recorded by [`Materialise`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewSkippedRange {
    /// The version that they lie in: the job's, or an earlier one.
    pub version: JobVersion,
    /// The first nominal fire passed over.
    pub from: Timestamp,
    /// The last one.
    pub through: Timestamp,
    /// Why.
    pub reason: SkipReason,
    /// The zone-data version that the decision was made with.
    pub zone_data: Arc<str>,
}

/// [`Command::PutOffJobs`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PutOffJobs {
    /// Who puts them off.
    pub node: NodeId,
    /// The partitions it acts under, ascending.
    pub leases: Vec<HeldLease>,
    /// Which ones.
    pub items: Vec<PutOffJob>,
}

/// One job to be put off: guarded like an item of [`Materialise`] (lease, version, expected fire).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PutOffJob {
    /// The job.
    pub job: JobId,
    /// Its partition.
    pub partition: PartitionId,
    /// The version that was read.
    pub version: JobVersion,
    /// The `next_fire_time` that was read.
    pub expected_fire: Timestamp,
    /// Why it cannot be read.
    pub unreadable: Unreadable,
    /// By how much: `next_try_at = max(now + delay, expected_fire)`.
    pub delay: Span,
}

/// [`Command::PromoteDue`]: picks executions in `RetryWait`, or in `Pending` with a waiting reason, of these
/// partitions, whose `next_try_at` has come, the first `limit` by (`next_try_at`, `id`); each becomes (or
/// stays) `Pending` without a waiting reason and gets its next outbox row. Where that leaves room, so does what pauses of
/// tenants and queues held back that have ended and whose `lift_until` has not passed, the first by (pause, `id`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PromoteDue {
    /// Who promotes.
    pub node: NodeId,
    /// The partitions it acts under, ascending. One that is no longer its own is left out and answered so.
    pub leases: Vec<HeldLease>,
    /// How many at most.
    pub limit: u32,
}

/// [`Command::ScanOutbox`]: picks rows of these partitions whose `next_try_at` has come and that were made by
/// another node or at least `own_grace` ago, the first `limit` by (`next_try_at`, `execution`,
/// `dispatch_no`); each gets `tries + 1` and `next_try_at = now + delay × 2^tries` (at most
/// [`OUTBOX_DELAY_MAX`](crate::limits::OUTBOX_DELAY_MAX), with the old `tries`; `created_at` at the least).
///
/// `next_due` looks at the rows as this scan leaves them; a row of the caller's own qualifies from
/// max(`next_try_at`, `created_at + own_grace`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScanOutbox {
    /// Who reads.
    pub node: NodeId,
    /// Of which partitions, ascending. No token: publishing twice is harmless.
    pub partitions: Vec<PartitionId>,
    /// How old a row of its own must be.
    pub own_grace: Span,
    /// The first delay.
    pub delay: Span,
    /// How many at most.
    pub limit: u32,
}

/// The exact id of an outbox row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutboxId {
    /// The execution.
    pub execution: ExecutionId,
    /// Which dispatch of it.
    pub dispatch_no: DispatchNo,
}

/// [`Command::RemoveOutbox`]: by exact id, without a token. Where the row was at least `grace` old, the execution's
/// `dispatched_at` becomes now, in the same transaction (if it is still `Pending` and this is its latest dispatch).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemoveOutbox {
    /// Confirmed rows.
    pub rows: Vec<OutboxId>,
    /// From which age on the removal is stamped.
    pub grace: Span,
}

/// [`Command::ReturnOutbox`]: deletes the row; where its execution is still `Pending`, this is its latest
/// dispatch and it has no waiting reason, it gets one, with `next_try_at = now + delay × 2^waits` (at most
/// [`WAIT_DELAY_MAX`](crate::limits::WAIT_DELAY_MAX)) and `waits + 1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReturnOutbox {
    /// Which rows, and why.
    pub rows: Vec<(OutboxId, WaitReason)>,
    /// The first delay.
    pub delay: Span,
}

/// [`Command::ScanSweep`]: each list the first `limit`.
///
/// - expired: `Running` with `lease::may_be_taken`, by (`expires_at`, `id`);
/// - undelivered: `Pending`, no waiting reason, no outbox row, and
///   `lease::is_over(dispatched_at + redispatch_after × 2^redispatches)` (delay at most
///   [`REDISPATCH_DELAY_MAX`](crate::limits::REDISPATCH_DELAY_MAX)), by (`dispatched_at`, `id`);
/// - settled: outbox rows of terminal executions, by id;
/// - overdue: `Pending` or `RetryWait` with `deadline_at ≤ now`, by (`deadline_at`, `id`);
/// - stale nodes: not offline, `seen_at + node_stale_after ≤ now` or too far ahead, by id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScanSweep {
    /// How many of each at most.
    pub limit: u32,
    /// The first delay before a dispatch that led to nothing is repeated.
    pub redispatch_after: Span,
    /// From which age of its latest report on a node is stale.
    pub node_stale_after: Span,
}

/// [`Command::Repair`]: refused as a whole unless leadership is held under the token presented. What waits past its
/// deadline is ended before all else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Repair {
    /// Who repairs.
    pub node: NodeId,
    /// Its leadership token.
    pub leadership: FencingToken,
    /// What, each conditional on what was observed.
    pub items: Vec<RepairItem>,
}

/// One repair, with what was observed. Where that is no longer so, nothing happens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RepairItem {
    /// Ends an expired execution lease.
    TakeOver {
        /// The run observed: still `Running` under this token, and expired.
        run: RunId,
        /// The cancel state observed.
        cancel: CancelState,
        /// The sign of a start observed.
        sign: LeaseSign,
        /// What becomes of the execution.
        end: TakeOverEnd,
    },
    /// Dispatches again what was dispatched and never started: the next outbox row, `redispatches + 1`.
    Redispatch {
        /// The latest dispatch observed: still the latest, `Pending`, not waiting, without an outbox row.
        dispatch: OutboxId,
    },
    /// Removes the outbox row of a terminal execution.
    DropOutbox {
        /// The row observed; its execution is terminal.
        row: OutboxId,
    },
    /// Ends what waits past its deadline, by the dead letters of its version: `DeadLettered` for
    /// [`DeadLetterReason::Deadline`], or `Failed`.
    EndOverdue {
        /// The execution observed, under the token observed: its deadline has passed.
        run: RunId,
        /// The state observed: `Pending` or `RetryWait`.
        state: ExecutionState,
    },
    /// Marks a node offline.
    RetireNode {
        /// The node.
        node: NodeId,
        /// Its latest report as observed.
        seen_at: Timestamp,
    },
}

/// What a takeover makes of an execution. `rescues` or `lost_starts` goes up by the observed sign; the lost
/// lease gets an attempt row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TakeOverEnd {
    /// `RetryWait`, due after this delay.
    Retry(Span),
    /// `Cancelled`: it was asked for.
    Cancelled,
    /// `DeadLettered`, with its record.
    DeadLettered(DeadLetterReason),
    /// `Failed`: the job keeps no dead letters.
    Failed,
}

/// [`Command::RenewExecutions`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RenewExecutions {
    /// Who renews.
    pub node: NodeId,
    /// For how long from now.
    pub ttl: Span,
    /// Which runs: `Running` under the token presented, lapsed or not.
    pub runs: Vec<RunId>,
}

/// [`Command::FinishExecutions`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FinishExecutions {
    /// Who finishes.
    pub node: NodeId,
    /// Which runs, and how.
    pub items: Vec<FinishExecution>,
}

/// The end of one run: accepted for `Running` under the token presented, lapsed or not.
///
/// Every end but `Completed` leaves an attempt row (`attempt` = failed attempts before it + 1): `Retry` as
/// failed retryably, `DeadLettered` and `Failed` as failed for good, `Released` as released, `Cancelled` as
/// cancelled where that was asked for and else as released. By it, under the token presented, a resend is
/// recognised (`DeadLettered` and `Failed` by the state as well); `Completed` by state and token.
///
/// `started_at` = max(now − `started_ago`, `leased_at`). In a terminal state `finished_at` = max(now, the latest
/// stamp). `lag_clamped` is set where one of these differs from what was reported.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FinishExecution {
    /// Which run.
    pub run: RunId,
    /// How it ended.
    pub outcome: RunOutcome,
    /// How long ago its handler started, by the worker's steady clock; `None` if it never did.
    pub started_ago: Option<Span>,
}

/// How a run ended. With a stored cancel request, `Retry` and `Released` become `Cancelled`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunOutcome {
    /// `Completed`.
    Completed,
    /// `RetryWait`, due after the delay; counts as an attempt.
    Retry {
        /// From now.
        delay: Span,
        /// What went wrong.
        error: Arc<str>,
    },
    /// `DeadLettered`, with its record; counts as an attempt.
    DeadLettered {
        /// Why.
        reason: DeadLetterReason,
        /// What went wrong.
        error: Arc<str>,
    },
    /// `Failed`; counts as an attempt.
    Failed {
        /// What went wrong.
        error: Arc<str>,
    },
    /// `RetryWait`, due at once: given back unfinished.
    Released,
    /// `Cancelled`: the handler was stopped because it was asked for. Without a stored request: as `Released`.
    Cancelled,
}

/// [`Command::DeferExecutions`]: for each that is `Pending`: the waiting reason, `next_try_at = now + delay × 2^waits`
/// (at most [`WAIT_DELAY_MAX`](crate::limits::WAIT_DELAY_MAX)), `waits + 1`. One that already waits is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeferExecutions {
    /// Which, and why.
    pub items: Vec<(ExecutionId, WaitReason)>,
    /// The first delay.
    pub delay: Span,
}

/// [`Command::RecordMalformed`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordMalformed {
    /// Who received it.
    pub node: NodeId,
    /// A digest of the body.
    pub digest: uuid::Uuid,
    /// What is wrong with it.
    pub reason: Arc<str>,
    /// Its beginning.
    pub excerpt: Arc<[u8]>,
}

/// [`Command::CreateTenant`]: the same id and name again is a repeat; the name under another id is refused, and
/// so is another name under a known id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CreateTenant {
    /// The tenant.
    pub tenant: TenantId,
    /// Its name.
    pub name: Arc<str>,
}

/// [`Command::CreateJob`], planned by `job_plan::plan_create` on a reading of the store's clock. Checked in this
/// order: tenant, request id, job id, age of the plan. `next_try_at` = the next fire + `next_flex`, or `planned_at`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CreateJob {
    /// Whose it is.
    pub tenant: TenantId,
    /// The job.
    pub job: JobId,
    /// The caller's request id: the same one gets the same job again.
    pub request: Option<OperatorRequest>,
    /// The definition.
    pub definition: Arc<StoredDefinition>,
    /// The reading it was planned on: becomes `created_at` and `effective_from`. Refused where it lies ahead of the
    /// store's clock or more than [`PLAN_AGE_MAX`](crate::limits::PLAN_AGE_MAX) behind.
    pub planned_at: Timestamp,
    /// The first watermark.
    pub recorded_through: Timestamp,
    /// The first nominal fire after it.
    pub next_fire_time: Option<Timestamp>,
    /// How long after that it is due.
    pub next_flex: Span,
}

/// A caller's request id, with a digest of what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OperatorRequest {
    /// The request id.
    pub request: Arc<str>,
    /// A digest of the request.
    pub fingerprint: uuid::Uuid,
}

/// [`Command::DeleteJob`]: the version rises (without a `job_version` row), `effective_from` = max(now,
/// `recorded_through` + 1 µs), the next fire goes; `Pending` and `RetryWait` executions become `Cancelled`,
/// `Running` ones are asked to stop (those that were asked before are not counted). Deleting what is deleted
/// is a repeat.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeleteJob {
    /// Whose it is.
    pub tenant: TenantId,
    /// The job.
    pub job: JobId,
}

/// [`Command::TriggerJob`]: identity makes it safe to send again. Checked in this order: the job is this
/// tenant's, the execution is there already (the same payload or another), the job is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TriggerJob {
    /// Whose it is.
    pub tenant: TenantId,
    /// The job.
    pub job: JobId,
    /// The execution, derived from job and key.
    pub execution: ExecutionId,
    /// The caller's key.
    pub key: Arc<str>,
    /// A payload instead of the job's.
    pub payload: Option<Payload>,
    /// Who commits the outbox row.
    pub node: NodeId,
}

/// [`Command::CancelExecution`]: `Pending` and `RetryWait` become `Cancelled`; `Running` gets a stored request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CancelExecution {
    /// Whose it is.
    pub tenant: TenantId,
    /// The execution.
    pub execution: ExecutionId,
}

/// Which connection a command travels on: renewals must not queue behind work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Acquisition, renewal and liveness.
    Lease,
    /// Everything else.
    Work,
}

impl Command {
    /// Which connection it travels on.
    #[must_use]
    pub const fn lane(&self) -> Lane {
        match self {
            Self::Heartbeat(_)
            | Self::AcquireLeadership(_)
            | Self::AcquirePartitions(_)
            | Self::RenewLeases(_)
            | Self::ReleaseLeases(_)
            | Self::RenewExecutions(_) => Lane::Lease,
            Self::ReadClock
            | Self::ScanDueJobs(_)
            | Self::Materialise(_)
            | Self::PutOffJobs(_)
            | Self::PromoteDue(_)
            | Self::ScanOutbox(_)
            | Self::RemoveOutbox(_)
            | Self::ReturnOutbox(_)
            | Self::ScanSweep(_)
            | Self::Repair(_)
            | Self::AcquireExecutions(_)
            | Self::FinishExecutions(_)
            | Self::DeferExecutions(_)
            | Self::RecordMalformed(_)
            | Self::CreateTenant(_)
            | Self::CreateJob(_)
            | Self::ChangeJob(_)
            | Self::DeleteJob(_)
            | Self::TriggerJob(_)
            | Self::CancelExecution(_)
            | Self::SetPause(_)
            | Self::ReplayDeadLetter(_)
            | Self::ReplayDeadLetters(_)
            | Self::PurgeDeadLetter(_)
            | Self::SetLimit(_)
            | Self::SetCalendar(_) => Lane::Work,
        }
    }

    /// The command's kind, as conformance, metrics and traces name it.
    #[must_use]
    pub const fn kind(&self) -> CommandKind {
        match self {
            Self::ReadClock => CommandKind::ReadClock,
            Self::Heartbeat(_) => CommandKind::Heartbeat,
            Self::AcquireLeadership(_) => CommandKind::AcquireLeadership,
            Self::AcquirePartitions(_) => CommandKind::AcquirePartitions,
            Self::RenewLeases(_) => CommandKind::RenewLeases,
            Self::ReleaseLeases(_) => CommandKind::ReleaseLeases,
            Self::ScanDueJobs(_) => CommandKind::ScanDueJobs,
            Self::Materialise(_) => CommandKind::Materialise,
            Self::PutOffJobs(_) => CommandKind::PutOffJobs,
            Self::PromoteDue(_) => CommandKind::PromoteDue,
            Self::ScanOutbox(_) => CommandKind::ScanOutbox,
            Self::RemoveOutbox(_) => CommandKind::RemoveOutbox,
            Self::ReturnOutbox(_) => CommandKind::ReturnOutbox,
            Self::ScanSweep(_) => CommandKind::ScanSweep,
            Self::Repair(_) => CommandKind::Repair,
            Self::AcquireExecutions(_) => CommandKind::AcquireExecutions,
            Self::RenewExecutions(_) => CommandKind::RenewExecutions,
            Self::FinishExecutions(_) => CommandKind::FinishExecutions,
            Self::DeferExecutions(_) => CommandKind::DeferExecutions,
            Self::RecordMalformed(_) => CommandKind::RecordMalformed,
            Self::CreateTenant(_) => CommandKind::CreateTenant,
            Self::CreateJob(_) => CommandKind::CreateJob,
            Self::ChangeJob(_) => CommandKind::ChangeJob,
            Self::DeleteJob(_) => CommandKind::DeleteJob,
            Self::TriggerJob(_) => CommandKind::TriggerJob,
            Self::CancelExecution(_) => CommandKind::CancelExecution,
            Self::SetPause(_) => CommandKind::SetPause,
            Self::ReplayDeadLetter(_) => CommandKind::ReplayDeadLetter,
            Self::ReplayDeadLetters(_) => CommandKind::ReplayDeadLetters,
            Self::PurgeDeadLetter(_) => CommandKind::PurgeDeadLetter,
            Self::SetLimit(_) => CommandKind::SetLimit,
            Self::SetCalendar(_) => CommandKind::SetCalendar,
        }
    }
}

crate::execution::named!(
    /// The kinds of commands, without their contents.
    CommandKind {
        /// See [`Command::ReadClock`].
        ReadClock = "read_clock",
        /// See [`Command::Heartbeat`].
        Heartbeat = "heartbeat",
        /// See [`Command::AcquireLeadership`].
        AcquireLeadership = "acquire_leadership",
        /// See [`Command::AcquirePartitions`].
        AcquirePartitions = "acquire_partitions",
        /// See [`Command::RenewLeases`].
        RenewLeases = "renew_leases",
        /// See [`Command::ReleaseLeases`].
        ReleaseLeases = "release_leases",
        /// See [`Command::ScanDueJobs`].
        ScanDueJobs = "scan_due_jobs",
        /// See [`Command::Materialise`].
        Materialise = "materialise",
        /// See [`Command::PutOffJobs`].
        PutOffJobs = "put_off_jobs",
        /// See [`Command::PromoteDue`].
        PromoteDue = "promote_due",
        /// See [`Command::ScanOutbox`].
        ScanOutbox = "scan_outbox",
        /// See [`Command::RemoveOutbox`].
        RemoveOutbox = "remove_outbox",
        /// See [`Command::ReturnOutbox`].
        ReturnOutbox = "return_outbox",
        /// See [`Command::ScanSweep`].
        ScanSweep = "scan_sweep",
        /// See [`Command::Repair`].
        Repair = "repair",
        /// See [`Command::AcquireExecutions`].
        AcquireExecutions = "acquire_executions",
        /// See [`Command::RenewExecutions`].
        RenewExecutions = "renew_executions",
        /// See [`Command::FinishExecutions`].
        FinishExecutions = "finish_executions",
        /// See [`Command::DeferExecutions`].
        DeferExecutions = "defer_executions",
        /// See [`Command::RecordMalformed`].
        RecordMalformed = "record_malformed",
        /// See [`Command::CreateTenant`].
        CreateTenant = "create_tenant",
        /// See [`Command::CreateJob`].
        CreateJob = "create_job",
        /// See [`Command::ChangeJob`].
        ChangeJob = "change_job",
        /// See [`Command::DeleteJob`].
        DeleteJob = "delete_job",
        /// See [`Command::TriggerJob`].
        TriggerJob = "trigger_job",
        /// See [`Command::CancelExecution`].
        CancelExecution = "cancel_execution",
        /// See [`Command::SetPause`].
        SetPause = "set_pause",
        /// See [`Command::ReplayDeadLetter`].
        ReplayDeadLetter = "replay_dead_letter",
        /// See [`Command::ReplayDeadLetters`].
        ReplayDeadLetters = "replay_dead_letters",
        /// See [`Command::PurgeDeadLetter`].
        PurgeDeadLetter = "purge_dead_letter",
        /// See [`Command::SetLimit`].
        SetLimit = "set_limit",
        /// See [`Command::SetCalendar`].
        SetCalendar = "set_calendar",
    }
);

/// What a lease command's guard is checked against, for one resource.
#[must_use]
pub fn lease_of(leases: &[HeldLease], partition: PartitionId) -> Option<FencingToken> {
    let resource = LeaseResource::Partition(partition);
    leases.binary_search_by_key(&resource, |held| held.resource).ok().map(|at| leases[at].token)
}
