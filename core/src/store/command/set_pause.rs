//! Pausing a tenant or a handler queue, and resuming it.

use std::sync::Arc;

use crate::id::{PauseId, TenantId};
use crate::pause::PauseScope;
use crate::store::command::OperatorRequest;

/// [`Command::SetPause`](super::Command::SetPause). Checked in this order: the tenant is there; the request id; and then,
/// of a pause, that its scope is not paused already and that its id is new; of a resume, that there is such a pause of
/// this tenant and that it has not ended. What stands as asked for is answered so, and nothing is written.
///
/// A pause: its row, since now. While it stands, an acquire of what it reaches is answered "not now".
///
/// A resume: the row says when it ended, by whom and why. Of what it held back, the first `at_once` by id (at most
/// [`BATCH_MAX`](crate::limits::BATCH_MAX)) are tried again now. If more wait, `lift_until` =
/// [`HELD_RECHECK`](crate::limits::HELD_RECHECK) from now: until then whoever promotes in a partition
/// ([`PromoteDue`](super::PromoteDue)) picks them up as well; after that each has come due by itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetPause {
    /// Whose work.
    pub tenant: TenantId,
    /// The caller's request id: the same one gets the same answer again.
    pub request: Option<OperatorRequest>,
    /// What is asked for.
    pub change: PauseChange,
    /// Who asks.
    pub actor: Arc<str>,
    /// Why.
    pub reason: Arc<str>,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PauseChange {
    /// Nothing there is to start from now on.
    Pause {
        /// The pause; random, made by whoever asks.
        pause: PauseId,
        /// What it reaches.
        scope: PauseScope,
    },
    /// The pause is over.
    Resume {
        /// Which.
        pause: PauseId,
        /// How much of what it held back is tried again by the command itself.
        at_once: u32,
    },
}
