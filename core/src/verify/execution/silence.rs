//! Silence: after a job was deleted, nothing of it fires, starts or waits any more.
//!
//! Pauses are silences too: a version that can pause adds what it knows of them in [`silences`], and nothing else here
//! changes.

use super::{Docket, ExecutionFacts, JobOfExecution};
use crate::execution::{CancelState, ExecutionState};
use crate::id::Occurrence;
use crate::store::row::JobState;
use crate::time::Timestamp;
use crate::verify::Check;

const ADVICE: &str = "cancel it if it still runs, and find out who started it";

/// A stretch of time in which no fire of a job may be made, and no run of one begin.
struct Silence {
    /// The first instant of it.
    from: Timestamp,
    /// Why.
    because: &'static str,
    /// What becomes of executions that are there when it begins.
    of_live: Live,
}

/// What becomes of executions that are live when a silence begins.
enum Live {
    /// They are cancelled, or asked to stop.
    Cancelled,
}

/// The silences of a job.
fn silences(job: &JobOfExecution) -> Vec<Silence> {
    match job.state {
        JobState::Active => Vec::new(),
        JobState::Deleted => vec![Silence {
            from: job.effective_from,
            because: "its job was deleted",
            of_live: Live::Cancelled,
        }],
    }
}

pub(super) fn check(docket: &mut Docket<'_>, facts: &ExecutionFacts) {
    let Some(job) = &facts.job else { return };
    let row = &facts.execution;
    for silence in silences(job) {
        docket.look(Check::PausedIsSilent);
        let Silence { from, because, of_live } = silence;
        let told = |what: String| format!("{because} at {from}, and {what}");
        match row.occurrence {
            Occurrence::Scheduled { fire } if fire >= from => {
                docket.broke(Check::PausedIsSilent, told(format!("the fire of {fire} was made")), ADVICE);
            }
            Occurrence::Scheduled { .. } | Occurrence::Manual { .. } | Occurrence::Replay { .. } => {}
        }
        for (at, what) in
            [(Some(row.materialised_at), "it was made"), (row.leased_at, "a run of it was leased")]
        {
            if let Some(at) = at.filter(|at| *at > from) {
                docket.broke_by_clock(Check::PausedIsSilent, told(format!("{what} at {at}")), ADVICE);
            }
        }
        let mut broke = |what: String| docket.broke(Check::PausedIsSilent, told(what), ADVICE);
        match (of_live, row.state, row.cancel) {
            (Live::Cancelled, ExecutionState::Pending | ExecutionState::RetryWait, _) => {
                broke(format!("it is still {}", row.state));
            }
            (Live::Cancelled, ExecutionState::Running, CancelState::None) => {
                broke("it runs, and was not asked to stop".to_owned());
            }
            (
                Live::Cancelled,
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
}
