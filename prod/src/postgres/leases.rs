//! Leadership and partitions: granted by expiry, kept by owner and token.
//!
//! An acquisition locks `FOR UPDATE`, so it waits for the guarded writes under way, and so does a release: what a
//! node gives up it does not write under any more. A renewal locks `FOR NO KEY UPDATE` and passes them by. All
//! decide by the rows as locked and the clock as read after that.

use std::collections::BTreeMap;

use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{EffectId, NodeId};
use fencepost_core::lease::{HeldLease, LeaseResource, may_be_taken};
use fencepost_core::limits::LEASE_TTL_MAX;
use fencepost_core::store::command::{AcquireLeadership, AcquirePartitions, ReleaseLeases, RenewLeases};
use fencepost_core::store::reply::{HoldReply, LeadershipReply, Reply, StoreReply};
use fencepost_core::store::row::{RefusedAction, RefusedResource};
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::context::{Context, later};
use super::fault::Fault;
use super::guard::number;
use super::refusals::Refusals;

/// A lease row as locked.
struct LeaseColumns {
    resource: i16,
    token: i64,
    owner: Option<Uuid>,
    nonce: i64,
    expires_at: i64,
}

impl LeaseColumns {
    fn token(&self) -> FencingToken {
        FencingToken::from_i64(self.token)
    }

    fn is_over(&self, now: i64) -> bool {
        may_be_taken(Timestamp::from_micros(self.expires_at), Timestamp::from_micros(now))
    }

    fn is_free(&self, now: i64) -> bool {
        self.owner.is_none() || self.is_over(now)
    }

    fn is_repeated(&self, node: NodeId, nonce: EffectId, now: i64) -> bool {
        self.owner == Some(node.as_uuid()) && self.nonce == stored_nonce(nonce) && !self.is_over(now)
    }

    fn is_held(&self, node: NodeId, token: FencingToken) -> bool {
        self.owner == Some(node.as_uuid()) && self.token() == token
    }
}

/// A nonce as it is stored: the same 64 bits.
pub(super) const fn stored_nonce(nonce: EffectId) -> i64 {
    nonce.0.cast_signed()
}

/// Writes grants: the next token of each.
async fn grant(
    conn: &mut PgConnection,
    resources: &[i16],
    node: NodeId,
    nonce: EffectId,
    expires_at: i64,
) -> Result<(), Fault> {
    sqlx::query!(
        "UPDATE lease SET token = token + 1, owner = $2, nonce = $3, expires_at = $4 WHERE resource = ANY($1)",
        resources,
        node.as_uuid(),
        stored_nonce(nonce),
        expires_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(super) async fn acquire_leadership(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &AcquireLeadership,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let leadership = number(LeaseResource::Leadership);
    let row = sqlx::query_as!(
        LeaseColumns,
        "SELECT resource, token, owner, nonce, expires_at FROM lease WHERE resource = $1 FOR UPDATE",
        leadership,
    )
    .fetch_one(&mut *tx)
    .await?;
    let now = cx.clock(&mut tx).await?;
    let reply = if row.is_repeated(ask.node, ask.nonce, now) {
        LeadershipReply::Granted { token: row.token() }
    } else {
        match row.token().next().filter(|_| row.is_free(now)) {
            Some(token) => {
                grant(&mut tx, &[leadership], ask.node, ask.nonce, later(now, ask.ttl)).await?;
                LeadershipReply::Granted { token }
            }
            None => LeadershipReply::Held { expires_at: Timestamp::from_micros(row.expires_at) },
        }
    };
    tx.commit().await?;
    Ok(cx.reply(now, Reply::Leadership(reply)))
}

/// Looks for candidates by the clock before the locks, so that the guards of live owners are not waited for,
/// and decides by the clock after them.
pub(super) async fn acquire_partitions(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &AcquirePartitions,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let looked_at = cx.clock(&mut tx).await?;
    let rows = sqlx::query_as!(
        LeaseColumns,
        "SELECT resource, token, owner, nonce, expires_at FROM lease
         WHERE resource < $1 AND (owner IS NULL OR expires_at <= $2::int8 OR expires_at > $2::int8 + $3::int8
           OR (owner = $4 AND nonce = $5))
         ORDER BY resource FOR UPDATE",
        number(LeaseResource::Leadership),
        looked_at,
        LEASE_TTL_MAX.as_i64(),
        ask.node.as_uuid(),
        stored_nonce(ask.nonce),
    )
    .fetch_all(&mut *tx)
    .await?;
    let now = cx.clock(&mut tx).await?;
    let held = |row: &LeaseColumns, token| HeldLease {
        resource: LeaseResource::from_number(row.resource.unsigned_abs())
            .expect("the table holds 129 resources"),
        token,
    };
    let repeated: Vec<HeldLease> = rows
        .iter()
        .filter(|row| row.is_repeated(ask.node, ask.nonce, now))
        .map(|row| held(row, row.token()))
        .collect();
    let granted = if repeated.is_empty() {
        // A row is free only if it was by both clocks: between the two somebody may have renewed it.
        let free = rows.iter().filter(|row| row.is_free(looked_at) && row.is_free(now));
        let granted: Vec<HeldLease> = free
            .filter_map(|row| row.token().next().map(|token| held(row, token)))
            .take(ask.limit as usize)
            .collect();
        let resources: Vec<i16> = granted.iter().map(|lease| number(lease.resource)).collect();
        if !resources.is_empty() {
            grant(&mut tx, &resources, ask.node, ask.nonce, later(now, ask.ttl)).await?;
        }
        granted
    } else {
        repeated
    };
    tx.commit().await?;
    Ok(cx.reply(now, Reply::Partitions { granted }))
}

/// Lease rows by number.
type Locked = BTreeMap<i16, LeaseColumns>;

/// The leases that were presented, locked against writes but not against guards.
async fn lock_to_renew(conn: &mut PgConnection, leases: &[HeldLease]) -> Result<Locked, Fault> {
    let numbers: Vec<i16> = leases.iter().map(|held| number(held.resource)).collect();
    let rows = sqlx::query_as!(
        LeaseColumns,
        "SELECT resource, token, owner, nonce, expires_at FROM lease WHERE resource = ANY($1)
         ORDER BY resource FOR NO KEY UPDATE",
        &numbers,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.resource, row)).collect())
}

/// The leases that were presented, once no guarded write is under way: one that had read its guard before the release
/// would else read and write the rest after it.
async fn lock_to_release(conn: &mut PgConnection, leases: &[HeldLease]) -> Result<Locked, Fault> {
    let numbers: Vec<i16> = leases.iter().map(|held| number(held.resource)).collect();
    let rows = sqlx::query_as!(
        LeaseColumns,
        "SELECT resource, token, owner, nonce, expires_at FROM lease WHERE resource = ANY($1)
         ORDER BY resource FOR UPDATE",
        &numbers,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.resource, row)).collect())
}

pub(super) async fn renew(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &RenewLeases,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let rows = lock_to_renew(&mut tx, &ask.leases).await?;
    let now = cx.clock(&mut tx).await?;
    let mut refusals = Refusals::new(ask.node, RefusedAction::RenewLease);
    let mut renewed = Vec::new();
    let mut replies = Vec::with_capacity(ask.leases.len());
    for held in &ask.leases {
        let row = &rows[&number(held.resource)];
        if row.is_held(ask.node, held.token) {
            renewed.push(row.resource);
            replies.push(HoldReply::Done);
        } else {
            refusals.note(RefusedResource::Lease(held.resource), held.token, row.token());
            replies.push(HoldReply::Refused { current: row.token() });
        }
    }
    if !renewed.is_empty() {
        write(&mut tx, &renewed, Some(ask.node), later(now, ask.ttl)).await?;
    }
    refusals.record(&mut tx, now).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::LeasesRenewed(replies)))
}

/// Owner and expiry alone: no key changes.
async fn write(
    conn: &mut PgConnection,
    resources: &[i16],
    owner: Option<NodeId>,
    expires_at: i64,
) -> Result<(), Fault> {
    sqlx::query!(
        "UPDATE lease SET owner = $2, expires_at = $3 WHERE resource = ANY($1)",
        resources,
        owner.map(NodeId::as_uuid) as Option<Uuid>,
        expires_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What nobody holds and was last granted under the token presented has been released already.
pub(super) async fn release(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &ReleaseLeases,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let rows = lock_to_release(&mut tx, &ask.leases).await?;
    let now = cx.clock(&mut tx).await?;
    let mut released = Vec::new();
    let mut replies = Vec::with_capacity(ask.leases.len());
    for held in &ask.leases {
        let row = &rows[&number(held.resource)];
        if row.is_held(ask.node, held.token) {
            released.push(row.resource);
            replies.push(HoldReply::Done);
        } else if row.owner.is_none() && row.token() == held.token {
            replies.push(HoldReply::Done);
        } else {
            replies.push(HoldReply::Refused { current: row.token() });
        }
    }
    if !released.is_empty() {
        write(&mut tx, &released, None, Timestamp::EPOCH.as_micros()).await?;
    }
    tx.commit().await?;
    Ok(cx.reply(now, Reply::LeasesReleased(replies)))
}
