//! Dead letters over HTTP: executions that ended without success, and why.

use axum::Json;
use axum::extract::{RawQuery, State};
use fencepost_core::execution::DeadLetterReason;
use fencepost_core::id::JobId;

use super::auth::Caller;
use super::problem::Problem;
use super::query::{Cursor, Parameters};
use super::state::ApiState;
use super::views::{self, DeadLetterFilter, DeadLetterLine, Page};

/// List dead letters, the newest first. `GET /v1/executions/{id}` shows one with the whole of its history.
#[utoipa::path(get, path = "/v1/dead-letters", params(("job_id" = Option<uuid::Uuid>, Query),
    ("reason" = Option<String>, Query), ("cursor" = Option<String>, Query), ("limit" = Option<u32>, Query)),
    responses((status = 200, description = "A page of dead letters, and the cursor of the next", body = Page<DeadLetterLine>)))]
pub(super) async fn list(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<DeadLetterLine>>, Problem> {
    let parameters = Parameters::read(query.as_deref(), &["job_id", "reason", "cursor", "limit"])?;
    let names: Vec<&str> = DeadLetterReason::ALL.iter().map(|reason| reason.name()).collect();
    let filter = DeadLetterFilter {
        job: parameters.parse("job_id", |text| text.parse::<JobId>().ok(), "a job's id")?,
        reason: parameters.parse(
            "reason",
            DeadLetterReason::from_name,
            &format!("a reason; these are: {}", names.join(", ")),
        )?,
    };
    let limit = parameters.limit()?;
    let lines = views::dead_letters(&state.reads, tenant, &filter, parameters.cursor()?, limit).await?;
    Ok(Json(Page::of(lines, limit, |line| Cursor { at: line.at(), id: line.id() })))
}
