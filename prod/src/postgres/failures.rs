//! Failures in a row: a job that failed too often is paused in the transaction in which the last of them failed.
//!
//! The rules are the reference semantics' own (`failures` there). The job's row was locked before its executions were, by
//! whoever ended them (`overlap::lock_jobs_of_ends`), completions as well; so what is read here, in a statement after that one, is
//! all that ended before. Jobs without the policy are neither locked nor asked about.

use std::collections::BTreeSet;
use std::sync::Arc;

use fencepost_core::id::{ExecutionId, JobId, JobVersion, TenantId};
use fencepost_core::job::failures::{FailedOne, paused_for};
use fencepost_core::job::{Standing, StoredDefinition};
use fencepost_core::job_plan::plan_change;
use fencepost_core::store::command::JobChange;
use fencepost_core::store::row::{JobRow, JobState};
use fencepost_core::time::Timestamp;
use sqlx::PgConnection;

use super::fault::Fault;
use super::{change_job, due_jobs, read};

/// A job that fires by itself, with a policy.
struct Judged {
    job: JobRow,
    /// After how many failures it is to be paused.
    most: i64,
    /// Since when it stands as it does.
    since: i64,
}

/// Pauses those of these locked jobs whose policy says so, and of which an execution has just failed.
pub(super) async fn judge(
    conn: &mut PgConnection,
    judged: &BTreeSet<JobId>,
    failed: &BTreeSet<JobId>,
    now: i64,
) -> Result<(), Fault> {
    let jobs: BTreeSet<JobId> = judged.intersection(failed).copied().collect();
    if jobs.is_empty() {
        return Ok(());
    }
    for judged in with_policy(conn, &jobs).await? {
        let Some(row) = failures_in_a_row(conn, &judged).await? else { continue };
        let plan =
            plan_change(&judged.job, None, JobChange::Pause, paused_for(&row), Timestamp::from_micros(now))
                .expect("a pause is planned by the watermarks alone");
        change_job::pause_by_policy(conn, &plan, &judged.job, now).await?;
    }
    Ok(())
}

async fn with_policy(conn: &mut PgConnection, jobs: &BTreeSet<JobId>) -> Result<Vec<Judged>, Fault> {
    let rows = sqlx::query!(
        r#"SELECT j.id, j.tenant, j.partition, j.version, j.standing_since, j.definition, j.effective_from,
             j.recorded_through, j.next_fire_time, j.next_try_at, j.runs, j.created_at,
             v.pause_after AS "pause_after!", s.effective_from AS since
           FROM job j JOIN job_version v ON v.job = ANY (ARRAY[j.id]) AND v.version = j.version
             JOIN job_version s ON s.job = ANY (ARRAY[j.id]) AND s.version = j.standing_since
           WHERE j.id = ANY ($1::uuid[]) AND j.state = 'active' AND j.standing = 'active' AND coalesce(v.pause_after, 0) > 0
           ORDER BY j.id"#,
        &jobs.iter().map(|job| job.as_uuid()).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    let mut judged = Vec::with_capacity(rows.len());
    for row in rows {
        let job = JobRow {
            id: JobId::from_uuid(row.id),
            tenant: TenantId::from_uuid(row.tenant),
            partition: due_jobs::partition(row.partition)?,
            version: JobVersion(read::count("job.version", row.version)?),
            state: JobState::Active,
            standing: Standing::Active,
            standing_since: JobVersion(read::count("job.standing_since", row.standing_since)?),
            definition: Arc::new(StoredDefinition::from_text(row.definition.into())),
            effective_from: Timestamp::from_micros(row.effective_from),
            recorded_through: Timestamp::from_micros(row.recorded_through),
            next_fire_time: read::instant(row.next_fire_time),
            next_try_at: Timestamp::from_micros(row.next_try_at),
            runs: row.runs.unsigned_abs(),
            unreadable: None,
            created_at: Timestamp::from_micros(row.created_at),
        };
        judged.push(Judged { job, most: i64::from(row.pause_after), since: row.since });
    }
    Ok(judged)
}

/// The latest executions of a job that ended since it stands as it does, latest first, if they are as many as its policy
/// says and all of them failed: the latest failures, unless one that completed stands among them.
async fn failures_in_a_row(
    conn: &mut PgConnection,
    judged: &Judged,
) -> Result<Option<Vec<FailedOne>>, Fault> {
    let rows = sqlx::query!(
        r#"SELECT f.id, f.due_at, f.error
           FROM unnest(ARRAY['dead_lettered', 'failed']) AS s (state) CROSS JOIN LATERAL (
             SELECT e.id, e.due_at, e.error FROM execution e
             WHERE e.job = $1 AND e.state = s.state AND e.finished_at >= $2
             ORDER BY e.due_at DESC, e.id DESC LIMIT $3) AS f
           ORDER BY f.due_at DESC, f.id DESC LIMIT $3"#,
        judged.job.id.as_uuid(),
        judged.since,
        judged.most,
    )
    .fetch_all(&mut *conn)
    .await?;
    let Some(earliest) =
        rows.last().filter(|_| i64::try_from(rows.len()).is_ok_and(|len| len == judged.most))
    else {
        return Ok(None);
    };
    let is_broken = sqlx::query_scalar!(
        r#"SELECT EXISTS (
             SELECT FROM execution e
             WHERE e.job = $1 AND e.state = 'completed' AND (e.due_at, e.id) > ($3, $4) AND e.finished_at >= $2
           ) AS "is_broken!""#,
        judged.job.id.as_uuid(),
        judged.since,
        earliest.due_at,
        earliest.id,
    )
    .fetch_one(conn)
    .await?;
    if is_broken {
        return Ok(None);
    }
    let failed = rows.into_iter().map(|row| FailedOne {
        due_at: Timestamp::from_micros(row.due_at),
        id: ExecutionId::from_uuid(row.id),
        error: row.error.map(Into::into),
    });
    Ok(Some(failed.collect()))
}
