//! Calendars: set against each other, against whoever makes a job that names them, and against whoever acts by such a job
//! as it was.

use std::sync::Arc;

use fencepost_core::id::JobVersion;
use fencepost_core::job::StoredDefinition;
use fencepost_core::schedule::{Day, Days};
use fencepost_core::store::command::{ChangeJob, Command, CreateJob, JobChange, SetCalendar};
use fencepost_core::store::reply::{CreateJobReply, MaterialiseReply, Reply, SetCalendarReply};
use fencepost_core::store::row::RefusedAction;
use fencepost_core::time::Span;

use crate::authority::Row;
use crate::case::{Act, Case};
use crate::world::*;

/// A job is made with the days of before while the calendar is set.
pub(crate) const MADE: &str = "setting a calendar against a new job that names it";

/// The job, with the days that the calendar had under a version.
fn definition(version: u64) -> Arc<StoredDefinition> {
    let days = if version == 1 { "" } else { r#""2026-01-01""# };
    let text = format!(
        r#"{{"schema":1,"definition":{{"name":"a","handler":{{"name":"noop"}},"schedule":{{"kind":"one_shot","at":"2030-01-01T00:00:00Z"}},"exclude":[{{"calendar":"holidays","version":{version},"days":[{days}]}}]}}}}"#
    );
    Arc::new(StoredDefinition::from_text(text.into()))
}

fn create() -> Command {
    Command::CreateJob(CreateJob {
        tenant: TENANT,
        job: job(),
        request: None,
        definition: definition(1),
        planned_at: second(0),
        recorded_through: second(0),
        next_fire_time: Some(second(10)),
        next_flex: Span::ZERO,
    })
}

/// Set under its next version, with what that makes of the job.
fn set(expected_version: u64, jobs: Vec<ChangeJob>) -> Command {
    let day = Day::parse("2026-01-01").expect("a date");
    let days = if expected_version == 0 { Vec::new() } else { vec![day] };
    Command::SetCalendar(SetCalendar {
        tenant: TENANT,
        name: "holidays".into(),
        expected_version,
        days: Some(Days::new(days).expect("few")),
        jobs,
        request: None,
        actor: "somebody".into(),
        reason: "some reason".into(),
    })
}

fn edit() -> ChangeJob {
    ChangeJob {
        tenant: TENANT,
        job: job(),
        request: None,
        expected_version: JobVersion::FIRST,
        expected_watermark: second(0),
        planned_at: second(29),
        change: JobChange::Edit(definition(2)),
        actor: Some("somebody".into()),
        reason: Some("some reason".into()),
        effective_from: second(29),
        recorded_through: second(0),
        next_fire_time: Some(second(10)),
        next_flex: Span::ZERO,
    }
}

fn with_calendar() -> Vec<Act> {
    let mut before = with_tenant();
    before.push(at(0, set(0, Vec::new())));
    before
}

/// The job that names the calendar, and who owns its partition.
fn with_both() -> Vec<Act> {
    let mut before = with_calendar();
    before.extend([at(0, create()), at(10, acquire_partition(OWNER))]);
    before
}

fn is_changed(reply: &Reply) -> bool {
    matches!(reply, Reply::CalendarSet(SetCalendarReply::VersionChanged { .. }))
}

fn is_planned_anew(reply: &Reply) -> bool {
    *reply == Reply::CalendarSet(SetCalendarReply::PlanExpired)
}

fn is_of_other_days(reply: &Reply) -> bool {
    *reply == Reply::JobCreated(CreateJobReply::CalendarChanged)
}

fn is_of_another_version(reply: &Reply) -> bool {
    matches!(reply, Reply::Materialised(replies) if matches!(replies[..], [MaterialiseReply::VersionChanged { .. }]))
}

pub(crate) fn cases() -> Vec<Case> {
    let case =
        |name, before, guarded, rival| Case::new(name, Row::Operator, before, at(30, guarded), at(31, rival));
    vec![
        case(
            "setting a calendar against its setting",
            with_both(),
            set(1, vec![edit()]),
            set(1, vec![edit()]),
        )
        .yields(is_changed),
        case(MADE, with_calendar(), set(1, Vec::new()), create_now()).yields(is_planned_anew),
        case(
            "making a job against the calendar that it names",
            with_calendar(),
            create_now(),
            set(1, Vec::new()),
        )
        .yields(is_of_other_days),
        case("setting a calendar against a pause of the job", with_both(), set(1, vec![edit()]), pause())
            .yields(is_planned_anew),
        case(
            "setting a calendar against a fire of the job",
            with_both(),
            set(1, vec![edit()]),
            materialise(10),
        )
        .yields(is_planned_anew),
        Case::new(
            "materialising against the calendar of the job",
            Row::Materialise,
            with_both(),
            at(30, materialise(10)),
            at(31, set(1, vec![edit()])),
        )
        .refused(RefusedAction::Materialise, is_of_another_version),
    ]
}

/// The job, made when the two meet.
fn create_now() -> Command {
    let Command::CreateJob(ask) = create() else { unreachable!("it creates a job") };
    let (planned_at, next) = (second(29), second(40));
    Command::CreateJob(CreateJob {
        planned_at,
        recorded_through: planned_at,
        next_fire_time: Some(next),
        ..ask
    })
}
