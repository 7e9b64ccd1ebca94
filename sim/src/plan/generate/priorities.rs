//! Priorities, and rushes: stretches of a run in which more of all of them comes than the workers can start.
//!
//! Drawn once everything else of the jobs is, from streams of their own. A rush is needed for the shares of priorities to
//! matter at all: it is a number of jobs that fire every second for a while, and workers with few slots. One plan in eight
//! has one.

use fencepost_core::job::{JobDefinition, Overlap};
use fencepost_core::priority::Priority;
use fencepost_core::schedule::misfire::MisfirePolicy;
use fencepost_core::schedule::{Bounds, Schedule};
use fencepost_core::time::{Span, Timestamp};

use super::calendar::Day;
use super::jobs::HERD;
use crate::plan::{BehaviourKind, Creation, Definition, JobSpec, WorkerSpec};
use crate::rng::{PPM, StreamKey};
use crate::sim_time::SimTime;

/// How many jobs are in a rush. They fire once a second each, and those of high priority alone are more than the workers
/// can start: all three wait all the while, whoever is favoured.
const RUSHING: usize = 24;
const RUSHED: [Priority; 4] = [Priority::High, Priority::High, Priority::Normal, Priority::Low];
const SLOTS: u32 = 2;
/// How long they fire.
const LASTS: Span = Span::from_secs(8);

/// Gives half of the jobs another priority than normal.
pub(super) fn assign(seed: u64, jobs: &mut [JobSpec]) {
    let mut stream = StreamKey::of(seed, "plan/priorities").open();
    for job in jobs {
        let priority = *stream.pick(&[Priority::High, Priority::Normal, Priority::Normal, Priority::Low]);
        if let Definition::Readable(definition) = &mut job.definition {
            definition.priority = priority;
        }
    }
}

/// Makes a rush of some of the jobs, in one plan of eight.
pub(super) fn rush(seed: u64, day: &Day, heal_at: SimTime, jobs: &mut [JobSpec], workers: &mut [WorkerSpec]) {
    let mut stream = StreamKey::of(seed, "plan/rush").open();
    if !stream.chance(PPM / 8) {
        return;
    }
    let whole = heal_at.since(SimTime::ZERO);
    let after = stream.span(Span::from_secs(10), whole.divided_by(2));
    // On the second: what is stored is in milliseconds, and nobody needs more.
    let starts_at = day.starts_at.plus(Span::from_millis(after.as_millis()));
    for worker in workers {
        worker.config.slots = SLOTS;
    }
    let rushing = jobs.iter_mut().skip(HERD).filter(|job| takes_part(job));
    for (index, job) in rushing.take(RUSHING).enumerate() {
        job.behaviour.least = Span::from_millis(600);
        job.behaviour.most = Span::from_millis(1_000);
        if let Definition::Readable(definition) = &mut job.definition {
            definition.priority = RUSHED[index % RUSHED.len()];
            hurry(definition, starts_at);
        }
    }
}

fn takes_part(job: &JobSpec) -> bool {
    let fires = match &job.definition {
        Definition::Readable(definition) => definition.schedule != Schedule::Manual,
        Definition::Text(_) => false,
    };
    fires && job.created == Creation::AtStart && job.behaviour.kind == BehaviourKind::Succeeds
}

fn hurry(definition: &mut JobDefinition, starts_at: Timestamp) {
    definition.schedule = Schedule::Interval { start: starts_at, every: Span::from_secs(1) };
    definition.bounds = Bounds { end: Some(starts_at.plus(LASTS)), ..Bounds::default() };
    definition.flex = Span::ZERO;
    definition.overlap = Overlap::Allow;
    definition.misfire = MisfirePolicy::FireOnce;
    definition.concurrency_key = None;
    definition.run_if_past = false;
}
