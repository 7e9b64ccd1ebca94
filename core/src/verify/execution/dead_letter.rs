//! The dead letter of an execution: there exactly when it was dead-lettered, and with the replays that it counts.

use super::{Docket, ExecutionFacts};
use crate::execution::ExecutionState;
use crate::verify::Check;

const RECORD: &str = "the record was made, changed or deleted past the scheduler: compare with a backup";
const REPLAYED: &str = "compare the replays with what their target saw: one of them may have run twice";

pub(super) fn check(docket: &mut Docket<'_>, facts: &ExecutionFacts) {
    let row = &facts.execution;
    let is_dead = row.state == ExecutionState::DeadLettered;
    if is_dead || facts.dead_letter.is_some() {
        docket.look(Check::DeadLetterOnce);
    }
    let Some(letter) = &facts.dead_letter else {
        if is_dead {
            let what = "it is dead-lettered, and has no record".to_owned();
            docket.broke(Check::DeadLetterOnce, what, RECORD);
        } else if !facts.replays.is_empty() {
            let what = format!("it is {}, and {} replays of it are there", row.state, facts.replays.len());
            docket.broke(Check::DeadLetterOnce, what, REPLAYED);
        }
        return;
    };
    if !is_dead {
        let what = format!("it is {}, and has a dead-letter record", row.state);
        docket.broke(Check::DeadLetterOnce, what, RECORD);
        return;
    }
    let belongs = letter.job == row.job && letter.tenant == row.tenant;
    let counts_the_same =
        (letter.attempts, letter.rescues, letter.lost_starts) == (row.attempts, row.rescues, row.lost_starts);
    if !belongs || !counts_the_same {
        let what = format!(
            "its record counts {} attempts, {} rescues and {} lost starts for job {} of tenant {}; it has {}, {} and {}",
            letter.attempts,
            letter.rescues,
            letter.lost_starts,
            letter.job,
            letter.tenant,
            row.attempts,
            row.rescues,
            row.lost_starts
        );
        docket.broke(Check::DeadLetterOnce, what, RECORD);
    }
    if letter.purged_at.is_some() && letter.error.is_some() {
        let what = "its record was purged, and still holds its error".to_owned();
        docket.broke(Check::DeadLetterOnce, what, RECORD);
    }
    check_replays(docket, facts, letter.replays, letter.purged_at);
}

fn check_replays(
    docket: &mut Docket<'_>,
    facts: &ExecutionFacts,
    counted: u32,
    purged_at: Option<crate::time::Timestamp>,
) {
    if !facts.replays.iter().map(|replay| replay.number).eq(1..=counted) {
        let numbers: Vec<u32> = facts.replays.iter().map(|replay| replay.number).collect();
        let what = format!("its record counts {counted} replays, and those that are there are {numbers:?}");
        docket.broke(Check::DeadLetterOnce, what, REPLAYED);
    }
    let late = facts.replays.iter().find(|replay| purged_at.is_some_and(|at| replay.materialised_at > at));
    if let Some(late) = late {
        let what = format!(
            "it was purged, and replay {} was made after that, at {}",
            late.number, late.materialised_at
        );
        docket.broke_by_clock(Check::DeadLetterOnce, what, REPLAYED);
    }
}
