//! Handlers: what runs on behalf of a worker, inside its process, and what it calls outside.
//!
//! A handler dies with its process and stands still with it; a call that it has sent does neither. Half-way
//! through it calls a system outside with the idempotency key and the fencing token it was given, and some
//! time after the answer it ends: well, with an error, late, or not by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fencepost_core::effect::{Invocation, StopReason};
use fencepost_core::event::{ErrorClass, HandlerResult};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::JobId;
use fencepost_core::lease::RunId;
use fencepost_core::limits::ERROR_BYTES_MAX;
use fencepost_core::time::Span;

use super::World;
use super::happening::{Happening, Life, RunRef};
use super::node::Input;
use super::role::RoleEvent;
use crate::fault::FaultKind;
use crate::oracle::{EffectAnswer, HandlerEnd, HandlerObservation, Report, Standing};
use crate::plan::{Behaviour, BehaviourKind, Enforcement, FaultSpec, OutsideIndex, OutsideSpec, RETRY_AFTER};

/// A handler at work.
#[derive(Debug)]
pub(super) struct HandlerRun {
    serial: u32,
    life: Life,
    run: RunId,
    key: Arc<str>,
    behaviour: Behaviour,
    /// Whether what goes wrong with this job goes wrong in this run.
    troubled: bool,
    /// How long it goes on after its call was answered.
    rest: Span,
    /// What its call came to.
    answer: Option<EffectAnswer>,
    /// Whether it was told to stop, and will.
    stopping: bool,
}

/// A call on its way to a system outside; it arrives whatever becomes of its sender.
#[derive(Debug)]
pub(super) struct EffectCall {
    run: RunRef,
    id: RunId,
    key: Arc<str>,
    outside: OutsideIndex,
}

/// A system that handlers call.
#[derive(Debug)]
pub(super) struct Outside {
    enforces: Enforcement,
    keys: BTreeSet<Arc<str>>,
    /// The highest token seen, by key: a replay goes on where its origin ended.
    tokens: BTreeMap<Arc<str>, FencingToken>,
    troubles: Vec<(u16, FaultSpec)>,
}

impl Outside {
    pub(super) fn new(spec: &OutsideSpec) -> Self {
        Self { enforces: spec.enforces, keys: BTreeSet::new(), tokens: BTreeMap::new(), troubles: Vec::new() }
    }

    pub(super) fn begin(&mut self, index: u16, fault: &FaultSpec) {
        self.troubles.push((index, *fault));
    }

    pub(super) fn end(&mut self, index: u16) {
        self.troubles.retain(|(active, _)| *active != index);
    }

    fn is_down(&self) -> bool {
        self.troubles.iter().any(|(_, fault)| fault.kind == FaultKind::OutsideDown)
    }

    fn slowed_by(&self) -> Option<Span> {
        let slow = self.troubles.iter().filter(|(_, fault)| fault.kind == FaultKind::OutsideSlow);
        slow.map(|(_, fault)| fault.amount).max()
    }

    fn receive(&mut self, run: RunId, key: &Arc<str>) -> EffectAnswer {
        if self.is_down() {
            return EffectAnswer::Down;
        }
        match self.enforces {
            Enforcement::Nothing => EffectAnswer::Performed,
            Enforcement::Key if self.keys.insert(Arc::clone(key)) => EffectAnswer::Performed,
            Enforcement::Key => EffectAnswer::Repeated,
            Enforcement::Token => {
                let highest = self.tokens.entry(Arc::clone(key)).or_insert(run.token);
                if *highest > run.token {
                    return EffectAnswer::Refused;
                }
                *highest = run.token;
                EffectAnswer::Performed
            }
        }
    }
}

impl World<'_> {
    pub(super) fn start_handler(&mut self, life: Life, invocation: Invocation, standing: Standing) {
        let Invocation { run, attempt, message } = invocation;
        let behaviour = self.behaviour_of(message.job);
        let token = u32::try_from(run.token.as_i64()).unwrap_or(u32::MAX);
        let troubled = behaviour.kind != BehaviourKind::Succeeds && token <= behaviour.times;
        let whole = self.streams.handlers.span(behaviour.least, behaviour.most);
        let serial = self.next_serial();
        let place = self.runs.insert(HandlerRun {
            serial,
            life,
            run,
            key: Arc::clone(&message.key),
            behaviour,
            troubled,
            rest: whole.minus(whole.divided_by(2)),
            answer: None,
            stopping: false,
        });
        if troubled {
            self.counts.count(fault_of(behaviour.kind));
        }
        let seen = HandlerObservation::Started {
            node: self.nodes[life.slot.index()].id,
            run,
            job: message.job,
            attempt,
            key: Arc::clone(&message.key),
            standing: Some(standing),
        };
        self.observe(&seen);
        let run = RunRef { place, serial };
        self.queue.push(self.now.plus(whole.divided_by(2)), Happening::HandlerActs { run });
    }

    fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }

    fn behaviour_of(&self, job: JobId) -> Behaviour {
        match self.job_places.get(&job) {
            Some(index) => self.plan.jobs[index.index()].behaviour,
            None => unreachable!("a handler runs for a job of the plan, not for {job}"),
        }
    }

    fn observe(&mut self, seen: &HandlerObservation) {
        let store_now = self.store_clock.read(self.now);
        let verdict = self.oracles.on_handler(self.now, store_now, seen);
        self.judge(verdict);
    }

    /// The run, if it is still the one that was meant.
    fn live_run(&mut self, run: RunRef) -> Option<&mut HandlerRun> {
        self.runs.get_mut(run.place).filter(|found| found.serial == run.serial)
    }

    pub(super) fn on_handler_acts(&mut self, run: RunRef) {
        if let Some(life) = self.live_run(run).map(|found| found.life) {
            self.put(life, Input::HandlerActs(run));
        }
    }

    /// Half-way: it makes its call.
    pub(super) fn handler_acts(&mut self, run: RunRef) {
        let Some(found) = self.live_run(run) else { return };
        if found.stopping {
            return;
        }
        let (id, key, outside) = (found.run, Arc::clone(&found.key), found.behaviour.calls);
        let mut delay = self.plan.network.outside.draw(&mut self.streams.handlers);
        if let Some(most) = self.outside[outside.index()].slowed_by() {
            delay = delay.plus(self.streams.handlers.span(Span::ZERO, most));
            self.counts.count(FaultKind::OutsideSlow);
        }
        let effect = self.effects.insert(EffectCall { run, id, key, outside });
        self.queue.push(self.now.plus(delay), Happening::EffectArrives { effect });
    }

    pub(super) fn on_effect_arrives(&mut self, effect: u32) {
        let EffectCall { run, id, key, outside } = self.effects.take(effect).expect("a call arrives once");
        let system = &mut self.outside[outside.index()];
        let enforces = system.enforces;
        let answer = system.receive(id, &key);
        if answer == EffectAnswer::Down {
            self.counts.count(FaultKind::OutsideDown);
        }
        self.observe(&HandlerObservation::Effect { outside, enforces, run: id, key, answer });
        let back = self.plan.network.outside.draw(&mut self.streams.handlers);
        let Some(found) = self.live_run(run) else { return };
        found.answer = Some(answer);
        let hangs = found.troubled && found.behaviour.kind == BehaviourKind::Hangs;
        if !found.stopping && !hangs {
            let at =
                self.now.plus(back).plus(self.runs.get(run.place).map_or(Span::ZERO, |found| found.rest));
            self.queue.push(at, Happening::HandlerEnds { run });
        }
    }

    pub(super) fn on_handler_ends(&mut self, run: RunRef) {
        if let Some(life) = self.live_run(run).map(|found| found.life) {
            self.put(life, Input::HandlerEnds(run));
        }
    }

    pub(super) fn handler_ends(&mut self, run: RunRef) {
        if self.live_run(run).is_none() {
            return;
        }
        let found = self.runs.take(run.place).expect("it was there");
        let life = found.life;
        let crashes = found.troubled && found.behaviour.kind == BehaviourKind::CrashesWorker;
        if crashes && !found.stopping {
            // Back in its place: it ends with its process.
            let slot = life.slot;
            self.runs.insert(found);
            let after = self.nodes[slot.index()].spec.restart_after;
            self.crash(slot, Some(after));
            return;
        }
        let result = if found.stopping { HandlerResult::Stopped } else { result_of(&found) };
        let how = end_of(&result);
        let node = self.nodes[life.slot.index()].id;
        self.observe(&HandlerObservation::Ended { node, run: found.run, how });
        self.deliver(life, RoleEvent::HandlerFinished { run: found.run, result });
    }

    /// A worker tells a handler to stop. Most do, a moment later.
    pub(super) fn stop_handler(&mut self, life: Life, run: RunId, reason: StopReason) {
        // Also of one that has ended where its worker has not looked yet: its worker decides without it.
        let node = self.nodes[life.slot.index()].id;
        self.observe(&HandlerObservation::GivenUp { node, run, reason });
        let place = self.runs.iter().find(|(_, found)| found.life == life && found.run == run);
        let Some(place) = place.map(|(place, _)| place) else { return };
        let delay = self.streams.handlers.span(Span::from_micros(100), Span::from_millis(200));
        let found = self.runs.get_mut(place).expect("it was found");
        let deaf = found.troubled && found.behaviour.kind == BehaviourKind::Deaf;
        if deaf || found.stopping {
            return;
        }
        // Under another serial: what was to happen to it otherwise does not happen any more.
        self.serial = self.serial.wrapping_add(1);
        let found = self.runs.get_mut(place).expect("it was found");
        found.serial = self.serial;
        found.stopping = true;
        let run = RunRef { place, serial: self.serial };
        self.queue.push(self.now.plus(delay), Happening::HandlerEnds { run });
    }

    /// A process's handlers die with it.
    pub(super) fn end_runs_of(&mut self, life: Life) {
        let of_it: Vec<u32> =
            self.runs.iter().filter(|(_, found)| found.life == life).map(|(place, _)| place).collect();
        let node = self.nodes[life.slot.index()].id;
        for place in of_it {
            let found = self.runs.take(place).expect("it was found");
            self.observe(&HandlerObservation::Ended { node, run: found.run, how: HandlerEnd::Died });
        }
    }
}

/// A handler's end as the oracles are told it.
fn end_of(result: &HandlerResult) -> HandlerEnd {
    match result {
        HandlerResult::Completed => HandlerEnd::Reported(Report::Completed),
        HandlerResult::Failed { class: ErrorClass::Retryable, retry_after, .. } => {
            HandlerEnd::Reported(Report::FailedRetryably { wish: *retry_after })
        }
        HandlerResult::Failed { class: ErrorClass::NonRetryable, .. } => {
            HandlerEnd::Reported(Report::FailedForGood)
        }
        HandlerResult::Stopped => HandlerEnd::Stopped,
    }
}

/// What a handler reports that was not told to stop.
fn result_of(found: &HandlerRun) -> HandlerResult {
    let failed = |class, error: Arc<str>, retry_after| HandlerResult::Failed { class, error, retry_after };
    match found.answer {
        Some(EffectAnswer::Down) => {
            return failed(ErrorClass::Retryable, "the system outside is down".into(), None);
        }
        Some(EffectAnswer::Refused) => {
            return failed(ErrorClass::NonRetryable, "the system outside refused a stale token".into(), None);
        }
        Some(EffectAnswer::Performed | EffectAnswer::Repeated) | None => {}
    }
    if !found.troubled {
        return HandlerResult::Completed;
    }
    match found.behaviour.kind {
        BehaviourKind::Succeeds
        | BehaviourKind::Slow
        | BehaviourKind::Hangs
        | BehaviourKind::Deaf
        | BehaviourKind::CrashesWorker => HandlerResult::Completed,
        BehaviourKind::FailsRetryably => failed(ErrorClass::Retryable, "it did not work".into(), None),
        BehaviourKind::FailsWithWish => {
            failed(ErrorClass::Retryable, "too many requests".into(), Some(RETRY_AFTER))
        }
        BehaviourKind::FailsForGood => failed(ErrorClass::NonRetryable, "it cannot work".into(), None),
        BehaviourKind::FailsAtLength => {
            // Characters of several bytes: a cut at a fixed byte would fall into one.
            failed(ErrorClass::Retryable, "é".repeat(ERROR_BYTES_MAX).into(), None)
        }
        BehaviourKind::AnswerLost => failed(ErrorClass::Retryable, "the answer was lost".into(), None),
    }
}

fn fault_of(kind: BehaviourKind) -> FaultKind {
    match kind {
        BehaviourKind::Slow => FaultKind::HandlerSlow,
        BehaviourKind::FailsRetryably | BehaviourKind::FailsWithWish => FaultKind::HandlerFailsRetryably,
        BehaviourKind::FailsForGood => FaultKind::HandlerFailsForGood,
        BehaviourKind::FailsAtLength => FaultKind::HandlerOutputTooLarge,
        BehaviourKind::Hangs => FaultKind::HandlerHangs,
        BehaviourKind::Deaf => FaultKind::HandlerDeaf,
        BehaviourKind::CrashesWorker => FaultKind::HandlerCrashesWorker,
        BehaviourKind::AnswerLost => FaultKind::HandlerAnswerLost,
        BehaviourKind::Succeeds => unreachable!("nothing goes wrong in a handler that succeeds"),
    }
}
