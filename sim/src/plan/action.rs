//! What operators do while the cluster works.

use std::sync::Arc;

use fencepost_core::job::{HandlerRef, JobDefinition};
use fencepost_core::schedule::Days;
use fencepost_core::store::command::ReplayKey;
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
    /// Under whose authority.
    #[serde(default, skip_serializing_if = "Authority::is_owner")]
    pub under: Authority,
    /// Why then.
    #[serde(default, skip_serializing_if = "Timing::is_chance")]
    pub timing: Timing,
}

/// Why an operator asks just then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// By chance.
    #[default]
    Chance,
    /// The job fires.
    Fire,
}

impl Timing {
    fn is_chance(&self) -> bool {
        *self == Self::Chance
    }
}

/// Under whose authority an operator asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Authority {
    /// That of the tenant whose job it is.
    #[default]
    Owner,
    /// That of another tenant, who must be told that there is no such thing.
    Stranger,
}

impl Authority {
    fn is_owner(&self) -> bool {
        *self == Self::Owner
    }
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
    /// Cancel whatever has been running for longest.
    CancelStuck,
    /// Give a job another definition.
    Edit {
        /// Which.
        job: JobIndex,
        /// What it is to be from then on.
        to: Box<JobDefinition>,
    },
    /// Pause a job.
    Pause {
        /// Which.
        job: JobIndex,
    },
    /// Resume a job.
    Resume {
        /// Which.
        job: JobIndex,
    },
    /// Pause a tenant, or a queue of one.
    PauseWork {
        /// Whose: a place in the plan's tenants.
        tenant: u8,
        /// Which handler's queue; all of the tenant's work, where none is given.
        queue: Option<HandlerRef>,
    },
    /// Resume a tenant, or a queue of one.
    ResumeWork {
        /// Whose: a place in the plan's tenants.
        tenant: u8,
        /// Which handler's queue.
        queue: Option<HandlerRef>,
        /// How much the resume itself lets go.
        at_once: u32,
    },
    /// Set a concurrency limit, or take it away.
    SetLimit {
        /// Whose: a place in the plan's tenants.
        tenant: u8,
        /// Of which key; of all that the tenant runs, where none is given.
        key: Option<Arc<str>>,
        /// How many; any number, where none is given.
        max_running: Option<u32>,
    },
    /// Set a calendar, or take it away.
    SetCalendar {
        /// Whose: a place in the plan's tenants.
        tenant: u8,
        /// Its name.
        name: Arc<str>,
        /// Its days; taken away, where none are given.
        days: Option<Days>,
    },
    /// Delete a job.
    Delete {
        /// Which.
        job: JobIndex,
    },
    /// Replay a dead letter.
    Replay {
        /// Which: counted in the order of their deaths, and around.
        nth: u32,
        /// Which replay of it; the next, under a request id of this action's, where none is given.
        number: Option<u32>,
        /// Which idempotency key it is to have.
        key: ReplayKey,
    },
    /// Replay all of a tenant's dead letters, page by page.
    ReplayAll {
        /// Whose: a place in the plan's tenants.
        tenant: u8,
        /// Dead letters in a page.
        page: u32,
        /// After how many pages the operator is gone.
        pages: u32,
    },
    /// Purge a dead letter.
    Purge {
        /// Which: counted in the order of their deaths, and around.
        nth: u32,
    },
}
