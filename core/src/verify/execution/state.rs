//! The state of an execution: the traces of a legal way to it, nothing after an end, and a dispatch where one is needed.

use super::{Docket, ExecutionFacts, is_live};
use crate::execution::{AttemptEnd, ExecutionState};
use crate::job::DeadLetters;
use crate::time::Timestamp;
use crate::verify::Check;

const CHANGED: &str = "the row was changed past the scheduler's guards: find out who wrote it";
const AFTER_THE_END: &str = "something acted on it after its end: compare with what its target saw";
const STUCK: &str = "nobody will dispatch it: cancel it, and trigger its job where the work is still wanted";

pub(super) fn check(docket: &mut Docket<'_>, facts: &ExecutionFacts) {
    check_transition(docket, facts);
    check_end(docket, facts);
    check_dispatch(docket, facts);
}

/// Whether another run may follow a run that ended so.
const fn goes_on(end: AttemptEnd) -> bool {
    match end {
        AttemptEnd::FailedRetryably | AttemptEnd::Released | AttemptEnd::Lost => true,
        AttemptEnd::FailedForGood | AttemptEnd::Cancelled => false,
    }
}

fn check_transition(docket: &mut Docket<'_>, facts: &ExecutionFacts) {
    docket.look(Check::LegalTransition);
    let row = &facts.execution;
    if let Some(missing) = missing_trace(facts) {
        docket.broke(Check::LegalTransition, format!("it is {}, and {missing}", row.state), CHANGED);
    }
    let is_skipped = row.state == ExecutionState::Skipped;
    if is_skipped != row.skip_reason.is_some() {
        let what = format!("it is {}, and its reason for being skipped is {:?}", row.state, row.skip_reason);
        docket.broke(Check::LegalTransition, what, CHANGED);
    }
    let ended = facts.attempts.iter().find(|attempt| attempt.token < row.token && !goes_on(attempt.end));
    if let Some(ended) = ended {
        let what = format!("its run {} ended as {}, and another followed", ended.token, ended.end);
        docket.broke(Check::LegalTransition, what, CHANGED);
    }
}

/// The trace that every legal way to its state leaves, and that is not there.
fn missing_trace(facts: &ExecutionFacts) -> Option<String> {
    let row = &facts.execution;
    let was_leased = row.leased_at.is_some();
    let end = facts.latest_end().map(|attempt| attempt.end);
    let of_latest = |may: &[AttemptEnd]| match end {
        Some(end) if may.contains(&end) => None,
        Some(end) => Some(format!("its latest run, {}, ended as {end}", row.token)),
        None => Some(format!("no end of its latest run, {}, is on record", row.token)),
    };
    let never_leased = || (!was_leased).then(|| "it was never leased".to_owned());
    let unfinished = |end: Option<AttemptEnd>| {
        end.map(|end| format!("its latest run, {}, is on record to have ended as {end}", row.token))
    };
    const GOING_ON: [AttemptEnd; 3] = [AttemptEnd::FailedRetryably, AttemptEnd::Released, AttemptEnd::Lost];
    const GIVEN_UP: [AttemptEnd; 2] = [AttemptEnd::FailedForGood, AttemptEnd::Lost];
    const CALLED_OFF: [AttemptEnd; 4] =
        [AttemptEnd::FailedRetryably, AttemptEnd::Released, AttemptEnd::Cancelled, AttemptEnd::Lost];
    let is_overdue = row.deadline_at.zip(row.finished_at).is_some_and(|(at, ended)| at <= ended);
    let ended_waiting =
        is_overdue && end.is_none_or(|end| GOING_ON.contains(&end)) && was_leased == end.is_some();
    match row.state {
        ExecutionState::Pending if was_leased => of_latest(&GOING_ON),
        ExecutionState::Pending => None,
        ExecutionState::Running => never_leased()
            .or_else(|| row.owner.is_none().then(|| "nobody holds its lease".to_owned()))
            .or_else(|| unfinished(end)),
        ExecutionState::RetryWait => never_leased()
            .or_else(|| of_latest(&GOING_ON))
            .or_else(|| row.next_try_at.is_none().then(|| "it waits for no time".to_owned())),
        ExecutionState::Completed => never_leased().or_else(|| unfinished(end)),
        // Past its deadline what waits is ended, whatever it had been through.
        ExecutionState::DeadLettered if ended_waiting => {
            kept_as(facts, DeadLetters::Off, "its job keeps no dead letters")
        }
        ExecutionState::Failed if ended_waiting => {
            kept_as(facts, DeadLetters::On, "its job keeps dead letters")
        }
        ExecutionState::DeadLettered => never_leased()
            .or_else(|| of_latest(&GIVEN_UP))
            .or_else(|| kept_as(facts, DeadLetters::Off, "its job keeps no dead letters")),
        ExecutionState::Failed => never_leased()
            .or_else(|| of_latest(&GIVEN_UP))
            .or_else(|| kept_as(facts, DeadLetters::On, "its job keeps dead letters")),
        ExecutionState::Cancelled if was_leased => of_latest(&CALLED_OFF),
        ExecutionState::Cancelled => None,
        ExecutionState::Skipped => was_leased.then(|| "it was leased".to_owned()),
    }
}

/// Of a definition that this version cannot read it is not known whether dead letters are kept.
fn kept_as(facts: &ExecutionFacts, wrong: DeadLetters, words: &str) -> Option<String> {
    let definition = facts.definition.as_ref()?.read().ok()?;
    (definition.dead_letter == wrong).then(|| words.to_owned())
}

fn check_end(docket: &mut Docket<'_>, facts: &ExecutionFacts) {
    let row = &facts.execution;
    if is_live(row.state) {
        if let Some(at) = row.finished_at {
            let what = format!("it is {}, and it had ended at {at}", row.state);
            docket.broke(Check::TerminalAbsorbs, what, AFTER_THE_END);
        }
        return;
    }
    docket.look(Check::TerminalAbsorbs);
    let holds = row.owner.is_some() || row.expires_at != Timestamp::EPOCH;
    if holds || row.next_try_at.is_some() || row.waiting.is_some() {
        let what = format!("it has ended as {}, and still holds a lease or waits for something", row.state);
        docket.broke(Check::TerminalAbsorbs, what, AFTER_THE_END);
    }
    let Some(finished_at) = row.finished_at else {
        if row.state != ExecutionState::Skipped {
            let what = format!("it has ended as {}, and no end is stamped", row.state);
            docket.broke(Check::TerminalAbsorbs, what, AFTER_THE_END);
        }
        return;
    };
    // Runs before the last ended before it, whatever the clock said; the last ended by the command that stamped the end.
    for attempt in facts.attempts.iter().filter(|attempt| attempt.at > finished_at) {
        if attempt.token < row.token {
            docket.clock_was_set_back(attempt.at, finished_at);
        } else {
            let what = format!(
                "it ended as {} at {finished_at}, and its run {} at {}",
                row.state, attempt.token, attempt.at
            );
            docket.broke(Check::TerminalAbsorbs, what, AFTER_THE_END);
        }
    }
}

fn check_dispatch(docket: &mut Docket<'_>, facts: &ExecutionFacts) {
    let row = &facts.execution;
    if row.state == ExecutionState::Pending {
        docket.look(Check::AtomicDispatch);
        let waits = row.waiting.is_some() && row.next_try_at.is_some();
        let is_dispatched = row.waiting.is_none() && row.dispatched_at.is_some() && row.dispatch_no.0 >= 1;
        if !waits && !is_dispatched {
            let what = format!(
                "it is pending with the reason {:?} until {:?}, dispatched at {:?} as number {}",
                row.waiting, row.next_try_at, row.dispatched_at, row.dispatch_no.0
            );
            docket.broke(Check::AtomicDispatch, what, STUCK);
        }
    }
    for outbox in &facts.outbox {
        docket.look(Check::AtomicDispatch);
        let is_latest = outbox.dispatch_no == row.dispatch_no;
        if is_latest && row.waiting.is_none() && row.dispatched_at != Some(outbox.created_at) {
            let what = format!(
                "its latest outbox row was committed at {}, and it was last dispatched at {:?}",
                outbox.created_at, row.dispatched_at
            );
            docket.broke(Check::AtomicDispatch, what, CHANGED);
        }
        let is_its_own = (1..=row.dispatch_no.0).contains(&outbox.dispatch_no.0)
            && outbox.tenant == row.tenant
            && outbox.partition == row.partition;
        if !is_its_own {
            let what = format!(
                "it was dispatched {} times, and has an outbox row with number {} of tenant {} in {}",
                row.dispatch_no.0, outbox.dispatch_no.0, outbox.tenant, outbox.partition
            );
            docket.broke(Check::AtomicDispatch, what, CHANGED);
        }
    }
}
