//! An execution that waits past its deadline: the sweep that ends it meets its message, another sweep, and operators.

use fencepost_core::execution::ExecutionState;
use fencepost_core::store::command::{Command, RepairItem};
use fencepost_core::store::reply::{RepairItemReply, RepairReply, Reply};

use crate::authority::Row;
use crate::case::{Act, Case};
use crate::world::*;

/// How long executions of the job may take, in seconds.
const DEADLINE: u64 = 10;

/// An execution of a job with a deadline; it was triggered at 10, and is past that from 20 on.
fn with_pending_bounded(rest: &str) -> Vec<Act> {
    let mut before = with_tenant();
    before.push(at(0, create_bounded_job(DEADLINE, rest)));
    before.extend([at(1, acquire_leadership(OWNER))]);
    before.push(at(10, trigger("first")));
    before
}

/// It was leased under the first token, and its attempt has failed.
fn with_bounded_retry(rest: &str) -> Vec<Act> {
    let mut before = with_pending_bounded(rest);
    before.extend([at(12, acquire_manual("first", WORKER)), at(13, finish_manual("first", retryably()))]);
    before
}

fn is_moved(reply: &Reply) -> bool {
    matches!(reply, Reply::Repaired(RepairReply::Applied(replies)) if *replies == [RepairItemReply::Moved])
}

fn end(state: ExecutionState) -> Command {
    let leased = state == ExecutionState::RetryWait;
    repair(RepairItem::EndOverdue { run: manual_run("first", leased), state })
}

/// The guarded command at 30, past the deadline; the rival at its own time.
fn case(name: &'static str, before: Vec<Act>, guarded: Command, rival: Act) -> Case {
    Case::new(name, Row::Repair, before, at(30, guarded), rival)
}

pub(crate) fn cases() -> Vec<Case> {
    let pending = || end(ExecutionState::Pending);
    vec![
        case(
            "ending what is overdue against its message",
            with_pending_bounded(""),
            pending(),
            at(31, acquire_manual("first", WORKER)),
        )
        .yields(is_moved),
        case(
            "ending what is overdue against its message, by a clock that had not come to it",
            with_pending_bounded(""),
            pending(),
            at(19, acquire_manual("first", WORKER)),
        )
        .yields(is_moved),
        case(
            "ending what is overdue against its end by another sweep",
            with_pending_bounded(r#","pause_after_failures":1"#),
            pending(),
            at(31, pending()),
        )
        .yields(is_moved),
        case(
            "ending a retry that is overdue against the end of its job",
            with_bounded_retry(""),
            end(ExecutionState::RetryWait),
            at(31, delete_job()),
        )
        .yields(is_moved),
        case(
            "ending what is overdue against an operator who pauses its job",
            with_pending_bounded(r#","pause_after_failures":1"#),
            pending(),
            at(31, pause()),
        ),
    ]
}
