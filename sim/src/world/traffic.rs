//! What travels between nodes and the broker: publications, confirms, deliveries, acknowledgements, and the
//! making and breaking of consumers' connections.
//!
//! A consumer's connection does not lose single frames: where a link loses one, the connection is found broken
//! a while later, on both ends, and everything unacknowledged goes back. Until then both ends go on as if
//! nothing had happened.

use std::sync::Arc;

use fencepost_core::event::{Delivery, PublishOutcome};
use fencepost_core::id::EffectId;
use fencepost_core::limits::PUBLISH_TIMEOUT;
use fencepost_core::message::ExecutionMessage;
use fencepost_core::priority::Priority;
use fencepost_core::time::Span;

use super::World;
use super::broker::{Body, Outgoing, QueueNo, Reception};
use super::happening::{Happening, Life};
use super::link::{Air, Fate, Way};
use super::role::RoleEvent;
use crate::fault::FaultKind;
use crate::rng::PPM;
use crate::sim_time::SimTime;

/// The connections of a node's link to the broker.
const PUBLISHING: usize = 0;
const CONSUMING: usize = 1;

/// A publication under way.
#[derive(Debug)]
pub(super) struct Publication {
    life: Life,
    effect: EffectId,
    messages: Vec<Arc<ExecutionMessage>>,
    /// How many messages it has, also once they are taken out.
    count: usize,
    outcomes: Vec<PublishOutcome>,
    sent: SimTime,
    /// Whether its channel, or the broker, has gone under it.
    broken: bool,
    /// Whether its publisher has given up, or will at the deadline whatever happens.
    abandoned: bool,
}

/// A node's side of its consumer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConsumerSide {
    /// With which prefetch the worker wants to consume, if it does.
    wanted: Option<u32>,
    epoch: u64,
    /// Whether it has a connection, or is about to make one, as far as it knows.
    connected: bool,
}

impl ConsumerSide {
    pub(super) fn epoch(self) -> u64 {
        self.epoch
    }

    /// Whether deliveries of this epoch are still those of a consumer that it believes to have.
    pub(super) fn takes_from(self, epoch: u64) -> bool {
        self.connected && self.epoch == epoch
    }
}

impl World<'_> {
    fn pass_broker(&mut self, life: Life, way: Way, connection: usize) -> Fate {
        let mut air = Air { now: self.now, stream: &mut self.streams.broker_links, counts: &mut self.counts };
        self.nodes[life.slot.index()].broker_link.pass(way, connection, &mut air)
    }

    pub(super) fn publish(&mut self, life: Life, effect: EffectId, messages: Vec<Arc<ExecutionMessage>>) {
        let deadline = self.now.plus(PUBLISH_TIMEOUT);
        let count = messages.len();
        match self.pass_broker(life, Way::Out, PUBLISHING) {
            Fate::Lost => self.queue.push(deadline, Happening::PublishSilent { life, effect, count }),
            Fate::Arrives(at) => {
                let publication = self.publications.insert(Publication {
                    life,
                    effect,
                    messages,
                    count,
                    outcomes: Vec::new(),
                    sent: self.now,
                    broken: false,
                    abandoned: false,
                });
                self.queue.push(at, Happening::PublishArrives { publication });
                if at > deadline {
                    self.abandon_publication(publication, deadline);
                }
                let node = &mut self.nodes[life.slot.index()];
                if core::mem::take(&mut node.breaks_publishing) {
                    self.break_publishing(life.slot.index(), FaultKind::PublishChannelClosed);
                }
            }
        }
    }

    fn abandon_publication(&mut self, place: u32, at: SimTime) {
        let Some(publication) = self.publications.get_mut(place) else { return };
        if !publication.abandoned {
            publication.abandoned = true;
            let Publication { life, effect, count, .. } = *publication;
            let silent = Happening::PublishSilent { life, effect, count };
            self.queue.push(at.max(self.now), silent);
        }
    }

    pub(super) fn on_publish_arrives(&mut self, place: u32) {
        let publication = self.publications.get_mut(place).expect("a publication arrives once");
        let (life, deadline) = (publication.life, publication.sent.plus(PUBLISH_TIMEOUT));
        let messages = core::mem::take(&mut publication.messages);
        let gone = publication.broken && self.streams.broker.chance(PPM / 2);
        match self.broker.reception() {
            Reception::Down(kind) => {
                self.counts.count(kind);
                self.lose_publication(place);
                return;
            }
            Reception::Blocked | Reception::Open if gone => {
                self.lose_publication(place);
                return;
            }
            Reception::Blocked => {
                self.counts.count(FaultKind::BrokerAlarm);
                self.broker.block(messages);
                self.abandon_publication(place, deadline);
                self.publications.take(place);
                return;
            }
            Reception::Open => {}
        }
        let outcomes = self.take_in(&messages);
        let fate = self.pass_broker(life, Way::Back, PUBLISHING);
        let publication = self.publications.get_mut(place).expect("it was there");
        publication.outcomes = outcomes;
        match fate {
            Fate::Arrives(at) if at <= deadline && !publication.abandoned => {
                self.queue.push(at, Happening::PublishAnswers { publication: place });
            }
            Fate::Arrives(_) | Fate::Lost => {
                self.abandon_publication(place, deadline);
                self.publications.take(place);
            }
        }
    }

    fn lose_publication(&mut self, place: u32) {
        self.abandon_publication(place, self.now.plus(Span::from_millis(1)));
        self.publications.take(place);
    }

    /// The broker takes messages in; the outcomes stand in their order.
    fn take_in(&mut self, messages: &[Arc<ExecutionMessage>]) -> Vec<PublishOutcome> {
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            let body = self.on_the_wire(message);
            let (outcome, queue) =
                self.broker.publish(message, body, &mut self.streams.broker, &mut self.counts);
            if outcome == PublishOutcome::Confirmed {
                let seen = self.oracles.on_confirmed(self.now, message.execution, message.dispatch_no);
                self.judge(seen);
                self.measures.on_confirmed(message, self.store_clock.read(self.now));
                self.last_published = Some(Arc::clone(message));
            }
            outcomes.push(outcome);
            self.pump(queue);
        }
        outcomes
    }

    /// A message as it arrives: now and then it is really encoded and decoded.
    fn on_the_wire(&mut self, message: &Arc<ExecutionMessage>) -> Body {
        if !self.streams.broker.chance(self.plan.network.recode_ppm) {
            return Body::Message(Arc::clone(message));
        }
        match ExecutionMessage::decode(&message.encode()) {
            Ok(message) => Body::Message(Arc::new(message)),
            Err(malformed) => Body::Malformed(Arc::new(malformed)),
        }
    }

    pub(super) fn on_publish_answers(&mut self, place: u32) {
        let publication = self.publications.take(place).expect("a publication is answered once");
        if publication.abandoned {
            return;
        }
        let Publication { life, effect, outcomes, .. } = publication;
        self.deliver(life, RoleEvent::Published { effect, outcomes });
    }

    pub(super) fn on_publish_silent(&mut self, life: Life, effect: EffectId, count: usize) {
        self.deliver(life, RoleEvent::Published { effect, outcomes: vec![PublishOutcome::Unknown; count] });
    }

    /// A node's publishing channel is closed: what is under way on it has no known outcome.
    pub(super) fn break_publishing(&mut self, slot: usize, kind: FaultKind) {
        let soon = self.now.plus(Span::from_millis(1));
        let on_it: Vec<u32> = self
            .publications
            .iter()
            .filter(|(_, publication)| publication.life.slot.index() == slot && !publication.broken)
            .map(|(place, _)| place)
            .collect();
        for place in on_it {
            self.counts.count(kind);
            if let Some(publication) = self.publications.get_mut(place) {
                publication.broken = true;
            }
            self.abandon_publication(place, soon);
        }
    }

    /// Lets a queue deliver whatever its consumers have room for.
    pub(super) fn pump(&mut self, queue: QueueNo) {
        if self.broker.is_down().is_some() {
            return;
        }
        while let Some(outgoing) =
            self.broker.next_delivery(queue, self.now, &mut self.streams.broker, &mut self.counts)
        {
            let Outgoing { life, epoch, tag, body } = outgoing;
            match self.pass_broker(life, Way::Back, CONSUMING) {
                Fate::Arrives(at) => {
                    let delivery = Delivery { epoch, tag };
                    self.queue.push(at, Happening::Delivery { life, delivery, body });
                }
                Fate::Lost => self.break_consumer_later(life, epoch),
            }
        }
    }

    pub(super) fn pump_all(&mut self) {
        for queue in 0..self.broker.queue_count() {
            self.pump(queue as QueueNo);
        }
    }

    fn break_consumer_later(&mut self, life: Life, epoch: u64) {
        let at = self.now.plus(self.plan.network.detect.draw(&mut self.streams.broker_links));
        self.queue.push(at, Happening::ConsumerCloses { life, epoch });
    }

    pub(super) fn on_delivery(&mut self, life: Life, delivery: Delivery, body: Body) {
        let Some(node) = self.node_of(life) else { return };
        if !node.consumer.takes_from(delivery.epoch) {
            return;
        }
        let message = match body {
            Body::Message(message) => Ok(message),
            Body::Malformed(malformed) => Err((*malformed).clone()),
        };
        self.deliver(life, RoleEvent::Delivered { delivery, message });
    }

    pub(super) fn acknowledge(&mut self, life: Life, delivery: Delivery) {
        let consumer = self.nodes[life.slot.index()].consumer;
        if !consumer.takes_from(delivery.epoch) {
            return;
        }
        match self.pass_broker(life, Way::Out, CONSUMING) {
            Fate::Arrives(at) => self.queue.push(at, Happening::AckArrives { life, delivery }),
            Fate::Lost => self.break_consumer_later(life, delivery.epoch),
        }
    }

    pub(super) fn on_ack_arrives(&mut self, life: Life, delivery: Delivery) {
        if self.broker.acknowledge(life, delivery.epoch, delivery.tag) {
            self.pump_all();
        }
    }

    /// The worker wants to consume, or with another prefetch.
    pub(super) fn consume(&mut self, life: Life, prefetch: u32) {
        let consumer = &mut self.nodes[life.slot.index()].consumer;
        consumer.wanted = Some(prefetch);
        if !consumer.connected {
            consumer.connected = true;
            consumer.epoch += 1;
        }
        let epoch = consumer.epoch;
        let at = self.now.plus(self.plan.network.broker.draw(&mut self.streams.broker_links));
        self.queue.push(at, Happening::ConsumerOpens { life, epoch });
    }

    /// The worker wants to consume no more. What it has may still be acknowledged.
    pub(super) fn stop_consuming(&mut self, life: Life) {
        let consumer = &mut self.nodes[life.slot.index()].consumer;
        consumer.wanted = None;
        let epoch = consumer.epoch;
        match self.pass_broker(life, Way::Out, CONSUMING) {
            Fate::Arrives(_) => {
                if let Some(consumer) = self.broker.consumer(life, epoch) {
                    consumer.takes = false;
                }
            }
            Fate::Lost => self.break_consumer_later(life, epoch),
        }
    }

    pub(super) fn on_consumer_opens(&mut self, life: Life, epoch: u64) {
        let Some(node) = self.node_of(life) else { return };
        let Some(prefetch) = node.consumer.wanted else { return };
        if !node.consumer.takes_from(epoch) {
            return;
        }
        let stands_still = node.stands_still();
        let handlers = node.handlers();
        let down = self.broker.is_down();
        if let Some(kind) = down {
            self.counts.count(kind);
        }
        let cut = self.pass_broker(life, Way::Out, CONSUMING) == Fate::Lost;
        if stands_still || down.is_some() || cut {
            let at = self.now.plus(self.plan.network.reconnect.draw(&mut self.streams.broker_links));
            self.queue.push(at, Happening::ConsumerOpens { life, epoch });
            return;
        }
        let prefetch = prefetch as usize;
        match self.broker.consumer(life, epoch) {
            Some(consumer) => {
                consumer.prefetch = prefetch;
                consumer.takes = true;
            }
            None => {
                self.broker.close(life.slot.index());
                let names = handlers
                    .iter()
                    .flat_map(|handler| Priority::ALL.iter().map(move |priority| (handler, *priority)));
                let queues =
                    names.map(|(handler, priority)| self.broker.declare(handler, priority)).collect();
                self.broker.open(life, epoch, prefetch, queues);
            }
        }
        self.pump_all();
    }

    /// The broker finds a consumer gone, or closes it.
    pub(super) fn on_consumer_closes(&mut self, life: Life, epoch: u64) {
        if self.broker.consumer(life, epoch).is_none() {
            return;
        }
        self.broker.close(life.slot.index());
        let at = self.now.plus(self.plan.network.broker.draw(&mut self.streams.broker_links));
        self.queue.push(at, Happening::ConsumerDies { life, epoch });
        self.pump_all();
    }

    pub(super) fn on_consumer_dies(&mut self, life: Life, epoch: u64) {
        let Some(node) = self.node_of(life) else { return };
        if node.consumer.takes_from(epoch) {
            self.deliver(life, RoleEvent::ConsumerLost { epoch });
        }
    }

    /// The process is about to be told that its consumer is gone: from here on, it makes itself a new one.
    pub(super) fn on_consumer_lost(&mut self, life: Life, epoch: u64) {
        let consumer = &mut self.nodes[life.slot.index()].consumer;
        if !consumer.takes_from(epoch) {
            return;
        }
        consumer.connected = consumer.wanted.is_some();
        consumer.epoch += 1;
        let epoch = consumer.epoch;
        if consumer.connected {
            let at = self.now.plus(self.plan.network.reconnect.draw(&mut self.streams.broker_links));
            self.queue.push(at, Happening::ConsumerOpens { life, epoch });
        }
    }

    /// Closes every consumer, as the end of a broker does.
    pub(super) fn close_all_consumers(&mut self) {
        let all: Vec<(Life, u64)> =
            self.broker.consumers().map(|consumer| (consumer.life, consumer.epoch)).collect();
        for (life, epoch) in all {
            self.on_consumer_closes(life, epoch);
        }
    }

    pub(super) fn on_consumer_timeout_check(&mut self, fault: u16) {
        let Some(spec) = self.broker.trouble(fault) else { return };
        let (limit, kind) = (spec.amount, spec.kind);
        let late: Vec<(Life, u64)> = self
            .broker
            .consumers()
            .filter(|consumer| consumer.oldest().is_some_and(|since| self.now.since(since) > limit))
            .map(|consumer| (consumer.life, consumer.epoch))
            .collect();
        for (life, epoch) in late {
            self.counts.count(kind);
            self.on_consumer_closes(life, epoch);
        }
        let again = self.now.plus(limit.divided_by(2).max(Span::from_millis(100)));
        self.queue.push(again, Happening::ConsumerTimeoutCheck { fault });
    }

    /// Publications that an alarm held up are taken in; their publishers have given up on them.
    pub(super) fn release_blocked(&mut self) {
        for messages in self.broker.unblock() {
            self.take_in(&messages);
        }
    }
}
