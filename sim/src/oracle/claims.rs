//! Claims: what a reply says was done, the rows say too.
//!
//! An operator acts on the answer. Relies on one thing: nothing but the command itself comes between its rows
//! and its reply, so the mirror after the command is what the reply must describe.

use fencepost_core::execution::{CancelState, ExecutionState};
use fencepost_core::id::ExecutionId;
use fencepost_core::store::change::Change;
use fencepost_core::store::command::Command;
use fencepost_core::store::reply::{
    CancelReply, CreateJobReply, DeleteJobReply, FinishReply, Reply, TriggerReply,
};
use fencepost_core::store::row::JobState;

use super::Commit;
use super::invariant::Invariant;
use super::mirror::Mirror;
use crate::violation::Violation;

/// Checks that the rows are as the reply claims. The mirror is as after the command.
pub(super) fn check(commit: &Commit<'_>, mirror: &Mirror, changes: &[Change]) -> Result<(), Violation> {
    let state_of = |id: &ExecutionId| mirror.executions.get(id).map(|row| row.state);
    let is_true = match (commit.command, commit.reply) {
        (Command::CreateJob(ask), Reply::JobCreated(reply)) => match reply {
            CreateJobReply::Created => {
                mirror.jobs.get(&ask.job).is_some_and(|row| row.tenant == ask.tenant) && !changes.is_empty()
            }
            CreateJobReply::Repeated { job } => {
                mirror.jobs.get(job).is_some_and(|row| row.tenant == ask.tenant)
            }
            CreateJobReply::IdTaken => mirror.jobs.contains_key(&ask.job),
            CreateJobReply::RequestReused
            | CreateJobReply::NoTenant
            | CreateJobReply::CalendarChanged
            | CreateJobReply::PlanExpired => changes.is_empty(),
        },
        (Command::DeleteJob(ask), Reply::JobDeleted(reply)) => {
            let state = mirror.jobs.get(&ask.job).map(|row| row.state);
            match reply {
                DeleteJobReply::Deleted { cancelled, requested } => {
                    state == Some(JobState::Deleted) && cancels_in(changes) == (*cancelled, *requested)
                }
                DeleteJobReply::Repeated => state == Some(JobState::Deleted),
                DeleteJobReply::NotFound => changes.is_empty(),
            }
        }
        (Command::TriggerJob(ask), Reply::JobTriggered(reply)) => match reply {
            TriggerReply::Created => state_of(&ask.execution) == Some(ExecutionState::Pending),
            TriggerReply::Repeated { state } => state_of(&ask.execution) == Some(*state),
            TriggerReply::KeyReused => state_of(&ask.execution).is_some(),
            TriggerReply::NotFound => changes.is_empty(),
        },
        (Command::CancelExecution(ask), Reply::ExecutionCancelled(reply)) => match reply {
            CancelReply::Cancelled { .. } => state_of(&ask.execution) == Some(ExecutionState::Cancelled),
            CancelReply::Requested => mirror.executions.get(&ask.execution).is_some_and(|row| {
                row.state == ExecutionState::Running && row.cancel == CancelState::Requested
            }),
            CancelReply::Ended { state } => state_of(&ask.execution) == Some(*state),
            CancelReply::NotFound => changes.is_empty(),
        },
        (Command::FinishExecutions(ask), Reply::Finished(replies)) => {
            ask.items.iter().zip(replies).all(|(item, reply)| match reply {
                FinishReply::Applied { state } => state_of(&item.run.execution) == Some(*state),
                FinishReply::Already { .. } | FinishReply::Refused { .. } | FinishReply::Absent => true,
            })
        }
        _ => true,
    };
    if is_true {
        return Ok(());
    }
    Err(commit.broke(Invariant::Conservation, || {
        format!("{} was answered {:?}, and the rows say otherwise", commit.command.kind(), commit.reply)
    }))
}

/// How many executions a command cancelled, and how many it asked to stop.
fn cancels_in(changes: &[Change]) -> (u32, u32) {
    let (mut cancelled, mut requested) = (0, 0);
    for change in changes {
        let Change::Execution(delta) = change else { continue };
        let (Some(before), Some(after)) = (&delta.before, &delta.after) else { continue };
        if after.state == ExecutionState::Cancelled && before.state != ExecutionState::Cancelled {
            cancelled += 1;
        } else if after.cancel == CancelState::Requested && before.cancel == CancelState::None {
            requested += 1;
        }
    }
    (cancelled, requested)
}
