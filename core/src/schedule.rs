//! Schedules: when a job is due, as a function of nothing but the schedule itself.
//!
//! A [`Schedule`] is a cron expression in a zone, an interval, one instant, or nothing but manual
//! triggers; [`Bounds`] limit any of them. What fires they yield is decided here and nowhere else:
//! the scheduler asks for the next, the misfire planner for the latest, the preview for many. Fires
//! are instants in UTC and rise strictly; they lie in the years 1 to 9999, which RFC 3339 can write.
//!
//! The path from a cron expression to an instant: `field.rs` reads one field, `cron.rs` the
//! expression; `walk.rs` walks local time, by the `cron` crate from day to day and by
//! `time_of_day.rs` within one; `zone.rs` knows what local times mean in a zone; `fires.rs` joins
//! the two under the daylight-saving policies. `wire.rs` is the JSON that schedules are stored and
//! sent as, `exclusion.rs` says which days are passed over, `flex.rs` says by how much a fire is due after its nominal time, and `misfire.rs` plans what becomes of
//! fires that are due.
//!
//! Must stay true: everything here is pure; no call takes longer for a schedule that somebody chose
//! to make difficult; a value that was read ([`serde`]) has been validated.

pub mod cron;
pub mod exclusion;
mod field;
pub mod fires;
pub mod flex;
pub mod misfire;
pub mod preview;
mod time_of_day;
pub mod timeline;
mod walk;
mod wire;
pub mod zone;

use serde::{Deserialize, Serialize};

use crate::time::{Span, Timestamp};
pub use cron::{CronError, CronExpr, CronField};
pub use exclusion::{Day, Days, Excluded, Exclusion, Exclusions};
pub use fires::{CronFires, FIRST_FIRE, Fire, FireNote, GapPolicy, LAST_FIRE, RepeatPolicy};
pub use flex::Flex;
pub use preview::{PREVIEW_MAX, PreviewedFire, preview, preview_schedule};
pub use zone::{TZDATA_VERSION, Zone, ZoneError};

/// The shortest interval.
pub const INTERVAL_MIN: Span = Span::from_secs(1);
/// The longest interval: a hundred years.
pub const INTERVAL_MAX: Span = Span::from_secs(36_525 * 86_400);

/// When a job is due.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "wire::ScheduleWire", into = "wire::ScheduleWire")]
pub enum Schedule {
    /// Whenever the local time of a zone matches an expression.
    Cron {
        /// The expression.
        expr: CronExpr,
        /// The zone.
        zone: Zone,
        /// What becomes of matches that the clock skips; `None`: what suits the expression.
        gap: Option<GapPolicy>,
        /// What becomes of matches that the clock repeats; `None`: what suits the expression.
        repeat: Option<RepeatPolicy>,
    },
    /// At `start`, and every `every` after it.
    Interval {
        /// The first fire.
        start: Timestamp,
        /// The distance between fires.
        every: Span,
    },
    /// Once.
    OneShot {
        /// When.
        at: Timestamp,
    },
    /// Only when triggered.
    Manual,
}

/// Limits on a schedule's fires. Fires before `start` and after `end` do not count as fires at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "wire::BoundsWire", into = "wire::BoundsWire")]
pub struct Bounds {
    /// The first instant that may be a fire.
    pub start: Option<Timestamp>,
    /// The last instant that may be a fire.
    pub end: Option<Timestamp>,
    /// How many fires may run; what is skipped does not count. After that there are no more fires.
    pub max_runs: Option<u64>,
}

/// What is wrong with a schedule or its bounds. The text begins with the name of the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The cron expression is refused.
    #[error("expr: {0}")]
    Expr(#[from] CronError),
    /// The zone is refused.
    #[error("zone: {0}")]
    Zone(#[from] ZoneError),
    /// An interval is too short, too long, or not a whole number of milliseconds.
    #[error(
        "every_ms: an interval is a whole number of milliseconds from 1000 (a second) to 3155760000000 (a century)"
    )]
    Interval,
    /// A text is no instant that a schedule can have.
    #[error(
        "{field}: not an instant in RFC 3339 with an offset, in the years 1 to 9999, such as 2026-01-31T09:00:00Z"
    )]
    Instant {
        /// Which field.
        field: &'static str,
    },
    /// A one-shot lies in the past.
    #[error("at: this instant has passed; give a later one, or say run_if_past to run it at once")]
    Past,
    /// The end lies before the start.
    #[error("end: it lies before the start; give an end at or after it, or none")]
    EndBeforeStart,
    /// No run is allowed at all.
    #[error("max_runs: it must be at least 1; leave it out for no limit")]
    NoRuns,
}

impl ScheduleError {
    /// The name of the field that is wrong, as in the JSON.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Expr(_) => "expr",
            Self::Zone(_) => "zone",
            Self::Interval => "every_ms",
            Self::Instant { field } => field,
            Self::Past => "at",
            Self::EndBeforeStart => "end",
            Self::NoRuns => "max_runs",
        }
    }
}

impl Schedule {
    /// A cron schedule from text, with the default daylight-saving policies.
    ///
    /// # Errors
    /// What is wrong with the expression or the zone.
    pub fn cron(expr: &str, zone: &str) -> Result<Self, ScheduleError> {
        Ok(Self::Cron { expr: CronExpr::parse(expr)?, zone: Zone::parse(zone)?, gap: None, repeat: None })
    }

    /// Checks what the types leave open; a schedule that was read from JSON has passed.
    ///
    /// # Errors
    /// [`ScheduleError::Interval`] and [`ScheduleError::Instant`].
    pub fn validate(&self) -> Result<(), ScheduleError> {
        match self {
            Self::Cron { .. } | Self::Manual => Ok(()),
            Self::Interval { start, every } => {
                check_instant("start", *start)?;
                let fits =
                    (INTERVAL_MIN..=INTERVAL_MAX).contains(every) && every.as_micros().is_multiple_of(1_000);
                if fits { Ok(()) } else { Err(ScheduleError::Interval) }
            }
            Self::OneShot { at } => check_instant("at", *at),
        }
    }

    /// Refuses a one-shot that could only run late; not to be asked where `run_if_past` was given.
    ///
    /// # Errors
    /// [`ScheduleError::Past`].
    pub fn check_not_past(&self, now: Timestamp) -> Result<(), ScheduleError> {
        match self {
            Self::OneShot { at } if *at < now => Err(ScheduleError::Past),
            Self::Cron { .. } | Self::Interval { .. } | Self::OneShot { .. } | Self::Manual => Ok(()),
        }
    }

    /// The first fire after an instant; `None` if there is none.
    #[must_use]
    pub fn next_fire_after(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron { expr, zone, gap, repeat } => {
                CronFires::new(expr, *zone, *gap, *repeat).next_after(after).map(|fire| fire.at)
            }
            Self::Interval { start, every } => {
                let steps = Steps { start: *start, every: *every };
                steps.fire(steps.last_step_through(after)? + 1)
            }
            Self::OneShot { at } => Some(*at).filter(|at| *at > after),
            Self::Manual => None,
        }
    }

    /// The last fire before an instant; `None` if there is none.
    #[must_use]
    pub fn last_fire_before(&self, before: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron { expr, zone, gap, repeat } => {
                CronFires::new(expr, *zone, *gap, *repeat).last_before(before)
            }
            Self::Interval { start, every } => {
                let steps = Steps { start: *start, every: *every };
                let before = before.min(LAST_FIRE.next());
                steps.fire(steps.last_step_through(before.minus(Span::from_micros(1)))?)
            }
            Self::OneShot { at } => Some(*at).filter(|at| *at < before),
            Self::Manual => None,
        }
    }

    /// The latest `count` fires after `after` and at or before `until`, oldest first. Takes steps for
    /// what it returns, not for what lies between.
    #[must_use]
    pub fn latest_fires(&self, after: Timestamp, until: Timestamp, count: usize) -> Vec<Timestamp> {
        let back =
            core::iter::successors(self.last_fire_before(until.next()), |fire| self.last_fire_before(*fire));
        let mut fires: Vec<Timestamp> = back.take_while(|fire| *fire > after).take(count).collect();
        fires.reverse();
        fires
    }

    /// The first `limit` fires after `after` and at or before `until`, in order.
    #[must_use]
    pub fn fires_between(&self, after: Timestamp, until: Timestamp, limit: usize) -> Vec<Timestamp> {
        let fires = core::iter::successors(self.next_fire_after(after), |fire| self.next_fire_after(*fire));
        fires.take_while(|fire| *fire <= until).take(limit).collect()
    }
}

/// The fires of an interval: `start + k × every`. Steps are wide integers, so that no pair of
/// instants overflows; a fire outside the representable years is none.
#[derive(Clone, Copy)]
struct Steps {
    start: Timestamp,
    every: Span,
}

impl Steps {
    /// The number of the last fire at or before an instant, -1 if that is before the first.
    fn last_step_through(self, instant: Timestamp) -> Option<i128> {
        let every = i128::from(self.every.as_micros());
        let since = i128::from(instant.as_micros()) - i128::from(self.start.as_micros());
        (every > 0).then(|| since.div_euclid(every).max(-1))
    }

    fn fire(self, step: i128) -> Option<Timestamp> {
        let micros =
            i128::from(self.start.as_micros()) + step.checked_mul(i128::from(self.every.as_micros()))?;
        let fire = Timestamp::from_micros(i64::try_from(micros).ok()?);
        (step >= 0 && fire <= LAST_FIRE).then_some(fire)
    }
}

impl Bounds {
    /// Checks what the types leave open; bounds that were read from JSON have passed.
    ///
    /// # Errors
    /// [`ScheduleError::Instant`], [`ScheduleError::EndBeforeStart`] and [`ScheduleError::NoRuns`].
    pub fn validate(&self) -> Result<(), ScheduleError> {
        for (field, instant) in [("start", self.start), ("end", self.end)] {
            if let Some(instant) = instant {
                check_instant(field, instant)?;
            }
        }
        if let (Some(start), Some(end)) = (self.start, self.end)
            && end < start
        {
            return Err(ScheduleError::EndBeforeStart);
        }
        if self.max_runs == Some(0) { Err(ScheduleError::NoRuns) } else { Ok(()) }
    }

    /// Whether `runs` runs leave no more.
    #[must_use]
    pub fn exhausted_by(&self, runs: u64) -> bool {
        self.max_runs.is_some_and(|max| runs >= max)
    }

    /// The first fire of a schedule after an instant and within start and end.
    #[must_use]
    pub fn next_fire_after(&self, schedule: &Schedule, after: Timestamp) -> Option<Timestamp> {
        let next = schedule.next_fire_after(self.clip_after(after))?;
        Some(next).filter(|fire| self.end.is_none_or(|end| *fire <= end))
    }

    /// [`Schedule::latest_fires`] within start and end.
    #[must_use]
    pub fn latest_fires(
        &self,
        schedule: &Schedule,
        after: Timestamp,
        until: Timestamp,
        count: usize,
    ) -> Vec<Timestamp> {
        schedule.latest_fires(self.clip_after(after), self.clip_until(until), count)
    }

    /// [`Schedule::fires_between`] within start and end.
    #[must_use]
    pub fn fires_between(
        &self,
        schedule: &Schedule,
        after: Timestamp,
        until: Timestamp,
        limit: usize,
    ) -> Vec<Timestamp> {
        schedule.fires_between(self.clip_after(after), self.clip_until(until), limit)
    }

    fn clip_after(&self, after: Timestamp) -> Timestamp {
        self.start.map_or(after, |start| after.max(start.minus(Span::from_micros(1))))
    }

    fn clip_until(&self, until: Timestamp) -> Timestamp {
        self.end.map_or(until, |end| until.min(end))
    }
}

fn check_instant(field: &'static str, instant: Timestamp) -> Result<(), ScheduleError> {
    if (FIRST_FIRE..=LAST_FIRE).contains(&instant) { Ok(()) } else { Err(ScheduleError::Instant { field }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    const fn every_ten_seconds() -> Schedule {
        Schedule::Interval { start: Timestamp::from_micros(5_000_000), every: Span::from_secs(10) }
    }

    #[test]
    fn an_interval_fires_at_its_start_and_in_steps_from_it() {
        let schedule = every_ten_seconds();
        let fires = [us(5_000_000), us(15_000_000), us(25_000_000)];
        assert_eq!(schedule.fires_between(Timestamp::MIN, us(34_999_999), 9), fires);
        assert_eq!(schedule.latest_fires(Timestamp::MIN, us(34_999_999), 9), fires);
        assert_eq!(schedule.fires_between(us(5_000_000), us(25_000_000), 1), fires[1..2]);
        assert_eq!(schedule.latest_fires(us(5_000_000), us(25_000_000), 1), fires[2..]);
        assert_eq!(schedule.last_fire_before(us(5_000_000)), None);
    }

    #[test]
    fn an_interval_ends_where_instants_cannot_be_written() {
        let schedule = every_ten_seconds();
        let last = schedule.last_fire_before(Timestamp::MAX).expect("the last fire");
        assert!(last <= LAST_FIRE && last > LAST_FIRE.minus(Span::from_secs(10)), "{last}");
        assert_eq!(schedule.next_fire_after(last), None);
        assert_eq!(schedule.next_fire_after(Timestamp::MAX), None);
    }

    #[test]
    fn an_interval_is_a_second_to_a_century_in_whole_milliseconds() {
        let every = |every| Schedule::Interval { start: Timestamp::EPOCH, every }.validate();
        assert_eq!(every(INTERVAL_MIN), Ok(()));
        assert_eq!(every(INTERVAL_MAX), Ok(()));
        for refused in [Span::ZERO, Span::from_millis(999), Span::from_micros(1_000_001), Span::MAX] {
            assert_eq!(every(refused), Err(ScheduleError::Interval), "{refused}");
        }
    }

    #[test]
    fn a_one_shot_fires_once_and_is_refused_only_where_it_has_passed() {
        let schedule = Schedule::OneShot { at: us(7) };
        assert_eq!(schedule.fires_between(us(6), us(7), 2), [us(7)]);
        assert_eq!(schedule.fires_between(us(7), Timestamp::MAX, 2), []);
        assert_eq!(schedule.latest_fires(Timestamp::MIN, us(7), 2), [us(7)]);
        assert_eq!(schedule.check_not_past(us(7)), Ok(()));
        assert_eq!(schedule.check_not_past(us(8)), Err(ScheduleError::Past));
        assert_eq!(every_ten_seconds().check_not_past(Timestamp::MAX), Ok(()));
    }

    #[test]
    fn a_manual_schedule_never_fires() {
        assert_eq!(Schedule::Manual.next_fire_after(Timestamp::MIN), None);
        assert_eq!(Schedule::Manual.last_fire_before(Timestamp::MAX), None);
    }

    #[test]
    fn bounds_include_both_of_their_ends() {
        let bounds = Bounds { start: Some(us(15_000_000)), end: Some(us(35_000_000)), max_runs: None };
        let fires = [us(15_000_000), us(25_000_000), us(35_000_000)];
        let schedule = every_ten_seconds();
        assert_eq!(bounds.fires_between(&schedule, Timestamp::MIN, Timestamp::MAX, 9), fires);
        assert_eq!(bounds.latest_fires(&schedule, Timestamp::MIN, Timestamp::MAX, 9), fires);
        assert_eq!(bounds.next_fire_after(&schedule, us(0)), Some(fires[0]));
        assert_eq!(bounds.next_fire_after(&schedule, fires[2]), None);
    }
}
