//! Replays: whether a dead letter can be replayed, and what its replay is called.
//!
//! The one home of both rules: the store's commands decide by [`why_not`], on either side of the seam, and so does
//! whoever only asks what would happen. A handler that no worker knows is no obstacle here: handlers come and go with
//! deployments, so such a replay is made and waits, with the reason on record, until a worker knows it.

use std::sync::Arc;

use crate::execution::{DeadLetterReason, named};
use crate::id::{ExecutionId, JobId, Occurrence};
use crate::retry::RetryPolicy;
use crate::store::command::ReplayKey;
use crate::store::row::JobState;
use crate::time::Timestamp;

named!(
    /// Why a dead letter cannot be replayed.
    NotReplayable {
        /// An operator purged it.
        Purged = "purged",
        /// Its job was deleted.
        JobDeleted = "job_deleted",
        /// The definition of the version that it was made under cannot be read by this version.
        UnreadableDefinition = "unreadable_definition",
    }
);

/// Whether a stored definition can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readability {
    /// It can.
    Readable,
    /// It cannot.
    Unreadable,
}

/// What stands in the way of a replay, if anything: what comes first of it.
#[must_use]
pub fn why_not(
    purged_at: Option<Timestamp>,
    job: JobState,
    definition: Readability,
) -> Option<NotReplayable> {
    match (purged_at, job, definition) {
        (Some(_), _, _) => Some(NotReplayable::Purged),
        (None, JobState::Deleted, _) => Some(NotReplayable::JobDeleted),
        (None, JobState::Active, Readability::Unreadable) => Some(NotReplayable::UnreadableDefinition),
        (None, JobState::Active, Readability::Readable) => None,
    }
}

/// The execution that a replay is.
#[must_use]
pub fn execution_of(job: JobId, origin: ExecutionId, number: u32) -> ExecutionId {
    Occurrence::Replay { origin, number }.execution_id(job)
}

/// The idempotency key of a replay that does not keep its origin's. No fire and no caller's key has such text.
#[must_use]
pub fn own_key(job: JobId, origin: ExecutionId, number: u32) -> Arc<str> {
    format!("{job}/replay/{origin}/{number}").into()
}

/// The idempotency key of a replay.
#[must_use]
pub fn key_of(choice: ReplayKey, job: JobId, origin: (ExecutionId, &Arc<str>), number: u32) -> Arc<str> {
    match choice {
        ReplayKey::Origin => Arc::clone(origin.1),
        ReplayKey::Own => own_key(job, origin.0, number),
    }
}

/// By which rule an execution became a dead letter, in a sentence; of the definition that it was made under, where
/// that can be read.
#[must_use]
pub fn rule(reason: DeadLetterReason, policy: Option<&RetryPolicy>) -> String {
    let Some(policy) = policy else {
        return format!("{reason}, by a definition that this version cannot read");
    };
    match reason {
        DeadLetterReason::NonRetryable => {
            "an error after which trying again is pointless ends an execution at once".to_owned()
        }
        DeadLetterReason::Exhausted => format!("no attempt follows number {}", policy.max_attempts),
        DeadLetterReason::TooOld => match policy.max_age {
            Some(most) => format!("no attempt begins more than {most} after the execution was due"),
            None => "no attempt begins after the longest age".to_owned(),
        },
        DeadLetterReason::RescuesSpent => format!(
            "an execution is rescued {} times after a sign of a start, and {} times without one",
            policy.max_rescues, policy.max_lost_starts
        ),
        DeadLetterReason::Deadline => {
            "no attempt begins, and none goes on, past the deadline of the whole execution".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_obstacle_is_told() {
        let at = Some(Timestamp::EPOCH);
        let (deleted, active) = (JobState::Deleted, JobState::Active);
        let (yes, no) = (Readability::Readable, Readability::Unreadable);
        assert_eq!(why_not(at, deleted, no), Some(NotReplayable::Purged));
        assert_eq!(why_not(None, deleted, no), Some(NotReplayable::JobDeleted));
        assert_eq!(why_not(None, active, no), Some(NotReplayable::UnreadableDefinition));
        assert_eq!(why_not(None, active, yes), None);
    }

    #[test]
    fn keys_of_replays_are_golden() {
        let job = JobId::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        let origin = ExecutionId::from_u128(7);
        let key = "the origin's".into();
        assert_eq!(&*key_of(ReplayKey::Origin, job, (origin, &key), 2), "the origin's");
        assert_eq!(
            &*key_of(ReplayKey::Own, job, (origin, &key), 2),
            "00112233-4455-6677-8899-aabbccddeeff/replay/00000000-0000-0000-0000-000000000007/2"
        );
    }

    #[test]
    fn every_reason_has_its_rule() {
        let policy = RetryPolicy::default();
        let rules: Vec<String> =
            DeadLetterReason::ALL.iter().map(|reason| rule(*reason, Some(&policy))).collect();
        assert!(rules[1].contains(&policy.max_attempts.to_string()), "{rules:?}");
        assert!(rules.iter().all(|rule| !rule.is_empty()), "{rules:?}");
        assert!(rule(DeadLetterReason::TooOld, None).starts_with("too_old"));
    }
}
