//! Calendars through the API on the real stack: what they exclude is passed over and told why, what is set while a job
//! fires decides from then on, and what would leave something in doubt is refused.

use fencepost_core::time::Timestamp;
use fencepost_tests::{own_database, waiting};
use serde_json::{Value, json};
use uuid::Uuid;

use super::stack::{Stack, database_of};
use super::{PATIENCE, holds};

const DAY: i64 = 86_400_000_000;

/// Yesterday, today and tomorrow by the database's clock.
async fn these_days(stack: &Stack) -> Vec<String> {
    let now = stack.now().await;
    let day = |days: i64| {
        let text = Timestamp::from_micros(now + days * DAY).to_string();
        text.split('T').next().expect("a date comes first").to_owned()
    };
    [-1, 0, 1].map(day).to_vec()
}

async fn set(stack: &Stack, days: &[String]) -> (u16, Value) {
    let said = json!({"days": days, "actor": "Zoë", "reason": "they were forgotten"});
    stack.put("/v1/calendars/holidays", said).await
}

fn every_second(exclude: &Value) -> Value {
    json!({
        "name": "n", "handler": {"name": "noop"}, "exclude": exclude,
        "schedule": {"kind": "cron", "expr": "* * * * * *"},
    })
}

/// How many fires of a job are recorded as passed over by a calendar, as ranges.
async fn ranges(stack: &Stack, job: Uuid) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM skipped_range WHERE job = $1 AND reason = 'calendar'")
        .bind(job)
        .fetch_one(&stack.pool)
        .await
        .expect("it can be counted")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_calendar_excludes_is_passed_over_until_its_days_are_others() {
    let stack = Stack::prepare("calendars").await.start().await;
    let these_days = these_days(&stack).await;
    let (status, calendar) = set(&stack, &these_days).await;
    assert_eq!((status, &calendar["version"], &calendar["days"]), (200, &json!(1), &json!(these_days)));
    let job = stack.job(every_second(&json!(["holidays"]))).await;

    waiting::until("some fires are passed over", PATIENCE, async || {
        (ranges(&stack, job).await >= 2).then_some(())
    })
    .await;
    assert!(stack.fires(job).await.is_empty(), "none of them became an execution");
    let (_, ledger) = stack.get(&format!("/v1/jobs/{job}/ledger")).await;
    assert_eq!(ledger["items"][0]["reason"], "calendar", "{ledger}");
    let (_, preview) = stack.get(&format!("/v1/jobs/{job}/fires")).await;
    assert_eq!(preview["fires"][0]["excluded_by"], "holidays", "{preview}");
    let (_, shown) = stack.get(&format!("/v1/jobs/{job}")).await;
    assert_eq!(shown["definition"]["exclude"], json!(["holidays"]), "{shown}");
    let (_, told) = stack.get(&format!("/v1/jobs/{job}/explain")).await;
    let past = told["past"].as_array().expect("a list");
    let line = past.iter().find(|line| line["code"] == "fires_skipped_calendar").expect("it is told");
    assert_eq!((&line["calendar"], &line["calendar_version"]), (&json!("holidays"), &json!(1)), "{line}");
    // By hand it runs on any day.
    let (status, by_hand) = stack.post(&format!("/v1/jobs/{job}/trigger"), Value::Null).await;
    assert_eq!(status, 201, "{by_hand}");

    let (status, calendar) = set(&stack, &["2001-01-01".to_owned()]).await;
    assert_eq!((status, &calendar["version"]), (200, &json!(2)), "{calendar}");
    waiting::until("it fires", PATIENCE, async || {
        let fires = stack.fires(job).await;
        fires.iter().any(|fire| fire.state == "completed").then_some(())
    })
    .await;
    let (_, shown) = stack.get(&format!("/v1/jobs/{job}")).await;
    assert_eq!(shown["version"], 2, "{shown}");
    let (status, _) = stack.delete(&format!("/v1/jobs/{job}")).await;
    assert_eq!(status, 200);
    let url = stack.end().await;
    holds(&url).await;
    own_database::drop(&database_of(&url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_leave_a_job_without_its_calendar_or_without_a_run_is_refused() {
    let stack = Stack::prepare("calendars_refused").await;
    let refused = |answer: (u16, Value), status: u16, pointer: &str| {
        assert_eq!((answer.0, &answer.1["pointer"]), (status, &json!(pointer)), "{}", answer.1);
    };
    refused(stack.post("/v1/jobs", every_second(&json!(["holidays"]))).await, 400, "/exclude/0");
    refused(set(&stack, &["24.12.2026".to_owned()]).await, 400, "/days/0");
    assert_eq!(set(&stack, &["2101-12-24".to_owned()]).await.0, 200);
    let stale = json!({"days": [], "version": 7, "actor": "Zoë", "reason": "r"});
    refused(stack.put("/v1/calendars/holidays", stale).await, 409, "/version");

    let once = json!({
        "name": "once", "handler": {"name": "noop"}, "exclude": ["holidays"],
        "schedule": {"kind": "one_shot", "at": "2101-12-24T12:00:00Z"},
    });
    refused(stack.post("/v1/jobs", once.clone()).await, 400, "/exclude");
    assert_eq!(set(&stack, &["2101-12-25".to_owned()]).await.0, 200);
    let job = stack.job(once).await;
    let (status, problem) = set(&stack, &["2101-12-24".to_owned()]).await;
    assert_eq!((status, &problem["pointer"]), (400, &json!("/days")), "{problem}");
    assert!(problem["detail"].as_str().is_some_and(|text| text.contains(&job.to_string())), "{problem}");

    let said = json!({"actor": "Zoë", "reason": "no longer needed"});
    let (status, problem) = stack.delete_saying("/v1/calendars/holidays", said.clone()).await;
    assert_eq!(status, 409, "{problem}");
    assert!(problem["detail"].as_str().is_some_and(|text| text.contains(&job.to_string())), "{problem}");
    assert_eq!(stack.delete(&format!("/v1/jobs/{job}")).await.0, 200);
    assert_eq!(stack.delete_saying("/v1/calendars/holidays", said.clone()).await.0, 200);
    assert_eq!(stack.delete_saying("/v1/calendars/holidays", said).await.0, 404);
    let (_, all) = stack.get("/v1/calendars").await;
    assert_eq!(all["items"], json!([]));
    let url = stack.end().await;
    holds(&url).await;
    own_database::drop(&database_of(&url)).await;
}
