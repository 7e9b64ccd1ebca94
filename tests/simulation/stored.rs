//! A row of any table, and its key: what was seen of a server is kept and compared by these.
//!
//! Relies on the readers of conformance, so that both proofs read a row the same way.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, JobId, JobVersion, NodeId, PauseId, TenantId};
use fencepost_core::lease::LeaseResource;
use fencepost_core::store::change::{Change, Delta};
use fencepost_core::store::command::OutboxId;
use fencepost_core::store::row::{
    AttemptRow, CalendarRow, DeadLetterRow, ExecutionRow, JobRow, JobVersionRow, LeaseRow, LimitRow,
    MalformedRow, NodeRow, OutboxRow, PauseRow, RefusalRow, RefusedAction, RefusedResource, RequestRow,
    SkippedRangeRow, TenantRow,
};
use fencepost_core::store::tables::Contents;
use fencepost_core::time::Timestamp;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::contents;

/// A table, as the server names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// The query for what was seen of it since.
    pub(crate) seen: &'static str,
}

/// What was done to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deed {
    Inserted,
    Updated,
    Deleted,
}

fn boxed<Row>(delta: Delta<Row>) -> Box<Delta<Row>> {
    Box::new(delta)
}

fn plain<Row>(delta: Delta<Row>) -> Delta<Row> {
    delta
}

macro_rules! tables {
    ($($variant:ident($row:ty) = $table:literal, $list:ident, $read:expr, $wrap:ident, $key:ty = |$it:ident| $make:expr;)+) => {
        /// A row of some table.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) enum Stored { $($variant(Box<$row>),)+ }

        /// Which row of which table.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum RowKey { $($variant($key),)+ }

        /// All tables.
        pub(crate) const TABLES: &[Table] = &[$(Table {
            name: $table,
            seen: concat!("SELECT * FROM seen_", $table, " WHERE number > $1 ORDER BY number"),
        },)+];

        impl Stored {
            /// The row of a table, read from a row of the server's with that table's columns.
            pub(crate) fn read(table: &str, row: &PgRow) -> Self {
                match table {
                    $($table => Self::$variant(Box::new($read(row))),)+
                    other => panic!("{other:?} is none of the tables that are watched"),
                }
            }

            /// Its key.
            pub(crate) fn key(&self) -> RowKey {
                match self {
                    $(Self::$variant(row) => {
                        let $it = row;
                        RowKey::$variant($make)
                    })+
                }
            }

            /// The change from one row to another of the same key; none where they are the same.
            pub(crate) fn change(before: Option<Self>, after: Option<Self>) -> Option<Change> {
                if before == after {
                    return None;
                }
                Some(match (before, after) {
                    $((Some(Self::$variant(before)), None) => {
                        Change::$variant($wrap(Delta { before: Some(*before), after: None }))
                    }
                    (None, Some(Self::$variant(after))) => {
                        Change::$variant($wrap(Delta { before: None, after: Some(*after) }))
                    }
                    (Some(Self::$variant(before)), Some(Self::$variant(after))) => {
                        Change::$variant($wrap(Delta { before: Some(*before), after: Some(*after) }))
                    })+
                    (before, after) => panic!("one key, two tables: {before:?} and {after:?}"),
                })
            }

            /// The row before a change, and the row after it.
            pub(crate) fn halves(change: &Change) -> (Option<Self>, Option<Self>) {
                match change {
                    $(Change::$variant(delta) => {
                        let half = |row: &Option<$row>| row.clone().map(|row| Self::$variant(Box::new(row)));
                        (half(&delta.before), half(&delta.after))
                    })+
                }
            }

            /// Every row of a store.
            pub(crate) fn all(contents: Contents) -> BTreeMap<RowKey, Self> {
                let mut rows = Vec::new();
                $(rows.extend(contents.$list.into_iter().map(|row| Self::$variant(Box::new(row))));)+
                rows.into_iter().map(|row| (row.key(), row)).collect()
            }
        }

        /// Which row a change is of.
        pub(crate) fn key_of(change: &Change) -> RowKey {
            match change {
                $(Change::$variant(delta) => {
                    let $it = delta.after.as_ref().or(delta.before.as_ref())
                        .expect("a change has a row before or after");
                    RowKey::$variant($make)
                })+
            }
        }

        /// Of which table a change is, and what was done.
        pub(crate) fn deed_of(change: &Change) -> (&'static str, Deed) {
            match change {
                $(Change::$variant(delta) => {
                    let deed = match (&delta.before, &delta.after) {
                        (None, _) => Deed::Inserted,
                        (Some(_), Some(_)) => Deed::Updated,
                        (Some(_), None) => Deed::Deleted,
                    };
                    ($table, deed)
                })+
            }
        }
    };
}

tables! {
    Tenant(TenantRow) = "tenant", tenants, contents::tenant, plain, TenantId = |row| row.id;
    Lease(LeaseRow) = "lease", leases, contents::lease, plain, LeaseResource = |row| row.resource;
    Node(NodeRow) = "node", nodes, contents::node, plain, NodeId = |row| row.id;
    Job(JobRow) = "job", jobs, contents::job, boxed, JobId = |row| row.id;
    JobVersion(JobVersionRow) = "job_version", job_versions, contents::job_version, boxed,
        (JobId, JobVersion) = |row| (row.job, row.version);
    Execution(ExecutionRow) = "execution", executions, contents::execution, boxed, ExecutionId = |row| row.id;
    Attempt(AttemptRow) = "attempt", attempts, contents::attempt, boxed,
        (ExecutionId, FencingToken) = |row| (row.execution, row.token);
    Outbox(OutboxRow) = "outbox_event", outbox, contents::outbox, plain,
        OutboxId = |row| OutboxId { execution: row.execution, dispatch_no: row.dispatch_no };
    DeadLetter(DeadLetterRow) = "dead_letter", dead_letters, contents::dead_letter, boxed,
        ExecutionId = |row| row.execution;
    SkippedRange(SkippedRangeRow) = "skipped_range", skipped_ranges, contents::skipped_range, boxed,
        (JobId, Timestamp) = |row| (row.job, row.from);
    Refusal(RefusalRow) = "refusal", refusals, contents::refusal, boxed,
        (RefusedResource, FencingToken, NodeId, RefusedAction) = |row| (row.resource, row.token, row.node, row.action);
    Request(RequestRow) = "operator_request", requests, contents::request, boxed,
        (TenantId, Arc<str>) = |row| (row.tenant, Arc::clone(&row.request));
    Pause(PauseRow) = "pause", pauses, contents::pause, boxed, PauseId = |row| row.id;
    Limit(LimitRow) = "concurrency_limit", limits, contents::limit, boxed,
        (TenantId, Arc<str>) = |row| (row.tenant, Arc::clone(&row.key));
    Calendar(CalendarRow) = "calendar", calendars, contents::calendar, boxed,
        (TenantId, Arc<str>) = |row| (row.tenant, Arc::clone(&row.name));
    Malformed(MalformedRow) = "malformed_message", malformed, contents::malformed, boxed,
        Uuid = |row| row.digest;
}
