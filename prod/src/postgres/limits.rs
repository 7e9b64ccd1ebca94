//! Concurrency limits: set, counted and given back, decided while the tenant's row is locked.
//!
//! The rules are the reference semantics' own (`limit` there). The tenant's row is what its limits are locked by: it
//! always exists. Which tenants have a limit is told by an index that is mostly empty. Whatever decides by a limit of such
//! a tenant, or ends a run of it, locks the tenant's row first (`lock_limits`) and counts in the next statement. Where no
//! limit is set, acquires and completions stay one statement, share the key of that row, and look once more when they hold
//! it (`tenants_are_unlimited`); setting a limit waits for them. What waits for a limit is never leased by such a
//! statement, so that whoever sets a limit, and dispatches it, waits for nobody who waits for the tenant.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::execution::{ExecutionState, WaitReason};
use fencepost_core::id::{ExecutionId, NodeId, TenantId};
use fencepost_core::limits::{LIMIT_CANDIDATES_MAX, LIMIT_LIFTS_MAX};
use fencepost_core::priority::{ByPriority, Priority};
use fencepost_core::store::command::SetLimit;
use fencepost_core::store::reply::{Reply, SetLimitReply, StoreReply};
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::context::Context;
use super::fault::Fault;
use super::locked::LockedExecutions;
use super::notifications::notify;
use super::{outbox, read};

/// What of an execution its limits are counted by.
type Counted = (TenantId, Option<String>);

/// Locks the tenants of these executions, those that have a limit against each other, and returns these. No limit is set
/// for the others until the transaction ends.
pub(super) async fn lock_tenants(
    conn: &mut PgConnection,
    executions: impl IntoIterator<Item = ExecutionId>,
) -> Result<BTreeSet<TenantId>, Fault> {
    let ids: Vec<Uuid> = executions.into_iter().map(ExecutionId::as_uuid).collect();
    if ids.is_empty() {
        return Ok(BTreeSet::new());
    }
    let tenants = sqlx::query_scalar!(r#"SELECT tenant AS "tenant!" FROM lock_limits($1) AS tenant"#, &ids)
        .fetch_all(conn)
        .await?;
    Ok(tenants.into_iter().map(TenantId::from_uuid).collect())
}

/// The limits of some tenants, and what runs under them.
#[derive(Debug, Default)]
pub(super) struct Limits {
    most: BTreeMap<(TenantId, String), u64>,
    running: BTreeMap<Counted, u64>,
}

impl Limits {
    /// As they stand; to be read once the tenants are locked.
    pub(super) async fn of(conn: &mut PgConnection, tenants: &BTreeSet<TenantId>) -> Result<Self, Fault> {
        if tenants.is_empty() {
            return Ok(Self::default());
        }
        let ids: Vec<Uuid> = tenants.iter().map(|tenant| tenant.as_uuid()).collect();
        let rows = sqlx::query!(
            r#"SELECT tenant, key, max_running AS "max_running!" FROM concurrency_limit
               WHERE tenant = ANY($1) AND max_running IS NOT NULL"#,
            &ids,
        )
        .fetch_all(&mut *conn)
        .await?;
        let mut most = BTreeMap::new();
        for row in rows {
            let max = read::count("concurrency_limit.max_running", row.max_running)?;
            most.insert((TenantId::from_uuid(row.tenant), row.key), u64::from(max));
        }
        let rows = sqlx::query!(
            r#"SELECT e.tenant, (
                 SELECT v.concurrency_key FROM job_version v WHERE v.job = e.job AND v.version = e.job_version) AS key,
                 count(*) AS "running!"
               FROM execution e WHERE e.tenant = ANY($1) AND num_nulls(e.owner) = 0 GROUP BY 1, 2"#,
            &ids,
        )
        .fetch_all(conn)
        .await?;
        let counted =
            |row: Uuid, key, running: i64| ((TenantId::from_uuid(row), key), running.unsigned_abs());
        let running = rows.into_iter().map(|row| counted(row.tenant, row.key, row.running)).collect();
        Ok(Self { most, running })
    }

    /// The limit that one more of this tenant and key would go beyond.
    pub(super) fn in_the_way(&self, tenant: TenantId, key: Option<&str>) -> Option<WaitReason> {
        let most = |key: &str| self.most.get(&(tenant, key.to_owned()));
        let all = || self.running.iter().filter(|((of, _), _)| *of == tenant).map(|(_, count)| count).sum();
        if most("").is_some_and(|most| *most <= all()) {
            return Some(WaitReason::TenantLimit);
        }
        let key = key?;
        let running = self.running.get(&(tenant, Some(key.to_owned()))).copied().unwrap_or_default();
        most(key).is_some_and(|most| *most <= running).then_some(WaitReason::KeyLimit)
    }

    /// One more of this tenant and key runs.
    pub(super) fn begin(&mut self, tenant: TenantId, key: Option<&str>) {
        *self.running.entry((tenant, key.map(str::to_owned))).or_default() += 1;
    }

    fn end(&mut self, tenant: TenantId, key: Option<&str>) {
        let running = self.running.entry((tenant, key.map(str::to_owned))).or_default();
        *running = running.saturating_sub(1);
    }
}

/// The concurrency keys of these executions' versions.
pub(super) async fn keys_of(
    conn: &mut PgConnection,
    executions: impl IntoIterator<Item = ExecutionId>,
) -> Result<BTreeMap<ExecutionId, Option<String>>, Fault> {
    let ids: Vec<Uuid> = executions.into_iter().map(ExecutionId::as_uuid).collect();
    let rows = sqlx::query!(
        "SELECT e.id, (
           SELECT v.concurrency_key FROM job_version v WHERE v.job = e.job AND v.version = e.job_version) AS key
         FROM unnest($1::uuid[]) AS i (id) JOIN execution e ON e.id = ANY (ARRAY[i.id])",
        &ids,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (ExecutionId::from_uuid(row.id), row.key)).collect())
}

/// A run that ended: whose, and who ran it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) execution: ExecutionId,
    pub(super) tenant: TenantId,
    pub(super) node: NodeId,
}

/// What is to follow once the ends of runs are written, in their order: each lifts one of those that wait for a limit and
/// would be granted then.
pub(super) async fn give_back(
    conn: &mut PgConnection,
    tenants: &BTreeSet<TenantId>,
    ended: &[Ended],
    now: i64,
) -> Result<(), Fault> {
    let ended: Vec<Ended> = ended.iter().copied().filter(|end| tenants.contains(&end.tenant)).collect();
    if ended.is_empty() {
        return Ok(());
    }
    let concerned: BTreeSet<TenantId> = ended.iter().map(|end| end.tenant).collect();
    let keys = keys_of(conn, ended.iter().map(|end| end.execution)).await?;
    let key = |end: &Ended| keys.get(&end.execution).and_then(|key| key.as_deref());
    let mut limits = Limits::of(conn, &concerned).await?;
    for end in &ended {
        limits.begin(end.tenant, key(end));
    }
    let mut waiting = BTreeMap::new();
    for tenant in concerned {
        waiting.insert(tenant, Waiting::of(conn, tenant, ended.len()).await?);
    }
    let mut lifted = Vec::new();
    for end in &ended {
        limits.end(end.tenant, key(end));
        let offered_first = Priority::offered_first(end.execution.as_uuid().as_u128());
        let first = waiting.get_mut(&end.tenant);
        let first = first.and_then(|waiting| waiting.take_first(&limits, offered_first));
        lifted.extend(first.map(|id| (id, end.node)));
    }
    dispatch(conn, &lifted, now).await
}

/// What waits for a limit of one tenant, by priority and due time.
struct Waiting {
    tenant: TenantId,
    rows: ByPriority<Vec<(ExecutionId, Option<String>)>>,
}

impl Waiting {
    /// As many as `lifts` of them can be chosen from. Their rank is written by whatever makes them wait.
    async fn of(conn: &mut PgConnection, tenant: TenantId, lifts: usize) -> Result<Self, Fault> {
        let found = sqlx::query!(
            r#"SELECT r.rank AS "rank!", w.id AS "id!", w.key FROM unnest(ARRAY[0, 1, 2]::int2[]) AS r (rank)
               CROSS JOIN LATERAL (
                 SELECT e.id, e.due_at, (
                   SELECT v.concurrency_key FROM job_version v WHERE v.job = e.job AND v.version = e.job_version) AS key
                 FROM execution e
                 WHERE e.tenant = $1 AND e.waiting IN ('tenant_limit', 'key_limit') AND e.limit_rank = r.rank
                 ORDER BY e.due_at, e.id LIMIT $2) AS w
               ORDER BY r.rank, w.due_at, w.id"#,
            tenant.as_uuid(),
            i64::try_from(LIMIT_CANDIDATES_MAX + lifts).unwrap_or(i64::MAX),
        )
        .fetch_all(conn)
        .await?;
        let mut rows = ByPriority::<Vec<_>>::default();
        for row in found {
            let place = Priority::ALL.iter().find(|priority| priority.index() as i64 == i64::from(row.rank));
            let priority = place.copied().unwrap_or_default();
            rows.get_mut(priority).push((ExecutionId::from_uuid(row.id), row.key));
        }
        Ok(Self { tenant, rows })
    }

    fn take_first(&mut self, limits: &Limits, offered_first: Priority) -> Option<ExecutionId> {
        let tenant = self.tenant;
        let may =
            |(_, key): &(ExecutionId, Option<String>)| limits.in_the_way(tenant, key.as_deref()).is_none();
        offered_first.and_then_the_others().find_map(|priority| {
            let rows = self.rows.get_mut(priority);
            let at = rows.iter().take(LIMIT_CANDIDATES_MAX).position(may)?;
            Some(rows.remove(at).0)
        })
    }
}

/// Each gets its next dispatch, in the name of its node, and the owner of its partition hears of it. Whoever was dispatched meanwhile, by the owner's scan, has it.
async fn dispatch(conn: &mut PgConnection, lifted: &[(ExecutionId, NodeId)], now: i64) -> Result<(), Fault> {
    if lifted.is_empty() {
        return Ok(());
    }
    let mut rows = LockedExecutions::lock(conn, lifted.iter().map(|(id, _)| *id)).await?;
    let mut made = Vec::new();
    for (id, node) in lifted {
        let waits = |reason| matches!(reason, WaitReason::TenantLimit | WaitReason::KeyLimit);
        let Some(row) = rows.get_mut(*id).filter(|row| row.waiting.is_some_and(waits)) else { continue };
        row.waiting = None;
        row.next_try_at = None;
        row.dispatch(Timestamp::from_micros(now));
        made.push((row.clone(), *node));
    }
    rows.write(conn).await?;
    for (row, node) in &made {
        outbox::insert(conn, *node, &[row], now).await?;
    }
    for partition in made.iter().map(|(row, _)| row.partition).collect::<BTreeSet<_>>() {
        notify(conn, partition).await?;
    }
    Ok(())
}

/// Checked in this order: the tenant, the request id. The tenant's row is locked against everybody who shares it.
pub(super) async fn set(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &SetLimit,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let (now, reply) = set_within(cx, &mut tx, ask).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::LimitSet(reply)))
}

async fn set_within(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &SetLimit,
) -> Result<(i64, SetLimitReply), Fault> {
    let tenant = sqlx::query_scalar!("SELECT id FROM tenant WHERE id = $1 FOR UPDATE", ask.tenant.as_uuid())
        .fetch_optional(&mut *conn)
        .await?;
    let now = cx.clock(conn).await?;
    if tenant.is_none() {
        return Ok((now, SetLimitReply::NoTenant));
    }
    if let Some(known) = known_request(conn, ask).await? {
        return Ok((now, known));
    }
    sqlx::query!(
        "INSERT INTO concurrency_limit (tenant, key, max_running, actor, reason, set_at) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (tenant, key) DO UPDATE SET max_running = excluded.max_running, actor = excluded.actor,
           reason = excluded.reason, set_at = excluded.set_at",
        ask.tenant.as_uuid(),
        ask.key.as_deref().unwrap_or_default(),
        ask.max_running.map(read::stored_count),
        &*ask.actor,
        &*ask.reason,
        now,
    )
    .execute(&mut *conn)
    .await?;
    if let Some(asked) = &ask.request {
        let done = sqlx::query!(
            "INSERT INTO operator_request (tenant, request, fingerprint, at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (tenant, request) DO NOTHING",
            ask.tenant.as_uuid(),
            &*asked.request,
            asked.fingerprint,
            now,
        )
        .execute(&mut *conn)
        .await?;
        if done.rows_affected() == 0 {
            return Err(Fault::InMotion { table: "operator_request" });
        }
    }
    let limits = Limits::of(conn, &[ask.tenant].into()).await?;
    let mut waiting = Waiting::of(conn, ask.tenant, LIMIT_LIFTS_MAX).await?;
    let lifts = (0..LIMIT_LIFTS_MAX).map(|lift| Priority::offered_first(lift as u128));
    let lifted = lifts.map_while(|offered_first| waiting.take_first(&limits, offered_first));
    let lifted: Vec<_> = lifted.map(|id| (id, ask.node)).collect();
    dispatch(conn, &lifted, now).await?;
    Ok((now, SetLimitReply::Set))
}

async fn known_request(conn: &mut PgConnection, ask: &SetLimit) -> Result<Option<SetLimitReply>, Fault> {
    let Some(asked) = &ask.request else { return Ok(None) };
    let known = sqlx::query!(
        "SELECT fingerprint, job, pause FROM operator_request WHERE tenant = $1 AND request = $2",
        ask.tenant.as_uuid(),
        &*asked.request,
    )
    .fetch_optional(conn)
    .await?;
    Ok(known.map(|known| {
        let is_this = known.fingerprint == asked.fingerprint && known.job.is_none() && known.pause.is_none();
        if is_this { SetLimitReply::Repeated } else { SetLimitReply::RequestReused }
    }))
}

/// Whether a row has stopped running.
pub(super) const fn has_stopped(before: ExecutionState, after: ExecutionState) -> bool {
    matches!(before, ExecutionState::Running) && !matches!(after, ExecutionState::Running)
}
