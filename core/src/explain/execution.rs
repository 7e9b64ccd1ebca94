//! The explanation of an execution: its history, where it stands, what follows, and whether it may be replayed.

mod future;
mod now;
mod past;
mod replay;

use crate::explain::facts::ExecutionFacts;
use crate::explain::statement::{CodeEntry, Statement};
use crate::explain::{Explanation, lag};
use crate::job::JobDefinition;

/// The codes of each list.
pub(super) const CODES: &[&[CodeEntry]] =
    &[past::Past::CODES, now::Now::CODES, future::Future::CODES, replay::Replay::CODES];

/// What is to be said of an execution.
#[must_use]
pub fn explain_execution(facts: &ExecutionFacts) -> Explanation {
    let past = past::of(facts);
    let now = now::of(facts);
    let headline = if facts.execution.state.is_terminal() { last(&past) } else { now.first() };
    Explanation {
        at: facts.now,
        headline: headline.map(|statement| statement.sentence.clone()).unwrap_or_default(),
        lag: Some(lag::stages(&facts.execution, facts.now)),
        replay: Some(replay::of(facts)),
        future: future::of(facts),
        past,
        now,
    }
}

/// The latest that happened to the execution itself. What was refused of others comes after its end.
fn last(past: &[Statement]) -> Option<&Statement> {
    past.iter().rev().find(|statement| !past::is_aside(statement))
}

/// The definition of the version that it was made under, where this version reads it.
fn definition(facts: &ExecutionFacts) -> Option<&JobDefinition> {
    facts.definition.read().ok().map(AsRef::as_ref)
}
