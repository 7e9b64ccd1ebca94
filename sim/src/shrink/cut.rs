//! Plans with parts left out: what referred to a part that is gone goes with it, and the rest is renumbered.

use crate::plan::{Action, JobIndex, NodeSlot, OperatorAction, Plan, Target};

/// Without the faults that are marked.
pub(super) fn without_faults(plan: &Plan, gone: &[bool]) -> Option<Plan> {
    Some(Plan { faults: kept(&plan.faults, gone), ..plan.clone() })
}

/// Without the operators' actions that are marked.
pub(super) fn without_actions(plan: &Plan, gone: &[bool]) -> Option<Plan> {
    Some(Plan { actions: kept(&plan.actions, gone), ..plan.clone() })
}

/// Without the jobs that are marked, and what operators do with them.
pub(super) fn without_jobs(plan: &Plan, gone: &[bool]) -> Option<Plan> {
    let places = places(gone);
    let moved = |job: JobIndex| places[job.index()].map(|place| JobIndex(place as u16));
    let actions = plan.actions.iter().filter_map(|action| {
        let what = match &action.what {
            Action::Create { job } => Action::Create { job: moved(*job)? },
            Action::Trigger { job, key } => Action::Trigger { job: moved(*job)?, key: key.clone() },
            Action::CancelStuck
            | Action::PauseWork { .. }
            | Action::ResumeWork { .. }
            | Action::SetLimit { .. }
            | Action::SetCalendar { .. }
            | Action::Replay { .. }
            | Action::ReplayAll { .. }
            | Action::Purge { .. } => action.what.clone(),
            Action::CancelNewest { job } => Action::CancelNewest { job: moved(*job)? },
            Action::Edit { job, to } => Action::Edit { job: moved(*job)?, to: to.clone() },
            Action::Pause { job } => Action::Pause { job: moved(*job)? },
            Action::Resume { job } => Action::Resume { job: moved(*job)? },
            Action::Delete { job } => Action::Delete { job: moved(*job)? },
        };
        Some(OperatorAction { what, ..action.clone() })
    });
    Some(Plan { jobs: kept(&plan.jobs, gone), actions: actions.collect(), ..plan.clone() })
}

/// Without the nodes that are marked, and the faults that strike them; `None` where nobody would be left to do
/// the work.
pub(super) fn without_nodes(plan: &Plan, gone: &[bool]) -> Option<Plan> {
    let places = places(gone);
    let moved = |slot: NodeSlot| places[slot.index()].map(NodeSlot::new);
    let (schedulers, workers) = gone.split_at(plan.schedulers.len());
    let faults = plan.faults.iter().filter_map(|fault| {
        let target = match fault.target {
            Target::Node(slot) => Target::Node(moved(slot)?),
            other @ (Target::Store | Target::Broker | Target::Queue(_) | Target::Outside(_)) => other,
        };
        Some(crate::plan::FaultSpec { target, ..*fault })
    });
    let mut cut = Plan {
        schedulers: kept(&plan.schedulers, schedulers),
        workers: kept(&plan.workers, workers),
        faults: faults.collect(),
        ..plan.clone()
    };
    cut.heal.dead = plan.heal.dead.iter().copied().filter_map(moved).collect();
    cut.heal.drains = plan.heal.drains.and_then(moved);
    // A node that drains at the end needs another one of its kind.
    let alone = cut.schedulers.len() == 1 || cut.workers.len() == 1;
    if alone {
        cut.heal.drains = None;
    }
    let all = cut.node_count();
    let survives = |slot: usize| !cut.heal.dead.contains(&NodeSlot::new(slot));
    let works = (0..cut.schedulers.len()).any(survives) && (cut.schedulers.len()..all).any(survives);
    works.then_some(cut)
}

fn kept<T: Clone>(items: &[T], gone: &[bool]) -> Vec<T> {
    items.iter().zip(gone).filter(|(_, gone)| !**gone).map(|(item, _)| item.clone()).collect()
}

/// Where each item is once the marked ones are gone.
fn places(gone: &[bool]) -> Vec<Option<usize>> {
    let mut next = 0;
    gone.iter()
        .map(|gone| {
            let place = next;
            next += usize::from(!gone);
            (!gone).then_some(place)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Profile, generate};

    #[test]
    fn a_plan_with_parts_left_out_can_still_be_run() {
        for seed in 0..10 {
            let plan = generate::generate(seed, Profile::Storm);
            let every_third = |count: usize| (0..count).map(|at| at % 3 == 0).collect::<Vec<_>>();
            let cuts = [
                without_faults(&plan, &every_third(plan.faults.len())),
                without_actions(&plan, &every_third(plan.actions.len())),
                without_jobs(&plan, &every_third(plan.jobs.len())),
                without_nodes(&plan, &[true, false, false, true, false, false]),
            ];
            for cut in cuts.into_iter().flatten() {
                Plan::from_json(&cut.to_json()).expect("every reference leads somewhere");
            }
        }
    }

    #[test]
    fn somebody_is_always_left_to_do_the_work() {
        let plan = generate::generate(1, Profile::Calm);
        assert!(without_nodes(&plan, &[true, true, true, false, false, false]).is_none());
        assert!(without_nodes(&plan, &[false, false, false, true, true, true]).is_none());
    }
}
