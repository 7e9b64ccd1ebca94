//! What operators change of a job: under the version and the watermark that a change was planned on; and what that does
//! to whoever acts by the job as it was.

use fencepost_core::execution::ExecutionState;
use fencepost_core::store::command::Command;
use fencepost_core::store::reply::{AcquireReply, ChangeJobReply, MaterialiseReply, Reply};
use fencepost_core::store::row::RefusedAction;

use crate::authority::Row;
use crate::case::{Act, Case};
use crate::world::*;

/// Why an acquisition and a pause wait for nobody.
const UNLOCKED: &str = "whether a job is paused is read without a lock, once the execution's row is held";

fn is_version_changed(reply: &Reply) -> bool {
    matches!(reply, Reply::JobChanged(ChangeJobReply::VersionChanged { .. }))
}

fn is_planned_too_early(reply: &Reply) -> bool {
    *reply == Reply::JobChanged(ChangeJobReply::PlanExpired)
}

fn is_repeated(reply: &Reply) -> bool {
    matches!(reply, Reply::JobChanged(ChangeJobReply::Repeated { .. }))
}

fn is_already(reply: &Reply) -> bool {
    matches!(reply, Reply::JobChanged(ChangeJobReply::Already { .. }))
}

fn is_gone(reply: &Reply) -> bool {
    *reply == Reply::JobChanged(ChangeJobReply::NotFound)
}

fn is_of_another_version(reply: &Reply) -> bool {
    matches!(reply, Reply::Materialised(replies) if matches!(replies[..], [MaterialiseReply::VersionChanged { .. }]))
}

fn is_held_back(reply: &Reply) -> bool {
    let held_back = AcquireReply::NotNow { state: ExecutionState::Pending };
    matches!(reply, Reply::Acquired(replies) if *replies == [held_back])
}

fn is_granted(reply: &Reply) -> bool {
    matches!(reply, Reply::Acquired(replies) if matches!(replies[..], [AcquireReply::Granted(_)]))
}

fn case(name: &'static str, before: Vec<Act>, guarded: Command, rival: Command) -> Case {
    Case::new(name, Row::Operator, before, at(30, guarded), at(31, rival))
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("editing a job against an edit", with_job(), edit(None), edit(None)).yields(is_version_changed),
        case("editing a job against the same request", with_job(), edit(Some("r")), edit(Some("r")))
            .yields(is_repeated),
        case("editing a job against its fire", with_job(), edit(None), materialise(10))
            .yields(is_planned_too_early),
        case("editing a job against its pause", with_job(), edit(None), pause()).yields(is_version_changed),
        case("editing a job against its end", with_job(), edit(None), delete_job()).yields(is_gone),
        case("pausing a job against its pause", with_job(), pause(), pause()).yields(is_already),
        case("pausing a job against its fire", with_job(), pause(), materialise(10))
            .yields(is_planned_too_early),
        case("resuming a job against an edit", with_paused(), resume(), edit_paused())
            .yields(is_version_changed),
    ]
}

/// Materialising and acquiring by a job that is changed meanwhile.
pub(crate) fn met() -> Vec<Case> {
    vec![
        Case::new(
            "materialising against an edit of the job",
            Row::Materialise,
            with_job(),
            at(30, materialise(10)),
            at(31, edit(None)),
        )
        .refused(RefusedAction::Materialise, is_of_another_version),
        Case::new(
            "acquiring against a pause of the job",
            Row::AcquireExecution,
            with_pending(),
            at(30, acquire(WORKER, 7)),
            at(31, pause_after_fire()),
        )
        .yields(is_held_back)
        .in_either_order(UNLOCKED)
        .passes_by(UNLOCKED),
        Case::new(
            "acquiring what is held back against the resume",
            Row::AcquireExecution,
            with_held_back(),
            at(30, acquire(WORKER, 7)),
            at(31, resume_after_fire()),
        )
        .yields(is_granted),
    ]
}
