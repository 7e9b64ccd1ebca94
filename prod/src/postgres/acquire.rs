//! Execution leases granted: one compare-and-set `UPDATE` over the batch.
//!
//! What it did not touch is looked at afterwards, without a lock: it is running, has ended, waits for its
//! retry, or its message is a resend. An item that became grantable between the two looks goes round again.
//!
//! What asks for a lease of a job whose overlap is limited, or of a tenant that has a concurrency limit, goes another way:
//! it is answered while its tenant and its job are locked (`overlap`, `limits`), all such items of a batch in their order.
//! Where there is no limit, the tenant's key is shared once the rows are held, and limits are looked for once more
//! (`tenants_are_unlimited`).
//!
//! What waits past its deadline is not granted but ended, in a transaction of its own once all else of its batch is answered
//! (`deadlines`).
//!
//! What a pause of its job holds back is not granted. Whether a job is paused is asked twice: by the statement's own
//! snapshot, and once more for the whole batch when its rows are held, since a snapshot taken before a row was waited
//! for knows nothing of a pause that was committed before the row's last change (`no_job_is_paused` begins such a
//! batch anew; `no_pause_is_over` does for pauses of tenants and queues, of which mostly none is in force, which is asked
//! once per batch). That it is held back is written while the job is or the pause locked against a resume, which lifts it.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::execution::ExecutionState;
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{EffectId, ExecutionId, NodeId};
use fencepost_core::lease::may_be_taken;
use fencepost_core::limits::PAUSE_RECHECK;
use fencepost_core::store::command::{AcquireExecution, AcquireExecutions};
use fencepost_core::store::reply::{AcquireReply, Grant, Reply, StoreReply};
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::context::{Context, micros};
use super::deadlines;
use super::fault::Fault;
use super::leases::stored_nonce;
use super::overlap::Slots;
use super::read;
use super::set_pause;

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
        grant(conn, ask, Whom::NotJudged, &mut now, &mut replies).await?;
        if replies.iter().any(Option::is_none) {
            let held_back = explain(cx, conn, ask, &mut now, &mut replies).await?;
            if !held_back.by_job.is_empty() {
                hold_back(conn, ask, now, &held_back.by_job, &mut replies).await?;
            }
            if !held_back.by_pause.is_empty() {
                let open: BTreeMap<_, _> =
                    open_items(ask, &replies).into_iter().map(|(id, (at, _))| (id, at)).collect();
                for id in set_pause::hold_back(conn, ask, now, &held_back.by_pause).await? {
                    replies[open[&id]] = Some(AcquireReply::NotNow { state: ExecutionState::Pending });
                }
            }
            if !held_back.judged.is_empty() {
                judge(conn, ask, &mut now, &held_back.judged, &mut replies).await?;
            }
            let overdue = &held_back.overdue;
            let is_last = open_items(ask, &replies).keys().all(|id| overdue.contains(id));
            if is_last && !overdue.is_empty() {
                deadlines::end_asked_for(cx, conn, ask, now, overdue, &mut replies).await?;
            }
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
pub(super) fn open_items<'a>(
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

/// Which of the items that have no reply are granted.
#[derive(Clone, Copy)]
enum Whom<'a> {
    /// Those of jobs whose versions all allow overlap, and of tenants that have no limit.
    NotJudged,
    /// These, which were judged, and whose jobs are locked.
    Judged(&'a BTreeMap<ExecutionId, EffectId>),
}

/// Judges those that ask for the slot of a job, in the order of the batch, while the job is locked.
async fn judge(
    conn: &mut PgConnection,
    ask: &AcquireExecutions,
    now: &mut Option<i64>,
    judged: &BTreeMap<ExecutionId, Uuid>,
    replies: &mut [Option<AcquireReply>],
) -> Result<(), Fault> {
    let mut tx = conn.begin().await?;
    let at = now.expect("what is to be judged was looked at, by a clock");
    let mut slots = Slots::lock(&mut tx, ask.node, at, judged).await?;
    for (item, reply) in ask.items.iter().zip(replies.iter_mut()) {
        if reply.is_none() && judged.contains_key(&item.execution) {
            *reply = slots.answer(item);
        }
    }
    slots.write(&mut tx).await?;
    if !slots.granted.is_empty() {
        grant(&mut tx, ask, Whom::Judged(&slots.granted), now, replies).await?;
    }
    slots.stop(&mut tx).await?;
    tx.commit().await?;
    Ok(())
}

/// Grants what is pending. The nonce of a lease that ended stays in its row, so its resend is not granted.
async fn grant(
    conn: &mut PgConnection,
    ask: &AcquireExecutions,
    whom: Whom<'_>,
    now: &mut Option<i64>,
    replies: &mut [Option<AcquireReply>],
) -> Result<(), Fault> {
    let mut open = open_items(ask, replies);
    let are_judged = match whom {
        Whom::NotJudged => false,
        Whom::Judged(these) => {
            open.retain(|id, _| these.contains_key(id));
            true
        }
    };
    let rows = sqlx::query!(
        r#"WITH clock AS MATERIALIZED (SELECT store_now($1) AS now), granted AS (
           UPDATE execution e SET state = 'running', token = e.token + 1, owner = $2, nonce = i.nonce,
             nonce_node = $2, expires_at = c.now + $3::int8, start_seen = false, waiting = NULL,
             held_by = NULL, next_try_at = NULL, waits = 0, redispatches = 0, started_at = NULL,
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
             AND (e.deadline_at > c.now) IS NOT FALSE
             AND (e.occurrence <> 'scheduled'
               OR (SELECT p.id FROM job p WHERE p.id = e.job AND p.standing = 'paused') IS NULL)
             AND ($8 OR (
               SELECT v.job FROM job_version v WHERE v.job = e.job AND v.overlap <> 'allow' LIMIT 1) IS NULL)
             AND ((SELECT p.id FROM pause p WHERE p.ended_at IS NULL LIMIT 1) IS NULL
               OR (SELECT p.id FROM pause p WHERE p.tenant = e.tenant AND p.ended_at IS NULL AND (p.scope = 'tenant'
                 OR p.handler || '/' || p.handler_version = (SELECT queue_of(v.definition) FROM job_version v
                   WHERE v.job = e.job AND v.version = e.job_version)) LIMIT 1) IS NULL)
             AND ($8 OR ((e.waiting IN ('tenant_limit', 'key_limit')) IS NOT TRUE AND (
               SELECT l.tenant FROM concurrency_limit l WHERE l.tenant = e.tenant AND l.max_running IS NOT NULL
               LIMIT 1) IS NULL))
           RETURNING e.id, e.job, e.tenant, e.occurrence, e.token, e.attempts, e.due_at, e.deadline_at, e.leased_at,
             e.cancel_requested, c.now),
           last_look AS MATERIALIZED (
             SELECT no_job_is_paused(array_agg(job) FILTER (WHERE occurrence = 'scheduled'))
               AND no_pause_is_over(array_agg(id))
               AND ($8 OR tenants_are_unlimited(array_agg(DISTINCT tenant))) AS passed FROM granted)
           SELECT g.id AS "id!", g.token AS "token!", g.attempts AS "attempts!", g.due_at AS "due_at!",
             g.deadline_at, g.leased_at AS "leased_at!", g.cancel_requested AS "cancel_requested!", g.now AS "now!"
           FROM granted g, last_look l WHERE l.passed"#,
        *now,
        ask.node.as_uuid(),
        micros(ask.ttl),
        &open.keys().map(|id| id.as_uuid()).collect::<Vec<_>>(),
        &open.values().map(|(_, item)| stored_nonce(item.nonce)).collect::<Vec<_>>(),
        &open.values().map(|(_, item)| item.published_at.as_micros()).collect::<Vec<_>>(),
        &open.values().map(|(_, item)| micros(item.held)).collect::<Vec<_>>(),
        are_judged,
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
            left: read::instant(row.deadline_at).map(|at| at.since(Timestamp::from_micros(row.leased_at))),
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
    deadline_at: Option<i64>,
    leased_at: Option<i64>,
    cancel_requested: bool,
    job: Uuid,
    is_waiting: bool,
    /// Whether it is of a fire whose job is paused.
    is_paused: bool,
    /// Whether a version of its job judges by overlap.
    is_judged: bool,
    /// The pause of its tenant or queue, the tenant's first.
    pause: Option<Uuid>,
    tenant: Uuid,
    /// Whether its tenant has a limit, or it waits for one that there was.
    is_limited: bool,
}

/// What becomes of an item that was not granted.
enum Answer {
    Reply(AcquireReply),
    /// Its job is paused, and that is to be recorded.
    HoldBack,
    /// Its tenant or queue is paused by this, and that is to be recorded.
    HoldFor(Uuid),

    /// It could be granted.
    Open,
}

/// What was not granted and has no answer yet.
#[derive(Default)]
struct HeldBack {
    /// To be recorded as held back, with its job, which is paused.
    by_job: BTreeMap<ExecutionId, Uuid>,
    /// To be recorded as held back, with the pause of its tenant or queue.
    by_pause: BTreeMap<ExecutionId, Uuid>,
    /// To be judged by overlap and limits, with its job.
    judged: BTreeMap<ExecutionId, Uuid>,
    /// To be ended for their deadlines, once all others are answered.
    overdue: BTreeSet<ExecutionId>,
}

/// Answers what was not granted, as things stand. Leaves open what could be granted by now, and what is to be held
/// back or judged, which it returns.
async fn explain(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &AcquireExecutions,
    now: &mut Option<i64>,
    replies: &mut [Option<AcquireReply>],
) -> Result<HeldBack, Fault> {
    let ids: Vec<Uuid> = open_items(ask, replies).keys().map(|id| id.as_uuid()).collect();
    let rows = sqlx::query_as!(
        HeldColumns,
        r#"SELECT e.id, e.state, e.token, e.attempts, e.nonce, e.nonce_node, e.expires_at, e.due_at, e.deadline_at,
           e.leased_at, e.cancel_requested, e.job, e.waiting IS NOT NULL AS "is_waiting!",
           e.occurrence = 'scheduled' AND (
             SELECT p.id FROM job p WHERE p.id = e.job AND p.standing = 'paused') IS NOT NULL AS "is_paused!",
           (
             SELECT v.job FROM job_version v WHERE v.job = e.job AND v.overlap <> 'allow' LIMIT 1) IS NOT NULL
             AS "is_judged!",
           (SELECT p.id FROM pause p WHERE p.tenant = e.tenant AND p.ended_at IS NULL AND (p.scope = 'tenant'
             OR p.handler || '/' || p.handler_version = (SELECT queue_of(v.definition) FROM job_version v
               WHERE v.job = e.job AND v.version = e.job_version)) ORDER BY p.scope DESC LIMIT 1) AS "pause?",
           e.tenant, (e.waiting IN ('tenant_limit', 'key_limit')) IS TRUE OR (
             SELECT l.tenant FROM concurrency_limit l WHERE l.tenant = e.tenant AND l.max_running IS NOT NULL
             LIMIT 1) IS NOT NULL AS "is_limited!"
         FROM unnest($1::uuid[]) AS i (id) JOIN execution e ON e.id = ANY (ARRAY[i.id])"#,
        &ids,
    )
    .fetch_all(&mut *conn)
    .await?;
    let now = Timestamp::from_micros(match *now {
        Some(now) => now,
        None => *now.insert(cx.clock(conn).await?),
    });
    let rows: BTreeMap<Uuid, HeldColumns> = rows.into_iter().map(|row| (row.id, row)).collect();
    // Where one of a batch is judged, what it does may change what the others of its job or tenant are told.
    let is_pending = |row: &&HeldColumns| row.is_judged && row.state == ExecutionState::Pending.name();
    let judging: BTreeSet<Uuid> = rows.values().filter(is_pending).map(|row| row.job).collect();
    let is_pending = |row: &&HeldColumns| row.is_limited && row.state == ExecutionState::Pending.name();
    let limiting: BTreeSet<Uuid> = rows.values().filter(is_pending).map(|row| row.tenant).collect();
    let mut held_back = HeldBack::default();
    for (at, item) in ask.items.iter().enumerate() {
        if replies[at].is_some() {
            continue;
        }
        let Some(row) = rows.get(&item.execution.as_uuid()) else {
            replies[at] = Some(AcquireReply::Absent);
            continue;
        };
        if is_overdue(row, ask.node, item, now)? {
            held_back.overdue.insert(item.execution);
            continue;
        }
        if judging.contains(&row.job) || limiting.contains(&row.tenant) {
            held_back.judged.insert(item.execution, row.job);
            continue;
        }
        match answer(row, ask.node, item, now)? {
            Answer::Reply(reply) => replies[at] = Some(reply),
            Answer::HoldBack => {
                held_back.by_job.insert(item.execution, row.job);
            }
            Answer::HoldFor(pause) => {
                held_back.by_pause.insert(item.execution, pause);
            }
            Answer::Open => {}
        }
    }
    Ok(held_back)
}

/// Records that these wait for their jobs to be resumed, and answers them. Of one that moved meanwhile, nothing. It asks
/// in such words that no index of what is dispatched is offered for what is found by id.
async fn hold_back(
    conn: &mut PgConnection,
    ask: &AcquireExecutions,
    now: Option<i64>,
    held_back: &BTreeMap<ExecutionId, Uuid>,
    replies: &mut [Option<AcquireReply>],
) -> Result<(), Fault> {
    let open = open_items(ask, replies);
    let items: Vec<_> = held_back.keys().filter_map(|id| Some((*id, open.get(id)?))).collect();
    let jobs: BTreeSet<Uuid> = held_back.values().copied().collect();
    let mut tx = conn.begin().await?;
    let paused = sqlx::query_scalar!(
        "SELECT id FROM job WHERE id = ANY($1) AND standing = 'paused' ORDER BY id FOR SHARE",
        &jobs.into_iter().collect::<Vec<_>>(),
    )
    .fetch_all(&mut *tx)
    .await?;
    let rows = sqlx::query_scalar!(
        "UPDATE execution e SET waiting = 'job_paused', next_try_at = store_now($1) + $2
         FROM unnest($3::uuid[], $4::int8[]) AS i (id, nonce)
         WHERE e.id = ANY (ARRAY[i.id]) AND e.state = 'pending' AND num_nulls(e.waiting) = 1 AND e.job = ANY($5)
           AND (e.nonce_node IS DISTINCT FROM $6 OR e.nonce <> i.nonce)
         RETURNING e.id",
        now,
        micros(PAUSE_RECHECK),
        &items.iter().map(|(id, _)| id.as_uuid()).collect::<Vec<_>>(),
        &items.iter().map(|(_, (_, item))| stored_nonce(item.nonce)).collect::<Vec<_>>(),
        &paused,
        ask.node.as_uuid(),
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    for id in rows {
        let (at, _) = open[&ExecutionId::from_uuid(id)];
        replies[at] = Some(AcquireReply::NotNow { state: ExecutionState::Pending });
    }
    Ok(())
}

/// Whether an item, which is no resend, asks for what waits past its deadline.
fn is_overdue(
    row: &HeldColumns,
    node: NodeId,
    item: &AcquireExecution,
    now: Timestamp,
) -> Result<bool, Fault> {
    let is_past = read::instant(row.deadline_at).is_some_and(|at| at <= now);
    let is_resent = row.nonce_node == Some(node.as_uuid()) && row.nonce == stored_nonce(item.nonce);
    Ok(is_past && !is_resent && read::state(&row.state)? == ExecutionState::Pending)
}

/// What an item is told of a row that it was not granted.
fn answer(row: &HeldColumns, node: NodeId, item: &AcquireExecution, now: Timestamp) -> Result<Answer, Fault> {
    let state = read::state(&row.state)?;
    if row.nonce_node == Some(node.as_uuid()) && row.nonce == stored_nonce(item.nonce) {
        let runs_on =
            state == ExecutionState::Running && !may_be_taken(Timestamp::from_micros(row.expires_at), now);
        let leased_at = read::instant(row.leased_at).filter(|_| runs_on);
        return Ok(Answer::Reply(match leased_at {
            Some(leased_at) => AcquireReply::Granted(Grant {
                token: FencingToken::from_i64(row.token),
                attempts: read::count("execution.attempts", row.attempts)?,
                age: leased_at.since(Timestamp::from_micros(row.due_at)),
                left: read::instant(row.deadline_at).map(|at| at.since(leased_at)),
                cancel: read::cancel(row.cancel_requested),
            }),
            None => AcquireReply::Never { state },
        }));
    }
    if let (ExecutionState::Pending, false, false, Some(pause)) =
        (state, row.is_paused, row.is_waiting, row.pause)
    {
        return Ok(Answer::HoldFor(pause));
    }
    Ok(match state {
        ExecutionState::Pending if row.is_paused && row.is_waiting => {
            Answer::Reply(AcquireReply::NotNow { state })
        }
        ExecutionState::Pending if row.is_paused => Answer::HoldBack,
        ExecutionState::Pending if row.pause.is_some() && row.is_waiting => {
            Answer::Reply(AcquireReply::NotNow { state })
        }
        ExecutionState::Pending if row.token == i64::MAX => Answer::Reply(AcquireReply::Never { state }),
        ExecutionState::Pending => Answer::Open,
        ExecutionState::RetryWait => Answer::Reply(AcquireReply::NotNow { state }),
        ExecutionState::Running
        | ExecutionState::Completed
        | ExecutionState::DeadLettered
        | ExecutionState::Failed
        | ExecutionState::Cancelled
        | ExecutionState::Skipped => Answer::Reply(AcquireReply::Never { state }),
    })
}
