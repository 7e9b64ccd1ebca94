//! What an explanation looks at, read in one snapshot: rows by their primary key, or few of them by an index.
//!
//! The rows that belong to tenants are those of the one that asks; leases and nodes belong to none. Every list has a
//! limit of `limits`, so the work does not grow with what is in the tables.

use std::sync::Arc;

use fencepost_core::explain::{ExecutionFacts, JobFacts, Spans};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{EffectId, ExecutionId, JobId, JobVersion, NodeId, TenantId};
use fencepost_core::job::{Standing, StoredDefinition};
use fencepost_core::lease::LeaseResource;
use fencepost_core::limits::EXPLAINED_NODES_MAX;
use fencepost_core::store::row::{JobRow, JobState, LeaseRow, NodeRole, NodeRow, NodeState};
use fencepost_core::time::Timestamp;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::due_jobs::{partition, unreadable};
use super::fault::Fault;
use super::read;

mod changes;
mod execution;
mod ledger;
pub(crate) mod pauses;

/// One snapshot, which nothing is written in.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A bound as LIMIT takes it.
fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

/// The facts of one execution; `None` where the tenant has none of this id.
pub(crate) async fn of_execution(
    pool: &PgPool,
    tenant: TenantId,
    id: ExecutionId,
    spans: Spans,
) -> Result<Option<ExecutionFacts>, Fault> {
    let mut snapshot = pool.begin_with(SNAPSHOT).await?;
    let Some((now, row)) = execution::row(&mut snapshot, tenant, id).await? else { return Ok(None) };
    let missing = || Fault::Unknown { column: "execution.job", value: row.job.to_string() };
    let (_, job) = job_row(&mut snapshot, tenant, row.job).await?.ok_or_else(missing)?;
    let definition = if job.version == row.job_version {
        Arc::clone(&job.definition)
    } else {
        version(&mut snapshot, row.job, row.job_version).await?
    };
    let leases = [LeaseResource::Partition(row.partition), LeaseResource::Leadership];
    let [partition_lease, leadership] = leases_of(&mut snapshot, leases).await?;
    let worker = match row.owner.or(row.nonce_node) {
        Some(worker) => node(&mut snapshot, worker).await?,
        None => None,
    };
    let facts = ExecutionFacts {
        now,
        spans,
        attempts: execution::attempts(&mut snapshot, &row).await?,
        dead_letter: execution::dead_letter(&mut snapshot, &row).await?,
        refusals: execution::refusals(&mut snapshot, id).await?,
        outbox: execution::outbox(&mut snapshot, &row).await?,
        nodes: if row.state.is_terminal() { Vec::new() } else { present_nodes(&mut snapshot).await? },
        standing: changes::standing(&mut snapshot, &job).await?,
        limit: execution::limit_waited_for(&mut snapshot, &row, &definition).await?,
        slot_holders: execution::slot_holders(&mut snapshot, &row).await?,
        pauses: pauses::over(&mut snapshot, &row, &definition).await?,
        job,
        definition,
        partition_lease,
        leadership,
        worker,
        execution: row,
    };
    snapshot.commit().await?;
    Ok(Some(facts))
}

/// The facts of one job; `None` where the tenant has none of this id.
pub(crate) async fn of_job(pool: &PgPool, tenant: TenantId, id: JobId) -> Result<Option<JobFacts>, Fault> {
    let mut snapshot = pool.begin_with(SNAPSHOT).await?;
    let Some((now, job)) = job_row(&mut snapshot, tenant, id).await? else { return Ok(None) };
    let [partition_lease] = leases_of(&mut snapshot, [LeaseResource::Partition(job.partition)]).await?;
    let owner = match partition_lease.owner {
        Some(owner) => node(&mut snapshot, owner).await?,
        None => None,
    };
    let skipped = ledger::skipped(&mut snapshot, tenant, id).await?;
    let facts = JobFacts {
        now,
        executions: ledger::executions(&mut snapshot, tenant, id).await?,
        pauses: changes::pauses(&mut snapshot, &job, &skipped).await?,
        skipped,
        live: ledger::live(&mut snapshot, tenant, id).await?,
        standing: changes::standing(&mut snapshot, &job).await?,
        earlier: changes::earlier(&mut snapshot, &job).await?,
        changes: changes::latest(&mut snapshot, &job).await?,
        job,
        partition_lease,
        owner,
    };
    snapshot.commit().await?;
    Ok(Some(facts))
}

/// A job's row and the clock; `None` where the tenant has none of this id. What a change of it is planned on.
pub(crate) async fn job_and_clock(
    pool: &PgPool,
    tenant: TenantId,
    id: JobId,
) -> Result<Option<(Timestamp, JobRow)>, Fault> {
    job_row(&mut *pool.acquire().await?, tenant, id).await
}

/// A job's row and the clock.
async fn job_row(
    conn: &mut PgConnection,
    tenant: TenantId,
    id: JobId,
) -> Result<Option<(Timestamp, JobRow)>, Fault> {
    let row = sqlx::query!(
        r#"SELECT store_now(NULL) AS "now!", partition, version, state, standing, standing_since, definition, effective_from,
             recorded_through, next_fire_time, next_try_at, runs, created_at, unreadable_reason, unreadable_schema,
             unreadable_zone_data
           FROM job WHERE id = $1 AND tenant = $2"#,
        id.as_uuid(),
        tenant.as_uuid(),
    )
    .fetch_optional(conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let unreadable = match (row.unreadable_reason, row.unreadable_schema, row.unreadable_zone_data) {
        (Some(reason), Some(schema), Some(zone_data)) => Some(unreadable(reason, schema, zone_data)?),
        (_, _, _) => None,
    };
    let job = JobRow {
        id,
        tenant,
        partition: partition(row.partition)?,
        version: JobVersion(read::count("job.version", row.version)?),
        state: read::named("job.state", &row.state, JobState::from_name)?,
        standing: read::named("job.standing", &row.standing, Standing::from_name)?,
        standing_since: JobVersion(read::count("job.standing_since", row.standing_since)?),
        definition: Arc::new(StoredDefinition::from_text(row.definition.into())),
        effective_from: Timestamp::from_micros(row.effective_from),
        recorded_through: Timestamp::from_micros(row.recorded_through),
        next_fire_time: read::instant(row.next_fire_time),
        next_try_at: Timestamp::from_micros(row.next_try_at),
        runs: row.runs.unsigned_abs(),
        unreadable,
        created_at: Timestamp::from_micros(row.created_at),
    };
    Ok(Some((Timestamp::from_micros(row.now), job)))
}

/// The definition of one version of a job.
async fn version(
    conn: &mut PgConnection,
    job: JobId,
    version: JobVersion,
) -> Result<Arc<StoredDefinition>, Fault> {
    let text = sqlx::query_scalar!(
        "SELECT definition FROM job_version WHERE job = $1 AND version = $2",
        job.as_uuid(),
        i64::from(version.0),
    )
    .fetch_optional(conn)
    .await?;
    let missing = || Fault::Unknown { column: "job_version.version", value: format!("{job} {version:?}") };
    Ok(Arc::new(StoredDefinition::from_text(text.ok_or_else(missing)?.into())))
}

/// The rows of these leases, which are there from the start.
async fn leases_of<const N: usize>(
    conn: &mut PgConnection,
    resources: [LeaseResource; N],
) -> Result<[LeaseRow; N], Fault> {
    let numbers = resources.map(|resource| i16::try_from(resource.number()).unwrap_or(i16::MAX));
    let rows = sqlx::query!(
        "SELECT resource, token, owner, nonce, expires_at FROM lease WHERE resource = ANY($1)",
        numbers.as_slice(),
    )
    .fetch_all(conn)
    .await?;
    let mut found = Vec::with_capacity(N);
    for (resource, number) in resources.into_iter().zip(numbers) {
        let missing = || Fault::Unknown { column: "lease.resource", value: number.to_string() };
        let row = rows.iter().find(|row| row.resource == number).ok_or_else(missing)?;
        found.push(LeaseRow {
            resource,
            token: FencingToken::from_i64(row.token),
            owner: row.owner.map(NodeId::from_uuid),
            nonce: EffectId(row.nonce.cast_unsigned()),
            expires_at: Timestamp::from_micros(row.expires_at),
        });
    }
    Ok(found.try_into().expect("one was found for each that was asked for"))
}

struct NodeColumns {
    id: Uuid,
    role: String,
    label: String,
    schema: i32,
    state: String,
    capacity: i64,
    started_at: i64,
    seen_at: i64,
}

impl NodeColumns {
    fn read(self) -> Result<NodeRow, Fault> {
        let schema = u16::try_from(self.schema)
            .map_err(|_| Fault::Unknown { column: "node.schema", value: self.schema.to_string() })?;
        Ok(NodeRow {
            id: NodeId::from_uuid(self.id),
            role: read::named("node.role", &self.role, NodeRole::from_name)?,
            label: self.label.into(),
            schema,
            state: read::named("node.state", &self.state, NodeState::from_name)?,
            capacity: read::count("node.capacity", self.capacity)?,
            started_at: Timestamp::from_micros(self.started_at),
            seen_at: Timestamp::from_micros(self.seen_at),
        })
    }
}

/// One node, present or not.
async fn node(conn: &mut PgConnection, id: NodeId) -> Result<Option<NodeRow>, Fault> {
    let row = sqlx::query_as!(
        NodeColumns,
        "SELECT id, role, label, schema, state, capacity, started_at, seen_at FROM node WHERE id = $1",
        id.as_uuid(),
    )
    .fetch_optional(conn)
    .await?;
    row.map(NodeColumns::read).transpose()
}

/// Nodes that are not offline.
async fn present_nodes(conn: &mut PgConnection) -> Result<Vec<NodeRow>, Fault> {
    let rows = sqlx::query_as!(
        NodeColumns,
        "SELECT id, role, label, schema, state, capacity, started_at, seen_at FROM node
         WHERE state <> 'offline' ORDER BY id LIMIT $1",
        limit(EXPLAINED_NODES_MAX),
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(NodeColumns::read).collect()
}
