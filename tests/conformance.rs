//! Sequential conformance: what PostgreSQL does is what the reference semantics say, command by command.
//!
//! Generated sequences of commands run on both at the same injected `now`. After every step the replies and the
//! full contents of all tables are compared. The universe is small, so that commands meet: stale tokens,
//! resends, jobs that moved, clocks that stepped back. A run in which some kind of command never succeeded, or
//! some answer never occurred, proves nothing and fails.
//!
//! `CONFORMANCE_SEQUENCES` and `CONFORMANCE_SEED` say how many sequences, and from which seed. A difference is
//! shrunk to the fewest steps that still show it, and printed with both sides.

#[path = "conformance/arrange.rs"]
mod arrange;
#[path = "conformance/contents.rs"]
mod contents;
#[path = "conformance/coverage.rs"]
mod coverage;
#[allow(dead_code, reason = "other tests have this file too, and use the rest")]
#[path = "conformance/database.rs"]
mod database;
#[path = "conformance/operators.rs"]
mod operators;
#[path = "conformance/plans.rs"]
mod plans;
#[path = "conformance/schedulers.rs"]
mod schedulers;
#[path = "conformance/sequence.rs"]
mod sequence;
#[path = "conformance/universe.rs"]
mod universe;
#[path = "conformance/workers.rs"]
mod workers;

use coverage::Coverage;
use database::Database;
use fencepost_core::execution::{ExecutionState, is_legal};
use sqlx::Row;

/// Steps of one sequence.
const STEPS: usize = 150;
/// Sequences where nothing else is said.
const SEQUENCES: u64 = 52;
/// How many of what occurred least often are told.
const RAREST: usize = 6;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| {
        value.parse().unwrap_or_else(|_| panic!("{name} is to be a whole number, and is {value:?}"))
    })
}

#[test]
fn the_sequences_reach_every_answer() {
    let mut coverage = Coverage::default();
    for seed in 0..SEQUENCES {
        sequence::rehearse(seed, STEPS, &mut coverage);
    }
    println!("what occurred least often: {:?}", coverage.rarest(RAREST));
    let missing = coverage.missing();
    assert!(missing.is_empty(), "vacuous: in {SEQUENCES} sequences these never occurred: {missing:#?}");
}

#[tokio::test]
async fn postgresql_does_what_the_reference_semantics_say() {
    let database = Database::create("sequential").await;
    let mut coverage = Coverage::default();
    let (first, count) = (setting("CONFORMANCE_SEED", 0), setting("CONFORMANCE_SEQUENCES", SEQUENCES));
    for seed in first..first + count {
        let steps = match sequence::generate(&database, seed, STEPS, &mut coverage).await {
            Ok(()) => continue,
            Err(steps) => steps,
        };
        let report = sequence::shrink(&database, steps).await;
        database.remove().await;
        panic!("seed {seed}: the two stores differ\n\n{report}");
    }
    database.remove().await;
    let missing = coverage.missing();
    assert!(missing.is_empty(), "vacuous: in {count} sequences these never occurred: {missing:#?}");
}

/// An execution row in `state`, as a test of the trigger needs one.
const ROW: &str = "INSERT INTO execution (id, tenant, job, job_version, partition, occurrence, fire, key, state, \
     owner, due_at, made_under, token, nonce, expires_at, start_seen, cancel_requested, attempts, rescues, \
     lost_starts, waits, dispatch_no, dispatched_at, redispatches, materialised_at, lag_clamped, deadline_at, finished_at) \
     SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1, 0, 'scheduled', 0, 'k', $1, \
     CASE WHEN $1 = 'running' THEN gen_random_uuid() END, 0, 0, 0, 0, 0, false, false, 0, 0, 0, 0, 1, 0, 0, 0, false, 0, 0 \
     RETURNING id";

#[tokio::test]
async fn the_server_refuses_exactly_the_transitions_that_the_table_does_not_allow() {
    let database = Database::create("transitions").await;
    let pool = database.pool();
    for from in ExecutionState::ALL {
        for to in ExecutionState::ALL {
            let id: uuid::Uuid =
                sqlx::query(ROW).bind(from.name()).fetch_one(pool).await.expect("a lawful row").get("id");
            let mut tx = pool.begin().await.expect("a transaction");
            sqlx::query("INSERT INTO dead_letter (execution, tenant, job, at, attempts, rescues, lost_starts, reason) \
                 VALUES ($1, $1, $1, 0, 0, 0, 0, 'exhausted')")
                .bind(id)
                .execute(&mut *tx)
                .await
                .expect("a lawful dead letter");
            let moved = sqlx::query(
                "UPDATE execution SET state = $2, owner = CASE WHEN $2 = 'running' THEN id END WHERE id = $1",
            )
            .bind(id)
            .bind(to.name())
            .execute(&mut *tx)
            .await;
            assert_eq!(moved.is_ok(), from == to || is_legal(Some(from), to), "{from} to {to}");
        }
    }
    database.remove().await;
}

#[tokio::test]
async fn an_execution_is_not_dead_lettered_without_a_record() {
    let database = Database::create("dead_letters").await;
    let pool = database.pool();
    let id: uuid::Uuid =
        sqlx::query(ROW).bind("running").fetch_one(pool).await.expect("a lawful row").get("id");
    let update = "UPDATE execution SET state = 'dead_lettered', owner = NULL WHERE id = $1";
    let moved = sqlx::query(update).bind(id).execute(pool).await;
    assert!(moved.is_err(), "the commit is refused");
    database.remove().await;
}

#[tokio::test]
async fn a_token_neither_falls_nor_leaps() {
    let database = Database::create("tokens").await;
    let pool = database.pool();
    for (table, key) in [("lease", "resource = 3"), ("execution", "true")] {
        if table == "execution" {
            sqlx::query(ROW).bind("pending").execute(pool).await.expect("a lawful row");
        }
        for (token, is_lawful) in [("token + 1", true), ("token + 2", false), ("token - 1", false)] {
            let update = format!("UPDATE {table} SET token = {token} WHERE {key}");
            let done = sqlx::query(sqlx::AssertSqlSafe(update)).execute(pool).await;
            assert_eq!(done.is_ok(), is_lawful, "{table}: {token}");
        }
    }
    database.remove().await;
}
