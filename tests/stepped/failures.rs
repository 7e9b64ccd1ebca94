//! Two executions of a job that is paused after so many failures: what ends them meets.

use fencepost_core::execution::DeadLetterReason;
use fencepost_core::store::command::RunOutcome;

use crate::authority::Row;
use crate::case::{Act, Case};
use crate::world::*;

/// Two executions of a job that is paused after this many failures in a row; both run.
fn with_two(most: u32) -> Vec<Act> {
    let mut before = with_tenant();
    before.push(at(0, create_fragile_job(most)));
    before.extend([at(10, trigger("first")), at(11, trigger("second"))]);
    before.extend([at(12, acquire_manual("first", WORKER)), at(13, acquire_manual("second", WORKER))]);
    before
}

fn fails() -> RunOutcome {
    RunOutcome::DeadLettered { error: "boom".into(), reason: DeadLetterReason::NonRetryable }
}

pub(crate) fn cases() -> Vec<Case> {
    let row = Row::HoldExecution;
    vec![
        Case::new(
            "the first of two failures against the second",
            row,
            with_two(2),
            at(30, finish_manual("first", fails())),
            at(31, finish_manual("second", fails())),
        ),
        Case::new(
            "a failure against the completion of what was due after it",
            row,
            with_two(1),
            at(30, finish_manual("first", fails())),
            at(31, finish_manual("second", RunOutcome::Completed)),
        ),
        Case::new(
            "a failure that pauses its job against an operator who does",
            row,
            with_two(1),
            at(30, finish_manual("first", fails())),
            at(31, pause()),
        ),
    ]
}
