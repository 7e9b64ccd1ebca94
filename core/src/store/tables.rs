//! The tables of the reference semantics: ordered, with the indexes that the scans need.
//!
//! Anyone may read them; only the reference semantics write, through [`Table::put`] and [`Table::remove`],
//! or, for executions and outbox rows, through the functions here that keep the index over both. No scan
//! walks a table: each reads an index in the order of its answer, and stops at its limit.

use crate::id::{ExecutionId, NodeId, TenantId};
use crate::lease::LeaseResource;
use crate::store::change::Change;
use crate::store::command::OutboxId;
use crate::store::row::{
    AttemptRow, CalendarRow, DeadLetterRow, ExecutionRow, JobRow, JobVersionRow, LeaseRow, LimitRow,
    MalformedRow, NodeRow, OutboxRow, PauseRow, RefusalRow, RequestRow, SkippedRangeRow, TenantRow,
};

mod contents;
mod delivery;
mod due;
mod leases;
mod plain;
mod table;
mod take_back;
mod work;

pub use contents::Contents;
pub(in crate::store) use delivery::{DeliveryIndex, rows_of};
pub use leases::LeaseTable;
pub use plain::RefusalKey;
pub use table::{Record, Table};

/// Every table of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    pub(in crate::store) tenants: Table<TenantRow>,
    pub(in crate::store) leases: LeaseTable,
    pub(in crate::store) nodes: Table<NodeRow>,
    pub(in crate::store) jobs: Table<JobRow>,
    pub(in crate::store) job_versions: Table<JobVersionRow>,
    executions: Table<ExecutionRow>,
    pub(in crate::store) attempts: Table<AttemptRow>,
    outbox: Table<OutboxRow>,
    pub(in crate::store) dead_letters: Table<DeadLetterRow>,
    pub(in crate::store) skipped_ranges: Table<SkippedRangeRow>,
    pub(in crate::store) refusals: Table<RefusalRow>,
    pub(in crate::store) requests: Table<RequestRow>,
    pub(in crate::store) pauses: Table<PauseRow>,
    pub(in crate::store) limits: Table<LimitRow>,
    pub(in crate::store) calendars: Table<CalendarRow>,
    pub(in crate::store) malformed: Table<MalformedRow>,
    delivery: DeliveryIndex,
}

impl Default for Tables {
    /// Empty, but for one lease per resource that was never granted.
    fn default() -> Self {
        Self {
            tenants: Table::default(),
            leases: LeaseTable::default(),
            nodes: Table::default(),
            jobs: Table::default(),
            job_versions: Table::default(),
            executions: Table::default(),
            attempts: Table::default(),
            outbox: Table::default(),
            dead_letters: Table::default(),
            skipped_ranges: Table::default(),
            refusals: Table::default(),
            requests: Table::default(),
            pauses: Table::default(),
            limits: Table::default(),
            calendars: Table::default(),
            malformed: Table::default(),
            delivery: DeliveryIndex::default(),
        }
    }
}

macro_rules! readers {
    ($($(#[$doc:meta])* $name:ident: $row:ty,)+) => {
        impl Tables {
            $($(#[$doc])*
            #[must_use]
            pub const fn $name(&self) -> &Table<$row> {
                &self.$name
            })+
        }
    };
}

readers! {
    /// `tenant`.
    tenants: TenantRow,
    /// `node`.
    nodes: NodeRow,
    /// `job`.
    jobs: JobRow,
    /// `job_version`.
    job_versions: JobVersionRow,
    /// `execution`.
    executions: ExecutionRow,
    /// `attempt`.
    attempts: AttemptRow,
    /// `outbox_event`.
    outbox: OutboxRow,
    /// `dead_letter`.
    dead_letters: DeadLetterRow,
    /// `skipped_range`.
    skipped_ranges: SkippedRangeRow,
    /// `refusal`.
    refusals: RefusalRow,
    /// `operator_request`.
    requests: RequestRow,
    /// `pause`.
    pauses: PauseRow,
    /// `concurrency_limit`.
    limits: LimitRow,
    /// `calendar`.
    calendars: CalendarRow,
    /// `malformed_message`.
    malformed: MalformedRow,
}

impl Tables {
    /// `lease`.
    #[must_use]
    pub const fn leases(&self) -> &LeaseTable {
        &self.leases
    }

    /// The lease row of a resource.
    #[must_use]
    pub fn lease(&self, resource: LeaseResource) -> &LeaseRow {
        self.leases.get(resource)
    }

    /// The tenant of this name.
    #[must_use]
    pub fn tenant_named(&self, name: &str) -> Option<TenantId> {
        self.tenants.index().names.get(name).copied()
    }

    /// The outbox rows of one execution, ascending.
    pub fn outbox_of(&self, execution: ExecutionId) -> impl Iterator<Item = &OutboxRow> {
        rows_of(&self.outbox, execution)
    }

    /// Nodes that are not offline, ascending.
    pub(in crate::store) fn present_nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.index().present.iter().copied()
    }

    /// Active schedulers, live or not, ascending.
    pub(in crate::store) fn active_schedulers(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.index().schedulers.iter().copied()
    }

    /// The index over executions and outbox rows together.
    pub(in crate::store) const fn delivery(&self) -> &DeliveryIndex {
        &self.delivery
    }

    /// Inserts an execution or puts it in the place of its predecessor.
    pub(in crate::store) fn put_execution(&mut self, row: ExecutionRow, changes: &mut Vec<Change>) {
        self.delivery.execution_written(self.executions.get(&row.id), &row, &self.outbox);
        self.executions.put(row, changes);
    }

    /// Removes an execution that has ended and has no outbox row left: no index over both knows it.
    pub(in crate::store) fn remove_ended(&mut self, id: ExecutionId, changes: &mut Vec<Change>) {
        self.executions.remove(&id, changes);
    }

    /// Inserts an outbox row or puts it in the place of its predecessor.
    pub(in crate::store) fn put_outbox(&mut self, row: OutboxRow, changes: &mut Vec<Change>) {
        let id = row.key();
        if !self.outbox.contains(&id) {
            self.delivery.outbox_inserted(id, self.executions.get(&id.execution));
        }
        self.outbox.put(row, changes);
    }

    /// Removes an outbox row, if it is there, and says whether it was.
    pub(in crate::store) fn remove_outbox(&mut self, id: OutboxId, changes: &mut Vec<Change>) -> bool {
        let removed = self.outbox.remove(&id, changes);
        if removed {
            self.delivery.outbox_removed(id, self.executions.get(&id.execution), &self.outbox);
        }
        removed
    }
}
