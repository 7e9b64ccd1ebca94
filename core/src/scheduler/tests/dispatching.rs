//! Between the outbox and the broker.

use std::sync::Arc;

use super::world::{Link, WORKER, World, up};
use crate::event::PublishOutcome;
use crate::execution::{ExecutionState, WaitReason};
use crate::job::StoredDefinition;
use crate::store::command::{
    Command, CommandKind, FinishExecution, FinishExecutions, RunOutcome, TriggerJob,
};
use crate::time::Span;

fn settled() -> World {
    let mut world = World::with(1);
    world.seconds(5);
    world
}

#[test]
fn a_message_that_cannot_be_routed_becomes_a_recorded_wait_and_is_dispatched_again() {
    let mut world = settled();
    world.one_shot(Span::from_secs(1));
    world.answers.push_back(PublishOutcome::Returned);
    world.seconds(1);
    let execution = world.only_execution();
    assert_eq!(execution.waiting, Some(WaitReason::NoRoute));
    assert_eq!((execution.state, world.outbox_len()), (ExecutionState::Pending, 0));
    world.seconds(3);
    assert_eq!(world.published.len(), 2, "after the delay");
    assert_eq!(world.published[1].1.dispatch_no.0, 2);
    assert_eq!((world.only_execution().waiting, world.outbox_len()), (None, 0));
}

#[test]
fn a_message_that_was_refused_or_lost_is_read_back_and_published_again() {
    for outcome in [PublishOutcome::Nacked, PublishOutcome::Unknown] {
        let mut world = settled();
        world.one_shot(Span::from_secs(1));
        world.answers.push_back(outcome);
        world.seconds(1);
        assert_eq!((world.published.len(), world.outbox_len()), (1, 1), "{outcome:?}");
        world.seconds(3);
        assert_eq!((world.published.len(), world.outbox_len()), (2, 0), "{outcome:?}");
        assert_eq!(world.published[0].1.dispatch_no, world.published[1].1.dispatch_no);
    }
}

#[test]
fn a_removal_that_nobody_knows_of_is_sent_again() {
    let mut world = settled();
    world.one_shot(Span::from_secs(1));
    world.link(0, |kind| if kind == CommandKind::RemoveOutbox { Link::RequestLost } else { Link::Up });
    world.seconds(1);
    assert_eq!(world.outbox_len(), 1);
    world.link(0, up);
    world.seconds(1);
    assert_eq!((world.published.len(), world.outbox_len()), (1, 0), "without publishing again");
}

#[test]
fn confirms_gather_while_a_removal_is_under_way() {
    let mut world = settled();
    for tenth in 1..=5 {
        world.one_shot(Span::from_millis(1_000 + tenth * 100));
    }
    world.link(0, |kind| if kind == CommandKind::RemoveOutbox { Link::Held } else { Link::Up });
    world.seconds(2);
    assert_eq!(world.nodes[0].held.len(), 1);
    world.let_go(0);
    assert_eq!(world.outbox_len(), 0);
    assert_eq!(world.nodes[0].count(CommandKind::RemoveOutbox), 2, "the first alone, the others together");
}

#[test]
fn own_rows_that_are_still_on_their_way_are_not_read_back() {
    let mut world = settled();
    world.one_shot(Span::from_secs(1));
    world.link(0, |kind| if kind == CommandKind::RemoveOutbox { Link::Held } else { Link::Up });
    world.seconds(6);
    assert_eq!(world.published.len(), 1, "its removal is only slow");
}

#[test]
fn rows_of_a_scheduler_that_died_are_published_by_its_successor() {
    let mut world = settled();
    world.answers.push_back(PublishOutcome::Unknown);
    world.one_shot(Span::from_secs(1));
    world.seconds(1);
    world.kill(0);
    world.start(|_| {});
    world.seconds(30);
    assert_eq!((world.published.len(), world.outbox_len()), (2, 0));
}

#[test]
fn a_dispatch_whose_definition_cannot_be_read_waits_on_record() {
    let mut world = settled();
    let job = world.unreadable_job();
    let occurrence = crate::id::Occurrence::Manual { key: "k".into() };
    world.apply(&Command::TriggerJob(TriggerJob {
        tenant: super::world::TENANT,
        job,
        execution: occurrence.execution_id(job),
        key: "k".into(),
        payload: None,
        node: WORKER,
    }));
    assert!(StoredDefinition::clone(&Arc::clone(&world.job_row(job).definition)).read().is_err());
    world.seconds(2);
    let execution = world.only_execution();
    assert_eq!(execution.waiting, Some(WaitReason::UnreadableDefinition));
    assert_eq!((world.published.len(), world.outbox_len()), (0, 0));
}

#[test]
fn a_retry_is_dispatched_when_it_is_due() {
    let mut world = settled();
    world.one_shot(Span::from_secs(1));
    world.seconds(2);
    let execution = world.only_execution();
    let run = world.run(execution.id, Span::from_secs(30));
    let outcome = RunOutcome::Retry { delay: Span::from_millis(3_300), error: "e".into() };
    let item = FinishExecution { run, outcome, started_ago: Some(Span::ZERO) };
    let due_at = world.clock().plus(Span::from_millis(3_300));
    world.apply(&Command::FinishExecutions(FinishExecutions { node: WORKER, items: vec![item] }));
    world.seconds(3);
    assert_eq!(world.published.len(), 1);
    world.seconds(1);
    assert_eq!(world.published.len(), 2);
    let execution = world.only_execution();
    assert_eq!((execution.state, execution.dispatched_at), (ExecutionState::Pending, Some(due_at)));
    assert_eq!(world.outbox_len(), 0);
}

#[test]
fn the_queue_towards_the_broker_is_bounded_and_what_is_left_out_is_read_back() {
    let mut world = World::new();
    world.start(|config| config.batch = 10);
    world.seconds(5);
    for _ in 0..1_000 {
        world.one_shot(Span::from_secs(1));
    }
    // Every publication ends without a confirm at first, as in an outage.
    world.answers.extend([PublishOutcome::Unknown; 1_000]);
    world.seconds(1);
    assert_eq!(world.executions().len(), 1_000);
    world.seconds(10);
    assert_eq!(world.outbox_len(), 0, "all confirmed in the end");
}
