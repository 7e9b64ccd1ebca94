//! The parts: what each does to a cluster of its own, and which figures come of it.
//!
//! Everything that takes time is read from the stamps that the store's clock made; the triggers' beginnings alone
//! are this process's, on the same machine. While something is measured nothing is asked of the database: the
//! processes' own metrics tell when all is done.

use std::time::{Duration, SystemTime};

use serde_json::json;
use sqlx::{PgPool, Row};
use uuid::Uuid;

use crate::arguments::Arguments;
use crate::cluster::{Front, Roles};
use crate::figures::{Figures, Required};
use crate::ground::{Ground, Statement};

/// How long a burst may take before something is wrong.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often it is looked whether all is done.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The pause between two triggers: not in step with anything that the roles do.
const TRIGGER_EVERY: Duration = Duration::from_millis(73);
/// Statements that are shown.
const STATEMENTS: i64 = 10;

/// Sleeps until then, if that lies ahead.
async fn until(at: chrono::DateTime<chrono::Utc>) {
    if let Ok(left) = (at - chrono::Utc::now()).to_std() {
        tokio::time::sleep(left).await;
    }
}

/// Waits until the worker has completed as many.
async fn completed(roles: &Roles, executions: u32) {
    let began = tokio::time::Instant::now();
    let name = "fencepost_runs_ended_total{state=\"completed\"}";
    while roles.worker.metric(name).await.is_none_or(|done| done < f64::from(executions)) {
        assert!(began.elapsed() < PATIENCE, "the executions do not come to an end");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits until every row of the outbox is gone: the last of what belongs to the executions.
async fn outbox_is_empty(pool: &PgPool) {
    loop {
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM outbox_event")
            .fetch_one(pool)
            .await
            .expect("the outbox can be counted");
        if left == 0 {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Many due at one instant.
pub(crate) async fn burst(arguments: &Arguments, ground: &Ground, figures: &mut Figures) {
    const PART: &str = "burst";
    let executions = arguments.executions;
    let front = Front::open(&arguments.program, ground).await;
    let planned = front.operator.plan_burst(executions).await;
    let mut roles = front.start_roles(&arguments.program, ground).await;
    front.close();
    until(planned.due - Duration::from_millis(500)).await;
    ground.forget_statements().await;
    let before = ground.counts().await;
    let processor = |roles: &Roles| (roles.scheduler.processor_seconds(), roles.worker.processor_seconds());
    let (scheduler_before, worker_before) = processor(&roles);
    completed(&roles, executions).await;
    outbox_is_empty(ground.pool()).await;
    let (scheduler_after, worker_after) = processor(&roles);
    roles.scheduler.kill();
    roles.worker.kill();
    ground.is_left().await;
    let after = ground.counts().await;

    let each = |count: i64| count as f64 / f64::from(executions);
    let [took, materialised, leased] = spans(ground.pool(), executions).await;
    let per_second = |span: f64| f64::from(executions) / span;
    figures.add(PART, "executions", per_second(took), "per second", Required::AtLeast(2_500.0));
    figures.add(
        PART,
        "commits",
        each(after.commits - before.commits),
        "per execution",
        Required::NeverMore(0.1),
    );
    let round_trips = each(after.round_trips - before.round_trips);
    figures.add(PART, "round trips", round_trips, "per execution", Required::NeverMore(0.1));
    let row_writes = each(after.row_writes - before.row_writes);
    figures.add(PART, "row writes", row_writes, "per execution", Required::NeverMore(6.2));
    figures.add(PART, "materialised", per_second(materialised), "per second", Required::Nothing);
    figures.add(PART, "leased", per_second(leased), "per second", Required::Nothing);
    let micros = |seconds: f64| seconds * 1e6 / f64::from(executions);
    let (scheduler, worker) = (scheduler_after - scheduler_before, worker_after - worker_before);
    figures.add(
        PART,
        "processor time of the scheduler",
        micros(scheduler),
        "µs/execution",
        Required::Nothing,
    );
    figures.add(PART, "processor time of the worker", micros(worker), "µs/execution", Required::Nothing);
    let statements = ground.statements(STATEMENTS).await;
    let in_postgres: f64 = statements.iter().map(|statement| statement.total_ms).sum();
    figures.add(
        PART,
        "time within its longest statements",
        micros(in_postgres / 1e3),
        "µs/execution",
        Required::Nothing,
    );
    figures.add(PART, "jobs created", planned.created_per_second, "per second", Required::Nothing);
    show(&statements);
}

fn show(statements: &[Statement]) {
    println!("\n{:>7} {:>9} {:>9} {:>8}  statement", "calls", "in all ms", "each ms", "rows");
    for Statement { text, calls, total_ms, rows } in statements {
        println!("{calls:>7} {total_ms:>9.1} {:>9.2} {rows:>8}  {text}", total_ms / *calls as f64);
    }
}

/// From the first due time to the last end, the last materialisation, and the last lease, in seconds.
async fn spans(pool: &PgPool, executions: u32) -> [f64; 3] {
    let row = sqlx::query(
        "SELECT count(*) AS executions, count(*) FILTER (WHERE state = 'completed') AS completed,
           (max(finished_at) - min(due_at))::int8 AS took, (max(materialised_at) - min(due_at))::int8 AS materialised,
           (max(leased_at) - min(due_at))::int8 AS leased
         FROM execution",
    )
    .fetch_one(pool)
    .await
    .expect("the executions can be counted");
    for count in ["executions", "completed"] {
        assert_eq!(row.get::<i64, _>(count), i64::from(executions), "{count}");
    }
    ["took", "materialised", "leased"].map(|span| row.get::<i64, _>(span) as f64 / 1e6)
}

/// Some due at one instant on an idle cluster.
pub(crate) async fn lateness(arguments: &Arguments, ground: &Ground, figures: &mut Figures) {
    const PART: &str = "lateness";
    let executions = arguments.at_one_instant;
    let front = Front::open(&arguments.program, ground).await;
    let planned = front.operator.plan_burst(executions).await;
    let roles = front.start_roles(&arguments.program, ground).await;
    until(planned.due).await;
    completed(&roles, executions).await;
    let late: Vec<i64> = sqlx::query_scalar("SELECT started_at - due_at FROM execution ORDER BY 1")
        .fetch_all(ground.pool())
        .await
        .expect("every execution has started");
    assert_eq!(late.len(), usize::try_from(executions).expect("it fits"), "one execution per job");
    let late: Vec<f64> = late.into_iter().map(|micros| micros as f64 / 1e3).collect();
    spread(figures, PART, &late, ["late, p50", "late, p99", "late, longest"], [None, Some(800.0), None]);
}

/// One at a time on an idle cluster.
pub(crate) async fn trigger(arguments: &Arguments, ground: &Ground, figures: &mut Figures) {
    const PART: &str = "trigger";
    let front = Front::open(&arguments.program, ground).await;
    let roles = front.start_roles(&arguments.program, ground).await;
    let job = front.operator.create(&json!({"kind": "manual"})).await;
    let mut begun: Vec<(Uuid, i64)> = Vec::new();
    for _ in 0..arguments.triggers {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
        let execution = front.operator.trigger(job).await;
        begun.push((execution, i64::try_from(now.as_micros()).expect("it is before the year 290,000")));
        tokio::time::sleep(TRIGGER_EVERY).await;
    }
    completed(&roles, arguments.triggers).await;
    let (ids, begun): (Vec<Uuid>, Vec<i64>) = begun.into_iter().unzip();
    let rows = sqlx::query(
        "SELECT e.materialised_at - i.begun AS accepted, e.published_at - i.begun AS published,
           e.leased_at - i.begun AS leased, e.started_at - i.begun AS started
         FROM unnest($1::uuid[], $2::int8[]) AS i (id, begun) JOIN execution e USING (id)",
    )
    .bind(&ids)
    .bind(&begun)
    .fetch_all(ground.pool())
    .await
    .expect("every execution has started");
    let sorted = |stage: &str| {
        let mut spans: Vec<f64> = rows.iter().map(|row| row.get::<i64, _>(stage) as f64 / 1e3).collect();
        spans.sort_by(f64::total_cmp);
        spans
    };
    for (stage, name) in [("accepted", "accepted, p50"), ("published", "read by the scheduler, p50")] {
        figures.add(PART, name, percentile(&sorted(stage), 50), "ms", Required::Nothing);
    }
    figures.add(PART, "leased, p50", percentile(&sorted("leased"), 50), "ms", Required::Nothing);
    let names = ["started, p50", "started, p99", "started, longest"];
    spread(figures, PART, &sorted("started"), names, [Some(15.0), None, None]);
}

/// The middle, the late and the latest of an ascending list.
fn spread(
    figures: &mut Figures,
    part: &'static str,
    sorted: &[f64],
    names: [&'static str; 3],
    required: [Option<f64>; 3],
) {
    let values = [percentile(sorted, 50), percentile(sorted, 99), percentile(sorted, 100)];
    for ((name, value), required) in names.into_iter().zip(values).zip(required) {
        figures.add(part, name, value, "ms", required.map_or(Required::Nothing, Required::AtMost));
    }
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

/// A steady load: as many jobs as executions are wanted per second, each due every second.
pub(crate) async fn memory(arguments: &Arguments, ground: &Ground, figures: &mut Figures) {
    const PART: &str = "memory";
    const FULL_LENGTH_MINUTES: u32 = 10;
    let front = Front::open(&arguments.program, ground).await;
    let roles = front.start_roles(&arguments.program, ground).await;
    front
        .operator
        .create_all(
            arguments.load,
            &json!({"kind": "interval", "start": chrono::Utc::now().to_rfc3339(), "every_ms": 1_000}),
        )
        .await;
    let seconds = u64::from(arguments.memory_minutes.max(1)) * 60;
    let began = tokio::time::Instant::now();
    let (mut scheduler, mut worker) = (Vec::new(), Vec::new());
    for second in 1..=seconds {
        tokio::time::sleep_until(began + Duration::from_secs(second)).await;
        scheduler.push(roles.scheduler.resident_kib());
        worker.push(roles.worker.resident_kib());
    }
    let done: i64 = sqlx::query_scalar("SELECT count(*) FROM execution WHERE state = 'completed'")
        .fetch_one(ground.pool())
        .await
        .expect("the executions can be counted");
    figures.add(PART, "load", done as f64 / seconds as f64, "per second", Required::Nothing);
    let required = if arguments.memory_minutes >= FULL_LENGTH_MINUTES {
        Required::NeverMore(2.0)
    } else {
        Required::Nothing
    };
    let mebibytes = |samples: &[u64]| mean(samples) / 1024.0;
    figures.add(PART, "scheduler", mebibytes(last_tenth(&scheduler)), "MiB", Required::Nothing);
    figures.add(PART, "scheduler, growth of the last half", growth(&scheduler), "%", required);
    figures.add(PART, "worker", mebibytes(last_tenth(&worker)), "MiB", Required::Nothing);
    figures.add(PART, "worker, growth of the last half", growth(&worker), "%", required);
}

fn last_tenth(samples: &[u64]) -> &[u64] {
    &samples[samples.len() * 9 / 10..]
}

/// By how much the last tenth lies above the tenth that begins the last half, in percent.
fn growth(samples: &[u64]) -> f64 {
    let (half, tenth) = (samples.len() / 2, samples.len() / 10);
    let (first, last) = (mean(&samples[half..half + tenth.max(1)]), mean(last_tenth(samples)));
    (last - first) / first * 100.0
}

fn mean(samples: &[u64]) -> f64 {
    samples.iter().sum::<u64>() as f64 / samples.len() as f64
}
