//! Time zones: which names are taken, and what a local time means in one.
//!
//! The data is compiled in (`chrono-tz`), so every node of one version agrees on it, and
//! [`TZDATA_VERSION`] says which it is. A name is taken exactly as IANA spells it, case included. Of
//! the names without a slash only `UTC` and those that are words are taken (`Japan`, `Singapore`).
//! `EST`, `CET` or `PST8PDT` are names to IANA, but to people they are abbreviations, of which some
//! follow daylight saving and some do not; they are refused.
//!
//! Relied upon, and tested over all zones: no two offset changes of a zone lie within five days of
//! each other, and none moves the clock by more than a day. So a local time occurs once, twice or
//! not at all, and one change explains which.

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::str::FromStr;

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeZone};
use chrono_tz::{GapInfo, Tz};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::walk::LocalSeconds;

/// The release of the IANA data that is compiled in.
pub const TZDATA_VERSION: &str = chrono_tz::IANA_TZDB_VERSION;

/// Two offset changes of a zone are further apart than this.
pub(super) const CHANGES_APART: i64 = 5 * DAY;
const DAY: i64 = 86_400;

/// Seconds since 1970 UTC.
pub(super) type UtcSeconds = i64;

/// An IANA time zone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Zone(Tz);

/// Why a text names no zone that is taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// It is empty.
    #[error("the time zone is empty; give an IANA name such as Europe/Berlin, or UTC")]
    Empty,
    /// It is an abbreviation.
    #[error(
        "`{name}` is an abbreviation, which several zones share; give an IANA name such as Europe/Berlin, or UTC"
    )]
    Abbreviation {
        /// What was given.
        name: String,
    },
    /// It is an offset.
    #[error(
        "`{name}` is an offset, which knows no daylight saving; give an IANA name such as Europe/Berlin, or UTC"
    )]
    Offset {
        /// What was given.
        name: String,
    },
    /// It differs from a known name by case.
    #[error("`{name}` is not a time zone name; did you mean {known}?")]
    Case {
        /// What was given.
        name: String,
        /// The known name.
        known: &'static str,
    },
    /// It is not in the data.
    #[error(
        "`{name}` is not in the time zone data (release {TZDATA_VERSION}); give an IANA name such as Europe/Berlin, or UTC"
    )]
    Unknown {
        /// What was given.
        name: String,
    },
}

/// What a local time means in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalTime {
    /// It occurs once.
    Once(UtcSeconds),
    /// The clock was set back over it: it occurs twice.
    Twice {
        /// The earlier time.
        first: UtcSeconds,
        /// The later one.
        second: UtcSeconds,
    },
    /// The clock was set forward over it: it does not occur.
    Missing(Gap),
}

/// A stretch of local time that a clock set forward left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// The first instant after it.
    pub(super) change: UtcSeconds,
    /// The first local time that is missing.
    pub(super) from: LocalSeconds,
    /// The first local time that is there again.
    pub(super) to: LocalSeconds,
}

/// A stretch of local time that a clock set back went through twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeat {
    /// The instant at which the second pass begins.
    pub(super) change: UtcSeconds,
    /// The first local time of both passes.
    pub(super) from: LocalSeconds,
    /// The first local time after them.
    pub(super) to: LocalSeconds,
}

impl Repeat {
    /// When a local time of the stretch occurs first.
    pub(super) const fn first_pass(&self, local: LocalSeconds) -> UtcSeconds {
        local - (self.to - self.change)
    }

    /// When it occurs again.
    pub(super) const fn second_pass(&self, local: LocalSeconds) -> UtcSeconds {
        local - (self.from - self.change)
    }
}

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Self = Self(Tz::UTC);

    /// Reads an IANA name.
    ///
    /// # Errors
    /// [`ZoneError`] for abbreviations, offsets, and names that are not in the data exactly so.
    pub fn parse(name: &str) -> Result<Self, ZoneError> {
        let found = name.parse::<Tz>().ok();
        let is_word = name.bytes().any(|byte| byte.is_ascii_lowercase());
        match found {
            Some(tz) if tz == Tz::UTC || name.contains('/') || is_word => Ok(Self(tz)),
            Some(_) => Err(ZoneError::Abbreviation { name: name.to_owned() }),
            None => Err(explain(name)),
        }
    }

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Seconds by which local time is ahead of UTC at an instant.
    pub(super) fn offset_at(self, utc: UtcSeconds) -> i64 {
        let offset = self.0.offset_from_utc_datetime(&naive(utc));
        i64::from(offset.fix().local_minus_utc())
    }

    /// What a local time means.
    pub(super) fn at_local(self, local: LocalSeconds) -> LocalTime {
        let ahead = |offset: &chrono_tz::TzOffset| i64::from(offset.fix().local_minus_utc());
        match self.0.offset_from_local_datetime(&naive(local)) {
            MappedLocalTime::Single(offset) => LocalTime::Once(local - ahead(&offset)),
            MappedLocalTime::Ambiguous(first, second) => {
                LocalTime::Twice { first: local - ahead(&first), second: local - ahead(&second) }
            }
            MappedLocalTime::None => {
                let gap = GapInfo::new(&naive(local), &self.0);
                let (begin, offset) = gap.and_then(|gap| gap.begin).expect(
                    "a missing local time follows a change, since data begins with an unbounded span",
                );
                let from = begin.and_utc().timestamp();
                let change = from - ahead(&offset);
                LocalTime::Missing(Gap { change, from, to: change + self.offset_at(change) })
            }
        }
    }

    /// The stretch that contains a local time which occurs at `first` and again at `second`.
    pub(super) fn repeat_around(self, first: UtcSeconds, second: UtcSeconds) -> Repeat {
        let (before, after) = (self.offset_at(first), self.offset_at(second));
        // The one change between the two instants: `low` is always before it, `change` at or after it.
        let (mut low, mut change) = (first, second);
        while change - low > 1 {
            let middle = low + (change - low) / 2;
            if self.offset_at(middle) == before {
                low = middle;
            } else {
                change = middle;
            }
        }
        Repeat { change, from: change + after, to: change + before }
    }
}

/// Why a name that is not in the data is refused. Looks at all names, which only errors can afford.
fn explain(name: &str) -> ZoneError {
    const SHOWN_CHARS: usize = 60;
    let shown: String = name.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if name.is_empty() {
        return ZoneError::Empty;
    }
    let same_but_for_case = chrono_tz::TZ_VARIANTS.iter().find(|tz| tz.name().eq_ignore_ascii_case(name));
    if let Some(Ok(zone)) = same_but_for_case.map(|tz| Zone::parse(tz.name())) {
        return ZoneError::Case { name: shown, known: zone.name() };
    }
    let letters = name.trim_matches(|c: char| !c.is_ascii_alphabetic());
    if name.contains(['+', '-']) && (letters.is_empty() || matches!(letters, "UTC" | "GMT")) {
        ZoneError::Offset { name: shown }
    } else if (1..=5).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_uppercase()) {
        ZoneError::Abbreviation { name: shown }
    } else {
        ZoneError::Unknown { name: shown }
    }
}

/// A second count as the calendar type that the zone data is asked with; what lies beyond chrono's
/// years, which no schedule reaches, is moved to their edge.
fn naive(seconds: i64) -> NaiveDateTime {
    let edge = if seconds < 0 { NaiveDateTime::MIN } else { NaiveDateTime::MAX };
    DateTime::from_timestamp(seconds, 0).map_or(edge, |at| at.naive_utc())
}

impl Default for Zone {
    fn default() -> Self {
        Self::UTC
    }
}

impl FromStr for Zone {
    type Err = ZoneError;

    fn from_str(name: &str) -> Result<Self, ZoneError> {
        Self::parse(name)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Zone").field(&self.name()).finish()
    }
}

impl PartialOrd for Zone {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Zone {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name().cmp(other.name())
    }
}

impl Hash for Zone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::parse(&name).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> Zone {
        Zone::parse(name).expect("a known zone")
    }

    fn seconds(text: &str) -> i64 {
        let at = DateTime::parse_from_rfc3339(text).expect("RFC 3339");
        at.timestamp()
    }

    #[test]
    fn iana_names_are_taken_as_they_are_spelt() {
        for name in [
            "UTC",
            "Etc/UTC",
            "Europe/Berlin",
            "US/Eastern",
            "America/Argentina/Ushuaia",
            "Japan",
            "Etc/GMT+5",
        ] {
            assert_eq!(zone(name).name(), name);
        }
        assert!(matches!(Zone::parse("europe/berlin"), Err(ZoneError::Case { known: "Europe/Berlin", .. })));
        assert!(matches!(Zone::parse("utc"), Err(ZoneError::Case { known: "UTC", .. })));
    }

    #[test]
    fn abbreviations_offsets_and_unknown_names_are_refused_as_such() {
        for name in ["PST", "EST", "CET", "GMT", "MST7MDT", "CEST", "NZ", "UCT"] {
            assert!(matches!(Zone::parse(name), Err(ZoneError::Abbreviation { .. })), "{name}");
        }
        for name in ["+02:00", "-5", "UTC+2", "GMT-03:00"] {
            assert!(matches!(Zone::parse(name), Err(ZoneError::Offset { .. })), "{name}");
        }
        for name in ["Mars/Phobos", "Etc/Nowhere", " UTC", "Z", "Europe/Berlin\u{0}", "é"] {
            let refused = Zone::parse(name);
            assert!(refused.is_err(), "{name}");
        }
        assert_eq!(Zone::parse(""), Err(ZoneError::Empty));
    }

    #[test]
    fn a_local_time_occurs_once_twice_or_not_at_all() {
        let berlin = zone("Europe/Berlin");
        assert_eq!(
            berlin.at_local(seconds("2026-03-29T01:59:59Z")),
            LocalTime::Once(seconds("2026-03-29T00:59:59Z"))
        );
        assert_eq!(
            berlin.at_local(seconds("2026-03-29T02:30:00Z")),
            LocalTime::Missing(Gap {
                change: seconds("2026-03-29T01:00:00Z"),
                from: seconds("2026-03-29T02:00:00Z"),
                to: seconds("2026-03-29T03:00:00Z"),
            })
        );
        let (first, second) = (seconds("2026-10-25T00:30:00Z"), seconds("2026-10-25T01:30:00Z"));
        assert_eq!(berlin.at_local(seconds("2026-10-25T02:30:00Z")), LocalTime::Twice { first, second });
        assert_eq!(
            berlin.repeat_around(first, second),
            Repeat {
                change: seconds("2026-10-25T01:00:00Z"),
                from: seconds("2026-10-25T02:00:00Z"),
                to: seconds("2026-10-25T03:00:00Z"),
            }
        );
    }

    #[test]
    fn a_whole_day_can_be_missing() {
        let apia = zone("Pacific/Apia").at_local(seconds("2011-12-30T12:00:00Z"));
        let LocalTime::Missing(gap) = apia else { panic!("{apia:?}") };
        assert_eq!(gap.to - gap.from, DAY);
        assert_eq!(gap.change, seconds("2011-12-30T10:00:00Z"));
    }

    #[test]
    fn offset_changes_lie_days_apart_and_move_the_clock_by_a_day_at_most() {
        let (start, end) = (seconds("1840-01-01T00:00:00Z"), seconds("2110-01-01T00:00:00Z"));
        for tz in chrono_tz::TZ_VARIANTS {
            let zone = Zone(tz);
            let mut offset = zone.offset_at(start);
            let mut last_change = i64::MIN;
            for at in (start..end).step_by(2 * DAY as usize) {
                let now = zone.offset_at(at);
                if now != offset {
                    let change = zone.repeat_around(at - 2 * DAY, at).change;
                    assert!(change.saturating_sub(last_change) > CHANGES_APART, "{zone} at {change}");
                    assert!((now - offset).abs() <= DAY, "{zone} at {change}");
                    (offset, last_change) = (now, change);
                }
            }
        }
    }

    #[test]
    fn instants_beyond_the_calendar_are_answered_too() {
        for edge in [i64::MIN, i64::MAX] {
            assert_eq!(Zone::UTC.offset_at(edge), 0);
        }
    }
}
