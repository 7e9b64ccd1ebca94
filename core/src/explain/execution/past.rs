//! What happened to an execution: how it was made, each run that did not complete, what was refused, how it ended.
//!
//! Of a run that completed there is no row of its own; the execution tells. What followed a failed run is told by the
//! instant of the next try, which the execution keeps for the latest alone.

use std::sync::Arc;

use super::definition;
use crate::execution::{AttemptEnd, CancelState, DeadLetterReason, ExecutionState, SkipReason};
use crate::explain::facts::ExecutionFacts;
use crate::explain::rule::{LossBudget, Rule, StopEnd};
use crate::explain::statement::{Statement, in_words, many, of_most, on_worker, quoted, statements};
use crate::fencing::FencingToken;
use crate::id::{ExecutionId, JobVersion, NodeId, Occurrence};
use crate::job::Overlap;
use crate::limits::EXPLAINED_RUNS_MAX;
use crate::priority::Priority;
use crate::retry::{self, RetryPolicy, Verdict};
use crate::store::row::{AttemptRow, ExecutionRow, JobState, RefusalRow, RefusedAction};
use crate::time::{Span, Timestamp};

statements!("execution/past",
/// What happened to an execution.
Past {
    /// A fire came due and the owner of the partition made it an execution.
    Materialised = "materialised" {
        at: Timestamp, due_at: Timestamp, late: Span, job_version: JobVersion, token: FencingToken,
    } => format!(
        "Due at {due_at}, made an execution {} later, under version {} of its job and token {token} of its partition.",
        in_words(late), job_version.0,
    );
    /// It was due later than its fire happened, at a place of its own in a flex window.
    Flexed = "flexed" {
        fire: Timestamp, due_at: Timestamp, into: Span, flex: Option<Span>,
    } => format!(
        "Its fire of {fire} was due at {due_at}, {} into a flex window{}.", in_words(into),
        flex.map(|flex| format!(" of {}", in_words(flex))).unwrap_or_default(),
    );
    /// It has another priority than normal.
    Prioritised = "priority" {
        priority: Priority,
    } => format!(
        "Its priority is {priority}: where all priorities wait at a worker, {} of {} starts are of this one.",
        priority.weight(), Priority::WEIGHTS_SUM,
    );
    /// An operator triggered it.
    Triggered = "triggered" {
        at: Timestamp, key: Arc<str>, job_version: JobVersion,
    } => format!("Triggered by hand at {at} under the key {key:?}, by version {} of its job.", job_version.0);
    /// It replays a dead letter.
    Replayed = "made_by_replay" {
        at: Timestamp, origin: ExecutionId, number: u32, job_version: JobVersion,
    } => format!("Made at {at} as replay {number} of the dead letter {origin}.");
    /// The fire was passed over: it was recorded too late for the job's misfire policy.
    SkippedMisfire = "skipped_misfire" {
        at: Timestamp, due_at: Timestamp, late: Span, grace: Option<Span>, job_version: JobVersion,
        token: FencingToken,
    } => format!(
        "Skipped: due at {due_at}, it was looked at {} later{}, and the misfire policy of version {} passed it over.",
        in_words(late),
        grace.map(|grace| format!(", past the grace of {}", in_words(grace))).unwrap_or_default(),
        job_version.0,
    );
    /// Older runs are left out; `GET /v1/executions/{id}` lists all.
    EarlierLeftOut = "earlier_runs_left_out" {
        shown: u32,
    } => format!("Only the latest {shown} runs that did not complete are told.");
    /// A run failed with an error after which trying again makes sense; it counts as an attempt.
    AttemptFailed = "attempt_failed" {
        at: Timestamp, attempt: u32, max_attempts: Option<u32>, token: FencingToken, worker: Option<NodeId>,
        error: Option<Arc<str>>, rule: Rule, delay: Option<Span>,
    } => format!(
        "Attempt {attempt}{}{} failed{}; {}.",
        of_most(max_attempts), on_worker(worker.as_ref()), quoted(error.as_ref()), followed(rule, delay),
    );
    /// A run failed and no other was to follow; it counts as an attempt.
    AttemptFailedForGood = "attempt_failed_for_good" {
        at: Timestamp, attempt: u32, max_attempts: Option<u32>, token: FencingToken, worker: Option<NodeId>,
        error: Option<Arc<str>>,
    } => format!(
        "Attempt {attempt}{}{} failed for good{}.",
        of_most(max_attempts), on_worker(worker.as_ref()), quoted(error.as_ref()),
    );
    /// A worker gave the execution back unfinished, as in a drain; that costs no attempt.
    GivenBack = "run_given_back" {
        at: Timestamp, attempt: u32, token: FencingToken, worker: Option<NodeId>,
    } => format!("Given back unfinished{} at {at}, which costs no attempt; due again at once.", on_worker(worker.as_ref()));
    /// A worker stopped the handler because an operator had asked.
    Stopped = "run_stopped_for_cancel" {
        at: Timestamp, attempt: u32, token: FencingToken, worker: Option<NodeId>,
    } => format!("Its handler was stopped{} at {at}, as the cancel asked.", on_worker(worker.as_ref()));
    /// A worker was lost: its lease lapsed and was taken over, which costs no attempt but a rescue or a lost start.
    WorkerLost = "worker_lost" {
        at: Timestamp, attempt: u32, token: FencingToken, worker: Option<NodeId>, budget: Option<LossBudget>,
        rule: Rule, delay: Option<Span>,
    } => format!(
        "The lease{} under token {token} lapsed and was taken over at {at}, which costs {} and no attempt; {}.",
        on_worker(worker.as_ref()), budget_in_words(budget), followed(rule, delay),
    );
    /// A worker reported a result under a token that had passed on; it was refused and changed nothing.
    LateResultRefused = "late_result_refused" {
        first_at: Timestamp, last_at: Timestamp, times: u64, worker: NodeId, token: FencingToken,
        current_token: FencingToken,
    } => format!(
        "A late result of worker {worker} under token {token} was refused at {first_at}, when {current_token} was current{}.",
        repeated(times),
    );
    /// A worker renewed a lease whose token had passed on; it was refused and stops.
    LateRenewalRefused = "late_renewal_refused" {
        first_at: Timestamp, last_at: Timestamp, times: u64, worker: NodeId, token: FencingToken,
        current_token: FencingToken,
    } => format!(
        "A late renewal of worker {worker} under token {token} was refused at {first_at}, when {current_token} was current{}.",
        repeated(times),
    );
    /// It completed.
    Completed = "completed" {
        at: Timestamp, attempt: u32, max_attempts: Option<u32>, token: FencingToken, worker: Option<NodeId>,
        took: Option<Span>,
    } => format!(
        "Completed at {at} in attempt {attempt}{}{}, under token {token}.",
        of_most(max_attempts), on_worker(worker.as_ref()),
    );
    /// A cancel was asked for, and the completion committed first.
    CancelTooLate = "completed_before_cancel" {
        at: Timestamp,
    } => "It was asked to stop while it ran; the completion committed first, and counts.";
    /// The deadline of the whole of it passed.
    DeadlinePassed = "deadline_passed" {
        at: Timestamp, after_due: Span,
    } => format!("Its deadline, {} after it was due, passed at {at}.", in_words(after_due));
    /// It was given up and kept as a dead letter; `reason` says by which rule.
    DeadLettered = "dead_lettered" {
        at: Timestamp, reason: DeadLetterReason, attempts: u32, max_attempts: Option<u32>, rescues: u32,
        max_rescues: Option<u32>, lost_starts: u32, max_lost_starts: Option<u32>, max_age: Option<Span>,
        error: Option<Arc<str>>,
    } => format!(
        "Dead-lettered at {at}: {}{}.",
        match reason {
            DeadLetterReason::NonRetryable => format!("attempt {attempts} failed with an error that says trying again is pointless"),
            DeadLetterReason::Exhausted => format!("all attempts are used up ({attempts}{})", of_most(max_attempts)),
            DeadLetterReason::TooOld => format!(
                "after attempt {attempts} the next would have come later than its job retries{}",
                max_age.map(|age| format!(" ({} after it was due)", in_words(age))).unwrap_or_default(),
            ),
            DeadLetterReason::RescuesSpent => format!(
                "it took too many workers with it ({rescues}{} after a sign of a start, {lost_starts}{} without)",
                of_most(max_rescues), of_most(max_lost_starts),
            ),
            DeadLetterReason::Deadline => format!(
                "its deadline left it no time for more (after {})", many(attempts, "failed attempt"),
            ),
        },
        quoted(error.as_ref()),
    );
    /// It was given up, and its job keeps no dead letters; which rule it was is not recorded, the likely one is told.
    Failed = "failed_without_dead_letter" {
        at: Timestamp, likely_reason: DeadLetterReason, attempts: u32, rescues: u32, lost_starts: u32,
        error: Option<Arc<str>>,
    } => format!(
        "Failed at {at}; its job keeps no dead letters, and the reason was most likely {likely_reason}{}.",
        quoted(error.as_ref()),
    );
    /// It asked for its first lease while another of its job held the slot, and its overlap policy passed it over.
    SkippedOverlap = "skipped_overlap" {
        at: Timestamp, overlap: Option<Overlap>, job_version: JobVersion,
    } => format!(
        "Skipped at {at}: another execution of its job was under way, and {} of version {} passed it over.",
        overlap.map_or("the overlap policy".to_owned(), |overlap| format!("the overlap policy {overlap}")),
        job_version.0,
    );
    /// It was cancelled before any worker had it.
    CancelledPending = "cancelled_while_pending" {
        at: Timestamp, with_its_job: bool,
    } => format!("Cancelled at {at} before it ran{}.", with_job(with_its_job));
    /// It was cancelled between two runs.
    CancelledBetween = "cancelled_between_runs" {
        at: Timestamp, attempts: u32, with_its_job: bool,
    } => format!("Cancelled at {at} while no worker had it, after {}{}.", many(attempts, "failed attempt"), with_job(with_its_job));
    /// It was cancelled while it ran; `ended_by` says how the run ended.
    CancelledRunning = "cancelled_while_running" {
        at: Timestamp, token: FencingToken, ended_by: StopEnd,
    } => format!("Cancelled at {at}: it was asked to stop while it ran, and {}.", match ended_by {
        StopEnd::Stopped => "its worker stopped the handler",
        StopEnd::LeaseLapsed => "its lease lapsed before its worker answered",
        StopEnd::Failure => "its attempt failed instead",
        StopEnd::GivenBack => "its worker gave it back",
        StopEnd::NotRecorded => "its run ended",
    });
});

fn followed(rule: Rule, delay: Option<Span>) -> String {
    let later = delay.map(|delay| format!(" {} later", in_words(delay))).unwrap_or_default();
    match rule {
        Rule::Backoff => format!("by the backoff another was due{later}"),
        Rule::RetryAfter => format!("its target asked for another{later}"),
        Rule::BackoffOrRetryAfter => {
            format!("another was due{later} by the backoff, unless its target named another time")
        }
        Rule::Rescue => format!("by the rescue delay another was due{later}"),
        Rule::GivenBack => "another was due at once".to_owned(),
        Rule::Cancel => "a cancel had been asked for, so none followed".to_owned(),
        Rule::GivenUp => "none followed".to_owned(),
        Rule::NotRecorded => "another was to follow, when is not recorded".to_owned(),
    }
}

const fn budget_in_words(budget: Option<LossBudget>) -> &'static str {
    match budget {
        Some(LossBudget::Rescues) => "a rescue",
        Some(LossBudget::LostStarts) => "a lost start",
        None => "a rescue or a lost start",
    }
}

fn repeated(times: u64) -> String {
    if times == 1 { String::new() } else { format!(", and {} times more", times - 1) }
}

const fn with_job(with_its_job: bool) -> &'static str {
    if with_its_job { ", with its job" } else { "" }
}

/// Whether a statement is about somebody whose authority had passed on, and not about the execution.
pub(super) fn is_aside(statement: &Statement) -> bool {
    ["late_result_refused", "late_renewal_refused", "completed_before_cancel"].contains(&statement.code)
}

/// All of it, oldest first.
pub(super) fn of(facts: &ExecutionFacts) -> Vec<Statement> {
    let row = &facts.execution;
    let flexed = flexed(facts).map(|flexed| (row.materialised_at, Statement::from(flexed)));
    let birth = (row.materialised_at, Statement::from(birth(facts)));
    let prioritised = prioritised(facts).map(|told| (row.materialised_at, Statement::from(told)));
    let mut told: Vec<(Timestamp, Statement)> =
        flexed.into_iter().chain([birth]).chain(prioritised).collect();
    if facts.attempts.len() > EXPLAINED_RUNS_MAX {
        let shown = u32::try_from(EXPLAINED_RUNS_MAX).unwrap_or(u32::MAX);
        told.push((row.materialised_at, Past::EarlierLeftOut { shown }.into()));
    }
    let latest = facts.attempts.len().saturating_sub(EXPLAINED_RUNS_MAX);
    for (index, attempt) in facts.attempts.iter().enumerate().skip(latest) {
        let place = if index + 1 == facts.attempts.len() { Place::Latest } else { Place::Earlier };
        told.push((attempt.at, run(facts, attempt, place).into()));
    }
    let ended_at = row.finished_at.unwrap_or(facts.now);
    if let Some(at) = row.deadline_at.filter(|at| *at <= ended_at) {
        told.push((at, Past::DeadlinePassed { at, after_due: at.since(row.due_at) }.into()));
    }
    told.extend(facts.refusals.iter().filter_map(|refusal| Some((refusal.first_at, late(refusal)?.into()))));
    told.sort_by_key(|(at, _)| *at);
    // Its end comes after its runs, also where a run and the end bear the same instant.
    if let (Some(at), Some(end)) = (row.finished_at, end(facts)) {
        let after = told.iter().position(|(told_at, told)| *told_at > at && is_aside(told));
        told.insert(after.unwrap_or(told.len()), (at, end.into()));
        if row.state == ExecutionState::Completed && row.cancel == CancelState::Requested {
            told.push((at, Past::CancelTooLate { at }.into()));
        }
    }
    told.into_iter().map(|(_, statement)| statement).collect()
}

/// That its fire was moved, and by how much.
fn flexed(facts: &ExecutionFacts) -> Option<Past> {
    let row = &facts.execution;
    let fire = match row.occurrence {
        Occurrence::Scheduled { fire } => Some(fire).filter(|fire| *fire < row.due_at)?,
        Occurrence::Manual { .. } | Occurrence::Replay { .. } => return None,
    };
    let flex = definition(facts).map(|definition| definition.flex);
    Some(Past::Flexed { fire, due_at: row.due_at, into: row.due_at.since(fire), flex })
}

/// That it has another priority than normal.
fn prioritised(facts: &ExecutionFacts) -> Option<Past> {
    let priority = definition(facts)?.priority;
    (!priority.is_normal()).then_some(Past::Prioritised { priority })
}

fn birth(facts: &ExecutionFacts) -> Past {
    let row = &facts.execution;
    let (at, due_at, job_version, token) = (row.materialised_at, row.due_at, row.job_version, row.made_under);
    if row.skip_reason.is_some_and(|reason| reason != SkipReason::Overlap) {
        let grace = definition(facts).map(|definition| definition.grace());
        return Past::SkippedMisfire { at, due_at, late: at.since(due_at), grace, job_version, token };
    }
    match &row.occurrence {
        Occurrence::Scheduled { .. } => {
            Past::Materialised { at, due_at, late: at.since(due_at), job_version, token }
        }
        Occurrence::Manual { key } => Past::Triggered { at, key: key.clone(), job_version },
        Occurrence::Replay { origin, number } => {
            Past::Replayed { at, origin: *origin, number: *number, job_version }
        }
    }
}

/// Where a run stands among those that did not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Others came after it.
    Earlier,
    /// It is the last.
    Latest,
}

fn policy(facts: &ExecutionFacts) -> Option<&RetryPolicy> {
    definition(facts).map(|definition| &definition.retry)
}

fn run(facts: &ExecutionFacts, run: &AttemptRow, place: Place) -> Past {
    let AttemptRow { token, node: worker, attempt, at, .. } = *run;
    let error = run.error.clone();
    let max_attempts = policy(facts).map(|policy| policy.max_attempts);
    match run.end {
        AttemptEnd::FailedRetryably => {
            let (rule, delay) = after_failure(facts, run, place);
            Past::AttemptFailed { at, attempt, max_attempts, token, worker, error, rule, delay }
        }
        AttemptEnd::FailedForGood => {
            Past::AttemptFailedForGood { at, attempt, max_attempts, token, worker, error }
        }
        AttemptEnd::Released => Past::GivenBack { at, attempt, token, worker },
        AttemptEnd::Cancelled => Past::Stopped { at, attempt, token, worker },
        AttemptEnd::Lost => {
            let (rule, delay) = after_loss(facts, run, place);
            let budget = match (facts.execution.rescues, facts.execution.lost_starts) {
                (0, _) => Some(LossBudget::LostStarts),
                (_, 0) => Some(LossBudget::Rescues),
                (_, _) => None,
            };
            Past::WorkerLost { at, attempt, token, worker, budget, rule, delay }
        }
    }
}

/// When a run was to be followed by another, if the execution still waits for that.
fn stored_delay(row: &ExecutionRow, run: &AttemptRow, place: Place) -> Option<Span> {
    let waits = place == Place::Latest && row.state == ExecutionState::RetryWait && row.token == run.token;
    row.next_try_at.filter(|_| waits).map(|at| at.since(run.at))
}

/// By which rule a retryable failure was followed, and after how long.
pub(super) fn after_failure(facts: &ExecutionFacts, run: &AttemptRow, place: Place) -> (Rule, Option<Span>) {
    let row = &facts.execution;
    let was_the_end = place == Place::Latest && row.token == run.token;
    if was_the_end && row.state == ExecutionState::Cancelled && row.cancel == CancelState::Requested {
        return (Rule::Cancel, None);
    }
    let backoff = policy(facts).map(|policy| retry::backoff(policy, row.id, run.attempt));
    match (stored_delay(row, run, place), backoff) {
        (Some(stored), Some(backoff)) if stored == backoff => (Rule::Backoff, Some(stored)),
        (Some(stored), Some(_)) => (Rule::RetryAfter, Some(stored)),
        (Some(stored), None) => (Rule::BackoffOrRetryAfter, Some(stored)),
        (None, Some(backoff)) => (Rule::BackoffOrRetryAfter, Some(backoff)),
        (None, None) => (Rule::NotRecorded, None),
    }
}

/// By which rule a loss was followed, and after how long.
pub(super) fn after_loss(facts: &ExecutionFacts, run: &AttemptRow, place: Place) -> (Rule, Option<Span>) {
    let row = &facts.execution;
    let was_the_end = place == Place::Latest && row.token == run.token;
    match row.state {
        ExecutionState::Cancelled if was_the_end && row.cancel == CancelState::Requested => {
            (Rule::Cancel, None)
        }
        ExecutionState::DeadLettered | ExecutionState::Failed if was_the_end => (Rule::GivenUp, None),
        ExecutionState::Pending
        | ExecutionState::Running
        | ExecutionState::RetryWait
        | ExecutionState::Completed
        | ExecutionState::DeadLettered
        | ExecutionState::Failed
        | ExecutionState::Cancelled
        | ExecutionState::Skipped => {
            let delay =
                stored_delay(row, run, place).unwrap_or_else(|| retry::rescue_delay(losses(facts, run)));
            (Rule::Rescue, Some(delay))
        }
    }
}

/// How many leases had been lost with this one: those in all but those of later tokens.
fn losses(facts: &ExecutionFacts, run: &AttemptRow) -> u32 {
    let later =
        facts.attempts.iter().filter(|other| other.end == AttemptEnd::Lost && other.token > run.token);
    let all = facts.execution.rescues.saturating_add(facts.execution.lost_starts);
    all.saturating_sub(u32::try_from(later.count()).unwrap_or(u32::MAX))
}

fn late(refusal: &RefusalRow) -> Option<Past> {
    let RefusalRow { first_at, last_at, count: times, node: worker, token, current, .. } = *refusal;
    let current_token = current;
    match refusal.action {
        RefusedAction::Finish => {
            Some(Past::LateResultRefused { first_at, last_at, times, worker, token, current_token })
        }
        RefusedAction::RenewExecution => {
            Some(Past::LateRenewalRefused { first_at, last_at, times, worker, token, current_token })
        }
        RefusedAction::RenewLease
        | RefusedAction::Materialise
        | RefusedAction::Promote
        | RefusedAction::Repair => None,
    }
}

/// How it ended. `None` while it has not, or where its birth was its end.
fn end(facts: &ExecutionFacts) -> Option<Past> {
    let row = &facts.execution;
    let at = row.finished_at?;
    let max_attempts = policy(facts).map(|policy| policy.max_attempts);
    match row.state {
        ExecutionState::Pending | ExecutionState::Running | ExecutionState::RetryWait => None,
        ExecutionState::Skipped => {
            let overlap = definition(facts).map(|definition| definition.overlap);
            let job_version = row.job_version;
            let is_overlap = row.skip_reason == Some(SkipReason::Overlap);
            is_overlap.then_some(Past::SkippedOverlap { at, overlap, job_version })
        }
        ExecutionState::Completed => Some(Past::Completed {
            at,
            attempt: row.attempts.saturating_add(1),
            max_attempts,
            token: row.token,
            worker: row.nonce_node,
            took: row.started_at.map(|started| at.since(started)),
        }),
        ExecutionState::DeadLettered => {
            let letter = facts.dead_letter.as_ref()?;
            Some(Past::DeadLettered {
                at: letter.at,
                reason: letter.reason,
                attempts: letter.attempts,
                max_attempts,
                rescues: letter.rescues,
                max_rescues: policy(facts).map(|policy| policy.max_rescues),
                lost_starts: letter.lost_starts,
                max_lost_starts: policy(facts).map(|policy| policy.max_lost_starts),
                max_age: policy(facts).and_then(|policy| policy.max_age),
                error: letter.error.clone(),
            })
        }
        ExecutionState::Failed => Some(Past::Failed {
            at,
            likely_reason: likely_reason(facts),
            attempts: row.attempts,
            rescues: row.rescues,
            lost_starts: row.lost_starts,
            error: row.error.clone(),
        }),
        ExecutionState::Cancelled => Some(cancelled(facts, at)),
    }
}

/// What the policy says of the last run. Where that would have gone on, its error must have said that it is pointless.
fn likely_reason(facts: &ExecutionFacts) -> DeadLetterReason {
    let row = &facts.execution;
    let left = row.deadline_at.map(|at| at.since(row.finished_at.unwrap_or(facts.now)));
    if left == Some(Span::ZERO) {
        return DeadLetterReason::Deadline;
    }
    let Some(last) = facts.attempts.last() else { return DeadLetterReason::NonRetryable };
    let (policy, _) = facts.definition.retry_or_default();
    let verdict = match last.end {
        AttemptEnd::Lost => return DeadLetterReason::RescuesSpent,
        AttemptEnd::FailedRetryably
        | AttemptEnd::FailedForGood
        | AttemptEnd::Released
        | AttemptEnd::Cancelled => {
            retry::after_failure(&policy, row.id, last.attempt, last.at.since(row.due_at), None)
        }
    };
    match retry::within_deadline(verdict, left) {
        Verdict::GiveUp(reason) => reason,
        Verdict::RetryIn(_) => DeadLetterReason::NonRetryable,
    }
}

fn cancelled(facts: &ExecutionFacts, at: Timestamp) -> Past {
    let row = &facts.execution;
    // A delete and what it cancels bear one instant.
    let with_its_job = facts.job.state == JobState::Deleted && facts.job.effective_from == at;
    match (row.cancel, row.token) {
        (CancelState::Requested, token) => {
            let ended_by = match facts.attempts.last().filter(|run| run.token == token).map(|run| run.end) {
                Some(AttemptEnd::Cancelled) => StopEnd::Stopped,
                Some(AttemptEnd::Lost) => StopEnd::LeaseLapsed,
                Some(AttemptEnd::FailedRetryably | AttemptEnd::FailedForGood) => StopEnd::Failure,
                Some(AttemptEnd::Released) => StopEnd::GivenBack,
                None => StopEnd::NotRecorded,
            };
            Past::CancelledRunning { at, token, ended_by }
        }
        (CancelState::None, FencingToken::NEVER) => Past::CancelledPending { at, with_its_job },
        (CancelState::None, _) => Past::CancelledBetween { at, attempts: row.attempts, with_its_job },
    }
}
