//! The report of a campaign, as text for people and as JSON for programs.
//!
//! What is printed here is derived from the runs in the order of their seeds; only the speeds depend on the
//! machine.

pub mod digest;
pub mod html;
mod text;

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::path::PathBuf;
use std::time::Duration;

use fencepost_core::mark::Mark;
use fencepost_core::time::Span;
use serde::Serialize;

use crate::fault::FaultCounts;
use crate::measure::{Measured, Percentiles};
use crate::run::Run;
use crate::trace::{TraceHash, TraceHasher};
use crate::violation::{Property, Violation};

pub use text::{failure, summary};

/// From how many seeds up a mark that was never passed is a failure.
pub const MARKS_JUDGED_FROM: u64 = 2_000;

/// A campaign's sums, while it goes on and when it is over.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Runs so far.
    pub seeds: u64,
    /// Those that failed.
    pub failures: Vec<Failure>,
    /// Events given to roles.
    pub events: u64,
    /// Time simulated.
    pub simulated: Span,
    /// Faults that happened.
    pub faults: FaultCounts,
    /// Marks passed, in their order.
    pub marks: Vec<u64>,
    /// What was measured.
    pub measured: Measured,
    hasher: TraceHasher,
}

/// A run that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// The hash of its trace.
    pub hash: TraceHash,
    /// What broke.
    pub violation: Violation,
    /// Where its plan was written, if it was.
    pub file: Option<PathBuf>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            seeds: 0,
            failures: Vec::new(),
            events: 0,
            simulated: Span::ZERO,
            faults: FaultCounts::default(),
            marks: vec![0; Mark::ALL.len()],
            measured: Measured::default(),
            hasher: TraceHasher::default(),
        }
    }
}

impl Tally {
    /// Adds a run; they come in the order of their seeds.
    pub fn add(&mut self, run: &Run) {
        self.seeds += 1;
        self.events += run.ended.events;
        self.simulated = self.simulated.plus(run.ended.simulated);
        self.faults.add(&run.ended.faults);
        self.measured.add_all(&run.ended.measured);
        for (sum, passed) in self.marks.iter_mut().zip(&run.marks) {
            *sum += passed;
        }
        self.hasher.write_u64(run.seed);
        self.hasher.write_u64(run.ended.hash.0);
        if let Some(violation) = &run.ended.violation {
            self.failures.push(Failure {
                seed: run.seed,
                hash: run.ended.hash,
                violation: violation.clone(),
                file: None,
            });
        }
    }

    /// The hash over all runs.
    #[must_use]
    pub fn hash(&self) -> TraceHash {
        TraceHash(self.hasher.finish())
    }

    /// Marks that were never passed, where the campaign was long enough to judge.
    #[must_use]
    pub fn marks_missed(&self) -> Vec<Mark> {
        if self.seeds < MARKS_JUDGED_FROM {
            return Vec::new();
        }
        Mark::ALL.iter().copied().filter(|mark| self.marks[*mark as usize] == 0).collect()
    }

    /// The exit code: the lowest of what went wrong, 0 if nothing did.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let failures = self.failures.iter().map(|failure| exit_code(failure.violation.property));
        let missed = (!self.marks_missed().is_empty()).then_some(4);
        failures.chain(missed).min().unwrap_or(0)
    }

    /// The report as a program reads it.
    #[must_use]
    pub fn to_json(&self, profile: &str, took: Duration) -> String {
        let real_s = took.as_secs_f64();
        let failures = self.failures.iter().map(|failure| FailureJson {
            seed: failure.seed,
            invariant: failure.violation.invariant,
            hash: failure.hash.to_string(),
        });
        let report = Report {
            profile,
            seeds: self.seeds,
            failures: failures.collect(),
            seeds_per_s: per_second(self.seeds, real_s),
            events: self.events,
            events_per_s: per_second(self.events, real_s),
            simulated_s: self.simulated.as_millis() as f64 / 1_000.0,
            real_s,
            faults: self.faults.iter().map(|(kind, count)| (kind.name(), count)).collect(),
            marks: Mark::ALL.iter().map(|mark| (mark.name(), self.marks[*mark as usize])).collect(),
            failover_ms: self.measured.failover.percentiles(),
            rebalance_ms: self.measured.rebalance.percentiles(),
            dispatch_lag_ms: self.measured.dispatch_lag.percentiles(),
            drain_ms: self.measured.drain.percentiles(),
            executions: self.measured.executions,
            hash: self.hash().to_string(),
        };
        serde_json::to_string(&report).expect("a report has no map keys that are not text")
    }
}

/// The exit code of a broken property.
#[must_use]
pub const fn exit_code(property: Property) -> u8 {
    match property {
        Property::Safety => 1,
        Property::Liveness => 2,
        Property::Determinism => 3,
        Property::Internal => 70,
    }
}

fn per_second(count: u64, seconds: f64) -> f64 {
    let rate = count as f64 / seconds.max(0.001);
    (rate * 10.0).round() / 10.0
}

#[derive(Serialize)]
struct FailureJson {
    seed: u64,
    invariant: &'static str,
    hash: String,
}

#[derive(Serialize)]
struct Report<'a> {
    profile: &'a str,
    seeds: u64,
    failures: Vec<FailureJson>,
    seeds_per_s: f64,
    events: u64,
    events_per_s: f64,
    simulated_s: f64,
    real_s: f64,
    faults: BTreeMap<&'static str, u64>,
    marks: BTreeMap<&'static str, u64>,
    failover_ms: Option<Percentiles>,
    rebalance_ms: Option<Percentiles>,
    dispatch_lag_ms: Option<Percentiles>,
    drain_ms: Option<Percentiles>,
    executions: u64,
    hash: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim_time::SimTime;

    fn failing(properties: &[Property]) -> Tally {
        let mut tally = Tally::default();
        for property in properties {
            tally.failures.push(Failure {
                seed: 1,
                hash: TraceHash(0),
                violation: Violation {
                    invariant: "any",
                    property: *property,
                    at: SimTime::ZERO,
                    detail: String::new(),
                },
                file: None,
            });
        }
        tally
    }

    #[test]
    fn of_several_exit_codes_the_lowest_counts() {
        assert_eq!(failing(&[]).exit_code(), 0);
        assert_eq!(failing(&[Property::Liveness, Property::Safety]).exit_code(), 1);
        assert_eq!(failing(&[Property::Internal, Property::Determinism]).exit_code(), 3);
        assert_eq!(failing(&[Property::Internal]).exit_code(), 70);
    }

    #[test]
    fn marks_are_judged_only_by_a_long_campaign() {
        let mut tally = Tally { seeds: MARKS_JUDGED_FROM - 1, ..Tally::default() };
        assert_eq!(tally.exit_code(), 0);
        tally.seeds += 1;
        assert_eq!(tally.exit_code(), 4);
        assert_eq!(tally.marks_missed().len(), Mark::ALL.len());
    }

    #[test]
    fn the_json_has_what_programs_rely_on() {
        let json = Tally::default().to_json("default", Duration::from_secs(1));
        let report: serde_json::Value = serde_json::from_str(&json).expect("is JSON");
        for field in [
            "seeds",
            "failures",
            "seeds_per_s",
            "events",
            "events_per_s",
            "simulated_s",
            "real_s",
            "faults",
            "marks",
            "failover_ms",
            "rebalance_ms",
            "dispatch_lag_ms",
            "drain_ms",
            "executions",
            "hash",
        ] {
            assert!(report.get(field).is_some(), "{field} is missing");
        }
        assert_eq!(report["hash"].as_str().map(str::len), Some(16));
        assert!(!json.contains('\n'));
    }
}
