//! The mirror: the store's rows as the changes say they are, kept beside the store and independent of it.
//!
//! Oracles compare what a command did with what was there before it. The mirror also finds a change whose
//! `before` is not what the last change left: a store that forgets or invents is no store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fencepost_core::execution::ExecutionState;
use fencepost_core::id::{ExecutionId, JobId, JobVersion, Occurrence, PauseId, TenantId};
use fencepost_core::job::Standing;
use fencepost_core::store::change::{Change, Delta};
use fencepost_core::store::command::OutboxId;
use fencepost_core::store::row::{
    CalendarRow, DeadLetterRow, ExecutionRow, JobRow, JobVersionRow, LimitRow, OutboxRow, PauseRow,
};
use fencepost_core::time::Timestamp;

use super::brief::Brief;
use super::lease_rows::LeaseRows;

/// A stretch of fires passed over: from its first fire to its last.
type Ranges = BTreeMap<Timestamp, Timestamp>;

/// The rows that oracles look at.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    pub(super) leases: LeaseRows,
    pub(super) jobs: BTreeMap<JobId, JobRow>,
    pub(super) versions: BTreeMap<(JobId, JobVersion), JobVersionRow>,
    pub(super) executions: BTreeMap<ExecutionId, ExecutionRow>,
    /// Those that have not ended.
    pub(super) live: BTreeSet<ExecutionId>,
    /// By what they are occurrences of.
    pub(super) occurrences: BTreeMap<(JobId, Occurrence), ExecutionId>,
    pub(super) outbox: BTreeMap<OutboxId, OutboxRow>,
    pub(super) dead_letters: BTreeMap<ExecutionId, DeadLetterRow>,
    pub(super) ranges: BTreeMap<JobId, Ranges>,
    /// Pauses of tenants and queues that stand.
    pub(super) paused: BTreeMap<PauseId, PauseRow>,
    pub(super) limits: BTreeMap<(TenantId, Arc<str>), LimitRow>,
    pub(super) calendars: BTreeMap<(TenantId, Arc<str>), CalendarRow>,
}

impl Mirror {
    /// Takes one change of a command's over, in their order.
    pub(super) fn absorb(&mut self, change: &Change) {
        match change {
            Change::Lease(delta) => match (&delta.before, &delta.after) {
                (_, Some(after)) => self.leases.put(after),
                (Some(before), None) => self.leases.remove(before.resource),
                (None, None) => {}
            },
            Change::Job(delta) => put(&mut self.jobs, delta, |row| row.id),
            Change::JobVersion(delta) => put(&mut self.versions, delta, |row| (row.job, row.version)),
            Change::Outbox(delta) => put(&mut self.outbox, delta, |row| OutboxId {
                execution: row.execution,
                dispatch_no: row.dispatch_no,
            }),
            Change::Execution(delta) => self.absorb_execution(delta),
            Change::Pause(delta) => match &delta.after {
                Some(row) if row.ended.is_none() => {
                    self.paused.insert(row.id, row.clone());
                }
                Some(_) | None => {
                    delta.before.iter().for_each(|row| drop(self.paused.remove(&row.id)));
                }
            },
            Change::DeadLetter(delta) => put(&mut self.dead_letters, delta, |row| row.execution),
            Change::SkippedRange(delta) => {
                if let Some(row) = &delta.before {
                    self.ranges.entry(row.job).or_default().remove(&row.from);
                }
                if let Some(row) = &delta.after {
                    self.ranges.entry(row.job).or_default().insert(row.from, row.through);
                }
            }
            Change::Limit(delta) => put(&mut self.limits, delta, |row| (row.tenant, row.key.clone())),
            Change::Calendar(delta) => put(&mut self.calendars, delta, |row| (row.tenant, row.name.clone())),
            Change::Tenant(_)
            | Change::Node(_)
            | Change::Attempt(_)
            | Change::Refusal(_)
            | Change::Request(_)
            | Change::Malformed(_) => {}
        }
    }

    fn absorb_execution(&mut self, delta: &Delta<ExecutionRow>) {
        if let (None, Some(row)) = (&delta.before, &delta.after) {
            self.occurrences.insert((row.job, row.occurrence.clone()), row.id);
        }
        put(&mut self.executions, delta, |row| row.id);
        if let Some(row) = &delta.after {
            if row.state.is_terminal() {
                self.live.remove(&row.id);
            } else {
                self.live.insert(row.id);
            }
        }
    }

    /// The versions of a job, ascending, each with the last instant that it decides about.
    pub(super) fn versions_of(&self, job: JobId) -> impl Iterator<Item = (&JobVersionRow, Timestamp)> {
        let all = self.versions.range((job, JobVersion(0))..=(job, JobVersion(u32::MAX)));
        let mut all = all.map(|(_, row)| row).peekable();
        core::iter::from_fn(move || {
            let row = all.next()?;
            let next = all.peek().map(|next| Timestamp::from_micros(next.effective_from.as_micros() - 1));
            Some((row, next.unwrap_or(Timestamp::MAX)))
        })
    }

    /// The version of a job that decides about an instant.
    pub(super) fn version_at(&self, job: JobId, at: Timestamp) -> Option<&JobVersionRow> {
        self.versions_of(job).find(|(_, through)| at <= *through).map(|(row, _)| row)
    }

    /// Whether an execution is of a fire and its job is paused, or its tenant or queue is.
    pub(super) fn is_held_back(&self, row: &ExecutionRow) -> bool {
        let of_a_fire = matches!(row.occurrence, Occurrence::Scheduled { .. });
        let by_job = of_a_fire && self.jobs.get(&row.job).is_some_and(|job| job.standing == Standing::Paused);
        by_job || super::pauses::over(self, row).is_some()
    }

    /// Whether a fire of a job lies inside a range row.
    pub(super) fn is_skipped(&self, job: JobId, fire: Timestamp) -> bool {
        let Some(ranges) = self.ranges.get(&job) else { return false };
        ranges.range(..=fire).next_back().is_some_and(|(_, through)| *through >= fire)
    }

    /// Whether a fire of a job is an execution.
    pub(super) fn is_executed(&self, job: JobId, fire: Timestamp) -> bool {
        self.occurrences.contains_key(&(job, Occurrence::Scheduled { fire }))
    }

    /// The first difference between a change's `before` and what is here.
    pub(super) fn contradiction(&self, change: &Change) -> Option<String> {
        match change {
            Change::Lease(delta) => {
                let row = delta.before.as_ref().or(delta.after.as_ref())?;
                contradicts(self.leases.get(&row.resource), delta)
            }
            Change::Job(delta) => differs(&self.jobs, delta, |row| row.id),
            Change::JobVersion(delta) => differs(&self.versions, delta, |row| (row.job, row.version)),
            Change::Execution(delta) => differs(&self.executions, delta, |row| row.id),
            Change::DeadLetter(delta) => differs(&self.dead_letters, delta, |row| row.execution),
            Change::Outbox(delta) => {
                let id =
                    |row: &OutboxRow| OutboxId { execution: row.execution, dispatch_no: row.dispatch_no };
                differs(&self.outbox, delta, id)
            }
            Change::Limit(delta) => differs(&self.limits, delta, |row| (row.tenant, row.key.clone())),
            Change::Calendar(delta) => differs(&self.calendars, delta, |row| (row.tenant, row.name.clone())),
            Change::Tenant(_)
            | Change::Node(_)
            | Change::Attempt(_)
            | Change::SkippedRange(_)
            | Change::Refusal(_)
            | Change::Request(_)
            | Change::Pause(_)
            | Change::Malformed(_) => None,
        }
    }

    /// The live executions in a state.
    pub(super) fn live_in(&self, state: ExecutionState) -> impl Iterator<Item = &ExecutionRow> {
        self.live.iter().filter_map(|id| self.executions.get(id)).filter(move |row| row.state == state)
    }
}

fn put<Key: Ord, Row: Clone>(rows: &mut BTreeMap<Key, Row>, delta: &Delta<Row>, key: impl Fn(&Row) -> Key) {
    match (&delta.before, &delta.after) {
        (_, Some(after)) => {
            rows.insert(key(after), after.clone());
        }
        (Some(before), None) => {
            rows.remove(&key(before));
        }
        (None, None) => {}
    }
}

/// A lease is there from the start, so the first change of one has a `before` that nobody has seen.
fn differs<Key: Ord, Row: PartialEq + core::fmt::Debug>(
    rows: &BTreeMap<Key, Row>,
    delta: &Delta<Row>,
    key: impl Fn(&Row) -> Key,
) -> Option<String> {
    let id = delta.before.as_ref().or(delta.after.as_ref()).map(key)?;
    contradicts(rows.get(&id), delta)
}

fn contradicts<Row: PartialEq + core::fmt::Debug>(known: Option<&Row>, delta: &Delta<Row>) -> Option<String> {
    match (known, &delta.before) {
        (None, _) => None,
        (Some(known), Some(before)) if known == before => None,
        (Some(known), before) => {
            Some(format!("a row was {}, but a command found {}", Brief(known), Brief(before)))
        }
    }
}
