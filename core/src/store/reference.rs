//! What each command means: the reference semantics, over ordered tables.
//!
//! [`ReferenceStore::apply`] executes one command at a given `now`. It is the specification that the SQL is
//! tested against, the simulator's database and the embedded store's engine. What each command means is said
//! with the command; the corners are said here, one file per family:
//!
//! - `lease`: leadership and partitions. - `node`: liveness reports.
//! - `materialise`: due jobs. - `dispatch`: retries, waits and the outbox.
//! - `acquire`: execution leases, their renewal, and putting off. - `finish`: the ends of runs.
//! - `sweep`: what is found and repaired. - `operator`: tenants, jobs, triggers, cancels.
//! - `change_job`: edits, pauses and resumes. - `dead_letters`: replays and purges.
//! - `overlap`: who holds a job's slot, and what waits for it. - `limit`: concurrency limits. - `calendar`:
//!   days on which jobs do not run.
//! - `pause`: pauses of tenants and queues. - `failures`: jobs that pause themselves.
//! - `transition`: the one way in which an execution changes its state. - `refusal`: the record of refusals.
//!
//! A command that picks rows picks the first by key. Where several connections act at once a store may pass over
//! rows that somebody else has locked, and [`ReferenceStore::apply_choosing`] says what it does then.
//!
//! A batch is executed item by item, in its order. A batch that names each thing once writes each row at
//! most once, so that its changes can be compared with those of a store that works on sets.

use std::collections::{BTreeMap, BTreeSet};

use crate::bug::Bugs;
use crate::fencing::FencingToken;
use crate::id::ExecutionId;
use crate::partition::PartitionId;
use crate::store::change::Change;
use crate::store::command::{Command, OutboxId};
use crate::store::reply::{Reply, StoreReply};
use crate::store::tables::{Contents, RefusalKey, Tables};
use crate::time::Timestamp;

mod acquire;
mod calendar;
mod change_job;
mod dead_letters;
mod deadline;
mod dispatch;
mod failures;
mod finish;
mod lease;
mod limit;
mod materialise;
mod node;
mod operator;
mod overlap;
mod pause;
mod refusal;
mod sweep;
#[cfg(test)]
mod tests;
mod transition;

/// A store that executes commands one after the other.
#[derive(Clone, Debug, Default)]
pub struct ReferenceStore {
    bugs: Bugs,
    tables: Tables,
}

impl ReferenceStore {
    /// An empty store: no tenant, and one released lease per resource.
    #[must_use]
    pub fn new(bugs: Bugs) -> Self {
        Self { bugs, tables: Tables::default() }
    }

    /// What it holds.
    #[must_use]
    pub const fn tables(&self) -> &Tables {
        &self.tables
    }

    /// All that it holds, to be compared with what another store holds.
    #[must_use]
    pub fn dump(&self) -> Contents {
        self.tables.contents()
    }

    /// Executes one command at `now`, adding what it did to `changes`.
    pub fn apply(&mut self, now: Timestamp, command: &Command, changes: &mut Vec<Change>) -> StoreReply {
        self.apply_choosing(&Choice::First, now, command, changes)
    }

    /// Takes back the changes of the commands that were executed last, as if these had never been: whoever looks for the
    /// order in which commands took effect tries many, and a copy of the store for each is dear.
    pub fn take_back(&mut self, changes: Vec<Change>) {
        self.tables.take_back(changes);
    }

    /// Like [`apply`](Self::apply), where a command that picks rows picks as `choice` says: what a store may do
    /// that others use at the same time.
    pub fn apply_choosing(
        &mut self,
        choice: &Choice,
        now: Timestamp,
        command: &Command,
        changes: &mut Vec<Change>,
    ) -> StoreReply {
        let mut call = Call {
            now,
            bugs: self.bugs,
            choice,
            tables: &mut self.tables,
            changes,
            refused: BTreeMap::new(),
        };
        let reply = match command {
            Command::ReadClock => Reply::Clock,
            Command::Heartbeat(report) => Reply::Heartbeat { schedulers: call.heartbeat(report) },
            Command::AcquireLeadership(ask) => Reply::Leadership(call.acquire_leadership(ask)),
            Command::AcquirePartitions(ask) => Reply::Partitions { granted: call.acquire_partitions(ask) },
            Command::RenewLeases(ask) => Reply::LeasesRenewed(call.renew_leases(ask)),
            Command::ReleaseLeases(ask) => Reply::LeasesReleased(call.release_leases(ask)),
            Command::ScanDueJobs(ask) => call.scan_due_jobs(ask),
            Command::Materialise(ask) => Reply::Materialised(call.materialise(ask)),
            Command::PutOffJobs(ask) => Reply::JobsPutOff(call.put_off_jobs(ask)),
            Command::PromoteDue(ask) => call.promote_due(ask),
            Command::ScanOutbox(ask) => call.scan_outbox(ask),
            Command::RemoveOutbox(ask) => Reply::OutboxRemoved(call.remove_outbox(ask)),
            Command::ReturnOutbox(ask) => Reply::OutboxReturned(call.return_outbox(ask)),
            Command::ScanSweep(ask) => Reply::Sweep(call.scan_sweep(ask)),
            Command::Repair(ask) => Reply::Repaired(call.repair(ask)),
            Command::AcquireExecutions(ask) => Reply::Acquired(call.acquire_executions(ask)),
            Command::RenewExecutions(ask) => Reply::RunsRenewed(call.renew_executions(ask)),
            Command::FinishExecutions(ask) => Reply::Finished(call.finish_executions(ask)),
            Command::DeferExecutions(ask) => Reply::Deferred(call.defer_executions(ask)),
            Command::RecordMalformed(report) => call.record_malformed(report),
            Command::CreateTenant(ask) => Reply::TenantCreated(call.create_tenant(ask)),
            Command::CreateJob(ask) => Reply::JobCreated(call.create_job(ask)),
            Command::ChangeJob(ask) => Reply::JobChanged(call.change_job(ask)),
            Command::DeleteJob(ask) => Reply::JobDeleted(call.delete_job(ask)),
            Command::TriggerJob(ask) => Reply::JobTriggered(call.trigger_job(ask)),
            Command::CancelExecution(ask) => Reply::ExecutionCancelled(call.cancel_execution(ask)),
            Command::SetPause(ask) => Reply::PauseSet(call.set_pause(ask)),
            Command::ReplayDeadLetter(ask) => Reply::DeadLetterReplayed(call.replay_dead_letter(ask)),
            Command::ReplayDeadLetters(ask) => Reply::DeadLettersReplayed(call.replay_dead_letters(ask)),
            Command::PurgeDeadLetter(ask) => Reply::DeadLetterPurged(call.purge_dead_letter(ask)),
            Command::SetLimit(ask) => Reply::LimitSet(call.set_limit(ask)),
            Command::SetCalendar(ask) => Reply::CalendarSet(call.set_calendar(ask)),
        };
        call.record_refusals();
        StoreReply { now, reply }
    }
}

/// Which of the eligible rows a command picks that picks some: `AcquirePartitions`, `PromoteDue`, `ScanOutbox`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The first by key: so it is for a command that is alone.
    First,
    /// Those of these that are eligible, up to the limit: others may have been in somebody's hands.
    Only(BTreeSet<Picked>),
}

/// A row that was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Picked {
    /// Granted by `AcquirePartitions`.
    Partition(PartitionId),
    /// Promoted by `PromoteDue`.
    Execution(ExecutionId),
    /// Read by `ScanOutbox`.
    Outbox(OutboxId),
}

impl Choice {
    fn allows(&self, picked: Picked) -> bool {
        match self {
            Self::First => true,
            Self::Only(these) => these.contains(&picked),
        }
    }
}

/// One command under way. The families are its methods.
struct Call<'a> {
    now: Timestamp,
    bugs: Bugs,
    choice: &'a Choice,
    tables: &'a mut Tables,
    changes: &'a mut Vec<Change>,
    /// Refusals so far: the current token, and how many.
    refused: BTreeMap<RefusalKey, (FencingToken, u64)>,
}
