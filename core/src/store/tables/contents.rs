//! The whole contents of a store: every row of every table, ascending by key.
//!
//! Two stores that executed the same commands have equal contents; conformance compares them table by
//! table.

use crate::store::row::{
    AttemptRow, CalendarRow, DeadLetterRow, ExecutionRow, JobRow, JobVersionRow, LeaseRow, LimitRow,
    MalformedRow, NodeRow, OutboxRow, PauseRow, RefusalRow, RequestRow, SkippedRangeRow, TenantRow,
};
use crate::store::tables::Tables;

/// Every row of every table, each list ascending by its table's key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Contents {
    /// `tenant`.
    pub tenants: Vec<TenantRow>,
    /// `lease`.
    pub leases: Vec<LeaseRow>,
    /// `node`.
    pub nodes: Vec<NodeRow>,
    /// `job`.
    pub jobs: Vec<JobRow>,
    /// `job_version`.
    pub job_versions: Vec<JobVersionRow>,
    /// `execution`.
    pub executions: Vec<ExecutionRow>,
    /// `attempt`.
    pub attempts: Vec<AttemptRow>,
    /// `outbox_event`.
    pub outbox: Vec<OutboxRow>,
    /// `dead_letter`.
    pub dead_letters: Vec<DeadLetterRow>,
    /// `skipped_range`.
    pub skipped_ranges: Vec<SkippedRangeRow>,
    /// `refusal`.
    pub refusals: Vec<RefusalRow>,
    /// `operator_request`.
    pub requests: Vec<RequestRow>,
    /// `pause`.
    pub pauses: Vec<PauseRow>,
    /// `concurrency_limit`.
    pub limits: Vec<LimitRow>,
    /// `calendar`.
    pub calendars: Vec<CalendarRow>,
    /// `malformed_message`.
    pub malformed: Vec<MalformedRow>,
}

impl Tables {
    /// All rows.
    #[must_use]
    pub fn contents(&self) -> Contents {
        Contents {
            tenants: self.tenants().iter().cloned().collect(),
            leases: self.leases().iter().cloned().collect(),
            nodes: self.nodes().iter().cloned().collect(),
            jobs: self.jobs().iter().cloned().collect(),
            job_versions: self.job_versions().iter().cloned().collect(),
            executions: self.executions().iter().cloned().collect(),
            attempts: self.attempts().iter().cloned().collect(),
            outbox: self.outbox().iter().cloned().collect(),
            dead_letters: self.dead_letters().iter().cloned().collect(),
            skipped_ranges: self.skipped_ranges().iter().cloned().collect(),
            refusals: self.refusals().iter().cloned().collect(),
            requests: self.requests().iter().cloned().collect(),
            pauses: self.pauses().iter().cloned().collect(),
            limits: self.limits().iter().cloned().collect(),
            calendars: self.calendars().iter().cloned().collect(),
            malformed: self.malformed().iter().cloned().collect(),
        }
    }
}
