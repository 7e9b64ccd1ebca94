//! From due to published.

use super::world::{Link, World, up};
use crate::event::SchedulerEvent;
use crate::execution::ExecutionState;
use crate::fact::Fact;
use crate::id::{NodeId, Occurrence};
use crate::partition::PartitionId;
use crate::store::command::{Command, CommandKind, TriggerJob};
use crate::time::{Monotonic, Span};

use super::world::TENANT;

#[test]
fn a_due_job_is_materialised_published_and_its_outbox_row_removed() {
    let mut world = World::with(1);
    world.seconds(5);
    let job = world.one_shot(Span::from_secs(10));
    world.seconds(9);
    assert!(world.executions().is_empty(), "not before it is due");
    world.seconds(2);
    let execution = world.only_execution();
    assert_eq!((execution.job, execution.state), (job, ExecutionState::Pending));
    assert_eq!(execution.due_at, execution.materialised_at, "woken by the due time, not by a poll");
    let [(_, message)] = world.published.as_slice() else { panic!("{:?}", world.published) };
    assert_eq!((message.execution, message.dispatched_at), (execution.id, execution.materialised_at));
    assert_eq!(message.publish_delay, Span::ZERO);
    assert_eq!(world.outbox_len(), 0);
    assert_eq!(world.job_row(job).next_fire_time, None);
}

#[test]
fn a_job_that_fires_every_second_fires_every_second() {
    let mut world = World::with(1);
    world.seconds(5);
    let job = world.job(r#"{"kind":"cron","expr":"* * * * * *"}"#, "");
    world.seconds(60);
    assert_eq!(world.published.len(), 60);
    assert_eq!(world.job_row(job).runs, 60);
    assert!(world.executions().iter().all(|row| row.materialised_at == row.due_at), "each on its second");
}

#[test]
fn a_burst_flows_in_full_batches_without_waiting() {
    let mut world = World::with(1);
    world.seconds(5);
    for _ in 0..2_100 {
        world.one_shot(Span::from_secs(5));
    }
    world.seconds(6);
    assert_eq!(world.published.len(), 2_100);
    assert!(world.executions().iter().all(|row| row.materialised_at == row.due_at), "all at one instant");
    assert_eq!(world.nodes[0].count(CommandKind::Materialise), 5, "four full batches and the rest");
    assert_eq!(world.outbox_len(), 0);
}

#[test]
fn the_next_page_is_read_while_the_page_before_is_written() {
    let mut world = World::with(1);
    world.seconds(5);
    for _ in 0..1_200 {
        world.one_shot(Span::from_millis(1_500));
    }
    world.link(0, |kind| if kind == CommandKind::Materialise { Link::Held } else { Link::Up });
    let scans = world.nodes[0].count(CommandKind::ScanDueJobs);
    world.pass(Span::from_millis(1_600));
    assert_eq!(world.nodes[0].held.len(), 1, "one write at a time");
    assert_eq!(
        world.nodes[0].count(CommandKind::ScanDueJobs),
        scans + 3,
        "two polls, one page, the next page"
    );
    world.let_go(0);
    assert_eq!(world.published.len(), 1_200);
}

#[test]
fn a_write_that_nobody_knows_of_fires_nothing_twice() {
    for lost in [Link::ReplyLost, Link::RequestLost] {
        let mut world = World::with(1);
        world.seconds(5);
        world.one_shot(Span::from_secs(1));
        match lost {
            Link::ReplyLost => {
                world.link(
                    0,
                    |kind| if kind == CommandKind::Materialise { Link::ReplyLost } else { Link::Up },
                );
            }
            Link::RequestLost | Link::Up | Link::Held => {
                world.link(
                    0,
                    |kind| if kind == CommandKind::Materialise { Link::RequestLost } else { Link::Up },
                );
            }
        }
        world.pass(Span::from_millis(1_100));
        assert!(world.published.is_empty());
        world.link(0, up);
        world.seconds(5);
        assert_eq!(world.published.len(), 1, "{lost:?}");
        assert_eq!((world.executions().len(), world.outbox_len()), (1, 0), "{lost:?}");
    }
}

#[test]
fn missed_fires_are_passed_over_on_record_and_the_latest_runs() {
    let mut world = World::new();
    let job = world.job(r#"{"kind":"cron","expr":"* * * * *"}"#, "");
    world.freeze(Span::from_secs(600));
    world.start(|_| {});
    world.seconds(1);
    let ranges: Vec<_> = world.store.tables().skipped_ranges().iter().cloned().collect();
    let [range] = ranges.as_slice() else { panic!("{ranges:?}") };
    assert_eq!(range.job, job);
    assert_eq!(world.only_execution().due_at, super::world::START.plus(Span::from_secs(600)));
    assert_eq!(range.through, super::world::START.plus(Span::from_secs(540)));
}

#[test]
fn a_one_shot_that_is_to_run_although_it_is_past_is_not_missed() {
    let mut world = World::with(1);
    world.seconds(100);
    let more = r#","run_if_past":true,"misfire":{"catch_up":{"cap":1,"window_ms":60000}}"#;
    world.job(&format!(r#"{{"kind":"one_shot","at":"{}"}}"#, super::world::START), more);
    world.seconds(1);
    assert_eq!((world.published.len(), world.only_execution().due_at), (1, super::world::START));
}

#[test]
fn an_unreadable_job_is_put_off_and_hides_nothing() {
    let mut world = World::with(1);
    world.seconds(5);
    let unreadable: Vec<_> = (0..600).map(|_| world.unreadable_job()).collect();
    world.one_shot(Span::from_millis(1));
    world.seconds(3);
    assert_eq!(world.published.len(), 1);
    for job in unreadable {
        let row = world.job_row(job);
        assert!(row.unreadable.is_some(), "it says why");
        assert!(row.next_try_at > world.clock());
    }
    let told = world.nodes[0].facts.iter().filter(|fact| matches!(fact, Fact::JobUnreadable { .. })).count();
    assert_eq!(told, 600);
    world.seconds(60);
    let told = world.nodes[0].facts.iter().filter(|fact| matches!(fact, Fact::JobUnreadable { .. })).count();
    assert_eq!(told, 1_200, "once more after a while, then rarely");
}

#[test]
fn a_notified_partition_is_looked_at_at_once() {
    let mut world = World::with(1);
    world.seconds(5);
    world.pass(Span::from_millis(10));
    let job = world.job(r#"{"kind":"manual"}"#, "");
    let occurrence = Occurrence::Manual { key: "k".into() };
    world.apply(&Command::TriggerJob(TriggerJob {
        tenant: TENANT,
        job,
        execution: occurrence.execution_id(job),
        key: "k".into(),
        payload: None,
        node: NodeId::from_u128(2_000),
    }));
    world.give(0, SchedulerEvent::Notified { partition: PartitionId::of(job) });
    assert_eq!(world.published.len(), 1);
    assert_eq!(world.outbox_len(), 0);
}

#[test]
fn a_notification_about_anothers_partition_is_ignored() {
    let mut world = World::new();
    world.start(|_| {});
    world.kill(0);
    let idle = world.start(|_| {});
    world.link(idle, super::world::down);
    let sent = world.nodes[idle].sent.len();
    world.give(idle, SchedulerEvent::Notified { partition: PartitionId::of(crate::id::JobId::from_u128(1)) });
    assert_eq!(world.nodes[idle].sent.len(), sent);
}

#[test]
fn spurious_ticks_and_outcomes_of_the_past_do_nothing() {
    let mut world = World::with(1);
    world.seconds(5);
    world.pass(Span::from_millis(1));
    let sent = world.nodes[0].sent.len();
    for _ in 0..10 {
        world.give(0, SchedulerEvent::Tick);
        let outcome = crate::store::StoreOutcome::Unknown;
        world.give(0, SchedulerEvent::StoreReplied { effect: crate::id::EffectId(1), outcome });
        world.give(0, SchedulerEvent::Published { effect: crate::id::EffectId(1), outcomes: Vec::new() });
    }
    assert_eq!(world.nodes[0].sent.len(), sent);
}

#[test]
fn a_store_that_is_out_is_not_asked_without_end() {
    let mut world = World::with(1);
    world.seconds(5);
    world.link(0, super::world::down);
    let sent = world.nodes[0].sent.len();
    world.seconds(60);
    let more = world.nodes[0].sent.len() - sent;
    assert!(more < 60 * 6, "{more} calls in a minute");
    world.link(0, up);
    world.one_shot(Span::from_secs(1));
    world.seconds(8);
    assert_eq!(world.published.len(), 1, "and it recovers");
    assert!(world.now > Monotonic::ZERO);
}
