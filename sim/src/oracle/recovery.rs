//! Recovery: what is not as it should be yet after the heal, and what it waits for.

use std::collections::BTreeMap;

use fencepost_core::execution::{ExecutionState, WaitReason};
use fencepost_core::id::NodeId;
use fencepost_core::lease::LeaseResource;
use fencepost_core::store::row::{ExecutionRow, JobState};
use fencepost_core::time::Timestamp;

use super::Recovery;
use super::invariant::Invariant;
use super::leases::has_lapsed;
use super::mirror::Mirror;
use crate::violation::Violation;

/// What is unfinished, the thing with the shortest bound first.
pub(super) fn unfinished(mirror: &Mirror, recovery: &Recovery<'_>) -> Option<Violation> {
    leader(mirror, recovery)
        .or_else(|| partitions(mirror, recovery))
        .or_else(|| orphans(mirror, recovery))
        .or_else(|| outbox(mirror, recovery))
        .or_else(|| executions(mirror, recovery))
        .or_else(|| jobs(mirror, recovery))
}

/// Who holds a lease that is current, if it is a scheduler that is up.
fn holder(mirror: &Mirror, recovery: &Recovery<'_>, resource: LeaseResource) -> Option<NodeId> {
    let row = mirror.leases.get(&resource)?;
    let owner = row.owner.filter(|owner| recovery.schedulers.contains(owner))?;
    (!has_lapsed(row.expires_at, recovery.store_now)).then_some(owner)
}

fn leader(mirror: &Mirror, recovery: &Recovery<'_>) -> Option<Violation> {
    if holder(mirror, recovery, LeaseResource::Leadership).is_some() {
        return None;
    }
    let row = mirror.leases.get(&LeaseResource::Leadership);
    let detail = format!("no scheduler that is up holds leadership at {}: {row:?}", recovery.store_now);
    Some(Invariant::LeaderExists.broken(recovery.at, detail))
}

fn partitions(mirror: &Mirror, recovery: &Recovery<'_>) -> Option<Violation> {
    let broken = |detail: String| Some(Invariant::PartitionsOwned.broken(recovery.at, detail));
    let mut shares: BTreeMap<NodeId, u32> = recovery.schedulers.iter().map(|node| (*node, 0)).collect();
    for resource in LeaseResource::all().filter(|resource| *resource != LeaseResource::Leadership) {
        match holder(mirror, recovery, resource) {
            Some(owner) => *shares.entry(owner).or_default() += 1,
            None => {
                return broken(format!(
                    "{resource} has no owner that is up: {:?}",
                    mirror.leases.get(&resource)
                ));
            }
        }
    }
    let (least, most) = (shares.values().min()?, shares.values().max()?);
    if most - least <= 1 { None } else { broken(format!("the shares differ by more than one: {shares:?}")) }
}

fn orphans(mirror: &Mirror, recovery: &Recovery<'_>) -> Option<Violation> {
    let orphan = mirror.live_in(ExecutionState::Running).find(|row| {
        // What lapses after the heal has its own time; what no grant reaches is dead whatever it shows.
        has_lapsed(row.expires_at, recovery.store_now)
            && (row.expires_at <= recovery.healed_store || row.expires_at > recovery.store_now)
    })?;
    Some(
        Invariant::NoOrphanRunning
            .broken(recovery.at, format!("it runs under a lease long dead: {}", describe(orphan))),
    )
}

fn outbox(mirror: &Mirror, recovery: &Recovery<'_>) -> Option<Violation> {
    let row = mirror.outbox.values().find(|row| row.created_at <= recovery.healed_store)?;
    let execution = mirror.executions.get(&row.execution).map(describe);
    let detail = format!("{row:?} is still there at {}; its execution: {execution:?}", recovery.store_now);
    Some(Invariant::OutboxDrains.broken(recovery.at, detail))
}

fn executions(mirror: &Mirror, recovery: &Recovery<'_>) -> Option<Violation> {
    let live = mirror.live.iter().filter_map(|id| mirror.executions.get(id));
    // What a pause holds back waits for whoever paused its job, its queue or its tenant; but not past its deadline.
    let is_held_back = |row: &ExecutionRow| {
        matches!(row.state, ExecutionState::Pending | ExecutionState::RetryWait)
            && row.deadline_at.is_none_or(|at| at > recovery.healed_store)
            && mirror.is_held_back(row)
    };
    // And so does what waits for the slot that such a one holds.
    let waits_for_that = |row: &ExecutionRow| {
        row.waiting == Some(WaitReason::Buffered)
            && mirror
                .live
                .iter()
                .filter_map(|id| mirror.executions.get(id))
                .any(|other| other.job == row.job && other.leased_at.is_some() && is_held_back(other))
    };
    let mut due = live.filter(|row| row.due_at <= recovery.healed_store);
    let stuck = due.find(|row| !is_held_back(row) && !waits_for_that(row))?;
    Some(Invariant::DueWorkEnds.broken(recovery.at, format!("it has not ended: {}", describe(stuck))))
}

fn jobs(mirror: &Mirror, recovery: &Recovery<'_>) -> Option<Violation> {
    let due = |fire: Timestamp| fire <= recovery.healed_store;
    let job = mirror.jobs.values().find(|job| {
        job.state == JobState::Active
            && job.next_fire_time.is_some_and(due)
            && mirror.versions_of(job.id).all(|(version, _)| version.definition.read().is_ok())
    })?;
    let detail = format!(
        "{} of {} stays due at {:?}; the ledger's watermark is {}",
        job.id, job.partition, job.next_fire_time, job.recorded_through
    );
    Some(Invariant::DueWorkEnds.broken(recovery.at, detail))
}

/// Where an execution stands and what it waits for.
fn describe(row: &ExecutionRow) -> String {
    let waits_for = match row.state {
        ExecutionState::Pending => match row.waiting {
            Some(reason) => format!("waits for {reason} until {:?}", row.next_try_at),
            None => {
                format!("dispatched as {:?} at {:?}, not yet acquired", row.dispatch_no, row.dispatched_at)
            }
        },
        ExecutionState::Running => format!("leased to {:?} until {}", row.owner, row.expires_at),
        ExecutionState::RetryWait => format!("waits for its retry at {:?}", row.next_try_at),
        ExecutionState::Completed
        | ExecutionState::DeadLettered
        | ExecutionState::Failed
        | ExecutionState::Cancelled
        | ExecutionState::Skipped => "has ended".to_owned(),
    };
    format!(
        "{} of {}, due {}, {} under {}, {} attempts, {} rescues: {waits_for}",
        row.id, row.job, row.due_at, row.state, row.token, row.attempts, row.rescues
    )
}
