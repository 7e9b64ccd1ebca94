//! Tenants and queues paused and resumed, and the record of what waits for the resume.
//!
//! The tenant's row is locked first: what is asked for one tenant is done one after the other. A resume then locks the
//! pause, which whoever records that something waits for it has locked too (`hold_back`): once the resume has committed,
//! nothing more comes to wait for that pause. Then it locks what it lets go, by id, and reads the clock.

use std::collections::BTreeMap;

use fencepost_core::id::{ExecutionId, PauseId};
use fencepost_core::limits::{BATCH_MAX, HELD_RECHECK};
use fencepost_core::pause::PauseScope;
use fencepost_core::store::command::{AcquireExecutions, PauseChange, SetPause};
use fencepost_core::store::reply::{Reply, SetPauseReply, StoreReply};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::context::{Context, micros};
use super::fault::Fault;
use super::leases::stored_nonce;
use super::notifications::notify;

pub(super) async fn set(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &SetPause,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let (now, reply) = set_within(cx, &mut tx, ask).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::PauseSet(reply)))
}

async fn set_within(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &SetPause,
) -> Result<(i64, SetPauseReply), Fault> {
    let tenant =
        sqlx::query_scalar!("SELECT id FROM tenant WHERE id = $1 FOR NO KEY UPDATE", ask.tenant.as_uuid(),)
            .fetch_optional(&mut *conn)
            .await?;
    if tenant.is_none() {
        return Ok((cx.clock(conn).await?, SetPauseReply::NotFound));
    }
    if let Some(known) = known_request(conn, ask).await? {
        return Ok((cx.clock(conn).await?, known));
    }
    match &ask.change {
        PauseChange::Pause { pause, scope } => begin(cx, conn, ask, *pause, scope).await,
        PauseChange::Resume { pause, at_once } => end(cx, conn, ask, *pause, *at_once).await,
    }
}

async fn known_request(conn: &mut PgConnection, ask: &SetPause) -> Result<Option<SetPauseReply>, Fault> {
    let Some(asked) = &ask.request else { return Ok(None) };
    let known = sqlx::query!(
        "SELECT fingerprint, pause FROM operator_request WHERE tenant = $1 AND request = $2",
        ask.tenant.as_uuid(),
        &*asked.request,
    )
    .fetch_optional(conn)
    .await?;
    let Some(known) = known else { return Ok(None) };
    Ok(Some(match known.pause.filter(|_| known.fingerprint == asked.fingerprint) {
        Some(pause) => SetPauseReply::Repeated { pause: PauseId::from_uuid(pause) },
        None => SetPauseReply::RequestReused,
    }))
}

async fn begin(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &SetPause,
    pause: PauseId,
    scope: &PauseScope,
) -> Result<(i64, SetPauseReply), Fault> {
    let now = cx.clock(conn).await?;
    let (handler, version) = columns_of(scope);
    let known = sqlx::query_scalar!(
        "SELECT id FROM pause WHERE tenant = $1 AND scope = $2 AND coalesce(handler, '') = coalesce($3, '')
           AND coalesce(handler_version, 0) = coalesce($4::int8, 0) AND ended_at IS NULL",
        ask.tenant.as_uuid(),
        scope.name(),
        handler,
        version,
    )
    .fetch_optional(&mut *conn)
    .await?;
    if let Some(known) = known {
        return Ok((now, SetPauseReply::Already { pause: PauseId::from_uuid(known) }));
    }
    let done = sqlx::query!(
        "INSERT INTO pause (id, tenant, since, scope, handler, handler_version, actor, reason)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING",
        pause.as_uuid(),
        ask.tenant.as_uuid(),
        now,
        scope.name(),
        handler,
        version,
        &*ask.actor,
        &*ask.reason,
    )
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 0 {
        return Ok((now, SetPauseReply::IdTaken));
    }
    remember(conn, ask, pause, now).await?;
    Ok((now, SetPauseReply::Paused))
}

async fn end(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &SetPause,
    pause: PauseId,
    at_once: u32,
) -> Result<(i64, SetPauseReply), Fault> {
    let row = sqlx::query!(
        "SELECT ended_at FROM pause WHERE id = $1 AND tenant = $2 FOR UPDATE",
        pause.as_uuid(),
        ask.tenant.as_uuid(),
    )
    .fetch_optional(&mut *conn)
    .await?;
    match row {
        None => return Ok((cx.clock(conn).await?, SetPauseReply::NotFound)),
        Some(row) if row.ended_at.is_some() => {
            return Ok((cx.clock(conn).await?, SetPauseReply::Already { pause }));
        }
        Some(_) => {}
    }
    let at_once = i64::from(at_once).min(i64::try_from(BATCH_MAX).unwrap_or(i64::MAX));
    let held = sqlx::query!(
        "SELECT id, partition FROM execution WHERE held_by = $1 ORDER BY id LIMIT $2 FOR NO KEY UPDATE",
        pause.as_uuid(),
        at_once,
    )
    .fetch_all(&mut *conn)
    .await?;
    let now = cx.clock(conn).await?;
    let ids: Vec<Uuid> = held.iter().map(|row| row.id).collect();
    sqlx::query!(
        "UPDATE pause SET ended_at = $2, ended_by = $3, ended_reason = $4,
           lift_until = CASE WHEN EXISTS (SELECT FROM execution e WHERE e.held_by = $1 AND e.id <> ALL($6))
             THEN $2 + $5::int8 END
         WHERE id = $1",
        pause.as_uuid(),
        now,
        &*ask.actor,
        &*ask.reason,
        micros(HELD_RECHECK),
        &ids,
    )
    .execute(&mut *conn)
    .await?;
    remember(conn, ask, pause, now).await?;
    sqlx::query!("UPDATE execution SET next_try_at = $2 WHERE id = ANY($1)", &ids, now)
        .execute(&mut *conn)
        .await?;
    let mut partitions: Vec<i16> = held.iter().map(|row| row.partition).collect();
    partitions.sort_unstable();
    partitions.dedup();
    for partition in partitions {
        notify(conn, partition).await?;
    }
    Ok((now, SetPauseReply::Resumed))
}

fn columns_of(scope: &PauseScope) -> (Option<&str>, Option<i64>) {
    let handler = scope.handler();
    (handler.map(|handler| handler.name.as_str()), handler.map(|handler| i64::from(handler.version)))
}

/// Whoever uses the same request id at the same time is waited for, and then met.
async fn remember(conn: &mut PgConnection, ask: &SetPause, pause: PauseId, now: i64) -> Result<(), Fault> {
    let Some(asked) = &ask.request else { return Ok(()) };
    let done = sqlx::query!(
        "INSERT INTO operator_request (tenant, request, fingerprint, pause, at)
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT (tenant, request) DO NOTHING",
        ask.tenant.as_uuid(),
        &*asked.request,
        asked.fingerprint,
        pause.as_uuid(),
        now,
    )
    .execute(conn)
    .await?;
    if done.rows_affected() == 0 {
        return Err(Fault::InMotion { table: "operator_request" });
    }
    Ok(())
}

/// Records that these wait for pauses, each for the one given, while those stand: a resume waits for this, and then
/// finds them. Returns those that wait now; of one that moved meanwhile, nothing.
pub(super) async fn hold_back(
    conn: &mut PgConnection,
    ask: &AcquireExecutions,
    now: Option<i64>,
    held_back: &BTreeMap<ExecutionId, Uuid>,
) -> Result<Vec<ExecutionId>, Fault> {
    let items: Vec<_> = ask
        .items
        .iter()
        .filter_map(|item| Some((item.execution, (held_back.get(&item.execution)?, item.nonce))))
        .collect();
    // The first item of each execution, by execution: the order of the locks.
    let items: BTreeMap<ExecutionId, _> = items.into_iter().rev().collect();
    let mut pauses: Vec<Uuid> = items.values().map(|(pause, _)| **pause).collect();
    pauses.sort_unstable();
    pauses.dedup();
    let mut tx = conn.begin().await?;
    let standing = sqlx::query_scalar!(
        "SELECT id FROM pause WHERE id = ANY($1) AND ended_at IS NULL ORDER BY id FOR SHARE",
        &pauses,
    )
    .fetch_all(&mut *tx)
    .await?;
    let rows = sqlx::query_scalar!(
        "UPDATE execution e SET waiting = p.scope || '_paused', held_by = p.id, next_try_at = store_now($1) + $2
         FROM unnest($3::uuid[], $4::int8[], $5::uuid[]) AS i (id, nonce, pause)
           JOIN pause p ON p.id = i.pause AND p.id = ANY($6)
         WHERE e.id = ANY (ARRAY[i.id]) AND e.state = 'pending' AND num_nulls(e.waiting) = 1
           AND (e.nonce_node IS DISTINCT FROM $7 OR e.nonce <> i.nonce)
         RETURNING e.id",
        now,
        micros(HELD_RECHECK),
        &items.keys().map(|id| id.as_uuid()).collect::<Vec<_>>(),
        &items.values().map(|(_, nonce)| stored_nonce(*nonce)).collect::<Vec<_>>(),
        &items.values().map(|(pause, _)| **pause).collect::<Vec<_>>(),
        &standing,
        ask.node.as_uuid(),
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(rows.into_iter().map(ExecutionId::from_uuid).collect())
}
