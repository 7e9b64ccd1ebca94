//! Dead letters as the API lists them.

use fencepost_core::execution::DeadLetterReason;
use fencepost_core::id::{ExecutionId, JobId, TenantId};
use fencepost_core::time::Timestamp;
use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Cursor, instant};

/// Which dead letters a listing shows.
#[derive(Clone, Copy, Debug)]
pub(in crate::api) struct DeadLetterFilter {
    pub(in crate::api) job: Option<JobId>,
    pub(in crate::api) reason: Option<DeadLetterReason>,
}

/// A dead letter.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct DeadLetterLine {
    #[schema(value_type = Uuid)]
    execution_id: ExecutionId,
    #[schema(value_type = Uuid)]
    job_id: JobId,
    reason: String,
    error: Option<String>,
    /// Failed attempts, the last included.
    failed_attempts: i32,
    /// Workers lost after a sign of a start.
    rescues: i32,
    /// Leases lost without one.
    lost_starts: i32,
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

impl DeadLetterLine {
    pub(in crate::api) fn at(&self) -> Timestamp {
        self.at
    }

    pub(in crate::api) fn id(&self) -> Uuid {
        self.execution_id.as_uuid()
    }
}

/// A page of a tenant's dead letters, the newest first.
pub(in crate::api) async fn dead_letters(
    pool: &PgPool,
    tenant: TenantId,
    filter: &DeadLetterFilter,
    before: Cursor,
    limit: u32,
) -> Result<Vec<DeadLetterLine>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT execution, job, reason, error, attempts, rescues, lost_starts, at FROM dead_letter
         WHERE tenant = $1 AND (at, execution) < ($2, $3)
           AND ($4::uuid IS NULL OR job = $4) AND ($5::text IS NULL OR reason = $5)
         ORDER BY at DESC, execution DESC LIMIT $6",
        tenant.as_uuid(),
        before.at.as_micros(),
        before.id,
        filter.job.map(JobId::as_uuid),
        filter.reason.map(DeadLetterReason::name),
        i64::from(limit),
    )
    .fetch_all(pool)
    .await?;
    let line = rows.into_iter().map(|row| DeadLetterLine {
        execution_id: ExecutionId::from_uuid(row.execution),
        job_id: JobId::from_uuid(row.job),
        reason: row.reason,
        error: row.error,
        failed_attempts: row.attempts,
        rescues: row.rescues,
        lost_starts: row.lost_starts,
        at: Timestamp::from_micros(row.at),
    });
    Ok(line.collect())
}
