//! Outbox rows that could not be routed or composed: the row goes, and what it was for waits with a reason.

use std::collections::BTreeSet;

use fencepost_core::store::command::{OutboxId, ReturnOutbox};
use fencepost_core::store::reply::{Reply, StoreReply};
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};

use super::context::Context;
use super::fault::Fault;
use super::locked::LockedExecutions;
use super::outbox;

pub(super) async fn return_rows(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &ReturnOutbox,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let mut executions = LockedExecutions::lock(&mut tx, ask.rows.iter().map(|(id, _)| id.execution)).await?;
    let now = cx.clock(&mut tx).await?;
    let asked: BTreeSet<OutboxId> = ask.rows.iter().map(|(id, _)| *id).collect();
    let removed = outbox::delete(&mut tx, &asked).await?;
    let mut open = removed.clone();
    for (id, reason) in &ask.rows {
        if !open.remove(id) {
            continue;
        }
        if let Some(row) = executions.get_mut(id.execution)
            && row.awaits(*id)
            && row.waiting.is_none()
        {
            row.wait(*reason, ask.delay, Timestamp::from_micros(now));
        }
    }
    executions.write(&mut tx).await?;
    tx.commit().await?;
    let asked = ask.rows.iter().map(|(id, _)| id);
    Ok(cx.reply(now, Reply::OutboxReturned(outbox::removals(asked, removed))))
}
