//! The processes of a run: their settings, clocks and supervisors.

use core::fmt;

use fencepost_core::config::{SchedulerConfig, WorkerConfig};
use fencepost_core::time::{Monotonic, Span};
use serde::{Deserialize, Serialize};

use crate::sim_time::SimTime;

/// The place of a process: it keeps its slot when it starts again, as another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeSlot(u8);

impl NodeSlot {
    /// The slot of this number.
    ///
    /// # Panics
    /// If there are more than 250, which no plan has.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self(u8::try_from(index).expect("plans have at most 250 nodes"))
    }

    /// Its number.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Its number, as the trace names it.
    #[must_use]
    pub const fn lane(self) -> u8 {
        self.0
    }
}

impl fmt::Display for NodeSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// A scheduler process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerSpec {
    /// Its settings; the node id is that of its first start, those of later ones are derived from it.
    pub config: SchedulerConfig,
    /// How it lives.
    pub process: ProcessSpec,
}

/// A worker process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerSpec {
    /// Its settings; the node id is that of its first start, those of later ones are derived from it.
    pub config: WorkerConfig,
    /// How it lives.
    pub process: ProcessSpec,
}

/// How a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessSpec {
    /// When it first starts.
    pub starts: SimTime,
    /// What its steady clock shows then.
    pub clock_origin: Monotonic,
    /// By how many parts in a million that clock runs fast (or slow).
    pub drift_ppm: i32,
    /// How long its supervisor takes to start it again when it died of itself.
    pub restart_after: Span,
}
