//! Failures in a row and flex windows through the API on the real stack.

use fencepost_tests::{own_database, waiting};
use serde_json::{Value, json};

use super::stack::{Stack, database_of};
use super::{PATIENCE, holds};

/// A port of loopback on which nobody listens.
async fn nobody() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
    format!("http://{}/", listener.local_addr().expect("it is bound"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_executions_fail_in_a_row_is_paused_says_why_and_goes_on_once_it_is_resumed() {
    let stack = Stack::prepare("failures").await.start().await;
    let job = stack
        .job(json!({
            "name": "failing", "handler": {"name": "http"}, "payload": {"url": nobody().await, "method": "POST"},
            "schedule": {"kind": "cron", "expr": "* * * * * *"}, "retry": {"max_attempts": 1},
            "pause_after_failures": 3,
        }))
        .await;
    let shown = waiting::until("the job pauses itself", PATIENCE, async || {
        let (_, shown) = stack.get(&format!("/v1/jobs/{job}")).await;
        (shown["standing"]["state"] == "paused").then_some(shown)
    })
    .await;
    assert_eq!(shown["standing"]["actor"], "fencepost", "{shown:#}");
    let reason = shown["standing"]["reason"].as_str().expect("it says why");
    let (_, dead) = stack.get(&format!("/v1/dead-letters?job_id={job}")).await;
    let dead = dead["items"].as_array().expect("a list").clone();
    assert!(dead.len() >= 3, "{dead:?}");
    assert!(
        dead.iter().any(|letter| reason.contains(letter["execution_id"].as_str().expect("an id"))),
        "{reason}"
    );
    let (_, told) = stack.get(&format!("/v1/jobs/{job}/explain")).await;
    assert!(told.to_string().contains("paused"), "{told:#}");

    let (status, resumed) = stack
        .post(&format!("/v1/jobs/{job}/resume"), json!({"actor": "alice", "reason": "the target is back"}))
        .await;
    assert!(status < 300, "{status}: {resumed}");
    let again = waiting::until("three more fail, and it pauses itself again", PATIENCE, async || {
        let (_, shown) = stack.get(&format!("/v1/jobs/{job}")).await;
        let since = |shown: &Value| shown["standing"]["since"].clone();
        let is_again = shown["standing"]["state"] == "paused" && shown["standing"]["actor"] == "fencepost";
        (is_again && since(&shown) != since(&resumed)).then_some(shown)
    })
    .await;
    assert!(again["version"].as_i64() > shown["version"].as_i64(), "{again:#}");
    let url = stack.end().await;
    holds(&url).await;
    own_database::drop(&database_of(&url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fire_with_a_window_is_due_at_its_own_place_in_it_as_its_preview_said() {
    let stack = Stack::prepare("flex").await.start().await;
    let job = stack
        .job(json!({
            "name": "spread", "handler": {"name": "noop"}, "flex_ms": 2_000,
            "schedule": {"kind": "cron", "expr": "*/3 * * * * *"},
        }))
        .await;
    let (_, preview) = stack.get(&format!("/v1/jobs/{job}/fires?count=10")).await;
    let announced = preview["fires"].as_array().expect("a list").clone();
    let (ran, fire) = waiting::until("one that was announced has run", PATIENCE, async || {
        let (_, shown) = stack.get(&format!("/v1/executions?job_id={job}&state=completed")).await;
        let ran = shown["items"].as_array()?.first()?.clone();
        let fire = announced.iter().find(|fire| fire["due"] == ran["due_at"])?;
        Some((ran, fire.clone()))
    })
    .await;
    let key = ran["idempotency_key"].as_str().expect("it has a key");
    let nominal = fire["utc"].as_str().expect("a fire is an instant").trim_end_matches('Z');
    assert!(key.contains(nominal.split('.').next().expect("it begins somehow")), "{key}: {fire}");
    let id = ran["id"].as_str().expect("it has an id");
    let (_, told) = stack.get(&format!("/v1/executions/{id}/explain")).await;
    let past = told["past"].as_array().expect("a list");
    assert!(past.iter().any(|statement| statement["code"] == "flexed"), "{told:#}");
    let url = stack.end().await;
    holds(&url).await;
    own_database::drop(&database_of(&url)).await;
}
