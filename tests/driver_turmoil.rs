//! The production driver on a simulated network.
//!
//! Two schedulers and two workers run the very loop of production (`fencepost::driver`) against a host that
//! serves the reference store and one that plays the broker. Links are cut, hosts crash and come back. The
//! pure simulator covers far more faults; what this adds is the driver itself: its timers, its timeouts, its
//! lanes, its consumer handling, with real tasks on a real runtime.
//!
//! What must stay true: no fire is lost or doubled, whatever was cut; and the same seed gives the same run
//! to the last event, so that a failure can be looked at again.

#[path = "driver_turmoil/broker_host.rs"]
mod broker_host;
#[path = "driver_turmoil/cluster.rs"]
mod cluster;
#[path = "driver_turmoil/consumer.rs"]
mod consumer;
#[path = "driver_turmoil/parcel.rs"]
mod parcel;
#[path = "driver_turmoil/store_host.rs"]
mod store_host;
#[path = "driver_turmoil/trace.rs"]
mod trace;

use std::collections::{BTreeMap, BTreeSet};

use cluster::{Cluster, Fault, JOBS};
use fencepost_core::execution::ExecutionState;
use fencepost_core::lease::LeaseResource;

/// Cuts and crashes of every kind there is, one after the other and side by side.
const STORM: &[(u64, Fault)] = &[
    (8, Fault::Cut("scheduler-1", "store")),
    (15, Fault::Crash("worker-1")),
    (22, Fault::Restart("worker-1")),
    (30, Fault::Mend("scheduler-1", "store")),
    (34, Fault::Cut("worker-2", "broker")),
    (38, Fault::Crash("broker")),
    (40, Fault::Restart("broker")),
    (44, Fault::Mend("worker-2", "broker")),
    (46, Fault::Crash("scheduler-2")),
    (52, Fault::Cut("worker-1", "store")),
    (54, Fault::Restart("scheduler-2")),
    (60, Fault::Cut("scheduler-1", "broker")),
    (62, Fault::Cut("scheduler-2", "broker")),
    (70, Fault::Mend("worker-1", "store")),
    (71, Fault::Mend("scheduler-1", "broker")),
    (72, Fault::Mend("scheduler-2", "broker")),
];

/// Runs the storm and then until all work has ended, and checks what must hold.
fn weather(seed: u64, faults: &[(u64, Fault)]) -> Cluster {
    let mut cluster = Cluster::new(seed);
    cluster.run_until_settled(faults);
    one_execution_per_fire(&cluster);
    every_execution_was_run_under_tokens_of_its_own(&cluster);
    cluster.drain();
    nothing_is_left_behind(&cluster);
    cluster
}

fn one_execution_per_fire(cluster: &Cluster) {
    cluster.with_store(|store| {
        let tables = store.tables();
        assert_eq!(tables.jobs().len(), JOBS);
        let mut expected = BTreeSet::new();
        for job in tables.jobs().iter() {
            let definition = job.definition.read().expect("it was written by this version");
            let mut after = job.created_at;
            while let Some(fire) = definition.bounds.next_fire_after(&definition.schedule, after) {
                expected.insert((job.id, fire));
                after = fire;
            }
        }
        let made: Vec<_> =
            tables.executions().iter().map(|execution| (execution.job, execution.due_at)).collect();
        assert_eq!(made.len(), expected.len(), "as many executions as fires");
        assert_eq!(BTreeSet::from_iter(made), expected, "one for each");
        for execution in tables.executions().iter() {
            assert_eq!(execution.state, ExecutionState::Completed, "{}: {:?}", execution.id, execution.error);
        }
        assert!(tables.skipped_ranges().is_empty(), "nothing was passed over");
    });
}

fn every_execution_was_run_under_tokens_of_its_own(cluster: &Cluster) {
    let mut tokens: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for call in cluster.calls() {
        let fresh = tokens.entry(call.execution).or_default().insert(call.token);
        assert!(fresh, "{} was called twice under {}", call.execution, call.token);
    }
    cluster.with_store(|store| {
        for execution in store.tables().executions().iter() {
            let called = tokens.get(&execution.id).is_some_and(|tokens| tokens.contains(&execution.token));
            assert!(called, "{} completed under {} without a call", execution.id, execution.token);
        }
    });
}

fn nothing_is_left_behind(cluster: &Cluster) {
    cluster.with_store(|store| {
        assert!(store.tables().outbox().is_empty(), "every dispatch was confirmed and removed");
        for lease in store.tables().leases().iter() {
            assert_eq!(lease.owner, None, "{} was released by the drain", lease.resource);
        }
    });
}

#[test]
fn in_fair_weather_every_fire_is_run_exactly_once() {
    let cluster = weather(1, &[]);
    let calls = cluster.calls();
    let first_attempts = calls.iter().filter(|call| call.attempt == 1).count();
    let executions: BTreeSet<_> = calls.iter().map(|call| call.execution).collect();
    assert_eq!(first_attempts, executions.len(), "nothing was run twice but after a failure");
    assert_eq!(cluster.tally().store_unknown, 0);
}

#[test]
fn no_fire_is_lost_or_doubled_whatever_is_cut_or_crashes() {
    for seed in 1..=3 {
        let cluster = weather(seed, STORM);
        // A storm that did nothing would prove nothing.
        let tally = cluster.tally();
        assert!(tally.store_unknown > 0, "seed {seed}: calls were lost");
        assert!(tally.publish_unknown > 0, "seed {seed}: publications were lost");
        assert!(tally.consumers_lost > 0, "seed {seed}: consumers were lost");
        cluster.with_store(|store| {
            let leadership = store.tables().lease(LeaseResource::Leadership).token.as_i64();
            assert!(leadership > 1, "seed {seed}: leadership changed hands");
            let reruns =
                store.tables().executions().iter().filter(|row| row.token.as_i64() > row.attempts.into());
            assert!(reruns.count() > 0, "seed {seed}: work was run again");
        });
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_does_not() {
    let first = weather(7, STORM).trace();
    assert_eq!(weather(7, STORM).trace(), first);
    assert_ne!(weather(8, STORM).trace(), first);
}
