//! Fires recorded: executions, their outbox rows, skipped ranges and the new watermarks.
//!
//! Under the partitions' guards, three set-based statements whatever the size of the batch: the jobs, by version
//! and watermark; the executions that are not there yet; their outbox rows, fed by what was inserted. The
//! two inserts join nothing, so no estimate of the planner's can spoil them. Jobs that were not touched are
//! looked at afterwards and told why, in the order of the reference semantics.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::execution::SkipReason;
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, JobId, JobVersion, TenantId};
use fencepost_core::lease::LeaseResource;
use fencepost_core::store::command::{Materialise, MaterialiseJob};
use fencepost_core::store::reply::{MadeExecution, MaterialiseReply, Reply, StoreReply};
use fencepost_core::store::row::{RefusedAction, RefusedResource};
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::context::Context;
use super::due_jobs::presented;
use super::fault::Fault;
use super::guard::Guards;
use super::outbox::stored_partition;
use super::read;
use super::refusals::Refusals;

/// An item whose partition is the caller's.
struct Guarded<'a> {
    at: usize,
    item: &'a MaterialiseJob,
    token: FencingToken,
}

pub(super) async fn materialise(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &Materialise,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let resources = ask.items.iter().map(|item| LeaseResource::Partition(item.partition));
    let guards = Guards::share(cx, &mut tx, resources).await?;
    let now = guards.now;
    let mut refusals = Refusals::new(ask.node, RefusedAction::Materialise);
    let mut replies: Vec<Option<MaterialiseReply>> = vec![None; ask.items.len()];
    // The first item of each job, by id: the order of the locks.
    let mut timely = BTreeMap::new();
    let mut open = Vec::new();
    for (at, item) in ask.items.iter().enumerate() {
        let held = presented(&ask.leases, item.partition);
        match guards.check(ask.node, held) {
            Err(current) => {
                refusals.note(RefusedResource::Lease(held.resource), held.token, current);
                replies[at] = Some(MaterialiseReply::StaleLease { current });
            }
            Ok(()) => {
                let guarded = Guarded { at, item, token: held.token };
                if untimely(item, Timestamp::from_micros(now)).is_none() && !timely.contains_key(&item.job) {
                    timely.insert(item.job, guarded);
                } else {
                    open.push(guarded);
                }
            }
        }
    }
    let tenants = advance(&mut tx, &timely).await?;
    let (applied, missed): (Vec<Guarded<'_>>, Vec<Guarded<'_>>) =
        timely.into_values().partition(|guarded| tenants.contains_key(&guarded.item.job));
    let made = insert_executions(&mut tx, ask, now, &applied, &tenants).await?;
    count_runs(&mut tx, &applied, &made, &mut replies).await?;
    insert_skipped(&mut tx, now, &applied, &tenants).await?;
    open.extend(missed);
    explain(&mut tx, now, &open, &mut refusals, &mut replies).await?;
    refusals.record(&mut tx, now).await?;
    tx.commit().await?;
    let replies = replies.into_iter().map(|reply| reply.expect("each item was answered")).collect();
    Ok(cx.reply(now, Reply::Materialised(replies)))
}

/// Why this decision is not one for `now`, whatever became of its job.
fn untimely(item: &MaterialiseJob, now: Timestamp) -> Option<MaterialiseReply> {
    let is_ahead = item.executions.iter().any(|new| new.fire > now || new.due_at > now)
        || item.skipped.iter().any(|range| range.through > now);
    if is_ahead {
        Some(MaterialiseReply::NotDue)
    } else if now > item.valid_until {
        Some(MaterialiseReply::PlanExpired)
    } else {
        None
    }
}

/// Moves the watermarks of the jobs that are as expected, and says which those are, and whose. All their
/// executions are counted as made for now.
async fn advance(
    conn: &mut PgConnection,
    timely: &BTreeMap<JobId, Guarded<'_>>,
) -> Result<BTreeMap<JobId, TenantId>, Fault> {
    if timely.is_empty() {
        return Ok(BTreeMap::new());
    }
    let items = || timely.values().map(|guarded| guarded.item);
    // `IS NOT DISTINCT FROM`, so that the index of due jobs is not offered for what is found by id.
    let rows = sqlx::query!(
        "UPDATE job j SET recorded_through = i.recorded_through, next_fire_time = i.next_fire_time,
           next_try_at = coalesce(i.next_fire_time + i.next_flex, j.next_try_at), runs = j.runs + i.runs,
           unreadable_reason = NULL, unreadable_schema = NULL, unreadable_zone_data = NULL
         FROM unnest($1::uuid[], $2::int2[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::int8[])
           AS i (id, partition, version, expected_fire, recorded_through, next_fire_time, runs, next_flex)
         WHERE j.id = ANY (ARRAY[i.id]) AND j.partition = i.partition AND j.state = 'active' AND j.version = i.version
           AND j.next_fire_time IS NOT DISTINCT FROM i.expected_fire
         RETURNING j.id, j.tenant",
        &timely.keys().map(|id| id.as_uuid()).collect::<Vec<_>>(),
        &items().map(|item| stored_partition(item.partition.number())).collect::<Vec<_>>(),
        &items().map(|item| i64::from(item.version.0)).collect::<Vec<_>>(),
        &items().map(|item| item.expected_fire.as_micros()).collect::<Vec<_>>(),
        &items().map(|item| item.recorded_through.as_micros()).collect::<Vec<_>>(),
        &items().map(|item| item.next_fire_time.map(Timestamp::as_micros)).collect::<Vec<_>>()
            as &[Option<i64>],
        &items().map(|item| stored_len(item.executions.len())).collect::<Vec<_>>(),
        &items().map(|item| item.next_flex.as_i64()).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (JobId::from_uuid(row.id), TenantId::from_uuid(row.tenant))).collect())
}

fn stored_len(len: usize) -> i64 {
    i64::try_from(len).expect("a batch is bounded")
}

/// Inserts what is not there yet, each with its first outbox row, and says what that was.
async fn insert_executions(
    conn: &mut PgConnection,
    ask: &Materialise,
    now: i64,
    applied: &[Guarded<'_>],
    tenants: &BTreeMap<JobId, TenantId>,
) -> Result<BTreeSet<ExecutionId>, Fault> {
    let mut new: Vec<_> = applied
        .iter()
        .flat_map(|guarded| guarded.item.executions.iter().map(move |execution| (execution, guarded)))
        .collect();
    if new.is_empty() {
        return Ok(BTreeSet::new());
    }
    new.sort_by_key(|(execution, _)| execution.id);
    let rows = sqlx::query_scalar!(
        r#"WITH made AS (
             INSERT INTO execution (id, tenant, job, job_version, partition, occurrence, fire, key, state, due_at,
               made_under, token, nonce, expires_at, start_seen, cancel_requested, attempts, rescues, lost_starts,
               waits, dispatch_no, dispatched_at, redispatches, materialised_at, lag_clamped, deadline_at)
             SELECT i.id, i.tenant, i.job, i.job_version, i.partition, 'scheduled', i.fire, i.key, 'pending', i.due_at,
               i.made_under, 0, 0, 0, false, false, 0, 0, 0, 0, 1, $1, 0, $1, false,
               i.deadline_at
             FROM unnest($3::uuid[], $4::uuid[], $5::uuid[], $6::int8[], $7::int2[], $8::int8[], $9::text[],
               $10::int8[], $11::int8[], $12::int8[])
               AS i (id, tenant, job, job_version, partition, fire, key, due_at, made_under, deadline_at)
             ON CONFLICT (id) DO NOTHING
             RETURNING id, tenant, partition),
           dispatched AS (
             INSERT INTO outbox_event
               (execution, dispatch_no, tenant, partition, created_by, created_at, next_try_at, tries)
             SELECT id, 1, tenant, partition, $2, $1, $1, 0 FROM made)
           SELECT id AS "id!" FROM made"#,
        now,
        ask.node.as_uuid(),
        &new.iter().map(|(execution, _)| execution.id.as_uuid()).collect::<Vec<_>>(),
        &new.iter().map(|(_, of)| tenants[&of.item.job].as_uuid()).collect::<Vec<_>>(),
        &new.iter().map(|(_, of)| of.item.job.as_uuid()).collect::<Vec<_>>(),
        &new.iter().map(|(execution, _)| i64::from(execution.version.0)).collect::<Vec<_>>(),
        &new.iter().map(|(_, of)| stored_partition(of.item.partition.number())).collect::<Vec<_>>(),
        &new.iter().map(|(execution, _)| execution.fire.as_micros()).collect::<Vec<_>>(),
        &new.iter().map(|(execution, _)| execution.key.to_string()).collect::<Vec<_>>(),
        &new.iter().map(|(execution, _)| execution.due_at.as_micros()).collect::<Vec<_>>(),
        &new.iter().map(|(_, of)| of.token.as_i64()).collect::<Vec<_>>(),
        &new.iter()
            .map(|(execution, _)| execution.deadline_at.map(Timestamp::as_micros))
            .collect::<Vec<_>>() as &[Option<i64>],
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(ExecutionId::from_uuid).collect())
}

/// Answers what was applied, and takes back from the jobs' counts what existed already.
async fn count_runs(
    conn: &mut PgConnection,
    applied: &[Guarded<'_>],
    made: &BTreeSet<ExecutionId>,
    replies: &mut [Option<MaterialiseReply>],
) -> Result<(), Fault> {
    let mut left = made.clone();
    let mut jobs = Vec::new();
    let mut existed = Vec::new();
    for guarded in applied {
        let outcome = |id| if left.remove(id) { MadeExecution::Made } else { MadeExecution::Existed };
        let outcomes: Vec<_> = guarded.item.executions.iter().map(|new| &new.id).map(outcome).collect();
        let old = outcomes.iter().filter(|outcome| **outcome == MadeExecution::Existed).count();
        if old > 0 {
            jobs.push(guarded.item.job.as_uuid());
            existed.push(stored_len(old));
        }
        replies[guarded.at] = Some(MaterialiseReply::Applied(outcomes));
    }
    if !jobs.is_empty() {
        sqlx::query!(
            "UPDATE job j SET runs = j.runs - i.existed
             FROM unnest($1::uuid[], $2::int8[]) AS i (id, existed) WHERE j.id = ANY (ARRAY[i.id])",
            &jobs,
            &existed,
        )
        .execute(conn)
        .await?;
    }
    Ok(())
}

/// A range that starts where one does already is left as that is.
async fn insert_skipped(
    conn: &mut PgConnection,
    now: i64,
    applied: &[Guarded<'_>],
    tenants: &BTreeMap<JobId, TenantId>,
) -> Result<(), Fault> {
    let new: Vec<_> = applied
        .iter()
        .flat_map(|guarded| guarded.item.skipped.iter().map(move |range| (range, guarded)))
        .collect();
    if new.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "INSERT INTO skipped_range (job, from_fire, through_fire, tenant, reason, job_version, made_under,
           decided_at, zone_data)
         SELECT i.job, i.from_fire, i.through_fire, i.tenant, i.reason, i.job_version, i.made_under, $1, i.zone_data
         FROM unnest($2::uuid[], $3::int8[], $4::int8[], $5::uuid[], $6::text[], $7::int8[], $8::int8[], $9::text[])
           AS i (job, from_fire, through_fire, tenant, reason, job_version, made_under, zone_data)
         ON CONFLICT (job, from_fire) DO NOTHING",
        now,
        &new.iter().map(|(_, of)| of.item.job.as_uuid()).collect::<Vec<_>>(),
        &new.iter().map(|(range, _)| range.from.as_micros()).collect::<Vec<_>>(),
        &new.iter().map(|(range, _)| range.through.as_micros()).collect::<Vec<_>>(),
        &new.iter().map(|(_, of)| tenants[&of.item.job].as_uuid()).collect::<Vec<_>>(),
        &new.iter().map(|(range, _)| SkipReason::name(range.reason).to_owned()).collect::<Vec<_>>(),
        &new.iter().map(|(range, _)| i64::from(range.version.0)).collect::<Vec<_>>(),
        &new.iter().map(|(_, of)| of.token.as_i64()).collect::<Vec<_>>(),
        &new.iter().map(|(range, _)| range.zone_data.to_string()).collect::<Vec<_>>(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A job that was not touched.
struct Untouched {
    id: Uuid,
    partition: i16,
    version: i64,
    state: String,
    next_fire_time: Option<i64>,
}

/// Tells the items that were not applied why.
async fn explain(
    conn: &mut PgConnection,
    now: i64,
    open: &[Guarded<'_>],
    refusals: &mut Refusals,
    replies: &mut [Option<MaterialiseReply>],
) -> Result<(), Fault> {
    if open.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = open.iter().map(|guarded| guarded.item.job.as_uuid()).collect();
    let rows = sqlx::query_as!(
        Untouched,
        "SELECT id, partition, version, state, next_fire_time FROM job WHERE id = ANY($1)",
        &ids,
    )
    .fetch_all(conn)
    .await?;
    let rows: BTreeMap<Uuid, Untouched> = rows.into_iter().map(|row| (row.id, row)).collect();
    for guarded in open {
        let item = guarded.item;
        let row = rows.get(&item.job.as_uuid()).filter(|row| {
            row.partition == stored_partition(item.partition.number()) && row.state == "active"
        });
        replies[guarded.at] = Some(match row {
            None => MaterialiseReply::Gone,
            Some(row) if row.version != i64::from(item.version.0) => {
                let resource = RefusedResource::Lease(LeaseResource::Partition(item.partition));
                refusals.note(resource, guarded.token, guarded.token);
                let current = JobVersion(read::count("job.version", row.version)?);
                MaterialiseReply::VersionChanged { current }
            }
            Some(row) if row.next_fire_time != Some(item.expected_fire.as_micros()) => {
                MaterialiseReply::WatermarkMoved
            }
            Some(_) => match untimely(item, Timestamp::from_micros(now)) {
                Some(reply) => reply,
                None => return Err(Fault::InMotion { table: "job" }),
            },
        });
    }
    Ok(())
}
