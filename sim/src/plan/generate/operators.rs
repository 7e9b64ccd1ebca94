//! What operators do during a run: create, trigger, cancel and delete, also twice at once.

use fencepost_core::time::Span;

use super::swarm::Swarm;
use crate::fault::FaultKind;
use crate::plan::{Action, Creation, Definition, JobIndex, JobSpec, OperatorAction};
use crate::rng::{PPM, Stream};
use crate::sim_time::SimTime;

pub(super) fn draw(
    stream: &mut Stream,
    jobs: &[JobSpec],
    heal_at: SimTime,
    swarm: &Swarm,
) -> Vec<OperatorAction> {
    let mut actions = Vec::new();
    let run = heal_at.since(SimTime::ZERO);
    let mut push = |stream: &mut Stream, what| {
        let at = SimTime::ZERO.plus(stream.span(Span::from_secs(1), run));
        let twice = swarm.has(FaultKind::OperatorRepeats) && stream.chance(PPM / 2);
        actions.push(OperatorAction { at, copies: if twice { 2 } else { 1 }, what });
    };
    let all = || (0..jobs.len()).map(|index| JobIndex(index as u16));
    for job in all().filter(|job| jobs[job.index()].created == Creation::ByOperator) {
        push(stream, Action::Create { job });
    }
    let readable: Vec<JobIndex> =
        all().filter(|job| matches!(jobs[job.index()].definition, Definition::Readable(_))).collect();
    if swarm.has(FaultKind::OperatorTriggers) {
        for _ in 0..stream.between(5, 40) {
            let job = *stream.pick(&readable);
            // Few keys: some triggers repeat an earlier one.
            let key = format!("request {}", stream.below(6)).into();
            push(stream, Action::Trigger { job, key });
        }
    }
    if swarm.has(FaultKind::OperatorCancels) {
        for _ in 0..stream.between(5, 40) {
            let job = *stream.pick(&readable);
            push(stream, Action::CancelNewest { job });
        }
    }
    if swarm.has(FaultKind::OperatorDeletes) {
        for _ in 0..stream.between(1, 6) {
            let job = JobIndex(stream.below(jobs.len() as u64) as u16);
            push(stream, Action::Delete { job });
        }
    }
    actions.sort_by_key(|action| action.at);
    actions
}
