//! The end of a run: everything heals, and all due work must end.
//!
//! At the heal every fault is over, what stood still goes on and what was down starts, except for the nodes
//! that the plan leaves dead. From then on the world asks the oracles every second what is unfinished. A run
//! that is well ends as soon as nothing is; one thing that stays unfinished beyond its bound is a failure.

use fencepost_core::id::NodeId;
use fencepost_core::time::{Span, Timestamp};

use super::World;
use super::happening::Happening;
use super::node::{AfterDrain, Status};
use super::process::all_handlers;
use super::striking::WORLD_LANE;
use crate::fault::FaultKind;
use crate::oracle::Recovery;
use crate::plan::{Bounds, NodeSlot};
use crate::sim_time::SimTime;
use crate::trace::Line;
use crate::violation::{Property, Violation};

/// How often the oracles are asked.
const LOOK_EVERY: Span = Span::from_secs(1);
/// For how long a run goes on at least after the heal: late arrivals are to find something to break.
const AT_LEAST: Span = Span::from_secs(15);

/// A recovery under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Healing {
    /// Since when, and what the store's clock showed then.
    since: SimTime,
    store_then: Timestamp,
    bounds: Bounds,
    /// The node that is to drain once all is well.
    to_drain: Option<NodeSlot>,
    /// The node that drains.
    draining: Option<NodeSlot>,
}

impl World<'_> {
    pub(super) fn on_heal(&mut self) {
        self.trace.absorb(self.now, WORLD_LANE, Line::World, &"heals");
        self.timeline.heal(self.now);
        for fault in 0..self.plan.faults.len() {
            self.on_fault_ends(fault as u16);
        }
        if self.plan.daylight_saving {
            self.counts.count(FaultKind::DaylightSaving);
        }
        self.broker.end_purges();
        for slot in self.plan.heal.dead.clone() {
            self.nodes[slot.index()].dead = true;
            self.crash(slot, None);
        }
        self.recovery = Some(Healing {
            since: self.now,
            store_then: self.store_clock.read(self.now),
            bounds: Bounds::of(self.plan),
            to_drain: self.plan.heal.drains,
            draining: None,
        });
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            node.traps.clear();
            node.breaks_publishing = false;
            node.slow = None;
            node.crash_loop = None;
            if node.spec.drift_ppm != 0 && node.incarnation > 0 {
                self.counts.count(FaultKind::ClockDrift);
            }
            let (slot, life) = (node.slot, node.life());
            match node.status {
                Status::Still { .. } => self.go_on(life),
                Status::Down if !node.dead => self.start_after(slot, Span::from_millis(100)),
                Status::Down | Status::Up => {}
            }
        }
        self.upgrade_old_workers();
        self.queue.push(self.now.plus(AT_LEAST), Happening::Look);
    }

    /// A roll-out under way is completed: workers that do not know every handler are replaced.
    fn upgrade_old_workers(&mut self) {
        let all = all_handlers(self.plan);
        for (index, spec) in self.plan.workers.iter().enumerate() {
            if spec.config.handlers != all {
                self.crash(self.plan.worker_slot(index), Some(Span::from_secs(1)));
            }
        }
    }

    pub(super) fn on_look(&mut self) {
        let Some(healing) = self.recovery else { return };
        let schedulers = self.live_schedulers();
        let recovery = Recovery {
            at: self.now,
            store_now: self.store_clock.read(self.now),
            healed_at: healing.since,
            healed_store: healing.store_then,
            schedulers: &schedulers,
            bounds: &healing.bounds,
        };
        // One that dies on its way out is out as well; what starts in its place is another node.
        let drains = healing.draining.is_some_and(|slot| self.nodes[slot.index()].drain.is_some());
        match self.oracles.unfinished(&recovery) {
            Some(violation) => {
                let bound = healing.bounds.for_invariant(violation.invariant);
                if self.now.since(healing.since) > bound {
                    self.judge(Err(violation));
                    return;
                }
            }
            None if drains => {
                if self.now.since(healing.since) > healing.bounds.drain {
                    self.judge(Err(Violation {
                        invariant: "drain-ends",
                        property: Property::Liveness,
                        at: self.now,
                        detail: format!(
                            "a drain ends within {}; one that was requested at {} s has not",
                            healing.bounds.drain, healing.since
                        ),
                    }));
                    return;
                }
            }
            None => match healing.to_drain {
                // A handler may have taken it down just now: it drains once it is up again.
                Some(slot) if self.nodes[slot.index()].is_down() => {}
                Some(slot) => self.drain_after_all(slot, healing),
                None => {
                    self.finished = true;
                    return;
                }
            },
        }
        self.queue.push(self.now.plus(LOOK_EVERY), Happening::Look);
    }

    /// All is well: a node leaves in good order, and all must be well again without it.
    fn drain_after_all(&mut self, slot: NodeSlot, healing: Healing) {
        self.recovery = Some(Healing {
            since: self.now,
            store_then: self.store_clock.read(self.now),
            to_drain: None,
            draining: Some(slot),
            ..healing
        });
        self.request_drain(slot, AfterDrain::Stay);
    }

    /// Schedulers that are up and not draining, ascending.
    fn live_schedulers(&self) -> Vec<NodeId> {
        let schedulers = self.nodes.iter().filter(|node| self.plan.is_scheduler(node.slot));
        let live = schedulers.filter(|node| !node.is_down() && node.drain.is_none());
        let mut ids: Vec<NodeId> = live.map(|node| node.id).collect();
        ids.sort_unstable();
        ids
    }
}
