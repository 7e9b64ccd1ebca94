//! Linearizability: what several sessions see PostgreSQL do at once, the reference semantics could have done one
//! thing after the other.
//!
//! Histories are generated from a seed: three to eight sessions on connections of their own send commands of every
//! kind about the same few jobs, executions and leases. Half of the histories are disturbed: a connection is
//! cut while a commit is under way, backends are terminated, statements are cancelled; such outcomes are unknown
//! to whoever asked. Afterwards the answers and the rows that the server was left with must have a serial
//! explanation. A history in which nobody met anybody, or a run in which some kind of command never succeeded,
//! some answer never occurred or some disturbance never left an outcome unknown, proves nothing and fails.
//!
//! A search may be given up, since there are more orders than time. That decides nothing: it is told, the database is
//! emptied, and more than one such history in a hundred fail the run.
//!
//! What is rare may be missing by chance. So a run in which something is missing goes on, for as many histories again
//! at most as are its usual number, before it is called vacuous.
//!
//! `LINEARIZABILITY_HISTORIES` and `LINEARIZABILITY_SEED` say how many histories, and from which seed. What cannot
//! be explained is cut down and printed as a timeline. A seed repeats what is asked, not what the server's locks
//! make of it.

#[allow(dead_code, reason = "a file of the conformance test, of which this one needs a part")]
#[path = "conformance/arrange.rs"]
mod arrange;
#[path = "linearizability/atoms.rs"]
mod atoms;
#[path = "conformance/contents.rs"]
mod contents;
#[path = "conformance/coverage.rs"]
mod coverage;
#[allow(dead_code, reason = "a file of the conformance test, of which this one needs a part")]
#[path = "conformance/database.rs"]
mod database;
#[path = "linearizability/disturbance.rs"]
mod disturbance;

#[path = "linearizability/doctored.rs"]
mod doctored;
#[path = "linearizability/epoch.rs"]
mod epoch;
#[path = "linearizability/history.rs"]
mod history;
#[path = "linearizability/lanes.rs"]
mod lanes;
#[path = "conformance/operators.rs"]
mod operators;
#[path = "conformance/schedulers.rs"]
mod schedulers;
#[path = "linearizability/search.rs"]
mod search;
#[path = "linearizability/sessions.rs"]
mod sessions;
#[path = "linearizability/timeline.rs"]
mod timeline;
#[path = "linearizability/touches.rs"]
mod touches;
#[path = "conformance/universe.rs"]
mod universe;
#[path = "linearizability/verdict.rs"]
mod verdict;
#[path = "conformance/workers.rs"]
mod workers;

use std::time::Instant;

use epoch::Tally;
use lanes::Lanes;

/// Histories where nothing else is said.
const HISTORIES: u64 = 500;
/// How many histories follow one another before the database is emptied.
const HISTORIES_PER_EPOCH: u64 = 25;
/// How many databases are worked on side by side.
const LANES: usize = 3;
/// How many histories more are run at most while something that should occur has not: what is rare may need some.
const MORE_MAX: u64 = 500;
/// Of so many histories the search of one may be given up.
const DECIDED_OF_ONE_UNDECIDED: u64 = 100;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| {
        value.parse().unwrap_or_else(|_| panic!("{name} is to be a whole number, and is {value:?}"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_histories_have_a_serial_explanation() {
    let (first, count) =
        (setting("LINEARIZABILITY_SEED", 0), setting("LINEARIZABILITY_HISTORIES", HISTORIES));
    let began = Instant::now();
    let mut lanes = Lanes::new(LANES).await;
    let mut tally = Tally::default();
    let mut next = first;
    let mut until = first + count;
    while next < until {
        if let Err(report) = lanes.run(next..until, &mut tally).await {
            lanes.remove().await;
            panic!("{report}");
        }
        next = until;
        let missing = tally.missing();
        if !missing.is_empty() && next < first + count + MORE_MAX {
            eprintln!("after {} histories these have not occurred, going on: {missing:?}", tally.histories);
            until = next + LANES as u64 * HISTORIES_PER_EPOCH;
        }
    }
    lanes.remove().await;
    let histories = tally.histories;
    let took = began.elapsed().as_secs_f64();
    eprintln!(
        "{histories} histories, {} commands, {} unknown outcomes in {took:.1} s: {:.0} histories/s, {:.0} commands/s",
        tally.commands,
        tally.unknown,
        histories as f64 / took,
        tally.commands as f64 / took
    );
    let (steps, seed) = tally.longest_search;
    eprintln!("{:?}; the longest search took {steps} steps, for history {seed}", tally.spent);
    eprintln!("what occurred least often: {:?}", tally.rarest());
    assert!(
        tally.undecided.len() as u64 <= histories / DECIDED_OF_ONE_UNDECIDED,
        "of {histories} histories the search was given up for {:?}",
        tally.undecided
    );
    let missing = tally.missing();
    assert!(missing.is_empty(), "vacuous: in {histories} histories these never occurred: {missing:#?}");
}
