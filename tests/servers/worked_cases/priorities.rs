//! Priorities on the real stack: a backlog of low and normal ones, and then high ones, for a worker with few slots.

use std::collections::BTreeMap;

use fencepost_tests::{own_database, waiting};
use serde_json::{Value, json};
use uuid::Uuid;

use super::stack::{Stack, database_of};
use super::target::Target;
use super::{PATIENCE, holds};

const SLOTS: usize = 4;
/// How many of each wait when the high ones come, and how many high ones come.
const BACKLOG: usize = 60;
const HIGH: usize = 45;
/// How many starts are watched then.
const WATCHED: usize = 40;

async fn job(stack: &Stack, target: &Target, priority: &str) -> Uuid {
    stack
        .job(json!({
            "name": priority, "handler": {"name": "http"}, "payload": {"url": target.url, "method": "POST"},
            "schedule": {"kind": "manual"}, "priority": priority,
        }))
        .await
}

async fn trigger(stack: &Stack, job: Uuid) -> String {
    let (status, made) = stack.post(&format!("/v1/jobs/{job}/trigger"), Value::Null).await;
    assert_eq!(status, 201, "{made}");
    made["id"].as_str().expect("it has an id").to_owned()
}

/// Lets one run after the other end until so many more are started; which those are.
async fn next_starts(target: &Target, count: usize) -> Vec<String> {
    let before = target.called.lock().await.len();
    for started in before + 1..=before + count {
        target.answers.add_permits(1);
        waiting::until("the next start", PATIENCE, async || {
            (target.called.lock().await.len() >= started).then_some(())
        })
        .await;
    }
    target.called.lock().await[before..before + count].to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn high_ones_overtake_a_backlog_and_each_priority_has_its_share_of_the_starts() {
    let slots = u32::try_from(SLOTS).expect("few");
    let stack = Stack::prepare("priorities").await.start_with(slots).await;
    let target = Target::start().await;
    let (low, normal) = (job(&stack, &target, "low").await, job(&stack, &target, "normal").await);
    let high = job(&stack, &target, "high").await;
    let mut of = BTreeMap::new();
    for _ in 0..BACKLOG {
        of.insert(trigger(&stack, low).await, "low");
        of.insert(trigger(&stack, normal).await, "normal");
    }
    stack.all_is_published().await;
    waiting::until("all slots are taken", PATIENCE, async || {
        (target.called.lock().await.len() == SLOTS).then_some(())
    })
    .await;
    let mut latest = String::new();
    for _ in 0..HIGH {
        latest = trigger(&stack, high).await;
        of.insert(latest.clone(), "high");
    }
    stack.all_is_published().await;

    let priorities = |starts: &[String]| -> Vec<&str> { starts.iter().map(|id| of[id]).collect() };
    // The broker may take a moment to hand over what it has confirmed.
    let soon = priorities(&next_starts(&target, 10).await);
    assert!(soon.contains(&"high"), "{} others wait, and none was overtaken: {soon:?}", 2 * BACKLOG);
    let starts = priorities(&next_starts(&target, WATCHED).await);
    let count = |priority| starts.iter().filter(|of| **of == priority).count();
    for priority in ["high", "normal", "low"] {
        assert!(count(priority) * 10 >= WATCHED, "{priority}: {} of {WATCHED}: {starts:?}", count(priority));
    }
    assert!(count("high") * 2 >= WATCHED, "{starts:?}");

    let (_, told) = stack.get(&format!("/v1/executions/{latest}/explain")).await;
    let past = told["past"].as_array().expect("there is a past");
    assert!(past.iter().any(|told| told["code"] == "priority" && told["priority"] == "high"), "{told}");
    target.answers.add_permits(2 * BACKLOG + HIGH);
    waiting::until("everything has ended", PATIENCE, async || {
        let ended: i64 = sqlx::query_scalar("SELECT count(*) FROM execution WHERE state = 'completed'")
            .fetch_one(&stack.pool)
            .await
            .expect("the table is there");
        (ended == 2 * BACKLOG as i64 + HIGH as i64).then_some(())
    })
    .await;
    let url = stack.end().await;
    holds(&url).await;
    own_database::drop(&database_of(&url)).await;
}
