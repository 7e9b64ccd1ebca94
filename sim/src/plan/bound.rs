//! How long after the heal each liveness invariant may take, computed from the plan's own settings.
//!
//! The bounds are generous sums, not estimates: a run that is well ends as soon as nothing is unfinished, so
//! only a failure ever waits for them. What grows with each try (delays that double) is bounded by the time
//! that has passed, since a delay is at most the sum of those before it and its base.

use std::collections::BTreeSet;

use fencepost_core::config::{SchedulerConfig, WorkerConfig};
use fencepost_core::job::JobDefinition;
use fencepost_core::limits;
use fencepost_core::retry::{RESCUE_DELAY_MAX, RETRY_AFTER_MAX};
use fencepost_core::time::Span;

use super::{Action, BehaviourKind, Definition, NodeSlot, Plan};
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

/// What the bounds are computed from: a plan's, or those of a cluster that is driven by something else.
#[derive(Clone, Debug)]
pub struct Settings<'a> {
    /// How long the cluster had run when everything healed.
    pub elapsed: Span,
    /// How far the store's clock stepped back in all: stored instants lie that much further ahead.
    pub clock_back: Span,
    /// How long processes take to be up again after the heal.
    pub restarts: Span,
    /// The schedulers' settings.
    pub schedulers: Vec<&'a SchedulerConfig>,
    /// The workers' settings.
    pub workers: Vec<&'a WorkerConfig>,
    /// How many executions side by side the workers that live on can take.
    pub slots: u64,
    /// The jobs.
    pub jobs: Vec<JobLoad<'a>>,
}

/// How long a job's executions may take.
#[derive(Clone, Copy, Debug)]
pub struct JobLoad<'a> {
    /// The job.
    pub definition: &'a JobDefinition,
    /// What its target wishes for after a failure.
    pub wish: Span,
    /// The longest run of its handler.
    pub longest_run: Span,
}

/// What a target wishes for after a failure, in the simulation.
pub(crate) const RETRY_AFTER: Span = Span::from_secs(7);

impl Bounds {
    /// Those of a plan.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let jobs = plan.jobs.iter().filter_map(|job| match &job.definition {
            Definition::Readable(definition) => {
                let wishes = job.behaviour.kind == BehaviourKind::FailsWithWish;
                let wish = if wishes { RETRY_AFTER.min(RETRY_AFTER_MAX) } else { Span::ZERO };
                Some(JobLoad { definition, wish, longest_run: job.behaviour.most })
            }
            Definition::Text(_) => None,
        });
        let bounds = Self::from_settings(&Settings {
            elapsed: plan.heal.at.since(SimTime::ZERO),
            clock_back: clock_back(plan),
            restarts: restarts(plan),
            schedulers: plan.schedulers.iter().map(|spec| &spec.config).collect(),
            workers: plan.workers.iter().map(|spec| &spec.config).collect(),
            slots: surviving_slots(plan),
            jobs: jobs.collect(),
        });
        Self { work: bounds.work.plus(longest_flex(plan)), ..bounds }
    }

    /// Those of a cluster.
    #[must_use]
    pub fn from_settings(settings: &Settings<'_>) -> Self {
        let Settings { elapsed, clock_back, .. } = *settings;
        let call = limits::STORE_CALL_TIMEOUT.times(2);
        let schedulers = || settings.schedulers.iter().copied();
        let longest = |span: fn(&SchedulerConfig) -> Span| schedulers().map(span).max().unwrap_or(Span::ZERO);
        let ttl = longest(|config| config.lease_ttl);
        // After a step back, a dead owner's lease lies ahead, by up to the longest lease there is.
        let lease = if clock_back > Span::ZERO { limits::LEASE_TTL_MAX } else { ttl };
        let cycle = longest(|config| config.cycle_every.plus(config.beat()));
        let leader = settings.restarts.plus(lease).plus(cycle.times(3)).plus(call);

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
        let poll = longest(|config| config.poll_every.plus(config.beat()));
        let outbox = partitions
            .plus(clock_back)
            .plus(longest(|config| config.outbox_grace))
            .plus(growing(longest(|config| config.outbox_delay), limits::OUTBOX_DELAY_MAX).times(2))
            .plus(poll.times(4))
            .plus(limits::PUBLISH_TIMEOUT.times(2));

        let workers = || settings.workers.iter().copied();
        let worker_ttl = workers().map(|config| config.lease_ttl).max().unwrap_or(Span::ZERO);
        let sweep = longest(|config| config.sweep_every.plus(config.beat()));
        let run_lease = if clock_back > Span::ZERO { limits::LEASE_TTL_MAX } else { worker_ttl };
        let orphans = leader.plus(run_lease).plus(sweep.times(4)).plus(call);

        let wait_base = workers().map(|config| config.defer_delay).max().unwrap_or(Span::ZERO);
        let redispatch = growing(longest(|config| config.redispatch_after), limits::REDISPATCH_DELAY_MAX);
        let work = outbox
            .plus(growing(wait_base, limits::WAIT_DELAY_MAX).times(2))
            .plus(redispatch.times(2))
            .plus(orphans)
            .plus(longest_chain(settings, run_lease, sweep))
            .plus(backlog(settings));
        // What waits for a slot is dispatched once whoever holds it has come to its end.
        let judges = settings.jobs.iter().any(|job| job.definition.overlap.judges());
        let work = if judges {
            work.plus(longest_chain(settings, run_lease, sweep)).plus(outbox).plus(redispatch)
        } else {
            work
        };
        // What waits for a limit may be looked at again as often as it is lifted for nothing.
        let work = work.plus(limits::LIMIT_RECHECK.times(8));
        let drain_within = |within: Span| within.plus(call);
        let drain = workers()
            .map(|config| config.drain_within)
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

/// The longest flex window of a job, by its first definition or by an edit: what fires at the heal is due only then.
fn longest_flex(plan: &Plan) -> Span {
    let first = plan.jobs.iter().filter_map(|job| match &job.definition {
        Definition::Readable(definition) => Some(definition.flex),
        Definition::Text(_) => None,
    });
    let edits = plan.actions.iter().filter_map(|action| match &action.what {
        Action::Edit { to, .. } => Some(to.flex),
        _ => None,
    });
    first.chain(edits).max().unwrap_or(Span::ZERO)
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

/// How many executions side by side the workers that live on can take.
fn surviving_slots(plan: &Plan) -> u64 {
    let dead: BTreeSet<NodeSlot> = plan.heal.dead.iter().copied().collect();
    let workers = plan.workers.iter().enumerate();
    let living = workers.filter(|(index, _)| !dead.contains(&plan.worker_slot(*index)));
    living.map(|(_, spec)| u64::from(spec.config.slots)).sum()
}

/// The longest that one execution can take from its first lease to its end.
fn longest_chain(settings: &Settings<'_>, lease: Span, sweep: Span) -> Span {
    settings.jobs.iter().map(|job| chain(job, lease, sweep)).max().unwrap_or(Span::ZERO)
}

fn chain(job: &JobLoad<'_>, lease: Span, sweep: Span) -> Span {
    let (definition, retry) = (job.definition, &job.definition.retry);
    let attempt =
        definition.attempt_timeout.plus(retry.cap.max(job.wish)).plus(limits::STORE_CALL_TIMEOUT.times(2));
    let losses = u64::from(retry.max_rescues) + u64::from(retry.max_lost_starts.min(4));
    let loss = lease.plus(sweep.times(2)).plus(RESCUE_DELAY_MAX);
    attempt.times(u64::from(retry.max_attempts)).plus(loss.times(losses))
}

/// How long the survivors need for what has piled up: every job's worst attempt, over their slots.
fn backlog(settings: &Settings<'_>) -> Span {
    let all = settings.jobs.iter().fold(Span::ZERO, |sum, job| {
        let attempts = u64::from(job.definition.retry.max_attempts);
        sum.plus(job.definition.attempt_timeout.plus(job.longest_run).times(attempts))
    });
    // Each job may have a handful of executions waiting.
    all.times(8).divided_by(settings.slots.max(1))
}
