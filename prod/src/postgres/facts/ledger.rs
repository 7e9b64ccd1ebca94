//! What became of a job's latest fires, and how much of it is live.
//!
//! The index of a job's executions leads with job and state, so each state is probed for its latest rows.

use fencepost_core::execution::{ExecutionState, SkipReason};
use fencepost_core::explain::RecentExecution;
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, JobId, JobVersion, TenantId};
use fencepost_core::limits::{EXPLAINED_LEDGER_MAX, EXPLAINED_LIVE_MAX};
use fencepost_core::store::row::SkippedRangeRow;
use fencepost_core::time::Timestamp;
use sqlx::PgConnection;

use super::limit;
use crate::postgres::fault::Fault;
use crate::postgres::read::{self, OccurrenceColumns};

/// Its latest executions, the latest first.
pub(super) async fn executions(
    conn: &mut PgConnection,
    tenant: TenantId,
    job: JobId,
) -> Result<Vec<RecentExecution>, Fault> {
    let states: Vec<String> = ExecutionState::ALL.iter().map(|state| state.name().to_owned()).collect();
    let rows = sqlx::query!(
        "SELECT e.id, e.occurrence, e.fire, e.manual_key, e.origin, e.replay_number, e.due_at, e.state,
           e.skip_reason, e.job_version, e.made_under
         FROM unnest($3::text[]) AS s (state) CROSS JOIN LATERAL (
           SELECT * FROM execution WHERE job = $1 AND state = s.state AND tenant = $2
           ORDER BY due_at DESC, id DESC LIMIT $4) AS e
         ORDER BY e.due_at DESC, e.id DESC LIMIT $4",
        job.as_uuid(),
        tenant.as_uuid(),
        &states,
        limit(EXPLAINED_LEDGER_MAX),
    )
    .fetch_all(conn)
    .await?;
    let mut executions = Vec::with_capacity(rows.len());
    for row in rows {
        let occurrence = OccurrenceColumns {
            kind: row.occurrence,
            fire: row.fire,
            manual_key: row.manual_key,
            origin: row.origin,
            replay_number: row.replay_number,
        };
        let skipped = |name: &str| read::named("execution.skip_reason", name, SkipReason::from_name);
        executions.push(RecentExecution {
            id: ExecutionId::from_uuid(row.id),
            occurrence: occurrence.read()?,
            due_at: Timestamp::from_micros(row.due_at),
            state: read::state(&row.state)?,
            skip_reason: row.skip_reason.as_deref().map(skipped).transpose()?,
            job_version: JobVersion(read::count("execution.job_version", row.job_version)?),
            made_under: FencingToken::from_i64(row.made_under),
        });
    }
    Ok(executions)
}

/// Its latest skipped ranges, the latest first.
pub(super) async fn skipped(
    conn: &mut PgConnection,
    tenant: TenantId,
    job: JobId,
) -> Result<Vec<SkippedRangeRow>, Fault> {
    let rows = sqlx::query!(
        "SELECT from_fire, through_fire, made_under, decided_at, job_version, reason, zone_data FROM skipped_range
         WHERE job = $1 AND tenant = $2 ORDER BY from_fire DESC LIMIT $3",
        job.as_uuid(),
        tenant.as_uuid(),
        limit(EXPLAINED_LEDGER_MAX),
    )
    .fetch_all(conn)
    .await?;
    let mut skipped = Vec::with_capacity(rows.len());
    for row in rows {
        skipped.push(SkippedRangeRow {
            job,
            from: Timestamp::from_micros(row.from_fire),
            through: Timestamp::from_micros(row.through_fire),
            tenant,
            reason: read::named("skipped_range.reason", &row.reason, SkipReason::from_name)?,
            job_version: JobVersion(read::count("skipped_range.job_version", row.job_version)?),
            made_under: FencingToken::from_i64(row.made_under),
            decided_at: Timestamp::from_micros(row.decided_at),
            zone_data: row.zone_data.into(),
        });
    }
    Ok(skipped)
}

/// How many of its executions are in each live state, counted up to a bound.
pub(super) async fn live(
    conn: &mut PgConnection,
    tenant: TenantId,
    job: JobId,
) -> Result<Vec<(ExecutionState, u32)>, Fault> {
    let states = ExecutionState::ALL.iter().filter(|state| !state.is_terminal());
    let states: Vec<String> = states.map(|state| state.name().to_owned()).collect();
    let rows = sqlx::query!(
        r#"SELECT s.state AS "state!", (
             SELECT count(*) FROM (
               SELECT FROM execution WHERE job = $1 AND state = s.state AND tenant = $2 LIMIT $4) AS e) AS "live!"
           FROM unnest($3::text[]) AS s (state)"#,
        job.as_uuid(),
        tenant.as_uuid(),
        &states,
        limit(EXPLAINED_LIVE_MAX),
    )
    .fetch_all(conn)
    .await?;
    let mut live = Vec::with_capacity(rows.len());
    for row in rows {
        live.push((read::state(&row.state)?, read::count("execution", row.live)?));
    }
    Ok(live)
}
