//! The lag of an execution: its stamps are in order, so that the stages, each from one stamp to the next, add up to the whole.

use super::{Docket, ExecutionFacts};
use crate::execution::ExecutionState;
use crate::time::Timestamp;
use crate::verify::Check;

const ADVICE: &str = "stages of this execution cannot be trusted: find out who changed its stamps";

pub(super) fn check(docket: &mut Docket<'_>, facts: &ExecutionFacts) {
    docket.look(Check::LagAddsUp);
    let row = &facts.execution;
    let stamps = [
        ("due", Some(row.due_at)),
        ("materialised", Some(row.materialised_at)),
        ("published", row.published_at),
        ("received", row.received_at),
        ("leased", row.leased_at),
        ("started", row.started_at),
        ("finished", row.finished_at),
    ];
    let there: Vec<(&str, Timestamp)> =
        stamps.iter().filter_map(|(name, at)| at.map(|at| (*name, at))).collect();
    if let Some(pair) = there.windows(2).find(|pair| pair[0].1 > pair[1].1) {
        let ((before, earlier), (after, later)) = (pair[0], pair[1]);
        let what = format!("it was {after} at {later}, before it was {before} at {earlier}");
        docket.broke(Check::LagAddsUp, what, ADVICE);
        return;
    }
    // A run may end before its start was reported, and what never ran ends without any stamp of a run.
    let run = &stamps[2..6];
    let first_missing = run.iter().position(|(_, at)| at.is_none()).unwrap_or(run.len());
    let missing = if row.state == ExecutionState::Completed {
        stamps.iter().find(|(_, at)| at.is_none())
    } else {
        let is_followed = run.iter().skip(first_missing).any(|(_, at)| at.is_some());
        run.get(first_missing).filter(|_| is_followed)
    };
    if let Some((missing, _)) = missing {
        docket.broke(Check::LagAddsUp, format!("the stamp of when it was {missing} is missing"), ADVICE);
    }
}
