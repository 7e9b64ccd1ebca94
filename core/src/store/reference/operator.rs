//! Operators: tenants, jobs, triggers and cancels.
//!
//! Each is safe to send again: by the request id that is stored with what it made, by the identity of what
//! it makes, or because it is done already. What belongs to another tenant is answered like what is not
//! there.

use crate::bug::Bug;
use crate::execution::{CancelState, ExecutionState};
use crate::id::{ExecutionId, JobId, JobVersion, Occurrence, TenantId};
use crate::job::Standing;
use crate::limits::PLAN_AGE_MAX;
use crate::mark::{self, Mark};
use crate::partition::PartitionId;
use crate::store::command::{CancelExecution, CreateJob, CreateTenant, DeleteJob, TriggerJob};
use crate::store::reference::Call;
use crate::store::reference::materialise::new_execution;
use crate::store::reply::{CancelReply, CreateJobReply, CreateTenantReply, DeleteJobReply, TriggerReply};
use crate::store::row::{ExecutionRow, JobRow, JobState, JobVersionRow, RequestRow, TenantRow};
use crate::time::Timestamp;

impl Call<'_> {
    /// A known id with another name is refused like a name of another tenant's.
    pub(super) fn create_tenant(&mut self, ask: &CreateTenant) -> CreateTenantReply {
        match (self.tables.tenants.get(&ask.tenant), self.tables.tenant_named(&ask.name)) {
            (Some(known), _) if known.name == ask.name => CreateTenantReply::Repeated,
            (Some(_), _) | (None, Some(_)) => CreateTenantReply::NameTaken,
            (None, None) => {
                let row = TenantRow { id: ask.tenant, name: ask.name.clone(), created_at: self.now };
                self.tables.tenants.put(row, self.changes);
                CreateTenantReply::Created
            }
        }
    }

    /// Checked in this order: the tenant, the request id, the job id, the calendars, the age of the plan. So a resend is
    /// recognised however late it comes. Without a request id, a resend meets its own job id.
    pub(super) fn create_job(&mut self, ask: &CreateJob) -> CreateJobReply {
        if !self.tables.tenants.contains(&ask.tenant) {
            return CreateJobReply::NoTenant;
        }
        if let Some(asked) = &ask.request
            && let Some(known) = self.tables.requests.get(&(ask.tenant, asked.request.clone()))
        {
            return match known.made_a_job(asked.fingerprint) {
                Some(job) => CreateJobReply::Repeated { job },
                None => CreateJobReply::RequestReused,
            };
        }
        if self.tables.jobs.contains(&ask.job) {
            return CreateJobReply::IdTaken;
        }
        if !self.has_calendars_of(ask.tenant, &ask.definition) {
            mark::hit(Mark::CalendarMetChange);
            return CreateJobReply::CalendarChanged;
        }
        if ask.planned_at > self.now || ask.planned_at.plus(PLAN_AGE_MAX) < self.now {
            return CreateJobReply::PlanExpired;
        }
        if self.bugs.has(Bug::CreateWritesNothing) {
            return CreateJobReply::Created;
        }
        self.insert_job(ask);
        if let Some(asked) = &ask.request {
            let row = RequestRow {
                tenant: ask.tenant,
                request: asked.request.clone(),
                fingerprint: asked.fingerprint,
                job: Some(ask.job),
                execution: None,
                version: None,
                pause: None,
                at: self.now,
            };
            self.tables.requests.put(row, self.changes);
        }
        CreateJobReply::Created
    }

    /// Without a next fire, `next_try_at` is when the job was created: no scan reads it.
    fn insert_job(&mut self, ask: &CreateJob) {
        let (recorded_through, next_fire_time) = self.first_watermark(ask);
        let job = JobRow {
            id: ask.job,
            tenant: ask.tenant,
            partition: PartitionId::of(ask.job),
            version: JobVersion::FIRST,
            state: JobState::Active,
            standing: Standing::Active,
            standing_since: JobVersion::FIRST,
            definition: ask.definition.clone(),
            effective_from: ask.planned_at,
            recorded_through,
            next_fire_time,
            next_try_at: next_fire_time.map_or(ask.planned_at, |fire| fire.plus(ask.next_flex)),
            runs: 0,
            unreadable: None,
            created_at: ask.planned_at,
        };
        let version = JobVersionRow {
            job: ask.job,
            version: JobVersion::FIRST,
            tenant: ask.tenant,
            definition: ask.definition.clone(),
            effective_from: ask.planned_at,
            standing: Standing::Active,
            standing_since: JobVersion::FIRST,
            actor: None,
            reason: None,
        };
        self.tables.jobs.put(job, self.changes);
        self.tables.job_versions.put(version, self.changes);
    }

    /// The watermark that a job begins with, and the fire after it: as planned.
    fn first_watermark(&self, ask: &CreateJob) -> (Timestamp, Option<Timestamp>) {
        if self.bugs.has(Bug::FirstFireTakenForRecorded)
            && let (Some(first), Ok(definition)) = (ask.next_fire_time, ask.definition.read())
        {
            return (first, definition.bounds.next_fire_after(&definition.schedule, first));
        }
        (ask.recorded_through, ask.next_fire_time)
    }

    /// The row of a job of this tenant, deleted or not.
    pub(super) fn job_of(&self, tenant: TenantId, job: JobId) -> Option<&JobRow> {
        self.tables.jobs.get(&job).filter(|row| row.tenant == tenant)
    }

    /// The row stays, under a version of its own without a definition; outbox rows of what was cancelled
    /// stay for the sweep.
    pub(super) fn delete_job(&mut self, ask: &DeleteJob) -> DeleteJobReply {
        let Some(job) = self.job_of(ask.tenant, ask.job) else { return DeleteJobReply::NotFound };
        if job.state == JobState::Deleted {
            return DeleteJobReply::Repeated;
        }
        if self.bugs.has(Bug::DeleteWritesNothing) {
            return DeleteJobReply::Deleted { cancelled: 0, requested: 0 };
        }
        let job = JobRow {
            version: job.version.next(),
            state: JobState::Deleted,
            effective_from: self.now.max(job.recorded_through.next()),
            next_fire_time: None,
            ..job.clone()
        };
        self.tables.jobs.put(job, self.changes);
        let (mut cancelled, mut requested) = (0, 0);
        let least = (ask.job, ExecutionId::from_u128(0));
        let most = (ask.job, ExecutionId::from_u128(u128::MAX));
        let live: Vec<ExecutionId> =
            self.tables.executions().index().live.range(least..=most).map(|(_, id)| *id).collect();
        for id in live {
            let row = self.tables.executions().get(&id).expect("the index names rows of its table");
            let had_been_asked = row.cancel == CancelState::Requested;
            match self.cancel(row.clone()) {
                CancelReply::Cancelled { .. } => cancelled += 1,
                CancelReply::Requested if had_been_asked => {}
                CancelReply::Requested => requested += 1,
                CancelReply::Ended { .. } | CancelReply::NotFound => {}
            }
        }
        DeleteJobReply::Deleted { cancelled, requested }
    }

    /// Checked in this order: the job (of this tenant), the execution (there already), the job again (not
    /// deleted). So a resend is recognised also after the job was deleted.
    pub(super) fn trigger_job(&mut self, ask: &TriggerJob) -> TriggerReply {
        let Some(job) = self.job_of(ask.tenant, ask.job) else { return TriggerReply::NotFound };
        let mut id = ask.execution;
        if let Some(known) = self.tables.executions().get(&id) {
            mark::hit(Mark::TriggerRepeated);
            if !self.bugs.has(Bug::TriggerIgnoresKey) {
                return if known.payload == ask.payload {
                    TriggerReply::Repeated { state: known.state }
                } else {
                    TriggerReply::KeyReused
                };
            }
            id = another_id(self.tables.executions().len());
        }
        if job.state == JobState::Deleted {
            return TriggerReply::NotFound;
        }
        if self.bugs.has(Bug::TriggerWritesNothing) {
            return TriggerReply::Repeated { state: ExecutionState::Pending };
        }
        let occurrence = Occurrence::Manual { key: ask.key.clone() };
        let key = occurrence.idempotency_key(ask.job).expect("a manual occurrence has a key of its own");
        let row = ExecutionRow {
            payload: ask.payload.clone(),
            deadline_at: job
                .definition
                .deadline_of(self.now)
                .filter(|_| !self.bugs.has(Bug::TriggerForgetsDeadline)),
            ..new_execution(job, id, occurrence, key, self.now)
        };
        let outbox = self.outbox_row(&row, ask.node);
        self.tables.put_execution(row, self.changes);
        self.tables.put_outbox(outbox, self.changes);
        TriggerReply::Created
    }

    /// Asking twice is asking once.
    pub(super) fn cancel_execution(&mut self, ask: &CancelExecution) -> CancelReply {
        let execution = self.tables.executions().get(&ask.execution);
        let anybody = self.bugs.has(Bug::CancelIgnoresTenant);
        match execution.filter(|row| row.tenant == ask.tenant || anybody) {
            Some(row) => {
                let reply = self.cancel(row.clone());
                let ended = self.tables.executions().get(&ask.execution).cloned();
                if let (CancelReply::Cancelled { .. }, Some(ended)) = (&reply, ended) {
                    self.free_slot(&ended);
                }
                reply
            }
            None => CancelReply::NotFound,
        }
    }

    /// What waits for its slot is lifted by the caller, where it is to be.
    pub(super) fn cancel(&mut self, mut row: ExecutionRow) -> CancelReply {
        let was = row.state;
        match was {
            ExecutionState::Pending | ExecutionState::RetryWait => {
                mark::hit(Mark::CancelledBeforeRun);
                self.settle(&mut row, ExecutionState::Cancelled);
                self.tables.put_execution(row, self.changes);
                CancelReply::Cancelled { was }
            }
            ExecutionState::Running => {
                mark::hit(Mark::CancelRequested);
                row.cancel = CancelState::Requested;
                self.tables.put_execution(row, self.changes);
                CancelReply::Requested
            }
            ExecutionState::Completed
            | ExecutionState::DeadLettered
            | ExecutionState::Failed
            | ExecutionState::Cancelled
            | ExecutionState::Skipped => CancelReply::Ended { state: was },
        }
    }
}

/// What the bug of that name calls a second execution of one key.
fn another_id(known: usize) -> ExecutionId {
    ExecutionId::from_u128(known as u128)
}
