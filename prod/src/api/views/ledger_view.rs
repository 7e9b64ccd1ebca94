//! A job's ledger as the store has it: one snapshot of a stretch of its fires.

use fencepost_core::execution::{ExecutionState, SkipReason};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, JobId, JobVersion, TenantId};
use fencepost_core::ledger::{LedgerEntry, LedgerPage, LedgerPause, page};
use fencepost_core::limits::FLEX_MAX;
use fencepost_core::time::{Span, Timestamp};
use sqlx::PgPool;

/// Which fires of which job.
#[derive(Clone, Copy, Debug)]
pub(in crate::api) struct Stretch {
    pub(in crate::api) tenant: TenantId,
    pub(in crate::api) job: JobId,
    /// The first instant.
    pub(in crate::api) from: Timestamp,
    /// The first instant after it.
    pub(in crate::api) to: Timestamp,
    pub(in crate::api) limit: u32,
}

/// A page, and up to where the ledger is complete.
#[derive(Debug)]
pub(in crate::api) struct Ledger {
    pub(in crate::api) page: LedgerPage,
    pub(in crate::api) recorded_through: Timestamp,
}

/// Reads a page; `None` where the tenant has no such job.
///
/// Executions are read state by state, since that is how the index of a job's executions is ordered.
pub(in crate::api) async fn ledger(pool: &PgPool, ask: &Stretch) -> Result<Option<Ledger>, sqlx::Error> {
    let mut snapshot = pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    // Where no version ever named a flex window, fires are due when they happen.
    let recorded = sqlx::query!(
        r#"SELECT recorded_through, EXISTS (
             SELECT FROM job_version WHERE job = $1 AND definition LIKE '%"flex_ms":%') AS "is_flexed!"
           FROM job WHERE id = $1 AND tenant = $2"#,
        ask.job.as_uuid(),
        ask.tenant.as_uuid(),
    )
    .fetch_optional(&mut *snapshot)
    .await?;
    let Some(job) = recorded else { return Ok(None) };
    let flex = if job.is_flexed { FLEX_MAX } else { Span::ZERO };
    let states: Vec<String> = ExecutionState::ALL.iter().map(|state| state.name().to_owned()).collect();
    let executions = sqlx::query!(
        r#"SELECT e.id, e.fire AS "fire!", e.state, e.skip_reason, e.job_version, e.made_under
           FROM unnest($5::text[]) AS s (state) CROSS JOIN LATERAL (
               SELECT id, fire, due_at, state, skip_reason, job_version, made_under FROM execution
               WHERE job = $1 AND state = s.state AND due_at >= $3 AND due_at < $7 AND fire >= $3 AND fire < $4
                 AND tenant = $2 AND occurrence = 'scheduled'
               ORDER BY due_at, id LIMIT $6) AS e
           ORDER BY e.fire LIMIT $6"#,
        ask.job.as_uuid(),
        ask.tenant.as_uuid(),
        ask.from.as_micros(),
        ask.to.as_micros(),
        &states,
        i64::from(ask.limit),
        ask.to.plus(flex).as_micros(),
    )
    .fetch_all(&mut *snapshot)
    .await?;
    let ranges = sqlx::query!(
        r#"SELECT r.from_fire AS "from_fire!", r.through_fire AS "through_fire!", r.made_under AS "made_under!",
             r.decided_at AS "decided_at!", r.job_version AS "job_version!", r.reason AS "reason!",
             r.zone_data AS "zone_data!", p.effective_from AS "paused_at?", p.actor AS "actor?", p.reason AS "why?"
           FROM (
             SELECT * FROM skipped_range
             WHERE job = $1 AND tenant = $2 AND through_fire >= $3 AND from_fire < $4
               AND from_fire >= coalesce((SELECT max(from_fire) FROM skipped_range
                                          WHERE job = $1 AND from_fire <= $3), $3)
             ORDER BY from_fire LIMIT $5) AS r
           LEFT JOIN job_version v ON r.reason = 'paused' AND v.job = r.job AND v.version = r.job_version
           LEFT JOIN job_version p ON p.job = v.job AND p.version = v.standing_since
           ORDER BY r.from_fire"#,
        ask.job.as_uuid(),
        ask.tenant.as_uuid(),
        ask.from.as_micros(),
        ask.to.as_micros(),
        i64::from(ask.limit),
    )
    .fetch_all(&mut *snapshot)
    .await?;
    snapshot.commit().await?;
    let unknown = |what: &str| sqlx::Error::Decode(format!("this version knows no {what:?}").into());
    let executions: Result<Vec<LedgerEntry>, sqlx::Error> = executions
        .into_iter()
        .map(|row| {
            let skip_reason = match row.skip_reason {
                Some(name) => Some(SkipReason::from_name(&name).ok_or_else(|| unknown(&name))?),
                None => None,
            };
            Ok(LedgerEntry::Execution {
                fire: Timestamp::from_micros(row.fire),
                execution_id: ExecutionId::from_uuid(row.id),
                state: ExecutionState::from_name(&row.state).ok_or_else(|| unknown(&row.state))?,
                skip_reason,
                job_version: version(row.job_version)?,
                fencing_token: FencingToken::from_i64(row.made_under),
            })
        })
        .collect();
    let ranges: Result<Vec<LedgerEntry>, sqlx::Error> = ranges
        .into_iter()
        .map(|row| {
            Ok(LedgerEntry::Skipped {
                from: Timestamp::from_micros(row.from_fire),
                through: Timestamp::from_micros(row.through_fire),
                reason: SkipReason::from_name(&row.reason).ok_or_else(|| unknown(&row.reason))?,
                job_version: version(row.job_version)?,
                fencing_token: FencingToken::from_i64(row.made_under),
                decided_at: Timestamp::from_micros(row.decided_at),
                zone_data: row.zone_data.into(),
                pause: row.paused_at.map(|since| LedgerPause {
                    since: Timestamp::from_micros(since),
                    actor: row.actor.map(Into::into),
                    reason: row.why.map(Into::into),
                }),
            })
        })
        .collect();
    let page = page(executions?, ranges?, ask.limit as usize);
    Ok(Some(Ledger { page, recorded_through: Timestamp::from_micros(job.recorded_through) }))
}

fn version(number: i64) -> Result<JobVersion, sqlx::Error> {
    u32::try_from(number).map(JobVersion).map_err(|error| sqlx::Error::Decode(error.into()))
}
