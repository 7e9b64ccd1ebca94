//! Processes: what the world knows of each, apart from the role that runs in it.

use std::collections::VecDeque;

use fencepost_core::id::NodeId;
use fencepost_core::job::HandlerName;
use fencepost_core::time::{Monotonic, Span};

use super::clock::NodeClock;
use super::happening::{Life, RunRef};
use super::link::Link;
use super::role::{Fence, Role, RoleEffect, RoleEvent};
use super::traffic::ConsumerSide;
use crate::plan::{NodeSlot, Plan, ProcessSpec};
use crate::sim_time::SimTime;

/// Whether a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Not yet, or not any more.
    Down,
    /// It does.
    Up,
    /// It stands still, at least until then.
    Still { until: SimTime },
}

/// Something that a process has yet to take in.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Event(RoleEvent),
    HandlerActs(RunRef),
    HandlerEnds(RunRef),
}

/// A fault that waits for an effect of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trap {
    /// Which fault of the plan.
    pub(super) fault: u16,
    /// Effects to go, the one that springs it included.
    pub(super) left: u32,
}

/// A pause that ends when a write's token has passed on.
#[derive(Clone, Debug)]
pub(super) struct FencedPause {
    /// What the write is protected by; the first to fall ends it.
    pub(super) fences: Vec<Fence>,
    /// When it ends in any case.
    pub(super) until: SimTime,
    /// How much longer it may take after that.
    pub(super) longer: Span,
}

/// A crash loop under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct CrashLoop {
    pub(super) fault: u16,
    /// Events that each life has.
    pub(super) every: u32,
    /// Events that this life has left.
    pub(super) left: u32,
    pub(super) restart_after: Span,
}

/// A drain under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    pub(super) since: SimTime,
    /// What the node's own clock showed when it took the request in.
    pub(super) began: Option<Monotonic>,
    /// How long it may take by that clock.
    pub(super) within: Span,
    pub(super) then: AfterDrain,
}

/// What follows a drain.
#[derive(Clone, Copy, Debug)]
pub(super) enum AfterDrain {
    /// Nothing: it was the end.
    Stay,
    /// A new start, after this.
    Restart(Span),
}

/// One process.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) slot: NodeSlot,
    pub(super) spec: ProcessSpec,
    /// 0 before the first start.
    pub(super) incarnation: u32,
    pub(super) id: NodeId,
    pub(super) role: Option<Role>,
    pub(super) status: Status,
    pub(super) clock: NodeClock,
    /// Since when its clock stands still, if it does.
    pub(super) clock_stands: Option<SimTime>,
    pub(super) store_link: Link,
    pub(super) broker_link: Link,
    pub(super) consumer: ConsumerSide,
    /// What came while it stood still.
    pub(super) inbox: VecDeque<Input>,
    /// Effects that were decided on and not yet sent.
    pub(super) held: VecDeque<RoleEffect>,
    /// The earliest timer in the queue that is this life's.
    pub(super) armed: Option<SimTime>,
    pub(super) traps: Vec<Trap>,
    /// The write that it stands still before until its token is one of the past, if it does.
    pub(super) fenced: Option<FencedPause>,
    /// Whether its publishing channel is closed at its next publication.
    pub(super) breaks_publishing: bool,
    pub(super) crash_loop: Option<CrashLoop>,
    /// How long an event takes it at most, while it is slow.
    pub(super) slow: Option<(u16, Span)>,
    pub(super) drain: Option<Drain>,
    /// By how many versions its schema is ahead of its settings'.
    pub(super) upgrades: u16,
    /// Whether it stays down for good.
    pub(super) dead: bool,
    handlers: Vec<HandlerName>,
}

impl Node {
    pub(super) fn new(plan: &Plan, slot: NodeSlot) -> Self {
        let id = first_id(plan, slot);
        let (spec, handlers) = if plan.is_scheduler(slot) {
            (plan.schedulers[slot.index()].process, Vec::new())
        } else {
            let spec = &plan.workers[slot.index() - plan.schedulers.len()];
            (spec.process, spec.config.handlers.keys().cloned().collect())
        };
        Self {
            slot,
            spec,
            incarnation: 0,
            id,
            role: None,
            status: Status::Down,
            clock: NodeClock::new(spec.clock_origin, spec.drift_ppm),
            clock_stands: None,
            store_link: Link::new(plan.network.store),
            broker_link: Link::new(plan.network.broker),
            consumer: ConsumerSide::default(),
            inbox: VecDeque::new(),
            held: VecDeque::new(),
            armed: None,
            traps: Vec::new(),
            fenced: None,
            breaks_publishing: false,
            crash_loop: None,
            slow: None,
            drain: None,
            upgrades: 0,
            dead: false,
            handlers,
        }
    }

    pub(super) fn life(&self) -> Life {
        Life { slot: self.slot, incarnation: self.incarnation }
    }

    pub(super) fn stands_still(&self) -> bool {
        matches!(self.status, Status::Still { .. })
    }

    pub(super) fn is_down(&self) -> bool {
        self.status == Status::Down
    }

    pub(super) fn handlers(&self) -> Vec<HandlerName> {
        self.handlers.clone()
    }
}

/// The id of a process's first start.
pub(super) fn first_id(plan: &Plan, slot: NodeSlot) -> NodeId {
    if plan.is_scheduler(slot) {
        plan.schedulers[slot.index()].config.node
    } else {
        plan.workers[slot.index() - plan.schedulers.len()].config.node
    }
}

/// The id of a process's later starts: random per start, and derived from that of its first, so that a plan
/// need not list them.
pub(super) fn later_id(first: NodeId, incarnation: u32) -> NodeId {
    const MIX: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    if incarnation <= 1 {
        return first;
    }
    let raw = first.as_uuid().as_u128() ^ u128::from(incarnation).wrapping_mul(MIX);
    let mixed = (raw ^ (raw >> 67)).wrapping_mul(MIX);
    NodeId::from_u128(mixed ^ (mixed >> 59))
}
