//! Concurrency limits over HTTP: how many executions of a tenant, or of one of its concurrency keys, run at once.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use fencepost_core::id::TenantId;
use fencepost_core::job::check_text;
use fencepost_core::job::shape::{Field, Shape};
use fencepost_core::job_plan::{ChangedBy, ChangedByError};
use fencepost_core::store::command::{Command, OperatorRequest, SetLimit};
use fencepost_core::store::reply::{Reply, SetLimitReply};
use fencepost_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use utoipa::ToSchema;
use uuid::Uuid;

use super::auth::Caller;
use super::problem::Problem;
use super::query::{idempotency_key, json_body};
use super::state::ApiState;

/// A limit, and what runs under it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LimitView {
    /// The concurrency key; null: all that the tenant runs.
    key: Option<String>,
    /// How many may run at once; null: any number.
    max_running: Option<i32>,
    /// How many run.
    running: i64,
    /// How many wait for it.
    waiting: i64,
    /// Who set it.
    actor: String,
    /// Why.
    reason: String,
    /// When.
    set_at: String,
}

/// All limits that were ever set, the tenant's own first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Limits {
    items: Vec<LimitView>,
}

async fn read(reads: &PgPool, tenant: TenantId, key: Option<&str>) -> Result<Vec<LimitView>, Problem> {
    let rows = sqlx::query!(
        r#"SELECT l.key, l.max_running, l.actor, l.reason, l.set_at, (
             SELECT count(*) FROM execution e
             WHERE e.tenant = l.tenant AND num_nulls(e.owner) = 0 AND (l.key = '' OR l.key = (
               SELECT v.concurrency_key FROM job_version v WHERE v.job = e.job AND v.version = e.job_version)))
             AS "running!", (
             SELECT count(*) FROM execution e
             WHERE e.tenant = l.tenant AND e.waiting IN ('tenant_limit', 'key_limit')
               AND e.waiting = CASE l.key WHEN '' THEN 'tenant_limit' ELSE 'key_limit' END AND (l.key = '' OR l.key = (
               SELECT v.concurrency_key FROM job_version v WHERE v.job = e.job AND v.version = e.job_version)))
             AS "waiting!"
           FROM concurrency_limit l WHERE l.tenant = $1 AND ($2::text IS NULL OR l.key = $2) ORDER BY l.key"#,
        tenant.as_uuid(),
        key,
    )
    .fetch_all(reads)
    .await?;
    let view = |row: (String, Option<i32>, i64, i64, String, String, i64)| LimitView {
        key: Some(row.0).filter(|key| !key.is_empty()),
        max_running: row.1,
        running: row.2,
        waiting: row.3,
        actor: row.4,
        reason: row.5,
        set_at: Timestamp::from_micros(row.6).to_string(),
    };
    let columns = rows.into_iter().map(|row| {
        view((row.key, row.max_running, row.running, row.waiting, row.actor, row.reason, row.set_at))
    });
    Ok(columns.collect())
}

/// List the tenant's concurrency limits, with what runs and what waits under each.
#[utoipa::path(get, path = "/v1/limits", responses((status = 200, description = "All limits", body = Limits)))]
pub(super) async fn list(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
) -> Result<Json<Limits>, Problem> {
    Ok(Json(Limits { items: read(&state.reads, tenant, None).await? }))
}

/// The body of a setting.
const SETTING: Shape = Shape::Object(&[
    Field::nullable("max_running", Shape::Whole(MOST)),
    Field::required("actor", Shape::Text),
    Field::required("reason", Shape::Text),
]);

/// No limit is larger.
const MOST: u64 = 1_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingBody {
    #[serde(default)]
    max_running: Option<u32>,
    actor: String,
    reason: String,
}

/// Set how many executions of the tenant run at once: `{"max_running": 10, "actor": …, "reason": …}`; null takes the limit
/// away. What runs goes on; what waits is dispatched as there is room.
#[utoipa::path(put, path = "/v1/limits/tenant", request_body = serde_json::Value, responses(
    (status = 200, description = "The limit", body = LimitView),
    (status = 400, description = "A field is refused", body = Problem),
    (status = 422, description = "The key was used for something else", body = Problem)))]
pub(super) async fn set_tenant(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<LimitView>, Problem> {
    set(&state, tenant, None, &headers, body).await
}

/// Set how many executions of the jobs with this concurrency key run at once: as for the tenant.
#[utoipa::path(put, path = "/v1/limits/keys/{key}", params(("key" = String, Path)), request_body = serde_json::Value,
    responses((status = 200, description = "The limit", body = LimitView),
    (status = 400, description = "A field is refused", body = Problem),
    (status = 422, description = "The key was used for something else", body = Problem)))]
pub(super) async fn set_key(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(key): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<LimitView>, Problem> {
    check_text("key", &key).map_err(|error| Problem::bad_parameter("key", error.detail))?;
    set(&state, tenant, Some(key.into()), &headers, body).await
}

async fn set(
    state: &ApiState,
    tenant: TenantId,
    key: Option<Arc<str>>,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<LimitView>, Problem> {
    let request = idempotency_key(headers)?;
    let said = setting(&json_body(headers, body)?)?;
    let digest = format!(
        "limit/{}/{:?}/{}/{}",
        key.as_deref().unwrap_or_default(),
        said.max_running,
        said.actor,
        said.reason
    );
    let fingerprint = Uuid::new_v5(&Uuid::NAMESPACE_OID, digest.as_bytes());
    let ask = SetLimit {
        tenant,
        key: key.clone(),
        max_running: said.max_running,
        request: request.map(|request| OperatorRequest { request, fingerprint }),
        actor: said.actor.into(),
        reason: said.reason.into(),
        node: state.node,
    };
    let reply = match state.execute(&Command::SetLimit(ask)).await?.reply {
        Reply::LimitSet(reply) => reply,
        other => unreachable!("the store answered the setting of a limit with {other:?}"),
    };
    match reply {
        SetLimitReply::Set | SetLimitReply::Repeated => {}
        SetLimitReply::RequestReused => {
            return Err(Problem::key_reused("this key was used for something else"));
        }
        SetLimitReply::NoTenant => return Err(Problem::not_found("tenant", tenant)),
    }
    let mut set = read(&state.reads, tenant, Some(key.as_deref().unwrap_or_default())).await?;
    set.pop()
        .map(Json)
        .ok_or_else(|| Problem::unavailable("the limit was set, and cannot be read yet; try again"))
}

fn setting(body: &str) -> Result<SettingBody, Problem> {
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
    if said.max_running == Some(0) {
        return Err(Problem::bad_parameter("/max_running", "at least 1; to run nothing, pause instead"));
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_none_at_all_is_refused_and_so_is_one_that_nobody_answers_for() {
        let refused = |body: &str| match setting(body) {
            Ok(_) => panic!("{body} was taken"),
            Err(problem) => serde_json::to_value(problem).expect("a problem is JSON")["pointer"].clone(),
        };
        assert!(setting(r#"{"max_running": 1, "actor": "Zoë", "reason": "the disk is slow"}"#).is_ok());
        assert!(setting(r#"{"max_running": null, "actor": "Zoë", "reason": "it is fast again"}"#).is_ok());
        for (body, pointer) in [
            (r#"{"max_running": 0, "actor": "a", "reason": "r"}"#, "/max_running"),
            (r#"{"max_running": -1, "actor": "a", "reason": "r"}"#, "/max_running"),
            (r#"{"max_running": 1, "reason": "r"}"#, "/actor"),
            (r#"{"max_running": 1, "actor": "a", "reason": "\u0000"}"#, "/reason"),
            (r#"{"max_running": 1, "actor": "a", "reason": "r", "until": 1}"#, "/until"),
        ] {
            assert_eq!(refused(body), pointer, "{body}");
        }
    }
}
