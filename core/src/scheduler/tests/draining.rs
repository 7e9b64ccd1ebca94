//! The orderly end.

use super::world::{Link, World, down, up};
use crate::event::SchedulerEvent;
use crate::lease::LeaseResource;
use crate::store::command::CommandKind;
use crate::store::row::NodeState;
use crate::time::Span;

fn holds_nothing(world: &World, node: usize) -> bool {
    let id = crate::id::NodeId::from_u128(node as u128 + 1);
    LeaseResource::all().all(|resource| world.owner(resource) != Some(id))
}

fn state_of(world: &World, node: usize) -> Option<NodeState> {
    world.store.tables().nodes().get(&crate::id::NodeId::from_u128(node as u128 + 1)).map(|row| row.state)
}

#[test]
fn a_drain_ends_at_once_and_holds_nothing() {
    let mut world = World::with(1);
    world.seconds(20);
    world.give(0, SchedulerEvent::DrainRequested);
    assert_eq!(world.nodes[0].drained_at, Some(world.now));
    assert!(holds_nothing(&world, 0));
    assert_eq!(state_of(&world, 0), Some(NodeState::Offline));
    assert_eq!(world.nodes[0].role.next_wakeup(), None);
    let sent = world.nodes[0].sent.len();
    world.seconds(60);
    world.give(0, SchedulerEvent::Tick);
    assert_eq!(world.nodes[0].sent.len(), sent, "and nothing comes after it");
}

#[test]
fn others_take_over_from_a_drained_scheduler_without_waiting_for_its_leases() {
    let mut world = World::with(2);
    world.seconds(30);
    world.give(0, SchedulerEvent::DrainRequested);
    world.pass(Span::from_millis(5_500));
    assert_eq!(world.shares(), [0, 128]);
}

#[test]
fn a_drain_without_a_store_ends_within_its_limit() {
    let mut world = World::with(1);
    world.seconds(20);
    world.link(0, down);
    world.give(0, SchedulerEvent::DrainRequested);
    world.seconds(19);
    assert_eq!(world.nodes[0].drained_at, None);
    world.seconds(1);
    assert_eq!(world.nodes[0].drained_at, Some(world.now));
    assert!(holds_nothing(&world, 0), "what could not be given back has lapsed");
}

#[test]
fn a_release_that_nobody_knows_of_is_sent_again() {
    let mut world = World::with(1);
    world.seconds(20);
    world.link(0, |kind| if kind == CommandKind::ReleaseLeases { Link::RequestLost } else { Link::Up });
    world.give(0, SchedulerEvent::DrainRequested);
    assert_eq!(world.nodes[0].drained_at, None);
    world.link(0, up);
    world.seconds(1);
    assert!(world.nodes[0].drained_at.is_some() && holds_nothing(&world, 0));
}

#[test]
fn a_drain_waits_for_what_is_under_way_before_it_gives_the_lease_back() {
    let mut world = World::with(1);
    world.seconds(5);
    world.one_shot(Span::from_secs(1));
    world.link(0, |kind| if kind == CommandKind::Materialise { Link::Held } else { Link::Up });
    world.seconds(1);
    world.give(0, SchedulerEvent::DrainRequested);
    world.pass(Span::from_millis(100));
    assert!(world.nodes[0].drained_at.is_none() && !holds_nothing(&world, 0));
    world.let_go(0);
    assert!(world.nodes[0].drained_at.is_some() && holds_nothing(&world, 0));
    assert_eq!((world.published.len(), world.outbox_len()), (1, 0), "and what was committed is published");
}

#[test]
fn what_is_granted_to_a_draining_scheduler_is_given_back() {
    let mut world = World::new();
    let node = world.start(|config| config.acquire_per_cycle = 10);
    world.link(node, |kind| if kind == CommandKind::AcquirePartitions { Link::Held } else { Link::Up });
    world.seconds(3);
    assert_eq!(world.nodes[node].held.len(), 1);
    world.give(node, SchedulerEvent::DrainRequested);
    assert_eq!(world.nodes[node].drained_at, None);
    world.let_go(node);
    assert!(world.nodes[node].drained_at.is_some() && holds_nothing(&world, node));
}

#[test]
fn nothing_is_begun_while_draining() {
    let mut world = World::with(1);
    world.seconds(20);
    world.one_shot(Span::from_secs(1));
    world.link(0, |kind| if kind == CommandKind::ReleaseLeases { Link::RequestLost } else { Link::Up });
    world.give(0, SchedulerEvent::DrainRequested);
    let before = world.nodes[0].sent.len();
    world.seconds(15);
    let kinds: Vec<_> = world.nodes[0].sent[before..].iter().map(|(_, command)| command.kind()).collect();
    assert!(
        kinds.iter().all(|kind| matches!(kind, CommandKind::Heartbeat | CommandKind::ReleaseLeases)),
        "{kinds:?}"
    );
    assert_eq!(state_of(&world, 0), Some(NodeState::Draining));
    assert!(world.executions().is_empty());
}

#[test]
fn a_scheduler_that_never_began_is_drained_at_once() {
    let mut scheduler = crate::scheduler::Scheduler::new(crate::config::SchedulerConfig::new(
        crate::id::NodeId::from_u128(1),
        "test".into(),
    ));
    scheduler.handle(crate::time::Monotonic::ZERO, SchedulerEvent::DrainRequested);
    assert_eq!(scheduler.poll_effect(), Some(crate::effect::SchedulerEffect::Drained));
    assert_eq!(scheduler.poll_effect(), None);
}

#[test]
fn a_second_request_changes_nothing() {
    let mut world = World::with(1);
    world.seconds(20);
    world.link(0, down);
    world.give(0, SchedulerEvent::DrainRequested);
    world.seconds(10);
    world.give(0, SchedulerEvent::DrainRequested);
    world.seconds(10);
    assert_eq!(world.nodes[0].drained_at, Some(world.now), "the limit counts from the first");
}
