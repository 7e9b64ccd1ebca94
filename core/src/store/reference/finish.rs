//! The ends of runs: what each outcome makes of the execution, and how a resend is recognised.
//!
//! A finish is accepted under the token of what runs, lapsed or not. Every end but a completion leaves an
//! attempt row under that token, so the same finish again is recognised by (token, outcome), even after the
//! execution has gone on to other runs. That is an answer and no refusal.

use std::sync::Arc;

use crate::bug::Bug;
use crate::execution::{AttemptEnd, CancelState, DeadLetterReason, ExecutionState};
use crate::id::{ExecutionId, NodeId};
use crate::job::failures::is_failure;
use crate::lease::may_be_taken;
use crate::mark::{self, Mark};
use crate::store::command::{FinishExecution, FinishExecutions, RunOutcome};
use crate::store::reference::Call;
use crate::store::reference::acquire::leased_at;
use crate::store::reply::FinishReply;
use crate::store::row::{AttemptRow, DeadLetterRow, ExecutionRow, RefusedAction, RefusedResource};
use crate::time::Span;

/// How an attempt that did not complete ended: by its outcome, and for a stopped handler by whether anybody
/// had asked. What a stored cancel request makes of the execution does not change how its attempt ended.
fn attempt_end(outcome: &RunOutcome, cancel: CancelState) -> Option<AttemptEnd> {
    match (outcome, cancel) {
        (RunOutcome::Completed, _) => None,
        (RunOutcome::Retry { .. }, _) => Some(AttemptEnd::FailedRetryably),
        (RunOutcome::DeadLettered { .. } | RunOutcome::Failed { .. }, _) => Some(AttemptEnd::FailedForGood),
        (RunOutcome::Released, _) | (RunOutcome::Cancelled, CancelState::None) => Some(AttemptEnd::Released),
        (RunOutcome::Cancelled, CancelState::Requested) => Some(AttemptEnd::Cancelled),
    }
}

/// The error of an outcome that has one; such an outcome counts as an attempt.
fn error_of(outcome: &RunOutcome) -> Option<&Arc<str>> {
    match outcome {
        RunOutcome::Retry { error, .. }
        | RunOutcome::DeadLettered { error, .. }
        | RunOutcome::Failed { error } => Some(error),
        RunOutcome::Completed | RunOutcome::Released | RunOutcome::Cancelled => None,
    }
}

impl Call<'_> {
    /// Item by item; then the jobs of what failed are looked at.
    pub(super) fn finish_executions(&mut self, ask: &FinishExecutions) -> Vec<FinishReply> {
        let replies: Vec<FinishReply> =
            ask.items.iter().map(|item| self.finish_execution(ask.node, item)).collect();
        let ended = ask.items.iter().zip(&replies).filter(|(_, reply)| match reply {
            FinishReply::Applied { state } => is_failure(*state),
            FinishReply::Already { .. } | FinishReply::Refused { .. } | FinishReply::Absent => false,
        });
        let failed: Vec<ExecutionId> = ended.map(|(item, _)| item.run.execution).collect();
        self.judge_failures(&failed);
        replies
    }

    fn finish_execution(&mut self, node: NodeId, item: &FinishExecution) -> FinishReply {
        let Some(row) = self.tables.executions().get(&item.run.execution) else { return FinishReply::Absent };
        let (state, current) = (row.state, row.token);
        if self.may_finish(row, item) {
            let row = row.clone();
            return FinishReply::Applied { state: self.end_run(row, item) };
        }
        if self.was_applied(row, item) {
            mark::hit(Mark::FinishRepeated);
            return FinishReply::Already { state };
        }
        mark::hit(Mark::FinishRefused);
        if self.bugs.has(Bug::LateFinishRewritesCompleted) && state == ExecutionState::Completed {
            let error = error_of(&item.outcome).cloned();
            let row = ExecutionRow { error, finished_at: Some(self.now), ..row.clone() };
            self.tables.put_execution(row, self.changes);
        }
        let resource = RefusedResource::Execution(item.run.execution);
        self.refuse(resource, item.run.token, node, RefusedAction::Finish, current);
        FinishReply::Refused { current, state }
    }

    fn may_finish(&self, row: &ExecutionRow, item: &FinishExecution) -> bool {
        let is_current = row.token == item.run.token || self.bugs.has(Bug::FinishIgnoresToken);
        let is_running = row.state == ExecutionState::Running;
        (is_running && is_current)
            || (self.bugs.has(Bug::FinishOverwritesEnded) && row.state == ExecutionState::Completed)
            || (self.bugs.has(Bug::CancelledCompletes)
                && row.state == ExecutionState::Cancelled
                && row.token == item.run.token
                && item.outcome == RunOutcome::Completed)
    }

    /// Whether this outcome under this token was applied before.
    fn was_applied(&self, row: &ExecutionRow, item: &FinishExecution) -> bool {
        let attempt = self.tables.attempts.get(&(item.run.execution, item.run.token));
        let ended = |end: AttemptEnd| attempt.is_some_and(|attempt| attempt.end == end);
        match &item.outcome {
            RunOutcome::Completed => row.state == ExecutionState::Completed && row.token == item.run.token,
            RunOutcome::Retry { .. } => ended(AttemptEnd::FailedRetryably),
            RunOutcome::DeadLettered { .. } => {
                ended(AttemptEnd::FailedForGood) && row.state == ExecutionState::DeadLettered
            }
            RunOutcome::Failed { .. } => {
                ended(AttemptEnd::FailedForGood) && row.state == ExecutionState::Failed
            }
            RunOutcome::Released => ended(AttemptEnd::Released),
            RunOutcome::Cancelled => ended(AttemptEnd::Cancelled) || ended(AttemptEnd::Released),
        }
    }

    /// Applies an outcome to what runs.
    fn end_run(&mut self, mut row: ExecutionRow, item: &FinishExecution) -> ExecutionState {
        if may_be_taken(row.expires_at, self.now) {
            mark::hit(Mark::FinishAfterLapse);
        }
        let (cancel, worker) = (row.cancel, row.owner);
        self.stamp_start(&mut row, item.started_ago);
        let error = error_of(&item.outcome);
        if let Some(end) = attempt_end(&item.outcome, cancel) {
            self.record_attempt(&row, worker, end, error.cloned());
        }
        if let Some(error) = error {
            row.error = Some(error.clone());
            if !self.bugs.has(Bug::AttemptsNotCounted) {
                row.attempts = row.attempts.saturating_add(1);
            }
        }
        match &item.outcome {
            RunOutcome::Completed => {
                if cancel == CancelState::Requested {
                    mark::hit(Mark::CancelLostToCompletion);
                }
                self.settle(&mut row, ExecutionState::Completed);
            }
            RunOutcome::Retry { delay, .. } => self.set_back_or_cancel(&mut row, *delay),
            RunOutcome::DeadLettered { reason, .. } => {
                self.settle(&mut row, ExecutionState::DeadLettered);
                self.record_dead_letter(&row, *reason);
            }
            RunOutcome::Failed { .. } => self.settle(&mut row, ExecutionState::Failed),
            RunOutcome::Released if self.bugs.has(Bug::ReleaseCancels) => {
                self.settle(&mut row, ExecutionState::Cancelled);
            }
            RunOutcome::Released | RunOutcome::Cancelled => self.set_back_or_cancel(&mut row, Span::ZERO),
        }
        let state = row.state;
        self.tables.put_execution(row.clone(), self.changes);
        self.free_slot(&row);
        self.free_limits(&row);
        state
    }

    /// What would be tried again is cancelled where that was asked for.
    fn set_back_or_cancel(&self, row: &mut ExecutionRow, delay: Span) {
        match row.cancel {
            CancelState::Requested if !self.bugs.has(Bug::CancelForgottenOnRetry) => {
                mark::hit(Mark::CancelBeatRetry);
                self.settle(row, ExecutionState::Cancelled);
            }
            CancelState::Requested | CancelState::None => self.set_back(row, self.now.plus(delay)),
        }
    }

    /// When the handler started: not before the lease was granted.
    fn stamp_start(&self, row: &mut ExecutionRow, started_ago: Option<Span>) {
        let Some(ago) = started_ago else { return };
        let reported = self.now.minus(ago);
        let started_at = reported.max(leased_at(row));
        row.started_at = Some(started_at);
        self.note_clamped(row, started_at != reported);
    }

    /// One row per lease that ended otherwise than completed. To be called before the counters rise.
    pub(super) fn record_attempt(
        &mut self,
        row: &ExecutionRow,
        node: Option<NodeId>,
        end: AttemptEnd,
        error: Option<Arc<str>>,
    ) {
        if self.bugs.has(Bug::AttemptsGoUnrecorded) {
            return;
        }
        let node = node.filter(|_| !self.bugs.has(Bug::AttemptsNameNobody));
        let attempt = AttemptRow {
            execution: row.id,
            token: row.token,
            tenant: row.tenant,
            node,
            attempt: row.attempts.saturating_add(1),
            end,
            error,
            at: self.now,
        };
        self.tables.attempts.put(attempt, self.changes);
    }

    /// The record of a dead-lettered execution, by the row as it ended.
    pub(super) fn record_dead_letter(&mut self, row: &ExecutionRow, reason: DeadLetterReason) {
        if self.bugs.has(Bug::DeadLetterWithoutRecord) {
            return;
        }
        let record = DeadLetterRow {
            execution: row.id,
            tenant: row.tenant,
            job: row.job,
            reason,
            error: row.error.clone(),
            attempts: row.attempts,
            rescues: row.rescues,
            lost_starts: row.lost_starts,
            at: self.now,
            replays: 0,
            purged_at: None,
        };
        self.tables.dead_letters.put(record, self.changes);
    }
}
