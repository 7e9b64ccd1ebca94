//! Jobs: a mix of schedules, policies and handlers, as one finds them together.
//!
//! Most jobs fire every few minutes, a few every few seconds, some once, some only by hand, and some never
//! within the run. Fires within the day's change of clocks are aimed for.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use fencepost_core::id::JobId;
use fencepost_core::job::{
    DeadLetters, HandlerName, HandlerRef, JobDefinition, Overlap, Payload, StoredDefinition,
};
use fencepost_core::priority::Priority;
use fencepost_core::retry::RetryPolicy;
use fencepost_core::schedule::misfire::MisfirePolicy;
use fencepost_core::schedule::{Bounds, CronExpr, Exclusions, GapPolicy, RepeatPolicy, Schedule, Zone};
use fencepost_core::time::{Span, Timestamp};

use super::calendar::{Day, ZONES};
use super::swarm::Swarm;
use super::topology::{HANDLERS, NEW_VERSION};
use super::wide;
use crate::fault::FaultKind;
use crate::plan::{Behaviour, BehaviourKind, Creation, Definition, JobSpec, OutsideIndex};
use crate::rng::{PPM, Stream};
use crate::sim_time::SimTime;

/// How many jobs of a herd are due at one instant.
pub(super) const HERD: usize = 14;

struct Scene<'a> {
    day: &'a Day,
    run: Span,
    swarm: &'a Swarm,
    outside: usize,
    herd_at: Timestamp,
}

pub(super) fn draw(
    stream: &mut Stream,
    count: usize,
    day: &Day,
    heal_at: SimTime,
    swarm: &Swarm,
    outside: usize,
) -> Vec<JobSpec> {
    let run = heal_at.since(SimTime::ZERO);
    let herd_at = day.starts_at.plus(stream.span(Span::from_secs(10), run));
    let scene = Scene { day, run, swarm, outside, herd_at };
    (0..count).map(|index| job(stream, index, &scene)).collect()
}

fn job(stream: &mut Stream, index: usize, scene: &Scene<'_>) -> JobSpec {
    let swarm = scene.swarm;
    let id = JobId::from_u128(wide(stream));
    let in_herd = swarm.has(FaultKind::Herd) && index < HERD;
    let (schedule, pace) = if in_herd {
        (Schedule::OneShot { at: scene.herd_at }, Pace::Seldom)
    } else {
        schedule(stream, index, scene)
    };
    let (behaviour, timeout) = behaviour(stream, pace, scene);
    let new_version = swarm.has(FaultKind::UnknownHandlerVersion) && stream.chance(PPM / 3);
    let handler = HandlerRef {
        name: HandlerName::parse(stream.pick::<&str>(&HANDLERS)).expect("a valid name"),
        version: if new_version { NEW_VERSION } else { 1 },
    };
    let overlap = overlap(stream);
    let flex = flex(stream, &schedule);
    let definition = JobDefinition {
        name: format!("job {index}").into(),
        handler,
        payload: payload(stream, index),
        bounds: bounds(stream, scene),
        schedule,
        run_if_past: stream.chance(PPM / 4),
        misfire: misfire_beside(stream, overlap),
        overlap,
        concurrency_key: concurrency_key(stream),
        priority: Priority::Normal,
        exclude: Exclusions::default(),
        misfire_grace: Span::from_millis(stream.between(1_000, 30_000)),
        retry: retry(stream),
        flex,
        pause_after_failures: pause_after_failures(stream),
        attempt_timeout: timeout,
        deadline: None,
        dead_letter: if stream.chance(PPM / 5) { DeadLetters::Off } else { DeadLetters::On },
    };
    let unreadable = swarm.has(FaultKind::UnreadableDefinition) && !in_herd && stream.chance(PPM / 30);
    let late = swarm.has(FaultKind::OperatorCreates) && stream.chance(PPM / 8);
    JobSpec {
        id,
        tenant: stream.below(2) as u8,
        created: if late { Creation::ByOperator } else { Creation::AtStart },
        definition: if unreadable {
            spoilt(stream, definition)
        } else {
            Definition::Readable(Box::new(definition))
        },
        behaviour,
    }
}

/// Gives a sixth of the jobs a deadline, half of which leave little more than one attempt. From a stream of its own, so
/// that all else of a plan is as it was before there were any.
pub(super) fn bound(stream: &mut Stream, jobs: &mut [JobSpec]) {
    for job in jobs {
        let Definition::Readable(definition) = &mut job.definition else { continue };
        if !stream.chance(PPM / 6) {
            continue;
        }
        let more = if stream.chance(PPM / 2) { 3_000 } else { 90_000 };
        let deadline = definition.attempt_timeout.plus(Span::from_millis(stream.below(more)));
        definition.deadline = Some(deadline);
        definition.retry.max_age = definition.retry.max_age.map(|most| most.min(deadline));
    }
}

fn payload(stream: &mut Stream, index: usize) -> Payload {
    let size = if stream.chance(PPM / 20) { 2_000 } else { stream.below(20) as usize };
    let text = format!(r#"{{"job":{index},"fill":"{}"}}"#, "x".repeat(size));
    Payload::from_json(&text).expect("valid JSON")
}

/// How often a job fires: what runs long must not fire often, or the workers would never be done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// More than once a minute.
    Often,
    /// At most once a minute.
    Seldom,
}

fn schedule(stream: &mut Stream, index: usize, scene: &Scene<'_>) -> (Schedule, Pace) {
    let day = scene.day;
    // One job that fires every second in some plans: the largest ledger of all.
    if index == HERD && stream.chance(PPM / 10) {
        return (cron(stream, "* * * * * *", scene), Pace::Often);
    }
    let often = match stream.below(100) {
        0..3 => {
            let every = stream.between(10, 30);
            cron(stream, &format!("*/{every} * * * * *"), scene)
        }
        3..8 => {
            let start = day.starts_at.plus(stream.span(Span::ZERO, Span::from_secs(60)));
            let start = Timestamp::from_micros(start.as_micros().div_euclid(1_000) * 1_000);
            Schedule::Interval { start, every: Span::from_millis(stream.between(10_000, 90_000)) }
        }
        _ => return (seldom(stream, index, scene), Pace::Seldom),
    };
    (often, Pace::Often)
}

fn seldom(stream: &mut Stream, index: usize, scene: &Scene<'_>) -> Schedule {
    match stream.between(8, 99) {
        8..44 => {
            let expr = if stream.chance(PPM / 2) {
                *stream.pick(&EVERY_FEW_MINUTES)
            } else {
                *stream.pick(&LISTED_MINUTES)
            };
            cron(stream, expr, scene)
        }
        44..68 => time_of_day(stream, scene),
        68..80 => {
            let at = scene.day.starts_at.plus(stream.span(Span::from_secs(1), scene.run));
            Schedule::OneShot { at }
        }
        80..90 => Schedule::Manual,
        _ => cron(stream, RARE[index % RARE.len()], scene),
    }
}

fn cron(stream: &mut Stream, expr: &str, scene: &Scene<'_>) -> Schedule {
    let zone = if stream.chance(PPM / 2) { scene.day.zone } else { *stream.pick(&ZONES) };
    let zone = Zone::parse(zone).expect("a zone of the list");
    let expr = USUAL.get(expr).cloned().unwrap_or_else(|| CronExpr::parse(expr).expect("a valid expression"));
    with_policies(stream, Schedule::Cron { expr, zone, gap: None, repeat: None })
}

/// The expressions that many jobs have, read once: reading them anew would be a good part of a short run.
static USUAL: LazyLock<BTreeMap<&str, CronExpr>> = LazyLock::new(|| {
    let all = EVERY_FEW_MINUTES.iter().chain(&LISTED_MINUTES).chain(&RARE);
    all.map(|expr| (*expr, CronExpr::parse(expr).expect("a valid expression"))).collect()
});

pub(super) const EVERY_FEW_MINUTES: [&str; 5] =
    ["* * * * *", "*/2 * * * *", "*/3 * * * *", "*/5 * * * *", "1-59/7 * * * *"];
const LISTED_MINUTES: [&str; 4] =
    ["0,13,27,41,55 * * * *", "*/4 * * * 1-5", "2-58/4 * 1-31 * *", "30 */2 * * * *"];
/// Expressions that seldom fire within a run, or never.
const RARE: [&str; 6] =
    ["0 12 29 2 *", "@yearly", "0 0 13 * 5", "59 23 31 12 *", "@hourly", "15,45 0-23/3 * * *"];

/// A time of day that the run meets, in the day's zone; on a day with a change of clocks mostly one that is
/// missing or comes twice.
fn time_of_day(stream: &mut Stream, scene: &Scene<'_>) -> Schedule {
    let day = scene.day;
    let zone: chrono_tz::Tz = day.zone.parse().expect("a zone of the list");
    let at = day.starts_at.plus(stream.span(Span::ZERO, scene.run));
    let local = at.to_utc().expect("an instant of this century").with_timezone(&zone).naive_local();
    // Up to two hours on either side: where the clock jumps, that is the gap or the repeated stretch.
    let shift = if day.clocks_change { stream.below(241) as i64 - 120 } else { 0 };
    let local = local + chrono::TimeDelta::minutes(shift);
    let (hour, minute) = (chrono::Timelike::hour(&local), chrono::Timelike::minute(&local));
    let expr = match stream.below(3) {
        0 => format!("{minute} {hour} * * *"),
        1 => format!("{} {minute} {hour} * * *", stream.below(60)),
        _ => format!("*/10 {hour} * * *"),
    };
    let schedule = Schedule::cron(&expr, day.zone).expect("a valid expression and zone");
    with_policies(stream, schedule)
}

fn with_policies(stream: &mut Stream, schedule: Schedule) -> Schedule {
    match schedule {
        Schedule::Cron { expr, zone, .. } => {
            let gap = *stream.pick(&[None, None, Some(GapPolicy::After), Some(GapPolicy::Skip)]);
            let repeats = [
                None,
                None,
                None,
                Some(RepeatPolicy::First),
                Some(RepeatPolicy::Last),
                Some(RepeatPolicy::Both),
            ];
            Schedule::Cron { expr, zone, gap, repeat: *stream.pick(&repeats) }
        }
        Schedule::Interval { .. } | Schedule::OneShot { .. } | Schedule::Manual => schedule,
    }
}

fn bounds(stream: &mut Stream, scene: &Scene<'_>) -> Bounds {
    let starts_at = scene.day.starts_at;
    let within = |stream: &mut Stream| starts_at.plus(stream.span(Span::ZERO, scene.run));
    match stream.below(20) {
        0 => Bounds { end: Some(within(stream)), ..Bounds::default() },
        1 => Bounds { start: Some(within(stream)), ..Bounds::default() },
        2 => Bounds { max_runs: Some(stream.between(1, 10)), ..Bounds::default() },
        _ => Bounds::default(),
    }
}

/// Two thirds of the jobs are counted by one of two keys.
pub(super) fn concurrency_key(stream: &mut Stream) -> Option<std::sync::Arc<str>> {
    stream.pick(&[None, Some("the database"), Some("the printer")]).map(Into::into)
}

/// A fifth of the jobs that fire have a flex window, which an interval's next fire does not lie in.
pub(super) fn flex(stream: &mut Stream, schedule: &Schedule) -> Span {
    let most = match schedule {
        Schedule::Manual => return Span::ZERO,
        Schedule::Interval { every, .. } => every.as_millis() - 1,
        Schedule::Cron { .. } | Schedule::OneShot { .. } => 90_000,
    };
    if stream.chance(PPM / 5) { Span::from_millis(stream.between(1, most)) } else { Span::ZERO }
}

/// A sixth of the jobs are paused once so many of their executions failed.
pub(super) fn pause_after_failures(stream: &mut Stream) -> Option<u32> {
    stream.chance(PPM / 6).then(|| stream.between(1, 3) as u32)
}

/// Half of the jobs limit overlap.
pub(super) fn overlap(stream: &mut Stream) -> Overlap {
    match stream.below(12) {
        0..6 => Overlap::Allow,
        6..8 => Overlap::Skip,
        8..10 => Overlap::BufferOne,
        _ => Overlap::CancelRunning,
    }
}

/// A misfire policy that does not contradict the overlap: no more is caught up than may run or wait.
pub(super) fn misfire_beside(stream: &mut Stream, overlap: Overlap) -> MisfirePolicy {
    let most = match overlap {
        Overlap::Allow => u32::MAX,
        Overlap::Skip | Overlap::CancelRunning => 1,
        Overlap::BufferOne => 2,
    };
    match misfire(stream) {
        MisfirePolicy::CatchUp { cap, window } => MisfirePolicy::CatchUp { cap: cap.min(most), window },
        other @ (MisfirePolicy::FireOnce | MisfirePolicy::Skip) => other,
    }
}

fn misfire(stream: &mut Stream) -> MisfirePolicy {
    match stream.below(20) {
        0..12 => MisfirePolicy::FireOnce,
        12..17 => MisfirePolicy::CatchUp {
            cap: stream.between(1, 20) as u32,
            window: *stream.pick(&[Span::MAX, Span::from_secs(60), Span::from_secs(600)]),
        },
        _ => MisfirePolicy::Skip,
    }
}

pub(super) fn retry(stream: &mut Stream) -> RetryPolicy {
    let base = stream.span(Span::from_millis(100), Span::from_secs(2));
    RetryPolicy {
        max_attempts: stream.between(1, 4) as u32,
        base: Span::from_millis(base.as_millis()),
        cap: Span::from_secs(stream.between(2, 10)),
        max_age: stream.chance(PPM / 5).then(|| Span::from_secs(stream.between(20, 120))),
        max_rescues: stream.between(0, 5) as u32,
        max_lost_starts: stream.between(2, 20) as u32,
    }
}

const TROUBLES: [(FaultKind, BehaviourKind); 9] = [
    (FaultKind::HandlerSlow, BehaviourKind::Slow),
    (FaultKind::HandlerHangs, BehaviourKind::Hangs),
    (FaultKind::HandlerDeaf, BehaviourKind::Deaf),
    (FaultKind::HandlerFailsRetryably, BehaviourKind::FailsRetryably),
    (FaultKind::HandlerFailsRetryably, BehaviourKind::FailsWithWish),
    (FaultKind::HandlerFailsForGood, BehaviourKind::FailsForGood),
    (FaultKind::HandlerCrashesWorker, BehaviourKind::CrashesWorker),
    (FaultKind::HandlerAnswerLost, BehaviourKind::AnswerLost),
    (FaultKind::HandlerOutputTooLarge, BehaviourKind::FailsAtLength),
];

/// What the handler does, and how long an attempt may take.
fn behaviour(stream: &mut Stream, pace: Pace, scene: &Scene<'_>) -> (Behaviour, Span) {
    let long = |kind: BehaviourKind| {
        matches!(
            kind,
            BehaviourKind::Slow | BehaviourKind::Hangs | BehaviourKind::Deaf | BehaviourKind::CrashesWorker
        )
    };
    let on: Vec<BehaviourKind> = TROUBLES
        .iter()
        .filter(|(fault, kind)| scene.swarm.has(*fault) && (pace == Pace::Seldom || !long(*kind)))
        .map(|(_, kind)| *kind)
        .collect();
    let troubled = !on.is_empty() && stream.chance(PPM / 3);
    let kind = if troubled { *stream.pick(&on) } else { BehaviourKind::Succeeds };
    let quick = if stream.chance(PPM / 8) { 3_000 } else { 400 };
    let (least, most) = match kind {
        BehaviourKind::Slow => (Span::from_secs(12), Span::from_secs(25)),
        BehaviourKind::Succeeds
        | BehaviourKind::FailsRetryably
        | BehaviourKind::FailsWithWish
        | BehaviourKind::FailsForGood
        | BehaviourKind::FailsAtLength
        | BehaviourKind::Hangs
        | BehaviourKind::CrashesWorker
        | BehaviourKind::AnswerLost => (Span::from_millis(1), Span::from_millis(quick)),
        BehaviourKind::Deaf => (Span::from_secs(40), Span::from_secs(90)),
    };
    let times = match kind {
        // A job that always takes its worker with it ends by its rescue budget; most do it once or twice.
        BehaviourKind::CrashesWorker | BehaviourKind::Deaf => stream.between(1, 2) as u32,
        BehaviourKind::Succeeds
        | BehaviourKind::Slow
        | BehaviourKind::FailsRetryably
        | BehaviourKind::FailsWithWish
        | BehaviourKind::FailsForGood
        | BehaviourKind::FailsAtLength
        | BehaviourKind::Hangs
        | BehaviourKind::AnswerLost => *stream.pick(&[1, 1, 2, 3, u32::MAX]),
    };
    let timeout = Span::from_secs(match kind {
        BehaviourKind::Slow if stream.chance(PPM / 2) => 40,
        // Long enough that a drain has to leave it behind.
        BehaviourKind::Deaf => stream.between(15, 40),
        BehaviourKind::Succeeds
        | BehaviourKind::Slow
        | BehaviourKind::FailsRetryably
        | BehaviourKind::FailsWithWish
        | BehaviourKind::FailsForGood
        | BehaviourKind::FailsAtLength
        | BehaviourKind::Hangs
        | BehaviourKind::CrashesWorker
        | BehaviourKind::AnswerLost => stream.between(4, 20),
    });
    let calls = OutsideIndex(stream.below(scene.outside as u64) as u8);
    (Behaviour { kind, times, least, most, calls }, timeout)
}

/// A stored text that nobody here can read: of a newer schema, or with a zone that is not in the data.
fn spoilt(stream: &mut Stream, definition: JobDefinition) -> Definition {
    let schedule = Schedule::cron("* * * * *", "Europe/Berlin").expect("a valid expression and zone");
    let stored = StoredDefinition::of(JobDefinition { schedule, ..definition });
    let text = if stream.chance(PPM / 2) {
        stored.text().replacen("\"schema\":1", "\"schema\":7", 1)
    } else {
        stored.text().replacen("Europe/Berlin", "Mars/Olympus_Mons", 1)
    };
    Definition::Text(text.into())
}

#[cfg(test)]
mod tests {
    use crate::plan::{Definition, Profile, generate::generate};

    #[test]
    fn spoilt_definitions_cannot_be_read_and_all_others_can() {
        let mut spoilt = 0;
        for seed in 0..40 {
            for job in generate(seed, Profile::Storm).jobs {
                match &job.definition {
                    Definition::Readable(definition) => definition.check().expect("a valid definition"),
                    Definition::Text(_) => {
                        assert!(job.definition.stored().read().is_err());
                        spoilt += 1;
                    }
                }
            }
        }
        assert!(spoilt > 0);
    }
}
