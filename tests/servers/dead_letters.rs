//! Dead letters through the API, on a real PostgreSQL: all of ten thousand replayed, interrupted, and begun again.
//!
//! The API listens on a loopback port and the dead letters are made by the store's own commands, in batches. What must
//! stay true: whatever is interrupted where, and repeated how often, each dead letter has one replay in the end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use fencepost::api::{self, ApiState};
use fencepost::postgres::{LaneSizes, PgStore};
use fencepost::{access, schema};
use fencepost_core::config::{SchedulerConfig, WorkerConfig};
use fencepost_core::execution::DeadLetterReason;
use fencepost_core::explain::Spans;
use fencepost_core::id::{EffectId, ExecutionId, JobId, JobVersion, NodeId, Occurrence, TenantId};
use fencepost_core::job::{JobDefinition, StoredDefinition};
use fencepost_core::lease::{HeldLease, LeaseResource, RunId};
use fencepost_core::partition::PartitionId;
use fencepost_core::replay::execution_of;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::{
    AcquireExecution, AcquireExecutions, AcquirePartitions, Command, CreateJob, CreateTenant,
    FinishExecution, FinishExecutions, Materialise, MaterialiseJob, NewExecution, ReplayDeadLetter,
    ReplayKey, ReplayNumber, RunOutcome,
};
use fencepost_core::store::reply::{AcquireReply, MaterialiseReply, ReplayReply, Reply};
use fencepost_core::time::{Span, Timestamp};
use fencepost_tests::own_database;
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const TENANT: TenantId = TenantId::from_u128(0x7e);
const STRANGER: TenantId = TenantId::from_u128(0x7f);
const JOB: JobId = JobId::from_u128(0x10b);
const NODE: NodeId = NodeId::from_u128(0xa);
const TTL: Span = Span::from_secs(60);
/// In one batch.
const BATCH: u64 = 1_000;

/// A database, an API on it, and a tenant's key.
struct Ground {
    name: String,
    pool: PgPool,
    store: Arc<PgStore>,
    client: reqwest::Client,
    address: SocketAddr,
    key: String,
    strangers_key: String,
}

impl Ground {
    async fn new(purpose: &str) -> Self {
        let name = own_database::name(purpose);
        let options = own_database::create(&name).await;
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(options.clone());
        schema::migrate(&pool).await.expect("an empty database can be migrated");
        let store = Arc::new(PgStore::new(options, LaneSizes::default()));
        let (key, strangers_key) = (access::new_key(), access::new_key());
        for (tenant, name, key) in [(TENANT, "ours", &key), (STRANGER, "theirs", &strangers_key)] {
            let reply =
                execute(&store, Command::CreateTenant(CreateTenant { tenant, name: name.into() })).await;
            assert!(matches!(reply, Reply::TenantCreated(_)), "{reply:?}");
            access::store_key(&pool, tenant, key).await.expect("a key can be stored");
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("it listens");
        let spans = Spans::of(
            &SchedulerConfig::new(NODE, "a scheduler".into()),
            &WorkerConfig::new(NODE, "a worker".into(), BTreeMap::new()),
        );
        let state = ApiState { store: Arc::clone(&store), reads: pool.clone(), node: NODE, spans };
        tokio::spawn(async move { axum::serve(listener, api::tenants(state)).await });
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().build().expect("a client with a TLS provider");
        Self { name, pool, store, client, address, key, strangers_key }
    }

    async fn remove(self) {
        self.pool.close().await;
        drop(self.store);
        own_database::drop(&self.name).await;
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.ask_as(&self.key, method, path, body).await
    }

    async fn ask_as(&self, key: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        let method = method.parse().expect("a method");
        let url = format!("http://{}{path}", self.address);
        let mut request = self.client.request(method, url).bearer_auth(key);
        if !body.is_null() {
            request = request.header("Content-Type", "application/json").body(body.to_string());
        }
        let response = request.send().await.expect("the API is there");
        let status = response.status().as_u16();
        let text = response.text().await.expect("an answer has a body");
        (status, serde_json::from_str(&text).expect("it is JSON"))
    }

    /// A job, and so many executions of it that were dead-lettered.
    async fn with_dead_letters(purpose: &str, count: u64) -> (Self, Vec<ExecutionId>) {
        let ground = Self::new(purpose).await;
        let now = ground.now().await;
        let text = r#"{"name":"n","handler":{"name":"noop"},"schedule":{"kind":"manual"}}"#;
        let definition = JobDefinition::parse(text).expect("a definition");
        let fire = now.minus(Span::from_secs(count));
        let create = CreateJob {
            tenant: TENANT,
            job: JOB,
            request: None,
            definition: Arc::new(StoredDefinition::of(definition)),
            planned_at: now,
            recorded_through: now,
            next_fire_time: Some(fire),
            next_flex: Span::ZERO,
        };
        execute(&ground.store, Command::CreateJob(create)).await;
        let partition = ground.partition().await;
        let mut dead = Vec::new();
        while (dead.len() as u64) < count {
            let first = dead.len() as u64;
            let fires: Vec<Timestamp> =
                (first..(first + BATCH).min(count)).map(|nth| fire.plus(Span::from_secs(nth))).collect();
            let made = ground.materialise(partition, &fires).await;
            ground.bury(&made).await;
            dead.extend(made);
        }
        (ground, dead)
    }

    async fn now(&self) -> Timestamp {
        match self.store.execute(&Command::ReadClock).await {
            StoreOutcome::Replied(reply) => reply.now,
            StoreOutcome::Unknown => panic!("the store does not answer"),
        }
    }

    async fn partition(&self) -> HeldLease {
        let ask = AcquirePartitions { node: NODE, nonce: EffectId(1), ttl: TTL, limit: 128 };
        let Reply::Partitions { granted } = execute(&self.store, Command::AcquirePartitions(ask)).await
        else {
            panic!("another reply")
        };
        let resource = LeaseResource::Partition(PartitionId::of(JOB));
        *granted.iter().find(|held| held.resource == resource).expect("all are free")
    }

    async fn materialise(&self, partition: HeldLease, fires: &[Timestamp]) -> Vec<ExecutionId> {
        let new = |fire: &Timestamp| {
            let occurrence = Occurrence::Scheduled { fire: *fire };
            let key = occurrence.idempotency_key(JOB).expect("a scheduled occurrence has a key");
            NewExecution {
                id: occurrence.execution_id(JOB),
                version: JobVersion::FIRST,
                fire: *fire,
                due_at: *fire,
                deadline_at: None,
                key,
            }
        };
        let executions: Vec<NewExecution> = fires.iter().map(new).collect();
        let ids = executions.iter().map(|new| new.id).collect();
        let last = *fires.last().expect("some fires");
        let item = MaterialiseJob {
            job: JOB,
            partition: PartitionId::of(JOB),
            version: JobVersion::FIRST,
            expected_fire: fires[0],
            executions,
            skipped: Vec::new(),
            recorded_through: last,
            next_fire_time: Some(last.plus(Span::from_secs(1))),
            next_flex: Span::ZERO,
            valid_until: Timestamp::MAX,
        };
        let ask = Materialise { node: NODE, leases: vec![partition], items: vec![item] };
        let Reply::Materialised(replies) = execute(&self.store, Command::Materialise(ask)).await else {
            panic!("another reply")
        };
        assert!(matches!(replies[0], MaterialiseReply::Applied(_)), "{:?}", replies[0]);
        ids
    }

    /// Runs them, and has each end for good.
    async fn bury(&self, executions: &[ExecutionId]) -> Vec<RunId> {
        let published_at = self.now().await;
        let item = |execution: &ExecutionId| AcquireExecution {
            execution: *execution,
            nonce: EffectId(7),
            published_at,
            held: Span::ZERO,
        };
        let items = executions.iter().map(item).collect();
        let ask = AcquireExecutions { node: NODE, ttl: TTL, items };
        let Reply::Acquired(replies) = execute(&self.store, Command::AcquireExecutions(ask)).await else {
            panic!("another reply")
        };
        let run = |(execution, reply): (&ExecutionId, &AcquireReply)| match reply {
            AcquireReply::Granted(grant) => RunId { execution: *execution, token: grant.token },
            other => panic!("{execution} was not granted: {other:?}"),
        };
        let runs: Vec<RunId> = executions.iter().zip(&replies).map(run).collect();
        let item = |run: &RunId| FinishExecution {
            run: *run,
            outcome: RunOutcome::DeadLettered {
                reason: DeadLetterReason::NonRetryable,
                error: "it cannot work".into(),
            },
            started_ago: Some(Span::ZERO),
        };
        let ask = FinishExecutions { node: NODE, items: runs.iter().map(item).collect() };
        execute(&self.store, Command::FinishExecutions(ask)).await;
        runs
    }

    /// Every page of a replay of all from the start, or the first so many.
    async fn replay_pages(&self, most: usize) -> u64 {
        let (mut replayed, mut cursor) = (0, Value::Null);
        for _ in 0..most {
            let body = json!({"limit": 250, "cursor": cursor});
            let (status, page) = self.ask("POST", "/v1/dead-letters/replay", body).await;
            assert_eq!(status, 200, "{page}");
            replayed += page["replayed"].as_u64().expect("a count");
            cursor = page["next_cursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        replayed
    }

    async fn count(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(&self.pool).await.expect("the tables are there")
    }
}

async fn execute(store: &PgStore, command: Command) -> Reply {
    match store.execute(&command).await {
        StoreOutcome::Replied(reply) => reply.reply,
        StoreOutcome::Unknown => panic!("the store does not answer {:?}", command.kind()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_dead_letters_are_replayed_once_each_however_often_it_is_interrupted() {
    let (ground, dead) = Ground::with_dead_letters("replay_all", 10_000).await;
    let (status, told) = ground.ask("POST", "/v1/dead-letters/replay", json!({"dry_run": true})).await;
    assert_eq!((status, &told["count"]), (200, &10_000.into()), "{told}");
    assert_eq!(ground.count("SELECT count(*) FROM execution WHERE origin IS NOT NULL").await, 0);

    // Half way: the store's connections are cut, and a request is given up by its caller.
    ground.replay_pages(19).await;
    let given_up = ground.ask("POST", "/v1/dead-letters/replay", json!({"limit": 500}));
    let cut = async {
        ground
            .count(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
                 AND datname = current_database() AND application_name LIKE 'fencepost%'",
            )
            .await
    };
    let (cut, _) = tokio::join!(cut, given_up);
    assert!(cut > 0, "connections of the store were cut");
    let abandoned = ground.ask("POST", "/v1/dead-letters/replay", json!({"limit": 500}));
    let other = ground.ask("GET", "/v1/dead-letters?limit=1", Value::Null);
    tokio::select! { _ = other => {}, _ = abandoned => {} }

    // Again, two at once, and again.
    tokio::join!(ground.replay_pages(100), ground.replay_pages(100));
    assert_eq!(ground.replay_pages(100).await, 0, "everything has its replay");
    let replays = "SELECT count(*) FROM execution WHERE origin IS NOT NULL";
    assert_eq!(ground.count(replays).await, dead.len() as i64);
    let origins = "SELECT count(DISTINCT r.origin) FROM execution r JOIN execution o ON o.id = r.origin \
         JOIN outbox_event b ON b.execution = r.id \
         WHERE r.replay_number = 1 AND r.key = o.key AND r.token = o.token AND r.state = 'pending'";
    assert_eq!(ground.count(origins).await, dead.len() as i64, "with its origin's key, above its tokens");
    let counted = "SELECT count(*) FROM dead_letter WHERE replays = 1 AND purged_at IS NULL";
    assert_eq!(ground.count(counted).await, dead.len() as i64);
    ground.remove().await;
}

#[tokio::test]
async fn a_dead_letter_is_inspected_replayed_and_purged_through_the_api() {
    let (ground, dead) = Ground::with_dead_letters("dead_letter_api", 3).await;
    let path = format!("/v1/dead-letters/{}", dead[0]);
    let (status, told) = ground.ask("POST", &format!("{path}/replay"), json!({"dry_run": true})).await;
    assert_eq!((status, &told["replayable"], &told["number"]), (200, &true.into(), &1.into()), "{told}");

    let (status, made) = ground.ask("POST", &format!("{path}/replay"), Value::Null).await;
    assert_eq!(
        (status, &made["occurrence"], &made["state"]),
        (201, &"replay".into(), &"pending".into()),
        "{made}"
    );
    assert_eq!(made["id"], told["execution_id"]);
    let (status, again) = ground.ask("POST", &format!("{path}/replay"), json!({"number": 1})).await;
    assert_eq!((status, &again["id"]), (200, &made["id"]), "the same replay");
    let (status, problem) = ground.ask("POST", &format!("{path}/replay"), json!({"key": "new"})).await;
    assert_eq!((status, &problem["pointer"]), (409, &"/key".into()), "{problem}");
    let (status, problem) = ground.ask("POST", &format!("{path}/replay"), json!({"number": 7})).await;
    assert_eq!((status, &problem["pointer"]), (409, &"/number".into()), "{problem}");

    let (status, letter) = ground.ask("GET", &path, Value::Null).await;
    assert_eq!((status, &letter["reason"]), (200, &"non_retryable".into()), "{letter}");
    assert_eq!(letter["attempts"].as_array().map(Vec::len), Some(1), "{letter}");
    assert_eq!(
        (&letter["replays"][0]["execution_id"], &letter["replay"]["number"]),
        (&made["id"], &2.into())
    );

    let (status, done) = ground.ask("DELETE", &path, Value::Null).await;
    assert_eq!((status, &done["outcome"]), (200, &"purged".into()), "{done}");
    let (status, done) = ground.ask("DELETE", &path, Value::Null).await;
    assert_eq!((status, &done["outcome"]), (200, &"had_been_purged".into()), "{done}");
    let (status, problem) = ground.ask("POST", &format!("{path}/replay"), json!({"number": 2})).await;
    assert_eq!((status, &problem["type"]), (409, &"not-replayable".into()), "{problem}");
    let (_, listed) = ground.ask("GET", "/v1/dead-letters?reason=non_retryable", Value::Null).await;
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(2), "{listed}");
    let (status, problem) = ground.ask("GET", "/v1/dead-letters?from=yesterday", Value::Null).await;
    assert_eq!((status, &problem["pointer"]), (400, &"from".into()), "{problem}");

    // What is another tenant's is not there; what is no dead letter says so.
    let other = format!("/v1/dead-letters/{}", dead[1]);
    for (method, path) in
        [("GET", other.clone()), ("DELETE", other.clone()), ("POST", format!("{other}/replay"))]
    {
        let (status, _) = ground.ask_as(&ground.strangers_key, method, &path, Value::Null).await;
        assert_eq!(status, 404, "{method} {path}");
    }
    let live = made["id"].as_str().expect("an id");
    let (status, problem) = ground.ask("POST", &format!("/v1/dead-letters/{live}/replay"), Value::Null).await;
    assert_eq!((status, &problem["type"]), (409, &"not-replayable".into()), "{problem}");
    ground.ask("DELETE", &format!("/v1/jobs/{JOB}"), Value::Null).await;
    let (status, problem) = ground.ask("POST", &format!("{other}/replay"), Value::Null).await;
    assert_eq!(status, 409, "{problem}");
    let (_, told) = ground.ask("POST", "/v1/dead-letters/replay", json!({"dry_run": true})).await;
    assert_eq!((&told["count"], &told["job_deleted"]), (&0.into(), &2.into()), "{told}");
    ground.remove().await;
}

/// A dead letter as the schema before this one had it.
const OLD_RECORD: &str = r#"
    INSERT INTO tenant (id, created_at, name) VALUES ('00000000-0000-0000-0000-00000000007e', 0, 'ours');
    INSERT INTO job (id, tenant, effective_from, recorded_through, next_try_at, runs, created_at, version, partition,
                     state, definition)
    VALUES ('00000000-0000-0000-0000-00000000010b', '00000000-0000-0000-0000-00000000007e', 0, 0, 0, 0, 0, 1, 7,
            'active', '{"schema":1,"definition":{"name":"a","handler":{"name":"noop"},"schedule":{"kind":"manual"}}}');
    INSERT INTO job_version (job, tenant, effective_from, version, definition)
    SELECT id, tenant, 0, 1, definition FROM job;
    INSERT INTO execution (id, tenant, job, due_at, made_under, token, nonce, expires_at, materialised_at, finished_at,
                           manual_key, job_version, attempts, rescues, lost_starts, waits, dispatch_no, redispatches,
                           partition, lag_clamped, start_seen, cancel_requested, state, occurrence, key, payload)
    SELECT '00000000-0000-0000-0000-0000000000e1', tenant, id, 1, 0, 5, 1, 0, 1, 2, 'k', 1, 1, 0, 0, 0, 1, 0, 7, false,
           true, false, 'dead_lettered', 'manual', 'the key', '{"n":1}'
    FROM job;
    INSERT INTO dead_letter (execution, tenant, job, at, attempts, rescues, lost_starts, reason)
    SELECT id, tenant, job, 2, 1, 0, 0, 'exhausted' FROM execution;"#;

#[tokio::test]
async fn a_dead_letter_of_the_schema_before_is_replayed() {
    let name = own_database::name("old_dead_letter");
    let options = own_database::create(&name).await;
    let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(options.clone());
    let migrations = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations");
    let mut before = sqlx::migrate::Migrator::new(migrations).await.expect("the migrations are there");
    before.migrations = before.iter().filter(|one| one.version < 6).cloned().collect::<Vec<_>>().into();
    before.run(&pool).await.expect("an empty database can be migrated");
    sqlx::raw_sql(OLD_RECORD).execute(&pool).await.expect("the rows are lawful");
    schema::migrate(&pool).await.expect("the next migration follows");
    let store = PgStore::new(options, LaneSizes::default());
    let origin = ExecutionId::from_u128(0xe1);
    let ask = ReplayDeadLetter {
        tenant: TENANT,
        origin,
        number: ReplayNumber::Given(1),
        key: ReplayKey::Origin,
        node: NODE,
    };
    let reply = execute(&store, Command::ReplayDeadLetter(ask)).await;
    let execution = execution_of(JOB, origin, 1);
    assert_eq!(reply, Reply::DeadLetterReplayed(ReplayReply::Created { execution, number: 1 }));
    let (key, payload): (String, String) =
        sqlx::query_as("SELECT key, payload FROM execution WHERE origin IS NOT NULL AND token = 5")
            .fetch_one(&pool)
            .await
            .expect("the replay is there");
    assert_eq!((key.as_str(), payload.as_str()), ("the key", r#"{"n":1}"#));
    drop(store);
    pool.close().await;
    own_database::drop(&name).await;
}
