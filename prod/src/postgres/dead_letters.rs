//! Dead letters replayed, one or a page of them, and purged.
//!
//! A page decides about a set, so it locks the tenant's row first, which singles lock for sharing: pages wait for each
//! other and for singles, and the set stands still while a page reads it. Singles meet at the dead letter's own row.
//! Neither is in the way of creating jobs, which only reads the tenant's key. What a replay is made of never changes:
//! its origin has ended.

use fencepost_core::execution::{DeadLetterReason, ExecutionState};
use fencepost_core::id::{ExecutionId, JobId, JobVersion, NodeId, TenantId};
use fencepost_core::limits::REPLAY_PAGE_MAX;
use fencepost_core::replay::{self, Readability, why_not};
use fencepost_core::store::command::{
    OperatorRequest, PurgeDeadLetter, ReplayDeadLetter, ReplayDeadLetters, ReplayNumber,
};
use fencepost_core::store::reply::{PageReplay, PurgeReply, ReplayPage, ReplayReply, Reply, StoreReply};
use fencepost_core::store::row::JobState;
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

use super::context::Context;
use super::definitions::{VersionKey, one_of};
use super::fault::Fault;
use super::notifications::notify;
use super::read;

/// A replay to be made.
struct NewReplay {
    origin: ExecutionId,
    id: ExecutionId,
    number: i64,
    key: Arc<str>,
}

/// What of a dead letter's execution never changes, and its replay is made of.
struct Origin {
    id: ExecutionId,
    job: JobId,
    version: JobVersion,
    key: Arc<str>,
    partition: i16,
}

/// Pages are kept out, other singles are not.
async fn share_tenant(conn: &mut PgConnection, tenant: TenantId) -> Result<(), Fault> {
    sqlx::query!(r#"SELECT true AS "is_there!" FROM tenant WHERE id = $1 FOR SHARE"#, tenant.as_uuid())
        .fetch_optional(conn)
        .await?;
    Ok(())
}

/// What there is of this tenant's under that id: `Err` holds the state of what is no dead letter, and `None` where
/// there is nothing. One snapshot: what was just dead-lettered has its record.
async fn letter_of(
    conn: &mut PgConnection,
    tenant: TenantId,
    execution: ExecutionId,
) -> Result<Result<Origin, Option<ExecutionState>>, Fault> {
    let row = sqlx::query!(
        r#"SELECT e.state, e.job, e.job_version, e.key, e.partition,
             EXISTS (SELECT FROM dead_letter d WHERE d.execution = $1) AS "is_dead_letter!"
           FROM execution e WHERE e.id = $1 AND e.tenant = $2"#,
        execution.as_uuid(),
        tenant.as_uuid(),
    )
    .fetch_optional(conn)
    .await?;
    let Some(row) = row else { return Ok(Err(None)) };
    if !row.is_dead_letter {
        return Ok(Err(Some(read::state(&row.state)?)));
    }
    Ok(Ok(Origin {
        id: execution,
        job: JobId::from_uuid(row.job),
        version: JobVersion(read::count("execution.job_version", row.job_version)?),
        key: row.key.into(),
        partition: row.partition,
    }))
}

/// The states of these jobs, locked against deletion, by id.
async fn lock_jobs(
    conn: &mut PgConnection,
    jobs: BTreeSet<JobId>,
) -> Result<BTreeMap<JobId, JobState>, Fault> {
    let jobs: Vec<Uuid> = jobs.into_iter().map(JobId::as_uuid).collect();
    let rows = sqlx::query!(
        "SELECT j.id, j.state FROM unnest($1::uuid[]) WITH ORDINALITY AS i (id, place)
         JOIN job j ON j.id = ANY (ARRAY[i.id]) ORDER BY i.place FOR KEY SHARE OF j",
        &jobs,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| Ok((JobId::from_uuid(row.id), read::named("job.state", &row.state, JobState::from_name)?)))
        .collect()
}

pub(super) async fn replay(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &ReplayDeadLetter,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let (now, reply) = replay_within(cx, &mut tx, ask).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::DeadLetterReplayed(reply)))
}

/// An earlier asking is recognised before anything that has changed since is looked at.
async fn replay_within(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &ReplayDeadLetter,
) -> Result<(i64, ReplayReply), Fault> {
    share_tenant(conn, ask.tenant).await?;
    let origin = match letter_of(conn, ask.tenant, ask.origin).await? {
        Ok(origin) => origin,
        Err(state) => {
            let reply = state.map_or(ReplayReply::NotFound, |state| ReplayReply::NotDeadLettered { state });
            return Ok((cx.clock(conn).await?, reply));
        }
    };
    let jobs = lock_jobs(conn, BTreeSet::from([origin.job])).await?;
    let letter = sqlx::query!(
        "SELECT replays, purged_at FROM dead_letter WHERE execution = $1 FOR NO KEY UPDATE",
        ask.origin.as_uuid(),
    )
    .fetch_one(&mut *conn)
    .await?;
    let now = cx.clock(conn).await?;
    let replays = read::count("dead_letter.replays", letter.replays)?;
    if let Some(known) = known_replay(conn, ask, &origin, replays).await? {
        return Ok((now, known));
    }
    let next = replays.saturating_add(1);
    let number = match ask.number {
        ReplayNumber::Given(number) => number,
        ReplayNumber::Next(_) => next,
    };
    if number != next {
        return Ok((now, ReplayReply::WrongNumber { next }));
    }
    let job = jobs.get(&origin.job).copied().unwrap_or(JobState::Deleted);
    if let Some(why) = why_not(read::instant(letter.purged_at), job, readability(cx, conn, &origin).await?) {
        return Ok((now, ReplayReply::Refused(why)));
    }
    let new = new_replay(&origin, ask, number);
    let execution = new.id;
    if let ReplayNumber::Next(asked) = &ask.number {
        remember(conn, ask.tenant, asked, (origin.job, execution), now).await?;
    }
    insert(conn, ask.node, &[new], now).await?;
    notify(conn, origin.partition).await?;
    Ok((now, ReplayReply::Created { execution, number }))
}

fn new_replay(origin: &Origin, ask: &ReplayDeadLetter, number: u32) -> NewReplay {
    NewReplay {
        origin: origin.id,
        id: replay::execution_of(origin.job, origin.id, number),
        number: i64::from(number),
        key: replay::key_of(ask.key, origin.job, (origin.id, &origin.key), number),
    }
}

/// The answer to what made a replay before, or used its request id. To be read once the dead letter is locked.
async fn known_replay(
    conn: &mut PgConnection,
    ask: &ReplayDeadLetter,
    origin: &Origin,
    replays: u32,
) -> Result<Option<ReplayReply>, Fault> {
    match &ask.number {
        ReplayNumber::Given(number) => {
            if !(1..=replays).contains(number) {
                return Ok(None);
            }
            let wanted = new_replay(origin, ask, *number);
            let (execution, number) = (wanted.id, *number);
            let row = sqlx::query!("SELECT state, key FROM execution WHERE id = $1", execution.as_uuid())
                .fetch_optional(conn)
                .await?;
            let Some(row) = row else { return Ok(None) };
            if row.key != *wanted.key {
                return Ok(Some(ReplayReply::OtherKey { execution }));
            }
            let state = read::state(&row.state)?;
            Ok(Some(ReplayReply::Repeated { execution, number, state }))
        }
        ReplayNumber::Next(asked) => {
            let row = sqlx::query!(
                r#"SELECT r.fingerprint, e.id AS "execution?", e.state AS "state?", e.replay_number AS "number?"
                   FROM operator_request r LEFT JOIN execution e ON e.id = ANY (ARRAY[r.execution])
                   WHERE r.tenant = $1 AND r.request = $2"#,
                ask.tenant.as_uuid(),
                &*asked.request,
            )
            .fetch_optional(conn)
            .await?;
            let Some(row) = row else { return Ok(None) };
            Ok(Some(match (row.execution, row.state, row.number) {
                (Some(execution), Some(state), Some(number)) if row.fingerprint == asked.fingerprint => {
                    ReplayReply::Repeated {
                        execution: ExecutionId::from_uuid(execution),
                        number: read::count("execution.replay_number", number)?,
                        state: read::state(&state)?,
                    }
                }
                _ => ReplayReply::RequestReused,
            }))
        }
    }
}

async fn readability(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    origin: &Origin,
) -> Result<Readability, Fault> {
    let key: VersionKey = (origin.job, origin.version);
    let definitions = cx.definitions.of(conn, [key]).await?;
    Ok(match one_of(&definitions, key.0, key.1)?.read() {
        Ok(_) => Readability::Readable,
        Err(_) => Readability::Unreadable,
    })
}

/// Whoever uses the same request id at the same time is waited for, and then met.
async fn remember(
    conn: &mut PgConnection,
    tenant: TenantId,
    asked: &OperatorRequest,
    made: (JobId, ExecutionId),
    now: i64,
) -> Result<(), Fault> {
    let done = sqlx::query!(
        "INSERT INTO operator_request (tenant, request, fingerprint, job, execution, at)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (tenant, request) DO NOTHING",
        tenant.as_uuid(),
        &*asked.request,
        asked.fingerprint,
        made.0.as_uuid(),
        made.1.as_uuid(),
        now,
    )
    .execute(conn)
    .await?;
    if done.rows_affected() == 0 {
        return Err(Fault::InMotion { table: "operator_request" });
    }
    Ok(())
}

/// Makes these replays, with their outbox rows, and counts them. The unique constraints are the arbiters.
async fn insert(conn: &mut PgConnection, node: NodeId, new: &[NewReplay], now: i64) -> Result<(), Fault> {
    if new.is_empty() {
        return Ok(());
    }
    let done = sqlx::query!(
        "WITH made AS (
           INSERT INTO execution (id, tenant, job, job_version, partition, occurrence, origin, replay_number, key,
             payload, state, due_at, made_under, token, nonce, expires_at, start_seen, cancel_requested, attempts,
             rescues, lost_starts, waits, dispatch_no, dispatched_at, redispatches, materialised_at, lag_clamped,
             deadline_at)
           SELECT i.id, o.tenant, o.job, o.job_version, o.partition, 'replay', o.id, i.number, i.key, o.payload,
             'pending', $1, 0, greatest(o.token, (SELECT max(r.token) FROM execution r WHERE r.origin = o.id)), 0, 0,
             false, false, 0, 0, 0, 0, 1, $1, 0, $1, false,
             $1 + (SELECT v.deadline FROM job_version v WHERE v.job = o.job AND v.version = o.job_version)
           FROM unnest($2::uuid[], $3::uuid[], $4::int8[], $5::text[]) AS i (origin, id, number, key)
           JOIN execution o ON o.id = ANY (ARRAY[i.origin])
           ON CONFLICT DO NOTHING
           RETURNING id, tenant, partition, origin, replay_number),
         counted AS (
           UPDATE dead_letter d SET replays = made.replay_number FROM made
           WHERE d.execution = ANY (ARRAY[made.origin]))
         INSERT INTO outbox_event
           (execution, dispatch_no, tenant, partition, created_by, created_at, next_try_at, tries)
         SELECT id, 1, tenant, partition, $6, $1, $1, 0 FROM made",
        now,
        &new.iter().map(|replay| replay.origin.as_uuid()).collect::<Vec<_>>(),
        &new.iter().map(|replay| replay.id.as_uuid()).collect::<Vec<_>>(),
        &new.iter().map(|replay| replay.number).collect::<Vec<_>>(),
        &new.iter().map(|replay| replay.key.to_string()).collect::<Vec<_>>(),
        node.as_uuid(),
    )
    .execute(conn)
    .await?;
    if done.rows_affected() < new.len() as u64 {
        return Err(Fault::InMotion { table: "execution" });
    }
    Ok(())
}

/// A dead letter of a page.
struct Listed {
    at: Timestamp,
    origin: Origin,
}

pub(super) async fn replay_page(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &ReplayDeadLetters,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    sqlx::query!(
        r#"SELECT true AS "is_there!" FROM tenant WHERE id = $1 FOR NO KEY UPDATE"#,
        ask.tenant.as_uuid()
    )
    .fetch_optional(&mut *tx)
    .await?;
    let limit = ask.limit.min(REPLAY_PAGE_MAX);
    let listed = list(&mut tx, ask, limit).await?;
    let jobs = lock_jobs(&mut tx, listed.iter().map(|letter| letter.origin.job).collect()).await?;
    let now = cx.clock(&mut tx).await?;
    let keys = listed.iter().map(|letter| (letter.origin.job, letter.origin.version));
    let definitions = cx.definitions.of(&mut tx, keys).await?;
    let next = listed.last().filter(|_| listed.len() == limit as usize);
    let next = next.map(|letter| (letter.at, letter.origin.id));
    let (mut letters, mut new, mut partitions) = (Vec::new(), Vec::new(), BTreeSet::new());
    for Listed { origin, .. } in listed {
        let job = jobs.get(&origin.job).copied().unwrap_or(JobState::Deleted);
        let definition = match one_of(&definitions, origin.job, origin.version)?.read() {
            Ok(_) => Readability::Readable,
            Err(_) => Readability::Unreadable,
        };
        let became = match why_not(None, job, definition) {
            Some(why) => PageReplay::Refused(why),
            None => {
                let id = replay::execution_of(origin.job, origin.id, 1);
                let key = replay::key_of(ask.key, origin.job, (origin.id, &origin.key), 1);
                new.push(NewReplay { origin: origin.id, id, number: 1, key });
                partitions.insert(origin.partition);
                PageReplay::Created { execution: id }
            }
        };
        letters.push((origin.id, became));
    }
    insert(&mut tx, ask.node, &new, now).await?;
    for partition in partitions {
        notify(&mut tx, partition).await?;
    }
    tx.commit().await?;
    Ok(cx.reply(now, Reply::DeadLettersReplayed(ReplayPage { letters, next })))
}

async fn list(conn: &mut PgConnection, ask: &ReplayDeadLetters, limit: u32) -> Result<Vec<Listed>, Fault> {
    let filter = &ask.filter;
    let (after_at, after_execution) = ask.after.unwrap_or((Timestamp::MIN, ExecutionId::from_u128(0)));
    let rows = sqlx::query!(
        "SELECT d.execution, d.at, e.job, e.job_version, e.key, e.partition
         FROM (SELECT execution, at FROM dead_letter
           WHERE tenant = $1 AND replays = 0 AND purged_at IS NULL AND (at, execution) > ($2, $3)
             AND at >= $4 AND ($5::int8 IS NULL OR at < $5) AND ($6::uuid IS NULL OR job = $6)
             AND ($7::text IS NULL OR reason = $7)
           ORDER BY at, execution LIMIT $8) AS d
         JOIN execution e ON e.id = ANY (ARRAY[d.execution]) ORDER BY d.at, d.execution",
        ask.tenant.as_uuid(),
        after_at.as_micros(),
        after_execution.as_uuid(),
        filter.from.unwrap_or(Timestamp::MIN).as_micros(),
        filter.to.map(Timestamp::as_micros),
        filter.job.map(JobId::as_uuid),
        filter.reason.map(DeadLetterReason::name),
        i64::from(limit),
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let origin = Origin {
                id: ExecutionId::from_uuid(row.execution),
                job: JobId::from_uuid(row.job),
                version: JobVersion(read::count("execution.job_version", row.job_version)?),
                key: row.key.into(),
                partition: row.partition,
            };
            Ok(Listed { at: Timestamp::from_micros(row.at), origin })
        })
        .collect()
}

pub(super) async fn purge(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &PurgeDeadLetter,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let (now, reply) = purge_within(cx, &mut tx, ask).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::DeadLetterPurged(reply)))
}

async fn purge_within(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &PurgeDeadLetter,
) -> Result<(i64, PurgeReply), Fault> {
    share_tenant(conn, ask.tenant).await?;
    if let Err(state) = letter_of(conn, ask.tenant, ask.execution).await? {
        let reply = state.map_or(PurgeReply::NotFound, |state| PurgeReply::NotDeadLettered { state });
        return Ok((cx.clock(conn).await?, reply));
    }
    let purged_at = sqlx::query_scalar!(
        "SELECT purged_at FROM dead_letter WHERE execution = $1 FOR NO KEY UPDATE",
        ask.execution.as_uuid(),
    )
    .fetch_one(&mut *conn)
    .await?;
    let now = cx.clock(conn).await?;
    if purged_at.is_some() {
        return Ok((now, PurgeReply::Repeated));
    }
    sqlx::query!(
        "UPDATE dead_letter SET purged_at = $2, error = NULL WHERE execution = $1",
        ask.execution.as_uuid(),
        now,
    )
    .execute(conn)
    .await?;
    Ok((now, PurgeReply::Purged))
}
