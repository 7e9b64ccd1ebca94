//! What operators do while the cluster works.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::workload::JobIndex;
use crate::sim_time::SimTime;

/// One request of an operator, sent again until it is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorAction {
    /// When.
    pub at: SimTime,
    /// How often at once; each copy is the same request.
    pub copies: u8,
    /// What.
    pub what: Action,
}

/// What an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Create a job.
    Create {
        /// Which.
        job: JobIndex,
    },
    /// Run a job by hand.
    Trigger {
        /// Which.
        job: JobIndex,
        /// The caller's key.
        key: Arc<str>,
    },
    /// Cancel the job's newest execution, whatever its state.
    CancelNewest {
        /// Which job's.
        job: JobIndex,
    },
    /// Delete a job.
    Delete {
        /// Which.
        job: JobIndex,
    },
}
