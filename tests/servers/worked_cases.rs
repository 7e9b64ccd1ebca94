//! Cases that went wrong elsewhere, worked through here: long outages, deletes with work pending, a leader that comes
//! back after days, a result that comes after the end, a midnight of twenty thousand.
//!
//! Those about fires run on the real stack: a scheduler and a worker with their own connections, PostgreSQL, RabbitMQ, and
//! the API for whoever asks. Those about what a node does days later are played command by command at instants that are
//! passed in. In the end each database is verified.

#[path = "worked_cases/calendars.rs"]
mod calendars;
#[path = "worked_cases/deadlines.rs"]
mod deadlines;
#[path = "worked_cases/midnight.rs"]
mod midnight;
#[path = "worked_cases/overlap.rs"]
mod overlap;
#[path = "worked_cases/pauses.rs"]
mod pauses;
#[path = "worked_cases/policies.rs"]
mod policies;
#[path = "worked_cases/priorities.rs"]
mod priorities;
#[path = "worked_cases/stack.rs"]
mod stack;
#[path = "worked_cases/target.rs"]
mod target;

use std::time::Duration;

use fencepost::verify::{Progress, verify};
use fencepost_core::execution::{CancelState, DeadLetterReason, ExecutionState, LeaseSign};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{EffectId, NodeId};
use fencepost_core::lease::LeaseResource;
use fencepost_core::partition::PartitionId;
use fencepost_core::store::command::{
    AcquireLeadership, AcquirePartitions, Command, Repair, RepairItem, RunOutcome, TakeOverEnd,
};
use fencepost_core::store::reply::{FinishReply, MadeExecution, MaterialiseReply, RepairReply, Reply};
use fencepost_core::time::{Span, Timestamp};
use fencepost_core::verify::Window;
use fencepost_tests::{own_database, waiting};
use serde_json::{Value, json};
use stack::Stack;

use crate::verify::stage::{JOB, NODE, Stage, TTL, at, of_fire, retry, run};

const PATIENCE: Duration = Duration::from_secs(90);
const MINUTE: i64 = 60_000_000;
/// Fires missed in fourteen hours.
const MISSED: i64 = 840;

async fn holds(url: &str) {
    let report = verify(url, Window::ALL, &Progress::default()).await.expect("the database can be read");
    assert!(report.holds, "{report:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_fourteen_hours_each_policy_runs_what_it_says_and_the_next_minute_is_on_time() {
    let stack = Stack::prepare("worked_outage").await;
    // It comes back up to 45 s after a fire: more than the grace, and early enough for a slow machine to start a
    // scheduler before the next.
    let latest = stack.now().await / 1_000_000 * 1_000_000 - 36_000_000;
    let second = latest / 1_000_000 % 60;
    let policies = [
        ("fire_once", json!("fire_once"), 1_usize),
        ("catch_up", json!({"catch_up": {"cap": 10}}), 10),
        ("skip", json!("skip"), 0),
    ];
    let mut jobs = Vec::new();
    for (name, misfire, ran) in policies {
        let job = stack
            .job(json!({
                "name": name, "handler": {"name": "noop"}, "misfire": misfire,
                "schedule": {"kind": "cron", "expr": format!("{second} * * * * *")},
            }))
            .await;
        // The outage: the job is as old as it has to be, and its ledger goes no further.
        let first = latest - (MISSED - 1) * MINUTE;
        sqlx::query(
            "UPDATE job SET created_at = $2 - 1, recorded_through = $2 - 1, next_fire_time = $2, next_try_at = $2
             WHERE id = $1",
        )
        .bind(job)
        .bind(first)
        .execute(&stack.pool)
        .await
        .expect("the job is there");
        jobs.push((name, job, ran));
    }
    let stack = stack.start().await;
    let next = Timestamp::from_micros(latest + MINUTE);
    for (name, job, ran) in jobs {
        let fires = waiting::until(&format!("{name}: the next minute has run"), PATIENCE, async || {
            let fires = stack.fires(job).await;
            let done = fires.iter().any(|fire| fire.fire == next && fire.state == "completed");
            (done && fires.iter().all(|fire| fire.state == "completed")).then_some(fires)
        })
        .await;
        let (missed, on_time): (Vec<_>, Vec<_>) = fires.iter().partition(|fire| fire.fire < next);
        assert_eq!(missed.len(), ran, "{name}: {missed:?}");
        let latest_ones = (1..=ran as i64).rev().map(|back| latest - (back - 1) * MINUTE);
        assert!(
            missed.iter().map(|fire| fire.fire.as_micros()).eq(latest_ones),
            "{name} runs the latest, oldest first: {missed:?}"
        );
        let lag = on_time[0].materialised_at.since(next);
        assert!(lag < Span::from_secs(5), "{name}: the next minute was {lag} late");

        // The rest is on record, as one line of the ledger.
        let (_, ledger) = stack.get(&format!("/v1/jobs/{job}/ledger?limit=1000")).await;
        let items = ledger["items"].as_array().expect("a list");
        let skipped: Vec<&Value> = items.iter().filter(|item| item["kind"] == "skipped").collect();
        assert_eq!(skipped.len(), 1, "{name}: {ledger:#}");
        let through = Timestamp::from_micros(latest - ran as i64 * MINUTE).to_string();
        assert_eq!((&skipped[0]["reason"], &skipped[0]["through"]), (&json!("misfire"), &json!(through)));
    }
    let url = stack.end().await;
    holds(&url).await;
    own_database::drop(&stack::database_of(&url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_pending_is_cancelled_with_its_job_and_a_new_one_of_the_name_backfills_nothing() {
    let stack = Stack::prepare("worked_delete").await;
    let every_second = json!({
        "name": "report", "handler": {"name": "noop"}, "schedule": {"kind": "cron", "expr": "* * * * * *"},
    });
    let old = stack.job(every_second.clone()).await;
    let mut pending = Vec::new();
    for _ in 0..5 {
        let (status, made) = stack.post(&format!("/v1/jobs/{old}/trigger"), Value::Null).await;
        assert_eq!((status, &made["state"]), (201, &json!("pending")), "{made}");
        pending.push(made["id"].as_str().expect("it has an id").to_owned());
    }
    let (status, done) = stack.delete(&format!("/v1/jobs/{old}")).await;
    assert!(status < 300, "{status}: {done}");
    for execution in &pending {
        let (_, told) = stack.get(&format!("/v1/executions/{execution}")).await;
        assert_eq!(told["state"], "cancelled", "{told}");
    }

    let new = stack.job(every_second).await;
    assert_ne!(new, old);
    let created_at: i64 = sqlx::query_scalar("SELECT created_at FROM job WHERE id = $1")
        .bind(new)
        .fetch_one(&stack.pool)
        .await
        .expect("it is there");
    let stack = stack.start().await;
    let fires = waiting::until("the new job has run three times", PATIENCE, async || {
        let fires = stack.fires(new).await;
        (fires.iter().filter(|fire| fire.state == "completed").count() >= 3).then_some(fires)
    })
    .await;
    assert!(fires.iter().all(|fire| fire.fire.as_micros() > created_at), "{fires:?}");
    assert_eq!(stack.fires(old).await.len(), 0, "nothing of the old job fired");
    for execution in &pending {
        let (_, told) = stack.get(&format!("/v1/executions/{execution}")).await;
        assert_eq!(told["state"], "cancelled", "no message brings it back: {told}");
    }
    let url = stack.end().await;
    holds(&url).await;
    own_database::drop(&stack::database_of(&url)).await;
}

#[tokio::test]
async fn a_node_that_leads_again_after_five_days_of_another_enqueues_nothing_that_exists() {
    let (stage, name) = Stage::begun("worked_regained").await;
    let other = NodeId::from_u128(0xd);
    let stale = stage.plan(JOB, at("08:01:00.5")).await;
    stage.materialise(JOB, at("08:01:00.5")).await;

    // Another leads for five days, and does the work.
    let resource = LeaseResource::Partition(PartitionId::of(JOB));
    let days_later = at("08:02:00").plus(Span::from_secs(5 * 86_400));
    let lead = async |stage: &Stage, node: NodeId, now: Timestamp, nonce: u64| {
        let nonce = EffectId(nonce);
        let leader = AcquireLeadership { node, nonce, ttl: TTL };
        let leader = stage.at(now, Command::AcquireLeadership(leader)).await;
        let ask = AcquirePartitions { node, nonce, ttl: TTL, limit: 128 };
        let Reply::Partitions { granted } = stage.at(now, Command::AcquirePartitions(ask)).await else {
            panic!("another reply")
        };
        assert_eq!(granted.len(), 128, "{leader:?}");
        granted.iter().find(|held| held.resource == resource).expect("all were free").token
    };
    let others = lead(&stage, other, at("08:02:00.1"), 2).await;
    stage.materialise_as(other, others, JOB, at("08:02:00.5")).await;
    stage.materialise_as(other, others, JOB, days_later).await;
    let made = stage.count("SELECT count(*) FROM execution").await;
    let outbox = stage.count("SELECT count(*) FROM outbox_event").await;

    // The first wakes up with what it had planned, under its old token, and is refused.
    let replies = stage.send(NODE, FencingToken::from_i64(1), stale.clone(), days_later).await;
    assert_eq!(replies, [MaterialiseReply::StaleLease { current: others }]);
    // It leads again, and still has those plans: they are of a watermark that has moved.
    let again = lead(&stage, NODE, days_later.plus(TTL).plus(TTL), 3).await;
    assert!(again > others);
    let replies = stage.send(NODE, again, stale.clone(), days_later.plus(TTL).plus(TTL)).await;
    assert_eq!(replies, [MaterialiseReply::WatermarkMoved]);
    assert_eq!(stage.count("SELECT count(*) FROM execution").await, made);
    assert_eq!(stage.count("SELECT count(*) FROM outbox_event").await, outbox);

    // Nor where the job's row was set back to before it: what exists is met, and nothing of it is dispatched.
    let stands = stage.watermark(JOB).await;
    stage.set_watermark(JOB, (at("08:00:00"), Some(at("08:01:00")))).await;
    let replies = stage.send(NODE, again, stale, days_later.plus(TTL).plus(TTL)).await;
    assert_eq!(replies, [MaterialiseReply::Applied(vec![MadeExecution::Existed])]);
    assert_eq!(stage.count("SELECT count(*) FROM execution").await, made);
    assert_eq!(stage.count("SELECT count(*) FROM outbox_event").await, outbox);
    stage.set_watermark(JOB, stands).await;
    stage.close().await;
    holds(&crate::verify::url_of(&name)).await;
    own_database::drop(&name).await;
}

#[tokio::test]
async fn a_result_of_attempt_two_after_attempt_three_was_dead_lettered_reopens_nothing() {
    let (mut stage, name) = Stage::begun("worked_late").await;
    let execution = of_fire(JOB, "08:01:00");
    stage.materialise(JOB, at("08:01:00.5")).await;
    // The first fails; the worker of the second is lost, and taken for dead; the third fails for good.
    stage.lease(execution, at("08:01:01")).await;
    stage.finish(execution, 1, at("08:01:02"), retry()).await;
    stage.promote(at("08:01:04")).await;
    stage.lease(execution, at("08:01:05")).await;
    let leadership = FencingToken::from_i64(1);
    let item = RepairItem::TakeOver {
        run: run(execution, 2),
        cancel: CancelState::None,
        sign: LeaseSign::None,
        end: TakeOverEnd::Retry(Span::from_secs(1)),
    };
    let repair = Repair { node: NODE, leadership, items: vec![item] };
    let reply = stage.at(at("08:02:00"), Command::Repair(repair)).await;
    assert!(matches!(reply, Reply::Repaired(RepairReply::Applied(_))), "{reply:?}");
    stage.promote(at("08:02:02")).await;
    stage.lease(execution, at("08:02:03")).await;
    let (reason, error) = (DeadLetterReason::Exhausted, "it cannot work".into());
    stage.finish(execution, 3, at("08:02:04"), RunOutcome::DeadLettered { reason, error }).await;
    let before = stage.rows_of(execution).await;

    for (outcome, seconds) in [(RunOutcome::Completed, 5), (retry(), 6), (RunOutcome::Released, 7)] {
        let reply =
            stage.finish(execution, 2, at("08:02:00").plus(Span::from_secs(seconds)), outcome.clone()).await;
        let refused =
            FinishReply::Refused { current: FencingToken::from_i64(3), state: ExecutionState::DeadLettered };
        assert_eq!(reply, refused, "{outcome:?}");
    }
    assert_eq!(stage.rows_of(execution).await, before, "nothing of it has changed");
    let on_record =
        "SELECT sum(count)::int8 FROM refusal WHERE action = 'finish' AND token = 2 AND current = 3";
    assert_eq!(stage.count(on_record).await, 3);
    assert_eq!(stage.count("SELECT count(*) FROM dead_letter").await, 1);
    stage.close().await;
    holds(&crate::verify::url_of(&name)).await;
    own_database::drop(&name).await;
}
