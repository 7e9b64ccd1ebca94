//! Hand-driven tests: a worker in a hand that moves its clock and answers its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::WorkerConfig;
use crate::effect::{Invocation, StopReason, WorkerEffect};
use crate::event::{Delivery, ErrorClass, HandlerResult, WorkerEvent};
use crate::execution::{CancelState, ExecutionState};
use crate::fact::Fact;
use crate::fencing::FencingToken;
use crate::id::{DispatchNo, EffectId, ExecutionId, JobId, JobVersion, NodeId, Occurrence, TenantId};
use crate::job::{DeadLetters, HandlerName, HandlerRef, Payload};
use crate::lease::RunId;
use crate::message::ExecutionMessage;
use crate::priority::Priority;
use crate::retry::RetryPolicy;
use crate::store::StoreOutcome;
use crate::store::command::{
    AcquireExecutions, Command, DeferExecutions, FinishExecutions, RecordMalformed, RenewExecutions,
};
use crate::store::reply::{AcquireReply, FinishReply, Grant, RenewReply, Reply, StoreReply};
use crate::store::row::NodeState;
use crate::time::{Monotonic, Span, Timestamp};
use crate::worker::Worker;

mod drain;
mod finish;
mod gather;
mod intake;
mod lease;
#[cfg(feature = "simulation")]
mod mutant;
mod priority;
mod record;
mod run;
mod storm;
mod wakeup;

/// The store's clock in every reply: nothing in the worker may depend on it.
const STORE_NOW: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

/// Settings with eight slots and the handler `mail` in version 1; leases of 15 s, trusted for 12 s,
/// renewed every 5 s. No call waits for company.
fn config() -> WorkerConfig {
    let mail = HandlerName::parse("mail").expect("a lawful name");
    let handlers = BTreeMap::from([(mail, BTreeSet::from([1]))]);
    let gather = Span::ZERO;
    WorkerConfig { slots: 8, gather, ..WorkerConfig::new(NodeId::from_u128(1), "host".into(), handlers) }
}

/// The first dispatch of execution number `number`.
fn message(number: u128) -> ExecutionMessage {
    let job = JobId::from_u128(number);
    ExecutionMessage {
        schema: 1,
        execution: ExecutionId::from_u128(number),
        dispatch_no: DispatchNo(1),
        tenant: TenantId::from_u128(1),
        job,
        job_version: JobVersion::FIRST,
        occurrence: Occurrence::Scheduled { fire: STORE_NOW },
        key: format!("key-{number}").into(),
        due_at: STORE_NOW,
        handler: HandlerRef { name: HandlerName::parse("mail").expect("a lawful name"), version: 1 },
        priority: Priority::Normal,
        payload: Payload::default(),
        attempt_timeout: Span::from_secs(60),
        retry: RetryPolicy::default(),
        dead_letter: DeadLetters::On,
        dispatched_at: STORE_NOW,
        publish_delay: ms(3),
    }
}

fn run_id(number: u128, token: i64) -> RunId {
    RunId { execution: ExecutionId::from_u128(number), token: FencingToken::from_i64(token) }
}

fn granted(token: i64) -> AcquireReply {
    granted_after(token, 0)
}

/// A grant after so many failed attempts.
fn granted_after(token: i64, attempts: u32) -> AcquireReply {
    let token = FencingToken::from_i64(token);
    AcquireReply::Granted(Grant { token, attempts, age: ms(500), left: None, cancel: CancelState::None })
}

fn renewed() -> RenewReply {
    RenewReply::Renewed { cancel: CancelState::None }
}

fn completed() -> FinishReply {
    FinishReply::Applied { state: ExecutionState::Completed }
}

fn failed(error: &str) -> HandlerResult {
    HandlerResult::Failed { class: ErrorClass::Retryable, error: error.into(), retry_after: None }
}

/// What the worker wanted done, in order.
#[derive(Debug, Default)]
struct Effects(Vec<WorkerEffect>);

impl Effects {
    fn of<T>(&self, pick: impl FnMut(&WorkerEffect) -> Option<T>) -> Vec<T> {
        self.0.iter().filter_map(pick).collect()
    }

    fn one<T: core::fmt::Debug>(&self, pick: impl FnMut(&WorkerEffect) -> Option<T>) -> T {
        let mut picked = self.of(pick);
        assert_eq!(picked.len(), 1, "expected one such effect in {:#?}", self.0);
        picked.remove(0)
    }

    fn commands(&self) -> Vec<Command> {
        self.of(|effect| {
            let WorkerEffect::Store { command, .. } = effect else { return None };
            Some(command.clone())
        })
    }

    fn acquire(&self) -> (EffectId, AcquireExecutions) {
        self.one(|effect| {
            let WorkerEffect::Store { id, command: Command::AcquireExecutions(ask) } = effect else {
                return None;
            };
            Some((*id, ask.clone()))
        })
    }

    fn renewal(&self) -> (EffectId, RenewExecutions) {
        self.one(|effect| {
            let WorkerEffect::Store { id, command: Command::RenewExecutions(ask) } = effect else {
                return None;
            };
            Some((*id, ask.clone()))
        })
    }

    fn finish(&self) -> (EffectId, FinishExecutions) {
        self.one(|effect| {
            let WorkerEffect::Store { id, command: Command::FinishExecutions(ask) } = effect else {
                return None;
            };
            Some((*id, ask.clone()))
        })
    }

    fn deferral(&self) -> (EffectId, DeferExecutions) {
        self.one(|effect| {
            let WorkerEffect::Store { id, command: Command::DeferExecutions(ask) } = effect else {
                return None;
            };
            Some((*id, ask.clone()))
        })
    }

    fn malformed(&self) -> (EffectId, RecordMalformed) {
        self.one(|effect| {
            let WorkerEffect::Store { id, command: Command::RecordMalformed(ask) } = effect else {
                return None;
            };
            Some((*id, ask.clone()))
        })
    }

    fn heartbeats(&self) -> Vec<NodeState> {
        self.of(|effect| {
            let WorkerEffect::Store { command: Command::Heartbeat(report), .. } = effect else { return None };
            Some(report.state)
        })
    }

    fn acks(&self) -> Vec<Delivery> {
        self.of(|effect| {
            let WorkerEffect::Ack { delivery } = effect else { return None };
            Some(*delivery)
        })
    }

    fn started(&self) -> Vec<Invocation> {
        self.of(|effect| {
            let WorkerEffect::StartHandler(invocation) = effect else { return None };
            Some(invocation.clone())
        })
    }

    fn stopped(&self) -> Vec<(RunId, StopReason)> {
        self.of(|effect| {
            let WorkerEffect::StopHandler { run, reason } = effect else { return None };
            Some((*run, *reason))
        })
    }

    fn facts(&self) -> Vec<Fact> {
        self.of(|effect| {
            let WorkerEffect::Report(fact) = effect else { return None };
            Some(fact.clone())
        })
    }

    fn count(&self, wanted: &WorkerEffect) -> usize {
        self.0.iter().filter(|effect| *effect == wanted).count()
    }
}

/// A worker, its clock, and the broker's tags.
struct Hand {
    worker: Worker,
    now: Monotonic,
    tag: u64,
    epoch: u64,
}

impl Hand {
    /// A worker that has not begun.
    fn unbegun(config: WorkerConfig) -> Self {
        Self { worker: Worker::new(config), now: Monotonic::from_micros(1_000_000), tag: 0, epoch: 1 }
    }

    /// A worker at work.
    fn with(adjust: impl FnOnce(&mut WorkerConfig)) -> Self {
        let mut config = config();
        adjust(&mut config);
        let mut hand = Self::unbegun(config);
        hand.send(WorkerEvent::Tick);
        hand
    }

    fn new() -> Self {
        Self::with(|_| {})
    }

    /// Sends one event and collects what follows; heartbeats are answered.
    fn send(&mut self, event: WorkerEvent) -> Effects {
        let mut effects = Effects::default();
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            self.worker.handle(self.now, event);
            while let Some(effect) = self.worker.poll_effect() {
                if let WorkerEffect::Store { id, command: Command::Heartbeat(_) } = &effect {
                    let reply = Reply::Heartbeat { schedulers: Vec::new() };
                    events.push(replied(*id, reply));
                }
                effects.0.push(effect);
            }
        }
        effects
    }

    /// Lets time pass, and says so.
    fn wait(&mut self, span: Span) -> Effects {
        self.now = self.now.plus(span);
        self.send(WorkerEvent::Tick)
    }

    /// Delivers a message under the next tag.
    fn deliver(&mut self, message: ExecutionMessage) -> (Delivery, Effects) {
        self.tag += 1;
        let delivery = Delivery { epoch: self.epoch, tag: self.tag };
        let effects = self.send(WorkerEvent::Delivered { delivery, message: Ok(Arc::new(message)) });
        (delivery, effects)
    }

    fn answer(&mut self, call: EffectId, reply: Reply) -> Effects {
        self.send(replied(call, reply))
    }

    fn unknown(&mut self, call: EffectId) -> Effects {
        self.send(WorkerEvent::StoreReplied { effect: call, outcome: StoreOutcome::Unknown })
    }

    fn end(&mut self, run: RunId, result: HandlerResult) -> Effects {
        self.send(WorkerEvent::HandlerFinished { run, result })
    }

    /// The broker's connection breaks; what comes next comes under another epoch.
    fn lose_consumer(&mut self) -> Effects {
        let effects = self.send(WorkerEvent::ConsumerLost { epoch: self.epoch });
        self.epoch += 1;
        effects
    }

    /// Delivers a message and grants its lease under token 1 at once.
    fn run(&mut self, message: ExecutionMessage) -> (Delivery, RunId) {
        let run = RunId { execution: message.execution, token: FencingToken::from_i64(1) };
        let (delivery, effects) = self.deliver(message);
        let effects = self.answer(effects.acquire().0, Reply::Acquired(vec![granted(1)]));
        assert_eq!(effects.started().len(), 1, "the handler starts");
        (delivery, run)
    }
}

fn replied(effect: EffectId, reply: Reply) -> WorkerEvent {
    let outcome = StoreOutcome::Replied(StoreReply { now: STORE_NOW, reply });
    WorkerEvent::StoreReplied { effect, outcome }
}
