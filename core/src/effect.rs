//! Effects: everything a role may want done. Closed; the interpreters match on all of it.
//!
//! Effects that have an outcome carry an id, and the outcome comes back as an event with that id, always:
//! an interpreter that hears nothing reports `Unknown` after
//! [`STORE_CALL_TIMEOUT`](crate::limits::STORE_CALL_TIMEOUT) or
//! [`PUBLISH_TIMEOUT`](crate::limits::PUBLISH_TIMEOUT).

use std::sync::Arc;

use crate::event::Delivery;
use crate::fact::Fact;
use crate::id::EffectId;
use crate::lease::RunId;
use crate::message::ExecutionMessage;
use crate::store::command::Command;

/// What a [`Scheduler`](crate::scheduler::Scheduler) may want done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SchedulerEffect {
    /// Call the store, on the connection of the command's lane; comes back as `StoreReplied`.
    Store {
        /// Names the call.
        id: EffectId,
        /// What is asked.
        command: Command,
    },
    /// Publish to the queues of the messages' handlers and priorities, which are declared first; comes back as `Published`.
    Publish {
        /// Names the publication.
        id: EffectId,
        /// What.
        messages: Vec<Arc<ExecutionMessage>>,
    },
    /// Tell whoever watches.
    Report(Fact),
    /// The drain is over; the process may end.
    Drained,
}

/// What a [`Worker`](crate::worker::Worker) may want done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WorkerEffect {
    /// Call the store, on the connection of the command's lane; comes back as `StoreReplied`.
    Store {
        /// Names the call.
        id: EffectId,
        /// What is asked.
        command: Command,
    },
    /// Consume from the queues of the configured handlers, with as many unacknowledged at most of each priority as this.
    Consume {
        /// How many of each priority.
        prefetch: u32,
    },
    /// Consume no more; what was delivered may still be acknowledged.
    StopConsuming,
    /// Acknowledge. Void if the delivery's consumer is gone.
    Ack {
        /// What.
        delivery: Delivery,
    },
    /// Run a handler; comes back as `HandlerFinished`.
    StartHandler(Invocation),
    /// Tell a handler to stop; comes back as `HandlerFinished` when it has, which may be never.
    StopHandler {
        /// Which run's.
        run: RunId,
        /// Why.
        reason: StopReason,
    },
    /// Tell whoever watches.
    Report(Fact),
    /// The drain is over; the process may end.
    Drained,
}

/// One call of a handler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Invocation {
    /// The run: execution and fencing token, both of which the handler is given.
    pub run: RunId,
    /// Which attempt: 1 for the first.
    pub attempt: u32,
    /// What to run with.
    pub message: Arc<ExecutionMessage>,
}

/// Why a handler is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopReason {
    /// Its attempt took too long.
    Timeout,
    /// An operator asked.
    Cancelled,
    /// Its lease is no longer this worker's, or no longer trusted.
    LeaseLost,
    /// The worker drains and can wait no longer.
    Drain,
}
