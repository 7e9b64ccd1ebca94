//! The whole simulation on PostgreSQL: the simulator's world, with a real server as its store and virtual time
//! passed in, leaves the same trace as on the reference semantics.
//!
//! A seed is run twice. First as the simulator runs it. Then on a server, through the interpreter that production
//! uses: every reply, and every changed row as triggers on the server saw it, is compared with the reference
//! semantics step by step, and is what the roles and the oracles of the second run are given. The hashes of both
//! traces must be the same. Replies that the plan loses, and commands that it keeps from their commits, are lost and
//! kept for real: terminated backends, failed serialization, connections cut behind a commit. What a run leaves on the
//! server is verified as `fencepost verify` does it, and nothing may speak against it.
//!
//! `SIMULATION_SEEDS` and `SIMULATION_SEED` say how many seeds of the default profile, and from which one. One thread
//! per core works on a database of its own. A run of all seeds in which some command, some kind of change or some of
//! the strikes never occurred proves nothing and fails. (How fast it is depends on the server: the one that the
//! tests start has fsync off.)

#[path = "simulation/compare.rs"]
mod compare;
#[path = "conformance/contents.rs"]
mod contents;
#[path = "simulation/coverage.rs"]
mod coverage;
#[path = "conformance/database.rs"]
mod database;
#[path = "simulation/deaf_wire.rs"]
mod deaf_wire;
#[path = "simulation/ground.rs"]
mod ground;
#[path = "simulation/pair.rs"]
mod pair;
#[path = "simulation/stored.rs"]
mod stored;
#[path = "simulation/strikes.rs"]
mod strikes;
#[path = "simulation/watch.rs"]
mod watch;

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use coverage::Coverage;
use fencepost_core::bug::{Bug, Bugs};
use ground::Ground;

/// Seeds where nothing else is said.
const SEEDS: u64 = 50;
/// How often a run says how far it is.
const SAY_EVERY: Duration = Duration::from_secs(10);

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| {
        value.parse().unwrap_or_else(|_| panic!("{name} is to be a whole number, and is {value:?}"))
    })
}

/// What the threads of a run share.
struct Progress {
    began: Instant,
    first: u64,
    count: u64,
    taken: AtomicU64,
    so_far: Mutex<SoFar>,
}

#[derive(Default)]
struct SoFar {
    seeds: u64,
    coverage: Coverage,
    said: Option<Instant>,
    failure: Option<String>,
}

impl Progress {
    fn new(first: u64, count: u64) -> Self {
        Self { began: Instant::now(), first, count, taken: AtomicU64::new(0), so_far: Mutex::default() }
    }

    /// The next seed, while there is one and nothing has failed.
    fn next_seed(&self) -> Option<u64> {
        if self.so_far.lock().expect("no holder panics").failure.is_some() {
            return None;
        }
        let place = self.taken.fetch_add(1, Ordering::SeqCst);
        (place < self.count).then(|| self.first + place)
    }

    fn passed(&self, coverage: Coverage) {
        let mut so_far = self.so_far.lock().expect("no holder panics");
        so_far.seeds += 1;
        so_far.coverage.add(coverage);
        if so_far.said.unwrap_or(self.began).elapsed() >= SAY_EVERY {
            so_far.said = Some(Instant::now());
            say(&self.pace(&so_far));
        }
    }

    fn failed(&self, report: String) {
        self.so_far.lock().expect("no holder panics").failure.get_or_insert(report);
    }

    fn pace(&self, so_far: &SoFar) -> String {
        let (calls, passed) = (so_far.coverage.calls, self.began.elapsed());
        let (seeds, count, seconds) = (so_far.seeds, self.count, passed.as_secs_f64());
        let rate = calls as f64 / seconds;
        format!("{seeds} of {count} seeds, {calls} store commands in {seconds:.0} s: {rate:.0}/s")
    }
}

/// On the standard error, past the harness that would keep it until the end.
fn say(line: &str) {
    // Who closed it does not want to hear of it.
    let _ = writeln!(std::io::stderr(), "simulation on PostgreSQL: {line}");
}

fn work(number: usize, progress: &Progress) {
    let mut ground = Ground::new(&format!("simulation_{number}"));
    while let Some(seed) = progress.next_seed() {
        let mut coverage = Coverage::default();
        match ground.run(seed, Bugs::NONE, &mut coverage) {
            Ok(()) => progress.passed(coverage),
            Err(report) => progress.failed(report),
        }
    }
    ground.remove();
}

#[test]
fn a_seed_leaves_the_same_trace_on_postgresql() {
    let progress = Progress::new(setting("SIMULATION_SEED", 0), setting("SIMULATION_SEEDS", SEEDS));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    std::thread::scope(|scope| {
        for number in 0..threads {
            let progress = &progress;
            scope.spawn(move || work(number, progress));
        }
    });
    let so_far = progress.so_far.lock().expect("no holder panics");
    if let Some(report) = &so_far.failure {
        panic!("{report}");
    }
    say(&progress.pace(&so_far));
    println!("{}\n{}", progress.pace(&so_far), so_far.coverage.summary());
    let waited = so_far.coverage.waited.as_secs_f64();
    println!("each took the server {:.0} µs, watched", waited * 1e6 / so_far.coverage.calls.max(1) as f64);
    let missing = so_far.coverage.missing();
    assert!(
        missing.is_empty() || progress.count < SEEDS,
        "vacuous: in {} seeds these never occurred: {missing:#?}",
        progress.count
    );
}

/// The reference semantics get a bug, and PostgreSQL none: this is what the proof is for.
#[test]
fn a_difference_is_found_and_told_with_its_step() {
    let mut ground = Ground::new("simulation_difference");
    let found = [Bug::LeaseGrantKeepsToken, Bug::AttemptsNotCounted].map(|bug| {
        let mut differs = |seed| ground.run(seed, Bugs::only(bug), &mut Coverage::default()).err();
        (bug, (0..5).find_map(&mut differs))
    });
    ground.remove();
    for (bug, report) in found {
        let report = report.unwrap_or_else(|| panic!("{bug:?} is not found"));
        for part in ["SIMULATION_SEED=", "step ", "expected", "seen"] {
            assert!(report.contains(part), "{bug:?} is found, but {part:?} is not told:\n{report}");
        }
        println!("{bug:?}: {report}");
    }
}
