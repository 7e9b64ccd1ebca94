//! Dispatch: what comes due is promoted, what was not confirmed is read back, what was confirmed goes.
//!
//! Whatever cannot be served is put off durably by a growing delay, so that nothing hides behind it. A row
//! of the outbox is removed by its exact id and without a token: the broker's confirm is what allows it.

use crate::bug::Bug;
use crate::execution::ExecutionState;
use crate::id::ExecutionId;
use crate::lease::LeaseResource;
use crate::limits::{OUTBOX_DELAY_MAX, WAIT_DELAY_MAX};
use crate::mark::{self, Mark};
use crate::partition::PartitionId;
use crate::retry::doubled;
use crate::store::command::{OutboxId, PromoteDue, RemoveOutbox, ReturnOutbox, ScanOutbox};
use crate::store::reference::{Call, Picked};
use crate::store::reply::{Dispatch, RemovalReply, Reply};
use crate::store::row::{ExecutionRow, OutboxRow, RefusedAction};
use crate::store::tables::Record;
use crate::time::{Span, Timestamp};

impl Call<'_> {
    /// Leases that are no longer the caller's are answered and recorded, and the others served. `next_due`
    /// looks at the partitions that were served alone.
    pub(super) fn promote_due(&mut self, ask: &PromoteDue) -> Reply {
        let mut partitions = Vec::with_capacity(ask.leases.len());
        let mut refused = Vec::new();
        for held in &ask.leases {
            match self.guard_recorded(ask.node, *held, RefusedAction::Promote) {
                Ok(()) => match held.resource {
                    LeaseResource::Partition(partition) => partitions.push(partition),
                    LeaseResource::Leadership => {}
                },
                Err(current) => {
                    mark::hit(Mark::PromoteRefused);
                    refused.push((*held, current));
                }
            }
        }
        let mut due = self.pick_promotable(&partitions, ask.limit as usize);
        due.extend(self.pick_lifted(&partitions, ask.limit as usize - due.len()));
        let dispatches = due.into_iter().map(|id| self.promote(ask, id)).collect();
        let next_due = self.tables.executions().index().promotable.next_after(partitions, self.now);
        Reply::Promoted { dispatches, refused, next_due }
    }

    fn pick_promotable(&self, partitions: &[PartitionId], limit: usize) -> Vec<ExecutionId> {
        let until = if self.bugs.has(Bug::PromoteIgnoresDueTime) { Timestamp::MAX } else { self.now };
        let promotable = &self.tables.executions().index().promotable;
        let due = promotable
            .due(partitions.iter().copied(), None, until)
            .map(|(_, id)| id)
            .filter(|id| self.choice.allows(Picked::Execution(*id)));
        if self.bugs.has(Bug::WaitingNeverPromoted) {
            return due.filter(|id| self.execution(*id).waiting.is_none()).take(limit).collect();
        }
        due.take(limit).collect()
    }

    fn execution(&self, id: ExecutionId) -> &ExecutionRow {
        self.tables.executions().get(&id).expect("the index names rows of its table")
    }

    /// `waits` and `redispatches` stay: an acquire resets them.
    fn promote(&mut self, ask: &PromoteDue, id: ExecutionId) -> Dispatch {
        let mut row = self.execution(id).clone();
        if row.state == ExecutionState::RetryWait {
            mark::hit(Mark::RetryPromoted);
            self.transition(&mut row, ExecutionState::Pending);
        } else {
            mark::hit(Mark::WaitingDispatched);
        }
        row.waiting = None;
        row.held_by = None;
        row.next_try_at = None;
        self.dispatch(&mut row);
        let outbox = self.outbox_row(&row, ask.node);
        self.tables.put_execution(row, self.changes);
        let id = outbox.key();
        if !self.bugs.has(Bug::PromoteWithoutOutbox) {
            self.tables.put_outbox(outbox, self.changes);
        }
        self.dispatch_of(id)
    }

    /// A row of the caller's own is readable from `own_grace` after it was made. `next_due` is the earliest
    /// instant after now at which a row that is not readable yet becomes so for this caller, if nothing
    /// else happens to it; it looks at the rows as this scan leaves them.
    ///
    /// `next_try_at` never lies before `created_at`, so a row in grace is found at `next_try_at` after
    /// `now − own_grace`.
    pub(super) fn scan_outbox(&mut self, ask: &ScanOutbox) -> Reply {
        let own_grace_ends =
            |row: &OutboxRow| (row.created_by == ask.node).then(|| row.created_at.plus(ask.own_grace));
        let partitions = || ask.partitions.iter().copied();
        let picked: Vec<OutboxId> = self
            .tables
            .outbox()
            .index()
            .due
            .due(partitions(), None, self.now)
            .filter(|(_, id)| own_grace_ends(self.outbox_row_of(*id)).is_none_or(|end| end <= self.now))
            .filter(|(_, id)| self.choice.allows(Picked::Outbox(*id)))
            .filter(|_| !self.bugs.has(Bug::OutboxNotReadBack))
            .take(ask.limit as usize)
            .map(|(_, id)| id)
            .collect();
        let dispatches = picked.into_iter().map(|id| self.read_back(ask, id)).collect();
        let due = &self.tables.outbox().index().due;
        let mut next_due = due
            .later(partitions(), self.now.minus(ask.own_grace))
            .take_while(|(at, _)| *at <= self.now)
            .filter_map(|(_, id)| own_grace_ends(self.outbox_row_of(id)).filter(|end| *end > self.now))
            .min();
        for (at, id) in due.later(partitions(), self.now) {
            if next_due.is_some_and(|next| next <= at) {
                break;
            }
            let from = own_grace_ends(self.outbox_row_of(id)).map_or(at, |end| end.max(at));
            next_due = Some(next_due.map_or(from, |next| next.min(from)));
        }
        Reply::Outbox { dispatches, next_due }
    }

    fn read_back(&mut self, ask: &ScanOutbox, id: OutboxId) -> Dispatch {
        mark::hit(Mark::OutboxReadBack);
        let row = self.outbox_row_of(id);
        let delay = doubled(ask.delay, row.tries).min(OUTBOX_DELAY_MAX);
        let next_try_at = self.now.plus(delay).max(row.created_at);
        let row = OutboxRow { tries: row.tries.saturating_add(1), next_try_at, ..row.clone() };
        self.tables.put_outbox(row, self.changes);
        self.dispatch_of(id)
    }

    fn outbox_row_of(&self, id: OutboxId) -> &OutboxRow {
        self.tables.outbox().get(&id).expect("the index names rows of its table")
    }

    /// Item by item. A removal of a young row leaves the stamp of its insertion.
    pub(super) fn remove_outbox(&mut self, ask: &RemoveOutbox) -> Vec<RemovalReply> {
        let remove = |id: &OutboxId| {
            let mut id = *id;
            if self.bugs.has(Bug::RemovalTakesOtherDispatch) {
                let latest = self.tables.outbox_of(id.execution).last();
                id.dispatch_no = latest.map_or(id.dispatch_no, |row| row.dispatch_no);
            }
            let Some(row) = self.tables.outbox().get(&id) else { return RemovalReply::Absent };
            let is_late = row.created_at.plus(ask.grace) <= self.now;
            self.tables.remove_outbox(id, self.changes);
            let execution = self.tables.executions().get(&id.execution);
            if let Some(execution) = execution.filter(|row| is_late && Self::is_awaited(row, id)) {
                mark::hit(Mark::LateRemovalStamped);
                let execution = ExecutionRow { dispatched_at: Some(self.now), ..execution.clone() };
                self.tables.put_execution(execution, self.changes);
            }
            RemovalReply::Removed
        };
        ask.rows.iter().map(remove).collect()
    }

    /// Item by item. The row goes in any case: what it was for is done, superseded, or waits from now on.
    pub(super) fn return_outbox(&mut self, ask: &ReturnOutbox) -> Vec<RemovalReply> {
        let mut replies = Vec::with_capacity(ask.rows.len());
        for (id, reason) in &ask.rows {
            if !self.tables.remove_outbox(*id, self.changes) {
                replies.push(RemovalReply::Absent);
                continue;
            }
            let execution = self.tables.executions().get(&id.execution);
            let awaited = execution.filter(|row| Self::is_awaited(row, *id) && row.waiting.is_none());
            if let Some(row) = awaited
                && !self.bugs.has(Bug::ReturnForgetsReason)
            {
                mark::hit(Mark::ReturnBecameWait);
                let row = ExecutionRow { waiting: Some(*reason), ..self.waited(row, ask.delay) };
                self.tables.put_execution(row, self.changes);
            }
            replies.push(RemovalReply::Removed);
        }
        replies
    }

    /// The execution put off by the next of its growing delays.
    pub(super) fn waited(&self, row: &ExecutionRow, delay: Span) -> ExecutionRow {
        let delay = doubled(delay, row.waits).min(WAIT_DELAY_MAX);
        ExecutionRow {
            next_try_at: Some(self.now.plus(delay)),
            waits: row.waits.saturating_add(1),
            ..row.clone()
        }
    }
}
