//! Shares: that each priority has its share of a worker's starts, over any stretch through which it waits there.
//!
//! A stretch of a priority is a run of a worker's starts in a row at each of which something of it waits to be asked for,
//! and between which no turn led nowhere. Whether others wait makes no difference: where they do not, it has more. Of the n
//! starts of a stretch, a priority of weight w out of 8 must have w·n/8, less what the beginning and the end of a stretch
//! cost: two turns of eight, and w for each slot, since what had been asked for when it began to wait was asked for before.
//!
//! Counted is in eighths of a start, one number for each worker and priority: how far it has fallen behind at most over all
//! stretches that end here. A start of another adds w, one of its own w - 8, and what is below zero is nothing: a longer
//! stretch is of no use to whoever looks for a bad one. So nothing is kept of the past.

use std::collections::BTreeMap;

use fencepost_core::id::NodeId;
use fencepost_core::priority::{ByPriority, Priority};

use super::invariant::Invariant;
use crate::sim_time::SimTime;
use crate::violation::Violation;

/// How a worker stood at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What was started.
    pub priority: Priority,
    /// Whether something of each priority waits there.
    pub waits: ByPriority<bool>,
    /// How many turns have led nowhere so far.
    pub detours: u64,
    /// How many slots it has.
    pub slots: u32,
}

/// How far the priorities have fallen behind at each worker.
#[derive(Debug, Default)]
pub(super) struct Shares {
    workers: BTreeMap<NodeId, Behind>,
}

#[derive(Debug, Default)]
struct Behind {
    detours: u64,
    /// By how many eighths of a start.
    eighths: ByPriority<u64>,
}

impl Shares {
    /// Checks a start.
    pub(super) fn check(&mut self, at: SimTime, node: NodeId, seen: &Standing) -> Result<(), Violation> {
        let behind = self.workers.entry(node).or_default();
        if behind.detours != seen.detours {
            *behind = Behind { detours: seen.detours, ..Behind::default() };
        }
        for (priority, waits) in seen.waits.iter() {
            let eighths = behind.eighths.get_mut(priority);
            if !*waits {
                *eighths = 0;
                continue;
            }
            let weight = priority.weight();
            let own = if priority == seen.priority { Priority::WEIGHTS_SUM } else { 0 };
            *eighths = (*eighths + weight).saturating_sub(own);
            let most = 2 * Priority::WEIGHTS_SUM + weight * u64::from(seen.slots);
            if *eighths > most {
                let detail = format!(
                    "at {node}, {priority} has fallen {eighths} eighths of a start behind its share of {weight} in {}, \
                     while it waited there; at most {most} were lawful",
                    Priority::WEIGHTS_SUM,
                );
                return Err(Invariant::PriorityShares.broken(at, detail));
            }
        }
        Ok(())
    }

    /// The process is gone.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.workers.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(shares: &mut Shares, priority: Priority, detours: u64) -> Result<(), Violation> {
        let waits = ByPriority::new([true; 3]);
        let standing = Standing { priority, waits, detours, slots: 2 };
        shares.check(SimTime::ZERO, NodeId::from_u128(1), &standing)
    }

    #[test]
    fn starts_by_the_weights_are_lawful() {
        let mut shares = Shares::default();
        for turn in 0..8_000 {
            let priority = match turn % 8 {
                0 | 2 | 4 | 5 | 7 => Priority::High,
                1 | 6 => Priority::Normal,
                _ => Priority::Low,
            };
            started(&mut shares, priority, 0).expect("each has its share");
        }
    }

    #[test]
    fn who_is_passed_over_for_long_breaks_it() {
        let mut shares = Shares::default();
        let broken = (0..100).find_map(|_| started(&mut shares, Priority::High, 0).err());
        assert_eq!(broken.expect("the others starve").invariant, "priority-shares");
    }

    #[test]
    fn equal_shares_break_it() {
        let mut shares = Shares::default();
        let broken = (0..100).find_map(|turn| started(&mut shares, Priority::ALL[turn % 3], 0).err());
        assert_eq!(broken.expect("a high one has more").invariant, "priority-shares");
    }

    #[test]
    fn who_does_not_wait_falls_behind_nobody() {
        let mut shares = Shares::default();
        for turn in 0..200 {
            let waits = ByPriority::new([true, true, turn % 10 > 0]);
            let priority = if turn % 7 < 5 { Priority::High } else { Priority::Normal };
            let standing = Standing { priority, waits, detours: 0, slots: 2 };
            shares.check(SimTime::ZERO, NodeId::from_u128(1), &standing).expect("no stretch is long enough");
        }
    }

    #[test]
    fn a_turn_that_led_nowhere_begins_another_stretch() {
        let mut shares = Shares::default();
        for turn in 0..200 {
            started(&mut shares, Priority::High, turn / 10).expect("no stretch is long enough");
        }
    }
}
