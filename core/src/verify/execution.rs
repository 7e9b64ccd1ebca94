//! One execution, with everything on record about it.
//!
//! A file per question: who it is, what state it is in, what its runs left behind, its dead letter, its lag.

use std::sync::Arc;

use super::report::{Finding, Tallies};
use super::{Check, Verifier};
use crate::execution::ExecutionState;
use crate::fencing::FencingToken;
use crate::id::{ExecutionId, JobId, Occurrence, TenantId};
use crate::job::StoredDefinition;
use crate::partition::PartitionId;
use crate::store::row::{
    AttemptRow, DeadLetterRow, ExecutionRow, JobState, OutboxRow, RefusalRow, RefusedAction,
};
use crate::time::Timestamp;

mod dead_letter;
mod history;
mod identity;
mod lag;
mod silence;
mod state;

/// What an execution is judged by beside its own rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOfExecution {
    /// Whose the job is.
    pub tenant: TenantId,
    /// Its partition.
    pub partition: PartitionId,
    /// Whether it is still there.
    pub state: JobState,
    /// From when its version decides; of a deleted one, when it was deleted.
    pub effective_from: Timestamp,
}

/// The dead-lettered execution that another is a replay of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginFacts {
    /// Its token.
    pub token: FencingToken,
    /// Its key.
    pub key: Arc<str>,
}

/// A replay that was made of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayFacts {
    /// Its number.
    pub number: u32,
    /// When it was made.
    pub materialised_at: Timestamp,
}

/// An execution and what is on record about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionFacts {
    /// Its row.
    pub execution: ExecutionRow,
    /// Its job; `None` where there is none.
    pub job: Option<JobOfExecution>,
    /// The definition of its version; `None` where there is no such version.
    pub definition: Option<Arc<StoredDefinition>>,
    /// Its runs that ended otherwise than completed, by token.
    pub attempts: Vec<AttemptRow>,
    /// Its outbox rows.
    pub outbox: Vec<OutboxRow>,
    /// Its dead letter.
    pub dead_letter: Option<DeadLetterRow>,
    /// The replays of it, by number.
    pub replays: Vec<ReplayFacts>,
    /// What it is a replay of; `None` where it is none, or that is not there.
    pub origin: Option<OriginFacts>,
    /// What was refused about it.
    pub refusals: Vec<RefusalRow>,
}

impl ExecutionFacts {
    fn is_replay(&self) -> bool {
        match self.execution.occurrence {
            Occurrence::Replay { .. } => true,
            Occurrence::Scheduled { .. } | Occurrence::Manual { .. } => false,
        }
    }

    /// The end of the run under the execution's own token.
    fn latest_end(&self) -> Option<&AttemptRow> {
        self.attempts.iter().find(|attempt| attempt.token == self.execution.token)
    }
}

/// Where an execution's violations go.
struct Docket<'a> {
    tallies: &'a mut Tallies,
    job: JobId,
    execution: ExecutionId,
}

impl Docket<'_> {
    fn look(&mut self, check: Check) {
        self.tallies.look(check);
    }

    fn broke(&mut self, check: Check, what: String, advice: &'static str) {
        self.tallies.broke(check, Finding::of_execution(self.job, self.execution, what, advice));
    }

    fn broke_by_clock(&mut self, check: Check, what: String, advice: &'static str) {
        self.tallies.broke_by_clock(check, Finding::of_execution(self.job, self.execution, what, advice));
    }

    fn clock_was_set_back(&mut self, from: Timestamp, to: Timestamp) {
        let execution = self.execution;
        self.tallies.clock_was_set_back(|| format!("from {from} to {to} or before, as {execution} shows"));
    }

    fn cannot_compare(&mut self, check: Check, what: String, advice: &'static str) {
        self.tallies.cannot_compare(check, Finding::of_execution(self.job, self.execution, what, advice));
    }
}

impl Verifier {
    /// Takes an execution with what is on record about it.
    pub fn execution(&mut self, facts: &ExecutionFacts) {
        let row = &facts.execution;
        let pauses = self.pauses.get(&row.job).map_or(&[][..], Vec::as_slice);
        let mut docket = Docket { tallies: &mut self.tallies, job: row.job, execution: row.id };
        identity::check(&mut docket, facts);
        state::check(&mut docket, facts);
        history::check(&mut docket, facts);
        dead_letter::check(&mut docket, facts);
        lag::check(&mut docket, facts);
        silence::check(&mut docket, facts, pauses);
        check_refusals(&mut docket, facts);
    }
}

fn check_refusals(docket: &mut Docket<'_>, facts: &ExecutionFacts) {
    for row in &facts.refusals {
        docket.look(Check::LedgerOfRefusals);
        if row.first_at > row.last_at {
            docket.clock_was_set_back(row.first_at, row.last_at);
        }
        let fits = match row.action {
            RefusedAction::RenewExecution | RefusedAction::Finish => true,
            RefusedAction::RenewLease
            | RefusedAction::Materialise
            | RefusedAction::Promote
            | RefusedAction::Repair => false,
        };
        if let Some(broken) = super::record::wrong_refusal(row, facts.execution.token, fits) {
            let what = format!("the refusal to {} it to {}: {broken}", row.action, row.node);
            let advice = "the record is not one that the scheduler writes: find out who changed it";
            docket.broke(Check::LedgerOfRefusals, what, advice);
        }
    }
}

/// Whether anything more may happen to it.
fn is_live(state: ExecutionState) -> bool {
    !state.is_terminal()
}
