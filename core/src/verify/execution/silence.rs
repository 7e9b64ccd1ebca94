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
        let mut broke = |what: String| {
            docket.broke(Check::PausedIsSilent, format!("{because} at {from}, and {what}"), ADVICE);
        };
        match row.occurrence {
            Occurrence::Scheduled { fire } if fire >= from => broke(format!("the fire of {fire} was made")),
            Occurrence::Scheduled { .. } | Occurrence::Manual { .. } | Occurrence::Replay { .. } => {
                if row.materialised_at > from {
                    broke(format!("it was made at {}", row.materialised_at));
                }
            }
        }
        if let Some(at) = row.leased_at.filter(|at| *at > from) {
            broke(format!("a run of it was leased at {at}"));
        }
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
