//! Twenty thousand jobs of one instant, made and read through the API: each runs once, no tick of a job beside them is
//! dropped, and what they cost that job is told.

use std::time::Duration;

use fencepost_core::time::{Span, Timestamp};
use fencepost_tests::{own_database, waiting};
use futures_util::{StreamExt, stream};
use serde_json::json;

use super::holds;
use super::stack::{Stack, database_of};

const JOBS: usize = 20_000;
/// How many are created at once.
const BESIDE_EACH_OTHER: usize = 16;
/// Processes here are not optimised, and others may use the machine.
const PATIENCE: Duration = Duration::from_secs(600);
const SECOND: Span = Span::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twenty_thousand_jobs_at_midnight_each_runs_once_and_no_tick_beside_them_is_dropped() {
    let stack = Stack::prepare("worked_midnight").await;
    // Midnight is whatever the time is now: a second of the day at which all of them fire.
    let midnight = stack.now().await / 1_000_000 * 1_000_000;
    let of_day = midnight / 1_000_000 % 86_400;
    let expression = format!("{} {} {} * * *", of_day % 60, of_day / 60 % 60, of_day / 3_600);
    let made: Vec<_> = stream::iter(0..JOBS)
        .map(|number| {
            stack.job(json!({
                "name": format!("report-{number}"), "handler": {"name": "noop"}, "misfire_grace_ms": 3_600_000,
                "schedule": {"kind": "cron", "expr": expression},
            }))
        })
        .buffer_unordered(BESIDE_EACH_OTHER)
        .collect()
        .await;
    assert_eq!(made.len(), JOBS);
    // However long that took: they are older than their midnight, and nobody has looked at them since.
    sqlx::query(
        "UPDATE job SET created_at = $1 - 1, recorded_through = $1 - 1, next_fire_time = $1, next_try_at = $1",
    )
    .bind(midnight)
    .execute(&stack.pool)
    .await
    .expect("the jobs are there");
    let ticking = stack
        .job(json!({
            "name": "ticking", "handler": {"name": "noop"}, "misfire_grace_ms": 3_600_000,
            "schedule": {"kind": "cron", "expr": "* * * * * *"},
        }))
        .await;

    let stack = stack.start().await;
    let ended_at = waiting::until("all of them have run", PATIENCE, async || {
        let (done, last): (i64, Option<i64>) = sqlx::query_as(
            "SELECT count(*), max(finished_at) FROM execution WHERE fire = $1 AND job <> $2 AND state = 'completed'",
        )
        .bind(midnight)
        .bind(ticking)
        .fetch_one(&stack.pool)
        .await
        .expect("the table is there");
        last.filter(|_| done == JOBS as i64)
    })
    .await;
    let ended_at = Timestamp::from_micros(ended_at);
    let ticks = waiting::until("the other job has come as far", PATIENCE, async || {
        let ticks = stack.fires(ticking).await;
        let done = ticks.iter().all(|tick| tick.state == "completed");
        (done && ticks.last().is_some_and(|tick| tick.fire >= ended_at)).then_some(ticks)
    })
    .await;

    let (executions, jobs): (i64, i64) =
        sqlx::query_as("SELECT count(*), count(DISTINCT job) FROM execution WHERE job <> $1")
            .bind(ticking)
            .fetch_one(&stack.pool)
            .await
            .expect("the table is there");
    assert_eq!((executions, jobs), (JOBS as i64, JOBS as i64), "each once");
    assert!(
        ticks.windows(2).all(|pair| pair[1].fire == pair[0].fire.plus(SECOND)),
        "a tick was dropped: {ticks:?}"
    );
    // Told for a person to look at: how late the other job was made to be.
    let lag = ticks.iter().map(|tick| tick.materialised_at.since(tick.fire)).max();
    println!("{} ticks beside {JOBS} at one instant, the latest {} late", ticks.len(), lag.expect("some"));
    let url = stack.end().await;
    holds(&url).await;
    own_database::drop(&database_of(&url)).await;
}
