//! Explanations: what became of an execution or a job, what it waits for, and what comes next.
//!
//! A pure function from durable facts (rows, the store's clock, the spans that are configured) to statements. It
//! decides nothing and reads no clock. Every rule that a statement is about is asked of the function that the
//! scheduler, the worker or the store acts by (`retry`, `lease`, `schedule`), never written down again.
//!
//! What the rows do not tell is said to be unknown. A span of another process's settings is taken from this one's,
//! and the statement that relies on it says so.
//!
//! - [`facts`]: what is looked at. - [`statement`]: what is told, and the table of all codes.
//! - `execution`, `job`: the two explanations. - `lag`: the stages of an execution. - `owner`: who may act. - [`rule`]: why.
//!
//! To add what an explanation should know of: give [`facts`] the rows, and a list of statements the case.

pub mod facts;
pub mod rule;
pub mod statement;

mod execution;
mod job;
mod lag;
mod owner;

use serde::{Serialize, Serializer};

use crate::time::Timestamp;
pub use execution::explain_execution;
pub use facts::{ExecutionFacts, JobFacts, LimitFacts, RecentExecution, Spans, StandingSaid};
pub use job::explain_job;
pub use lag::{Lag, OpenStage, Stage};
pub use statement::{CodeEntry, Statement};

/// What is to be said of an execution or a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The store's clock when the facts were read.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
    /// One sentence.
    pub headline: String,
    /// What happened, oldest first.
    pub past: Vec<Statement>,
    /// What is so, the most telling first.
    pub now: Vec<Statement>,
    /// What comes, if nothing else happens.
    pub future: Vec<Statement>,
    /// Where the time went, of an execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<Lag>,
    /// What a replay would do, of an execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Statement>,
}

/// Every code that a statement may have, by list.
pub fn codes() -> impl Iterator<Item = &'static CodeEntry> {
    execution::CODES.iter().chain(job::CODES).chain([&owner::CODES]).flat_map(|codes| codes.iter())
}

fn as_text<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_that_explains_stands_once_and_is_words_with_underscores() {
        let mut seen = BTreeSet::new();
        for entry in codes() {
            assert!(seen.insert(entry.code), "{} stands twice", entry.code);
            assert!(entry.code.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{}", entry.code);
            assert!(!entry.meaning().is_empty(), "{} means nothing", entry.code);
        }
    }
}
