//! What operators ask of dead letters: replays, one or a page of them, and purges.
//!
//! A replay is a new execution that is linked to the dead letter, which stays as it is: what has ended is never
//! opened again. Its id is derived from the dead letter and the replay's number, so that asking twice is asking once.
//! Numbers count up from one without gaps.

use serde::{Deserialize, Serialize};

use crate::execution::DeadLetterReason;
use crate::id::{ExecutionId, JobId, NodeId, TenantId};
use crate::store::command::OperatorRequest;
use crate::time::Timestamp;

/// [`Command::ReplayDeadLetter`](super::Command::ReplayDeadLetter). Checked in this order: the dead letter is this
/// tenant's, the request id or the number (an earlier asking made this replay), the number is the next one, the dead
/// letter is not purged, its job not deleted, the definition of its version readable (`replay::why_not`).
///
/// Made: an execution of the origin's job, version and payload, `Pending`, due now, with its first outbox row; its
/// token is the highest of the origin and the replays of it so far, so that every grant lies above. The dead letter's
/// `replays` goes up by one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplayDeadLetter {
    /// Whose it is.
    pub tenant: TenantId,
    /// The execution that was dead-lettered.
    pub origin: ExecutionId,
    /// Which replay of it.
    pub number: ReplayNumber,
    /// Which idempotency key the replay gets.
    pub key: ReplayKey,
    /// Who commits the outbox row.
    pub node: NodeId,
}

/// Which replay of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReplayNumber {
    /// This one: it is there already, or it is the next.
    Given(u32),
    /// The next one, whichever that is; the request id remembers which it was.
    Next(OperatorRequest),
}

/// Which idempotency key a replay gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayKey {
    /// The origin's: a target that enforces it does nothing that it has done before.
    Origin,
    /// One of its own (`replay::own_key`): a target takes it for something new.
    Own,
}

/// [`Command::ReplayDeadLetters`](super::Command::ReplayDeadLetters): looks at the first `limit` dead letters by (`at`,
/// `execution`) after `after` that are this tenant's, match, are not purged and have no replay yet, and makes the
/// first replay of each that can be replayed. What cannot is passed over and named.
///
/// What was replayed once is not looked at again, so a page that is repeated, or a whole pass over all pages, replays
/// nothing twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplayDeadLetters {
    /// Whose they are.
    pub tenant: TenantId,
    /// Which of them.
    pub filter: DeadLetterFilter,
    /// Where the page before ended.
    pub after: Option<(Timestamp, ExecutionId)>,
    /// How many to look at, at most [`REPLAY_PAGE_MAX`](crate::limits::REPLAY_PAGE_MAX).
    pub limit: u32,
    /// Which idempotency keys the replays get.
    pub key: ReplayKey,
    /// Who commits the outbox rows.
    pub node: NodeId,
}

/// Which dead letters; what is not given does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeadLetterFilter {
    /// Of this job.
    pub job: Option<JobId>,
    /// Dead-lettered for this reason.
    pub reason: Option<DeadLetterReason>,
    /// Dead-lettered at this time or later.
    pub from: Option<Timestamp>,
    /// Dead-lettered before this time.
    pub to: Option<Timestamp>,
}

impl DeadLetterFilter {
    /// Whether a dead letter of this job, reason and time is among them.
    #[must_use]
    pub fn matches(&self, job: JobId, reason: DeadLetterReason, at: Timestamp) -> bool {
        self.job.is_none_or(|wanted| wanted == job)
            && self.reason.is_none_or(|wanted| wanted == reason)
            && self.from.is_none_or(|from| from <= at)
            && self.to.is_none_or(|to| at < to)
    }
}

/// [`Command::PurgeDeadLetter`](super::Command::PurgeDeadLetter): the record becomes a tombstone: `purged_at` is now,
/// the error goes. It is neither listed nor replayed any more; replays that were made go on. Purging what is purged is
/// a repeat.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PurgeDeadLetter {
    /// Whose it is.
    pub tenant: TenantId,
    /// The execution that was dead-lettered.
    pub execution: ExecutionId,
}
