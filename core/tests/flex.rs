//! Flex windows: when fires are due, and what is planned of them before and after that.

use fencepost_core::id::{JobId, JobVersion};
use fencepost_core::job::Standing;
use fencepost_core::limits::FIRES_PER_PASS_MAX;
use fencepost_core::schedule::misfire::{FirePlan, FirePlanInput, MisfirePolicy, plan_fires};
use fencepost_core::schedule::timeline::{Piece, Timeline};
use fencepost_core::schedule::{Bounds, Excluded, Flex, Schedule};
use fencepost_core::time::{Span, Timestamp};

const JOB: JobId = JobId::from_u128(0x5eed);
const UNBOUNDED: Bounds = Bounds { start: None, end: None, max_runs: None };
const GRACE: Span = Span::from_secs(5);

fn second(second: i64) -> Timestamp {
    Timestamp::from_micros(1_767_225_600_000_000 + second * 1_000_000)
}

fn every(secs: u64) -> Schedule {
    Schedule::Interval { start: second(0), every: Span::from_secs(secs) }
}

fn piece(version: u32, from: Timestamp, schedule: &Schedule, flex: u64) -> Piece<'_> {
    Piece {
        version: JobVersion(version),
        effective_from: from,
        standing: Standing::Active,
        schedule,
        bounds: &UNBOUNDED,
        flex: Flex::of(JOB, Span::from_secs(flex)),
        excluded: Excluded::NOTHING,
    }
}

fn plan(timeline: &Timeline<'_>, misfire: MisfirePolicy, from: Timestamp, now: Timestamp) -> FirePlan {
    plan_fires(&FirePlanInput {
        timeline,
        runs_so_far: 0,
        misfire,
        grace: GRACE,
        recorded_through: from,
        now,
        limit: FIRES_PER_PASS_MAX,
        valid_for: Span::ZERO,
    })
}

/// The first fires of a timeline, each with when it is due.
fn fires(timeline: &Timeline<'_>, count: usize) -> Vec<(Timestamp, Timestamp)> {
    let all = timeline.fires_between(second(0), Timestamp::MAX, count);
    all.into_iter().map(|fire| (fire, timeline.due_at(fire))).collect()
}

#[test]
fn due_times_rise_with_their_fires_also_where_the_window_is_longer_than_their_distance_and_across_an_edit() {
    let (before, after) = (every(60), every(7));
    let edited =
        Timeline::new(vec![piece(1, Timestamp::MIN, &before, 3_600)], piece(2, second(1_810), &after, 3_600));
    let all = fires(&edited, 60);
    assert!(all.iter().any(|(fire, _)| *fire > second(1_810)));
    for pair in all.windows(2) {
        let [(fire, due_at), (next, _)] = pair else { continue };
        assert!(fire <= due_at && due_at < next, "{fire} is due at {due_at}, and {next} follows");
    }
}

#[test]
fn what_is_left_of_a_version_when_it_ends_is_due_at_its_last_instant() {
    let (before, after) = (every(600), Schedule::Manual);
    let alone = Timeline::new(Vec::new(), piece(1, Timestamp::MIN, &before, 300));
    let (fire, due_at) = fires(&alone, 20)
        .into_iter()
        .find(|(fire, due)| due.since(*fire) > Span::from_secs(60))
        .expect("one is late");
    let edit = fire.plus(Span::from_secs(10));
    let edited = Timeline::new(vec![piece(1, Timestamp::MIN, &before, 300)], piece(2, edit, &after, 0));
    assert!(due_at > edit);
    assert_eq!(edited.due_at(fire), edit.minus(Span::from_micros(1)));
}

#[test]
fn a_fire_is_planned_when_it_is_due_and_not_before() {
    let schedule = every(60);
    let timeline = Timeline::new(Vec::new(), piece(1, Timestamp::MIN, &schedule, 50));
    for (fire, due_at) in fires(&timeline, 50) {
        let watermark = fire.minus(Span::from_secs(60));
        let early = plan(&timeline, MisfirePolicy::FireOnce, watermark, due_at.minus(Span::from_micros(1)));
        assert_eq!((early.fires.len(), early.recorded_through), (0, watermark));
        assert_eq!((early.next_fire, early.next_flex), (Some(fire), due_at.since(fire)));
        let due = plan(&timeline, MisfirePolicy::FireOnce, watermark, due_at);
        assert_eq!((due.fires.as_slice(), due.recorded_through), ([fire].as_slice(), fire));
        let next = fire.plus(Span::from_secs(60));
        assert_eq!((due.next_fire, due.next_flex), (Some(next), timeline.due_at(next).since(next)));
    }
}

#[test]
fn the_grace_of_a_misfire_counts_from_when_the_fire_is_due() {
    let schedule = every(60);
    let timeline = Timeline::new(Vec::new(), piece(1, Timestamp::MIN, &schedule, 50));
    for (fire, due_at) in fires(&timeline, 50) {
        let watermark = fire.minus(Span::from_secs(60));
        let on_time = plan(&timeline, MisfirePolicy::Skip, watermark, due_at.plus(GRACE));
        assert_eq!(on_time.fires, [fire], "due {due_at}");
        assert_eq!(on_time.valid_until, due_at.plus(GRACE));
        let late = plan(&timeline, MisfirePolicy::Skip, watermark, due_at.plus(GRACE).next());
        assert!(!late.fires.contains(&fire) && late.skipped[0].from == fire, "{late:?}");
    }
}

#[test]
fn a_long_backlog_is_decided_as_if_its_fires_had_been_looked_at_one_by_one() {
    let schedule = every(10);
    let timeline = Timeline::new(Vec::new(), piece(1, Timestamp::MIN, &schedule, 9));
    let all = fires(&timeline, 400);
    for now in (1_000..1_100).map(second) {
        let is_missed = |due_at: &Timestamp| now > due_at.plus(GRACE);
        let window = Span::from_secs(95);
        let policy = MisfirePolicy::CatchUp { cap: 100, window };
        let runs =
            |due_at: &Timestamp| *due_at <= now && (!is_missed(due_at) || now.since(*due_at) <= window);
        let expected: Vec<Timestamp> =
            all.iter().filter(|(_, due_at)| runs(due_at)).map(|(fire, _)| *fire).collect();
        assert_eq!(plan(&timeline, policy, second(0), now).fires, expected, "at {now}");
    }
}
