//! The real stack in this process: an API from the start; a scheduler and a worker once they are started.
//!
//! What must stay true: the database and the queues are this test's own, and the queues are gone when it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use fencepost::api::{self, ApiState};
use fencepost::driver::{self, LanePermits, SchedulerInterpreter, WorkerInterpreter};
use fencepost::handler::HandlerRegistry;
use fencepost::ports::RuntimeClock;
use fencepost::postgres::{self, LaneSizes, PgStore};
use fencepost::rabbitmq::{RabbitConsumer, RabbitPublisher, RabbitSettings, Topology};
use fencepost::telemetry::Telemetry;
use fencepost::{access, schema};
use fencepost_core::config::{SchedulerConfig, WorkerConfig};
use fencepost_core::explain::Spans;
use fencepost_core::id::{NodeId, TenantId};
use fencepost_core::job::HandlerName;
use fencepost_core::scheduler::Scheduler;
use fencepost_core::store::command::{Command, CreateTenant};
use fencepost_core::time::Timestamp;
use fencepost_core::worker::Worker;
use fencepost_tests::server_url::amqp_url;
use fencepost_tests::{own_database, waiting};
use lapin::options::{ExchangeDeleteOptions, QueueDeleteOptions};
use lapin::{Connection, ConnectionProperties};
use reqwest::{Client, Method};
use serde_json::Value;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, PgPool};
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::PATIENCE;

/// A fire that became an execution.
#[derive(Clone, Debug)]
pub(crate) struct Fire {
    pub(crate) fire: Timestamp,
    pub(crate) state: String,
    pub(crate) materialised_at: Timestamp,
}

/// The stack.
pub(crate) struct Stack {
    pub(crate) pool: PgPool,
    options: PgConnectOptions,
    broker: RabbitSettings,
    client: Client,
    address: SocketAddr,
    key: String,
    drain: watch::Sender<bool>,
    roles: JoinSet<()>,
}

/// The name of the database of a URL.
pub(crate) fn database_of(url: &str) -> String {
    let options = PgConnectOptions::from_str(url).expect("it was made from one");
    options.get_database().expect("a test's database has a name").to_owned()
}

impl Stack {
    /// A database, queues, a tenant and an API; nobody decides or works yet.
    pub(crate) async fn prepare(purpose: &str) -> Self {
        let options = own_database::create(&own_database::name(purpose)).await;
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(options.clone());
        schema::migrate(&pool).await.expect("an empty database can be migrated");
        let mut broker = RabbitSettings::new(amqp_url().parse().expect("AMQP_URL is a URL"));
        let prefix = format!("{}-{}", purpose.replace('_', "-"), std::process::id());
        broker.prefix = prefix.parse().expect("it is a prefix");

        let store = Arc::new(PgStore::new(options.clone(), LaneSizes::default()));
        let tenant = TenantId::from_u128(0x7e);
        store.execute(&Command::CreateTenant(CreateTenant { tenant, name: "ours".into() })).await;
        let key = access::new_key();
        access::store_key(&pool, tenant, &key).await.expect("a key can be stored");
        let node = NodeId::from_uuid(Uuid::new_v4());
        let spans = Spans::of(
            &SchedulerConfig::new(node, "scheduler".into()),
            &WorkerConfig::new(node, "worker".into(), BTreeMap::new()),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let address = listener.local_addr().expect("it is bound");
        let state = ApiState { store, reads: pool.clone(), node, spans };
        tokio::spawn(async move { axum::serve(listener, api::tenants(state)).await });
        // Whoever came first in this process has chosen; it is the same one.
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().build().expect("nothing but the provider can be missing");
        let (drain, _) = watch::channel(false);
        Self { pool, options, broker, client, address, key, drain, roles: JoinSet::new() }
    }

    /// A scheduler and a worker begin.
    pub(crate) async fn start(self) -> Self {
        let slots = WorkerConfig::new(NodeId::from_u128(0), "worker".into(), BTreeMap::new()).slots;
        self.start_with(slots).await
    }

    /// A scheduler begins, and a worker that runs so many side by side.
    pub(crate) async fn start_with(mut self, slots: u32) -> Self {
        let node = NodeId::from_uuid(Uuid::new_v4());
        let config =
            SchedulerConfig { acquire_per_cycle: 128, ..SchedulerConfig::new(node, "scheduler".into()) };
        let scheduler = SchedulerInterpreter::new(
            self.store(),
            Arc::new(RabbitPublisher::start(self.broker.clone())),
            postgres::listen(self.options.clone()),
            Arc::new(Telemetry::new(node)),
            LanePermits::default(),
        );
        let drain = asked(self.drain.subscribe());
        self.roles.spawn(driver::run(Scheduler::new(config), scheduler, RuntimeClock::start(), drain));

        let node = NodeId::from_uuid(Uuid::new_v4());
        let handlers = Arc::new(HandlerRegistry::with_built_in());
        let known: BTreeMap<HandlerName, BTreeSet<u32>> = handlers.versions();
        let consumer = RabbitConsumer::new(self.broker.clone(), known.keys().cloned().collect());
        let config = WorkerConfig { slots, ..WorkerConfig::new(node, "worker".into(), known) };
        let worker = WorkerInterpreter::new(
            self.store(),
            consumer,
            handlers,
            Arc::new(Telemetry::new(node)),
            LanePermits::default(),
        );
        let drain = asked(self.drain.subscribe());
        self.roles.spawn(driver::run(Worker::new(config), worker, RuntimeClock::start(), drain));
        self
    }

    fn store(&self) -> Arc<PgStore> {
        Arc::new(PgStore::new(self.options.clone(), LaneSizes::default()))
    }

    /// The database's clock, in microseconds.
    pub(crate) async fn now(&self) -> i64 {
        sqlx::query_scalar("SELECT store_now(NULL)").fetch_one(&self.pool).await.expect("it has a clock")
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let url = format!("http://{}{path}", self.address);
        let mut request = self.client.request(method, url).bearer_auth(&self.key);
        if !body.is_null() {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.expect("the API is there");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("an answer has an end");
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        let (status, body) = self.ask(Method::GET, path, Value::Null).await;
        assert_eq!(status, 200, "{path}: {body}");
        (status, body)
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.ask(Method::POST, path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        self.ask(Method::PUT, path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> (u16, Value) {
        self.ask(Method::DELETE, path, Value::Null).await
    }

    pub(crate) async fn delete_saying(&self, path: &str, body: Value) -> (u16, Value) {
        self.ask(Method::DELETE, path, body).await
    }

    /// Creates a job.
    pub(crate) async fn job(&self, definition: Value) -> Uuid {
        let (status, made) = self.post("/v1/jobs", definition).await;
        assert_eq!(status, 201, "{made}");
        made["id"].as_str().and_then(|id| id.parse().ok()).expect("a job has an id")
    }

    /// The scheduled executions of a job, in the order of their fires.
    pub(crate) async fn fires(&self, job: Uuid) -> Vec<Fire> {
        let rows: Vec<(i64, String, i64)> = sqlx::query_as(
            "SELECT fire, state, materialised_at FROM execution WHERE job = $1 AND fire IS NOT NULL ORDER BY fire",
        )
        .bind(job)
        .fetch_all(&self.pool)
        .await
        .expect("the table is there");
        let fire = |(fire, state, materialised_at)| Fire {
            fire: Timestamp::from_micros(fire),
            state,
            materialised_at: Timestamp::from_micros(materialised_at),
        };
        rows.into_iter().map(fire).collect()
    }

    /// Waits until the broker has confirmed every dispatch there is.
    pub(crate) async fn all_is_published(&self) {
        waiting::until("the broker has all", PATIENCE, async || {
            let left: i64 = sqlx::query_scalar("SELECT count(*) FROM outbox_event")
                .fetch_one(&self.pool)
                .await
                .expect("the table is there");
            (left == 0).then_some(())
        })
        .await;
    }

    /// Drains everybody and removes the queues; the database is left, and named.
    pub(crate) async fn end(mut self) -> String {
        self.drain.send_replace(true);
        while let Some(ended) = self.roles.join_next().await {
            ended.expect("a role ends by draining");
        }
        self.pool.close().await;
        let topology = Topology::of(&self.broker);
        let connection = Connection::connect(&amqp_url(), ConnectionProperties::default())
            .await
            .expect("the broker of AMQP_URL can be reached");
        let channel = connection.create_channel().await.expect("the connection is open");
        for handler in HandlerRegistry::with_built_in().versions().into_keys() {
            for queue in topology.queues(&handler) {
                channel
                    .queue_delete(queue, QueueDeleteOptions::default())
                    .await
                    .expect("deleting what is not there is no error");
            }
        }
        channel
            .exchange_delete(topology.exchange(), ExchangeDeleteOptions::default())
            .await
            .expect("deleting what is not there is no error");
        String::from(self.options.to_url_lossy())
    }
}

async fn asked(mut drain: watch::Receiver<bool>) {
    // A sender that is gone can ask for nothing any more; then there is nothing to wait for either.
    let _gone = drain.wait_for(|asked| *asked).await;
}
