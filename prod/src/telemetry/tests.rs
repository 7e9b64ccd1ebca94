//! Every kind of fact, and what of it is served afterwards.

use std::collections::BTreeSet;

use fencepost_core::execution::{DeadLetterReason, ExecutionState, WaitReason};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, JobId, TenantId};
use fencepost_core::job::Unreadable;
use fencepost_core::lease::RunId;
use fencepost_core::partition::PartitionId;
use fencepost_core::priority::Priority;
use fencepost_core::store::row::RefusedAction;

use super::*;

const LEADERSHIP: LeaseResource = LeaseResource::Leadership;

fn partition(number: u16) -> LeaseResource {
    LeaseResource::Partition(PartitionId::new(number).expect("there are 128"))
}

fn token() -> FencingToken {
    FencingToken::from_i64(4)
}

/// One fact of each kind, and more where they add up to different things.
fn facts() -> Vec<Fact> {
    let execution = ExecutionId::from_u128(1);
    let run = RunId { execution, token: token() };
    let lag = Span::from_millis(20);
    let why = Unreadable { reason: "a zone".into(), schema: 1, zone_data: "2026a".into() };
    vec![
        Fact::LeaseGained { resource: LEADERSHIP, token: token() },
        Fact::LeaseGained { resource: partition(1), token: token() },
        Fact::LeaseGained { resource: partition(2), token: token() },
        Fact::LeaseEnded { resource: partition(1), token: token(), how: LeaseEnd::Refused },
        Fact::Materialised { made: 30, skipped: 2, lag },
        Fact::Confirmed { count: 30, lag },
        Fact::Unconfirmed { returned: 1, nacked: 0, unknown: 2 },
        Fact::OutboxReadBack { count: 3 },
        Fact::Promoted { count: 4 },
        Fact::WriteRefused {
            resource: RefusedResource::Execution(execution),
            action: RefusedAction::Finish,
            presented: token(),
            current: FencingToken::from_i64(5),
        },
        Fact::Conflict { action: RefusedAction::Materialise },
        Fact::JobUnreadable { job: JobId::from_u128(1), tenant: TenantId::from_u128(1), why },
        Fact::Swept { taken_over: 1, redispatched: 2, dropped: 3, overdue: 0, retired: 0 },
        Fact::RunStarted {
            run,
            priority: Priority::High,
            attempt: 1,
            queue_lag: Span::from_millis(3),
            lag,
            due_lag: lag,
        },
        Fact::RunEnded { run, state: ExecutionState::Completed, ran: lag, dead_letter: None },
        Fact::RunEnded {
            run,
            state: ExecutionState::DeadLettered,
            ran: lag,
            dead_letter: Some(DeadLetterReason::Exhausted),
        },
        Fact::MessageDropped { execution },
        Fact::Deferred { execution, reason: WaitReason::NoRoute },
        Fact::MalformedMessage,
        Fact::StoreUnknown,
        Fact::DrainStarted,
    ]
}

/// What is served after all of that.
fn rendered() -> String {
    let recorder = recorder();
    metrics::with_local_recorder(&recorder, || {
        catalogue::describe();
        let telemetry = Telemetry::new(NodeId::from_u128(9));
        facts().iter().for_each(|fact| telemetry.report(fact));
        telemetry.store_called(CommandKind::Materialise, Duration::from_millis(3), CallEnd::Replied);
        telemetry.store_called(CommandKind::Heartbeat, Duration::from_secs(5), CallEnd::TimedOut);
        outbox_seen(Backlog { rows: 12, oldest: Duration::from_secs(2) });
    });
    recorder.handle().render()
}

#[test]
fn exactly_what_the_catalogue_lists_is_measured() {
    let rendered = rendered();
    let measured: BTreeSet<&str> = rendered
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let listed: BTreeSet<&str> = catalogue::METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(measured, listed);
}

#[test]
fn facts_add_up() {
    let rendered = rendered();
    for line in [
        "fencepost_leadership 1",
        "fencepost_partitions_owned 1",
        "fencepost_leases_ended_total{domain=\"partition\",how=\"refused\"} 1",
        "fencepost_executions_materialised_total 30",
        "fencepost_messages_unconfirmed_total{why=\"unknown\"} 2",
        "fencepost_writes_refused_total{resource=\"execution\",action=\"finish\"} 1",
        "fencepost_repairs_total{kind=\"redispatched\"} 2",
        "fencepost_runs_ended_total{state=\"completed\"} 1",
        "fencepost_dead_letters_total{reason=\"exhausted\"} 1",
        "fencepost_store_calls_failed_total{command=\"heartbeat\",how=\"timed_out\"} 1",
        "fencepost_store_call_seconds_bucket{command=\"materialise\",le=\"0.005\"} 1",
        "fencepost_published_to_received_seconds_bucket{le=\"0.0025\"} 0",
        "fencepost_published_to_received_seconds_bucket{le=\"0.005\"} 1",
        "fencepost_due_to_started_seconds_bucket{le=\"0.01\"} 0",
        "fencepost_due_to_started_seconds_bucket{le=\"0.025\"} 1",
        "fencepost_outbox_rows 12",
        "fencepost_outbox_oldest_seconds 2",
    ] {
        assert!(rendered.lines().any(|measured| measured == line), "no `{line}` in:\n{rendered}");
    }
    assert!(!rendered.contains("nacked"), "what did not happen is not told");
}

#[test]
fn every_metric_is_in_the_table_of_the_documentation() {
    let table = catalogue::as_markdown();
    assert_eq!(table.lines().count(), catalogue::METRICS.len() + 2);
    assert!(
        table.contains("| `fencepost_writes_refused_total` | counter | resource, action | Writes refused")
    );
}
