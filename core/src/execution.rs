//! Executions: the states of one occurrence, and the one table of legal transitions.
//!
//! Every change of state, in the reference semantics and in SQL alike, is a row of [`TRANSITIONS`].
//! Terminal states absorb, but for `Skipped → Pending`, the way out that only an operator's backfill
//! takes. The diagram in the docs is generated from this table.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Where an execution stands. In lifecycle order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionState {
    /// To be dispatched, dispatched, or waiting for a recorded reason.
    Pending,
    /// Leased to a worker.
    Running,
    /// Waits for its next attempt.
    RetryWait,
    /// Done.
    Completed,
    /// Given up, with a dead-letter record.
    DeadLettered,
    /// Given up, of a job that keeps no dead letters.
    Failed,
    /// Called off by an operator.
    Cancelled,
    /// A nominal fire that was not run, with the reason.
    Skipped,
}

/// What makes an execution change its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The scheduler materialised a fire, or an operator triggered one.
    Materialise,
    /// A worker acquired the execution lease.
    Acquire,
    /// The attempt succeeded.
    Complete,
    /// The attempt failed and another follows.
    FailRetryably,
    /// The attempt failed for good.
    FailForGood,
    /// The worker gave the execution back unfinished.
    Release,
    /// The sweep found the lease expired.
    TakeOver,
    /// The retry came due.
    Promote,
    /// An operator called it off, or it ended after such a request.
    Cancel,
    /// The overlap policy decided against it.
    Overlap,
    /// Its deadline passed while nothing ran.
    Deadline,
    /// An operator backfilled it.
    Backfill,
}

use Cause as C;
use ExecutionState as S;

/// Every legal transition. `None` as the source: the execution is born in the target state.
pub const TRANSITIONS: &[(Option<ExecutionState>, Cause, ExecutionState)] = &[
    (None, C::Materialise, S::Pending),
    (None, C::Materialise, S::Skipped),
    (Some(S::Pending), C::Acquire, S::Running),
    (Some(S::Pending), C::Cancel, S::Cancelled),
    (Some(S::Pending), C::Overlap, S::Skipped),
    (Some(S::Pending), C::Deadline, S::DeadLettered),
    (Some(S::Pending), C::Deadline, S::Failed),
    (Some(S::Running), C::Complete, S::Completed),
    (Some(S::Running), C::FailRetryably, S::RetryWait),
    (Some(S::Running), C::FailForGood, S::DeadLettered),
    (Some(S::Running), C::FailForGood, S::Failed),
    (Some(S::Running), C::Release, S::RetryWait),
    (Some(S::Running), C::TakeOver, S::RetryWait),
    (Some(S::Running), C::TakeOver, S::DeadLettered),
    (Some(S::Running), C::TakeOver, S::Failed),
    (Some(S::Running), C::Cancel, S::Cancelled),
    (Some(S::RetryWait), C::Promote, S::Pending),
    (Some(S::RetryWait), C::Cancel, S::Cancelled),
    (Some(S::RetryWait), C::Deadline, S::DeadLettered),
    (Some(S::RetryWait), C::Deadline, S::Failed),
    (Some(S::Skipped), C::Backfill, S::Pending),
];

/// Whether the table allows this change of state, whatever its cause.
#[must_use]
pub fn is_legal(from: Option<ExecutionState>, to: ExecutionState) -> bool {
    TRANSITIONS.iter().any(|(source, _, target)| *source == from && *target == to)
}

impl ExecutionState {
    /// All states, in lifecycle order.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Running,
        Self::RetryWait,
        Self::Completed,
        Self::DeadLettered,
        Self::Failed,
        Self::Cancelled,
        Self::Skipped,
    ];

    /// Whether nothing more happens to an execution in this state.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::Running | Self::RetryWait => false,
            Self::Completed | Self::DeadLettered | Self::Failed | Self::Cancelled | Self::Skipped => true,
        }
    }

    /// The name that is stored and shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::RetryWait => "retry_wait",
            Self::Completed => "completed",
            Self::DeadLettered => "dead_lettered",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
        }
    }

    /// The state of this stored name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

impl fmt::Display for ExecutionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Declares a stored enum with its names, so that both sides of the store spell them alike.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name that is stored and shown.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The value of this stored name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(crate) use named;

named!(
    /// Why a nominal fire was not run.
    SkipReason {
        /// It was materialised too late for the job's misfire policy.
        Misfire = "misfire",
        /// Its job was paused.
        Paused = "paused",
        /// Another execution of its job was under way, and its overlap policy passed it over.
        Overlap = "overlap",
        /// Its day is in a calendar that its job excludes.
        Calendar = "calendar",
    }
);

named!(
    /// Why a pending execution waits although it was dispatched.
    WaitReason {
        /// The broker had no queue for its handler.
        NoRoute = "no_route",
        /// The worker that received it does not know its handler, or that version of it.
        UnknownHandler = "unknown_handler",
        /// The message has a schema that the worker that received it cannot read.
        UnreadableMessage = "unreadable_message",
        /// The stored definition cannot be read by the version that dispatches.
        UnreadableDefinition = "unreadable_definition",
        /// Its job is paused. A resume ends the wait.
        JobPaused = "job_paused",
        /// Another execution of its job is under way. The end of that lifts it.
        Buffered = "buffered",
        /// Its tenant is paused. The resume ends the wait.
        TenantPaused = "tenant_paused",
        /// Its tenant has paused its handler's queue. The resume ends the wait.
        QueuePaused = "queue_paused",
        /// As many of its tenant run as may. The end of one lifts it.
        TenantLimit = "tenant_limit",
        /// As many of its concurrency key run as may. The end of one lifts it.
        KeyLimit = "key_limit",
    }
);

named!(
    /// Why an execution was dead-lettered.
    DeadLetterReason {
        /// Its error said that trying again is pointless.
        NonRetryable = "non_retryable",
        /// Its attempts are used up.
        Exhausted = "exhausted",
        /// It is older than its job retries.
        TooOld = "too_old",
        /// It took too many workers with it.
        RescuesSpent = "rescues_spent",
        /// The deadline of the whole execution passed.
        Deadline = "deadline",
    }
);

named!(
    /// How one attempt ended that did not complete.
    AttemptEnd {
        /// The handler reported an error after which trying again makes sense.
        FailedRetryably = "failed_retryably",
        /// The handler reported an error after which it does not.
        FailedForGood = "failed_for_good",
        /// The worker gave the execution back.
        Released = "released",
        /// The worker stopped the handler because an operator asked.
        Cancelled = "cancelled",
        /// The lease expired and was taken over.
        Lost = "lost",
    }
);

/// Whether an operator has asked for a running execution to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelState {
    /// Nobody asked.
    #[default]
    None,
    /// Asked, and stored.
    Requested,
}

/// Whether the worker that holds an execution lease gave any sign of a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseSign {
    /// Granted, and nothing since: perhaps the grant never arrived.
    #[default]
    None,
    /// Renewed, or a start reported.
    Started,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_states_absorb_but_for_a_backfill() {
        for (from, cause, to) in TRANSITIONS {
            if from.is_some_and(ExecutionState::is_terminal) {
                assert_eq!((*from, *cause, *to), (Some(S::Skipped), C::Backfill, S::Pending));
            }
        }
    }

    #[test]
    fn every_state_that_is_not_terminal_has_a_way_out() {
        for state in ExecutionState::ALL {
            let leaves = TRANSITIONS.iter().any(|(from, _, _)| *from == Some(state));
            assert!(state.is_terminal() || leaves, "{state} is a trap");
        }
    }

    #[test]
    fn names_are_read_back() {
        for state in ExecutionState::ALL {
            assert_eq!(ExecutionState::from_name(state.name()), Some(state));
        }
        for end in AttemptEnd::ALL {
            assert_eq!(AttemptEnd::from_name(end.name()), Some(*end));
        }
    }
}
