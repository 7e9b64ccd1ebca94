//! Edits, pauses and resumes of jobs during a run: by chance, two at once, right when the job fires, and while it is
//! paused.
//!
//! An edit keeps what the handler is like: a job whose handler takes long is never made to fire often.

use fencepost_core::job::JobDefinition;
use fencepost_core::schedule::{Bounds, Exclusions, Schedule};
use fencepost_core::time::Span;

use super::jobs::{EVERY_FEW_MINUTES, flex, misfire_beside, overlap, pause_after_failures, retry};
use super::operators::{Ground, moment, once};
use crate::fault::FaultKind;
use crate::plan::{Action, Authority, Definition, JobIndex, OperatorAction, Timing};
use crate::rng::{PPM, Stream};
use crate::sim_time::SimTime;

pub(super) fn draw(stream: &mut Stream, ground: &Ground<'_>) -> Vec<OperatorAction> {
    let mut actions = Vec::new();
    // Few jobs, so that changes meet each other.
    let few = stream.between(1, 6).min(ground.jobs.len() as u64);
    let jobs: Vec<JobIndex> =
        (0..few).map(|_| JobIndex(stream.below(ground.jobs.len() as u64) as u16)).collect();
    if ground.swarm.has(FaultKind::OperatorEdits) {
        for _ in 0..stream.between(4, 24) {
            let job = *stream.pick(&jobs);
            edit(stream, ground, job, &mut actions);
        }
    }
    if ground.swarm.has(FaultKind::OperatorPauses) {
        for _ in 0..stream.between(3, 16) {
            let job = *stream.pick(&jobs);
            pause(stream, ground, job, &mut actions);
        }
    }
    // Those that pause themselves are found and resumed now and then.
    for (index, job) in ground.jobs.iter().enumerate() {
        let Definition::Readable(definition) = &job.definition else { continue };
        if definition.pause_after_failures.is_some() && stream.chance(PPM / 2) {
            for _ in 0..stream.between(1, 3) {
                actions.push(once(moment(stream, ground), Action::Resume { job: JobIndex(index as u16) }));
            }
        }
    }
    let trespasses = ground.swarm.has(FaultKind::OperatorTrespasses);
    for action in &mut actions {
        if trespasses && stream.chance(PPM / 10) {
            action.under = Authority::Stranger;
        }
        if stream.chance(PPM / 8) {
            action.copies = 2;
        }
    }
    actions
}

/// Some moment, often one right when the job fires.
pub(super) fn when(stream: &mut Stream, ground: &Ground<'_>, job: JobIndex) -> (SimTime, Timing) {
    let at = moment(stream, ground);
    if stream.chance(PPM / 2) {
        return (at, Timing::Chance);
    }
    let Definition::Readable(definition) = &ground.jobs[job.index()].definition else {
        return (at, Timing::Chance);
    };
    let starts_at = ground.day.starts_at;
    let about = starts_at.plus(at.since(SimTime::ZERO));
    let fire = definition.bounds.next_fire_after(&definition.schedule, about);
    match fire.filter(|fire| *fire < starts_at.plus(ground.heal_at.since(SimTime::ZERO))) {
        Some(fire) => {
            let at = SimTime::ZERO.plus(fire.since(starts_at));
            (at.plus(stream.long_tailed(Span::from_micros(200), Span::from_millis(500))), Timing::Fire)
        }
        None => (at, Timing::Chance),
    }
}

fn edit(stream: &mut Stream, ground: &Ground<'_>, job: JobIndex, actions: &mut Vec<OperatorAction>) {
    let (at, timing) = when(stream, ground, job);
    let mut push = |stream: &mut Stream, at| {
        if let Some(to) = other_definition(stream, ground, job) {
            let what = Action::Edit { job, to: Box::new(to) };
            actions.push(OperatorAction { timing, ..once(at, what) });
        }
    };
    push(stream, at);
    // A second one that may have been planned on the same version.
    if stream.chance(PPM / 3) {
        let at = at.plus(stream.long_tailed(Span::from_micros(100), Span::from_secs(1)));
        push(stream, at);
    }
}

fn pause(stream: &mut Stream, ground: &Ground<'_>, job: JobIndex, actions: &mut Vec<OperatorAction>) {
    let (at, timing) = when(stream, ground, job);
    actions.push(OperatorAction { timing, ..once(at, Action::Pause { job }) });
    let lasts = stream.long_tailed(Span::from_millis(100), Span::from_secs(240));
    if ground.swarm.has(FaultKind::OperatorEdits)
        && stream.chance(PPM / 3)
        && let Some(to) = other_definition(stream, ground, job)
    {
        let meanwhile = at.plus(stream.span(Span::ZERO, lasts)).min(ground.heal_at);
        actions.push(once(meanwhile, Action::Edit { job, to: Box::new(to) }));
    }
    // Some stay paused. None is resumed so late that what it held back could not end in time.
    if !stream.chance(PPM / 10) {
        actions.push(once(at.plus(lasts).min(ground.heal_at), Action::Resume { job }));
    }
}

/// The job's definition with another schedule, and perhaps other policies.
fn other_definition(stream: &mut Stream, ground: &Ground<'_>, job: JobIndex) -> Option<JobDefinition> {
    let Definition::Readable(known) = &ground.jobs[job.index()].definition else { return None };
    let schedule = match stream.below(20) {
        0..4 => known.schedule.clone(),
        4..14 => {
            let expr = *stream.pick(&EVERY_FEW_MINUTES);
            Schedule::cron(expr, ground.day.zone).expect("a valid expression and zone")
        }
        14..17 => {
            let start = ground.day.starts_at.plus(stream.span(Span::ZERO, Span::from_secs(60)));
            let start =
                fencepost_core::time::Timestamp::from_micros(start.as_micros().div_euclid(1_000) * 1_000);
            Schedule::Interval { start, every: Span::from_millis(stream.between(60_000, 200_000)) }
        }
        17..19 => {
            let run = ground.heal_at.since(SimTime::ZERO);
            Schedule::OneShot { at: ground.day.starts_at.plus(stream.span(Span::from_secs(1), run)) }
        }
        _ => Schedule::Manual,
    };
    let bounds = match stream.below(10) {
        0 => Bounds { max_runs: Some(stream.between(1, 20)), ..Bounds::default() },
        1 => known.bounds,
        _ => Bounds::default(),
    };
    let (overlap, misfire) = if stream.chance(PPM / 2) {
        let overlap = overlap(stream);
        (overlap, misfire_beside(stream, overlap))
    } else {
        (known.overlap, known.misfire)
    };
    let mut retry = if stream.chance(PPM / 4) { retry(stream) } else { known.retry.clone() };
    if let Some(deadline) = known.deadline {
        retry.max_age = retry.max_age.map(|most| most.min(deadline));
    }
    let flex = flex(stream, &schedule);
    let pause_after_failures =
        if stream.chance(PPM / 4) { pause_after_failures(stream) } else { known.pause_after_failures };
    let exclude = if schedule == Schedule::Manual { Exclusions::default() } else { known.exclude.clone() };
    let known = (**known).clone();
    Some(JobDefinition {
        schedule,
        bounds,
        misfire,
        overlap,
        retry,
        flex,
        pause_after_failures,
        exclude,
        ..known
    })
}
