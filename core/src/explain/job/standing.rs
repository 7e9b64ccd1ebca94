//! Where a job stands: the watermark, who owns its partition, what of it is live.

use std::sync::Arc;

use super::{backlog, is_active};
use crate::execution::ExecutionState;
use crate::explain::facts::JobFacts;
use crate::explain::facts::StandingSaid;
use crate::explain::owner;
use crate::explain::statement::{Statement, many, statements};
use crate::id::JobVersion;
use crate::job::Standing;
use crate::limits::EXPLAINED_LIVE_MAX;
use crate::time::Timestamp;

statements!("job/now",
/// Where a job stands.
Now {
    /// The watermark: every nominal fire up to it is in the ledger.
    Watermark = "recorded_through" {
        recorded_through: Timestamp, next_fire_time: Option<Timestamp>, runs: u64, job_version: JobVersion,
    } => format!(
        "Every fire up to {recorded_through} is in the ledger, {runs} became executions; the first after it is {}.",
        next_fire_time.map_or_else(|| "none".to_owned(), |fire| fire.to_string()),
    );
    /// It is paused: it fires only once somebody resumes it. What is triggered by hand runs.
    Paused = "job_paused" {
        since: Timestamp, actor: Option<Arc<str>>, reason: Option<Arc<str>>,
    } => format!(
        "Paused since {since}{}: it does not fire by itself.",
        StandingSaid::by(actor.as_deref(), reason.as_deref()),
    );
    /// What of it is live; each number is counted up to a bound.
    Live = "live_executions" {
        pending: u32, running: u32, retry_wait: u32, counted_up_to: u32,
    } => format!("Live are {}: {pending} pending, {running} running, {retry_wait} waiting for a retry.", many(pending + running + retry_wait, "execution"));
});

/// All of it.
pub(super) fn of(facts: &JobFacts) -> Vec<Statement> {
    let job = &facts.job;
    let mut told: Vec<Statement> = vec![
        Now::Watermark {
            recorded_through: job.recorded_through,
            next_fire_time: job.next_fire_time,
            runs: job.runs,
            job_version: job.version,
        }
        .into(),
    ];
    match job.standing {
        Standing::Paused if is_active(facts) => {
            let said = &facts.standing;
            let (actor, reason) = (said.actor.clone(), said.reason.clone());
            told.insert(0, Now::Paused { since: said.at, actor, reason }.into());
        }
        Standing::Paused | Standing::Active => {}
    }
    let is_due = job.next_fire_time.is_some_and(|fire| fire <= facts.now);
    // A backlog has told it already.
    if is_active(facts) && !is_due {
        told.extend(backlog::unreadable(facts));
    }
    let lease = &facts.partition_lease;
    if owner::holder(lease, facts.now).is_some() || !is_due {
        told.push(owner::of_partition(job.partition, lease, facts.owner.as_ref(), facts.now));
    }
    let of_state = |wanted: ExecutionState| {
        facts.live.iter().find(|(state, _)| *state == wanted).map_or(0, |(_, count)| *count)
    };
    let live = Now::Live {
        pending: of_state(ExecutionState::Pending),
        running: of_state(ExecutionState::Running),
        retry_wait: of_state(ExecutionState::RetryWait),
        counted_up_to: u32::try_from(EXPLAINED_LIVE_MAX).unwrap_or(u32::MAX),
    };
    told.push(live.into());
    told
}
