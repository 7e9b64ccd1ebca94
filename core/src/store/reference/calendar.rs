//! Calendars: set together with the next version of every job that names them, so that the days in a job's definition
//! are always those of the calendar.

use std::sync::Arc;

use crate::bug::Bug;
use crate::id::{JobId, TenantId};
use crate::job::StoredDefinition;
use crate::limits::PLAN_AGE_MAX;
use crate::mark::{self, Mark};
use crate::store::command::SetCalendar;
use crate::store::reference::Call;
use crate::store::reply::SetCalendarReply;
use crate::store::row::{CalendarRow, JobRow, JobState, RequestRow};

impl Call<'_> {
    /// Whether each calendar that a definition names is there, under the version that the definition has the days of.
    pub(super) fn has_calendars_of(&self, tenant: TenantId, definition: &StoredDefinition) -> bool {
        let Ok(definition) = definition.read() else { return true };
        definition.exclude.all().iter().all(|exclusion| {
            let row = self.tables.calendars.get(&(tenant, Arc::clone(&exclusion.calendar)));
            row.is_some_and(|row| row.days.is_some() && row.version == exclusion.version)
        })
    }

    pub(super) fn set_calendar(&mut self, ask: &SetCalendar) -> SetCalendarReply {
        if !self.tables.tenants.contains(&ask.tenant) {
            return SetCalendarReply::NoTenant;
        }
        if let Some(asked) = &ask.request
            && let Some(known) = self.tables.requests.get(&(ask.tenant, asked.request.clone()))
        {
            return if known.set_a_limit(asked.fingerprint) {
                mark::hit(Mark::CalendarRepeated);
                SetCalendarReply::Repeated
            } else {
                SetCalendarReply::RequestReused
            };
        }
        let known = self.tables.calendars.get(&(ask.tenant, ask.name.clone()));
        let (version, is_there) = known.map_or((0, false), |row| (row.version, row.days.is_some()));
        if version != ask.expected_version {
            return SetCalendarReply::VersionChanged { current: version };
        }
        if ask.days.is_none() && !is_there {
            return SetCalendarReply::NotFound;
        }
        let named_by: Vec<JobId> = self.jobs_naming(ask).map(|job| job.id).collect();
        if ask.days.is_none() && !named_by.is_empty() {
            return SetCalendarReply::InUse { jobs: named_by };
        }
        let rows: Option<Vec<JobRow>> = ask.jobs.iter().map(|plan| self.as_planned(plan)).collect();
        let Some(rows) = rows.filter(|rows| rows.iter().map(|row| row.id).eq(named_by)) else {
            mark::hit(Mark::CalendarMetChange);
            return SetCalendarReply::PlanExpired;
        };
        let behind =
            ask.jobs.iter().zip(&rows).find(|(plan, row)| {
                plan.recorded_through.next() < plan.effective_from && self.is_behind(row)
            });
        if let Some((plan, _)) = behind {
            return SetCalendarReply::LedgerBehind { job: plan.job };
        }
        mark::hit(Mark::CalendarSet);
        let row = CalendarRow {
            tenant: ask.tenant,
            name: ask.name.clone(),
            version: version + 1,
            days: ask.days.clone(),
            actor: ask.actor.clone(),
            reason: ask.reason.clone(),
            set_at: self.now,
        };
        self.tables.calendars.put(row, self.changes);
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
        if !self.bugs.has(Bug::CalendarKeepsOldDays) {
            for (plan, row) in ask.jobs.iter().zip(rows) {
                self.write_change(plan, row);
            }
        }
        SetCalendarReply::Set { version: version + 1 }
    }

    fn jobs_naming<'a>(&'a self, ask: &'a SetCalendar) -> impl Iterator<Item = &'a JobRow> {
        self.tables.jobs.iter().filter(|job| {
            job.tenant == ask.tenant
                && job.state == JobState::Active
                && job.definition.read().is_ok_and(|definition| definition.exclude.names(&ask.name))
        })
    }

    /// The row of a job, where it is as a change of it was planned on.
    fn as_planned(&self, plan: &crate::store::command::ChangeJob) -> Option<JobRow> {
        let job = self.tables.jobs.get(&plan.job)?;
        let is_timely = plan.planned_at <= self.now && plan.planned_at.plus(PLAN_AGE_MAX) >= self.now;
        let stands = job.version == plan.expected_version && job.recorded_through == plan.expected_watermark;
        (is_timely && stands).then(|| job.clone())
    }
}
