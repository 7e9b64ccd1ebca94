//! What operators do: under a row's state, a request id, or the identity of what they make.

use fencepost_core::execution::ExecutionState;
use fencepost_core::id::{JobId, TenantId};
use fencepost_core::store::command::{Command, RunOutcome};
use fencepost_core::store::reply::{
    CancelReply, CreateJobReply, CreateTenantReply, DeleteJobReply, Reply, TriggerReply,
};

use crate::authority::Row;
use crate::case::{Act, Case};
use crate::world::*;

fn is_ended(reply: &Reply) -> bool {
    matches!(reply, Reply::ExecutionCancelled(CancelReply::Ended { .. }))
}

fn is_requested(reply: &Reply) -> bool {
    *reply == Reply::ExecutionCancelled(CancelReply::Requested)
}

fn is_cancelled_at_rest(reply: &Reply) -> bool {
    *reply == Reply::ExecutionCancelled(CancelReply::Cancelled { was: ExecutionState::RetryWait })
}

fn is_deleted_already(reply: &Reply) -> bool {
    *reply == Reply::JobDeleted(DeleteJobReply::Repeated)
}

fn is_triggered_already(reply: &Reply) -> bool {
    matches!(reply, Reply::JobTriggered(TriggerReply::Repeated { .. }))
}

fn is_job_gone(reply: &Reply) -> bool {
    *reply == Reply::JobTriggered(TriggerReply::NotFound)
}

fn is_request_repeated(reply: &Reply) -> bool {
    matches!(reply, Reply::JobCreated(CreateJobReply::Repeated { .. }))
}

fn is_id_taken(reply: &Reply) -> bool {
    *reply == Reply::JobCreated(CreateJobReply::IdTaken)
}

fn is_name_taken(reply: &Reply) -> bool {
    *reply == Reply::TenantCreated(CreateTenantReply::NameTaken)
}

fn is_tenant_there(reply: &Reply) -> bool {
    *reply == Reply::TenantCreated(CreateTenantReply::Repeated)
}

fn case(name: &'static str, before: Vec<Act>, guarded: Command, rival: Command) -> Case {
    Case::new(name, Row::Operator, before, at(30, guarded), at(31, rival))
}

pub(crate) fn cases() -> Vec<Case> {
    let completed = || finish(RunOutcome::Completed);
    let other_job = JobId::from_u128(0x10b);
    let (one, two) = (TenantId::from_u128(0x72), TenantId::from_u128(0x73));
    vec![
        case("cancelling against the completion", with_running(), cancel(), completed()).yields(is_ended),
        case("cancelling against a failure", with_running(), cancel(), finish(retryably()))
            .yields(is_cancelled_at_rest),
        case(
            "cancelling against a stop that was asked for",
            with_running_to_stop(),
            cancel(),
            finish(RunOutcome::Cancelled),
        )
        .yields(is_ended),
        case("cancelling against a takeover of the run", with_running(), cancel(), take_over())
            .yields(is_cancelled_at_rest),
        case("cancelling against the acquisition", with_pending(), cancel(), acquire(WORKER, 7))
            .yields(is_requested),
        case("cancelling against a cancel", with_pending(), cancel(), cancel()).yields(is_ended),
        case("cancelling against the end of the job", with_pending(), cancel(), delete_job())
            .yields(is_ended),
        case("deleting a job against its deletion", with_running(), delete_job(), delete_job())
            .yields(is_deleted_already),
        case("deleting a job against a fire of it", with_job(), delete_job(), materialise(10)),
        case("deleting a job against a trigger", with_job(), delete_job(), trigger("k")),
        case("deleting a job against an acquisition", with_pending(), delete_job(), acquire(WORKER, 7)),
        case("deleting a job against a completion", with_running(), delete_job(), completed()),
        case("deleting a job against a failure", with_running(), delete_job(), finish(retryably())),
        case("deleting a job against a promotion", with_retry(), delete_job(), promote()),
        case("triggering a job against the same trigger", with_job(), trigger("k"), trigger("k"))
            .yields(is_triggered_already),
        case("triggering a job against its deletion", with_job(), trigger("k"), delete_job())
            .yields(is_job_gone),
        case(
            "creating a job against the same request for another",
            with_tenant(),
            create_job(job(), Some("r"), 30),
            create_job(other_job, Some("r"), 30),
        )
        .yields(is_request_repeated),
        case(
            "creating a job against the same id",
            with_tenant(),
            create_job(job(), Some("r"), 30),
            create_job(job(), Some("s"), 30),
        )
        .yields(is_id_taken),
        case(
            "creating a tenant against the same name",
            Vec::new(),
            create_tenant(one, "same"),
            create_tenant(two, "same"),
        )
        .yields(is_name_taken),
        case(
            "creating a tenant against its creation",
            Vec::new(),
            create_tenant(one, "same"),
            create_tenant(one, "same"),
        )
        .yields(is_tenant_there),
    ]
}
