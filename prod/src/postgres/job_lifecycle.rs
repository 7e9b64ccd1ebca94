//! Jobs made, triggered and deleted by operators.
//!
//! A trigger reads its job `FOR KEY SHARE` and a delete locks it `FOR UPDATE`, so no execution appears behind a
//! delete; materialisation goes on beside both. Whoever commits work that may be due at once says so ([`notify`]).

use fencepost_core::execution::ExecutionState;
use fencepost_core::id::{JobId, JobVersion, Occurrence, TenantId};
use fencepost_core::limits::PLAN_AGE_MAX;
use fencepost_core::partition::PartitionId;
use fencepost_core::store::command::{CreateJob, DeleteJob, TriggerJob};
use fencepost_core::store::reply::{CreateJobReply, DeleteJobReply, Reply, StoreReply, TriggerReply};
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};

use super::calendars;
use super::context::{Context, micros};
use super::fault::Fault;
use super::notifications::notify;
use super::outbox::stored_partition;
use super::read;

/// Checked in this order: the tenant, the request id, the job id, the calendars, the age of the plan. Whoever inserts the same
/// request or job at the same time is waited for, and then met.
pub(super) async fn create(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &CreateJob,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let (now, reply) = create_within(cx, &mut tx, ask).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::JobCreated(reply)))
}

async fn create_within(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &CreateJob,
) -> Result<(i64, CreateJobReply), Fault> {
    let has_calendars = calendars::share(conn, ask.tenant, &ask.definition).await?;
    let known = sqlx::query!(
        r#"SELECT EXISTS (SELECT FROM tenant WHERE id = $1) AS "has_tenant!",
             EXISTS (SELECT FROM job WHERE id = $2) AS "has_job!",
             r.fingerprint AS "fingerprint?", r.job AS "job?", r.execution IS NULL AND r.version IS NULL AS "made_a_job!"
           FROM (SELECT) AS one LEFT JOIN operator_request r ON r.tenant = $1 AND r.request = $3"#,
        ask.tenant.as_uuid(),
        ask.job.as_uuid(),
        ask.request.as_ref().map(|asked| &*asked.request),
    )
    .fetch_one(&mut *conn)
    .await?;
    let now = cx.clock(conn).await?;
    let reply = |reply| Ok((now, reply));
    if !known.has_tenant {
        return reply(CreateJobReply::NoTenant);
    }
    if let (Some(asked), Some(fingerprint)) = (&ask.request, known.fingerprint) {
        return reply(match known.job.filter(|_| fingerprint == asked.fingerprint && known.made_a_job) {
            Some(job) => CreateJobReply::Repeated { job: JobId::from_uuid(job) },
            None => CreateJobReply::RequestReused,
        });
    }
    if known.has_job {
        return reply(CreateJobReply::IdTaken);
    }
    if !has_calendars {
        return reply(CreateJobReply::CalendarChanged);
    }
    let at = Timestamp::from_micros(now);
    if ask.planned_at > at || ask.planned_at.plus(PLAN_AGE_MAX) < at {
        return reply(CreateJobReply::PlanExpired);
    }
    insert_job(conn, ask, now).await?;
    reply(CreateJobReply::Created)
}

/// Without a next fire, `next_try_at` is when the job was created: no scan reads it.
async fn insert_job(conn: &mut PgConnection, ask: &CreateJob, now: i64) -> Result<(), Fault> {
    if let Some(asked) = &ask.request {
        let done = sqlx::query!(
            "INSERT INTO operator_request (tenant, request, fingerprint, job, at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (tenant, request) DO NOTHING",
            ask.tenant.as_uuid(),
            &*asked.request,
            asked.fingerprint,
            ask.job.as_uuid(),
            now,
        )
        .execute(&mut *conn)
        .await?;
        if done.rows_affected() == 0 {
            return Err(Fault::InMotion { table: "operator_request" });
        }
    }
    let partition = stored_partition(PartitionId::of(ask.job).number());
    let calendars = calendars::names(&ask.definition);
    let done = sqlx::query!(
        "INSERT INTO job (id, tenant, partition, version, state, standing, standing_since, definition, effective_from,
           recorded_through, next_fire_time, next_try_at, runs, created_at, calendars)
         VALUES ($1, $2, $3, $4, 'active', 'active', $4, $5, $6::int8, $7, $8::int8,
           coalesce($8::int8 + $9::int8, $6::int8), 0, $6::int8, $10::text[])
         ON CONFLICT (id) DO NOTHING",
        ask.job.as_uuid(),
        ask.tenant.as_uuid(),
        partition,
        i64::from(JobVersion::FIRST.0),
        &**ask.definition.text(),
        ask.planned_at.as_micros(),
        ask.recorded_through.as_micros(),
        ask.next_fire_time.map(Timestamp::as_micros),
        ask.next_flex.as_i64(),
        calendars.as_deref(),
    )
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 0 {
        return Err(Fault::InMotion { table: "job" });
    }
    sqlx::query!(
        "INSERT INTO job_version (job, version, tenant, definition, effective_from, standing, standing_since, overlap,
           concurrency_key, pause_after, deadline)
         VALUES ($1, $2, $3, $4, $5, 'active', $2, $6, $7, $8, $9)",
        ask.job.as_uuid(),
        i64::from(JobVersion::FIRST.0),
        ask.tenant.as_uuid(),
        &**ask.definition.text(),
        ask.planned_at.as_micros(),
        ask.definition.overlap().name(),
        ask.definition.concurrency_key().map(|key| &**key),
        ask.definition.pause_after_failures().map(read::stored_count),
        ask.definition.deadline().map(micros),
    )
    .execute(&mut *conn)
    .await?;
    notify(conn, partition).await
}

/// All live executions are locked, by id, before any is written: one that moved between two live states
/// meanwhile is not missed. As text, ids have the same order, and no walk along the primary key provides it.
pub(super) async fn delete(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &DeleteJob,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let state = sqlx::query_scalar!(
        "SELECT state FROM job WHERE id = $1 AND tenant = $2 FOR UPDATE",
        ask.job.as_uuid(),
        ask.tenant.as_uuid(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    let is_active = state.as_ref().map(|state| state == "active");
    let now = match is_active {
        Some(true) => delete_active(cx, &mut tx, ask).await?,
        Some(false) | None => {
            let now = cx.clock(&mut tx).await?;
            let reply = if is_active.is_some() { DeleteJobReply::Repeated } else { DeleteJobReply::NotFound };
            (now, reply)
        }
    };
    tx.commit().await?;
    let (now, reply) = now;
    Ok(cx.reply(now, Reply::JobDeleted(reply)))
}

async fn delete_active(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &DeleteJob,
) -> Result<(i64, DeleteJobReply), Fault> {
    sqlx::query!(
        r#"SELECT count(*) AS "locked!" FROM (
             SELECT FROM execution WHERE job = $1 AND state IN ('pending', 'running', 'retry_wait')
             ORDER BY id::text FOR NO KEY UPDATE) AS live"#,
        ask.job.as_uuid(),
    )
    .fetch_one(&mut *conn)
    .await?;
    let now = cx.clock(conn).await?;
    sqlx::query!(
        "UPDATE job SET version = least(version + 1, $3), state = 'deleted', next_fire_time = NULL,
           effective_from = greatest($2::int8, recorded_through + 1)
         WHERE id = $1",
        ask.job.as_uuid(),
        now,
        i64::from(u32::MAX),
    )
    .execute(&mut *conn)
    .await?;
    let cancelled = sqlx::query!(
        "UPDATE execution SET state = 'cancelled', owner = NULL, expires_at = 0, waiting = NULL,
           held_by = NULL, next_try_at = NULL,
           finished_at = greatest($2, materialised_at, published_at, received_at, leased_at, started_at),
           lag_clamped = lag_clamped
             OR $2 < greatest(materialised_at, published_at, received_at, leased_at, started_at)
         WHERE job = $1 AND state IN ('pending', 'retry_wait')",
        ask.job.as_uuid(),
        now,
    )
    .execute(&mut *conn)
    .await?
    .rows_affected();
    let requested = sqlx::query!(
        "UPDATE execution SET cancel_requested = true
         WHERE job = $1 AND state = 'running' AND NOT cancel_requested",
        ask.job.as_uuid(),
    )
    .execute(&mut *conn)
    .await?
    .rows_affected();
    let count = |rows: u64| u32::try_from(rows).unwrap_or(u32::MAX);
    Ok((now, DeleteJobReply::Deleted { cancelled: count(cancelled), requested: count(requested) }))
}

/// Checked in this order: the job (of this tenant), the execution (there already), the job again (not
/// deleted).
pub(super) async fn trigger(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &TriggerJob,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let (now, reply) = trigger_within(cx, &mut tx, ask).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::JobTriggered(reply)))
}

async fn trigger_within(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &TriggerJob,
) -> Result<(i64, TriggerReply), Fault> {
    let job = sqlx::query!(
        "SELECT state, version, partition FROM job WHERE id = $1 AND tenant = $2 FOR KEY SHARE",
        ask.job.as_uuid(),
        ask.tenant.as_uuid(),
    )
    .fetch_optional(&mut *conn)
    .await?;
    let now = cx.clock(conn).await?;
    let reply = |reply| Ok((now, reply));
    let Some(job) = job else { return reply(TriggerReply::NotFound) };
    if let Some(known) = known_execution(conn, ask).await? {
        return reply(known);
    }
    if job.state != "active" {
        return reply(TriggerReply::NotFound);
    }
    let row = NewManual { tenant: ask.tenant, version: job.version, partition: job.partition, now };
    insert_manual(conn, ask, &row).await?;
    notify(conn, job.partition).await?;
    reply(TriggerReply::Created)
}

async fn known_execution(conn: &mut PgConnection, ask: &TriggerJob) -> Result<Option<TriggerReply>, Fault> {
    let row = sqlx::query!("SELECT state, payload FROM execution WHERE id = $1", ask.execution.as_uuid())
        .fetch_optional(conn)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let state: ExecutionState = read::state(&row.state)?;
    Ok(Some(if row.payload.as_deref() == ask.payload.as_ref().map(|payload| payload.as_json()) {
        TriggerReply::Repeated { state }
    } else {
        TriggerReply::KeyReused
    }))
}

/// What a manual execution takes from its job and its moment.
struct NewManual {
    tenant: TenantId,
    version: i64,
    partition: i16,
    now: i64,
}

async fn insert_manual(conn: &mut PgConnection, ask: &TriggerJob, row: &NewManual) -> Result<(), Fault> {
    let occurrence = Occurrence::Manual { key: ask.key.clone() };
    let key = occurrence.idempotency_key(ask.job).expect("a manual occurrence has a key of its own");
    let done = sqlx::query!(
        "WITH made AS (
           INSERT INTO execution (id, tenant, job, job_version, partition, occurrence, manual_key, key, payload, state,
             due_at, made_under, token, nonce, expires_at, start_seen, cancel_requested, attempts, rescues,
             lost_starts, waits, dispatch_no, dispatched_at, redispatches, materialised_at, lag_clamped, deadline_at)
           VALUES ($1, $2, $3, $4, $5, 'manual', $6, $7, $8, 'pending', $9, 0, 0, 0, 0, false, false, 0, 0, 0, 0, 1,
             $9, 0, $9, false,
             $9 + (SELECT v.deadline FROM job_version v WHERE v.job = $3 AND v.version = $4))
           ON CONFLICT (id) DO NOTHING
           RETURNING id, tenant, partition)
         INSERT INTO outbox_event
           (execution, dispatch_no, tenant, partition, created_by, created_at, next_try_at, tries)
         SELECT id, 1, tenant, partition, $10, $9, $9, 0 FROM made",
        ask.execution.as_uuid(),
        row.tenant.as_uuid(),
        ask.job.as_uuid(),
        row.version,
        row.partition,
        &*ask.key,
        &*key,
        ask.payload.as_ref().map(|payload| payload.as_json()),
        row.now,
        ask.node.as_uuid(),
    )
    .execute(conn)
    .await?;
    if done.rows_affected() == 0 {
        return Err(Fault::InMotion { table: "execution" });
    }
    Ok(())
}
