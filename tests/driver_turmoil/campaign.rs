//! A campaign: many seeds over several threads, one simulated network on each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fencepost_core::bug::Bugs;
use fencepost_core::time::Span;
use fencepost_sim::sim_time::SimTime;
use fencepost_sim::violation::{Property, Violation};

use crate::parcel::Fates;
use crate::run::{Report, run};
use crate::trace::Keep;
use crate::weather::{Kind, Plan, SCHEDULERS, SERVERS, WORKERS};

/// One seed of this many is run twice, to see that both runs do the same.
const TWICE_EVERY: u64 = 20;
/// How many lines before the first difference of two traces are shown.
const SHOWN: usize = 6;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Campaign {
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// With which deliberate bug, if any.
    pub(crate) bugs: Bugs,
}

/// A run that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) seed: u64,
    pub(crate) violation: Violation,
}

impl Failure {
    /// What broke, in which weather, and how to see it again.
    pub(crate) fn report(&self) -> String {
        let (seed, plan) = (self.seed, Plan::of(self.seed));
        format!(
            "seed {seed}: {}\n\n{plan}\n\nto see it again:\n  TURMOIL_SEED={seed} TURMOIL_SEEDS=1 cargo test \
             --package fencepost-tests --test driver_turmoil whatever_the_network_does -- --nocapture",
            self.violation
        )
    }
}

/// What all runs together have shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) runs: u64,
    pub(crate) twice: u64,
    hashes: BTreeSet<u64>,
    simulated: Span,
    slowest_recovery: (Span, u64),
    commits: u64,
    confirms: u64,
    store_unknown: u64,
    publish_unknown: u64,
    consumers_lost: u64,
    refusals: u64,
    handlers_started: u64,
    handlers_given_up: u64,
    handlers_died: u64,
    calls_again: u64,
    drains_in_time: u64,
    drains_cut_short: u64,
    partitions_taken_over: u64,
    leaders_followed: u64,
    led: BTreeMap<&'static str, u64>,
    runs_taken_over: BTreeMap<&'static str, u64>,
    struck: BTreeMap<(Kind, &'static str), u64>,
    fates: BTreeMap<(Kind, &'static str), Fates>,
}

impl Campaign {
    /// Runs all seeds, or until one fails: of those that did by then, the first is returned.
    pub(crate) fn run(&self) -> (Totals, Option<Failure>) {
        let taken = AtomicU64::new(0);
        let so_far: Mutex<(Totals, Option<Failure>)> = Mutex::default();
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        let lock = || so_far.lock().expect("nobody panics while holding it");
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while lock().1.is_none() {
                        let place = taken.fetch_add(1, Ordering::SeqCst);
                        if place >= self.count {
                            return;
                        }
                        let seed = self.first + place;
                        match self.run_seed(seed) {
                            Ok((report, twice)) => lock().0.add(seed, &report, twice),
                            Err(violation) => {
                                let failed = &mut lock().1;
                                if failed.as_ref().is_none_or(|other| seed < other.seed) {
                                    *failed = Some(Failure { seed, violation });
                                }
                            }
                        }
                    }
                });
            }
        });
        so_far.into_inner().expect("nobody panics while holding it")
    }

    /// Runs a seed; says whether it was run twice.
    fn run_seed(&self, seed: u64) -> Result<(Report, bool), Violation> {
        let plan = Plan::of(seed);
        let report = run(&plan, self.bugs, Keep::Hash)?;
        let twice = seed.is_multiple_of(TWICE_EVERY);
        if twice {
            let again = run(&plan, self.bugs, Keep::Hash)?;
            if again.hash != report.hash {
                return Err(self.difference(&plan, report.simulated));
            }
        }
        Ok((report, twice))
    }

    /// What differs between two runs of a plan that should be the same: they are run again, to be read.
    fn difference(&self, plan: &Plan, simulated: Span) -> Violation {
        let lines = || run(plan, self.bugs, Keep::Lines).map_or_else(|_| Vec::new(), |report| report.lines);
        let (one, other) = (lines(), lines());
        let first = one.iter().zip(&other).position(|(one, other)| one != other);
        let show = |lines: &[String], at: usize| lines[at.saturating_sub(SHOWN)..=at].join("\n  ");
        let detail = match first {
            Some(at) => {
                let (one, other) = (show(&one, at), show(&other, at));
                format!("two runs differ first in line {at} of their traces:\n  {one}\nand\n  {other}")
            }
            None => "two runs differed, and two more did not".to_owned(),
        };
        let (invariant, property) = ("same-seed-same-trace", Property::Determinism);
        Violation { invariant, property, at: SimTime::ZERO.plus(simulated), detail }
    }
}

impl Totals {
    fn add(&mut self, seed: u64, report: &Report, twice: bool) {
        let (shown, tally) = (&report.shown, report.tally);
        self.runs += 1;
        self.twice += u64::from(twice);
        self.hashes.insert(report.hash);
        self.simulated = self.simulated.plus(report.simulated);
        self.slowest_recovery = self.slowest_recovery.max((report.recovered_in, seed));
        for (total, more) in [
            (&mut self.commits, shown.commits),
            (&mut self.confirms, shown.confirms),
            (&mut self.store_unknown, tally.store_unknown.into()),
            (&mut self.publish_unknown, tally.publish_unknown.into()),
            (&mut self.consumers_lost, tally.consumers_lost.into()),
            (&mut self.refusals, shown.refusals),
            (&mut self.handlers_started, shown.handlers_started),
            (&mut self.handlers_given_up, shown.handlers_given_up),
            (&mut self.handlers_died, shown.handlers_died),
            (&mut self.calls_again, report.calls_again),
            (&mut self.drains_in_time, shown.drains_in_time),
            (&mut self.drains_cut_short, shown.drains_cut_short),
            (&mut self.partitions_taken_over, shown.partitions_taken_over),
            (&mut self.leaders_followed, shown.leaders_followed),
        ] {
            *total += more;
        }
        for leader in &shown.leaders {
            *self.led.entry(leader).or_default() += 1;
        }
        for (host, runs) in &shown.runs_taken_over {
            *self.runs_taken_over.entry(host).or_default() += runs;
        }
        for (what, times) in &report.struck {
            *self.struck.entry(*what).or_default() += times;
        }
        for (what, fates) in &report.fates {
            let total = self.fates.entry(*what).or_default();
            total.sent += fates.sent;
            total.late += fates.late;
            total.lost += fates.lost;
        }
    }

    /// What never occurred, although a run of many seeds proves little without it.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let mut expect = |what: String, times: u64| {
            if times == 0 {
                missing.push(what);
            }
        };
        for host in SCHEDULERS.into_iter().chain(WORKERS) {
            for kind in [Kind::Crash, Kind::Bounce, Kind::Drain] {
                expect(format!("{kind} of {host}"), self.struck.get(&(kind, host)).copied().unwrap_or(0));
            }
        }
        for server in SERVERS {
            for kind in [Kind::Crash, Kind::Bounce] {
                expect(
                    format!("{kind} of the {server}"),
                    self.struck.get(&(kind, server)).copied().unwrap_or(0),
                );
            }
            for kind in Kind::ALL {
                let fates = self.fates.get(&(kind, server)).copied().unwrap_or_default();
                let (what, times) = match kind {
                    Kind::Crash | Kind::Bounce | Kind::Drain => continue,
                    Kind::Hold | Kind::Tail => ("late", fates.late),
                    Kind::Cut | Kind::CutThere | Kind::CutBack | Kind::Loss => ("lost", fates.lost),
                };
                expect(format!("something {what} by {kind} between a node and the {server}"), times);
            }
        }
        for host in SCHEDULERS {
            expect(format!("{host} leading"), self.led.get(host).copied().unwrap_or(0));
        }
        for host in WORKERS {
            let runs = self.runs_taken_over.get(host).copied().unwrap_or(0);
            expect(format!("a takeover of a run of {host}"), runs);
        }
        for (what, times) in [
            ("a store call of unknown outcome", self.store_unknown),
            ("a publication of unknown outcome", self.publish_unknown),
            ("a consumer's loss of its connection", self.consumers_lost),
            ("a refusal on record", self.refusals),
            ("a handler told to stop", self.handlers_given_up),
            ("a handler's death with its process", self.handlers_died),
            ("a second call for one attempt", self.calls_again),
            ("a drain in time", self.drains_in_time),
            ("a leader taking over from another", self.leaders_followed),
            ("a partition taken over", self.partitions_taken_over),
            ("a seed that was run twice", self.twice),
        ] {
            expect(what.to_owned(), times);
        }
        if (self.hashes.len() as u64) < self.runs {
            missing.push("a trace of its own for every seed".to_owned());
        }
        missing
    }

    /// The figures, for people.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        let seconds = |span: Span| span.as_micros() / 1_000_000;
        let (slowest, of) = self.slowest_recovery;
        let lines = [
            format!(
                "{} runs ({} seeds twice), {} s simulated, slowest recovery {} s (seed {of})",
                self.runs,
                self.twice,
                seconds(self.simulated),
                seconds(slowest),
            ),
            format!(
                "store: {} commits, {} calls of unknown outcome, {} changes of refusals",
                self.commits, self.store_unknown, self.refusals
            ),
            format!(
                "broker: {} confirms, {} publications of unknown outcome, {} consumers lost",
                self.confirms, self.publish_unknown, self.consumers_lost
            ),
            format!(
                "handlers: {} started, {} told to stop, {} died, {} called again for one attempt",
                self.handlers_started, self.handlers_given_up, self.handlers_died, self.calls_again
            ),
            format!(
                "takeovers: {} of leadership, {} of partitions, of runs {:?}; seeds led in: {:?}",
                self.leaders_followed, self.partitions_taken_over, self.runs_taken_over, self.led
            ),
            format!("drains: {} in time, {} cut short", self.drains_in_time, self.drains_cut_short),
        ];
        for line in lines {
            writeln!(text, "{line}").expect("a string takes all");
        }
        for ((kind, host), times) in &self.struck {
            writeln!(text, "{kind} of {host}: {times}").expect("a string takes all");
        }
        for ((kind, server), Fates { sent, late, lost }) in &self.fates {
            writeln!(text, "{kind}, node – {server}: {sent} sent, of them {late} late, {lost} lost")
                .expect("a string takes all");
        }
        text
    }
}
