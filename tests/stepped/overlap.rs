//! Who asks for a job's slot, against another that asks for it and against the end of what holds it.

use fencepost_core::execution::ExecutionState;
use fencepost_core::store::command::RunOutcome;
use fencepost_core::store::reply::{AcquireReply, Reply};

use crate::authority::Row;
use crate::case::{Act, Case};
use crate::world::*;

fn is_passed_over(reply: &Reply) -> bool {
    let passed_over = AcquireReply::Never { state: ExecutionState::Skipped };
    matches!(reply, Reply::Acquired(replies) if *replies == [passed_over])
}

fn is_granted(reply: &Reply) -> bool {
    matches!(reply, Reply::Acquired(replies) if matches!(replies[..], [AcquireReply::Granted(_)]))
}

/// Two executions of a job with this overlap.
fn with_two(overlap: &str) -> Vec<Act> {
    let mut before = with_tenant();
    before.push(at(0, create_limited_job(overlap)));
    before.extend([at(10, trigger("first")), at(11, trigger("second"))]);
    before
}

/// The first of them runs.
fn with_holder(overlap: &str) -> Vec<Act> {
    let mut before = with_two(overlap);
    before.push(at(12, acquire_manual("first", WORKER)));
    before
}

pub(crate) fn cases() -> Vec<Case> {
    let row = Row::AcquireExecution;
    let ends = || finish_manual("first", RunOutcome::Completed);
    let asks = || acquire_manual("second", OTHER_WORKER);
    vec![
        Case::new(
            "acquiring under skip against another of the job",
            row,
            with_two("skip"),
            at(30, acquire_manual("first", WORKER)),
            at(31, asks()),
        )
        .yields(is_passed_over),
        Case::new(
            "acquiring what is to wait against the end of what holds the slot",
            row,
            with_holder("buffer_one"),
            at(30, asks()),
            at(31, ends()),
        )
        .yields(is_granted),
        Case::new(
            "acquiring what replaces what runs against the end of that",
            row,
            with_holder("cancel_running"),
            at(30, asks()),
            at(31, ends()),
        )
        .yields(is_granted),
        Case::new(
            "completing what holds the slot against who is to wait for it",
            Row::HoldExecution,
            with_holder("buffer_one"),
            at(30, ends()),
            at(31, asks()),
        ),
    ]
}
