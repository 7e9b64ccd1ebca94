//! A tenant and a queue paused and resumed through the API: what they hold back waits, and more of it than the resume
//! lets go by itself flows soon after.

use fencepost_tests::{own_database, waiting};
use serde_json::{Value, json};
use uuid::Uuid;

use super::stack::{self, Stack};
use super::{PATIENCE, holds};

/// More than one command lets go.
const MANY: i64 = 1_040;

async fn count(stack: &Stack, condition: &'static str) -> i64 {
    let query = match condition {
        "held" => "SELECT count(*) FROM execution WHERE held_by IS NOT NULL",
        "done" => "SELECT count(*) FROM execution WHERE state = 'completed'",
        other => panic!("{other} is not counted"),
    };
    sqlx::query_scalar(query).fetch_one(&stack.pool).await.expect("it can be counted")
}

async fn trigger(stack: &Stack, job: Uuid) -> String {
    let (status, made) = stack.post(&format!("/v1/jobs/{job}/trigger"), Value::Null).await;
    assert_eq!(status, 201, "{made}");
    made["id"].as_str().expect("it has an id").to_owned()
}

async fn set(stack: &Stack, path: &str, actor: &str, reason: &str) -> Value {
    let (status, body) = stack.post(path, json!({"actor": actor, "reason": reason})).await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// Where an execution stands, by its explanation.
async fn codes(stack: &Stack, execution: &str) -> Vec<Value> {
    let (_, told) = stack.get(&format!("/v1/executions/{execution}/explain")).await;
    told["now"].as_array().expect("it stands somewhere").iter().map(|now| now["code"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_pause_of_the_tenant_or_of_a_queue_holds_back_waits_and_flows_after_the_resume() {
    let stack = Stack::prepare("worked_pauses").await.start().await;
    let job = stack
        .job(json!({"name": "by hand", "handler": {"name": "noop"}, "schedule": {"kind": "manual"}}))
        .await;

    let (status, body) = stack.post("/v1/tenant/pause", json!({"actor": "Zoë"})).await;
    assert_eq!((status, &body["pointer"]), (400, &json!("/reason")), "{body}");
    let (status, body) = stack.post("/v1/queues/No/1/pause", json!({"actor": "Zoë", "reason": "r"})).await;
    assert_eq!(status, 404, "{body}");
    let (status, body) = stack.post("/v1/tenant/pause", json!({"actor": "Zoë", "reason": "\u{0}"})).await;
    assert_eq!((status, &body["pointer"]), (400, &json!("/reason")), "{body}");

    let tenant = set(&stack, "/v1/tenant/pause", "Zoë", "the disk is full").await;
    assert_eq!(tenant["paused"]["actor"], "Zoë", "{tenant}");
    let again = set(&stack, "/v1/tenant/pause", "Ada", "again").await;
    assert_eq!(again["paused"]["id"], tenant["paused"]["id"], "it stands so already: {again}");
    assert_eq!(again["paused"]["actor"], "Zoë", "whoever paused it first stays on record");

    let mut one = String::new();
    for _ in 0..MANY {
        one = trigger(&stack, job).await;
    }
    waiting::until("all of it waits", PATIENCE, async || (count(&stack, "held").await == MANY).then_some(()))
        .await;
    assert_eq!(count(&stack, "done").await, 0, "nothing starts, not even what is triggered by hand");
    assert_eq!(codes(&stack, &one).await[0], "waiting_tenant_paused");
    let (_, tenant) = stack.get("/v1/tenant").await;
    assert_eq!(tenant["paused"]["waiting"], 1_000, "as far as is counted: {tenant}");

    let tenant = set(&stack, "/v1/tenant/resume", "Ada", "it was emptied").await;
    assert_eq!(tenant["paused"], Value::Null, "{tenant}");
    waiting::until("all of it has run", PATIENCE, async || {
        (count(&stack, "done").await == MANY).then_some(())
    })
    .await;

    let queue = set(&stack, "/v1/queues/noop/1/pause", "Zoë", "a new version").await;
    assert_eq!((&queue["jobs"], &queue["paused"]["scope"]), (&json!(1), &json!("queue")), "{queue}");
    let one = trigger(&stack, job).await;
    waiting::until("it waits", PATIENCE, async || (count(&stack, "held").await == 1).then_some(())).await;
    assert_eq!(codes(&stack, &one).await[0], "waiting_queue_paused");
    let (_, queues) = stack.get("/v1/queues").await;
    assert_eq!(queues["items"][0]["paused"]["waiting"], 1, "{queues}");
    let queue = set(&stack, "/v1/queues/noop/1/resume", "Ada", "it is there").await;
    assert_eq!(queue["paused"], Value::Null, "{queue}");
    waiting::until("it has run", PATIENCE, async || (count(&stack, "done").await == MANY + 1).then_some(()))
        .await;
    let (_, tenant) = stack.get("/v1/tenant").await;
    let ended = tenant["ended"].as_array().expect("a list");
    assert_eq!(ended.len(), 2, "{tenant}");
    assert_eq!((&ended[1]["actor"], &ended[1]["ended"]["actor"]), (&json!("Zoë"), &json!("Ada")), "{tenant}");

    let url = stack.end().await;
    holds(&url).await;
    own_database::drop(&stack::database_of(&url)).await;
}
