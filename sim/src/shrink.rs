//! Shrinking: from a plan that breaks an invariant to a small one that breaks the same.
//!
//! Works on the plan alone: it leaves out faults, operators' actions, jobs and nodes, first many at once and
//! then one by one, and makes what is left shorter, rarer and plainer. A step stays if the plan still breaks
//! the same invariant. Leaving something out changes what is drawn afterwards, so a step may hide the failure
//! for no deep reason; the passes go round until none of them gets anywhere.

mod cut;

use fencepost_core::bug::Bugs;
use fencepost_core::time::Span;

use crate::plan::{FaultSpec, Plan};
use crate::rng::PPM;
use crate::run::run;
use crate::sim_time::SimTime;
use crate::violation::Violation;
use crate::world::Keep;

/// A smaller plan, and what it breaks.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The plan.
    pub plan: Plan,
    /// The violation, of the same invariant as the original's.
    pub violation: Violation,
    /// How many plans were tried.
    pub tries: u32,
}

struct Shrinker<'a> {
    best: Plan,
    violation: Violation,
    bugs: Bugs,
    tries: u32,
    most: u32,
    progress: &'a mut dyn FnMut(&Plan, u32),
}

/// Makes a plan smaller, with at most `most` tries; `None` if it breaks nothing. `progress` hears of each
/// plan that is better than the one before.
pub fn shrink(plan: &Plan, bugs: Bugs, most: u32, progress: &mut dyn FnMut(&Plan, u32)) -> Option<Shrunk> {
    let violation = run(plan, bugs, Keep::Hash).ended.violation?;
    let mut shrinker = Shrinker { best: plan.clone(), violation, bugs, tries: 0, most, progress };
    while shrinker.tries < most && shrinker.round() {}
    Some(Shrunk { plan: shrinker.best, violation: shrinker.violation, tries: shrinker.tries })
}

impl Shrinker<'_> {
    /// One round of all passes; whether any of them got anywhere.
    fn round(&mut self) -> bool {
        let mut better = self.heal_earlier();
        better |= self.leave_out(|plan| plan.faults.len(), cut::without_faults);
        better |= self.leave_out(|plan| plan.actions.len(), cut::without_actions);
        better |= self.leave_out(|plan| plan.jobs.len(), cut::without_jobs);
        better |= self.leave_out(Plan::node_count, cut::without_nodes);
        better |= self.soften_faults();
        better | self.plainer()
    }

    /// Whether a candidate breaks the same invariant; if so, it is the best so far.
    fn take(&mut self, candidate: Plan) -> bool {
        if self.tries >= self.most || candidate == self.best {
            return false;
        }
        self.tries += 1;
        match run(&candidate, self.bugs, Keep::Hash).ended.violation {
            Some(violation) if violation.invariant == self.violation.invariant => {
                self.best = candidate;
                self.violation = violation;
                (self.progress)(&self.best, self.tries);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Leaves out stretches of a list: halves first, then quarters, down to single items.
    fn leave_out(&mut self, count: fn(&Plan) -> usize, without: fn(&Plan, &[bool]) -> Option<Plan>) -> bool {
        let mut better = false;
        let mut width = count(&self.best).next_power_of_two();
        while width > 0 {
            let mut from = 0;
            while from < count(&self.best) {
                let all = count(&self.best);
                let gone: Vec<bool> = (0..all).map(|at| (from..from + width).contains(&at)).collect();
                if without(&self.best, &gone).is_some_and(|candidate| self.take(candidate)) {
                    better = true;
                } else {
                    from += width;
                }
            }
            width /= 2;
        }
        better
    }

    fn heal_earlier(&mut self) -> bool {
        let mut better = false;
        for parts in [8_u64, 4, 2] {
            let mut candidate = self.best.clone();
            let at = candidate.heal.at.as_micros() / parts;
            candidate.heal.at = SimTime::from_micros(at.max(1_000_000));
            candidate.faults.retain(|fault| fault.at < candidate.heal.at);
            candidate.actions.retain(|action| action.at < candidate.heal.at);
            better |= self.take(candidate);
        }
        better
    }

    /// Makes each fault shorter, smaller and certain.
    fn soften_faults(&mut self) -> bool {
        let steps: [fn(&mut FaultSpec); 4] = [
            |fault| fault.lasts = halved(fault.lasts),
            |fault| fault.amount = halved(fault.amount),
            |fault| fault.count = fault.count.div_ceil(2),
            |fault| fault.chance_ppm = if fault.chance_ppm > 0 { PPM } else { 0 },
        ];
        let mut better = false;
        for at in 0..self.best.faults.len() {
            for step in steps {
                loop {
                    let mut candidate = self.best.clone();
                    step(&mut candidate.faults[at]);
                    if !self.take(candidate) {
                        break;
                    }
                    better = true;
                }
            }
        }
        better
    }

    /// Takes out what is no fault but makes a run harder to follow.
    fn plainer(&mut self) -> bool {
        let steps: [fn(&mut Plan); 5] = [
            |plan| plan.heal.drains = None,
            |plan| plan.heal.dead.clear(),
            |plan| plan.network.recode_ppm = 0,
            |plan| plan.network.notify_loss_ppm = 0,
            |plan| {
                let schedulers = plan.schedulers.iter_mut().map(|spec| &mut spec.process);
                let workers = plan.workers.iter_mut().map(|spec| &mut spec.process);
                schedulers.chain(workers).for_each(|process| process.drift_ppm = 0);
            },
        ];
        let mut better = false;
        for step in steps {
            let mut candidate = self.best.clone();
            step(&mut candidate);
            better |= self.take(candidate);
        }
        better
    }
}

/// Half a span, in whole milliseconds, so that it ends.
fn halved(span: Span) -> Span {
    Span::from_millis(span.divided_by(2).as_millis())
}
