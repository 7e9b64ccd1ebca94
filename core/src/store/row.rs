//! Rows: what each table of the store holds. The migrations hold the same columns.
//!
//! Times are [`Timestamp`]s of the store's clock, ids and tokens are made by callers or by acquisition,
//! and nothing is defaulted by a server, so that two stores that executed the same commands are equal.

use core::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::execution::{
    AttemptEnd, CancelState, DeadLetterReason, ExecutionState, LeaseSign, SkipReason, WaitReason, named,
};
use crate::fencing::FencingToken;
use crate::id::{
    DispatchNo, EffectId, ExecutionId, JobId, JobVersion, NodeId, Occurrence, PauseId, TenantId,
};
use crate::job::{Payload, Standing, StoredDefinition, Unreadable};
use crate::lease::LeaseResource;
use crate::limits::LIVENESS_AHEAD_MAX;
use crate::partition::PartitionId;
use crate::pause::PauseScope;
use crate::schedule::Days;
use crate::time::{Span, Timestamp};

/// `tenant`: key `id`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TenantRow {
    /// The tenant.
    pub id: TenantId,
    /// Its name, unique.
    pub name: Arc<str>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// `lease`: key `resource`. One row per partition and one for leadership, there from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    /// What is leased.
    pub resource: LeaseResource,
    /// The token of the latest grant; survives a release.
    pub token: FencingToken,
    /// Who holds it; `None` once released, or never granted.
    pub owner: Option<NodeId>,
    /// The effect by which the owner acquired it: a resend of that gets the same grant again.
    pub nonce: EffectId,
    /// When it lapses. The epoch where there is no owner.
    pub expires_at: Timestamp,
}

/// In as few words as tell rows apart: nine tenths of what is hashed in a simulation are leases that are renewed.
impl Hash for LeaseRow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.resource.number()) << 1 | u64::from(self.owner.is_some()));
        self.token.hash(state);
        self.owner.iter().for_each(|owner| owner.hash(state));
        self.nonce.hash(state);
        self.expires_at.hash(state);
    }
}

named!(
    /// What a node does.
    NodeRole {
        /// Decides.
        Scheduler = "scheduler",
        /// Runs handlers.
        Worker = "worker",
        /// Takes requests.
        Api = "api",
    }
);

named!(
    /// What a node says of itself. It grants nothing.
    NodeState {
        /// At work.
        Active = "active",
        /// On its way out.
        Draining = "draining",
        /// Gone, by its own word or the sweep's.
        Offline = "offline",
    }
);

/// `node`: key `id`. Liveness reports; they inform and grant nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeRow {
    /// The process.
    pub id: NodeId,
    /// What it does.
    pub role: NodeRole,
    /// Its host, for people.
    pub label: Arc<str>,
    /// The schema version that it writes.
    pub schema: u16,
    /// What it says of itself.
    pub state: NodeState,
    /// Executions it can run side by side; 0 for schedulers.
    pub capacity: u32,
    /// Its first report.
    pub started_at: Timestamp,
    /// Its latest report.
    pub seen_at: Timestamp,
}

impl NodeRow {
    /// Whether the latest report says at `now` that its node lives: it is at most `within` old, and no further ahead
    /// than a clock that stepped back explains.
    #[must_use]
    pub fn is_live(&self, within: Span, now: Timestamp) -> bool {
        self.seen_at.plus(within) >= now && self.seen_at <= now.plus(LIVENESS_AHEAD_MAX)
    }
}

named!(
    /// Whether a job is still there.
    JobState {
        /// It fires.
        Active = "active",
        /// It was deleted, for good.
        Deleted = "deleted",
    }
);

/// `job`: key `id`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobRow {
    /// The job.
    pub id: JobId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its partition, derived from the id.
    pub partition: PartitionId,
    /// Its version: the optimistic lock. A delete raises it too.
    pub version: JobVersion,
    /// Whether it is still there.
    pub state: JobState,
    /// Whether it fires by itself.
    pub standing: Standing,
    /// The version that brought this standing: it says who and why.
    pub standing_since: JobVersion,
    /// The definition in force.
    pub definition: Arc<StoredDefinition>,
    /// From when this version decides.
    pub effective_from: Timestamp,
    /// The watermark of the ledger: every nominal fire up to it is recorded.
    pub recorded_through: Timestamp,
    /// The first nominal fire after the watermark; `None` when there is none.
    pub next_fire_time: Option<Timestamp>,
    /// When a scan may pick it: its next fire, or later after it could not be served.
    pub next_try_at: Timestamp,
    /// Scheduled executions so far, skipped ones not counted; for `max_runs`.
    pub runs: u64,
    /// Why the version that last looked cannot read it; such a job does not fire.
    pub unreadable: Option<Unreadable>,
    /// When it was created; fires before that do not count.
    pub created_at: Timestamp,
}

/// `job_version`: key (`job`, `version`). Appended to by each edit, pause and resume, never changed: the whole history
/// of what governs a job. A version decides from its `effective_from` until that of the next one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobVersionRow {
    /// The job.
    pub job: JobId,
    /// The version.
    pub version: JobVersion,
    /// Whose it is.
    pub tenant: TenantId,
    /// The definition.
    pub definition: Arc<StoredDefinition>,
    /// From when it decides.
    pub effective_from: Timestamp,
    /// Whether the job fires by itself meanwhile.
    pub standing: Standing,
    /// The version that brought this standing: this one, or an earlier one where this is an edit.
    pub standing_since: JobVersion,
    /// Who made it, where that was said.
    pub actor: Option<Arc<str>>,
    /// Why, where that was said.
    pub reason: Option<Arc<str>>,
}

/// `execution`: key `id`. One occurrence, its lease and its lag stamps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExecutionRow {
    /// The execution, derived from job and occurrence.
    pub id: ExecutionId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Of which job.
    pub job: JobId,
    /// Under which version it was made.
    pub job_version: JobVersion,
    /// The job's partition.
    pub partition: PartitionId,
    /// What it is an occurrence of.
    pub occurrence: Occurrence,
    /// The idempotency key.
    pub key: Arc<str>,
    /// A payload of its own, of manual triggers that give one.
    pub payload: Option<Payload>,
    /// Where it stands.
    pub state: ExecutionState,
    /// Why it was skipped.
    pub skip_reason: Option<SkipReason>,
    /// When it was due: the nominal fire, or the trigger.
    pub due_at: Timestamp,
    /// When the whole of it has to be over: `due_at` and the deadline of its version; `None` where that has none.
    pub deadline_at: Option<Timestamp>,
    /// The partition token under which it was made; `NEVER` for manual ones.
    pub made_under: FencingToken,

    /// The token of the latest execution lease.
    pub token: FencingToken,
    /// Who holds that lease, while running.
    pub owner: Option<NodeId>,
    /// The effect by which it was acquired; kept after the lease ended, so that its resend is refused.
    pub nonce: EffectId,
    /// The node that sent that effect.
    pub nonce_node: Option<NodeId>,
    /// When the lease lapses; the epoch while not running.
    pub expires_at: Timestamp,
    /// Whether its worker gave a sign of a start.
    pub sign: LeaseSign,
    /// Whether an operator asked for it to stop.
    pub cancel: CancelState,

    /// Failed attempts.
    pub attempts: u32,
    /// Leases lost after a sign of a start.
    pub rescues: u32,
    /// Leases lost without one.
    pub lost_starts: u32,
    /// When it is promoted or dispatched again: in `RetryWait`, and in `Pending` with a waiting reason.
    pub next_try_at: Option<Timestamp>,
    /// Why it waits, in `Pending`.
    pub waiting: Option<WaitReason>,
    /// The pause of its tenant or queue that it waits for, while it waits for one.
    pub held_by: Option<PauseId>,
    /// How often it was put off in a row, for the growing delay; reset by an acquire.
    pub waits: u32,

    /// The number of its latest outbox row.
    pub dispatch_no: DispatchNo,
    /// When it was last dispatched: the insertion of its latest outbox row, or its late removal.
    pub dispatched_at: Option<Timestamp>,
    /// How often the sweep dispatched it again since the last acquire.
    pub redispatches: u32,

    /// When it was made.
    pub materialised_at: Timestamp,
    /// When the message that the latest attempt came from was published.
    pub published_at: Option<Timestamp>,
    /// When the worker received it.
    pub received_at: Option<Timestamp>,
    /// When the latest lease was granted.
    pub leased_at: Option<Timestamp>,
    /// When the handler of the latest attempt started.
    pub started_at: Option<Timestamp>,
    /// When it ended for good.
    pub finished_at: Option<Timestamp>,
    /// Whether a span between these stamps had to be clamped.
    pub lag_clamped: bool,
    /// The latest error.
    pub error: Option<Arc<str>>,
}

/// `attempt`: key (`execution`, `token`). What ended otherwise than completed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttemptRow {
    /// The execution.
    pub execution: ExecutionId,
    /// The token of the lease that ended.
    pub token: FencingToken,
    /// Whose it is.
    pub tenant: TenantId,
    /// The worker.
    pub node: Option<NodeId>,
    /// Which attempt: failures before it, plus one.
    pub attempt: u32,
    /// How it ended.
    pub end: AttemptEnd,
    /// The error, if there was one.
    pub error: Option<Arc<str>>,
    /// When.
    pub at: Timestamp,
}

/// `outbox_event`: key (`execution`, `dispatch_no`). The intent to dispatch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutboxRow {
    /// The execution.
    pub execution: ExecutionId,
    /// Which dispatch of it.
    pub dispatch_no: DispatchNo,
    /// Whose it is.
    pub tenant: TenantId,
    /// The job's partition.
    pub partition: PartitionId,
    /// Who committed it, and may publish it at once.
    pub created_by: NodeId,
    /// When.
    pub created_at: Timestamp,
    /// When it may next be read back.
    pub next_try_at: Timestamp,
    /// How often it was read back.
    pub tries: u32,
}

/// `dead_letter`: key `execution`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeadLetterRow {
    /// The execution.
    pub execution: ExecutionId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Of which job.
    pub job: JobId,
    /// Why.
    pub reason: DeadLetterReason,
    /// The last error.
    pub error: Option<Arc<str>>,
    /// Failed attempts, the last included.
    pub attempts: u32,
    /// Rescues.
    pub rescues: u32,
    /// Leases lost without a sign of a start.
    pub lost_starts: u32,
    /// When.
    pub at: Timestamp,
    /// Replays made of it: they are numbered from 1 to this.
    pub replays: u32,
    /// When an operator purged it. What is left is a tombstone: the error is gone.
    pub purged_at: Option<Timestamp>,
}

/// `skipped_range`: key (`job`, `from`). A run of nominal fires that were not executed, bounds included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SkippedRangeRow {
    /// The job.
    pub job: JobId,
    /// The first nominal fire passed over.
    pub from: Timestamp,
    /// The last nominal fire passed over.
    pub through: Timestamp,
    /// Whose it is.
    pub tenant: TenantId,
    /// Why.
    pub reason: SkipReason,
    /// Under which version it was decided.
    pub job_version: JobVersion,
    /// Under which partition token it was decided.
    pub made_under: FencingToken,
    /// The `now` of the command that wrote it.
    pub decided_at: Timestamp,
    /// The zone-data version that the decision was made with.
    pub zone_data: Arc<str>,
}

/// What a refused write was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedResource {
    /// A partition or leadership.
    Lease(LeaseResource),
    /// An execution.
    Execution(ExecutionId),
}

named!(
    /// Which kind of write was refused.
    RefusedAction {
        /// Renewing a partition or leadership.
        RenewLease = "renew_lease",
        /// Materialising.
        Materialise = "materialise",
        /// Promoting a retry or dispatching what waited.
        Promote = "promote",
        /// A repair of the sweep.
        Repair = "repair",
        /// Renewing an execution lease.
        RenewExecution = "renew_execution",
        /// Finishing an execution.
        Finish = "finish",
    }
);

/// `refusal`: key (`resource`, `token`, `node`, `action`). Who wrote under authority that had passed on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RefusalRow {
    /// What it was about.
    pub resource: RefusedResource,
    /// The token presented.
    pub token: FencingToken,
    /// Who presented it.
    pub node: NodeId,
    /// What it was to do.
    pub action: RefusedAction,
    /// The token that was current when it was first refused.
    pub current: FencingToken,
    /// The first time.
    pub first_at: Timestamp,
    /// The latest time.
    pub last_at: Timestamp,
    /// How often.
    pub count: u64,
}

/// `operator_request`: key (`tenant`, `request`). What a request id stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestRow {
    /// Whose it is.
    pub tenant: TenantId,
    /// The caller's request id.
    pub request: Arc<str>,
    /// A digest of what was asked, so that reuse for something else is noticed.
    pub fingerprint: uuid::Uuid,
    /// The job that it made or changed, or of which it made an execution.
    pub job: Option<JobId>,
    /// The execution that it made.
    pub execution: Option<ExecutionId>,
    /// The version of the job that it made, where it changed one.
    pub version: Option<JobVersion>,
    /// The pause that it began or ended.
    pub pause: Option<PauseId>,
    /// When.
    pub at: Timestamp,
}

impl RequestRow {
    /// Whether it stands for a limit or a calendar that was to be set like this.
    #[must_use]
    pub fn set_a_limit(&self, fingerprint: uuid::Uuid) -> bool {
        self.fingerprint == fingerprint && self.job.is_none() && self.pause.is_none()
    }

    /// The job that it made, if it stands for a creation that was asked for like this.
    #[must_use]
    pub fn made_a_job(&self, fingerprint: uuid::Uuid) -> Option<JobId> {
        let made_else = self.execution.is_some() || self.version.is_some();
        self.job.filter(|_| self.fingerprint == fingerprint && !made_else)
    }

    /// The version that it made of a job, if it stands for a change of that job that was asked for like this.
    #[must_use]
    pub fn changed_job(&self, job: JobId, fingerprint: uuid::Uuid) -> Option<JobVersion> {
        self.version.filter(|_| self.fingerprint == fingerprint && self.job == Some(job))
    }

    /// The pause that it began or ended, if it stands for that and was asked for like this.
    #[must_use]
    pub fn set_a_pause(&self, fingerprint: uuid::Uuid) -> Option<PauseId> {
        self.pause.filter(|_| self.fingerprint == fingerprint)
    }
}

/// `pause`: key `id`. One pause of a tenant or of a queue. Of each scope of a tenant at most one has not ended; those
/// that have are its history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PauseRow {
    /// The pause; random, made by whoever asked for it.
    pub id: PauseId,
    /// Whose work it holds back.
    pub tenant: TenantId,
    /// Which of it.
    pub scope: PauseScope,
    /// When it began.
    pub since: Timestamp,
    /// Who asked for it.
    pub actor: Arc<str>,
    /// Why.
    pub reason: Arc<str>,
    /// How it ended.
    pub ended: Option<PauseEnd>,
    /// Until when partition owners look for what it held back: set where the resume did not let all go itself.
    pub lift_until: Option<Timestamp>,
}

/// The end of a pause.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PauseEnd {
    /// When.
    pub at: Timestamp,
    /// Who resumed.
    pub actor: Arc<str>,
    /// Why.
    pub reason: Arc<str>,
}

/// `concurrency_limit`: key (`tenant`, `key`). How many executions may run at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LimitRow {
    /// Whose it is.
    pub tenant: TenantId,
    /// The concurrency key; empty: all that the tenant runs.
    pub key: Arc<str>,
    /// How many; `None`: any number.
    pub max_running: Option<u32>,
    /// Who set it last.
    pub actor: Arc<str>,
    /// Why.
    pub reason: Arc<str>,
    /// When.
    pub set_at: Timestamp,
}

/// `calendar`: key (`tenant`, `name`). A named set of days.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CalendarRow {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name.
    pub name: Arc<str>,
    /// Its version: the optimistic lock. It rises also where the calendar is taken away and set again.
    pub version: u64,
    /// Its days; `None`: it was taken away.
    pub days: Option<Days>,
    /// Who set it last.
    pub actor: Arc<str>,
    /// Why.
    pub reason: Arc<str>,
    /// When.
    pub set_at: Timestamp,
}

/// `malformed_message`: key `digest`. What arrived from the broker and could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MalformedRow {
    /// A digest of the body.
    pub digest: uuid::Uuid,
    /// What is wrong with it.
    pub reason: Arc<str>,
    /// Its beginning.
    pub excerpt: Arc<[u8]>,
    /// Who received it first.
    pub node: NodeId,
    /// The first time.
    pub first_at: Timestamp,
    /// The latest time.
    pub last_at: Timestamp,
    /// How often.
    pub count: u64,
}
