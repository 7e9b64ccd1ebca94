//! Records: dead letters, refusals, repeated repairs, the wall between tenants, and that nothing is forgotten.

use std::collections::BTreeSet;

use fencepost_core::execution::ExecutionState;
use fencepost_core::id::{NodeId, TenantId};
use fencepost_core::lease::RunId;
use fencepost_core::store::change::{Change, Delta};
use fencepost_core::store::command::{Command, OutboxId, PauseChange, RepairItem};
use fencepost_core::store::reply::{
    AcquireReply, CancelReply, ChangeJobReply, DeleteJobReply, FinishReply, HoldReply, MadeExecution,
    MaterialiseReply, PurgeReply, PutOffReply, RenewReply, RepairItemReply, RepairReply, ReplayReply, Reply,
    SetPauseReply, TriggerReply,
};
use fencepost_core::store::row::{RefusalRow, RefusedResource};
use fencepost_core::time::Timestamp;

use super::Commit;
use super::brief::Brief;
use super::claims;
use super::dead_letters::{self, Replays};
use super::invariant::Invariant;
use super::mirror::Mirror;
use crate::violation::Violation;

/// One repair, by what it had observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Repaired {
    TakenOver(RunId),
    Redispatched(OutboxId),
    Dropped(OutboxId),
    Overdue(RunId),
    Retired(NodeId, Timestamp),
}

/// What is remembered of records.
#[derive(Debug, Default)]
pub(super) struct Records {
    repaired: BTreeSet<Repaired>,
    replays: Replays,
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
        check_refusals(commit, mirror, changes)?;
        check_tenants(commit, mirror, changes)?;
        check_nothing_forgotten(commit, mirror, changes)?;
        self.replays.check_claims(commit, mirror, changes)?;
        claims::check(commit, mirror, changes)
    }

    /// A repair that has been done is not done again: what it had observed is gone. A run that was taken over
    /// and has a successor is the successor's: taking it over again is a write past its token, and judged as one.
    /// The mirror is as before the command.
    pub(super) fn check_repairs(&mut self, commit: &Commit<'_>, mirror: &Mirror) -> Result<(), Violation> {
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
                RepairItem::EndOverdue { run, .. } => Repaired::Overdue(*run),
                RepairItem::RetireNode { node, seen_at } => Repaired::Retired(*node, *seen_at),
            };
            let is_anothers = matches!(item, RepairItem::TakeOver { run, .. } if mirror
                .executions
                .get(&run.execution)
                .is_some_and(|row| row.state == ExecutionState::Running && row.token != run.token));
            if !self.repaired.insert(repair) && !is_anothers {
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
            Change::DeadLetter(delta) => dead_letters::check_record(commit, mirror, delta)?,
            Change::Execution(delta) => {
                let Some(after) = &delta.after else { continue };
                let dead = after.state == ExecutionState::DeadLettered;
                if dead != mirror.dead_letters.contains_key(&after.id) {
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
            | Change::Pause(_)
            | Change::Limit(_)
            | Change::Calendar(_)
            | Change::Malformed(_) => {}
        }
    }
    Ok(())
}

/// Every refusal in a reply is recorded in the same commit. Repeats of one may share a row.
pub(super) fn check_refusals(
    commit: &Commit<'_>,
    mirror: &Mirror,
    changes: &[Change],
) -> Result<(), Violation> {
    let refused = refusals(commit);
    if refused == 0 {
        return Ok(());
    }
    let mut recorded = 0;
    for change in changes {
        if let Change::Refusal(delta) = change {
            check_current_token(commit, mirror, delta)?;
            let count = |row: &Option<RefusalRow>| row.as_ref().map_or(0, |row| row.count);
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

/// A new record names the token that is current: no command that is refused changes one.
fn check_current_token(
    commit: &Commit<'_>,
    mirror: &Mirror,
    delta: &Delta<RefusalRow>,
) -> Result<(), Violation> {
    let (None, Some(row)) = (&delta.before, &delta.after) else { return Ok(()) };
    let current = match row.resource {
        RefusedResource::Lease(resource) => mirror.leases.get(&resource).map(|lease| lease.token),
        RefusedResource::Execution(id) => mirror.executions.get(&id).map(|execution| execution.token),
    };
    match current {
        Some(current) if current != row.current => Err(commit.broke(Invariant::LedgerOfRefusals, || {
            format!("the current token is {current}, not as recorded: {}", Brief(row))
        })),
        Some(_) | None => Ok(()),
    }
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
        | Reply::JobChanged(_)
        | Reply::JobDeleted(_)
        | Reply::JobTriggered(_)
        | Reply::ExecutionCancelled(_)
        | Reply::PauseSet(_)
        | Reply::DeadLetterReplayed(_)
        | Reply::DeadLettersReplayed(_)
        | Reply::DeadLetterPurged(_)
        | Reply::LimitSet(_)
        | Reply::CalendarSet(_) => 0,
    }
}

/// What an operator's command changes is its tenant's, and what is another's it is told not to exist.
fn check_tenants(commit: &Commit<'_>, mirror: &Mirror, changes: &[Change]) -> Result<(), Violation> {
    let Some(tenant) = tenant_of(commit.command) else { return Ok(()) };
    if let Some(owner) = owner_of_asked(commit.command, mirror).filter(|owner| *owner != tenant)
        && !is_not_found(commit.reply)
    {
        return Err(commit.broke(Invariant::TenantWall, || {
            format!(
                "tenant {tenant} asked for {} of what is {owner}'s, and was told {:?}",
                commit.command.kind(),
                commit.reply
            )
        }));
    }
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
        Command::ChangeJob(ask) => Some(ask.tenant),
        Command::DeleteJob(ask) => Some(ask.tenant),
        Command::TriggerJob(ask) => Some(ask.tenant),
        Command::CancelExecution(ask) => Some(ask.tenant),
        Command::SetPause(ask) => Some(ask.tenant),
        Command::ReplayDeadLetter(ask) => Some(ask.tenant),
        Command::ReplayDeadLetters(ask) => Some(ask.tenant),
        Command::PurgeDeadLetter(ask) => Some(ask.tenant),
        Command::SetLimit(ask) => Some(ask.tenant),
        Command::SetCalendar(ask) => Some(ask.tenant),
        _ => None,
    }
}

/// Whose it is what an operator's command names.
fn owner_of_asked(command: &Command, mirror: &Mirror) -> Option<TenantId> {
    let job = |job| mirror.jobs.get(job).map(|row| row.tenant);
    let execution = |id| mirror.executions.get(id).map(|row| row.tenant);
    match command {
        Command::ChangeJob(ask) => job(&ask.job),
        Command::DeleteJob(ask) => job(&ask.job),
        Command::TriggerJob(ask) => job(&ask.job),
        Command::CancelExecution(ask) => execution(&ask.execution),
        Command::SetPause(ask) => match &ask.change {
            PauseChange::Pause { .. } => None,
            PauseChange::Resume { pause, .. } => mirror.paused.get(pause).map(|row| row.tenant),
        },
        Command::ReplayDeadLetter(ask) => execution(&ask.origin),
        Command::PurgeDeadLetter(ask) => execution(&ask.execution),
        _ => None,
    }
}

fn is_not_found(reply: &Reply) -> bool {
    matches!(
        reply,
        Reply::JobChanged(ChangeJobReply::NotFound)
            | Reply::JobDeleted(DeleteJobReply::NotFound)
            | Reply::JobTriggered(TriggerReply::NotFound)
            | Reply::ExecutionCancelled(CancelReply::NotFound)
            | Reply::PauseSet(SetPauseReply::NotFound)
            | Reply::DeadLetterReplayed(ReplayReply::NotFound)
            | Reply::DeadLetterPurged(PurgeReply::NotFound)
    )
}

/// What the store says it has made is there, and what is there it does not deny.
fn check_nothing_forgotten(
    commit: &Commit<'_>,
    mirror: &Mirror,
    changes: &[Change],
) -> Result<(), Violation> {
    let forgot = |detail: String| Err(commit.broke(Invariant::Conservation, || detail));
    let made = match commit.reply {
        Reply::Materialised(replies) => replies.iter().map(made_in).sum(),
        Reply::JobTriggered(TriggerReply::Created)
        | Reply::DeadLetterReplayed(ReplayReply::Created { .. }) => 1,
        _ => 0,
    };
    if made > 0 {
        let is_birth =
            |change: &&Change| matches!(change, Change::Execution(delta) if delta.before.is_none());
        let born = changes.iter().filter(is_birth).count();
        if born != made {
            return forgot(format!("{made} executions were accepted, and {born} were made"));
        }
    }
    let denied = match (commit.command, commit.reply) {
        (Command::AcquireExecutions(ask), Reply::Acquired(replies)) => {
            let mut all = ask.items.iter().zip(replies);
            all.find(|(_, reply)| **reply == AcquireReply::Absent).map(|(item, _)| item.execution)
        }
        (Command::FinishExecutions(ask), Reply::Finished(replies)) => {
            let mut all = ask.items.iter().zip(replies);
            all.find(|(_, reply)| **reply == FinishReply::Absent).map(|(item, _)| item.run.execution)
        }
        _ => None,
    };
    match denied.filter(|id| mirror.executions.contains_key(id)) {
        Some(id) => forgot(format!("{id} was made, and the store says that it does not exist")),
        None => Ok(()),
    }
}

fn made_in(reply: &MaterialiseReply) -> usize {
    match reply {
        MaterialiseReply::Applied(made) => made.iter().filter(|made| **made == MadeExecution::Made).count(),
        MaterialiseReply::StaleLease { .. }
        | MaterialiseReply::VersionChanged { .. }
        | MaterialiseReply::WatermarkMoved
        | MaterialiseReply::NotDue
        | MaterialiseReply::PlanExpired
        | MaterialiseReply::Gone => 0,
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
        Change::Pause(delta) => both(delta, |row| row.tenant),
        Change::Limit(delta) => both(delta, |row| row.tenant),
        Change::Calendar(delta) => both(delta, |row| row.tenant),
        Change::Tenant(_)
        | Change::Lease(_)
        | Change::Node(_)
        | Change::Refusal(_)
        | Change::Malformed(_) => Vec::new(),
    }
}
