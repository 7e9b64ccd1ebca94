//! Executions over HTTP: list, show, cancel.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use fencepost_core::execution::ExecutionState;
use fencepost_core::id::{ExecutionId, JobId};
use fencepost_core::store::command::{CancelExecution, Command};
use fencepost_core::store::reply::{CancelReply, Reply};
use serde::Serialize;
use utoipa::ToSchema;

use super::auth::Caller;
use super::problem::Problem;
use super::query::{Cursor, Parameters, path_id};
use super::state::ApiState;
use super::views::{self, ExecutionDetail, ExecutionView, Page};

/// List executions, the latest due first.
#[utoipa::path(get, path = "/v1/executions", params(("job_id" = Option<uuid::Uuid>, Query), ("state" = Option<String>, Query),
    ("cursor" = Option<String>, Query), ("limit" = Option<u32>, Query)),
    responses((status = 200, description = "A page of executions, and the cursor of the next", body = Page<ExecutionView>)))]
pub(super) async fn list(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<ExecutionView>>, Problem> {
    let parameters = Parameters::read(query.as_deref(), &["job_id", "state", "cursor", "limit"])?;
    let names = ExecutionState::ALL.map(ExecutionState::name).join(", ");
    let filter = views::ExecutionFilter {
        job: parameters.parse("job_id", |text| text.parse::<JobId>().ok(), "a job's id")?,
        state: parameters.parse(
            "state",
            ExecutionState::from_name,
            &format!("a state; these are: {names}"),
        )?,
    };
    let limit = parameters.limit()?;
    let executions = views::executions(&state.reads, tenant, &filter, parameters.cursor()?, limit).await?;
    Ok(Json(Page::of(executions, limit, |row| Cursor { at: row.due_at(), id: row.id() })))
}

/// Show an execution, with the attempts that did not complete and its dead letter.
#[utoipa::path(get, path = "/v1/executions/{id}", params(("id" = uuid::Uuid, Path)), responses(
    (status = 200, description = "The execution", body = ExecutionDetail),
    (status = 404, description = "This tenant has no such execution", body = Problem)))]
pub(super) async fn show(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
) -> Result<Json<ExecutionDetail>, Problem> {
    let execution: ExecutionId = path_id("execution", &id)?;
    let detail = views::execution_detail(&state.reads, tenant, execution).await?;
    detail.map(Json).ok_or_else(|| Problem::not_found("execution", execution))
}

/// What a cancel did.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Cancellation {
    #[schema(value_type = Uuid)]
    execution_id: ExecutionId,
    #[schema(value_type = String)]
    outcome: &'static str,
    /// Where it stood before.
    #[schema(value_type = String)]
    state: ExecutionState,
}

/// Cancel an execution. One that runs is asked to stop, and may still complete first.
#[utoipa::path(post, path = "/v1/executions/{id}/cancel", params(("id" = uuid::Uuid, Path)), responses(
    (status = 200, description = "What it did", body = Cancellation),
    (status = 404, description = "This tenant has no such execution", body = Problem)))]
pub(super) async fn cancel(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
) -> Result<Json<Cancellation>, Problem> {
    let execution: ExecutionId = path_id("execution", &id)?;
    let reply = state.execute(&Command::CancelExecution(CancelExecution { tenant, execution })).await?.reply;
    let cancelled = match reply {
        Reply::ExecutionCancelled(reply) => reply,
        other => unreachable!("the store answered a cancel with {other:?}"),
    };
    let (outcome, state) = match cancelled {
        CancelReply::Cancelled { was } => ("cancelled", was),
        CancelReply::Requested => ("asked_to_stop", ExecutionState::Running),
        CancelReply::Ended { state } => ("had_ended", state),
        CancelReply::NotFound => return Err(Problem::not_found("execution", execution)),
    };
    Ok(Json(Cancellation { execution_id: execution, outcome, state }))
}
