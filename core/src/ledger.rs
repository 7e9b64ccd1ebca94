//! The ledger of fires, read: what became of every nominal fire of a stretch of time.
//!
//! Each fire up to a job's watermark is an execution or lies inside a skipped range, and never both. What is read from
//! the store are the two lists; here they become one, in the order of the fires, cut into pages such that no fire falls
//! between two of them.

use std::sync::Arc;

use serde::Serialize;

use crate::execution::{ExecutionState, SkipReason};
use crate::fencing::FencingToken;
use crate::id::{ExecutionId, JobVersion};
use crate::time::Timestamp;

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LedgerEntry {
    /// A fire that became an execution, whatever became of that.
    Execution {
        /// The nominal fire.
        #[serde(serialize_with = "as_text")]
        fire: Timestamp,
        /// Its execution.
        execution_id: ExecutionId,
        /// Where that stands.
        state: ExecutionState,
        /// Why it did not run, where it was skipped.
        skip_reason: Option<SkipReason>,
        /// The version under which it was decided.
        job_version: JobVersion,
        /// The partition's token under which it was decided.
        fencing_token: FencingToken,
    },
    /// A run of fires that were passed over, bounds included.
    Skipped {
        /// The first of them.
        #[serde(serialize_with = "as_text")]
        from: Timestamp,
        /// The last of them.
        #[serde(serialize_with = "as_text")]
        through: Timestamp,
        /// Why.
        reason: SkipReason,
        /// The version under which it was decided.
        job_version: JobVersion,
        /// The partition's token under which it was decided.
        fencing_token: FencingToken,
        /// When.
        #[serde(serialize_with = "as_text")]
        decided_at: Timestamp,
        /// The time-zone data by which the fires were worked out.
        zone_data: Arc<str>,
        /// The pause that they fell into, where that is why.
        #[serde(skip_serializing_if = "Option::is_none")]
        pause: Option<LedgerPause>,
    },
}

/// A pause that fires fell into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LedgerPause {
    /// From when on.
    #[serde(serialize_with = "as_text")]
    pub since: Timestamp,
    /// Who paused the job.
    pub actor: Option<Arc<str>>,
    /// Why.
    pub reason: Option<Arc<str>>,
}

fn as_text<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

impl LedgerEntry {
    /// The first fire that it is about.
    #[must_use]
    pub const fn first(&self) -> Timestamp {
        match self {
            Self::Execution { fire, .. } => *fire,
            Self::Skipped { from, .. } => *from,
        }
    }

    /// The last fire that it is about.
    #[must_use]
    pub const fn last(&self) -> Timestamp {
        match self {
            Self::Execution { fire, .. } => *fire,
            Self::Skipped { through, .. } => *through,
        }
    }
}

/// A part of the ledger, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerPage {
    /// Its lines. A range that reaches over an end of what was asked for is whole.
    pub entries: Vec<LedgerEntry>,
    /// Where the next page begins; `None` where this is the last.
    pub next: Option<Timestamp>,
}

/// Joins the first `limit` executions and the first `limit` ranges of a stretch, each ascending, into its first page.
/// Shorter lists are complete.
#[must_use]
pub fn page(executions: Vec<LedgerEntry>, ranges: Vec<LedgerEntry>, limit: usize) -> LedgerPage {
    let mut entries = executions;
    entries.extend(ranges);
    entries.sort_by_key(LedgerEntry::first);
    let more = entries.len() >= limit;
    entries.truncate(limit);
    let next = entries.last().filter(|_| more).map(|last| last.last().next());
    LedgerPage { entries, next }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execution(fire: i64) -> LedgerEntry {
        LedgerEntry::Execution {
            fire: Timestamp::from_micros(fire),
            execution_id: ExecutionId::from_u128(u128::from(fire.unsigned_abs())),
            state: ExecutionState::Completed,
            skip_reason: None,
            job_version: JobVersion(1),
            fencing_token: FencingToken::from_i64(1),
        }
    }

    fn range(from: i64, through: i64) -> LedgerEntry {
        LedgerEntry::Skipped {
            from: Timestamp::from_micros(from),
            through: Timestamp::from_micros(through),
            reason: SkipReason::Misfire,
            job_version: JobVersion(1),
            fencing_token: FencingToken::from_i64(1),
            decided_at: Timestamp::from_micros(through),
            zone_data: "test".into(),
            pause: None,
        }
    }

    /// Everything from an instant on, as a store would answer.
    fn read(all: &[LedgerEntry], from: i64, limit: usize) -> LedgerPage {
        let of = |is_range: bool| {
            let rest = all.iter().filter(|entry| {
                matches!(entry, LedgerEntry::Skipped { .. }) == is_range
                    && entry.last() >= Timestamp::from_micros(from)
            });
            rest.take(limit).cloned().collect()
        };
        page(of(false), of(true), limit)
    }

    #[test]
    fn pages_of_any_size_join_to_the_whole_without_a_gap_or_a_repeat() {
        let all = [
            execution(1),
            range(2, 5),
            execution(6),
            execution(7),
            range(8, 9),
            range(10, 30),
            execution(31),
        ];
        for limit in 1..=all.len() + 1 {
            let (mut from, mut seen) = (0, Vec::new());
            loop {
                let page = read(&all, from, limit);
                seen.extend(page.entries);
                let Some(next) = page.next else { break };
                from = next.as_micros();
            }
            assert_eq!(seen, all, "{limit} on a page");
        }
    }

    #[test]
    fn a_range_that_reaches_into_the_stretch_is_shown_whole() {
        let all = [range(2, 5), execution(6)];
        assert_eq!(read(&all, 4, 10).entries, all);
    }
}
