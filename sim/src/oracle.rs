//! The oracles: what is checked, and when the world lets them look.
//!
//! The world calls in here after every commit, whenever a handler or a system outside does something, when
//! the broker confirms, when a node drains, and, after the heal, again and again until nothing is unfinished.
//! What must stay true: an oracle only looks. It draws nothing, changes nothing, and is never switched off,
//! whatever fault is under way.
//!
//! This is the seam alone; the checks themselves are added behind these signatures.

use std::sync::Arc;

use fencepost_core::effect::StopReason;
use fencepost_core::id::{DispatchNo, ExecutionId, JobId, NodeId};
use fencepost_core::lease::RunId;
use fencepost_core::store::change::Change;
use fencepost_core::store::command::Command;
use fencepost_core::store::reply::StoreReply;
use fencepost_core::time::{Span, Timestamp};

use crate::plan::{Bounds, Enforcement, OutsideIndex, Plan};
use crate::sim_time::SimTime;
use crate::violation::Violation;

/// All oracles of one run.
#[derive(Debug)]
pub struct Oracles {}

/// Something that a handler, or what it calls, did.
#[derive(Clone, Debug)]
pub enum HandlerObservation {
    /// A handler started.
    Started {
        /// In which process.
        node: NodeId,
        /// Which run.
        run: RunId,
        /// Of which job.
        job: JobId,
        /// Which attempt.
        attempt: u32,
        /// The idempotency key that it was given.
        key: Arc<str>,
    },
    /// Its worker gave it up: told it to stop.
    GivenUp {
        /// In which process.
        node: NodeId,
        /// Which run.
        run: RunId,
        /// Why.
        reason: StopReason,
    },
    /// It ended.
    Ended {
        /// In which process.
        node: NodeId,
        /// Which run.
        run: RunId,
        /// How.
        how: HandlerEnd,
    },
    /// A call of a handler's reached a system outside.
    Effect {
        /// Which system.
        outside: OutsideIndex,
        /// What it enforces.
        enforces: Enforcement,
        /// Of which run.
        run: RunId,
        /// The idempotency key presented.
        key: Arc<str>,
        /// What the system did about it.
        answer: EffectAnswer,
    },
}

/// How a handler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandlerEnd {
    /// It reported something.
    Reported,
    /// It stopped because it was told to.
    Stopped,
    /// Its process died.
    Died,
}

/// What a system outside did about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EffectAnswer {
    /// It performed the effect.
    Performed,
    /// It had performed it before, and did nothing.
    Repeated,
    /// It refused a stale token.
    Refused,
    /// It was down.
    Down,
}

/// The cluster some time after the heal.
#[derive(Clone, Copy, Debug)]
pub struct Recovery<'a> {
    /// Now.
    pub at: SimTime,
    /// What the store's clock shows now.
    pub store_now: Timestamp,
    /// When everything healed.
    pub healed_at: SimTime,
    /// What the store's clock showed then: what was due by then must end.
    pub healed_store: Timestamp,
    /// The schedulers that are up and not draining, ascending.
    pub schedulers: &'a [NodeId],
    /// How long each liveness invariant may take.
    pub bounds: &'a Bounds,
}

impl Oracles {
    /// Oracles that have seen nothing.
    #[must_use]
    pub fn new(_plan: &Plan) -> Self {
        Self {}
    }

    /// A command was committed: by a node, or by an operator (`None`).
    ///
    /// # Errors
    /// The safety invariant that it broke.
    pub fn on_commit(
        &mut self,
        _at: SimTime,
        _node: Option<NodeId>,
        _command: &Command,
        _reply: &StoreReply,
        _changes: &[Change],
    ) -> Result<(), Violation> {
        Ok(())
    }

    /// A handler, or what it calls, did something.
    ///
    /// # Errors
    /// The safety invariant that it broke.
    pub fn on_handler(
        &mut self,
        _at: SimTime,
        _store_now: Timestamp,
        _seen: &HandlerObservation,
    ) -> Result<(), Violation> {
        Ok(())
    }

    /// The broker confirmed a message, whether or not anybody hears of it.
    ///
    /// # Errors
    /// The safety invariant that it broke.
    pub fn on_confirmed(
        &mut self,
        _at: SimTime,
        _execution: ExecutionId,
        _dispatch_no: DispatchNo,
    ) -> Result<(), Violation> {
        Ok(())
    }

    /// A node was asked to drain, within this time.
    pub fn on_drain_requested(&mut self, _at: SimTime, _node: NodeId, _within: Span) {}

    /// A node reported that its drain is over.
    ///
    /// # Errors
    /// The safety invariant that it broke.
    pub fn on_drained(&mut self, _at: SimTime, _node: NodeId) -> Result<(), Violation> {
        Ok(())
    }

    /// A node's process ended, drained or not.
    pub fn on_process_ended(&mut self, _at: SimTime, _node: NodeId) {}

    /// After the heal: what is not as it should be yet, the thing with the shortest bound first, and what it
    /// waits for. The world makes it a failure once that invariant's bound has passed.
    #[must_use]
    pub fn unfinished(&mut self, _recovery: &Recovery<'_>) -> Option<Violation> {
        None
    }
}
