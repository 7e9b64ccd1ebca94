//! Excluded days: a planner that leaps over them decides what one that looks at every fire decides.

use std::collections::BTreeSet;

use chrono::{DateTime, NaiveDate};
use fencepost_core::execution::SkipReason;
use fencepost_core::schedule::misfire::{FirePlan, FirePlanInput, MisfirePolicy, plan_fires};
use fencepost_core::schedule::timeline::Timeline;
use fencepost_core::schedule::{Bounds, Day, Days, Excluded, Exclusion, Exclusions, Schedule};
use fencepost_core::time::{Span, Timestamp};
use proptest::prelude::*;

const HOUR: i64 = 3_600;
/// 2026-03-25: the clocks of Berlin are changed on the 29th.
const START: i64 = 20_537 * 24 * HOUR;
const ZONES: [&str; 4] = ["UTC", "Europe/Berlin", "Pacific/Auckland", "America/New_York"];

fn hour(hour: i64) -> Timestamp {
    Timestamp::from_micros((START + hour * HOUR) * 1_000_000)
}

fn local_date(at: Timestamp, zone: &str) -> NaiveDate {
    let zone: chrono_tz::Tz = zone.parse().expect("a zone");
    let utc = DateTime::from_timestamp_micros(at.as_micros()).expect("this century");
    utc.with_timezone(&zone).date_naive()
}

/// A job that fires every so many hours and was last recorded at the start.
#[derive(Clone, Debug)]
struct World {
    every: u8,
    zone: &'static str,
    excluded: BTreeSet<NaiveDate>,
    now: i64,
    grace: u64,
    misfire: MisfirePolicy,
}

impl World {
    fn schedule(&self) -> Schedule {
        Schedule::cron(&format!("0 */{} * * *", self.every), self.zone).expect("an expression")
    }

    fn plan_from(&self, recorded_through: Timestamp) -> FirePlan {
        let days = self.excluded.iter().map(|date| Day::parse(&date.to_string()).expect("a date"));
        let (even, odd): (Vec<Day>, Vec<Day>) = days.partition(|day| day.number() % 2 == 0);
        let calendar = |name: &str, days| Exclusion {
            calendar: name.into(),
            version: 1,
            days: Days::new(days).expect("few"),
        };
        let exclusions = Exclusions::new(vec![calendar("even", even), calendar("odd", odd)]);
        let (schedule, bounds) = (self.schedule(), Bounds::default());
        let excluded = Excluded::of(&exclusions, &schedule);
        let timeline = Timeline::of_one(&schedule, &bounds).excluding(excluded);
        plan_fires(&FirePlanInput {
            timeline: &timeline,
            runs_so_far: 0,
            misfire: self.misfire,
            grace: Span::from_secs(self.grace * 3_600),
            recorded_through,
            now: hour(self.now),
            limit: 100,
            valid_for: Span::ZERO,
        })
    }

    fn nominal(&self, until: Timestamp) -> Vec<Timestamp> {
        let (schedule, bounds) = (self.schedule(), Bounds::default());
        let next = |at: Timestamp| bounds.next_fire_after(&schedule, at).filter(|fire| *fire <= until);
        core::iter::successors(next(hour(0)), |fire| next(*fire)).collect()
    }

    fn is_excluded(&self, fire: Timestamp) -> bool {
        self.excluded.contains(&local_date(fire, self.zone))
    }
}

fn world() -> impl Strategy<Value = World> {
    let misfire = prop_oneof![
        Just(MisfirePolicy::FireOnce),
        Just(MisfirePolicy::Skip),
        (1_u32..60).prop_map(|cap| MisfirePolicy::CatchUp { cap, window: Span::MAX }),
    ];
    let excluded = prop::collection::btree_set(24_u32..38, 0..9).prop_map(|days| {
        let date = |day: u32| {
            NaiveDate::from_ymd_opt(2026, 3, 1).expect("a date") + chrono::Days::new(u64::from(day) - 1)
        };
        days.into_iter().map(date).collect::<BTreeSet<_>>()
    });
    (1_u8..9, 0..ZONES.len(), excluded, 1_i64..280, 0_u64..30, misfire).prop_map(
        |(every, zone, excluded, now, grace, misfire)| World {
            every,
            zone: ZONES[zone],
            excluded,
            now,
            grace,
            misfire,
        },
    )
}

proptest! {
    #[test]
    fn every_fire_is_in_one_place_and_an_excluded_one_is_passed_over_by_the_calendar(world in world()) {
        let plan = world.plan_from(hour(0));
        prop_assert!(plan.recorded_through <= hour(world.now));
        let mut found = plan.fires.clone();
        prop_assert!(plan.fires.iter().all(|fire| !world.is_excluded(*fire)));
        for range in &plan.skipped {
            let inside: Vec<Timestamp> =
                world.nominal(range.through).into_iter().filter(|fire| *fire >= range.from).collect();
            prop_assert_eq!(inside.first(), Some(&range.from), "the bounds are fires");
            prop_assert_eq!(inside.last(), Some(&range.through), "the bounds are fires");
            let by_calendar = range.reason == SkipReason::Calendar;
            prop_assert!(inside.iter().all(|fire| world.is_excluded(*fire) == by_calendar), "{:?}", range);
            found.extend(inside);
        }
        prop_assert!(plan.skipped.is_sorted_by_key(|range| range.from));
        found.sort_unstable();
        prop_assert_eq!(found, world.nominal(plan.recorded_through));
    }

    #[test]
    fn what_runs_is_what_would_run_if_the_excluded_fires_did_not_exist(world in world()) {
        let plan = world.plan_from(hour(0));
        let due: Vec<Timestamp> =
            world.nominal(hour(world.now)).into_iter().filter(|fire| !world.is_excluded(*fire)).collect();
        let grace = Span::from_secs(world.grace * 3_600);
        let (missed, on_time): (Vec<Timestamp>, Vec<Timestamp>) =
            due.iter().partition(|fire| fire.plus(grace) < hour(world.now));
        let kept = match world.misfire {
            MisfirePolicy::FireOnce if on_time.is_empty() => 1,
            MisfirePolicy::FireOnce | MisfirePolicy::Skip => 0,
            MisfirePolicy::CatchUp { cap, .. } => cap as usize,
        };
        let runs = [&missed[missed.len().saturating_sub(kept)..], &on_time].concat();
        prop_assert_eq!(&plan.fires, &runs);
        // Nothing due is left, and what comes next is a nominal fire, excluded or not.
        let next = world.nominal(hour(600)).into_iter().find(|fire| *fire > plan.recorded_through);
        prop_assert_eq!(plan.next_fire, next);
        prop_assert!(next.is_none_or(|fire| fire > hour(world.now)));
    }
}

#[test]
fn a_month_of_excluded_seconds_is_decided_by_its_ends() {
    let days = (0..30).map(|day| Day::from_number(20_537 + day)).collect();
    let exclusion =
        Exclusion { calendar: "c".into(), version: 1, days: Days::new(days).expect("few enough") };
    let exclusions = Exclusions::new(vec![exclusion]);
    let schedule = Schedule::cron("* * * * * *", "UTC").expect("an expression");
    let bounds = Bounds::default();
    let timeline = Timeline::of_one(&schedule, &bounds).excluding(Excluded::of(&exclusions, &schedule));
    let plan = plan_fires(&FirePlanInput {
        timeline: &timeline,
        runs_so_far: 0,
        misfire: MisfirePolicy::CatchUp { cap: 5, window: Span::MAX },
        grace: Span::from_secs(30),
        recorded_through: hour(-1),
        now: hour(24 * 31),
        limit: 100,
        valid_for: Span::ZERO,
    });
    let reasons: Vec<SkipReason> = plan.skipped.iter().map(|range| range.reason).collect();
    assert_eq!(reasons, [SkipReason::Misfire, SkipReason::Calendar, SkipReason::Misfire]);
    assert_eq!(
        (plan.skipped[1].from, plan.skipped[1].through.plus(Span::from_secs(1))),
        (hour(0), hour(24 * 30))
    );
    assert_eq!(plan.fires.len(), 36, "five are caught up, thirty seconds are on time, and this one");
    assert_eq!(plan.fires.last(), Some(&hour(24 * 31)));
}
