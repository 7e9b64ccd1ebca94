//! Membership: reporting liveness, and learning who else schedules.
//!
//! What is learnt sets this node's fair share and nothing else: a report grants nothing, and a stale list
//! makes shares uneven for a while, never wrong.

use crate::id::NodeId;
use crate::partition::PARTITION_COUNT;
use crate::scheduler::calls::{Call, Concern, Turn, View};
use crate::scheduler::pace::Pace;
use crate::store::command::{Command, Heartbeat};
use crate::store::row::{NodeRole, NodeState};
use crate::time::Monotonic;

#[derive(Debug)]
pub(super) struct Membership {
    pace: Pace,
    /// How many partitions are this node's share by the latest answer; `None` before the first.
    target: Option<u32>,
    answered_at: Monotonic,
}

impl Membership {
    pub(super) const fn new() -> Self {
        Self { pace: Pace::AT_ONCE, target: None, answered_at: Monotonic::ZERO }
    }

    pub(super) fn wakes_at(&self, view: View<'_>) -> Monotonic {
        if view.calls.is_busy(Concern::Heartbeat) { Monotonic::MAX } else { self.pace.at() }
    }

    /// Reports liveness if that is due.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>, state: NodeState) {
        if self.wakes_at(turn.view()) > turn.now {
            return;
        }
        self.pace.until_answered(turn.on_the_beat(turn.config.heartbeat_every));
        let heartbeat = Heartbeat {
            node: turn.config.node,
            role: NodeRole::Scheduler,
            label: turn.config.label.clone(),
            schema: turn.config.schema,
            state,
            capacity: 0,
            live_within: turn.config.live_within,
        };
        turn.call(Call::Heartbeat(state), Command::Heartbeat(heartbeat));
    }

    /// Has the next report made now.
    pub(super) fn report_at_once(&mut self, turn: &Turn<'_>) {
        self.pace.sooner(turn.now);
    }

    /// These schedulers are live, ascending.
    pub(super) fn answered(&mut self, turn: &Turn<'_>, schedulers: &[NodeId]) {
        self.pace.answered();
        self.target = Some(share(schedulers, turn.config.node));
        self.answered_at = turn.now;
    }

    pub(super) fn unknown(&mut self, turn: &Turn<'_>) {
        let (first, most) = turn.patience();
        self.pace.after_unknown(turn.now, first, most);
    }

    /// When the store last answered; `None` if it never has.
    pub(super) fn answered_at(&self) -> Option<Monotonic> {
        self.target.map(|_| self.answered_at)
    }

    /// How many partitions are this node's share; `None` as long as nobody is known.
    pub(super) const fn target(&self) -> Option<u32> {
        self.target
    }
}

/// The share of `node` among these, ascending: all 128 together, no two further apart than one. A node that
/// is not listed counts itself in, for its own report may have been too late to be seen.
fn share(live: &[NodeId], node: NodeId) -> u32 {
    let (rank, listed) = match live.binary_search(&node) {
        Ok(rank) => (rank, live.len()),
        Err(rank) => (rank, live.len() + 1),
    };
    let partitions = usize::from(PARTITION_COUNT);
    let share = partitions / listed + usize::from(rank < partitions % listed);
    u32::try_from(share).expect("a share is at most all partitions")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_all_partitions_and_differ_by_at_most_one() {
        for count in 1..=200_u128 {
            let live: Vec<_> = (0..count).map(NodeId::from_u128).collect();
            let shares: Vec<_> = live.iter().map(|node| share(&live, *node)).collect();
            assert_eq!(shares.iter().sum::<u32>(), 128, "{count} schedulers");
            let (least, most) = (shares.iter().min(), shares.iter().max());
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{count} schedulers");
        }
    }

    #[test]
    fn a_node_that_is_not_listed_counts_itself_in() {
        assert_eq!(share(&[], NodeId::from_u128(1)), 128);
        assert_eq!(share(&[NodeId::from_u128(1)], NodeId::from_u128(2)), 64);
    }
}
