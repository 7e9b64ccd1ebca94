//! Retries that came due and waits that are over: each gets its next outbox row.
//!
//! What pauses of tenants and queues held back that have ended comes along where there is room for it. Mostly there is no
//! such pause; what is not of these partitions is passed over in the index.

use std::collections::BTreeSet;

use fencepost_core::lease::LeaseResource;
use fencepost_core::store::command::PromoteDue;
use fencepost_core::store::reply::{Reply, StoreReply};
use fencepost_core::store::row::{RefusedAction, RefusedResource};
use sqlx::{Connection, PgConnection};

use super::context::Context;
use super::fault::Fault;
use super::guard::{Guards, number};
use super::outbox::{self, DispatchColumns};
use super::read;
use super::refusals::Refusals;

/// Leases that are no longer the caller's are answered and recorded, and the others served.
pub(super) async fn promote(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &PromoteDue,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let guards = Guards::share(cx, &mut tx, ask.leases.iter().map(|held| held.resource)).await?;
    let now = guards.now;
    let mut refusals = Refusals::new(ask.node, RefusedAction::Promote);
    let mut refused = Vec::new();
    let mut served = BTreeSet::new();
    for held in &ask.leases {
        match (guards.check(ask.node, *held), held.resource) {
            (Ok(()), LeaseResource::Partition(_)) => {
                served.insert(number(held.resource));
            }
            (Ok(()), LeaseResource::Leadership) => {}
            (Err(current), resource) => {
                refusals.note(RefusedResource::Lease(resource), held.token, current);
                refused.push((*held, current));
            }
        }
    }
    let partitions: Vec<i16> = served.into_iter().collect();
    // What is lifted comes after whatever is due, by pause and id.
    let rows = sqlx::query_as!(
        DispatchColumns,
        r#"WITH picked AS MATERIALIZED (
             SELECT e.id, e.next_try_at FROM execution e
             WHERE e.next_try_at <= $1 AND e.partition = ANY($2)
             ORDER BY e.next_try_at, e.id LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED),
           lifted AS MATERIALIZED (
             SELECT h.id, h.held_by FROM (SELECT id FROM pause WHERE lift_until >= $1) AS p
               CROSS JOIN LATERAL (
                 SELECT e.id, e.held_by FROM execution e
                 WHERE e.held_by = p.id AND e.partition = ANY($2) AND e.next_try_at > $1
                 ORDER BY e.id LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED) AS h
             ORDER BY h.held_by, h.id LIMIT greatest($3 - (SELECT count(*) FROM picked), 0)),
           chosen AS (
             SELECT id, next_try_at FROM picked UNION ALL
             SELECT id, 9000000000000000000 + row_number() OVER (ORDER BY held_by, id) FROM lifted),
           promoted AS (
             UPDATE execution e SET state = 'pending', waiting = NULL, held_by = NULL, next_try_at = NULL,
               dispatch_no = e.dispatch_no + 1, dispatched_at = $1
             FROM chosen p WHERE e.id = ANY (ARRAY[p.id])
             RETURNING p.next_try_at AS picked_at, e.id, e.dispatch_no, e.tenant, e.partition, e.job,
               e.job_version, e.occurrence, e.fire, e.manual_key, e.origin, e.replay_number, e.key, e.due_at,
               e.payload),
           dispatched AS (
             INSERT INTO outbox_event
               (execution, dispatch_no, tenant, partition, created_by, created_at, next_try_at, tries)
             SELECT id, dispatch_no, tenant, partition, $4, $1, $1, 0 FROM promoted)
           SELECT picked_at AS "picked_at!", id AS "execution!", dispatch_no AS "dispatch_no!",
             tenant AS "tenant!", job AS "job!", job_version AS "job_version!", occurrence AS "occurrence!",
             fire, manual_key, origin, replay_number, key AS "key!", due_at AS "due_at!", payload
           FROM promoted"#,
        now,
        &partitions,
        i64::from(ask.limit),
        ask.node.as_uuid(),
    )
    .fetch_all(&mut *tx)
    .await?;
    let next_due = sqlx::query_scalar!(
        "SELECT e.next_try_at FROM execution e WHERE e.next_try_at > $1 AND e.partition = ANY($2)
         ORDER BY e.next_try_at LIMIT 1",
        now,
        &partitions,
    )
    .fetch_optional(&mut *tx)
    .await?
    .flatten();
    let dispatches = outbox::dispatches(cx, &mut tx, rows).await?;
    refusals.record(&mut tx, now).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::Promoted { dispatches, refused, next_due: read::instant(next_due) }))
}
