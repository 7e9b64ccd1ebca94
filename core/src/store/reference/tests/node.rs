//! Liveness reports and unreadable messages.

use super::*;
use crate::limits::LIVENESS_AHEAD_MAX;
use crate::store::command::{Heartbeat, RecordMalformed};
use crate::store::row::{NodeRole, NodeState};

fn report(node: NodeId, role: NodeRole, state: NodeState) -> Heartbeat {
    Heartbeat { node, role, label: "host".into(), schema: 1, state, capacity: 0, live_within: secs(10) }
}

impl World {
    fn heartbeat(&mut self, node: NodeId, role: NodeRole, state: NodeState) -> Vec<NodeId> {
        match self.apply(Command::Heartbeat(report(node, role, state))) {
            Reply::Heartbeat { schedulers } => schedulers,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn beat(&mut self, node: NodeId) -> Vec<NodeId> {
        self.heartbeat(node, NodeRole::Scheduler, NodeState::Active)
    }
}

#[test]
fn a_node_keeps_the_time_of_its_first_report() {
    let mut world = World::new();
    world.beat(SCHEDULER);
    world.pass(secs(3));
    world.beat(SCHEDULER);
    let row = world.store.tables().nodes().get(&SCHEDULER).expect("it reported");
    assert_eq!((row.started_at, row.seen_at), (START, START.plus(secs(3))));
}

#[test]
fn only_active_schedulers_are_listed_and_the_sender_among_them() {
    let mut world = World::new();
    world.heartbeat(WORKER, NodeRole::Worker, NodeState::Active);
    assert_eq!(world.beat(SCHEDULER), [SCHEDULER]);
    assert_eq!(world.beat(OTHER_SCHEDULER), [SCHEDULER, OTHER_SCHEDULER]);
    let draining = world.heartbeat(SCHEDULER, NodeRole::Scheduler, NodeState::Draining);
    assert_eq!(draining, [OTHER_SCHEDULER]);
}

#[test]
fn a_report_counts_for_as_long_as_it_is_recent() {
    let mut world = World::new();
    world.beat(SCHEDULER);
    world.pass(secs(10));
    assert_eq!(world.beat(OTHER_SCHEDULER), [SCHEDULER, OTHER_SCHEDULER]);
    world.pass(INSTANT);
    assert_eq!(world.beat(OTHER_SCHEDULER), [OTHER_SCHEDULER]);
}

#[test]
fn a_report_too_far_ahead_counts_for_nothing() {
    let mut world = World::new();
    world.beat(SCHEDULER);
    world.step_back(LIVENESS_AHEAD_MAX);
    assert_eq!(world.beat(OTHER_SCHEDULER), [SCHEDULER, OTHER_SCHEDULER]);
    world.step_back(INSTANT);
    assert_eq!(world.beat(OTHER_SCHEDULER), [OTHER_SCHEDULER]);
}

#[test]
fn unreadable_messages_of_one_body_share_a_row() {
    let mut world = World::new();
    let first = RecordMalformed {
        node: WORKER,
        digest: uuid::Uuid::from_u128(1),
        reason: "no execution".into(),
        excerpt: (*b"{}").into(),
    };
    world.apply(Command::RecordMalformed(first.clone()));
    world.pass(secs(1));
    world.apply(Command::RecordMalformed(RecordMalformed { node: OTHER_WORKER, ..first }));
    let rows: Vec<_> = world.store.tables().malformed().iter().collect();
    assert_eq!((rows.len(), rows[0].count, rows[0].node), (1, 2, WORKER));
    assert_eq!((rows[0].first_at, rows[0].last_at), (START, START.plus(secs(1))));
}
