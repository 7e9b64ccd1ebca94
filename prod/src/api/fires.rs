//! Fires over HTTP: those to come, of a job or of a definition that is not stored, and what became of those before.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use fencepost_core::id::JobId;
use fencepost_core::job::JobDefinition;
use fencepost_core::ledger::LedgerEntry;
use fencepost_core::schedule::{Flex, PREVIEW_MAX, PreviewedFire, TZDATA_VERSION, preview_schedule};
use fencepost_core::store::command::Command;
use fencepost_core::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::auth::Caller;
use super::calendars::look_up;
use super::problem::Problem;
use super::query::{Parameters, json_body, path_id};
use super::state::ApiState;
use super::views::{self, Stretch, instant, optional_instant};

/// Fires that a preview shows where the request does not say.
const COUNT_DEFAULT: usize = 5;

/// The fires to come.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FiresView {
    #[schema(value_type = Vec<Object>)]
    fires: Vec<PreviewedFire>,
    /// Fires strictly after this instant.
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    after: Timestamp,
    /// The time-zone data by which they were worked out.
    #[schema(value_type = String)]
    tzdata: &'static str,
    /// Of a definition that is not stored and has a flex window: how long that is. At which place in it a fire is due
    /// (`due` of the fires of a job) hangs on the job's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    flex_ms: Option<u64>,
}

/// What a preview is asked for.
struct Ask {
    after: Timestamp,
    count: usize,
}

/// Whose fires are shown.
enum Of {
    Job { id: JobId, runs: u64 },
    Definition,
}

impl Ask {
    /// Without `after`, the store's clock says what has passed.
    async fn read(state: &ApiState, query: Option<&str>) -> Result<Self, Problem> {
        let parameters = Parameters::read(query, &["after", "count"])?;
        let count = parameters.parse(
            "count",
            |text| text.parse().ok().filter(|count| (1..=PREVIEW_MAX).contains(count)),
            &format!("a number from 1 to {PREVIEW_MAX}"),
        )?;
        let after = match parameters.parse("after", Timestamp::parse_rfc3339, AN_INSTANT)? {
            Some(after) => after,
            None => state.execute(&Command::ReadClock).await?.now,
        };
        Ok(Self { after, count: count.unwrap_or(COUNT_DEFAULT) })
    }

    fn show(&self, definition: &JobDefinition, of: Of) -> Json<FiresView> {
        let (runs, flex, flex_ms) = match of {
            Of::Job { id, runs } => (runs, Flex::of(id, definition.flex), None),
            Of::Definition => (0, Flex::NONE, Some(definition.flex.as_millis()).filter(|flex| *flex > 0)),
        };
        let (schedule, bounds) = (&definition.schedule, &definition.bounds);
        let fires =
            preview_schedule(schedule, bounds, flex, definition.excluded(), runs, self.after, self.count);
        Json(FiresView { fires, after: self.after, tzdata: TZDATA_VERSION, flex_ms })
    }
}

pub(super) const AN_INSTANT: &str = "an instant in RFC 3339, such as 2026-01-31T09:00:00Z";

/// Preview a job's next fires, by its definition and the runs that it has had, with what daylight saving does to them.
#[utoipa::path(get, path = "/v1/jobs/{id}/fires", params(("id" = uuid::Uuid, Path), ("after" = Option<String>, Query),
    ("count" = Option<u32>, Query)), responses((status = 200, description = "The fires; none for a deleted or paused job", body = FiresView),
    (status = 404, description = "This tenant has no such job", body = Problem),
    (status = 409, description = "This version cannot read the job's definition", body = Problem)))]
pub(super) async fn of_job(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<FiresView>, Problem> {
    let job: JobId = path_id("job", &id)?;
    let mut ask = Ask::read(&state, query.as_deref()).await?;
    let view = views::job(&state.reads, tenant, job).await?.ok_or_else(|| Problem::not_found("job", job))?;
    let Some(definition) = view.definition() else {
        return Err(Problem::unreadable(
            "this version cannot read the job's definition; see `unreadable` of the job",
        ));
    };
    if !view.fires() {
        ask.count = 0;
    }
    Ok(ask.show(definition, Of::Job { id: job, runs: view.runs() }))
}

/// Preview the next fires of a definition as it would be created. Nothing is stored.
#[utoipa::path(post, path = "/v1/preview", request_body = serde_json::Value, params(("after" = Option<String>, Query),
    ("count" = Option<u32>, Query)), responses((status = 200, description = "The fires", body = FiresView),
    (status = 400, description = "A field is refused", body = Problem)))]
pub(super) async fn of_definition(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<FiresView>, Problem> {
    let definition = JobDefinition::parse(&json_body(&headers, body)?)?;
    let definition = look_up(&state, tenant, &definition).await?;
    Ok(Ask::read(&state, query.as_deref()).await?.show(&definition, Of::Definition))
}

/// A page of a job's ledger.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LedgerView {
    /// In the order of the fires. A range that reaches over an end of what was asked for is whole.
    #[schema(value_type = Vec<Object>)]
    items: Vec<LedgerEntry>,
    /// Every nominal fire up to here is in the ledger; later ones are not decided yet.
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    recorded_through: Timestamp,
    /// To be given as `from` for the next page; null on the last.
    #[serde(serialize_with = "optional_instant")]
    #[schema(value_type = Option<String>, format = DateTime)]
    next_from: Option<Timestamp>,
}

/// What became of a job's nominal fires from one instant (included) to another (excluded), oldest first: each is an
/// execution or lies inside a skipped range.
#[utoipa::path(get, path = "/v1/jobs/{id}/ledger", params(("id" = uuid::Uuid, Path), ("from" = Option<String>, Query),
    ("to" = Option<String>, Query), ("limit" = Option<u32>, Query)),
    responses((status = 200, description = "A page of the ledger, and where the next begins", body = LedgerView),
    (status = 404, description = "This tenant has no such job", body = Problem)))]
pub(super) async fn ledger(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<LedgerView>, Problem> {
    let job: JobId = path_id("job", &id)?;
    let parameters = Parameters::read(query.as_deref(), &["from", "to", "limit"])?;
    let instant_of = |name| parameters.parse(name, Timestamp::parse_rfc3339, AN_INSTANT);
    let from = instant_of("from")?.unwrap_or(Timestamp::MIN);
    let to = instant_of("to")?.unwrap_or(Timestamp::MAX);
    if to < from {
        return Err(Problem::bad_parameter("to", "lies before `from`"));
    }
    let stretch = Stretch { tenant, job, from, to, limit: parameters.limit()? };
    let ledger =
        views::ledger(&state.reads, &stretch).await?.ok_or_else(|| Problem::not_found("job", job))?;
    Ok(Json(LedgerView {
        items: ledger.page.entries,
        recorded_through: ledger.recorded_through,
        next_from: ledger.page.next,
    }))
}
