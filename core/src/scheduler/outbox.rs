//! The outbox: from a committed intent to a broker's confirm, and only then to the row's end.
//!
//! - *Fast path*: what this node has just committed is published from memory.
//! - *Slow path*: rows of others, and own ones older than a grace, are read back and published. It finds
//!   everything that the fast path gave up on: a refusal, an unknown outcome, a queue that was full here.
//! - A confirm removes exactly that row. A return is no confirm: the row becomes a waiting reason. A refusal
//!   or an unknown outcome changes nothing; the row is read back later.
//!
//! Own rows that are still on their way here are not read back: the grace is lengthened by the age of the
//! oldest of them. What waits here is bounded in number and in time, so that cannot hide a row for long.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::bug::Bug;
use crate::effect::SchedulerEffect;
use crate::event::PublishOutcome;
use crate::execution::WaitReason;
use crate::fact::Fact;
use crate::id::EffectId;
use crate::limits::{PUBLICATIONS_UNDER_WAY_MAX, PUBLICATIONS_WAITING_MAX, PUBLISH_TIMEOUT};
use crate::message::ExecutionMessage;
use crate::scheduler::calls::{Call, Concern, Turn, View, count};
use crate::scheduler::pace::Pace;
use crate::scheduler::partitions::Partitions;
use crate::store::command::{Command, OutboxId, RemoveOutbox, ReturnOutbox, ScanOutbox};
use crate::store::reply::Dispatch;
use crate::time::{Monotonic, Span, Timestamp};

/// A row that the broker confirmed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Confirmed {
    pub(super) row: OutboxId,
    /// When this node learnt of the row.
    learnt_at: Monotonic,
}

/// Rows that are to be published, as the store showed them.
#[derive(Debug)]
struct Publication {
    dispatches: Vec<Dispatch>,
    store_now: Timestamp,
    learnt_at: Monotonic,
}

#[derive(Debug)]
struct UnderWay {
    id: EffectId,
    rows: Vec<OutboxId>,
    learnt_at: Monotonic,
}

#[derive(Debug)]
pub(super) struct Outbox {
    waiting: VecDeque<Publication>,
    under_way: Vec<UnderWay>,
    confirmed: VecDeque<Confirmed>,
    returned: Vec<(OutboxId, WaitReason)>,
    scan: Pace,
    remove: Pace,
    give_back: Pace,
}

impl Outbox {
    pub(super) const fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            under_way: Vec::new(),
            confirmed: VecDeque::new(),
            returned: Vec::new(),
            scan: Pace::AT_ONCE,
            remove: Pace::AT_ONCE,
            give_back: Pace::AT_ONCE,
        }
    }

    pub(super) fn look_at_once(&mut self, turn: &Turn<'_>) {
        self.scan.sooner(turn.now);
    }

    /// Whether more dispatches can be taken without leaving them to the slow path.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < PUBLICATIONS_WAITING_MAX
    }

    /// Whether nothing is on its way to the broker, and every answer of it is settled.
    pub(super) fn is_settled(&self, view: View<'_>) -> bool {
        self.under_way.is_empty()
            && self.confirmed.is_empty()
            && self.returned.is_empty()
            && !view.calls.is_busy(Concern::Remove)
            && !view.calls.is_busy(Concern::Return)
    }

    /// Forgets what has not been sent: the next owner reads it back at once.
    pub(super) fn stop(&mut self) {
        self.waiting.clear();
    }

    pub(super) fn scans_at(&self, view: View<'_>, partitions: &Partitions) -> Monotonic {
        let waits = partitions.trusted().is_empty()
            || view.calls.is_busy(Concern::ScanOutbox)
            || self.under_way.len() >= PUBLICATIONS_UNDER_WAY_MAX
            || view.has(Bug::NeverReadsOutboxBack);
        if waits { Monotonic::MAX } else { self.scan.at() }
    }

    /// When a removal or a return is sent again at the latest.
    pub(super) fn settles_at(&self, view: View<'_>) -> Monotonic {
        self.removes_at(view).min(self.gives_back_at(view))
    }

    fn removes_at(&self, view: View<'_>) -> Monotonic {
        let waits = self.confirmed.is_empty() || view.calls.is_busy(Concern::Remove);
        if waits { Monotonic::MAX } else { self.remove.at() }
    }

    fn gives_back_at(&self, view: View<'_>) -> Monotonic {
        let waits = self.returned.is_empty() || view.calls.is_busy(Concern::Return);
        if waits { Monotonic::MAX } else { self.give_back.at() }
    }

    /// Takes in rows that were committed, or read back, when the store's clock read `store_now`.
    pub(super) fn publish(&mut self, turn: &Turn<'_>, dispatches: Vec<Dispatch>, store_now: Timestamp) {
        if dispatches.is_empty() {
            return;
        }
        if self.has_room() {
            self.waiting.push_back(Publication { dispatches, store_now, learnt_at: turn.now });
        }
    }

    /// Reads the outbox back if that is due.
    pub(super) fn read_back(&mut self, turn: &mut Turn<'_>, partitions: &Partitions) {
        if self.scans_at(turn.view(), partitions) > turn.now {
            return;
        }
        // Until it is answered; a look asked for meanwhile moves it forward and is not lost.
        self.scan.until_answered(Monotonic::MAX);
        let own_grace = turn.config.outbox_grace.plus(self.oldest_on_its_way(turn));
        let command = ScanOutbox {
            node: turn.config.node,
            partitions: partitions.trusted().iter().collect(),
            own_grace,
            delay: turn.config.outbox_delay,
            limit: count(turn.view().batch()),
        };
        turn.call(Call::ScanOutbox, Command::ScanOutbox(command));
    }

    /// How long ago this node learnt of the oldest row that is still on its way here.
    fn oldest_on_its_way(&self, turn: &Turn<'_>) -> Span {
        let removing = match turn.calls.under_way(Concern::Remove) {
            Some(Call::RemoveOutbox { rows }) => rows.first(),
            Some(_) | None => None,
        };
        let waiting = self.waiting.front().map(|publication| publication.learnt_at);
        let confirmed = self.confirmed.front().or(removing).map(|confirmed| confirmed.learnt_at);
        let under_way = self.under_way.iter().map(|publication| publication.learnt_at);
        let oldest = under_way.chain(waiting).chain(confirmed).min();
        // Longer than anything waits here by itself: not to be stretched by a removal that is never answered.
        oldest.map_or(Span::ZERO, |oldest| turn.now.since(oldest)).min(PUBLISH_TIMEOUT.times(2))
    }

    pub(super) fn was_read_back(
        &mut self,
        turn: &mut Turn<'_>,
        store_now: Timestamp,
        dispatches: Vec<Dispatch>,
        next_due: Option<Timestamp>,
    ) {
        let is_full = dispatches.len() >= turn.view().batch();
        let next = if is_full {
            turn.now
        } else {
            let known = next_due.map_or(Monotonic::MAX, |at| turn.when(store_now, at));
            turn.on_the_beat(turn.config.poll_every).min(known)
        };
        self.scan.set(next.min(self.scan.at()));
        if !dispatches.is_empty() {
            turn.report(Fact::OutboxReadBack { count: count(dispatches.len()) });
            self.publish(turn, dispatches, store_now);
        }
    }

    pub(super) fn read_back_unknown(&mut self, turn: &Turn<'_>) {
        let (first, most) = turn.patience();
        self.scan.after_unknown(turn.now, first, most);
    }

    /// Sends what waits, as far as the bound on publications under way allows, and settles what came back.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>) {
        while self.under_way.len() < PUBLICATIONS_UNDER_WAY_MAX
            && let Some(publication) = self.waiting.pop_front()
        {
            self.send(turn, publication);
        }
        if self.removes_at(turn.view()) <= turn.now {
            let batch = self.confirmed.len().min(turn.view().batch());
            let rows: Vec<_> = self.confirmed.drain(..batch).collect();
            let ids = rows.iter().map(|confirmed| confirmed.row).collect();
            let command = RemoveOutbox { rows: ids, grace: turn.config.outbox_grace };
            turn.call(Call::RemoveOutbox { rows }, Command::RemoveOutbox(command));
        }
        if self.gives_back_at(turn.view()) <= turn.now {
            let batch = self.returned.len().min(turn.view().batch());
            let rows: Vec<_> = self.returned.drain(..batch).collect();
            let command = ReturnOutbox { rows: rows.clone(), delay: turn.config.return_delay };
            turn.call(Call::ReturnOutbox { rows }, Command::ReturnOutbox(command));
        }
    }

    fn send(&mut self, turn: &mut Turn<'_>, publication: Publication) {
        let Publication { dispatches, store_now, learnt_at } = publication;
        let publish_delay = turn.now.since(learnt_at);
        if publish_delay > PUBLISH_TIMEOUT {
            // Too old to be held back from the slow path any longer.
            return;
        }
        let mut messages = Vec::with_capacity(dispatches.len());
        let mut rows = Vec::with_capacity(dispatches.len());
        for dispatch in dispatches {
            let row = OutboxId { execution: dispatch.execution, dispatch_no: dispatch.dispatch_no };
            match ExecutionMessage::compose(turn.config.schema, &dispatch, store_now) {
                Ok(message) => {
                    messages.push(Arc::new(ExecutionMessage { publish_delay, ..message }));
                    rows.push(row);
                }
                Err(_) => self.returned.push((row, WaitReason::UnreadableDefinition)),
            }
        }
        if messages.is_empty() {
            return;
        }
        if turn.has(Bug::RemovesOutboxBeforeConfirm) {
            self.confirmed.extend(rows.iter().map(|row| Confirmed { row: *row, learnt_at }));
        }
        let id = turn.calls.next_id();
        turn.calls.push(SchedulerEffect::Publish { id, messages });
        self.under_way.push(UnderWay { id, rows, learnt_at });
    }

    /// A publication came to its end. A message without an outcome counts as unknown.
    pub(super) fn published(&mut self, turn: &mut Turn<'_>, id: EffectId, outcomes: &[PublishOutcome]) {
        let Some(at) = self.under_way.iter().position(|publication| publication.id == id) else { return };
        let UnderWay { rows, learnt_at, .. } = self.under_way.remove(at);
        debug_assert_eq!(rows.len(), outcomes.len(), "one outcome for each message");
        let (mut confirmed, mut returned, mut nacked, mut unknown) = (0, 0, 0, 0);
        let outcomes = outcomes.iter().copied().chain(core::iter::repeat(PublishOutcome::Unknown));
        for (row, outcome) in rows.into_iter().zip(outcomes) {
            match outcome {
                PublishOutcome::Confirmed => {
                    confirmed += 1;
                    self.confirmed.push_back(Confirmed { row, learnt_at });
                }
                PublishOutcome::Returned => {
                    returned += 1;
                    if turn.has(Bug::ReturnCountsAsConfirm) {
                        self.confirmed.push_back(Confirmed { row, learnt_at });
                    } else {
                        self.returned.push((row, WaitReason::NoRoute));
                    }
                }
                PublishOutcome::Nacked => nacked += 1,
                PublishOutcome::Unknown => unknown += 1,
            }
        }
        if confirmed > 0 {
            turn.report(Fact::Confirmed { count: confirmed, lag: turn.now.since(learnt_at) });
        }
        if returned + nacked + unknown > 0 {
            turn.report(Fact::Unconfirmed { returned, nacked, unknown });
        }
    }

    pub(super) const fn removed(&mut self) {
        self.remove = Pace::AT_ONCE;
    }

    pub(super) fn removal_unknown(&mut self, turn: &Turn<'_>, rows: Vec<Confirmed>) {
        let (first, most) = turn.patience();
        rows.into_iter().rev().for_each(|row| self.confirmed.push_front(row));
        self.remove.after_unknown(turn.now, first, most);
    }

    pub(super) const fn given_back(&mut self) {
        self.give_back = Pace::AT_ONCE;
    }

    pub(super) fn return_unknown(&mut self, turn: &Turn<'_>, rows: Vec<(OutboxId, WaitReason)>) {
        let (first, most) = turn.patience();
        self.returned.extend(rows);
        self.give_back.after_unknown(turn.now, first, most);
    }
}
