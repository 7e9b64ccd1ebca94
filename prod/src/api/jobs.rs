//! Jobs over HTTP: create, list, show, delete, trigger.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::{ETAG, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use fencepost_core::id::{JobId, Occurrence, TenantId};
use fencepost_core::job::shape::{Field, Shape};
use fencepost_core::job::{JobDefinition, Payload, StoredDefinition};
use fencepost_core::job_plan::plan_create;
use fencepost_core::schedule::Schedule;
use fencepost_core::store::command::{Command, CreateJob, DeleteJob, OperatorRequest, TriggerJob};
use fencepost_core::store::reply::{CreateJobReply, DeleteJobReply, Reply, TriggerReply};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::auth::Caller;
use super::calendars::look_up;
use super::job_changes::entity_tag;
use super::problem::Problem;
use super::query::{Cursor, Parameters, idempotency_key, json_body, path_id};
use super::state::ApiState;
use super::views::{self, ExecutionView, JobView, Page};
use crate::handler::check_payload;

/// How often a job is planned again because the store's clock had moved on too far.
pub(super) const PLANS_MAX: u32 = 3;

/// Create a job. With an `Idempotency-Key`, a repeat answers 200 and the job of the first time.
#[utoipa::path(post, path = "/v1/jobs", request_body = serde_json::Value, responses(
    (status = 201, description = "The job", body = JobView),
    (status = 200, description = "The job that this key had made", body = JobView),
    (status = 400, description = "A field is refused", body = Problem),
    (status = 422, description = "The key was used for another definition", body = Problem)))]
pub(super) async fn create(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let request = idempotency_key(&headers)?;
    let definition = JobDefinition::parse(&json_body(&headers, body)?)?;
    // A job that only triggers start may leave it to each of them to bring a payload.
    if definition.schedule != Schedule::Manual || definition.payload.as_json() != "null" {
        check_payload(&definition.handler, &definition.payload)?;
    }
    let request = request.map(|request| OperatorRequest { fingerprint: fingerprint(&definition), request });
    let job = JobId::from_uuid(Uuid::new_v4());
    for _ in 0..PLANS_MAX {
        let now = state.execute(&Command::ReadClock).await?.now;
        let definition = look_up(&state, tenant, &definition).await?;
        let command = plan_create(tenant, job, request.clone(), definition, now)?;
        match created(state.execute(&Command::CreateJob(command.clone())).await?.reply) {
            CreateJobReply::Created => return answer_created(&state, &command).await,
            CreateJobReply::Repeated { job } => {
                let view = job_view(&state, tenant, job).await?;
                return Ok(([(ETAG, entity_tag(&view))], Json(view)).into_response());
            }
            CreateJobReply::RequestReused => {
                return Err(Problem::key_reused("this key had made a job of another definition"));
            }
            // A resend of this very request whose first answer was lost.
            CreateJobReply::IdTaken => return answer_created(&state, &command).await,
            CreateJobReply::NoTenant => return Err(Problem::unauthorized("the tenant of this key is gone")),
            CreateJobReply::PlanExpired | CreateJobReply::CalendarChanged => {}
        }
    }
    Err(Problem::unavailable("the store's clock moves on faster than a job can be planned; try again"))
}

fn created(reply: Reply) -> CreateJobReply {
    match reply {
        Reply::JobCreated(reply) => reply,
        other => unreachable!("the store answered a job's creation with {other:?}"),
    }
}

async fn answer_created(state: &ApiState, command: &CreateJob) -> Result<Response, Problem> {
    let view = job_view(state, command.tenant, command.job).await?;
    let location = format!("/v1/jobs/{}", command.job);
    let headers = [(LOCATION, location), (ETAG, entity_tag(&view))];
    Ok((StatusCode::CREATED, headers, Json(view)).into_response())
}

/// The same for the same definition, however it was written down.
fn fingerprint(definition: &JobDefinition) -> Uuid {
    let text = Arc::clone(StoredDefinition::of(definition.clone()).text());
    Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes())
}

pub(super) async fn job_view(state: &ApiState, tenant: TenantId, job: JobId) -> Result<JobView, Problem> {
    views::job(&state.reads, tenant, job).await?.ok_or_else(|| Problem::not_found("job", job))
}

/// List jobs, the newest first. Deleted ones are left out.
#[utoipa::path(get, path = "/v1/jobs", params(("cursor" = Option<String>, Query), ("limit" = Option<u32>, Query)),
    responses((status = 200, description = "A page of jobs, and the cursor of the next", body = Page<JobView>)))]
pub(super) async fn list(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<JobView>>, Problem> {
    let parameters = Parameters::read(query.as_deref(), &["cursor", "limit"])?;
    let limit = parameters.limit()?;
    let jobs = views::jobs(&state.reads, tenant, parameters.cursor()?, limit).await?;
    Ok(Json(Page::of(jobs, limit, |job| Cursor { at: job.created_at(), id: job.id() })))
}

/// Show a job, deleted or not. `ETag` is its version, for an edit's `If-Match`.
#[utoipa::path(get, path = "/v1/jobs/{id}", params(("id" = Uuid, Path)), responses(
    (status = 200, description = "The job", body = JobView),
    (status = 404, description = "This tenant has no such job", body = Problem)))]
pub(super) async fn show(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let view = job_view(&state, tenant, path_id("job", &id)?).await?;
    Ok(([(ETAG, entity_tag(&view))], Json(view)).into_response())
}

/// What a delete did.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Deletion {
    #[schema(value_type = Uuid)]
    job_id: JobId,
    /// Executions that were cancelled.
    cancelled: u32,
    /// Running executions that were asked to stop.
    asked_to_stop: u32,
}

/// Delete a job: it fires no more, what is pending of it is cancelled, what runs is asked to stop.
#[utoipa::path(delete, path = "/v1/jobs/{id}", params(("id" = Uuid, Path)), responses(
    (status = 200, description = "What it did; a repeat does nothing more", body = Deletion),
    (status = 404, description = "This tenant has no such job", body = Problem)))]
pub(super) async fn delete(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
) -> Result<Json<Deletion>, Problem> {
    let job: JobId = path_id("job", &id)?;
    let reply = state.execute(&Command::DeleteJob(DeleteJob { tenant, job })).await?.reply;
    let deleted = match reply {
        Reply::JobDeleted(reply) => reply,
        other => unreachable!("the store answered a job's deletion with {other:?}"),
    };
    match deleted {
        DeleteJobReply::Deleted { cancelled, requested } => {
            Ok(Json(Deletion { job_id: job, cancelled, asked_to_stop: requested }))
        }
        DeleteJobReply::Repeated => Ok(Json(Deletion { job_id: job, cancelled: 0, asked_to_stop: 0 })),
        DeleteJobReply::NotFound => Err(Problem::not_found("job", job)),
    }
}

/// A trigger's body, where there is one.
const TRIGGER: Shape = Shape::Object(&[Field::nullable("payload", Shape::Anything)]);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TriggerBody {
    #[serde(default)]
    payload: Option<Box<RawValue>>,
}

/// Run a job now. With an `Idempotency-Key`, a repeat answers 200 and the execution of the first time.
#[utoipa::path(post, path = "/v1/jobs/{id}/trigger", params(("id" = Uuid, Path)), request_body = Option<serde_json::Value>,
    responses((status = 201, description = "The execution", body = ExecutionView),
    (status = 200, description = "The execution that this key had made", body = ExecutionView),
    (status = 404, description = "This tenant has no such job", body = Problem),
    (status = 422, description = "The key was used with another payload", body = Problem)))]
pub(super) async fn trigger(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let job: JobId = path_id("job", &id)?;
    let key = idempotency_key(&headers)?.unwrap_or_else(|| Uuid::new_v4().to_string().into());
    let payload = trigger_payload(&json_body(&headers, body)?)?;
    if let Some(payload) = &payload {
        let view = job_view(&state, tenant, job).await?;
        if let Some(definition) = view.definition() {
            check_payload(&definition.handler, payload)?;
        }
    }
    let execution = Occurrence::Manual { key: Arc::clone(&key) }.execution_id(job);
    let command = TriggerJob { tenant, job, execution, key, payload, node: state.node };
    let reply = state.execute(&Command::TriggerJob(command)).await?.reply;
    let triggered = match reply {
        Reply::JobTriggered(reply) => reply,
        other => unreachable!("the store answered a trigger with {other:?}"),
    };
    let status = match triggered {
        TriggerReply::Created => StatusCode::CREATED,
        TriggerReply::Repeated { .. } => StatusCode::OK,
        TriggerReply::KeyReused => {
            return Err(Problem::key_reused("this key had triggered the job with another payload"));
        }
        TriggerReply::NotFound => return Err(Problem::not_found("job", job)),
    };
    let view: ExecutionView = views::execution(&state.reads, tenant, execution)
        .await?
        .ok_or_else(|| Problem::not_found("execution", execution))?;
    Ok((status, [(LOCATION, format!("/v1/executions/{execution}"))], Json(view)).into_response())
}

fn trigger_payload(body: &str) -> Result<Option<Payload>, Problem> {
    if body.trim().is_empty() {
        return Ok(None);
    }
    TRIGGER.check(body)?;
    let body: TriggerBody =
        serde_json::from_str(body).map_err(|error| Problem::bad_body(error.to_string()))?;
    let parse = |raw: Box<RawValue>| Payload::from_json(raw.get());
    body.payload.map(parse).transpose().map_err(|error| Problem::bad_parameter("/payload", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> serde_json::Value {
        let problem = match trigger_payload(body) {
            Err(problem) => problem,
            Ok(payload) => panic!("{body} was taken for {payload:?}"),
        };
        serde_json::to_value(problem).expect("a problem is JSON")
    }

    #[test]
    fn a_triggers_body_is_an_object_with_a_payload_or_nothing() {
        assert_eq!(trigger_payload(""), Ok(None));
        assert_eq!(trigger_payload("{}"), Ok(None));
        let payload = Payload::from_json("[1]").expect("it is JSON");
        assert_eq!(trigger_payload(r#"{"payload": [1]}"#), Ok(Some(payload)));
        for (body, pointer) in [
            ("[]", ""),
            ("[1]", ""),
            ("7", ""),
            ("{", ""),
            (r#"{"paylod": {}}"#, "/paylod"),
            (r#"{"payload": 1, "payload": 2}"#, "/payload"),
            (r#"{"payload": "\u0000"}"#, "/payload"),
        ] {
            let problem = refused(body);
            assert_eq!(
                (&problem["status"], &problem["pointer"]),
                (&400.into(), &pointer.into()),
                "{problem}"
            );
        }
    }

    #[test]
    fn an_http_payload_is_checked_when_the_job_is_made() {
        let job = |handler: &str, payload: &str| {
            let text = format!(
                r#"{{"name":"n","schedule":{{"kind":"manual"}},"handler":{handler},"payload":{payload}}}"#
            );
            JobDefinition::parse(&text).expect("the definition itself is right")
        };
        let http = r#"{"name":"http"}"#;
        for (payload, pointer) in [
            ("null", "/payload"),
            ("{}", "/payload/url"),
            (r#"{"url": 1}"#, "/payload/url"),
            (r#"{"url": "ftp://host/"}"#, "/payload/url"),
            (
                r#"{"url": "http://host/", "headers": {"Idempotency-Key": "k"}}"#,
                "/payload/headers/Idempotency-Key",
            ),
            (r#"{"url": "http://host/", "headers": {"X": 1}}"#, "/payload/headers/X"),
            (r#"{"url": "http://host/", "headres": {}}"#, "/payload/headres"),
        ] {
            let job = job(http, payload);
            let error = check_payload(&job.handler, &job.payload).expect_err(payload);
            assert_eq!(error.pointer, pointer, "{error}");
        }
        for (handler, payload) in
            [(http, r#"{"url": "https://host/", "body": {"n": 1}}"#), (r#"{"name":"noop"}"#, "{}")]
        {
            let job = job(handler, payload);
            assert_eq!(check_payload(&job.handler, &job.payload), Ok(()));
        }
    }
}
