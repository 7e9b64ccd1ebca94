//! One execution called off: at once where nobody runs it, else by a stored request.

use fencepost_core::execution::{CancelState, ExecutionState};
use fencepost_core::store::command::CancelExecution;
use fencepost_core::store::reply::{CancelReply, Reply, StoreReply};
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};

use super::context::Context;
use super::fault::Fault;
use super::locked::LockedExecutions;
use super::overlap;

/// What belongs to another tenant is answered like what is not there.
pub(super) async fn cancel(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &CancelExecution,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let judged = overlap::lock_jobs(&mut tx, [ask.execution]).await?;
    let mut rows = LockedExecutions::lock(&mut tx, [ask.execution]).await?;
    let now = cx.clock(&mut tx).await?;
    let reply = match rows.get_mut(ask.execution).filter(|row| row.tenant == ask.tenant) {
        None => CancelReply::NotFound,
        Some(row) => match row.state {
            was @ (ExecutionState::Pending | ExecutionState::RetryWait) => {
                row.settle(ExecutionState::Cancelled, Timestamp::from_micros(now));
                CancelReply::Cancelled { was }
            }
            ExecutionState::Running => {
                row.cancel = CancelState::Requested;
                CancelReply::Requested
            }
            state @ (ExecutionState::Completed
            | ExecutionState::DeadLettered
            | ExecutionState::Failed
            | ExecutionState::Cancelled
            | ExecutionState::Skipped) => CancelReply::Ended { state },
        },
    };
    rows.write(&mut tx).await?;
    overlap::lift(&mut tx, &overlap::among(&judged, rows.freed([ask.execution])), now).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::ExecutionCancelled(reply)))
}
