//! What is written of runs that ended otherwise than completed: attempts and dead letters.

use std::collections::BTreeMap;

use fencepost_core::execution::{AttemptEnd, DeadLetterReason};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, NodeId};
use fencepost_core::lease::RunId;
use sqlx::PgConnection;
use uuid::Uuid;

use super::fault::Fault;
use super::locked::LockedExecution;
use super::read;

/// An attempt to be recorded.
struct NewAttempt {
    run: RunId,
    tenant: Uuid,
    node: Option<NodeId>,
    attempt: i64,
    end: AttemptEnd,
    error: Option<String>,
}

/// How runs ended, as recorded and as to be recorded.
#[derive(Default)]
pub(super) struct Attempts {
    ends: BTreeMap<RunId, AttemptEnd>,
    new: Vec<NewAttempt>,
}

impl Attempts {
    /// What is recorded of these runs. To be read once their executions are locked.
    pub(super) async fn known(
        conn: &mut PgConnection,
        runs: impl IntoIterator<Item = RunId>,
    ) -> Result<Self, Fault> {
        let (executions, tokens): (Vec<Uuid>, Vec<i64>) =
            runs.into_iter().map(|run| (run.execution.as_uuid(), run.token.as_i64())).unzip();
        let rows = sqlx::query!(
            "SELECT a.execution, a.token, a.ended FROM unnest($1::uuid[], $2::int8[]) AS i (execution, token)
             JOIN attempt a ON a.execution = ANY (ARRAY[i.execution]) AND a.token = i.token",
            &executions,
            &tokens,
        )
        .fetch_all(conn)
        .await?;
        let mut ends = BTreeMap::new();
        for row in rows {
            let run = RunId {
                execution: ExecutionId::from_uuid(row.execution),
                token: FencingToken::from_i64(row.token),
            };
            ends.insert(run, read::named("attempt.ended", &row.ended, AttemptEnd::from_name)?);
        }
        Ok(Self { ends, new: Vec::new() })
    }

    /// How a run ended, if otherwise than completed.
    pub(super) fn ended(&self, run: RunId) -> Option<AttemptEnd> {
        self.ends.get(&run).copied()
    }

    /// The lease of `row` ended. To be called before its owner goes and its counters rise.
    pub(super) fn add(&mut self, row: &LockedExecution, end: AttemptEnd, error: Option<&str>) {
        let run = RunId { execution: row.id, token: row.token };
        self.ends.insert(run, end);
        self.new.push(NewAttempt {
            run,
            tenant: row.tenant.as_uuid(),
            node: row.owner,
            attempt: i64::from(row.attempts) + 1,
            end,
            error: error.map(str::to_owned),
        });
    }

    /// Writes what is new.
    pub(super) async fn record(self, conn: &mut PgConnection, now: i64) -> Result<(), Fault> {
        let new = self.new;
        if new.is_empty() {
            return Ok(());
        }
        sqlx::query!(
            "INSERT INTO attempt (execution, token, tenant, node, attempt, ended, error, at)
             SELECT i.execution, i.token, i.tenant, i.node, i.attempt, i.ended, i.error, $1
             FROM unnest($2::uuid[], $3::int8[], $4::uuid[], $5::uuid[], $6::int8[], $7::text[], $8::text[])
               AS i (execution, token, tenant, node, attempt, ended, error)",
            now,
            &new.iter().map(|attempt| attempt.run.execution.as_uuid()).collect::<Vec<_>>(),
            &new.iter().map(|attempt| attempt.run.token.as_i64()).collect::<Vec<_>>(),
            &new.iter().map(|attempt| attempt.tenant).collect::<Vec<_>>(),
            &new.iter().map(|attempt| attempt.node.map(NodeId::as_uuid)).collect::<Vec<_>>()
                as &[Option<Uuid>],
            &new.iter().map(|attempt| attempt.attempt).collect::<Vec<_>>(),
            &new.iter().map(|attempt| attempt.end.name().to_owned()).collect::<Vec<_>>(),
            &new.iter().map(|attempt| attempt.error.clone()).collect::<Vec<_>>() as &[Option<String>],
        )
        .execute(conn)
        .await?;
        Ok(())
    }
}

/// Dead letters to be recorded, by the rows as they ended.
#[derive(Default)]
pub(super) struct DeadLetters {
    new: Vec<(LockedExecution, DeadLetterReason)>,
}

impl DeadLetters {
    /// `row` was dead-lettered.
    pub(super) fn add(&mut self, row: &LockedExecution, reason: DeadLetterReason) {
        self.new.push((row.clone(), reason));
    }

    /// Writes them.
    pub(super) async fn record(self, conn: &mut PgConnection, now: i64) -> Result<(), Fault> {
        let new = self.new;
        if new.is_empty() {
            return Ok(());
        }
        let counts = |of: fn(&LockedExecution) -> u32| -> Vec<i32> {
            new.iter().map(|(row, _)| read::stored_count(of(row))).collect()
        };
        sqlx::query!(
            "INSERT INTO dead_letter (execution, tenant, job, reason, error, attempts, rescues, lost_starts, at,
               replays)
             SELECT i.execution, i.tenant, i.job, i.reason, i.error, i.attempts, i.rescues, i.lost_starts, $1, 0
             FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::int4[], $8::int4[],
               $9::int4[]) AS i (execution, tenant, job, reason, error, attempts, rescues, lost_starts)",
            now,
            &new.iter().map(|(row, _)| row.id.as_uuid()).collect::<Vec<_>>(),
            &new.iter().map(|(row, _)| row.tenant.as_uuid()).collect::<Vec<_>>(),
            &new.iter().map(|(row, _)| row.job.as_uuid()).collect::<Vec<_>>(),
            &new.iter().map(|(_, reason)| reason.name().to_owned()).collect::<Vec<_>>(),
            &new.iter().map(|(row, _)| row.error.clone()).collect::<Vec<_>>() as &[Option<String>],
            &counts(|row| row.attempts),
            &counts(|row| row.rescues),
            &counts(|row| row.lost_starts),
        )
        .execute(conn)
        .await?;
        Ok(())
    }
}
