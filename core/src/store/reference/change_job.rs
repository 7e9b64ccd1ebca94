//! Edits, pauses and resumes: the job's next version.
//!
//! A request is recognised before anything else is looked at, so that a resend is told what it did however the job went
//! on since; and what stands as asked for is no conflict. Version and watermark are compared together: who has seen
//! both has seen every fire that the change could be about.

use crate::bug::Bug;
use crate::execution::{ExecutionState, WaitReason};
use crate::id::{ExecutionId, JobVersion};
use crate::job::Standing;
use crate::limits::{PLAN_AGE_MAX, UNRECORDED_VERSIONS_MAX};
use crate::mark::{self, Mark};
use crate::store::command::{ChangeJob, JobChange};
use crate::store::reference::Call;
use crate::store::reply::ChangeJobReply;
use crate::store::row::{ExecutionRow, JobRow, JobState, JobVersionRow, RequestRow};

impl Call<'_> {
    pub(super) fn change_job(&mut self, ask: &ChangeJob) -> ChangeJobReply {
        let Some(job) = self.job_of(ask.tenant, ask.job) else { return ChangeJobReply::NotFound };
        if let Some(asked) = &ask.request
            && let Some(known) = self.tables.requests.get(&(ask.tenant, asked.request.clone()))
        {
            return match known.changed_job(ask.job, asked.fingerprint) {
                Some(version) => {
                    mark::hit(Mark::ChangeRepeated);
                    ChangeJobReply::Repeated { version }
                }
                None => ChangeJobReply::RequestReused,
            };
        }
        if job.state == JobState::Deleted {
            return ChangeJobReply::NotFound;
        }
        if ask.change.standing() == Some(job.standing) {
            return ChangeJobReply::Already { version: job.version };
        }
        if job.version != ask.expected_version && !self.bugs.has(Bug::ChangeIgnoresVersion) {
            mark::hit(Mark::ChangeMetChange);
            return ChangeJobReply::VersionChanged { current: job.version };
        }
        let is_timely = ask.planned_at <= self.now && ask.planned_at.plus(PLAN_AGE_MAX) >= self.now;
        let stands = job.recorded_through == ask.expected_watermark;
        if !stands {
            mark::hit(Mark::ChangeMetWatermark);
        }
        if !is_timely || (!stands && !self.bugs.has(Bug::ChangeIgnoresWatermark)) {
            return ChangeJobReply::PlanExpired;
        }
        if let JobChange::Edit(definition) = &ask.change
            && !self.has_calendars_of(ask.tenant, definition)
        {
            mark::hit(Mark::CalendarMetChange);
            return ChangeJobReply::CalendarChanged;
        }
        if ask.recorded_through.next() < ask.effective_from && self.is_behind(job) {
            return ChangeJobReply::LedgerBehind;
        }
        let job = job.clone();
        ChangeJobReply::Changed { version: self.write_change(ask, job) }
    }

    /// Whether as many versions as may be decide about what follows the watermark.
    pub(super) fn is_behind(&self, job: &JobRow) -> bool {
        let oldest = (job.version.0 + 1).checked_sub(UNRECORDED_VERSIONS_MAX).map(JobVersion);
        let oldest = oldest.and_then(|version| self.tables.job_versions.get(&(job.id, version)));
        oldest.is_some_and(|oldest| oldest.effective_from > job.recorded_through.next())
    }

    pub(super) fn write_change(&mut self, ask: &ChangeJob, job: JobRow) -> JobVersion {
        let version = job.version.next();
        let (standing, standing_since) = match ask.change.standing() {
            Some(standing) => (standing, version),
            None => (job.standing, job.standing_since),
        };
        let (definition, unreadable) = match &ask.change {
            JobChange::Edit(definition) => (definition.clone(), None),
            JobChange::Pause | JobChange::Resume => (job.definition.clone(), job.unreadable.clone()),
        };
        let row = JobVersionRow {
            job: ask.job,
            version,
            tenant: ask.tenant,
            definition: definition.clone(),
            effective_from: ask.effective_from,
            standing,
            standing_since,
            actor: ask.actor.clone(),
            reason: ask.reason.clone(),
        };
        let next_fire_time = self.next_after_change(ask);
        let job = JobRow {
            version,
            standing,
            standing_since,
            definition,
            effective_from: ask.effective_from,
            recorded_through: ask.recorded_through,
            next_fire_time,
            next_try_at: next_fire_time.map_or(job.next_try_at, |fire| fire.plus(ask.next_flex)),
            unreadable,
            ..job
        };
        self.tables.jobs.put(job, self.changes);
        self.tables.job_versions.put(row, self.changes);
        if let Some(asked) = &ask.request {
            let row = RequestRow {
                tenant: ask.tenant,
                request: asked.request.clone(),
                fingerprint: asked.fingerprint,
                job: Some(ask.job),
                execution: None,
                version: Some(version),
                pause: None,
                at: self.now,
            };
            self.tables.requests.put(row, self.changes);
        }
        match ask.change {
            JobChange::Edit(_) => mark::hit(Mark::JobEdited),
            JobChange::Pause => mark::hit(Mark::JobPaused),
            JobChange::Resume => {
                mark::hit(Mark::JobResumed);
                self.release_held_back(ask);
            }
        }
        version
    }

    /// The first fire after the change: as planned.
    fn next_after_change(&self, ask: &ChangeJob) -> Option<crate::time::Timestamp> {
        let forgets =
            self.bugs.has(Bug::PauseForgetsBacklog) && ask.change.standing() == Some(Standing::Paused);
        ask.next_fire_time.filter(|_| !forgets)
    }

    /// What the pause held back is dispatched again at once.
    fn release_held_back(&mut self, ask: &ChangeJob) {
        let least = (ask.job, ExecutionId::from_u128(0));
        let most = (ask.job, ExecutionId::from_u128(u128::MAX));
        let live: Vec<ExecutionId> =
            self.tables.executions().index().live.range(least..=most).map(|(_, id)| *id).collect();
        for id in live {
            let row = self.tables.executions().get(&id).expect("the index names rows of its table");
            if row.state == ExecutionState::Pending && row.waiting == Some(WaitReason::JobPaused) {
                let row = ExecutionRow { next_try_at: Some(self.now), ..row.clone() };
                self.tables.put_execution(row, self.changes);
            }
        }
    }
}
