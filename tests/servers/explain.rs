//! Explanations through the real API on a real PostgreSQL: executions in several states, and the answers agree with
//! the tables.
//!
//! The test plays the scheduler and the worker itself, command by command, so that each state stands still while it
//! is explained.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fencepost::api::{self, ApiState};
use fencepost::postgres::{LaneSizes, PgStore};
use fencepost::{access, schema};
use fencepost_core::config::{SchedulerConfig, WorkerConfig};
use fencepost_core::execution::{DeadLetterReason, WaitReason};
use fencepost_core::explain::Spans;
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{DispatchNo, EffectId, ExecutionId, JobId, NodeId, Occurrence, TenantId};
use fencepost_core::lease::{HeldLease, LeaseResource, RunId};
use fencepost_core::partition::{PARTITION_COUNT, PartitionId};
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::{
    AcquireExecution, AcquireExecutions, AcquirePartitions, Command, CreateTenant, DeferExecutions,
    FinishExecution, FinishExecutions, Heartbeat, OutboxId, PromoteDue, RemoveOutbox, RenewExecutions,
    RunOutcome,
};
use fencepost_core::store::row::{NodeRole, NodeState};
use fencepost_core::time::{Span, Timestamp};
use fencepost_tests::{own_database, waiting};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use sqlx::{ConnectOptions, PgPool};
use uuid::Uuid;

const SCHEDULER: NodeId = NodeId::from_u128(0x51);
const WORKER: NodeId = NodeId::from_u128(0x71);
/// How long leases last here: longer than the test.
const LEASE: Span = Span::from_secs(120);
/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A database, a store and an API of the test's own.
struct Ground {
    name: String,
    pool: PgPool,
    store: Arc<PgStore>,
    address: SocketAddr,
    client: Client,
    key: String,
    nonce: u64,
}

impl Ground {
    async fn prepare(purpose: &str) -> Self {
        let name = own_database::name(purpose);
        let options = own_database::create(&name).await;
        let pool = schema::connect(options.to_url_lossy().as_str()).await.expect("the database is there");
        schema::migrate(&pool).await.expect("an empty database can be migrated");
        let store = Arc::new(PgStore::new(options, LaneSizes::default()));
        let spans = Spans::of(
            &SchedulerConfig::new(SCHEDULER, "scheduler-1".into()),
            &WorkerConfig {
                lease_ttl: LEASE,
                ..WorkerConfig::new(WORKER, "worker-1".into(), BTreeMap::new())
            },
        );
        let state =
            ApiState { store: Arc::clone(&store), reads: pool.clone(), node: NodeId::from_u128(0xa9), spans };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let address = listener.local_addr().expect("it is bound");
        tokio::spawn(async move { axum::serve(listener, api::tenants(state)).await });
        // Whoever came first in this process has chosen; it is the same one.
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().build().expect("nothing but the provider can be missing");
        let mut ground = Self { name, pool, store, address, client, key: String::new(), nonce: 0 };
        ground.key = ground.tenant("ours").await;
        ground
    }

    /// A tenant's first key.
    async fn tenant(&self, name: &str) -> String {
        let tenant = TenantId::from_uuid(Uuid::new_v4());
        self.command(Command::CreateTenant(CreateTenant { tenant, name: name.into() })).await;
        let key = access::new_key();
        access::store_key(&self.pool, tenant, &key).await.expect("a key can be stored");
        key
    }

    async fn command(&self, command: Command) {
        match self.store.execute(&command).await {
            StoreOutcome::Replied(_) => {}
            StoreOutcome::Unknown => panic!("the store did not answer {command:?}"),
        }
    }

    async fn ask(&self, method: Method, path: &str, key: &str, body: Option<Value>) -> (u16, Value) {
        let mut request =
            self.client.request(method, format!("http://{}{path}", self.address)).bearer_auth(key);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.expect("the API is there");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("an answer has an end");
        (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text:?}")))
    }

    async fn job(&self, schedule: Value, rest: Value) -> JobId {
        let mut job = json!({"name": "report", "handler": {"name": "noop"}, "schedule": schedule});
        let fields = job.as_object_mut().expect("it is an object");
        fields.extend(rest.as_object().expect("fields of a job").clone());
        let (status, body) = self.ask(Method::POST, "/v1/jobs", &self.key, Some(job)).await;
        assert_eq!(status, 201, "{body}");
        body["id"].as_str().and_then(|id| id.parse().ok()).expect("a job has an id")
    }

    async fn trigger(&self, job: JobId) -> ExecutionId {
        let path = format!("/v1/jobs/{job}/trigger");
        let (status, body) = self.ask(Method::POST, &path, &self.key, None).await;
        assert_eq!(status, 201, "{body}");
        body["id"].as_str().and_then(|id| id.parse().ok()).expect("an execution has an id")
    }

    async fn explain(&self, execution: ExecutionId) -> Value {
        let path = format!("/v1/executions/{execution}/explain");
        let (status, body) = self.ask(Method::GET, &path, &self.key, None).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    async fn explain_job(&self, job: JobId) -> Value {
        let (status, body) = self.ask(Method::GET, &format!("/v1/jobs/{job}/explain"), &self.key, None).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    async fn confirmed(&self, execution: ExecutionId, dispatch_no: u32) {
        let rows = vec![OutboxId { execution, dispatch_no: DispatchNo(dispatch_no) }];
        self.command(Command::RemoveOutbox(RemoveOutbox { rows, grace: Span::from_secs(2) })).await;
    }

    async fn lease(&mut self, execution: ExecutionId) {
        self.nonce += 1;
        let published_at = Timestamp::from_micros(self.of::<i64>(execution, "materialised_at").await);
        let nonce = EffectId(self.nonce);
        let items = vec![AcquireExecution { execution, nonce, published_at, held: Span::ZERO }];
        self.command(Command::AcquireExecutions(AcquireExecutions { node: WORKER, ttl: LEASE, items })).await;
    }

    async fn finish(&self, execution: ExecutionId, token: i64, outcome: RunOutcome) {
        let run = RunId { execution, token: FencingToken::from_i64(token) };
        let items = vec![FinishExecution { run, outcome, started_ago: Some(Span::ZERO) }];
        self.command(Command::FinishExecutions(FinishExecutions { node: WORKER, items })).await;
    }

    /// A scheduler takes all partitions.
    async fn own_partitions(&self) {
        let limit = u32::from(PARTITION_COUNT);
        let ask = AcquirePartitions { node: SCHEDULER, nonce: EffectId(1), ttl: LEASE, limit };
        self.command(Command::AcquirePartitions(ask)).await;
    }

    async fn promote(&self) {
        let token = FencingToken::from_i64(1);
        let leases = PartitionId::all()
            .map(|partition| HeldLease { resource: LeaseResource::Partition(partition), token })
            .collect();
        self.command(Command::PromoteDue(PromoteDue { node: SCHEDULER, leases, limit: 100 })).await;
    }

    /// A column of an execution's row.
    async fn of<T>(&self, execution: ExecutionId, column: &str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        let query = format!("SELECT {column} FROM execution WHERE id = $1");
        sqlx::query_scalar(sqlx::AssertSqlSafe(query))
            .bind(execution.as_uuid())
            .fetch_one(&self.pool)
            .await
            .expect("the execution has a row")
    }

    /// An instant of an execution's row, as the API writes it.
    async fn instant(&self, execution: ExecutionId, column: &str) -> Value {
        Value::String(Timestamp::from_micros(self.of(execution, column).await).to_string())
    }

    async fn remove(self) {
        self.pool.close().await;
        own_database::drop(&self.name).await;
    }
}

/// The statement of this code, in this list.
fn told<'a>(explanation: &'a Value, list: &str, code: &str) -> &'a Value {
    let statements = explanation[list].as_array().expect("a list of statements");
    let found = statements.iter().find(|statement| statement["code"] == code);
    found.unwrap_or_else(|| panic!("{list} does not tell {code}: {explanation:#}"))
}

#[tokio::test]
async fn executions_in_several_states_are_explained_as_the_tables_have_them() {
    let mut ground = Ground::prepare("explain").await;
    let job = ground.job(json!({"kind": "manual"}), json!({"retry": {"max_attempts": 3}})).await;

    // Just committed; nobody is there.
    let execution = ground.trigger(job).await;
    let explained = ground.explain(execution).await;
    let created_at: i64 = sqlx::query_scalar("SELECT created_at FROM outbox_event WHERE execution = $1")
        .bind(execution.as_uuid())
        .fetch_one(&ground.pool)
        .await
        .expect("it has an outbox row");
    let pending = told(&explained, "now", "outbox_not_confirmed");
    assert_eq!(pending["since"], Timestamp::from_micros(created_at).to_string());
    assert_eq!(explained["headline"], pending["sentence"]);
    assert_eq!(told(&explained, "now", "partition_without_owner")["cause"], "never_granted");
    told(&explained, "now", "no_worker_present");
    assert_eq!(explained["replay"]["code"], "replay_not_ended");
    assert_eq!(explained["job_id"], job.to_string());

    // The broker has it; a worker reports.
    ground.own_partitions().await;
    let heartbeat = Heartbeat {
        node: WORKER,
        role: NodeRole::Worker,
        label: "worker-1".into(),
        schema: 1,
        state: NodeState::Active,
        capacity: 8,
        live_within: LEASE,
    };
    ground.command(Command::Heartbeat(heartbeat)).await;
    ground.confirmed(execution, 1).await;
    let explained = ground.explain(execution).await;
    let dispatched = told(&explained, "now", "dispatched_not_received");
    assert_eq!(dispatched["since"], ground.instant(execution, "dispatched_at").await);
    assert_eq!(told(&explained, "now", "workers_present")["active"], 1);

    // It waits for a reason.
    let items = vec![(execution, WaitReason::UnknownHandler)];
    ground.command(Command::DeferExecutions(DeferExecutions { items, delay: Span::from_secs(5) })).await;
    let explained = ground.explain(execution).await;
    let waits = told(&explained, "now", "waiting_unknown_handler");
    assert_eq!((&waits["handler"], &waits["handler_version"]), (&json!("noop"), &json!(1)));
    assert_eq!(
        told(&explained, "future", "dispatched_again")["at"],
        ground.instant(execution, "next_try_at").await
    );

    // It runs, and is renewed, and is asked to stop.
    ground.lease(execution).await;
    let explained = ground.explain(execution).await;
    let running = told(&explained, "now", "running");
    assert_eq!(running["worker"], WORKER.to_string());
    assert_eq!((&running["worker_label"], &running["token"]), (&json!("worker-1"), &json!(1)));
    assert_eq!(running["since"], ground.instant(execution, "leased_at").await);
    told(&explained, "now", "lease_not_renewed");
    let runs = vec![RunId { execution, token: FencingToken::from_i64(1) }];
    ground.command(Command::RenewExecutions(RenewExecutions { node: WORKER, ttl: LEASE, runs })).await;
    let cancel = format!("/v1/executions/{execution}/cancel");
    let (status, _) = ground.ask(Method::POST, &cancel, &ground.key, None).await;
    assert_eq!(status, 200);
    let explained = ground.explain(execution).await;
    let renewed = told(&explained, "now", "lease_renewed");
    assert_eq!(renewed["expires_at"], ground.instant(execution, "expires_at").await);
    assert!(renewed["renewed_at"].is_string(), "{renewed}");
    told(&explained, "now", "cancel_requested");
    told(&explained, "future", "cancel_takes_effect");

    // It is stopped.
    ground.finish(execution, 1, RunOutcome::Cancelled).await;
    let explained = ground.explain(execution).await;
    let cancelled = told(&explained, "past", "cancelled_while_running");
    assert_eq!(cancelled["at"], ground.instant(execution, "finished_at").await);
    assert_eq!(cancelled["ended_by"], "stopped");
    assert_eq!(explained["headline"], cancelled["sentence"]);
    let stages = explained["lag"]["stages"].as_array().expect("there are stages");
    let sum: u64 = stages.iter().map(|stage| stage["span_ms"].as_u64().expect("a number")).sum();
    assert_eq!(explained["lag"]["total_ms"], sum);

    ground.remove().await;
}

#[tokio::test]
async fn retries_refusals_and_dead_letters_are_explained_as_the_tables_have_them() {
    let mut ground = Ground::prepare("explain_failures").await;
    let job = ground.job(json!({"kind": "manual"}), json!({"retry": {"max_attempts": 3}})).await;
    ground.own_partitions().await;
    let execution = ground.trigger(job).await;
    ground.lease(execution).await;
    let error: Arc<str> = "503 Service Unavailable".into();
    let retry = RunOutcome::Retry { delay: Span::from_secs(3_600), error: Arc::clone(&error) };
    ground.finish(execution, 1, retry).await;
    let explained = ground.explain(execution).await;
    let failed = told(&explained, "past", "attempt_failed");
    assert_eq!((&failed["error"], &failed["attempt"]), (&json!(&*error), &json!(1)));
    assert_eq!((&failed["rule"], &failed["delay_ms"]), (&json!("retry_after"), &json!(3_600_000)));
    let next = told(&explained, "future", "next_attempt");
    assert_eq!(next["at"], ground.instant(execution, "next_try_at").await);
    assert_eq!(told(&explained, "future", "budget")["attempts_left"], 2);

    // Another run completes, and the worker of the first reports once more.
    let now = "UPDATE execution SET next_try_at = store_now(NULL) WHERE id = $1";
    sqlx::query(now)
        .bind(execution.as_uuid())
        .execute(&ground.pool)
        .await
        .expect("the row is the test's own");
    ground.promote().await;
    ground.lease(execution).await;
    ground.finish(execution, 2, RunOutcome::Completed).await;
    ground.finish(execution, 1, RunOutcome::Completed).await;
    let explained = ground.explain(execution).await;
    let completed = told(&explained, "past", "completed");
    assert_eq!((&completed["token"], &completed["attempt"]), (&json!(2), &json!(2)));
    let refused = told(&explained, "past", "late_result_refused");
    assert_eq!((&refused["token"], &refused["current_token"]), (&json!(1), &json!(2)));
    let recorded: (i64, i64) = sqlx::query_as("SELECT first_at, count FROM refusal WHERE resource = $1")
        .bind(format!("execution/{execution}"))
        .fetch_one(&ground.pool)
        .await
        .expect("the refusal is on record");
    assert_eq!(refused["first_at"], Timestamp::from_micros(recorded.0).to_string());
    assert_eq!(refused["times"], recorded.1);

    // A dead letter: what a replay of it would be.
    let dead = ground.trigger(job).await;
    ground.lease(dead).await;
    let reason = DeadLetterReason::NonRetryable;
    ground.finish(dead, 1, RunOutcome::DeadLettered { reason, error }).await;
    let explained = ground.explain(dead).await;
    assert_eq!(told(&explained, "past", "dead_lettered")["reason"], "non_retryable");
    let replay = Occurrence::Replay { origin: dead, number: 1 }.execution_id(job);
    assert_eq!(explained["replay"]["code"], "replay_possible");
    assert_eq!(explained["replay"]["execution_id"], replay.to_string());
    assert_eq!(explained["replay"]["key"], Value::String(ground.of(dead, "key").await));

    ground.remove().await;
}

#[tokio::test]
async fn jobs_are_explained_and_nothing_is_told_to_another_tenant() {
    let ground = Ground::prepare("explain_jobs").await;
    let start = Timestamp::EPOCH.to_string();
    let every_second = json!({"kind": "interval", "start": start, "every_ms": 1_000});
    let job = ground.job(every_second, json!({})).await;

    // It comes due while nobody owns its partition.
    let explained = waiting::until("a fire is due", PATIENCE, async || {
        let explained = ground.explain_job(job).await;
        let first = explained["now"][0]["code"] == "backlog_late";
        first.then_some(explained)
    })
    .await;
    let late = told(&explained, "now", "backlog_late");
    assert_eq!(late["cause"], "partition_without_owner");
    assert_eq!(explained["headline"], late["sentence"]);
    let next: i64 = sqlx::query_scalar("SELECT next_fire_time FROM job WHERE id = $1")
        .bind(job.as_uuid())
        .fetch_one(&ground.pool)
        .await
        .expect("the job has a row");
    assert_eq!(late["since"], Timestamp::from_micros(next).to_string());
    told(&explained, "future", "backlog_decision");
    told(&explained, "future", "next_fire");

    // Run by hand, then deleted.
    let execution = ground.trigger(job).await;
    let explained = ground.explain_job(job).await;
    assert_eq!(told(&explained, "past", "ran_by_hand")["execution_id"], execution.to_string());
    assert_eq!(told(&explained, "now", "live_executions")["pending"], 1);
    let (status, _) = ground.ask(Method::DELETE, &format!("/v1/jobs/{job}"), &ground.key, None).await;
    assert_eq!(status, 200);
    told(&ground.explain_job(job).await, "future", "never_deleted");
    let cancelled = ground.explain(execution).await;
    assert_eq!(told(&cancelled, "past", "cancelled_while_pending")["with_its_job"], true);

    // What is another tenant's is as absent as what never was.
    let theirs = ground.tenant("theirs").await;
    let absent = ExecutionId::from_u128(7);
    for (path, key) in [
        (format!("/v1/executions/{execution}/explain"), &theirs),
        (format!("/v1/jobs/{job}/explain"), &theirs),
        (format!("/v1/executions/{absent}/explain"), &ground.key),
        (format!("/v1/jobs/{absent}/explain"), &ground.key),
        ("/v1/executions/nonsense/explain".to_owned(), &ground.key),
    ] {
        let (status, body) = ground.ask(Method::GET, &path, key, None).await;
        assert_eq!((status, &body["type"]), (404, &json!("not-found")), "{path}: {body}");
    }
    let (status, _) = ground.ask(Method::GET, &format!("/v1/jobs/{job}/explain"), "fp_no", None).await;
    assert_eq!(status, 401);

    ground.remove().await;
}
