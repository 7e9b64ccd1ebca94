//! The last line: what PostgreSQL refuses by itself, whoever sends it and however.
//!
//! docs/invariants.md names for each invariant the constraint or trigger that holds it. Here each of them meets a
//! statement that breaks it, past all guards of the commands.

use fencepost::schema;
use fencepost_tests::own_database;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgConnection};

/// A tenant, a job, a skipped range and five executions: one that runs, one that completed, one in retry-wait, one that
/// was dead-lettered and replayed, and one whose dead letter was purged.
const GROUND: &str = "
    INSERT INTO tenant (id, created_at, name) VALUES
        ('00000000-0000-0000-0000-000000000001', 0, 'ours'), ('00000000-0000-0000-0000-000000000002', 0, 'theirs');
    INSERT INTO job (id, tenant, effective_from, recorded_through, next_try_at, runs, created_at, version, partition,
                     state, definition)
    VALUES ('00000000-0000-0000-0000-00000000000a', '00000000-0000-0000-0000-000000000001', 0, 0, 0, 0, 0, 1, 7,
            'active', '{}');
    INSERT INTO job_version (job, tenant, effective_from, version, definition)
    SELECT id, tenant, 0, 1, definition FROM job;
    INSERT INTO skipped_range (job, tenant, from_fire, through_fire, made_under, decided_at, job_version, reason,
                               zone_data)
    SELECT id, tenant, 100, 200, 1, 300, 1, 'misfire', '2026a' FROM job;
    INSERT INTO execution (id, tenant, job, owner, due_at, made_under, token, nonce, expires_at, next_try_at,
                           materialised_at, fire, job_version, attempts, rescues, lost_starts, waits, dispatch_no,
                           redispatches, partition, lag_clamped, start_seen, cancel_requested, state, occurrence, key)
    SELECT ('00000000-0000-0000-0000-0000000000' || e.id)::uuid, job.tenant, job.id, e.owner::uuid, 1, 1, 5, 1,
           e.expires_at, e.next_try_at, 1, 1, 1, 1, 0, 0, 0, 1, 0, 7, false, true, false, e.state, 'scheduled', e.id
    FROM job, (VALUES ('e1', 'running', '00000000-0000-0000-0000-0000000000ff', 900, NULL::int8),
                      ('e2', 'completed', NULL, 0, NULL),
                      ('e3', 'retry_wait', NULL, 0, 400), ('e4', 'dead_lettered', NULL, 0, NULL),
                      ('e5', 'dead_lettered', NULL, 0, NULL)) AS e (id, state, owner, expires_at, next_try_at);
    INSERT INTO dead_letter (execution, tenant, job, at, attempts, rescues, lost_starts, reason, replays, purged_at)
    SELECT id, tenant, job, 1, 1, 0, 0, 'exhausted', CASE key WHEN 'e4' THEN 1 ELSE 0 END,
           CASE key WHEN 'e5' THEN 7 END
    FROM execution WHERE state = 'dead_lettered';
    CREATE FUNCTION replay(origin_key text, number int8, token int8, tenant uuid) RETURNS void LANGUAGE sql AS $$
        INSERT INTO execution (id, tenant, job, due_at, made_under, token, nonce, expires_at, materialised_at,
                               dispatched_at, origin, replay_number, job_version, attempts, rescues, lost_starts, waits,
                               dispatch_no, redispatches, partition, lag_clamped, start_seen, cancel_requested, state,
                               occurrence, key)
        SELECT gen_random_uuid(), replay.tenant, job, 1, 0, replay.token, 0, 0, 1, 1, id, number, 1, 0, 0, 0, 0, 1, 0, 7,
               false, false, false, 'pending', 'replay', key
        FROM execution WHERE key = origin_key AND origin IS NULL $$;
    SELECT replay('e4', 1, 5, '00000000-0000-0000-0000-000000000001');";

/// The invariant, a statement that breaks it, and what the refusal names.
const FORBIDDEN: [(&str, &str, &str); 26] = [
    (
        "unique-occurrence",
        "INSERT INTO execution SELECT * FROM execution WHERE state = 'completed'",
        "execution_pkey",
    ),
    (
        "unique-occurrence",
        "INSERT INTO skipped_range SELECT job, tenant, 150, 250, made_under, decided_at, job_version, reason, zone_data
         FROM skipped_range",
        "skipped_ranges_of_a_job_do_not_overlap",
    ),
    ("token-monotone", "UPDATE lease SET token = token + 2 WHERE resource = 128", "a token rises by one"),
    ("token-monotone", "UPDATE execution SET token = token - 1 WHERE state = 'running'", "a token rises by one"),
    (
        "token-monotone",
        "INSERT INTO attempt (execution, tenant, token, at, attempt, ended)
         SELECT id, tenant, token, 1, 1, 'lost' FROM execution, generate_series(1, 2) WHERE state = 'running'",
        "attempt_pkey",
    ),
    ("fenced-write", "INSERT INTO lease SELECT owner, token, nonce, expires_at, resource FROM lease", "lease_"),
    (
        "fenced-write",
        "UPDATE execution SET owner = NULL, expires_at = 0 WHERE state = 'running'",
        "only_running_is_leased",
    ),
    (
        "fenced-write",
        "UPDATE execution SET owner = id, expires_at = 9 WHERE state = 'completed'",
        "only_running_is_leased",
    ),
    (
        "terminal-absorbs",
        "UPDATE execution SET state = 'retry_wait' WHERE state = 'completed'",
        "no such transition",
    ),
    (
        "legal-transition",
        "UPDATE execution SET state = 'completed' WHERE state = 'retry_wait'",
        "no such transition",
    ),
    (
        "legal-transition",
        "UPDATE execution SET state = 'failed', finished_at = 9 WHERE state = 'retry_wait'",
        "no such transition",
    ),
    ("attempt-bounds", "UPDATE execution SET deadline_at = 9 WHERE state = 'retry_wait'", "a deadline is that of the version"),
    ("legal-transition", "UPDATE execution SET state = 'asleep' WHERE state = 'retry_wait'", "the_state_is_known"),
    (
        "dead-letter-once",
        "UPDATE execution SET state = 'dead_lettered', owner = NULL, expires_at = 0 WHERE state = 'running'",
        "is dead-lettered without a record",
    ),
    (
        "dead-letter-once",
        "INSERT INTO dead_letter (execution, tenant, job, at, attempts, rescues, lost_starts, reason)
         SELECT id, tenant, job, 1, 1, 0, 0, 'exhausted' FROM execution, generate_series(1, 2)
         WHERE state = 'running'",
        "dead_letter_pkey",
    ),
    (
        "unique-occurrence",
        "SELECT replay('e4', 1, 5, '00000000-0000-0000-0000-000000000001')",
        "one_replay_per_number",
    ),
    (
        "token-monotone",
        "SELECT replay('e4', 2, 4, '00000000-0000-0000-0000-000000000001')",
        "replays what cannot be replayed",
    ),
    (
        "dead-letter-once",
        "SELECT replay('e5', 1, 5, '00000000-0000-0000-0000-000000000001')",
        "replays what cannot be replayed",
    ),
    ("dead-letter-once", "UPDATE dead_letter SET replays = replays + 2", "replays are counted one by one"),
    (
        "dead-letter-once",
        "UPDATE dead_letter SET purged_at = NULL WHERE purged_at IS NOT NULL",
        "what was purged stays purged",
    ),
    (
        "dead-letter-once",
        "UPDATE dead_letter SET error = 'x' WHERE purged_at IS NOT NULL",
        "a_tombstone_keeps_no_error",
    ),
    ("dead-letter-once", "DELETE FROM dead_letter", "is deleted without it"),
    (
        "tenant-wall",
        "SELECT replay('e4', 2, 5, '00000000-0000-0000-0000-000000000002')",
        "replays what cannot be replayed",
    ),
    (
        "tenant-wall",
        "UPDATE job SET tenant = '00000000-0000-0000-0000-000000000002'",
        "a row never changes its tenant",
    ),
    (
        "tenant-wall",
        "UPDATE execution SET tenant = '00000000-0000-0000-0000-000000000002'",
        "a row never changes its tenant",
    ),
    ("tenant-wall", "UPDATE job_version SET tenant = job", "a job version is never changed"),
];

#[tokio::test]
async fn what_breaks_an_invariant_is_refused_by_the_database_itself() {
    let name = own_database::name("last_line");
    let options = own_database::create(&name).await;
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    schema::migrate(&pool).await.expect("an empty database can be migrated");
    let mut connection = pool.acquire().await.expect("the database is there");
    execute(&mut connection, GROUND).await.expect("these rows are lawful");

    for (invariant, statement, names) in FORBIDDEN {
        let refused = match execute(&mut connection, statement).await {
            Err(sqlx::Error::Database(refused)) => refused,
            other => panic!("{invariant}: `{statement}` was not refused: {other:?}"),
        };
        let told = format!("{} {:?}", refused.message(), refused.constraint());
        assert!(told.contains(names), "{invariant}: `{statement}` was refused for another reason: {told}");
    }

    drop(connection);
    pool.close().await;
    own_database::drop(&name).await;
}

/// As one transaction where there are several statements.
async fn execute(connection: &mut PgConnection, statements: &str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(connection).await.map(|_| ())
}
