//! Facts: what a role tells whoever watches. They steer nothing; logs and metrics are made of them.

use crate::execution::{DeadLetterReason, ExecutionState, WaitReason};
use crate::fencing::FencingToken;
use crate::id::{ExecutionId, JobId, TenantId};
use crate::job::Unreadable;
use crate::lease::{LeaseResource, RunId};
use crate::priority::Priority;
use crate::store::row::{RefusedAction, RefusedResource};
use crate::time::Span;

/// One thing worth telling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fact {
    /// A lease was granted.
    LeaseGained {
        /// Of what.
        resource: LeaseResource,
        /// Under which token.
        token: FencingToken,
    },
    /// A lease is no longer this node's.
    LeaseEnded {
        /// Of what.
        resource: LeaseResource,
        /// Under which token it was held.
        token: FencingToken,
        /// How it ended.
        how: LeaseEnd,
    },
    /// Fires were materialised.
    Materialised {
        /// Executions made.
        made: u32,
        /// Ranges of fires passed over.
        skipped: u32,
        /// The largest span from due to materialised.
        lag: Span,
    },
    /// Messages were confirmed by the broker.
    Confirmed {
        /// How many.
        count: u32,
        /// The largest span from the commit to the confirm.
        lag: Span,
    },
    /// Messages were not confirmed: returned, refused, or unknown.
    Unconfirmed {
        /// How many came back without a queue.
        returned: u32,
        /// How many were refused.
        nacked: u32,
        /// How many are unknown.
        unknown: u32,
    },
    /// Outbox rows were read back to be published (again).
    OutboxReadBack {
        /// How many.
        count: u32,
    },
    /// Retries were promoted, or what waited was dispatched again.
    Promoted {
        /// How many.
        count: u32,
    },
    /// A write was refused: its authority had passed on.
    WriteRefused {
        /// What it was about.
        resource: RefusedResource,
        /// What it was to do.
        action: RefusedAction,
        /// The token presented.
        presented: FencingToken,
        /// The current one.
        current: FencingToken,
    },
    /// An optimistic check failed: somebody else was first, lawfully.
    Conflict {
        /// What it was to do.
        action: RefusedAction,
    },
    /// A job's definition cannot be read here.
    JobUnreadable {
        /// Which.
        job: JobId,
        /// Whose.
        tenant: TenantId,
        /// Why.
        why: Unreadable,
    },
    /// A sweep repaired something.
    Swept {
        /// Expired execution leases taken over.
        taken_over: u32,
        /// Dispatches repeated.
        redispatched: u32,
        /// Outbox rows of terminal executions removed.
        dropped: u32,
        /// Executions ended that waited past their deadline.
        overdue: u32,
        /// Nodes marked offline.
        retired: u32,
    },
    /// An execution lease was granted and its handler started.
    RunStarted {
        /// Which run.
        run: RunId,
        /// Its priority.
        priority: Priority,
        /// Which attempt.
        attempt: u32,
        /// From the publication of its message to the delivery, by the store's clock and both nodes' steady ones.
        queue_lag: Span,
        /// From the delivery of its message to the start.
        lag: Span,
        /// From due to start, by the store's clock and the worker's steady one.
        due_lag: Span,
    },
    /// A run's outcome is durable.
    RunEnded {
        /// Which run.
        run: RunId,
        /// Where the execution stands.
        state: ExecutionState,
        /// How long its handler ran.
        ran: Span,
        /// Why it was given up, if it was.
        dead_letter: Option<DeadLetterReason>,
    },
    /// A message did not lead to a run: its execution had ended, ran elsewhere, or was not there.
    MessageDropped {
        /// Which.
        execution: ExecutionId,
    },
    /// An execution cannot run here; why it waits is recorded.
    Deferred {
        /// Which.
        execution: ExecutionId,
        /// Why.
        reason: WaitReason,
    },
    /// A broker message could not be read; it is recorded.
    MalformedMessage,
    /// The outcome of a store call is unknown.
    StoreUnknown,
    /// A drain began.
    DrainStarted,
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseEnd {
    /// Given back.
    Released,
    /// Refused on renewal.
    Refused,
    /// No longer trusted, for want of a renewal in time.
    Untrusted,
}
