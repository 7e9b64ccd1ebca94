//! Drains: a node that says it is done has given back what it knows to hold.
//!
//! What it does not know of (a grant whose reply was lost, or that comes later) lapses by itself, and so does
//! what it holds for a handler that would not stop. A drain that was cut short by its limit leaves behind what it
//! must; but what it is still at work on, it has told to stop.

use std::collections::BTreeMap;

use fencepost_core::execution::ExecutionState;
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::NodeId;
use fencepost_core::lease::{LeaseResource, RunId};
use fencepost_core::store::reply::{LeadershipReply, Reply};
use fencepost_core::time::Timestamp;

use super::DrainEnd;
use super::invariant::Invariant;
use super::leases::has_lapsed;
use super::mirror::Mirror;
use super::runs::Runs;
use crate::sim_time::SimTime;
use crate::violation::Violation;

/// The leases that nodes have been told they hold, by their latest token.
#[derive(Debug, Default)]
pub(super) struct Drains {
    told: BTreeMap<NodeId, BTreeMap<LeaseResource, FencingToken>>,
}

/// A node that has just reported the end of its drain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) at: SimTime,
    pub(super) store_now: Timestamp,
    pub(super) node: NodeId,
    pub(super) how: DrainEnd,
}

impl Drains {
    /// A node has heard an answer.
    pub(super) fn on_heard(&mut self, node: NodeId, reply: &Reply) {
        if let Reply::Leadership(LeadershipReply::Granted { token }) = reply {
            self.told.entry(node).or_default().insert(LeaseResource::Leadership, *token);
        } else if let Reply::Partitions { granted } = reply
            && !granted.is_empty()
        {
            let told = self.told.entry(node).or_default();
            told.extend(granted.iter().map(|held| (held.resource, held.token)));
        }
    }

    /// A process is gone: nobody asks what it was told.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.told.remove(&node);
    }

    /// Checks what a drain leaves behind.
    pub(super) fn check(&self, left: &Left, mirror: &Mirror, runs: &Runs) -> Result<(), Violation> {
        let node = left.node;
        let broke = |what: String| {
            let detail = format!("{node} says that it is drained, and {what}");
            Err(Invariant::DrainedHoldsNothing.broken(left.at, detail))
        };
        if let Some(run) = runs.at_work(node) {
            return broke(format!("has not told the handler of {run:?} to stop"));
        }
        if left.how == DrainEnd::CutShort {
            return Ok(());
        }
        for (resource, token) in self.told.get(&node).into_iter().flatten() {
            let held = mirror.leases.get(resource).filter(|row| {
                row.owner == Some(node) && row.token == *token && !has_lapsed(row.expires_at, left.store_now)
            });
            if let Some(row) = held {
                return broke(format!("holds {row:?}"));
            }
        }
        let mut running = mirror.live_in(ExecutionState::Running).filter(|row| row.owner == Some(node));
        let kept = running.find(|row| {
            let run = RunId { execution: row.id, token: row.token };
            runs.has_ended_unasked(run) && !has_lapsed(row.expires_at, left.store_now)
        });
        match kept {
            Some(row) => broke(format!("holds {} under {}, whose handler has ended", row.id, row.token)),
            None => Ok(()),
        }
    }
}
