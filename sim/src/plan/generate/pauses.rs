//! Pauses and resumes of tenants and of their queues during a run: mostly short, sometimes overlapping, sometimes asked
//! for twice at once, and let go at once, in part, or by the partitions' owners alone.

use fencepost_core::job::HandlerRef;
use fencepost_core::limits::BATCH_MAX;
use fencepost_core::time::Span;

use super::operators::{Ground, moment, once};
use crate::fault::FaultKind;
use crate::plan::{Action, Authority, Definition, OperatorAction};
use crate::rng::{PPM, Stream};

pub(super) fn draw(stream: &mut Stream, ground: &Ground<'_>) -> Vec<OperatorAction> {
    let queues: Vec<(u8, HandlerRef)> = ground
        .jobs
        .iter()
        .filter_map(|job| match &job.definition {
            Definition::Readable(definition) => Some((job.tenant, definition.handler.clone())),
            Definition::Text(_) => None,
        })
        .collect();
    let mut actions = Vec::new();
    for _ in 0..stream.between(2, 10) {
        if queues.is_empty() {
            break;
        }
        let (tenant, handler) = stream.pick(&queues).clone();
        let queue = (!stream.chance(PPM * 2 / 5)).then_some(handler);
        let at = moment(stream, ground);
        let lasts = stream.long_tailed(Span::from_millis(200), Span::from_secs(180));
        let twice = |stream: &mut Stream| if stream.chance(PPM / 5) { 2 } else { 1 };
        let what = Action::PauseWork { tenant, queue: queue.clone() };
        actions.push(OperatorAction { copies: twice(stream), ..once(at, what) });
        // Some stay paused. None is resumed so late that what it held back could not end in time.
        if stream.chance(PPM / 12) {
            continue;
        }
        let at_once = if stream.chance(PPM / 2) { stream.below(4) as u32 } else { BATCH_MAX as u32 };
        let what = Action::ResumeWork { tenant, queue, at_once };
        let ends = once(at.plus(lasts).min(ground.heal_at), what);
        if ground.swarm.has(FaultKind::OperatorTrespasses) && stream.chance(PPM / 6) {
            actions.push(OperatorAction { under: Authority::Stranger, ..ends.clone() });
        }
        actions.push(OperatorAction { copies: twice(stream), ..ends });
    }
    actions
}
