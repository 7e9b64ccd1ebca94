//! Pauses of a tenant and of its queues over HTTP.
//!
//! A key speaks for one tenant, so what is paused here is that tenant's work: all of it, or what one handler in one
//! version is to run. A queue is shared between tenants; nobody else's work on it is touched.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use fencepost_core::id::{PauseId, TenantId};
use fencepost_core::job::{HandlerName, HandlerRef};
use fencepost_core::limits::{BATCH_MAX, PAUSES_MAX};
use fencepost_core::pause::PauseScope;
use fencepost_core::store::command::{Command, PauseChange, SetPause};
use fencepost_core::store::reply::{Reply, SetPauseReply};
use fencepost_core::store::row::PauseRow;
use fencepost_core::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::auth::Caller;
use super::job_changes::{request_of, said_by};
use super::problem::Problem;
use super::query::{idempotency_key, json_body};
use super::state::ApiState;
use super::views::instant;
use crate::postgres::facts::pauses::{self, TenantPauses};

/// One pause.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PauseView {
    id: Uuid,
    /// `tenant`, or `queue`.
    scope: &'static str,
    /// Whose queue it is; null where the whole tenant is paused.
    handler: Option<String>,
    handler_version: Option<u32>,
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
    /// Who paused it.
    actor: String,
    /// Why.
    reason: String,
    /// How it ended; null while it stands.
    ended: Option<EndView>,
    /// How many executions wait for it, as far as counted: at most 1,000. Null where it has ended.
    waiting: Option<i64>,
}

/// The end of a pause.
#[derive(Debug, Serialize, ToSchema)]
struct EndView {
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Who resumed it.
    actor: String,
    /// Why.
    reason: String,
}

/// A tenant, and what of it is paused.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TenantView {
    id: Uuid,
    name: String,
    /// The pause of all its work; null where there is none.
    paused: Option<PauseView>,
    /// The pauses of its queues that stand.
    paused_queues: Vec<PauseView>,
    /// The latest pauses that have ended, the last first.
    ended: Vec<PauseView>,
}

/// One queue of a tenant's.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct QueueView {
    handler: String,
    handler_version: u32,
    /// How many of its jobs go there by their definitions in force.
    jobs: i64,
    /// The pause of the tenant's work on it; null where there is none.
    paused: Option<PauseView>,
}

/// The queues of a tenant's.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct QueuesView {
    /// By handler and version; at most 1,000.
    items: Vec<QueueView>,
    /// The pause of all of the tenant's work, which holds every queue back; null where there is none.
    tenant_paused: Option<PauseView>,
}

/// The tenant of the key: its pauses, and the latest that have ended.
#[utoipa::path(get, path = "/v1/tenant", responses(
    (status = 200, description = "The tenant", body = TenantView)))]
pub(super) async fn show_tenant(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
) -> Result<Json<TenantView>, Problem> {
    tenant_view(&state, tenant).await.map(Json)
}

/// Pause all work of the tenant of the key: `{"actor": …, "reason": …}`. Nothing of it starts until it is resumed: no
/// fires, no retries, nothing that is triggered or replayed. All of that waits. What runs goes on. Pausing what is paused
/// changes nothing.
#[utoipa::path(post, path = "/v1/tenant/pause", request_body = serde_json::Value, responses(
    (status = 200, description = "The tenant", body = TenantView),
    (status = 400, description = "A field is refused", body = Problem),
    (status = 422, description = "The key was used for something else", body = Problem)))]
pub(super) async fn pause_tenant(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<TenantView>, Problem> {
    set(&state, tenant, PauseScope::Tenant, Wish::Pause, &headers, body).await?;
    tenant_view(&state, tenant).await.map(Json)
}

/// Resume all work of the tenant of the key: `{"actor": …, "reason": …}`. What has waited starts. Queues that are paused
/// stay so. Resuming what is not paused changes nothing.
#[utoipa::path(post, path = "/v1/tenant/resume", request_body = serde_json::Value, responses(
    (status = 200, description = "The tenant", body = TenantView),
    (status = 400, description = "A field is refused", body = Problem),
    (status = 422, description = "The key was used for something else", body = Problem)))]
pub(super) async fn resume_tenant(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<TenantView>, Problem> {
    set(&state, tenant, PauseScope::Tenant, Wish::Resume, &headers, body).await?;
    tenant_view(&state, tenant).await.map(Json)
}

/// The queues that the tenant's jobs go to, and those of which its work is paused.
#[utoipa::path(get, path = "/v1/queues", responses(
    (status = 200, description = "The queues", body = QueuesView)))]
pub(super) async fn list_queues(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
) -> Result<Json<QueuesView>, Problem> {
    let standing = standing(&state, tenant).await?;
    let mut items: Vec<QueueView> = Vec::new();
    let mut known = pauses::queues(&state.reads, tenant).await?;
    let unused = standing.in_force.iter().filter_map(|pause| pause.scope.handler());
    let unused: Vec<_> =
        unused.filter(|queue| known.iter().all(|(name, _)| name != *queue)).cloned().collect();
    known.extend(unused.into_iter().map(|queue| (queue, 0)));
    known.sort_by(|(left, _), (right, _)| left.cmp(right));
    for (queue, jobs) in known {
        items.push(queue_view(&state, &standing, queue, jobs).await?);
    }
    let tenant_paused = match standing.in_force.iter().find(|pause| pause.scope == PauseScope::Tenant) {
        Some(pause) => Some(in_force(&state, pause).await?),
        None => None,
    };
    Ok(Json(QueuesView { items, tenant_paused }))
}

/// Pause the tenant's work on a queue: `{"actor": …, "reason": …}`. Nothing of it that this handler in this version is to
/// run starts until it is resumed; all of that waits. What runs goes on, and so does other tenants' work. Pausing what is
/// paused changes nothing.
#[utoipa::path(post, path = "/v1/queues/{handler}/{version}/pause",
    params(("handler" = String, Path), ("version" = u32, Path)), request_body = serde_json::Value, responses(
    (status = 200, description = "The queue", body = QueueView),
    (status = 400, description = "A field is refused", body = Problem),
    (status = 404, description = "That cannot be a queue", body = Problem),
    (status = 409, description = "Too many queues are paused", body = Problem),
    (status = 422, description = "The key was used for something else", body = Problem)))]
pub(super) async fn pause_queue(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path((handler, version)): Path<(String, String)>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<QueueView>, Problem> {
    let queue = queue_of(&handler, &version)?;
    set(&state, tenant, PauseScope::Queue(queue.clone()), Wish::Pause, &headers, body).await?;
    one_queue(&state, tenant, queue).await.map(Json)
}

/// Resume the tenant's work on a queue: `{"actor": …, "reason": …}`. What has waited for that starts, unless the tenant is
/// paused. Resuming what is not paused changes nothing.
#[utoipa::path(post, path = "/v1/queues/{handler}/{version}/resume",
    params(("handler" = String, Path), ("version" = u32, Path)), request_body = serde_json::Value, responses(
    (status = 200, description = "The queue", body = QueueView),
    (status = 400, description = "A field is refused", body = Problem),
    (status = 404, description = "That cannot be a queue", body = Problem),
    (status = 422, description = "The key was used for something else", body = Problem)))]
pub(super) async fn resume_queue(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path((handler, version)): Path<(String, String)>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<QueueView>, Problem> {
    let queue = queue_of(&handler, &version)?;
    set(&state, tenant, PauseScope::Queue(queue.clone()), Wish::Resume, &headers, body).await?;
    one_queue(&state, tenant, queue).await.map(Json)
}

fn queue_of(handler: &str, version: &str) -> Result<HandlerRef, Problem> {
    let absent = || Problem::not_found("queue", format!("{handler}/{version}"));
    let name = HandlerName::parse(handler).map_err(|_| absent())?;
    match version.parse() {
        Ok(version) if version > 0 => Ok(HandlerRef { name, version }),
        Ok(_) | Err(_) => Err(absent()),
    }
}

/// How something is to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Pause,
    Resume,
}

async fn standing(state: &ApiState, tenant: TenantId) -> Result<TenantPauses, Problem> {
    let standing = pauses::of_tenant(&state.reads, tenant).await?;
    standing.ok_or_else(|| Problem::not_found("tenant", tenant))
}

async fn set(
    state: &ApiState,
    tenant: TenantId,
    scope: PauseScope,
    wish: Wish,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<(), Problem> {
    let request = idempotency_key(headers)?;
    let (_, said) = said_by(&json_body(headers, body)?)?;
    let digest = format!("{wish:?}/{scope}/{}/{}", said.actor, said.reason);
    let known = standing(state, tenant).await?.in_force;
    let change = match wish {
        Wish::Pause => {
            if known.len() >= PAUSES_MAX && known.iter().all(|pause| pause.scope != scope) {
                return Err(Problem::too_many_pauses(PAUSES_MAX));
            }
            PauseChange::Pause { pause: PauseId::from_uuid(Uuid::new_v4()), scope }
        }
        Wish::Resume => {
            let pause = known.iter().find(|pause| pause.scope == scope);
            // Where nothing is paused, a request that did resume something is still recognised by its key.
            let pause = pause.map_or(PauseId::from_uuid(Uuid::nil()), |pause| pause.id);
            PauseChange::Resume { pause, at_once: u32::try_from(BATCH_MAX).unwrap_or(u32::MAX) }
        }
    };
    let command = Command::SetPause(SetPause {
        tenant,
        request: request.map(|request| request_of(request, &digest)),
        change,
        actor: Arc::from(said.actor),
        reason: Arc::from(said.reason),
    });
    match state.execute(&command).await?.reply {
        Reply::PauseSet(reply) => match (reply, wish) {
            (
                SetPauseReply::Paused
                | SetPauseReply::Resumed
                | SetPauseReply::Already { .. }
                | SetPauseReply::Repeated { .. },
                _,
            )
            | (SetPauseReply::NotFound, Wish::Resume) => Ok(()),
            (SetPauseReply::RequestReused, _) => {
                Err(Problem::key_reused("this key was used for something else"))
            }
            (SetPauseReply::NotFound, Wish::Pause) => Err(Problem::not_found("tenant", tenant)),
            (SetPauseReply::IdTaken, _) => Err(Problem::unavailable("try again")),
        },
        other => unreachable!("the store answered a pause with {other:?}"),
    }
}

fn view(pause: &PauseRow, waiting: Option<i64>) -> PauseView {
    let handler = pause.scope.handler();
    PauseView {
        id: pause.id.as_uuid(),
        scope: pause.scope.name(),
        handler: handler.map(|handler| handler.name.as_str().to_owned()),
        handler_version: handler.map(|handler| handler.version),
        since: pause.since,
        actor: pause.actor.to_string(),
        reason: pause.reason.to_string(),
        ended: pause.ended.as_ref().map(|end| EndView {
            at: end.at,
            actor: end.actor.to_string(),
            reason: end.reason.to_string(),
        }),
        waiting,
    }
}

/// A pause that stands, with how much waits for it.
async fn in_force(state: &ApiState, pause: &PauseRow) -> Result<PauseView, Problem> {
    let waiting = pauses::waiting(&state.reads, pause.id, BATCH_MAX).await?;
    Ok(view(pause, Some(waiting)))
}

async fn tenant_view(state: &ApiState, tenant: TenantId) -> Result<TenantView, Problem> {
    let standing = standing(state, tenant).await?;
    let (mut paused, mut paused_queues) = (None, Vec::new());
    for pause in &standing.in_force {
        let shown = in_force(state, pause).await?;
        match pause.scope {
            PauseScope::Tenant => paused = Some(shown),
            PauseScope::Queue(_) => paused_queues.push(shown),
        }
    }
    Ok(TenantView {
        id: tenant.as_uuid(),
        name: standing.name.to_string(),
        paused,
        paused_queues,
        ended: standing.ended.iter().map(|pause| view(pause, None)).collect(),
    })
}

async fn queue_view(
    state: &ApiState,
    standing: &TenantPauses,
    queue: HandlerRef,
    jobs: i64,
) -> Result<QueueView, Problem> {
    let paused = match standing.in_force.iter().find(|pause| pause.scope.handler() == Some(&queue)) {
        Some(pause) => Some(in_force(state, pause).await?),
        None => None,
    };
    Ok(QueueView { handler: queue.name.as_str().to_owned(), handler_version: queue.version, jobs, paused })
}

async fn one_queue(state: &ApiState, tenant: TenantId, queue: HandlerRef) -> Result<QueueView, Problem> {
    let standing = standing(state, tenant).await?;
    let known = pauses::queues(&state.reads, tenant).await?;
    let jobs = known.iter().find(|(name, _)| *name == queue).map_or(0, |(_, jobs)| *jobs);
    queue_view(state, &standing, queue, jobs).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_a_handler_and_a_version() {
        let queue = queue_of("http", "2").map(|queue| PauseScope::Queue(queue).to_string()).ok();
        assert_eq!(queue.as_deref(), Some("queue http v2"));
        for (handler, version) in [("", "1"), ("No", "1"), ("http", "0"), ("http", "x"), ("http", "-1")] {
            assert!(queue_of(handler, version).is_err(), "{handler}/{version}");
        }
    }
}
