//! Facts: the rows that an explanation looks at, and what this process knows of the settings.
//!
//! They are read in one snapshot, bounded by `limits`, and belong to one tenant but for leases and nodes, which belong
//! to none.

use std::sync::Arc;

use crate::config::{SchedulerConfig, WorkerConfig};
use crate::execution::{ExecutionState, SkipReason};
use crate::fencing::FencingToken;
use crate::id::{ExecutionId, JobVersion, Occurrence};
use crate::job::StoredDefinition;
use crate::store::reply::EarlierVersion;
use crate::store::row::{
    AttemptRow, DeadLetterRow, ExecutionRow, JobRow, JobVersionRow, LeaseRow, LimitRow, NodeRow, OutboxRow,
    PauseRow, RefusalRow, SkippedRangeRow,
};
use crate::time::{Span, Timestamp};

/// Spans of the settings that statements rely on: this process's own. Those of other processes may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spans {
    /// How old an own outbox row must be before it is read back.
    pub outbox_grace: Span,
    /// The first delay before a dispatch that led to nothing is repeated.
    pub redispatch_after: Span,
    /// How often the leader sweeps.
    pub sweep_every: Span,
    /// After how much silence a node is taken for gone.
    pub node_stale_after: Span,
    /// How long executions are leased for.
    pub execution_lease: Span,
}

impl Spans {
    /// Those of a scheduler and a worker with these settings.
    #[must_use]
    pub const fn of(scheduler: &SchedulerConfig, worker: &WorkerConfig) -> Self {
        Self {
            outbox_grace: scheduler.outbox_grace,
            redispatch_after: scheduler.redispatch_after,
            sweep_every: scheduler.sweep_every,
            node_stale_after: scheduler.node_stale_after,
            execution_lease: worker.lease_ttl,
        }
    }
}

/// How a job came to stand as it does: who paused or resumed it, when and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandingSaid {
    /// From when on.
    pub at: Timestamp,
    /// Who, where that was said.
    pub actor: Option<Arc<str>>,
    /// Why, where that was said.
    pub reason: Option<Arc<str>>,
}

impl StandingSaid {
    /// By whom and why, as a sentence goes on after what was done.
    pub(super) fn by(actor: Option<&str>, reason: Option<&str>) -> String {
        let actor = actor.map(|actor| format!(" by {actor}")).unwrap_or_default();
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("{actor}{reason}")
    }
}

/// A limit that an execution waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitFacts {
    /// The limit, where it is still there.
    pub row: Option<LimitRow>,
    /// How many run that it counts.
    pub running: u32,
    /// The first of them by id.
    pub held_by: Option<ExecutionId>,
}

/// What is looked at to explain an execution.
#[derive(Clone, Debug)]
pub struct ExecutionFacts {
    /// The store's clock.
    pub now: Timestamp,
    /// The settings.
    pub spans: Spans,
    /// The execution.
    pub execution: ExecutionRow,
    /// Its runs that did not complete, the latest of them, ascending by token.
    pub attempts: Vec<AttemptRow>,
    /// Its dead letter.
    pub dead_letter: Option<DeadLetterRow>,
    /// What was refused about it, of the latest tokens.
    pub refusals: Vec<RefusalRow>,
    /// Its outbox rows, ascending by dispatch.
    pub outbox: Vec<OutboxRow>,
    /// Its job as it stands.
    pub job: JobRow,
    /// How that came to its standing.
    pub standing: StandingSaid,
    /// The pauses of its tenant and of its queue that are in force, and the one that it is held back by, ended or not.
    pub pauses: Vec<PauseRow>,
    /// The definition of the version under which it was made.
    pub definition: Arc<StoredDefinition>,
    /// The lease of its partition.
    pub partition_lease: LeaseRow,
    /// The lease of the leader, who sweeps.
    pub leadership: LeaseRow,
    /// Nodes that are not offline.
    pub nodes: Vec<NodeRow>,
    /// Who holds its job's slot, by id, where it waits for that.
    pub slot_holders: Vec<(ExecutionId, ExecutionState)>,
    /// The limit that it waits for, if it waits for one.
    pub limit: Option<LimitFacts>,
    /// The node that holds its lease, or held the latest; also where it is offline.
    pub worker: Option<NodeRow>,
}

/// One of a job's latest executions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentExecution {
    /// The execution.
    pub id: ExecutionId,
    /// What it is an occurrence of.
    pub occurrence: Occurrence,
    /// When it was due.
    pub due_at: Timestamp,
    /// Where it stands.
    pub state: ExecutionState,
    /// Why it was skipped.
    pub skip_reason: Option<SkipReason>,
    /// Under which version it was decided.
    pub job_version: JobVersion,
    /// Under which partition token it was decided.
    pub made_under: FencingToken,
}

/// What is looked at to explain a job.
#[derive(Clone, Debug)]
pub struct JobFacts {
    /// The store's clock.
    pub now: Timestamp,
    /// The job.
    pub job: JobRow,
    /// How it came to its standing.
    pub standing: StandingSaid,
    /// The versions before the current one that decide about what follows the watermark, oldest first.
    pub earlier: Vec<EarlierVersion>,
    /// Its latest versions, the first one aside, in any order.
    pub changes: Vec<JobVersionRow>,
    /// How the pauses came about that its skipped ranges of that reason lie in, by the version of the range.
    pub pauses: Vec<(JobVersion, StandingSaid)>,
    /// Its latest executions, in any order.
    pub executions: Vec<RecentExecution>,
    /// Its latest skipped ranges, in any order.
    pub skipped: Vec<SkippedRangeRow>,
    /// How many of its executions are in each live state; counted up to a bound.
    pub live: Vec<(ExecutionState, u32)>,
    /// The lease of its partition.
    pub partition_lease: LeaseRow,
    /// The node that holds that.
    pub owner: Option<NodeRow>,
}
