//! The observer: it measures recoveries and dispatches from what is committed and from who is up. It steers
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fencepost_core::id::{DispatchNo, ExecutionId, NodeId};
use fencepost_core::lease::LeaseResource;
use fencepost_core::message::ExecutionMessage;
use fencepost_core::partition::PARTITION_COUNT;
use fencepost_core::store::change::{Change, Delta};
use fencepost_core::store::row::LeaseRow;
use fencepost_core::time::{Span, Timestamp};

use crate::measure::Measured;
use crate::plan::NodeSlot;
use crate::sim_time::SimTime;

/// How many executions due at one instant are a herd.
const HERD: u32 = 10;

#[derive(Debug)]
pub(super) struct Observer {
    pub(super) measured: Measured,
    schedulers: usize,
    /// Who is up, by slot.
    up: Vec<Option<NodeId>>,
    leader: Option<NodeId>,
    leader_lost: Option<SimTime>,
    owners: Vec<Option<NodeId>>,
    unbalanced_since: Option<SimTime>,
    dispatched: BTreeSet<ExecutionId>,
    due: BTreeMap<Timestamp, u32>,
    herds: u64,
}

impl Observer {
    pub(super) fn new(schedulers: usize, nodes: usize) -> Self {
        Self {
            measured: Measured::default(),
            schedulers,
            up: vec![None; nodes],
            leader: None,
            leader_lost: None,
            owners: vec![None; usize::from(PARTITION_COUNT)],
            unbalanced_since: None,
            dispatched: BTreeSet::new(),
            due: BTreeMap::new(),
            herds: 0,
        }
    }

    pub(super) fn on_start(&mut self, slot: NodeSlot, id: NodeId, now: SimTime) {
        self.up[slot.index()] = Some(id);
        if slot.index() < self.schedulers {
            self.unbalanced_since = Some(now);
        }
    }

    /// A process ended.
    pub(super) fn on_end(&mut self, slot: NodeSlot, now: SimTime) {
        self.up[slot.index()] = None;
        if slot.index() < self.schedulers {
            self.unbalanced_since = Some(now);
        }
    }

    /// A process stands still, or ended: if it was the leader, that is lost.
    pub(super) fn on_lost(&mut self, slot: NodeSlot, now: SimTime) {
        if self.leader.is_some() && self.up[slot.index()] == self.leader {
            self.leader_lost.get_or_insert(now);
        }
    }

    /// A process goes on; if it still is the leader, nothing was lost.
    pub(super) fn on_back(&mut self, slot: NodeSlot, _now: SimTime) {
        if self.leader.is_some() && self.up[slot.index()] == self.leader {
            self.leader_lost = None;
        }
    }

    pub(super) fn on_drained(&mut self, took: Span) {
        self.measured.drain.add(took);
    }

    /// The broker confirmed a message: how long after it was due its execution was first dispatched.
    pub(super) fn on_confirmed(&mut self, message: &Arc<ExecutionMessage>, store_now: Timestamp) {
        if message.dispatch_no <= DispatchNo(1) && self.dispatched.insert(message.execution) {
            self.measured.dispatch_lag.add(store_now.since(message.due_at));
        }
    }

    pub(super) fn on_commit(&mut self, changes: &[Change], now: SimTime) {
        let mut partitions_moved = false;
        for change in changes {
            match change {
                Change::Lease(Delta { after: Some(after), .. }) => {
                    partitions_moved |= self.on_lease(after, now);
                }
                Change::Execution(delta) => {
                    if let (None, Some(made)) = (&delta.before, &delta.after) {
                        self.measured.executions += 1;
                        let due = self.due.entry(made.due_at).or_default();
                        *due += 1;
                        self.herds += u64::from(*due == HERD);
                    }
                }
                Change::Lease(Delta { after: None, .. })
                | Change::Tenant(_)
                | Change::Node(_)
                | Change::Job(_)
                | Change::JobVersion(_)
                | Change::Attempt(_)
                | Change::Outbox(_)
                | Change::DeadLetter(_)
                | Change::SkippedRange(_)
                | Change::Refusal(_)
                | Change::Request(_)
                | Change::Pause(_)
                | Change::Limit(_)
                | Change::Calendar(_)
                | Change::Malformed(_) => {}
            }
        }
        if partitions_moved
            && let Some(since) = self.unbalanced_since
            && self.balanced()
        {
            self.unbalanced_since = None;
            self.measured.rebalance.add(now.since(since));
        }
    }

    /// Whether a partition's owner changed.
    fn on_lease(&mut self, lease: &LeaseRow, now: SimTime) -> bool {
        match lease.resource {
            LeaseResource::Leadership => {
                if lease.owner != self.leader {
                    match lease.owner {
                        Some(_) => {
                            if let Some(lost) = self.leader_lost.take() {
                                self.measured.failover.add(now.since(lost));
                            }
                        }
                        // Given back: the next one has it to take.
                        None => {
                            self.leader_lost.get_or_insert(now);
                        }
                    }
                    self.leader = lease.owner;
                }
                false
            }
            LeaseResource::Partition(partition) => {
                let owner = &mut self.owners[usize::from(partition.number())];
                core::mem::replace(owner, lease.owner) != lease.owner
            }
        }
    }

    /// Whether every partition is owned by a scheduler that is up, and their shares differ by at most one.
    fn balanced(&self) -> bool {
        let live: Vec<NodeId> = self.up[..self.schedulers].iter().flatten().copied().collect();
        let mut shares = vec![0_u32; live.len()];
        for owner in &self.owners {
            let place = owner.and_then(|owner| live.iter().position(|node| *node == owner));
            match place {
                Some(place) => shares[place] += 1,
                None => return false,
            }
        }
        let (least, most) = (shares.iter().min(), shares.iter().max());
        least.zip(most).is_some_and(|(least, most)| most - least <= 1)
    }

    /// How many instants at least a herd of executions was due at.
    pub(super) fn herds(&self) -> u64 {
        self.herds
    }
}
