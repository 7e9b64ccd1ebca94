//! Calendars, by the reference semantics: set with the jobs that name them, and refused where those are not as planned.

use super::{START, TENANT, World, secs};
use crate::calendar_plan::{CalendarChange, plan_calendar, with_calendars};
use crate::id::{JobId, JobVersion};
use crate::job::JobDefinition;
use crate::job_plan::plan_create;
use crate::schedule::{Day, Days};
use crate::store::command::{Command, CreateJob, DeleteJob, OperatorRequest, SetCalendar};
use crate::store::reply::{CreateJobReply, Reply, SetCalendarReply};
use crate::store::row::JobRow;

const NAMING: JobId = JobId::from_u128(0x31b);

fn days(texts: &[&str]) -> Option<Days> {
    Days::new(texts.iter().map(|text| Day::parse(text).expect("a date")).collect()).ok()
}

fn set(world: &World, expected_version: u64, days: Option<Days>) -> SetCalendar {
    let change = CalendarChange {
        tenant: TENANT,
        name: "holidays".into(),
        expected_version,
        days,
        request: None,
        actor: "Zoë".into(),
        reason: "they were forgotten".into(),
    };
    let jobs = world.store.tables().jobs().iter();
    let naming: Vec<&JobRow> = jobs
        .filter(|job| job.definition.read().is_ok_and(|definition| definition.exclude.names("holidays")))
        .collect();
    plan_calendar(change, naming, world.now).expect("planned")
}

fn asked(world: &mut World, ask: SetCalendar) -> SetCalendarReply {
    match world.apply(Command::SetCalendar(ask)) {
        Reply::CalendarSet(reply) => reply,
        other => panic!("{other:?}"),
    }
}

/// A job that names the calendar, planned on the calendar as it stands.
fn naming(world: &World) -> CreateJob {
    let text = r#"{"name":"n","handler":{"name":"noop"},"schedule":{"kind":"cron","expr":"* * * * *"},"exclude":["holidays"]}"#;
    let definition = JobDefinition::parse(text).expect("valid");
    let calendars = world.store.tables().calendars();
    let find = |name: &str| calendars.get(&(TENANT, name.into()));
    let definition = with_calendars(definition, find).expect("it is there");
    plan_create(TENANT, NAMING, None, definition, world.now).expect("planned")
}

fn job(world: &World) -> &JobRow {
    world.store.tables().jobs().get(&NAMING).expect("it was made")
}

#[test]
fn a_calendar_is_set_with_the_next_version_of_the_jobs_that_name_it() {
    let mut world = World::new();
    let ask = set(&world, 0, days(&["2026-12-24"]));
    assert_eq!(asked(&mut world, ask.clone()), SetCalendarReply::Set { version: 1 });
    assert_eq!(asked(&mut world, ask), SetCalendarReply::VersionChanged { current: 1 });
    let create = naming(&world);
    world.apply(Command::CreateJob(create));
    world.pass(secs(1));
    let ask = set(&world, 1, days(&["2026-12-24", "2026-12-25"]));
    assert_eq!(asked(&mut world, ask), SetCalendarReply::Set { version: 2 });
    let row = job(&world);
    assert_eq!(row.version, JobVersion(2));
    let exclude = &row.definition.read().expect("readable").exclude;
    assert_eq!((exclude.all()[0].version, exclude.all()[0].days.all().len()), (2, 2));
    let version = world.store.tables().job_versions().get(&(NAMING, JobVersion(2))).expect("it was made");
    assert_eq!(version.actor.as_deref(), Some("Zoë"));
}

#[test]
fn what_was_planned_with_other_days_or_other_jobs_is_refused() {
    let mut world = World::new();
    let ask = set(&world, 0, days(&[]));
    asked(&mut world, ask);
    let planned_before = naming(&world);
    let without_the_job = set(&world, 1, days(&["2026-12-24"]));
    let ask = set(&world, 1, days(&["2026-01-01"]));
    asked(&mut world, ask);
    assert_eq!(
        world.apply(Command::CreateJob(planned_before)),
        Reply::JobCreated(CreateJobReply::CalendarChanged)
    );
    let create = naming(&world);
    world.apply(Command::CreateJob(create));
    let without_the_job = SetCalendar { expected_version: 2, ..without_the_job };
    assert_eq!(asked(&mut world, without_the_job), SetCalendarReply::PlanExpired);
}

#[test]
fn a_calendar_that_a_job_names_stays_and_one_that_was_taken_away_is_not_there() {
    let mut world = World::new();
    let ask = set(&world, 0, days(&[]));
    asked(&mut world, ask);
    let create = naming(&world);
    world.apply(Command::CreateJob(create.clone()));
    let ask = set(&world, 1, None);
    assert_eq!(asked(&mut world, ask.clone()), SetCalendarReply::InUse { jobs: vec![NAMING] });
    world.apply(Command::DeleteJob(DeleteJob { tenant: TENANT, job: NAMING }));
    assert_eq!(asked(&mut world, ask), SetCalendarReply::Set { version: 2 });
    let again = CreateJob { job: JobId::from_u128(0x41b), ..create };
    assert_eq!(world.apply(Command::CreateJob(again)), Reply::JobCreated(CreateJobReply::CalendarChanged));
    let ask = SetCalendar { expected_version: 2, ..set(&world, 1, None) };
    assert_eq!(asked(&mut world, ask), SetCalendarReply::NotFound);
    assert_eq!(world.now, START, "none of it took time");
}

#[test]
fn a_request_that_was_done_is_told_so_and_its_id_stands_for_nothing_else() {
    let mut world = World::new();
    let request = |fingerprint| {
        Some(OperatorRequest { request: "r".into(), fingerprint: uuid::Uuid::from_u128(fingerprint) })
    };
    let ask = SetCalendar { request: request(1), ..set(&world, 0, days(&["2026-12-24"])) };
    assert_eq!(asked(&mut world, ask.clone()), SetCalendarReply::Set { version: 1 });
    assert_eq!(asked(&mut world, ask.clone()), SetCalendarReply::Repeated);
    let ask = SetCalendar { request: request(2), ..ask };
    assert_eq!(asked(&mut world, ask), SetCalendarReply::RequestReused);
}
