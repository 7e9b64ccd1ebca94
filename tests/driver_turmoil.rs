//! The production driver on a simulated network.
//!
//! Two schedulers and two workers run the very loop of production (`fencepost::driver`) against a host that
//! serves the reference store and one that plays the broker. A plan drawn from the seed crashes, bounces and
//! drains hosts, and holds, cuts, delays and loses what travels between nodes and servers; the simulator's
//! oracles watch every commit, confirm, handler and drain. The pure simulator covers far more faults; what this
//! adds is the driver itself: its timers, its timeouts, its lanes, its consumer handling, with real tasks on a
//! real runtime.
//!
//! What must stay true: whatever the weather, no oracle finds anything, and all comes right after the heal; the
//! same seed gives the same run to the last event; and the oracles do find the bugs that are put in on purpose.
//!
//! `TURMOIL_SEEDS` and `TURMOIL_SEED` say how many seeds, and from which one.

#[path = "driver_turmoil/broker_host.rs"]
mod broker_host;
#[path = "driver_turmoil/campaign.rs"]
mod campaign;
#[path = "driver_turmoil/cluster.rs"]
mod cluster;
#[path = "driver_turmoil/consumer.rs"]
mod consumer;
#[path = "driver_turmoil/handlers.rs"]
mod handlers;
#[path = "driver_turmoil/judge.rs"]
mod judge;
#[path = "driver_turmoil/parcel.rs"]
mod parcel;
#[path = "driver_turmoil/run.rs"]
mod run;
#[path = "driver_turmoil/settings.rs"]
mod settings;
#[path = "driver_turmoil/sightings.rs"]
mod sightings;
#[path = "driver_turmoil/store_host.rs"]
mod store_host;
#[path = "driver_turmoil/trace.rs"]
mod trace;
#[path = "driver_turmoil/weather.rs"]
mod weather;
#[path = "driver_turmoil/workload.rs"]
mod workload;

use std::time::Instant;

use campaign::Campaign;
use fencepost_core::bug::{Bug, Bugs};
use fencepost_sim::mutants::predicted;
use trace::Keep;
use weather::Plan;

/// Seeds where nothing else is said.
const SEEDS: u64 = 200;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| {
        value.parse().unwrap_or_else(|_| panic!("{name} is to be a whole number, and is {value:?}"))
    })
}

/// Bugs that are found here, by the invariant that is to find them: of tokens, leases, the outbox, and drains.
const FOUND: &[Bug] = &[
    Bug::FinishIgnoresToken,
    Bug::StartsWithoutLease,
    Bug::RemovesOutboxBeforeConfirm,
    Bug::NeverReadsOutboxBack,
    Bug::LeaderNeverRepairs,
    Bug::DrainKeepsItsLeases,
    Bug::LeaseGrantKeepsToken,
    Bug::AcquireIgnoresNonce,
    Bug::TakeOverIgnoresExpiry,
    Bug::RemovalTakesOtherDispatch,
];

#[test]
fn in_fair_weather_every_fire_is_run_exactly_once() {
    let report =
        run::run(&Plan::fair(1), Bugs::NONE, Keep::Hash).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(report.calls_again, 0, "nothing was run twice but after a failure");
    assert_eq!(report.tally, trace::Tally::default(), "nothing was lost on the way");
    assert_eq!(report.shown.refusals, 0, "and nothing was refused");
}

#[test]
fn whatever_the_network_does_no_promise_is_broken() {
    let began = Instant::now();
    let campaign = Campaign {
        first: setting("TURMOIL_SEED", 0),
        count: setting("TURMOIL_SEEDS", SEEDS),
        bugs: Bugs::NONE,
    };
    let (totals, failure) = campaign.run();
    if let Some(failure) = failure {
        panic!("{}", failure.report());
    }
    println!("{}took {:.1} s", totals.summary(), began.elapsed().as_secs_f64());
    let missing = totals.missing();
    assert!(
        missing.is_empty() || campaign.count < SEEDS,
        "vacuous: in {} seeds these never occurred: {missing:#?}",
        totals.runs
    );
}

#[test]
fn the_oracles_find_bugs_that_are_put_in_on_purpose() {
    let mut missed = Vec::new();
    for bug in FOUND.iter().copied() {
        let began = Instant::now();
        let (totals, failure) = Campaign { first: 0, count: SEEDS, bugs: Bugs::only(bug) }.run();
        let took = began.elapsed().as_secs_f64();
        let Some(failure) = failure else {
            missed.push(format!("{bug} lived through {} seeds", totals.runs));
            continue;
        };
        println!(
            "{bug}: after {} runs, in {took:.1} s, seed {}: {}",
            totals.runs, failure.seed, failure.violation
        );
        let (report, id) = (failure.report(), predicted(bug).id());
        let replay = format!("TURMOIL_SEED={} TURMOIL_SEEDS=1 cargo test", failure.seed);
        assert!(report.contains(&replay), "whoever reads it can see it again: {report}");
        if failure.violation.invariant != id {
            missed.push(format!("{bug} was to be found by {id}: {report}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
