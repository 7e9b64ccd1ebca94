//! Ends: why a run ended as it did, whether it may have, and that its history says so.
//!
//! A transition has a cause: a run completes because its handler reported so, is tried again because it
//! failed in a way that allows that, is given up because a budget is used up. The oracle was told what the
//! handler reported, and works out from the definition what the budgets allow. What must stay true: times are
//! judged so that neither a clock that steps nor a worker's own clock makes a lawful end a violation.

use fencepost_core::execution::{AttemptEnd, CancelState, DeadLetterReason, ExecutionState};
use fencepost_core::job::{DeadLetters, JobDefinition};
use fencepost_core::lease::RunId;
use fencepost_core::limits::LEASE_TTL_MAX;
use fencepost_core::retry::{RESCUE_DELAY_MAX, RetryPolicy};
use fencepost_core::store::change::Change;
use fencepost_core::store::command::{Command, RepairItem, RunOutcome, TakeOverEnd};
use fencepost_core::store::row::{AttemptRow, DeadLetterRow, ExecutionRow};
use fencepost_core::time::{Span, Timestamp};

use super::brief::Brief;
use super::executions::{finish_of, most_delay};
use super::invariant::Invariant;
use super::runs::Heard;
use super::{Commit, Report};
use crate::violation::Violation;

use ExecutionState as S;

/// Checks the end of a run: that what caused it happened, and that its policy allows it.
pub(super) fn check(
    commit: &Commit<'_>,
    before: &ExecutionRow,
    after: &ExecutionRow,
    definition: Option<&JobDefinition>,
    heard: Heard,
    latest: Timestamp,
) -> Result<(), Violation> {
    if let Some(outcome) = outcome_of(commit, before) {
        check_cause(commit, after, outcome, heard)?;
    }
    let Some(definition) = definition else { return Ok(()) };
    check_policy(commit, before, after, definition, heard, latest)?;
    let kept = match after.state {
        S::DeadLettered => DeadLetters::On,
        S::Failed => DeadLetters::Off,
        S::Pending | S::Running | S::RetryWait | S::Completed | S::Cancelled | S::Skipped => return Ok(()),
    };
    if definition.dead_letter == kept {
        return Ok(());
    }
    Err(commit.broke(Invariant::DeadLetterOnce, || {
        format!(
            "{} ended as {}, of a job with dead letters {:?}",
            after.id, after.state, definition.dead_letter
        )
    }))
}

/// The outcome that finishes this run, if the command is a finish.
fn outcome_of<'a>(commit: &Commit<'a>, before: &ExecutionRow) -> Option<&'a RunOutcome> {
    match commit.command {
        Command::FinishExecutions(ask) => {
            finish_of(&ask.items, before.id, before.token).map(|item| &item.outcome)
        }
        _ => None,
    }
}

/// How a takeover ends this run, if the command is one.
fn take_over_of(commit: &Commit<'_>, before: &ExecutionRow) -> Option<TakeOverEnd> {
    let Command::Repair(ask) = commit.command else { return None };
    let lost = RunId { execution: before.id, token: before.token };
    ask.items.iter().find_map(|item| match item {
        RepairItem::TakeOver { run, end, .. } if *run == lost => Some(*end),
        RepairItem::TakeOver { .. }
        | RepairItem::Redispatch { .. }
        | RepairItem::DropOutbox { .. }
        | RepairItem::EndOverdue { .. }
        | RepairItem::RetireNode { .. } => None,
    })
}

/// The causes of the transition table: each state after a run follows from what its handler reported.
fn check_cause(
    commit: &Commit<'_>,
    after: &ExecutionRow,
    outcome: &RunOutcome,
    heard: Heard,
) -> Result<(), Violation> {
    let failed_for_good = heard.report == Some(Report::FailedForGood);
    // A timeout counts as a failure that may be tried again, whatever its handler reports afterwards.
    let failed_retryably = heard.timed_out || matches!(heard.report, Some(Report::FailedRetryably { .. }));
    let (caused, to) = match outcome {
        RunOutcome::Completed => (heard.report == Some(Report::Completed), after.state == S::Completed),
        RunOutcome::Retry { .. } => (failed_retryably, matches!(after.state, S::RetryWait | S::Cancelled)),
        RunOutcome::DeadLettered { reason, .. } => {
            let caused = match reason {
                DeadLetterReason::NonRetryable => failed_for_good,
                DeadLetterReason::Exhausted | DeadLetterReason::TooOld => failed_retryably,
                // It is stopped at its deadline, and may be given back without having been started.
                DeadLetterReason::Deadline => true,
                DeadLetterReason::RescuesSpent => false,
            };
            (caused, after.state == S::DeadLettered)
        }
        RunOutcome::Failed { .. } => {
            let caused = failed_for_good || failed_retryably || after.deadline_at.is_some();
            (caused, after.state == S::Failed)
        }
        // What was stopped, or never started, has reported nothing.
        RunOutcome::Released | RunOutcome::Cancelled => {
            (true, matches!(after.state, S::RetryWait | S::Cancelled))
        }
    };
    if caused && to {
        return Ok(());
    }
    Err(commit.broke(Invariant::LegalTransition, || {
        format!(
            "{} went to {} by {}, and its run was heard of as {heard:?}",
            after.id,
            after.state,
            Brief(outcome)
        )
    }))
}

/// Whether the policy of the execution's version has this run end like this: given up when its budget is used
/// up and not before, and not tried again after that.
fn check_policy(
    commit: &Commit<'_>,
    before: &ExecutionRow,
    after: &ExecutionRow,
    definition: &JobDefinition,
    heard: Heard,
    latest: Timestamp,
) -> Result<(), Violation> {
    let policy = &definition.retry;
    let exhausted = after.attempts >= policy.max_attempts;
    let lawful = match (outcome_of(commit, before), take_over_of(commit, before)) {
        (Some(RunOutcome::Retry { delay, .. }), _) => {
            !is_surely_too_old(policy, before, *delay) && !is_surely_past_deadline(before, *delay)
        }
        (Some(RunOutcome::DeadLettered { reason, .. }), _) => match reason {
            // Both by what the handler reported, or by a takeover alone.
            DeadLetterReason::NonRetryable | DeadLetterReason::RescuesSpent => true,
            DeadLetterReason::Exhausted => exhausted,
            DeadLetterReason::TooOld => may_be_too_old(definition, before, after, heard, latest),
            DeadLetterReason::Deadline => may_meet_deadline(definition, before, after, heard),
        },
        (Some(RunOutcome::Failed { .. }), _) => {
            heard.report == Some(Report::FailedForGood)
                || exhausted
                || may_be_too_old(definition, before, after, heard, latest)
                || may_meet_deadline(definition, before, after, heard)
        }
        (Some(RunOutcome::Completed | RunOutcome::Released | RunOutcome::Cancelled), _) | (None, None) => {
            true
        }
        (None, Some(end)) => {
            let spent = after.rescues > policy.max_rescues || after.lost_starts > policy.max_lost_starts;
            match end {
                TakeOverEnd::Retry(_) => !spent,
                TakeOverEnd::DeadLettered(DeadLetterReason::Deadline) => is_late_for_rescue(before, latest),
                TakeOverEnd::DeadLettered(reason) => spent && reason == DeadLetterReason::RescuesSpent,
                TakeOverEnd::Failed => spent || is_late_for_rescue(before, latest),
                TakeOverEnd::Cancelled => true,
            }
        }
    };
    if lawful {
        return Ok(());
    }
    Err(commit.broke(Invariant::AttemptBounds, || {
        format!(
            "{} ended as {} at {} by {:?} with {} attempts, {} rescues and {} lost starts, against {policy:?}",
            after.id,
            after.state,
            commit.now,
            outcome_of(commit, before),
            after.attempts,
            after.rescues,
            after.lost_starts
        )
    }))
}

/// Whether it was too old for another attempt already when this one was granted, which its worker was told.
fn is_surely_too_old(policy: &RetryPolicy, before: &ExecutionRow, delay: Span) -> bool {
    let granted_at = before.leased_at.unwrap_or(before.due_at);
    policy.max_age.is_some_and(|most| granted_at.since(before.due_at).plus(delay) > most)
}

/// Whether the next attempt would begin past the deadline although it followed at once: its worker was told, with the
/// lease, what was left.
fn is_surely_past_deadline(before: &ExecutionRow, delay: Span) -> bool {
    let granted_at = before.leased_at.unwrap_or(before.due_at);
    before.deadline_at.is_some_and(|at| granted_at.plus(delay) > at)
}

/// Whether its worker may have found, by its own clock, that the deadline leaves nothing to this attempt or to another:
/// no attempt lasts longer than its timeout, and none begins later than a lease after it was asked for.
fn may_meet_deadline(
    definition: &JobDefinition,
    before: &ExecutionRow,
    after: &ExecutionRow,
    heard: Heard,
) -> bool {
    let granted_at = before.leased_at.unwrap_or(before.due_at);
    let wish = match heard.report {
        Some(Report::FailedRetryably { wish }) => wish.unwrap_or(Span::ZERO),
        Some(Report::Completed | Report::FailedForGood) | None => Span::ZERO,
    };
    let delay = most_delay(&definition.retry, after.attempts).max(wish);
    let latest_end = granted_at.plus(LEASE_TTL_MAX).plus(definition.attempt_timeout);
    before.deadline_at.is_some_and(|at| latest_end.plus(delay) >= at)
}

/// Whether a rescue would begin past the deadline.
fn is_late_for_rescue(before: &ExecutionRow, latest: Timestamp) -> bool {
    before.deadline_at.is_some_and(|at| latest.plus(RESCUE_DELAY_MAX) >= at)
}

/// Whether it may have been too old by any clock: the time since the grant counts twice, since the worker
/// measured it by its own, and an attempt may have lasted its whole timeout while the store's clock was set
/// back; the delay is the longest that it may have been.
fn may_be_too_old(
    definition: &JobDefinition,
    before: &ExecutionRow,
    after: &ExecutionRow,
    heard: Heard,
    latest: Timestamp,
) -> bool {
    let policy = &definition.retry;
    let granted_at = before.leased_at.unwrap_or(before.due_at);
    let wish = match heard.report {
        Some(Report::FailedRetryably { wish }) => wish.unwrap_or(Span::ZERO),
        Some(Report::Completed | Report::FailedForGood) | None => Span::ZERO,
    };
    let delay = most_delay(policy, after.attempts).max(wish);
    let by_worker = latest.since(granted_at).plus(definition.attempt_timeout);
    let age = latest.since(before.due_at).plus(by_worker);
    policy.max_age.is_some_and(|most| age.plus(delay) > most)
}

/// Checks a whole command: each run that ended otherwise than completed has left its history in this commit,
/// and each dead letter says what its execution says.
pub(super) fn check_recorded(commit: &Commit<'_>, changes: &[Change]) -> Result<(), Violation> {
    for (number, change) in changes.iter().enumerate() {
        let Change::Execution(delta) = change else { continue };
        let (Some(before), Some(after)) = (&delta.before, &delta.after) else { continue };
        if before.state != S::Running || matches!(after.state, S::Running | S::Completed) {
            continue;
        }
        // Mostly it stands just before the execution, so that is where it is looked for first.
        let (earlier, later) = changes.split_at(number);
        let mut others = earlier.iter().rev().chain(later);
        let attempt = others.clone().find_map(|other| match other {
            Change::Attempt(delta) => delta.inserted().filter(|row| row.execution == after.id),
            _ => None,
        });
        if !attempt.is_some_and(|row| is_history_of(commit, before, row)) {
            return Err(commit.broke(Invariant::DeadLetterOnce, || {
                format!("the end of {} under {} left no such history: {attempt:?}", after.id, before.token)
            }));
        }
        if after.state != S::DeadLettered {
            continue;
        }
        let record = others.find_map(|other| match other {
            Change::DeadLetter(delta) => delta.inserted().filter(|row| row.execution == after.id),
            _ => None,
        });
        if !record.is_some_and(|row| is_record_of(commit, before, after, row)) {
            return Err(commit.broke(Invariant::DeadLetterOnce, || {
                format!("the dead letter of {} is not its own: {record:?}", after.id)
            }));
        }
    }
    Ok(())
}

fn is_history_of(commit: &Commit<'_>, before: &ExecutionRow, row: &AttemptRow) -> bool {
    let ended = match outcome_of(commit, before) {
        None => row.end == AttemptEnd::Lost,
        Some(RunOutcome::Completed) => false,
        Some(RunOutcome::Retry { .. }) => row.end == AttemptEnd::FailedRetryably,
        Some(RunOutcome::DeadLettered { .. } | RunOutcome::Failed { .. }) => {
            row.end == AttemptEnd::FailedForGood
        }
        Some(RunOutcome::Released) => row.end == AttemptEnd::Released,
        Some(RunOutcome::Cancelled) => match before.cancel {
            CancelState::Requested => row.end == AttemptEnd::Cancelled,
            CancelState::None => row.end == AttemptEnd::Released,
        },
    };
    ended
        && row.token == before.token
        && row.node == before.owner
        && row.tenant == before.tenant
        && row.attempt == before.attempts.saturating_add(1)
}

fn is_record_of(
    commit: &Commit<'_>,
    before: &ExecutionRow,
    after: &ExecutionRow,
    row: &DeadLetterRow,
) -> bool {
    let reason = match outcome_of(commit, before) {
        Some(RunOutcome::DeadLettered { reason, .. }) => Some(*reason),
        Some(
            RunOutcome::Completed
            | RunOutcome::Retry { .. }
            | RunOutcome::Failed { .. }
            | RunOutcome::Released
            | RunOutcome::Cancelled,
        ) => None,
        None => match take_over_of(commit, before) {
            Some(TakeOverEnd::DeadLettered(reason)) => Some(reason),
            Some(TakeOverEnd::Retry(_) | TakeOverEnd::Cancelled | TakeOverEnd::Failed) | None => {
                Some(DeadLetterReason::RescuesSpent)
            }
        },
    };
    Some(row.reason) == reason
        && row.job == after.job
        && row.tenant == after.tenant
        && row.error == after.error
        && row.attempts == after.attempts
        && row.rescues == after.rescues
        && row.lost_starts == after.lost_starts
        && (row.replays, row.purged_at) == (0, None)
}
