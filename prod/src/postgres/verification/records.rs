//! Records beside jobs and executions: leases, refusals under them, and rows whose job or execution is not there.

use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{EffectId, ExecutionId, JobId, NodeId};
use fencepost_core::lease::LeaseResource;
use fencepost_core::store::row::{LeaseRow, RefusalRow, RefusedAction, RefusedResource};
use fencepost_core::time::Timestamp;
use fencepost_core::verify::{Orphan, OrphanKind};
use sqlx::PgConnection;
use uuid::Uuid;

use super::Reading;
use super::cursor::Cursor;
use crate::postgres::fault::Fault;
use crate::postgres::read;

#[derive(sqlx::FromRow)]
struct LeaseColumns {
    resource: i16,
    token: i64,
    owner: Option<Uuid>,
    nonce: i64,
    expires_at: i64,
}

impl LeaseColumns {
    fn read(self) -> Result<LeaseRow, Fault> {
        let resource = u16::try_from(self.resource).ok().and_then(LeaseResource::from_number);
        let unknown = || Fault::Unknown { column: "lease.resource", value: self.resource.to_string() };
        Ok(LeaseRow {
            resource: resource.ok_or_else(unknown)?,
            token: FencingToken::from_i64(self.token),
            owner: self.owner.map(NodeId::from_uuid),
            nonce: EffectId(self.nonce.cast_unsigned()),
            expires_at: Timestamp::from_micros(self.expires_at),
        })
    }
}

/// Reads the leases, of which there are 129.
pub(super) async fn leases(conn: &mut PgConnection, reading: &mut Reading<'_>) -> Result<(), Fault> {
    let select = "SELECT resource, token, owner, nonce, expires_at FROM lease ORDER BY resource";
    let mut leases: Cursor<LeaseColumns> = Cursor::open(conn, "verified_lease", select).await?;
    while let Some(row) = leases.next(conn, reading.progress).await? {
        if let Some(row) = reading.readable(None, None, row.read())? {
            reading.verifier.lease(&row);
        }
    }
    Ok(())
}

/// The columns of a refusal.
#[derive(sqlx::FromRow)]
pub(super) struct RefusalColumns {
    pub(super) resource: String,
    token: i64,
    node: Uuid,
    action: String,
    current: i64,
    first_at: i64,
    last_at: i64,
    count: i64,
}

impl RefusalColumns {
    /// The execution that it is about, if it is about one.
    pub(super) fn execution(&self) -> Option<ExecutionId> {
        self.resource.strip_prefix("execution/")?.parse().ok()
    }

    fn about(&self) -> Option<RefusedResource> {
        if let Some(execution) = self.execution() {
            return Some(RefusedResource::Execution(execution));
        }
        let number = self.resource.strip_prefix("lease/")?.parse().ok()?;
        LeaseResource::from_number(number).map(RefusedResource::Lease)
    }

    pub(super) fn read(self) -> Result<RefusalRow, Fault> {
        let unknown = || Fault::Unknown { column: "refusal.resource", value: self.resource.clone() };
        Ok(RefusalRow {
            resource: self.about().ok_or_else(unknown)?,
            token: FencingToken::from_i64(self.token),
            node: NodeId::from_uuid(self.node),
            action: read::named("refusal.action", &self.action, RefusedAction::from_name)?,
            current: FencingToken::from_i64(self.current),
            first_at: Timestamp::from_micros(self.first_at),
            last_at: Timestamp::from_micros(self.last_at),
            count: u64::try_from(self.count).unwrap_or(0),
        })
    }
}

/// Reads what was refused, but for what is about executions: that comes with those.
pub(super) async fn refusals(conn: &mut PgConnection, reading: &mut Reading<'_>) -> Result<(), Fault> {
    let (from, to) = (reading.window.from.as_micros(), reading.window.to.as_micros());
    let select = format!(
        "SELECT resource, token, node, action, current, first_at, last_at, count FROM refusal
         WHERE resource NOT LIKE 'execution/%' AND last_at >= '{from}'::int8
           AND first_at < '{to}'::int8
         ORDER BY resource, token, node, action"
    );
    let mut refusals: Cursor<RefusalColumns> = Cursor::open(conn, "verified_refusal", &select).await?;
    while let Some(row) = refusals.next(conn, reading.progress).await? {
        if let Some(row) = reading.readable(None, None, row.read())? {
            reading.verifier.lease_refusal(&row);
        }
    }
    Ok(())
}

/// Every row that names a job or an execution that is not there.
const ORPHANS: &str = "
    SELECT 'attempt' AS kind, NULL::uuid AS job, a.execution FROM attempt a
    WHERE NOT EXISTS (SELECT FROM execution e WHERE e.id = a.execution)
    UNION ALL
    SELECT 'outbox', NULL, o.execution FROM outbox_event o
    WHERE NOT EXISTS (SELECT FROM execution e WHERE e.id = o.execution)
    UNION ALL
    SELECT 'dead_letter', d.job, d.execution FROM dead_letter d
    WHERE NOT EXISTS (SELECT FROM execution e WHERE e.id = d.execution)
    UNION ALL
    SELECT 'skipped_range', s.job, NULL FROM skipped_range s
    WHERE NOT EXISTS (SELECT FROM job j WHERE j.id = s.job)
    UNION ALL
    SELECT 'job_version', v.job, NULL FROM job_version v
    WHERE NOT EXISTS (SELECT FROM job j WHERE j.id = v.job)
    UNION ALL
    SELECT 'refusal', NULL, r.execution FROM (
      SELECT substr(resource, 11) AS execution FROM refusal WHERE resource LIKE 'execution/%') AS t
      CROSS JOIN LATERAL (SELECT t.execution::uuid) AS r (execution)
    WHERE NOT EXISTS (SELECT FROM execution e WHERE e.id = r.execution)
    UNION ALL
    SELECT 'request', q.job, q.execution FROM operator_request q
    WHERE (q.job IS NOT NULL AND NOT EXISTS (SELECT FROM job j WHERE j.id = q.job))
       OR (q.execution IS NOT NULL AND NOT EXISTS (SELECT FROM execution e WHERE e.id = q.execution))";

#[derive(sqlx::FromRow)]
struct OrphanColumns {
    kind: String,
    job: Option<Uuid>,
    execution: Option<Uuid>,
}

/// Reads the rows that belong to nothing.
pub(super) async fn orphans(conn: &mut PgConnection, reading: &mut Reading<'_>) -> Result<(), Fault> {
    let mut orphans: Cursor<OrphanColumns> = Cursor::open(conn, "verified_orphan", ORPHANS).await?;
    while let Some(row) = orphans.next(conn, reading.progress).await? {
        let kind = match row.kind.as_str() {
            "attempt" => OrphanKind::Attempt,
            "outbox" => OrphanKind::Outbox,
            "dead_letter" => OrphanKind::DeadLetter,
            "skipped_range" => OrphanKind::SkippedRange,
            "job_version" => OrphanKind::JobVersion,
            "refusal" => OrphanKind::Refusal,
            _ => OrphanKind::Request,
        };
        reading.verifier.orphan(&Orphan {
            kind,
            job: row.job.map(JobId::from_uuid),
            execution: row.execution.map(ExecutionId::from_uuid),
        });
    }
    Ok(())
}
