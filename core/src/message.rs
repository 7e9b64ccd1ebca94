//! The execution message: what travels through the broker from a scheduler to a worker.
//!
//! It says what to run and by which policies; it grants nothing. The worker acquires the execution lease
//! first, and the store decides. Messages outlive deployments, so they carry a schema version: a reader
//! takes its own, the previous and the next one, ignoring fields that it does not know, and hands anything
//! else back (a durable wait and an acknowledgement, see `worker`).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{DispatchNo, ExecutionId, JobId, JobVersion, Occurrence, TenantId};
use crate::job::{DeadLetters, HandlerRef, Payload};
use crate::priority::Priority;
use crate::retry::RetryPolicy;
use crate::time::{Span, Timestamp};

mod codec;

pub use codec::MessageError;

/// One dispatch of one execution.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExecutionMessage {
    /// The schema version of the writer.
    pub schema: u16,
    /// What to run.
    pub execution: ExecutionId,
    /// Which dispatch of it this is.
    pub dispatch_no: DispatchNo,
    /// Whose it is.
    pub tenant: TenantId,
    /// Of which job.
    pub job: JobId,
    /// Under which version.
    pub job_version: JobVersion,
    /// What it is an occurrence of.
    pub occurrence: Occurrence,
    /// The idempotency key for the handler.
    pub key: Arc<str>,
    /// When it was due.
    pub due_at: Timestamp,
    /// Which code runs; its name and the priority are the routing key.
    pub handler: HandlerRef,
    /// Its share of the starts where more waits than can run.
    #[serde(default, skip_serializing_if = "Priority::is_normal")]
    pub priority: Priority,
    /// What that is given.
    pub payload: Payload,
    /// How long one attempt may take.
    pub attempt_timeout: Span,
    /// What follows a failure.
    pub retry: RetryPolicy,
    /// Whether a failure for good is kept.
    pub dead_letter: DeadLetters,
    /// The store's clock when the publisher learnt of this dispatch.
    pub dispatched_at: Timestamp,
    /// How long after that it published, by the publisher's steady clock.
    pub publish_delay: Span,
}

impl ExecutionMessage {
    /// The instant that it is run for: the nominal fire, which a flex window does not move, or when it was asked for.
    #[must_use]
    pub const fn nominal_at(&self) -> Timestamp {
        match self.occurrence {
            Occurrence::Scheduled { fire } => fire,
            Occurrence::Manual { .. } | Occurrence::Replay { .. } => self.due_at,
        }
    }

    /// When this was published, by the publisher's account of the store's clock.
    #[must_use]
    pub fn published_at(&self) -> Timestamp {
        self.dispatched_at.plus(self.publish_delay)
    }
}
