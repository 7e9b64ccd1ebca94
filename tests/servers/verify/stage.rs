//! A database that has been worked on, by the store's commands, at instants of 2026-03-02 that are passed in.
//!
//! One job fires every minute from 08:00 on. 08:01 fails once and completes; 08:02 fails twice, is dead-lettered and
//! replayed; 08:03 is cancelled. Nobody is there until 08:14:40, when 08:14 runs for all; 08:15 is on time and
//! pending. An execution by hand loses its worker. A second job is deleted while it runs.

use std::sync::Arc;

use fencepost::postgres::{LaneSizes, PgStore};
use fencepost::schema;
use fencepost_core::execution::{CancelState, DeadLetterReason, LeaseSign};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{
    DispatchNo, EffectId, ExecutionId, JobId, JobVersion, NodeId, Occurrence, TenantId,
};
use fencepost_core::job::JobDefinition;
use fencepost_core::job_plan::plan_create;
use fencepost_core::lease::{HeldLease, LeaseResource, RunId};
use fencepost_core::partition::PartitionId;
use fencepost_core::schedule::TZDATA_VERSION;
use fencepost_core::schedule::misfire::{FirePlanInput, SkippedRange, plan_fires};
use fencepost_core::schedule::timeline::Timeline;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::{
    AcquireExecution, AcquireExecutions, AcquireLeadership, AcquirePartitions, CancelExecution, Command,
    CreateTenant, DeleteJob, FinishExecution, FinishExecutions, Materialise, MaterialiseJob, NewExecution,
    NewSkippedRange, OperatorRequest, OutboxId, PromoteDue, RemoveOutbox, RenewExecutions, RenewLeases,
    Repair, RepairItem, ReplayDeadLetter, ReplayKey, ReplayNumber, RunOutcome, TakeOverEnd, TriggerJob,
};
use fencepost_core::store::reply::{AcquireReply, FinishReply, MaterialiseReply, Reply};
use fencepost_core::time::{Span, Timestamp};
use fencepost_tests::own_database;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use uuid::Uuid;

const TENANT: TenantId = TenantId::from_u128(0x7e);
pub(crate) const JOB: JobId = JobId::from_u128(0x0b);
const DELETED: JobId = JobId::from_u128(0x0c);
pub(crate) const NODE: NodeId = NodeId::from_u128(0xa);
const WORKER: NodeId = NodeId::from_u128(0xb);
pub(crate) const TTL: Span = Span::from_secs(30);
const EVERY_MINUTE: &str = r#"{"name":"n","handler":{"name":"noop"},
    "schedule":{"kind":"cron","expr":"* * * * *"},"retry":{"max_attempts":2,"base_ms":1000}}"#;

pub(crate) fn at(time: &str) -> Timestamp {
    Timestamp::parse_rfc3339(&format!("2026-03-02T{time}Z")).expect("an instant")
}

pub(crate) fn of_fire(job: JobId, time: &str) -> ExecutionId {
    Occurrence::Scheduled { fire: at(time) }.execution_id(job)
}

/// The database and the store on it.
pub(crate) struct Stage {
    pool: PgPool,
    store: PgStore,
    nonce: u64,
}

impl Stage {
    /// Makes it, has it worked on, and returns the database's name.
    pub(crate) async fn worked(purpose: &str) -> String {
        let (mut stage, name) = Self::begun(purpose).await;
        stage.work().await;
        stage.close().await;
        name
    }

    /// Makes it, with the tenant, the jobs and the leases; and the database's name.
    pub(crate) async fn begun(purpose: &str) -> (Self, String) {
        let name = own_database::name(purpose);
        let options = own_database::create(&name).await;
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options.clone());
        schema::migrate(&pool).await.expect("an empty database can be migrated");
        let mut stage = Self { pool, store: PgStore::new(options, LaneSizes::default()), nonce: 0 };
        stage.begin().await;
        (stage, name)
    }

    /// Nobody looks any more.
    pub(crate) async fn close(self) {
        self.pool.close().await;
    }

    async fn begin(&mut self) {
        let now = at("08:00:00");
        self.at(now, Command::CreateTenant(CreateTenant { tenant: TENANT, name: "ours".into() })).await;
        for job in [JOB, DELETED] {
            let definition = JobDefinition::parse(EVERY_MINUTE).expect("a definition");
            let request = OperatorRequest { request: job.to_string().into(), fingerprint: Uuid::nil() };
            let create = plan_create(TENANT, job, Some(request), definition, now).expect("it fires");
            self.at(now, Command::CreateJob(create)).await;
        }
        let nonce = EffectId(1);
        let leader = AcquireLeadership { node: NODE, nonce, ttl: TTL };
        self.at(now, Command::AcquireLeadership(leader)).await;
        let partitions = AcquirePartitions { node: NODE, nonce, ttl: TTL, limit: 128 };
        self.at(now, Command::AcquirePartitions(partitions)).await;
    }

    async fn work(&mut self) {
        self.materialise(JOB, at("08:01:00.5")).await;
        self.materialise(DELETED, at("08:01:00.6")).await;
        let completed = of_fire(JOB, "08:01:00");
        self.lease(completed, at("08:01:01")).await;
        self.finish(completed, 1, at("08:01:02"), retry()).await;
        self.promote(at("08:01:04")).await;
        self.lease(completed, at("08:01:05")).await;
        self.finish(completed, 2, at("08:01:06"), RunOutcome::Completed).await;
        // The worker of the first run reports once more, and one renews what is not its own.
        self.finish(completed, 1, at("08:01:07"), RunOutcome::Completed).await;
        self.renew_in_vain(at("08:01:08")).await;

        let gone = of_fire(DELETED, "08:01:00");
        self.lease(gone, at("08:01:10")).await;
        let delete = DeleteJob { tenant: TENANT, job: DELETED };
        self.at(at("08:01:30"), Command::DeleteJob(delete)).await;

        self.materialise(JOB, at("08:02:00.5")).await;
        let dead = of_fire(JOB, "08:02:00");
        self.lease(dead, at("08:02:01")).await;
        self.finish(dead, 1, at("08:02:02"), retry()).await;
        self.promote(at("08:02:04")).await;
        self.lease(dead, at("08:02:05")).await;
        let (reason, error) = (DeadLetterReason::Exhausted, "it cannot work".into());
        self.finish(dead, 2, at("08:02:06"), RunOutcome::DeadLettered { reason, error }).await;

        self.materialise(JOB, at("08:03:00.5")).await;
        let cancel = CancelExecution { tenant: TENANT, execution: of_fire(JOB, "08:03:00") };
        self.at(at("08:03:10"), Command::CancelExecution(cancel)).await;

        let occurrence = Occurrence::Manual { key: "by hand".into() };
        let by_hand = occurrence.execution_id(JOB);
        let trigger = TriggerJob {
            tenant: TENANT,
            job: JOB,
            execution: by_hand,
            key: "by hand".into(),
            payload: None,
            node: NODE,
        };
        self.at(at("08:04:00"), Command::TriggerJob(trigger)).await;
        self.lease(by_hand, at("08:04:01")).await;
        let renew = RenewExecutions { node: WORKER, ttl: TTL, runs: vec![run(by_hand, 1)] };
        self.at(at("08:04:02"), Command::RenewExecutions(renew)).await;
        self.lose(by_hand, at("08:05:00")).await;

        let replay = ReplayDeadLetter {
            tenant: TENANT,
            origin: dead,
            number: ReplayNumber::Given(1),
            key: ReplayKey::Origin,
            node: NODE,
        };
        self.at(at("08:06:00"), Command::ReplayDeadLetter(replay)).await;

        self.materialise(JOB, at("08:14:40")).await;
        self.lease(of_fire(JOB, "08:14:00"), at("08:14:41")).await;
        self.materialise(JOB, at("08:15:00.5")).await;
        let made: Vec<(Uuid, i32)> =
            sqlx::query_as("SELECT execution, dispatch_no FROM outbox_event WHERE execution <> $1")
                .bind(of_fire(JOB, "08:15:00").as_uuid())
                .fetch_all(&self.pool)
                .await
                .expect("the table is there");
        let id = |(execution, number): (Uuid, i32)| OutboxId {
            execution: ExecutionId::from_uuid(execution),
            dispatch_no: DispatchNo(number.unsigned_abs()),
        };
        let rows = made.into_iter().map(id).collect();
        self.at(at("08:15:01"), Command::RemoveOutbox(RemoveOutbox { rows, grace: TTL })).await;
    }

    /// Has a command executed at an instant.
    pub(crate) async fn at(&self, now: Timestamp, command: Command) -> Reply {
        match self.store.execute_at(now, &command).await {
            StoreOutcome::Replied(reply) => reply.reply,
            StoreOutcome::Unknown => panic!("the store does not answer {command:?}"),
        }
    }

    /// Records what a scheduler would record of a job.
    pub(crate) async fn materialise(&self, job: JobId, now: Timestamp) {
        self.materialise_as(NODE, FencingToken::from_i64(1), job, now).await;
    }

    /// The same, by another node under another token.
    pub(crate) async fn materialise_as(&self, node: NodeId, token: FencingToken, job: JobId, now: Timestamp) {
        let item = self.plan(job, now).await;
        let replies = self.send(node, token, item, now).await;
        assert!(matches!(replies[0], MaterialiseReply::Applied(_)), "{replies:?}");
    }

    /// Sends what was planned, under a token of the job's partition.
    pub(crate) async fn send(
        &self,
        node: NodeId,
        token: FencingToken,
        item: MaterialiseJob,
        now: Timestamp,
    ) -> Vec<MaterialiseReply> {
        let held = HeldLease { resource: LeaseResource::Partition(item.partition), token };
        let ask = Materialise { node, leases: vec![held], items: vec![item] };
        let reply = self.at(now, Command::Materialise(ask)).await;
        let Reply::Materialised(replies) = reply else { panic!("another reply: {reply:?}") };
        replies
    }

    /// A job's watermark and its next fire.
    pub(crate) async fn watermark(&self, job: JobId) -> (Timestamp, Option<Timestamp>) {
        let (recorded_through, next): (i64, Option<i64>) =
            sqlx::query_as("SELECT recorded_through, next_fire_time FROM job WHERE id = $1")
                .bind(job.as_uuid())
                .fetch_one(&self.pool)
                .await
                .expect("the job is there");
        (Timestamp::from_micros(recorded_through), next.map(Timestamp::from_micros))
    }

    /// Writes a job's watermark and its next fire, past every guard.
    pub(crate) async fn set_watermark(&self, job: JobId, (through, next): (Timestamp, Option<Timestamp>)) {
        sqlx::query("UPDATE job SET recorded_through = $2, next_fire_time = $3 WHERE id = $1")
            .bind(job.as_uuid())
            .bind(through.as_micros())
            .bind(next.map(Timestamp::as_micros))
            .execute(&self.pool)
            .await
            .expect("the job is there");
    }

    /// What a scheduler would record of a job.
    pub(crate) async fn plan(&self, job: JobId, now: Timestamp) -> MaterialiseJob {
        let (recorded_through, next) = self.watermark(job).await;
        let runs: i64 = sqlx::query_scalar("SELECT runs FROM job WHERE id = $1")
            .bind(job.as_uuid())
            .fetch_one(&self.pool)
            .await
            .expect("the job is there");
        let definition = JobDefinition::parse(EVERY_MINUTE).expect("a definition");
        let timeline = Timeline::of_one(&definition.schedule, &definition.bounds);
        let plan = plan_fires(&FirePlanInput {
            timeline: &timeline,
            runs_so_far: runs.unsigned_abs(),
            misfire: definition.misfire,
            grace: definition.grace(),
            recorded_through,
            now,
            limit: 100,
            valid_for: Span::ZERO,
        });
        let new = |fire: Timestamp| {
            let occurrence = Occurrence::Scheduled { fire };
            let key = occurrence.idempotency_key(job).expect("a fire has a key");
            NewExecution {
                id: occurrence.execution_id(job),
                version: JobVersion::FIRST,
                fire,
                due_at: fire,
                deadline_at: None,
                key,
            }
        };
        let skipped = |range: SkippedRange| NewSkippedRange {
            version: JobVersion::FIRST,
            from: range.from,
            through: range.through,
            reason: range.reason,
            zone_data: TZDATA_VERSION.into(),
        };
        MaterialiseJob {
            job,
            partition: PartitionId::of(job),
            version: JobVersion::FIRST,
            expected_fire: next.expect("it has a next fire"),
            executions: plan.fires.into_iter().map(new).collect(),
            skipped: plan.skipped.into_iter().map(skipped).collect(),
            recorded_through: plan.recorded_through,
            next_fire_time: plan.next_fire,
            next_flex: plan.next_flex,
            valid_until: plan.valid_until,
        }
    }

    /// A number that a query gives.
    pub(crate) async fn count(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(&self.pool).await.expect("the tables are there")
    }

    /// Everything on record about an execution but refusals, as text.
    pub(crate) async fn rows_of(&self, execution: ExecutionId) -> Vec<String> {
        sqlx::query_scalar(
            "SELECT e::text FROM execution e WHERE id = $1 UNION ALL
             SELECT a::text FROM attempt a WHERE execution = $1 UNION ALL
             SELECT o::text FROM outbox_event o WHERE execution = $1 UNION ALL
             SELECT d::text FROM dead_letter d WHERE execution = $1 ORDER BY 1",
        )
        .bind(execution.as_uuid())
        .fetch_all(&self.pool)
        .await
        .expect("the tables are there")
    }

    /// A worker gets the lease.
    pub(crate) async fn lease(&mut self, execution: ExecutionId, now: Timestamp) {
        self.nonce += 1;
        let item = AcquireExecution {
            execution,
            nonce: EffectId(self.nonce),
            published_at: now.minus(Span::from_millis(20)),
            held: Span::from_millis(10),
        };
        let ask = AcquireExecutions { node: WORKER, ttl: TTL, items: vec![item] };
        let reply = self.at(now, Command::AcquireExecutions(ask)).await;
        let Reply::Acquired(replies) = reply else { panic!("another reply: {reply:?}") };
        assert!(matches!(replies[0], AcquireReply::Granted(_)), "{execution}: {replies:?}");
    }

    /// A worker reports the end of a run.
    pub(crate) async fn finish(
        &self,
        execution: ExecutionId,
        token: i64,
        now: Timestamp,
        outcome: RunOutcome,
    ) -> FinishReply {
        let started_ago = Some(Span::from_millis(500));
        let items = vec![FinishExecution { run: run(execution, token), outcome, started_ago }];
        let ask = FinishExecutions { node: WORKER, items };
        let reply = self.at(now, Command::FinishExecutions(ask)).await;
        let Reply::Finished(mut replies) = reply else { panic!("another reply: {reply:?}") };
        replies.pop().expect("one for each item")
    }

    /// What came due is dispatched again.
    pub(crate) async fn promote(&self, now: Timestamp) {
        let leases = PartitionId::all().map(|partition| held(partition, 1)).collect();
        self.at(now, Command::PromoteDue(PromoteDue { node: NODE, leases, limit: 100 })).await;
    }

    /// Under a token that nobody holds any more.
    async fn renew_in_vain(&self, now: Timestamp) {
        let stranger = NodeId::from_u128(0xc);
        let leases = vec![held(PartitionId::of(JOB), 1)];
        self.at(now, Command::RenewLeases(RenewLeases { node: stranger, ttl: TTL, leases })).await;
    }

    /// Its worker is gone; the sweep takes it over.
    async fn lose(&self, execution: ExecutionId, now: Timestamp) {
        let item = RepairItem::TakeOver {
            run: run(execution, 1),
            cancel: CancelState::None,
            sign: LeaseSign::Started,
            end: TakeOverEnd::Retry(Span::from_secs(3_600)),
        };
        let leadership = FencingToken::from_i64(1);
        self.at(now, Command::Repair(Repair { node: NODE, leadership, items: vec![item] })).await;
    }
}

fn held(partition: PartitionId, token: i64) -> HeldLease {
    HeldLease { resource: LeaseResource::Partition(partition), token: FencingToken::from_i64(token) }
}

pub(crate) fn run(execution: ExecutionId, token: i64) -> RunId {
    RunId { execution, token: FencingToken::from_i64(token) }
}

pub(crate) fn retry() -> RunOutcome {
    RunOutcome::Retry { delay: Span::from_secs(1), error: Arc::from("not now") }
}
