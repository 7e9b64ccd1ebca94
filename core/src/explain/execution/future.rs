//! What follows for an execution, if nothing else happens: the next try, what a failure or a loss would lead to, and
//! what is left of its budgets.
//!
//! Verdicts are asked of `retry`, as the worker and the sweep ask; a handler's own word (pointless to retry, or not
//! before a time) may change them.

use super::definition;
use super::past::{self, Place};
use crate::execution::{AttemptEnd, CancelState, DeadLetterReason, ExecutionState};
use crate::explain::facts::ExecutionFacts;
use crate::explain::owner;
use crate::explain::rule::Rule;
use crate::explain::statement::{Statement, in_words, many, of_most, statements};
use crate::job::DeadLetters;
use crate::lease::may_be_taken;
use crate::retry::{self, Verdict, count_loss, redispatch_delay};
use crate::time::{Span, Timestamp};

statements!("execution/future",
/// What follows for an execution.
Future {
    /// The owner of its partition reads the unconfirmed outbox row back and publishes it again.
    ReadBack = "outbox_read_back" {
        at: Timestamp, read_back: u32, grace: Span,
    } => format!("Not confirmed by {at}, the owner of its partition publishes it again.");
    /// What it waits for may be over: it is dispatched again.
    DispatchedAgain = "dispatched_again" {
        at: Timestamp, put_off: u32,
    } => format!("Dispatched again at {at}; if the reason still holds it is put off for longer.");
    /// A pause of its tenant or queue holds it back: the resume has it dispatched again.
    AfterResume = "dispatched_after_resume" {
        at: Timestamp,
    } => format!("Dispatched again as soon as the pause is over; without that it is looked at again at {at}.");
    /// Its dispatch has led to nothing for so long that the sweep dispatches it again.
    Redispatched = "redispatched" {
        at: Timestamp, redispatches: u32,
    } => format!("Not asked for by {at}, it is dispatched again by the sweep.");
    /// It is dispatched for its next attempt.
    NextAttempt = "next_attempt" {
        at: Timestamp, attempt: u32, max_attempts: Option<u32>, rule: Rule, delay: Option<Span>,
    } => format!(
        "Attempt {attempt}{} is dispatched at {at}{}.",
        of_most(max_attempts),
        match rule {
            Rule::Backoff => ", by the backoff after its failure",
            Rule::RetryAfter => ", as its target asked",
            Rule::Rescue => ", by the delay after a worker's loss",
            Rule::GivenBack => ", since it was given back",
            Rule::BackoffOrRetryAfter | Rule::Cancel | Rule::GivenUp | Rule::NotRecorded => "",
        },
    );
    /// The attempt times out, by its worker's clock.
    TimesOut = "attempt_times_out" {
        about: Timestamp, timeout: Span,
    } => format!("The attempt times out about {about}, {} after it started, by its worker's clock.", in_words(timeout));
    /// Its lease lapses unless it is renewed.
    LeaseLapses = "lease_lapses" {
        at: Timestamp, swept_by: Timestamp,
    } => format!("Its lease lapses at {at} unless it is renewed; the sweep would take it over by {swept_by}.");
    /// The sweep takes over the lapsed lease.
    TakenOver = "taken_over_by_sweep" {
        by: Timestamp, becomes: ExecutionState, delay: Option<Span>, reason: Option<DeadLetterReason>,
    } => format!(
        "The sweep is due by {by} and makes it {becomes}{}.",
        match (delay, reason) {
            (Some(delay), _) => format!(", to be tried again {} later", in_words(delay)),
            (None, Some(reason)) => format!(" ({reason})"),
            (None, None) => String::new(),
        },
    );
    /// A retryable failure now would be followed by another attempt.
    FailureRetried = "on_failure_retried" {
        attempt: u32, max_attempts: u32, delay: Span,
    } => format!("If attempt {attempt} of {max_attempts} fails retryably now, the next follows {} later.", in_words(delay));
    /// A retryable failure now would be the end.
    FailureGivenUp = "on_failure_given_up" {
        attempt: u32, max_attempts: u32, reason: DeadLetterReason, becomes: ExecutionState,
    } => format!("If attempt {attempt} of {max_attempts} fails now, it is {becomes} ({reason}).");
    /// The loss of its worker would be followed by a rescue.
    LossRescued = "on_loss_rescued" {
        delay: Span,
    } => format!("If its worker is lost, it is tried again {} after the sweep, at the cost of no attempt.", in_words(delay));
    /// The loss of its worker would be the end.
    LossGivenUp = "on_loss_given_up" {
        reason: DeadLetterReason, becomes: ExecutionState,
    } => format!("If its worker is lost, it is {becomes} ({reason}).");
    /// The cancel takes effect with the end of the run, unless a completion commits first.
    CancelTakesEffect = "cancel_takes_effect" {
        by: Timestamp,
    } => format!("It becomes cancelled when its worker stops, fails or is taken over, by {by} if its lease lapses; a completion that commits first wins.");
    /// At its deadline whatever waits is ended, and what runs is stopped by its worker.
    Deadline = "deadline" {
        at: Timestamp, left: Span, becomes: ExecutionState,
    } => if left == Span::ZERO {
        format!("Its deadline was at {at}: it becomes {becomes} as soon as it is asked for or swept.")
    } else {
        format!("Its deadline is at {at}, {} from now: what has not completed by then becomes {becomes}.", in_words(left))
    };
    /// What is left to it.
    Budget = "budget" {
        attempts_left: u32, rescues_left: u32, lost_starts_left: u32, age: Span, age_left: Option<Span>,
    } => format!(
        "Left are {}, {} and {}{}.",
        many(attempts_left, "attempt"), many(rescues_left, "rescue"), many(lost_starts_left, "lost start"),
        age_left.map_or_else(
            || ", at any age".to_owned(), |left| format!(", and {} of the age up to which it is retried", in_words(left)),
        ),
    );
    /// It has ended: nothing more happens to it by itself.
    Nothing = "nothing_more" {} => "Nothing more happens to it by itself.";
});

/// All of it, the next first.
pub(super) fn of(facts: &ExecutionFacts) -> Vec<Statement> {
    let row = &facts.execution;
    let mut told = match row.state {
        ExecutionState::Pending => vec![pending(facts)],
        ExecutionState::RetryWait => row.next_try_at.map(|at| next_attempt(facts, at)).into_iter().collect(),
        ExecutionState::Running if may_be_taken(row.expires_at, facts.now) => vec![taken_over(facts)],
        ExecutionState::Running => running(facts),
        ExecutionState::Completed
        | ExecutionState::DeadLettered
        | ExecutionState::Failed
        | ExecutionState::Cancelled
        | ExecutionState::Skipped => return vec![Future::Nothing {}.into()],
    };
    told.extend(deadline(facts));
    told.extend(budget(facts));
    told.into_iter().map(Statement::from).collect()
}

fn deadline(facts: &ExecutionFacts) -> Option<Future> {
    let at = facts.execution.deadline_at?;
    let becomes = given_up(facts.definition.retry_or_default().1);
    Some(Future::Deadline { at, left: at.since(facts.now), becomes })
}

/// How long its deadline leaves it.
fn left(facts: &ExecutionFacts) -> Option<Span> {
    facts.execution.deadline_at.map(|at| at.since(facts.now))
}

fn pending(facts: &ExecutionFacts) -> Future {
    let row = &facts.execution;
    if row.waiting.is_some() {
        let at = row.next_try_at.unwrap_or(facts.now);
        let holds = facts.pauses.iter().find(|pause| row.held_by == Some(pause.id));
        if holds.is_some_and(|pause| pause.ended.is_none()) {
            return Future::AfterResume { at };
        }
        return Future::DispatchedAgain { at, put_off: row.waits };
    }
    if let Some(outbox) = facts.outbox.iter().rfind(|outbox| outbox.dispatch_no == row.dispatch_no) {
        let grace = facts.spans.outbox_grace;
        let is_own = owner::holder(&facts.partition_lease, facts.now) == Some(outbox.created_by);
        let at =
            if is_own { outbox.next_try_at.max(outbox.created_at.plus(grace)) } else { outbox.next_try_at };
        return Future::ReadBack { at, read_back: outbox.tries, grace };
    }
    let dispatched_at = row.dispatched_at.unwrap_or(row.materialised_at);
    let delay = redispatch_delay(facts.spans.redispatch_after, row.redispatches);
    Future::Redispatched { at: dispatched_at.plus(delay), redispatches: row.redispatches }
}

fn next_attempt(facts: &ExecutionFacts, at: Timestamp) -> Future {
    let row = &facts.execution;
    let last = facts.attempts.last();
    let (rule, delay) = match last.map(|run| (run, run.end)) {
        Some((run, AttemptEnd::FailedRetryably)) => past::after_failure(facts, run, Place::Latest),
        Some((run, AttemptEnd::Lost)) => past::after_loss(facts, run, Place::Latest),
        Some((run, AttemptEnd::Released | AttemptEnd::Cancelled)) => {
            (Rule::GivenBack, Some(at.since(run.at)))
        }
        Some((_, AttemptEnd::FailedForGood)) | None => (Rule::NotRecorded, None),
    };
    Future::NextAttempt {
        at,
        attempt: row.attempts.saturating_add(1),
        max_attempts: definition(facts).map(|definition| definition.retry.max_attempts),
        rule,
        delay,
    }
}

/// What giving up makes of it.
const fn given_up(dead_letter: DeadLetters) -> ExecutionState {
    match dead_letter {
        DeadLetters::On => ExecutionState::DeadLettered,
        DeadLetters::Off => ExecutionState::Failed,
    }
}

fn running(facts: &ExecutionFacts) -> Vec<Future> {
    let row = &facts.execution;
    let mut told = Vec::new();
    if row.cancel == CancelState::Requested {
        told.push(Future::CancelTakesEffect { by: swept_by(facts) });
    }
    if let (Some(definition), Some(leased_at)) = (definition(facts), row.leased_at) {
        let timeout = definition.attempt_timeout;
        told.push(Future::TimesOut { about: leased_at.plus(timeout), timeout });
    }
    told.push(Future::LeaseLapses { at: row.expires_at, swept_by: swept_by(facts) });
    if row.cancel == CancelState::Requested {
        return told;
    }
    told.extend(on_failure(facts));
    let (delay, reason, becomes) = loss(facts);
    told.push(match (delay, reason) {
        (_, Some(reason)) => Future::LossGivenUp { reason, becomes },
        (delay, None) => Future::LossRescued { delay: delay.unwrap_or_default() },
    });
    told
}

/// The next sweep after the lease has lapsed, while there is a leader.
fn swept_by(facts: &ExecutionFacts) -> Timestamp {
    let lapses = facts.execution.expires_at;
    let is_dead_already = may_be_taken(lapses, facts.now) && lapses > facts.now;
    (if is_dead_already { facts.now } else { lapses }).plus(facts.spans.sweep_every)
}

fn on_failure(facts: &ExecutionFacts) -> Option<Future> {
    let row = &facts.execution;
    let definition = definition(facts)?;
    let (attempt, max_attempts) = (row.attempts.saturating_add(1), definition.retry.max_attempts);
    let age = facts.now.since(row.due_at);
    let verdict = retry::after_failure(&definition.retry, row.id, attempt, age, None);
    Some(match retry::within_deadline(verdict, left(facts)) {
        Verdict::RetryIn(delay) => Future::FailureRetried { attempt, max_attempts, delay },
        Verdict::GiveUp(reason) => Future::FailureGivenUp {
            attempt,
            max_attempts,
            reason,
            becomes: given_up(definition.dead_letter),
        },
    })
}

/// What the loss of its present lease leads to: after how long another try, or why none, and the state.
fn loss(facts: &ExecutionFacts) -> (Option<Span>, Option<DeadLetterReason>, ExecutionState) {
    let row = &facts.execution;
    let (rescues, lost_starts) = count_loss(row.sign, row.rescues, row.lost_starts);
    let (policy, dead_letter) = facts.definition.retry_or_default();
    match retry::within_deadline(retry::after_loss(&policy, rescues, lost_starts), left(facts)) {
        Verdict::RetryIn(delay) => (Some(delay), None, ExecutionState::RetryWait),
        Verdict::GiveUp(reason) => (None, Some(reason), given_up(dead_letter)),
    }
}

fn taken_over(facts: &ExecutionFacts) -> Future {
    let by = swept_by(facts);
    match facts.execution.cancel {
        CancelState::Requested => {
            Future::TakenOver { by, becomes: ExecutionState::Cancelled, delay: None, reason: None }
        }
        CancelState::None => {
            let (delay, reason, becomes) = loss(facts);
            Future::TakenOver { by, becomes, delay, reason }
        }
    }
}

fn budget(facts: &ExecutionFacts) -> Option<Future> {
    let row = &facts.execution;
    let policy = &definition(facts)?.retry;
    let age = facts.now.since(row.due_at);
    Some(Future::Budget {
        attempts_left: policy.max_attempts.saturating_sub(row.attempts),
        rescues_left: policy.max_rescues.saturating_sub(row.rescues),
        lost_starts_left: policy.max_lost_starts.saturating_sub(row.lost_starts),
        age,
        age_left: policy.max_age.map(|most| most.minus(age)),
    })
}
