//! Runs: from the start of a handler to the decision how its run ended.
//!
//! A run is one execution under one execution lease. Its stages are those of [`Stage`]; a handler is told
//! to stop at most once for each reason, and the first one decides what its stop means. The attempt timeout
//! is measured on this worker's own clock from the start of the handler.
//!
//! **Handlers that do not stop.** At the attempt timeout a handler is given up: its run is decided at once,
//! whatever it does later. Until it reports its end it *lingers*: it keeps its slot, so that a slow stop
//! does not lead to more handlers than slots, but for one lease time at most, so that hung handlers cannot
//! starve the worker. After that it is forgotten here; ending what will not end is up to the interpreter.
//! The same holds for handlers whose lease was lost.
//!
//! Slots are held by runs until their outcome is durable, and by lingering handlers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::bug::Bug;
use crate::effect::{Invocation, StopReason, WorkerEffect};
use crate::event::{ErrorClass, HandlerResult};
use crate::fact::Fact;
use crate::fencing::FencingToken;
use crate::id::ExecutionId;
use crate::lease::RunId;
use crate::limits::ATTEMPT_TIMEOUT_MAX;
use crate::mark::{self, Mark};
use crate::message::ExecutionMessage;
use crate::store::command::RunOutcome;
use crate::store::reply::Grant;
use crate::time::{Monotonic, Span};
use crate::worker::finish::Decided;
use crate::worker::intake::{Arrival, Receipt};
use crate::worker::{Worker, verdict};

/// All runs whose outcome is not durable yet, and the handlers that outlive theirs.
#[derive(Debug)]
pub(super) struct Runs {
    runs: BTreeMap<RunId, Run>,
    /// When attempts time out: of the runs without an outcome.
    timeouts: BTreeSet<(Monotonic, RunId)>,
    /// Handlers whose run is decided without them, and until when they keep a slot.
    lingering: BTreeMap<RunId, Monotonic>,
    /// The same by time.
    lingering_until: BTreeSet<(Monotonic, RunId)>,
}

/// One run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) message: Arc<ExecutionMessage>,
    pub(super) receipt: Receipt,
    /// Which attempt: 1 for the first.
    pub(super) attempt: u32,
    /// How long past its due time the execution was when its lease was asked for.
    age: Span,
    /// When that was, on this worker's clock.
    age_at: Monotonic,
    /// When its deadline comes, on this worker's clock: counted from the sending of the acquire, so rather too soon.
    deadline: Option<Monotonic>,
    /// The sending that its lease is counted from.
    pub(super) basis: Monotonic,
    /// When its handler was started; `None` if it never was.
    pub(super) started_at: Option<Monotonic>,
    times_out_at: Monotonic,
    pub(super) stage: Stage,
}

/// Where a run stands. In lifecycle order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its handler runs.
    Running,
    /// Told to stop because an operator asked.
    Cancelling,
    /// Told to stop because its lease is not trusted any more; not renewed.
    Lapsed,
    /// Told to stop because the worker drains.
    Draining,
    /// Decided; the outcome is to be made durable.
    Ended,
}

impl Run {
    /// How old the execution is at `now`.
    pub(super) fn age(&self, now: Monotonic) -> Span {
        self.age.plus(now.since(self.age_at))
    }

    /// How long its deadline leaves it at `now`.
    pub(super) fn left(&self, now: Monotonic) -> Option<Span> {
        self.deadline.map(|at| at.since(now))
    }

    /// Whether nothing is decided about it yet.
    pub(super) fn is_under_way(&self) -> bool {
        match self.stage {
            Stage::Running | Stage::Cancelling | Stage::Lapsed | Stage::Draining => true,
            Stage::Ended => false,
        }
    }

    /// The call of its handler.
    pub(super) fn invocation(&self, run: RunId) -> Invocation {
        Invocation { run, attempt: self.attempt, message: Arc::clone(&self.message) }
    }
}

impl Runs {
    pub(super) const fn new() -> Self {
        Self {
            runs: BTreeMap::new(),
            timeouts: BTreeSet::new(),
            lingering: BTreeMap::new(),
            lingering_until: BTreeSet::new(),
        }
    }

    pub(super) fn get(&self, id: RunId) -> Option<&Run> {
        self.runs.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: RunId) -> Option<&mut Run> {
        self.runs.get_mut(&id)
    }

    /// The run of this execution with the latest token.
    pub(super) fn latest_of(&self, execution: ExecutionId) -> Option<(RunId, &Run)> {
        let first = RunId { execution, token: FencingToken::from_i64(i64::MIN) };
        let last = RunId { execution, token: FencingToken::from_i64(i64::MAX) };
        self.runs.range(first..=last).next_back().map(|(id, run)| (*id, run))
    }

    /// A run of the same execution under an older token that is not decided yet.
    pub(super) fn undecided_before(&self, newer: RunId) -> Option<RunId> {
        let first = RunId { execution: newer.execution, token: FencingToken::from_i64(i64::MIN) };
        self.runs.range(first..newer).find(|(_, run)| run.is_under_way()).map(|(id, _)| *id)
    }

    pub(super) fn set_receipt(&mut self, id: RunId, receipt: Receipt) {
        if let Some(run) = self.runs.get_mut(&id) {
            run.receipt = receipt;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs that nothing is decided about yet.
    pub(super) fn undecided(&self) -> impl Iterator<Item = RunId> {
        self.runs.iter().filter(|(_, run)| run.is_under_way()).map(|(id, _)| *id)
    }

    /// Whether every handler that was given up has ended, or is forgotten.
    pub(super) fn is_silent(&self) -> bool {
        self.lingering.is_empty()
    }

    /// How many slots are taken.
    pub(super) fn holding_slots(&self) -> usize {
        self.runs.len() + self.lingering.len()
    }

    /// When the next attempt times out.
    pub(super) fn times_out_at(&self) -> Option<Monotonic> {
        self.timeouts.first().map(|(at, _)| *at)
    }

    /// When the next lingering handler loses its slot.
    fn slot_freed_at(&self) -> Option<Monotonic> {
        self.lingering_until.first().map(|(at, _)| *at)
    }

    /// A handler that was given up keeps its slot until then.
    pub(super) fn linger(&mut self, id: RunId, until: Monotonic) {
        if self.lingering.insert(id, until).is_none() {
            self.lingering_until.insert((until, id));
        }
    }

    fn lingers_no_more(&mut self, id: RunId) {
        if let Some(until) = self.lingering.remove(&id) {
            self.lingering_until.remove(&(until, id));
        }
    }
}

impl Worker {
    /// Starts the handler of a run whose lease was granted and is trusted.
    pub(super) fn start(
        &mut self,
        now: Monotonic,
        id: RunId,
        arrival: Arrival,
        grant: &Grant,
        asked_at: Monotonic,
        basis: Monotonic,
    ) {
        let attempt = grant.attempts.saturating_add(1);
        let message = self.message_to_run(&arrival, attempt);
        let times_out_at = now.plus(message.attempt_timeout.min(ATTEMPT_TIMEOUT_MAX));
        let deadline = grant.left.map(|left| basis.plus(left));
        let times_out_at = deadline.map_or(times_out_at, |deadline| deadline.min(times_out_at));
        let receipt = self.receipt_at_start(&arrival);
        let run = Run {
            message,
            receipt,
            attempt,
            age: grant.age,
            age_at: asked_at,
            deadline,
            basis,
            started_at: Some(now),
            times_out_at,
            stage: Stage::Running,
        };
        let (lag, due_lag) = (now.since(arrival.received_at), run.age(now));
        let received_at = run.message.due_at.plus(grant.age).minus(basis.since(arrival.received_at));
        let queue_lag = received_at.since(run.message.published_at());
        let mut invocation = run.invocation(id);
        if self.config.bugs.has(Bug::AttemptMiscounted) {
            invocation.attempt = grant.attempts;
        }
        self.effects.push_back(WorkerEffect::StartHandler(invocation));
        let priority = run.message.priority;
        self.report(Fact::RunStarted { run: id, priority, attempt, queue_lag, lag, due_lag });
        self.leases.hold(basis, id);
        if !self.config.bugs.has(Bug::NoAttemptTimeout) {
            self.runs.timeouts.insert((times_out_at, id));
        }
        self.runs.runs.insert(id, run);
    }

    fn message_to_run(&self, arrival: &Arrival, attempt: u32) -> Arc<ExecutionMessage> {
        if !self.config.bugs.has(Bug::KeyPerAttempt) {
            return Arc::clone(&arrival.message);
        }
        let key = format!("{}#{attempt}", arrival.message.key).into();
        Arc::new(ExecutionMessage { key, ..(*arrival.message).clone() })
    }

    /// Gives a granted lease back without having started its handler.
    pub(super) fn give_back(&mut self, now: Monotonic, id: RunId, arrival: Arrival, outcome: RunOutcome) {
        let run = Run {
            message: arrival.message,
            receipt: Receipt::Owed(arrival.delivery),
            attempt: 0,
            age: Span::ZERO,
            age_at: now,
            deadline: None,
            basis: now,
            started_at: None,
            times_out_at: Monotonic::MAX,
            stage: Stage::Ended,
        };
        self.runs.runs.insert(id, run);
        self.finishes.push(Decided { run: id, outcome, at: now });
    }

    /// A handler came to its end.
    pub(super) fn handler_finished(&mut self, now: Monotonic, id: RunId, result: &HandlerResult) {
        self.runs.lingers_no_more(id);
        self.decide(now, id, result);
    }

    /// Decides how a run ends, unless that is decided already.
    fn decide(&mut self, now: Monotonic, id: RunId, result: &HandlerResult) {
        let Some(run) = self.runs.runs.get_mut(&id) else { return };
        if !run.is_under_way() {
            return;
        }
        let Some(outcome) = verdict::of(run, id.execution, now, result, self.config.bugs) else {
            self.forget(id);
            return;
        };
        run.stage = Stage::Ended;
        self.leases.let_lapse(run.basis, id);
        self.runs.timeouts.remove(&(run.times_out_at, id));
        self.finishes.push(Decided { run: id, outcome, at: now });
    }

    /// Attempts that take too long are given up: decided at once, their handlers told to stop.
    pub(super) fn time_out(&mut self, now: Monotonic) {
        while let Some((at, id)) = self.runs.timeouts.first().copied()
            && at <= now
        {
            self.runs.timeouts.pop_first();
            let Some(run) = self.runs.get(id) else { continue };
            mark::hit(Mark::AttemptTimedOut);
            let result = match run.stage {
                Stage::Running => HandlerResult::Failed {
                    class: ErrorClass::Retryable,
                    error: match run.left(now) {
                        Some(Span::ZERO) => {
                            mark::hit(Mark::AttemptMetDeadline);
                            "the attempt was stopped at the deadline of its execution".into()
                        }
                        Some(_) | None => {
                            format!("the attempt timed out after {}", run.message.attempt_timeout).into()
                        }
                    },
                    retry_after: None,
                },
                // Told to stop before: it counts as stopped for that.
                Stage::Cancelling | Stage::Lapsed | Stage::Draining | Stage::Ended => HandlerResult::Stopped,
            };
            self.effects.push_back(WorkerEffect::StopHandler { run: id, reason: StopReason::Timeout });
            self.runs.linger(id, now.plus(self.config.lease_ttl));
            self.decide(now, id, &result);
        }
    }

    /// Whether no lingering handler is to lose its slot, whatever time it takes: what the bug of that name does.
    fn waits_for_lingering(&self) -> bool {
        self.is_draining() && self.config.bugs.has(Bug::DrainWaitsForHandlers)
    }

    /// When the next lingering handler loses its slot.
    pub(super) fn slot_freed_at(&self) -> Option<Monotonic> {
        if self.waits_for_lingering() { None } else { self.runs.slot_freed_at() }
    }

    /// Lingering handlers lose their slots in the end.
    pub(super) fn free_lingering(&mut self, now: Monotonic) {
        if self.waits_for_lingering() {
            return;
        }
        while let Some((until, id)) = self.runs.lingering_until.first().copied()
            && until <= now
        {
            self.runs.lingers_no_more(id);
        }
    }

    /// Tells every handler to stop because the worker drains.
    pub(super) fn stop_for_drain(&mut self) {
        for (id, run) in &mut self.runs.runs {
            match run.stage {
                Stage::Running => {
                    run.stage = Stage::Draining;
                    let reason = StopReason::Drain;
                    self.effects.push_back(WorkerEffect::StopHandler { run: *id, reason });
                }
                Stage::Cancelling | Stage::Lapsed | Stage::Draining | Stage::Ended => {}
            }
        }
    }

    /// Forgets a run and gives what is owed for its message: its fate is durable, or the store's sweep
    /// decides it.
    pub(super) fn forget(&mut self, id: RunId) -> Option<Run> {
        let run = self.runs.runs.remove(&id)?;
        if run.is_under_way() || self.config.bugs.has(Bug::FinishSentOnce) {
            self.runs.timeouts.remove(&(run.times_out_at, id));
            self.leases.let_lapse(run.basis, id);
        }
        self.settle(&run);
        Some(run)
    }
}
