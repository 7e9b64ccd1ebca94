//! Schedules and policies as JSON: one object tagged `kind`, instants in RFC 3339, durations as milliseconds.
//!
//! Everything is read as text or plain numbers first and validated on the way into the real types,
//! so that an error names the field, and that what could be read is valid. Unknown fields are
//! errors: a misspelt `repeat` must not silently mean the default.

use serde::{Deserialize, Serialize};

use super::misfire::{MisfireError, MisfirePolicy};
use super::{Bounds, CronExpr, GapPolicy, RepeatPolicy, Schedule, ScheduleError, Zone};
use crate::time::{Span, Timestamp};

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ScheduleWire {
    Cron {
        expr: String,
        #[serde(default = "utc")]
        zone: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gap: Option<GapPolicy>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repeat: Option<RepeatPolicy>,
    },
    Interval {
        start: String,
        // Signed, so that a negative number is refused by name below rather than as a type error.
        every_ms: i64,
    },
    OneShot {
        at: String,
    },
    // With braces, or serde would let unknown fields pass.
    Manual {},
}

fn utc() -> String {
    Zone::UTC.name().to_owned()
}

impl TryFrom<ScheduleWire> for Schedule {
    type Error = ScheduleError;

    fn try_from(wire: ScheduleWire) -> Result<Self, ScheduleError> {
        let schedule = match wire {
            ScheduleWire::Cron { expr, zone, gap, repeat } => {
                Self::Cron { expr: CronExpr::parse(&expr)?, zone: Zone::parse(&zone)?, gap, repeat }
            }
            ScheduleWire::Interval { start, every_ms } => Self::Interval {
                start: instant("start", &start)?,
                every: Span::from_millis(u64::try_from(every_ms).map_err(|_| ScheduleError::Interval)?),
            },
            ScheduleWire::OneShot { at } => Self::OneShot { at: instant("at", &at)? },
            ScheduleWire::Manual {} => Self::Manual,
        };
        schedule.validate()?;
        Ok(schedule)
    }
}

impl From<Schedule> for ScheduleWire {
    fn from(schedule: Schedule) -> Self {
        match schedule {
            Schedule::Cron { expr, zone, gap, repeat } => {
                Self::Cron { expr: expr.as_str().to_owned(), zone: zone.name().to_owned(), gap, repeat }
            }
            Schedule::Interval { start, every } => Self::Interval {
                start: start.to_string(),
                every_ms: i64::try_from(every.as_millis()).unwrap_or(i64::MAX),
            },
            Schedule::OneShot { at } => Self::OneShot { at: at.to_string() },
            Schedule::Manual => Self::Manual {},
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BoundsWire {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_runs: Option<u64>,
}

impl TryFrom<BoundsWire> for Bounds {
    type Error = ScheduleError;

    fn try_from(wire: BoundsWire) -> Result<Self, ScheduleError> {
        let bounds = Self {
            start: wire.start.map(|text| instant("start", &text)).transpose()?,
            end: wire.end.map(|text| instant("end", &text)).transpose()?,
            max_runs: wire.max_runs,
        };
        bounds.validate()?;
        Ok(bounds)
    }
}

impl From<Bounds> for BoundsWire {
    fn from(bounds: Bounds) -> Self {
        Self {
            start: bounds.start.map(|at| at.to_string()),
            end: bounds.end.map(|at| at.to_string()),
            max_runs: bounds.max_runs,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum MisfireWire {
    FireOnce,
    CatchUp {
        cap: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window_ms: Option<u64>,
    },
    Skip,
}

impl TryFrom<MisfireWire> for MisfirePolicy {
    type Error = MisfireError;

    fn try_from(wire: MisfireWire) -> Result<Self, MisfireError> {
        let policy = match wire {
            MisfireWire::FireOnce => Self::FireOnce,
            MisfireWire::CatchUp { cap, window_ms } => {
                Self::CatchUp { cap, window: window_ms.map_or(Span::MAX, Span::from_millis) }
            }
            MisfireWire::Skip => Self::Skip,
        };
        policy.validate().map(|()| policy)
    }
}

impl From<MisfirePolicy> for MisfireWire {
    fn from(policy: MisfirePolicy) -> Self {
        match policy {
            MisfirePolicy::FireOnce => Self::FireOnce,
            MisfirePolicy::CatchUp { cap, window } => {
                let window_ms = (window < Span::MAX).then(|| window.as_millis());
                Self::CatchUp { cap, window_ms }
            }
            MisfirePolicy::Skip => Self::Skip,
        }
    }
}

fn instant(field: &'static str, text: &str) -> Result<Timestamp, ScheduleError> {
    Timestamp::parse_rfc3339(text).ok_or(ScheduleError::Instant { field })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Schedule, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    fn refused(json: &str) -> String {
        read(json).expect_err("a refused schedule")
    }

    #[test]
    fn every_kind_is_written_as_it_was_read() {
        for json in [
            r#"{"kind":"cron","expr":"30 2 * * *","zone":"Europe/Berlin","gap":"skip","repeat":"last"}"#,
            r#"{"kind":"cron","expr":"@daily","zone":"UTC"}"#,
            r#"{"kind":"interval","start":"2026-01-01T00:00:00.000000Z","every_ms":1500}"#,
            r#"{"kind":"one_shot","at":"2026-01-01T00:00:00.000001Z"}"#,
            r#"{"kind":"manual"}"#,
        ] {
            let schedule = read(json).expect("a valid schedule");
            assert_eq!(serde_json::to_string(&schedule).expect("JSON"), json);
        }
        let bounds = r#"{"start":"2026-01-01T00:00:00.000000Z","max_runs":3}"#;
        let read: Bounds = serde_json::from_str(bounds).expect("valid bounds");
        assert_eq!(serde_json::to_string(&read).expect("JSON"), bounds);
    }

    #[test]
    fn a_cron_schedule_without_a_zone_is_in_utc() {
        assert_eq!(
            read(r#"{"kind":"cron","expr":"@daily"}"#),
            Ok(Schedule::cron("@daily", "UTC").expect("valid"))
        );
    }

    #[test]
    fn what_is_wrong_is_said_by_the_name_of_the_field() {
        for (json, field) in [
            (r#"{"kind":"cron","expr":"* * * *"}"#, "expr: "),
            (r#"{"kind":"cron","expr":"@daily","zone":"PST"}"#, "zone: "),
            (r#"{"kind":"interval","start":"2026-01-01T00:00:00Z","every_ms":-5}"#, "every_ms: "),
            (r#"{"kind":"interval","start":"2026-01-01T00:00:00Z","every_ms":999}"#, "every_ms: "),
            (
                r#"{"kind":"interval","start":"2026-01-01T00:00:00Z","every_ms":9223372036854775807}"#,
                "every_ms: ",
            ),
            (r#"{"kind":"interval","start":"2026-01-01","every_ms":1000}"#, "start: "),
            (r#"{"kind":"one_shot","at":"0000-01-01T00:00:00Z"}"#, "at: "),
            (r#"{"kind":"manual","at":"2026-01-01T00:00:00Z"}"#, "unknown field `at`"),
            (r#"{"kind":"cron","expr":"@daily","repaet":"last"}"#, "unknown field `repaet`"),
            (r#"{"kind":"cron","expr":"@daily","repeat":"never"}"#, "unknown variant `never`"),
            (r#"{"kind":"sometimes"}"#, "unknown variant `sometimes`"),
        ] {
            let error = refused(json);
            assert!(error.contains(field), "{json}: {error}");
        }
    }

    #[test]
    fn misfire_policies_are_words_or_an_object() {
        for json in [
            r#""fire_once""#,
            r#""skip""#,
            r#"{"catch_up":{"cap":10,"window_ms":60000}}"#,
            r#"{"catch_up":{"cap":1}}"#,
        ] {
            let policy: MisfirePolicy = serde_json::from_str(json).expect("a valid policy");
            assert_eq!(serde_json::to_string(&policy).expect("JSON"), json);
        }
        for json in [
            r#"{"catch_up":{"cap":0}}"#,
            r#"{"catch_up":{"cap":101}}"#,
            r#"{"catch_up":{"cap":1,"windw_ms":1}}"#,
            r#""never""#,
        ] {
            assert!(serde_json::from_str::<MisfirePolicy>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn bounds_that_leave_nothing_are_refused() {
        for (json, field) in [
            (r#"{"start":"2026-01-02T00:00:00Z","end":"2026-01-01T00:00:00Z"}"#, "end: "),
            (r#"{"max_runs":0}"#, "max_runs: "),
            (r#"{"start":"yesterday"}"#, "start: "),
        ] {
            let error = serde_json::from_str::<Bounds>(json).expect_err("refused bounds").to_string();
            assert!(error.contains(field), "{json}: {error}");
        }
    }
}
