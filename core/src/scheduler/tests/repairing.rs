//! What the leader repairs.

use super::world::{TENANT, World};
use crate::event::PublishOutcome;
use crate::execution::{DeadLetterReason, ExecutionState};
use crate::fact::Fact;
use crate::id::ExecutionId;
use crate::store::command::{CancelExecution, Command, RenewExecutions};
use crate::store::row::NodeState;
use crate::time::Span;

/// A world in which one execution has just been dispatched, by a job with these further fields.
fn dispatched(more: &str) -> (World, ExecutionId) {
    let mut world = World::with(1);
    world.seconds(5);
    let at = world.clock().plus(Span::from_secs(1));
    world.job(&format!(r#"{{"kind":"one_shot","at":"{at}"}}"#), more);
    world.seconds(1);
    let execution = world.only_execution().id;
    (world, execution)
}

/// Has a worker start the execution and vanish, and waits for the sweep.
fn lose_a_worker(world: &mut World, execution: ExecutionId) {
    let run = world.run(execution, Span::from_secs(5));
    let renew = RenewExecutions { node: super::world::WORKER, ttl: Span::from_secs(5), runs: vec![run] };
    world.apply(&Command::RenewExecutions(renew));
    world.seconds(8);
}

#[test]
fn an_execution_whose_worker_was_lost_is_dispatched_again() {
    let (mut world, execution) = dispatched("");
    lose_a_worker(&mut world, execution);
    let row = world.only_execution();
    assert_eq!((row.state, row.rescues, row.attempts), (ExecutionState::Pending, 1, 0));
    assert_eq!(world.published.len(), 2);
    let swept = |fact: &&Fact| matches!(fact, Fact::Swept { taken_over: 1, .. });
    assert_eq!(world.nodes[0].facts.iter().filter(swept).count(), 1);
}

#[test]
fn a_lost_execution_that_was_to_be_cancelled_is_cancelled() {
    let (mut world, execution) = dispatched("");
    world.run(execution, Span::from_secs(5));
    world.apply(&Command::CancelExecution(CancelExecution { tenant: TENANT, execution }));
    world.seconds(8);
    assert_eq!(world.only_execution().state, ExecutionState::Cancelled);
}

#[test]
fn a_job_that_takes_its_workers_with_it_ends_in_the_dead_letters() {
    let (mut world, execution) = dispatched(r#","retry":{"max_rescues":1}"#);
    lose_a_worker(&mut world, execution);
    lose_a_worker(&mut world, execution);
    assert_eq!(world.only_execution().state, ExecutionState::DeadLettered);
    let letters: Vec<_> = world.store.tables().dead_letters().iter().map(|row| row.reason).collect();
    assert_eq!(letters, [DeadLetterReason::RescuesSpent]);
}

#[test]
fn without_dead_letters_such_a_job_fails() {
    let (mut world, execution) = dispatched(r#","retry":{"max_rescues":0},"dead_letter":"off""#);
    lose_a_worker(&mut world, execution);
    assert_eq!(world.only_execution().state, ExecutionState::Failed);
}

#[test]
fn what_was_dispatched_and_never_started_is_dispatched_again() {
    let (mut world, _) = dispatched("");
    world.seconds(58);
    assert_eq!(world.published.len(), 1);
    world.seconds(8);
    assert_eq!(world.published.len(), 2);
    let row = world.only_execution();
    assert_eq!((row.redispatches, row.dispatch_no.0), (1, 2));
    assert_eq!(world.outbox_len(), 0);
}

#[test]
fn outbox_rows_of_what_has_ended_are_removed() {
    let mut world = World::with(1);
    world.seconds(5);
    world.one_shot(Span::from_secs(1));
    world.answers.push_back(PublishOutcome::Unknown);
    world.seconds(1);
    let execution = world.only_execution().id;
    world.apply(&Command::CancelExecution(CancelExecution { tenant: TENANT, execution }));
    assert_eq!(world.outbox_len(), 1);
    world.pass(Span::from_millis(2_500));
    assert_eq!(world.outbox_len(), 0);
}

#[test]
fn nodes_that_fell_silent_are_marked_offline() {
    let mut world = World::with(2);
    world.seconds(5);
    world.kill(1);
    world.seconds(70);
    let states: Vec<_> = world.store.tables().nodes().iter().map(|row| row.state).collect();
    assert_eq!(states, [NodeState::Active, NodeState::Offline]);
}
