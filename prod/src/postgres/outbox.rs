//! The outbox: rows read back to be published (again), rows that go once confirmed; and how rows are made.

use std::collections::BTreeSet;

use fencepost_core::id::{DispatchNo, ExecutionId, JobId, JobVersion, NodeId, TenantId};
use fencepost_core::job::Payload;
use fencepost_core::limits::OUTBOX_DELAY_MAX;
use fencepost_core::store::command::{OutboxId, RemoveOutbox, ScanOutbox};
use fencepost_core::store::reply::{Dispatch, RemovalReply, Reply, StoreReply};
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::ATTEMPTS_MAX;
use super::context::{Context, micros};
use super::definitions;
use super::fault::Fault;
use super::locked::LockedExecution;
use super::read::{self, OccurrenceColumns};

/// A dispatch as its statement returns it. `picked_at` is the `next_try_at` by which it was picked.
pub(super) struct DispatchColumns {
    pub(super) picked_at: i64,
    pub(super) execution: Uuid,
    pub(super) dispatch_no: i32,
    pub(super) tenant: Uuid,
    pub(super) job: Uuid,
    pub(super) job_version: i64,
    pub(super) occurrence: String,
    pub(super) fire: Option<i64>,
    pub(super) manual_key: Option<String>,
    pub(super) origin: Option<Uuid>,
    pub(super) replay_number: Option<i64>,
    pub(super) key: String,
    pub(super) due_at: i64,
    pub(super) payload: Option<String>,
}

/// Dispatches with their definitions, in the order in which they were picked.
pub(super) async fn dispatches(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    mut rows: Vec<DispatchColumns>,
) -> Result<Vec<Dispatch>, Fault> {
    rows.sort_unstable_by_key(|row| (row.picked_at, row.execution, row.dispatch_no));
    let mut dispatches = Vec::with_capacity(rows.len());
    let mut keys = Vec::with_capacity(rows.len());
    for row in &rows {
        let version = read::count("execution.job_version", row.job_version)?;
        keys.push((JobId::from_uuid(row.job), JobVersion(version)));
    }
    let known = cx.definitions.of(conn, keys.iter().copied()).await?;
    for (row, (job, job_version)) in rows.into_iter().zip(keys) {
        let occurrence = OccurrenceColumns {
            kind: row.occurrence,
            fire: row.fire,
            manual_key: row.manual_key,
            origin: row.origin,
            replay_number: row.replay_number,
        };
        dispatches.push(Dispatch {
            execution: ExecutionId::from_uuid(row.execution),
            dispatch_no: DispatchNo(read::count("outbox_event.dispatch_no", row.dispatch_no)?),
            tenant: TenantId::from_uuid(row.tenant),
            job,
            job_version,
            occurrence: occurrence.read()?,
            key: row.key.into(),
            due_at: Timestamp::from_micros(row.due_at),
            payload: row.payload.map(|text| Payload::from_stored(text.into())),
            definition: definitions::one_of(&known, job, job_version)?,
        });
    }
    Ok(dispatches)
}

pub(super) async fn scan(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &ScanOutbox,
) -> Result<StoreReply, Fault> {
    let partitions: Vec<i16> =
        ask.partitions.iter().map(|partition| stored_partition(partition.number())).collect();
    let mut tx = conn.begin().await?;
    let now = cx.clock(&mut tx).await?;
    let rows = sqlx::query_as!(
        DispatchColumns,
        r#"WITH picked AS MATERIALIZED (
             SELECT o.execution, o.dispatch_no, o.next_try_at FROM outbox_event o
             WHERE o.next_try_at <= $1 AND o.partition = ANY($2)
               AND (o.created_by <> $3 OR o.created_at + $4::int8 <= $1)
             ORDER BY o.next_try_at, o.execution, o.dispatch_no LIMIT $5 FOR UPDATE SKIP LOCKED),
           read_back AS (
             UPDATE outbox_event o SET tries = o.tries + 1,
               next_try_at = greatest($1 + grown_delay($6, o.tries, $7), o.created_at)
             FROM picked p WHERE o.execution = ANY (ARRAY[p.execution]) AND o.dispatch_no = p.dispatch_no
             RETURNING o.execution, o.dispatch_no, p.next_try_at AS picked_at)
           SELECT r.picked_at AS "picked_at!", r.execution AS "execution!", r.dispatch_no AS "dispatch_no!",
             e.tenant, e.job, e.job_version, e.occurrence, e.fire, e.manual_key, e.origin, e.replay_number,
             e.key, e.due_at, e.payload
           FROM read_back r JOIN execution e ON e.id = ANY (ARRAY[r.execution])"#,
        now,
        &partitions,
        ask.node.as_uuid(),
        micros(ask.own_grace),
        i64::from(ask.limit),
        micros(ask.delay),
        OUTBOX_DELAY_MAX.as_i64(),
    )
    .fetch_all(&mut *tx)
    .await?;
    // Rows in grace were made, and may be read from, within the grace before now; all others lie ahead.
    let next_due = sqlx::query_scalar!(
        r#"SELECT min(CASE WHEN o.created_by = $3 THEN greatest(o.next_try_at, o.created_at + $4::int8)
             ELSE o.next_try_at END)
           FROM outbox_event o
           WHERE o.partition = ANY($2) AND o.next_try_at > $1::int8 - $4::int8
             AND CASE WHEN o.created_by = $3 THEN greatest(o.next_try_at, o.created_at + $4::int8)
               ELSE o.next_try_at END > $1"#,
        now,
        &partitions,
        ask.node.as_uuid(),
        micros(ask.own_grace),
    )
    .fetch_one(&mut *tx)
    .await?;
    let dispatches = dispatches(cx, &mut tx, rows).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::Outbox { dispatches, next_due: read::instant(next_due) }))
}

/// A partition's number as it is stored.
pub(super) fn stored_partition(number: u16) -> i16 {
    i16::try_from(number).expect("there are 128 partitions")
}

/// Young rows, which are nearly all, go in one `DELETE`. What is left may have to be stamped, and takes its
/// execution's lock first.
pub(super) async fn remove(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &RemoveOutbox,
) -> Result<StoreReply, Fault> {
    let mut open: BTreeSet<OutboxId> = ask.rows.iter().copied().collect();
    let mut removed = BTreeSet::new();
    let (executions, numbers) = columns(&open);
    let rows = sqlx::query!(
        r#"WITH clock AS MATERIALIZED (SELECT store_now($1) AS now)
           DELETE FROM outbox_event o
           USING clock c, unnest($2::uuid[], $3::int4[]) AS i (execution, dispatch_no)
           WHERE o.execution = ANY (ARRAY[i.execution]) AND o.dispatch_no = i.dispatch_no AND o.created_at + $4::int8 > c.now
           RETURNING o.execution, o.dispatch_no, c.now AS "now!""#,
        cx.given,
        &executions,
        &numbers,
        micros(ask.grace),
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut now = cx.given;
    for row in rows {
        now = Some(row.now);
        let id = outbox_id(row.execution, row.dispatch_no)?;
        open.remove(&id);
        removed.insert(id);
    }
    let now = if open.is_empty() {
        match now {
            Some(now) => now,
            None => cx.clock(conn).await?,
        }
    } else {
        remove_rest(cx, conn, ask, &open, now, &mut removed).await?
    };
    Ok(cx.reply(now, Reply::OutboxRemoved(removals(&ask.rows, removed))))
}

/// The rows that are left. The others are gone for good by now: where this has to start over, it starts here, or the very
/// command that removed them would be told that they were gone already.
async fn remove_rest(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &RemoveOutbox,
    open: &BTreeSet<OutboxId>,
    now: Option<i64>,
    removed: &mut BTreeSet<OutboxId>,
) -> Result<i64, Fault> {
    let mut attempt = 1;
    loop {
        let mut gone = removed.clone();
        match remove_late(cx, conn, ask, open, now, &mut gone).await {
            Err(fault) if fault.is_transient() && attempt < ATTEMPTS_MAX => attempt += 1,
            Err(fault) => return Err(fault),
            Ok(now) => {
                *removed = gone;
                return Ok(now);
            }
        }
    }
}

/// The rows that are left, in one transaction: what was at least the grace old stamps its execution.
async fn remove_late(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &RemoveOutbox,
    open: &BTreeSet<OutboxId>,
    now: Option<i64>,
    removed: &mut BTreeSet<OutboxId>,
) -> Result<i64, Fault> {
    let (executions, numbers) = columns(open);
    let mut tx = conn.begin().await?;
    sqlx::query!(
        r#"SELECT count(*) AS "locked!" FROM (
             SELECT FROM unnest($1::uuid[], $2::int4[]) WITH ORDINALITY AS i (id, dispatch_no, place)
             JOIN execution e ON e.id = ANY (ARRAY[i.id]) WHERE e.state = 'pending' AND e.dispatch_no = i.dispatch_no
             ORDER BY i.place FOR NO KEY UPDATE OF e) AS locked"#,
        &executions,
        &numbers,
    )
    .fetch_one(&mut *tx)
    .await?;
    let now = match now {
        Some(now) => now,
        None => cx.clock(&mut tx).await?,
    };
    let rows = sqlx::query!(
        "DELETE FROM outbox_event o USING unnest($1::uuid[], $2::int4[]) AS i (execution, dispatch_no)
         WHERE o.execution = ANY (ARRAY[i.execution]) AND o.dispatch_no = i.dispatch_no
         RETURNING o.execution, o.dispatch_no, o.created_at",
        &executions,
        &numbers,
    )
    .fetch_all(&mut *tx)
    .await?;
    let mut late = BTreeSet::new();
    for row in rows {
        let id = outbox_id(row.execution, row.dispatch_no)?;
        removed.insert(id);
        if row.created_at.saturating_add(micros(ask.grace)) <= now {
            late.insert(id);
        }
    }
    let (executions, numbers) = columns(&late);
    sqlx::query!(
        "UPDATE execution e SET dispatched_at = $1
         FROM unnest($2::uuid[], $3::int4[]) AS i (execution, dispatch_no)
         WHERE e.id = ANY (ARRAY[i.execution]) AND e.dispatch_no = i.dispatch_no AND e.state = 'pending'",
        now,
        &executions,
        &numbers,
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(now)
}

/// The answers, in order. What is named twice was there once.
pub(super) fn removals<'a>(
    asked: impl IntoIterator<Item = &'a OutboxId>,
    mut removed: BTreeSet<OutboxId>,
) -> Vec<RemovalReply> {
    let reply = |id| if removed.remove(id) { RemovalReply::Removed } else { RemovalReply::Absent };
    asked.into_iter().map(reply).collect()
}

/// Ids as two arrays, ascending.
pub(super) fn columns<'a>(ids: impl IntoIterator<Item = &'a OutboxId>) -> (Vec<Uuid>, Vec<i32>) {
    ids.into_iter().map(|id| (id.execution.as_uuid(), read::stored_count(id.dispatch_no.0))).unzip()
}

/// An id from its columns.
pub(super) fn outbox_id(execution: Uuid, dispatch_no: i32) -> Result<OutboxId, Fault> {
    let dispatch_no = DispatchNo(read::count("outbox_event.dispatch_no", dispatch_no)?);
    Ok(OutboxId { execution: ExecutionId::from_uuid(execution), dispatch_no })
}

/// Deletes rows; says which were there.
pub(super) async fn delete(
    conn: &mut PgConnection,
    ids: &BTreeSet<OutboxId>,
) -> Result<BTreeSet<OutboxId>, Fault> {
    if ids.is_empty() {
        return Ok(BTreeSet::new());
    }
    let (executions, numbers) = columns(ids);
    let rows = sqlx::query!(
        "DELETE FROM outbox_event o USING unnest($1::uuid[], $2::int4[]) AS i (execution, dispatch_no)
         WHERE o.execution = ANY (ARRAY[i.execution]) AND o.dispatch_no = i.dispatch_no
         RETURNING o.execution, o.dispatch_no",
        &executions,
        &numbers,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|row| outbox_id(row.execution, row.dispatch_no)).collect()
}

/// Which of these rows are there, of any dispatch of these executions. To be read once those are locked.
pub(super) async fn rows_of(
    conn: &mut PgConnection,
    executions: impl IntoIterator<Item = ExecutionId>,
) -> Result<BTreeSet<OutboxId>, Fault> {
    let ids: BTreeSet<Uuid> = executions.into_iter().map(ExecutionId::as_uuid).collect();
    let rows = sqlx::query!(
        "SELECT o.execution, o.dispatch_no FROM unnest($1::uuid[]) AS i (id)
         JOIN outbox_event o ON o.execution = ANY (ARRAY[i.id]) AND o.tries >= 0",
        &ids.into_iter().collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|row| outbox_id(row.execution, row.dispatch_no)).collect()
}

/// Writes the outbox rows of the latest dispatches of these executions, committed by `node`.
pub(super) async fn insert(
    conn: &mut PgConnection,
    node: NodeId,
    executions: &[&LockedExecution],
    now: i64,
) -> Result<(), Fault> {
    if executions.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "INSERT INTO outbox_event
           (execution, dispatch_no, tenant, partition, created_by, created_at, next_try_at, tries)
         SELECT i.execution, i.dispatch_no, i.tenant, i.partition, $1, $2, $2, 0
         FROM unnest($3::uuid[], $4::int4[], $5::uuid[], $6::int2[])
           AS i (execution, dispatch_no, tenant, partition)",
        node.as_uuid(),
        now,
        &executions.iter().map(|row| row.id.as_uuid()).collect::<Vec<_>>(),
        &executions.iter().map(|row| read::stored_count(row.dispatch_no.0)).collect::<Vec<_>>(),
        &executions.iter().map(|row| row.tenant.as_uuid()).collect::<Vec<_>>(),
        &executions.iter().map(|row| row.partition).collect::<Vec<_>>(),
    )
    .execute(conn)
    .await?;
    Ok(())
}
