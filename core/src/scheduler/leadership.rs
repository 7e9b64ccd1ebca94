//! Leadership: the right to reconcile, held by one scheduler at a time.
//!
//! Whoever does not hold it asks, and is told until when it is held as things stand; the next try comes just
//! after that. So a dead leader is followed within one lease time, without a poll in between.

use crate::bug::Bug;
use crate::fact::{Fact, LeaseEnd};
use crate::fencing::FencingToken;
use crate::lease::{HeldLease, LeaseResource};
use crate::scheduler::calls::{Ask, Call, Concern, Turn, View};
use crate::scheduler::health::Health;
use crate::scheduler::held::Held;
use crate::scheduler::pace::Pace;
use crate::scheduler::release::Release;
use crate::store::command::{AcquireLeadership, Command};
use crate::time::{Monotonic, Span, Timestamp};

#[derive(Debug)]
pub(super) struct Leadership {
    held: Option<Held>,
    pub(super) health: Health,
    attempt: Pace,
    /// An acquisition whose outcome is unknown.
    ask: Option<Ask>,
}

impl Leadership {
    pub(super) const fn new() -> Self {
        Self { held: None, health: Health::new(), attempt: Pace::AT_ONCE, ask: None }
    }

    /// The lease, trusted or not.
    pub(super) fn held_lease(&self) -> Option<HeldLease> {
        self.held.map(|held| HeldLease { resource: LeaseResource::Leadership, token: held.token })
    }

    /// The lease, while it may be acted under.
    pub(super) fn lease(&self) -> Option<HeldLease> {
        self.held.filter(Held::is_trusted).and_then(|_| self.held_lease())
    }

    /// What is to be renewed. A wedged leader renews nothing.
    pub(super) fn renewable(&self) -> Option<HeldLease> {
        if self.health.is_wedged() { None } else { self.held_lease() }
    }

    pub(super) fn trust_ends(&self) -> Monotonic {
        self.held.filter(Held::is_trusted).map_or(Monotonic::MAX, |held| held.trusted_until)
    }

    /// Whether a probe has to succeed before it is asked for again.
    pub(super) const fn wants_probe(&self) -> bool {
        self.health.is_wedged() && self.held.is_none()
    }

    pub(super) fn wakes_at(&self, view: View<'_>) -> Monotonic {
        let waits = self.held.is_some() || self.health.is_wedged() || view.calls.is_busy(Concern::Leadership);
        if waits { Monotonic::MAX } else { self.attempt.at() }
    }

    /// Asks for leadership if that is due.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>) {
        if self.wakes_at(turn.view()) > turn.now {
            return;
        }
        let id = turn.calls.next_id();
        let ask = self.ask.take().unwrap_or(Ask { nonce: id, since: turn.now, limit: 1 });
        let command =
            AcquireLeadership { node: turn.config.node, nonce: ask.nonce, ttl: turn.config.lease_ttl };
        turn.call_as(id, Call::AcquireLeadership(ask), Command::AcquireLeadership(command));
    }

    pub(super) fn granted(&mut self, turn: &mut Turn<'_>, ask: Ask, token: FencingToken) {
        self.health.works(turn.now);
        self.attempt.set(turn.now);
        self.hold(turn, token, ask.since);
    }

    /// Somebody holds it: tries again just after that lapses, as things stand.
    pub(super) fn refused_for_now(&mut self, turn: &Turn<'_>, store_now: Timestamp, expires_at: Timestamp) {
        if turn.has(Bug::AsksForLeadershipOnce) {
            self.attempt.set(Monotonic::MAX);
            return;
        }
        const JUST_AFTER: Span = Span::from_millis(1);
        let (least, most) = (turn.config.cycle_every, turn.config.lease_ttl);
        let wait = expires_at.since(store_now).plus(JUST_AFTER).min(most).max(least);
        self.attempt.set(turn.now.plus(wait));
    }

    pub(super) fn unknown(&mut self, turn: &Turn<'_>, ask: Ask) {
        self.ask = Some(ask);
        self.attempt.after_unknown(turn.now, turn.config.resend_after, turn.config.cycle_every);
    }

    pub(super) fn renewed(&mut self, turn: &mut Turn<'_>, token: FencingToken, sent_at: Monotonic) {
        if self.held.is_some_and(|held| held.token == token) {
            self.hold(turn, token, sent_at);
        }
    }

    /// The store says that this lease is another's by now.
    pub(super) fn lost(&mut self, turn: &mut Turn<'_>, token: FencingToken) {
        if self.held.is_some_and(|held| held.token == token) {
            self.drop(turn, LeaseEnd::Refused);
        }
    }

    /// Falls silent when trust has ended; a wedged leader gives it back.
    pub(super) fn expire(&mut self, turn: &mut Turn<'_>, release: &mut Release) {
        if self.trust_ends() <= turn.now
            && let Some(held) = self.held
        {
            self.put(turn, Held::new(held.token, held.trusted_until, turn.now));
        }
        if self.health.is_wedged()
            && self.lease().is_none()
            && let Some(lease) = self.held_lease()
        {
            release.add(lease);
            self.held = None;
        }
    }

    pub(super) fn judge(&mut self, turn: &Turn<'_>, patience: Span) {
        if self.held.is_some() {
            self.health.judge(turn.now, patience);
        }
    }

    /// Gives it back, and asks no more.
    pub(super) fn leave(&mut self, turn: &mut Turn<'_>, release: &mut Release) {
        self.ask = None;
        if let Some(lease) = self.held_lease() {
            release.add(lease);
            self.drop(turn, LeaseEnd::Released);
        }
    }

    fn hold(&mut self, turn: &mut Turn<'_>, token: FencingToken, sent_at: Monotonic) {
        let until = turn.config.trust.trusted_until(sent_at, turn.config.lease_ttl);
        self.put(turn, Held::new(token, until, turn.now));
    }

    fn put(&mut self, turn: &mut Turn<'_>, held: Held) {
        let before = self.held.replace(held).filter(Held::is_trusted);
        let resource = LeaseResource::Leadership;
        match (before, held.is_trusted()) {
            (Some(before), false) => {
                turn.report(Fact::LeaseEnded { resource, token: before.token, how: LeaseEnd::Untrusted });
            }
            (None, true) => turn.report(Fact::LeaseGained { resource, token: held.token }),
            (Some(_), true) | (None, false) => {}
        }
    }

    fn drop(&mut self, turn: &mut Turn<'_>, how: LeaseEnd) {
        if let Some(held) = self.held.take().filter(Held::is_trusted) {
            let resource = LeaseResource::Leadership;
            turn.report(Fact::LeaseEnded { resource, token: held.token, how });
        }
    }
}
