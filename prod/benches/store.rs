//! How fast the hot commands are: materialise, acquire, finish and remove, on one connection, batch by batch; and what
//! catching up after a long outage costs (`outage`).
//!
//!     DATABASE_URL=$(scripts/throwaway-postgres start /tmp/fencepost-bench) cargo bench -p fencepost --bench store
//!
//! Makes a database of its own on that server and deletes it again. A server that is measured wants
//! `THROWAWAY_FSYNC=on`. Prints rates and what PostgreSQL counted; asserts nothing about them.

#[path = "store/outage.rs"]
mod outage;

use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost::postgres::{LaneSizes, PgStore};
use fencepost_core::id::{EffectId, ExecutionId, JobId, NodeId, Occurrence, TenantId};
use fencepost_core::job::StoredDefinition;
use fencepost_core::lease::{HeldLease, RunId};
use fencepost_core::partition::PartitionId;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::{
    AcquireExecution, AcquireExecutions, AcquirePartitions, Command, CreateJob, CreateTenant,
    FinishExecution, FinishExecutions, Materialise, MaterialiseJob, NewExecution, OutboxId, ReleaseLeases,
    RemoveOutbox, RunOutcome, ScanDueJobs,
};
use fencepost_core::store::reply::{AcquireReply, DueJob, MaterialiseReply, Reply};
use fencepost_core::time::{Span, Timestamp};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgPool, Row};

/// Jobs, all due at once, one fire each per pass.
const JOBS: u128 = 10_000;
const TENANT: TenantId = TenantId::from_u128(1);
const NODE: NodeId = NodeId::from_u128(2);
const TTL: Span = Span::from_secs(120);
/// Between two fires of a job: one for each pass, and all of them are past.
const EVERY: Span = Span::from_secs(3_600);
/// The size of the batches, pass by pass.
const BATCHES: [u32; 6] = [200, 500, 1_000, 200, 500, 1_000];
const DEFINITION: &str =
    r#"{"schema":1,"definition":{"name":"bench","handler":{"name":"noop"},"schedule":{"kind":"manual"}}}"#;

fn job(nth: u128) -> JobId {
    JobId::from_u128(nth.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

async fn call(store: &PgStore, command: Command) -> (Timestamp, Reply) {
    match store.execute(&command).await {
        StoreOutcome::Replied(reply) => (reply.now, reply.reply),
        StoreOutcome::Unknown => panic!("{} has no answer; is the server up?", command.kind()),
    }
}

/// Jobs in bulk, as `create_job` would make them one by one, first due at an instant.
async fn insert_jobs(pool: &PgPool, first: Timestamp) {
    let ids: Vec<_> = (1..=JOBS).map(|nth| job(nth).as_uuid()).collect();
    let partitions: Vec<i16> = (1..=JOBS)
        .map(|nth| i16::try_from(PartitionId::of(job(nth)).number()).expect("128 of them"))
        .collect();
    for insert in [
        "INSERT INTO job (id, tenant, partition, version, state, definition, effective_from, recorded_through,
           next_fire_time, next_try_at, runs, created_at)
         SELECT i.id, $3, i.partition, 1, 'active', $4, $5, $5, $5, $5, 0, $5
         FROM unnest($1::uuid[], $2::int2[]) AS i (id, partition)",
        "INSERT INTO job_version (job, version, tenant, definition, effective_from)
         SELECT i.id, 1, $3, $4, $5 FROM unnest($1::uuid[], $2::int2[]) AS i (id, partition)",
    ] {
        sqlx::query(insert)
            .bind(&ids)
            .bind(&partitions)
            .bind(TENANT.as_uuid())
            .bind(DEFINITION)
            .bind(first.as_micros())
            .execute(pool)
            .await
            .expect("jobs may be inserted");
    }
}

struct Rates {
    scan: Duration,
    materialise: Duration,
    acquire: Duration,
    finish: Duration,
    remove: Duration,
    done: u32,
}

fn plan(due: &DueJob) -> MaterialiseJob {
    let fire = due.next_fire_time;
    let occurrence = Occurrence::Scheduled { fire };
    MaterialiseJob {
        job: due.job,
        partition: due.partition,
        version: due.version,
        expected_fire: fire,
        executions: vec![NewExecution {
            id: occurrence.execution_id(due.job),
            version: due.version,
            fire,
            due_at: fire,
            deadline_at: None,
            key: occurrence.idempotency_key(due.job).expect("scheduled occurrences have one"),
        }],
        skipped: Vec::new(),
        recorded_through: fire,
        next_fire_time: Some(fire.plus(EVERY)),
        next_flex: Span::ZERO,
        valid_until: Timestamp::MAX,
    }
}

/// One pass over all jobs in batches of `batch`: one fire of each is materialised, the earliest, then all are run.
async fn pass(store: &PgStore, leases: &[HeldLease], batch: u32) -> Rates {
    let zero = Duration::ZERO;
    let mut rates =
        Rates { scan: zero, materialise: zero, acquire: zero, finish: zero, remove: zero, done: 0 };
    let mut made: Vec<ExecutionId> = Vec::new();
    while (made.len() as u128) < JOBS {
        let started = Instant::now();
        let scan = ScanDueJobs { partitions: PartitionId::all().collect(), after: None, limit: batch };
        let (_, reply) = call(store, Command::ScanDueJobs(scan)).await;
        rates.scan += started.elapsed();
        let Reply::DueJobs { jobs, .. } = reply else { panic!("a scan is answered with due jobs") };
        assert!(!jobs.is_empty(), "every job is due");
        let items: Vec<MaterialiseJob> = jobs.iter().map(plan).collect();
        let ids: Vec<ExecutionId> = items.iter().map(|item| item.executions[0].id).collect();
        let started = Instant::now();
        let command = Command::Materialise(Materialise { node: NODE, leases: leases.to_vec(), items });
        let (_, reply) = call(store, command).await;
        rates.materialise += started.elapsed();
        let Reply::Materialised(replies) = reply else { panic!("a materialisation is answered as one") };
        assert!(
            replies.iter().all(|reply| matches!(reply, MaterialiseReply::Applied(_))),
            "nobody interferes"
        );
        made.extend(ids);
    }
    let mut nonce = 0;
    for ids in made.chunks(batch as usize) {
        let started = Instant::now();
        let items = ids.iter().map(|execution| {
            nonce += 1;
            let published_at = Timestamp::EPOCH;
            AcquireExecution { execution: *execution, nonce: EffectId(nonce), published_at, held: Span::ZERO }
        });
        let command = AcquireExecutions { node: NODE, ttl: TTL, items: items.collect() };
        let (_, reply) = call(store, Command::AcquireExecutions(command)).await;
        rates.acquire += started.elapsed();
        let Reply::Acquired(replies) = reply else { panic!("an acquire is answered as one") };
        let runs = ids.iter().zip(replies).map(|(execution, reply)| match reply {
            AcquireReply::Granted(grant) => RunId { execution: *execution, token: grant.token },
            AcquireReply::Never { .. } | AcquireReply::NotNow { .. } | AcquireReply::Absent => {
                panic!("nobody interferes")
            }
        });
        let (outcome, started_ago) = (RunOutcome::Completed, Some(Span::from_millis(1)));
        let items = runs.map(|run| FinishExecution { run, outcome: outcome.clone(), started_ago }).collect();
        let started = Instant::now();
        call(store, Command::FinishExecutions(FinishExecutions { node: NODE, items })).await;
        rates.finish += started.elapsed();
        let dispatch_no = fencepost_core::id::DispatchNo(1);
        let rows = ids.iter().map(|execution| OutboxId { execution: *execution, dispatch_no }).collect();
        let started = Instant::now();
        let grace = Span::from_secs(3_600);
        call(store, Command::RemoveOutbox(RemoveOutbox { rows, grace })).await;
        rates.remove += started.elapsed();
    }
    rates.done = u32::try_from(made.len()).expect("a pass is bounded");
    rates
}

fn print(batch: u32, rates: &Rates) {
    let per_second = |took: Duration| f64::from(rates.done) / took.as_secs_f64();
    let whole = rates.scan + rates.materialise + rates.acquire + rates.finish + rates.remove;
    println!(
        "batch {batch:>4}: scan {:>7.0}  materialise {:>6.0}  acquire {:>6.0}  finish {:>6.0}  remove {:>6.0}  in all {:>6.0} per second",
        per_second(rates.scan),
        per_second(rates.materialise),
        per_second(rates.acquire),
        per_second(rates.finish),
        per_second(rates.remove),
        per_second(whole),
    );
}

async fn counters(pool: &PgPool) -> (i64, i64) {
    sqlx::query("SELECT pg_stat_force_next_flush()").execute(pool).await.expect("PostgreSQL 15 knows it");
    let row = sqlx::query(
        "SELECT (SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::int8 FROM pg_stat_user_tables) AS writes,
           (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()) AS commits",
    )
    .fetch_one(pool)
    .await
    .expect("PostgreSQL counts");
    (row.get("writes"), row.get("commits"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let Ok(url) = std::env::var("DATABASE_URL") else {
        eprintln!("DATABASE_URL is not set: see the head of this file");
        return;
    };
    let server = PgConnectOptions::from_str(&url).expect("DATABASE_URL is a PostgreSQL URL");
    let name = format!("fencepost_bench_{}", std::process::id());
    let mut admin = server.connect().await.expect("the server can be reached");
    sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}")))
        .execute(&mut admin)
        .await
        .expect("may be made");
    let options = server.clone().database(&name);
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options.clone());
    fencepost::schema::migrate(&pool).await.expect("an empty database can be migrated");

    let store = PgStore::new(options, LaneSizes { lease: 1, work: 1 });
    call(&store, Command::CreateTenant(CreateTenant { tenant: TENANT, name: "bench".into() })).await;
    let (now, _) = call(&store, Command::ReadClock).await;
    let definition = Arc::new(StoredDefinition::from_text(DEFINITION.into()));
    assert!(definition.read().is_ok(), "what cannot be read would never be leased");
    let first = CreateJob {
        tenant: TENANT,
        job: job(0),
        request: None,
        definition,
        planned_at: now,
        recorded_through: now,
        next_fire_time: None,
        next_flex: Span::ZERO,
    };
    call(&store, Command::CreateJob(first)).await;
    let first = BATCHES.iter().fold(now, |at, _| at.minus(EVERY));
    insert_jobs(&pool, first).await;
    let acquire = AcquirePartitions { node: NODE, nonce: EffectId(1), ttl: TTL, limit: 128 };
    let (_, reply) = call(&store, Command::AcquirePartitions(acquire)).await;
    let Reply::Partitions { granted } = reply else { panic!("an acquisition is answered with grants") };

    for batch in BATCHES {
        sqlx::query("TRUNCATE execution, outbox_event")
            .execute(&pool)
            .await
            .expect("nothing else is running");
        let before = counters(&pool).await;
        let rates = pass(&store, &granted, batch).await;
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        let after = counters(&pool).await;
        print(batch, &rates);
        let each = |count: i64| count as f64 / f64::from(rates.done);
        println!(
            "            {:.2} row writes and {:.4} commits per execution",
            each(after.0 - before.0),
            each(after.1 - before.1)
        );
    }
    call(&store, Command::ReleaseLeases(ReleaseLeases { node: NODE, leases: granted })).await;
    outage::measure(&store, &pool).await;
    drop(store);
    pool.close().await;
    sqlx::query(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)")))
        .execute(&mut admin)
        .await
        .expect("ours");
    admin.close().await.expect("nothing is under way");
}
