//! What a sweep might repair, as one snapshot shows it.

use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, JobId, JobVersion, NodeId};
use fencepost_core::lease::RunId;
use fencepost_core::limits::{LEASE_TTL_MAX, LIVENESS_AHEAD_MAX, REDISPATCH_DELAY_MAX};
use fencepost_core::store::command::{OutboxId, ScanSweep};
use fencepost_core::store::reply::{ExpiredRun, Reply, StoreReply, SweepFindings};
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};

use super::context::{Context, micros};
use super::deadlines;
use super::definitions;
use super::fault::Fault;
use super::outbox::outbox_id;
use super::read;

pub(super) async fn scan(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &ScanSweep,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let now = cx.clock(&mut tx).await?;
    let findings = SweepFindings {
        expired: expired(cx, &mut tx, ask, now).await?,
        undelivered: undelivered(&mut tx, ask, now).await?,
        settled: settled(&mut tx, ask).await?,
        overdue: deadlines::scan(&mut tx, ask, now).await?,
        stale_nodes: stale_nodes(&mut tx, ask, now).await?,
    };
    tx.commit().await?;
    Ok(cx.reply(now, Reply::Sweep(findings)))
}

/// Leases that lapsed, then those that reach further ahead than any grant does.
async fn expired(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &ScanSweep,
    now: i64,
) -> Result<Vec<ExpiredRun>, Fault> {
    let mut rows = sqlx::query!(
        r#"(SELECT id AS "id!", token AS "token!", expires_at AS "expires_at!", job AS "job!",
              job_version AS "job_version!", cancel_requested AS "cancel_requested!", start_seen AS "start_seen!",
              rescues AS "rescues!", lost_starts AS "lost_starts!",
              deadline_at
            FROM execution WHERE owner IS NOT NULL AND expires_at <= $1 ORDER BY expires_at, id LIMIT $3)
           UNION ALL
           (SELECT id, token, expires_at, job, job_version, cancel_requested, start_seen, rescues, lost_starts, deadline_at
            FROM execution WHERE owner IS NOT NULL AND expires_at > $1::int8 + $2::int8
            ORDER BY expires_at, id LIMIT $3)"#,
        now,
        LEASE_TTL_MAX.as_i64(),
        i64::from(ask.limit),
    )
    .fetch_all(&mut *conn)
    .await?;
    rows.sort_unstable_by_key(|row| (row.expires_at, row.id));
    rows.truncate(ask.limit as usize);
    let mut keys = Vec::with_capacity(rows.len());
    for row in &rows {
        let version = JobVersion(read::count("execution.job_version", row.job_version)?);
        keys.push((JobId::from_uuid(row.job), version));
    }
    let known = cx.definitions.of(conn, keys.iter().copied()).await?;
    let mut found = Vec::with_capacity(rows.len());
    for (row, (job, version)) in rows.into_iter().zip(keys) {
        let token = FencingToken::from_i64(row.token);
        found.push(ExpiredRun {
            run: RunId { execution: ExecutionId::from_uuid(row.id), token },
            cancel: read::cancel(row.cancel_requested),
            sign: read::sign(row.start_seen),
            rescues: read::count("execution.rescues", row.rescues)?,
            lost_starts: read::count("execution.lost_starts", row.lost_starts)?,
            left: read::instant(row.deadline_at).map(|at| at.since(Timestamp::from_micros(now))),
            definition: definitions::one_of(&known, job, version)?,
        });
    }
    Ok(found)
}

/// Dispatches that led to nothing within their delay, and those stamped further ahead than any is. Two ranges
/// of the index: nothing is waited for less than the first delay, and nothing too far ahead lies behind now. `tries`
/// is asked for because an index alone cannot answer that, so that no walk along one is offered.
async fn undelivered(conn: &mut PgConnection, ask: &ScanSweep, now: i64) -> Result<Vec<OutboxId>, Fault> {
    let mut rows = sqlx::query!(
        r#"(SELECT e.id AS "id!", e.dispatch_no AS "dispatch_no!", e.dispatched_at AS "dispatched_at!"
            FROM execution e
            WHERE e.state = 'pending' AND e.waiting IS NULL
              AND e.dispatched_at <= $1::int8 - least($2::int8, $3::int8)
              AND e.dispatched_at + grown_delay($2, e.redispatches, $3) <= $1
              AND NOT EXISTS (SELECT FROM outbox_event o WHERE o.execution = ANY (ARRAY[e.id]) AND o.tries >= 0)
            ORDER BY e.dispatched_at, e.id LIMIT $4)
           UNION ALL
           (SELECT e.id, e.dispatch_no, e.dispatched_at FROM execution e
            WHERE e.state = 'pending' AND e.waiting IS NULL AND e.dispatched_at > $1
              AND e.dispatched_at + grown_delay($2, e.redispatches, $3) > $1::int8 + $3::int8
              AND NOT EXISTS (SELECT FROM outbox_event o WHERE o.execution = ANY (ARRAY[e.id]) AND o.tries >= 0)
            ORDER BY e.dispatched_at, e.id LIMIT $4)"#,
        now,
        micros(ask.redispatch_after),
        REDISPATCH_DELAY_MAX.as_i64(),
        i64::from(ask.limit),
    )
    .fetch_all(conn)
    .await?;
    rows.sort_unstable_by_key(|row| (row.dispatched_at, row.id));
    rows.truncate(ask.limit as usize);
    rows.into_iter().map(|row| outbox_id(row.id, row.dispatch_no)).collect()
}

/// Outbox rows of executions that ended.
async fn settled(conn: &mut PgConnection, ask: &ScanSweep) -> Result<Vec<OutboxId>, Fault> {
    let rows = sqlx::query!(
        "SELECT o.execution, o.dispatch_no FROM outbox_event o JOIN execution e ON e.id = ANY (ARRAY[o.execution])
         WHERE e.state IN ('completed', 'dead_lettered', 'failed', 'cancelled', 'skipped')
         ORDER BY o.execution, o.dispatch_no LIMIT $1",
        i64::from(ask.limit),
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|row| outbox_id(row.execution, row.dispatch_no)).collect()
}

/// Nodes without a recent report, and with one from too far ahead.
async fn stale_nodes(
    conn: &mut PgConnection,
    ask: &ScanSweep,
    now: i64,
) -> Result<Vec<(NodeId, Timestamp)>, Fault> {
    let rows = sqlx::query!(
        "SELECT n.id, n.seen_at FROM node n
         WHERE n.state <> 'offline' AND (n.seen_at + $2::int8 <= $1 OR n.seen_at > $1::int8 + $3::int8)
         ORDER BY n.id LIMIT $4",
        now,
        micros(ask.node_stale_after),
        LIVENESS_AHEAD_MAX.as_i64(),
        i64::from(ask.limit),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (NodeId::from_uuid(row.id), Timestamp::from_micros(row.seen_at))).collect())
}
