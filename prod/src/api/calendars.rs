//! Calendars over HTTP: named sets of days on which the jobs that name them do not run.
//!
//! A job's days are part of its definition. So setting a calendar is planned on every job that names it, and planned
//! anew where one of them moved on meanwhile.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use fencepost_core::calendar_plan::{self, CalendarChange, CalendarError, plan_calendar};
use fencepost_core::id::{JobId, TenantId};
use fencepost_core::job::shape::{Field, Shape};
use fencepost_core::job::{JobDefinition, check_text};
use fencepost_core::job_plan::{ChangedBy, ChangedByError};
use fencepost_core::limits::{BATCH_MAX, CALENDAR_DAYS_MAX};
use fencepost_core::schedule::{Day, Days};
use fencepost_core::store::command::{Command, OperatorRequest};
use fencepost_core::store::reply::{Reply, SetCalendarReply};
use fencepost_core::store::row::CalendarRow;
use fencepost_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::auth::Caller;
use super::job_changes::{request_of, said_by};
use super::problem::Problem;
use super::query::{idempotency_key, json_body};
use super::state::ApiState;
use super::views::instant;
use crate::postgres::{calendars, facts};

/// How often a calendar is planned again because a job that names it moved on.
const PLANS_MAX: u32 = 10;
/// Jobs that a refusal names.
const NAMED_MAX: usize = 20;

/// A calendar.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CalendarView {
    #[schema(value_type = String)]
    name: Arc<str>,
    /// Rises whenever it is set.
    version: u64,
    /// Its days, ascending, such as `2026-12-24`.
    #[schema(value_type = Vec<String>)]
    days: Days,
    /// Who set it last.
    #[schema(value_type = String)]
    actor: Arc<str>,
    /// Why.
    #[schema(value_type = String)]
    reason: Arc<str>,
    /// When.
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    set_at: Timestamp,
}

/// A calendar that was taken away.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Gone {
    #[schema(value_type = String)]
    name: Arc<str>,
    deleted: bool,
}

/// All calendars, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Calendars {
    items: Vec<CalendarView>,
}

fn view(row: CalendarRow) -> Option<CalendarView> {
    let CalendarRow { name, version, days, actor, reason, set_at, .. } = row;
    Some(CalendarView { name, version, days: days?, actor, reason, set_at })
}

/// List the tenant's calendars, by name.
#[utoipa::path(get, path = "/v1/calendars", responses((status = 200, description = "All calendars", body = Calendars)))]
pub(super) async fn list(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
) -> Result<Json<Calendars>, Problem> {
    let rows = calendars::rows(&state.reads, tenant, None).await?;
    Ok(Json(Calendars { items: rows.into_iter().filter_map(view).collect() }))
}

/// Show a calendar.
#[utoipa::path(get, path = "/v1/calendars/{name}", params(("name" = String, Path)), responses(
    (status = 200, description = "The calendar", body = CalendarView),
    (status = 404, description = "This tenant has no such calendar", body = Problem)))]
pub(super) async fn show(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(name): Path<String>,
) -> Result<Json<CalendarView>, Problem> {
    let row = row_of(&state, tenant, &name).await?;
    row.and_then(view).map(Json).ok_or_else(|| Problem::not_found("calendar", name))
}

async fn row_of(state: &ApiState, tenant: TenantId, name: &str) -> Result<Option<CalendarRow>, Problem> {
    Ok(calendars::rows(&state.reads, tenant, Some(&[name.to_owned()])).await?.pop())
}

/// The same definition with the days that its calendars have now.
pub(super) async fn look_up(
    state: &ApiState,
    tenant: TenantId,
    definition: &JobDefinition,
) -> Result<JobDefinition, Problem> {
    if definition.exclude.is_none() {
        return Ok(definition.clone());
    }
    let names: Vec<String> =
        definition.exclude.all().iter().map(|known| known.calendar.to_string()).collect();
    let rows = calendars::rows(&state.reads, tenant, Some(&names)).await?;
    let find = |name: &str| rows.iter().find(|row| &*row.name == name);
    Ok(calendar_plan::with_calendars(definition.clone(), find)?)
}

/// The body of a setting.
const SETTING: Shape = Shape::Object(&[
    Field::required("days", Shape::Texts),
    Field::optional("version", Shape::Whole(u32::MAX as u64)),
    Field::required("actor", Shape::Text),
    Field::required("reason", Shape::Text),
]);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingBody {
    days: Vec<String>,
    #[serde(default)]
    version: Option<u64>,
    actor: String,
    reason: String,
}

/// Set a calendar: `{"days": ["2026-12-24", …], "actor": …, "reason": …}`, and `version` to set it only if it has that one
/// (0: only if it was never set). Each job that names it gets its next version with these days; fires before that, and
/// those that are executions already, stay as they are.
#[utoipa::path(put, path = "/v1/calendars/{name}", params(("name" = String, Path)), request_body = serde_json::Value,
    responses((status = 200, description = "The calendar", body = CalendarView),
    (status = 400, description = "A field is refused, or a job would have no run left", body = Problem),
    (status = 409, description = "It has another version, or a job's ledger is behind", body = Problem),
    (status = 422, description = "The key was used for something else", body = Problem)))]
pub(super) async fn set(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<CalendarView>, Problem> {
    check_text("name", &name).map_err(|error| Problem::bad_parameter("name", error.detail))?;
    let request = idempotency_key(&headers)?;
    let (said, days) = setting(&json_body(&headers, body)?)?;
    let digest = format!("calendar/{name}/{:?}/{:?}/{}/{}", days, said.version, said.actor, said.reason);
    let asked = Asked {
        name: name.clone().into(),
        days: Some(days),
        version: said.version,
        request: request.map(|request| request_of(request, &digest)),
        actor: said.actor.into(),
        reason: said.reason.into(),
    };
    change(&state, tenant, &asked).await?;
    let set = row_of(&state, tenant, &name).await?.and_then(view);
    set.map(Json).ok_or_else(|| Problem::not_found("calendar", name))
}

/// Take a calendar away: `{"actor": …, "reason": …}`. One that a job names stays.
#[utoipa::path(delete, path = "/v1/calendars/{name}", params(("name" = String, Path)),
    request_body = serde_json::Value, responses((status = 200, description = "It is gone", body = Gone),
    (status = 400, description = "A field is refused", body = Problem),
    (status = 404, description = "This tenant has no such calendar", body = Problem),
    (status = 409, description = "Jobs name it", body = Problem),
    (status = 422, description = "The key was used for something else", body = Problem)))]
pub(super) async fn delete(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Gone>, Problem> {
    let request = idempotency_key(&headers)?;
    let (_, said) = said_by(&json_body(&headers, body)?)?;
    let digest = format!("calendar/{name}/gone/{}/{}", said.actor, said.reason);
    let asked = Asked {
        name: name.into(),
        days: None,
        version: None,
        request: request.map(|request| request_of(request, &digest)),
        actor: said.actor.into(),
        reason: said.reason.into(),
    };
    change(&state, tenant, &asked).await?;
    Ok(Json(Gone { name: asked.name, deleted: true }))
}

struct Asked {
    name: Arc<str>,
    days: Option<Days>,
    version: Option<u64>,
    request: Option<OperatorRequest>,
    actor: Arc<str>,
    reason: Arc<str>,
}

async fn change(state: &ApiState, tenant: TenantId, asked: &Asked) -> Result<(), Problem> {
    for _ in 0..PLANS_MAX {
        let now = state.execute(&Command::ReadClock).await?.now;
        let known = row_of(state, tenant, &asked.name).await?.map_or(0, |row| row.version);
        let ids = calendars::named_by(&state.reads, tenant, &asked.name, BATCH_MAX).await?;
        if ids.len() > BATCH_MAX {
            return Err(refused(&CalendarError::TooManyJobs(ids.len())));
        }
        let mut jobs = Vec::with_capacity(ids.len());
        for id in ids {
            jobs.extend(facts::job_and_clock(&state.reads, tenant, id).await?.map(|(_, row)| row));
        }
        let planned = CalendarChange {
            tenant,
            name: Arc::clone(&asked.name),
            expected_version: asked.version.unwrap_or(known),
            days: asked.days.clone(),
            request: asked.request.clone(),
            actor: Arc::clone(&asked.actor),
            reason: Arc::clone(&asked.reason),
        };
        let command = plan_calendar(planned, &jobs, now).map_err(|error| refused(&error))?;
        let reply = match state.execute(&Command::SetCalendar(command)).await?.reply {
            Reply::CalendarSet(reply) => reply,
            other => unreachable!("the store answered the setting of a calendar with {other:?}"),
        };
        match reply {
            SetCalendarReply::Set { .. } | SetCalendarReply::Repeated => return Ok(()),
            SetCalendarReply::RequestReused => {
                return Err(Problem::key_reused("this key was used for something else"));
            }
            SetCalendarReply::NoTenant => {
                return Err(Problem::unauthorized("the tenant of this key is gone"));
            }
            SetCalendarReply::NotFound => return Err(Problem::not_found("calendar", &asked.name)),
            SetCalendarReply::VersionChanged { current } if asked.version.is_some() => {
                return Err(Problem::calendar_moved_on(current));
            }
            SetCalendarReply::InUse { jobs } => return Err(Problem::calendar_in_use(&named(&jobs))),
            SetCalendarReply::LedgerBehind { job } => {
                return Err(Problem::ledger_behind(&format!(
                    "too many changes of job {job} have fires before them that nobody has recorded yet; try again when \
                     its schedulers have caught up"
                )));
            }
            SetCalendarReply::VersionChanged { .. } | SetCalendarReply::PlanExpired => {}
        }
    }
    Err(Problem::unavailable("the jobs that name it move on faster than this can be planned; try again"))
}

fn named(jobs: &[JobId]) -> String {
    let shown: Vec<String> = jobs.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = jobs.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

fn refused(error: &CalendarError) -> Problem {
    Problem::bad_parameter("/days", error.to_string())
}

fn setting(body: &str) -> Result<(SettingBody, Days), Problem> {
    SETTING.check(body)?;
    let said: SettingBody =
        serde_json::from_str(body).map_err(|error| Problem::bad_body(error.to_string()))?;
    ChangedBy::new(&said.actor, &said.reason).map_err(|error| {
        let pointer = match error {
            ChangedByError::Actor => "/actor",
            ChangedByError::Reason => "/reason",
        };
        Problem::bad_parameter(pointer, error.to_string())
    })?;
    let day = |(at, text): (usize, &String)| {
        let wrong = || Problem::bad_parameter(&format!("/days/{at}"), "expected a date such as 2026-12-24");
        Day::parse(text).ok_or_else(wrong)
    };
    let days: Result<Vec<Day>, Problem> = said.days.iter().enumerate().map(day).collect();
    let days = Days::new(days?).map_err(|count| {
        Problem::bad_parameter("/days", format!("{count} days; a calendar has at most {CALENDAR_DAYS_MAX}"))
    })?;
    Ok((said, days))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calendar_of_dates_is_taken_and_what_is_wrong_with_one_is_named() {
        let refused = |body: &str| match setting(body) {
            Ok(_) => panic!("{body} was taken"),
            Err(problem) => serde_json::to_value(problem).expect("a problem is JSON")["pointer"].clone(),
        };
        let right = r#"{"days": ["2026-12-25", "2026-12-24", "2026-12-25"], "actor": "Zoë", "reason": "r"}"#;
        assert_eq!(setting(right).map(|(_, days)| days.all().len()).ok(), Some(2));
        for (body, pointer) in [
            (r#"{"actor": "a", "reason": "r"}"#, "/days"),
            (r#"{"days": ["24.12.2026"], "actor": "a", "reason": "r"}"#, "/days/0"),
            (r#"{"days": [1], "actor": "a", "reason": "r"}"#, "/days/0"),
            (r#"{"days": [], "reason": "r"}"#, "/actor"),
            (r#"{"days": [], "actor": "a", "reason": ""}"#, "/reason"),
            (r#"{"days": [], "actor": "a", "reason": "r", "until": 1}"#, "/until"),
        ] {
            assert_eq!(refused(body), pointer, "{body}");
        }
    }
}
