//! What workers do: they acquire executions, and hold them under a token.

use fencepost_core::execution::{DeadLetterReason, ExecutionState};
use fencepost_core::store::command::{Command, RunOutcome};
use fencepost_core::store::reply::{AcquireReply, DeferReply, FinishReply, RenewReply, Reply};
use fencepost_core::store::row::RefusedAction;

use crate::authority::Row;
use crate::case::{Act, Case};
use crate::world::*;

/// Why an acquisition of what runs waits for nobody, and is nobody's second.
const LOOK: &str =
    "what runs is looked at and not written: the answer says how it stood, and grants nothing new";

fn is_never(reply: &Reply) -> bool {
    matches!(reply, Reply::Acquired(replies) if matches!(replies[..], [AcquireReply::Never { .. }]))
}

fn is_not_now(reply: &Reply) -> bool {
    matches!(reply, Reply::Acquired(replies) if matches!(replies[..], [AcquireReply::NotNow { .. }]))
}

fn is_not_pending(reply: &Reply) -> bool {
    matches!(reply, Reply::Deferred(replies) if matches!(replies[..], [DeferReply::NotPending { .. }]))
}

fn is_not_renewed(reply: &Reply) -> bool {
    matches!(reply, Reply::RunsRenewed(replies) if matches!(replies[..], [RenewReply::Refused { .. }]))
}

fn is_not_finished(reply: &Reply) -> bool {
    matches!(reply, Reply::Finished(replies) if matches!(replies[..], [FinishReply::Refused { .. }]))
}

fn is_finished_already(reply: &Reply) -> bool {
    matches!(reply, Reply::Finished(replies) if matches!(replies[..], [FinishReply::Already { .. }]))
}

fn is_called_off(reply: &Reply) -> bool {
    let called_off = FinishReply::Applied { state: ExecutionState::Cancelled };
    matches!(reply, Reply::Finished(replies) if *replies == [called_off])
}

fn case(name: &'static str, row: Row, before: Vec<Act>, guarded: Command, rival: Command) -> Case {
    Case::new(name, row, before, at(30, guarded), at(31, rival))
}

pub(crate) fn acquiring() -> Vec<Case> {
    let row = Row::AcquireExecution;
    let ask = || acquire(WORKER, 7);
    vec![
        case("acquiring against another worker", row, with_pending(), ask(), acquire(OTHER_WORKER, 8))
            .yields(is_never),
        case("acquiring against its own resend", row, with_pending(), ask(), ask())
            .the_same_in_both_orders("the one that is second is given the grant of the first"),
        case(
            "acquiring against another effect of the same worker",
            row,
            with_pending(),
            ask(),
            acquire(WORKER, 8),
        )
        .yields(is_never),
        case("acquiring against a cancel", row, with_pending(), ask(), cancel()).yields(is_never),
        case("acquiring against the end of the job", row, with_pending(), ask(), delete_job())
            .yields(is_never),
        case("acquiring against another dispatch", row, with_dispatched(), ask(), redispatch()),
        Case::new(
            "an acquisition sent again against the takeover of its run",
            row,
            with_running(),
            at(20, ask()),
            at(31, take_over()),
        )
        .yields(is_never)
        .in_either_order(LOOK)
        .passes_by(LOOK),
        case(
            "acquiring what runs against its takeover",
            row,
            with_running(),
            acquire(OTHER_WORKER, 8),
            take_over(),
        )
        .yields(is_not_now)
        .in_either_order(LOOK)
        .passes_by(LOOK),
        case("deferring against the acquisition", row, with_dispatched(), defer(), ask())
            .yields(is_not_pending),
        case("deferring against a cancel", row, with_dispatched(), defer(), cancel()).yields(is_not_pending),
    ]
}

pub(crate) fn holding() -> Vec<Case> {
    let row = Row::HoldExecution;
    let completed = || finish(RunOutcome::Completed);
    let failed_for_good = || {
        let (reason, error) = (DeadLetterReason::NonRetryable, "it broke".into());
        finish(RunOutcome::DeadLettered { reason, error })
    };
    let unfinished = [
        ("completing against the takeover of the run", completed()),
        ("failing against the takeover of the run", finish(retryably())),
        ("failing for good against the takeover of the run", failed_for_good()),
        ("giving back against the takeover of the run", finish(RunOutcome::Released)),
    ];
    let taken_over = unfinished.map(|(name, ask)| {
        case(name, row, with_running(), ask, take_over()).refused(RefusedAction::Finish, is_not_finished)
    });
    let set_back = [
        ("failing against a cancel", finish(retryably())),
        ("giving back against a cancel", finish(RunOutcome::Released)),
    ];
    let called_off =
        set_back.map(|(name, ask)| case(name, row, with_running(), ask, cancel()).yields(is_called_off));
    let others = [
        case("renewing a run against its takeover", row, with_running(), renew_run(), take_over())
            .refused(RefusedAction::RenewExecution, is_not_renewed),
        case("renewing a run against its completion", row, with_running(), renew_run(), completed())
            .refused(RefusedAction::RenewExecution, is_not_renewed),
        case("renewing a run against its failure", row, with_running(), renew_run(), finish(retryably()))
            .refused(RefusedAction::RenewExecution, is_not_renewed),
        case("renewing a run against a cancel", row, with_running(), renew_run(), cancel()),
        case("completing against a cancel", row, with_running(), completed(), cancel()),
        case("completing against its resend", row, with_running(), completed(), completed())
            .yields(is_finished_already),
        case("failing against its resend", row, with_running(), finish(retryably()), finish(retryably()))
            .yields(is_finished_already),
        case("completing against another outcome", row, with_running(), completed(), finish(retryably()))
            .refused(RefusedAction::Finish, is_not_finished),
        case("failing against another outcome", row, with_running(), finish(retryably()), completed())
            .refused(RefusedAction::Finish, is_not_finished),
        case("completing against the end of the job", row, with_running(), completed(), delete_job()),
    ];
    taken_over.into_iter().chain(called_off).chain(others).collect()
}
