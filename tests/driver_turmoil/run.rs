//! A run: a cluster lives through its weather, recovers, and ends in good order.
//!
//! The oracles watch from the first commit to the last. After the heal all must come right within the bounds that
//! the simulator computes; then every node drains; and what is left must be exactly what the jobs demanded.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::bug::Bugs;
use fencepost_core::execution::ExecutionState;
use fencepost_core::time::Span;
use fencepost_sim::oracle::Recovery;
use fencepost_sim::sim_time::SimTime;
use fencepost_sim::violation::{Property, Violation};

use crate::cluster::Cluster;
use crate::judge::Shown;
use crate::parcel::Fates;
use crate::sightings::store_clock;
use crate::trace::{Keep, Tally};
use crate::weather::{HEAL, Kind, Plan};
use crate::{settings, workload};

/// How often it is asked what is unfinished.
const LOOK_EVERY: Span = Span::from_secs(1);
/// For how long a run goes on at least after the heal: late arrivals are to find something to break.
const AT_LEAST: Span = Span::from_secs(5);

/// What a run has shown.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// The hash of its trace.
    pub(crate) hash: u64,
    /// Its lines, if they were to be kept.
    pub(crate) lines: Vec<String>,
    pub(crate) simulated: Span,
    /// How long after the heal everything was well.
    pub(crate) recovered_in: Span,
    pub(crate) shown: Shown,
    pub(crate) tally: Tally,
    /// How often each kind struck each host that was up.
    pub(crate) struck: BTreeMap<(Kind, &'static str), u64>,
    /// What became of what was sent in foul weather, by the server at one end.
    pub(crate) fates: BTreeMap<(Kind, &'static str), Fates>,
    /// Handlers that were called twice for one attempt.
    pub(crate) calls_again: u64,
}

/// Runs a plan to its end, or to the first thing that breaks.
pub(crate) fn run(plan: &Plan, bugs: Bugs, keep: Keep) -> Result<Report, Violation> {
    let mut cluster = Cluster::new(plan.seed, bugs, keep);
    for (at, turn, strike) in plan.turns() {
        cluster.run_to(SimTime::ZERO.plus(at))?;
        cluster.turn(turn, strike);
    }
    cluster.run_to(SimTime::ZERO.plus(HEAL))?;
    let bounds = settings::bounds(cluster.now(), &workload::definitions());
    let recovered_in = recover(&mut cluster, &bounds)?;
    one_execution_per_fire(&cluster)?;
    every_run_had_a_token_of_its_own(&cluster)?;
    cluster.drain(bounds.drain)?;
    nothing_is_left_behind(&cluster)?;
    let calls = cluster.shared.calls.lock().expect("no host is running").clone();
    let attempts: BTreeSet<_> = calls.iter().map(|call| (call.execution, call.attempt)).collect();
    Ok(Report {
        hash: cluster.shared.trace.hash(),
        lines: cluster.shared.trace.take_lines(),
        simulated: cluster.now().since(SimTime::ZERO),
        recovered_in,
        shown: cluster.judge.shown.clone(),
        tally: cluster.shared.trace.tally(),
        struck: cluster.struck.clone(),
        fates: cluster.shared.parcels.fates(),
        calls_again: (calls.len() - attempts.len()) as u64,
    })
}

/// Waits until all is as it should be.
fn recover(cluster: &mut Cluster, bounds: &fencepost_sim::plan::Bounds) -> Result<Span, Violation> {
    let healed_at = cluster.now();
    loop {
        cluster.run_to(cluster.now().plus(LOOK_EVERY))?;
        let (at, schedulers) = (cluster.now(), cluster.live_schedulers());
        let recovery = Recovery {
            at,
            store_now: store_clock(at),
            healed_at,
            healed_store: store_clock(healed_at),
            schedulers: &schedulers,
            bounds,
        };
        let unfinished = cluster.judge.unfinished(&recovery).or_else(|| unsettled(cluster));
        match unfinished {
            Some(violation) if at.since(healed_at) > bounds.for_invariant(violation.invariant) => {
                return Err(violation);
            }
            None if at.since(healed_at) >= AT_LEAST => return Ok(at.since(healed_at)),
            Some(_) | None => {}
        }
    }
}

/// Work that the last fires left and that is not done, be it only due after the heal.
fn unsettled(cluster: &Cluster) -> Option<Violation> {
    cluster.shared.store.with(|store| {
        let tables = store.tables();
        let job = tables.jobs().iter().find(|job| job.next_fire_time.is_some());
        let execution = tables.executions().iter().find(|execution| !execution.state.is_terminal());
        let row = tables.outbox().iter().next();
        let detail = job
            .map(|job| format!("job {} has a fire to come", job.id))
            .or_else(|| execution.map(|row| format!("execution {} is {}", row.id, row.state)))
            .or_else(|| row.map(|row| format!("the outbox row of {} is still there", row.execution)));
        detail.map(|detail| broken("due-work-ends", Property::Liveness, cluster, detail))
    })
}

fn broken(invariant: &'static str, property: Property, cluster: &Cluster, detail: String) -> Violation {
    Violation { invariant, property, at: cluster.now(), detail }
}

fn one_execution_per_fire(cluster: &Cluster) -> Result<(), Violation> {
    let wrong = cluster.shared.store.with(|store| {
        let tables = store.tables();
        let mut expected = BTreeSet::new();
        for job in tables.jobs().iter() {
            let definition = job.definition.read().expect("it was written by this version");
            let mut after = job.created_at;
            while let Some(fire) = definition.bounds.next_fire_after(&definition.schedule, after) {
                expected.insert((job.id, fire));
                after = fire;
            }
        }
        let rows = || tables.executions().iter();
        let made: BTreeSet<_> = rows().map(|execution| (execution.job, execution.due_at)).collect();
        let incomplete = rows().find(|execution| execution.state != ExecutionState::Completed);
        let jobs = tables.jobs().iter().count();
        let (lost, invented) = (expected.difference(&made).next(), made.difference(&expected).next());
        if jobs != workload::JOBS || rows().count() != expected.len() || lost.is_some() || invented.is_some() {
            let (all, demanded) = (rows().count(), expected.len());
            return Some(format!(
                "{jobs} jobs have {all} executions for {demanded} fires; lost: {lost:?}; invented: {invented:?}"
            ));
        }
        incomplete.map(|row| format!("{} is {}: {:?}", row.id, row.state, row.error))
    });
    wrong.map_or(Ok(()), |detail| Err(broken("no-lost-fire", Property::Safety, cluster, detail)))
}

fn every_run_had_a_token_of_its_own(cluster: &Cluster) -> Result<(), Violation> {
    let calls = cluster.shared.calls.lock().expect("nobody panics while holding it").clone();
    let mut tokens: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let wrong = |detail| Err(broken("fenced-write", Property::Safety, cluster, detail));
    for call in calls {
        if !tokens.entry(call.execution).or_default().insert(call.token) {
            return wrong(format!("{} was called twice under {}", call.execution, call.token));
        }
    }
    let uncalled = cluster.shared.store.with(|store| {
        let rows = store.tables().executions().iter();
        let mut without = rows.filter(|row| !tokens.get(&row.id).is_some_and(|of| of.contains(&row.token)));
        without.next().map(|row| format!("{} completed under {} without a call", row.id, row.token))
    });
    uncalled.map_or(Ok(()), wrong)
}

fn nothing_is_left_behind(cluster: &Cluster) -> Result<(), Violation> {
    let left = cluster.shared.store.with(|store| {
        let tables = store.tables();
        let row = tables.outbox().iter().next().map(|row| format!("an outbox row: {row:?}"));
        row.or_else(|| {
            let held = tables.leases().iter().find(|lease| lease.owner.is_some());
            held.map(|lease| format!("a lease: {lease:?}"))
        })
    });
    left.map_or(Ok(()), |what| {
        let detail = format!("every node has drained, and this is left: {what}");
        Err(broken("drained-holds-nothing", Property::Safety, cluster, detail))
    })
}
