//! Dead letters as the API lists them, and what a replay of many would do.

use fencepost_core::execution::DeadLetterReason;
use fencepost_core::id::{ExecutionId, JobId, TenantId};
use fencepost_core::job::StoredDefinition;
use fencepost_core::replay::{NotReplayable, Readability, why_not};
use fencepost_core::store::command::DeadLetterFilter;
use fencepost_core::store::row::JobState;
use fencepost_core::time::Timestamp;
use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Cursor, instant};

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
    /// Replays made of it.
    replays: i64,
}

impl DeadLetterLine {
    pub(in crate::api) fn at(&self) -> Timestamp {
        self.at
    }

    pub(in crate::api) fn id(&self) -> Uuid {
        self.execution_id.as_uuid()
    }
}

/// A page of a tenant's dead letters, the newest first. Purged ones are left out.
pub(in crate::api) async fn dead_letters(
    pool: &PgPool,
    tenant: TenantId,
    filter: &DeadLetterFilter,
    before: Cursor,
    limit: u32,
) -> Result<Vec<DeadLetterLine>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT execution, job, reason, error, attempts, rescues, lost_starts, at, replays FROM dead_letter
         WHERE tenant = $1 AND (at, execution) < ($2, $3) AND purged_at IS NULL
           AND ($4::uuid IS NULL OR job = $4) AND ($5::text IS NULL OR reason = $5)
           AND at >= $6 AND ($7::int8 IS NULL OR at < $7)
         ORDER BY at DESC, execution DESC LIMIT $8",
        tenant.as_uuid(),
        before.at.as_micros(),
        before.id,
        filter.job.map(JobId::as_uuid),
        filter.reason.map(DeadLetterReason::name),
        filter.from.unwrap_or(Timestamp::MIN).as_micros(),
        filter.to.map(Timestamp::as_micros),
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
        replays: row.replays,
    });
    Ok(line.collect())
}

/// What a replay of many would do.
#[derive(Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(in crate::api) struct ReplayCount {
    /// How many would be replayed.
    pub(in crate::api) count: u64,
    /// How many match and cannot be, because their jobs are deleted.
    pub(in crate::api) job_deleted: u64,
    /// How many match and cannot be, because this version cannot read their definitions.
    pub(in crate::api) unreadable_definition: u64,
    /// How many match and have been replayed before.
    pub(in crate::api) replayed_before: u64,
}

impl ReplayCount {
    fn add(&mut self, count: i64, replays_at_most: i64, why: Option<NotReplayable>) {
        let count = u64::try_from(count).unwrap_or_default();
        let sum = match (replays_at_most, why) {
            (0, None) => &mut self.count,
            (0, Some(NotReplayable::JobDeleted)) => &mut self.job_deleted,
            (0, Some(NotReplayable::UnreadableDefinition)) => &mut self.unreadable_definition,
            (0, Some(NotReplayable::Purged)) => return,
            (_, _) => &mut self.replayed_before,
        };
        *sum += count;
    }
}

/// Counts what a replay of all that matches would do, by job and version.
pub(in crate::api) async fn replay_count(
    pool: &PgPool,
    tenant: TenantId,
    filter: &DeadLetterFilter,
) -> Result<ReplayCount, sqlx::Error> {
    let rows = sqlx::query!(
        r#"WITH groups AS (
             SELECT d.job, e.job_version, least(d.replays, 1) AS replayed, count(*) AS count
             FROM dead_letter d JOIN execution e ON e.id = d.execution
             WHERE d.tenant = $1 AND d.purged_at IS NULL AND ($2::uuid IS NULL OR d.job = $2)
               AND ($3::text IS NULL OR d.reason = $3) AND d.at >= $4 AND ($5::int8 IS NULL OR d.at < $5)
             GROUP BY 1, 2, 3)
           SELECT g.replayed AS "replayed!", g.count AS "count!", j.state, v.definition
           FROM groups g JOIN job j ON j.id = g.job
           JOIN job_version v ON v.job = g.job AND v.version = g.job_version"#,
        tenant.as_uuid(),
        filter.job.map(JobId::as_uuid),
        filter.reason.map(DeadLetterReason::name),
        filter.from.unwrap_or(Timestamp::MIN).as_micros(),
        filter.to.map(Timestamp::as_micros),
    )
    .fetch_all(pool)
    .await?;
    let mut counts = ReplayCount::default();
    for row in rows {
        let job = JobState::from_name(&row.state).unwrap_or(JobState::Deleted);
        let why = why_not(None, job, readability(row.definition));
        counts.add(row.count, row.replayed, why);
    }
    Ok(counts)
}

/// Whether this version can read a stored definition.
pub(super) fn readability(definition: String) -> Readability {
    match StoredDefinition::from_text(definition.into()).read() {
        Ok(_) => Readability::Readable,
        Err(_) => Readability::Unreadable,
    }
}
