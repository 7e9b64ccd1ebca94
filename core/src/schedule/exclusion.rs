//! Exclusions: whole local days on which the fires of a job are passed over, as calendars name them.
//!
//! A calendar is a named set of days of a tenant. A job that names some has a copy of their days in its definition, each
//! with the calendar's version: setting a calendar makes the next version of every job that names it, so which days
//! decide about a fire is said by the version in force at its instant, as everything else about it is.
//!
//! A day begins at its first midnight in the job's zone, or, where the clock skips that, at the first instant after the
//! gap; it lasts until the next day begins. So days follow each other without overlap, and the piece of an evening that
//! a clock goes back to after midnight (Newfoundland until 2011) belongs to the day that had begun. Intervals and
//! one-shots, which have no zone, go by UTC.
//!
//! Must stay true: the work depends on how many days are excluded, never on how many fires lie within them.

use core::fmt;
use std::sync::Arc;

use chrono::{Datelike, NaiveDate};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Schedule;
use super::zone::{LocalTime, Zone};
use crate::limits::{CALENDAR_DAYS_MAX, CALENDARS_PER_JOB_MAX};
use crate::time::{Span, Timestamp};

const DAY: i64 = 86_400;
const SECOND: i64 = 1_000_000;
/// The days from 0001-01-01 to 1970-01-01, counted as chrono counts.
const EPOCH: i32 = 719_163;

/// A day of the calendar, written `2026-12-24`: the number of days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(i32);

impl Day {
    /// Reads a date: four digits, two and two, of the years 1 to 9999.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
        let day = Self(date.num_days_from_ce() - EPOCH);
        ((1..=9_999).contains(&date.year()) && day.to_string() == text).then_some(day)
    }

    /// The day with this number, as it is stored.
    #[must_use]
    pub const fn from_number(number: i32) -> Self {
        Self(number)
    }

    /// Days since 1970-01-01.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }

    /// The day after it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    const fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NaiveDate::from_num_days_from_ce_opt(self.0.saturating_add(EPOCH)) {
            Some(date) => write!(f, "{:04}-{:02}-{:02}", date.year(), date.month(), date.day()),
            None => write!(f, "day {}", self.0),
        }
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Day {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no date such as 2026-12-24")))
    }
}

/// The days of a calendar, ascending, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Days(Arc<[Day]>);

impl Days {
    /// These days, in whatever order, each counted once.
    ///
    /// # Errors
    /// How many there are, where there are more than [`CALENDAR_DAYS_MAX`].
    pub fn new(mut days: Vec<Day>) -> Result<Self, usize> {
        days.sort_unstable();
        days.dedup();
        if days.len() > CALENDAR_DAYS_MAX { Err(days.len()) } else { Ok(Self(days.into())) }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Day] {
        &self.0
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn has(&self, day: Day) -> bool {
        self.0.binary_search(&day).is_ok()
    }
}

impl Serialize for Days {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter())
    }
}

impl<'de> Deserialize<'de> for Days {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Vec::deserialize(deserializer)?).map_err(|count| {
            serde::de::Error::custom(format!("{count} days; a calendar has at most {CALENDAR_DAYS_MAX}"))
        })
    }
}

/// A calendar that a job names, and the days that it had when that was said last.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub struct Exclusion {
    /// The calendar.
    pub calendar: Arc<str>,
    /// Its version; zero where it was not looked up yet.
    pub version: u64,
    /// Its days under that version.
    pub days: Days,
}

/// From outside a name alone; in the store with what it stood for.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Wire {
    Named(Arc<str>),
    Known { calendar: Arc<str>, version: u64, days: Days },
}

impl From<Wire> for Exclusion {
    fn from(wire: Wire) -> Self {
        match wire {
            Wire::Named(calendar) => Self { calendar, version: 0, days: Days::default() },
            Wire::Known { calendar, version, days } => Self { calendar, version, days },
        }
    }
}

impl From<Exclusion> for Wire {
    fn from(exclusion: Exclusion) -> Self {
        let Exclusion { calendar, version, days } = exclusion;
        if version == 0 { Self::Named(calendar) } else { Self::Known { calendar, version, days } }
    }
}

/// The calendars that a job names; a fire whose day is in any of them is passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Exclusions(Vec<Exclusion>);

static NONE: Exclusions = Exclusions(Vec::new());

impl Exclusions {
    /// These calendars.
    #[must_use]
    pub const fn new(calendars: Vec<Exclusion>) -> Self {
        Self(calendars)
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in the order in which the job names them.
    #[must_use]
    pub fn all(&self) -> &[Exclusion] {
        &self.0
    }

    /// Whether this calendar is among them.
    #[must_use]
    pub fn names(&self, calendar: &str) -> bool {
        self.0.iter().any(|known| &*known.calendar == calendar)
    }

    /// The same with these days of a calendar that is among them.
    #[must_use]
    pub fn with(&self, calendar: &str, version: u64, days: &Days) -> Self {
        let now = |known: &Exclusion| {
            if &*known.calendar == calendar {
                Exclusion { calendar: Arc::clone(&known.calendar), version, days: days.clone() }
            } else {
                known.clone()
            }
        };
        Self(self.0.iter().map(now).collect())
    }

    /// The same by name alone, as people write it.
    #[must_use]
    pub fn by_name(&self) -> Self {
        let named = |known: &Exclusion| Exclusion {
            calendar: Arc::clone(&known.calendar),
            version: 0,
            days: Days::default(),
        };
        Self(self.0.iter().map(named).collect())
    }

    /// What is wrong with them, and with which.
    pub(crate) fn fault(&self) -> Option<(Option<usize>, String)> {
        if self.0.len() > CALENDARS_PER_JOB_MAX {
            let detail = format!("names {} calendars, not at most {CALENDARS_PER_JOB_MAX}", self.0.len());
            return Some((None, detail));
        }
        let twice = |(at, known): (usize, &Exclusion)| {
            self.0[..at].iter().any(|before| before.calendar == known.calendar).then_some(at)
        };
        let twice = self.0.iter().enumerate().find_map(twice)?;
        Some((Some(twice), format!("{:?} is named twice", &*self.0[twice].calendar)))
    }
}

/// The days that a version of a job excludes, in its zone.
#[derive(Clone, Copy, Debug)]
pub struct Excluded<'a> {
    exclusions: &'a Exclusions,
    zone: Zone,
}

impl<'a> Excluded<'a> {
    /// No day.
    pub const NOTHING: Excluded<'static> = Excluded { exclusions: &NONE, zone: Zone::UTC };

    /// The days that these calendars have, in the zone of this schedule.
    #[must_use]
    pub const fn of(exclusions: &'a Exclusions, schedule: &Schedule) -> Self {
        let zone = match schedule {
            Schedule::Cron { zone, .. } => *zone,
            Schedule::Interval { .. } | Schedule::OneShot { .. } | Schedule::Manual => Zone::UTC,
        };
        Self { exclusions, zone }
    }

    /// The same days as if they were those of UTC: for a deliberate bug.
    pub(crate) const fn in_utc(self) -> Self {
        Self { zone: Zone::UTC, ..self }
    }

    /// Whether there are no calendars at all.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        self.exclusions.is_none()
    }

    /// The calendar that excludes an instant.
    #[must_use]
    pub fn calendar_of(&self, at: Timestamp) -> Option<&'a Exclusion> {
        if self.is_nothing() {
            return None;
        }
        let day = self.day_of(at);
        self.exclusions.0.iter().find(|known| known.days.has(day))
    }

    /// The last instant of the excluded days in a row that an instant lies in; `None` where it is not excluded.
    #[must_use]
    pub fn through(&self, at: Timestamp) -> Option<Timestamp> {
        if self.is_nothing() {
            return None;
        }
        let mut day = self.day_of(at);
        if !self.has(day) {
            return None;
        }
        while self.has(day) {
            day = day.next();
        }
        Some(self.begins(day).minus(INSTANT))
    }

    /// The first instant of them.
    #[must_use]
    pub fn since(&self, at: Timestamp) -> Option<Timestamp> {
        if self.is_nothing() {
            return None;
        }
        let mut day = self.day_of(at);
        if !self.has(day) {
            return None;
        }
        while self.has(day.before()) {
            day = day.before();
        }
        Some(self.begins(day))
    }

    /// The first instant of the days in a row, none of them excluded, that an instant lies in.
    #[must_use]
    pub fn opens(&self, at: Timestamp) -> Timestamp {
        if self.is_nothing() {
            return Timestamp::MIN;
        }
        let day = self.day_of(at);
        let last = |days: &Days| days.0[..days.0.partition_point(|known| *known < day)].last().copied();
        let excluded = self.exclusions.0.iter().filter_map(|known| last(&known.days)).max();
        excluded.map_or(Timestamp::MIN, |excluded| self.begins(excluded.next()))
    }

    /// The last instant of them.
    #[must_use]
    pub fn closes(&self, at: Timestamp) -> Timestamp {
        if self.is_nothing() {
            return Timestamp::MAX;
        }
        let day = self.day_of(at);
        let first = |days: &Days| days.0[days.0.partition_point(|known| *known <= day)..].first().copied();
        let excluded = self.exclusions.0.iter().filter_map(|known| first(&known.days)).min();
        excluded.map_or(Timestamp::MAX, |excluded| self.begins(excluded).minus(INSTANT))
    }

    fn has(&self, day: Day) -> bool {
        self.exclusions.0.iter().any(|known| known.days.has(day))
    }

    fn day_of(&self, at: Timestamp) -> Day {
        let utc = at.as_micros().div_euclid(SECOND);
        let local = utc.saturating_add(self.zone.offset_at(utc)).div_euclid(DAY);
        let day = Day(i32::try_from(local).unwrap_or(if local < 0 { i32::MIN } else { i32::MAX }));
        // A clock that went back across midnight: the next day had begun.
        if self.begins(day.next()) <= at { day.next() } else { day }
    }

    fn begins(&self, day: Day) -> Timestamp {
        let utc = match self.zone.at_local(i64::from(day.0) * DAY) {
            LocalTime::Once(utc) => utc,
            LocalTime::Twice { first, .. } => first,
            LocalTime::Missing(gap) => gap.change,
        };
        Timestamp::from_micros(utc.saturating_mul(SECOND))
    }
}

const INSTANT: Span = Span::from_micros(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn days(texts: &[&str]) -> Days {
        Days::new(texts.iter().map(|text| Day::parse(text).expect("a date")).collect()).expect("few")
    }

    fn exclusions(texts: &[&str]) -> Exclusions {
        Exclusions(vec![Exclusion { calendar: "c".into(), version: 1, days: days(texts) }])
    }

    fn at(text: &str) -> Timestamp {
        Timestamp::parse_rfc3339(text).expect("an instant")
    }

    fn stretch(zone: &str, excluded: &[&str], instant: &str) -> Option<(String, String)> {
        let exclusions = exclusions(excluded);
        let zone = Zone::parse(zone).expect("a zone");
        let excluded = Excluded { exclusions: &exclusions, zone };
        let (since, through) = (excluded.since(at(instant)), excluded.through(at(instant)));
        assert_eq!(since.is_some(), through.is_some());
        since.zip(through).map(|(since, through)| (since.to_string(), through.next().to_string()))
    }

    fn bounds(since: &str, until: &str) -> Option<(String, String)> {
        Some((at(since).to_string(), at(until).to_string()))
    }

    #[test]
    fn a_date_is_read_as_it_is_written_and_in_no_other_way() {
        for text in ["2026-12-24", "1970-01-01", "0001-01-01", "9999-12-31", "2024-02-29"] {
            assert_eq!(Day::parse(text).expect(text).to_string(), text);
        }
        assert_eq!(Day::parse("1970-01-02"), Some(Day(1)));
        for text in
            ["", "2026-2-3", "2026-02-29", "20261224", "2026-12-24T00:00:00Z", " 2026-12-24", "+2026-12-24"]
        {
            assert_eq!(Day::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_day_is_that_of_the_zone() {
        let day = ["2026-12-24"];
        let auckland = bounds("2026-12-23T11:00:00Z", "2026-12-24T11:00:00Z");
        assert_eq!(stretch("Pacific/Auckland", &day, "2026-12-23T11:00:00Z"), auckland);
        assert_eq!(stretch("Pacific/Auckland", &day, "2026-12-24T10:59:59Z"), auckland);
        assert_eq!(stretch("Pacific/Auckland", &day, "2026-12-24T11:00:00Z"), None);
        assert_eq!(stretch("UTC", &day, "2026-12-23T23:59:59Z"), None);
    }

    #[test]
    fn days_in_a_row_are_one_stretch_and_as_long_as_the_clock_makes_them() {
        let days = ["2026-03-28", "2026-03-29", "2026-03-31"];
        let weekend = bounds("2026-03-27T23:00:00Z", "2026-03-29T22:00:00Z");
        assert_eq!(stretch("Europe/Berlin", &days, "2026-03-29T12:00:00Z"), weekend);
        assert_eq!(stretch("Europe/Berlin", &days, "2026-03-30T12:00:00Z"), None);
    }

    #[test]
    fn a_midnight_that_is_missing_or_comes_twice_has_one_first_instant() {
        // Midnight itself is skipped.
        let cairo = bounds("2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z");
        assert_eq!(stretch("Africa/Cairo", &["2026-04-24"], "2026-04-24T00:00:00Z"), cairo);
        // The whole day is.
        assert_eq!(stretch("Pacific/Apia", &["2011-12-30"], "2011-12-30T10:00:00Z"), None);
        assert_eq!(stretch("Pacific/Apia", &["2011-12-30"], "2011-12-30T09:59:59Z"), None);
        // Midnight and the hour after it come twice.
        let havana = bounds("2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z");
        assert_eq!(stretch("America/Havana", &["2026-11-01"], "2026-11-01T05:30:00Z"), havana);
        // A minute after midnight the clock goes back into the evening, which belongs to the day that had begun.
        let after = "2010-11-07T02:45:00Z";
        assert!(stretch("America/St_Johns", &["2010-11-07"], after).is_some());
        assert_eq!(stretch("America/St_Johns", &["2010-11-06"], after), None);
    }

    #[test]
    fn between_excluded_days_it_is_said_where_they_end_and_begin() {
        let exclusions = exclusions(&["2026-05-01", "2026-05-04"]);
        let excluded = Excluded { exclusions: &exclusions, zone: Zone::UTC };
        let noon = at("2026-05-02T12:00:00Z");
        assert_eq!(excluded.opens(noon), at("2026-05-02T00:00:00Z"));
        assert_eq!(excluded.closes(noon).next(), at("2026-05-04T00:00:00Z"));
        assert_eq!(excluded.opens(at("2026-04-02T12:00:00Z")), Timestamp::MIN);
        assert_eq!(excluded.closes(at("2026-06-02T12:00:00Z")), Timestamp::MAX);
        assert_eq!(Excluded::NOTHING.through(noon), None);
    }

    #[test]
    fn what_is_stored_says_the_days_and_what_people_write_only_the_name() {
        let named: Exclusions = serde_json::from_str(r#"["a"]"#).expect("valid");
        assert_eq!(serde_json::to_string(&named).expect("valid"), r#"["a"]"#);
        let known = named.with("a", 3, &days(&["2026-01-02", "2026-01-01"]));
        let text = serde_json::to_string(&known).expect("valid");
        assert_eq!(text, r#"[{"calendar":"a","version":3,"days":["2026-01-01","2026-01-02"]}]"#);
        assert_eq!(serde_json::from_str::<Exclusions>(&text).expect("valid"), known);
        assert_eq!(known.by_name(), named);
    }
}
