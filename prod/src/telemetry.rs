//! Telemetry: what is worth telling, as metrics for machines and as log lines for people.
//!
//! Facts come from the roles, durations of store calls from the driver; this file turns them into the
//! metrics of the [`catalogue`] and into log lines. It steers nothing. The API serves what is recorded
//! here; the exporter opens no port of its own.
//!
//! What must stay true: nothing is measured that the catalogue does not list (a test holds the two together),
//! and the hot path looks nothing up: its handles are made once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use fencepost_core::fact::{Fact, LeaseEnd};
use fencepost_core::id::NodeId;
use fencepost_core::lease::LeaseResource;
use fencepost_core::priority::{ByPriority, Priority};
use fencepost_core::store::command::CommandKind;
use fencepost_core::store::row::RefusedResource;
use fencepost_core::time::Span;

use crate::failure::Failure;
use crate::ports::{CallEnd, FactSink};

mod backlog;
pub mod catalogue;
mod losses;

pub use backlog::{Backlog, outbox_backlog};
use catalogue::names;
use losses::{Ended, Losses, Refused};

/// How often what was measured is folded together, so that it takes no room when nobody asks for it.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);
/// The bounds of every histogram, in seconds.
const BUCKETS: [f64; 17] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0,
];

/// Starts to measure, for the whole process; to be called within the runtime.
///
/// # Errors
/// Where that was done before.
pub fn install() -> Result<PrometheusHandle, Failure> {
    let recorder = recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder)
        .map_err(|_| Failure::internal("metrics are recorded already in this process"))?;
    catalogue::describe();
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_EVERY).await;
            upkeep.run_upkeep();
        }
    });
    Ok(handle)
}

fn recorder() -> PrometheusRecorder {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)
        .expect("there are buckets")
        .build_recorder()
}

/// Tells how much waits in the outbox.
pub fn outbox_seen(backlog: Backlog) {
    // Beyond 2^53 rows the gauge would be off by some.
    gauge!(names::OUTBOX_ROWS).set(backlog.rows as f64);
    gauge!(names::OUTBOX_OLDEST).set(backlog.oldest.as_secs_f64());
}

/// Takes in the facts of one node.
pub struct Telemetry {
    node: NodeId,
    due_to_materialised: Histogram,
    materialised_to_confirmed: Histogram,
    published_to_received: Histogram,
    received_to_started: Histogram,
    due_to_started: Histogram,
    handler: Histogram,
    materialised: Counter,
    confirmed: Counter,
    runs_started: ByPriority<Counter>,
    dropped: Counter,
    leadership: Gauge,
    partitions: Gauge,
    /// By [`CommandKind`], in its order.
    store_calls: Vec<Histogram>,
    losses: Losses,
    /// Whether the latest word of the broker about messages was a confirmation.
    confirms_flow: AtomicBool,
    /// Messages that could not be read, so far.
    malformed: AtomicU64,
}

impl Telemetry {
    /// Measures on the recorder that is installed, and names the node in its log lines.
    #[must_use]
    pub fn new(node: NodeId) -> Self {
        let call = |kind: &CommandKind| histogram!(names::STORE_CALL, "command" => kind.name());
        Self {
            node,
            due_to_materialised: histogram!(names::DUE_TO_MATERIALISED),
            materialised_to_confirmed: histogram!(names::MATERIALISED_TO_CONFIRMED),
            published_to_received: histogram!(names::PUBLISHED_TO_RECEIVED),
            received_to_started: histogram!(names::RECEIVED_TO_STARTED),
            due_to_started: histogram!(names::DUE_TO_STARTED),
            handler: histogram!(names::HANDLER),
            materialised: counter!(names::EXECUTIONS_MATERIALISED),
            confirmed: counter!(names::MESSAGES_CONFIRMED),
            confirms_flow: AtomicBool::new(true),
            malformed: AtomicU64::new(0),
            runs_started: ByPriority::new([Priority::High, Priority::Normal, Priority::Low])
                .map(|priority| counter!(names::RUNS_STARTED, "priority" => priority.name())),
            dropped: counter!(names::MESSAGES_DROPPED),
            leadership: gauge!(names::LEADERSHIP),
            partitions: gauge!(names::PARTITIONS_OWNED),
            store_calls: CommandKind::ALL.iter().map(call).collect(),
            losses: Losses::default(),
        }
    }

    fn owned(&self, resource: LeaseResource) -> &Gauge {
        match resource {
            LeaseResource::Leadership => &self.leadership,
            LeaseResource::Partition(_) => &self.partitions,
        }
    }
}

const fn domain(resource: LeaseResource) -> &'static str {
    match resource {
        LeaseResource::Leadership => "leadership",
        LeaseResource::Partition(_) => "partition",
    }
}

fn seconds(span: Span) -> f64 {
    span.to_duration().as_secs_f64()
}

/// Adds to one of several counters of a name, where there is anything to add.
fn add(name: &'static str, label: &'static str, value: &'static str, count: u32) {
    if count > 0 {
        counter!(name, label => value).increment(u64::from(count));
    }
}

impl FactSink for Telemetry {
    fn report(&self, fact: &Fact) {
        let node = &self.node;
        match fact {
            Fact::LeaseGained { resource, token } => {
                self.owned(*resource).increment(1.0);
                counter!(names::LEASES_GAINED, "domain" => domain(*resource)).increment(1);
                match resource {
                    LeaseResource::Leadership => tracing::info!(%node, %token, "leads from now on"),
                    LeaseResource::Partition(partition) => {
                        tracing::debug!(%node, %partition, %token, "owns a partition");
                    }
                }
            }
            Fact::LeaseEnded { resource, token, how } => {
                self.owned(*resource).decrement(1.0);
                let (domain, ended) = (domain(*resource), lease_end(*how));
                counter!(names::LEASES_ENDED, "domain" => domain, "how" => ended).increment(1);
                match how {
                    LeaseEnd::Released => tracing::debug!(%node, %resource, %token, "gave a lease back"),
                    LeaseEnd::Refused | LeaseEnd::Untrusted => {
                        self.losses.ended(domain, *how, *resource, *token);
                    }
                }
            }
            Fact::Materialised { made, skipped, lag } => {
                self.materialised.increment(u64::from(*made));
                self.due_to_materialised.record(seconds(*lag));
                if *skipped > 0 {
                    counter!(names::RANGES_SKIPPED).increment(u64::from(*skipped));
                    tracing::info!(%node, skipped, "ranges of fires were passed over");
                }
                tracing::debug!(%node, made, %lag, "materialised");
            }
            Fact::Confirmed { count, lag } => {
                self.confirmed.increment(u64::from(*count));
                self.confirms_flow.store(true, Ordering::Relaxed);
                self.materialised_to_confirmed.record(seconds(*lag));
                tracing::debug!(%node, count, %lag, "confirmed by the broker");
            }
            Fact::Unconfirmed { returned, nacked, unknown } => {
                for (why, count) in [("returned", *returned), ("nacked", *nacked), ("unknown", *unknown)] {
                    add(names::MESSAGES_UNCONFIRMED, "why", why, count);
                }
                // While the broker is out, every publication says so: the first is told aloud, the metric counts all.
                if self.confirms_flow.swap(false, Ordering::Relaxed) {
                    tracing::warn!(
                        %node, returned, nacked, unknown,
                        "messages were not confirmed; they stay in the outbox and are sent again, and until one is confirmed the \
                         others like it are told at level debug alone"
                    );
                } else {
                    tracing::debug!(%node, returned, nacked, unknown, "messages were not confirmed");
                }
            }
            Fact::OutboxReadBack { count } => {
                counter!(names::OUTBOX_READ_BACK).increment(u64::from(*count));
                tracing::debug!(%node, count, "outbox rows were read back");
            }
            Fact::Promoted { count } => {
                counter!(names::DISPATCHES_PROMOTED).increment(u64::from(*count));
                tracing::debug!(%node, count, "retries and waiting executions were dispatched");
            }
            Fact::WriteRefused { resource, action, presented, current } => {
                let about = match resource {
                    RefusedResource::Lease(lease) => domain(*lease),
                    RefusedResource::Execution(_) => "execution",
                };
                counter!(names::WRITES_REFUSED, "resource" => about, "action" => action.name()).increment(1);
                self.losses.refused(about, *action, (*resource, *presented, *current));
            }
            Fact::Conflict { action } => {
                counter!(names::CONFLICTS, "action" => action.name()).increment(1);
                tracing::debug!(%node, %action, "somebody else was first");
            }
            Fact::JobUnreadable { job, tenant, why } => {
                counter!(names::JOBS_UNREADABLE).increment(1);
                tracing::warn!(%node, %job, %tenant, reason = %why.reason, "a job cannot be read here; it alone is put off");
            }
            Fact::Swept { taken_over, redispatched, dropped, overdue, retired } => {
                let repairs = [
                    ("taken_over", *taken_over),
                    ("redispatched", *redispatched),
                    ("outbox_dropped", *dropped),
                    ("ended_overdue", *overdue),
                    ("node_retired", *retired),
                ];
                for (kind, count) in repairs {
                    add(names::REPAIRS, "kind", kind, count);
                }
                tracing::info!(%node, taken_over, redispatched, dropped, overdue, retired, "a sweep repaired something");
                if *redispatched > 0 {
                    tracing::warn!(
                        %node, redispatched,
                        "executions were dispatched again because nothing had started them: \
                         does a live worker run their handlers, in their versions?"
                    );
                }
            }
            Fact::RunStarted { run, priority, attempt, queue_lag, lag, due_lag } => {
                self.runs_started.get(*priority).increment(1);
                self.published_to_received.record(seconds(*queue_lag));
                self.received_to_started.record(seconds(*lag));
                self.due_to_started.record(seconds(*due_lag));
                tracing::debug!(%node, execution = %run.execution, token = %run.token, %priority, attempt, %due_lag, "started");
            }
            Fact::RunEnded { run, state, ran, dead_letter } => {
                counter!(names::RUNS_ENDED, "state" => state.name()).increment(1);
                self.handler.record(seconds(*ran));
                match dead_letter {
                    None => {
                        tracing::debug!(%node, execution = %run.execution, token = %run.token, %state, %ran, "ended")
                    }
                    Some(reason) => {
                        counter!(names::DEAD_LETTERS, "reason" => reason.name()).increment(1);
                        tracing::warn!(%node, execution = %run.execution, token = %run.token, %reason, "given up");
                    }
                }
            }
            Fact::MessageDropped { execution } => {
                self.dropped.increment(1);
                tracing::debug!(%node, %execution, "a message led to no run");
            }
            Fact::Deferred { execution, reason } => {
                counter!(names::MESSAGES_DEFERRED, "reason" => reason.name()).increment(1);
                tracing::info!(%node, %execution, %reason, "an execution waits");
            }
            Fact::MalformedMessage => {
                counter!(names::MESSAGES_MALFORMED).increment(1);
                // Whoever sends one sends many: the first is told, then each time that there are twice as many.
                let count = self.malformed.fetch_add(1, Ordering::Relaxed) + 1;
                if count.is_power_of_two() {
                    tracing::warn!(
                        %node, count,
                        "messages could not be read; they are acknowledged, and malformed_message says what is wrong with them"
                    );
                }
            }
            Fact::StoreUnknown => {
                counter!(names::STORE_UNKNOWN).increment(1);
                // The store says once why, when it goes out of reach, and each other failure of its own.
                tracing::debug!(%node, "the outcome of a store call is unknown");
            }
            Fact::DrainStarted => tracing::info!(%node, "a drain began"),
        }
    }

    fn round_over(&self) {
        let Some(round) = self.losses.take() else { return };
        let node = &self.node;
        for ((domain, how), Ended { count, example: (resource, token) }) in round.ended {
            let how = lease_end(how);
            tracing::warn!(%node, domain, how, count, %resource, %token, "lost leases, this one and others like it");
        }
        for ((about, action), Refused { count, example: (resource, presented, current) }) in round.refused {
            tracing::warn!(
                %node, about, %action, count, ?resource, %presented, %current,
                "writes were refused, this one and others like it: their authority has passed on"
            );
        }
    }

    fn store_called(&self, kind: CommandKind, took: Duration, end: CallEnd) {
        self.store_calls[kind as usize].record(took.as_secs_f64());
        match end {
            CallEnd::Replied => {}
            CallEnd::Unknown => call_failed(kind, "unknown"),
            CallEnd::TimedOut => call_failed(kind, "timed_out"),
        }
    }
}

fn call_failed(kind: CommandKind, how: &'static str) {
    counter!(names::STORE_CALLS_FAILED, "command" => kind.name(), "how" => how).increment(1);
}

const fn lease_end(how: LeaseEnd) -> &'static str {
    match how {
        LeaseEnd::Released => "released",
        LeaseEnd::Refused => "refused",
        LeaseEnd::Untrusted => "untrusted",
    }
}

#[cfg(test)]
mod tests;
