//! The two roles behind one face, so that the world treats processes alike.

use std::sync::Arc;

use fencepost_core::config::{SchedulerConfig, WorkerConfig};
use fencepost_core::effect::{Invocation, SchedulerEffect, StopReason, WorkerEffect};
use fencepost_core::event::{
    Delivery, HandlerResult, MalformedMessage, PublishOutcome, SchedulerEvent, WorkerEvent,
};
use fencepost_core::execution::ExecutionState;
use fencepost_core::id::EffectId;
use fencepost_core::lease::{HeldLease, LeaseResource, RunId};
use fencepost_core::message::ExecutionMessage;
use fencepost_core::partition::PartitionId;
use fencepost_core::scheduler::Scheduler;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::change::Change;
use fencepost_core::store::command::Command;
use fencepost_core::time::Monotonic;
use fencepost_core::worker::Worker;

use crate::oracle::Standing;
use crate::sim_time::SimTime;
use crate::trace::{Line, Trace};

/// A role at work.
#[derive(Debug)]
pub(super) enum Role {
    Scheduler(Box<Scheduler>),
    Worker(Box<Worker>),
}

/// What may happen to either role.
#[derive(Clone, Debug)]
pub(super) enum RoleEvent {
    Tick,
    StoreReplied { effect: EffectId, outcome: StoreOutcome },
    Published { effect: EffectId, outcomes: Vec<PublishOutcome> },
    Notified { partition: PartitionId },
    Delivered { delivery: Delivery, message: Result<Arc<ExecutionMessage>, MalformedMessage> },
    ConsumerLost { epoch: u64 },
    HandlerFinished { run: RunId, result: HandlerResult },
    DrainRequested,
}

/// What either role may want done, but for reports, which nobody here reads.
#[derive(Clone, Debug)]
pub(super) enum RoleEffect {
    Store { id: EffectId, command: Command },
    Publish { id: EffectId, messages: Vec<Arc<ExecutionMessage>> },
    Consume { prefetch: u32 },
    StopConsuming,
    Ack { delivery: Delivery },
    StartHandler(Invocation, Standing),
    StopHandler { run: RunId, reason: StopReason },
    Report,
    Drained,
}

impl RoleEffect {
    /// What protects a write under a token. Empty for all else.
    pub(super) fn fences(&self) -> Vec<Fence> {
        let Self::Store { command, .. } = self else { return Vec::new() };
        let leases = |leases: &[HeldLease]| leases.iter().map(|held| Fence::Lease(*held)).collect();
        match command {
            Command::Materialise(ask) => leases(&ask.leases),
            Command::PromoteDue(ask) => leases(&ask.leases),
            Command::Repair(ask) => {
                leases(&[HeldLease { resource: LeaseResource::Leadership, token: ask.leadership }])
            }
            Command::FinishExecutions(ask) => ask.items.iter().map(|item| Fence::Run(item.run)).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether it writes under a token: what a pause must not let through once the token has passed on.
    pub(super) fn is_fenced_write(&self) -> bool {
        match self {
            Self::Store { command, .. } => matches!(
                command,
                Command::Materialise(_)
                    | Command::PromoteDue(_)
                    | Command::Repair(_)
                    | Command::FinishExecutions(_)
            ),
            Self::Publish { .. }
            | Self::Consume { .. }
            | Self::StopConsuming
            | Self::Ack { .. }
            | Self::StartHandler(..)
            | Self::StopHandler { .. }
            | Self::Report
            | Self::Drained => false,
        }
    }
}

/// What protects a write: the token that it presents.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fence {
    Lease(HeldLease),
    Run(RunId),
}

impl Fence {
    /// Whether this change makes the token one of the past.
    pub(super) fn falls_by(self, change: &Change) -> bool {
        match (self, change) {
            (Self::Lease(held), Change::Lease(delta)) => delta
                .after
                .as_ref()
                .is_some_and(|row| row.resource == held.resource && row.token != held.token),
            (Self::Run(run), Change::Execution(delta)) => delta.after.as_ref().is_some_and(|row| {
                row.id == run.execution && (row.token != run.token || row.state != ExecutionState::Running)
            }),
            _ => false,
        }
    }
}

/// Where an event or effect is taken in on its way.
pub(super) struct Recorder<'a> {
    pub(super) trace: &'a mut Trace,
    pub(super) at: SimTime,
    pub(super) lane: u8,
}

impl Recorder<'_> {
    fn event(&mut self, event: &(impl core::hash::Hash + core::fmt::Debug)) {
        self.trace.absorb(self.at, self.lane, Line::Event, event);
    }

    fn effect(&mut self, effect: &(impl core::hash::Hash + core::fmt::Debug)) {
        self.trace.absorb(self.at, self.lane, Line::Effect, effect);
    }
}

impl Role {
    pub(super) fn scheduler(config: SchedulerConfig) -> Self {
        Self::Scheduler(Box::new(Scheduler::new(config)))
    }

    pub(super) fn worker(config: WorkerConfig) -> Self {
        Self::Worker(Box::new(Worker::new(config)))
    }

    /// Gives the role an event. One that its kind never gets is a mistake of the world's.
    pub(super) fn handle(&mut self, now: Monotonic, event: RoleEvent, mut recorder: Recorder<'_>) {
        match self {
            Self::Scheduler(scheduler) => {
                let event = match event {
                    RoleEvent::Tick => SchedulerEvent::Tick,
                    RoleEvent::StoreReplied { effect, outcome } => {
                        SchedulerEvent::StoreReplied { effect, outcome }
                    }
                    RoleEvent::Published { effect, outcomes } => {
                        SchedulerEvent::Published { effect, outcomes }
                    }
                    RoleEvent::Notified { partition } => SchedulerEvent::Notified { partition },
                    RoleEvent::DrainRequested => SchedulerEvent::DrainRequested,
                    RoleEvent::Delivered { .. }
                    | RoleEvent::ConsumerLost { .. }
                    | RoleEvent::HandlerFinished { .. } => {
                        unreachable!("a scheduler runs no handlers: {event:?}")
                    }
                };
                recorder.event(&event);
                scheduler.handle(now, event);
            }
            Self::Worker(worker) => {
                let event = match event {
                    RoleEvent::Tick => WorkerEvent::Tick,
                    RoleEvent::StoreReplied { effect, outcome } => {
                        WorkerEvent::StoreReplied { effect, outcome }
                    }
                    RoleEvent::Delivered { delivery, message } => {
                        WorkerEvent::Delivered { delivery, message }
                    }
                    RoleEvent::ConsumerLost { epoch } => WorkerEvent::ConsumerLost { epoch },
                    RoleEvent::HandlerFinished { run, result } => {
                        WorkerEvent::HandlerFinished { run, result }
                    }
                    RoleEvent::DrainRequested => WorkerEvent::DrainRequested,
                    RoleEvent::Published { .. } | RoleEvent::Notified { .. } => {
                        unreachable!("a worker publishes nothing: {event:?}")
                    }
                };
                recorder.event(&event);
                worker.handle(now, event);
            }
        }
    }

    /// The role's next effect.
    pub(super) fn poll_effect(&mut self, mut recorder: Recorder<'_>) -> Option<RoleEffect> {
        match self {
            Self::Scheduler(scheduler) => {
                let effect = scheduler.poll_effect()?;
                recorder.effect(&effect);
                Some(match effect {
                    SchedulerEffect::Store { id, command } => RoleEffect::Store { id, command },
                    SchedulerEffect::Publish { id, messages } => RoleEffect::Publish { id, messages },
                    SchedulerEffect::Report(_) => RoleEffect::Report,
                    SchedulerEffect::Drained => RoleEffect::Drained,
                })
            }
            Self::Worker(worker) => {
                let effect = worker.poll_effect()?;
                recorder.effect(&effect);
                Some(match effect {
                    WorkerEffect::Store { id, command } => RoleEffect::Store { id, command },
                    WorkerEffect::Consume { prefetch } => RoleEffect::Consume { prefetch },
                    WorkerEffect::StopConsuming => RoleEffect::StopConsuming,
                    WorkerEffect::Ack { delivery } => RoleEffect::Ack { delivery },
                    WorkerEffect::StartHandler(invocation) => {
                        let standing = Standing {
                            priority: invocation.message.priority,
                            waits: worker.waiting().map(|count| *count > 0),
                            detours: worker.detours(),
                            slots: worker.slots(),
                        };
                        RoleEffect::StartHandler(invocation, standing)
                    }
                    WorkerEffect::StopHandler { run, reason } => RoleEffect::StopHandler { run, reason },
                    WorkerEffect::Report(_) => RoleEffect::Report,
                    WorkerEffect::Drained => RoleEffect::Drained,
                })
            }
        }
    }

    /// When it wants to be woken.
    pub(super) fn next_wakeup(&self) -> Option<Monotonic> {
        match self {
            Self::Scheduler(scheduler) => scheduler.next_wakeup(),
            Self::Worker(worker) => worker.next_wakeup(),
        }
        .map(|(at, _)| at)
    }
}
