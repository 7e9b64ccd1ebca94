//! The settings of the two roles, with defaults that meet the objectives.
//!
//! Everything a bound of the simulator's liveness is computed from is here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bug::Bugs;
use crate::id::NodeId;
use crate::job::HandlerName;
use crate::lease::TrustWindow;
use crate::time::{Monotonic, Span};

/// The settings of a [`Scheduler`](crate::scheduler::Scheduler).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerConfig {
    /// This process.
    pub node: NodeId,
    /// Its host, for people.
    pub label: Arc<str>,
    /// The schema version it writes; the simulator runs two side by side.
    pub schema: u16,
    /// How long leadership and partitions are leased for.
    pub lease_ttl: Span,
    /// How long they are trusted.
    pub trust: TrustWindow,
    /// How often liveness is reported.
    pub heartbeat_every: Span,
    /// How recent another scheduler's report must be for it to count in the targets.
    pub live_within: Span,
    /// How often the partition cycle (renew, release, acquire) and the leadership cycle run.
    pub cycle_every: Span,
    /// Partitions acquired in one cycle at most.
    pub acquire_per_cycle: u32,
    /// Partitions released in one cycle at most.
    pub release_per_cycle: u32,
    /// The longest time between two scans; due times that are known wake earlier.
    pub poll_every: Span,
    /// The pause before a store call whose outcome is unknown is sent again; doubled up to `poll_every`.
    pub resend_after: Span,
    /// Items in one store command at most.
    pub batch: u32,
    /// How old an own outbox row must be before it is read back.
    pub outbox_grace: Span,
    /// The first delay between two publications of one outbox row.
    pub outbox_delay: Span,
    /// The first delay before what could not be routed is dispatched again.
    pub return_delay: Span,
    /// How often the leader sweeps.
    pub sweep_every: Span,
    /// The first delay before a dispatch that led to nothing is repeated.
    pub redispatch_after: Span,
    /// After how much silence a node is marked offline.
    pub node_stale_after: Span,
    /// Lease times without a successful scan (partitions) or sweep (leadership) after which renewal stops.
    pub wedged_after_ttls: u32,
    /// The longest a drain may take.
    pub drain_within: Span,
    /// Deliberate bugs; none in production.
    #[serde(default, skip)]
    pub bugs: Bugs,
}

impl SchedulerConfig {
    /// What this node does again and again comes on multiples of this of its own clock, to the nearest: polls,
    /// heartbeats, cycles and sweeps fall together that way. Lease renewals do not wait for it.
    #[must_use]
    pub const fn beat(&self) -> Span {
        self.poll_every.divided_by(8)
    }

    /// The beat nearest to `span` from now. What comes round faster than the beat keeps a beat of half its own span: a
    /// node that polls seldom is not to be taken for dead.
    #[must_use]
    pub fn on_the_beat(&self, now: Monotonic, span: Span) -> Monotonic {
        let beat = self.beat().min(span.divided_by(2)).as_micros().max(1);
        let at = now.plus(span);
        let nearest = at.as_micros().saturating_add(beat / 2) / beat * beat;
        if nearest > now.as_micros() { Monotonic::from_micros(nearest) } else { at }
    }

    /// The defaults, for this process.
    #[must_use]
    pub fn new(node: NodeId, label: Arc<str>) -> Self {
        Self {
            node,
            label,
            schema: crate::job::SCHEMA_VERSION,
            lease_ttl: Span::from_secs(10),
            trust: TrustWindow::Margin(Span::from_secs(2)),
            heartbeat_every: Span::from_secs(3),
            live_within: Span::from_secs(10),
            cycle_every: Span::from_secs(2),
            acquire_per_cycle: 64,
            release_per_cycle: 64,
            poll_every: Span::from_secs(1),
            resend_after: Span::from_millis(200),
            batch: 500,
            outbox_grace: Span::from_secs(2),
            outbox_delay: Span::from_secs(2),
            return_delay: Span::from_secs(2),
            sweep_every: Span::from_secs(2),
            redispatch_after: Span::from_secs(60),
            node_stale_after: Span::from_secs(60),
            wedged_after_ttls: 3,
            drain_within: Span::from_secs(20),
            bugs: Bugs::NONE,
        }
    }
}

/// The settings of a [`Worker`](crate::worker::Worker).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerConfig {
    /// This process.
    pub node: NodeId,
    /// Its host, for people.
    pub label: Arc<str>,
    /// The schema version it reads and writes; the simulator runs two side by side.
    pub schema: u16,
    /// Executions side by side at most; also the prefetch.
    pub slots: u32,
    /// Which handlers it knows, in which versions.
    pub handlers: BTreeMap<HandlerName, BTreeSet<u32>>,
    /// How long executions are leased for.
    pub lease_ttl: Span,
    /// How long they are trusted.
    pub trust: TrustWindow,
    /// How often leases are renewed.
    pub renew_every: Span,
    /// How often liveness is reported.
    pub heartbeat_every: Span,
    /// Items in one store command at most.
    pub batch: u32,
    /// How long an acquire or a finish waits for company after the one before it, while it has little to say. What
    /// comes up at a rest never waits. Zero: as soon as the one before it is answered.
    #[serde(default)]
    pub gather: Span,
    /// The first delay before what cannot run here is dispatched again.
    pub defer_delay: Span,
    /// The pause before a store call whose outcome is unknown is sent again; doubled up to an eighth of a lease.
    pub resend_after: Span,
    /// Handlers that may run longer than this are acknowledged once their lease is known, not once they end.
    pub ack_early_above: Span,
    /// The longest a drain may take; handlers still running then are given back.
    pub drain_within: Span,
    /// Deliberate bugs; none in production.
    #[serde(default, skip)]
    pub bugs: Bugs,
}

impl WorkerConfig {
    /// The defaults, for this process and these handlers.
    #[must_use]
    pub fn new(node: NodeId, label: Arc<str>, handlers: BTreeMap<HandlerName, BTreeSet<u32>>) -> Self {
        Self {
            node,
            label,
            schema: crate::job::SCHEMA_VERSION,
            slots: 512,
            handlers,
            lease_ttl: Span::from_secs(15),
            trust: TrustWindow::Margin(Span::from_secs(3)),
            renew_every: Span::from_secs(5),
            heartbeat_every: Span::from_secs(5),
            batch: 500,
            gather: Span::from_millis(20),
            defer_delay: Span::from_secs(5),
            resend_after: Span::from_millis(200),
            ack_early_above: Span::from_secs(15 * 60),
            drain_within: Span::from_secs(20),
            bugs: Bugs::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_at_about_the_same_time_is_due_on_one_beat() {
        let config = SchedulerConfig::new(NodeId::from_u128(1), "a".into());
        let polled = config.on_the_beat(Monotonic::from_micros(10_003_000), config.poll_every);
        let beaten = config.on_the_beat(Monotonic::from_micros(8_009_000), config.heartbeat_every);
        assert_eq!((polled, beaten), (Monotonic::from_micros(11_000_000), polled));
    }

    #[test]
    fn a_node_that_polls_seldom_beats_as_often_as_it_is_told() {
        let mut config = SchedulerConfig::new(NodeId::from_u128(1), "a".into());
        config.poll_every = Span::from_secs(3_600);
        let most = config.heartbeat_every.plus(config.heartbeat_every.divided_by(4));
        for micros in (0..20_000_000).step_by(77_777) {
            let now = Monotonic::from_micros(micros);
            let next = config.on_the_beat(now, config.heartbeat_every);
            assert!(next > now && next <= now.plus(most), "{now:?}: {next:?}");
        }
    }
}
