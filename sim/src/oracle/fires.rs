//! The fires of jobs by the independent calendar: what a definition yields, whatever the core thinks.
//!
//! Cron fires come from [`Calendar`], walked a stretch at a time and kept; intervals and one-shots are
//! worked out here. Bounds (start and end) are applied; the number of runs is its caller's business.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use fencepost_core::id::{JobId, JobVersion};
use fencepost_core::job::JobDefinition;
use fencepost_core::schedule::{GapPolicy, RepeatPolicy, Schedule};
use fencepost_core::time::Timestamp;

use super::calendar::{Calendar, Gap, Repeat};
use super::local_clock::LocalClock;

/// How much of a calendar is walked at a time, in microseconds.
const STRETCH: i64 = 600 * 1_000_000;
/// How far ahead the next fire is looked for. Of one that is said to lie beyond, only that it is a fire is checked.
const STRETCHES_AHEAD: i64 = 24;

/// Whose fires: a version of a job.
pub(super) type VersionKey = (JobId, JobVersion);

/// What is known of jobs' fires so far.
#[derive(Debug, Default)]
pub(super) struct Fires {
    versions: BTreeMap<VersionKey, JobFires>,
    walks: Walks,
}

#[derive(Debug)]
struct JobFires {
    definition: Arc<JobDefinition>,
    /// Of a cron schedule.
    walk: Option<Rc<RefCell<Walk>>>,
}

/// What was walked, each once, however many versions of however many jobs fire by it.
#[derive(Debug, Default)]
struct Walks {
    by_schedule: BTreeMap<Schedule, Rc<RefCell<Walk>>>,
    by_zone: BTreeMap<&'static str, Rc<LocalClock>>,
}

#[derive(Debug)]
struct Walk {
    calendar: Calendar,
    stretches: BTreeMap<i64, Vec<i64>>,
}

/// The first fire after an instant, as far as was looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextFire {
    /// It is this one.
    At(Timestamp),
    /// There is none.
    Never,
    /// There is none up to here.
    NotBefore(Timestamp),
}

impl Fires {
    /// The fires of a version after `after` and at or before `until`, ascending.
    pub(super) fn between(
        &mut self,
        version: VersionKey,
        definition: &Arc<JobDefinition>,
        after: Timestamp,
        until: Timestamp,
    ) -> Vec<Timestamp> {
        let after = definition
            .bounds
            .start
            .map_or(after, |start| after.max(Timestamp::from_micros(start.as_micros() - 1)));
        let until = definition.bounds.end.map_or(until, |end| until.min(end));
        if until <= after {
            return Vec::new();
        }
        self.version(version, definition).between(after.as_micros(), until.as_micros())
    }

    /// The first fire of a version after an instant.
    pub(super) fn next(
        &mut self,
        version: VersionKey,
        definition: &Arc<JobDefinition>,
        after: Timestamp,
    ) -> NextFire {
        let from = definition
            .bounds
            .start
            .map_or(after, |start| after.max(Timestamp::from_micros(start.as_micros() - 1)));
        let end = definition.bounds.end;
        let within = |fire: Timestamp| {
            if end.is_none_or(|end| fire <= end) { NextFire::At(fire) } else { NextFire::Never }
        };
        match &definition.schedule {
            Schedule::Manual => NextFire::Never,
            Schedule::OneShot { at } if *at > from => within(*at),
            Schedule::OneShot { .. } => NextFire::Never,
            Schedule::Interval { start, every } => {
                let every = every.as_i64();
                let (first, from) = (start.as_micros(), from.as_micros());
                let step = if from < first { 0 } else { (from - first) / every + 1 };
                within(Timestamp::from_micros(first + step * every))
            }
            Schedule::Cron { .. } => {
                let fires = self.version(version, definition);
                let mut at = from.as_micros();
                for _ in 0..STRETCHES_AHEAD {
                    let stop = (at.div_euclid(STRETCH) + 1) * STRETCH;
                    if let Some(fire) = fires.between(at, stop).first() {
                        return within(*fire);
                    }
                    at = stop;
                    if end.is_some_and(|end| at > end.as_micros()) {
                        return NextFire::Never;
                    }
                }
                NextFire::NotBefore(Timestamp::from_micros(at))
            }
        }
    }

    fn version(&mut self, version: VersionKey, definition: &Arc<JobDefinition>) -> &JobFires {
        let walks = &mut self.walks;
        let known = self.versions.entry(version).or_insert_with(|| JobFires::of(definition, walks));
        if !Arc::ptr_eq(&known.definition, definition) && known.definition != *definition {
            *known = JobFires::of(definition, walks);
        }
        known
    }
}

impl Walks {
    fn of(&mut self, schedule: &Schedule) -> Option<Rc<RefCell<Walk>>> {
        let Schedule::Cron { expr, zone, gap, repeat } = schedule else { return None };
        if let Some(known) = self.by_schedule.get(schedule) {
            return Some(Rc::clone(known));
        }
        let gap = gap.map(|gap| match gap {
            GapPolicy::After => Gap::After,
            GapPolicy::Skip => Gap::Skip,
        });
        let repeat = repeat.map(|repeat| match repeat {
            RepeatPolicy::First => Repeat::First,
            RepeatPolicy::Last => Repeat::Last,
            RepeatPolicy::Both => Repeat::Both,
        });
        let clock = self
            .by_zone
            .entry(zone.name())
            .or_insert_with(|| Rc::new(LocalClock::new(zone.name()).expect("a zone that the core accepts")));
        let calendar = Calendar::on(Rc::clone(clock), expr.as_str(), gap, repeat);
        let calendar = calendar.expect("what the core accepts, the calendar can read");
        let walk = Rc::new(RefCell::new(Walk { calendar, stretches: BTreeMap::new() }));
        self.by_schedule.insert(schedule.clone(), Rc::clone(&walk));
        Some(walk)
    }
}

impl Walk {
    /// After `after` and at or before `until`, ascending.
    fn between(&mut self, after: i64, until: i64) -> Vec<i64> {
        let mut fires = Vec::new();
        for stretch in after.div_euclid(STRETCH)..=until.div_euclid(STRETCH) {
            let known = self.stretches.entry(stretch).or_insert_with(|| {
                self.calendar.fires_between(stretch * STRETCH - 1, (stretch + 1) * STRETCH - 1)
            });
            // Ascending: a job that fires every second has thousands of them in a stretch.
            let from = known.partition_point(|fire| *fire <= after);
            let to = known.partition_point(|fire| *fire <= until);
            fires.extend(&known[from..to.max(from)]);
        }
        fires
    }
}

impl JobFires {
    fn of(definition: &Arc<JobDefinition>, walks: &mut Walks) -> Self {
        Self { definition: Arc::clone(definition), walk: walks.of(&definition.schedule) }
    }

    fn between(&self, after: i64, until: i64) -> Vec<Timestamp> {
        let fires: Vec<i64> = match &self.definition.schedule {
            Schedule::Manual => Vec::new(),
            Schedule::OneShot { at } => {
                Some(at.as_micros()).filter(|at| (after + 1..=until).contains(at)).into_iter().collect()
            }
            Schedule::Interval { start, every } => {
                let (start, every) = (start.as_micros(), every.as_i64());
                let first = if after < start { start } else { start + ((after - start) / every + 1) * every };
                let count = if until < first { 0 } else { (until - first) / every + 1 };
                (0..count).map(|step| first + step * every).collect()
            }
            Schedule::Cron { .. } => {
                self.walk.as_ref().expect("a cron job has its walk").borrow_mut().between(after, until)
            }
        };
        fires.into_iter().map(Timestamp::from_micros).collect()
    }
}
