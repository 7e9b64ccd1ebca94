//! Due jobs: which there are, and which are put off because they cannot be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencepost_core::id::{JobId, JobVersion, TenantId};
use fencepost_core::job::{Standing, Unreadable};
use fencepost_core::lease::{HeldLease, LeaseResource};
use fencepost_core::partition::PartitionId;
use fencepost_core::store::command::{PutOffJobs, ScanDueJobs, lease_of};
use fencepost_core::store::reply::{DueJob, PutOffReply, Reply, StoreReply};
use fencepost_core::store::row::{RefusedAction, RefusedResource};
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::context::{Context, later};
use super::definitions;
use super::earlier_versions;
use super::fault::Fault;
use super::guard::Guards;
use super::outbox::stored_partition;
use super::read;
use super::refusals::Refusals;

/// What is presented for a partition; where nothing is, a token that no grant ever had.
pub(super) fn presented(leases: &[HeldLease], partition: PartitionId) -> HeldLease {
    let token = lease_of(leases, partition).unwrap_or(fencepost_core::fencing::FencingToken::NEVER);
    HeldLease { resource: LeaseResource::Partition(partition), token }
}

/// One statement. Without definitions: those are read once per version.
pub(super) async fn scan(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &ScanDueJobs,
) -> Result<StoreReply, Fault> {
    let partitions: Vec<i16> =
        ask.partitions.iter().map(|partition| stored_partition(partition.number())).collect();
    let (after_at, after_id) =
        ask.after.map_or((i64::MIN, Uuid::nil()), |(at, id)| (at.as_micros(), id.as_uuid()));
    let rows = sqlx::query!(
        r#"WITH clock AS MATERIALIZED (SELECT store_now($1) AS now)
           SELECT c.now AS "now!",
             (SELECT n.next_try_at FROM job n
              WHERE n.next_fire_time IS NOT NULL AND n.partition = ANY($2) AND n.next_try_at > c.now
              ORDER BY n.next_try_at LIMIT 1) AS next_due,
             j.id AS "id?", j.tenant AS "tenant?", j.partition AS "partition?", j.version AS "version?",
             j.standing AS "standing?", j.effective_from AS "effective_from?",
             j.recorded_through AS "recorded_through?", j.next_fire_time AS "next_fire_time?",
             j.next_try_at AS "next_try_at?", j.runs AS "runs?", j.unreadable_reason AS "unreadable_reason?",
             j.unreadable_schema AS "unreadable_schema?", j.unreadable_zone_data AS "unreadable_zone_data?"
           FROM clock c LEFT JOIN LATERAL (
             SELECT * FROM job
             WHERE next_fire_time IS NOT NULL AND partition = ANY($2) AND next_try_at <= c.now
               AND (next_try_at, id) > ($3, $4)
             ORDER BY next_try_at, id LIMIT $5) j ON true"#,
        cx.given,
        &partitions,
        after_at,
        after_id,
        i64::from(ask.limit),
    )
    .fetch_all(&mut *conn)
    .await?;
    let first = rows.first().expect("the clock is one row, whatever is due");
    let (now, next_due) = (first.now, read::instant(first.next_due));
    let mut jobs = Vec::with_capacity(rows.len());
    let mut keys = Vec::with_capacity(rows.len());
    let mut changed = Vec::new();
    for row in &rows {
        if let (Some(id), Some(version)) = (row.id, row.version) {
            keys.push((JobId::from_uuid(id), JobVersion(read::count("job.version", version)?)));
            let first = row.recorded_through.map(|through| through.saturating_add(1));
            if let Some(first) = first.filter(|first| row.effective_from > Some(*first)) {
                changed.push((id, version, first));
            }
        }
    }
    let mut earlier = earlier_versions::of(cx, conn, &changed).await?;
    let known = cx.definitions.of(conn, keys.iter().copied()).await?;
    for (row, (job, version)) in rows.into_iter().filter(|row| row.id.is_some()).zip(keys) {
        let unreadable = match (row.unreadable_reason, row.unreadable_schema, row.unreadable_zone_data) {
            (Some(reason), Some(schema), Some(zone_data)) => Some(unreadable(reason, schema, zone_data)?),
            (_, _, _) => None,
        };
        let missing = || Fault::Unknown { column: "job", value: job.to_string() };
        let instant = |at: Option<i64>| at.map(Timestamp::from_micros).ok_or_else(missing);
        jobs.push(DueJob {
            job,
            tenant: TenantId::from_uuid(row.tenant.ok_or_else(missing)?),
            partition: partition(row.partition.ok_or_else(missing)?)?,
            version,
            definition: definitions::one_of(&known, job, version)?,
            standing: read::named("job.standing", &row.standing.ok_or_else(missing)?, Standing::from_name)?,
            effective_from: instant(row.effective_from)?,
            earlier: earlier.remove(&job).unwrap_or_default(),
            recorded_through: instant(row.recorded_through)?,
            next_fire_time: instant(row.next_fire_time)?,
            next_try_at: instant(row.next_try_at)?,
            runs: row.runs.ok_or_else(missing)?.unsigned_abs(),
            unreadable,
        });
    }
    jobs.sort_unstable_by_key(|job| (job.next_try_at, job.job));
    Ok(cx.reply(now, Reply::DueJobs { jobs, next_due }))
}

/// A partition by its stored number.
pub(super) fn partition(number: i16) -> Result<PartitionId, Fault> {
    u16::try_from(number)
        .ok()
        .and_then(PartitionId::new)
        .ok_or_else(|| Fault::Unknown { column: "partition", value: number.to_string() })
}

/// Why a job cannot be read, from its columns.
pub(super) fn unreadable(reason: String, schema: i32, zone_data: String) -> Result<Unreadable, Fault> {
    let schema = u16::try_from(schema)
        .map_err(|_| Fault::Unknown { column: "job.unreadable_schema", value: schema.to_string() })?;
    Ok(Unreadable { reason: Arc::from(reason), schema, zone_data: Arc::from(zone_data) })
}

/// What putting a job off is decided by.
struct Observed {
    partition: i16,
    version: i64,
    next_fire_time: Option<i64>,
}

/// A stale lease is recorded as a refusal to materialise; a job that moved is not.
pub(super) async fn put_off(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &PutOffJobs,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let resources = ask.items.iter().map(|item| LeaseResource::Partition(item.partition));
    let guards = Guards::share(cx, &mut tx, resources).await?;
    let now = guards.now;
    let ids: Vec<Uuid> = ask.items.iter().map(|item| item.job.as_uuid()).collect();
    let rows = sqlx::query!(
        "SELECT j.id, j.partition, j.version, j.next_fire_time FROM job j
         WHERE j.id = ANY($1) AND j.state = 'active' ORDER BY j.id FOR NO KEY UPDATE",
        &ids,
    )
    .fetch_all(&mut *tx)
    .await?;
    let rows: BTreeMap<JobId, Observed> = rows
        .into_iter()
        .map(|row| {
            let observed = Observed {
                partition: row.partition,
                version: row.version,
                next_fire_time: row.next_fire_time,
            };
            (JobId::from_uuid(row.id), observed)
        })
        .collect();
    let mut refusals = Refusals::new(ask.node, RefusedAction::Materialise);
    let mut put_off = BTreeMap::new();
    let mut replies = Vec::with_capacity(ask.items.len());
    for item in &ask.items {
        let held = presented(&ask.leases, item.partition);
        if let Err(current) = guards.check(ask.node, held) {
            refusals.note(RefusedResource::Lease(held.resource), held.token, current);
            replies.push(PutOffReply::StaleLease { current });
            continue;
        }
        let is_observed = rows.get(&item.job).is_some_and(|row| {
            row.partition == stored_partition(item.partition.number())
                && row.version == i64::from(item.version.0)
                && row.next_fire_time == Some(item.expected_fire.as_micros())
        });
        if is_observed {
            put_off.insert(item.job, item);
            replies.push(PutOffReply::Done);
        } else {
            replies.push(PutOffReply::Moved);
        }
    }
    if !put_off.is_empty() {
        sqlx::query!(
            "UPDATE job j SET unreadable_reason = i.reason, unreadable_schema = i.schema,
               unreadable_zone_data = i.zone_data, next_try_at = i.next_try_at
             FROM unnest($1::uuid[], $2::text[], $3::int4[], $4::text[], $5::int8[])
               AS i (id, reason, schema, zone_data, next_try_at)
             WHERE j.id = ANY (ARRAY[i.id])",
            &put_off.keys().map(|id| id.as_uuid()).collect::<Vec<_>>(),
            &put_off.values().map(|item| item.unreadable.reason.to_string()).collect::<Vec<_>>(),
            &put_off.values().map(|item| i32::from(item.unreadable.schema)).collect::<Vec<_>>(),
            &put_off.values().map(|item| item.unreadable.zone_data.to_string()).collect::<Vec<_>>(),
            &put_off
                .values()
                .map(|item| later(now, item.delay).max(item.expected_fire.as_micros()))
                .collect::<Vec<_>>(),
        )
        .execute(&mut *tx)
        .await?;
    }
    refusals.record(&mut tx, now).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::JobsPutOff(replies)))
}
