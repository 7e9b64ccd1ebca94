//! Failures in a row: when a job pauses itself, and what it says then.
//!
//! A job may say after how many failures in a row it is to be paused. A failure is an execution that was dead-lettered, for
//! whatever reason, or ended as failed; one that completed ends the row; those that were cancelled or skipped count neither
//! way. The row is that of the executions' due times, not of the instants at which they ended: what ran beside each other
//! stands in it in the order in which it was to run. It begins anew with each resume: only what ended since counts.
//!
//! What must stay true: the question is asked of the rows, and of no counter; and whoever asks it holds the job's row.

use core::fmt::Write;
use std::sync::Arc;

use crate::execution::ExecutionState;
use crate::id::ExecutionId;
use crate::job_plan::ChangedBy;
use crate::limits::{QUOTED_ERROR_CHARS_MAX, TOLD_FAILURES_MAX};
use crate::time::Timestamp;

/// Whoever pauses a job that failed too often.
pub const PAUSED_BY: &str = "fencepost";

/// A failure of the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedOne {
    /// When it was due: its place in the row.
    pub due_at: Timestamp,
    /// Which one.
    pub id: ExecutionId,
    /// Its error, where it has one.
    pub error: Option<Arc<str>>,
}

/// Whether an execution that ended so is a failure.
#[must_use]
pub const fn is_failure(state: ExecutionState) -> bool {
    match state {
        ExecutionState::DeadLettered | ExecutionState::Failed => true,
        ExecutionState::Pending
        | ExecutionState::Running
        | ExecutionState::RetryWait
        | ExecutionState::Completed
        | ExecutionState::Cancelled
        | ExecutionState::Skipped => false,
    }
}

/// Who pauses the job of these failures in a row, latest first, and why.
///
/// # Panics
/// If there is none: nobody pauses a job for nothing.
#[must_use]
pub fn paused_for(row: &[FailedOne]) -> ChangedBy {
    let latest = row.first().expect("a row of failures has one at least");
    let earliest = row.last().unwrap_or(latest);
    let mut reason = match row {
        [_] => "an execution failed: ".to_owned(),
        _ => format!("{} executions in a row failed: ", row.len()),
    };
    let told: Vec<String> = if row.len() <= TOLD_FAILURES_MAX {
        row.iter().rev().map(|one| one.id.to_string()).collect()
    } else {
        vec![format!(
            "from {} (due {}) to {} (due {})",
            earliest.id, earliest.due_at, latest.id, latest.due_at
        )]
    };
    reason.push_str(&told.join(", "));
    match &latest.error {
        Some(error) => {
            let quoted: String = error.chars().filter(|c| *c != '\0').take(QUOTED_ERROR_CHARS_MAX).collect();
            let cut = if quoted.len() < error.len() { "…" } else { "" };
            let _ = write!(reason, "; the last error: {quoted}{cut}");
        }
        None => reason.push_str("; the last one without an error"),
    }
    ChangedBy::new(PAUSED_BY, &reason).expect("a reason of some length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{ERROR_BYTES_MAX, PAUSE_AFTER_FAILURES_MAX};

    fn failed(nth: u128, error: &str) -> FailedOne {
        let due_at = Timestamp::from_micros(1_767_225_600_000_000);
        FailedOne { due_at, id: ExecutionId::from_u128(nth), error: Some(error.into()) }
    }

    #[test]
    fn a_few_failures_are_named_one_by_one_oldest_first_with_the_last_error() {
        let said = format!("{:?}", paused_for(&[failed(2, "boom"), failed(1, "bang")]));
        assert!(said.contains("fencepost") && said.contains("boom") && !said.contains("bang"), "{said}");
        let at = |nth| said.find(&ExecutionId::from_u128(nth).to_string());
        assert!(at(1) < at(2) && at(1).is_some(), "{said}");
    }

    #[test]
    fn the_longest_row_and_the_longest_error_still_make_a_reason() {
        let error = "x".repeat(ERROR_BYTES_MAX);
        let row: Vec<FailedOne> =
            (0..PAUSE_AFTER_FAILURES_MAX).map(|nth| failed(u128::from(nth), &error)).collect();
        let said = format!("{:?}", paused_for(&row));
        assert!(said.contains("1000 executions in a row"), "{said}");
        assert!(format!("{:?}", paused_for(&row[..TOLD_FAILURES_MAX])).contains("…"));
    }
}
