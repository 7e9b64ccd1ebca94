//! The explanation of a job: its latest fires, what of its backlog is late and why, and when it fires next or why never.

mod backlog;
mod fires;
mod ledger;
mod standing;

use crate::explain::Explanation;
use crate::explain::facts::JobFacts;
use crate::explain::statement::{CodeEntry, Statement};
use crate::store::row::JobState;

/// The codes of each list.
pub(super) const CODES: &[&[CodeEntry]] =
    &[ledger::Past::CODES, backlog::Backlog::CODES, standing::Now::CODES, fires::Future::CODES];

/// What is to be said of a job.
#[must_use]
pub fn explain_job(facts: &JobFacts) -> Explanation {
    let backlog = backlog::of(facts);
    let mut now: Vec<Statement> = backlog.iter().flat_map(backlog::Found::statements).collect();
    now.extend(standing::of(facts));
    let future = fires::of(facts, backlog.as_ref());
    let late = now.first().filter(|_| backlog.as_ref().is_some_and(|found| found.is_trouble));
    Explanation {
        at: facts.now,
        headline: late
            .or(future.first())
            .or(now.first())
            .map(|told| told.sentence.clone())
            .unwrap_or_default(),
        past: ledger::of(facts),
        now,
        future,
        lag: None,
        replay: None,
    }
}

/// Whether the job is there.
fn is_active(facts: &JobFacts) -> bool {
    match facts.job.state {
        JobState::Active => true,
        JobState::Deleted => false,
    }
}
