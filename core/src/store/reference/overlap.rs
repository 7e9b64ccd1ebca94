//! Overlap: who holds a job's slot, what becomes of what asks for its first lease meanwhile, and who is lifted.
//!
//! An execution holds its job's slot from its first lease until it is terminal: that it once had a lease is told by the
//! node of its latest acquire, which stays in the row. Only what never had a lease is judged, by the overlap of its own
//! version; a manual trigger and a replay like any other. At most one execution of a job waits for the slot. Whatever
//! makes the last holder terminal gives it its next dispatch, in the name of the node that held the slot.

use crate::bug::Bug;
use crate::execution::{ExecutionState, SkipReason, WaitReason};
use crate::id::{ExecutionId, JobId, NodeId};
use crate::job::Overlap;
use crate::limits::OVERLAP_RECHECK;
use crate::mark::{self, Mark};
use crate::store::reference::Call;
use crate::store::row::ExecutionRow;
use crate::time::Timestamp;

/// What an execution that asks for a lease is told by its job's overlap policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlapping {
    /// Nothing stands in its way.
    Grant,
    /// It was passed over.
    PassedOver,
    /// It waits until the slot is free.
    Waits,
}

impl Call<'_> {
    /// Judges an execution that is pending, and does what its policy says.
    pub(super) fn judge_overlap(&mut self, id: ExecutionId) -> Overlapping {
        let row = self.tables.executions().get(&id).expect("the caller has read it");
        if row.nonce_node.is_some() || row.token.next().is_none() || self.bugs.has(Bug::OverlapIsIgnored) {
            return Overlapping::Grant;
        }
        let version = self.tables.job_versions.get(&(row.job, row.job_version));
        let overlap = version.map_or(Overlap::Allow, |version| version.definition.overlap());
        let row = row.clone();
        let holders = if overlap.judges() { self.holders_of(row.job) } else { Vec::new() };
        let skips_freely = overlap == Overlap::Skip && self.bugs.has(Bug::OverlapSkipsFreely);
        if holders.is_empty() && !skips_freely {
            return Overlapping::Grant;
        }
        match overlap {
            Overlap::Allow => Overlapping::Grant,
            Overlap::Skip => self.pass_over(row),
            Overlap::BufferOne => match self.buffered_of(row.job) {
                Some(other) if other != id && !self.bugs.has(Bug::BufferTakesAll) => self.pass_over(row),
                Some(_) | None => self.buffer(row),
            },
            Overlap::CancelRunning => self.replace(row, &holders),
        }
    }

    /// Those that hold a job's slot, by id.
    fn holders_of(&self, job: JobId) -> Vec<ExecutionId> {
        let executions = self.tables.executions();
        let least = (job, ExecutionId::from_u128(0));
        let most = (job, ExecutionId::from_u128(u128::MAX));
        let live = executions.index().live.range(least..=most).map(|(_, id)| *id);
        let holds = |id: &ExecutionId| {
            let row = executions.get(id).expect("the index names rows of its table");
            let forgotten = row.state != ExecutionState::Running && self.bugs.has(Bug::RetryGivesSlotAway);
            row.nonce_node.is_some() && !forgotten
        };
        live.filter(holds).collect()
    }

    /// The one that waits for a job's slot.
    fn buffered_of(&self, job: JobId) -> Option<ExecutionId> {
        let least = (job, Timestamp::MIN, ExecutionId::from_u128(0));
        let most = (job, Timestamp::MAX, ExecutionId::from_u128(u128::MAX));
        let buffered = &self.tables.executions().index().buffered;
        buffered.range(least..=most).next().map(|(_, _, id)| *id)
    }

    fn pass_over(&mut self, mut row: ExecutionRow) -> Overlapping {
        mark::hit(Mark::OverlapPassedOver);
        self.settle(&mut row, ExecutionState::Skipped);
        row.skip_reason = Some(SkipReason::Overlap);
        self.tables.put_execution(row, self.changes);
        Overlapping::PassedOver
    }

    /// One that waits for the slot already keeps its time.
    fn buffer(&mut self, row: ExecutionRow) -> Overlapping {
        if row.waiting != Some(WaitReason::Buffered) {
            mark::hit(Mark::OverlapBuffered);
            let lasting = self.bugs.has(Bug::EndLiftsNothing);
            let next_try_at = if lasting { Timestamp::MAX } else { self.now.plus(OVERLAP_RECHECK) };
            let waiting = Some(WaitReason::Buffered);
            let row = ExecutionRow { waiting, held_by: None, next_try_at: Some(next_try_at), ..row };
            self.tables.put_execution(row, self.changes);
        }
        Overlapping::Waits
    }

    /// The holders are cancelled or asked to stop. Of those that want the slot the latest fire stays: it is granted
    /// where nobody runs any more, else it waits.
    fn replace(&mut self, row: ExecutionRow, holders: &[ExecutionId]) -> Overlapping {
        mark::hit(Mark::OverlapCancelled);
        let mut runs_on = false;
        for id in holders {
            let holder = self.tables.executions().get(id).expect("the index names rows of its table").clone();
            runs_on |= holder.state == ExecutionState::Running;
            self.cancel(holder);
        }
        let other = self.buffered_of(row.job).filter(|other| *other != row.id);
        let other = other.and_then(|other| self.tables.executions().get(&other)).cloned();
        match other {
            Some(other) if (other.due_at, other.id) > (row.due_at, row.id) => {
                let (job, node) = (row.job, self.last_holder(holders));
                self.pass_over(row);
                self.lift(job, node);
                return Overlapping::PassedOver;
            }
            Some(other) => {
                mark::hit(Mark::OverlapDisplaced);
                self.pass_over(other);
            }
            None => {}
        }
        if runs_on { self.buffer(row) } else { Overlapping::Grant }
    }

    fn last_holder(&self, holders: &[ExecutionId]) -> NodeId {
        let last = holders.last().and_then(|id| self.tables.executions().get(id));
        last.and_then(|row| row.nonce_node).expect("who holds a slot has had a lease")
    }

    /// What is to follow once `ended` is written: if it was the last to hold its job's slot, whoever waits is lifted.
    pub(super) fn free_slot(&mut self, ended: &ExecutionRow) {
        if let Some(node) = ended.nonce_node.filter(|_| ended.state.is_terminal()) {
            self.lift(ended.job, node);
        }
    }

    fn lift(&mut self, job: JobId, node: NodeId) {
        let Some(id) = self.buffered_of(job) else { return };
        if self.bugs.has(Bug::EndLiftsNothing) || !self.holders_of(job).is_empty() {
            return;
        }
        mark::hit(Mark::OverlapLifted);
        let mut row = self.tables.executions().get(&id).expect("the index names rows of its table").clone();
        row.waiting = None;
        row.next_try_at = None;
        self.dispatch(&mut row);
        let outbox = self.outbox_row(&row, node);
        self.tables.put_execution(row, self.changes);
        if !self.bugs.has(Bug::LiftWithoutOutbox) {
            self.tables.put_outbox(outbox, self.changes);
        }
    }
}
