//! The life of a process: it starts, takes events in, sends what it decided on, stands still, dies, drains.
//!
//! Between the moment at which a role decides on an effect and the moment at which it is sent lies a gap, and
//! a process may stand still or die in it. That gap is where most of a distributed system's mistakes live, so
//! the world can stop a process at any effect, and send what it held when it goes on, however much later.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::job::HandlerName;
use fencepost_core::store::StoreOutcome;
use fencepost_core::time::Span;

use super::World;
use super::happening::{Happening, Life};
use super::node::{AfterDrain, CrashLoop, Drain, FencedPause, Input, Node, Status, Trap, later_id};
use super::role::{Recorder, Role, RoleEffect, RoleEvent};
use super::store_calls::Caller;
use super::traffic::ConsumerSide;
use crate::fault::FaultKind;
use crate::oracle::DrainEnd;
use crate::oracle::invariant::Invariant;
use crate::plan::{NodeSlot, Plan};
use crate::rng::PPM;
use crate::sim_time::SimTime;
use crate::timeline::Moment;
use crate::trace::Line;

/// How long after its limit a drain is looked for: what ends it may be under way at that very moment.
const DRAIN_SLACK: Span = Span::from_secs(1);

/// What the trace says about processes.
#[derive(Debug, Hash)]
enum Note {
    Starts(fencepost_core::id::NodeId),
    Dies,
    StandsStill(Span),
    GoesOn,
    Drained,
}

/// What a trap does when it springs.
enum Sprung {
    Pause(Span),
    PauseUntilFenced(FencedPause),
    CrashBefore(Span),
    CrashAfter(Span),
}

impl World<'_> {
    /// The process of this life, if it is still the one in its slot and not down.
    pub(super) fn node_of(&self, life: Life) -> Option<&Node> {
        let node = &self.nodes[life.slot.index()];
        (node.incarnation == life.incarnation && !node.is_down()).then_some(node)
    }

    fn note(&mut self, slot: NodeSlot, note: &Note) {
        self.trace.absorb(self.now, slot.lane(), Line::World, note);
    }

    pub(super) fn on_start(&mut self, life: Life) {
        let slot = life.slot;
        let node = &mut self.nodes[slot.index()];
        if !node.is_down() || node.dead || life.incarnation != node.incarnation + 1 {
            return;
        }
        node.incarnation = life.incarnation;
        node.status = Status::Up;
        node.armed = None;
        node.drain = None;
        node.consumer = ConsumerSide::default();
        if let Some(crash_loop) = &mut node.crash_loop {
            crash_loop.left = crash_loop.every;
        }
        let bugs = self.bugs;
        let (role, id) = if self.plan.is_scheduler(slot) {
            let mut config = self.plan.schedulers[slot.index()].config.clone();
            config.node = later_id(config.node, life.incarnation);
            config.schema += node.upgrades;
            config.bugs = bugs;
            let id = config.node;
            (Role::scheduler(config), id)
        } else {
            let mut config = self.plan.workers[slot.index() - self.plan.schedulers.len()].config.clone();
            config.node = later_id(config.node, life.incarnation);
            config.schema += node.upgrades;
            config.bugs = bugs;
            if self.recovery.is_some() {
                config.handlers = all_handlers(self.plan);
            }
            let id = config.node;
            (Role::worker(config), id)
        };
        node.role = Some(role);
        node.id = id;
        if life.incarnation > 1 {
            self.counts.count(FaultKind::NewNodeId);
        }
        self.note(slot, &Note::Starts(id));
        self.measures.on_start(slot, id, self.now);
        self.timeline.mark(self.now, slot, Moment::Started);
        self.handle(life, RoleEvent::Tick);
    }

    pub(super) fn start_after(&mut self, slot: NodeSlot, after: Span) {
        let incarnation = self.nodes[slot.index()].incarnation + 1;
        self.queue.push(self.now.plus(after), Happening::Start { life: Life { slot, incarnation } });
    }

    /// Something for a process: taken in now, later if it stands still, or never.
    pub(super) fn deliver(&mut self, life: Life, event: RoleEvent) {
        self.put(life, Input::Event(event));
    }

    pub(super) fn put(&mut self, life: Life, input: Input) {
        let Some(node) = self.node_of(life) else { return };
        if node.stands_still() {
            self.nodes[life.slot.index()].inbox.push_back(input);
        } else {
            self.take_in_input(life, input);
        }
    }

    fn take_in_input(&mut self, life: Life, input: Input) {
        match input {
            Input::Event(event) => self.handle(life, event),
            Input::HandlerActs(run) => self.handler_acts(run),
            Input::HandlerEnds(run) => self.handler_ends(run),
        }
    }

    fn handle(&mut self, life: Life, event: RoleEvent) {
        match &event {
            RoleEvent::ConsumerLost { epoch } => self.on_consumer_lost(life, *epoch),
            // What comes from a consumer that is known to be gone is not passed on.
            RoleEvent::Delivered { delivery, .. }
                if !self.nodes[life.slot.index()].consumer.takes_from(delivery.epoch) =>
            {
                return;
            }
            RoleEvent::StoreReplied { outcome: StoreOutcome::Replied(reply), .. } => {
                self.oracles.on_heard(self.nodes[life.slot.index()].id, reply);
            }
            RoleEvent::DrainRequested => self.drain_begins(life),
            RoleEvent::Delivered { .. }
            | RoleEvent::Tick
            | RoleEvent::StoreReplied { outcome: StoreOutcome::Unknown, .. }
            | RoleEvent::Published { .. }
            | RoleEvent::Notified { .. }
            | RoleEvent::HandlerFinished { .. } => {}
        }
        self.events += 1;
        let node = &mut self.nodes[life.slot.index()];
        let now = node.clock.read(self.now);
        let role = node.role.as_mut().expect("a process that is up has its role");
        let recorder = Recorder { trace: &mut self.trace, at: self.now, lane: life.slot.lane() };
        role.handle(now, event, recorder);
        let slowed = self.slow_down(life.slot);
        self.send_all(life, slowed == Slowed::BeforeSending);
        self.count_towards_crash(life);
        self.arm(life);
    }

    /// A slow process stands still for a moment after each event; half the time before it sends.
    fn slow_down(&mut self, slot: NodeSlot) -> Slowed {
        let Some((_, most)) = self.nodes[slot.index()].slow else { return Slowed::No };
        let span = self.streams.processes.long_tailed(Span::from_micros(10), most);
        self.counts.count(FaultKind::SlowNode);
        self.stand_still(slot, self.now.plus(span));
        if self.streams.processes.chance(PPM / 2) { Slowed::BeforeSending } else { Slowed::AfterSending }
    }

    /// Takes every effect from the role and sends it, or holds it back from the first one on that a fault
    /// stops at.
    fn send_all(&mut self, life: Life, hold: bool) {
        let mut hold = hold;
        loop {
            let node = &mut self.nodes[life.slot.index()];
            let Some(role) = node.role.as_mut() else { return };
            let recorder = Recorder { trace: &mut self.trace, at: self.now, lane: life.slot.lane() };
            let Some(effect) = role.poll_effect(recorder) else { return };
            if hold {
                node.held.push_back(effect);
                continue;
            }
            match self.spring(life.slot, &effect) {
                None => self.send(life, effect),
                Some(Sprung::Pause(span)) => {
                    self.nodes[life.slot.index()].held.push_back(effect);
                    self.pause(life.slot, span);
                    hold = true;
                }
                Some(Sprung::PauseUntilFenced(fenced)) => {
                    let node = &mut self.nodes[life.slot.index()];
                    node.held.push_back(effect);
                    let span = fenced.until.since(self.now);
                    node.fenced = Some(fenced);
                    self.pause(life.slot, span);
                    hold = true;
                }
                Some(Sprung::CrashBefore(down)) => self.crash(life.slot, Some(down)),
                Some(Sprung::CrashAfter(down)) => {
                    self.send(life, effect);
                    self.crash(life.slot, Some(down));
                }
            }
            if self.node_of(life).is_none() {
                return;
            }
        }
    }

    /// Whether a trap springs at the effect that is about to be sent.
    fn spring(&mut self, slot: NodeSlot, effect: &RoleEffect) -> Option<Sprung> {
        let node = &mut self.nodes[slot.index()];
        if node.traps.is_empty() {
            return None;
        }
        for trap in &mut node.traps {
            let for_writes = matches!(
                self.plan.faults[usize::from(trap.fault)].kind,
                FaultKind::PauseBeforeWrite | FaultKind::PauseUntilFenced
            );
            if !for_writes || effect.is_fenced_write() {
                trap.left = trap.left.saturating_sub(1);
            }
        }
        let at = node.traps.iter().position(|trap| trap.left == 0)?;
        let Trap { fault, .. } = node.traps.remove(at);
        let spec = self.plan.faults[usize::from(fault)];
        self.counts.count(spec.kind);
        match spec.kind {
            FaultKind::PauseBeforeSend | FaultKind::PauseBeforeWrite => Some(Sprung::Pause(spec.lasts)),
            FaultKind::PauseUntilFenced => Some(Sprung::PauseUntilFenced(FencedPause {
                fences: effect.fences(),
                until: self.now.plus(spec.lasts),
                longer: spec.amount,
            })),
            FaultKind::CrashBeforeEffect => Some(Sprung::CrashBefore(spec.lasts)),
            FaultKind::CrashAfterEffect => Some(Sprung::CrashAfter(spec.lasts)),
            other => unreachable!("{other} is no trap"),
        }
    }

    fn send(&mut self, life: Life, effect: RoleEffect) {
        match effect {
            RoleEffect::Store { id, command } => {
                self.call_store(Caller::Node { life, effect: id }, command);
            }
            RoleEffect::Publish { id, messages } => self.publish(life, id, messages),
            RoleEffect::Consume { prefetch } => self.consume(life, prefetch),
            RoleEffect::StopConsuming => self.stop_consuming(life),
            RoleEffect::Ack { delivery } => self.acknowledge(life, delivery),
            RoleEffect::StartHandler(invocation, standing) => self.start_handler(life, invocation, standing),
            RoleEffect::StopHandler { run, reason } => self.stop_handler(life, run, reason),
            RoleEffect::Report => {}
            RoleEffect::Drained => self.drained(life),
        }
    }

    fn count_towards_crash(&mut self, life: Life) {
        let Some(node) = self.node_of(life) else { return };
        let Some(CrashLoop { left, restart_after, .. }) = node.crash_loop else { return };
        if let Some(crash_loop) = &mut self.nodes[life.slot.index()].crash_loop {
            crash_loop.left = left.saturating_sub(1);
        }
        if left <= 1 {
            self.counts.count(FaultKind::CrashLoop);
            self.crash(life.slot, Some(restart_after));
        }
    }

    /// Sets the process's timer to when its role wants to be woken.
    fn arm(&mut self, life: Life) {
        let Some(node) = self.node_of(life) else { return };
        let Some(at) = node.role.as_ref().and_then(Role::next_wakeup) else { return };
        let when = node.clock.when(at, self.now);
        if when == SimTime::MAX || node.armed.is_some_and(|armed| armed <= when) {
            return;
        }
        self.nodes[life.slot.index()].armed = Some(when);
        self.queue.push(when, Happening::Wake { life });
    }

    pub(super) fn on_wake(&mut self, life: Life) {
        let Some(node) = self.node_of(life) else { return };
        // Timers that were overtaken by an earlier one stay in the queue and are nobody's.
        if node.armed != Some(self.now) {
            return;
        }
        let stands_still = node.stands_still();
        let node = &mut self.nodes[life.slot.index()];
        node.armed = None;
        if stands_still {
            return;
        }
        let due = node.role.as_ref().and_then(Role::next_wakeup);
        if due.is_some_and(|at| at <= node.clock.read(self.now)) {
            self.handle(life, RoleEvent::Tick);
        } else {
            self.arm(life);
        }
    }

    /// The clock of this process was changed: its timer stands elsewhere now.
    pub(super) fn rearm(&mut self, slot: NodeSlot) {
        let life = self.nodes[slot.index()].life();
        self.nodes[slot.index()].armed = None;
        self.arm(life);
    }

    /// The process stands still for a while; while it does, what comes for it waits.
    pub(super) fn pause(&mut self, slot: NodeSlot, span: Span) {
        if self.nodes[slot.index()].is_down() {
            return;
        }
        self.note(slot, &Note::StandsStill(span));
        self.timeline.mark(self.now, slot, Moment::StoodStill(self.now.plus(span)));
        self.measures.on_lost(slot, self.now);
        self.stand_still(slot, self.now.plus(span));
    }

    /// Something was committed: who stood still before a write that has lost its token by that goes on, soon
    /// enough to be in the way of whoever holds the token now.
    pub(super) fn thaw_fenced(&mut self) {
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            let Some(fenced) = &node.fenced else { continue };
            let falls = self.changes.iter().any(|change| fenced.fences.iter().any(|it| it.falls_by(change)));
            if !falls {
                continue;
            }
            let FencedPause { until, longer, .. } = *fenced;
            node.fenced = None;
            // Another pause may have been laid over it.
            if node.status == (Status::Still { until }) {
                let soon = self.now.plus(self.streams.processes.span(Span::ZERO, longer)).min(until);
                node.status = Status::Still { until: soon };
                let life = node.life();
                self.queue.push(soon, Happening::Resume { life });
            }
        }
    }

    fn stand_still(&mut self, slot: NodeSlot, until: SimTime) {
        let node = &mut self.nodes[slot.index()];
        let until = match node.status {
            Status::Down => return,
            Status::Up => until,
            Status::Still { until: already } => already.max(until),
        };
        node.status = Status::Still { until };
        let life = node.life();
        self.queue.push(until, Happening::Resume { life });
    }

    pub(super) fn on_resume(&mut self, life: Life) {
        let Some(node) = self.node_of(life) else { return };
        match node.status {
            Status::Still { until } if until <= self.now => self.go_on(life),
            Status::Still { .. } | Status::Up | Status::Down => {}
        }
    }

    /// The process goes on: first it sends what it held, then it takes in what has come, until it stands
    /// still again or is done.
    pub(super) fn go_on(&mut self, life: Life) {
        let node = &mut self.nodes[life.slot.index()];
        node.status = Status::Up;
        node.fenced = None;
        if let Some(since) = node.clock_stands.take() {
            node.clock.stood_still(since, self.now);
            node.armed = None;
        }
        if self.nodes[life.slot.index()].slow.is_none() {
            self.note(life.slot, &Note::GoesOn);
        }
        self.measures.on_back(life.slot, self.now);
        while let Some(effect) = self.nodes[life.slot.index()].held.pop_front() {
            self.send(life, effect);
            if self.node_of(life).is_none() {
                return;
            }
        }
        // Whether its timer or its sockets are looked at first is chance.
        if self.streams.processes.chance(PPM / 2) && !self.nodes[life.slot.index()].inbox.is_empty() {
            self.handle(life, RoleEvent::Tick);
        }
        while self.node_of(life).is_some_and(|node| !node.stands_still()) {
            let Some(input) = self.nodes[life.slot.index()].inbox.pop_front() else { break };
            self.take_in_input(life, input);
        }
        self.arm(life);
    }

    /// The process dies; its supervisor starts it again, if at all, after a while.
    pub(super) fn crash(&mut self, slot: NodeSlot, restart_after: Option<Span>) {
        if self.nodes[slot.index()].is_down() {
            return;
        }
        self.note(slot, &Note::Dies);
        self.timeline.mark(self.now, slot, Moment::Died);
        self.end_process(slot, restart_after);
    }

    fn end_process(&mut self, slot: NodeSlot, restart_after: Option<Span>) {
        let node = &mut self.nodes[slot.index()];
        let (life, id, epoch) = (node.life(), node.id, node.consumer.epoch());
        node.status = Status::Down;
        node.role = None;
        node.inbox.clear();
        node.held.clear();
        node.armed = None;
        node.drain = None;
        node.fenced = None;
        if let Some(since) = node.clock_stands.take() {
            node.clock.stood_still(since, self.now);
        }
        self.end_runs_of(life);
        self.oracles.on_process_ended(id);
        self.measures.on_lost(slot, self.now);
        self.measures.on_end(slot, self.now);
        // The operating system closes its sockets, and the broker soon sees it.
        let noticed = self.now.plus(self.plan.network.broker.draw(&mut self.streams.processes));
        self.queue.push(noticed, Happening::ConsumerCloses { life, epoch });
        if let Some(after) = restart_after {
            self.start_after(slot, after);
        }
    }

    /// Asks a process to drain.
    pub(super) fn request_drain(&mut self, slot: NodeSlot, then: AfterDrain) {
        let node = &mut self.nodes[slot.index()];
        if node.is_down() || node.drain.is_some() {
            return;
        }
        let life = node.life();
        let within = if self.plan.is_scheduler(slot) {
            self.plan.schedulers[slot.index()].config.drain_within
        } else {
            self.plan.workers[slot.index() - self.plan.schedulers.len()].config.drain_within
        };
        self.nodes[slot.index()].drain = Some(Drain { since: self.now, began: None, within, then });
        self.timeline.mark(self.now, slot, Moment::DrainRequested);
        self.deliver(life, RoleEvent::DrainRequested);
    }

    /// The process takes the request in: from here on its own clock counts.
    fn drain_begins(&mut self, life: Life) {
        let node = &mut self.nodes[life.slot.index()];
        let shown = node.clock.read(self.now);
        let Some(drain) = &mut node.drain else { return };
        drain.began = Some(shown);
        let due = node.clock.when(shown.plus(drain.within), self.now);
        self.queue.push(due.plus(DRAIN_SLACK), Happening::DrainDue { life });
    }

    /// Whether a drain has ended within its limit, by the process's own clock. One that stands still, or takes
    /// its time over everything, is given time to come to it.
    pub(super) fn on_drain_due(&mut self, life: Life) {
        let Some(node) = self.node_of(life) else { return };
        let Some(Drain { since, began: Some(began), within, .. }) = node.drain else { return };
        let late = node.clock.read(self.now) >= began.plus(within);
        if !late || node.stands_still() || node.slow.is_some() || node.clock_stands.is_some() {
            self.queue.push(self.now.plus(DRAIN_SLACK), Happening::DrainDue { life });
            return;
        }
        let detail =
            format!("{} was asked to drain at {since} s, within {within}, and is still there", node.id);
        self.judge(Err(Invariant::DrainEnds.broken(self.now, detail)));
    }

    fn drained(&mut self, life: Life) {
        let node = &mut self.nodes[life.slot.index()];
        let id = node.id;
        let drain = node.drain.take();
        let took = |drain: &Drain| drain.began.map(|began| node.clock.read(self.now).since(began));
        let cut_short = drain.as_ref().is_some_and(|it| took(it).is_some_and(|took| took >= it.within));
        let how = if cut_short { DrainEnd::CutShort } else { DrainEnd::InTime };
        self.note(life.slot, &Note::Drained);
        self.timeline.mark(self.now, life.slot, Moment::Drained);
        let seen = self.oracles.on_drained(self.now, self.store_clock.read(self.now), id, how);
        self.judge(seen);
        let restart_after = match drain {
            Some(Drain { since, then, .. }) => {
                self.measures.on_drained(self.now.since(since));
                match then {
                    AfterDrain::Stay => None,
                    AfterDrain::Restart(after) => Some(after),
                }
            }
            None => Some(Span::ZERO),
        };
        self.end_process(life.slot, restart_after);
    }
}

/// What the newest worker knows: after the heal, all do.
pub(super) fn all_handlers(plan: &Plan) -> BTreeMap<HandlerName, BTreeSet<u32>> {
    let mut all: BTreeMap<HandlerName, BTreeSet<u32>> = BTreeMap::new();
    for (name, versions) in plan.workers.iter().flat_map(|spec| &spec.config.handlers) {
        all.entry(name.clone()).or_default().extend(versions);
    }
    all
}

/// When a slow process loses its time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slowed {
    No,
    BeforeSending,
    AfterSending,
}
