//! Deadlines of whole executions: what waits past its own is ended, by its message and by the sweep.
//!
//! The rules are the reference semantics' own (`deadline` there). Whether an execution has a deadline, and whether its dead
//! letters are kept, never changes, so both are read without a lock, and only of executions that are past theirs. Jobs
//! whose ends decide something are locked before their executions, as for every end.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::execution::{DeadLetterReason, ExecutionState};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, JobId, JobVersion};
use fencepost_core::job::DeadLetters as Kept;
use fencepost_core::lease::RunId;
use fencepost_core::store::command::{AcquireExecutions, ScanSweep};
use fencepost_core::store::reply::AcquireReply;
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::acquire::open_items;
use super::context::Context;
use super::endings::DeadLetters;
use super::fault::Fault;
use super::locked::{LockedExecution, LockedExecutions};
use super::{definitions, failures, overlap, read};

/// What of an execution with a deadline never changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounded {
    deadline_at: Timestamp,
    kept: Kept,
}

impl Bounded {
    /// Whether a row waits past its deadline.
    pub(super) fn is_overdue(&self, row: &LockedExecution, now: Timestamp) -> bool {
        matches!(row.state, ExecutionState::Pending | ExecutionState::RetryWait) && self.deadline_at <= now
    }

    /// Ends a row that is.
    pub(super) fn end(&self, row: &mut LockedExecution, now: Timestamp, dead_letters: &mut DeadLetters) {
        match self.kept {
            Kept::On => {
                row.settle(ExecutionState::DeadLettered, now);
                dead_letters.add(row, DeadLetterReason::Deadline);
            }
            Kept::Off => row.settle(ExecutionState::Failed, now),
        }
    }
}

/// Those of these executions that have a deadline.
pub(super) async fn of(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ids: impl IntoIterator<Item = ExecutionId>,
) -> Result<BTreeMap<ExecutionId, Bounded>, Fault> {
    let ids: Vec<Uuid> = ids.into_iter().map(ExecutionId::as_uuid).collect();
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows = sqlx::query!(
        r#"SELECT e.id, e.job, e.job_version, coalesce(e.deadline_at, 0) AS "deadline_at!"
           FROM unnest($1::uuid[]) AS i (id) JOIN execution e ON e.id = ANY (ARRAY[i.id])
           WHERE num_nulls(e.deadline_at) = 0"#,
        &ids,
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut keys = Vec::with_capacity(rows.len());
    for row in &rows {
        let version = JobVersion(read::count("execution.job_version", row.job_version)?);
        keys.push((JobId::from_uuid(row.job), version));
    }
    let known = cx.definitions.of(conn, keys.iter().copied()).await?;
    let mut bounded = BTreeMap::new();
    for (row, (job, version)) in rows.into_iter().zip(keys) {
        let (_, kept) = definitions::one_of(&known, job, version)?.retry_or_default();
        let deadline_at = Timestamp::from_micros(row.deadline_at);
        bounded.insert(ExecutionId::from_uuid(row.id), Bounded { deadline_at, kept });
    }
    Ok(bounded)
}

/// Ends those of a batch that were asked for past their deadline, and answers them. Of one that moved meanwhile, nothing.
pub(super) async fn end_asked_for(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &AcquireExecutions,
    now: Option<i64>,
    overdue: &BTreeSet<ExecutionId>,
    replies: &mut [Option<AcquireReply>],
) -> Result<(), Fault> {
    let bounded = of(cx, conn, overdue.iter().copied()).await?;
    let mut tx = conn.begin().await?;
    let judged = overlap::lock_jobs_of_ends(&mut tx, overdue.iter().copied()).await?;
    let mut locked = LockedExecutions::lock(&mut tx, overdue.iter().copied()).await?;
    let micros = now.expect("what is overdue was looked at, by a clock");
    let now = Timestamp::from_micros(micros);
    let mut dead_letters = DeadLetters::default();
    let open = open_items(ask, replies);
    let mut ended = Vec::new();
    for item in ask.items.iter().filter(|item| overdue.contains(&item.execution)) {
        let (Some(row), Some(bounded), Some((at, _))) =
            (locked.get_mut(item.execution), bounded.get(&item.execution), open.get(&item.execution))
        else {
            continue;
        };
        let is_resent = row.nonce_node == Some(ask.node) && row.nonce == item.nonce;
        if row.state == ExecutionState::Pending && !is_resent && bounded.is_overdue(row, now) {
            bounded.end(row, now, &mut dead_letters);
            ended.push((*at, row.id, AcquireReply::Never { state: row.state }));
        }
    }
    let freed = overlap::among(&judged.all, locked.freed(ended.iter().map(|(_, id, _)| *id)));
    let failed = locked.failed();
    locked.write(&mut tx).await?;
    dead_letters.record(&mut tx, micros).await?;
    overlap::lift(&mut tx, &freed, micros).await?;
    failures::judge(&mut tx, &judged.by_failures, &failed, micros).await?;
    tx.commit().await?;
    for (at, _, reply) in ended {
        replies[at] = Some(reply);
    }
    Ok(())
}

/// What waits past its deadline, for the sweep.
pub(super) async fn scan(
    conn: &mut PgConnection,
    ask: &ScanSweep,
    now: i64,
) -> Result<Vec<(RunId, ExecutionState)>, Fault> {
    let rows = sqlx::query!(
        "SELECT e.id, e.token, e.state FROM execution e
         WHERE e.deadline_at <= $1 AND e.state IN ('pending', 'retry_wait')
         ORDER BY e.deadline_at, e.id LIMIT $2",
        now,
        i64::from(ask.limit),
    )
    .fetch_all(conn)
    .await?;
    let found = |(id, token): (Uuid, i64)| RunId {
        execution: ExecutionId::from_uuid(id),
        token: FencingToken::from_i64(token),
    };
    rows.into_iter().map(|row| Ok((found((row.id, row.token)), read::state(&row.state)?))).collect()
}
