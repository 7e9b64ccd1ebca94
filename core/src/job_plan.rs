//! Planning an operator's command: what creating or changing a job means at a given reading of the store's clock.
//!
//! The store cannot compute fires, so whoever creates or changes a job reads the store's clock (and the job's row),
//! plans here, and sends the plan; the store refuses one that was made too long ago or ahead of its clock, and the
//! caller plans again. Fires before `planned_at` do not count for a new job, but for a one-shot that is to run although
//! it is past.
//!
//! A change decides from `effective_from` on, which lies after everything that is recorded. Fires before that stay
//! those of the versions before, and are recorded as theirs. Where none is left to be recorded, the watermark goes up
//! to the change itself, so that nobody has to look at the earlier versions again. While a job is paused it has no next
//! fire, unless one of before the pause, or of an earlier stretch of it, is not recorded yet.
//!
//! A definition that this version cannot read stands in the way only of what needs it: an edit where fires of it are
//! still to be recorded (they would never be), and a resume, which has to know what fell into the pause. A pause is
//! always possible, and so is an edit before the next fire has come.

use std::sync::Arc;

use crate::id::{JobId, TenantId};
use crate::job::{DefinitionError, JobDefinition, Standing, StoredDefinition, Unreadable};
use crate::limits::{ACTOR_CHARS_MAX, REASON_CHARS_MAX};
use crate::schedule::Schedule;
use crate::store::command::{ChangeJob, CreateJob, JobChange, OperatorRequest};
use crate::store::row::JobRow;
use crate::time::{Span, Timestamp};

/// The command that creates `job` by `definition`, planned at `now`.
///
/// # Errors
/// [`DefinitionError`]: a one-shot lies in the past, or the job would never fire.
pub fn plan_create(
    tenant: TenantId,
    job: JobId,
    request: Option<OperatorRequest>,
    definition: JobDefinition,
    now: Timestamp,
) -> Result<CreateJob, DefinitionError> {
    let recorded_through = match &definition.schedule {
        Schedule::OneShot { at } if definition.run_if_past => now.min(at.minus(Span::from_micros(1))),
        schedule @ (Schedule::Cron { .. }
        | Schedule::Interval { .. }
        | Schedule::OneShot { .. }
        | Schedule::Manual) => {
            schedule
                .check_not_past(now)
                .map_err(|error| DefinitionError::at("/schedule/at", error.to_string()))?;
            now
        }
    };
    let next_fire_time = definition.bounds.next_fire_after(&definition.schedule, recorded_through);
    if next_fire_time.is_none() && definition.schedule != Schedule::Manual {
        return Err(DefinitionError::at("/schedule", "never fires within its bounds from now on"));
    }
    Ok(CreateJob {
        tenant,
        job,
        request,
        definition: Arc::new(StoredDefinition::of(definition)),
        planned_at: now,
        recorded_through,
        next_fire_time,
    })
}

/// Who changes a job, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedBy {
    actor: Option<Arc<str>>,
    reason: Option<Arc<str>>,
}

/// Why nobody can be said to have changed a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangedByError {
    /// The name is empty, too long or holds a NUL.
    #[error("the name of whoever does this: from 1 to {ACTOR_CHARS_MAX} characters, none of them NUL")]
    Actor,
    /// The reason is empty, too long or holds a NUL.
    #[error("why it is done: from 1 to {REASON_CHARS_MAX} characters, none of them NUL")]
    Reason,
}

impl ChangedBy {
    /// Somebody, for a reason.
    ///
    /// # Errors
    /// [`ChangedByError`]: a text that is empty, too long, or holds a NUL.
    pub fn new(actor: &str, reason: &str) -> Result<Self, ChangedByError> {
        let fits = |text: &str, most| {
            !text.trim().is_empty() && !text.contains('\0') && text.chars().count() <= most
        };
        if !fits(actor, ACTOR_CHARS_MAX) {
            return Err(ChangedByError::Actor);
        }
        if !fits(reason, REASON_CHARS_MAX) {
            return Err(ChangedByError::Reason);
        }
        Ok(Self { actor: Some(actor.into()), reason: Some(reason.into()) })
    }
}

/// Why a job cannot be changed as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The new definition cannot take the place of the old one.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// The definition in force has to be read for this, and cannot be.
    #[error("the definition in force cannot be read by schema {}: {}", .0.schema, .0.reason)]
    Unreadable(Unreadable),
}

/// The command that changes a job which stands as `row` says, planned at `now`.
///
/// # Errors
/// [`ChangeError`]: a one-shot lies in the past, or the job would never fire again; or the definition in force is
/// unreadable where fires of it are to be recorded.
pub fn plan_change(
    row: &JobRow,
    request: Option<OperatorRequest>,
    change: JobChange,
    by: ChangedBy,
    now: Timestamp,
) -> Result<ChangeJob, ChangeError> {
    let effective_from = now.max(row.recorded_through.next()).max(row.effective_from);
    let unrecorded = unrecorded_before(row, &change, effective_from)?;
    let (through, definition) = (effective_from.minus(Span::from_micros(1)), definition_after(row, &change));
    let first_of_new = |stored: &StoredDefinition| {
        let definition = stored.read().map_err(|why| ChangeError::Unreadable(why.clone()))?;
        let ended = definition.bounds.exhausted_by(row.runs);
        let next = definition.bounds.next_fire_after(&definition.schedule, through);
        Ok::<_, ChangeError>(next.filter(|_| !ended))
    };
    if let JobChange::Edit(stored) = &change {
        if let (Some(_), Err(why)) = (unrecorded, row.definition.read()) {
            return Err(ChangeError::Unreadable(why.clone()));
        }
        check_edit(row, stored, first_of_new(stored)?, now)?;
    }
    let (recorded_through, next_fire_time) = match (unrecorded, change.standing().unwrap_or(row.standing)) {
        (Some(fire), _) => (row.recorded_through, Some(fire)),
        (None, Standing::Paused) => (through, None),
        (None, Standing::Active) => (through, first_of_new(definition)?),
    };
    Ok(ChangeJob {
        tenant: row.tenant,
        job: row.id,
        request,
        expected_version: row.version,
        expected_watermark: row.recorded_through,
        planned_at: now,
        change,
        actor: by.actor,
        reason: by.reason,
        effective_from,
        recorded_through,
        next_fire_time,
    })
}

fn definition_after<'a>(row: &'a JobRow, change: &'a JobChange) -> &'a StoredDefinition {
    match change {
        JobChange::Edit(definition) => definition,
        JobChange::Pause | JobChange::Resume => &row.definition,
    }
}

/// The first fire before a change that is not recorded: the job's next one, or, where a paused version ends by the
/// change, the first that fell into it.
fn unrecorded_before(
    row: &JobRow,
    change: &JobChange,
    effective_from: Timestamp,
) -> Result<Option<Timestamp>, ChangeError> {
    if let Some(fire) = row.next_fire_time {
        return Ok(Some(fire).filter(|fire| *fire < effective_from));
    }
    match (row.standing, change) {
        (Standing::Active, _) | (Standing::Paused, JobChange::Pause) => Ok(None),
        (Standing::Paused, JobChange::Edit(_) | JobChange::Resume) => {
            let definition = row.definition.read().map_err(|why| ChangeError::Unreadable(why.clone()))?;
            let after = row.recorded_through.max(row.effective_from.minus(Span::from_micros(1)));
            let first = definition.bounds.next_fire_after(&definition.schedule, after);
            let had_its_runs = definition_after(row, change)
                .read()
                .is_ok_and(|definition| definition.bounds.exhausted_by(row.runs));
            Ok(first.filter(|fire| *fire < effective_from && !had_its_runs))
        }
    }
}

/// An edit is refused as a creation would be, and where it takes back runs that the job has had.
fn check_edit(
    row: &JobRow,
    stored: &StoredDefinition,
    next: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), ChangeError> {
    let definition = stored.read().map_err(|why| ChangeError::Unreadable(why.clone()))?;
    if definition.bounds.exhausted_by(row.runs) {
        let why = format!("the job has had {} runs already", row.runs);
        return Err(DefinitionError::at("/bounds/max_runs", why).into());
    }
    definition
        .schedule
        .check_not_past(now)
        .map_err(|error| DefinitionError::at("/schedule/at", error.to_string()))?;
    if next.is_none() && definition.schedule != Schedule::Manual {
        let why = "never fires within its bounds from now on";
        return Err(DefinitionError::at("/schedule", why).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

    fn plan(schedule: &str, rest: &str) -> Result<CreateJob, DefinitionError> {
        let json = format!(r#"{{"name":"n","handler":{{"name":"noop"}},"schedule":{schedule}{rest}}}"#);
        let definition = JobDefinition::parse(&json).expect("valid");
        plan_create(TenantId::from_u128(1), JobId::from_u128(2), None, definition, NOW)
    }

    #[test]
    fn the_first_fire_is_after_now() {
        let command = plan(r#"{"kind":"cron","expr":"0 * * * *"}"#, "").expect("planned");
        assert_eq!(command.recorded_through, NOW);
        assert_eq!(command.next_fire_time, Some(NOW.plus(Span::from_secs(3_600))));
    }

    #[test]
    fn a_one_shot_in_the_past_needs_a_word() {
        let schedule = r#"{"kind":"one_shot","at":"2025-06-01T00:00:00Z"}"#;
        assert_eq!(plan(schedule, "").expect_err("past").pointer, "/schedule/at");
        let command = plan(schedule, r#","run_if_past":true"#).expect("planned");
        assert_eq!(command.next_fire_time, Timestamp::parse_rfc3339("2025-06-01T00:00:00Z"));
    }

    #[test]
    fn a_job_that_would_never_fire_is_refused() {
        let bounds = r#","bounds":{"end":"2025-12-31T00:00:00Z"}"#;
        assert!(plan(r#"{"kind":"cron","expr":"0 * * * *"}"#, bounds).is_err());
        assert!(plan(r#"{"kind":"manual"}"#, "").is_ok());
    }
}
