//! A history: what was done to the broker in a script's run, and what was seen of it.
//!
//! Everything is told from outside: what each party sent, in its own order, and what reached it, in its own
//! order. Nothing says how the broker interleaved what different parties sent; to find an order that
//! explains everything is the acceptor's task. Messages are known by their dispatch numbers.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use fencepost_core::event::PublishOutcome;
use fencepost_core::id::{DispatchNo, JobId, JobVersion, Occurrence, TenantId};
use fencepost_core::job::{DeadLetters, HandlerName, HandlerRef, Payload, SCHEMA_VERSION};
use fencepost_core::message::ExecutionMessage;
use fencepost_core::priority::Priority;
use fencepost_core::retry::RetryPolicy;
use fencepost_core::time::{Span, Timestamp};
use fencepost_sim::world::open_broker::{QueueName, Slot};

use crate::script::{Leaving, Settling};

/// Who did something. What one actor does arrives in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Actor {
    /// Production's publisher: its outcomes may come rounds later.
    Publisher,
    /// Somebody who publishes and leaves.
    Passer(u32),
    /// Production's consumer, one session of it. It does not say when something has reached the broker.
    Worker(Slot),
    /// Somebody else's consumer, which does.
    Foreign(Slot),
    /// An operator.
    Operator,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Act {
    Publish {
        number: u32,
        queue: usize,
    },
    Consume {
        slot: Slot,
        prefetch: u16,
        queues: Vec<usize>,
    },
    Cancel {
        slot: Slot,
    },
    Settle {
        slot: Slot,
        tags: Vec<u64>,
        how: Settling,
    },
    Leave {
        slot: Slot,
        how: Leaving,
        holding: usize,
    },
    /// The broker ends a consumer, and this is how its owner is told.
    Ended {
        slot: Slot,
        told: Sight,
    },
    Purge {
        queue: usize,
        removed: u32,
    },
    Count {
        queue: usize,
        ready: u32,
    },
    /// The broker has exactly the consumers that it should have by now.
    Met,
    DeleteQueue {
        queue: usize,
    },
    DeleteExchange,
    Alarm,
    AlarmOver,
    Down(Down),
    Up,
}

/// How the broker was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Down {
    InOrder,
    Killed,
}

/// What reached a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Sight {
    Delivered {
        tag: u64,
        number: u32,
        flag: Flag,
    },
    /// The broker cancelled the consumer; its channel stays.
    Cancelled,
    /// The consumer is gone, with its session.
    Lost,
}

/// What the broker says about earlier deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Flag {
    First,
    Redelivered,
    /// Production does not look.
    NotSeen,
}

/// What was done and seen in one window.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    pub(super) acts: Vec<(Actor, Act)>,
    pub(super) sights: BTreeMap<Slot, Vec<Sight>>,
    pub(super) outcomes: BTreeMap<u32, PublishOutcome>,
}

/// The whole of it.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) rounds: Vec<Round>,
}

impl Act {
    /// Whether this may leave behind what its actor sent before.
    pub(super) fn overtakes(&self) -> bool {
        match self {
            Self::Leave { how: Leaving::Abruptly, .. } | Self::Ended { .. } => true,
            Self::Leave { how: Leaving::Channel | Leaving::Connection, .. }
            | Self::Publish { .. }
            | Self::Consume { .. }
            | Self::Cancel { .. }
            | Self::Settle { .. }
            | Self::Purge { .. }
            | Self::Count { .. }
            | Self::Met
            | Self::DeleteQueue { .. }
            | Self::DeleteExchange
            | Self::Alarm
            | Self::AlarmOver
            | Self::Down(_)
            | Self::Up => false,
        }
    }
}

impl Sight {
    /// Under which tag it came; what ends a consumer comes after everything.
    pub(super) fn tag(self) -> u64 {
        match self {
            Self::Delivered { tag, .. } => tag,
            Self::Cancelled | Self::Lost => u64::MAX,
        }
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (actor, act) in &self.acts {
            writeln!(f, "      {actor:?}: {act:?}")?;
        }
        for (slot, sights) in &self.sights {
            writeln!(f, "      #{slot} saw {sights:?}")?;
        }
        if !self.outcomes.is_empty() {
            writeln!(f, "      outcomes {:?}", self.outcomes)?;
        }
        Ok(())
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, round) in self.rounds.iter().enumerate() {
            write!(f, "    round {at}\n{round}")?;
        }
        Ok(())
    }
}

/// What the queue of this number is called: two are of handlers of their own, the third is the first one's for what has high
/// priority, so that production consumes it along with the first, on another channel.
pub(super) fn name(queue: usize) -> QueueName {
    let (handler, priority) = match queue {
        PREFERRED => (0, Priority::High),
        other => (other, Priority::Normal),
    };
    (HandlerName::parse(&format!("q{handler}")).expect("it is a name"), priority)
}

/// The queue for what has high priority.
pub(super) const PREFERRED: usize = 2;

/// The message of this number, for this queue.
pub(super) fn message(number: u32, queue: usize) -> Arc<ExecutionMessage> {
    let job = JobId::from_u128(1 + queue as u128);
    let fire = Timestamp::EPOCH.plus(Span::from_secs(u64::from(number)));
    let occurrence = Occurrence::Scheduled { fire };
    let (handler, priority) = name(queue);
    Arc::new(ExecutionMessage {
        schema: SCHEMA_VERSION,
        execution: occurrence.execution_id(job),
        dispatch_no: DispatchNo(number),
        tenant: TenantId::from_u128(1),
        job,
        job_version: JobVersion::FIRST,
        key: occurrence.idempotency_key(job).expect("a fire has one"),
        occurrence,
        due_at: fire,
        handler: HandlerRef { name: handler, version: 1 },
        priority,
        payload: Payload::default(),
        attempt_timeout: Span::from_secs(60),
        retry: RetryPolicy::default(),
        dead_letter: DeadLetters::On,
        dispatched_at: fire,
        publish_delay: Span::ZERO,
    })
}
