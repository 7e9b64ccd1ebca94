//! An execution, and what is on record about it beside its own row.

use fencepost_core::execution::{AttemptEnd, DeadLetterReason, ExecutionState, SkipReason, WaitReason};
use fencepost_core::explain::LimitFacts;
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{DispatchNo, EffectId, ExecutionId, JobId, JobVersion, NodeId, PauseId, TenantId};
use fencepost_core::job::{Payload, StoredDefinition};
use fencepost_core::limits::{EXPLAINED_OUTBOX_MAX, EXPLAINED_REFUSALS_MAX, EXPLAINED_RUNS_MAX};
use fencepost_core::store::row::{
    AttemptRow, DeadLetterRow, ExecutionRow, LimitRow, OutboxRow, RefusalRow, RefusedAction, RefusedResource,
};
use fencepost_core::time::Timestamp;
use sqlx::PgConnection;

use super::limit;
use crate::postgres::due_jobs::partition;
use crate::postgres::fault::Fault;
use crate::postgres::read::{self, OccurrenceColumns};
use crate::postgres::refusals::resource_text;

/// Its row and the clock; `None` where the tenant has none of this id.
pub(super) async fn row(
    conn: &mut PgConnection,
    tenant: TenantId,
    id: ExecutionId,
) -> Result<Option<(Timestamp, ExecutionRow)>, Fault> {
    let row = sqlx::query!(
        r#"SELECT store_now(NULL) AS "now!", job, job_version, partition, occurrence, fire, manual_key, origin,
             replay_number, key, payload, state, skip_reason, due_at, deadline_at, made_under, token, owner, nonce, nonce_node,
             expires_at, start_seen, cancel_requested, attempts, rescues, lost_starts, next_try_at, waiting, held_by, waits,
             dispatch_no, dispatched_at, redispatches, materialised_at, published_at, received_at, leased_at,
             started_at, finished_at, lag_clamped, error
           FROM execution WHERE id = $1 AND tenant = $2"#,
        id.as_uuid(),
        tenant.as_uuid(),
    )
    .fetch_optional(conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let occurrence = OccurrenceColumns {
        kind: row.occurrence,
        fire: row.fire,
        manual_key: row.manual_key,
        origin: row.origin,
        replay_number: row.replay_number,
    };
    let skipped = |name: &str| read::named("execution.skip_reason", name, SkipReason::from_name);
    let execution = ExecutionRow {
        id,
        tenant,
        job: JobId::from_uuid(row.job),
        job_version: JobVersion(read::count("execution.job_version", row.job_version)?),
        partition: partition(row.partition)?,
        occurrence: occurrence.read()?,
        key: row.key.into(),
        payload: row.payload.map(|text| Payload::from_stored(text.into())),
        state: read::state(&row.state)?,
        skip_reason: row.skip_reason.as_deref().map(skipped).transpose()?,
        due_at: Timestamp::from_micros(row.due_at),
        deadline_at: read::instant(row.deadline_at),
        made_under: FencingToken::from_i64(row.made_under),
        token: FencingToken::from_i64(row.token),
        owner: row.owner.map(NodeId::from_uuid),
        nonce: EffectId(row.nonce.cast_unsigned()),
        nonce_node: row.nonce_node.map(NodeId::from_uuid),
        expires_at: Timestamp::from_micros(row.expires_at),
        sign: read::sign(row.start_seen),
        cancel: read::cancel(row.cancel_requested),
        attempts: read::count("execution.attempts", row.attempts)?,
        rescues: read::count("execution.rescues", row.rescues)?,
        lost_starts: read::count("execution.lost_starts", row.lost_starts)?,
        next_try_at: read::instant(row.next_try_at),
        waiting: read::waiting(row.waiting.as_deref())?,
        held_by: row.held_by.map(PauseId::from_uuid),
        waits: read::count("execution.waits", row.waits)?,
        dispatch_no: DispatchNo(read::count("execution.dispatch_no", row.dispatch_no)?),
        dispatched_at: read::instant(row.dispatched_at),
        redispatches: read::count("execution.redispatches", row.redispatches)?,
        materialised_at: Timestamp::from_micros(row.materialised_at),
        published_at: read::instant(row.published_at),
        received_at: read::instant(row.received_at),
        leased_at: read::instant(row.leased_at),
        started_at: read::instant(row.started_at),
        finished_at: read::instant(row.finished_at),
        lag_clamped: row.lag_clamped,
        error: row.error.map(Into::into),
    };
    Ok(Some((Timestamp::from_micros(row.now), execution)))
}

/// The latest of its runs that did not complete, and one more if there are more; ascending.
pub(super) async fn attempts(
    conn: &mut PgConnection,
    execution: &ExecutionRow,
) -> Result<Vec<AttemptRow>, Fault> {
    let rows = sqlx::query!(
        "SELECT token, node, attempt, ended, error, at FROM attempt
         WHERE execution = $1 AND tenant = $2 ORDER BY token DESC LIMIT $3",
        execution.id.as_uuid(),
        execution.tenant.as_uuid(),
        limit(EXPLAINED_RUNS_MAX + 1),
    )
    .fetch_all(conn)
    .await?;
    let mut attempts = Vec::with_capacity(rows.len());
    for row in rows.into_iter().rev() {
        attempts.push(AttemptRow {
            execution: execution.id,
            token: FencingToken::from_i64(row.token),
            tenant: execution.tenant,
            node: row.node.map(NodeId::from_uuid),
            attempt: read::count("attempt.attempt", row.attempt)?,
            end: read::named("attempt.ended", &row.ended, AttemptEnd::from_name)?,
            error: row.error.map(Into::into),
            at: Timestamp::from_micros(row.at),
        });
    }
    Ok(attempts)
}

/// Who holds its job's slot, by id; nobody where it does not wait for that.
pub(super) async fn slot_holders(
    conn: &mut PgConnection,
    execution: &ExecutionRow,
) -> Result<Vec<(ExecutionId, ExecutionState)>, Fault> {
    if execution.waiting != Some(WaitReason::Buffered) {
        return Ok(Vec::new());
    }
    let rows = sqlx::query!(
        "SELECT id, state FROM execution
         WHERE job = $1 AND tenant = $2 AND state IN ('pending', 'running', 'retry_wait') AND nonce_node IS NOT NULL
         ORDER BY id::text LIMIT $3",
        execution.job.as_uuid(),
        execution.tenant.as_uuid(),
        limit(EXPLAINED_OUTBOX_MAX),
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|row| Ok((ExecutionId::from_uuid(row.id), read::state(&row.state)?))).collect()
}

/// The limit that it waits for; nothing where it waits for none.
pub(super) async fn limit_waited_for(
    conn: &mut PgConnection,
    execution: &ExecutionRow,
    definition: &StoredDefinition,
) -> Result<Option<LimitFacts>, Fault> {
    let key = match execution.waiting {
        Some(WaitReason::TenantLimit) => None,
        Some(WaitReason::KeyLimit) => definition.concurrency_key(),
        Some(_) | None => return Ok(None),
    };
    let row = sqlx::query!(
        "SELECT max_running, actor, reason, set_at FROM concurrency_limit WHERE tenant = $1 AND key = $2",
        execution.tenant.as_uuid(),
        key.map(|key| &**key).unwrap_or_default(),
    )
    .fetch_optional(&mut *conn)
    .await?;
    let row = match row {
        Some(row) => Some(LimitRow {
            tenant: execution.tenant,
            key: key.cloned().unwrap_or_else(|| "".into()),
            max_running: row
                .max_running
                .map(|most| read::count("concurrency_limit.max_running", most))
                .transpose()?,
            actor: row.actor.into(),
            reason: row.reason.into(),
            set_at: Timestamp::from_micros(row.set_at),
        }),
        None => None,
    };
    let running = sqlx::query!(
        r#"SELECT count(*) AS "running!", min(e.id::text) AS first FROM execution e
           WHERE e.tenant = $1 AND num_nulls(e.owner) = 0 AND ($2::text IS NULL OR $2 = (
             SELECT v.concurrency_key FROM job_version v WHERE v.job = e.job AND v.version = e.job_version))"#,
        execution.tenant.as_uuid(),
        key.map(|key| &**key),
    )
    .fetch_one(conn)
    .await?;
    let held_by = running.first.and_then(|first| first.parse().ok()).map(ExecutionId::from_uuid);
    Ok(Some(LimitFacts { row, running: u32::try_from(running.running).unwrap_or(u32::MAX), held_by }))
}

/// Its dead letter.
pub(super) async fn dead_letter(
    conn: &mut PgConnection,
    execution: &ExecutionRow,
) -> Result<Option<DeadLetterRow>, Fault> {
    let row = sqlx::query!(
        "SELECT reason, error, attempts, rescues, lost_starts, at, replays, purged_at FROM dead_letter
         WHERE execution = $1 AND tenant = $2",
        execution.id.as_uuid(),
        execution.tenant.as_uuid(),
    )
    .fetch_optional(conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(DeadLetterRow {
        execution: execution.id,
        tenant: execution.tenant,
        job: execution.job,
        reason: read::named("dead_letter.reason", &row.reason, DeadLetterReason::from_name)?,
        error: row.error.map(Into::into),
        attempts: read::count("dead_letter.attempts", row.attempts)?,
        rescues: read::count("dead_letter.rescues", row.rescues)?,
        lost_starts: read::count("dead_letter.lost_starts", row.lost_starts)?,
        at: Timestamp::from_micros(row.at),
        replays: read::count("dead_letter.replays", row.replays)?,
        purged_at: read::instant(row.purged_at),
    }))
}

/// What was refused about it, of the latest tokens. The row has no tenant; its execution has been read as the tenant's.
pub(super) async fn refusals(conn: &mut PgConnection, id: ExecutionId) -> Result<Vec<RefusalRow>, Fault> {
    let resource = RefusedResource::Execution(id);
    let rows = sqlx::query!(
        "SELECT token, node, action, current, first_at, last_at, count FROM refusal
         WHERE resource = $1 ORDER BY token DESC, node DESC, action DESC LIMIT $2",
        resource_text(resource),
        limit(EXPLAINED_REFUSALS_MAX),
    )
    .fetch_all(conn)
    .await?;
    let mut refusals = Vec::with_capacity(rows.len());
    for row in rows {
        refusals.push(RefusalRow {
            resource,
            token: FencingToken::from_i64(row.token),
            node: NodeId::from_uuid(row.node),
            action: read::named("refusal.action", &row.action, RefusedAction::from_name)?,
            current: FencingToken::from_i64(row.current),
            first_at: Timestamp::from_micros(row.first_at),
            last_at: Timestamp::from_micros(row.last_at),
            count: row.count.unsigned_abs(),
        });
    }
    Ok(refusals)
}

/// The latest of its outbox rows, ascending.
pub(super) async fn outbox(
    conn: &mut PgConnection,
    execution: &ExecutionRow,
) -> Result<Vec<OutboxRow>, Fault> {
    let rows = sqlx::query!(
        "SELECT dispatch_no, created_by, created_at, next_try_at, tries FROM outbox_event
         WHERE execution = $1 AND tenant = $2 ORDER BY dispatch_no DESC LIMIT $3",
        execution.id.as_uuid(),
        execution.tenant.as_uuid(),
        limit(EXPLAINED_OUTBOX_MAX),
    )
    .fetch_all(conn)
    .await?;
    let mut outbox = Vec::with_capacity(rows.len());
    for row in rows.into_iter().rev() {
        outbox.push(OutboxRow {
            execution: execution.id,
            dispatch_no: DispatchNo(read::count("outbox_event.dispatch_no", row.dispatch_no)?),
            tenant: execution.tenant,
            partition: execution.partition,
            created_by: NodeId::from_uuid(row.created_by),
            created_at: Timestamp::from_micros(row.created_at),
            next_try_at: Timestamp::from_micros(row.next_try_at),
            tries: read::count("outbox_event.tries", row.tries)?,
        });
    }
    Ok(outbox)
}
