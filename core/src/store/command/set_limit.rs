//! Setting a concurrency limit: how many executions of a tenant, or of one of its concurrency keys, run at once.

use std::sync::Arc;

use crate::id::{NodeId, TenantId};
use crate::store::command::OperatorRequest;

/// [`Command::SetLimit`](super::Command::SetLimit). Checked in this order: the tenant, the request id. Applied: the
/// limit's row, made where there is none; then, up to [`LIMIT_LIFTS_MAX`](crate::limits::LIMIT_LIFTS_MAX) of what waits
/// for a limit of the tenant and would be granted now is dispatched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetLimit {
    /// Whose it is.
    pub tenant: TenantId,
    /// Of which concurrency key; `None`: of all that the tenant runs.
    pub key: Option<Arc<str>>,
    /// How many may run at once; `None`: any number.
    pub max_running: Option<u32>,
    /// The caller's request id, with a digest of what was asked: the same one again changes nothing.
    pub request: Option<OperatorRequest>,
    /// Who sets it.
    pub actor: Arc<str>,
    /// Why.
    pub reason: Arc<str>,
    /// Who commits the outbox rows.
    pub node: NodeId,
}
