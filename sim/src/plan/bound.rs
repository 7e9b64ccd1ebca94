//! How long after the heal each liveness invariant may take, computed from the plan's own settings.
//!
//! The bounds are generous sums, not estimates: a run that is well ends as soon as nothing is unfinished, so
//! only a failure ever waits for them. What grows with each try (delays that double) is bounded by the time
//! that has passed, since a delay is at most the sum of those before it and its base.

use std::collections::BTreeSet;

use fencepost_core::job::JobDefinition;
use fencepost_core::limits;
use fencepost_core::retry::{RESCUE_DELAY_MAX, RETRY_AFTER_MAX};
use fencepost_core::time::Span;

use super::{BehaviourKind, Definition, NodeSlot, Plan};
use crate::fault::FaultKind;
use crate::sim_time::SimTime;

/// The longest that each liveness invariant may take after the heal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// `leader-exists`.
    pub leader: Span,
    /// `partitions-owned`.
    pub partitions: Span,
    /// `outbox-drains`.
    pub outbox: Span,
    /// `no-orphan-running`.
    pub orphans: Span,
    /// `due-work-ends`.
    pub work: Span,
    /// `drain-ends`, from its request.
    pub drain: Span,
}

/// What a target wishes for after a failure, in the simulation.
pub(crate) const RETRY_AFTER: Span = Span::from_secs(7);

impl Bounds {
    /// Those of a plan.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let elapsed = plan.heal.at.since(SimTime::ZERO);
        let clock_back = clock_back(plan);
        let call = limits::STORE_CALL_TIMEOUT.times(2);
        let schedulers = || plan.schedulers.iter().map(|spec| &spec.config);
        let longest = |span: fn(&fencepost_core::config::SchedulerConfig) -> Span| {
            schedulers().map(span).max().unwrap_or(Span::ZERO)
        };
        let ttl = longest(|config| config.lease_ttl);
        // After a step back, a dead owner's lease lies ahead, by up to the longest lease there is.
        let lease = if clock_back > Span::ZERO { limits::LEASE_TTL_MAX } else { ttl };
        let cycle = longest(|config| config.cycle_every);
        let starting = restarts(plan);
        let leader = starting.plus(lease).plus(cycle.times(3)).plus(call);

        let live = if clock_back > Span::ZERO {
            limits::LIVENESS_AHEAD_MAX
        } else {
            longest(|config| config.live_within)
        };
        let per_cycle = schedulers()
            .map(|config| config.acquire_per_cycle.min(config.release_per_cycle))
            .min()
            .unwrap_or(1);
        let cycles = u64::from(fencepost_core::partition::PARTITION_COUNT) / u64::from(per_cycle.max(1)) + 6;
        let partitions = leader.plus(live).plus(cycle.times(cycles)).plus(call.times(2));

        let growing = |base: Span, most: Span| elapsed.plus(base).min(most);
        let poll = longest(|config| config.poll_every);
        let outbox = partitions
            .plus(clock_back)
            .plus(longest(|config| config.outbox_grace))
            .plus(growing(longest(|config| config.outbox_delay), limits::OUTBOX_DELAY_MAX).times(2))
            .plus(poll.times(4))
            .plus(limits::PUBLISH_TIMEOUT.times(2));

        let worker_ttl = plan.workers.iter().map(|spec| spec.config.lease_ttl).max().unwrap_or(Span::ZERO);
        let sweep = longest(|config| config.sweep_every);
        let run_lease = if clock_back > Span::ZERO { limits::LEASE_TTL_MAX } else { worker_ttl };
        let orphans = leader.plus(run_lease).plus(sweep.times(4)).plus(call);

        let wait_base = plan.workers.iter().map(|spec| spec.config.defer_delay).max().unwrap_or(Span::ZERO);
        let redispatch = growing(longest(|config| config.redispatch_after), limits::REDISPATCH_DELAY_MAX);
        let work = outbox
            .plus(growing(wait_base, limits::WAIT_DELAY_MAX).times(2))
            .plus(redispatch.times(2))
            .plus(orphans)
            .plus(longest_chain(plan, run_lease, sweep))
            .plus(backlog(plan));
        let drain_within = |within: Span| within.plus(call);
        let drain = plan
            .workers
            .iter()
            .map(|spec| spec.config.drain_within)
            .chain(schedulers().map(|config| config.drain_within))
            .map(drain_within)
            .max()
            .unwrap_or(Span::ZERO);
        Self { leader, partitions, outbox, orphans, work, drain }
    }

    /// The bound of a liveness invariant, from the heal; the longest for an id that is none of them.
    #[must_use]
    pub fn for_invariant(&self, id: &str) -> Span {
        match id {
            "leader-exists" => self.leader,
            "partitions-owned" => self.partitions,
            "outbox-drains" => self.outbox,
            "no-orphan-running" => self.orphans,
            "drain-ends" => self.drain,
            _ => self.work,
        }
    }
}

/// How far the store's clock steps back in all: stored instants lie that much further ahead.
fn clock_back(plan: &Plan) -> Span {
    let steps = plan
        .faults
        .iter()
        .filter(|fault| matches!(fault.kind, FaultKind::StoreClockBack | FaultKind::StoreFailover));
    steps.fold(Span::ZERO, |sum, fault| sum.plus(fault.amount))
}

/// How long processes take to be up again after the heal.
fn restarts(plan: &Plan) -> Span {
    let schedulers = plan.schedulers.iter().map(|spec| spec.process.restart_after);
    let workers = plan.workers.iter().map(|spec| spec.process.restart_after);
    schedulers.chain(workers).max().unwrap_or(Span::ZERO).plus(plan.network.detect.most)
}

/// The longest that one execution can take from its first lease to its end.
fn longest_chain(plan: &Plan, lease: Span, sweep: Span) -> Span {
    let definitions = plan.jobs.iter().filter_map(|job| match &job.definition {
        Definition::Readable(definition) => Some((definition, job.behaviour.kind)),
        Definition::Text(_) => None,
    });
    definitions.map(|(definition, kind)| chain(definition, kind, lease, sweep)).max().unwrap_or(Span::ZERO)
}

fn chain(definition: &JobDefinition, kind: BehaviourKind, lease: Span, sweep: Span) -> Span {
    let retry = &definition.retry;
    let wish =
        if kind == BehaviourKind::FailsWithWish { RETRY_AFTER.min(RETRY_AFTER_MAX) } else { Span::ZERO };
    let attempt =
        definition.attempt_timeout.plus(retry.cap.max(wish)).plus(limits::STORE_CALL_TIMEOUT.times(2));
    let losses = u64::from(retry.max_rescues) + u64::from(retry.max_lost_starts.min(4));
    let loss = lease.plus(sweep.times(2)).plus(RESCUE_DELAY_MAX);
    attempt.times(u64::from(retry.max_attempts)).plus(loss.times(losses))
}

/// How long the survivors need for what has piled up: every job's worst attempt, over their slots.
fn backlog(plan: &Plan) -> Span {
    let dead: BTreeSet<NodeSlot> = plan.heal.dead.iter().copied().collect();
    let slots: u64 = plan
        .workers
        .iter()
        .enumerate()
        .filter(|(index, _)| !dead.contains(&plan.worker_slot(*index)))
        .map(|(_, spec)| u64::from(spec.config.slots))
        .sum();
    let all = plan.jobs.iter().fold(Span::ZERO, |sum, job| match &job.definition {
        Definition::Readable(definition) => {
            let attempts = u64::from(definition.retry.max_attempts);
            sum.plus(definition.attempt_timeout.plus(job.behaviour.most).times(attempts))
        }
        Definition::Text(_) => sum,
    });
    // Each job may have a handful of executions waiting.
    all.times(8).divided_by(slots.max(1))
}
