//! Dead letters after their death: one replay per number, of what is there and not purged, with the key and above
//! the tokens of its origin; and records that only a replay or a purge changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencepost_core::execution::ExecutionState;
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, Occurrence, TenantId};
use fencepost_core::replay::NotReplayable;
use fencepost_core::store::change::{Change, Delta};
use fencepost_core::store::command::{
    Command, PurgeDeadLetter, ReplayDeadLetter, ReplayDeadLetters, ReplayKey, ReplayNumber,
};
use fencepost_core::store::reply::{PageReplay, PurgeReply, ReplayPage, ReplayReply, Reply};
use fencepost_core::store::row::{DeadLetterRow, ExecutionRow, JobState};

use super::Commit;
use super::brief::Brief;
use super::invariant::Invariant;
use super::mirror::Mirror;
use crate::violation::Violation;

/// What is remembered of replays.
#[derive(Debug, Default)]
pub(super) struct Replays {
    /// What each request id made.
    requests: BTreeMap<(TenantId, Arc<str>), ExecutionId>,
}

/// What an operator's command asks of a replay: its number, if it says one, and its key.
fn asked(commit: &Commit<'_>, origin: ExecutionId) -> Option<(Option<u32>, ReplayKey)> {
    match commit.command {
        Command::ReplayDeadLetter(ask) if ask.origin == origin => match ask.number {
            ReplayNumber::Given(number) => Some((Some(number), ask.key)),
            ReplayNumber::Next(_) => Some((None, ask.key)),
        },
        // What has a replay already is in no page.
        Command::ReplayDeadLetters(ask) => Some((Some(1), ask.key)),
        _ => None,
    }
}

/// Checks the birth of a replay. The mirror is as before it.
pub(super) fn check_birth(
    commit: &Commit<'_>,
    mirror: &Mirror,
    row: &ExecutionRow,
    origin: ExecutionId,
    number: u32,
) -> Result<(), Violation> {
    let broke = |invariant: Invariant, what: &str| {
        Err(commit.broke(invariant, || format!("{} is replay {number} of {origin}, {what}", row.id)))
    };
    let Some((wanted, choice)) = asked(commit, origin) else {
        return broke(Invariant::UniqueOccurrence, "and nobody asked for it");
    };
    let letter = mirror.dead_letters.get(&origin);
    let (Some(letter), Some(source)) = (letter, mirror.executions.get(&origin)) else {
        return broke(Invariant::DeadLetterOnce, "which is no dead letter");
    };
    if letter.purged_at.is_some() {
        return broke(Invariant::DeadLetterOnce, "which was purged");
    }
    if wanted.is_some_and(|wanted| wanted != number) || number != letter.replays.saturating_add(1) {
        return broke(
            Invariant::UniqueOccurrence,
            &format!("after {} and asked for {wanted:?}", letter.replays),
        );
    }
    if mirror.jobs.get(&row.job).is_none_or(|job| job.state == JobState::Deleted) {
        return broke(Invariant::CancelFinal, "whose job is deleted");
    }
    let is_of_it = row.job == source.job
        && row.tenant == source.tenant
        && row.job_version == source.job_version
        && row.payload == source.payload;
    if !is_of_it {
        return broke(Invariant::Conservation, "and not of its job, version and payload");
    }
    let key = match choice {
        ReplayKey::Origin => source.key.to_string(),
        ReplayKey::Own => format!("{}/replay/{origin}/{number}", row.job),
    };
    if *row.key != *key {
        return broke(Invariant::EffectOncePerKey, &format!("with the key {}, not {key}", row.key));
    }
    let highest = highest_token(mirror, source);
    if row.token < highest {
        return broke(Invariant::TokenMonotone, &format!("from token {}, not {highest}", row.token));
    }
    Ok(())
}

/// The highest token of a dead letter and its replays.
fn highest_token(mirror: &Mirror, origin: &ExecutionRow) -> FencingToken {
    let replay = |number| Occurrence::Replay { origin: origin.id, number };
    let first = (origin.job, replay(0));
    let last = (origin.job, replay(u32::MAX));
    let replays = mirror.occurrences.range(first..=last).filter_map(|(_, id)| mirror.executions.get(id));
    replays.map(|row| row.token).fold(origin.token, FencingToken::max)
}

/// Checks that a record changed as a replay or a purge changes it. The mirror is as after the command.
pub(super) fn check_record(
    commit: &Commit<'_>,
    mirror: &Mirror,
    delta: &Delta<DeadLetterRow>,
) -> Result<(), Violation> {
    let lawful = match (&delta.before, &delta.after) {
        (None, Some(row)) => {
            let state = mirror.executions.get(&row.execution).map(|execution| execution.state);
            state == Some(ExecutionState::DeadLettered) && row.replays == 0 && row.purged_at.is_none()
        }
        (Some(before), Some(after)) => match commit.command {
            Command::PurgeDeadLetter(ask) => {
                let tombstone = DeadLetterRow { error: None, purged_at: Some(commit.now), ..before.clone() };
                ask.execution == after.execution && before.purged_at.is_none() && *after == tombstone
            }
            _ => {
                let number = before.replays.saturating_add(1);
                let replay = Occurrence::Replay { origin: before.execution, number };
                asked(commit, before.execution).is_some()
                    && *after == DeadLetterRow { replays: number, ..before.clone() }
                    && mirror.occurrences.contains_key(&(before.job, replay))
            }
        },
        (_, None) => false,
    };
    if lawful {
        return Ok(());
    }
    Err(commit.broke(Invariant::DeadLetterOnce, || {
        format!("{} made this of a dead letter's record: {}", commit.command.kind(), Brief(delta))
    }))
}

impl Replays {
    /// Checks that the rows are as the reply claims. The mirror is as after the command.
    pub(super) fn check_claims(
        &mut self,
        commit: &Commit<'_>,
        mirror: &Mirror,
        changes: &[Change],
    ) -> Result<(), Violation> {
        let is_true = match (commit.command, commit.reply) {
            (Command::ReplayDeadLetter(ask), Reply::DeadLetterReplayed(reply)) => {
                self.check_request(commit, ask, *reply)?;
                is_true_of_one(mirror, ask, *reply, changes)
            }
            (Command::ReplayDeadLetters(ask), Reply::DeadLettersReplayed(page)) => {
                is_true_of_page(mirror, ask, page, changes)
            }
            (Command::PurgeDeadLetter(ask), Reply::DeadLetterPurged(reply)) => {
                is_true_of_purge(commit, mirror, ask, *reply, changes)
            }
            _ => true,
        };
        if is_true {
            return Ok(());
        }
        Err(commit.broke(Invariant::Conservation, || {
            format!("{} was answered {:?}, and the rows say otherwise", commit.command.kind(), commit.reply)
        }))
    }

    /// A request id makes one replay, however often it is sent.
    fn check_request(
        &mut self,
        commit: &Commit<'_>,
        ask: &ReplayDeadLetter,
        reply: ReplayReply,
    ) -> Result<(), Violation> {
        let ReplayNumber::Next(asked) = &ask.number else { return Ok(()) };
        let (ReplayReply::Created { execution, .. } | ReplayReply::Repeated { execution, .. }) = reply else {
            return Ok(());
        };
        let known = *self.requests.entry((ask.tenant, Arc::clone(&asked.request))).or_insert(execution);
        if known == execution {
            return Ok(());
        }
        Err(commit.broke(Invariant::UniqueOccurrence, || {
            format!("the request {} made {known}, and sent again {execution}", asked.request)
        }))
    }
}

fn births(changes: &[Change]) -> impl Iterator<Item = &ExecutionRow> {
    changes.iter().filter_map(|change| match change {
        Change::Execution(delta) if delta.before.is_none() => delta.after.as_ref(),
        _ => None,
    })
}

fn is_replay_of(row: &ExecutionRow, origin: ExecutionId) -> bool {
    matches!(row.occurrence, Occurrence::Replay { origin: of, .. } if of == origin)
}

fn is_true_of_one(mirror: &Mirror, ask: &ReplayDeadLetter, reply: ReplayReply, changes: &[Change]) -> bool {
    let letter = mirror.dead_letters.get(&ask.origin);
    let row_of = |id: ExecutionId| mirror.executions.get(&id).filter(|row| is_replay_of(row, ask.origin));
    match reply {
        ReplayReply::Created { execution, number } => {
            let mut made = births(changes);
            made.next().is_some_and(|row| row.id == execution && is_replay_of(row, ask.origin))
                && made.next().is_none()
                && letter.is_some_and(|letter| letter.replays == number)
        }
        ReplayReply::Repeated { execution, state, .. } => {
            changes.is_empty() && row_of(execution).is_some_and(|row| row.state == state)
        }
        ReplayReply::OtherKey { execution } => changes.is_empty() && row_of(execution).is_some(),
        ReplayReply::WrongNumber { next } => {
            changes.is_empty() && letter.is_some_and(|letter| letter.replays.saturating_add(1) == next)
        }
        ReplayReply::Refused(why) => {
            changes.is_empty() && letter.is_some_and(|letter| stands_in_the_way(mirror, letter, why))
        }
        ReplayReply::NotDeadLettered { state } => {
            let is_so = mirror.executions.get(&ask.origin).is_some_and(|row| row.state == state);
            changes.is_empty() && letter.is_none() && is_so
        }
        ReplayReply::RequestReused | ReplayReply::NotFound => changes.is_empty(),
    }
}

/// Whether what is said to stand in the way of a replay does.
fn stands_in_the_way(mirror: &Mirror, letter: &DeadLetterRow, why: NotReplayable) -> bool {
    let job = mirror.jobs.get(&letter.job);
    match why {
        NotReplayable::Purged => letter.purged_at.is_some(),
        NotReplayable::JobDeleted => job.is_none_or(|job| job.state == JobState::Deleted),
        // Versions do not change yet, so it is the job's definition.
        NotReplayable::UnreadableDefinition => job.is_some_and(|job| job.definition.read().is_err()),
    }
}

fn is_true_of_page(mirror: &Mirror, ask: &ReplayDeadLetters, page: &ReplayPage, changes: &[Change]) -> bool {
    let mut created = 0;
    for (origin, became) in &page.letters {
        let Some(letter) = mirror.dead_letters.get(origin) else { return false };
        let is_so = match became {
            PageReplay::Created { execution } => {
                created += 1;
                letter.replays == 1
                    && mirror.executions.get(execution).is_some_and(|row| is_replay_of(row, *origin))
            }
            PageReplay::Refused(why) => letter.replays == 0 && stands_in_the_way(mirror, letter, *why),
        };
        if !is_so || !ask.filter.matches(letter.job, letter.reason, letter.at) {
            return false;
        }
    }
    // Whatever is left between the two ends of the page was named as what cannot be replayed.
    let lies_within = |letter: &DeadLetterRow| {
        let place = (letter.at, letter.execution);
        ask.after.is_none_or(|after| place > after) && page.next.is_none_or(|next| place <= next)
    };
    let mut forgotten = mirror.dead_letters.values().filter(|letter| {
        letter.tenant == ask.tenant
            && letter.replays == 0
            && letter.purged_at.is_none()
            && ask.filter.matches(letter.job, letter.reason, letter.at)
            && lies_within(letter)
            && !page.letters.iter().any(|(origin, _)| *origin == letter.execution)
    });
    births(changes).count() == created && (ask.limit == 0 || forgotten.next().is_none())
}

fn is_true_of_purge(
    commit: &Commit<'_>,
    mirror: &Mirror,
    ask: &PurgeDeadLetter,
    reply: PurgeReply,
    changes: &[Change],
) -> bool {
    let letter = mirror.dead_letters.get(&ask.execution);
    match reply {
        PurgeReply::Purged => {
            changes.len() == 1 && letter.is_some_and(|letter| letter.purged_at == Some(commit.now))
        }
        PurgeReply::Repeated => changes.is_empty() && letter.is_some_and(|letter| letter.purged_at.is_some()),
        PurgeReply::NotDeadLettered { state } => {
            let is_so = mirror.executions.get(&ask.execution).is_some_and(|row| row.state == state);
            changes.is_empty() && letter.is_none() && is_so
        }
        PurgeReply::NotFound => changes.is_empty(),
    }
}
