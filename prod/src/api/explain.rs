//! Explanations over HTTP: what became of an execution or a job, what it waits for, what comes next.
//!
//! The core explains; here the facts are read and its statements are given their shape for machines.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use fencepost_core::explain::{Explanation, Lag, Statement, explain_execution, explain_job};
use fencepost_core::id::{ExecutionId, JobId};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::auth::Caller;
use super::problem::Problem;
use super::query::path_id;
use super::state::ApiState;
use crate::postgres::{Fault, facts};

/// One thing that is said. The fields beside these two depend on the code; docs/explain.md lists them.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StatementView {
    /// What kind of thing it is, for machines; stable.
    #[schema(value_type = String)]
    code: &'static str,
    /// The same for people.
    sentence: String,
    /// Its instants, ids, tokens and numbers.
    #[serde(flatten)]
    fields: BTreeMap<String, Value>,
}

/// One stage of an execution.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StageView {
    #[schema(value_type = String)]
    from: &'static str,
    #[schema(value_type = String)]
    to: &'static str,
    /// When it ended.
    #[schema(format = DateTime)]
    at: String,
    span_ms: u64,
}

/// The stage that an execution is in.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OpenStageView {
    #[schema(value_type = String)]
    from: &'static str,
    #[schema(format = DateTime)]
    since: String,
    span_ms: u64,
}

/// Where the time of an execution went.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LagView {
    /// The token of the run that the stamps from `published` on are of; 0 before the first.
    token: i64,
    /// They add up to the total.
    stages: Vec<StageView>,
    total_ms: u64,
    open: Option<OpenStageView>,
    /// Whether a span had to be clamped, because clocks disagreed.
    clamped: bool,
}

/// What is to be said of an execution.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ExecutionExplanation {
    #[schema(value_type = Uuid)]
    execution_id: ExecutionId,
    #[schema(value_type = Uuid)]
    job_id: JobId,
    #[serde(flatten)]
    told: ExplanationView,
    lag: Option<LagView>,
    /// Whether it may be replayed, what that would do, or why not.
    replay: Option<StatementView>,
}

/// What is to be said of a job.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JobExplanation {
    #[schema(value_type = Uuid)]
    job_id: JobId,
    #[serde(flatten)]
    told: ExplanationView,
}

/// What is to be said.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ExplanationView {
    /// The store's clock when the facts were read.
    #[schema(format = DateTime)]
    at: String,
    /// One sentence.
    headline: String,
    /// What happened, oldest first.
    past: Vec<StatementView>,
    /// What is so, the most telling first.
    now: Vec<StatementView>,
    /// What comes, if nothing else happens.
    future: Vec<StatementView>,
}

impl From<Statement> for StatementView {
    fn from(statement: Statement) -> Self {
        let Statement { code, sentence, fields } = statement;
        Self { code, sentence, fields: fields.into_iter().collect() }
    }
}

impl From<Lag> for LagView {
    fn from(lag: Lag) -> Self {
        let stages = lag.stages.into_iter().map(|stage| StageView {
            from: stage.from,
            to: stage.to,
            at: stage.at.to_string(),
            span_ms: stage.span.as_millis(),
        });
        Self {
            token: lag.token.as_i64(),
            stages: stages.collect(),
            total_ms: lag.total.as_millis(),
            open: lag.open.map(|open| OpenStageView {
                from: open.from,
                since: open.since.to_string(),
                span_ms: open.span.as_millis(),
            }),
            clamped: lag.clamped,
        }
    }
}

impl ExplanationView {
    /// Its view, and what only executions have.
    fn of(explanation: Explanation) -> (Self, Option<LagView>, Option<StatementView>) {
        let Explanation { at, headline, past, now, future, lag, replay } = explanation;
        let list = |statements: Vec<Statement>| statements.into_iter().map(StatementView::from).collect();
        let view =
            Self { at: at.to_string(), headline, past: list(past), now: list(now), future: list(future) };
        (view, lag.map(LagView::from), replay.map(StatementView::from))
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Sql(error) => Self::from(error),
            Fault::Unknown { .. } => {
                tracing::warn!(%fault, "a row cannot be explained");
                Self::unreadable(&fault.to_string())
            }
            Fault::InMotion { .. } => Self::unavailable("what was asked for changes too fast; try again"),
        }
    }
}

/// Explain an execution: its history, what it waits for, what comes, where the time went, whether it may be replayed.
#[utoipa::path(get, path = "/v1/executions/{id}/explain", params(("id" = uuid::Uuid, Path)), responses(
    (status = 200, description = "What is to be said", body = ExecutionExplanation),
    (status = 404, description = "This tenant has no such execution", body = Problem),
    (status = 409, description = "A newer version wrote what this one does not know", body = Problem)))]
pub(super) async fn execution(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
) -> Result<Json<ExecutionExplanation>, Problem> {
    let id: ExecutionId = path_id("execution", &id)?;
    let facts = facts::of_execution(&state.reads, tenant, id, state.spans).await?;
    let facts = facts.ok_or_else(|| Problem::not_found("execution", id))?;
    let (told, lag, replay) = ExplanationView::of(explain_execution(&facts));
    Ok(Json(ExecutionExplanation { execution_id: id, job_id: facts.execution.job, told, lag, replay }))
}

/// Explain a job: its latest fires, what is late and why, and when it fires next or why never.
#[utoipa::path(get, path = "/v1/jobs/{id}/explain", params(("id" = uuid::Uuid, Path)), responses(
    (status = 200, description = "What is to be said", body = JobExplanation),
    (status = 404, description = "This tenant has no such job", body = Problem),
    (status = 409, description = "A newer version wrote what this one does not know", body = Problem)))]
pub(super) async fn job(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
) -> Result<Json<JobExplanation>, Problem> {
    let id: JobId = path_id("job", &id)?;
    let facts = facts::of_job(&state.reads, tenant, id).await?;
    let facts = facts.ok_or_else(|| Problem::not_found("job", id))?;
    let (told, _, _) = ExplanationView::of(explain_job(&facts));
    Ok(Json(JobExplanation { job_id: id, told }))
}
