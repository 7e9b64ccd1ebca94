//! Executions as the API shows them: where they stand, their lag stamps, and what went differently.

use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::PgPool;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    Cursor, ExecutionId, ExecutionState, JobId, TenantId, Timestamp, instant, optional_instant, raw_json,
};

/// Which executions a listing shows.
#[derive(Clone, Copy, Debug)]
pub(in crate::api) struct ExecutionFilter {
    pub(in crate::api) job: Option<JobId>,
    pub(in crate::api) state: Option<ExecutionState>,
}

/// An execution, as the API shows it.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct ExecutionView {
    #[schema(value_type = Uuid)]
    id: ExecutionId,
    #[schema(value_type = Uuid)]
    job_id: JobId,
    job_version: i64,
    /// `scheduled`, `manual` or `replay`.
    occurrence: String,
    state: String,
    idempotency_key: String,
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    due_at: Timestamp,
    /// When the whole of it has to be over, where its job sets a deadline.
    #[serde(serialize_with = "optional_instant")]
    #[schema(value_type = Option<String>, format = DateTime)]
    deadline_at: Option<Timestamp>,
    /// Failed attempts.
    failed_attempts: i32,
    /// Workers lost after a sign of a start.
    rescues: i32,
    /// Leases lost without one.
    lost_starts: i32,
    /// The latest execution lease's.
    fencing_token: i64,
    worker: Option<Uuid>,
    cancel_requested: bool,
    /// Why it waits although it was dispatched.
    waiting: Option<String>,
    skip_reason: Option<String>,
    #[serde(serialize_with = "optional_instant")]
    #[schema(value_type = Option<String>, format = DateTime)]
    next_try_at: Option<Timestamp>,
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    materialised_at: Timestamp,
    #[serde(serialize_with = "optional_instant")]
    #[schema(value_type = Option<String>, format = DateTime)]
    published_at: Option<Timestamp>,
    #[serde(serialize_with = "optional_instant")]
    #[schema(value_type = Option<String>, format = DateTime)]
    received_at: Option<Timestamp>,
    #[serde(serialize_with = "optional_instant")]
    #[schema(value_type = Option<String>, format = DateTime)]
    leased_at: Option<Timestamp>,
    #[serde(serialize_with = "optional_instant")]
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Timestamp>,
    #[serde(serialize_with = "optional_instant")]
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Timestamp>,
    #[schema(value_type = Option<Object>)]
    payload: Option<Box<RawValue>>,
    error: Option<String>,
}

impl ExecutionView {
    pub(in crate::api) fn state(&self) -> &str {
        &self.state
    }

    pub(in crate::api) fn due_at(&self) -> Timestamp {
        self.due_at
    }

    pub(in crate::api) fn id(&self) -> Uuid {
        self.id.as_uuid()
    }
}

/// An execution with what went differently.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct ExecutionDetail {
    #[serde(flatten)]
    execution: ExecutionView,
    /// Attempts that did not complete, in the order of their tokens.
    attempts: Vec<AttemptView>,
    dead_letter: Option<DeadLetterView>,
}

/// An attempt that did not complete.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AttemptView {
    fencing_token: i64,
    attempt: i64,
    worker: Option<Uuid>,
    ended: String,
    error: Option<String>,
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

#[derive(Debug, Serialize, ToSchema)]
struct DeadLetterView {
    reason: String,
    error: Option<String>,
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

struct Columns {
    id: Uuid,
    job: Uuid,
    job_version: i64,
    occurrence: String,
    state: String,
    key: String,
    due_at: i64,
    deadline_at: Option<i64>,
    attempts: i32,
    rescues: i32,
    lost_starts: i32,
    token: i64,
    owner: Option<Uuid>,
    cancel_requested: bool,
    waiting: Option<String>,
    skip_reason: Option<String>,
    next_try_at: Option<i64>,
    materialised_at: i64,
    published_at: Option<i64>,
    received_at: Option<i64>,
    leased_at: Option<i64>,
    started_at: Option<i64>,
    finished_at: Option<i64>,
    payload: Option<String>,
    error: Option<String>,
}

impl From<Columns> for ExecutionView {
    fn from(row: Columns) -> Self {
        let instant = |micros: Option<i64>| micros.map(Timestamp::from_micros);
        Self {
            id: ExecutionId::from_uuid(row.id),
            job_id: JobId::from_uuid(row.job),
            job_version: row.job_version,
            occurrence: row.occurrence,
            state: row.state,
            idempotency_key: row.key,
            due_at: Timestamp::from_micros(row.due_at),
            deadline_at: instant(row.deadline_at),
            failed_attempts: row.attempts,
            rescues: row.rescues,
            lost_starts: row.lost_starts,
            fencing_token: row.token,
            worker: row.owner,
            cancel_requested: row.cancel_requested,
            waiting: row.waiting,
            skip_reason: row.skip_reason,
            next_try_at: instant(row.next_try_at),
            materialised_at: Timestamp::from_micros(row.materialised_at),
            published_at: instant(row.published_at),
            received_at: instant(row.received_at),
            leased_at: instant(row.leased_at),
            started_at: instant(row.started_at),
            finished_at: instant(row.finished_at),
            payload: row.payload.and_then(raw_json),
            error: row.error,
        }
    }
}

/// One execution of a tenant.
pub(in crate::api) async fn execution(
    pool: &PgPool,
    tenant: TenantId,
    execution: ExecutionId,
) -> Result<Option<ExecutionView>, sqlx::Error> {
    let row = sqlx::query_as!(
        Columns,
        "SELECT id, job, job_version, occurrence, state, key, due_at, deadline_at, attempts, rescues, lost_starts, token, owner,
                cancel_requested, waiting, skip_reason, next_try_at, materialised_at, published_at, received_at,
                leased_at, started_at, finished_at, payload, error
         FROM execution WHERE id = $1 AND tenant = $2",
        execution.as_uuid(),
        tenant.as_uuid(),
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(ExecutionView::from))
}

/// One execution of a tenant, with its failed attempts and its dead letter.
pub(in crate::api) async fn execution_detail(
    pool: &PgPool,
    tenant: TenantId,
    id: ExecutionId,
) -> Result<Option<ExecutionDetail>, sqlx::Error> {
    let Some(execution) = execution(pool, tenant, id).await? else { return Ok(None) };
    let attempts = attempts(pool, tenant, id).await?;
    let dead_letter = sqlx::query!(
        "SELECT reason, error, at FROM dead_letter WHERE execution = $1 AND tenant = $2",
        id.as_uuid(),
        tenant.as_uuid(),
    )
    .fetch_optional(pool)
    .await?
    .map(|row| DeadLetterView {
        reason: row.reason,
        error: row.error,
        at: Timestamp::from_micros(row.at),
    });
    Ok(Some(ExecutionDetail { execution, attempts, dead_letter }))
}

/// The attempts of an execution that did not complete, in the order of their tokens.
pub(super) async fn attempts(
    pool: &PgPool,
    tenant: TenantId,
    id: ExecutionId,
) -> Result<Vec<AttemptView>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT token, attempt, node, ended, error, at FROM attempt
         WHERE execution = $1 AND tenant = $2 ORDER BY token",
        id.as_uuid(),
        tenant.as_uuid(),
    )
    .fetch_all(pool)
    .await?;
    let view = rows.into_iter().map(|row| AttemptView {
        fencing_token: row.token,
        attempt: row.attempt,
        worker: row.node,
        ended: row.ended,
        error: row.error,
        at: Timestamp::from_micros(row.at),
    });
    Ok(view.collect())
}

/// A page of a tenant's executions, the latest due first.
///
/// The index leads with job and state, so each pair of them is probed for its latest rows, and the page is the
/// latest of those: the work is bounded by jobs and states, never by how many executions there are.
pub(in crate::api) async fn executions(
    pool: &PgPool,
    tenant: TenantId,
    filter: &ExecutionFilter,
    before: Cursor,
    limit: u32,
) -> Result<Vec<ExecutionView>, sqlx::Error> {
    let states: Vec<String> = match filter.state {
        Some(state) => vec![state.name().to_owned()],
        None => ExecutionState::ALL.map(|state| state.name().to_owned()).into(),
    };
    let rows = sqlx::query_as!(
        Columns,
        "SELECT e.id, e.job, e.job_version, e.occurrence, e.state, e.key, e.due_at, e.deadline_at, e.attempts, e.rescues,
                e.lost_starts, e.token, e.owner, e.cancel_requested, e.waiting, e.skip_reason, e.next_try_at,
                e.materialised_at, e.published_at, e.received_at, e.leased_at, e.started_at, e.finished_at,
                e.payload, e.error
         FROM job j
         CROSS JOIN unnest($3::text[]) AS wanted (state)
         CROSS JOIN LATERAL (
             SELECT * FROM execution
             WHERE job = j.id AND state = wanted.state AND (due_at, id) < ($4, $5)
             ORDER BY due_at DESC, id DESC LIMIT $6
         ) e
         WHERE j.tenant = $1 AND ($2::uuid IS NULL OR j.id = $2)
         ORDER BY e.due_at DESC, e.id DESC LIMIT $6",
        tenant.as_uuid(),
        filter.job.map(JobId::as_uuid),
        &states,
        before.at.as_micros(),
        before.id,
        i64::from(limit),
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(ExecutionView::from).collect())
}
