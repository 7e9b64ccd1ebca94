//! A sequence of commands on both stores, and the shortest one that still shows a difference.

use core::fmt::{Debug, Write};

use fencepost_core::bug::Bugs;
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::reply::StoreReply;
use fencepost_core::store::tables::Contents;
use fencepost_core::time::Timestamp;
use fencepost_sim::rng::{Stream, StreamKey};
use sqlx::PgConnection;

use crate::arrange::Step;
use crate::contents;
use crate::coverage::Coverage;
use crate::database::{Database, Store};
use crate::universe::{Draw, START};

/// How often a shorter sequence is tried.
const TRIES_MAX: u32 = 300;

/// Both stores, side by side.
struct Pair {
    reference: ReferenceStore,
    store: Store,
    looking: PgConnection,
}

impl Pair {
    async fn new(database: &Database) -> Self {
        let looking = database.connect().await;
        Self { reference: ReferenceStore::new(Bugs::NONE), store: database.empty_store().await, looking }
    }

    /// Executes a step on both, and says how they differ.
    async fn step(&mut self, step: &Step, coverage: &mut Coverage) -> Result<(), String> {
        let expected = apply(&mut self.reference, step);
        let seen = self.store.apply(step.now, &step.command).await;
        let mut report = String::new();
        if seen.as_ref() != Some(&expected) {
            note(&mut report, "the reply", &expected, &seen);
        }
        compare(&mut report, &self.reference.dump(), &contents::read(&mut self.looking).await);
        if report.is_empty() {
            coverage.note(&expected.reply);
            Ok(())
        } else {
            Err(format!("at {} {:#?}\n\n{report}", step.now, step.command))
        }
    }
}

/// Executes a step on the reference semantics; whatever it was, taken back it leaves the tables as they were.
fn apply(reference: &mut ReferenceStore, step: &Step) -> StoreReply {
    let before = reference.clone();
    let mut changes = Vec::new();
    let reply = reference.apply(step.now, &step.command, &mut changes);
    let mut undone = reference.clone();
    undone.take_back(changes);
    assert!(undone.tables() == before.tables(), "taken back, it has left something: {:#?}", step.command);
    reply
}

fn note(report: &mut String, what: &str, expected: &impl Debug, seen: &impl Debug) {
    writeln!(report, "{what}\n  expected {expected:#?}\n  seen {seen:#?}")
        .expect("a string takes everything");
}

/// Row by row, the ones that differ.
fn compare(report: &mut String, expected: &Contents, seen: &Contents) {
    fn table<Row: Debug + PartialEq>(report: &mut String, name: &str, expected: &[Row], seen: &[Row]) {
        if expected == seen {
            return;
        }
        let missing: Vec<&Row> = expected.iter().filter(|row| !seen.contains(row)).collect();
        let surplus: Vec<&Row> = seen.iter().filter(|row| !expected.contains(row)).collect();
        note(report, name, &missing, &surplus);
    }
    table(report, "tenant", &expected.tenants, &seen.tenants);
    table(report, "lease", &expected.leases, &seen.leases);
    table(report, "node", &expected.nodes, &seen.nodes);
    table(report, "job", &expected.jobs, &seen.jobs);
    table(report, "job_version", &expected.job_versions, &seen.job_versions);
    table(report, "execution", &expected.executions, &seen.executions);
    table(report, "attempt", &expected.attempts, &seen.attempts);
    table(report, "outbox_event", &expected.outbox, &seen.outbox);
    table(report, "dead_letter", &expected.dead_letters, &seen.dead_letters);
    table(report, "skipped_range", &expected.skipped_ranges, &seen.skipped_ranges);
    table(report, "refusal", &expected.refusals, &seen.refusals);
    table(report, "operator_request", &expected.requests, &seen.requests);
    table(report, "pause", &expected.pauses, &seen.pauses);
    table(report, "concurrency_limit", &expected.limits, &seen.limits);
    table(report, "calendar", &expected.calendars, &seen.calendars);
    table(report, "malformed_message", &expected.malformed, &seen.malformed);
}

/// The sequence of a seed, drawn step by step from the state that the reference semantics are in.
struct Sequence {
    stream: Stream,
    now: Timestamp,
    steps: Vec<Step>,
}

impl Sequence {
    fn new(seed: u64) -> Self {
        Self { stream: StreamKey::of(seed, "conformance").open(), now: START, steps: Vec::new() }
    }

    fn draw(&mut self, reference: &ReferenceStore) -> Step {
        let mut draw = Draw { stream: &mut self.stream, store: reference, now: self.now };
        draw.now = draw.next_now();
        self.now = draw.now;
        let step = Step { now: draw.now, command: draw.next_command(&self.steps) };
        self.steps.push(step.clone());
        step
    }
}

/// Runs the sequence of a seed; `Err` holds its steps up to the one after which the stores differ.
pub(crate) async fn generate(
    database: &Database,
    seed: u64,
    length: usize,
    coverage: &mut Coverage,
) -> Result<(), Vec<Step>> {
    let mut sequence = Sequence::new(seed);
    let mut pair = Pair::new(database).await;
    for _ in 0..length {
        let step = sequence.draw(&pair.reference);
        if pair.step(&step, coverage).await.is_err() {
            return Err(sequence.steps);
        }
    }
    Ok(())
}

/// Runs the sequence of a seed on the reference semantics alone.
pub(crate) fn rehearse(seed: u64, length: usize, coverage: &mut Coverage) {
    let mut sequence = Sequence::new(seed);
    let mut reference = ReferenceStore::new(Bugs::NONE);
    for _ in 0..length {
        let step = sequence.draw(&reference);
        coverage.note(&apply(&mut reference, &step).reply);
    }
}

/// Runs these steps; says at which one the stores differ, and how.
async fn replay(database: &Database, steps: &[Step]) -> Option<(usize, String)> {
    let mut pair = Pair::new(database).await;
    for (at, step) in steps.iter().enumerate() {
        if let Err(report) = pair.step(step, &mut Coverage::default()).await {
            return Some((at, report));
        }
    }
    None
}

/// Leaves out steps for as long as a difference remains, and tells what is left.
pub(crate) async fn shrink(database: &Database, mut steps: Vec<Step>) -> String {
    let mut tries = 0;
    let mut chunk = steps.len() / 2;
    while chunk > 0 && tries < TRIES_MAX {
        let mut at = 0;
        while at < steps.len() && tries < TRIES_MAX {
            tries += 1;
            let mut fewer = steps.clone();
            fewer.drain(at..(at + chunk).min(steps.len()));
            match replay(database, &fewer).await {
                Some((last, _)) => {
                    fewer.truncate(last + 1);
                    steps = fewer;
                }
                None => at += chunk,
            }
        }
        chunk /= 2;
    }
    let mut report = String::new();
    for step in &steps {
        writeln!(report, "{} {:?}", step.now, step.command).expect("a string takes everything");
    }
    match replay(database, &steps).await {
        Some((at, difference)) => format!("{report}\nat step {at} of these:\n{difference}"),
        None => format!("{report}\nthese steps differed once and now do not"),
    }
}
