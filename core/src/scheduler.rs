//! The scheduler's role: decides when what runs, and hands it to the broker.
//!
//! A pure state machine. [`handle`](Scheduler::handle) takes in one event; then the caller drains
//! [`poll_effect`](Scheduler::poll_effect) and arms one timer for [`next_wakeup`](Scheduler::next_wakeup). It
//! is made of concerns, a file each, that share nothing but the calls under way:
//!
//! - `membership`: reports liveness, learns who else lives, and from that this node's share.
//! - `leadership`: asks for the right to reconcile. `partitions`: moves towards the share. `renewal` keeps both,
//!   `release` gives them back, `held` and `health` say when a lease may be acted under and kept.
//! - `materialise` and `plan`: due jobs become executions. `promotion`: retries and what waited are dispatched.
//! - `outbox`: dispatches reach the broker, and their rows go once they have.
//! - `reconcile`: the leader repairs what got stuck. `drain`: the orderly end.
//! - `calls`: what is under way. `outcome`: who takes in what came of it.
//!
//! Relied on: the outcome of every effect comes back, once. Must stay true: nothing is done under a lease that
//! is not trusted; each event is followed by one round over all concerns (`Scheduler::advance`), after which
//! whatever is still to be done waits for an outcome or for a time that `next_wakeup` knows.

/// One turn over these fields, leaving the concerns to be borrowed beside it.
macro_rules! turn {
    ($scheduler:ident) => {
        Turn { now: $scheduler.now, config: &$scheduler.config, calls: &mut $scheduler.calls }
    };
}

mod calls;
mod drain;
mod health;
mod held;
mod leadership;
mod materialise;
mod membership;
mod outbox;
mod outcome;
mod pace;
mod partition_set;
mod partitions;
mod plan;
mod promotion;
mod reconcile;
mod release;
mod renewal;
#[cfg(test)]
mod tests;

use crate::bug::Bug;
use crate::config::SchedulerConfig;
use crate::effect::SchedulerEffect;
use crate::event::SchedulerEvent;
use crate::fact::Fact;
use crate::fencing::FencingToken;
use crate::mark::{self, Mark};
use crate::partition::PartitionId;
use crate::store::row::NodeState;
use crate::time::Monotonic;
use crate::wakeup::WakeReason;

use calls::{Calls, Turn, View};
use drain::{Phase, Step};
use leadership::Leadership;
use materialise::Materialiser;
use membership::Membership;
use outbox::Outbox;
use partitions::Partitions;
use promotion::Promotion;
use reconcile::Reconciler;
use release::Release;
use renewal::Renewal;

/// Decides: membership, leadership, partitions, materialising, outbox, promotion, reconciliation, drain.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    phase: Phase,
    now: Monotonic,
    calls: Calls,
    membership: Membership,
    leadership: Leadership,
    partitions: Partitions,
    renewal: Renewal,
    release: Release,
    materialiser: Materialiser,
    promotion: Promotion,
    outbox: Outbox,
    reconciler: Reconciler,
}

impl Scheduler {
    /// A scheduler that has not begun; its first `Tick` starts it.
    #[must_use]
    pub fn new(config: SchedulerConfig) -> Self {
        Self {
            config,
            phase: Phase::Idle,
            now: Monotonic::ZERO,
            calls: Calls::new(),
            membership: Membership::new(),
            leadership: Leadership::new(),
            partitions: Partitions::new(),
            renewal: Renewal::new(),
            release: Release::new(),
            materialiser: Materialiser::new(),
            promotion: Promotion::new(),
            outbox: Outbox::new(),
            reconciler: Reconciler::new(),
        }
    }

    /// Takes in one event.
    pub fn handle(&mut self, now: Monotonic, event: SchedulerEvent) {
        // A steady clock does not go back; if one does, time stands still here until it has caught up.
        self.now = self.now.max(now);
        if self.phase == Phase::Drained {
            return;
        }
        match event {
            SchedulerEvent::Tick => {
                if self.phase == Phase::Idle {
                    self.phase = Phase::Active;
                }
            }
            SchedulerEvent::StoreReplied { effect, outcome } => self.store_replied(effect, outcome),
            SchedulerEvent::Published { effect, outcomes } => {
                self.outbox.published(&mut turn!(self), effect, &outcomes);
            }
            SchedulerEvent::Notified { partition } => self.notified(partition),
            SchedulerEvent::DrainRequested => self.drain_requested(),
        }
        self.advance();
    }

    /// The next effect to carry out; call until `None`.
    pub fn poll_effect(&mut self) -> Option<SchedulerEffect> {
        self.calls.poll()
    }

    /// When to send a `Tick` at the latest, and why.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<(Monotonic, WakeReason)> {
        let view = View { config: &self.config, calls: &self.calls };
        let (at, reason) = match self.phase {
            Phase::Idle => (self.now, WakeReason::Heartbeat),
            Phase::Active => earliest([
                (self.membership.wakes_at(view), WakeReason::Heartbeat),
                (self.leadership.wakes_at(view), WakeReason::LeaseCycle),
                (self.partitions.wakes_at(view, self.membership.target()), WakeReason::LeaseCycle),
                (self.renewal.wakes_at(view), WakeReason::LeaseCycle),
                (self.release.wakes_at(view), WakeReason::Resend),
                (self.partitions.trust_ends(), WakeReason::TrustEnds),
                (self.leadership.trust_ends(), WakeReason::TrustEnds),
                (self.materialiser.wakes_at(view, &self.partitions), WakeReason::Scan),
                (self.promotion.wakes_at(view, &self.partitions, &self.outbox), WakeReason::Promote),
                (self.outbox.scans_at(view, &self.partitions), WakeReason::Outbox),
                (self.outbox.settles_at(view), WakeReason::Resend),
                (self.reconciler.wakes_at(view, &self.leadership), WakeReason::Sweep),
            ]),
            Phase::Draining { ends, .. } => earliest([
                (self.membership.wakes_at(view), WakeReason::Heartbeat),
                (self.release.wakes_at(view), WakeReason::Resend),
                (self.outbox.settles_at(view), WakeReason::Resend),
                (ends, WakeReason::DrainEnds),
            ]),
            Phase::Drained => return None,
        };
        (at < Monotonic::MAX).then_some((at, reason))
    }

    /// The partitions that this node acts for at its latest event, ascending.
    pub fn held_partitions(&self) -> impl Iterator<Item = PartitionId> + use<> {
        self.partitions.trusted().iter()
    }

    /// The token of the leadership that this node acts under at its latest event.
    #[must_use]
    pub fn leadership(&self) -> Option<FencingToken> {
        self.leadership.lease().map(|lease| lease.token)
    }

    /// Whether it is on its way out, or gone.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        match self.phase {
            Phase::Idle | Phase::Active => false,
            Phase::Draining { .. } | Phase::Drained => true,
        }
    }

    /// Whether it is at work and the store has answered its liveness reports of late.
    #[must_use]
    pub fn is_ready(&self, now: Monotonic) -> bool {
        let recently = |at| now.since(at) <= self.config.live_within;
        self.phase == Phase::Active && self.membership.answered_at().is_some_and(recently)
    }

    /// One round over all concerns: whoever has something to do now, does it.
    fn advance(&mut self) {
        match self.phase {
            Phase::Idle | Phase::Drained => {}
            Phase::Active => self.work(),
            Phase::Draining { ends, step } => self.go_on_draining(ends, step),
        }
        debug_assert!(
            self.phase == Phase::Idle || self.next_wakeup().is_none_or(|(at, _)| at > self.now),
            "a round leaves nothing to be done now, but {:?} at {:?}",
            self.next_wakeup(),
            self.now
        );
    }

    fn work(&mut self) {
        let target = self.membership.target();
        let turn = &mut turn!(self);
        self.partitions.expire(turn, &mut self.release);
        self.leadership.expire(turn, &mut self.release);
        self.membership.advance(turn, NodeState::Active);
        self.leadership.advance(turn);
        self.partitions.advance(turn, target, &mut self.release);
        self.renewal.advance(turn, &mut self.partitions, &mut self.leadership, &mut self.release);
        self.release.advance(turn);
        self.materialiser.advance(turn, &self.partitions, &mut self.outbox);
        self.outbox.advance(turn);
        self.promotion.advance(turn, &self.partitions, &self.outbox);
        self.outbox.read_back(turn, &self.partitions);
        self.reconciler.advance(turn, &self.leadership);
    }

    fn notified(&mut self, partition: PartitionId) {
        if self.phase == Phase::Active && self.partitions.trusted().contains(partition) {
            let turn = &turn!(self);
            self.materialiser.look_at_once(turn);
            self.outbox.look_at_once(turn);
        }
    }

    fn drain_requested(&mut self) {
        match self.phase {
            Phase::Idle => self.end(),
            Phase::Active => {
                let ends = self.now.plus(self.config.drain_within);
                self.phase = Phase::Draining { ends, step: Step::Leaving };
                let turn = &mut turn!(self);
                turn.report(Fact::DrainStarted);
                self.materialiser.stop();
                self.outbox.stop();
                self.partitions.leave_all(turn, &mut self.release);
                self.leadership.leave(turn, &mut self.release);
                self.membership.report_at_once(turn);
                if self.config.bugs.has(Bug::DrainKeepsItsLeases) {
                    self.end();
                }
            }
            Phase::Draining { .. } | Phase::Drained => {}
        }
    }

    fn go_on_draining(&mut self, ends: Monotonic, step: Step) {
        if self.config.bugs.has(Bug::DrainNeverEnds) {
            self.phase = Phase::Draining { ends: Monotonic::MAX, step: Step::Leaving };
        } else if ends <= self.now {
            mark::hit(Mark::DrainCutShort);
            self.end();
            return;
        }
        let turn = &mut turn!(self);
        match step {
            Step::Leaving => {
                self.membership.advance(turn, NodeState::Draining);
                self.release.advance(turn);
                self.outbox.advance(turn);
                let settled = self.outbox.is_settled(turn.view()) && self.release.is_done(turn.view());
                if settled && turn.calls.is_quiet() && !turn.has(Bug::DrainNeverEnds) {
                    self.membership.report_at_once(turn);
                    self.membership.advance(turn, NodeState::Offline);
                    self.phase = Phase::Draining { ends, step: Step::SigningOff };
                }
            }
            Step::SigningOff => self.membership.advance(turn, NodeState::Offline),
        }
    }

    fn end(&mut self) {
        self.phase = Phase::Drained;
        self.calls.push(SchedulerEffect::Drained);
    }
}

fn earliest<const N: usize>(candidates: [(Monotonic, WakeReason); N]) -> (Monotonic, WakeReason) {
    let none = (Monotonic::MAX, WakeReason::Heartbeat);
    candidates.into_iter().fold(none, |first, next| if next.0 < first.0 { next } else { first })
}
