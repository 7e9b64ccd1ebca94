//! Pauses of a tenant and of its queues: those in force, and the latest of those that have ended.

use std::sync::Arc;

use fencepost_core::id::{PauseId, TenantId};
use fencepost_core::job::{HandlerName, HandlerRef, StoredDefinition};
use fencepost_core::limits::TOLD_PAUSES_MAX;
use fencepost_core::pause::{PauseScope, queue_of};
use fencepost_core::store::row::{ExecutionRow, PauseEnd, PauseRow};
use fencepost_core::time::Timestamp;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::limit;
use crate::postgres::fault::Fault;
use crate::postgres::read;

struct Columns {
    id: Uuid,
    tenant: Uuid,
    since: i64,
    ended_at: Option<i64>,
    lift_until: Option<i64>,
    scope: String,
    handler: Option<String>,
    handler_version: Option<i64>,
    actor: String,
    reason: String,
    ended_by: Option<String>,
    ended_reason: Option<String>,
}

impl Columns {
    fn read(self) -> Result<PauseRow, Fault> {
        let unknown = |column, value: &str| Fault::Unknown { column, value: value.to_owned() };
        let scope = match (self.scope.as_str(), self.handler, self.handler_version) {
            ("tenant", None, None) => PauseScope::Tenant,
            ("queue", Some(name), Some(version)) => {
                let name = HandlerName::parse(&name).map_err(|_| unknown("pause.handler", &name))?;
                PauseScope::Queue(HandlerRef {
                    name,
                    version: read::count("pause.handler_version", version)?,
                })
            }
            (other, _, _) => return Err(unknown("pause.scope", other)),
        };
        let ended = match (self.ended_at, self.ended_by, self.ended_reason) {
            (Some(at), Some(actor), Some(reason)) => {
                Some(PauseEnd { at: Timestamp::from_micros(at), actor: actor.into(), reason: reason.into() })
            }
            (_, _, _) => None,
        };
        Ok(PauseRow {
            id: PauseId::from_uuid(self.id),
            tenant: TenantId::from_uuid(self.tenant),
            scope,
            since: Timestamp::from_micros(self.since),
            actor: self.actor.into(),
            reason: self.reason.into(),
            ended,
            lift_until: read::instant(self.lift_until),
        })
    }
}

fn read_all(rows: Vec<Columns>) -> Result<Vec<PauseRow>, Fault> {
    rows.into_iter().map(Columns::read).collect()
}

/// Those in force over an execution, its tenant's first, and the one that it is held back by.
pub(super) async fn over(
    conn: &mut PgConnection,
    row: &ExecutionRow,
    definition: &Arc<StoredDefinition>,
) -> Result<Vec<PauseRow>, Fault> {
    let queue = queue_of(definition);
    let rows = sqlx::query_as!(
        Columns,
        "SELECT id, tenant, since, ended_at, lift_until, scope, handler, handler_version, actor, reason, ended_by,
           ended_reason
         FROM pause WHERE tenant = $1 AND ended_at IS NULL
             AND (scope = 'tenant' OR (handler = $2 AND handler_version = $3))
           OR id = $4 AND tenant = $1
         ORDER BY scope DESC, since, id",
        row.tenant.as_uuid(),
        queue.as_ref().map(|queue| queue.name.as_str()),
        queue.as_ref().map(|queue| i64::from(queue.version)),
        row.held_by.map(PauseId::as_uuid),
    )
    .fetch_all(conn)
    .await?;
    read_all(rows)
}

/// The pauses of a tenant, as one snapshot shows them: those in force, and the latest that have ended, the last first.
#[derive(Debug)]
pub(crate) struct TenantPauses {
    pub(crate) name: Arc<str>,
    pub(crate) in_force: Vec<PauseRow>,
    pub(crate) ended: Vec<PauseRow>,
}

/// All of a tenant's; `None` where there is no such tenant.
pub(crate) async fn of_tenant(pool: &PgPool, tenant: TenantId) -> Result<Option<TenantPauses>, Fault> {
    let mut snapshot = pool.begin_with(super::SNAPSHOT).await?;
    let name = sqlx::query_scalar!("SELECT name FROM tenant WHERE id = $1", tenant.as_uuid())
        .fetch_optional(&mut *snapshot)
        .await?;
    let Some(name) = name else { return Ok(None) };
    let in_force = sqlx::query_as!(
        Columns,
        "SELECT id, tenant, since, ended_at, lift_until, scope, handler, handler_version, actor, reason, ended_by,
           ended_reason
         FROM pause WHERE tenant = $1 AND ended_at IS NULL
         ORDER BY scope DESC, coalesce(handler, ''), coalesce(handler_version, 0) LIMIT $2",
        tenant.as_uuid(),
        limit(QUEUES_MAX),
    )
    .fetch_all(&mut *snapshot)
    .await?;
    let ended = sqlx::query_as!(
        Columns,
        "SELECT id, tenant, since, ended_at, lift_until, scope, handler, handler_version, actor, reason, ended_by,
           ended_reason
         FROM pause WHERE tenant = $1 AND ended_at IS NOT NULL ORDER BY ended_at DESC, id DESC LIMIT $2",
        tenant.as_uuid(),
        limit(TOLD_PAUSES_MAX),
    )
    .fetch_all(&mut *snapshot)
    .await?;
    snapshot.commit().await?;
    Ok(Some(TenantPauses { name: name.into(), in_force: read_all(in_force)?, ended: read_all(ended)? }))
}

/// Pauses in force, and queues, of one tenant that are told.
pub(crate) const QUEUES_MAX: usize = 1_000;

/// The queues that a tenant's active jobs go to by their current definitions, with how many jobs do, by name and
/// version.
pub(crate) async fn queues(pool: &PgPool, tenant: TenantId) -> Result<Vec<(HandlerRef, i64)>, Fault> {
    let rows = sqlx::query!(
        r#"SELECT q.queue AS "queue!", count(*) AS "jobs!"
           FROM (SELECT queue_of(definition) AS queue FROM job WHERE tenant = $1 AND state = 'active') AS q
           WHERE q.queue IS NOT NULL GROUP BY q.queue ORDER BY q.queue LIMIT $2"#,
        tenant.as_uuid(),
        limit(QUEUES_MAX),
    )
    .fetch_all(pool)
    .await?;
    let read = |queue: &str| {
        let (name, version) = queue.rsplit_once('/')?;
        Some(HandlerRef { name: HandlerName::parse(name).ok()?, version: version.parse().ok()? })
    };
    Ok(rows.into_iter().filter_map(|row| Some((read(&row.queue)?, row.jobs))).collect())
}

/// How many of a pause's executions wait for it, counted up to a bound.
pub(crate) async fn waiting(pool: &PgPool, pause: PauseId, most: usize) -> Result<i64, Fault> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM (SELECT FROM execution WHERE held_by = $1 LIMIT $2) AS held"#,
        pause.as_uuid(),
        limit(most),
    )
    .fetch_one(pool)
    .await?;
    Ok(count)
}
