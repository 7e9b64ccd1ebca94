//! Concurrency limits: what runs of a tenant or a key, counted anew from the rows at each grant, against the limit that is
//! in force at that moment; and that nothing waits for a limit which has room.

use fencepost_core::execution::{ExecutionState, WaitReason};
use fencepost_core::id::TenantId;
use fencepost_core::store::change::Delta;
use fencepost_core::store::row::ExecutionRow;

use super::Commit;
use super::executions::definition_of;
use super::invariant::Invariant;
use super::mirror::Mirror;
use crate::violation::Violation;

fn key_of(mirror: &Mirror, row: &ExecutionRow) -> Option<String> {
    let definition = definition_of(mirror, row)?;
    definition.concurrency_key.as_ref().map(|key| key.to_string())
}

/// The limit in force of a tenant, or of one of its keys.
fn most(mirror: &Mirror, tenant: TenantId, key: &str) -> Option<usize> {
    let limit = mirror.limits.get(&(tenant, key.into()))?;
    limit.max_running.map(|most| most as usize)
}

/// How many others run that count with an execution: all of its tenant, or those of its key.
fn beside(mirror: &Mirror, row: &ExecutionRow, key: Option<&str>) -> usize {
    let running = mirror.live_in(ExecutionState::Running);
    let counts = |other: &&ExecutionRow| {
        other.tenant == row.tenant
            && other.id != row.id
            && key.is_none_or(|key| key_of(mirror, other).as_deref() == Some(key))
    };
    running.filter(counts).count()
}

/// Whether a limit of an execution is reached without it: the tenant's, or its key's.
fn is_full(mirror: &Mirror, row: &ExecutionRow, key: Option<&str>) -> bool {
    most(mirror, row.tenant, key.unwrap_or_default()).is_some_and(|most| beside(mirror, row, key) >= most)
}

/// Checks one change of an execution. The mirror is as before it.
pub(super) fn check_change(
    commit: &Commit<'_>,
    mirror: &Mirror,
    delta: &Delta<ExecutionRow>,
) -> Result<(), Violation> {
    let (Some(before), Some(after)) = (&delta.before, &delta.after) else { return Ok(()) };
    let starts = before.state == ExecutionState::Pending && after.state == ExecutionState::Running;
    let waits = |reason| after.waiting == Some(reason) && before.waiting != Some(reason);
    if !starts && !waits(WaitReason::TenantLimit) && !waits(WaitReason::KeyLimit) {
        return Ok(());
    }
    let key = key_of(mirror, after);
    let tenant_is_full = is_full(mirror, after, None);
    let key_is_full = key.as_deref().is_some_and(|key| is_full(mirror, after, Some(key)));
    let broken = match after.waiting {
        None if starts && tenant_is_full => "was granted beyond its tenant's limit",
        None if starts && key_is_full => "was granted beyond the limit of its key",
        Some(WaitReason::TenantLimit) if !tenant_is_full => "waits for its tenant's limit, which has room",
        Some(WaitReason::KeyLimit) if !key_is_full => "waits for the limit of its key, which has room",
        Some(_) | None => return Ok(()),
    };
    Err(commit.broke(Invariant::LimitsHonoured, || format!("{} of key {key:?} {broken}", after.id)))
}

/// Whether a limit may stand in the way of an execution that asks for a lease: its tenant has one.
pub(super) fn may_wait(mirror: &Mirror, row: &ExecutionRow) -> bool {
    mirror.limits.values().any(|limit| limit.tenant == row.tenant && limit.max_running.is_some())
}
