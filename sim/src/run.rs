//! One run: a plan on the reference semantics, with the marks that the core passed and panics caught.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fencepost_core::bug::Bugs;
use fencepost_core::mark;
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::time::Span;

use crate::fault::FaultCounts;
use crate::measure::Measured;
use crate::plan::{Plan, Profile, generate};
use crate::sim_time::SimTime;
use crate::trace::TraceHash;
use crate::violation::{Property, Violation};
use crate::world::{Ended, Keep, World};

/// One run and how it ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// The seed of its plan.
    pub seed: u64,
    /// How it ended.
    pub ended: Ended,
    /// How often each mark of the core was passed, in the order of the marks.
    pub marks: Vec<u64>,
}

/// Runs a plan.
#[must_use]
pub fn run(plan: &Plan, bugs: Bugs, keep: Keep) -> Run {
    // What this thread passed before is not this run's.
    drop(mark::take());
    let world = || World::new(plan, Box::new(ReferenceStore::new(bugs)), bugs, keep).run();
    let ended = catch_unwind(AssertUnwindSafe(world)).unwrap_or_else(|panic| panicked(panic.as_ref()));
    Run { seed: plan.seed, ended, marks: mark::take() }
}

/// Runs the plan of a seed.
#[must_use]
pub fn run_seed(seed: u64, profile: Profile, bugs: Bugs) -> Run {
    run(&generate::generate(seed, profile), bugs, Keep::Hash)
}

/// Runs the plan of a seed, and runs it again from its file: the traces must be the same.
#[must_use]
pub fn run_twice(seed: u64, profile: Profile, bugs: Bugs) -> Run {
    let plan = generate::generate(seed, profile);
    let mut first = run(&plan, bugs, Keep::Hash);
    let second = match Plan::from_json(&plan.to_json()) {
        Ok(plan) => run(&plan, bugs, Keep::Hash),
        Err(error) => return with(first, format!("the plan's file cannot be read back: {error}")),
    };
    let same = second.ended.hash == first.ended.hash && second.ended.violation == first.ended.violation;
    if !same {
        let detail = format!(
            "expected the hash {} from the plan's file too, saw {}",
            first.ended.hash, second.ended.hash
        );
        first = with(first, detail);
    }
    first
}

fn with(mut run: Run, detail: String) -> Run {
    run.ended.violation = Some(Violation {
        invariant: "determinism",
        property: Property::Determinism,
        at: SimTime::ZERO,
        detail,
    });
    run
}

fn panicked(panic: &(dyn core::any::Any + Send)) -> Ended {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a text");
    Ended {
        hash: TraceHash::default(),
        violation: Some(Violation {
            invariant: "no-panic",
            property: Property::Internal,
            at: SimTime::ZERO,
            detail: text.to_owned(),
        }),
        events: 0,
        simulated: Span::ZERO,
        faults: FaultCounts::default(),
        measured: Measured::default(),
        timeline: Vec::new(),
        lines: Vec::new(),
    }
}
