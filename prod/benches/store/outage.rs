//! What a long outage costs: a job that fires every second, and nobody recorded its fires for thirty days.
//!
//! The scheduler's own role decides, as in production; its calls go to the store one after the other, and what it would
//! publish is dropped. Measured is what an overdue job costs: reading it, deciding, and writing what was decided. Must
//! stay true: the whole outage is recorded by the one write that is measured, or there is no figure.

use std::time::{Duration, Instant};

use fencepost::postgres::PgStore;
use fencepost_core::config::SchedulerConfig;
use fencepost_core::effect::SchedulerEffect;
use fencepost_core::event::SchedulerEvent;
use fencepost_core::id::{JobId, NodeId};
use fencepost_core::partition::PartitionId;
use fencepost_core::scheduler::Scheduler;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::Command;
use fencepost_core::store::reply::{MaterialiseReply, Reply, StoreReply};
use fencepost_core::time::{Monotonic, Timestamp};
use sqlx::PgPool;

use crate::{JOBS, TENANT, call, job};

const DAYS: i64 = 30;
const SECOND: i64 = 1_000_000;
/// How long catching up may take before something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);
/// The policies, each with a job of its own, and how many runs it has.
const POLICIES: [(&str, &str, i64); 4] = [
    ("fire_once", r#""fire_once""#, 1),
    ("skip", r#""skip""#, 0),
    ("catch_up, cap 10", r#"{"catch_up":{"cap":10}}"#, 10),
    ("catch_up, cap 100", r#"{"catch_up":{"cap":100}}"#, 100),
];

/// A scheduler that is driven by hand, and what its latest catching up took.
struct Driven<'a> {
    store: &'a PgStore,
    role: Scheduler,
    began: Instant,
    reading: Duration,
    deciding: Duration,
    writing: Duration,
}

/// One policy after the other, in a database that has no other jobs any more. Nobody else holds a partition.
pub(crate) async fn measure(store: &PgStore, pool: &PgPool) {
    println!("\na job of every second, {DAYS} days down, in milliseconds:");
    sqlx::raw_sql("TRUNCATE execution, outbox_event; DELETE FROM job_version; DELETE FROM job")
        .execute(pool)
        .await
        .expect("nothing else is running");
    let zero = Duration::ZERO;
    let config = SchedulerConfig::new(NodeId::from_u128(3), "bench".into());
    let (role, began) = (Scheduler::new(config), Instant::now());
    let mut driven = Driven { store, role, began, reading: zero, deciding: zero, writing: zero };
    for (nth, (name, policy, most)) in POLICIES.into_iter().enumerate() {
        // Nobody's id so far: a store remembers what it has read of a version.
        let id = job(JOBS + 1 + nth as u128);
        insert(store, pool, id, policy).await;
        driven.catch_up(id).await;
        let count = "SELECT count(*) FROM execution WHERE job = $1 AND state <> 'skipped'";
        let runs: i64 = sqlx::query_scalar(count)
            .bind(id.as_uuid())
            .fetch_one(pool)
            .await
            .expect("executions can be counted");
        // The last seconds may not have been missed yet, and run beside what was.
        assert!((most..=most + 60).contains(&runs), "{name}: {runs} runs");
        let [reading, deciding, writing] =
            [driven.reading, driven.deciding, driven.writing].map(|took| took.as_secs_f64() * 1e3);
        println!(
            "  {name:<18} read {reading:>6.2}  decided {deciding:>6.2}  wrote {writing:>6.2}  runs {runs:>4}"
        );
    }
}

/// A job whose ledger ends as many days ago.
async fn insert(store: &PgStore, pool: &PgPool, id: JobId, policy: &str) {
    let (now, _) = call(store, Command::ReadClock).await;
    let first = now.as_micros() / SECOND * SECOND - DAYS * 86_400 * SECOND;
    let start = Timestamp::from_micros(first);
    let definition = format!(
        r#"{{"schema":1,"definition":{{"name":"down","handler":{{"name":"noop"}},"misfire":{policy},
            "schedule":{{"kind":"interval","start":"{start}","every_ms":1000}}}}}}"#
    );
    for insert in [
        "INSERT INTO job (id, tenant, partition, version, state, definition, effective_from, recorded_through,
           next_fire_time, next_try_at, runs, created_at)
         VALUES ($1, $2, $3, 1, 'active', $4, $5 - 1, $5 - 1, $5, $5, 0, $5 - 1)",
        "INSERT INTO job_version (job, version, tenant, definition, effective_from)
         SELECT $1, 1, $2, $4, $5 - 1 WHERE $3 >= 0",
    ] {
        sqlx::query(insert)
            .bind(id.as_uuid())
            .bind(TENANT.as_uuid())
            .bind(i16::try_from(PartitionId::of(id).number()).expect("128 of them"))
            .bind(&definition)
            .bind(first)
            .execute(pool)
            .await
            .expect("a job may be inserted");
    }
}

impl Driven<'_> {
    fn now(&self) -> Monotonic {
        Monotonic::from_micros(u64::try_from(self.began.elapsed().as_micros()).expect("a short run"))
    }

    /// Goes on until the job's outage is recorded.
    async fn catch_up(&mut self, id: JobId) {
        let began = Instant::now();
        self.role.handle(self.now(), SchedulerEvent::Notified { partition: PartitionId::of(id) });
        loop {
            assert!(began.elapsed() < PATIENCE, "{id} is not caught up with");
            while let Some(effect) = self.role.poll_effect() {
                let SchedulerEffect::Store { id: effect, command } = effect else { continue };
                if self.carry_out(effect, &command, id).await {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            self.role.handle(self.now(), SchedulerEvent::Tick);
        }
    }

    /// Makes one call, and says whether it was the one that recorded the outage.
    async fn carry_out(
        &mut self,
        effect: fencepost_core::id::EffectId,
        command: &Command,
        id: JobId,
    ) -> bool {
        let called = Instant::now();
        let outcome = self.store.execute(command).await;
        let took = called.elapsed();
        let StoreOutcome::Replied(StoreReply { reply, .. }) = &outcome else {
            panic!("{} has no answer; is the server up?", command.kind())
        };
        let reads = matches!(reply, Reply::DueJobs { jobs, .. } if jobs.iter().any(|due| due.job == id));
        let writes = match (command, reply) {
            (Command::Materialise(ask), Reply::Materialised(replies)) => ask
                .items
                .iter()
                .zip(replies)
                .any(|(item, reply)| item.job == id && matches!(reply, MaterialiseReply::Applied(_))),
            _ => false,
        };
        let told = Instant::now();
        self.role.handle(self.now(), SchedulerEvent::StoreReplied { effect, outcome });
        if reads {
            (self.reading, self.deciding) = (took, told.elapsed());
        }
        if writes {
            self.writing = took;
        }
        writes
    }
}
