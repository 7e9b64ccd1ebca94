//! Events: everything that may happen to a role. Closed; the roles match on all of it.
//!
//! A database outage, an ambiguous commit, a refused write are events, not errors.

use std::sync::Arc;

use crate::id::EffectId;
use crate::lease::RunId;
use crate::message::{ExecutionMessage, MessageError};
use crate::partition::PartitionId;
use crate::priority::Priority;
use crate::store::StoreOutcome;
use crate::time::Span;

/// What may happen to a [`Scheduler`](crate::scheduler::Scheduler).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SchedulerEvent {
    /// Time has passed. Spurious ones do nothing.
    Tick,
    /// A store call came to its end.
    StoreReplied {
        /// Which.
        effect: EffectId,
        /// How.
        outcome: StoreOutcome,
    },
    /// A publication came to its end.
    Published {
        /// Which.
        effect: EffectId,
        /// How, message by message, in the order of the effect.
        outcomes: Vec<PublishOutcome>,
    },
    /// Something was committed that this partition's owner may want to see at once. An optimisation:
    /// polling alone finds everything.
    Notified {
        /// The partition.
        partition: PartitionId,
    },
    /// An orderly end is asked for.
    DrainRequested,
}

/// What became of one published message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PublishOutcome {
    /// The broker has it, in a queue.
    Confirmed,
    /// No queue takes it; the broker gave it back.
    Returned,
    /// The broker refused it.
    Nacked,
    /// Nobody knows.
    Unknown,
}

/// What may happen to a [`Worker`](crate::worker::Worker).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WorkerEvent {
    /// Time has passed. Spurious ones do nothing.
    Tick,
    /// A store call came to its end.
    StoreReplied {
        /// Which.
        effect: EffectId,
        /// How.
        outcome: StoreOutcome,
    },
    /// The broker delivered a message.
    Delivered {
        /// Names the delivery, for its acknowledgement.
        delivery: Delivery,
        /// The message, or why it cannot be read.
        message: Result<Arc<ExecutionMessage>, MalformedMessage>,
    },
    /// The consumer is gone, by the broker's will or the network's: deliveries of its epoch that were not
    /// acknowledged will come again, elsewhere or here. The interpreter consumes anew on its own, under
    /// the next epoch, unless told to stop.
    ConsumerLost {
        /// Whose deliveries are void.
        epoch: u64,
    },
    /// A handler came to its end.
    HandlerFinished {
        /// Which run's.
        run: RunId,
        /// How.
        result: HandlerResult,
    },
    /// An orderly end is asked for.
    DrainRequested,
}

/// Names a delivery: a tag within one consumer's epoch, which tells its priority too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delivery {
    /// Which consumer: raised with each new one.
    pub epoch: u64,
    /// The broker's tag in it.
    pub tag: u64,
}

impl Delivery {
    /// The tag of what is the `number`th delivery of this priority: each is counted by itself. Of normal ones that is the
    /// number.
    #[must_use]
    pub const fn tag_of(priority: Priority, number: u64) -> u64 {
        match priority {
            Priority::Normal => number,
            Priority::High => number | Self::HIGH,
            Priority::Low => number | Self::LOW,
        }
    }

    /// Of which priority it is, and its number among those.
    #[must_use]
    pub const fn place(self) -> (Priority, u64) {
        let number = self.tag & !(Self::HIGH | Self::LOW);
        if self.tag & Self::HIGH != 0 {
            (Priority::High, number)
        } else if self.tag & Self::LOW != 0 {
            (Priority::Low, number)
        } else {
            (Priority::Normal, number)
        }
    }

    const HIGH: u64 = 1 << 63;
    const LOW: u64 = 1 << 62;
}

/// A message that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MalformedMessage {
    /// Why.
    pub error: MessageError,
    /// A digest of the body.
    pub digest: uuid::Uuid,
    /// Its beginning.
    pub excerpt: Arc<[u8]>,
}

/// How a handler ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HandlerResult {
    /// It did what it was to do.
    Completed,
    /// It failed.
    Failed {
        /// Whether trying again makes sense.
        class: ErrorClass,
        /// What went wrong.
        error: Arc<str>,
        /// When the target wants to be tried again.
        retry_after: Option<Span>,
    },
    /// It stopped because it was told to.
    Stopped,
}

/// Whether trying again makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorClass {
    /// It does.
    Retryable,
    /// It does not.
    NonRetryable,
}
