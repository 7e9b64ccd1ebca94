//! The broker: queues, consumers, and everything that RabbitMQ may do to either, and more.
//!
//! This half holds what the broker knows and decides; what travels to and from it is in `traffic`. A message
//! that was confirmed is in its queue until it is delivered and acknowledged, or purged; a delivery whose
//! consumer is gone goes back to the place in its queue that it had.
//!
//! Everything that is left open is asked of a [`Choose`]: the world draws it, and `open_broker` walks through
//! all answers, so that a real broker can be held against what this one may do.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fencepost_core::event::{MalformedMessage, PublishOutcome};
use fencepost_core::job::HandlerName;
use fencepost_core::message::ExecutionMessage;

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
    next_tag: u64,
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
}

impl Broker {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            queues: Vec::new(),
            consumers: (0..nodes).map(|_| None).collect(),
            troubles: Vec::new(),
            blocked: Vec::new(),
            purges: BTreeMap::new(),
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

    /// The queue of a handler, declared if need be.
    pub(super) fn declare(&mut self, handler: &HandlerName) -> QueueNo {
        let found = self.queues.iter().position(|queue| queue.handler == *handler);
        let number = found.unwrap_or_else(|| {
            self.queues.push(Queue {
                handler: handler.clone(),
                ready: VecDeque::new(),
                aside: None,
                next_place: 0,
            });
            self.queues.len() - 1
        });
        QueueNo::try_from(number).expect("plans have few handlers")
    }

    /// Whose queue this is.
    pub(super) fn handler(&self, queue: QueueNo) -> &HandlerName {
        &self.queues[usize::from(queue)].handler
    }

    /// What waits in a queue, in its order, with its place and whether it may still be delivered twice.
    pub(super) fn waiting(&self, queue: QueueNo) -> impl Iterator<Item = (&Body, u64, bool)> {
        self.queues[usize::from(queue)].ready.iter().map(|ready| (&ready.body, ready.place, ready.original))
    }

    /// The faults that have begun and not ended.
    pub(super) fn under_way(&self) -> impl Iterator<Item = FaultKind> {
        self.troubles.iter().map(|(_, fault)| fault.kind)
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
        let number = self.declare(&message.handler.name);
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
        let ready = self.queues.get_mut(usize::from(queue)).map(|queue| core::mem::take(&mut queue.ready));
        ready.map_or(0, |ready| ready.len())
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
        let has_room = |consumer: &Consumer| {
            consumer.takes && consumer.unacked.len() < consumer.prefetch && consumer.queues.contains(&number)
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
        let tag = consumer.next_tag;
        consumer.next_tag += 1;
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
        let consumer =
            Consumer { life, epoch, prefetch, takes: true, queues, unacked: BTreeMap::new(), next_tag: 1 };
        self.consumers[life.slot.index()] = Some(consumer);
    }

    /// Forgets a consumer; what it had goes back into its queues.
    pub(super) fn close(&mut self, slot: usize) -> Option<Consumer> {
        let mut consumer = self.consumers.get_mut(slot)?.take()?;
        self.requeue(core::mem::take(&mut consumer.unacked));
        Some(consumer)
    }

    /// Puts back what is unacknowledged: everything, or just any of it, as when somebody refuses single
    /// deliveries. The consumers stay. How many messages.
    pub(super) fn recover(&mut self, stream: &mut impl Choose) -> usize {
        let everything = stream.chance(PPM / 2);
        let mut all = 0;
        for slot in 0..self.consumers.len() {
            let Some(consumer) = self.consumers[slot].as_mut() else { continue };
            let unacked = core::mem::take(&mut consumer.unacked);
            let (back, stays) = unacked.into_iter().partition(|_| everything || stream.chance(PPM / 2));
            consumer.unacked = stays;
            all += self.requeue(back);
        }
        all
    }

    /// Puts one delivery back; whether it was unacknowledged.
    pub(super) fn give_back(&mut self, slot: usize, tag: u64) -> bool {
        let held = self.consumers[slot].as_mut().and_then(|consumer| consumer.unacked.remove(&tag));
        self.requeue(held.map(|held| (tag, held)).into_iter().collect()) > 0
    }

    fn requeue(&mut self, unacked: BTreeMap<u64, Unacked>) -> usize {
        let count = unacked.len();
        for held in unacked.into_values().rev() {
            let ready = &mut self.queues[usize::from(held.queue)].ready;
            let at = ready.partition_point(|other| other.place < held.place);
            ready.insert(at, Ready { body: held.body, place: held.place, original: false });
        }
        count
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

    fn append(&mut self, body: Body) {
        let place = self.next_place;
        self.next_place += 1;
        self.ready.push_back(Ready { body, place, original: true });
    }
}

impl Consumer {
    /// A delivery is done with.
    pub(super) fn acknowledge(&mut self, tag: u64) -> bool {
        self.unacked.remove(&tag).is_some()
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
