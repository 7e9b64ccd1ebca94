//! The fault schedule at work: what each kind does when it begins, and what ends with it.

use std::sync::Arc;

use fencepost_core::event::MalformedMessage;
use fencepost_core::id::{ExecutionId, MALFORMED_NAMESPACE};
use fencepost_core::message::{ExecutionMessage, MessageError};
use fencepost_core::time::Span;
use uuid::Uuid;

use super::World;
use super::broker::{Body, QueueNo};
use super::happening::Happening;
use super::node::{AfterDrain, CrashLoop, Trap};
use crate::fault::{FaultGroup, FaultKind};
use crate::plan::{FaultSpec, NodeSlot, Target};
use crate::rng::PPM;
use crate::timeline::Moment;
use crate::trace::Line;

/// What the trace says about faults.
#[derive(Debug, Hash)]
enum Note {
    Begins(FaultKind),
    Ends(FaultKind),
}

/// The lane of the trace for what is nobody's in particular.
pub(super) const WORLD_LANE: u8 = 255;

fn node_of(fault: &FaultSpec) -> Option<NodeSlot> {
    match fault.target {
        Target::Node(slot) => Some(slot),
        Target::Store | Target::Broker | Target::Queue(_) | Target::Outside(_) => None,
    }
}

impl World<'_> {
    pub(super) fn on_fault_begins(&mut self, index: u16) {
        if self.recovery.is_some() {
            return;
        }
        let fault = self.plan.faults[usize::from(index)];
        self.trace.absorb(self.now, WORLD_LANE, Line::World, &Note::Begins(fault.kind));
        self.timeline.fault(
            self.now,
            fault.ends().min(self.plan.heal.at),
            node_of(&fault),
            Moment::Fault(fault.kind),
        );
        self.active[usize::from(index)] = true;
        match fault.kind.group() {
            FaultGroup::Process | FaultGroup::Clock => self.strike_process_or_clock(index, &fault),
            FaultGroup::NodeStore => {
                if let Some(slot) = node_of(&fault) {
                    self.nodes[slot.index()].store_link.begin(index, &fault);
                }
            }
            FaultGroup::NodeBroker => self.strike_broker_link(index, &fault),
            FaultGroup::Store => {
                self.store_health.begin(index, &fault);
                self.counts.count(fault.kind);
            }
            FaultGroup::Broker => self.strike_broker(index, &fault),
            FaultGroup::Outside => {
                if let Target::Outside(outside) = fault.target {
                    self.outside[outside.index()].begin(index, &fault);
                }
            }
            FaultGroup::Data => self.plant(&fault),
            // Part of the workload.
            FaultGroup::Handler | FaultGroup::Operator => {}
        }
        if fault.lasts > Span::ZERO {
            self.queue.push(fault.ends(), Happening::FaultEnds { fault: index });
        }
    }

    fn strike_process_or_clock(&mut self, index: u16, fault: &FaultSpec) {
        let Some(slot) = node_of(fault) else {
            match fault.kind {
                FaultKind::StoreClockBack => self.store_clock.step_back(fault.amount),
                FaultKind::StoreClockForward => self.store_clock.step_forward(fault.amount),
                other => unreachable!("{other} strikes a node"),
            }
            self.counts.count(fault.kind);
            return;
        };
        let up = !self.nodes[slot.index()].is_down();
        let node = &mut self.nodes[slot.index()];
        match fault.kind {
            FaultKind::PauseBeforeSend
            | FaultKind::PauseBeforeWrite
            | FaultKind::PauseUntilFenced
            | FaultKind::CrashBeforeEffect
            | FaultKind::CrashAfterEffect => {
                node.traps.push(Trap { fault: index, left: fault.count.max(1) });
                return;
            }
            FaultKind::CrashLoop => {
                let every = fault.count.max(1);
                let restart_after = fault.amount;
                node.crash_loop = Some(CrashLoop { fault: index, every, left: every, restart_after });
                return;
            }
            FaultKind::SlowNode => {
                node.slow = Some((index, fault.amount));
                return;
            }
            // It leaps whether or not a process runs on the host.
            FaultKind::ClockLeap => {
                node.clock.leap(self.now, fault.amount);
                self.counts.count(fault.kind);
                self.rearm(slot);
                return;
            }
            _ => {}
        }
        if !up {
            return;
        }
        self.counts.count(fault.kind);
        match fault.kind {
            FaultKind::Pause => self.pause(slot, fault.lasts),
            FaultKind::ClockStandsStill => {
                let node = &mut self.nodes[slot.index()];
                node.clock_stands.get_or_insert(self.now);
                self.pause(slot, fault.lasts);
            }
            FaultKind::Crash => self.crash(slot, Some(fault.lasts)),
            FaultKind::RollingRestart => self.request_drain(slot, AfterDrain::Restart(fault.amount)),
            FaultKind::RollingUpgrade => {
                self.nodes[slot.index()].upgrades = 1;
                self.request_drain(slot, AfterDrain::Restart(fault.amount));
            }
            FaultKind::KillDuringDrain => {
                self.request_drain(slot, AfterDrain::Restart(fault.lasts));
                let life = self.nodes[slot.index()].life();
                self.queue.push(self.now.plus(fault.amount), Happening::Die { life });
            }
            other => unreachable!("{other} does not strike a process"),
        }
    }

    fn strike_broker_link(&mut self, index: u16, fault: &FaultSpec) {
        let Some(slot) = node_of(fault) else { return };
        match fault.kind {
            FaultKind::ConsumerConnectionClosed => self.close_consumer_of(slot, fault.kind),
            // As soon as something is under way on it.
            FaultKind::PublishChannelClosed => self.nodes[slot.index()].breaks_publishing = true,
            _ => self.nodes[slot.index()].broker_link.begin(index, fault),
        }
    }

    fn close_consumer_of(&mut self, slot: NodeSlot, kind: FaultKind) {
        let open = self.broker.consumers().find(|consumer| consumer.life.slot == slot);
        if let Some((life, epoch)) = open.map(|consumer| (consumer.life, consumer.epoch)) {
            self.counts.count(kind);
            self.on_consumer_closes(life, epoch);
        }
    }

    fn strike_broker(&mut self, index: u16, fault: &FaultSpec) {
        match fault.kind {
            FaultKind::BrokerConsumerCancelled => {
                if let Some(slot) = node_of(fault) {
                    self.close_consumer_of(slot, fault.kind);
                }
            }
            FaultKind::BrokerRedeliverUnacked => {
                let withdrawn = self.broker.withdraw(&mut self.streams.broker);
                if withdrawn.len() > 0 {
                    self.counts.count(fault.kind);
                    if self.streams.broker.chance(PPM / 2) {
                        self.pump_all();
                    }
                    self.broker.put_back(withdrawn);
                    self.pump_all();
                }
            }
            FaultKind::BrokerPurge => {
                if let Target::Queue(queue) = fault.target
                    && self.broker.purge(queue, fault.count) > 0
                {
                    self.counts.count(fault.kind);
                }
            }
            FaultKind::BrokerOutage | FaultKind::BrokerRestart => {
                self.counts.count(fault.kind);
                for slot in 0..self.nodes.len() {
                    self.break_publishing(slot, fault.kind);
                }
                self.close_all_consumers();
                self.broker.begin(index, fault);
                if fault.kind == FaultKind::BrokerRestart {
                    self.broker.come_back(&mut self.streams.broker);
                }
            }
            FaultKind::BrokerConsumerTimeout => {
                self.broker.begin(index, fault);
                self.queue
                    .push(self.now.plus(fault.amount), Happening::ConsumerTimeoutCheck { fault: index });
            }
            _ => self.broker.begin(index, fault),
        }
    }

    pub(super) fn on_die(&mut self, life: super::happening::Life) {
        let draining = self.node_of(life).is_some_and(|node| node.drain.is_some());
        if draining && self.recovery.is_none() {
            self.crash(life.slot, Some(Span::from_secs(1)));
        }
    }

    pub(super) fn on_fault_ends(&mut self, index: u16) {
        if !core::mem::take(&mut self.active[usize::from(index)]) {
            return;
        }
        let fault = self.plan.faults[usize::from(index)];
        self.trace.absorb(self.now, WORLD_LANE, Line::World, &Note::Ends(fault.kind));
        match fault.kind.group() {
            FaultGroup::NodeStore | FaultGroup::NodeBroker => {
                if let Some(slot) = node_of(&fault) {
                    self.nodes[slot.index()].store_link.end(index);
                    self.nodes[slot.index()].broker_link.end(index);
                }
            }
            FaultGroup::Store => {
                self.store_health.end(index);
                if fault.kind == FaultKind::StoreFailover {
                    self.store_clock.step_back(fault.amount);
                }
            }
            FaultGroup::Broker => {
                self.broker.end(index);
                self.release_blocked();
                self.pump_all();
            }
            FaultGroup::Outside => {
                if let Target::Outside(outside) = fault.target {
                    self.outside[outside.index()].end(index);
                }
            }
            FaultGroup::Process => {
                if let Some(slot) = node_of(&fault) {
                    self.end_process_fault(index, slot);
                }
            }
            // Over when they have struck.
            FaultGroup::Clock | FaultGroup::Handler | FaultGroup::Operator | FaultGroup::Data => {}
        }
    }

    fn end_process_fault(&mut self, index: u16, slot: NodeSlot) {
        let node = &mut self.nodes[slot.index()];
        if node.slow.is_some_and(|(fault, _)| fault == index) {
            node.slow = None;
        }
        if node.crash_loop.is_some_and(|crash_loop| crash_loop.fault == index) {
            node.crash_loop = None;
        }
    }

    /// Puts messages into a queue that nobody of the cluster has published.
    fn plant(&mut self, fault: &FaultSpec) {
        let Target::Queue(queue) = fault.target else { return };
        if usize::from(queue) >= self.broker.queue_count() {
            return;
        }
        for _ in 0..fault.count {
            let body = match fault.kind {
                FaultKind::MalformedMessage => self.malformed(),
                FaultKind::NewerSchemaMessage => self.newer_schema(),
                FaultKind::UnknownExecutionMessage => self.unknown_execution(),
                _ => None,
            };
            if let Some(body) = body {
                self.counts.count(fault.kind);
                self.broker.plant(queue, body);
            }
        }
        self.pump(queue as QueueNo);
    }

    fn malformed(&mut self) -> Option<Body> {
        // A few different bodies, so that some come twice.
        let text = format!("{{\"not\":\"a message {}", self.streams.broker.below(3));
        let decoded = ExecutionMessage::decode(text.as_bytes());
        decoded.err().map(|malformed| Body::Malformed(Arc::new(malformed)))
    }

    /// A message about an execution of ours, from a writer far ahead of everybody here.
    fn newer_schema(&mut self) -> Option<Body> {
        let execution = self.some_execution()?;
        let malformed = MalformedMessage {
            error: MessageError::UnknownSchema { schema: 99, execution, detail: "all new".into() },
            digest: Uuid::new_v5(&MALFORMED_NAMESPACE, execution.as_bytes()),
            excerpt: b"{\"schema\":99}".as_slice().into(),
        };
        Some(Body::Malformed(Arc::new(malformed)))
    }

    fn some_execution(&mut self) -> Option<ExecutionId> {
        let known: Vec<ExecutionId> = self.newest.iter().flatten().copied().collect();
        (!known.is_empty()).then(|| *self.streams.broker.pick(&known))
    }

    /// A message like the last one published, about an execution that does not exist.
    fn unknown_execution(&mut self) -> Option<Body> {
        let like = Arc::clone(self.last_published.as_ref()?);
        let execution = ExecutionId::from_u128(u128::from(self.streams.broker.long()));
        let whole = self.streams.broker.chance(PPM / 2);
        let job = if whole { like.job } else { fencepost_core::id::JobId::from_u128(1) };
        Some(Body::Message(Arc::new(ExecutionMessage { execution, job, ..(*like).clone() })))
    }
}
