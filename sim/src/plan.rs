//! Plans: everything about a run that is not the code under test, explicit and serialisable.
//!
//! A seed expands to a plan ([`generate`]) and a plan runs without its seed: topology, settings, workload,
//! operators, faults, the moment when everything heals, and the key of every stream of random draws that the
//! run makes. So a plan file replays to the hash of its seed, and shrinking works on plans. The file is JSON
//! and carries the version of its format; a reader refuses any other.

mod action;
mod bound;
mod check;
mod faults;
pub mod generate;
mod network;
mod profile;
mod topology;
mod workload;

use fencepost_core::id::TenantId;
use fencepost_core::time::Timestamp;
use serde::{Deserialize, Serialize};

pub use action::{Action, Authority, OperatorAction, Timing};
pub(crate) use bound::RETRY_AFTER;
pub use bound::{Bounds, JobLoad, Settings};
pub use check::PlanError;
pub use faults::{FaultSpec, Target};
pub use network::{DelayRange, NetworkSpec};
pub use profile::Profile;
pub use topology::{NodeSlot, ProcessSpec, SchedulerSpec, WorkerSpec};
pub use workload::{
    Behaviour, BehaviourKind, Creation, Definition, Enforcement, JobIndex, JobSpec, OutsideIndex, OutsideSpec,
};

use crate::rng::StreamKey;
use crate::sim_time::SimTime;

/// The version of the plan format that is written and read.
pub const PLAN_FORMAT: u32 = 1;

/// Everything about a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`PLAN_FORMAT`].
    pub format: u32,
    /// The profile that it was made from.
    pub profile: String,
    /// The seed that it was made from; a run does not use it.
    pub seed: u64,
    /// The keys of the run's streams.
    pub streams: Streams,
    /// What the store's clock shows when the run begins.
    pub starts_at: Timestamp,
    /// Whether a change of clocks in a job's zone falls into the run.
    pub daylight_saving: bool,
    /// Delays and chances that are no faults.
    pub network: NetworkSpec,
    /// The scheduler processes: the first node slots.
    pub schedulers: Vec<SchedulerSpec>,
    /// The worker processes: the node slots after them.
    pub workers: Vec<WorkerSpec>,
    /// The systems that handlers call.
    pub outside: Vec<OutsideSpec>,
    /// The tenants, there from the start.
    pub tenants: Vec<TenantId>,
    /// The jobs.
    pub jobs: Vec<JobSpec>,
    /// What operators do, and when.
    pub actions: Vec<OperatorAction>,
    /// What goes wrong, and when.
    pub faults: Vec<FaultSpec>,
    /// When and how it all ends.
    pub heal: HealSpec,
}

/// The keys of every stream that a run draws from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// The order of what happens at one moment.
    pub tie_break: StreamKey,
    /// The links between nodes and the store.
    pub store_links: StreamKey,
    /// The links between nodes and the broker.
    pub broker_links: StreamKey,
    /// The store.
    pub store: StreamKey,
    /// The broker.
    pub broker: StreamKey,
    /// Processes.
    pub processes: StreamKey,
    /// Handlers and what they call.
    pub handlers: StreamKey,
}

impl Streams {
    /// Those of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let key = |name| StreamKey::of(seed, name);
        Self {
            tie_break: key("tie-break"),
            store_links: key("store-links"),
            broker_links: key("broker-links"),
            store: key("store"),
            broker: key("broker"),
            processes: key("processes"),
            handlers: key("handlers"),
        }
    }
}

/// How a run ends: at `at` every fault is over and every process that is down starts again, except for those
/// that stay dead; then all due work must end within the computed bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealSpec {
    /// When.
    pub at: SimTime,
    /// Nodes that are killed then, for good: what remains must do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead: Vec<NodeSlot>,
    /// A node that drains once all is well; it must end in time, and the others must take over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drains: Option<NodeSlot>,
}

impl Plan {
    /// How many node slots there are.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.schedulers.len() + self.workers.len()
    }

    /// The slot of this scheduler.
    #[must_use]
    pub fn scheduler_slot(index: usize) -> NodeSlot {
        NodeSlot::new(index)
    }

    /// The slot of this worker.
    #[must_use]
    pub fn worker_slot(&self, index: usize) -> NodeSlot {
        NodeSlot::new(self.schedulers.len() + index)
    }

    /// Whether this slot is a scheduler's.
    #[must_use]
    pub fn is_scheduler(&self, slot: NodeSlot) -> bool {
        slot.index() < self.schedulers.len()
    }

    /// The plan as JSON, for people too.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a plan has no map keys that are not text")
    }

    /// Reads and checks a plan.
    ///
    /// # Errors
    /// [`PlanError`], with what is wrong and where.
    pub fn from_json(text: &str) -> Result<Self, PlanError> {
        check::read(text)
    }
}
