//! Changes: what a command did to which row, before and after.
//!
//! The reference semantics report them in the order they were made, for the oracles and the trace. Rows
//! that a command only read, or wrote with the contents that they had, are not among them.

use core::hash::{Hash, Hasher};

use crate::store::row::{
    AttemptRow, CalendarRow, DeadLetterRow, ExecutionRow, JobRow, JobVersionRow, LeaseRow, LimitRow,
    MalformedRow, NodeRow, OutboxRow, PauseRow, RefusalRow, RequestRow, SkippedRangeRow, TenantRow,
};

/// A row before and after; one of them is absent for an insert or a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta<Row> {
    /// As it was; `None`: inserted.
    pub before: Option<Row>,
    /// As it is; `None`: deleted.
    pub after: Option<Row>,
}

impl<Row> Delta<Row> {
    /// The row, if it was not there before.
    #[must_use]
    pub const fn inserted(&self) -> Option<&Row> {
        match self {
            Self { before: None, after: Some(row) } => Some(row),
            Self { .. } => None,
        }
    }
}

/// By the row as it is, or as it was where it is gone: what it was before, an earlier change made it.
impl<Row: Hash> Hash for Delta<Row> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.after.is_some().hash(state);
        self.after.as_ref().or(self.before.as_ref()).hash(state);
    }
}

/// One changed row. Renewals change dozens of leases at once, so what is larger than these is boxed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Of `tenant`.
    Tenant(Delta<TenantRow>),
    /// Of `lease`.
    Lease(Delta<LeaseRow>),
    /// Of `node`.
    Node(Delta<NodeRow>),
    /// Of `job`.
    Job(Box<Delta<JobRow>>),
    /// Of `job_version`.
    JobVersion(Box<Delta<JobVersionRow>>),
    /// Of `execution`.
    Execution(Box<Delta<ExecutionRow>>),
    /// Of `attempt`.
    Attempt(Box<Delta<AttemptRow>>),
    /// Of `outbox_event`.
    Outbox(Delta<OutboxRow>),
    /// Of `dead_letter`.
    DeadLetter(Box<Delta<DeadLetterRow>>),
    /// Of `skipped_range`.
    SkippedRange(Box<Delta<SkippedRangeRow>>),
    /// Of `refusal`.
    Refusal(Box<Delta<RefusalRow>>),
    /// Of `operator_request`.
    Request(Box<Delta<RequestRow>>),
    /// Of `pause`.
    Pause(Box<Delta<PauseRow>>),
    /// Of `concurrency_limit`.
    Limit(Box<Delta<LimitRow>>),
    /// Of `calendar`.
    Calendar(Box<Delta<CalendarRow>>),
    /// Of `malformed_message`.
    Malformed(Box<Delta<MalformedRow>>),
}
