//! Overlap policies and limits through the API on the real stack: a target that answers when it is told to, and executions
//! that come while others are with it.

use fencepost_tests::{own_database, waiting};
use serde_json::{Value, json};
use uuid::Uuid;

use super::stack::{Stack, database_of};
use super::target::Target;
use super::{PATIENCE, holds};

async fn limited(stack: &Stack, target: &Target, overlap: &str) -> Uuid {
    stack
        .job(json!({
            "name": overlap, "handler": {"name": "http"}, "payload": {"url": target.url, "method": "POST"},
            "schedule": {"kind": "manual"}, "overlap": overlap,
        }))
        .await
}

async fn trigger(stack: &Stack, job: Uuid) -> String {
    let (status, made) = stack.post(&format!("/v1/jobs/{job}/trigger"), Value::Null).await;
    assert_eq!(status, 201, "{made}");
    made["id"].as_str().expect("it has an id").to_owned()
}

async fn becomes(stack: &Stack, execution: &str, state: &str) {
    waiting::until(&format!("{execution} is {state}"), PATIENCE, async || {
        let (_, shown) = stack.get(&format!("/v1/executions/{execution}")).await;
        (shown["state"] == state).then_some(())
    })
    .await;
}

/// The first statement with this code, once there is one.
async fn is_told(stack: &Stack, execution: &str, code: &str) -> Value {
    waiting::until(&format!("{execution}: {code}"), PATIENCE, async || {
        let (_, told) = stack.get(&format!("/v1/executions/{execution}/explain")).await;
        let lists = ["past", "now"].iter().filter_map(|list| told[*list].as_array());
        lists.flatten().find(|statement| statement["code"] == code).cloned()
    })
    .await
}

async fn ends_well(stack: Stack) {
    let url = stack.end().await;
    holds(&url).await;
    own_database::drop(&database_of(&url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_skip_what_comes_while_another_runs_is_passed_over_and_told_why() {
    let stack = Stack::prepare("overlap_skip").await.start().await;
    let target = Target::start().await;
    let job = limited(&stack, &target, "skip").await;
    let first = trigger(&stack, job).await;
    target.is_called_for(&first).await;
    let second = trigger(&stack, job).await;
    becomes(&stack, &second, "skipped").await;
    let told = is_told(&stack, &second, "skipped_overlap").await;
    assert_eq!(told["overlap"], "skip", "{told}");
    target.answers.add_permits(1);
    becomes(&stack, &first, "completed").await;
    target.answers.add_permits(1);
    let third = trigger(&stack, job).await;
    becomes(&stack, &third, "completed").await;
    ends_well(stack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_buffer_one_the_first_waits_behind_what_runs_and_follows_it_at_once() {
    let stack = Stack::prepare("overlap_buffer").await.start().await;
    let target = Target::start().await;
    let job = limited(&stack, &target, "buffer_one").await;
    let first = trigger(&stack, job).await;
    target.is_called_for(&first).await;
    let second = trigger(&stack, job).await;
    let told = is_told(&stack, &second, "waiting_buffered").await;
    assert_eq!((&told["behind"], &told["behind_state"]), (&json!(first), &json!("running")), "{told}");
    let third = trigger(&stack, job).await;
    becomes(&stack, &third, "skipped").await;
    target.answers.add_permits(2);
    becomes(&stack, &first, "completed").await;
    becomes(&stack, &second, "completed").await;
    ends_well(stack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_cancel_running_the_later_one_takes_the_place_of_what_runs() {
    let stack = Stack::prepare("overlap_cancel").await.start().await;
    let target = Target::start().await;
    let job = limited(&stack, &target, "cancel_running").await;
    let first = trigger(&stack, job).await;
    target.is_called_for(&first).await;
    let second = trigger(&stack, job).await;
    becomes(&stack, &first, "cancelled").await;
    target.is_called_for(&second).await;
    // One for each call: the first was closed, and its answer goes nowhere.
    target.answers.add_permits(2);
    becomes(&stack, &second, "completed").await;
    ends_well(stack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contradictory_policies_are_refused_with_the_field_named() {
    let stack = Stack::prepare("overlap_refused").await;
    for (overlap, cap) in [("skip", 2), ("buffer_one", 3), ("cancel_running", 2)] {
        let definition = json!({
            "name": "n", "handler": {"name": "noop"}, "overlap": overlap, "misfire": {"catch_up": {"cap": cap}},
            "schedule": {"kind": "cron", "expr": "* * * * *"},
        });
        let (status, refused) = stack.post("/v1/jobs", definition).await;
        assert_eq!(status, 400, "{refused}");
        assert!(refused.to_string().contains("/overlap"), "{refused}");
    }
    ends_well(stack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_of_a_key_run_at_once_than_its_limit_and_the_rest_follow() {
    let stack = Stack::prepare("limit_of_two").await.start().await;
    let target = Target::start().await;
    let mut jobs = Vec::new();
    for name in ["first", "second"] {
        let definition = json!({
            "name": name, "handler": {"name": "http"}, "payload": {"url": target.url, "method": "POST"},
            "schedule": {"kind": "manual"}, "concurrency_key": "the database",
        });
        jobs.push(stack.job(definition).await);
    }
    let said = json!({"max_running": 2, "actor": "Zoë", "reason": "the disk is slow"});
    let (status, set) = stack.put("/v1/limits/keys/the%20database", said).await;
    assert_eq!((status, &set["key"], &set["max_running"]), (200, &json!("the database"), &json!(2)), "{set}");
    let mut all = Vec::new();
    for count in 0..5 {
        all.push(trigger(&stack, jobs[count % 2]).await);
    }
    let waiting = waiting::until("three wait for the limit", PATIENCE, async || {
        let (_, limits) = stack.get("/v1/limits").await;
        (limits["items"][0]["waiting"] == 3).then(|| limits["items"][0].clone())
    })
    .await;
    assert_eq!(waiting["running"], 2, "{waiting}");
    assert_eq!(target.called.lock().await.len(), 2);
    let called = target.called.lock().await.clone();
    let waits = all.iter().find(|id| !called.contains(id)).expect("three were not called for");
    let told = is_told(&stack, waits, "waiting_limit").await;
    assert_eq!(
        (&told["max_running"], &told["running"], &told["set_by"]),
        (&json!(2), &json!(2), &json!("Zoë")),
        "{told}"
    );
    target.answers.add_permits(5);
    for execution in &all {
        becomes(&stack, execution, "completed").await;
    }
    let said = json!({"max_running": null, "actor": "Zoë", "reason": "it is fast again"});
    let (status, cleared) = stack.put("/v1/limits/keys/the%20database", said).await;
    assert_eq!((status, &cleared["max_running"]), (200, &Value::Null), "{cleared}");
    ends_well(stack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_runs_no_more_than_its_limit_until_that_is_taken_away() {
    let stack = Stack::prepare("limit_of_tenant").await.start().await;
    let target = Target::start().await;
    let mut all = Vec::new();
    for name in ["first", "second"] {
        let definition = json!({
            "name": name, "handler": {"name": "http"}, "payload": {"url": target.url, "method": "POST"},
            "schedule": {"kind": "manual"},
        });
        all.push(stack.job(definition).await);
    }
    let none = json!({"max_running": 0, "actor": "Zoë", "reason": "the disk is slow"});
    let (status, refused) = stack.put("/v1/limits/tenant", none).await;
    assert_eq!((status, &refused["pointer"]), (400, &json!("/max_running")), "{refused}");
    let one = json!({"max_running": 1, "actor": "Zoë", "reason": "the disk is slow"});
    let (status, set) = stack.put("/v1/limits/tenant", one).await;
    assert_eq!((status, &set["key"], &set["max_running"]), (200, &Value::Null, &json!(1)), "{set}");
    let executions = [trigger(&stack, all[0]).await, trigger(&stack, all[1]).await];
    waiting::until("one waits for the limit", PATIENCE, async || {
        let (_, limits) = stack.get("/v1/limits").await;
        (limits["items"][0]["waiting"] == 1 && limits["items"][0]["running"] == 1).then_some(())
    })
    .await;
    let called = waiting::until("the target is called", PATIENCE, async || {
        Some(target.called.lock().await.clone()).filter(|called| !called.is_empty())
    })
    .await;
    let waits = executions.iter().find(|id| !called.contains(id)).expect("one was not called for");
    let told = is_told(&stack, waits, "waiting_limit").await;
    assert_eq!((&told["key"], &told["max_running"]), (&Value::Null, &json!(1)), "{told}");
    let none = json!({"max_running": null, "actor": "Zoë", "reason": "it is fast again"});
    assert_eq!(stack.put("/v1/limits/tenant", none).await.0, 200);
    waiting::until("the other is called for", PATIENCE, async || {
        (target.called.lock().await.len() == 2).then_some(())
    })
    .await;
    target.answers.add_permits(2);
    for execution in &executions {
        becomes(&stack, execution, "completed").await;
    }
    ends_well(stack).await;
}
