//! How a job came to stand as it does: its versions, and who made them.

use std::sync::Arc;

use fencepost_core::execution::SkipReason;
use fencepost_core::explain::StandingSaid;
use fencepost_core::id::JobVersion;
use fencepost_core::job::{Standing, StoredDefinition};
use fencepost_core::limits::{EXPLAINED_LEDGER_MAX, UNRECORDED_VERSIONS_MAX};
use fencepost_core::store::reply::EarlierVersion;
use fencepost_core::store::row::{JobRow, JobVersionRow, SkippedRangeRow};
use fencepost_core::time::Timestamp;
use sqlx::PgConnection;

use super::limit;
use crate::postgres::fault::Fault;
use crate::postgres::read;

/// Who brought its standing, when and why.
pub(super) async fn standing(conn: &mut PgConnection, job: &JobRow) -> Result<StandingSaid, Fault> {
    let row = sqlx::query!(
        "SELECT effective_from, actor, reason FROM job_version WHERE job = $1 AND version = $2",
        job.id.as_uuid(),
        i64::from(job.standing_since.0),
    )
    .fetch_optional(conn)
    .await?;
    let missing = || Fault::Unknown {
        column: "job.standing_since",
        value: format!("{} {:?}", job.id, job.standing_since),
    };
    let row = row.ok_or_else(missing)?;
    Ok(StandingSaid {
        at: Timestamp::from_micros(row.effective_from),
        actor: row.actor.map(Arc::from),
        reason: row.reason.map(Arc::from),
    })
}

/// Its latest versions without the first, the latest first, at most this many.
async fn versions(conn: &mut PgConnection, job: &JobRow, most: usize) -> Result<Vec<JobVersionRow>, Fault> {
    let rows = sqlx::query!(
        "SELECT version, definition, effective_from, standing, standing_since, actor, reason FROM job_version
         WHERE job = $1 AND tenant = $2 ORDER BY version DESC LIMIT $3",
        job.id.as_uuid(),
        job.tenant.as_uuid(),
        limit(most),
    )
    .fetch_all(conn)
    .await?;
    let mut versions = Vec::with_capacity(rows.len());
    for row in rows {
        versions.push(JobVersionRow {
            job: job.id,
            version: JobVersion(read::count("job_version.version", row.version)?),
            tenant: job.tenant,
            definition: Arc::new(StoredDefinition::from_text(row.definition.into())),
            effective_from: Timestamp::from_micros(row.effective_from),
            standing: read::named("job_version.standing", &row.standing, Standing::from_name)?,
            standing_since: JobVersion(read::count("job_version.standing_since", row.standing_since)?),
            actor: row.actor.map(Arc::from),
            reason: row.reason.map(Arc::from),
        });
    }
    Ok(versions)
}

/// Its latest versions, the first one aside.
pub(super) async fn latest(conn: &mut PgConnection, job: &JobRow) -> Result<Vec<JobVersionRow>, Fault> {
    let mut latest = versions(conn, job, EXPLAINED_LEDGER_MAX).await?;
    latest.retain(|row| row.version != JobVersion::FIRST);
    Ok(latest)
}

/// The versions before the current one that decide about what follows the watermark, oldest first.
pub(super) async fn earlier(conn: &mut PgConnection, job: &JobRow) -> Result<Vec<EarlierVersion>, Fault> {
    let first = job.recorded_through.next();
    if job.effective_from <= first {
        return Ok(Vec::new());
    }
    let mut earlier = Vec::new();
    for row in versions(conn, job, UNRECORDED_VERSIONS_MAX as usize + 1).await? {
        if row.version >= job.version {
            continue;
        }
        let is_last = row.effective_from <= first;
        earlier.push(EarlierVersion {
            version: row.version,
            definition: row.definition,
            standing: row.standing,
            effective_from: row.effective_from,
        });
        if is_last {
            break;
        }
    }
    earlier.reverse();
    Ok(earlier)
}

/// Who paused the job where these ranges lie in a pause, by the version of the range.
pub(super) async fn pauses(
    conn: &mut PgConnection,
    job: &JobRow,
    skipped: &[SkippedRangeRow],
) -> Result<Vec<(JobVersion, StandingSaid)>, Fault> {
    let paused = skipped.iter().filter(|range| range.reason == SkipReason::Paused);
    let versions: Vec<i64> = paused.map(|range| i64::from(range.job_version.0)).collect();
    if versions.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query!(
        "SELECT v.version, s.effective_from, s.actor, s.reason
         FROM job_version v JOIN job_version s ON s.job = v.job AND s.version = v.standing_since
         WHERE v.job = $1 AND v.version = ANY($2)",
        job.id.as_uuid(),
        &versions,
    )
    .fetch_all(conn)
    .await?;
    let mut pauses = Vec::with_capacity(rows.len());
    for row in rows {
        let version = JobVersion(read::count("job_version.version", row.version)?);
        let said = StandingSaid {
            at: Timestamp::from_micros(row.effective_from),
            actor: row.actor.map(Arc::from),
            reason: row.reason.map(Arc::from),
        };
        pauses.push((version, said));
    }
    Ok(pauses)
}
