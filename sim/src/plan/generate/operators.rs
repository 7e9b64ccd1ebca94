//! What operators do during a run: create, trigger, cancel and delete, also twice at once, at the worst moment,
//! and what is not theirs.
//!
//! What was added later draws from streams of its own, so that the rest of every seed stayed as it was.

use fencepost_core::time::Span;

use super::calendar::Day;
use super::swarm::Swarm;
use crate::fault::FaultKind;
use crate::plan::{Action, Authority, Creation, Definition, JobIndex, JobSpec, OperatorAction, Timing};
use crate::rng::{PPM, Stream, StreamKey};
use crate::sim_time::SimTime;

/// What a seed's operators work on.
pub(super) struct Ground<'a> {
    pub(super) jobs: &'a [JobSpec],
    pub(super) day: &'a Day,
    pub(super) heal_at: SimTime,
    pub(super) swarm: &'a Swarm,
}

pub(super) fn draw(seed: u64, ground: &Ground<'_>) -> Vec<OperatorAction> {
    let stream = |name: &str| StreamKey::of(seed, name).open();
    let mut actions = at_any_moment(&mut stream("plan/operators"), ground);
    if ground.swarm.has(FaultKind::OperatorCancelsStuck) {
        actions.extend(cancel_what_is_stuck(&mut stream("plan/operators/stuck"), ground));
    }
    if ground.swarm.has(FaultKind::OperatorRaces) {
        actions.extend(race_fires(&mut stream("plan/operators/races"), ground));
    }
    if ground.swarm.has(FaultKind::OperatorTrespasses) {
        actions.extend(trespass(&mut stream("plan/operators/trespasses"), ground));
    }
    actions.sort_by_key(|action| action.at);
    actions
}

fn moment(stream: &mut Stream, ground: &Ground<'_>) -> SimTime {
    SimTime::ZERO.plus(stream.span(Span::from_secs(1), ground.heal_at.since(SimTime::ZERO)))
}

fn once(at: SimTime, what: Action) -> OperatorAction {
    OperatorAction { at, copies: 1, what, under: Authority::Owner, timing: Timing::Chance }
}

fn at_any_moment(stream: &mut Stream, ground: &Ground<'_>) -> Vec<OperatorAction> {
    let Ground { jobs, swarm, .. } = *ground;
    let mut actions = Vec::new();
    let mut push = |stream: &mut Stream, what| {
        let at = moment(stream, ground);
        let twice = swarm.has(FaultKind::OperatorRepeats) && stream.chance(PPM / 2);
        actions.push(OperatorAction { copies: if twice { 2 } else { 1 }, ..once(at, what) });
    };
    let all = || (0..jobs.len()).map(|index| JobIndex(index as u16));
    for job in all().filter(|job| jobs[job.index()].created == Creation::ByOperator) {
        push(stream, Action::Create { job });
    }
    let readable: Vec<JobIndex> =
        all().filter(|job| matches!(jobs[job.index()].definition, Definition::Readable(_))).collect();
    if swarm.has(FaultKind::OperatorTriggers) {
        for _ in 0..stream.between(5, 40) {
            let job = *stream.pick(&readable);
            // Few keys: some triggers repeat an earlier one.
            let key = format!("request {}", stream.below(6)).into();
            push(stream, Action::Trigger { job, key });
        }
    }
    if swarm.has(FaultKind::OperatorCancels) {
        for _ in 0..stream.between(5, 40) {
            let job = *stream.pick(&readable);
            push(stream, Action::CancelNewest { job });
        }
    }
    if swarm.has(FaultKind::OperatorDeletes) {
        for _ in 0..stream.between(1, 6) {
            let job = JobIndex(stream.below(jobs.len() as u64) as u16);
            push(stream, Action::Delete { job });
        }
    }
    actions
}

/// Somebody looks every now and then at what has been running for longest, and cancels it.
fn cancel_what_is_stuck(stream: &mut Stream, ground: &Ground<'_>) -> Vec<OperatorAction> {
    (0..stream.between(5, 40)).map(|_| once(moment(stream, ground), Action::CancelStuck)).collect()
}

/// Requests that arrive while a fire is on its way from the scan to the ledger, to a worker, to its end.
fn race_fires(stream: &mut Stream, ground: &Ground<'_>) -> Vec<OperatorAction> {
    let run = ground.heal_at.since(SimTime::ZERO);
    let starts_at = ground.day.starts_at;
    let mut actions = Vec::new();
    for _ in 0..stream.between(5, 30) {
        let job = JobIndex(stream.below(ground.jobs.len() as u64) as u16);
        let about = starts_at.plus(stream.span(Span::ZERO, run));
        let Definition::Readable(definition) = &ground.jobs[job.index()].definition else { continue };
        let Some(fire) = definition.bounds.next_fire_after(&definition.schedule, about) else { continue };
        if fire >= starts_at.plus(run) {
            continue;
        }
        let what = if stream.chance(PPM / 2) { Action::Delete { job } } else { Action::CancelNewest { job } };
        let at = SimTime::ZERO.plus(fire.since(starts_at));
        let at = at.plus(stream.long_tailed(Span::from_micros(200), Span::from_millis(500)));
        actions.push(OperatorAction { timing: Timing::Fire, ..once(at, what) });
    }
    actions
}

fn trespass(stream: &mut Stream, ground: &Ground<'_>) -> Vec<OperatorAction> {
    let mut actions = Vec::new();
    for _ in 0..stream.between(5, 20) {
        let job = JobIndex(stream.below(ground.jobs.len() as u64) as u16);
        let what = match stream.below(4) {
            0 => Action::Trigger { job, key: format!("request {}", stream.below(6)).into() },
            1 => Action::CancelNewest { job },
            2 => Action::CancelStuck,
            _ => Action::Delete { job },
        };
        actions.push(OperatorAction { under: Authority::Stranger, ..once(moment(stream, ground), what) });
    }
    actions
}
