//! Silence: while a job is paused, and after it was deleted, nothing of it starts by itself.
//!
//! A delete ends what was there; a pause lets it wait. When a pause was committed is not on record, only what it was
//! planned for, so its beginning is judged with the longest time that a plan may be old.

use super::{Docket, ExecutionFacts, JobOfExecution};
use crate::execution::{CancelState, ExecutionState};
use crate::id::Occurrence;
use crate::limits::PLAN_AGE_MAX;
use crate::store::row::JobState;
use crate::time::Timestamp;
use crate::verify::Check;

const ADVICE: &str = "cancel it if it still runs, and find out who started it";

/// Checks an execution of a job that was paused at these times.
pub(super) fn check(docket: &mut Docket<'_>, facts: &ExecutionFacts, pauses: &[(Timestamp, Timestamp)]) {
    for (from, until) in pauses {
        docket.look(Check::PausedIsSilent);
        check_pause(docket, facts, *from, *until);
    }
    if let Some(job) = &facts.job
        && job.state == JobState::Deleted
    {
        docket.look(Check::PausedIsSilent);
        check_delete(docket, facts, job);
    }
}

fn check_pause(docket: &mut Docket<'_>, facts: &ExecutionFacts, from: Timestamp, until: Timestamp) {
    let row = &facts.execution;
    match row.occurrence {
        Occurrence::Scheduled { .. } => {}
        // By hand, and so on purpose.
        Occurrence::Manual { .. } | Occurrence::Replay { .. } => return,
    }
    let certainly = from.plus(PLAN_AGE_MAX);
    if let Some(at) = row.leased_at.filter(|at| *at > certainly && *at < until) {
        let what = format!("its job was paused from {from}, and a run of it was leased at {at}");
        docket.broke_by_clock(Check::PausedIsSilent, what, ADVICE);
    }
}

fn check_delete(docket: &mut Docket<'_>, facts: &ExecutionFacts, job: &JobOfExecution) {
    let (row, from) = (&facts.execution, job.effective_from);
    let told = |what: String| format!("its job was deleted at {from}, and {what}");
    match row.occurrence {
        Occurrence::Scheduled { fire } if fire >= from => {
            docket.broke(Check::PausedIsSilent, told(format!("the fire of {fire} was made")), ADVICE);
        }
        Occurrence::Scheduled { .. } | Occurrence::Manual { .. } | Occurrence::Replay { .. } => {}
    }
    for (at, what) in [(Some(row.materialised_at), "it was made"), (row.leased_at, "a run of it was leased")]
    {
        if let Some(at) = at.filter(|at| *at > from) {
            docket.broke_by_clock(Check::PausedIsSilent, told(format!("{what} at {at}")), ADVICE);
        }
    }
    let mut broke = |what: String| docket.broke(Check::PausedIsSilent, told(what), ADVICE);
    match (row.state, row.cancel) {
        (ExecutionState::Pending | ExecutionState::RetryWait, _) => {
            broke(format!("it is still {}", row.state))
        }
        (ExecutionState::Running, CancelState::None) => {
            broke("it runs, and was not asked to stop".to_owned())
        }
        (
            ExecutionState::Running
            | ExecutionState::Completed
            | ExecutionState::DeadLettered
            | ExecutionState::Failed
            | ExecutionState::Cancelled
            | ExecutionState::Skipped,
            _,
        ) => {}
    }
}
