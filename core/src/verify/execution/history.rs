//! What the runs of an execution left behind: their tokens rise one by one, and its counters are those of their ends.

use super::{Docket, ExecutionFacts, is_live};
use crate::execution::AttemptEnd;
use crate::fencing::FencingToken;
use crate::verify::Check;

const RECOUNT: &str =
    "a run was started or forgotten past the scheduler: compare with the logs of its workers";
const SPENT: &str = "it ran more often than its job allows: compare with the definition of its version";

pub(super) fn check(docket: &mut Docket<'_>, facts: &ExecutionFacts) {
    check_tokens(docket, facts);
    check_counters(docket, facts);
    check_budgets(docket, facts);
    check_deadline(docket, facts);
}

/// The deadline is that of its version, and its latest lease is from before it.
fn check_deadline(docket: &mut Docket<'_>, facts: &ExecutionFacts) {
    let row = &facts.execution;
    let definition = facts.definition.as_ref().filter(|definition| definition.read().is_ok());
    let expected = definition.map(|definition| definition.deadline_of(row.due_at));
    if expected.is_some_and(|expected| expected != row.deadline_at) {
        let what =
            format!("its deadline is {:?}, and by its version {:?}", row.deadline_at, expected.flatten());
        docket.broke(Check::AttemptBounds, what, SPENT);
    }
    // The stamp of a lease may lie ahead of the clock that granted it, where that was set back; it is flagged then.
    if let (Some(at), Some(leased_at)) = (row.deadline_at, row.leased_at)
        && leased_at >= at
        && !row.lag_clamped
    {
        let what = format!("it was leased at {leased_at}, and its deadline was {at}");
        docket.broke(Check::AttemptBounds, what, SPENT);
    }
}

fn check_tokens(docket: &mut Docket<'_>, facts: &ExecutionFacts) {
    docket.look(Check::TokenMonotone);
    let row = &facts.execution;
    let tokens: Vec<FencingToken> = facts.attempts.iter().map(|attempt| attempt.token).collect();
    for pair in facts.attempts.windows(2).filter(|pair| pair[0].at > pair[1].at) {
        docket.clock_was_set_back(pair[0].at, pair[1].at);
    }
    let mut broke = |what: String| docket.broke(Check::TokenMonotone, what, RECOUNT);
    if let Some(pair) = tokens.windows(2).find(|pair| pair[0].next() != Some(pair[1])) {
        broke(format!("the run {} is followed by {} on record", pair[0], pair[1]));
    }
    if let Some(last) = tokens.last().filter(|last| **last != row.token && last.next() != Some(row.token)) {
        broke(format!("its token is {}, and its latest run on record {last}", row.token));
    }
    // A replay begins above the tokens of its origin and of the replays before it; which those were then is not on
    // record.
    let floor = match &facts.origin {
        Some(origin) => origin.token,
        None => FencingToken::NEVER,
    };
    let first = match tokens.first() {
        Some(first) => *first,
        None if row.leased_at.is_some() => row.token,
        None if facts.is_replay() && row.token >= floor => return,
        None if row.token == FencingToken::NEVER => return,
        None => {
            broke(format!("its token is {}, and it was never leased", row.token));
            return;
        }
    };
    let begins_right = if facts.is_replay() { first > floor } else { Some(first) == floor.next() };
    if !begins_right {
        broke(format!("its first run has the token {first}, and it was made with {floor}"));
    }
}

fn check_counters(docket: &mut Docket<'_>, facts: &ExecutionFacts) {
    docket.look(Check::AttemptBounds);
    let row = &facts.execution;
    let (mut failed, mut lost) = (0, 0);
    let mut misnumbered = None;
    for attempt in &facts.attempts {
        if attempt.attempt != failed + 1 {
            misnumbered = misnumbered.or(Some(attempt));
        }
        match attempt.end {
            AttemptEnd::FailedRetryably | AttemptEnd::FailedForGood => failed += 1,
            AttemptEnd::Lost => lost += 1,
            AttemptEnd::Released | AttemptEnd::Cancelled => {}
        }
    }
    if row.attempts != failed || row.rescues.saturating_add(row.lost_starts) != lost {
        let what = format!(
            "it counts {} attempts, {} rescues and {} lost starts; on record are {failed} failures and {lost} losses",
            row.attempts, row.rescues, row.lost_starts
        );
        docket.broke(Check::AttemptBounds, what, RECOUNT);
    } else if let Some(attempt) = misnumbered {
        let what = format!("its run {} is on record as attempt {}", attempt.token, attempt.attempt);
        docket.broke(Check::AttemptBounds, what, RECOUNT);
    }
}

fn check_budgets(docket: &mut Docket<'_>, facts: &ExecutionFacts) {
    let row = &facts.execution;
    // A version that is not there is the business of another check.
    let Some(stored) = &facts.definition else { return };
    let Ok(definition) = stored.read() else {
        let what = "the definition of its version cannot be read by this version of the program".to_owned();
        docket.cannot_compare(Check::AttemptBounds, what, "run the verification of a version that can");
        return;
    };
    let policy = &definition.retry;
    // What makes a budget spent is itself counted.
    let within = row.attempts <= policy.max_attempts
        && row.rescues <= policy.max_rescues.saturating_add(1)
        && row.lost_starts <= policy.max_lost_starts.saturating_add(1);
    let has_left = row.attempts < policy.max_attempts
        && row.rescues <= policy.max_rescues
        && row.lost_starts <= policy.max_lost_starts;
    if within && (has_left || !is_live(row.state)) {
        return;
    }
    let what = format!(
        "it is {} after {} attempts, {} rescues and {} lost starts; its version allows {}, {} and {}",
        row.state,
        row.attempts,
        row.rescues,
        row.lost_starts,
        policy.max_attempts,
        policy.max_rescues,
        policy.max_lost_starts
    );
    docket.broke(Check::AttemptBounds, what, SPENT);
}
