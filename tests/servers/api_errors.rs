//! What the API answers when something is wrong around it: a path that is no text, a body that never ends, a store that
//! lost its connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use fencepost::api::{self, ApiState};
use fencepost::postgres::{LaneSizes, PgStore};
use fencepost::{access, schema};
use fencepost_core::config::{SchedulerConfig, WorkerConfig};
use fencepost_core::explain::Spans;
use fencepost_core::id::{NodeId, TenantId};
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::{Command, CreateTenant};
use fencepost_tests::own_database;
use serde_json::{Value, json};
use sqlx::{ConnectOptions, PgPool};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

const NODE: NodeId = NodeId::from_u128(0xa9);

/// An API on a database of its own.
struct Ground {
    name: String,
    pool: PgPool,
    address: SocketAddr,
    key: String,
}

impl Ground {
    async fn prepare(purpose: &str) -> Self {
        let name = own_database::name(purpose);
        let options = own_database::create(&name).await;
        let pool = schema::connect(options.to_url_lossy().as_str()).await.expect("the database is there");
        schema::migrate(&pool).await.expect("an empty database can be migrated");
        let store = Arc::new(PgStore::new(options, LaneSizes::default()));
        let tenant = TenantId::from_uuid(Uuid::new_v4());
        let create = Command::CreateTenant(CreateTenant { tenant, name: "ours".into() });
        assert!(matches!(store.execute(&create).await, StoreOutcome::Replied(_)), "a tenant can be made");
        let key = access::new_key();
        access::store_key(&pool, tenant, &key).await.expect("a key can be stored");
        let scheduler = SchedulerConfig::new(NODE, "scheduler".into());
        let worker = WorkerConfig::new(NODE, "worker".into(), BTreeMap::new());
        let spans = Spans::of(&scheduler, &worker);
        let state = ApiState { store, reads: pool.clone(), node: NODE, spans };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let address = listener.local_addr().expect("it is bound");
        tokio::spawn(async move { axum::serve(listener, api::tenants(state)).await });
        Self { name, pool, address, key }
    }

    /// Sends a request as it is and reads the answer to its end: the status, the headers, and the body as JSON.
    async fn send(&self, head: &str, body: &str) -> (u16, String, Value) {
        let mut stream = TcpStream::connect(self.address).await.expect("the API listens");
        let key = &self.key;
        let request =
            format!("{head}\r\nHost: api\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n{body}");
        stream.write_all(request.as_bytes()).await.expect("the API reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("the API answers in text");
        let (headers, body) = answer.split_once("\r\n\r\n").expect("an answer has headers");
        let status = headers.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error} in {answer:?}"));
        (status.expect("an answer has a status"), headers.to_ascii_lowercase(), body)
    }

    async fn remove(self) {
        self.pool.close().await;
        own_database::drop(&self.name).await;
    }
}

#[tokio::test]
async fn what_others_answer_for_the_api_is_a_problem_as_well() {
    let ground = Ground::prepare("api_errors").await;
    let stalled = "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    for (head, body, status, kind) in [
        ("GET /v1/jobs/%FF HTTP/1.1", "\r\n", 400, "bad-request"),
        ("POST /v1/jobs HTTP/1.1", stalled, 504, "timeout"),
    ] {
        let (answered, headers, problem) = ground.send(head, body).await;
        assert_eq!((answered, &problem["type"]), (status, &json!(kind)), "{head}: {problem}");
        assert!(headers.contains("content-type: application/problem+json"), "{head}: {headers}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{head}: {problem}");
    }
    ground.remove().await;
}

#[tokio::test]
async fn the_first_requests_after_every_connection_was_lost_are_answered() {
    let ground = Ground::prepare("api_reconnects").await;
    let job = json!({"name": "n", "handler": {"name": "noop"}, "schedule": {"kind": "manual"}}).to_string();
    let create = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{job}", job.len());
    let (status, _, made) = ground.send("POST /v1/jobs HTTP/1.1", &create).await;
    assert_eq!(status, 201, "{made}");
    let id = made["id"].as_str().expect("a job has an id");
    let trigger = format!("POST /v1/jobs/{id}/trigger HTTP/1.1");
    // Several at once, so that several connections are idle afterwards.
    let together = [(); 4].map(|()| ground.send(&trigger, "\r\n"));
    for (status, _, body) in futures_util::future::join_all(together).await {
        assert_eq!(status, 201, "{body}");
    }
    for round in 0..3 {
        sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .execute(&ground.pool)
        .await
        .expect("a superuser may");
        let (status, _, body) = ground.send(&trigger, "\r\n").await;
        assert_eq!(status, 201, "round {round}: {body}");
    }
    ground.remove().await;
}
