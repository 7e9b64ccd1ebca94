//! How columns are read back: counts, names, occurrences. What this version does not know is a fault, never
//! a guess.

use std::sync::Arc;

use fencepost_core::execution::{CancelState, ExecutionState, LeaseSign, SkipReason, WaitReason};
use fencepost_core::id::{ExecutionId, Occurrence};
use fencepost_core::time::Timestamp;
use uuid::Uuid;

use super::fault::Fault;

/// A stored count.
pub(super) fn count(column: &'static str, stored: impl Into<i64>) -> Result<u32, Fault> {
    let stored = stored.into();
    u32::try_from(stored).map_err(|_| Fault::Unknown { column, value: stored.to_string() })
}

/// A count as it is stored. Nothing that is counted here comes near the edge.
pub(super) fn stored_count(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// An enum by its stored name.
pub(super) fn named<T>(column: &'static str, name: &str, from: fn(&str) -> Option<T>) -> Result<T, Fault> {
    from(name).ok_or_else(|| Fault::Unknown { column, value: name.to_owned() })
}

/// A state.
pub(super) fn state(name: &str) -> Result<ExecutionState, Fault> {
    named("execution.state", name, ExecutionState::from_name)
}

/// A waiting reason.
pub(super) fn waiting(name: Option<&str>) -> Result<Option<WaitReason>, Fault> {
    name.map(|name| named("execution.waiting", name, WaitReason::from_name)).transpose()
}

/// A reason for being skipped.
pub(super) fn skipped(name: Option<&str>) -> Result<Option<SkipReason>, Fault> {
    name.map(|name| named("execution.skip_reason", name, SkipReason::from_name)).transpose()
}

/// A sign of a start.
pub(super) const fn sign(start_seen: bool) -> LeaseSign {
    if start_seen { LeaseSign::Started } else { LeaseSign::None }
}

/// A cancel request.
pub(super) const fn cancel(requested: bool) -> CancelState {
    if requested { CancelState::Requested } else { CancelState::None }
}

/// An instant that may be missing.
pub(super) fn instant(micros: Option<i64>) -> Option<Timestamp> {
    micros.map(Timestamp::from_micros)
}

/// The columns of an occurrence, as they were read.
pub(super) struct OccurrenceColumns {
    pub(super) kind: String,
    pub(super) fire: Option<i64>,
    pub(super) manual_key: Option<String>,
    pub(super) origin: Option<Uuid>,
    pub(super) replay_number: Option<i64>,
}

impl OccurrenceColumns {
    /// The occurrence.
    pub(super) fn read(self) -> Result<Occurrence, Fault> {
        let Self { kind, fire, manual_key, origin, replay_number } = self;
        match (kind.as_str(), fire, manual_key, origin, replay_number) {
            ("scheduled", Some(fire), _, _, _) => {
                Ok(Occurrence::Scheduled { fire: Timestamp::from_micros(fire) })
            }
            ("manual", _, Some(key), _, _) => Ok(Occurrence::Manual { key: Arc::from(key) }),
            ("replay", _, _, Some(origin), Some(number)) => Ok(Occurrence::Replay {
                origin: ExecutionId::from_uuid(origin),
                number: count("execution.replay_number", number)?,
            }),
            _ => Err(Fault::Unknown { column: "execution.occurrence", value: kind }),
        }
    }
}
