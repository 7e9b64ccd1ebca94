//! Shares: that each priority has its share of a worker's starts, over any stretch in which all of them wait there.
//!
//! A stretch of a worker is a run of starts in a row at each of which something of every priority waits to be asked for,
//! and between which no turn led nowhere. Of the n starts of a stretch, a priority of weight w out of 8 must have w·n/8,
//! less what beginnings and ends of stretches cost: two turns of eight, and w for each slot, since what had been asked for
//! when the last of the three began to wait was asked for before.
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

/// The starts of each worker's current stretch.
#[derive(Debug, Default)]
pub(super) struct Shares {
    stretches: BTreeMap<NodeId, Stretch>,
}

#[derive(Debug, Default)]
struct Stretch {
    detours: u64,
    starts: u64,
    /// By how many eighths of a start each has fallen behind.
    behind: ByPriority<u64>,
}

impl Shares {
    /// Checks a start.
    pub(super) fn check(&mut self, at: SimTime, node: NodeId, seen: &Standing) -> Result<(), Violation> {
        let all_wait = seen.waits.iter().all(|(_, waits)| *waits);
        if !all_wait {
            self.stretches.remove(&node);
            return Ok(());
        }
        let stretch = self.stretches.entry(node).or_default();
        if stretch.starts == 0 || stretch.detours != seen.detours {
            *stretch = Stretch { detours: seen.detours, ..Stretch::default() };
        }
        stretch.starts += 1;
        for priority in Priority::ALL.iter().copied() {
            let weight = priority.weight();
            let own = if priority == seen.priority { Priority::WEIGHTS_SUM } else { 0 };
            let behind = stretch.behind.get_mut(priority);
            *behind = (*behind + weight).saturating_sub(own);
            let most = 2 * Priority::WEIGHTS_SUM + weight * u64::from(seen.slots);
            if *behind > most {
                let detail = format!(
                    "{node} has {} starts behind it while all priorities waited there, and {priority} has fallen {behind} \
                     eighths of a start behind its share of {weight} in {}; at most {most} were lawful",
                    stretch.starts,
                    Priority::WEIGHTS_SUM,
                );
                return Err(Invariant::PriorityShares.broken(at, detail));
            }
        }
        Ok(())
    }

    /// The process is gone.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.stretches.remove(&node);
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
    fn a_turn_that_led_nowhere_begins_another_stretch() {
        let mut shares = Shares::default();
        for turn in 0..200 {
            started(&mut shares, Priority::High, turn / 10).expect("no stretch is long enough");
        }
    }
}
