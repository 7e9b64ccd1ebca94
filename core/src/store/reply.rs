//! Replies: everything the store may answer, one shape per command.
//!
//! Item replies stand in the order of the request's items. A refusal is an answer, not an error.

use std::sync::Arc;

use crate::execution::{CancelState, ExecutionState, LeaseSign};
use crate::fencing::FencingToken;
use crate::id::{DispatchNo, ExecutionId, JobId, JobVersion, NodeId, Occurrence, PauseId, TenantId};
use crate::job::{Payload, Standing, StoredDefinition, Unreadable};
use crate::lease::{HeldLease, RunId};
use crate::partition::PartitionId;
use crate::replay::NotReplayable;
use crate::store::command::OutboxId;
use crate::time::{Span, Timestamp};

/// A reply and the store's clock as the command used it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreReply {
    /// The one `now` of the command.
    pub now: Timestamp,
    /// The answer.
    pub reply: Reply,
}

/// The answer to a command, by its kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// To `ReadClock`: nothing but `now`.
    Clock,
    /// To `Heartbeat`: live active schedulers, ascending, the sender included if it is one.
    Heartbeat {
        /// Who lives.
        schedulers: Vec<NodeId>,
    },
    /// To `AcquireLeadership`.
    Leadership(LeadershipReply),
    /// To `AcquirePartitions`: what was granted, ascending.
    Partitions {
        /// What was granted (or was already, under the same nonce).
        granted: Vec<HeldLease>,
    },
    /// To `RenewLeases`.
    LeasesRenewed(Vec<HoldReply>),
    /// To `ReleaseLeases`.
    LeasesReleased(Vec<HoldReply>),
    /// To `ScanDueJobs`.
    DueJobs {
        /// What is due.
        jobs: Vec<DueJob>,
        /// When the next job of these partitions that is not due yet comes due; `None` if none will.
        next_due: Option<Timestamp>,
    },
    /// To `Materialise`.
    Materialised(Vec<MaterialiseReply>),
    /// To `PutOffJobs`.
    JobsPutOff(Vec<PutOffReply>),
    /// To `PromoteDue`.
    Promoted {
        /// What was dispatched, in the order picked.
        dispatches: Vec<Dispatch>,
        /// Presented leases that are no longer the caller's, with the current token.
        refused: Vec<(HeldLease, FencingToken)>,
        /// When the next one that is not due yet comes due.
        next_due: Option<Timestamp>,
    },
    /// To `ScanOutbox`.
    Outbox {
        /// What is to be published, in the order picked.
        dispatches: Vec<Dispatch>,
        /// When the next row of these partitions becomes readable to this caller.
        next_due: Option<Timestamp>,
    },
    /// To `RemoveOutbox`.
    OutboxRemoved(Vec<RemovalReply>),
    /// To `ReturnOutbox`.
    OutboxReturned(Vec<RemovalReply>),
    /// To `ScanSweep`.
    Sweep(SweepFindings),
    /// To `Repair`.
    Repaired(RepairReply),
    /// To `AcquireExecutions`.
    Acquired(Vec<AcquireReply>),
    /// To `RenewExecutions`.
    RunsRenewed(Vec<RenewReply>),
    /// To `FinishExecutions`.
    Finished(Vec<FinishReply>),
    /// To `DeferExecutions`.
    Deferred(Vec<DeferReply>),
    /// To `RecordMalformed`.
    MalformedRecorded,
    /// To `CreateTenant`.
    TenantCreated(CreateTenantReply),
    /// To `CreateJob`.
    JobCreated(CreateJobReply),
    /// To `ChangeJob`.
    JobChanged(ChangeJobReply),
    /// To `DeleteJob`.
    JobDeleted(DeleteJobReply),
    /// To `TriggerJob`.
    JobTriggered(TriggerReply),
    /// To `CancelExecution`.
    ExecutionCancelled(CancelReply),
    /// To `SetPause`.
    PauseSet(SetPauseReply),
    /// To `ReplayDeadLetter`.
    DeadLetterReplayed(ReplayReply),
    /// To `ReplayDeadLetters`.
    DeadLettersReplayed(ReplayPage),
    /// To `PurgeDeadLetter`.
    DeadLetterPurged(PurgeReply),
    /// To `SetLimit`.
    LimitSet(SetLimitReply),
    /// To `SetCalendar`.
    CalendarSet(SetCalendarReply),
}

/// Whether leadership was granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeadershipReply {
    /// It was (or already is, under the same nonce).
    Granted {
        /// Under this token.
        token: FencingToken,
    },
    /// Somebody holds it.
    Held {
        /// Until then, as things stand.
        expires_at: Timestamp,
    },
}

/// Whether a lease was renewed or released.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HoldReply {
    /// It was.
    Done,
    /// Owner or token are others by now.
    Refused {
        /// The current token.
        current: FencingToken,
    },
}

/// A due job, with all that planning its fires takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DueJob {
    /// The job.
    pub job: JobId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its partition.
    pub partition: PartitionId,
    /// The version in force.
    pub version: JobVersion,
    /// The definition in force.
    pub definition: Arc<StoredDefinition>,
    /// Whether it fires by itself now.
    pub standing: Standing,
    /// From when this version decides.
    pub effective_from: Timestamp,
    /// The versions before it that decide about what follows the watermark, oldest first; mostly none.
    pub earlier: Vec<EarlierVersion>,
    /// The watermark.
    pub recorded_through: Timestamp,
    /// The next nominal fire.
    pub next_fire_time: Timestamp,
    /// Its place in the scan's order.
    pub next_try_at: Timestamp,
    /// Scheduled executions so far.
    pub runs: u64,
    /// What an earlier reader could not read.
    pub unreadable: Option<Unreadable>,
}

/// A version that was in force before the current one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EarlierVersion {
    /// Which.
    pub version: JobVersion,
    /// Its definition.
    pub definition: Arc<StoredDefinition>,
    /// Whether the job fired by itself meanwhile.
    pub standing: Standing,
    /// From when it decided.
    pub effective_from: Timestamp,
}

/// What became of one job of a `Materialise`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MaterialiseReply {
    /// Recorded. For each execution, in order, whether it was made.
    Applied(Vec<MadeExecution>),
    /// The partition is no longer held under the token presented.
    StaleLease {
        /// The current token.
        current: FencingToken,
    },
    /// The job has another version.
    VersionChanged {
        /// The current one.
        current: JobVersion,
    },
    /// The watermark has moved: somebody else, or an earlier sending of this, has recorded it.
    WatermarkMoved,
    /// The job is deleted, or was never there.
    Gone,
    /// A fire is not due yet by the store's clock.
    NotDue,
    /// Too late for this decision; plan again.
    PlanExpired,
}

/// Whether an execution of a `Materialise` was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MadeExecution {
    /// Made, with its first outbox row.
    Made,
    /// It existed already.
    Existed,
}

/// What became of one job of a `PutOffJobs`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PutOffReply {
    /// Put off.
    Done,
    /// The partition is no longer held under the token presented.
    StaleLease {
        /// The current token.
        current: FencingToken,
    },
    /// Version, watermark or state are others by now.
    Moved,
}

/// An outbox row with all that its message takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dispatch {
    /// The execution.
    pub execution: ExecutionId,
    /// Which dispatch of it.
    pub dispatch_no: DispatchNo,
    /// Whose it is.
    pub tenant: TenantId,
    /// Of which job.
    pub job: JobId,
    /// Under which version.
    pub job_version: JobVersion,
    /// What it is an occurrence of.
    pub occurrence: Occurrence,
    /// The idempotency key.
    pub key: Arc<str>,
    /// When it was due.
    pub due_at: Timestamp,
    /// A payload of its own.
    pub payload: Option<Payload>,
    /// The definition of its version.
    pub definition: Arc<StoredDefinition>,
}

/// Whether an outbox row was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemovalReply {
    /// It was, and went.
    Removed,
    /// It was not.
    Absent,
}

/// What a sweep found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SweepFindings {
    /// Expired execution leases.
    pub expired: Vec<ExpiredRun>,
    /// Dispatched and never started.
    pub undelivered: Vec<OutboxId>,
    /// Outbox rows of terminal executions.
    pub settled: Vec<OutboxId>,
    /// What waits past its deadline, by its latest token, and where it stands.
    pub overdue: Vec<(RunId, ExecutionState)>,
    /// Nodes without a recent report.
    pub stale_nodes: Vec<(NodeId, Timestamp)>,
}

/// An expired execution lease, with all that deciding about it takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExpiredRun {
    /// The run.
    pub run: RunId,
    /// Whether it was asked to stop.
    pub cancel: CancelState,
    /// Whether its worker gave a sign of a start.
    pub sign: LeaseSign,
    /// Rescues so far.
    pub rescues: u32,
    /// Leases lost without a sign so far.
    pub lost_starts: u32,
    /// How long its deadline leaves it, if it has one: nothing once that has passed.
    pub left: Option<Span>,
    /// The definition of its version.
    pub definition: Arc<StoredDefinition>,
}

/// Whether a `Repair` was allowed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RepairReply {
    /// It was; item by item.
    Applied(Vec<RepairItemReply>),
    /// Leadership is no longer held under the token presented.
    StaleLeadership {
        /// The current token.
        current: FencingToken,
    },
}

/// What became of one repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepairItemReply {
    /// Done.
    Done,
    /// What was observed is no longer so.
    Moved,
}

/// Whether an execution lease was granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AcquireReply {
    /// It was (or already is, under the same nonce).
    Granted(Grant),
    /// Never by this message: terminal, running, or a resend whose lease has ended. Acknowledge and drop.
    Never {
        /// Where it stands.
        state: ExecutionState,
    },
    /// Not now: what it waits for is recorded, and another dispatch will come.
    NotNow {
        /// Where it stands.
        state: ExecutionState,
    },
    /// No such execution.
    Absent,
}

/// A granted execution lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Under this token.
    pub token: FencingToken,
    /// Failed attempts before this one.
    pub attempts: u32,
    /// How long past its due time it was.
    pub age: Span,
    /// How long its deadline leaves it, if it has one.
    pub left: Option<Span>,
    /// Whether it was asked to stop (only on a resend).
    pub cancel: CancelState,
}

/// Whether an execution lease was renewed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RenewReply {
    /// It was.
    Renewed {
        /// Whether the run is asked to stop.
        cancel: CancelState,
    },
    /// The run is no longer the current one.
    Refused {
        /// The current token.
        current: FencingToken,
        /// Where the execution stands.
        state: ExecutionState,
    },
    /// No such execution.
    Absent,
}

/// What became of a finish.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FinishReply {
    /// Applied.
    Applied {
        /// Where the execution stands now.
        state: ExecutionState,
    },
    /// This outcome under this token was applied before.
    Already {
        /// Where the execution stands now.
        state: ExecutionState,
    },
    /// The run is no longer the current one.
    Refused {
        /// The current token.
        current: FencingToken,
        /// Where the execution stands.
        state: ExecutionState,
    },
    /// No such execution.
    Absent,
}

/// What became of a deferral.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeferReply {
    /// The reason is recorded (or one was already).
    Recorded,
    /// It is not pending; nothing to record.
    NotPending {
        /// Where it stands.
        state: ExecutionState,
    },
    /// No such execution.
    Absent,
}

/// Whether a tenant was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CreateTenantReply {
    /// It was.
    Created,
    /// It was there.
    Repeated,
    /// The name is another tenant's.
    NameTaken,
}

/// Whether a job was made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CreateJobReply {
    /// It was.
    Created,
    /// This request had made one before.
    Repeated {
        /// That one.
        job: JobId,
    },
    /// The request id was used for something else.
    RequestReused,
    /// The job id is taken.
    IdTaken,
    /// No such tenant.
    NoTenant,
    /// A calendar that it names is not there, or has other days than it was planned with: read it and plan again.
    CalendarChanged,
    /// The reading of the clock that it was planned on is too old, or ahead: read it again and plan again.
    PlanExpired,
}

/// Whether a job was edited, paused or resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeJobReply {
    /// It was.
    Changed {
        /// The version that this made.
        version: JobVersion,
    },
    /// This request had changed it before.
    Repeated {
        /// The version that it made then.
        version: JobVersion,
    },
    /// It stands as was asked for; nothing was written.
    Already {
        /// The current version.
        version: JobVersion,
    },
    /// The job has another version than was expected.
    VersionChanged {
        /// The current one.
        current: JobVersion,
    },
    /// The watermark has moved, or the reading of the clock is too old or ahead: read again and plan again.
    PlanExpired,
    /// A calendar that its definition names is not there, or has other days than it was planned with.
    CalendarChanged,
    /// Too many versions have fires that nobody has recorded yet.
    LedgerBehind,
    /// The request id was used for something else.
    RequestReused,
    /// The job is deleted, or no such job of this tenant.
    NotFound,
}

/// Whether a job was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeleteJobReply {
    /// It was.
    Deleted {
        /// Executions cancelled.
        cancelled: u32,
        /// Running executions asked to stop.
        requested: u32,
    },
    /// It was deleted before.
    Repeated,
    /// No such job of this tenant.
    NotFound,
}

/// Whether a job was triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TriggerReply {
    /// It was.
    Created,
    /// This key had triggered it before.
    Repeated {
        /// Where that execution stands.
        state: ExecutionState,
    },
    /// This key had triggered it with another payload.
    KeyReused,
    /// The job is deleted, or no such job of this tenant.
    NotFound,
}

/// Whether an execution was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelReply {
    /// It was, from this state.
    Cancelled {
        /// Where it stood.
        was: ExecutionState,
    },
    /// It runs; its worker will be told.
    Requested,
    /// It had ended.
    Ended {
        /// How.
        state: ExecutionState,
    },
    /// No such execution of this tenant.
    NotFound,
}

/// Whether a tenant or a queue was paused or resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetPauseReply {
    /// It is paused from now on.
    Paused,
    /// It goes on from now on.
    Resumed,
    /// It stands as asked for.
    Already {
        /// The pause that is in force, or that had ended.
        pause: PauseId,
    },
    /// This request had done it before.
    Repeated {
        /// The pause that it began or ended.
        pause: PauseId,
    },
    /// The request id was used for something else.
    RequestReused,
    /// The id is another pause's, or that of one that has ended.
    IdTaken,
    /// No such tenant, or no such pause of this tenant.
    NotFound,
}

/// Whether a dead letter was replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplayReply {
    /// It was.
    Created {
        /// Which execution was made.
        execution: ExecutionId,
        /// Which replay that is.
        number: u32,
    },
    /// It had been, by an earlier asking for the same.
    Repeated {
        /// Which execution was made then.
        execution: ExecutionId,
        /// Which replay that is.
        number: u32,
        /// Where it stands.
        state: ExecutionState,
    },
    /// That replay was made with the other choice of a key.
    OtherKey {
        /// Which execution was made then.
        execution: ExecutionId,
    },
    /// The request id was used for something else.
    RequestReused,
    /// The number is neither that of a replay that is there nor the next.
    WrongNumber {
        /// The next.
        next: u32,
    },
    /// It cannot be replayed, for this reason.
    Refused(NotReplayable),
    /// The execution is no dead letter.
    NotDeadLettered {
        /// Where it stands.
        state: ExecutionState,
    },
    /// No such execution of this tenant.
    NotFound,
}

/// What a page of replays came to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplayPage {
    /// What was looked at, by (`at`, `execution`), and what became of it.
    pub letters: Vec<(ExecutionId, PageReplay)>,
    /// Where the next page begins, if this one was full.
    pub next: Option<(Timestamp, ExecutionId)>,
}

/// What a page of replays made of one dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageReplay {
    /// This execution, its first replay.
    Created {
        /// Which.
        execution: ExecutionId,
    },
    /// Nothing: it cannot be replayed.
    Refused(NotReplayable),
}

/// Whether a dead letter was purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PurgeReply {
    /// It was.
    Purged,
    /// It had been.
    Repeated,
    /// The execution is no dead letter.
    NotDeadLettered {
        /// Where it stands.
        state: ExecutionState,
    },
    /// No such execution of this tenant.
    NotFound,
}

/// Whether a limit was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetLimitReply {
    /// It was.
    Set,
    /// It had been, by this request.
    Repeated,
    /// The request id was used for something else.
    RequestReused,
    /// No such tenant.
    NoTenant,
}

/// Whether a calendar was set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SetCalendarReply {
    /// It was, or was taken away.
    Set {
        /// The version that this made.
        version: u64,
    },
    /// It had been, by this request.
    Repeated,
    /// The request id was used for something else.
    RequestReused,
    /// No such tenant.
    NoTenant,
    /// There is no such calendar to be taken away.
    NotFound,
    /// The calendar has another version than was expected.
    VersionChanged {
        /// The current one; zero where there never was one.
        current: u64,
    },
    /// Jobs name it, so it is not taken away.
    InUse {
        /// Which, ascending.
        jobs: Vec<JobId>,
    },
    /// A job that names it came, went or changed, or the reading of the clock is too old or ahead: read again and plan
    /// again.
    PlanExpired,
    /// Too many versions of this job have fires that nobody has recorded yet.
    LedgerBehind {
        /// Which.
        job: JobId,
    },
}
