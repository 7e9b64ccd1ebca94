//! The walk over local time: from a number of local seconds to the next or the last match.
//!
//! Local time here is naive: a timeline without offset changes, counted in seconds from 1970 as if
//! it were UTC. On that timeline the `cron` crate is an exact calendar, and it decides about days:
//! whether one matches, and which is the next or the last that does. The time of day is three sets
//! of small numbers, for which bits will do: schedules are asked millions of times, and most answers
//! lie on the day they are asked about, where walking by the crate costs several times as much.
//!
//! This file's own is the translation into the crate's dialect: weekdays by name, since it counts
//! Sunday as 1, and the "either day field suffices" rule as the union of two of its schedules, since
//! it only knows "both". And the years before 1970 and after 2100, which the crate has not: any such
//! year has a twin between 1972 and 1999 with the same leap day and weekdays, and is walked there.
//!
//! Relied upon: results are strictly after (before) what was asked, and there is always one within
//! fifty years.

use core::str::FromStr;

use chrono::{DateTime, Datelike, NaiveDate, NaiveTime, TimeDelta, Utc};

use super::field::ValueSet;
use super::time_of_day::TimeOfDay;

/// Seconds of local time since 1970-01-01T00:00:00, without regard to any zone.
pub(super) type LocalSeconds = i64;

/// The first local second that can match: 0001-01-01T00:00:00.
pub(super) const FIRST_LOCAL: LocalSeconds = -62_135_596_800;
/// The last local second that can match: 9999-12-31T23:59:59, where RFC 3339 ends.
pub(super) const LAST_LOCAL: LocalSeconds = 253_402_300_799;

const DAY: i64 = 86_400;

/// The years that the crate knows.
const CRATE_YEARS: core::ops::RangeInclusive<i32> = 1970..=2100;
/// Where a year's twin is looked for: 28 years in a row without a skipped leap day hold all 14 kinds.
const TWIN_YEARS: core::ops::RangeInclusive<i32> = 1972..=1999;
/// More years than can pass between two matches: a leap day on a given weekday may take 40.
const BARREN_YEARS_MAX: usize = 50;

/// How the two day fields combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DayRule {
    /// A day must match both: at least one field is unrestricted.
    Both,
    /// A day must match one.
    Either,
}

/// The values of all fields.
pub(super) struct Fields {
    /// `None` for an expression without a second field: second 0.
    pub(super) second: Option<ValueSet>,
    pub(super) minute: ValueSet,
    pub(super) hour: ValueSet,
    pub(super) day_of_month: ValueSet,
    pub(super) month: ValueSet,
    pub(super) day_of_week: ValueSet,
    pub(super) day_rule: DayRule,
}

/// A compiled expression.
pub(super) struct Walk {
    days: Days,
    time: TimeOfDay,
}

/// The days that match.
enum Days {
    /// All of them: most expressions, and nothing to look up.
    Every,
    /// Those of the crate's schedules for their midnights.
    Some(Box<Midnights>),
}

/// One schedule, or the union of two.
struct Midnights {
    first: cron::Schedule,
    second: Option<cron::Schedule>,
}

impl Walk {
    /// Translates the fields; `None` if no day ever matches them.
    pub(super) fn new(fields: &Fields) -> Option<Self> {
        let by_month_day = fields.some_month_has_a_day();
        let days = match fields.day_rule {
            DayRule::Both if !by_month_day => return None,
            DayRule::Both if fields.is_every_day() => Days::Every,
            DayRule::Both => Days::Some(Box::new(Midnights {
                first: midnights(fields, Some(fields.day_of_month), Some(fields.day_of_week)),
                second: None,
            })),
            DayRule::Either => Days::Some(Box::new(Midnights {
                first: midnights(fields, None, Some(fields.day_of_week)),
                second: by_month_day.then(|| midnights(fields, Some(fields.day_of_month), None)),
            })),
        };
        let seconds = fields.second.unwrap_or(ValueSet::ZERO);
        Some(Self { days, time: TimeOfDay { hours: fields.hour, minutes: fields.minute, seconds } })
    }

    /// The first match after `local`.
    pub(super) fn after(&self, local: LocalSeconds) -> Option<LocalSeconds> {
        let local = local.clamp(FIRST_LOCAL - 1, LAST_LOCAL);
        let midnight = local - local.rem_euclid(DAY);
        if let Some(time) = self.time.after(local - midnight)
            && self.days.include(midnight)
        {
            return Some(midnight + time);
        }
        Some(self.days.after(midnight)? + self.time.after(-1)?)
    }

    /// The last match before `local`.
    pub(super) fn before(&self, local: LocalSeconds) -> Option<LocalSeconds> {
        let local = local.clamp(FIRST_LOCAL, LAST_LOCAL + 1);
        let midnight = local - local.rem_euclid(DAY);
        if let Some(time) = self.time.before(local - midnight)
            && self.days.include(midnight)
        {
            return Some(midnight + time);
        }
        Some(self.days.before(midnight)? + self.time.before(DAY)?)
    }
}

impl Days {
    fn include(&self, midnight: LocalSeconds) -> bool {
        let included = |schedule: &cron::Schedule| match at(midnight) {
            Some(day) if CRATE_YEARS.contains(&day.year()) => schedule.includes(day),
            Some(_) => step_forward(schedule, midnight - 1) == Some(midnight),
            None => false,
        };
        match self {
            Self::Every => true,
            Self::Some(days) => included(&days.first) || days.second.as_ref().is_some_and(included),
        }
    }

    fn after(&self, midnight: LocalSeconds) -> Option<LocalSeconds> {
        let days = match self {
            Self::Every => return Some(midnight + DAY).filter(|next| *next <= LAST_LOCAL),
            Self::Some(days) => days,
        };
        let first = step_forward(&days.first, midnight);
        let Some(second) = &days.second else { return first };
        match (first, step_forward(second, midnight)) {
            (Some(first), Some(second)) => Some(first.min(second)),
            (first, second) => first.or(second),
        }
    }

    fn before(&self, midnight: LocalSeconds) -> Option<LocalSeconds> {
        let days = match self {
            Self::Every => return Some(midnight - DAY).filter(|last| *last >= FIRST_LOCAL),
            Self::Some(days) => days,
        };
        let first = step_back(&days.first, midnight);
        let Some(second) = &days.second else { return first };
        // `None` is smaller than every match, so this is the later of what there is.
        first.max(step_back(second, midnight))
    }
}

impl Fields {
    fn is_every_day(&self) -> bool {
        let counts = [self.day_of_month, self.month, self.day_of_week].map(|set| set.values().count());
        counts == [31, 12, 7]
    }

    /// Whether some month of the month field has a day of the day-of-month field. Whatever weekdays
    /// are asked for beside it then come up too: over 400 years every date falls on every weekday.
    fn some_month_has_a_day(&self) -> bool {
        let longest = |month| match month {
            2 => 29,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let first_day = self.day_of_month.values().next();
        first_day.is_some_and(|day| self.month.values().any(|month| day <= longest(month)))
    }
}

fn midnights(
    fields: &Fields,
    day_of_month: Option<ValueSet>,
    day_of_week: Option<ValueSet>,
) -> cron::Schedule {
    const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
    let numbers = |set: ValueSet| set.values().map(|value| value.to_string()).collect::<Vec<_>>().join(",");
    let names = |set: ValueSet| {
        let names: Vec<&str> = set.values().filter_map(|day| WEEKDAYS.get(day as usize)).copied().collect();
        names.join(",")
    };
    let any = || "*".to_owned();
    let (days, weekdays) = (day_of_month.map_or_else(any, numbers), day_of_week.map_or_else(any, names));
    let text = format!("0 0 0 {days} {} {weekdays}", numbers(fields.month));
    cron::Schedule::from_str(&text)
        .expect("lists of values within their ranges are valid in the crate's dialect")
}

fn step_forward(schedule: &cron::Schedule, local: LocalSeconds) -> Option<LocalSeconds> {
    let mut from = at(local)? + TimeDelta::seconds(1);
    for _ in 0..BARREN_YEARS_MAX {
        let year = from.year();
        let (found, next_year) = if CRATE_YEARS.contains(&year) {
            let found = schedule.after(&(from - TimeDelta::seconds(1))).next();
            (found.map(|found| found.timestamp()), *CRATE_YEARS.end() + 1)
        } else {
            (in_twin(year, from, |twin| schedule.after(&(twin - TimeDelta::seconds(1))).next())?, year + 1)
        };
        if let Some(found) = found {
            return (found <= LAST_LOCAL).then_some(found);
        }
        from = new_year(next_year)?;
    }
    None
}

fn step_back(schedule: &cron::Schedule, local: LocalSeconds) -> Option<LocalSeconds> {
    let mut until = at(local)? - TimeDelta::seconds(1);
    for _ in 0..BARREN_YEARS_MAX {
        let year = until.year();
        let (found, this_year) = if CRATE_YEARS.contains(&year) {
            let found = schedule.after(&(until + TimeDelta::seconds(1))).next_back();
            (found.map(|found| found.timestamp()), *CRATE_YEARS.start())
        } else {
            (in_twin(year, until, |twin| schedule.after(&(twin + TimeDelta::seconds(1))).next_back())?, year)
        };
        if let Some(found) = found {
            return (found >= FIRST_LOCAL).then_some(found);
        }
        until = new_year(this_year)? - TimeDelta::seconds(1);
    }
    None
}

/// Asks in the year's twin, and moves what is found there back into the year; what lies in another
/// year is no find. `None` only where the calendar itself ends.
fn in_twin(
    year: i32,
    moment: DateTime<Utc>,
    ask: impl FnOnce(DateTime<Utc>) -> Option<DateTime<Utc>>,
) -> Option<Option<LocalSeconds>> {
    let start = new_year(year)?;
    let leap = |date: DateTime<Utc>| date.date_naive().leap_year();
    let twin = TWIN_YEARS
        .filter_map(new_year)
        .find(|twin| twin.weekday() == start.weekday() && leap(*twin) == leap(start))?;
    let shift = start - twin;
    let found = ask(moment - shift).filter(|found| found.year() == twin.year());
    Some(found.map(|found| (found + shift).timestamp()))
}

fn new_year(year: i32) -> Option<DateTime<Utc>> {
    Some(NaiveDate::from_ymd_opt(year, 1, 1)?.and_time(NaiveTime::MIN).and_utc())
}

fn at(local: LocalSeconds) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(local, 0)
}
