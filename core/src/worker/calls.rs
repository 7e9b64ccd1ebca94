//! Store calls under way: one line per kind of call, with at most one call on it.
//!
//! While a call is under way the next batch of its kind accumulates, so nothing costs a round trip of its
//! own, and two calls of one kind never overtake each other. A line relies on every call's outcome coming
//! back, once, under the call's id; an id that no line waits for is late or foreign and changes nothing.
//! After an unknown outcome a line pauses before it is used again, longer with each in a row, so that an outage is not
//! hammered.

use crate::effect::WorkerEffect;
use crate::fact::Fact;
use crate::id::EffectId;
use crate::limits::BATCH_MAX;
use crate::retry::doubled;
use crate::store::StoreOutcome;
use crate::store::command::Command;
use crate::time::{Monotonic, Span};
use crate::wakeup::WakeReason;
use crate::worker::Worker;

/// One kind of store call; `Sent` is what the call under way is about.
#[derive(Debug)]
pub(super) struct Line<Sent> {
    state: State<Sent>,
    /// How many outcomes in a row were unknown.
    unknowns: u32,
}

/// How long to wait after an unknown outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    now: Monotonic,
    first: Span,
    most: Span,
}

/// What a line is doing.
#[derive(Debug)]
enum State<Sent> {
    /// No call under way.
    Free,
    /// The latest outcome was unknown: no call before this.
    Pausing {
        /// When it may be used again.
        until: Monotonic,
    },
    /// A call is under way.
    UnderWay {
        /// Its id.
        id: EffectId,
        /// When it was sent.
        sent_at: Monotonic,
        /// What it is about.
        sent: Sent,
    },
}

impl<Sent> Line<Sent> {
    /// A line that nothing was sent on.
    pub(super) const fn new() -> Self {
        Self { state: State::Free, unknowns: 0 }
    }

    /// Whether a call may be sent now.
    pub(super) fn is_free(&self, now: Monotonic) -> bool {
        self.free_at().is_some_and(|at| at <= now)
    }

    /// From when on a call may be sent; `None` while one is under way.
    pub(super) fn free_at(&self) -> Option<Monotonic> {
        match &self.state {
            State::Free => Some(Monotonic::ZERO),
            State::Pausing { until } => Some(*until),
            State::UnderWay { .. } => None,
        }
    }

    /// When this line's pause is over, if it makes one.
    pub(super) fn pauses_until(&self) -> Option<Monotonic> {
        match &self.state {
            State::Free | State::UnderWay { .. } => None,
            State::Pausing { until } => Some(*until),
        }
    }

    /// What its next call waits for.
    pub(super) fn waits_for(&self) -> WakeReason {
        match &self.state {
            State::Free | State::UnderWay { .. } => WakeReason::Gather,
            State::Pausing { .. } => WakeReason::Resend,
        }
    }

    /// What the call under way is about.
    pub(super) fn under_way(&self) -> Option<&Sent> {
        match &self.state {
            State::Free | State::Pausing { .. } => None,
            State::UnderWay { sent, .. } => Some(sent),
        }
    }

    /// Notes a call that was just sent.
    pub(super) fn begin(&mut self, id: EffectId, sent_at: Monotonic, sent: Sent) {
        debug_assert!(self.under_way().is_none(), "a line carries one call at a time");
        // After anything but an unknown outcome the line is free, not pausing.
        if matches!(self.state, State::Free) {
            self.unknowns = 0;
        }
        self.state = State::UnderWay { id, sent_at, sent };
    }

    /// Ends the call of this id, if it is the one under way: when it was sent, and what it was about.
    pub(super) fn end(&mut self, id: EffectId) -> Option<(Monotonic, Sent)> {
        match &self.state {
            State::UnderWay { id: current, .. } if *current == id => {}
            State::Free | State::Pausing { .. } | State::UnderWay { .. } => return None,
        }
        match core::mem::replace(&mut self.state, State::Free) {
            State::UnderWay { sent_at, sent, .. } => Some((sent_at, sent)),
            State::Free | State::Pausing { .. } => None,
        }
    }

    /// An outcome was unknown: lets no call through for a while, for twice as long with each in a row.
    pub(super) fn pause(&mut self, patience: Patience) {
        let Patience { now, first, most } = patience;
        self.state = State::Pausing { until: now.plus(doubled(first, self.unknowns).min(most)) };
        self.unknowns = self.unknowns.saturating_add(1);
    }
}

/// When the calls of one kind follow each other: a batch that is worth a call goes as soon as its line is free, a
/// smaller one waits for company for a while after the call before it.
///
/// Without this, calls that are answered fast would carry few items each, and cost the store a transaction per
/// handful under the very load that asks for batches. At a rest nothing waits: the call before lies far back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cadence {
    latest: Option<Monotonic>,
}

impl Cadence {
    pub(super) const fn new() -> Self {
        Self { latest: None }
    }

    /// Notes a call.
    pub(super) const fn sent(&mut self, now: Monotonic) {
        self.latest = Some(now);
    }
}

impl Worker {
    /// From when on a call with so many items may follow the one before it.
    pub(super) fn worth_sending_at(&self, cadence: Cadence, items: usize) -> Monotonic {
        match cadence.latest {
            Some(latest) if items < self.worth_a_call() => latest.plus(self.config.gather),
            Some(_) | None => Monotonic::ZERO,
        }
    }

    /// How many items are worth a call of their own: a quarter of what one may carry.
    fn worth_a_call(&self) -> usize {
        let slots = usize::try_from(self.slots()).unwrap_or(usize::MAX);
        self.batch().min(slots).div_ceil(4)
    }

    /// The id that the next store call will have.
    pub(super) fn next_call(&self) -> EffectId {
        EffectId(self.calls + 1)
    }

    /// Sends a command; its outcome comes back under the id.
    pub(super) fn call(&mut self, command: Command) -> EffectId {
        self.calls += 1;
        let id = EffectId(self.calls);
        self.effects.push_back(WorkerEffect::Store { id, command });
        id
    }

    /// Notes an outcome that is unknown, or no answer to what was asked: how long its line is to wait. An eighth of a
    /// lease at most, so that a lease outlives several tries.
    pub(super) fn unknown(&mut self, now: Monotonic) -> Patience {
        self.report(Fact::StoreUnknown);
        let first = self.config.resend_after;
        Patience { now, first, most: self.config.lease_ttl.divided_by(8).max(first) }
    }

    /// Tells whoever watches.
    pub(super) fn report(&mut self, fact: Fact) {
        self.effects.push_back(WorkerEffect::Report(fact));
    }

    /// How many items one command may carry.
    pub(super) fn batch(&self) -> usize {
        usize::try_from(self.config.batch).unwrap_or(BATCH_MAX).clamp(1, BATCH_MAX)
    }

    /// Hands an outcome to the line that waits for it.
    pub(super) fn store_replied(&mut self, now: Monotonic, id: EffectId, outcome: StoreOutcome) {
        if let Some((sent_at, asked)) = self.leases.acquiring.end(id) {
            self.acquired(now, sent_at, asked, outcome);
        } else if let Some((_, runs)) = self.finishes.line.end(id) {
            self.finished(now, runs, outcome);
        } else if let Some((sent_at, runs)) = self.leases.renewing.end(id) {
            self.renewed(now, sent_at, &runs, outcome);
        } else if let Some((_, state)) = self.heart.line.end(id) {
            self.heartbeat_answered(now, state, &outcome);
        } else if let Some((_, deferrals)) = self.records.deferring.end(id) {
            self.deferred(now, deferrals, outcome);
        } else if let Some((_, malformed)) = self.records.recording.end(id) {
            self.recorded(now, malformed, &outcome);
        }
    }
}
