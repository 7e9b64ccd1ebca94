//! One dead letter, inspected: its whole history, by which rule it died, what was replayed of it, and what a replay
//! would do now.

use std::sync::Arc;

use fencepost_core::execution::DeadLetterReason;
use fencepost_core::id::{ExecutionId, JobId, TenantId};
use fencepost_core::job::StoredDefinition;
use fencepost_core::replay::{self, NotReplayable, Readability, why_not};
use fencepost_core::store::command::ReplayKey;
use fencepost_core::store::row::JobState;
use fencepost_core::time::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::PgPool;
use utoipa::ToSchema;
use uuid::Uuid;

use super::execution_view::{AttemptView, attempts};
use super::{instant, optional_instant, raw_json};

/// A dead letter with all that is known of it.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct DeadLetterDetail {
    #[schema(value_type = Uuid)]
    execution_id: ExecutionId,
    #[schema(value_type = Uuid)]
    job_id: JobId,
    job_version: i64,
    /// `scheduled`, `manual` or `replay`.
    occurrence: String,
    idempotency_key: String,
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    due_at: Timestamp,
    /// The latest execution lease's: a replay's tokens lie above it.
    fencing_token: i64,
    #[schema(value_type = Option<Object>)]
    payload: Option<Box<RawValue>>,
    reason: String,
    /// The rule that ended it.
    rule: String,
    error: Option<String>,
    failed_attempts: i32,
    rescues: i32,
    lost_starts: i32,
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// When it was purged: what is left is a tombstone.
    #[serde(serialize_with = "optional_instant")]
    #[schema(value_type = Option<String>, format = DateTime)]
    purged_at: Option<Timestamp>,
    /// Attempts that did not complete, in the order of their tokens.
    attempts: Vec<AttemptView>,
    /// Writes that came too late and were refused.
    refusals: Vec<RefusalView>,
    /// Replays made of it, by number.
    replays: Vec<ReplayView>,
    /// What a replay would do now.
    replay: ReplayForecast,
}

/// A refused write.
#[derive(Debug, Serialize, ToSchema)]
struct RefusalView {
    /// What it was to do.
    action: String,
    worker: Uuid,
    /// The token presented.
    fencing_token: i64,
    /// The token that was current.
    current_token: i64,
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    first_at: Timestamp,
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    last_at: Timestamp,
    count: i64,
}

/// A replay that was made.
#[derive(Debug, Serialize, ToSchema)]
struct ReplayView {
    number: i64,
    #[schema(value_type = Uuid)]
    execution_id: ExecutionId,
    state: String,
    idempotency_key: String,
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    made_at: Timestamp,
}

/// What a replay would do.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct ReplayForecast {
    /// Whether it can be replayed now.
    replayable: bool,
    /// Why not: `purged`, `job_deleted` or `unreadable_definition`.
    #[schema(value_type = Option<String>)]
    why_not: Option<NotReplayable>,
    /// The number of the next replay.
    number: u32,
    /// The execution that the next replay would be.
    #[schema(value_type = Uuid)]
    execution_id: ExecutionId,
    /// The idempotency key that it would have by default: the origin's, so that a target which enforces it does nothing
    /// that it has done before.
    #[schema(value_type = String)]
    idempotency_key: Arc<str>,
    /// The one that it would have with `"key": "new"`: a target takes it for something new.
    #[schema(value_type = String)]
    new_idempotency_key: Arc<str>,
    /// What other executions of the job wait for just now, such as a handler that no worker knows: a replay would wait
    /// for it too.
    waits_for: Option<String>,
}

impl DeadLetterDetail {
    pub(in crate::api) fn into_forecast(self) -> ReplayForecast {
        self.replay
    }
}

/// A dead letter of a tenant, purged or not.
pub(in crate::api) async fn dead_letter(
    pool: &PgPool,
    tenant: TenantId,
    id: ExecutionId,
) -> Result<Option<DeadLetterDetail>, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT d.job, d.reason, d.error, d.attempts, d.rescues, d.lost_starts, d.at, d.replays, d.purged_at,
             e.job_version, e.occurrence, e.key, e.due_at, e.token, e.payload, j.state AS job_state, v.definition,
             (SELECT w.waiting FROM execution w WHERE w.job = d.job AND w.state = 'pending' AND w.waiting IS NOT NULL
              ORDER BY w.due_at, w.id LIMIT 1) AS "waits_for?"
           FROM dead_letter d JOIN execution e ON e.id = d.execution JOIN job j ON j.id = d.job
           JOIN job_version v ON v.job = e.job AND v.version = e.job_version
           WHERE d.execution = $1 AND d.tenant = $2"#,
        id.as_uuid(),
        tenant.as_uuid(),
    )
    .fetch_optional(pool)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let job = JobId::from_uuid(row.job);
    let stored = StoredDefinition::from_text(row.definition.into());
    let definition = stored.read().ok();
    let readable = if definition.is_some() { Readability::Readable } else { Readability::Unreadable };
    let purged_at = row.purged_at.map(Timestamp::from_micros);
    let state = JobState::from_name(&row.job_state).unwrap_or(JobState::Deleted);
    let why_not = why_not(purged_at, state, readable);
    let number = u32::try_from(row.replays).unwrap_or(u32::MAX).saturating_add(1);
    let key: Arc<str> = row.key.as_str().into();
    let named = |choice| replay::key_of(choice, job, (id, &key), number);
    let rule = match DeadLetterReason::from_name(&row.reason) {
        Some(reason) => replay::rule(reason, definition.map(|definition| &definition.retry)),
        None => row.reason.clone(),
    };
    Ok(Some(DeadLetterDetail {
        execution_id: id,
        job_id: job,
        job_version: row.job_version,
        occurrence: row.occurrence,
        due_at: Timestamp::from_micros(row.due_at),
        fencing_token: row.token,
        payload: row.payload.and_then(raw_json),
        reason: row.reason,
        rule,
        error: row.error,
        failed_attempts: row.attempts,
        rescues: row.rescues,
        lost_starts: row.lost_starts,
        at: Timestamp::from_micros(row.at),
        purged_at,
        attempts: attempts(pool, tenant, id).await?,
        refusals: refusals(pool, id).await?,
        replays: replays(pool, tenant, id).await?,
        replay: ReplayForecast {
            replayable: why_not.is_none(),
            why_not,
            number,
            execution_id: replay::execution_of(job, id, number),
            idempotency_key: named(ReplayKey::Origin),
            new_idempotency_key: named(ReplayKey::Own),
            waits_for: row.waits_for,
        },
        idempotency_key: row.key,
    }))
}

/// Of an execution that is this tenant's, as the caller has seen.
async fn refusals(pool: &PgPool, id: ExecutionId) -> Result<Vec<RefusalView>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT action, node, token, current, first_at, last_at, count FROM refusal
         WHERE resource = $1 ORDER BY first_at, token, node, action LIMIT 1000",
        format!("execution/{id}"),
    )
    .fetch_all(pool)
    .await?;
    let view = rows.into_iter().map(|row| RefusalView {
        action: row.action,
        worker: row.node,
        fencing_token: row.token,
        current_token: row.current,
        first_at: Timestamp::from_micros(row.first_at),
        last_at: Timestamp::from_micros(row.last_at),
        count: row.count,
    });
    Ok(view.collect())
}

async fn replays(pool: &PgPool, tenant: TenantId, id: ExecutionId) -> Result<Vec<ReplayView>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT replay_number AS "number!", id, state, key, materialised_at FROM execution
           WHERE origin = $1 AND tenant = $2 ORDER BY replay_number LIMIT 1000"#,
        id.as_uuid(),
        tenant.as_uuid(),
    )
    .fetch_all(pool)
    .await?;
    let view = rows.into_iter().map(|row| ReplayView {
        number: row.number,
        execution_id: ExecutionId::from_uuid(row.id),
        state: row.state,
        idempotency_key: row.key,
        made_at: Timestamp::from_micros(row.materialised_at),
    });
    Ok(view.collect())
}
