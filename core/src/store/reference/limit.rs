//! Concurrency limits: who counts, what waits, and who is lifted.
//!
//! An execution counts while it is `Running`, until it is finished or taken over, and not until its lease expires. What
//! counts is counted whenever it matters, never kept. An execution waits for the tenant's own limit, or for that of its
//! version's key. Each run that ends lifts one of those that would be granted now: of the priority that it is offered to
//! first if there is any, else of the others, the highest first; and within one the first by due time.

use std::sync::Arc;

use crate::bug::Bug;
use crate::execution::{ExecutionState, WaitReason};
use crate::id::{ExecutionId, JobId, NodeId, TenantId};
use crate::limits::{LIMIT_CANDIDATES_MAX, LIMIT_LIFTS_MAX, LIMIT_RECHECK};
use crate::mark::{self, Mark};
use crate::priority::Priority;
use crate::store::command::SetLimit;
use crate::store::reference::Call;
use crate::store::reply::SetLimitReply;
use crate::store::row::{ExecutionRow, LimitRow, RequestRow};
use crate::time::Timestamp;

impl Call<'_> {
    /// Whether the tenant has any limit that is set.
    fn is_limited(&self, tenant: TenantId) -> bool {
        let least: (TenantId, Arc<str>) = (tenant, "".into());
        let own = self.tables.limits.range(least..).take_while(|row| row.tenant == tenant);
        own.into_iter().any(|row| row.max_running.is_some())
    }

    fn key_of(&self, row: &ExecutionRow) -> Option<Arc<str>> {
        let version = self.tables.job_versions.get(&(row.job, row.job_version))?;
        version.definition.concurrency_key().cloned()
    }

    fn max_of(&self, tenant: TenantId, key: &str) -> Option<u64> {
        let row = self.tables.limits.get(&(tenant, Arc::from(key)))?;
        row.max_running.map(u64::from)
    }

    /// How many of a tenant run, or of one of its keys.
    fn running_of(&self, tenant: TenantId, key: Option<&str>, job: JobId) -> u64 {
        let executions = self.tables.executions();
        let running = executions.index().running.iter().filter_map(|(_, id)| executions.get(id));
        let counts = |row: &&ExecutionRow| {
            row.tenant == tenant
                && key.is_none_or(|key| self.key_of(row).as_deref() == Some(key))
                && (row.job == job || !self.bugs.has(Bug::LimitCountsOneJob))
        };
        running.filter(counts).count() as u64
    }

    /// The limit that an execution which asks for a lease would go beyond.
    fn limit_in_the_way(&self, row: &ExecutionRow) -> Option<WaitReason> {
        if self.bugs.has(Bug::LimitsAreIgnored) {
            return None;
        }
        let is_full = |key: Option<&str>| {
            let most = self.max_of(row.tenant, key.unwrap_or_default());
            most.is_some_and(|most| self.running_of(row.tenant, key, row.job) >= most)
        };
        if !self.bugs.has(Bug::TenantLimitForgotten) && is_full(None) {
            return Some(WaitReason::TenantLimit);
        }
        self.key_of(row).filter(|key| is_full(Some(key))).map(|_| WaitReason::KeyLimit)
    }

    /// Whether an execution that is pending has to wait for a limit; then that is recorded. One that waits for the
    /// same already keeps its time.
    pub(super) fn waits_for_limit(&mut self, id: ExecutionId) -> bool {
        let row = self.tables.executions().get(&id).expect("the caller has read it");
        if row.token.next().is_none() || !self.is_limited(row.tenant) {
            return false;
        }
        let Some(reason) = self.limit_in_the_way(row) else { return false };
        if row.waiting != Some(reason) {
            mark::hit(Mark::LimitReached);
            let lasting = self.bugs.has(Bug::LimitLiftsNothing);
            let next_try_at = if lasting { Timestamp::MAX } else { self.now.plus(LIMIT_RECHECK) };
            let waiting = Some(reason);
            let row = ExecutionRow { waiting, held_by: None, next_try_at: Some(next_try_at), ..row.clone() };
            self.tables.put_execution(row, self.changes);
        }
        true
    }

    /// What is to follow once the end of a run is written, whatever it was: the first of those that would be granted
    /// now is dispatched, in the name of the node that ran.
    pub(super) fn free_limits(&mut self, ended: &ExecutionRow) {
        let runs_on = ended.state == ExecutionState::Running;
        if let Some(node) = ended.nonce_node.filter(|_| !runs_on && self.is_limited(ended.tenant)) {
            self.lift_limited(ended.tenant, node, Priority::offered_first(ended.id.as_uuid().as_u128()));
        }
    }

    fn priority_of(&self, row: &ExecutionRow) -> Priority {
        let version = self.tables.job_versions.get(&(row.job, row.job_version));
        version.map_or(Priority::Normal, |version| version.definition.priority())
    }

    fn lift_limited(&mut self, tenant: TenantId, node: NodeId, offered_first: Priority) -> bool {
        let least = (tenant, Timestamp::MIN, ExecutionId::from_u128(0));
        let most = (tenant, Timestamp::MAX, ExecutionId::from_u128(u128::MAX));
        let executions = self.tables.executions();
        let first_of = |priority: Priority| {
            let waiting = executions.index().limited.range(least..=most);
            let rows = waiting.filter_map(|(_, _, id)| executions.get(id));
            let mut own = rows.filter(|row| self.priority_of(row) == priority).take(LIMIT_CANDIDATES_MAX);
            own.find(|row| self.limit_in_the_way(row).is_none()).cloned()
        };
        let first = offered_first.and_then_the_others().find_map(first_of);
        let Some(mut row) = first.filter(|_| !self.bugs.has(Bug::LimitLiftsNothing)) else { return false };
        mark::hit(Mark::LimitLifted);
        row.waiting = None;
        row.next_try_at = None;
        self.dispatch(&mut row);
        let outbox = self.outbox_row(&row, node);
        self.tables.put_execution(row, self.changes);
        self.tables.put_outbox(outbox, self.changes);
        true
    }

    pub(super) fn set_limit(&mut self, ask: &SetLimit) -> SetLimitReply {
        if !self.tables.tenants.contains(&ask.tenant) {
            return SetLimitReply::NoTenant;
        }
        if let Some(asked) = &ask.request
            && let Some(known) = self.tables.requests.get(&(ask.tenant, asked.request.clone()))
        {
            return if known.set_a_limit(asked.fingerprint) {
                mark::hit(Mark::LimitRepeated);
                SetLimitReply::Repeated
            } else {
                SetLimitReply::RequestReused
            };
        }
        mark::hit(Mark::LimitSet);
        let row = LimitRow {
            tenant: ask.tenant,
            key: ask.key.clone().unwrap_or_else(|| "".into()),
            max_running: ask.max_running,
            actor: ask.actor.clone(),
            reason: ask.reason.clone(),
            set_at: self.now,
        };
        self.tables.limits.put(row, self.changes);
        if let Some(asked) = &ask.request {
            let row = RequestRow {
                tenant: ask.tenant,
                request: asked.request.clone(),
                fingerprint: asked.fingerprint,
                job: None,
                execution: None,
                version: None,
                pause: None,
                at: self.now,
            };
            self.tables.requests.put(row, self.changes);
        }
        for lift in 0..LIMIT_LIFTS_MAX {
            if !self.lift_limited(ask.tenant, ask.node, Priority::offered_first(lift as u128)) {
                break;
            }
        }
        SetLimitReply::Set
    }
}
