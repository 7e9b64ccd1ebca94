//! Jobs that are edited, paused and resumed: what of their fires runs, under which version, and what the ledger says.

use std::sync::Arc;

use super::world::{Link, START, World};
use crate::execution::SkipReason;
use crate::id::{JobId, JobVersion, Occurrence};
use crate::job::{JobDefinition, StoredDefinition};
use crate::job_plan::{ChangedBy, plan_change};
use crate::store::command::{ChangeJob, Command, CommandKind, JobChange};
use crate::store::reply::{ChangeJobReply, MaterialiseReply, Reply};
use crate::store::row::SkippedRangeRow;
use crate::time::{Span, Timestamp};

fn cron(expr: &str) -> String {
    format!(r#"{{"kind":"cron","expr":"{expr}"}}"#)
}

fn definition(schedule: &str) -> JobChange {
    let json = format!(r#"{{"name":"n","handler":{{"name":"noop"}},"schedule":{schedule}}}"#);
    let definition = JobDefinition::parse(&json).expect("the test's own definition is valid");
    JobChange::Edit(Arc::new(StoredDefinition::of(definition)))
}

/// An instant of the first day, or a later one.
fn at(day: u64, time: &str) -> Timestamp {
    let time = Timestamp::parse_rfc3339(&format!("2026-01-01T{time}Z")).expect("a time of day");
    time.plus(Span::from_secs(day * 86_400))
}

/// Lets time pass until an instant, an hour at a time.
fn until(world: &mut World, instant: Timestamp) {
    while world.clock() < instant {
        world.pass(instant.since(world.clock()).min(Span::from_secs(3_600)));
    }
}

fn plan(world: &World, job: JobId, change: JobChange) -> ChangeJob {
    let by = ChangedBy::new("Zoë", "the disk is full").expect("both are short");
    plan_change(&world.job_row(job), None, change, by, world.clock()).expect("it can be changed like this")
}

fn change(world: &mut World, job: JobId, change: JobChange) {
    let ask = plan(world, job, change);
    let version = ask.expected_version.next();
    assert_eq!(world.apply(&Command::ChangeJob(ask)), Reply::JobChanged(ChangeJobReply::Changed { version }));
}

/// The fires that became executions, with their versions.
fn fired(world: &World) -> Vec<(Timestamp, JobVersion)> {
    let mut fired: Vec<_> = world
        .executions()
        .into_iter()
        .filter_map(|row| match row.occurrence {
            Occurrence::Scheduled { fire } => Some((fire, row.job_version)),
            Occurrence::Manual { .. } | Occurrence::Replay { .. } => None,
        })
        .collect();
    fired.sort();
    fired
}

fn ranges(world: &World) -> Vec<SkippedRangeRow> {
    world.store.tables().skipped_ranges().iter().cloned().collect()
}

#[test]
fn a_daily_job_edited_at_noon_from_23_to_5_fires_next_at_5_tomorrow() {
    let mut world = World::with(1);
    let job = world.job(&cron("0 23 * * *"), "");
    until(&mut world, at(0, "12:00:00"));
    change(&mut world, job, definition(&cron("0 5 * * *")));
    assert_eq!(world.job_row(job).next_fire_time, Some(at(1, "05:00:00")));
    until(&mut world, at(1, "04:59:59"));
    assert_eq!(fired(&world), [], "neither at 12:00 nor at 23:00");
    until(&mut world, at(1, "05:00:01"));
    assert_eq!(fired(&world), [(at(1, "05:00:00"), JobVersion(2))]);
    assert_eq!(ranges(&world), []);
}

#[test]
fn a_daily_job_paused_at_1_and_resumed_at_7_49_passes_its_fire_of_2_over() {
    let mut world = World::with(1);
    let job = world.job(&cron("0 2 * * *"), "");
    until(&mut world, at(0, "01:00:00"));
    change(&mut world, job, JobChange::Pause);
    assert_eq!(world.job_row(job).next_fire_time, None);
    until(&mut world, at(0, "07:49:00"));
    assert_eq!((fired(&world), ranges(&world)), (vec![], vec![]), "a pause that goes on decides nothing");
    change(&mut world, job, JobChange::Resume);
    world.seconds(10);
    assert_eq!(fired(&world), []);
    let [range] = ranges(&world).try_into().expect("the fire that was missed is in the ledger");
    assert_eq!((range.from, range.through), (at(0, "02:00:00"), at(0, "02:00:00")));
    assert_eq!((range.reason, range.job_version), (SkipReason::Paused, JobVersion(2)));
    let said = world.store.tables().job_versions().get(&(job, range.job_version)).expect("it is there");
    assert_eq!((said.actor.as_deref(), said.reason.as_deref()), (Some("Zoë"), Some("the disk is full")));
    assert_eq!(world.job_row(job).next_fire_time, Some(at(1, "02:00:00")));
    until(&mut world, at(1, "02:00:01"));
    assert_eq!(fired(&world), [(at(1, "02:00:00"), JobVersion(3))]);
}

#[test]
fn two_edits_within_a_second_while_a_pass_is_under_way_refuse_that_pass() {
    let mut world = World::with(1);
    let job = world.job(&cron("* * * * *"), "");
    world.seconds(59);
    world.link(0, |kind| if kind == CommandKind::Materialise { Link::Held } else { Link::Up });
    world.pass(Span::from_millis(1_200));
    assert_eq!(world.nodes[0].held.len(), 1, "the pass holds the first version");
    change(&mut world, job, definition(&cron("30 * * * *")));
    world.freeze(Span::from_millis(400));
    change(&mut world, job, definition(&cron("*/2 * * * *")));
    let (_, held) = world.nodes[0].held[0].clone();
    let current = JobVersion(3);
    assert_eq!(
        world.apply(&held),
        Reply::Materialised(vec![MaterialiseReply::VersionChanged { current }]),
        "the pass that holds the old version is refused"
    );
    assert_eq!(fired(&world), []);
    world.let_go(0);
    world.seconds(70);
    let minute = |minute: u64| START.plus(Span::from_secs(60 * minute));
    assert_eq!(
        fired(&world),
        [(minute(1), JobVersion(1)), (minute(2), JobVersion(3))],
        "what was due before the edits is the old version's, and what follows the new one's"
    );
}

#[test]
fn a_backlog_over_several_changes_is_decided_once_and_recorded_by_version() {
    let mut world = World::new();
    let job = world.job(&cron("0 * * * *"), "");
    world.freeze(Span::from_secs(2 * 3_600 + 1_800));
    change(&mut world, job, definition(&cron("15 * * * *")));
    world.freeze(Span::from_secs(2 * 3_600));
    change(&mut world, job, JobChange::Pause);
    world.freeze(Span::from_secs(2 * 3_600));
    change(&mut world, job, JobChange::Resume);
    world.freeze(Span::from_secs(1_800));
    // Fires: 1:00 and 2:00 of version 1; 3:15 and 4:15 of 2; 5:15 and 6:15 of 3, paused; none of 4 yet.
    world.start(|_| {});
    world.seconds(30);
    assert_eq!(fired(&world), [(at(0, "04:15:00"), JobVersion(2))], "fire_once runs the latest that may run");
    let told: Vec<_> = ranges(&world)
        .into_iter()
        .map(|range| (range.from, range.through, range.reason, range.job_version.0))
        .collect();
    assert_eq!(
        told,
        [
            (at(0, "01:00:00"), at(0, "02:00:00"), SkipReason::Misfire, 1),
            (at(0, "03:15:00"), at(0, "03:15:00"), SkipReason::Misfire, 2),
            (at(0, "05:15:00"), at(0, "06:15:00"), SkipReason::Paused, 3),
        ]
    );
    assert_eq!(world.job_row(job).next_fire_time, Some(at(0, "07:15:00")));
}
