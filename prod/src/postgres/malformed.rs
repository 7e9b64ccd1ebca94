//! Broker messages that could not be read. The first report's words stay; repeats are counted.

use fencepost_core::store::command::RecordMalformed;
use fencepost_core::store::reply::{Reply, StoreReply};
use sqlx::PgConnection;

use super::context::Context;
use super::fault::Fault;

pub(super) async fn record(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    report: &RecordMalformed,
) -> Result<StoreReply, Fault> {
    let now = sqlx::query_scalar!(
        r#"INSERT INTO malformed_message AS m (digest, reason, excerpt, node, first_at, last_at, count)
           SELECT $2, $3, $4, $5, c.now, c.now, 1 FROM (SELECT store_now($1) AS now OFFSET 0) c
           ON CONFLICT (digest) DO UPDATE SET last_at = excluded.last_at, count = m.count + 1
           RETURNING last_at AS "now!""#,
        cx.given,
        report.digest,
        &*report.reason,
        &*report.excerpt,
        report.node.as_uuid(),
    )
    .fetch_one(conn)
    .await?;
    Ok(cx.reply(now, Reply::MalformedRecorded))
}
