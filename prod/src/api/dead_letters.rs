//! Dead letters over HTTP: executions that ended without success, and why; and their purge.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use fencepost_core::execution::DeadLetterReason;
use fencepost_core::id::{ExecutionId, JobId};
use fencepost_core::store::command::{Command, DeadLetterFilter, PurgeDeadLetter};
use fencepost_core::store::reply::{PurgeReply, Reply};
use fencepost_core::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::auth::Caller;
use super::fires::AN_INSTANT;
use super::problem::Problem;
use super::query::{Cursor, Parameters, path_id};
use super::state::ApiState;
use super::views::{self, DeadLetterDetail, DeadLetterLine, Page};

/// What a reason may be, for people.
pub(super) fn a_reason() -> String {
    let names: Vec<&str> = DeadLetterReason::ALL.iter().map(|reason| reason.name()).collect();
    format!("a reason; these are: {}", names.join(", "))
}

/// List dead letters, the newest first. Purged ones are left out.
#[utoipa::path(get, path = "/v1/dead-letters", params(("job_id" = Option<uuid::Uuid>, Query),
    ("reason" = Option<String>, Query), ("from" = Option<String>, Query), ("to" = Option<String>, Query),
    ("cursor" = Option<String>, Query), ("limit" = Option<u32>, Query)),
    responses((status = 200, description = "A page of dead letters, and the cursor of the next", body = Page<DeadLetterLine>)))]
pub(super) async fn list(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<DeadLetterLine>>, Problem> {
    let known = ["job_id", "reason", "from", "to", "cursor", "limit"];
    let parameters = Parameters::read(query.as_deref(), &known)?;
    let filter = DeadLetterFilter {
        job: parameters.parse("job_id", |text| text.parse::<JobId>().ok(), "a job's id")?,
        reason: parameters.parse("reason", DeadLetterReason::from_name, &a_reason())?,
        from: parameters.parse("from", Timestamp::parse_rfc3339, AN_INSTANT)?,
        to: parameters.parse("to", Timestamp::parse_rfc3339, AN_INSTANT)?,
    };
    if filter.from.zip(filter.to).is_some_and(|(from, to)| to < from) {
        return Err(Problem::bad_parameter("to", "lies before `from`"));
    }
    let limit = parameters.limit()?;
    let lines = views::dead_letters(&state.reads, tenant, &filter, parameters.cursor()?, limit).await?;
    Ok(Json(Page::of(lines, limit, |line| Cursor { at: line.at(), id: line.id() })))
}

/// Inspect a dead letter: attempts, refusals, the rule that ended it, replays made, and what a replay would do.
#[utoipa::path(get, path = "/v1/dead-letters/{execution}", params(("execution" = uuid::Uuid, Path)), responses(
    (status = 200, description = "The dead letter, or its tombstone", body = DeadLetterDetail),
    (status = 404, description = "This tenant has no such dead letter", body = Problem)))]
pub(super) async fn show(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
) -> Result<Json<DeadLetterDetail>, Problem> {
    let execution: ExecutionId = path_id("dead letter", &id)?;
    let detail = views::dead_letter(&state.reads, tenant, execution).await?;
    detail.map(Json).ok_or_else(|| Problem::not_found("dead letter", execution))
}

/// What a purge did.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Purge {
    #[schema(value_type = Uuid)]
    execution_id: ExecutionId,
    /// `purged`, or `had_been_purged` by an earlier request.
    #[schema(value_type = String)]
    outcome: &'static str,
}

/// Purge a dead letter: it is neither listed nor replayed any more, and its error is forgotten. A tombstone stays for as
/// long as the execution; replays that were made go on.
#[utoipa::path(delete, path = "/v1/dead-letters/{execution}", params(("execution" = uuid::Uuid, Path)), responses(
    (status = 200, description = "What it did; a repeat does nothing more", body = Purge),
    (status = 404, description = "This tenant has no such dead letter", body = Problem)))]
pub(super) async fn purge(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
) -> Result<Json<Purge>, Problem> {
    let execution: ExecutionId = path_id("dead letter", &id)?;
    let reply = state.execute(&Command::PurgeDeadLetter(PurgeDeadLetter { tenant, execution })).await?.reply;
    let purged = match reply {
        Reply::DeadLetterPurged(reply) => reply,
        other => unreachable!("the store answered a purge with {other:?}"),
    };
    let outcome = match purged {
        PurgeReply::Purged => "purged",
        PurgeReply::Repeated => "had_been_purged",
        PurgeReply::NotDeadLettered { .. } | PurgeReply::NotFound => {
            return Err(Problem::not_found("dead letter", execution));
        }
    };
    Ok(Json(Purge { execution_id: execution, outcome }))
}
