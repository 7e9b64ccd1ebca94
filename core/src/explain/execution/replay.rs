//! Whether an execution may be replayed, what that would do, and if not, why.
//!
//! A replay is a new execution linked to its origin: its id follows from the dead letter and a number, so making the
//! same one twice makes one; it carries its origin's key, and its tokens start above its origin's.

use std::sync::Arc;

use crate::execution::{DeadLetterReason, ExecutionState};
use crate::explain::facts::ExecutionFacts;
use crate::explain::statement::{Statement, statements};
use crate::fencing::FencingToken;
use crate::id::ExecutionId;
use crate::replay::{self, NotReplayable, Readability};

statements!("execution/replay",
/// Whether an execution may be replayed.
Replay {
    /// It may be replayed, by a new execution that carries the same key.
    Possible = "replay_possible" {
        reason: DeadLetterReason, key: Arc<str>, tokens_above: FencingToken, origin: ExecutionId, number: u32,
        execution_id: ExecutionId, replays_so_far: u32,
    } => format!(
        "It may be replayed: replay {number} would be the execution {execution_id}, linked to this one, with the same key {key} and tokens above {tokens_above}. That is safe as far as the handler or its target recognises the key: what an earlier attempt may have done is then not done twice.",
    );
    /// It has not ended: whatever is to come of it comes by itself.
    NotEnded = "replay_not_ended" {
        state: ExecutionState,
    } => format!("It is not replayable: it has not ended ({state}).");
    /// It completed: there is nothing to be made good.
    Completed = "replay_completed" {} => "It is not replayable: it completed. To run the job again, trigger it.";
    /// It was cancelled, which somebody wanted.
    Cancelled = "replay_cancelled" {} => "It is not replayable: it was cancelled. To run the job again, trigger it.";
    /// It was skipped: nothing of it ran.
    Skipped = "replay_skipped" {} => "It is not replayable: it was skipped, so there is no dead letter of it.";
    /// Its job keeps no dead letters.
    NoDeadLetters = "replay_no_dead_letters" {} => "It is not replayable: its job keeps no dead letters. To run the job again, trigger it.";
    /// Something stands in the way.
    Refused = "replay_refused" {
        reason: NotReplayable,
    } => match reason {
        NotReplayable::Purged => "It is not replayable: its dead letter was purged.",
        NotReplayable::JobDeleted => "It is not replayable: its job was deleted.",
        NotReplayable::UnreadableDefinition => "It is not replayable: this version cannot read the definition that it was made under.",
    };
    /// Its dead letter is not there any more.
    NoRecord = "replay_no_record" {} => "It is not replayable: its dead letter is not there any more.";
});

/// The one thing to be said.
pub(super) fn of(facts: &ExecutionFacts) -> Statement {
    let row = &facts.execution;
    let state = row.state;
    match (state, &facts.dead_letter) {
        (ExecutionState::Pending | ExecutionState::Running | ExecutionState::RetryWait, _) => {
            Replay::NotEnded { state }
        }
        (ExecutionState::Completed, _) => Replay::Completed {},
        (ExecutionState::Cancelled, _) => Replay::Cancelled {},
        (ExecutionState::Skipped, _) => Replay::Skipped {},
        (ExecutionState::Failed, _) => Replay::NoDeadLetters {},
        (ExecutionState::DeadLettered, None) => Replay::NoRecord {},
        (ExecutionState::DeadLettered, Some(letter)) => {
            let readability = match facts.definition.read() {
                Ok(_) => Readability::Readable,
                Err(_) => Readability::Unreadable,
            };
            let number = letter.replays.saturating_add(1);
            match replay::why_not(letter.purged_at, facts.job.state, readability) {
                Some(reason) => Replay::Refused { reason },
                None => Replay::Possible {
                    reason: letter.reason,
                    key: row.key.clone(),
                    tokens_above: row.token,
                    origin: row.id,
                    number,
                    execution_id: replay::execution_of(row.job, row.id, number),
                    replays_so_far: letter.replays,
                },
            }
        }
    }
    .into()
}
