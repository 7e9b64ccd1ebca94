//! The versions of jobs that were in force before the current ones and still decide about fires: those that begin after
//! what is recorded, and the one in force right after it. Hardly any job has them, and nothing is asked where none has.

use std::collections::BTreeMap;

use fencepost_core::id::{JobId, JobVersion};
use fencepost_core::job::Standing;
use fencepost_core::limits::UNRECORDED_VERSIONS_MAX;
use fencepost_core::store::reply::EarlierVersion;
use fencepost_core::time::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::context::Context;
use super::definitions;
use super::fault::Fault;
use super::read;

/// Of each job: its current version, and the first instant that is not recorded. Versions never change and are only
/// appended, so a later snapshot shows the same ones.
pub(super) async fn of(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    jobs: &[(Uuid, i64, i64)],
) -> Result<BTreeMap<JobId, Vec<EarlierVersion>>, Fault> {
    let mut earlier: BTreeMap<JobId, Vec<EarlierVersion>> = BTreeMap::new();
    if jobs.is_empty() {
        return Ok(earlier);
    }
    let rows = sqlx::query!(
        r#"SELECT i.job AS "job!", i.first AS "first!", v.version, v.standing, v.effective_from
           FROM unnest($1::uuid[], $2::int8[], $3::int8[]) AS i (job, current, first)
           CROSS JOIN LATERAL (
             SELECT version, standing, effective_from FROM job_version
             WHERE job = i.job AND version < i.current ORDER BY version DESC LIMIT $4) AS v
           ORDER BY i.job, v.version DESC"#,
        &jobs.iter().map(|(job, _, _)| *job).collect::<Vec<_>>(),
        &jobs.iter().map(|(_, current, _)| *current).collect::<Vec<_>>(),
        &jobs.iter().map(|(_, _, first)| *first).collect::<Vec<_>>(),
        i64::from(UNRECORDED_VERSIONS_MAX),
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut rows_of: BTreeMap<JobId, Vec<_>> = BTreeMap::new();
    for row in rows {
        let known = rows_of.entry(JobId::from_uuid(row.job)).or_default();
        // The newest first: after one that begins no later than what is asked for, none matters.
        if known.last().is_none_or(|(_, _, at, first)| at > first) {
            let version = JobVersion(read::count("job_version.version", row.version)?);
            known.push((version, row.standing, row.effective_from, row.first));
        }
    }
    let keys = rows_of.iter().flat_map(|(job, rows)| rows.iter().map(|(version, _, _, _)| (*job, *version)));
    let known = cx.definitions.of(conn, keys.collect::<Vec<_>>()).await?;
    for (job, rows) in rows_of {
        let versions = earlier.entry(job).or_default();
        for (version, standing, effective_from, _) in rows.into_iter().rev() {
            versions.push(EarlierVersion {
                version,
                definition: definitions::one_of(&known, job, version)?,
                standing: read::named("job_version.standing", &standing, Standing::from_name)?,
                effective_from: Timestamp::from_micros(effective_from),
            });
        }
    }
    Ok(earlier)
}
