//! Liveness reports: one row per process, written over with each report.

use fencepost_core::id::NodeId;
use fencepost_core::limits::LIVENESS_AHEAD_MAX;
use fencepost_core::store::command::Heartbeat;
use fencepost_core::store::reply::{Reply, StoreReply};
use sqlx::PgConnection;
use uuid::Uuid;

use super::context::{Context, micros};
use super::fault::Fault;

/// One statement: the report, and who else lives. The sender's own row is read from what was written.
pub(super) async fn heartbeat(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    report: &Heartbeat,
) -> Result<StoreReply, Fault> {
    let row = sqlx::query!(
        r#"WITH clock AS MATERIALIZED (SELECT store_now($1) AS now),
           report AS (
             INSERT INTO node (id, role, label, schema, state, capacity, started_at, seen_at)
             SELECT $2, $3, $4, $5, $6, $7, now, now FROM clock
             ON CONFLICT (id) DO UPDATE SET role = excluded.role, label = excluded.label,
               schema = excluded.schema, state = excluded.state, capacity = excluded.capacity,
               seen_at = excluded.seen_at
             RETURNING id, role, state)
           SELECT c.now AS "now!", ARRAY(
             SELECT id FROM report WHERE role = 'scheduler' AND state = 'active'
             UNION ALL
             SELECT id FROM node WHERE state <> 'offline' AND state = 'active' AND role = 'scheduler' AND id <> $2
               AND seen_at + $8::int8 >= c.now AND seen_at <= c.now + $9::int8) AS "schedulers!: Vec<Uuid>"
           FROM clock c"#,
        cx.given,
        report.node.as_uuid(),
        report.role.name(),
        &*report.label,
        i32::from(report.schema),
        report.state.name(),
        i64::from(report.capacity),
        micros(report.live_within),
        LIVENESS_AHEAD_MAX.as_i64(),
    )
    .fetch_one(conn)
    .await?;
    let mut schedulers: Vec<NodeId> = row.schedulers.into_iter().map(NodeId::from_uuid).collect();
    schedulers.sort_unstable();
    Ok(cx.reply(row.now, Reply::Heartbeat { schedulers }))
}
