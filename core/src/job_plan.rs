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
    check_runs(&definition, next_fire_time, recorded_through)?;
    let next_flex = next_fire_time.map_or(Span::ZERO, |fire| definition.flex_of(job, fire));
    Ok(CreateJob {
        tenant,
        job,
        request,
        definition: Arc::new(StoredDefinition::of(definition)),
        planned_at: now,
        recorded_through,
        next_fire_time,
        next_flex,
    })
}

/// A job with fires to come has one that runs.
fn check_runs(
    definition: &JobDefinition,
    next: Option<Timestamp>,
    after: Timestamp,
) -> Result<(), DefinitionError> {
    if definition.exclude.is_none() || next.is_none() || definition.next_run_after(after).is_some() {
        return Ok(());
    }
    let why = "its calendars exclude every fire from now on: none would run";
    Err(DefinitionError::at("/exclude", why))
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

    /// Whoever sets a calendar that the job names, for the reason given for that.
    pub(crate) fn for_calendar(actor: &Arc<str>, reason: &Arc<str>) -> Self {
        Self { actor: Some(Arc::clone(actor)), reason: Some(Arc::clone(reason)) }
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
    plan(row, request, change, by, now, Wanted::Anew)
}

/// The edit of a job that gives it the days that a calendar has from now on: whatever else the job is stays as it is, so
/// one that has nothing left to do is no obstacle.
///
/// # Errors
/// [`ChangeError`]: the job would have no run left, or its definition is unreadable where fires of it are to be recorded.
pub(crate) fn plan_days(
    row: &JobRow,
    edit: JobChange,
    by: ChangedBy,
    now: Timestamp,
) -> Result<ChangeJob, ChangeError> {
    plan(row, None, edit, by, now, Wanted::AsItIs)
}

/// What an edit is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// What a creation is: it is somebody's wish.
    Anew,
    /// Only that runs are left where there were some.
    AsItIs,
}

fn plan(
    row: &JobRow,
    request: Option<OperatorRequest>,
    change: JobChange,
    by: ChangedBy,
    now: Timestamp,
    wanted: Wanted,
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
        let next = first_of_new(stored)?;
        match wanted {
            Wanted::Anew => check_edit(row, stored, next, now)?,
            Wanted::AsItIs => {}
        }
        let definition = stored.read().map_err(|why| ChangeError::Unreadable(why.clone()))?;
        let had_runs = || {
            let before = row.definition.read().ok();
            before.is_none_or(|before| before.next_run_after(through).is_some())
        };
        if wanted == Wanted::Anew || had_runs() {
            check_runs(definition, next, through)?;
        }
    }
    // What is left of a version that ends is due at once: no fire is due later than its version decides.
    let (recorded_through, next_fire_time) = match (unrecorded, change.standing().unwrap_or(row.standing)) {
        (Some(fire), _) => (row.recorded_through, Some(fire)),
        (None, Standing::Paused) => (through, None),
        (None, Standing::Active) => (through, first_of_new(definition)?),
    };
    let flexed = next_fire_time.filter(|_| unrecorded.is_none()).zip(definition.read().ok());
    let next_flex = flexed.map_or(Span::ZERO, |(fire, definition)| definition.flex_of(row.id, fire));
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
        next_flex,
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

    /// The job of a definition as the store would hold it, created at `NOW`.
    fn row(schedule: &str, rest: &str) -> JobRow {
        let made = plan(schedule, rest).expect("planned");
        JobRow {
            id: made.job,
            tenant: made.tenant,
            partition: crate::partition::PartitionId::of(made.job),
            version: crate::id::JobVersion::FIRST,
            state: crate::store::row::JobState::Active,
            standing: Standing::Active,
            standing_since: crate::id::JobVersion::FIRST,
            definition: made.definition,
            effective_from: NOW,
            recorded_through: made.recorded_through,
            next_fire_time: made.next_fire_time,
            next_try_at: NOW,
            runs: 0,
            unreadable: None,
            created_at: NOW,
        }
    }

    fn after(row: &JobRow, planned: &ChangeJob) -> JobRow {
        JobRow {
            standing: planned.change.standing().unwrap_or(row.standing),
            effective_from: planned.effective_from,
            recorded_through: planned.recorded_through,
            next_fire_time: planned.next_fire_time,
            ..row.clone()
        }
    }

    fn edit(schedule: &str, rest: &str) -> JobChange {
        let json = format!(r#"{{"name":"n","handler":{{"name":"noop"}},"schedule":{schedule}{rest}}}"#);
        let definition = JobDefinition::parse(&json).expect("valid");
        JobChange::Edit(Arc::new(StoredDefinition::of(definition)))
    }

    const HOURLY: &str = r#"{"kind":"cron","expr":"0 * * * *"}"#;
    const DAILY: &str = r#"{"kind":"cron","expr":"0 5 * * *"}"#;

    fn minutes(minutes: u64) -> Timestamp {
        NOW.plus(Span::from_secs(60 * minutes))
    }

    fn changed(row: &JobRow, change: JobChange, now: Timestamp) -> Result<ChangeJob, ChangeError> {
        plan_change(row, None, change, ChangedBy::default(), now)
    }

    #[test]
    fn an_edit_counts_from_its_moment_and_takes_the_watermark_along() {
        let planned = changed(&row(HOURLY, ""), edit(DAILY, ""), minutes(30)).expect("planned");
        assert_eq!(planned.effective_from, minutes(30));
        assert_eq!(planned.recorded_through, minutes(30).minus(Span::from_micros(1)));
        assert_eq!(planned.next_fire_time, Some(minutes(300)));
    }

    #[test]
    fn a_fire_of_before_an_edit_stays_the_next_one_until_it_is_recorded() {
        let job = row(HOURLY, "");
        let planned = changed(&job, edit(DAILY, ""), minutes(61)).expect("planned");
        assert_eq!((planned.recorded_through, planned.next_fire_time), (NOW, Some(minutes(60))));
    }

    #[test]
    fn a_change_decides_about_nothing_that_is_recorded_or_was_another_versions() {
        let mut job = row(HOURLY, "");
        job.recorded_through = minutes(60);
        job.next_fire_time = Some(minutes(120));
        let planned =
            changed(&job, edit(DAILY, ""), minutes(30)).expect("planned on a clock that was set back");
        assert_eq!(planned.effective_from, minutes(60).next());
        job.effective_from = minutes(90);
        let planned = changed(&job, JobChange::Pause, minutes(30)).expect("planned");
        assert_eq!(planned.effective_from, minutes(90));
    }

    #[test]
    fn a_resume_finds_what_fell_into_the_pause_and_a_pause_of_nothing_leaves_nothing() {
        let job = row(HOURLY, "");
        let paused = changed(&job, JobChange::Pause, minutes(30)).expect("planned");
        assert_eq!(paused.next_fire_time, None);
        let job = after(&job, &paused);
        let soon = changed(&job, JobChange::Resume, minutes(50)).expect("planned");
        assert_eq!(soon.next_fire_time, Some(minutes(60)));
        assert_eq!(soon.recorded_through, minutes(50).minus(Span::from_micros(1)));
        let late = changed(&job, JobChange::Resume, minutes(200)).expect("planned");
        assert_eq!(late.next_fire_time, Some(minutes(60)), "to be recorded as passed over");
        assert_eq!(late.recorded_through, paused.recorded_through);
    }

    #[test]
    fn an_edit_that_would_never_fire_or_takes_runs_back_is_refused() {
        let pointer = |change, runs| {
            let job = JobRow { runs, ..row(HOURLY, "") };
            match changed(&job, change, minutes(30)) {
                Err(ChangeError::Definition(error)) => error.pointer.to_string(),
                other => panic!("{other:?}"),
            }
        };
        let past = r#"{"kind":"one_shot","at":"2025-06-01T00:00:00Z"}"#;
        assert_eq!(pointer(edit(past, ""), 0), "/schedule/at");
        assert_eq!(pointer(edit(past, r#","run_if_past":true"#), 0), "/schedule/at");
        assert_eq!(pointer(edit(HOURLY, r#","bounds":{"max_runs":3}"#), 3), "/bounds/max_runs");
        assert_eq!(pointer(edit(HOURLY, r#","bounds":{"end":"2025-12-31T00:00:00Z"}"#), 0), "/schedule");
    }

    #[test]
    fn an_unreadable_definition_stands_in_the_way_only_of_what_needs_it() {
        let mut job = row(HOURLY, "");
        job.definition = Arc::new(StoredDefinition::from_text("{}".into()));
        assert!(changed(&job, edit(DAILY, ""), minutes(30)).is_ok(), "nothing of it is due");
        assert!(changed(&job, JobChange::Pause, minutes(90)).is_ok());
        assert!(matches!(changed(&job, edit(DAILY, ""), minutes(90)), Err(ChangeError::Unreadable(_))));
        let paused = after(&job, &changed(&job, JobChange::Pause, minutes(30)).expect("planned"));
        assert!(matches!(changed(&paused, JobChange::Resume, minutes(90)), Err(ChangeError::Unreadable(_))));
    }

    #[test]
    fn whoever_changes_a_job_has_a_name_and_a_reason_of_some_length() {
        assert!(ChangedBy::new("Zoë", "the disk is full").is_ok());
        for (actor, reason, wrong) in [
            ("", "r", ChangedByError::Actor),
            ("a\0", "r", ChangedByError::Actor),
            ("a", "  ", ChangedByError::Reason),
        ] {
            assert_eq!(ChangedBy::new(actor, reason), Err(wrong));
        }
        assert!(ChangedBy::new("a", &"r".repeat(1_001)).is_err());
    }
}
