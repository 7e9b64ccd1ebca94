//! The broker: queues, consumers, and everything that RabbitMQ may do to either, and more.
//!
//! This half holds what the broker knows and decides; what travels to and from it is in `traffic`. A message
//! that was confirmed is in its queue until it is delivered and acknowledged, or purged; a delivery whose
//! consumer is gone goes back to the place in its queue that it had. Each handler has a queue for each priority; a consumer
//! takes from all of them, of each priority on a channel of its own, with its own prefetch and its own tags.
//!
//! Everything that is left open is asked of a [`Choose`]: the world draws it, and `open_broker` walks through
//! all answers, so that a real broker can be held against what this one may do.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fencepost_core::event::{Delivery, MalformedMessage, PublishOutcome};
use fencepost_core::job::HandlerName;
use fencepost_core::message::ExecutionMessage;
use fencepost_core::priority::{ByPriority, Priority};

use super::happening::Life;
use crate::fault::{FaultCounts, FaultKind};
use crate::plan::FaultSpec;
use crate::rng::{PPM, Stream};
use crate::sim_time::SimTime;

/// What a message is, as far as its reader can tell.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Message(Arc<ExecutionMessage>),
    Malformed(Arc<MalformedMessage>),
}

/// What answers the questions that the broker leaves open.
pub(super) trait Choose {
    /// Whether something happens whose chance is this many parts in a million.
    fn chance(&mut self, ppm: u32) -> bool;
    /// One of `bound` numbers, from 0.
    fn below(&mut self, bound: u64) -> u64;
}

impl Choose for Stream {
    fn chance(&mut self, ppm: u32) -> bool {
        self.chance(ppm)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.below(bound)
    }
}

/// Whether the broker takes publications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reception {
    Open,
    /// An alarm holds them up.
    Blocked,
    /// A fault keeps the broker away.
    Down(FaultKind),
}

/// A queue's number.
pub(super) type QueueNo = u8;

#[derive(Clone, Debug)]
struct Queue {
    handler: HandlerName,
    priority: Priority,
    ready: VecDeque<Ready>,
    /// A message that the next one is to overtake.
    aside: Option<Body>,
    /// The next place at its end.
    next_place: u64,
}

/// A message that waits for a consumer.
#[derive(Clone, Debug)]
struct Ready {
    body: Body,
    /// Where it stands among the others; kept while it is out for delivery.
    place: u64,
    /// Whether it may still be delivered twice; a second delivery has no third.
    original: bool,
}

/// A consumer as the broker knows it.
#[derive(Clone, Debug)]
pub(super) struct Consumer {
    pub(super) life: Life,
    pub(super) epoch: u64,
    pub(super) prefetch: usize,
    /// Whether it still takes deliveries; one that was told to stop may still acknowledge.
    pub(super) takes: bool,
    pub(super) queues: Vec<QueueNo>,
    unacked: BTreeMap<u64, Unacked>,
    /// Of each priority, as its channel has it.
    channels: ByPriority<Channel>,
}

/// What is counted for each priority by itself.
#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    unacked: usize,
    delivered: u64,
}

#[derive(Clone, Debug)]
struct Unacked {
    queue: QueueNo,
    place: u64,
    body: Body,
    since: SimTime,
}

/// A delivery that the broker sends.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) life: Life,
    pub(super) epoch: u64,
    pub(super) tag: u64,
    pub(super) body: Body,
}

/// The broker.
#[derive(Clone, Debug)]
pub(super) struct Broker {
    queues: Vec<Queue>,
    /// By node slot.
    consumers: Vec<Option<Consumer>>,
    troubles: Vec<(u16, FaultSpec)>,
    /// Messages of publications that an alarm holds up.
    blocked: Vec<Vec<Arc<ExecutionMessage>>>,
    /// How many of the next messages each queue confirms and loses.
    purges: BTreeMap<QueueNo, u32>,
    memory: Memory,
    /// What was taken from its queue for good most recently: a broker that is killed may not have written it
    /// down.
    gone: VecDeque<(QueueNo, Ready)>,
}

/// Whether a broker may still be killed, so that it matters what is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Needless,
    Kept,
}

/// How much of what is gone a broker that is killed may bring back.
const BROUGHT_BACK_MAX: usize = 8;

/// Deliveries that are no longer their consumers', and not yet back in their queues.
#[derive(Clone, Debug)]
pub(super) struct Withdrawn(Vec<Unacked>);

impl Broker {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            queues: Vec::new(),
            consumers: (0..nodes).map(|_| None).collect(),
            troubles: Vec::new(),
            blocked: Vec::new(),
            purges: BTreeMap::new(),
            memory: Memory::Needless,
            gone: VecDeque::new(),
        }
    }

    /// From here on it may be killed.
    pub(super) fn may_be_killed(&mut self) {
        self.memory = Memory::Kept;
    }

    /// It was killed: some of what was taken from its queues last is in them again, and was never taken.
    pub(super) fn come_back(&mut self, stream: &mut impl Choose) {
        let gone = core::mem::take(&mut self.gone);
        for (queue, ready) in gone {
            if stream.chance(PPM / 2) {
                self.queues[usize::from(queue)].put_back(ready);
            }
        }
    }

    /// It has written everything down.
    pub(super) fn write_down(&mut self) {
        self.gone.clear();
    }

    fn note_gone(&mut self, queue: QueueNo, ready: Ready) {
        match self.memory {
            Memory::Needless => {}
            Memory::Kept => {
                if self.gone.len() == BROUGHT_BACK_MAX {
                    self.gone.pop_front();
                }
                self.gone.push_back((queue, ready));
            }
        }
    }

    pub(super) fn begin(&mut self, index: u16, fault: &FaultSpec) {
        self.troubles.push((index, *fault));
    }

    pub(super) fn end(&mut self, index: u16) {
        self.troubles.retain(|(active, _)| *active != index);
        if !self.troubles.iter().any(|(_, fault)| fault.kind == FaultKind::BrokerReorder) {
            for queue in &mut self.queues {
                let aside = queue.aside.take();
                aside.into_iter().for_each(|earlier| queue.append(earlier));
            }
        }
    }

    pub(super) fn trouble(&self, index: u16) -> Option<&FaultSpec> {
        self.troubles.iter().find(|(active, _)| *active == index).map(|(_, fault)| fault)
    }

    /// The fault that keeps the broker away, if one does.
    pub(super) fn is_down(&self) -> Option<FaultKind> {
        let down = |kind| matches!(kind, FaultKind::BrokerOutage | FaultKind::BrokerRestart);
        self.troubles.iter().map(|(_, fault)| fault.kind).find(|kind| down(*kind))
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.troubles.iter().any(|(_, fault)| fault.kind == FaultKind::BrokerAlarm)
    }

    /// How a publication that arrives now is received.
    pub(super) fn reception(&self) -> Reception {
        match self.is_down() {
            Some(kind) => Reception::Down(kind),
            None if self.is_blocked() => Reception::Blocked,
            None => Reception::Open,
        }
    }

    pub(super) fn block(&mut self, messages: Vec<Arc<ExecutionMessage>>) {
        self.blocked.push(messages);
    }

    /// What an alarm held up, once no alarm is left.
    pub(super) fn unblock(&mut self) -> Vec<Vec<Arc<ExecutionMessage>>> {
        if self.is_blocked() { Vec::new() } else { core::mem::take(&mut self.blocked) }
    }

    /// The queue of a handler and a priority, declared if need be.
    pub(super) fn declare(&mut self, handler: &HandlerName, priority: Priority) -> QueueNo {
        let is_it = |queue: &Queue| queue.priority == priority && queue.handler == *handler;
        let found = self.queues.iter().position(is_it);
        let number = found.unwrap_or_else(|| {
            self.queues.push(Queue {
                handler: handler.clone(),
                priority,
                ready: VecDeque::new(),
                aside: None,
                next_place: 0,
            });
            self.queues.len() - 1
        });
        QueueNo::try_from(number).expect("plans have few handlers")
    }

    /// Whose queue this is, and for which priority.
    pub(super) fn name(&self, queue: QueueNo) -> (&HandlerName, Priority) {
        let queue = &self.queues[usize::from(queue)];
        (&queue.handler, queue.priority)
    }

    /// What waits in a queue, in its order, with its place and whether it may still be delivered twice.
    pub(super) fn waiting(&self, queue: QueueNo) -> impl Iterator<Item = (&Body, u64, bool)> {
        self.queues[usize::from(queue)].ready.iter().map(|ready| (&ready.body, ready.place, ready.original))
    }

    /// The faults that have begun and not ended.
    pub(super) fn under_way(&self) -> impl Iterator<Item = FaultKind> {
        self.troubles.iter().map(|(_, fault)| fault.kind)
    }

    /// What is gone and may come back if it is killed, with its queue and place.
    pub(super) fn may_come_back(&self) -> impl Iterator<Item = (QueueNo, u64, &Body)> {
        self.gone.iter().map(|(queue, ready)| (*queue, ready.place, &ready.body))
    }

    /// Room for a consumer in this slot.
    pub(super) fn extend_to(&mut self, slot: usize) {
        if slot >= self.consumers.len() {
            self.consumers.resize_with(slot + 1, || None);
        }
    }

    /// How many publications an alarm holds up.
    pub(super) fn held_up(&self) -> usize {
        self.blocked.len()
    }

    pub(super) fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// Takes in one message, or not.
    pub(super) fn publish(
        &mut self,
        message: &Arc<ExecutionMessage>,
        body: Body,
        stream: &mut impl Choose,
        counts: &mut FaultCounts,
    ) -> (PublishOutcome, QueueNo) {
        let number = self.declare(&message.handler.name, message.priority);
        let queue = &mut self.queues[usize::from(number)];
        let mut outcome = PublishOutcome::Confirmed;
        let mut stored = true;
        let mut overtaken = false;
        for (_, fault) in &self.troubles {
            let (strikes, result, keeps) = match fault.kind {
                FaultKind::BrokerUnroutable => {
                    (stream.chance(fault.chance_ppm), PublishOutcome::Returned, false)
                }
                // A refusal does not say that no replica kept it.
                FaultKind::BrokerNack => {
                    (stream.chance(fault.chance_ppm), PublishOutcome::Nacked, stream.chance(PPM / 4))
                }
                FaultKind::BrokerLengthLimit => {
                    (queue.ready.len() >= fault.count as usize, PublishOutcome::Nacked, false)
                }
                FaultKind::BrokerOversized => {
                    let size = message.payload.as_json().len();
                    (size > fault.count as usize, PublishOutcome::Nacked, false)
                }
                FaultKind::BrokerConfirmLost => {
                    (stream.chance(fault.chance_ppm), PublishOutcome::Unknown, true)
                }
                FaultKind::BrokerReorder => {
                    overtaken |= stream.chance(fault.chance_ppm);
                    continue;
                }
                _ => continue,
            };
            if strikes {
                counts.count(fault.kind);
                outcome = result;
                stored &= keeps;
            }
        }
        if let Some(left) = self.purges.get_mut(&number).filter(|left| stored && **left > 0) {
            *left -= 1;
            stored = false;
            counts.count(FaultKind::BrokerPurge);
        }
        if stored {
            queue.store(body, overtaken, counts);
        }
        (outcome, number)
    }

    /// Puts something into a queue that nobody published through the front door.
    pub(super) fn plant(&mut self, queue: QueueNo, body: Body) {
        self.queues[usize::from(queue)].append(body);
    }

    /// Empties a queue, and again after each of the next `more` messages; how many are gone at once.
    pub(super) fn purge(&mut self, queue: QueueNo, more: u32) -> usize {
        self.purges.insert(queue, more);
        let Some(purged) = self.queues.get_mut(usize::from(queue)) else { return 0 };
        let ready = core::mem::take(&mut purged.ready);
        let count = ready.len();
        ready.into_iter().for_each(|ready| self.note_gone(queue, ready));
        count
    }

    /// No queue is purged any more.
    pub(super) fn end_purges(&mut self) {
        self.purges.clear();
    }

    /// The next delivery of a queue, if a consumer has room for it.
    pub(super) fn next_delivery(
        &mut self,
        number: QueueNo,
        now: SimTime,
        stream: &mut impl Choose,
        counts: &mut FaultCounts,
    ) -> Option<Outgoing> {
        let queue = &mut self.queues[usize::from(number)];
        if queue.ready.is_empty() {
            return None;
        }
        let priority = queue.priority;
        let has_room = |consumer: &Consumer| {
            consumer.takes
                && consumer.channels.get(priority).unacked < consumer.prefetch
                && consumer.queues.contains(&number)
        };
        let mut with_room = self
            .consumers
            .iter()
            .enumerate()
            .filter_map(|(slot, consumer)| consumer.as_ref().is_some_and(has_room).then_some(slot));
        // A broker serves consumers in turn, but whose turn it is depends on who was full when: anybody's.
        let count = with_room.clone().count() as u64;
        let slot = with_room.nth(if count > 1 { stream.below(count) as usize } else { 0 })?;
        let mut again = false;
        for (_, fault) in &self.troubles {
            if fault.kind == FaultKind::BrokerDuplicate && stream.chance(fault.chance_ppm) {
                again = true;
            }
        }
        let mut first = queue.ready.pop_front()?;
        let (body, place) = (first.body.clone(), first.place);
        if again && first.original {
            counts.count(FaultKind::BrokerDuplicate);
            first.original = false;
            queue.ready.push_front(first);
        }
        let consumer = self.consumers[slot].as_mut().expect("a consumer with room is there");
        let channel = consumer.channels.get_mut(priority);
        channel.unacked += 1;
        channel.delivered += 1;
        let tag = Delivery::tag_of(priority, channel.delivered);
        consumer.unacked.insert(tag, Unacked { queue: number, place, body: body.clone(), since: now });
        Some(Outgoing { life: consumer.life, epoch: consumer.epoch, tag, body })
    }

    /// The consumer of a process, if the broker knows it under this epoch.
    pub(super) fn consumer(&mut self, life: Life, epoch: u64) -> Option<&mut Consumer> {
        let consumer = self.consumers.get_mut(life.slot.index())?.as_mut()?;
        (consumer.life == life && consumer.epoch == epoch).then_some(consumer)
    }

    /// All consumers, by slot.
    pub(super) fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.consumers.iter().flatten()
    }

    /// Registers a consumer. One that was there in its slot must have been closed before.
    pub(super) fn open(&mut self, life: Life, epoch: u64, prefetch: usize, queues: Vec<QueueNo>) {
        let (unacked, channels) = (BTreeMap::new(), ByPriority::default());
        let consumer = Consumer { life, epoch, prefetch, takes: true, queues, unacked, channels };
        self.consumers[life.slot.index()] = Some(consumer);
    }

    /// Forgets a consumer; what it had goes back into its queues.
    pub(super) fn close(&mut self, slot: usize) -> Option<Consumer> {
        let mut consumer = self.consumers.get_mut(slot)?.take()?;
        let unacked = core::mem::take(&mut consumer.unacked);
        self.put_back(Withdrawn(unacked.into_values().collect()));
        Some(consumer)
    }

    /// A delivery is done with; whether it was unacknowledged.
    pub(super) fn acknowledge(&mut self, life: Life, epoch: u64, tag: u64) -> bool {
        let Some(held) = self.consumer(life, epoch).and_then(|consumer| consumer.settle(tag)) else {
            return false;
        };
        self.note_gone(held.queue, held.returning());
        true
    }

    /// Takes back what is unacknowledged: everything, or just any of it, as when somebody refuses single
    /// deliveries. The consumers stay, and have room, before anything is in its queue again.
    pub(super) fn withdraw(&mut self, stream: &mut impl Choose) -> Withdrawn {
        let everything = stream.chance(PPM / 2);
        let mut withdrawn = Vec::new();
        for consumer in self.consumers.iter_mut().flatten() {
            let back: Vec<u64> =
                consumer.unacked.keys().copied().filter(|_| everything || stream.chance(PPM / 2)).collect();
            withdrawn.extend(back.into_iter().filter_map(|tag| consumer.settle(tag)));
        }
        Withdrawn(withdrawn)
    }

    /// Takes back these of a consumer's deliveries, as far as they are unacknowledged.
    pub(super) fn withdraw_from(&mut self, slot: usize, tags: &[u64]) -> Withdrawn {
        let consumer = self.consumers.get_mut(slot).and_then(Option::as_mut);
        let held = consumer
            .into_iter()
            .flat_map(|consumer| tags.iter().filter_map(|tag| consumer.settle(*tag)).collect::<Vec<_>>());
        Withdrawn(held.collect())
    }

    /// Puts what was taken back where it was.
    pub(super) fn put_back(&mut self, withdrawn: Withdrawn) {
        for held in withdrawn.0 {
            self.queues[usize::from(held.queue)].put_back(held.returning());
        }
    }
}

impl Withdrawn {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// What there is, with its queue and place.
    pub(super) fn all(&self) -> impl Iterator<Item = (QueueNo, u64, &Body)> {
        self.0.iter().map(|held| (held.queue, held.place, &held.body))
    }

    /// Leaves out what is of this queue.
    pub(super) fn lose(&mut self, queue: QueueNo) {
        self.0.retain(|held| held.queue != queue);
    }
}

impl Unacked {
    fn returning(self) -> Ready {
        Ready { body: self.body, place: self.place, original: false }
    }
}

impl Queue {
    /// Takes a message in at the end; one that is to be overtaken waits for the next.
    fn store(&mut self, body: Body, overtaken: bool, counts: &mut FaultCounts) {
        match self.aside.take() {
            Some(earlier) => {
                counts.count(FaultKind::BrokerReorder);
                self.append(body);
                self.append(earlier);
            }
            None if overtaken => self.aside = Some(body),
            None => self.append(body),
        }
    }

    /// Puts a message where it was, among those that are there.
    fn put_back(&mut self, ready: Ready) {
        let at = self.ready.partition_point(|other| other.place < ready.place);
        self.ready.insert(at, ready);
    }

    fn append(&mut self, body: Body) {
        let place = self.next_place;
        self.next_place += 1;
        self.ready.push_back(Ready { body, place, original: true });
    }
}

impl Consumer {
    /// A delivery is out no more.
    fn settle(&mut self, tag: u64) -> Option<Unacked> {
        let held = self.unacked.remove(&tag)?;
        let (priority, _) = Delivery { epoch: self.epoch, tag }.place();
        self.channels.get_mut(priority).unacked -= 1;
        Some(held)
    }

    /// Its unacknowledged deliveries, in the order of their tags, each with its queue and place.
    pub(super) fn held(&self) -> impl Iterator<Item = (u64, QueueNo, u64, &Body)> {
        self.unacked.iter().map(|(tag, held)| (*tag, held.queue, held.place, &held.body))
    }

    /// Since when its oldest delivery waits for an acknowledgement.
    pub(super) fn oldest(&self) -> Option<SimTime> {
        self.unacked.values().map(|held| held.since).min()
    }
}
