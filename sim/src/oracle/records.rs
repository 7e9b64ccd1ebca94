//! Records: dead letters, refusals, repeated repairs, and the wall between tenants.

use std::collections::BTreeSet;

use fencepost_core::execution::ExecutionState;
use fencepost_core::id::{NodeId, TenantId};
use fencepost_core::lease::RunId;
use fencepost_core::store::change::{Change, Delta};
use fencepost_core::store::command::{Command, OutboxId, RepairItem};
use fencepost_core::store::reply::{
    FinishReply, HoldReply, MaterialiseReply, PutOffReply, RenewReply, RepairItemReply, RepairReply, Reply,
};
use fencepost_core::time::Timestamp;

use super::Commit;
use super::invariant::Invariant;
use super::mirror::Mirror;
use crate::violation::Violation;

/// One repair, by what it had observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Repaired {
    TakenOver(RunId),
    Redispatched(OutboxId),
    Dropped(OutboxId),
    Retired(NodeId, Timestamp),
}

/// What is remembered of records.
#[derive(Debug, Default)]
pub(super) struct Records {
    repaired: BTreeSet<Repaired>,
}

impl Records {
    /// Checks a whole command. The mirror is as after it.
    pub(super) fn check(
        &mut self,
        commit: &Commit<'_>,
        mirror: &Mirror,
        changes: &[Change],
    ) -> Result<(), Violation> {
        check_dead_letters(commit, mirror, changes)?;
        check_refusals(commit, changes)?;
        check_tenants(commit, changes)?;
        self.check_repairs(commit)
    }

    /// A repair that has been done is not done again: what it had observed is gone.
    fn check_repairs(&mut self, commit: &Commit<'_>) -> Result<(), Violation> {
        let (Command::Repair(ask), Reply::Repaired(RepairReply::Applied(replies))) =
            (commit.command, commit.reply)
        else {
            return Ok(());
        };
        let done = ask.items.iter().zip(replies).filter(|(_, reply)| **reply == RepairItemReply::Done);
        for (item, _) in done {
            let repair = match item {
                RepairItem::TakeOver { run, .. } => Repaired::TakenOver(*run),
                RepairItem::Redispatch { dispatch } => Repaired::Redispatched(*dispatch),
                RepairItem::DropOutbox { row } => Repaired::Dropped(*row),
                RepairItem::RetireNode { node, seen_at } => Repaired::Retired(*node, *seen_at),
            };
            if !self.repaired.insert(repair) {
                return Err(
                    commit.broke(Invariant::SweepIdempotent, || format!("{repair:?} was done a second time"))
                );
            }
        }
        Ok(())
    }
}

fn check_dead_letters(commit: &Commit<'_>, mirror: &Mirror, changes: &[Change]) -> Result<(), Violation> {
    let broke = |detail: String| Err(commit.broke(Invariant::DeadLetterOnce, || detail));
    for change in changes {
        match change {
            Change::DeadLetter(Delta { before: None, after: Some(row) }) => {
                let state = mirror.executions.get(&row.execution).map(|execution| execution.state);
                if state != Some(ExecutionState::DeadLettered) {
                    return broke(format!("a record was made of {}, which is {state:?}", row.execution));
                }
            }
            Change::DeadLetter(delta) => return broke(format!("a record changed or went: {delta:?}")),
            Change::Execution(delta) => {
                let Some(after) = &delta.after else { continue };
                let dead = after.state == ExecutionState::DeadLettered;
                if dead != mirror.dead_letters.contains(&after.id) {
                    return broke(format!(
                        "{} is {}, and its dead-letter record says otherwise",
                        after.id, after.state
                    ));
                }
            }
            Change::Tenant(_)
            | Change::Lease(_)
            | Change::Node(_)
            | Change::Job(_)
            | Change::JobVersion(_)
            | Change::Attempt(_)
            | Change::Outbox(_)
            | Change::SkippedRange(_)
            | Change::Refusal(_)
            | Change::Request(_)
            | Change::Malformed(_) => {}
        }
    }
    Ok(())
}

/// Every refusal in a reply is recorded in the same commit. Repeats of one may share a row.
fn check_refusals(commit: &Commit<'_>, changes: &[Change]) -> Result<(), Violation> {
    let refused = refusals(commit);
    if refused == 0 {
        return Ok(());
    }
    let mut recorded = 0;
    for change in changes {
        if let Change::Refusal(delta) = change {
            let count = |row: &Option<fencepost_core::store::row::RefusalRow>| {
                row.as_ref().map_or(0, |row| row.count)
            };
            recorded += count(&delta.after).saturating_sub(count(&delta.before));
        }
    }
    if recorded >= refused {
        return Ok(());
    }
    Err(commit.broke(Invariant::LedgerOfRefusals, || {
        format!("{} was refused {refused} times, and {recorded} were recorded", commit.command.kind())
    }))
}

fn refusals(commit: &Commit<'_>) -> u64 {
    let count = |refused: usize| refused as u64;
    match commit.reply {
        Reply::LeasesRenewed(replies) => {
            count(replies.iter().filter(|reply| matches!(reply, HoldReply::Refused { .. })).count())
        }
        Reply::Materialised(replies) => count(
            replies
                .iter()
                .filter(|reply| {
                    matches!(
                        reply,
                        MaterialiseReply::StaleLease { .. } | MaterialiseReply::VersionChanged { .. }
                    )
                })
                .count(),
        ),
        Reply::JobsPutOff(replies) => {
            count(replies.iter().filter(|reply| matches!(reply, PutOffReply::StaleLease { .. })).count())
        }
        Reply::Promoted { refused, .. } => count(refused.len()),
        Reply::Repaired(RepairReply::StaleLeadership { .. }) => 1,
        Reply::RunsRenewed(replies) => {
            count(replies.iter().filter(|reply| matches!(reply, RenewReply::Refused { .. })).count())
        }
        Reply::Finished(replies) => {
            count(replies.iter().filter(|reply| matches!(reply, FinishReply::Refused { .. })).count())
        }
        Reply::Clock
        | Reply::Heartbeat { .. }
        | Reply::Leadership(_)
        | Reply::Partitions { .. }
        | Reply::LeasesReleased(_)
        | Reply::DueJobs { .. }
        | Reply::Outbox { .. }
        | Reply::OutboxRemoved(_)
        | Reply::OutboxReturned(_)
        | Reply::Sweep(_)
        | Reply::Repaired(RepairReply::Applied(_))
        | Reply::Acquired(_)
        | Reply::Deferred(_)
        | Reply::MalformedRecorded
        | Reply::TenantCreated(_)
        | Reply::JobCreated(_)
        | Reply::JobDeleted(_)
        | Reply::JobTriggered(_)
        | Reply::ExecutionCancelled(_) => 0,
    }
}

/// What an operator's command changes is its tenant's.
fn check_tenants(commit: &Commit<'_>, changes: &[Change]) -> Result<(), Violation> {
    let Some(tenant) = tenant_of(commit.command) else { return Ok(()) };
    let foreign = changes.iter().flat_map(tenants_in).find(|other| *other != tenant);
    match foreign {
        None => Ok(()),
        Some(other) => Err(commit.broke(Invariant::TenantWall, || {
            format!("{} of tenant {tenant} changed a row of {other}", commit.command.kind())
        })),
    }
}

fn tenant_of(command: &Command) -> Option<TenantId> {
    match command {
        Command::CreateJob(ask) => Some(ask.tenant),
        Command::DeleteJob(ask) => Some(ask.tenant),
        Command::TriggerJob(ask) => Some(ask.tenant),
        Command::CancelExecution(ask) => Some(ask.tenant),
        _ => None,
    }
}

fn tenants_in(change: &Change) -> Vec<TenantId> {
    fn both<Row>(delta: &Delta<Row>, tenant: impl Fn(&Row) -> TenantId) -> Vec<TenantId> {
        delta.before.iter().chain(&delta.after).map(tenant).collect()
    }
    match change {
        Change::Job(delta) => both(delta, |row| row.tenant),
        Change::JobVersion(delta) => both(delta, |row| row.tenant),
        Change::Execution(delta) => both(delta, |row| row.tenant),
        Change::Attempt(delta) => both(delta, |row| row.tenant),
        Change::Outbox(delta) => both(delta, |row| row.tenant),
        Change::DeadLetter(delta) => both(delta, |row| row.tenant),
        Change::SkippedRange(delta) => both(delta, |row| row.tenant),
        Change::Request(delta) => both(delta, |row| row.tenant),
        Change::Tenant(_)
        | Change::Lease(_)
        | Change::Node(_)
        | Change::Refusal(_)
        | Change::Malformed(_) => Vec::new(),
    }
}
