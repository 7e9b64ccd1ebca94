//! Heartbeats: observed liveness, which informs others and grants nothing.
//!
//! One report is under way at a time, so a report never overtakes a later one: what the store shows last
//! is what the worker said last. A report that became urgent while another was under way follows it.

use crate::store::StoreOutcome;
use crate::store::command::{Command, Heartbeat};
use crate::store::reply::{Reply, StoreReply};
use crate::store::row::{NodeRole, NodeState};
use crate::time::Monotonic;
use crate::worker::Worker;
use crate::worker::calls::Line;
use crate::worker::drain::Phase;

/// When to report, and the report under way.
#[derive(Debug)]
pub(super) struct Heart {
    pub(super) line: Line<NodeState>,
    due_at: Monotonic,
}

impl Heart {
    pub(super) const fn new() -> Self {
        Self { line: Line::new(), due_at: Monotonic::ZERO }
    }

    /// Makes a report due now.
    pub(super) fn hurry(&mut self, now: Monotonic) {
        self.due_at = now;
    }

    /// When the next report is to be sent, unless one is under way.
    pub(super) fn beats_at(&self) -> Option<Monotonic> {
        self.line.free_at().map(|free| free.max(self.due_at))
    }
}

impl Worker {
    /// Reports, if that is due: at work, draining, or (once nothing is held) gone.
    pub(super) fn beat(&mut self, now: Monotonic) {
        let state = match self.phase {
            Phase::New | Phase::Drained => return,
            Phase::Active => NodeState::Active,
            Phase::Draining(_) if self.may_sign_off() => NodeState::Offline,
            Phase::Draining(_) => NodeState::Draining,
        };
        if !self.heart.line.is_free(now) || (state != NodeState::Offline && self.heart.due_at > now) {
            return;
        }
        let id = self.call(Command::Heartbeat(Heartbeat {
            node: self.config.node,
            role: NodeRole::Worker,
            label: self.config.label.clone(),
            schema: self.config.schema,
            state,
            capacity: self.slots(),
            // A worker makes no use of the answer.
            live_within: self.config.heartbeat_every,
        }));
        self.heart.line.begin(id, now, state);
        self.heart.due_at = now.plus(self.config.heartbeat_every);
        if state == NodeState::Offline {
            self.sign_off();
        }
    }

    /// The store answered a `Heartbeat`.
    pub(super) fn heartbeat_answered(&mut self, now: Monotonic, state: NodeState, outcome: &StoreOutcome) {
        let known =
            matches!(outcome, StoreOutcome::Replied(StoreReply { reply: Reply::Heartbeat { .. }, .. }));
        if !known {
            let patience = self.unknown(now);
            self.heart.line.pause(patience);
            // As if it had not been sent: again, after the pause.
            self.heart.hurry(now);
        }
        match state {
            NodeState::Active | NodeState::Draining => {}
            // Known or not: a node that stays silent is found by the sweep.
            NodeState::Offline => self.end_drain(),
        }
    }
}
