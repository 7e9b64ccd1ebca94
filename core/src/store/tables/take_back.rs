//! Taking changes back: what a search does that tries commands in many orders.
//!
//! A change says what a row was before, so a command can be undone from what it reported, at the cost of its
//! changes instead of a copy of every table. What must stay true: afterwards rows and indexes are equal to those
//! before the command, whatever it was.

use crate::store::change::{Change, Delta};
use crate::store::row::{ExecutionRow, OutboxRow};
use crate::store::tables::Tables;
use crate::store::tables::table::Record;

impl Tables {
    /// Takes back the changes of the commands that were executed last, the latest change first.
    pub(in crate::store) fn take_back(&mut self, changes: Vec<Change>) {
        for change in changes.into_iter().rev() {
            match change {
                Change::Tenant(delta) => self.tenants.take_back(delta),
                Change::Lease(delta) => self.leases.take_back(delta),
                Change::Node(delta) => self.nodes.take_back(delta),
                Change::Job(delta) => self.jobs.take_back(*delta),
                Change::JobVersion(delta) => self.job_versions.take_back(*delta),
                Change::Execution(delta) => self.take_back_execution(*delta),
                Change::Attempt(delta) => self.attempts.take_back(*delta),
                Change::Outbox(delta) => self.take_back_outbox(delta),
                Change::DeadLetter(delta) => self.dead_letters.take_back(*delta),
                Change::SkippedRange(delta) => self.skipped_ranges.take_back(*delta),
                Change::Refusal(delta) => self.refusals.take_back(*delta),
                Change::Request(delta) => self.requests.take_back(*delta),
                Change::Pause(delta) => self.pauses.take_back(*delta),
                Change::Limit(delta) => self.limits.take_back(*delta),
                Change::Calendar(delta) => self.calendars.take_back(*delta),
                Change::Malformed(delta) => self.malformed.take_back(*delta),
            }
        }
    }

    fn take_back_execution(&mut self, delta: Delta<ExecutionRow>) {
        match (&delta.before, &delta.after) {
            (Some(before), after) => {
                self.delivery.execution_written(after.as_ref(), before, &self.outbox);
            }
            // Its outbox rows came after it, and are gone by now.
            (None, Some(after)) => self.delivery.execution_forgotten(after),
            (None, None) => {}
        }
        self.executions.take_back(delta);
    }

    fn take_back_outbox(&mut self, delta: Delta<OutboxRow>) {
        match (&delta.before, &delta.after) {
            (Some(before), None) => {
                let id = before.key();
                self.delivery.outbox_inserted(id, self.executions.get(&id.execution));
                self.outbox.take_back(delta);
            }
            (None, Some(after)) => {
                let id = after.key();
                self.outbox.take_back(delta);
                self.delivery.outbox_removed(id, self.executions.get(&id.execution), &self.outbox);
            }
            (_, _) => self.outbox.take_back(delta),
        }
    }
}
