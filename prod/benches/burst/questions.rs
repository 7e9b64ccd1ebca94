//! Questions to a full database: how long an operator waits for an answer over HTTP.
//!
//! Jobs are created by the API; their executions and skipped ranges are then written by SQL, each as the scheduler
//! and a worker would have left it, except that an execution's id is drawn (no question works it out). One question at
//! a time, each about another job or execution, in an order that is the same in every run. No scheduler and no worker
//! runs. Relied on: the tables of `migrations/`. Must stay true: what is asked for is there; an empty answer is a panic.

use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};
use sqlx::PgPool;
use uuid::Uuid;

use crate::arguments::Arguments;
use crate::cluster::Front;
use crate::figures::{Figures, Required};
use crate::ground::Ground;

/// Between two fires of a job.
const EVERY: Duration = Duration::from_secs(60);
/// One job in so many has dead letters and a long outage behind it.
const TROUBLED: i64 = 10;
/// How long an answer may take, in milliseconds, for 99 in a hundred.
const AT_MOST_MS: f64 = 50.0;

/// Fills the database and asks.
pub(crate) async fn questions(arguments: &Arguments, ground: &Ground, figures: &mut Figures) {
    const PART: &str = "questions";
    let front = Front::open(&arguments.program, ground).await;
    let every_ms = EVERY.as_millis() as u64;
    let start = Utc::now() - chrono::Duration::days(365);
    let schedule = json!({"kind": "interval", "start": start.to_rfc3339(), "every_ms": every_ms});
    front.operator.create_all(arguments.jobs, &schedule).await;
    let fires = i64::from(arguments.stored / arguments.jobs.max(1));
    let began = Instant::now();
    fill(ground.pool(), fires).await;
    figures.add(PART, "time to fill the database", began.elapsed().as_secs_f64(), "s", Required::Nothing);
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM execution")
        .fetch_one(ground.pool())
        .await
        .expect("executions can be counted");
    figures.add(PART, "executions in the database", stored as f64, "", Required::Nothing);

    let targets = targets(ground.pool(), i64::from(arguments.questions)).await;
    let definition = json!({"name": "unsaved", "handler": {"name": "noop"},
        "schedule": {"kind": "cron", "expr": "30 2 * * 1-5", "zone": "Europe/Berlin"}});
    let mut explained = Vec::new();
    let mut dead = Vec::new();
    let mut of_jobs = Vec::new();
    let mut of_ledgers = Vec::new();
    let mut of_fires = Vec::new();
    let mut previews = Vec::new();
    for target in &targets {
        let Target { job, execution, dead_letter, from, to } = target;
        explained.push(front.operator.ask_for(&format!("/v1/executions/{execution}/explain")).await);
        dead.push(front.operator.ask_for(&format!("/v1/executions/{dead_letter}/explain")).await);
        of_jobs.push(front.operator.ask_for(&format!("/v1/jobs/{job}/explain")).await);
        of_fires.push(front.operator.ask_for(&format!("/v1/jobs/{job}/fires?count=100")).await);
        let ledger = format!("/v1/jobs/{job}/ledger?from={}&to={}", text(*from), text(*to));
        of_ledgers.push(front.operator.ask_for(&ledger).await);
        previews.push(front.operator.ask_with("/v1/preview?count=100", &definition).await);
    }
    for (name, answers) in [
        ("explain an execution", explained),
        ("explain a dead letter", dead),
        ("explain a job", of_jobs),
        ("a job's next 100 fires", of_fires),
        ("a job's ledger for a range", of_ledgers),
        ("preview 100 fires, unsaved", previews),
    ] {
        assert!(answers.iter().all(|answer| says_something(&answer.body)), "{name}: an empty answer");
        let mut times: Vec<f64> = answers.iter().map(|answer| answer.took.as_secs_f64() * 1e3).collect();
        times.sort_unstable_by(f64::total_cmp);
        let at = |hundredth: usize| times[(times.len() - 1) * hundredth / 100];
        figures.add(PART, &format!("{name}: p50"), at(50), "ms", Required::Nothing);
        figures.add(PART, &format!("{name}: p99"), at(99), "ms", Required::AtMost(AT_MOST_MS));
    }
    front.close();
}

fn text(micros: i64) -> String {
    let at = DateTime::<Utc>::from_timestamp_micros(micros).expect("an instant of ours");
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Whether there is more in an answer than its frame.
fn says_something(body: &Value) -> bool {
    ["fires", "items"].iter().all(|list| body[list].as_array().is_none_or(|list| !list.is_empty()))
        && body.as_object().is_some_and(|body| !body.is_empty())
}

/// What one round of questions is about.
struct Target {
    job: Uuid,
    execution: Uuid,
    dead_letter: Uuid,
    from: i64,
    to: i64,
}

/// Jobs and executions spread over all there are.
async fn targets(pool: &PgPool, count: i64) -> Vec<Target> {
    let rows: Vec<(Uuid, Uuid, Uuid, i64, i64)> = sqlx::query_as(
        "WITH picked AS (SELECT id, row_number() OVER (ORDER BY md5(id::text)) AS place FROM job),
              troubled AS (SELECT execution, row_number() OVER (ORDER BY md5(execution::text)) AS place
                           FROM dead_letter)
         SELECT picked.id, middle.id, troubled.execution, middle.fire - 20 * $2, middle.fire + 20 * $2
         FROM picked JOIN troubled USING (place)
         CROSS JOIN LATERAL (SELECT execution.id, execution.fire FROM execution WHERE execution.job = picked.id
                             ORDER BY execution.due_at OFFSET 50 LIMIT 1) AS middle
         WHERE place <= $1 ORDER BY place",
    )
    .bind(count)
    .bind(EVERY.as_micros() as i64)
    .fetch_all(pool)
    .await
    .expect("the tables are those of the migrations");
    assert_eq!(rows.len() as i64, count, "there are fewer to ask about");
    rows.into_iter()
        .map(|(job, execution, dead_letter, from, to)| Target { job, execution, dead_letter, from, to })
        .collect()
}

/// Gives every job as many past fires as executions: completed, but for a dead letter after two attempts in every
/// tenth job, which had an outage of a thousand fires before them.
async fn fill(pool: &PgPool, fires: i64) {
    for statement in [
        // Every job's fires end at its watermark, which stands where the job was created.
        "INSERT INTO execution (id, tenant, job, due_at, made_under, token, nonce, expires_at, dispatched_at,
             materialised_at, published_at, received_at, leased_at, started_at, finished_at, fire, job_version,
             attempts, rescues, lost_starts, waits, dispatch_no, redispatches, partition, lag_clamped, start_seen,
             cancel_requested, state, occurrence, key, error)
         SELECT gen_random_uuid(), tenant, id, fire, 1, CASE WHEN is_dead THEN 2 ELSE 1 END, 1, 0, fire + 2000,
             fire + 1000, fire + 3000, fire + 5000, fire + 7000, fire + 8000, fire + 20000, fire, 1,
             CASE WHEN is_dead THEN 2 ELSE 0 END, 0, 0, 0, 1, 0, partition, false, true, false,
             CASE WHEN is_dead THEN 'dead_lettered' ELSE 'completed' END, 'scheduled',
             id || '/' || to_char(to_timestamp(fire / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS')
                 || '.' || lpad((fire % 1000000)::text, 6, '0') || 'Z',
             CASE WHEN is_dead THEN '503 from the target' END
         FROM (SELECT job.*, latest - back * $2 AS fire, back = 10 AND place % $3 = 0 AS is_dead
               FROM (SELECT job.*, next_fire_time - $2 AS latest, row_number() OVER (ORDER BY id) AS place
                     FROM job) AS job
               CROSS JOIN generate_series(0, $1 - 1) AS back) AS fires",
        "INSERT INTO attempt (execution, tenant, node, token, at, attempt, ended, error)
         SELECT id, tenant, gen_random_uuid(), run, due_at + run * 5000, run, 'failed_retryably',
             '503 from the target'
         FROM execution CROSS JOIN generate_series(1, 2) AS run
         WHERE state = 'dead_lettered' AND $1 + $2 + $3 > 0",
        "INSERT INTO dead_letter (execution, tenant, job, at, attempts, rescues, lost_starts, reason, error)
         SELECT id, tenant, job, finished_at, 2, 0, 0, 'exhausted', error FROM execution
         WHERE state = 'dead_lettered' AND $1 + $2 + $3 > 0",
        "INSERT INTO skipped_range (job, tenant, from_fire, through_fire, made_under, decided_at, job_version,
             reason, zone_data)
         SELECT id, tenant, next_fire_time - ($1 + 1000) * $2, next_fire_time - ($1 + 1) * $2, 1,
             next_fire_time - $1 * $2, 1, 'misfire', 'none'
         FROM (SELECT job.*, row_number() OVER (ORDER BY id) AS place FROM job) AS job WHERE place % $3 = 0",
    ] {
        sqlx::query(statement)
            .bind(fires)
            .bind(EVERY.as_micros() as i64)
            .bind(TROUBLED)
            .execute(pool)
            .await
            .unwrap_or_else(|error| panic!("{statement}\n{error}"));
    }
    sqlx::raw_sql("VACUUM ANALYZE").execute(pool).await.expect("the tables are ours");
}
