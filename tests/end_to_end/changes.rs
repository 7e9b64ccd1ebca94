//! Jobs edited, paused and resumed through the API, while a cluster of processes runs them, over two days that pass in
//! half a minute: the store's clock, which alone says what time it is, is set forward.
//!
//! What must stay true: nothing is waited for by the clock. That the schedulers have looked at an hour is known by a
//! probe, a job that is due in it and has run.

use std::time::Duration;

use fencepost_tests::waiting::until;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::PgPool;
use uuid::Uuid;

use crate::cluster::Cluster;
use crate::operator::Operator;
use crate::process;

/// How long what must come may take.
const WITHIN: Duration = Duration::from_secs(60);

/// The store's clock, to be set forward.
struct Clock {
    pool: PgPool,
}

impl Clock {
    /// Takes the place of the function by which every statement reads the time.
    async fn take(pool: PgPool) -> Self {
        for statement in [
            "CREATE TABLE set_forward (by int8 NOT NULL)",
            "INSERT INTO set_forward VALUES (0)",
            "CREATE OR REPLACE FUNCTION store_now(given int8) RETURNS int8 LANGUAGE sql VOLATILE AS $$
                 SELECT coalesce(given, (extract(epoch FROM clock_timestamp()) * 1000000)::int8
                   + (SELECT by FROM set_forward)) $$",
        ] {
            sqlx::query(statement).execute(&pool).await.expect("the database is this test's own");
        }
        Self { pool }
    }

    /// Sets it to this time of the nth day from tomorrow on.
    async fn set(&self, day: i32, time: &str) {
        let set = "UPDATE set_forward SET by = (extract(epoch FROM
                     (date_trunc('day', now() AT TIME ZONE 'UTC') + make_interval(days => $1 + 1) + $2::text::interval)
                       AT TIME ZONE 'UTC' - clock_timestamp()) * 1000000)::int8";
        sqlx::query(set).bind(day).bind(time).execute(&self.pool).await.expect("it can be set");
    }

    /// An instant of the nth day from tomorrow on, as the API writes it.
    async fn instant(&self, day: i32, time: &str) -> String {
        let read =
            "SELECT to_char(date_trunc('day', now() AT TIME ZONE 'UTC') + make_interval(days => $1 + 1)
                      + $2::text::interval, 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";
        sqlx::query_scalar(read).bind(day).bind(time).fetch_one(&self.pool).await.expect("it is an instant")
    }
}

fn daily(expr: &str) -> Value {
    json!({"name": "daily", "handler": {"name": "noop"}, "schedule": {"kind": "cron", "expr": expr}})
}

async fn create(operator: &Operator, definition: &Value) -> Uuid {
    let (status, body) = operator.ask(Method::POST, "/v1/jobs", Some(definition), &[]).await;
    assert_eq!(status, 201, "{body}");
    body["id"].as_str().and_then(|id| id.parse().ok()).expect("a job has an id")
}

async fn show(operator: &Operator, job: Uuid) -> Value {
    let (status, body) = operator.ask(Method::GET, &format!("/v1/jobs/{job}"), None, &[]).await;
    assert_eq!(status, 200, "{body}");
    body
}

/// Its executions, the latest first.
async fn executions(operator: &Operator, job: Uuid) -> Vec<Value> {
    let path = format!("/v1/executions?job_id={job}");
    let (status, body) = operator.ask(Method::GET, &path, None, &[]).await;
    assert_eq!(status, 200, "{body}");
    body["items"].as_array().expect("a page has items").clone()
}

/// Waits until so many executions of a job have completed.
async fn completed(operator: &Operator, job: Uuid, count: usize) -> Vec<Value> {
    until(&format!("{count} executions of {job} have completed"), WITHIN, async || {
        let all = executions(operator, job).await;
        let done = all.iter().filter(|one| one["state"] == "completed").count();
        (done >= count).then_some(all)
    })
    .await
}

/// Returns once the schedulers have looked at what is due now.
async fn looked_at(operator: &Operator) {
    let probe = create(
        operator,
        &json!({"name": "probe", "handler": {"name": "noop"},
        "schedule": {"kind": "cron", "expr": "* * * * * *"}, "bounds": {"max_runs": 1}}),
    )
    .await;
    completed(operator, probe, 1).await;
}

/// The story of both worked cases.
pub(crate) async fn pass(cluster: &Cluster, pool: PgPool) {
    let clock = Clock::take(pool).await;
    edited(&cluster.operator, &clock).await;
    paused(&cluster.operator, &clock).await;
}

/// A daily 23:00 job edited at 12:00 to 05:00: no run at 12:00, none at 23:00, the next at 05:00 tomorrow.
async fn edited(operator: &Operator, clock: &Clock) {
    clock.set(0, "12:00").await;
    let job = create(operator, &daily("0 23 * * *")).await;
    let path = format!("/v1/jobs/{job}");
    let to_five = daily("0 5 * * *");
    let edit = |tag: &'static str, key: &'static str| {
        let headers = [("If-Match", tag), ("Idempotency-Key", key)];
        let (path, to_five) = (path.clone(), to_five.clone());
        async move { operator.ask(Method::PUT, &path, Some(&to_five), &headers).await }
    };
    let (status, body) = operator.ask(Method::PUT, &path, Some(&to_five), &[]).await;
    assert_eq!((status, &body["type"]), (428, &json!("version-required")), "{body}");
    let (status, body) = edit("\"1\"", "first").await;
    assert_eq!((status, &body["version"]), (200, &json!(2)), "{body}");
    assert_eq!(body["next_fire_time"], clock.instant(1, "05:00").await, "the next fire counts from the edit");
    let (status, body) = edit("\"1\"", "first").await;
    assert_eq!((status, &body["version"]), (200, &json!(2)), "a repeat is told what the first did: {body}");
    let (status, body) = edit("\"1\"", "second").await;
    assert_eq!((status, &body["current_version"]), (412, &json!(2)), "{body}");
    looked_at(operator).await;
    assert_eq!(executions(operator, job).await, Vec::<Value>::new(), "no run at 12:00");
    clock.set(0, "23:00:05").await;
    looked_at(operator).await;
    assert_eq!(executions(operator, job).await, Vec::<Value>::new(), "none at 23:00");
    clock.set(1, "05:00:01").await;
    let ran = completed(operator, job, 1).await;
    assert_eq!(ran.len(), 1, "{ran:?}");
    assert_eq!(ran[0]["due_at"], clock.instant(1, "05:00").await);
    assert_eq!(ran[0]["job_version"], 2);
    let (status, body) = operator.ask(Method::DELETE, &path, None, &[]).await;
    assert_eq!(status, 200, "{body}");
    let (status, body) = edit("\"2\"", "third").await;
    assert_eq!(status, 404, "{body}");
}

/// A daily 02:00 job paused at 01:00, resumed at 07:49: no run at 07:49, next at 02:00; the missed fire is in the ledger
/// as skipped (paused, by whom, why).
async fn paused(operator: &Operator, clock: &Clock) {
    clock.set(2, "01:00").await;
    let job = create(operator, &daily("0 2 * * *")).await;
    let stand = |what: &'static str, actor: &'static str, reason: &'static str| {
        let said = json!({"actor": actor, "reason": reason});
        async move { operator.ask(Method::POST, &format!("/v1/jobs/{job}/{what}"), Some(&said), &[]).await }
    };
    let (status, body) = stand("pause", "", "r").await;
    assert_eq!((status, &body["pointer"]), (400, &json!("/actor")), "{body}");
    let (status, body) = stand("pause", "Zoë", "the disk is full").await;
    assert_eq!((status, &body["version"]), (200, &json!(2)), "{body}");
    let standing = &body["standing"];
    assert_eq!((&standing["state"], &standing["actor"]), (&json!("paused"), &json!("Zoë")), "{body}");
    assert_eq!((&standing["reason"], &body["next_fire_time"]), (&json!("the disk is full"), &Value::Null));
    let (status, body) = stand("pause", "Ada", "again").await;
    assert_eq!((status, &body["version"]), (200, &json!(2)), "it stands so already: {body}");
    assert_eq!(body["standing"]["actor"], "Zoë", "whoever paused it first stays on record");
    let (url, key) = operator.reach();
    let (id, at) = (job.to_string(), ["--url", url.as_str(), "--key", key]);
    let shown = process::run(&[&["jobs", "show", &id], &at[..]].concat(), &[]).await;
    assert!(shown.contains("paused since") && shown.contains("by Zoë (the disk is full)"), "{shown}");
    let resume = ["jobs", "resume", &id, "--actor", "Ada", "--reason", "to try it"];
    let forecast = process::run(&[&resume[..], &at[..]].concat(), &[]).await;
    assert!(forecast.contains("it would be resumed; --yes does it"), "{forecast}");
    clock.set(2, "02:00:10").await;
    looked_at(operator).await;
    assert_eq!(executions(operator, job).await, Vec::<Value>::new(), "none while it is paused");
    let (status, body) = operator.ask(Method::POST, &format!("/v1/jobs/{job}/trigger"), None, &[]).await;
    assert_eq!(status, 201, "{body}");
    completed(operator, job, 1).await;

    clock.set(2, "07:49").await;
    let (status, body) = stand("resume", "Ada", "the disk was emptied").await;
    assert_eq!((status, &body["standing"]["state"]), (200, &json!("active")), "{body}");
    looked_at(operator).await;
    let next = json!(clock.instant(3, "02:00").await);
    until("the fire that was passed over is recorded", WITHIN, async || {
        (show(operator, job).await["next_fire_time"] == next).then_some(())
    })
    .await;
    assert_eq!(executions(operator, job).await.len(), 1, "no run at 07:49 but the one by hand");
    let missed = clock.instant(2, "02:00").await;
    let path = format!("/v1/jobs/{job}/ledger?from={missed}");
    let (_, ledger) = operator.ask(Method::GET, &path, None, &[]).await;
    let [line] = &ledger["items"].as_array().expect("a page has items")[..] else { panic!("{ledger}") };
    assert_eq!((&line["from"], &line["reason"]), (&json!(missed), &json!("paused")), "{line}");
    assert_eq!(line["job_version"], 2);
    let pause = &line["pause"];
    assert_eq!((&pause["actor"], &pause["reason"]), (&json!("Zoë"), &json!("the disk is full")), "{line}");
    let (_, explained) = operator.ask(Method::GET, &format!("/v1/jobs/{job}/explain"), None, &[]).await;
    let past = explained["past"].as_array().expect("an explanation has a past");
    let told = past.iter().find(|told| told["code"] == "fires_skipped_paused");
    let told = told.unwrap_or_else(|| panic!("the fire is explained: {explained}"));
    assert_eq!((&told["actor"], &told["reason"]), (&json!("Zoë"), &json!("the disk is full")), "{told}");

    clock.set(3, "02:00:01").await;
    let ran = completed(operator, job, 2).await;
    assert_eq!(ran[0]["due_at"], clock.instant(3, "02:00").await);
}
