//! The records of the tables that work passes through: jobs, executions and outbox rows, with the indexes
//! that their scans read.

use std::collections::BTreeSet;

use crate::execution::{ExecutionState, WaitReason};
use crate::id::{ExecutionId, JobId, PauseId, TenantId};
use crate::store::change::{Change, Delta};
use crate::store::command::OutboxId;
use crate::store::row::{ExecutionRow, JobRow, JobState, OutboxRow};
use crate::store::tables::due::{DueIndex, Entry};
use crate::store::tables::table::Record;
use crate::time::Timestamp;

/// Active jobs with a next fire, by `next_try_at`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobIndex {
    pub(in crate::store) due: DueIndex<JobId>,
}

impl JobIndex {
    fn entry(row: &JobRow) -> Option<Entry<JobId>> {
        let fires = row.state == JobState::Active && row.next_fire_time.is_some();
        fires.then_some((row.partition, row.next_try_at, row.id))
    }
}

impl Record for JobRow {
    type Key = JobId;
    type Index = JobIndex;

    fn key(&self) -> JobId {
        self.id
    }

    fn reindex(index: &mut JobIndex, before: Option<&Self>, after: Option<&Self>) {
        index.due.shift(before.and_then(JobIndex::entry), after.and_then(JobIndex::entry));
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Job(Box::new(delta))
    }
}

/// Executions that wait for an instant, those that run, and of each job the live ones and those that wait for its slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionIndex {
    /// In `RetryWait`, or `Pending` with a waiting reason, by `next_try_at`.
    pub(in crate::store) promotable: DueIndex<ExecutionId>,
    /// `Running`, by `expires_at`.
    pub(in crate::store) running: BTreeSet<(Timestamp, ExecutionId)>,
    /// Not terminal, by job.
    pub(in crate::store) live: BTreeSet<(JobId, ExecutionId)>,
    /// Waiting for a limit, by tenant and due time.
    pub(in crate::store) limited: BTreeSet<(TenantId, Timestamp, ExecutionId)>,
    /// Waiting for their job's slot, by job and due time.
    pub(in crate::store) buffered: BTreeSet<(JobId, Timestamp, ExecutionId)>,
    /// With a deadline, while they wait, by it.
    pub(in crate::store) bounded: BTreeSet<(Timestamp, ExecutionId)>,
    /// Held back, by the pause of a tenant or queue that does.
    pub(in crate::store) held: BTreeSet<(PauseId, ExecutionId)>,
}

impl ExecutionIndex {
    fn promotable_entry(row: &ExecutionRow) -> Option<Entry<ExecutionId>> {
        let waits = match row.state {
            ExecutionState::RetryWait => true,
            ExecutionState::Pending => row.waiting.is_some(),
            ExecutionState::Running
            | ExecutionState::Completed
            | ExecutionState::DeadLettered
            | ExecutionState::Failed
            | ExecutionState::Cancelled
            | ExecutionState::Skipped => false,
        };
        let at = row.next_try_at.filter(|_| waits)?;
        Some((row.partition, at, row.id))
    }

    fn running_entry(row: &ExecutionRow) -> Option<(Timestamp, ExecutionId)> {
        (row.state == ExecutionState::Running).then_some((row.expires_at, row.id))
    }

    fn live_entry(row: &ExecutionRow) -> Option<(JobId, ExecutionId)> {
        (!row.state.is_terminal()).then_some((row.job, row.id))
    }

    fn limited_entry(row: &ExecutionRow) -> Option<(TenantId, Timestamp, ExecutionId)> {
        let waits = matches!(row.waiting, Some(WaitReason::TenantLimit | WaitReason::KeyLimit));
        waits.then_some((row.tenant, row.due_at, row.id))
    }

    fn buffered_entry(row: &ExecutionRow) -> Option<(JobId, Timestamp, ExecutionId)> {
        (row.waiting == Some(WaitReason::Buffered)).then_some((row.job, row.due_at, row.id))
    }
}

impl Record for ExecutionRow {
    type Key = ExecutionId;
    type Index = ExecutionIndex;

    fn key(&self) -> ExecutionId {
        self.id
    }

    fn reindex(index: &mut ExecutionIndex, before: Option<&Self>, after: Option<&Self>) {
        index.promotable.shift(
            before.and_then(ExecutionIndex::promotable_entry),
            after.and_then(ExecutionIndex::promotable_entry),
        );
        shift(
            &mut index.running,
            before.and_then(ExecutionIndex::running_entry),
            after.and_then(ExecutionIndex::running_entry),
        );
        shift(
            &mut index.live,
            before.and_then(ExecutionIndex::live_entry),
            after.and_then(ExecutionIndex::live_entry),
        );
        shift(
            &mut index.limited,
            before.and_then(ExecutionIndex::limited_entry),
            after.and_then(ExecutionIndex::limited_entry),
        );
        shift(
            &mut index.buffered,
            before.and_then(ExecutionIndex::buffered_entry),
            after.and_then(ExecutionIndex::buffered_entry),
        );
        let bounded = |row: &Self| {
            let at = row.deadline_at?;
            matches!(row.state, ExecutionState::Pending | ExecutionState::RetryWait).then_some((at, row.id))
        };
        shift(&mut index.bounded, before.and_then(bounded), after.and_then(bounded));
        let held = |row: &Self| row.held_by.map(|pause| (pause, row.id));
        shift(&mut index.held, before.and_then(held), after.and_then(held));
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Execution(Box::new(delta))
    }
}

/// Outbox rows by `next_try_at`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboxIndex {
    pub(in crate::store) due: DueIndex<OutboxId>,
}

impl Record for OutboxRow {
    type Key = OutboxId;
    type Index = OutboxIndex;

    fn key(&self) -> OutboxId {
        OutboxId { execution: self.execution, dispatch_no: self.dispatch_no }
    }

    fn reindex(index: &mut OutboxIndex, before: Option<&Self>, after: Option<&Self>) {
        let entry = |row: &Self| (row.partition, row.next_try_at, row.key());
        index.due.shift(before.map(entry), after.map(entry));
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Outbox(delta)
    }
}

/// Takes a row's entry in an ordered set from where it was to where it is.
pub(super) fn shift<Entry: Ord>(set: &mut BTreeSet<Entry>, before: Option<Entry>, after: Option<Entry>) {
    if before == after {
        return;
    }
    if let Some(entry) = before {
        set.remove(&entry);
    }
    if let Some(entry) = after {
        set.insert(entry);
    }
}
