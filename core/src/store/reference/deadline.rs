//! Deadlines of whole executions: what waits past its own is ended, where its message arrives and where the sweep finds it.
//!
//! What runs is its worker's: that was told what is left, and stops the attempt by then. So only `Pending` and `RetryWait`
//! are ended here, in whatever they wait for, and never what has ended already.

use std::collections::BTreeMap;

use crate::bug::Bug;
use crate::execution::{DeadLetterReason, ExecutionState};
use crate::id::{ExecutionId, JobId};
use crate::job::DeadLetters;
use crate::lease::RunId;
use crate::mark::{self, Mark};
use crate::store::command::RepairItem;
use crate::store::reference::Call;
use crate::store::row::ExecutionRow;
use crate::time::Span;

/// How much too soon the bug of that name ends what waits.
const TOO_SOON: Span = Span::from_secs(60);

impl Call<'_> {
    /// Whether its deadline has passed while nothing runs.
    pub(super) fn is_overdue(&self, row: &ExecutionRow) -> bool {
        let waits = matches!(row.state, ExecutionState::Pending | ExecutionState::RetryWait);
        let until = if self.bugs.has(Bug::OverdueTooSoon) { self.now.plus(TOO_SOON) } else { self.now };
        waits && row.deadline_at.is_some_and(|at| at <= until)
    }

    /// What waits past its deadline, by (`deadline_at`, `id`), with its latest token and its state.
    pub(super) fn overdue(&self, limit: usize) -> Vec<(RunId, ExecutionState)> {
        let executions = self.tables.executions();
        let rows = executions.index().bounded.iter().filter_map(|(_, id)| executions.get(id));
        let overdue = rows.take_while(|row| self.is_overdue(row)).take(limit);
        overdue.map(|row| (RunId { execution: row.id, token: row.token }, row.state)).collect()
    }

    /// Ends one that the caller has found overdue. [`Self::free_slots_of`] is to follow.
    fn end_overdue(&mut self, mut row: ExecutionRow) {
        mark::hit(Mark::DeadlinePassed);
        let version = self.tables.job_versions.get(&(row.job, row.job_version));
        let kept = version.map_or(DeadLetters::On, |version| version.definition.retry_or_default().1);
        match kept {
            DeadLetters::On => {
                self.settle(&mut row, ExecutionState::DeadLettered);
                self.record_dead_letter(&row, DeadLetterReason::Deadline);
            }
            DeadLetters::Off => self.settle(&mut row, ExecutionState::Failed),
        }
        self.tables.put_execution(row, self.changes);
    }

    /// Ends those of these that `is_so` holds of, and gives back the slots that they held: of each job once all of them
    /// have ended, in the name of the last. Returned are those that were ended, in their order.
    pub(super) fn end_all_overdue(
        &mut self,
        ids: impl Iterator<Item = ExecutionId>,
        mut is_so: impl FnMut(&Self, &ExecutionRow) -> bool,
    ) -> Vec<ExecutionId> {
        let mut ended = Vec::new();
        for id in ids {
            let Some(row) = self.tables.executions().get(&id) else { continue };
            if is_so(self, row) {
                self.end_overdue(row.clone());
                ended.push(id);
            }
        }
        self.free_slots_of(&ended);
        ended
    }

    /// The slots that these held are given back: of each job in the name of the last.
    fn free_slots_of(&mut self, ended: &[ExecutionId]) {
        let rows = ended.iter().filter_map(|id| self.tables.executions().get(id));
        let last_of_job: BTreeMap<JobId, ExecutionRow> =
            rows.filter(|row| row.nonce_node.is_some()).map(|row| (row.job, row.clone())).collect();
        for row in last_of_job.into_values() {
            self.free_slot(&row);
        }
    }

    /// The sweep's repairs of what waits past its deadline and is as it was observed: those come before all others of
    /// their command. Returned is which items were done.
    pub(super) fn repair_overdue(&mut self, items: &[RepairItem]) -> Vec<bool> {
        let mut done = vec![false; items.len()];
        let mut ended = Vec::new();
        for (item, done) in items.iter().zip(&mut done) {
            let (run, state) = match item {
                RepairItem::EndOverdue { run, state } => (*run, *state),
                RepairItem::TakeOver { .. }
                | RepairItem::Redispatch { .. }
                | RepairItem::DropOutbox { .. }
                | RepairItem::RetireNode { .. } => continue,
            };
            let Some(row) = self.tables.executions().get(&run.execution) else { continue };
            if row.token == run.token && row.state == state && self.is_overdue(row) {
                self.end_overdue(row.clone());
                ended.push(run.execution);
                *done = true;
            }
        }
        self.free_slots_of(&ended);
        done
    }
}
