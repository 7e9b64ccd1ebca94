//! Runs: what handlers do, and what the systems that they call see.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencepost_core::effect::StopReason;
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, NodeId};
use fencepost_core::lease::RunId;
use fencepost_core::store::change::Delta;
use fencepost_core::store::command::Command;
use fencepost_core::store::row::ExecutionRow;
use fencepost_core::time::Timestamp;

use super::executions::Executions;
use super::invariant::Invariant;
use super::leases::has_lapsed;
use super::{Commit, EffectAnswer, HandlerEnd, HandlerObservation, Report};
use crate::plan::{Enforcement, OutsideIndex};
use crate::sim_time::SimTime;
use crate::violation::Violation;

/// What is remembered of handlers and of the systems that they call.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// Handlers under way, by execution.
    active: BTreeMap<ExecutionId, Vec<Active>>,
    /// The execution that each key stands for.
    keys: BTreeMap<ExecutionId, Arc<str>>,
    /// The latest run of each execution whose handler reported something without having been told to stop.
    ended: BTreeMap<ExecutionId, FencingToken>,
    /// What was heard of each run that is not finished.
    heard: BTreeMap<RunId, Heard>,
    /// How often each system that enforces keys performed the effect of each key, which replays share.
    performed: BTreeMap<(OutsideIndex, Arc<str>), u32>,
    /// The highest token that each system that enforces tokens has accepted, by key.
    accepted: BTreeMap<(OutsideIndex, Arc<str>), FencingToken>,
}

/// What was heard of a run before it was finished.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    /// What its handler reported.
    pub(super) report: Option<Report>,
    /// Whether its worker gave it up because it took too long.
    pub(super) timed_out: bool,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    node: NodeId,
    run: RunId,
    given_up: bool,
}

impl Runs {
    /// Checks something that a handler, or what it calls, did.
    pub(super) fn check(
        &mut self,
        at: SimTime,
        store_now: Timestamp,
        latest: Timestamp,
        executions: &Executions,
        seen: &HandlerObservation,
    ) -> Result<(), Violation> {
        match seen {
            HandlerObservation::Started { node, run, attempt, key, .. } => {
                check_attempt(at, executions, *run, *attempt)?;
                self.check_start(
                    at,
                    store_now,
                    latest,
                    executions,
                    Active { node: *node, run: *run, given_up: false },
                )?;
                self.check_key(at, *run, key)
            }
            HandlerObservation::GivenUp { node, run, reason } => {
                if *reason == StopReason::Timeout {
                    self.heard.entry(*run).or_default().timed_out = true;
                }
                let active = self.active.get_mut(&run.execution).into_iter().flatten();
                for other in active.filter(|other| other.node == *node && other.run == *run) {
                    other.given_up = true;
                }
                Ok(())
            }
            HandlerObservation::Ended { node, run, how } => {
                if let HandlerEnd::Reported(report) = how {
                    self.heard.entry(*run).or_default().report = Some(*report);
                }
                if let Some(active) = self.active.get_mut(&run.execution) {
                    let mut of_it = active.iter().filter(|other| other.node == *node && other.run == *run);
                    if matches!(how, HandlerEnd::Reported(_)) && of_it.any(|other| !other.given_up) {
                        self.ended.insert(run.execution, run.token);
                    }
                    active.retain(|other| other.node != *node || other.run != *run);
                    if active.is_empty() {
                        self.active.remove(&run.execution);
                    }
                }
                Ok(())
            }
            HandlerObservation::Effect { outside, enforces, run, key, answer } => {
                self.check_key(at, *run, key)?;
                self.check_effect(at, (*outside, key), *enforces, *run, *answer)
            }
        }
    }

    /// What was heard of the run that this change finishes; nothing of any other.
    pub(super) fn take_heard(&mut self, commit: &Commit<'_>, delta: &Delta<ExecutionRow>) -> Heard {
        match (commit.command, &delta.before) {
            (Command::FinishExecutions(_), Some(before)) => {
                let run = RunId { execution: before.id, token: before.token };
                self.heard.remove(&run).unwrap_or_default()
            }
            _ => Heard::default(),
        }
    }

    /// A run whose handler is under way on this node and was not told to stop.
    pub(super) fn at_work(&self, node: NodeId) -> Option<RunId> {
        let mut all = self.active.values().flatten();
        all.find(|active| active.node == node && !active.given_up).map(|active| active.run)
    }

    /// Whether the handler of this run came to an end of its own.
    pub(super) fn has_ended_unasked(&self, run: RunId) -> bool {
        self.ended.get(&run.execution) == Some(&run.token)
    }

    fn check_start(
        &mut self,
        at: SimTime,
        store_now: Timestamp,
        latest: Timestamp,
        executions: &Executions,
        started: Active,
    ) -> Result<(), Violation> {
        let overlap = |detail: String| Err(Invariant::OverlapOnlyAfterExpiry.broken(at, detail));
        let run = started.run;
        let granted = executions.leases.get(&run);
        if granted.is_none_or(|granted| granted.node != started.node) {
            return overlap(format!("{} started {run:?}, whose lease was never granted to it", started.node));
        }
        let active = self.active.entry(run.execution).or_default();
        for other in active.iter() {
            if other.run.token == run.token {
                return overlap(format!(
                    "{} and {} both run {run:?}, under one token",
                    other.node, started.node
                ));
            }
            // The earlier run is the one with the lower token, whichever handler was started first: a process
            // may stand still between deciding on a start and starting.
            let earlier = if run.token < other.run.token { &started } else { other };
            // Against the latest the store's clock has shown as well: a step back does not revive a lease.
            // Where the run was taken over, its lease was judged by the clock that did it; a lease that lay
            // beyond the longest one then may lie within it again by the time of the start.
            let lapsed = executions.leases.get(&earlier.run).is_none_or(|lease| {
                lease.taken_over
                    || has_lapsed(lease.expires_at, store_now)
                    || has_lapsed(lease.expires_at, latest)
            });
            if !earlier.given_up && !lapsed {
                return overlap(format!(
                    "{run:?} started at {store_now} beside {other:?}: {earlier:?} holds its lease"
                ));
            }
        }
        active.push(started);
        Ok(())
    }

    /// The key of an execution never changes, whatever attempt it is.
    fn check_key(&mut self, at: SimTime, run: RunId, key: &Arc<str>) -> Result<(), Violation> {
        let known = self.keys.entry(run.execution).or_insert_with(|| Arc::clone(key));
        if known == key {
            return Ok(());
        }
        let detail = format!("{} had the key {known}, and now {key}", run.execution);
        Err(Invariant::EffectOncePerKey.broken(at, detail))
    }

    fn check_effect(
        &mut self,
        at: SimTime,
        (outside, key): (OutsideIndex, &Arc<str>),
        enforces: Enforcement,
        run: RunId,
        answer: EffectAnswer,
    ) -> Result<(), Violation> {
        if answer != EffectAnswer::Performed {
            return Ok(());
        }
        let place = (outside, Arc::clone(key));
        match enforces {
            Enforcement::Key => {
                let times = self.performed.entry(place).or_default();
                *times += 1;
                if *times > 1 {
                    let detail = format!("the effect of {} was performed {times} times", run.execution);
                    return Err(Invariant::EffectOncePerKey.broken(at, detail));
                }
                Ok(())
            }
            Enforcement::Token => {
                let highest = self.accepted.entry(place).or_default();
                if run.token < *highest {
                    let detail =
                        format!("{} was accepted under {} after {highest}", run.execution, run.token);
                    return Err(Invariant::EffectOncePerKey.broken(at, detail));
                }
                *highest = run.token;
                Ok(())
            }
            Enforcement::Nothing => Ok(()),
        }
    }
}

/// A handler is told which attempt it is: failures before it, plus one.
fn check_attempt(at: SimTime, executions: &Executions, run: RunId, attempt: u32) -> Result<(), Violation> {
    match executions.leases.get(&run) {
        Some(granted) if granted.attempt != attempt => {
            let detail =
                format!("{run:?} is attempt {}, and its handler was told {attempt}", granted.attempt);
            Err(Invariant::AttemptBounds.broken(at, detail))
        }
        Some(_) | None => Ok(()),
    }
}
