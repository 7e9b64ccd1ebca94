//! Dead letters after their death: replayed, one or a page of them, and purged.
//!
//! Nothing here changes what was dead-lettered: a replay is another execution, and a purge leaves a tombstone, so
//! that a dead-lettered execution has its one record for as long as it is there itself.

use core::ops::Bound;
use std::sync::Arc;

use crate::bug::Bug;
use crate::execution::ExecutionState;
use crate::fencing::FencingToken;
use crate::id::{ExecutionId, NodeId, Occurrence, TenantId};
use crate::mark::{self, Mark};
use crate::replay::{self, NotReplayable, Readability, why_not};
use crate::store::command::{PurgeDeadLetter, ReplayDeadLetter, ReplayDeadLetters, ReplayKey, ReplayNumber};
use crate::store::reference::Call;
use crate::store::reference::materialise::new_execution;
use crate::store::reply::{PageReplay, PurgeReply, ReplayPage, ReplayReply};
use crate::store::row::{DeadLetterRow, ExecutionRow, JobState, RequestRow};
use crate::time::Timestamp;

impl Call<'_> {
    /// An earlier asking is recognised before anything that has changed since is looked at, so that it is answered the
    /// same after a purge, or when the job is gone.
    pub(super) fn replay_dead_letter(&mut self, ask: &ReplayDeadLetter) -> ReplayReply {
        let letter = match self.letter_of(ask.tenant, ask.origin) {
            Ok(letter) => letter.clone(),
            Err(None) => return ReplayReply::NotFound,
            Err(Some(state)) => return ReplayReply::NotDeadLettered { state },
        };
        let next = letter.replays.saturating_add(1);
        let number = match &ask.number {
            ReplayNumber::Given(number) => {
                let id = replay::execution_of(letter.job, ask.origin, *number);
                if let Some(known) = self.tables.executions().get(&id) {
                    mark::hit(Mark::ReplayRepeated);
                    if self.bugs.has(Bug::ReplayIgnoresNumber) {
                        let execution = self.make_replay(&letter, ask.key, ask.node);
                        return ReplayReply::Created { execution, number: next };
                    }
                    return if known.key == self.key_of_replay(ask.key, &letter, *number) {
                        repeated(known)
                    } else {
                        ReplayReply::OtherKey { execution: id }
                    };
                }
                *number
            }
            ReplayNumber::Next(asked) => {
                if let Some(known) = self.tables.requests.get(&(ask.tenant, asked.request.clone())) {
                    let made = known.execution.filter(|_| known.fingerprint == asked.fingerprint);
                    return match made.and_then(|id| self.tables.executions().get(&id)) {
                        Some(known) => repeated(known),
                        None => ReplayReply::RequestReused,
                    };
                }
                next
            }
        };
        if number != next {
            return ReplayReply::WrongNumber { next };
        }
        if let Some(why) = self.why_not(&letter) {
            return ReplayReply::Refused(why);
        }
        let execution = self.make_replay(&letter, ask.key, ask.node);
        if let ReplayNumber::Next(asked) = &ask.number {
            let row = RequestRow {
                tenant: ask.tenant,
                request: asked.request.clone(),
                fingerprint: asked.fingerprint,
                job: Some(letter.job),
                execution: Some(execution),
                version: None,
                pause: None,
                at: self.now,
            };
            self.tables.requests.put(row, self.changes);
        }
        ReplayReply::Created { execution, number }
    }

    /// The dead letter of an execution; `Err` holds the state of one that is none, `None` where there is no such
    /// execution of this tenant.
    fn letter_of(
        &self,
        tenant: TenantId,
        execution: ExecutionId,
    ) -> Result<&DeadLetterRow, Option<ExecutionState>> {
        let row = self.tables.executions().get(&execution).filter(|row| row.tenant == tenant).ok_or(None)?;
        self.tables.dead_letters.get(&execution).ok_or(Some(row.state))
    }

    fn origin(&self, letter: &DeadLetterRow) -> &ExecutionRow {
        self.tables
            .executions()
            .get(&letter.execution)
            .expect("a record is kept no longer than its execution")
    }

    fn key_of_replay(&self, choice: ReplayKey, letter: &DeadLetterRow, number: u32) -> Arc<str> {
        let choice = if self.bugs.has(Bug::ReplayGetsOwnKey) { ReplayKey::Own } else { choice };
        let origin = self.origin(letter);
        replay::key_of(choice, letter.job, (origin.id, &origin.key), number)
    }

    fn why_not(&self, letter: &DeadLetterRow) -> Option<NotReplayable> {
        let job = self.tables.jobs.get(&letter.job).map_or(JobState::Deleted, |job| job.state);
        let version = self.tables.job_versions.get(&(letter.job, self.origin(letter).job_version));
        let definition = match version.map(|version| version.definition.read()) {
            Some(Ok(_)) => Readability::Readable,
            Some(Err(_)) | None => Readability::Unreadable,
        };
        let purged_at = letter.purged_at.filter(|_| !self.bugs.has(Bug::PurgedAreReplayed));
        why_not(purged_at, job, definition)
    }

    /// The next replay, of a dead letter that can be replayed.
    fn make_replay(&mut self, letter: &DeadLetterRow, choice: ReplayKey, node: NodeId) -> ExecutionId {
        let number = letter.replays.saturating_add(1);
        let origin = self.origin(letter).clone();
        let job = self.tables.jobs.get(&letter.job).expect("what is replayed has its job");
        let id = replay::execution_of(letter.job, letter.execution, number);
        let occurrence = Occurrence::Replay { origin: letter.execution, number };
        let key = self.key_of_replay(choice, letter, number);
        let version = self.tables.job_versions.get(&(letter.job, origin.job_version));
        let row = ExecutionRow {
            deadline_at: version.and_then(|version| version.definition.deadline_of(self.now)),
            job_version: origin.job_version,
            payload: origin.payload.clone(),
            token: self.token_before_replay(letter, &origin),
            ..new_execution(job, id, occurrence, key, self.now)
        };
        mark::hit(Mark::Replayed);
        let outbox = self.outbox_row(&row, node);
        self.tables.put_execution(row, self.changes);
        if !self.bugs.has(Bug::ReplayWithoutOutbox) {
            self.tables.put_outbox(outbox, self.changes);
        }
        let letter = DeadLetterRow { replays: number, ..letter.clone() };
        self.tables.dead_letters.put(letter, self.changes);
        id
    }

    /// The highest token that anybody was given under this key so far.
    fn token_before_replay(&self, letter: &DeadLetterRow, origin: &ExecutionRow) -> FencingToken {
        if self.bugs.has(Bug::ReplayTokenFromStart) {
            return FencingToken::NEVER;
        }
        let earlier = (1..=letter.replays)
            .filter_map(|number| {
                self.tables.executions().get(&replay::execution_of(letter.job, letter.execution, number))
            })
            .map(|row| row.token);
        earlier.fold(origin.token, FencingToken::max)
    }

    /// A page holds at most [`REPLAY_PAGE_MAX`](crate::limits::REPLAY_PAGE_MAX), whatever is asked for.
    pub(super) fn replay_dead_letters(&mut self, ask: &ReplayDeadLetters) -> ReplayPage {
        let limit = ask.limit.min(crate::limits::REPLAY_PAGE_MAX) as usize;
        let page = self.page(ask, limit);
        let next = page.last().filter(|_| page.len() == limit).map(|letter| (letter.at, letter.execution));
        let replay = |letter: DeadLetterRow| {
            let became = match self.why_not(&letter) {
                Some(why) => PageReplay::Refused(why),
                None => PageReplay::Created { execution: self.make_replay(&letter, ask.key, ask.node) },
            };
            (letter.execution, became)
        };
        ReplayPage { letters: page.into_iter().map(replay).collect(), next }
    }

    fn page(&self, ask: &ReplayDeadLetters, limit: usize) -> Vec<DeadLetterRow> {
        let matches = |row: &DeadLetterRow| ask.filter.matches(row.job, row.reason, row.at);
        if self.bugs.has(Bug::BulkReplaysAgain) {
            let all = self.tables.dead_letters.iter();
            let its = |row: &&DeadLetterRow| row.tenant == ask.tenant && matches(row);
            return all.filter(its).filter(|row| row.purged_at.is_none()).take(limit).cloned().collect();
        }
        let from = ask.filter.from.unwrap_or(Timestamp::MIN);
        let first = Bound::Included((ask.tenant, from, ExecutionId::from_u128(0)));
        let first = match ask.after {
            Some((at, execution)) if at >= from => Bound::Excluded((ask.tenant, at, execution)),
            Some(_) | None => first,
        };
        let untouched = &self.tables.dead_letters.index().untouched;
        untouched
            .range((first, Bound::Unbounded))
            .take_while(|(tenant, _, _)| *tenant == ask.tenant)
            .map(|(_, _, id)| self.tables.dead_letters.get(id).expect("the index names rows of its table"))
            .filter(|row| matches(row))
            .take(limit)
            .cloned()
            .collect()
    }

    /// Replays that were made go on: they are executions like any other.
    pub(super) fn purge_dead_letter(&mut self, ask: &PurgeDeadLetter) -> PurgeReply {
        let letter = match self.letter_of(ask.tenant, ask.execution) {
            Ok(letter) => letter.clone(),
            Err(None) => return PurgeReply::NotFound,
            Err(Some(state)) => return PurgeReply::NotDeadLettered { state },
        };
        if letter.purged_at.is_some() {
            mark::hit(Mark::PurgeRepeated);
            return PurgeReply::Repeated;
        }
        mark::hit(Mark::DeadLetterPurged);
        if self.bugs.has(Bug::PurgeLeavesNothing) {
            self.tables.dead_letters.remove(&ask.execution, self.changes);
            return PurgeReply::Purged;
        }
        let tombstone = DeadLetterRow { error: None, purged_at: Some(self.now), ..letter };
        self.tables.dead_letters.put(tombstone, self.changes);
        PurgeReply::Purged
    }
}

/// The answer to an asking that has made this replay before.
fn repeated(known: &ExecutionRow) -> ReplayReply {
    match known.occurrence {
        Occurrence::Replay { number, .. } => {
            ReplayReply::Repeated { execution: known.id, number, state: known.state }
        }
        Occurrence::Scheduled { .. } | Occurrence::Manual { .. } => ReplayReply::RequestReused,
    }
}
