//! Execution leases renewed: whoever presents the current token of what runs, lapsed or not.

use fencepost_core::execution::{ExecutionState, LeaseSign};
use fencepost_core::store::command::RenewExecutions;
use fencepost_core::store::reply::{RenewReply, Reply, StoreReply};
use fencepost_core::store::row::{RefusedAction, RefusedResource};
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};

use super::context::Context;
use super::fault::Fault;
use super::locked::LockedExecutions;
use super::refusals::Refusals;

pub(super) async fn renew(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &RenewExecutions,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let mut rows = LockedExecutions::lock(&mut tx, ask.runs.iter().map(|run| run.execution)).await?;
    let now = cx.clock(&mut tx).await?;
    let mut refusals = Refusals::new(ask.node, RefusedAction::RenewExecution);
    let mut replies = Vec::with_capacity(ask.runs.len());
    for run in &ask.runs {
        let Some(row) = rows.get_mut(run.execution) else {
            replies.push(RenewReply::Absent);
            continue;
        };
        if row.state == ExecutionState::Running && row.token == run.token {
            row.expires_at = Timestamp::from_micros(now).plus(ask.ttl);
            row.sign = LeaseSign::Started;
            replies.push(RenewReply::Renewed { cancel: row.cancel });
        } else {
            refusals.note(RefusedResource::Execution(run.execution), run.token, row.token);
            replies.push(RenewReply::Refused { current: row.token, state: row.state });
        }
    }
    rows.write(&mut tx).await?;
    refusals.record(&mut tx, now).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::RunsRenewed(replies)))
}
