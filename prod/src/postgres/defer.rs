//! Executions put off that arrived where they cannot run. One that waits already keeps its reason and time.

use fencepost_core::execution::ExecutionState;
use fencepost_core::store::command::DeferExecutions;
use fencepost_core::store::reply::{DeferReply, Reply, StoreReply};
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};

use super::context::Context;
use super::fault::Fault;
use super::locked::LockedExecutions;

pub(super) async fn defer(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &DeferExecutions,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let mut rows = LockedExecutions::lock(&mut tx, ask.items.iter().map(|(execution, _)| *execution)).await?;
    let now = cx.clock(&mut tx).await?;
    let mut replies = Vec::with_capacity(ask.items.len());
    for (execution, reason) in &ask.items {
        let reply = match rows.get_mut(*execution) {
            None => DeferReply::Absent,
            Some(row) if row.state != ExecutionState::Pending => DeferReply::NotPending { state: row.state },
            Some(row) => {
                if row.waiting.is_none() {
                    row.wait(*reason, ask.delay, Timestamp::from_micros(now));
                }
                DeferReply::Recorded
            }
        };
        replies.push(reply);
    }
    rows.write(&mut tx).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::Deferred(replies)))
}
