//! By execution: its row and what is on record about it, each list merged by the execution's id.

use std::collections::VecDeque;

use fencepost_core::execution::{AttemptEnd, DeadLetterReason, SkipReason};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{DispatchNo, EffectId, ExecutionId, JobId, JobVersion, NodeId, PauseId, TenantId};
use fencepost_core::store::row::{AttemptRow, DeadLetterRow, ExecutionRow, JobState, OutboxRow};
use fencepost_core::time::Timestamp;
use fencepost_core::verify::{ExecutionFacts, JobOfExecution, OriginFacts, ReplayFacts};
use sqlx::PgConnection;
use uuid::Uuid;

use super::cursor::Cursor;
use super::records::RefusalColumns;
use super::{PLANNED_BY_KEY, PLANNED_FOR_ALL, Reading};
use crate::postgres::definitions::Definitions;
use crate::postgres::due_jobs::partition;
use crate::postgres::fault::Fault;
use crate::postgres::read::{self, OccurrenceColumns};

/// Executions whose definitions are looked for together.
const TOGETHER: usize = 500;

#[derive(sqlx::FromRow)]
struct ExecutionColumns {
    id: Uuid,
    tenant: Uuid,
    job: Uuid,
    job_version: i64,
    partition: i16,
    occurrence: String,
    fire: Option<i64>,
    manual_key: Option<String>,
    origin: Option<Uuid>,
    replay_number: Option<i64>,
    key: String,
    state: String,
    skip_reason: Option<String>,
    due_at: i64,
    deadline_at: Option<i64>,
    made_under: i64,
    token: i64,
    owner: Option<Uuid>,
    nonce: i64,
    nonce_node: Option<Uuid>,
    expires_at: i64,
    start_seen: bool,
    cancel_requested: bool,
    attempts: i32,
    rescues: i32,
    lost_starts: i32,
    next_try_at: Option<i64>,
    waiting: Option<String>,
    held_by: Option<Uuid>,
    waits: i32,
    dispatch_no: i32,
    dispatched_at: Option<i64>,
    redispatches: i32,
    materialised_at: i64,
    published_at: Option<i64>,
    received_at: Option<i64>,
    leased_at: Option<i64>,
    started_at: Option<i64>,
    finished_at: Option<i64>,
    lag_clamped: bool,
    job_tenant: Option<Uuid>,
    job_partition: Option<i16>,
    job_state: Option<String>,
    job_effective_from: Option<i64>,
    origin_token: Option<i64>,
    origin_key: Option<String>,
}

/// An execution with what is in its own row of the page.
struct Listed {
    execution: ExecutionRow,
    job: Option<JobOfExecution>,
    origin: Option<OriginFacts>,
}

impl ExecutionColumns {
    fn read(self) -> Result<Listed, Fault> {
        let job = match (self.job_tenant, self.job_partition, self.job_state, self.job_effective_from) {
            (Some(tenant), Some(number), Some(state), Some(effective_from)) => Some(JobOfExecution {
                tenant: TenantId::from_uuid(tenant),
                partition: partition(number)?,
                state: read::named("job.state", &state, JobState::from_name)?,
                effective_from: Timestamp::from_micros(effective_from),
            }),
            (_, _, _, _) => None,
        };
        let origin = self
            .origin_token
            .zip(self.origin_key)
            .map(|(token, key)| OriginFacts { token: FencingToken::from_i64(token), key: key.into() });
        let occurrence = OccurrenceColumns {
            kind: self.occurrence,
            fire: self.fire,
            manual_key: self.manual_key,
            origin: self.origin,
            replay_number: self.replay_number,
        };
        let skipped = |name: &str| read::named("execution.skip_reason", name, SkipReason::from_name);
        let execution = ExecutionRow {
            id: ExecutionId::from_uuid(self.id),
            tenant: TenantId::from_uuid(self.tenant),
            job: JobId::from_uuid(self.job),
            job_version: JobVersion(read::count("execution.job_version", self.job_version)?),
            partition: partition(self.partition)?,
            occurrence: occurrence.read()?,
            key: self.key.into(),
            // What it is given and what it said decide nothing here, and may be long.
            payload: None,
            error: None,
            state: read::state(&self.state)?,
            skip_reason: self.skip_reason.as_deref().map(skipped).transpose()?,
            due_at: Timestamp::from_micros(self.due_at),
            deadline_at: read::instant(self.deadline_at),
            made_under: FencingToken::from_i64(self.made_under),
            token: FencingToken::from_i64(self.token),
            owner: self.owner.map(NodeId::from_uuid),
            nonce: EffectId(self.nonce.cast_unsigned()),
            nonce_node: self.nonce_node.map(NodeId::from_uuid),
            expires_at: Timestamp::from_micros(self.expires_at),
            sign: read::sign(self.start_seen),
            cancel: read::cancel(self.cancel_requested),
            attempts: read::count("execution.attempts", self.attempts)?,
            rescues: read::count("execution.rescues", self.rescues)?,
            lost_starts: read::count("execution.lost_starts", self.lost_starts)?,
            next_try_at: read::instant(self.next_try_at),
            waiting: read::waiting(self.waiting.as_deref())?,
            held_by: self.held_by.map(PauseId::from_uuid),
            waits: read::count("execution.waits", self.waits)?,
            dispatch_no: DispatchNo(read::count("execution.dispatch_no", self.dispatch_no)?),
            dispatched_at: read::instant(self.dispatched_at),
            redispatches: read::count("execution.redispatches", self.redispatches)?,
            materialised_at: Timestamp::from_micros(self.materialised_at),
            published_at: read::instant(self.published_at),
            received_at: read::instant(self.received_at),
            leased_at: read::instant(self.leased_at),
            started_at: read::instant(self.started_at),
            finished_at: read::instant(self.finished_at),
            lag_clamped: self.lag_clamped,
        };
        Ok(Listed { execution, job, origin })
    }
}

#[derive(sqlx::FromRow)]
struct AttemptColumns {
    execution: Uuid,
    tenant: Uuid,
    node: Option<Uuid>,
    token: i64,
    at: i64,
    attempt: i64,
    ended: String,
}

impl AttemptColumns {
    fn read(self) -> Result<AttemptRow, Fault> {
        Ok(AttemptRow {
            execution: ExecutionId::from_uuid(self.execution),
            token: FencingToken::from_i64(self.token),
            tenant: TenantId::from_uuid(self.tenant),
            node: self.node.map(NodeId::from_uuid),
            attempt: read::count("attempt.attempt", self.attempt)?,
            end: read::named("attempt.ended", &self.ended, AttemptEnd::from_name)?,
            error: None,
            at: Timestamp::from_micros(self.at),
        })
    }
}

#[derive(sqlx::FromRow)]
struct OutboxColumns {
    execution: Uuid,
    tenant: Uuid,
    created_by: Uuid,
    created_at: i64,
    next_try_at: i64,
    dispatch_no: i32,
    tries: i32,
    partition: i16,
}

impl OutboxColumns {
    fn read(self) -> Result<OutboxRow, Fault> {
        Ok(OutboxRow {
            execution: ExecutionId::from_uuid(self.execution),
            dispatch_no: DispatchNo(read::count("outbox_event.dispatch_no", self.dispatch_no)?),
            tenant: TenantId::from_uuid(self.tenant),
            partition: partition(self.partition)?,
            created_by: NodeId::from_uuid(self.created_by),
            created_at: Timestamp::from_micros(self.created_at),
            next_try_at: Timestamp::from_micros(self.next_try_at),
            tries: read::count("outbox_event.tries", self.tries)?,
        })
    }
}

#[derive(sqlx::FromRow)]
struct DeadLetterColumns {
    execution: Uuid,
    tenant: Uuid,
    job: Uuid,
    at: i64,
    attempts: i32,
    rescues: i32,
    lost_starts: i32,
    reason: String,
    has_error: bool,
    replays: i64,
    purged_at: Option<i64>,
}

impl DeadLetterColumns {
    fn read(self) -> Result<DeadLetterRow, Fault> {
        Ok(DeadLetterRow {
            execution: ExecutionId::from_uuid(self.execution),
            tenant: TenantId::from_uuid(self.tenant),
            job: JobId::from_uuid(self.job),
            reason: read::named("dead_letter.reason", &self.reason, DeadLetterReason::from_name)?,
            // Whether there is one is looked at, not what it says.
            error: self.has_error.then(|| "".into()),
            attempts: read::count("dead_letter.attempts", self.attempts)?,
            rescues: read::count("dead_letter.rescues", self.rescues)?,
            lost_starts: read::count("dead_letter.lost_starts", self.lost_starts)?,
            at: Timestamp::from_micros(self.at),
            replays: read::count("dead_letter.replays", self.replays)?,
            purged_at: read::instant(self.purged_at),
        })
    }
}

#[derive(sqlx::FromRow)]
struct ReplayColumns {
    origin: Uuid,
    replay_number: i64,
    materialised_at: i64,
}

impl ReplayColumns {
    fn read(self) -> Result<ReplayFacts, Fault> {
        Ok(ReplayFacts {
            number: read::count("execution.replay_number", self.replay_number)?,
            materialised_at: Timestamp::from_micros(self.materialised_at),
        })
    }
}

/// What is on record about executions, each list in the order of their ids.
struct OnRecord {
    attempts: Cursor<AttemptColumns>,
    outbox: Cursor<OutboxColumns>,
    dead_letters: Cursor<DeadLetterColumns>,
    replays: Cursor<ReplayColumns>,
    refusals: Cursor<RefusalColumns>,
}

impl OnRecord {
    async fn open(conn: &mut PgConnection) -> Result<Self, Fault> {
        Ok(Self {
            attempts: Cursor::open(
                conn,
                "verified_attempt",
                "SELECT execution, tenant, node, token, at, attempt, ended FROM attempt ORDER BY execution, token",
            )
            .await?,
            outbox: Cursor::open(
                conn,
                "verified_outbox",
                "SELECT execution, tenant, created_by, created_at, next_try_at, dispatch_no, tries, partition
                 FROM outbox_event ORDER BY execution, dispatch_no",
            )
            .await?,
            dead_letters: Cursor::open(
                conn,
                "verified_dead_letter",
                "SELECT execution, tenant, job, at, attempts, rescues, lost_starts, reason,
                   error IS NOT NULL AS has_error, replays, purged_at
                 FROM dead_letter ORDER BY execution",
            )
            .await?,
            replays: Cursor::open(
                conn,
                "verified_replay",
                "SELECT origin, replay_number, materialised_at FROM execution
                 WHERE origin IS NOT NULL AND replay_number IS NOT NULL ORDER BY origin, replay_number",
            )
            .await?,
            // As text, ids have the same order.
            refusals: Cursor::open(
                conn,
                "verified_refusal_of_execution",
                "SELECT resource, token, node, action, current, first_at, last_at, count FROM refusal
                 WHERE resource LIKE 'execution/%' ORDER BY resource, token, node, action",
            )
            .await?,
        })
    }

    /// Everything about one execution. Ids ascend from call to call.
    async fn of(
        &mut self,
        conn: &mut PgConnection,
        reading: &mut Reading<'_>,
        listed: Listed,
    ) -> Result<ExecutionFacts, Fault> {
        let Listed { execution, job, origin } = listed;
        let (id, uuid) = (execution.id, execution.id.as_uuid());
        let (of_job, of_execution) = (Some(execution.job), Some(id));
        let mut facts = ExecutionFacts {
            execution,
            job,
            definition: None,
            attempts: Vec::new(),
            outbox: Vec::new(),
            dead_letter: None,
            replays: Vec::new(),
            origin,
            refusals: Vec::new(),
        };
        let progress = reading.progress;
        for row in self.attempts.of(conn, progress, &uuid, |row| row.execution).await? {
            facts.attempts.extend(reading.readable(of_job, of_execution, row.read())?);
        }
        for row in self.outbox.of(conn, progress, &uuid, |row| row.execution).await? {
            facts.outbox.extend(reading.readable(of_job, of_execution, row.read())?);
        }
        for row in self.dead_letters.of(conn, progress, &uuid, |row| row.execution).await? {
            facts.dead_letter = reading.readable(of_job, of_execution, row.read())?;
        }
        for row in self.replays.of(conn, progress, &uuid, |row| row.origin).await? {
            facts.replays.extend(reading.readable(of_job, of_execution, row.read())?);
        }
        // One that names no id lies before all that do, and is told below.
        for row in self.refusals.of(conn, progress, &of_execution, RefusalColumns::execution).await? {
            facts.refusals.extend(reading.readable(of_job, of_execution, row.read())?);
        }
        Ok(facts)
    }
}

/// Reads every execution with what is on record about it.
pub(super) async fn by_execution(conn: &mut PgConnection, reading: &mut Reading<'_>) -> Result<(), Fault> {
    let (from, to) = (reading.window.from.as_micros(), reading.window.to.as_micros());
    let select = format!(
        "SELECT e.id, e.tenant, e.job, e.job_version, e.partition, e.occurrence, e.fire, e.manual_key, e.origin,
           e.replay_number, e.key, e.state, e.skip_reason, e.due_at, e.deadline_at, e.made_under, e.token, e.owner, e.nonce,
           e.nonce_node, e.expires_at, e.start_seen, e.cancel_requested, e.attempts, e.rescues, e.lost_starts,
           e.next_try_at, e.waiting, e.held_by, e.waits, e.dispatch_no, e.dispatched_at, e.redispatches, e.materialised_at,
           e.published_at, e.received_at, e.leased_at, e.started_at, e.finished_at, e.lag_clamped,
           j.tenant AS job_tenant, j.partition AS job_partition, j.state AS job_state,
           j.effective_from AS job_effective_from, o.token AS origin_token, o.key AS origin_key
         FROM execution e LEFT JOIN job j ON j.id = e.job LEFT JOIN execution o ON o.id = e.origin
         WHERE coalesce(e.fire, e.due_at) >= '{from}'::int8 AND coalesce(e.fire, e.due_at) < '{to}'::int8
         ORDER BY e.id"
    );
    let mut executions: Cursor<ExecutionColumns> = Cursor::open(conn, "verified_execution", &select).await?;
    let mut on_record = OnRecord::open(conn).await?;
    sqlx::raw_sql(PLANNED_BY_KEY).execute(&mut *conn).await?;
    judge_all(conn, reading, &mut executions, &mut on_record).await?;
    sqlx::raw_sql(PLANNED_FOR_ALL).execute(conn).await?;
    Ok(())
}

async fn judge_all(
    conn: &mut PgConnection,
    reading: &mut Reading<'_>,
    executions: &mut Cursor<ExecutionColumns>,
    on_record: &mut OnRecord,
) -> Result<(), Fault> {
    let definitions = Definitions::default();
    loop {
        let mut listed = VecDeque::with_capacity(TOGETHER);
        while listed.len() < TOGETHER
            && let Some(row) = executions.next(conn, reading.progress).await?
        {
            let (job, id) = (JobId::from_uuid(row.job), ExecutionId::from_uuid(row.id));
            listed.extend(reading.readable(Some(job), Some(id), row.read())?);
        }
        if listed.is_empty() {
            return Ok(());
        }
        let keys = listed.iter().map(|listed| (listed.execution.job, listed.execution.job_version));
        let known = definitions.of(conn, keys).await?;
        while let Some(listed) = listed.pop_front() {
            let key = (listed.execution.job, listed.execution.job_version);
            let mut facts = on_record.of(conn, reading, listed).await?;
            facts.definition = known.get(&key).cloned();
            reading.verifier.execution(&facts);
        }
    }
}
