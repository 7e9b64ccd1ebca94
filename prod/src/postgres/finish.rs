//! The ends of runs.
//!
//! Completions, which are nearly all, are one compare-and-set `UPDATE` over the batch. Everything else, what gives the
//! slot of a job back whose overlap is limited (its row is locked first, and what waits for the slot is lifted), what
//! ends of a job that pauses itself after so many failures (likewise), and
//! what that did not touch, goes through rows under lock: attempts and dead letters are recorded, resends
//! are recognised by (token, outcome), and refusals are recorded.

use std::collections::BTreeMap;

use fencepost_core::execution::{AttemptEnd, CancelState, DeadLetterReason, ExecutionState};
use fencepost_core::id::ExecutionId;
use fencepost_core::store::command::{FinishExecution, FinishExecutions, RunOutcome};
use fencepost_core::store::reply::{FinishReply, Reply, StoreReply};
use fencepost_core::store::row::{RefusedAction, RefusedResource};
use fencepost_core::time::{Span, Timestamp};
use sqlx::{Connection, PgConnection};

use super::ATTEMPTS_MAX;
use super::context::{Context, micros};
use super::endings::{Attempts, DeadLetters};
use super::failures;
use super::fault::Fault;
use super::limits;
use super::locked::{LockedExecution, LockedExecutions};
use super::overlap;
use super::refusals::Refusals;

pub(super) async fn finish(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &FinishExecutions,
) -> Result<StoreReply, Fault> {
    let mut replies: Vec<Option<FinishReply>> = vec![None; ask.items.len()];
    let mut now = complete(cx, conn, ask, &mut replies).await?;
    if replies.iter().any(Option::is_none) {
        now = Some(finish_rest(cx, conn, ask, now, &mut replies).await?);
    }
    let now = match now {
        Some(now) => now,
        None => cx.clock(conn).await?,
    };
    let replies = replies.into_iter().map(|reply| reply.expect("each item was answered")).collect();
    Ok(cx.reply(now, Reply::Finished(replies)))
}

/// Completes what runs under the token presented; says by which clock, if there was anything.
async fn complete(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &FinishExecutions,
    replies: &mut [Option<FinishReply>],
) -> Result<Option<i64>, Fault> {
    // The first item of each execution alone: what a later one means depends on the first.
    let mut firsts: BTreeMap<ExecutionId, (usize, &FinishExecution)> = BTreeMap::new();
    for (at, item) in ask.items.iter().enumerate() {
        firsts.entry(item.run.execution).or_insert((at, item));
    }
    firsts.retain(|_, (_, item)| item.outcome == RunOutcome::Completed);
    if firsts.is_empty() {
        return Ok(None);
    }
    let ago = |item: &FinishExecution| item.started_ago.map(micros);
    let rows = sqlx::query!(
        r#"WITH clock AS MATERIALIZED (SELECT store_now($1) AS now), ended AS (
           UPDATE execution e SET state = 'completed', owner = NULL, expires_at = 0,
             started_at = CASE WHEN i.ago IS NULL THEN e.started_at ELSE greatest(c.now - i.ago, e.leased_at) END,
             finished_at = greatest(c.now, e.materialised_at, e.published_at, e.received_at, e.leased_at,
               CASE WHEN i.ago IS NULL THEN e.started_at ELSE c.now - i.ago END),
             lag_clamped = e.lag_clamped OR coalesce(c.now - i.ago < e.leased_at, false)
               OR c.now < greatest(e.materialised_at, e.published_at, e.received_at, e.leased_at,
                 CASE WHEN i.ago IS NULL THEN e.started_at END)
           FROM clock c, unnest($2::uuid[], $3::int8[], $4::int8[]) AS i (id, token, ago)
           WHERE e.id = ANY (ARRAY[i.id]) AND e.state = 'running' AND e.token = i.token
             AND (SELECT v.job FROM job_version v WHERE v.job = e.job
               AND (v.overlap <> 'allow' OR v.pause_after IS NOT NULL) LIMIT 1) IS NULL
             AND (SELECT l.tenant FROM concurrency_limit l WHERE l.tenant = e.tenant AND l.max_running IS NOT NULL
               LIMIT 1) IS NULL
           RETURNING e.id, e.tenant, c.now),
           last_look AS MATERIALIZED (SELECT tenants_are_unlimited(array_agg(DISTINCT tenant)) AS passed FROM ended)
           SELECT e.id AS "id!", e.now AS "now!" FROM ended e, last_look l WHERE l.passed"#,
        cx.given,
        &firsts.keys().map(|id| id.as_uuid()).collect::<Vec<_>>(),
        &firsts.values().map(|(_, item)| item.run.token.as_i64()).collect::<Vec<_>>(),
        &firsts.values().map(|(_, item)| ago(item)).collect::<Vec<_>>() as &[Option<i64>],
    )
    .fetch_all(conn)
    .await?;
    let mut now = None;
    for row in rows {
        now = Some(row.now);
        let (at, _) = firsts[&ExecutionId::from_uuid(row.id)];
        replies[at] = Some(FinishReply::Applied { state: ExecutionState::Completed });
    }
    Ok(now)
}

/// Answers every item that has no answer yet. What has been completed is committed by now: where this has to start over,
/// it starts here, or the very command that completed it would be told that this had been done already.
async fn finish_rest(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &FinishExecutions,
    now: Option<i64>,
    replies: &mut Vec<Option<FinishReply>>,
) -> Result<i64, Fault> {
    let mut attempt = 1;
    loop {
        let mut answered = replies.clone();
        match finish_under_lock(cx, conn, ask, now, &mut answered).await {
            Err(fault) if fault.is_transient() && attempt < ATTEMPTS_MAX => attempt += 1,
            Err(fault) => return Err(fault),
            Ok(now) => {
                *replies = answered;
                return Ok(now);
            }
        }
    }
}

/// Answers every item that has no answer yet, in one transaction.
async fn finish_under_lock(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &FinishExecutions,
    now: Option<i64>,
    replies: &mut [Option<FinishReply>],
) -> Result<i64, Fault> {
    let open: Vec<usize> = (0..replies.len()).filter(|at| replies[*at].is_none()).collect();
    let items = || open.iter().map(|at| &ask.items[*at]);
    let mut tx = conn.begin().await?;
    let limited = limits::lock_tenants(&mut tx, items().map(|item| item.run.execution)).await?;
    let judged = overlap::lock_jobs_of_ends(&mut tx, items().map(|item| item.run.execution)).await?;
    let mut rows = LockedExecutions::lock(&mut tx, items().map(|item| item.run.execution)).await?;
    let now = match now {
        Some(now) => now,
        None => cx.clock(&mut tx).await?,
    };
    let mut ending = Ending {
        now: Timestamp::from_micros(now),
        attempts: Attempts::known(&mut tx, items().map(|item| item.run)).await?,
        dead_letters: DeadLetters::default(),
        refusals: Refusals::new(ask.node, RefusedAction::Finish),
    };
    for at in &open {
        let item = &ask.items[*at];
        replies[*at] = Some(match rows.get_mut(item.run.execution) {
            None => FinishReply::Absent,
            Some(row) => ending.finish(row, item),
        });
    }
    rows.write(&mut tx).await?;
    let freed = overlap::among(&judged.all, rows.freed(items().map(|item| item.run.execution)));
    overlap::lift(&mut tx, &freed, now).await?;
    let ended = rows.ended_runs(items().map(|item| item.run.execution));
    limits::give_back(&mut tx, &limited, &ended, now).await?;
    failures::judge(&mut tx, &judged.by_failures, &rows.failed(), now).await?;
    ending.attempts.record(&mut tx, now).await?;
    ending.dead_letters.record(&mut tx, now).await?;
    ending.refusals.record(&mut tx, now).await?;
    tx.commit().await?;
    Ok(now)
}

/// How an attempt that did not complete ended; for a stopped handler by whether anybody had asked.
fn attempt_end(outcome: &RunOutcome, cancel: CancelState) -> Option<AttemptEnd> {
    match (outcome, cancel) {
        (RunOutcome::Completed, _) => None,
        (RunOutcome::Retry { .. }, _) => Some(AttemptEnd::FailedRetryably),
        (RunOutcome::DeadLettered { .. } | RunOutcome::Failed { .. }, _) => Some(AttemptEnd::FailedForGood),
        (RunOutcome::Released, _) | (RunOutcome::Cancelled, CancelState::None) => Some(AttemptEnd::Released),
        (RunOutcome::Cancelled, CancelState::Requested) => Some(AttemptEnd::Cancelled),
    }
}

/// The error of an outcome that has one; such an outcome counts as an attempt.
fn error_of(outcome: &RunOutcome) -> Option<&str> {
    match outcome {
        RunOutcome::Retry { error, .. }
        | RunOutcome::DeadLettered { error, .. }
        | RunOutcome::Failed { error } => Some(error),
        RunOutcome::Completed | RunOutcome::Released | RunOutcome::Cancelled => None,
    }
}

/// What finishing under lock gathers.
struct Ending {
    now: Timestamp,
    attempts: Attempts,
    dead_letters: DeadLetters,
    refusals: Refusals,
}

impl Ending {
    fn finish(&mut self, row: &mut LockedExecution, item: &FinishExecution) -> FinishReply {
        if row.state == ExecutionState::Running && row.token == item.run.token {
            self.end(row, item);
            return FinishReply::Applied { state: row.state };
        }
        if self.was_applied(row, item) {
            return FinishReply::Already { state: row.state };
        }
        self.refusals.note(RefusedResource::Execution(row.id), item.run.token, row.token);
        FinishReply::Refused { current: row.token, state: row.state }
    }

    fn was_applied(&self, row: &LockedExecution, item: &FinishExecution) -> bool {
        let ended = |end| self.attempts.ended(item.run) == Some(end);
        match &item.outcome {
            RunOutcome::Completed => row.state == ExecutionState::Completed && row.token == item.run.token,
            RunOutcome::Retry { .. } => ended(AttemptEnd::FailedRetryably),
            RunOutcome::DeadLettered { .. } => {
                ended(AttemptEnd::FailedForGood) && row.state == ExecutionState::DeadLettered
            }
            RunOutcome::Failed { .. } => {
                ended(AttemptEnd::FailedForGood) && row.state == ExecutionState::Failed
            }
            RunOutcome::Released => ended(AttemptEnd::Released),
            RunOutcome::Cancelled => ended(AttemptEnd::Cancelled) || ended(AttemptEnd::Released),
        }
    }

    fn end(&mut self, row: &mut LockedExecution, item: &FinishExecution) {
        self.stamp_start(row, item.started_ago);
        let error = error_of(&item.outcome);
        if let Some(end) = attempt_end(&item.outcome, row.cancel) {
            self.attempts.add(row, end, error);
        }
        if let Some(error) = error {
            row.error = Some(error.to_owned());
            row.attempts = row.attempts.saturating_add(1);
        }
        match &item.outcome {
            RunOutcome::Completed => row.settle(ExecutionState::Completed, self.now),
            RunOutcome::Retry { delay, .. } => self.set_back_or_cancel(row, *delay),
            RunOutcome::DeadLettered { reason, .. } => self.dead_letter(row, *reason),
            RunOutcome::Failed { .. } => row.settle(ExecutionState::Failed, self.now),
            RunOutcome::Released | RunOutcome::Cancelled => self.set_back_or_cancel(row, Span::ZERO),
        }
    }

    fn dead_letter(&mut self, row: &mut LockedExecution, reason: DeadLetterReason) {
        row.settle(ExecutionState::DeadLettered, self.now);
        self.dead_letters.add(row, reason);
    }

    /// What would be tried again is cancelled where that was asked for.
    fn set_back_or_cancel(&self, row: &mut LockedExecution, delay: Span) {
        match row.cancel {
            CancelState::Requested => row.settle(ExecutionState::Cancelled, self.now),
            CancelState::None => row.set_back(self.now.plus(delay)),
        }
    }

    /// When the handler started: not before the lease was granted.
    fn stamp_start(&self, row: &mut LockedExecution, started_ago: Option<Span>) {
        let Some(ago) = started_ago else { return };
        let reported = self.now.minus(ago);
        let started_at = row.leased_at.map_or(reported, |leased_at| reported.max(leased_at));
        row.started_at = Some(started_at);
        row.lag_clamped |= started_at != reported;
    }
}
