//! What operators do during a run: create, change, trigger, cancel, delete, replay and purge, also twice at once, at the worst
//! moment, and what is not theirs.
//!
//! What was added later draws from streams of its own, so that the rest of every seed stayed as it was.

use fencepost_core::store::command::ReplayKey;
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
    if ground.swarm.has(FaultKind::OperatorEdits) || ground.swarm.has(FaultKind::OperatorPauses) {
        actions.extend(super::job_changes::draw(&mut stream("plan/operators/changes"), ground));
    }
    if ground.swarm.has(FaultKind::OperatorHolds) {
        actions.extend(super::pauses::draw(&mut stream("plan/operators/pauses"), ground));
    }
    if ground.swarm.has(FaultKind::OperatorLimits) {
        actions.extend(set_limits(&mut stream("plan/operators/limits"), ground));
    }
    if ground.swarm.has(FaultKind::OperatorCalendars) {
        actions.extend(super::calendars::draw(&mut stream("plan/operators/calendars"), ground));
    }
    let dead_letters = [FaultKind::OperatorReplays, FaultKind::OperatorReplaysAll, FaultKind::OperatorPurges];
    if dead_letters.iter().any(|kind| ground.swarm.has(*kind)) {
        actions.extend(tend_dead_letters(&mut stream("plan/operators/dead letters"), ground));
    }
    actions.sort_by_key(|action| action.at);
    actions
}

pub(super) fn moment(stream: &mut Stream, ground: &Ground<'_>) -> SimTime {
    SimTime::ZERO.plus(stream.span(Span::from_secs(1), ground.heal_at.since(SimTime::ZERO)))
}

pub(super) fn once(at: SimTime, what: Action) -> OperatorAction {
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

/// Limits come, change and go. When everything heals they are taken away, so that what is due can end in time.
fn set_limits(stream: &mut Stream, ground: &Ground<'_>) -> Vec<OperatorAction> {
    let mut actions = Vec::new();
    for _ in 0..stream.between(3, 16) {
        let (tenant, key) = (stream.below(2) as u8, super::jobs::concurrency_key(stream));
        let key = key.filter(|_| stream.chance(PPM / 2));
        let max_running = (!stream.chance(PPM / 6)).then(|| stream.between(1, 4) as u32);
        let at = moment(stream, ground);
        let copies = if stream.chance(PPM / 8) { 2 } else { 1 };
        let what = Action::SetLimit { tenant, key: key.clone(), max_running };
        actions.push(OperatorAction { copies, ..once(at, what) });
        let what = Action::SetLimit { tenant, key, max_running: None };
        actions.push(once(ground.heal_at, what));
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

/// Replays and purges of what has died by then: few of the first ones, so that several meet at one.
fn tend_dead_letters(stream: &mut Stream, ground: &Ground<'_>) -> Vec<OperatorAction> {
    let swarm = ground.swarm;
    let mut actions = Vec::new();
    let mut push = |stream: &mut Stream, what| {
        // There is little to replay at first.
        let at = moment(stream, ground).max(moment(stream, ground));
        let copies = if stream.chance(PPM / 3) { 2 } else { 1 };
        let trespasses = swarm.has(FaultKind::OperatorTrespasses) && stream.chance(PPM / 8);
        let under = if trespasses { Authority::Stranger } else { Authority::Owner };
        actions.push(OperatorAction { copies, under, ..once(at, what) });
    };
    let nth = |stream: &mut Stream| stream.below(8) as u32;
    if swarm.has(FaultKind::OperatorReplays) {
        for _ in 0..stream.between(5, 30) {
            let number = match stream.below(4) {
                0 => None,
                1 => Some(2),
                _ => Some(1),
            };
            let key = if stream.chance(PPM / 4) { ReplayKey::Own } else { ReplayKey::Origin };
            let what = Action::Replay { nth: nth(stream), number, key };
            push(stream, what);
        }
    }
    if swarm.has(FaultKind::OperatorReplaysAll) {
        for _ in 0..stream.between(2, 10) {
            let tenant = stream.below(2) as u8;
            let (page, pages) = (stream.between(1, 5) as u32, stream.between(1, 6) as u32);
            push(stream, Action::ReplayAll { tenant, page, pages });
        }
    }
    if swarm.has(FaultKind::OperatorPurges) {
        for _ in 0..stream.between(2, 10) {
            let what = Action::Purge { nth: nth(stream) };
            push(stream, what);
        }
    }
    actions
}
