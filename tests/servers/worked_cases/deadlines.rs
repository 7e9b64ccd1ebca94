//! Deadlines through the API on the real stack: what waits past its own is ended whatever holds it back, and what runs is
//! stopped at it.

use fencepost_tests::{own_database, waiting};
use serde_json::{Value, json};
use uuid::Uuid;

use super::stack::{Stack, database_of};
use super::{PATIENCE, holds};

async fn trigger(stack: &Stack, job: Uuid) -> String {
    let (status, made) = stack.post(&format!("/v1/jobs/{job}/trigger"), Value::Null).await;
    assert_eq!(status, 201, "{made}");
    made["id"].as_str().expect("it has an id").to_owned()
}

/// The execution once it stands so.
async fn becomes(stack: &Stack, execution: &str, state: &str) -> Value {
    waiting::until(&format!("{execution} is {state}"), PATIENCE, async || {
        let (_, body) = stack.get(&format!("/v1/executions/{execution}")).await;
        (body["state"] == state).then_some(body)
    })
    .await
}

async fn told(stack: &Stack, execution: &str, part: &str) -> Vec<Value> {
    let (_, told) = stack.get(&format!("/v1/executions/{execution}/explain")).await;
    told[part].as_array().expect("a list").iter().map(|said| said["code"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_past_its_deadline_is_ended_whatever_holds_it_back_and_can_be_replayed() {
    let stack = Stack::prepare("worked_deadlines").await.start().await;
    let why = json!({"actor": "Zoë", "reason": "the disk is full"});
    let job = stack
        .job(json!({
            "name": "by noon", "handler": {"name": "noop"}, "schedule": {"kind": "manual"},
            "attempt_timeout_ms": 4000, "deadline_ms": 4000,
        }))
        .await;
    let (status, body) = stack.post("/v1/tenant/pause", why.clone()).await;
    assert_eq!(status, 200, "{body}");

    let held = trigger(&stack, job).await;
    assert!(told(&stack, &held, "future").await.contains(&json!("deadline")));
    let ended = becomes(&stack, &held, "dead_lettered").await;
    assert_eq!(ended["dead_letter"]["reason"], "deadline", "{ended}");
    assert_eq!(ended["fencing_token"], 0, "it was never leased: {ended}");
    assert!(ended["deadline_at"].as_str() <= ended["finished_at"].as_str(), "{ended}");
    assert!(told(&stack, &held, "past").await.contains(&json!("deadline_passed")));

    let (status, body) = stack.post("/v1/tenant/resume", why).await;
    assert_eq!(status, 200, "{body}");
    let (status, replay) = stack.post(&format!("/v1/dead-letters/{held}/replay"), json!({})).await;
    assert_eq!(status, 201, "{replay}");
    let replayed =
        replay["execution_id"].as_str().or(replay["id"].as_str()).expect("it has an id").to_owned();
    let replayed = becomes(&stack, &replayed, "completed").await;
    assert!(replayed["deadline_at"].as_str() > ended["deadline_at"].as_str(), "its own: {replayed}");

    let url = stack.end().await;
    holds(&url).await;
    own_database::drop(&database_of(&url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_is_stopped_at_the_deadline_and_no_other_follows() {
    let stack = Stack::prepare("worked_deadline_run").await.start().await;
    // It takes calls and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
    let url = format!("http://{}/", silent.local_addr().expect("it is bound"));
    let job = stack
        .job(json!({
            "name": "slow", "handler": {"name": "http"}, "payload": {"url": url, "method": "POST"},
            "schedule": {"kind": "manual"}, "attempt_timeout_ms": 3000, "deadline_ms": 3000, "dead_letter": "off",
        }))
        .await;
    let failed = becomes(&stack, &trigger(&stack, job).await, "failed").await;
    assert_eq!(failed["failed_attempts"], 1, "{failed}");
    assert!(failed["error"].as_str().is_some_and(|error| error.contains("deadline")), "{failed}");

    let url = stack.end().await;
    holds(&url).await;
    own_database::drop(&database_of(&url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_that_contradicts_the_job_is_refused_with_the_field_named() {
    let stack = Stack::prepare("worked_deadline_refused").await;
    for (fields, pointer) in [
        (json!({"deadline_ms": 59_999}), "/deadline_ms"),
        (json!({"deadline_ms": 0}), "/deadline_ms"),
        (json!({"deadline_ms": 120_000, "retry": {"max_age_ms": 120_001}}), "/retry/max_age_ms"),
    ] {
        let mut definition =
            json!({"name": "n", "handler": {"name": "noop"}, "schedule": {"kind": "manual"}});
        definition.as_object_mut().expect("an object").extend(fields.as_object().expect("one").clone());
        let (status, body) = stack.post("/v1/jobs", definition).await;
        assert_eq!((status, &body["pointer"]), (400, &json!(pointer)), "{body}");
    }
    let url = stack.end().await;
    own_database::drop(&database_of(&url)).await;
}
