//! What the sweep asks about executions and their outbox rows together: which were dispatched and have no
//! outbox row left, and which outbox rows belong to executions that have ended.
//!
//! Neither table alone can answer, so [`Tables`](super::Tables) calls this index with every write of
//! either. Dispatched executions are kept by how often they were dispatched again, because the delay after
//! which they count as undelivered depends on that; within one such class they stand by their stamp.

use core::ops::Bound;
use std::collections::BTreeSet;

use crate::execution::ExecutionState;
use crate::id::{DispatchNo, ExecutionId};
use crate::lease;
use crate::limits::REDISPATCH_DELAY_MAX;
use crate::retry::redispatch_delay;
use crate::store::command::OutboxId;
use crate::store::row::{ExecutionRow, OutboxRow};
use crate::store::tables::due::Least;
use crate::store::tables::table::Table;
use crate::store::tables::work::shift;
use crate::time::{Span, Timestamp};

/// From here on doubling a delay no longer changes it (see [`doubled`](crate::retry::doubled)), so all more share a class.
const LAST_CLASS: u32 = 63;

/// Where a dispatched execution stands: class, stamp, id.
type Place = (u32, Timestamp, ExecutionId);

/// Executions without an outbox row and outbox rows without a purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct DeliveryIndex {
    undelivered: BTreeSet<Place>,
    settled: BTreeSet<OutboxId>,
}

impl DeliveryIndex {
    /// `Pending`, not waiting, with a dispatch stamp.
    fn place(row: &ExecutionRow) -> Option<Place> {
        let dispatched = row.state == ExecutionState::Pending && row.waiting.is_none();
        let at = row.dispatched_at.filter(|_| dispatched)?;
        Some((row.redispatches.min(LAST_CLASS), at, row.id))
    }

    /// An execution was written.
    pub(super) fn execution_written(
        &mut self,
        before: Option<&ExecutionRow>,
        after: &ExecutionRow,
        outbox: &Table<OutboxRow>,
    ) {
        let (was, is) = (before.and_then(Self::place), Self::place(after));
        if was != is {
            // Where it was, it may be missing: its outbox rows kept it out.
            let is = is.filter(|_| !has_rows(outbox, after.id));
            shift(&mut self.undelivered, was, is);
        }
        let (had_ended, has_ended) =
            (before.is_some_and(|row| row.state.is_terminal()), after.state.is_terminal());
        if had_ended != has_ended {
            for row in rows_of(outbox, after.id) {
                let id = OutboxId { execution: row.execution, dispatch_no: row.dispatch_no };
                shift(&mut self.settled, had_ended.then_some(id), has_ended.then_some(id));
            }
        }
    }

    /// An execution without outbox rows was never made, after all.
    pub(super) fn execution_forgotten(&mut self, row: &ExecutionRow) {
        if let Some(place) = Self::place(row) {
            self.undelivered.remove(&place);
        }
    }

    /// An outbox row was inserted.
    pub(super) fn outbox_inserted(&mut self, id: OutboxId, execution: Option<&ExecutionRow>) {
        let Some(execution) = execution else { return };
        if let Some(place) = Self::place(execution) {
            self.undelivered.remove(&place);
        }
        if execution.state.is_terminal() {
            self.settled.insert(id);
        }
    }

    /// An outbox row was removed.
    pub(super) fn outbox_removed(
        &mut self,
        id: OutboxId,
        execution: Option<&ExecutionRow>,
        outbox: &Table<OutboxRow>,
    ) {
        self.settled.remove(&id);
        if let Some(place) = execution.and_then(Self::place)
            && !has_rows(outbox, id.execution)
        {
            self.undelivered.insert(place);
        }
    }

    /// The first outbox rows of ended executions.
    pub(in crate::store) fn settled(&self) -> impl Iterator<Item = OutboxId> {
        self.settled.iter().copied()
    }

    /// The first `limit` executions whose dispatch led to nothing within its delay, or was stamped too far
    /// ahead to be waited for, by (`dispatched_at`, `id`).
    pub(in crate::store) fn undelivered(
        &self,
        redispatch_after: Span,
        now: Timestamp,
        limit: usize,
    ) -> Vec<ExecutionId> {
        let mut found = Vec::new();
        let mut class = 0;
        // Jumps from class to class; there are at most `LAST_CLASS + 1`.
        while let Some((next, _, _)) =
            self.undelivered.range((class, Timestamp::MIN, ExecutionId::LEAST)..).next()
        {
            class = *next;
            let delay = redispatch_delay(redispatch_after, class);
            let is_over = |at: Timestamp| lease::is_over(at.plus(delay), REDISPATCH_DELAY_MAX, now);
            let from = (class, Timestamp::MIN, ExecutionId::LEAST);
            let end = (class + 1, Timestamp::MIN, ExecutionId::LEAST);
            let waited_for = self.undelivered.range(from..end).take_while(|(_, at, _)| at.plus(delay) <= now);
            // Those that are further ahead than any stamp reaches stand at the end of the class.
            let ahead = now.plus(REDISPATCH_DELAY_MAX).minus(delay);
            let ahead = (Bound::Included((class, ahead, ExecutionId::LEAST)), Bound::Excluded(end));
            let ahead =
                self.undelivered.range(ahead).filter(|(_, at, _)| at.plus(delay) > now && is_over(*at));
            found.extend(waited_for.chain(ahead).take(limit).map(|(_, at, id)| (*at, *id)));
            class += 1;
        }
        found.sort_unstable();
        found.into_iter().take(limit).map(|(_, id)| id).collect()
    }
}

/// The outbox rows of one execution, ascending.
pub(in crate::store) fn rows_of(
    outbox: &Table<OutboxRow>,
    execution: ExecutionId,
) -> impl Iterator<Item = &OutboxRow> {
    let first = OutboxId { execution, dispatch_no: DispatchNo(0) };
    let last = OutboxId { execution, dispatch_no: DispatchNo(u32::MAX) };
    outbox.range(first..=last)
}

fn has_rows(outbox: &Table<OutboxRow>, execution: ExecutionId) -> bool {
    rows_of(outbox, execution).next().is_some()
}
