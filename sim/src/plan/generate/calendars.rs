//! Calendars: which jobs name some, and how their days change during a run.
//!
//! A run lies within a day or two, so what changes is whether these are among the days; in zones far from UTC the date is
//! another than there.

use fencepost_core::schedule::{Day, Days, Exclusion, Exclusions, Schedule};

use super::job_changes::when;
use super::operators::{Ground, moment, once};
use crate::fault::FaultKind;
use crate::plan::{Action, Definition, JobIndex, JobSpec, OperatorAction, Timing};
use crate::rng::{PPM, Stream};
use crate::sim_time::SimTime;

const NAMES: [&str; 2] = ["holidays", "stocktaking"];

/// A third of the jobs that fire name a calendar, some two.
pub(super) fn name(stream: &mut Stream, jobs: &mut [JobSpec]) {
    for job in jobs {
        let Definition::Readable(definition) = &mut job.definition else { continue };
        if definition.schedule == Schedule::Manual || !stream.chance(PPM / 3) {
            continue;
        }
        let first = stream.below(2) as usize;
        let count = if stream.chance(PPM / 4) { 2 } else { 1 };
        let named = NAMES.iter().cycle().skip(first).take(count).map(|name| Exclusion {
            calendar: (*name).into(),
            version: 0,
            days: Days::default(),
        });
        definition.exclude = Exclusions::new(named.collect());
    }
}

/// Days come and go.
pub(super) fn draw(stream: &mut Stream, ground: &Ground<'_>) -> Vec<OperatorAction> {
    let today = ground.day.starts_at.as_micros().div_euclid(86_400_000_000);
    let today = i32::try_from(today).expect("a day of these centuries");
    let mut actions = Vec::new();
    for _ in 0..stream.between(3, 12) {
        let about = (today - 1..=today + 1).filter(|_| stream.chance(PPM / 2));
        let days: Vec<Day> = about.map(Day::from_number).collect();
        let is_set = !stream.chance(PPM / 10);
        let days = is_set.then(|| Days::new(days).expect("they are few"));
        let (tenant, name) = (stream.below(2) as u8, *stream.pick(&NAMES));
        let (at, timing) = moment_of(stream, ground, tenant, name);
        let what = Action::SetCalendar { tenant, name: name.into(), days };
        let twice = ground.swarm.has(FaultKind::OperatorRepeats) && stream.chance(PPM / 4);
        let copies = if twice { 2 } else { 1 };
        actions.push(OperatorAction { copies, timing, ..once(at, what) });
    }
    actions
}

/// Some moment, often one right when a job that names the calendar fires.
fn moment_of(stream: &mut Stream, ground: &Ground<'_>, tenant: u8, name: &str) -> (SimTime, Timing) {
    let names = |(index, job): (usize, &JobSpec)| match &job.definition {
        Definition::Readable(definition) if job.tenant == tenant && definition.exclude.names(name) => {
            Some(JobIndex(index as u16))
        }
        Definition::Readable(_) | Definition::Text(_) => None,
    };
    let naming: Vec<JobIndex> = ground.jobs.iter().enumerate().filter_map(names).collect();
    if naming.is_empty() {
        return (moment(stream, ground), Timing::Chance);
    }
    let job = *stream.pick(&naming);
    when(stream, ground, job)
}
