//! How an execution changes its state: through [`Call::transition`] alone, which holds it to the table of
//! legal transitions.

use crate::bug::{Bug, Bugs};
use crate::execution::{ExecutionState, is_legal};
use crate::id::NodeId;
use crate::mark::{self, Mark};
use crate::store::command::OutboxId;
use crate::store::reference::Call;
use crate::store::reply::Dispatch;
use crate::store::row::{ExecutionRow, OutboxRow};
use crate::time::Timestamp;

impl Call<'_> {
    /// Changes the state, and nothing else.
    ///
    /// # Panics
    /// If the table does not allow it, which is a mistake of this module's (or a deliberate bug's, which it
    /// lets pass).
    pub(super) fn transition(&self, row: &mut ExecutionRow, to: ExecutionState) {
        assert!(
            is_legal(Some(row.state), to) || self.bugs != Bugs::NONE,
            "{} from {} to {to} is no legal transition",
            row.id,
            row.state
        );
        row.state = to;
    }

    /// Takes a run to the state after it that is not terminal: nobody holds it, and it is due at `at`.
    pub(super) fn set_back(&self, row: &mut ExecutionRow, at: Timestamp) {
        self.transition(row, ExecutionState::RetryWait);
        row.owner = None;
        row.expires_at = Timestamp::EPOCH;
        row.next_try_at = Some(at);
    }

    /// Takes an execution to a terminal state: nobody holds it, it waits for nothing, and it ended now, or
    /// at its latest stamp where that lies ahead of the clock.
    pub(super) fn settle(&self, row: &mut ExecutionRow, to: ExecutionState) {
        self.transition(row, to);
        row.owner = None;
        row.expires_at = Timestamp::EPOCH;
        row.waiting = None;
        row.held_by = None;
        row.next_try_at = None;
        let stamps = [row.published_at, row.received_at, row.leased_at, row.started_at];
        let latest = stamps.into_iter().flatten().fold(row.materialised_at, Timestamp::max);
        let finished_at = self.now.max(latest);
        row.finished_at = Some(finished_at);
        self.note_clamped(row, finished_at != self.now);
    }

    /// Flags that a span between the lag stamps was clamped.
    pub(super) fn note_clamped(&self, row: &mut ExecutionRow, clamped: bool) {
        if clamped && !self.bugs.has(Bug::ClampsGoUnflagged) {
            mark::hit(Mark::LagClamped);
            row.lag_clamped = true;
        }
    }

    /// Gives an execution its next dispatch; [`Self::outbox_row`] is to follow.
    pub(super) fn dispatch(&self, row: &mut ExecutionRow) {
        row.dispatch_no = row.dispatch_no.next();
        row.dispatched_at = Some(self.now);
    }

    /// The outbox row of an execution's latest dispatch, committed now by `node`.
    pub(super) fn outbox_row(&self, row: &ExecutionRow, node: NodeId) -> OutboxRow {
        OutboxRow {
            execution: row.id,
            dispatch_no: row.dispatch_no,
            tenant: row.tenant,
            partition: row.partition,
            created_by: node,
            created_at: self.now,
            next_try_at: self.now,
            tries: 0,
        }
    }

    /// Whether this is the latest dispatch of an execution that is still to be started.
    pub(super) fn is_awaited(row: &ExecutionRow, dispatch: OutboxId) -> bool {
        row.state == ExecutionState::Pending && row.dispatch_no == dispatch.dispatch_no
    }

    /// All that the message of a dispatch takes.
    pub(super) fn dispatch_of(&self, id: OutboxId) -> Dispatch {
        let row =
            self.tables.executions().get(&id.execution).expect("outbox rows are made with their execution");
        let version = self
            .tables
            .job_versions
            .get(&(row.job, row.job_version))
            .expect("a job's versions are kept as long as its executions");
        Dispatch {
            execution: row.id,
            dispatch_no: id.dispatch_no,
            tenant: row.tenant,
            job: row.job,
            job_version: row.job_version,
            occurrence: row.occurrence.clone(),
            key: row.key.clone(),
            due_at: row.due_at,
            payload: row.payload.clone(),
            definition: version.definition.clone(),
        }
    }
}
