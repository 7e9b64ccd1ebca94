//! Plans over the versions of a job, against a planner that looks at every second.

use fencepost_core::execution::SkipReason;
use fencepost_core::id::JobVersion;
use fencepost_core::job::Standing;
use fencepost_core::limits::FIRES_PER_PASS_MAX;
use fencepost_core::schedule::misfire::{FirePlan, FirePlanInput, MisfirePolicy, plan_fires};
use fencepost_core::schedule::timeline::{Piece, Timeline};
use fencepost_core::schedule::{Bounds, Excluded, Flex, Schedule};
use fencepost_core::time::{Span, Timestamp};
use proptest::prelude::*;

const START: i64 = 1_767_225_600;

fn second(nth: i64) -> Timestamp {
    Timestamp::from_micros((START + nth) * 1_000_000)
}

/// One version: from which second on, every how many seconds it fires, and whether it is paused.
#[derive(Clone, Debug)]
struct Version {
    from: i64,
    every: i64,
    standing: Standing,
}

#[derive(Clone, Debug)]
struct World {
    versions: Vec<Version>,
    now: i64,
    misfire: MisfirePolicy,
    grace: u64,
}

impl World {
    /// The version that decides about a second, as nobody would compute it who is in a hurry.
    fn deciding(&self, at: i64) -> usize {
        (0..self.versions.len()).rev().find(|version| self.versions[*version].from <= at).unwrap_or(0)
    }

    /// The nominal fires up to a second, each with its version.
    fn nominal(&self, until: i64) -> Vec<(i64, usize)> {
        let last = self.versions.len() - 1;
        (1..=until)
            .map(|at| (at, self.deciding(at)))
            .filter(|(at, version)| {
                let is_open = *version == last && self.versions[last].standing == Standing::Paused;
                at % self.versions[*version].every == 0 && !is_open
            })
            .collect()
    }

    fn plan(&self) -> FirePlan {
        let schedules: Vec<Schedule> = self
            .versions
            .iter()
            .map(|version| Schedule::Interval {
                start: second(0),
                every: Span::from_secs(version.every.unsigned_abs()),
            })
            .collect();
        let bounds = Bounds { start: None, end: None, max_runs: None };
        let mut pieces: Vec<Piece<'_>> = self
            .versions
            .iter()
            .zip(&schedules)
            .enumerate()
            .map(|(at, (version, schedule))| Piece {
                version: JobVersion(at as u32 + 1),
                effective_from: second(version.from),
                standing: version.standing,
                schedule,
                bounds: &bounds,
                flex: Flex::NONE,
                excluded: Excluded::NOTHING,
            })
            .collect();
        let current = pieces.pop().expect("a job has a version");
        let timeline = Timeline::new(pieces, current);
        plan_fires(&FirePlanInput {
            timeline: &timeline,
            runs_so_far: 0,
            misfire: self.misfire,
            grace: Span::from_secs(self.grace),
            recorded_through: second(0),
            now: second(self.now),
            limit: FIRES_PER_PASS_MAX,
            valid_for: Span::ZERO,
        })
    }
}

fn version() -> impl Strategy<Value = Version> {
    (0_i64..120, 1_i64..12, any::<bool>()).prop_map(|(from, every, paused)| Version {
        from,
        every,
        standing: if paused { Standing::Paused } else { Standing::Active },
    })
}

fn world() -> impl Strategy<Value = World> {
    let misfire = prop_oneof![
        Just(MisfirePolicy::FireOnce),
        Just(MisfirePolicy::Skip),
        (1_u32..6).prop_map(|cap| MisfirePolicy::CatchUp { cap, window: Span::MAX }),
    ];
    (prop::collection::vec(version(), 1..6), 1_i64..150, misfire, 0_u64..40).prop_map(
        |(mut versions, now, misfire, grace)| {
            versions.sort_by_key(|version| version.from);
            World { versions, now, misfire, grace }
        },
    )
}

fn nth(at: Timestamp) -> i64 {
    at.as_micros() / 1_000_000 - START
}

proptest! {
    #[test]
    fn every_nominal_fire_up_to_the_watermark_is_in_one_place_of_the_ledger(world in world()) {
        let plan = world.plan();
        let through = nth(plan.recorded_through);
        prop_assert!(through <= world.now);
        let mut found = Vec::new();
        for fire in &plan.fires {
            let at = nth(*fire);
            prop_assert_eq!(world.versions[world.deciding(at)].standing, Standing::Active);
            found.push(at);
        }
        for range in &plan.skipped {
            let (from, to) = (nth(range.from), nth(range.through));
            let version = world.deciding(from);
            prop_assert_eq!(version, world.deciding(to), "a range is of one version");
            let reason = match world.versions[version].standing {
                Standing::Active => SkipReason::Misfire,
                Standing::Paused => SkipReason::Paused,
            };
            prop_assert_eq!(range.reason, reason);
            let inside: Vec<i64> =
                world.nominal(to).into_iter().map(|(at, _)| at).filter(|at| *at >= from).collect();
            prop_assert_eq!(inside.first(), Some(&from), "the bounds are fires");
            prop_assert_eq!(inside.last(), Some(&to), "the bounds are fires");
            found.extend(inside);
        }
        found.sort_unstable();
        let expected: Vec<i64> = world.nominal(through).into_iter().map(|(at, _)| at).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn the_next_fire_is_the_first_nominal_one_after_the_watermark(world in world()) {
        let plan = world.plan();
        let through = nth(plan.recorded_through);
        let next = world.nominal(400).into_iter().map(|(at, _)| at).find(|at| *at > through);
        prop_assert_eq!(plan.next_fire.map(nth), next);
    }

    #[test]
    fn the_policy_of_the_version_in_force_decides_about_all_that_was_missed(world in world()) {
        let plan = world.plan();
        let missed_through = world.now - i64::try_from(world.grace).expect("short") - 1;
        let due = world.nominal(world.now);
        let runs = |version: &usize| world.versions[*version].standing == Standing::Active;
        let active: Vec<i64> =
            due.iter().filter(|(_, version)| runs(version)).map(|(at, _)| *at).collect();
        let (missed, on_time): (Vec<i64>, Vec<i64>) = active.iter().partition(|at| **at <= missed_through);
        let kept = match world.misfire {
            MisfirePolicy::FireOnce if on_time.is_empty() => 1,
            MisfirePolicy::FireOnce | MisfirePolicy::Skip => 0,
            MisfirePolicy::CatchUp { cap, .. } => cap as usize,
        };
        let expected: Vec<i64> =
            missed[missed.len().saturating_sub(kept)..].iter().chain(&on_time).copied().collect();
        let got: Vec<i64> = plan.fires.iter().map(|fire| nth(*fire)).collect();
        prop_assert_eq!(got, expected, "few enough for one pass");
        // All that is due was few enough, so nothing due is left.
        prop_assert!(plan.next_fire.is_none_or(|fire| nth(fire) > world.now));
    }
}
