//! Changes of a job over HTTP: an edit, a pause, a resume.
//!
//! The core plans what a change means on the job's row and the store's clock, and the store refuses a plan that was
//! overtaken. An edit names the version that its author has seen (`If-Match`), so two authors never overwrite each
//! other; a pause or a resume means the job however it was edited meanwhile, and is planned anew.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::http::header::{ETAG, IF_MATCH};
use axum::response::{IntoResponse, Response};
use fencepost_core::id::{JobId, JobVersion, TenantId};
use fencepost_core::job::shape::{Field, Shape};
use fencepost_core::job::{JobDefinition, StoredDefinition};
use fencepost_core::job_plan::{ChangeError, ChangedBy, ChangedByError, plan_change};
use fencepost_core::schedule::Schedule;
use fencepost_core::store::command::{ChangeJob, Command, JobChange, OperatorRequest};
use fencepost_core::store::reply::{ChangeJobReply, Reply};
use serde::Deserialize;
use uuid::Uuid;

use super::auth::Caller;
use super::calendars::look_up;
use super::jobs::{PLANS_MAX, job_view};
use super::problem::Problem;
use super::query::{idempotency_key, json_body, path_id};
use super::state::ApiState;
use super::views::JobView;
use crate::handler::check_payload;
use crate::postgres::facts;

/// The version of a job as an entity tag.
pub(super) fn entity_tag(view: &JobView) -> String {
    format!("\"{}\"", view.version())
}

/// Give a job another definition. `If-Match` names the version that was edited, as `ETag` gave it; the next fire counts
/// from the edit, and what is materialised already stays. With an `Idempotency-Key`, a repeat is told what the first
/// did.
#[utoipa::path(put, path = "/v1/jobs/{id}", params(("id" = Uuid, Path), ("If-Match" = String, Header)),
    request_body = serde_json::Value, responses(
    (status = 200, description = "The job", body = JobView),
    (status = 400, description = "A field is refused", body = Problem),
    (status = 404, description = "This tenant has no such job", body = Problem),
    (status = 409, description = "What is stored cannot be read, or the ledger is behind", body = Problem),
    (status = 412, description = "The job has another version by now, which is given", body = Problem),
    (status = 422, description = "The key was used for something else", body = Problem),
    (status = 428, description = "The version that was edited is not named", body = Problem)))]
pub(super) async fn edit(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let job: JobId = path_id("job", &id)?;
    let request = idempotency_key(&headers)?;
    let definition = JobDefinition::parse(&json_body(&headers, body)?)?;
    // A job that only triggers start may leave it to each of them to bring a payload.
    if definition.schedule != Schedule::Manual || definition.payload.as_json() != "null" {
        check_payload(&definition.handler, &definition.payload)?;
    }
    let edited = edited_version(&headers)?;
    let definition = Arc::new(StoredDefinition::of(definition));
    let digest = format!("edit/{job}/{}/{}", edited.0, definition.text());
    let asked = Asked {
        tenant,
        job,
        request: request.map(|request| request_of(request, &digest)),
        change: JobChange::Edit(definition),
        by: ChangedBy::default(),
        of: Some(edited),
    };
    change(&state, asked).await
}

/// The body of a pause or a resume.
const BY: Shape =
    Shape::Object(&[Field::required("actor", Shape::Text), Field::required("reason", Shape::Text)]);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ByBody {
    pub(super) actor: String,
    pub(super) reason: String,
}

/// Pause a job: `{"actor": …, "reason": …}`. It does not fire by itself until it is resumed, and what waits of its fires
/// does not start; what runs goes on, and what is triggered by hand runs. Pausing what is paused changes nothing.
#[utoipa::path(post, path = "/v1/jobs/{id}/pause", params(("id" = Uuid, Path)), request_body = serde_json::Value,
    responses((status = 200, description = "The job", body = JobView),
    (status = 400, description = "A field is refused", body = Problem),
    (status = 404, description = "This tenant has no such job", body = Problem),
    (status = 409, description = "The ledger is behind", body = Problem),
    (status = 422, description = "The key was used for something else", body = Problem)))]
pub(super) async fn pause(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    stand(&state, tenant, &id, &headers, body, JobChange::Pause).await
}

/// Resume a job: `{"actor": …, "reason": …}`. Fires that fell into the pause are passed over and recorded so. Resuming
/// what is not paused changes nothing.
#[utoipa::path(post, path = "/v1/jobs/{id}/resume", params(("id" = Uuid, Path)), request_body = serde_json::Value,
    responses((status = 200, description = "The job", body = JobView),
    (status = 400, description = "A field is refused", body = Problem),
    (status = 404, description = "This tenant has no such job", body = Problem),
    (status = 409, description = "What is stored cannot be read, or the ledger is behind", body = Problem),
    (status = 422, description = "The key was used for something else", body = Problem)))]
pub(super) async fn resume(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    stand(&state, tenant, &id, &headers, body, JobChange::Resume).await
}

async fn stand(
    state: &ApiState,
    tenant: TenantId,
    id: &str,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
    change_to: JobChange,
) -> Result<Response, Problem> {
    let job: JobId = path_id("job", id)?;
    let request = idempotency_key(headers)?;
    let (by, said) = said_by(&json_body(headers, body)?)?;
    let standing = change_to.standing().map_or("", |standing| standing.name());
    let digest = format!("{standing}/{job}/{}/{}", said.actor, said.reason);
    let asked = Asked {
        tenant,
        job,
        request: request.map(|request| request_of(request, &digest)),
        change: change_to,
        by,
        of: None,
    };
    change(state, asked).await
}

pub(super) fn said_by(body: &str) -> Result<(ChangedBy, ByBody), Problem> {
    BY.check(body)?;
    let said: ByBody = serde_json::from_str(body).map_err(|error| Problem::bad_body(error.to_string()))?;
    let by = ChangedBy::new(&said.actor, &said.reason).map_err(|error| {
        let pointer = match error {
            ChangedByError::Actor => "/actor",
            ChangedByError::Reason => "/reason",
        };
        Problem::bad_parameter(pointer, error.to_string())
    })?;
    Ok((by, said))
}

pub(super) fn request_of(request: Arc<str>, digest: &str) -> OperatorRequest {
    OperatorRequest { request, fingerprint: Uuid::new_v5(&Uuid::NAMESPACE_OID, digest.as_bytes()) }
}

/// The version that `If-Match` names. One entity tag, and a strong one: an edit is of one version.
fn edited_version(headers: &HeaderMap) -> Result<JobVersion, Problem> {
    let mut values = headers.get_all(IF_MATCH).iter();
    let Some(value) = values.next() else { return Err(Problem::no_precondition()) };
    let tag = value.to_str().ok().filter(|_| values.next().is_none());
    let version = tag.and_then(|tag| tag.trim().strip_prefix('"')?.strip_suffix('"')?.parse().ok());
    version.map(JobVersion).ok_or_else(|| {
        Problem::bad_parameter(
            "If-Match",
            "names one version as the job's ETag does, like \"3\" with its quotes",
        )
    })
}

/// What is asked for.
struct Asked {
    tenant: TenantId,
    job: JobId,
    request: Option<OperatorRequest>,
    change: JobChange,
    by: ChangedBy,
    /// The version that it is meant for; whichever is current where none is named.
    of: Option<JobVersion>,
}

/// An edit names calendars; what is stored has their days.
async fn with_days(state: &ApiState, asked: &Asked) -> Result<JobChange, Problem> {
    let JobChange::Edit(stored) = &asked.change else { return Ok(asked.change.clone()) };
    let Ok(definition) = stored.read() else { return Ok(asked.change.clone()) };
    if definition.exclude.is_none() {
        return Ok(asked.change.clone());
    }
    let definition = look_up(state, asked.tenant, definition).await?;
    Ok(JobChange::Edit(Arc::new(StoredDefinition::of(definition))))
}

async fn change(state: &ApiState, asked: Asked) -> Result<Response, Problem> {
    for _ in 0..PLANS_MAX {
        let read = facts::job_and_clock(&state.reads, asked.tenant, asked.job).await?;
        let Some((now, row)) = read else { return Err(Problem::not_found("job", asked.job)) };
        let change = with_days(state, &asked).await?;
        let planned = plan_change(&row, asked.request.clone(), change, asked.by.clone(), now);
        let planned = planned.map_err(|error| match error {
            ChangeError::Definition(error) => Problem::from(error),
            ChangeError::Unreadable(why) => Problem::unreadable(&format!(
                "the definition in force has to be read for this, and schema {} cannot: {}; do it with a version that \
                 can, or delete the job and make another",
                why.schema, why.reason
            )),
        })?;
        let expected_version = asked.of.unwrap_or(planned.expected_version);
        let command = Command::ChangeJob(ChangeJob { expected_version, ..planned });
        let reply = match state.execute(&command).await?.reply {
            Reply::JobChanged(reply) => reply,
            other => unreachable!("the store answered a job's change with {other:?}"),
        };
        match (reply, asked.of) {
            (
                ChangeJobReply::Changed { .. }
                | ChangeJobReply::Repeated { .. }
                | ChangeJobReply::Already { .. },
                _,
            ) => {
                let view = job_view(state, asked.tenant, asked.job).await?;
                return Ok(([(ETAG, entity_tag(&view))], Json(view)).into_response());
            }
            (ChangeJobReply::VersionChanged { current }, Some(_)) => {
                return Err(Problem::moved_on(current));
            }
            (ChangeJobReply::VersionChanged { .. }, None)
            | (ChangeJobReply::PlanExpired | ChangeJobReply::CalendarChanged, _) => {}
            (ChangeJobReply::LedgerBehind, _) => {
                return Err(Problem::ledger_behind(
                    "too many changes of this job have fires before them that nobody has recorded yet; try again when \
                     its schedulers have caught up",
                ));
            }
            (ChangeJobReply::RequestReused, _) => {
                return Err(Problem::key_reused("this key was used for something else"));
            }
            (ChangeJobReply::NotFound, _) => return Err(Problem::not_found("job", asked.job)),
        }
    }
    Err(Problem::unavailable("the job moves on faster than a change of it can be planned; try again"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn tagged(values: &[&'static str]) -> Result<JobVersion, u64> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IF_MATCH, HeaderValue::from_static(value));
        }
        edited_version(&headers).map_err(|problem| {
            serde_json::to_value(problem).expect("a problem is JSON")["status"]
                .as_u64()
                .expect("it has a status")
        })
    }

    #[test]
    fn an_edit_names_one_version_by_its_strong_tag() {
        assert_eq!(tagged(&["\"3\""]), Ok(JobVersion(3)));
        assert_eq!(tagged(&[]), Err(428));
        for wrong in [&["3"][..], &["*"], &["W/\"3\""], &["\"x\""], &["\"1\", \"2\""], &["\"1\"", "\"2\""]] {
            assert_eq!(tagged(wrong), Err(400), "{wrong:?}");
        }
    }

    #[test]
    fn whoever_pauses_says_who_and_why() {
        let refused = |body: &str| match said_by(body) {
            Ok(_) => panic!("{body} was taken"),
            Err(problem) => serde_json::to_value(problem).expect("a problem is JSON")["pointer"].clone(),
        };
        assert!(said_by(r#"{"actor": "Zoë", "reason": "the disk is full"}"#).is_ok());
        for (body, pointer) in [
            ("", ""),
            ("{}", "/actor"),
            (r#"{"actor": "a"}"#, "/reason"),
            (r#"{"actor": "", "reason": "r"}"#, "/actor"),
            (r#"{"actor": "a", "reason": " "}"#, "/reason"),
            (r#"{"actor": "a", "reason": "\u0000"}"#, "/reason"),
            (r#"{"actor": "a", "reason": "r", "until": 1}"#, "/until"),
        ] {
            assert_eq!(refused(body), pointer, "{body}");
        }
        let long = format!(r#"{{"actor": "{}", "reason": "r"}}"#, "a".repeat(201));
        assert_eq!(refused(&long), "/actor");
    }
}
