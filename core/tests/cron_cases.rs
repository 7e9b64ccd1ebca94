//! The worked cases of cron expressions, in the core and in the simulator's oracle of fire times.
//!
//! `cases/cron.json` was worked out by hand and with other implementations. Each case is asked in every
//! way that the core can be asked: forwards, backwards, one by one, and by the preview.

use fencepost_core::schedule::{
    CronExpr, CronFires, GapPolicy, RepeatPolicy, Schedule, TZDATA_VERSION, Zone, preview,
};
use fencepost_core::time::Timestamp;
use serde_json::Value;

#[allow(
    unreachable_pub,
    dead_code,
    reason = "it is a file of the simulator's library, where all of it is public"
)]
#[path = "../../sim/src/oracle/calendar.rs"]
mod calendar;
#[path = "../../sim/src/oracle/local_clock.rs"]
mod local_clock;

const CASES: &str = include_str!("cases/cron.json");

struct Case {
    expr: String,
    zone: String,
    after: Timestamp,
    until: Timestamp,
    gap: Option<GapPolicy>,
    repeat: Option<RepeatPolicy>,
    fires: Vec<Timestamp>,
}

fn document() -> Value {
    serde_json::from_str(CASES).expect("the cases are JSON")
}

fn texts(key: &str) -> Vec<String> {
    serde_json::from_value(document()[key].clone()).expect("a list of texts")
}

fn instant(text: &Value) -> Timestamp {
    text.as_str().and_then(Timestamp::parse_rfc3339).expect("an instant in RFC 3339")
}

fn cases() -> Vec<Case> {
    let document = document();
    let cases = document["cases"].as_array().expect("a list of cases").iter();
    let cases = cases.map(|case| Case {
        expr: case["expr"].as_str().expect("an expression").to_owned(),
        zone: case["tz"].as_str().expect("a zone").to_owned(),
        after: instant(&case["after"]),
        until: instant(&case["until"]),
        gap: serde_json::from_value(case["policy"]["gap"].clone()).expect("a gap policy"),
        repeat: serde_json::from_value(case["policy"]["repeat"].clone()).expect("a repeat policy"),
        fires: case["fires"].as_array().expect("a list of fires").iter().map(instant).collect(),
    });
    cases.collect()
}

impl Case {
    fn expr(&self) -> CronExpr {
        CronExpr::parse(&self.expr).expect("a valid expression")
    }

    fn zone(&self) -> Zone {
        Zone::parse(&self.zone).expect("a known zone")
    }
}

#[test]
fn the_cases_hold_for_the_zone_data_that_is_compiled_in() {
    assert_eq!(TZDATA_VERSION, "2025b");
}

#[test]
fn every_case_fires_as_worked_out_in_whatever_way_it_is_asked() {
    for case in cases() {
        let label = format!("{} in {} with {:?} {:?}", case.expr, case.zone, case.gap, case.repeat);
        let (expr, zone) = (case.expr(), case.zone());
        let fires = CronFires::new(&expr, zone, case.gap, case.repeat);
        let walked: Vec<_> =
            fires.after(case.after).map(|fire| fire.at).take_while(|at| *at <= case.until).collect();
        assert_eq!(walked, case.fires, "{label}");

        let schedule = Schedule::Cron { expr, zone, gap: case.gap, repeat: case.repeat };
        assert_eq!(schedule.fires_between(case.after, case.until, usize::MAX), case.fires, "{label}");
        assert_eq!(
            schedule.latest_fires(case.after, case.until, usize::MAX),
            case.fires,
            "{label}, backwards"
        );
        let last_two = &case.fires[case.fires.len().saturating_sub(2)..];
        assert_eq!(schedule.latest_fires(case.after, case.until, 2), last_two, "{label}, the last two");
    }
}

#[test]
fn every_case_is_previewed_with_the_same_instant_in_both_columns() {
    for case in cases() {
        let shown = preview(&case.expr(), case.zone(), case.gap, case.repeat, case.after, case.fires.len());
        for (shown, fire) in shown.iter().zip(&case.fires) {
            assert_eq!(Timestamp::parse_rfc3339(&shown.utc), Some(*fire));
            assert_eq!(Timestamp::parse_rfc3339(&shown.local), Some(*fire));
        }
        assert_eq!(shown.len(), case.fires.len());
    }
}

#[test]
fn every_case_holds_for_the_oracle_of_fire_times() {
    for case in cases() {
        let gap = case.gap.map(|policy| match policy {
            GapPolicy::After => calendar::Gap::After,
            GapPolicy::Skip => calendar::Gap::Skip,
        });
        let repeat = case.repeat.map(|policy| match policy {
            RepeatPolicy::First => calendar::Repeat::First,
            RepeatPolicy::Last => calendar::Repeat::Last,
            RepeatPolicy::Both => calendar::Repeat::Both,
        });
        let (after, until) = (case.after.as_micros(), case.until.as_micros());
        let seen = calendar::fires_between(&case.expr, &case.zone, gap, repeat, after, until);
        let expected: Vec<i64> = case.fires.iter().map(|fire| fire.as_micros()).collect();
        assert_eq!(seen, Ok(expected), "{} in {}", case.expr, case.zone);
    }
}

#[test]
fn expressions_that_never_fire_and_those_that_are_none_are_refused_by_both() {
    for expr in texts("never_fires").into_iter().chain(texts("refused")) {
        let refused = CronExpr::parse(&expr).expect_err(&expr);
        assert!(!refused.to_string().is_empty());
        assert!(calendar::Calendar::new(&expr, "UTC", None, None).is_err(), "{expr}");
    }
}

#[test]
fn zones_that_are_none_are_refused_by_both() {
    for zone in texts("refused_zones") {
        assert!(Zone::parse(&zone).is_err(), "{zone}");
        assert!(calendar::Calendar::new("* * * * *", &zone, None, None).is_err(), "{zone}");
    }
}

#[test]
fn the_preview_says_what_daylight_saving_did_and_why() {
    let notes = |expr: &str, zone: &str, gap, repeat, after: &str, count| -> Vec<String> {
        let expr = CronExpr::parse(expr).expect("a valid expression");
        let zone = Zone::parse(zone).expect("a known zone");
        let after = Timestamp::parse_rfc3339(after).expect("an instant");
        let shown = preview(&expr, zone, gap, repeat, after, count);
        shown.into_iter().map(|fire| format!("{} {}", fire.local, fire.note.unwrap_or_default())).collect()
    };
    let new_york = "America/New_York";
    assert_eq!(
        notes("30 2 * * *", new_york, None, None, "2026-03-08T05:00:00Z", 2),
        [
            "2026-03-08T03:00:00-04:00 local time 2026-03-08 02:30:00 does not exist, the clock is set forward \
             from 2026-03-08 02:00:00 to 2026-03-08 03:00:00: fires at the first instant after the gap (gap=after)",
            "2026-03-09T02:30:00-04:00 ",
        ]
    );
    assert_eq!(
        notes("30 2 * * *", new_york, Some(GapPolicy::Skip), None, "2026-03-08T05:00:00Z", 1),
        [
            "2026-03-09T02:30:00-04:00 before this, local time 2026-03-08 02:30:00 was skipped: it does not exist, \
          the clock is set forward from 2026-03-08 02:00:00 to 2026-03-08 03:00:00 (gap=skip)"
        ]
    );
    assert_eq!(
        notes("0,30 1 * * *", new_york, None, None, "2026-11-01T05:00:00Z", 2),
        [
            "2026-11-01T01:30:00-04:00 local time occurs twice, the clock is set back: this is the first time, \
             the second does not fire (repeat=first)",
            "2026-11-02T01:00:00-05:00 ",
        ]
    );
    assert_eq!(
        notes("*/30 1 * * *", new_york, None, None, "2026-11-01T05:00:00Z", 2),
        [
            "2026-11-01T01:30:00-04:00 local time occurs twice, the clock is set back: this is the first time, \
             the second fires too (repeat=both)",
            "2026-11-01T01:00:00-05:00 local time occurs twice, the clock is set back: this is the second time, \
             the first fires too (repeat=both)",
        ]
    );
    assert_eq!(
        notes("0 1 * * *", new_york, None, Some(RepeatPolicy::Last), "2026-11-01T05:00:00Z", 1),
        [
            "2026-11-01T01:00:00-05:00 local time occurs twice, the clock is set back: this is the second time, \
          the first does not fire (repeat=last)"
        ]
    );
}

#[test]
fn the_preview_shows_a_thousand_fires_at_most() {
    let expr = CronExpr::parse("* * * * * *").expect("a valid expression");
    assert_eq!(preview(&expr, Zone::UTC, None, None, Timestamp::EPOCH, usize::MAX).len(), 1_000);
}

#[test]
fn an_offset_with_seconds_is_shown_by_the_minute_and_still_names_the_instant() {
    let expr = CronExpr::parse("0 0 * * *").expect("a valid expression");
    let monrovia = Zone::parse("Africa/Monrovia").expect("a known zone");
    let shown = preview(&expr, monrovia, None, None, Timestamp::EPOCH, 1);
    assert_eq!(shown[0].utc, "1970-01-01T00:44:30Z");
    assert_eq!(shown[0].local, "1970-01-01T00:00:30-00:44");
}
