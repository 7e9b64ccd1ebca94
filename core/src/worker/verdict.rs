//! Verdicts: what a handler's result means for its run.
//!
//! A pure table of two things, why the handler was told to stop (if it was) and how it says it ended:
//!
//! - *Completed* and *failed for good* count whatever was asked of the handler: they are facts about the
//!   effect, and the token decides whether they are still accepted.
//! - *Stopped* means what it was stopped for: cancelled, or given back in a drain. A run whose lease is not
//!   trusted stays silent; its lease lapses and the sweep decides.
//! - *Failed, try again* of a handler that was told to stop for a cancel or a drain is taken for the stop,
//!   so that neither a cancel nor a deploy costs an attempt. Otherwise the retry policy decides: another
//!   attempt after a delay, or none.
//! - *Stopped* by a handler that nobody told to stop is a failure like any other, and counts, or it could
//!   go on for ever.

use std::sync::Arc;

use crate::bug::{Bug, Bugs};
use crate::event::{ErrorClass, HandlerResult};
use crate::execution::DeadLetterReason;
use crate::id::ExecutionId;
use crate::job::DeadLetters;
use crate::limits::ERROR_BYTES_MAX;
use crate::mark::{self, Mark};
use crate::retry::{self, RetryPolicy, Verdict};
use crate::store::command::RunOutcome;
use crate::time::{Monotonic, Span};
use crate::worker::run::{Run, Stage};

/// How the run ends; `None`: without a word.
pub(super) fn of(
    run: &Run,
    execution: ExecutionId,
    now: Monotonic,
    result: &HandlerResult,
    bugs: Bugs,
) -> Option<RunOutcome> {
    match (result, run.stage) {
        (HandlerResult::Completed, _) => Some(RunOutcome::Completed),
        (HandlerResult::Failed { class: ErrorClass::NonRetryable, error, .. }, _)
            if !bugs.has(Bug::FailureForGoodRetried) =>
        {
            Some(give_up(run, DeadLetterReason::NonRetryable, clip(error), bugs))
        }
        (HandlerResult::Stopped | HandlerResult::Failed { .. }, Stage::Cancelling) => {
            Some(RunOutcome::Cancelled)
        }
        (HandlerResult::Stopped | HandlerResult::Failed { .. }, Stage::Draining) => {
            Some(RunOutcome::Released)
        }
        (HandlerResult::Stopped, Stage::Lapsed) | (_, Stage::Ended) => None,
        (HandlerResult::Stopped, Stage::Running) => {
            let error = "the handler stopped without having been told to".into();
            Some(after_failure(run, execution, now, error, None, bugs))
        }
        (HandlerResult::Failed { error, retry_after, .. }, Stage::Running | Stage::Lapsed) => {
            let wish = retry_after.filter(|_| !bugs.has(Bug::WishIgnored));
            Some(after_failure(run, execution, now, clip(error), wish, bugs))
        }
    }
}

fn after_failure(
    run: &Run,
    execution: ExecutionId,
    now: Monotonic,
    error: Arc<str>,
    retry_after: Option<Span>,
    bugs: Bugs,
) -> RunOutcome {
    let policy = &run.message.retry;
    if bugs.has(Bug::FailureCompletes) {
        return RunOutcome::Completed;
    }
    let verdict = if bugs.has(Bug::FirstFailureGivesUp) {
        Verdict::GiveUp(DeadLetterReason::Exhausted)
    } else if bugs.has(Bug::RetriesWhatIsTooOld) {
        let ageless = RetryPolicy { max_age: None, ..policy.clone() };
        retry::after_failure(&ageless, execution, run.attempt, run.age(now), retry_after)
    } else if bugs.has(Bug::RetriesForEver) {
        let endless = RetryPolicy { max_attempts: u32::MAX, max_age: None, ..policy.clone() };
        retry::after_failure(&endless, execution, run.attempt, run.age(now), retry_after)
    } else {
        retry::after_failure(policy, execution, run.attempt, run.age(now), retry_after)
    };
    let bounded = retry::within_deadline(verdict, run.left(now));
    if bounded != verdict {
        mark::hit(Mark::RetryMetDeadline);
    }
    let verdict = if bugs.has(Bug::RetriesPastDeadline) { verdict } else { bounded };
    match verdict {
        Verdict::RetryIn(delay) if bugs.has(Bug::RetriesTooSoon) => {
            RunOutcome::Retry { delay: delay.divided_by(4), error }
        }
        Verdict::RetryIn(delay) => RunOutcome::Retry { delay, error },
        Verdict::GiveUp(reason) => give_up(run, reason, error, bugs),
    }
}

fn give_up(run: &Run, reason: DeadLetterReason, error: Arc<str>, bugs: Bugs) -> RunOutcome {
    given_up(run.message.dead_letter, reason, error, bugs)
}

/// What becomes of an execution that is given up.
pub(super) fn given_up(
    kept: DeadLetters,
    reason: DeadLetterReason,
    error: Arc<str>,
    bugs: Bugs,
) -> RunOutcome {
    match kept {
        DeadLetters::On if bugs.has(Bug::DeadLettersNotKept) => RunOutcome::Failed { error },
        DeadLetters::On => RunOutcome::DeadLettered { reason, error },
        DeadLetters::Off => RunOutcome::Failed { error },
    }
}

/// An error text as it may be stored: no NUL, and no longer than is kept, cut between characters.
pub(super) fn clip(error: &Arc<str>) -> Arc<str> {
    if error.len() <= ERROR_BYTES_MAX && !error.contains('\0') {
        return Arc::clone(error);
    }
    let mut text = error.replace('\0', "");
    text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
    text.into()
}
