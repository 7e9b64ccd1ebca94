//! Finishes: outcomes made durable, in batches, and only then acknowledged.
//!
//! One finish is under way at a time; what is decided meanwhile makes the next, a few alone wait for company for a
//! moment, and a decision on an idle worker is sent at once. An unknown outcome is sent again, unchanged, until it is known: the store answers
//! a repeat by (token, outcome). A refusal is final: the run was taken over, and whoever holds the token now
//! decides. In every case the run is over here, its slot is free and its message is acknowledged.

use std::collections::VecDeque;

use crate::bug::Bug;
use crate::execution::{DeadLetterReason, ExecutionState};
use crate::fact::Fact;
use crate::lease::RunId;
use crate::store::StoreOutcome;
use crate::store::command::{Command, FinishExecution, FinishExecutions, RunOutcome};
use crate::store::reply::{FinishReply, Reply, StoreReply};
use crate::store::row::RefusedAction;
use crate::time::{Monotonic, Span};
use crate::worker::Worker;
use crate::worker::calls::{Cadence, Line};
use crate::worker::run::Run;

/// Decided runs that are not known to be durable.
#[derive(Debug)]
pub(super) struct Finishes {
    pub(super) line: Line<Vec<Decided>>,
    cadence: Cadence,
    queue: VecDeque<Decided>,
}

/// How a run ended, to be made durable.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) run: RunId,
    pub(super) outcome: RunOutcome,
    /// When it ended.
    pub(super) at: Monotonic,
}

impl Finishes {
    pub(super) const fn new() -> Self {
        Self { line: Line::new(), cadence: Cadence::new(), queue: VecDeque::new() }
    }

    /// Takes in a run that was decided.
    pub(super) fn push(&mut self, decided: Decided) {
        self.queue.push_back(decided);
    }
}

impl Worker {
    /// When the decided runs are to be sent, unless that waits for an outcome.
    pub(super) fn finishes_at(&self) -> Option<Monotonic> {
        let Finishes { line, cadence, queue } = &self.finishes;
        let free_at = line.free_at().filter(|_| !queue.is_empty())?;
        Some(free_at.max(self.worth_sending_at(*cadence, queue.len())))
    }

    /// Sends the decided runs.
    pub(super) fn send_finishes(&mut self, now: Monotonic) {
        if self.finishes_at().is_none_or(|at| at > now) {
            return;
        }
        let count = self.batch().min(self.finishes.queue.len());
        let batch: Vec<Decided> = self.finishes.queue.drain(..count).collect();
        let items = batch.iter().map(|decided| {
            let started_at = self.runs.get(decided.run).and_then(|run| run.started_at);
            let (run, outcome) = (decided.run, decided.outcome.clone());
            FinishExecution { run, outcome, started_ago: started_at.map(|at| now.since(at)) }
        });
        let items = items.collect();
        let id = self.call(Command::FinishExecutions(FinishExecutions { node: self.config.node, items }));
        self.finishes.line.begin(id, now, batch);
        self.finishes.cadence.sent(now);
    }

    /// The store answered a `FinishExecutions`.
    pub(super) fn finished(&mut self, now: Monotonic, batch: Vec<Decided>, outcome: StoreOutcome) {
        let replies = match outcome {
            StoreOutcome::Replied(StoreReply { reply: Reply::Finished(replies), .. })
                if replies.len() == batch.len() =>
            {
                replies
            }
            StoreOutcome::Replied(_) | StoreOutcome::Unknown => {
                self.finish_unknown(now, batch);
                return;
            }
        };
        for (decided, reply) in batch.into_iter().zip(replies) {
            let Some(run) = self.forget(decided.run) else { continue };
            match reply {
                FinishReply::Applied { state } | FinishReply::Already { state } => {
                    self.report(ended(&run, &decided, state));
                }
                FinishReply::Refused { current, .. } => {
                    self.refused(decided.run, RefusedAction::Finish, current);
                }
                FinishReply::Absent => {
                    self.report(Fact::MessageDropped { execution: decided.run.execution });
                }
            }
        }
    }

    fn finish_unknown(&mut self, now: Monotonic, batch: Vec<Decided>) {
        let patience = self.unknown(now);
        self.finishes.line.pause(patience);
        for decided in batch.into_iter().rev() {
            if self.config.bugs.has(Bug::FinishSentOnce) {
                if let Some(run) = self.runs.get_mut(decided.run) {
                    run.basis = now;
                    self.leases.hold(now, decided.run);
                }
            } else {
                self.finishes.queue.push_front(decided);
            }
        }
    }
}

fn ended(run: &Run, decided: &Decided, state: ExecutionState) -> Fact {
    let ran = run.started_at.map_or(Span::ZERO, |started| decided.at.since(started));
    let reason = given_up_for(&decided.outcome);
    let dead_letter = reason.filter(|_| state == ExecutionState::DeadLettered);
    Fact::RunEnded { run: decided.run, state, ran, dead_letter }
}

fn given_up_for(outcome: &RunOutcome) -> Option<DeadLetterReason> {
    match outcome {
        RunOutcome::DeadLettered { reason, .. } => Some(*reason),
        RunOutcome::Completed
        | RunOutcome::Retry { .. }
        | RunOutcome::Failed { .. }
        | RunOutcome::Released
        | RunOutcome::Cancelled => None,
    }
}
