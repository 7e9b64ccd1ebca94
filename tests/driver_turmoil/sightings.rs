//! Sightings: what the hosts did, for the oracles to look at, in the order in which it happened.
//!
//! Hosts only write down; the oracles, outside the simulated network, read between two of its steps. So whatever an
//! oracle does changes nothing in a run, and what it says cannot be swallowed by the host on which it happened.

use std::sync::{Arc, Mutex, MutexGuard};

use fencepost_core::id::{DispatchNo, ExecutionId, NodeId};
use fencepost_core::store::change::Change;
use fencepost_core::store::command::Command;
use fencepost_core::store::reply::StoreReply;
use fencepost_core::time::{Span, Timestamp};
use fencepost_sim::oracle::{DrainEnd, HandlerObservation};
use fencepost_sim::sim_time::SimTime;

/// When the simulation begins, by the store's clock: 2026-01-01.
pub(crate) const BEGINNING: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// What the store's clock shows at a moment of the run.
pub(crate) const fn store_clock(at: SimTime) -> Timestamp {
    BEGINNING.plus(at.since(SimTime::ZERO))
}

/// Something that was done.
#[expect(clippy::large_enum_variant, reason = "most of what is seen are commits")]
pub(crate) enum Sighting {
    /// The store committed a command, for a node or (`None`) for whoever set it up.
    Committed { node: Option<NodeId>, command: Command, reply: StoreReply, changes: Vec<Change> },
    /// The broker confirmed a message.
    Confirmed { execution: ExecutionId, dispatch_no: DispatchNo },
    /// A node heard what the store answered it.
    Heard { node: NodeId, reply: StoreReply },
    /// A handler, or its worker, did something.
    Handler(HandlerObservation),
    /// A node reported that its drain is over.
    Drained { node: NodeId, how: DrainEnd },
    /// A node's process ended, in whatever way.
    Ended { node: NodeId },
}

/// Where they are written down.
#[derive(Clone, Default)]
pub(crate) struct Sightings(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    latest: SimTime,
    list: Vec<(SimTime, Sighting)>,
}

impl Sightings {
    /// What the simulated clock shows on the host that asks.
    pub(crate) fn now() -> SimTime {
        let elapsed = turmoil::sim_elapsed().expect("a host of the simulation asks");
        SimTime::ZERO.plus(Span::from(elapsed))
    }

    /// Writes something down that a host does.
    pub(crate) fn add(&self, sighting: Sighting) {
        self.add_at(Self::now(), sighting);
    }

    /// The same for what happened at this moment.
    pub(crate) fn add_at(&self, at: SimTime, sighting: Sighting) {
        let mut seen = self.lock();
        seen.latest = seen.latest.max(at);
        seen.list.push((at, sighting));
    }

    /// The same for what happens to a host as it dies, when it has no clock any more.
    pub(crate) fn add_in_passing(&self, sighting: Sighting) {
        let mut seen = self.lock();
        let at = seen.latest;
        seen.list.push((at, sighting));
    }

    /// Takes all that was written down.
    pub(crate) fn take(&self) -> Vec<(SimTime, Sighting)> {
        core::mem::take(&mut self.lock().list)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().expect("nobody panics while holding it")
    }
}
