//! Intake: from a delivery to a place in the queue for an execution lease, and to its acknowledgement.
//!
//! A message grants nothing; it only says which execution to ask the store about. What cannot run here
//! goes to `record`, everything else waits here for the next acquire and is acknowledged when its fate is
//! durable. Three things may come between:
//!
//! - **Another copy** of what this worker already asks for, or runs. The same or an older dispatch adds
//!   nothing: whoever holds the first copy decides for it too (an older dispatch may start an eligible
//!   execution just as well), so the copy is acknowledged at once; or, where the first copy's consumer is
//!   gone, takes its place. A *newer* dispatch may speak of a life of the execution that this worker has
//!   not heard of: it is asked about by itself, once the question under way is answered.
//! - **The consumer is lost.** Its deliveries come again, so what was not asked about yet is forgotten and
//!   nothing of that epoch is acknowledged. What was asked about may have been granted: that goes on.
//! - **The slots are full.** Prefetch equals slots, for each priority by itself, and unacknowledged messages hold
//!   places, so the broker itself keeps the lines short. Handlers that were acknowledged early hold slots without
//!   holding places: while they fill all slots, the consumer is cancelled; messages are never returned. Whatever the
//!   broker delivers beyond the free slots waits here: of each priority at most as many as slots are held by others, by
//!   what was acknowledged early or by what lost its consumer. If it waits too long, the broker's own consumer timeout
//!   hands it to others.
//!
//! What waits here stands in one line for each priority, and whose turn it is when a slot is free is told by
//! [`Turns`]. A turn that led to no start is given back. What was asked about and not answered has had its turn, and
//! is asked about again before all others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::bug::{Bug, Bugs};
use crate::effect::WorkerEffect;
use crate::event::{Delivery, MalformedMessage};
use crate::execution::WaitReason;
use crate::fact::Fact;
use crate::id::{EffectId, ExecutionId};
use crate::mark::{self, Mark};
use crate::message::{ExecutionMessage, MessageError};
use crate::priority::turns::Turns;
use crate::priority::{ByPriority, Priority};
use crate::time::Monotonic;
use crate::worker::drain::Phase;
use crate::worker::{Worker, run};

/// What is delivered and not yet granted or dropped.
#[derive(Debug)]
pub(super) struct Intake {
    consumer: Consumer,
    /// Deliveries up to this epoch are void.
    void_through: Option<u64>,
    /// What to ask the store about, or what it is being asked about: one item per execution.
    asked: BTreeMap<ExecutionId, Asked>,
    /// Of these, the ones that are neither under way nor were, in the order to ask within each priority.
    lines: ByPriority<VecDeque<ExecutionId>>,
    /// Whose turn it is among these lines.
    turns: Turns,
    /// Of these, the ones that must be asked for again, in the order to ask.
    again: VecDeque<ExecutionId>,
    /// How many turns led to no start, or to none for now.
    detours: u64,
    /// Newer dispatches of what is in `asked`: to be admitted once that is answered.
    parked: BTreeMap<ExecutionId, Arrival>,
    /// Runs that were acknowledged early.
    pub(super) early: u32,
}

/// Whether messages are being consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consumer {
    /// They are.
    Open,
    /// Not while handlers that were acknowledged early fill the slots.
    Paused,
    /// Not (any more).
    Closed,
}

/// A message as it arrived.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) message: Arc<ExecutionMessage>,
    pub(super) delivery: Delivery,
    pub(super) received_at: Monotonic,
}

/// An execution whose lease is to be asked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) arrival: Arrival,
    /// The first sending that asked for it: from there on the store may have granted it.
    pub(super) first: Option<FirstAsk>,
}

/// The sending that asked first for a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstAsk {
    /// Its id, which is the nonce of all that follow.
    pub(super) nonce: EffectId,
    /// When it was sent: a grant under the nonce may be as old as that.
    pub(super) sent_at: Monotonic,
}

/// What is owed for the message that a run came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receipt {
    /// An acknowledgement, once the outcome is durable.
    Owed(Delivery),
    /// Nothing: it was acknowledged when the lease was known, since its handler may run for long.
    GivenEarly,
}

impl Intake {
    pub(super) const fn new() -> Self {
        Self {
            consumer: Consumer::Closed,
            void_through: None,
            asked: BTreeMap::new(),
            lines: ByPriority::new([VecDeque::new(), VecDeque::new(), VecDeque::new()]),
            turns: Turns::new(),
            again: VecDeque::new(),
            detours: 0,
            parked: BTreeMap::new(),
            early: 0,
        }
    }

    /// How many wait to be asked for.
    pub(super) fn queued(&self) -> usize {
        self.again.len() + self.lines.iter().map(|(_, line)| line.len()).sum::<usize>()
    }

    /// The next execution to ask for.
    pub(super) fn next(&mut self, bugs: Bugs) -> Option<(ExecutionId, &mut Asked)> {
        let again = self.again.pop_front();
        let execution = again.or_else(|| {
            let priority = self.whose_turn(bugs)?;
            self.lines.get_mut(priority).pop_front()
        })?;
        let asked = self.asked.get_mut(&execution).expect("what is queued is asked for");
        Some((execution, asked))
    }

    fn whose_turn(&mut self, bugs: Bugs) -> Option<Priority> {
        let waits = |priority: &Priority| !self.lines.get(*priority).is_empty();
        if bugs.has(Bug::HighestPriorityAlone) {
            return Priority::ALL.iter().copied().find(waits);
        }
        if bugs.has(Bug::PrioritiesAreIgnored) {
            let oldest = |priority: &Priority| {
                let first = self.lines.get(*priority).front().and_then(|first| self.asked.get(first));
                first.map(|asked| (asked.arrival.received_at, asked.arrival.delivery))
            };
            return Priority::ALL.iter().copied().filter(waits).min_by_key(oldest);
        }
        self.turns.next(|priority| !self.lines.get(priority).is_empty())
    }

    /// Puts executions back that must be asked for again, before all others and in their order.
    pub(super) fn put_back(&mut self, executions: &[ExecutionId]) {
        self.detours += 1;
        for execution in executions.iter().rev() {
            self.again.push_front(*execution);
        }
    }

    /// The turn of an execution led to a start.
    pub(super) const fn turn_started(&mut self, priority: Priority) {
        self.turns.started(priority);
    }

    /// The turn of an execution led to none.
    pub(super) const fn turn_in_vain(&mut self, priority: Priority) {
        self.detours += 1;
        self.turns.in_vain(priority);
    }

    /// A place in the line of its priority.
    fn line_up(&mut self, execution: ExecutionId, priority: Priority) {
        let line = self.lines.get_mut(priority);
        if line.is_empty() {
            self.turns.join(priority);
        }
        line.push_back(execution);
    }

    /// Takes out an execution about which the store has answered.
    pub(super) fn answered(&mut self, execution: ExecutionId) -> Option<Asked> {
        self.asked.remove(&execution)
    }

    fn is_void(&self, delivery: Delivery) -> bool {
        self.void_through.is_some_and(|epoch| delivery.epoch <= epoch)
    }
}

impl Worker {
    /// How many messages wait here to be asked for, by priority. What is asked for a second time is not among them.
    #[must_use]
    pub fn waiting(&self) -> ByPriority<usize> {
        self.intake.lines.map(VecDeque::len)
    }

    /// How many turns led to no start so far: the executions had ended, wait for something, or the store gave no answer.
    #[must_use]
    pub const fn detours(&self) -> u64 {
        self.intake.detours
    }

    /// Begins to consume.
    pub(super) fn open_consumer(&mut self) {
        self.intake.consumer = Consumer::Open;
        self.effects.push_back(WorkerEffect::Consume { prefetch: self.slots() });
    }

    /// Consumes no more, for good, and leaves to the broker what was not asked for yet.
    pub(super) fn close_intake(&mut self) {
        if self.intake.consumer == Consumer::Open {
            self.effects.push_back(WorkerEffect::StopConsuming);
        }
        self.intake.consumer = Consumer::Closed;
        self.intake.lines.values_mut().for_each(VecDeque::clear);
        self.intake.again.clear();
        self.intake.parked.clear();
        let under_way = self.leases.acquiring.under_way();
        self.intake.asked.retain(|execution, _| under_way.is_some_and(|sent| sent.contains(execution)));
    }

    /// Cancels the consumer while handlers that were acknowledged early fill the slots.
    pub(super) fn steer_consumer(&mut self) {
        let full = self.intake.early >= self.slots();
        match self.intake.consumer {
            Consumer::Open if full => {
                self.intake.consumer = Consumer::Paused;
                self.effects.push_back(WorkerEffect::StopConsuming);
            }
            Consumer::Paused if !full => self.open_consumer(),
            Consumer::Open | Consumer::Paused | Consumer::Closed => {}
        }
    }

    /// A message arrived.
    pub(super) fn delivered(
        &mut self,
        now: Monotonic,
        delivery: Delivery,
        message: Result<Arc<ExecutionMessage>, MalformedMessage>,
    ) {
        match self.phase {
            Phase::Active => {}
            // Left unacknowledged: the broker hands it to another worker.
            Phase::New | Phase::Draining(_) | Phase::Drained => return,
        }
        if self.intake.is_void(delivery) {
            return;
        }
        match message {
            Ok(message) => match self.cannot_run(&message) {
                Some(reason) => self.records.defer(message.execution, reason, delivery),
                None => self.admit(Arrival { message, delivery, received_at: now }),
            },
            Err(malformed) => match malformed.error {
                MessageError::UnknownSchema { execution, .. } => {
                    self.records.defer(execution, WaitReason::UnreadableMessage, delivery);
                }
                MessageError::TooLarge { .. } | MessageError::Malformed { .. } => {
                    self.records.record(delivery, malformed);
                }
            },
        }
    }

    /// Why this worker cannot run what the message asks for. It reads its own schema version and those
    /// next to it.
    fn cannot_run(&self, message: &ExecutionMessage) -> Option<WaitReason> {
        if message.schema.abs_diff(self.config.schema) > 1 {
            return Some(WaitReason::UnreadableMessage);
        }
        let versions = self.config.handlers.get(&message.handler.name);
        let known = versions.is_some_and(|versions| versions.contains(&message.handler.version));
        (!known).then_some(WaitReason::UnknownHandler)
    }

    /// Gives a message its place: a copy's, beside what it is a copy of, or in the line of its priority.
    fn admit(&mut self, arrival: Arrival) {
        let execution = arrival.message.execution;
        if let Some(asked) = self.intake.asked.get_mut(&execution) {
            let first = asked.arrival.delivery;
            let void = self.intake.void_through.is_some_and(|epoch| first.epoch <= epoch);
            if arrival.message.dispatch_no > asked.arrival.message.dispatch_no {
                self.park(arrival);
            } else if void {
                asked.arrival.delivery = arrival.delivery;
            } else {
                self.drop_message(execution, arrival.delivery);
            }
            return;
        }
        if let Some((id, run)) = self.runs.latest_of(execution)
            && arrival.message.dispatch_no <= run.message.dispatch_no
        {
            mark::hit(Mark::CopyOfHeldRun);
            let receipt = run.receipt;
            if self.config.bugs.has(Bug::CopyStartsAgain) && run.is_under_way() {
                let started = run.invocation(id);
                self.effects.push_back(WorkerEffect::StartHandler(started));
            }
            match receipt {
                Receipt::Owed(first) if self.intake.is_void(first) => {
                    self.runs.set_receipt(id, Receipt::Owed(arrival.delivery));
                }
                Receipt::Owed(_) | Receipt::GivenEarly => self.drop_message(execution, arrival.delivery),
            }
            return;
        }
        let priority = arrival.message.priority;
        self.intake.asked.insert(execution, Asked { arrival, first: None });
        self.intake.line_up(execution, priority);
    }

    /// Keeps a newer dispatch until the question under way about its execution is answered. Of several,
    /// the newest speaks for all.
    fn park(&mut self, arrival: Arrival) {
        let execution = arrival.message.execution;
        let surplus = match self.intake.parked.remove(&execution) {
            Some(parked) if parked.message.dispatch_no >= arrival.message.dispatch_no => {
                let surplus = arrival.delivery;
                self.intake.parked.insert(execution, parked);
                Some(surplus)
            }
            parked => {
                self.intake.parked.insert(execution, arrival);
                parked.map(|parked| parked.delivery)
            }
        };
        if let Some(delivery) = surplus {
            self.drop_message(execution, delivery);
        }
    }

    /// Admits the newer dispatch that was kept while its execution was asked about.
    pub(super) fn unpark(&mut self, execution: ExecutionId) {
        if let Some(arrival) = self.intake.parked.remove(&execution) {
            self.admit(arrival);
        }
    }

    /// The deliveries of a consumer are void.
    pub(super) fn consumer_lost(&mut self, epoch: u64) {
        let void_through = self.intake.void_through.map_or(epoch, |known| known.max(epoch));
        self.intake.void_through = Some(void_through);
        let is_void = |arrival: &Arrival| arrival.delivery.epoch <= void_through;
        self.intake.parked.retain(|_, arrival| !is_void(arrival));
        // What must be asked for again was asked about: it may have been granted.
        let Intake { asked, lines, .. } = &mut self.intake;
        for line in lines.values_mut() {
            line.retain(|execution| {
                let forgotten =
                    asked.get(execution).is_some_and(|item| item.first.is_none() && is_void(&item.arrival));
                if forgotten {
                    asked.remove(execution);
                }
                !forgotten
            });
        }
        let orphans =
            self.intake.parked.keys().filter(|execution| !self.intake.asked.contains_key(execution));
        for execution in orphans.copied().collect::<Vec<_>>() {
            self.unpark(execution);
        }
    }

    /// Acknowledges a message that leads to no run of its own.
    pub(super) fn drop_message(&mut self, execution: ExecutionId, delivery: Delivery) {
        self.acknowledge(delivery);
        self.report(Fact::MessageDropped { execution });
    }

    /// Acknowledges, unless the delivery's consumer is gone.
    pub(super) fn acknowledge(&mut self, delivery: Delivery) {
        if !self.intake.is_void(delivery) {
            self.effects.push_back(WorkerEffect::Ack { delivery });
        }
    }

    /// Gives what is owed for the message of a run that is over.
    pub(super) fn settle(&mut self, run: &run::Run) {
        match run.receipt {
            Receipt::Owed(delivery) => self.acknowledge(delivery),
            Receipt::GivenEarly => self.intake.early = self.intake.early.saturating_sub(1),
        }
    }

    /// Acknowledges a run's message early if its handler may run for long.
    pub(super) fn receipt_at_start(&mut self, arrival: &Arrival) -> Receipt {
        if arrival.message.attempt_timeout > self.config.ack_early_above {
            self.acknowledge(arrival.delivery);
            self.intake.early += 1;
            Receipt::GivenEarly
        } else {
            Receipt::Owed(arrival.delivery)
        }
    }

    /// How many executions may hold a place here side by side.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.config.slots.max(1)
    }
}
