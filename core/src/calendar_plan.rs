//! Planning with calendars: what a job's definition means once its calendars are looked up, and what setting a calendar
//! makes of the jobs that name it.
//!
//! The store cannot compute fires, and a job's days are part of its definition. So whoever sets a calendar reads the jobs
//! that name it, plans the next version of each here, and sends all of them in one command; the store refuses it where a
//! job came, went or changed meanwhile, and the caller plans again.

use std::sync::Arc;

use crate::id::{JobId, TenantId};
use crate::job::{DefinitionError, JobDefinition, StoredDefinition};
use crate::job_plan::{ChangeError, ChangedBy, plan_days};
use crate::limits::BATCH_MAX;
use crate::schedule::Days;
use crate::store::command::{JobChange, OperatorRequest, SetCalendar};
use crate::store::row::{CalendarRow, JobRow};
use crate::time::Timestamp;

/// The same definition with the days that its calendars have now.
///
/// # Errors
/// [`DefinitionError`] at the first calendar that `find` does not know.
pub fn with_calendars<'a>(
    mut definition: JobDefinition,
    find: impl Fn(&str) -> Option<&'a CalendarRow>,
) -> Result<JobDefinition, DefinitionError> {
    let names: Vec<Arc<str>> =
        definition.exclude.all().iter().map(|known| Arc::clone(&known.calendar)).collect();
    for (at, name) in names.iter().enumerate() {
        let known = find(name).and_then(|row| Some((row.version, row.days.as_ref()?)));
        let Some((version, days)) = known else {
            let detail = format!("there is no calendar named {name:?}; set it first");
            return Err(DefinitionError::at(&format!("/exclude/{at}"), detail));
        };
        definition.exclude = definition.exclude.with(name, version, days);
    }
    Ok(definition)
}

/// Why a calendar cannot be set as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    /// A job would be left without a run, or cannot be read.
    #[error("job {job}: {why}")]
    Job {
        /// Which.
        job: JobId,
        /// Why.
        why: ChangeError,
    },
    /// More jobs name it than one command changes.
    #[error("{0} jobs name it; the days of a calendar that more than {BATCH_MAX} name cannot be changed")]
    TooManyJobs(usize),
}

/// What is to become of a calendar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalendarChange {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name.
    pub name: Arc<str>,
    /// The version that it has.
    pub expected_version: u64,
    /// Its days from now on; `None`: it is taken away.
    pub days: Option<Days>,
    /// The caller's request id.
    pub request: Option<OperatorRequest>,
    /// Who sets it.
    pub actor: Arc<str>,
    /// Why.
    pub reason: Arc<str>,
}

/// The command that sets a calendar which these jobs name, planned at `now`. The jobs are ascending by id.
///
/// # Errors
/// [`CalendarError`]: a job would have no run left, or cannot be read; or there are too many.
pub fn plan_calendar<'a>(
    change: CalendarChange,
    jobs: impl IntoIterator<Item = &'a JobRow>,
    now: Timestamp,
) -> Result<SetCalendar, CalendarError> {
    let CalendarChange { tenant, name, expected_version, days, request, actor, reason } = change;
    let plan = |row: &JobRow, days: &Days| {
        let refused = |why: ChangeError| CalendarError::Job { job: row.id, why };
        let known = row.definition.read().map_err(|why| refused(ChangeError::Unreadable(why.clone())))?;
        let exclude = known.exclude.with(&name, expected_version + 1, days);
        let definition = JobDefinition { exclude, ..(**known).clone() };
        let by = ChangedBy::for_calendar(&actor, &reason);
        let edit = JobChange::Edit(Arc::new(StoredDefinition::of(definition)));
        plan_days(row, edit, by, now).map_err(refused)
    };
    let jobs = match &days {
        Some(days) => jobs.into_iter().map(|row| plan(row, days)).collect::<Result<Vec<_>, _>>()?,
        None => Vec::new(),
    };
    if jobs.len() > BATCH_MAX {
        return Err(CalendarError::TooManyJobs(jobs.len()));
    }
    Ok(SetCalendar { tenant, name, expected_version, days, jobs, request, actor, reason })
}
