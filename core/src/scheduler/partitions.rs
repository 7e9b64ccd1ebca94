//! Partitions: which ones this node holds, and the moves towards its fair share.
//!
//! The cycle releases what lies above the target and asks for what is missing below it, bounded per cycle.
//! All nodes compute targets from the same list by the same rule, targets add up to all partitions, and
//! nobody moves unless it is off its own: so the movement ends, and does not flap.
//!
//! A partition is acted for only while its lease is trusted. That saves work; the token gives the safety.

use crate::bug::Bug;
use crate::fact::{Fact, LeaseEnd};
use crate::fencing::FencingToken;
use crate::id::EffectId;
use crate::lease::{HeldLease, LeaseResource};
use crate::mark::{self, Mark};
use crate::partition::{PARTITION_COUNT, PartitionId};
use crate::scheduler::calls::{Ask, Call, Concern, Turn, View};
use crate::scheduler::health::Health;
use crate::scheduler::held::Held;
use crate::scheduler::pace::Pace;
use crate::scheduler::partition_set::PartitionSet;
use crate::scheduler::release::Release;
use crate::store::command::{AcquirePartitions, Command};
use crate::time::{Monotonic, Span};

#[derive(Debug)]
pub(super) struct Partitions {
    held: [Option<Held>; PARTITION_COUNT as usize],
    owned: PartitionSet,
    trusted: PartitionSet,
    /// The earliest end of trust among the trusted.
    trust_ends: Monotonic,
    pub(super) health: Health,
    cycle: Pace,
    /// An acquisition whose outcome is unknown.
    ask: Option<Ask>,
}

impl Partitions {
    pub(super) const fn new() -> Self {
        Self {
            held: [None; PARTITION_COUNT as usize],
            owned: PartitionSet::EMPTY,
            trusted: PartitionSet::EMPTY,
            trust_ends: Monotonic::MAX,
            health: Health::new(),
            cycle: Pace::AT_ONCE,
            ask: None,
        }
    }

    /// Those whose lease this node holds, trusted or not.
    pub(super) const fn owned(&self) -> PartitionSet {
        self.owned
    }

    /// Those that this node may act for.
    pub(super) const fn trusted(&self) -> PartitionSet {
        self.trusted
    }

    pub(super) const fn trust_ends(&self) -> Monotonic {
        self.trust_ends
    }

    /// The lease of a partition that this node may act for.
    pub(super) fn lease(&self, partition: PartitionId) -> Option<HeldLease> {
        if self.trusted.contains(partition) { self.held_lease(partition) } else { None }
    }

    /// The leases of all partitions that this node may act for, ascending.
    pub(super) fn trusted_leases(&self) -> Vec<HeldLease> {
        self.trusted.iter().filter_map(|partition| self.held_lease(partition)).collect()
    }

    /// What is to be renewed. A wedged owner renews nothing.
    pub(super) fn renewable(&self) -> Vec<HeldLease> {
        if self.health.is_wedged() {
            return Vec::new();
        }
        // One more: leadership is renewed in the same call.
        let mut leases = Vec::with_capacity(self.owned.len() as usize + 1);
        leases.extend(self.owned.iter().filter_map(|partition| self.held_lease(partition)));
        leases
    }

    fn held_lease(&self, partition: PartitionId) -> Option<HeldLease> {
        let held = self.held[usize::from(partition.number())]?;
        Some(HeldLease { resource: LeaseResource::Partition(partition), token: held.token })
    }

    /// Whether a probe has to succeed before anything more is acquired.
    pub(super) const fn wants_probe(&self) -> bool {
        self.health.is_wedged() && self.trusted.is_empty()
    }

    /// When the cycle runs next. It knows no target before the first answer to a heartbeat.
    pub(super) fn wakes_at(&self, view: View<'_>, target: Option<u32>) -> Monotonic {
        let waits = target.is_none() || view.calls.is_busy(Concern::Acquire);
        if waits { Monotonic::MAX } else { self.cycle.at() }
    }

    /// Runs the cycle if it is due: releases above the target, or asks for what is missing below it.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>, target: Option<u32>, release: &mut Release) {
        let Some(target) = target else { return };
        if self.wakes_at(turn.view(), Some(target)) > turn.now {
            return;
        }
        self.cycle.until_answered(turn.on_the_beat(turn.config.cycle_every));
        let owned = self.owned.len();
        if owned > target && !turn.has(Bug::NeverReleasesAboveTarget) {
            for _ in 0..(owned - target).min(turn.config.release_per_cycle) {
                self.leave_last(turn, release);
            }
            self.find_trust_end();
        }
        if self.health.is_wedged() {
            return;
        }
        let missing = target.saturating_sub(owned).min(turn.config.acquire_per_cycle);
        match self.ask.take() {
            Some(ask) => {
                mark::hit(Mark::PartitionsAskedAgain);
                let id = turn.calls.next_id();
                Self::acquire(turn, id, ask);
            }
            None if missing > 0 => {
                let id = turn.calls.next_id();
                Self::acquire(turn, id, Ask { nonce: id, since: turn.now, limit: missing });
            }
            None => {}
        }
    }

    fn acquire(turn: &mut Turn<'_>, id: EffectId, ask: Ask) {
        let command = AcquirePartitions {
            node: turn.config.node,
            nonce: ask.nonce,
            ttl: turn.config.lease_ttl,
            limit: ask.limit,
        };
        turn.call_as(id, Call::AcquirePartitions(ask), Command::AcquirePartitions(command));
    }

    /// An acquisition was answered.
    pub(super) fn granted(&mut self, turn: &mut Turn<'_>, ask: Ask, granted: &[HeldLease]) {
        self.cycle.answered();
        if self.owned.is_empty() {
            self.health.works(turn.now);
        }
        let until = turn.config.trust.trusted_until(ask.since, turn.config.lease_ttl);
        for lease in granted {
            if let LeaseResource::Partition(partition) = lease.resource {
                self.hold(turn, partition, Held::new(lease.token, until, turn.now));
            }
        }
        self.find_trust_end();
    }

    /// An acquisition's outcome is unknown: it is sent again under the same nonce.
    pub(super) fn unknown(&mut self, turn: &Turn<'_>, ask: Ask) {
        self.ask = Some(ask);
        self.cycle.after_unknown(turn.now, turn.config.resend_after, turn.config.cycle_every);
    }

    /// A renewal sent at `sent_at` was granted for these.
    pub(super) fn renewed(&mut self, turn: &mut Turn<'_>, renewed: PartitionSet, sent_at: Monotonic) {
        let until = turn.config.trust.trusted_until(sent_at, turn.config.lease_ttl);
        for partition in renewed.iter() {
            if let Some(held) = self.held[usize::from(partition.number())] {
                self.hold(turn, partition, Held::new(held.token, until, turn.now));
            }
        }
        self.find_trust_end();
    }

    /// Whether exactly this lease is held.
    pub(super) fn holds(&self, partition: PartitionId, token: FencingToken) -> bool {
        self.held[usize::from(partition.number())].is_some_and(|held| held.token == token)
    }

    /// The store says that this lease is another's by now.
    pub(super) fn lost(&mut self, turn: &mut Turn<'_>, partition: PartitionId, token: FencingToken) {
        if self.holds(partition, token) {
            self.drop(turn, partition, LeaseEnd::Refused);
            self.find_trust_end();
        }
    }

    /// Falls silent for what is trusted no longer; a wedged owner gives it back, so that nobody has to wait until it
    /// lapses, which may take long if the store's clock is set back.
    pub(super) fn expire(&mut self, turn: &mut Turn<'_>, release: &mut Release) {
        if self.trust_ends <= turn.now {
            for partition in self.trusted.iter() {
                if let Some(held) = self.held[usize::from(partition.number())] {
                    self.hold(turn, partition, Held::new(held.token, held.trusted_until, turn.now));
                }
            }
            self.find_trust_end();
        }
        if self.health.is_wedged() {
            for partition in self.owned.iter().filter(|partition| !self.trusted.contains(*partition)) {
                if let Some(lease) = self.held_lease(partition) {
                    release.add(lease);
                }
                self.held[usize::from(partition.number())] = None;
            }
            self.owned = self.trusted;
        }
    }

    /// Judges whether the work that the leases are for still succeeds.
    pub(super) fn judge(&mut self, turn: &Turn<'_>, patience: Span) {
        if !self.owned.is_empty() {
            self.health.judge(turn.now, patience);
        }
    }

    /// Gives everything back, and asks for nothing more.
    pub(super) fn leave_all(&mut self, turn: &mut Turn<'_>, release: &mut Release) {
        self.ask = None;
        while !self.owned.is_empty() {
            self.leave_last(turn, release);
        }
        self.find_trust_end();
    }

    fn leave_last(&mut self, turn: &mut Turn<'_>, release: &mut Release) {
        let Some(partition) = self.owned.last() else { return };
        if let Some(lease) = self.held_lease(partition) {
            release.add(lease);
        }
        self.drop(turn, partition, LeaseEnd::Released);
    }

    fn hold(&mut self, turn: &mut Turn<'_>, partition: PartitionId, held: Held) {
        let before = self.held[usize::from(partition.number())].replace(held);
        let silent = before.is_some_and(|before| !before.is_trusted() && before.token == held.token);
        let before = before.filter(Held::is_trusted);
        self.owned.insert(partition);
        let resource = LeaseResource::Partition(partition);
        if held.is_trusted() {
            self.trusted.insert(partition);
            if silent {
                mark::hit(Mark::LeaseSpokeAgain);
            }
            if before.is_none_or(|before| before.token != held.token) {
                turn.report(Fact::LeaseGained { resource, token: held.token });
            }
        } else {
            self.trusted.remove(partition);
            if let Some(before) = before {
                mark::hit(Mark::LeaseFellSilent);
                turn.report(Fact::LeaseEnded { resource, token: before.token, how: LeaseEnd::Untrusted });
            }
        }
    }

    fn drop(&mut self, turn: &mut Turn<'_>, partition: PartitionId, how: LeaseEnd) {
        let held = self.held[usize::from(partition.number())].take();
        self.owned.remove(partition);
        self.trusted.remove(partition);
        if let Some(held) = held.filter(Held::is_trusted) {
            let resource = LeaseResource::Partition(partition);
            turn.report(Fact::LeaseEnded { resource, token: held.token, how });
        }
    }

    fn find_trust_end(&mut self) {
        let ends = |partition: PartitionId| {
            self.held[usize::from(partition.number())].map_or(Monotonic::MAX, |held| held.trusted_until)
        };
        self.trust_ends = self.trusted.iter().map(ends).min().unwrap_or(Monotonic::MAX);
    }
}
