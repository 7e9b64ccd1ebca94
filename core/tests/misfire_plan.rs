//! Misfire plans: the worked example, and properties against a planner that looks at every fire.

use fencepost_core::execution::SkipReason;
use fencepost_core::limits::FIRES_PER_PASS_MAX;
use fencepost_core::schedule::misfire::{
    FirePlan, FirePlanInput, MISFIRE_GRACE_DEFAULT, MisfirePolicy, SkippedRange, plan_fires,
};
use fencepost_core::schedule::timeline::Timeline;
use fencepost_core::schedule::{Bounds, Schedule};
use fencepost_core::time::{Span, Timestamp};
use proptest::prelude::*;

const UNBOUNDED: Bounds = Bounds { start: None, end: None, max_runs: None };

fn at(text: &str) -> Timestamp {
    Timestamp::parse_rfc3339(text).expect("RFC 3339")
}

fn secs(secs: u64) -> Span {
    Span::from_secs(secs)
}

/// A job that was recorded until one instant and is looked at again at another.
#[derive(Clone, Debug)]
struct World {
    schedule: Schedule,
    bounds: Bounds,
    runs_so_far: u64,
    misfire: MisfirePolicy,
    grace: Span,
    recorded_through: Timestamp,
    now: Timestamp,
    limit: u32,
    valid_for: Span,
}

impl World {
    fn new(schedule: &str, recorded_through: &str, now: &str) -> Self {
        Self {
            schedule: Schedule::cron(schedule, "UTC").expect("a valid schedule"),
            bounds: UNBOUNDED,
            runs_so_far: 0,
            misfire: MisfirePolicy::default(),
            grace: MISFIRE_GRACE_DEFAULT,
            recorded_through: at(recorded_through),
            now: at(now),
            limit: FIRES_PER_PASS_MAX,
            valid_for: Span::ZERO,
        }
    }

    fn under(self, misfire: MisfirePolicy) -> Self {
        Self { misfire, ..self }
    }

    fn input<'a>(&self, timeline: &'a Timeline<'a>) -> FirePlanInput<'a> {
        FirePlanInput {
            timeline,
            runs_so_far: self.runs_so_far,
            misfire: self.misfire,
            grace: self.grace,
            recorded_through: self.recorded_through,
            now: self.now,
            limit: self.limit,
            valid_for: self.valid_for,
        }
    }

    fn plan(&self) -> FirePlan {
        plan_fires(&self.input(&Timeline::of_one(&self.schedule, &self.bounds)))
    }
}

fn minutes(plan: &FirePlan) -> Vec<String> {
    plan.fires.iter().map(|fire| fire.to_string()[11..16].to_owned()).collect()
}

fn passed_over(from: &str, through: &str) -> Vec<SkippedRange> {
    vec![SkippedRange { from: at(from), through: at(through), reason: SkipReason::Misfire }]
}

fn catch_up(cap: u32) -> MisfirePolicy {
    MisfirePolicy::CatchUp { cap, window: Span::MAX }
}

/// Every minute, down for fourteen hours (840 fires missed), back 45 seconds after a fire.
fn down_for_fourteen_hours() -> World {
    World::new("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T14:00:45Z")
}

#[test]
fn after_fourteen_hours_fire_once_runs_the_latest_fire_alone() {
    let plan = down_for_fourteen_hours().plan();
    assert_eq!(minutes(&plan), ["14:00"]);
    assert_eq!(plan.skipped, passed_over("2026-01-01T00:01:00Z", "2026-01-01T13:59:00Z"));
    assert_eq!(plan.recorded_through, at("2026-01-01T14:00:00Z"));
    assert_eq!(plan.next_fire, Some(at("2026-01-01T14:01:00Z")));
    assert_eq!(plan.valid_until, Timestamp::MAX);
}

#[test]
fn after_fourteen_hours_catch_up_runs_the_latest_ten_oldest_first() {
    let plan = down_for_fourteen_hours().under(catch_up(10)).plan();
    let expected = ["13:51", "13:52", "13:53", "13:54", "13:55", "13:56", "13:57", "13:58", "13:59", "14:00"];
    assert_eq!(minutes(&plan), expected);
    assert_eq!(plan.skipped, passed_over("2026-01-01T00:01:00Z", "2026-01-01T13:50:00Z"));
    assert_eq!(plan.recorded_through, at("2026-01-01T14:00:00Z"));
}

#[test]
fn after_fourteen_hours_skip_runs_nothing_and_records_all() {
    let plan = down_for_fourteen_hours().under(MisfirePolicy::Skip).plan();
    assert_eq!(plan.fires, []);
    assert_eq!(plan.skipped, passed_over("2026-01-01T00:01:00Z", "2026-01-01T14:00:00Z"));
    assert_eq!(plan.recorded_through, at("2026-01-01T14:00:00Z"));
    assert_eq!(plan.next_fire, Some(at("2026-01-01T14:01:00Z")));
}

#[test]
fn a_month_of_missed_seconds_is_decided_by_its_ends() {
    let month = World::new("* * * * * *", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    let plan = World { grace: Span::ZERO, ..month }.under(catch_up(2)).plan();
    assert_eq!(plan.skipped, passed_over("2026-01-01T00:00:01Z", "2026-01-31T23:59:57Z"));
    let last = [at("2026-01-31T23:59:58Z"), at("2026-01-31T23:59:59Z"), at("2026-02-01T00:00:00Z")];
    assert_eq!(plan.fires, last, "two that were missed, and one due at this very instant");
}

#[test]
fn a_fire_is_on_time_until_the_grace_has_passed_and_missed_right_after() {
    let due =
        World::new("0 12 * * *", "2026-01-01T00:00:00Z", "2026-01-01T12:00:30Z").under(MisfirePolicy::Skip);
    assert_eq!(minutes(&due.plan()), ["12:00"]);
    assert_eq!(due.plan().valid_until, due.now);
    let late = World { now: due.now.next(), ..due };
    assert_eq!(late.plan().fires, []);
    assert_eq!(late.plan().skipped, passed_over("2026-01-01T12:00:00Z", "2026-01-01T12:00:00Z"));
}

#[test]
fn under_fire_once_a_fire_on_time_makes_up_for_those_missed_before_it() {
    let back = World::new("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T14:00:10Z");
    let plan = back.plan();
    assert_eq!(minutes(&plan), ["14:00"]);
    assert_eq!(plan.skipped, passed_over("2026-01-01T00:01:00Z", "2026-01-01T13:59:00Z"));
    let caught_up = back.under(catch_up(1)).plan();
    assert_eq!(minutes(&caught_up), ["13:59", "14:00"], "catch_up counts the missed ones alone");
}

#[test]
fn a_per_second_job_that_was_down_runs_every_fire_that_is_still_on_time() {
    let down = World::new("* * * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:10:00.5Z");
    let plan = down.plan();
    assert_eq!(plan.fires.len(), 30);
    assert_eq!(plan.fires[0], at("2026-01-01T00:09:31Z"));
    assert_eq!(plan.skipped, passed_over("2026-01-01T00:00:01Z", "2026-01-01T00:09:30Z"));
    assert_eq!(plan.valid_until, at("2026-01-01T00:10:01Z"), "then the first of them would be missed");
}

#[test]
fn a_writer_that_needs_time_gets_a_plan_that_covers_less_and_lasts() {
    let down = World::new("* * * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:10:00.5Z");
    let slow = World { valid_for: secs(5), ..down };
    let plan = slow.plan();
    assert_eq!(plan.fires, [at("2026-01-01T00:09:31Z")]);
    assert_eq!(plan.valid_until, Timestamp::MAX);
    assert_eq!(plan.next_fire, Some(at("2026-01-01T00:09:32Z")), "the rest is planned next");
}

#[test]
fn what_is_older_than_the_window_is_not_caught_up() {
    let back = World::new("0 * * * *", "2026-01-01T00:00:00Z", "2026-01-01T14:30:00Z");
    let plan = back.under(MisfirePolicy::CatchUp { cap: 50, window: secs(2 * 3_600 + 1_800) }).plan();
    assert_eq!(minutes(&plan), ["12:00", "13:00", "14:00"]);
    assert_eq!(plan.skipped, passed_over("2026-01-01T01:00:00Z", "2026-01-01T11:00:00Z"));
    assert_eq!(plan.valid_until, at("2026-01-01T14:30:00Z"), "the oldest is at the edge of the window");
}

#[test]
fn runs_are_counted_and_the_schedule_ends_with_the_last_one() {
    let bounded = |runs_so_far| World {
        bounds: Bounds { max_runs: Some(5), ..UNBOUNDED },
        runs_so_far,
        ..World::new("* * * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z")
    };
    let plan = bounded(2).plan();
    assert_eq!(plan.fires.len(), 3);
    assert_eq!(plan.recorded_through, at("2026-01-01T00:00:03Z"));
    assert_eq!(plan.next_fire, None);
    let ended = bounded(5).plan();
    assert_eq!((ended.fires, ended.next_fire), (vec![], None));
    assert_eq!(ended.recorded_through, at("2026-01-01T00:00:00Z"));
    let missed = World { grace: Span::ZERO, ..bounded(3) }.under(catch_up(10)).plan();
    assert_eq!(missed.fires, [at("2026-01-01T00:00:08Z"), at("2026-01-01T00:00:09Z")]);
    assert_eq!((missed.skipped.len(), missed.next_fire), (1, None));
}

#[test]
fn fires_outside_the_bounds_are_no_fires() {
    let bounds = Bounds {
        start: Some(at("2026-01-01T00:00:05Z")),
        end: Some(at("2026-01-01T00:00:07Z")),
        max_runs: None,
    };
    let plan =
        World { bounds, ..World::new("* * * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:00:20Z") }.plan();
    assert_eq!(
        plan.fires,
        [at("2026-01-01T00:00:05Z"), at("2026-01-01T00:00:06Z"), at("2026-01-01T00:00:07Z")]
    );
    assert_eq!((plan.skipped, plan.next_fire), (vec![], None));
}

#[test]
fn nothing_due_changes_nothing_even_if_the_clock_went_back() {
    for now in ["2026-01-01T12:00:30Z", "2025-12-31T00:00:00Z"] {
        let world = World::new("0 * * * *", "2026-01-01T12:00:00Z", now);
        let plan = world.plan();
        assert_eq!((plan.fires, plan.skipped), (vec![], vec![]));
        assert_eq!(plan.recorded_through, world.recorded_through);
        assert_eq!(plan.next_fire, Some(at("2026-01-01T13:00:00Z")));
        assert_eq!(plan.valid_until, Timestamp::MAX);
    }
}

#[test]
fn the_extremes_of_time_are_planned_without_a_panic() {
    for schedule in [
        Schedule::cron("* * * * * *", "UTC").expect("valid"),
        Schedule::Interval { start: Timestamp::MIN, every: Span::MAX },
        Schedule::Interval { start: Timestamp::MAX, every: Span::ZERO },
        Schedule::Interval { start: Timestamp::EPOCH, every: secs(1) },
        Schedule::OneShot { at: Timestamp::MIN },
        Schedule::Manual,
    ] {
        for misfire in [MisfirePolicy::FireOnce, catch_up(3), MisfirePolicy::Skip] {
            let world = World {
                schedule: schedule.clone(),
                recorded_through: Timestamp::MIN,
                now: Timestamp::MAX,
                grace: Span::MAX,
                valid_for: Span::MAX,
                limit: 0,
                ..World::new("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
            };
            let plan = world.under(misfire).plan();
            assert!(plan.fires.len() <= 3, "{schedule:?}: {plan:?}");
        }
    }
}

/// What the policy says about fires that are looked at one by one: which of them run.
fn decide(fires: &[Timestamp], world: &World, now: Timestamp) -> Vec<Timestamp> {
    let (missed, on_time): (Vec<Timestamp>, Vec<Timestamp>) =
        fires.iter().partition(|fire| now.since(**fire) > world.grace);
    let left = world.bounds.max_runs.map_or(usize::MAX, |max| (max - world.runs_so_far) as usize);
    let latest = |count: usize| &missed[missed.len().saturating_sub(count.min(left))..];
    let mut runs: Vec<Timestamp> = match world.misfire {
        MisfirePolicy::FireOnce if on_time.is_empty() => latest(1).to_vec(),
        MisfirePolicy::FireOnce | MisfirePolicy::Skip => Vec::new(),
        MisfirePolicy::CatchUp { cap, window } => {
            let young = latest(cap as usize).iter().filter(|fire| now.since(**fire) <= window);
            young.copied().collect()
        }
    };
    runs.extend(on_time);
    runs.truncate(left);
    runs
}

fn policy() -> impl Strategy<Value = MisfirePolicy> {
    prop_oneof![
        Just(MisfirePolicy::FireOnce),
        (1_u32..20, 0_u64..900)
            .prop_map(|(cap, window)| MisfirePolicy::CatchUp { cap, window: secs(window) }),
        (1_u32..20).prop_map(catch_up),
        Just(MisfirePolicy::Skip),
    ]
}

prop_compose! {
    fn world()(
        schedule in prop::sample::select(vec!["* * * * * *", "*/7 * * * * *", "* * * * *", "*/5 * * * *", "3,4 0 * * * *"]),
        misfire in policy(),
        grace in prop_oneof![Just(0_u64), 1_u64..60, Just(600)],
        backlog_us in 0_u64..1_200_000_000,
        start in 0_i64..4_000,
        limit in 1_u32..120,
        runs in prop::option::of((0_u64..3, 1_u64..40)),
        valid_for in prop_oneof![Just(0_u64), 1_u64..30],
        later in prop::collection::vec(0_u64..1_500_000_000, 4),
    ) -> (World, Vec<Span>) {
        let recorded_through = Timestamp::from_micros(1_767_225_600_000_000 + start * 1_000_000);
        let world = World {
            schedule: Schedule::cron(schedule, "UTC").expect("a valid schedule"),
            bounds: Bounds { max_runs: runs.map(|(so_far, left)| so_far + left), ..UNBOUNDED },
            runs_so_far: runs.map_or(0, |(so_far, _)| so_far),
            misfire,
            grace: secs(grace),
            recorded_through,
            now: recorded_through.plus(Span::from_micros(backlog_us)),
            limit,
            valid_for: secs(valid_for),
        };
        (world, later.into_iter().map(Span::from_micros).collect())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_is_what_looking_at_every_covered_fire_decides((world, _) in world()) {
        let plan = world.plan();
        let covered = world.schedule.fires_between(world.recorded_through, plan.recorded_through, usize::MAX);
        prop_assert_eq!(&plan.fires, &decide(&covered, &world, world.now));
        prop_assert_eq!(covered.last().copied().unwrap_or(world.recorded_through), plan.recorded_through);
        prop_assert!(plan.recorded_through <= world.now);

        let in_a_range = |fire: &Timestamp| plan.skipped.iter().any(|range| (range.from..=range.through).contains(fire));
        for fire in &covered {
            prop_assert_ne!(plan.fires.contains(fire), in_a_range(fire), "{} is in the ledger once", fire);
        }
        for range in &plan.skipped {
            prop_assert!(covered.contains(&range.from) && covered.contains(&range.through));
        }
        let ended = world.bounds.exhausted_by(world.runs_so_far + plan.fires.len() as u64);
        let next = world.schedule.next_fire_after(plan.recorded_through).filter(|_| !ended);
        prop_assert_eq!(plan.next_fire, next);
        let cap = match world.misfire { MisfirePolicy::CatchUp { cap, .. } => cap, _ => 1 };
        prop_assert!(plan.fires.len() <= world.limit.max(cap) as usize);
    }

    #[test]
    fn a_plan_covers_something_whenever_something_is_due((world, _) in world()) {
        let plan = world.plan();
        let due = world.schedule.next_fire_after(world.recorded_through).is_some_and(|fire| fire <= world.now);
        prop_assert_eq!(plan.recorded_through > world.recorded_through, due);
    }

    #[test]
    fn the_same_fires_are_decided_in_the_same_way_until_the_plan_expires((world, later) in world()) {
        let plan = world.plan();
        let covered = world.schedule.fires_between(world.recorded_through, plan.recorded_through, usize::MAX);
        prop_assert!(plan.valid_until >= world.now);
        let distance = plan.valid_until.since(world.now);
        let edge = Some(plan.valid_until).filter(|edge| *edge < Timestamp::MAX);
        let within = later.into_iter().filter(|later| *later <= distance).map(|later| world.now.plus(later));
        for now in within.chain(edge) {
            prop_assert_eq!(&plan.fires, &decide(&covered, &world, now), "at {}", now);
        }
        if let Some(edge) = edge {
            prop_assert_ne!(&plan.fires, &decide(&covered, &world, edge.next()), "right after {}", edge);
        }
    }

    #[test]
    fn planning_again_and_again_records_every_fire_once((mut world, _) in world()) {
        let start = world.recorded_through;
        let mut recorded = Vec::new();
        loop {
            let plan = world.plan();
            for range in &plan.skipped {
                recorded.extend(world.schedule.fires_between(range.from.minus(Span::from_micros(1)), range.through, usize::MAX));
            }
            recorded.extend(&plan.fires);
            world.runs_so_far += plan.fires.len() as u64;
            if plan.recorded_through == world.recorded_through {
                break;
            }
            world.recorded_through = plan.recorded_through;
        }
        let ended = world.bounds.exhausted_by(world.runs_so_far);
        let through = if ended { world.recorded_through } else { world.now };
        prop_assert_eq!(recorded, world.schedule.fires_between(start, through, usize::MAX));
    }
}
