//! Cron against second opinions: a brute-force walk, the `croner` crate, and itself.
//!
//! The brute-force walk is the simulator's oracle of fire times; it shares no code with the core. Zones
//! and dates are chosen for their clock changes: half hours (Lord Howe), two hours (Troll), a whole day
//! left out (Apia, Kwajalein) or lived twice (Juneau in 1867), daylight saving that is negative (Dublin,
//! Casablanca) or suspended in between (Gaza), and offsets with seconds (Monrovia, and all in old times).

use croner::parser::CronParser;
use fencepost_core::schedule::{CronExpr, CronFires, GapPolicy, LAST_FIRE, RepeatPolicy, Schedule, Zone};
use fencepost_core::time::{Span, Timestamp};
use proptest::prelude::*;

#[allow(
    unreachable_pub,
    dead_code,
    reason = "it is a file of the simulator's library, where all of it is public"
)]
#[path = "../../sim/src/oracle/calendar.rs"]
mod calendar;
#[path = "../../sim/src/oracle/local_clock.rs"]
mod local_clock;

const ZONES: [&str; 24] = [
    "UTC",
    "America/New_York",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Havana",
    "America/St_Johns",
    "America/Juneau",
    "America/Caracas",
    "Europe/Berlin",
    "Europe/London",
    "Europe/Dublin",
    "Africa/Casablanca",
    "Africa/Cairo",
    "Africa/Monrovia",
    "Asia/Gaza",
    "Asia/Tehran",
    "Asia/Kathmandu",
    "Asia/Manila",
    "Asia/Pyongyang",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "Pacific/Chatham",
    "Antarctica/Troll",
];
const MICROS: i64 = 1_000_000;
const DAY: i64 = 86_400;

/// How many fires are compared in one case.
const COMPARED: usize = 150;

fn number(smallest: u32, largest: u32) -> impl Strategy<Value = String> + Clone {
    (smallest..=largest).prop_map(|value| value.to_string())
}

fn range(smallest: u32, largest: u32) -> impl Strategy<Value = String> + Clone {
    (smallest..=largest, smallest..=largest).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)))
}

fn field(smallest: u32, largest: u32) -> impl Strategy<Value = String> + Clone {
    let item = prop_oneof![
        3 => number(smallest, largest),
        2 => range(smallest, largest),
        1 => (range(smallest, largest), 1..=largest).prop_map(|(range, step)| format!("{range}/{step}")),
        1 => (number(smallest, largest), 1..=largest).prop_map(|(start, step)| format!("{start}/{step}")),
    ];
    let list = prop::collection::vec(item, 1..4).prop_map(|items| items.join(","));
    let stepped = (1..=largest).prop_map(|step| format!("*/{step}"));
    prop_oneof![3 => Just("*".to_owned()), 4 => list, 1 => stepped]
}

fn names(names: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    prop::collection::vec(prop::sample::select(names), 1..3).prop_map(|names| names.join(","))
}

/// Hours around which clocks change, more often than others.
fn hours() -> impl Strategy<Value = String> + Clone {
    prop_oneof![2 => number(0, 3), 1 => range(0, 4), 2 => field(0, 23)]
}

fn expression() -> impl Strategy<Value = String> {
    let month = prop_oneof![3 => field(1, 12), 1 => names(&["JAN", "feb", "Mar", "OCT", "nov"])];
    let weekday = prop_oneof![3 => field(0, 7), 1 => names(&["SUN", "mon", "Sat", "FRI-SUN", "Mon-fri"])];
    let second = prop::option::of(prop_oneof![2 => number(0, 59), 1 => field(0, 59)]);
    (second, field(0, 59), hours(), field(1, 31), month, weekday).prop_map(
        |(second, minute, hour, day, month, weekday)| {
            let second = second.map(|second| second + " ").unwrap_or_default();
            format!("{second}{minute} {hour} {day} {month} {weekday}")
        },
    )
}

fn gap() -> impl Strategy<Value = Option<GapPolicy>> {
    prop::option::of(prop::sample::select(vec![GapPolicy::After, GapPolicy::Skip]))
}

fn repeat() -> impl Strategy<Value = Option<RepeatPolicy>> {
    prop::option::of(prop::sample::select(vec![RepeatPolicy::First, RepeatPolicy::Last, RepeatPolicy::Both]))
}

fn zone() -> impl Strategy<Value = Zone> {
    prop::sample::select(ZONES.as_slice()).prop_map(|name| Zone::parse(name).expect("a known zone"))
}

/// An instant in microseconds, from some hours before to some hours after a clock change of the
/// zone; for a zone or a time without one, any instant.
fn near_a_change(zone: Zone, search_from: i64, distance_us: i64) -> Timestamp {
    use chrono::{DateTime, Offset, TimeZone};
    let tz: chrono_tz::Tz = zone.name().parse().expect("a known zone");
    let offset = |at: i64| {
        let at = DateTime::from_timestamp(at, 0).expect("a calendar instant");
        tz.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc()
    };
    let change = (0..4_000).map(|day| search_from + day * DAY).find(|at| offset(*at) != offset(at - DAY));
    Timestamp::from_micros(change.unwrap_or(search_from) * MICROS + distance_us)
}

fn by_oracle(
    expr: &str,
    zone: Zone,
    gap: Option<GapPolicy>,
    repeat: Option<RepeatPolicy>,
) -> calendar::Calendar {
    let gap = gap.map(|policy| match policy {
        GapPolicy::After => calendar::Gap::After,
        GapPolicy::Skip => calendar::Gap::Skip,
    });
    let repeat = repeat.map(|policy| match policy {
        RepeatPolicy::First => calendar::Repeat::First,
        RepeatPolicy::Last => calendar::Repeat::Last,
        RepeatPolicy::Both => calendar::Repeat::Both,
    });
    calendar::Calendar::new(expr, zone.name(), gap, repeat).expect("the oracle takes what the core takes")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fires_are_those_that_a_brute_force_walk_sees(
        expr in expression(),
        zone in zone(),
        gap in gap(),
        repeat in repeat(),
        search_from in prop_oneof![3 => 0_i64..4_000_000_000, 1 => -3_300_000_000_i64..0],
        distance_us in -30 * 3_600 * MICROS..6 * 3_600 * MICROS,
        days in prop_oneof![3 => 1_i64..4, 1 => 4_i64..500],
    ) {
        // A generated date may be one that never comes.
        let Ok(cron) = CronExpr::parse(&expr) else { return Ok(()) };
        let after = near_a_change(zone, search_from, distance_us);
        let mut until = after.plus(Span::from_secs(days as u64 * DAY as u64));
        let schedule = Schedule::Cron { expr: cron, zone, gap, repeat };
        let fires = schedule.fires_between(after, until, COMPARED);
        if fires.len() == COMPARED {
            until = fires[COMPARED - 1];
        }
        let micros = |fires: &[Timestamp]| fires.iter().map(|fire| fire.as_micros()).collect::<Vec<_>>();
        let seen = by_oracle(&expr, zone, gap, repeat).fires_between(after.as_micros(), until.as_micros());
        prop_assert_eq!(micros(&fires), seen, "{} in {} after {}", expr, zone, after);
        prop_assert_eq!(&schedule.latest_fires(after, until, usize::MAX), &fires, "{} in {} backwards", expr, zone);
    }

    #[test]
    fn asking_again_from_anywhere_between_two_fires_gives_the_later_one(
        expr in expression(),
        zone in zone(),
        gap in gap(),
        repeat in repeat(),
        search_from in 0_i64..4_000_000_000,
        distance_us in -30 * 3_600 * MICROS..30 * 3_600 * MICROS,
        percents in prop::collection::vec(0_u64..100, 3),
    ) {
        let Ok(cron) = CronExpr::parse(&expr) else { return Ok(()) };
        let fires = CronFires::new(&cron, zone, gap, repeat);
        let mut last = near_a_change(zone, search_from, distance_us);
        for fire in fires.after(last).take(30) {
            prop_assert!(fire.at > last);
            for percent in &percents {
                let distance = fire.at.since(last).as_micros();
                let inside = last.plus(Span::from_micros(distance / 100 * percent));
                prop_assert_eq!(fires.next_after(inside).map(|next| next.at), Some(fire.at));
                prop_assert_eq!(fires.last_before(inside.next().min(fire.at)), fires.last_before(fire.at));
            }
            prop_assert_eq!(fires.next_after(fire.at.minus(Span::from_micros(1))).map(|next| next.at), Some(fire.at));
            prop_assert_eq!(fires.last_before(fire.at.next()), Some(fire.at));
            last = fire.at;
        }
    }

    #[test]
    fn in_utc_croner_agrees(
        second in field(0, 59),
        minute in field(0, 59),
        hour in field(0, 23),
        // Where a day field begins with `*` but says more, croner does not follow Debian's rule.
        day in field(1, 31).prop_filter("no */n", |text| text == "*" || !text.starts_with('*')),
        month in field(1, 12),
        weekday in field(0, 7).prop_filter("no */n", |text| text == "*" || !text.starts_with('*')),
        after in 0_i64..15_000_000_000,
    ) {
        let expr = format!("{second} {minute} {hour} {day} {month} {weekday}");
        let Ok(cron) = CronExpr::parse(&expr) else { return Ok(()) };
        let other = CronParser::builder().sloppy_ranges(true).build().parse(&expr).expect("croner takes it too");
        let mut last = chrono::DateTime::from_timestamp(after, 0).expect("a calendar instant");
        for fire in CronFires::new(&cron, Zone::UTC, None, None).after(Timestamp::from_utc(last)).take(8) {
            last = other.find_next_occurrence(&last, false).expect("croner finds one too");
            prop_assert_eq!(fire.at, Timestamp::from_utc(last), "{}", expr);
        }
    }

    #[test]
    fn any_text_is_read_or_refused_and_the_oracle_agrees_which(
        text in prop_oneof![
            any::<String>(),
            "[0-9*/,\\- ]{0,40}",
            "([0-9*]{1,2}[-/,]?[0-9]{0,2} ?){4,7}",
            "[0-9]{1,2} [0-9]{1,2} [0-9*]{1,2} [0-9A-Za-z*]{1,3} [0-9A-Za-z*#?L]{1,3}",
            "@[a-z]{4,9}",
        ],
        at in any::<i64>(),
    ) {
        let read = CronExpr::parse(&text);
        prop_assert_eq!(read.is_ok(), calendar::Calendar::new(&text, "UTC", None, None).is_ok(), "{:?}: {:?}", text, read);
        let zone = Zone::parse(&text);
        prop_assert_eq!(zone.is_ok(), calendar::Calendar::new("* * * * *", &text, None, None).is_ok());
        if let Ok(expr) = read {
            let fires = CronFires::new(&expr, Zone::UTC, None, None);
            let at = Timestamp::from_micros(at);
            prop_assert!(fires.next_after(at).is_none_or(|fire| fire.at > at));
            prop_assert!(fires.last_before(at).is_none_or(|fire| fire < at));
        }
    }
}

#[test]
fn every_expression_fires_before_and_after_the_years_that_the_walking_crate_knows() {
    // Leap days: 1896 is followed by 1904, 2096 by 2104; on a Monday, 1892 by 1904 and 2096 … by 2132.
    for (expr, after, days) in [
        ("0 0 29 2 *", "1889-01-01T00:00:00Z", 16 * 366),
        ("0 0 29 2 *", "2095-01-01T00:00:00Z", 16 * 366),
        ("0 0 29 2 */7", "2069-01-01T00:00:00Z", 120 * 366),
        ("0 0 29 2 */7", "1800-01-01T00:00:00Z", 180 * 366),
        ("0 12 31 12 *", "1966-01-01T00:00:00Z", 9 * 366),
        ("0 12 1 1 SAT", "2098-06-01T00:00:00Z", 9 * 366),
        ("59 23 31 */5 */3", "2399-01-01T00:00:00Z", 9 * 366),
    ] {
        let after = Timestamp::parse_rfc3339(after).expect("an instant");
        let until = after.plus(Span::from_secs(days * DAY as u64));
        let schedule = Schedule::cron(expr, "UTC").expect("a valid schedule");
        let fires = schedule.fires_between(after, until, usize::MAX);
        let seen = by_oracle(expr, Zone::UTC, None, None).fires_between(after.as_micros(), until.as_micros());
        assert_eq!(fires.iter().map(|fire| fire.as_micros()).collect::<Vec<_>>(), seen, "{expr}");
        assert!(fires.len() >= 2, "{expr}: {fires:?}");
        assert_eq!(schedule.latest_fires(after, until, usize::MAX), fires, "{expr} backwards");
    }
}

#[test]
fn the_ends_of_time_are_reached_without_a_panic() {
    for expr in ["* * * * * *", "0 0 29 2 *", "59 59 23 31 12 *", "0 0 1 1 *"] {
        for zone in ZONES {
            let schedule = Schedule::cron(expr, zone).expect("a valid schedule");
            assert_eq!(schedule.next_fire_after(Timestamp::MAX), None);
            assert_eq!(schedule.last_fire_before(Timestamp::MIN), None);
            let first = schedule.next_fire_after(Timestamp::MIN).expect("time begins with a fire");
            assert_eq!(schedule.last_fire_before(first), None);
            let last = schedule.last_fire_before(Timestamp::MAX).expect("time ends with a fire");
            assert_eq!(schedule.next_fire_after(last), None);
            assert!(last <= LAST_FIRE);
        }
    }
}

#[test]
fn a_schedule_that_only_ever_falls_into_gaps_ends_instead_of_hanging() {
    // The last Sunday of March at half past one: in London that is always the missing hour, until
    // the zone data ends and every day has all its hours.
    let expr = CronExpr::parse("30 1 25-31 3 */7").expect("a valid expression");
    let london = Zone::parse("Europe/London").expect("a known zone");
    let after = Timestamp::parse_rfc3339("1996-01-01T00:00:00Z").expect("an instant");
    let skipping = CronFires::new(&expr, london, Some(GapPolicy::Skip), None);
    let century = Timestamp::parse_rfc3339("2099-01-01T00:00:00Z").expect("an instant");
    assert!(skipping.next_after(after).is_none_or(|fire| fire.at > century));
    assert!(skipping.last_before(century).is_none_or(|fire| fire < after));
}
