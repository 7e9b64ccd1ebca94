//! Execution leases granted: one compare-and-set `UPDATE` over the batch.
//!
//! What it did not touch is looked at afterwards, without a lock: it is running, has ended, waits for its
//! retry, or its message is a resend. An item that became grantable between the two looks goes round again.

use std::collections::BTreeMap;

use fencepost_core::execution::ExecutionState;
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, NodeId};
use fencepost_core::lease::may_be_taken;
use fencepost_core::store::command::{AcquireExecution, AcquireExecutions};
use fencepost_core::store::reply::{AcquireReply, Grant, Reply, StoreReply};
use fencepost_core::time::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::context::{Context, micros};
use super::fault::Fault;
use super::leases::stored_nonce;
use super::read;

/// How often a batch goes round.
const ROUNDS_MAX: u32 = 3;

pub(super) async fn acquire(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &AcquireExecutions,
) -> Result<StoreReply, Fault> {
    let mut now = cx.given;
    let mut replies: Vec<Option<AcquireReply>> = vec![None; ask.items.len()];
    for _ in 0..ROUNDS_MAX {
        grant(conn, ask, &mut now, &mut replies).await?;
        if replies.iter().any(Option::is_none) {
            explain(cx, conn, ask, &mut now, &mut replies).await?;
        }
        if replies.iter().all(Option::is_some) {
            let now = match now {
                Some(now) => now,
                None => cx.clock(conn).await?,
            };
            return Ok(cx.reply(now, Reply::Acquired(replies.into_iter().flatten().collect())));
        }
    }
    Err(Fault::InMotion { table: "execution" })
}

/// Items without a reply, the first of each execution, by execution: the order of the locks.
fn open_items<'a>(
    ask: &'a AcquireExecutions,
    replies: &[Option<AcquireReply>],
) -> BTreeMap<ExecutionId, (usize, &'a AcquireExecution)> {
    let mut open = BTreeMap::new();
    for (at, item) in ask.items.iter().enumerate() {
        if replies[at].is_none() {
            open.entry(item.execution).or_insert((at, item));
        }
    }
    open
}

/// Grants what is pending. The nonce of a lease that ended stays in its row, so its resend is not granted.
async fn grant(
    conn: &mut PgConnection,
    ask: &AcquireExecutions,
    now: &mut Option<i64>,
    replies: &mut [Option<AcquireReply>],
) -> Result<(), Fault> {
    let open = open_items(ask, replies);
    let rows = sqlx::query!(
        r#"WITH clock AS MATERIALIZED (SELECT store_now($1) AS now)
           UPDATE execution e SET state = 'running', token = e.token + 1, owner = $2, nonce = i.nonce,
             nonce_node = $2, expires_at = c.now + $3::int8, start_seen = false, waiting = NULL,
             next_try_at = NULL, waits = 0, redispatches = 0, started_at = NULL,
             published_at = greatest(least(i.published_at, c.now), e.materialised_at),
             received_at = greatest(c.now - i.held, least(i.published_at, c.now), e.materialised_at),
             leased_at = greatest(c.now, e.materialised_at),
             lag_clamped = i.published_at NOT BETWEEN e.materialised_at AND c.now
               OR c.now - i.held < greatest(least(i.published_at, c.now), e.materialised_at)
               OR c.now < e.materialised_at
           FROM clock c, unnest($4::uuid[], $5::int8[], $6::int8[], $7::int8[])
             AS i (id, nonce, published_at, held)
           WHERE e.id = ANY (ARRAY[i.id]) AND e.state = 'pending' AND e.token < 9223372036854775807
             AND (e.nonce_node IS DISTINCT FROM $2 OR e.nonce <> i.nonce)
           RETURNING e.id, e.token, e.attempts, e.due_at, e.leased_at AS "leased_at!", e.cancel_requested,
             c.now AS "now!""#,
        *now,
        ask.node.as_uuid(),
        micros(ask.ttl),
        &open.keys().map(|id| id.as_uuid()).collect::<Vec<_>>(),
        &open.values().map(|(_, item)| stored_nonce(item.nonce)).collect::<Vec<_>>(),
        &open.values().map(|(_, item)| item.published_at.as_micros()).collect::<Vec<_>>(),
        &open.values().map(|(_, item)| micros(item.held)).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    for row in rows {
        *now = Some(row.now);
        let (at, _) = open[&ExecutionId::from_uuid(row.id)];
        replies[at] = Some(AcquireReply::Granted(Grant {
            token: FencingToken::from_i64(row.token),
            attempts: read::count("execution.attempts", row.attempts)?,
            age: Timestamp::from_micros(row.leased_at).since(Timestamp::from_micros(row.due_at)),
            cancel: read::cancel(row.cancel_requested),
        }));
    }
    Ok(())
}

/// An execution that was not granted.
struct HeldColumns {
    id: Uuid,
    state: String,
    token: i64,
    attempts: i32,
    nonce: i64,
    nonce_node: Option<Uuid>,
    expires_at: i64,
    due_at: i64,
    leased_at: Option<i64>,
    cancel_requested: bool,
}

/// Answers what was not granted, as things stand. Leaves open what could be granted by now.
async fn explain(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &AcquireExecutions,
    now: &mut Option<i64>,
    replies: &mut [Option<AcquireReply>],
) -> Result<(), Fault> {
    let ids: Vec<Uuid> = open_items(ask, replies).keys().map(|id| id.as_uuid()).collect();
    let rows = sqlx::query_as!(
        HeldColumns,
        "SELECT e.id, e.state, e.token, e.attempts, e.nonce, e.nonce_node, e.expires_at, e.due_at, e.leased_at,
           e.cancel_requested
         FROM unnest($1::uuid[]) AS i (id) JOIN execution e ON e.id = ANY (ARRAY[i.id])",
        &ids,
    )
    .fetch_all(&mut *conn)
    .await?;
    let now = match *now {
        Some(now) => now,
        None => *now.insert(cx.clock(conn).await?),
    };
    let rows: BTreeMap<Uuid, HeldColumns> = rows.into_iter().map(|row| (row.id, row)).collect();
    for (at, item) in ask.items.iter().enumerate() {
        if replies[at].is_none() {
            replies[at] = match rows.get(&item.execution.as_uuid()) {
                None => Some(AcquireReply::Absent),
                Some(row) => answer(row, ask.node, item, Timestamp::from_micros(now))?,
            };
        }
    }
    Ok(())
}

/// What an item is told of a row that it was not granted; `None` where it could be granted.
fn answer(
    row: &HeldColumns,
    node: NodeId,
    item: &AcquireExecution,
    now: Timestamp,
) -> Result<Option<AcquireReply>, Fault> {
    let state = read::state(&row.state)?;
    if row.nonce_node == Some(node.as_uuid()) && row.nonce == stored_nonce(item.nonce) {
        let runs_on =
            state == ExecutionState::Running && !may_be_taken(Timestamp::from_micros(row.expires_at), now);
        let leased_at = read::instant(row.leased_at).filter(|_| runs_on);
        return Ok(Some(match leased_at {
            Some(leased_at) => AcquireReply::Granted(Grant {
                token: FencingToken::from_i64(row.token),
                attempts: read::count("execution.attempts", row.attempts)?,
                age: leased_at.since(Timestamp::from_micros(row.due_at)),
                cancel: read::cancel(row.cancel_requested),
            }),
            None => AcquireReply::Never { state },
        }));
    }
    Ok(match state {
        ExecutionState::Pending if row.token == i64::MAX => Some(AcquireReply::Never { state }),
        ExecutionState::Pending => None,
        ExecutionState::RetryWait => Some(AcquireReply::NotNow { state }),
        ExecutionState::Running
        | ExecutionState::Completed
        | ExecutionState::DeadLettered
        | ExecutionState::Failed
        | ExecutionState::Cancelled
        | ExecutionState::Skipped => Some(AcquireReply::Never { state }),
    })
}
