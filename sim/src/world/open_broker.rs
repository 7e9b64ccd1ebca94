//! The simulated broker with its choices open: what it may do next, all of it.
//!
//! The world draws each answer that the broker leaves open; here every answer is tried, on the same code, so
//! that what a real broker did can be looked up among what the simulated one may do. What the world's links
//! and clocks add (delay, loss, a connection's end) is the caller's to consider. What must stay true: nothing
//! is decided here that `broker` does not decide.

use core::fmt::{self, Write as _};
use core::hash::{Hash, Hasher};
use std::collections::BTreeSet;
use std::sync::Arc;

use fencepost_core::event::PublishOutcome;
use fencepost_core::job::HandlerName;
use fencepost_core::message::ExecutionMessage;
use fencepost_core::priority::Priority;
use fencepost_core::time::Span;

use super::broker::{Body, Broker, Choose, QueueNo, Reception, Withdrawn};
use super::happening::Life;
use crate::fault::{FaultCounts, FaultKind};
use crate::plan::{FaultSpec, NodeSlot, Target};
use crate::rng::PPM;
use crate::sim_time::SimTime;

/// A consumer's place.
pub type Slot = usize;

/// What names a queue: whose it is, and for which priority.
pub type QueueName = (HandlerName, Priority);

/// The simulated broker at one moment.
#[derive(Clone, Debug)]
pub struct OpenBroker {
    broker: Broker,
    withdrawn: Vec<Withdrawn>,
    /// Deliveries whose queue is gone: they take up room until they are settled, and go back nowhere.
    void: BTreeSet<(Slot, u64)>,
}

/// One thing that it may do with a publication.
#[derive(Clone, Debug)]
pub struct Publication {
    /// What the publisher would be told.
    pub outcome: PublishOutcome,
    /// The broker afterwards.
    pub after: OpenBroker,
}

/// One delivery that it may make.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// To whom.
    pub slot: Slot,
    /// Under which tag: each consumer's are counted from 1.
    pub tag: u64,
    /// What.
    pub message: Arc<ExecutionMessage>,
    /// The broker afterwards.
    pub after: OpenBroker,
}

/// Every consumer is opened once, so one epoch and one incarnation are enough.
const EPOCH: u64 = 1;

impl OpenBroker {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self { broker: Broker::new(0), withdrawn: Vec::new(), void: BTreeSet::new() }
    }

    /// From here on it may be killed.
    pub fn may_be_killed(&mut self) {
        self.broker.may_be_killed();
    }

    /// It is stopped: consumers are gone, everything is written down, and it takes nothing in.
    pub fn stop(&mut self) {
        self.end_everything();
        self.broker.write_down();
    }

    /// How it may stand after it was killed: some of what was last acknowledged or purged never was.
    #[must_use]
    pub fn killed(&self) -> Vec<Self> {
        every_way(|choices| {
            let mut after = self.clone();
            after.end_everything();
            after.broker.come_back(choices);
            after
        })
    }

    fn end_everything(&mut self) {
        for withdrawn in self.withdrawn.drain(..) {
            self.broker.put_back(withdrawn);
        }
        let all: Vec<Slot> = self.broker.consumers().map(|consumer| consumer.life.slot.index()).collect();
        for slot in all {
            self.close(slot);
        }
        self.begin(FaultKind::BrokerRestart, 0);
    }

    /// A fault begins, as a plan has it: `count` is its measure, and where it strikes by chance, it may or not.
    pub fn begin(&mut self, kind: FaultKind, count: u32) {
        let fault = FaultSpec {
            kind,
            target: Target::Broker,
            at: SimTime::ZERO,
            lasts: Span::ZERO,
            count,
            chance_ppm: PPM / 2,
            amount: Span::ZERO,
        };
        self.broker.begin(kind as u16, &fault);
    }

    /// A fault ends.
    pub fn end(&mut self, kind: FaultKind) {
        self.broker.end(kind as u16);
    }

    /// What may become of what an alarm held up, once no alarm is left. Its publishers have given up on it.
    #[must_use]
    pub fn released(&self) -> Vec<Self> {
        let mut cleared = self.clone();
        let mut states = Vec::new();
        for message in cleared.broker.unblock().into_iter().flatten() {
            let from = if states.is_empty() { vec![cleared.clone()] } else { states };
            states = from
                .iter()
                .flat_map(|state: &Self| state.publish(&message))
                .map(|publication| publication.after)
                .collect();
        }
        if states.is_empty() { vec![cleared] } else { states }
    }

    /// What may become of a publication that arrives now.
    #[must_use]
    pub fn publish(&self, message: &Arc<ExecutionMessage>) -> Vec<Publication> {
        match self.broker.reception() {
            Reception::Down(_) => {
                vec![Publication { outcome: PublishOutcome::Unknown, after: self.clone() }]
            }
            Reception::Blocked => {
                let mut after = self.clone();
                after.broker.block(vec![Arc::clone(message)]);
                vec![Publication { outcome: PublishOutcome::Unknown, after }]
            }
            Reception::Open => every_way(|choices| {
                let mut after = self.clone();
                let body = Body::Message(Arc::clone(message));
                let (outcome, _) = after.broker.publish(message, body, choices, &mut FaultCounts::default());
                Publication { outcome, after }
            }),
        }
    }

    /// Which deliveries a queue may make now.
    pub fn deliveries(&mut self, (handler, priority): &QueueName) -> Vec<Delivery> {
        let queue = self.broker.declare(handler, *priority);
        if self.broker.is_down().is_some() {
            return Vec::new();
        }
        let ways = every_way(|choices| {
            let mut after = self.clone();
            let counts = &mut FaultCounts::default();
            let outgoing = after.broker.next_delivery(queue, SimTime::ZERO, choices, counts)?;
            let Body::Message(message) = outgoing.body else { return None };
            Some(Delivery { slot: outgoing.life.slot.index(), tag: outgoing.tag, message, after })
        });
        ways.into_iter().flatten().collect()
    }

    /// A consumer begins to consume from these, or goes on with another prefetch.
    pub fn consume(&mut self, slot: Slot, prefetch: usize, queues: &[QueueName]) {
        let life = life(slot);
        self.broker.extend_to(slot);
        match self.broker.consumer(life, EPOCH) {
            Some(consumer) => {
                consumer.prefetch = prefetch;
                consumer.takes = true;
            }
            None => {
                let queues: Vec<QueueNo> = queues
                    .iter()
                    .map(|(handler, priority)| self.broker.declare(handler, *priority))
                    .collect();
                self.broker.open(life, EPOCH, prefetch, queues);
            }
        }
    }

    /// Whether a consumer is there.
    #[must_use]
    pub fn knows(&self, slot: Slot) -> bool {
        self.broker.consumers().any(|consumer| consumer.life.slot.index() == slot)
    }

    /// Whether a consumer is there and consumes.
    #[must_use]
    pub fn takes(&self, slot: Slot) -> bool {
        self.broker.consumers().any(|consumer| consumer.life.slot.index() == slot && consumer.takes)
    }

    /// A consumer consumes no more. What it has may still be acknowledged.
    pub fn cancel(&mut self, slot: Slot) {
        if let Some(consumer) = self.broker.consumer(life(slot), EPOCH) {
            consumer.takes = false;
        }
    }

    /// A delivery is done with. Whether it was unacknowledged.
    pub fn acknowledge(&mut self, slot: Slot, tag: u64) -> bool {
        self.void.remove(&(slot, tag));
        self.broker.acknowledge(life(slot), EPOCH, tag)
    }

    /// Deliveries are refused: their consumer has room at once, and [`put_back`](Self::put_back) puts them back.
    pub fn withdraw(&mut self, slot: Slot, tags: &[u64]) {
        let (void, tags): (Vec<u64>, Vec<u64>) =
            tags.iter().partition(|tag| self.void.contains(&(slot, **tag)));
        for tag in void {
            self.acknowledge(slot, tag);
        }
        let withdrawn = self.broker.withdraw_from(slot, &tags);
        if withdrawn.len() > 0 {
            self.withdrawn.push(withdrawn);
        }
    }

    /// How it may stand once something that was refused is back.
    #[must_use]
    pub fn put_back(&self) -> Vec<Self> {
        (0..self.withdrawn.len())
            .map(|at| {
                let mut after = self.clone();
                let withdrawn = after.withdrawn.remove(at);
                after.broker.put_back(withdrawn);
                after
            })
            .collect()
    }

    /// A consumer is gone, whatever it had goes back.
    pub fn close(&mut self, slot: Slot) {
        let void: Vec<u64> = self.void.range((slot, 0)..=(slot, u64::MAX)).map(|(_, tag)| *tag).collect();
        for tag in void {
            self.acknowledge(slot, tag);
        }
        self.broker.close(slot);
    }

    /// How many messages are out, and neither acknowledged nor back.
    #[must_use]
    pub fn out(&self) -> usize {
        let held: usize = self.broker.consumers().map(|consumer| consumer.held().count()).sum();
        held + self.withdrawn.iter().map(Withdrawn::len).sum::<usize>()
    }

    /// A queue is emptied; how many messages are gone.
    pub fn purge(&mut self, (handler, priority): &QueueName) -> usize {
        let queue = self.broker.declare(handler, *priority);
        self.broker.purge(queue, 0)
    }

    /// A queue is emptied and what is out of it goes back nowhere, as when somebody deletes it: to the world this
    /// is its consumers cancelled and the queue purged.
    pub fn delete(&mut self, (handler, priority): &QueueName) {
        let queue = self.broker.declare(handler, *priority);
        let void = self.broker.consumers().flat_map(|consumer| {
            let slot = consumer.life.slot.index();
            consumer.held().filter(|(_, of, ..)| *of == queue).map(move |(tag, ..)| (slot, tag))
        });
        self.void.extend(void);
        self.withdrawn.iter_mut().for_each(|withdrawn| withdrawn.lose(queue));
        self.withdrawn.retain(|withdrawn| withdrawn.len() > 0);
        self.broker.purge(queue, 0);
    }

    fn queues(&self) -> impl Iterator<Item = QueueNo> {
        (0..self.broker.queue_count()).map(|queue| QueueNo::try_from(queue).expect("plans have few handlers"))
    }

    /// Every place that something has or may return to.
    fn places(&self) -> BTreeSet<(QueueNo, u64)> {
        let waiting = self
            .queues()
            .flat_map(|queue| self.broker.waiting(queue).map(move |(_, place, _)| (queue, place)));
        let held = self.broker.consumers().flat_map(|consumer| {
            let slot = consumer.life.slot.index();
            let real = consumer.held().filter(move |(tag, ..)| !self.void.contains(&(slot, *tag)));
            real.map(|(_, queue, place, _)| (queue, place))
        });
        let refused = self.withdrawn.iter().flat_map(Withdrawn::all);
        let away = refused.chain(self.broker.may_come_back()).map(|(queue, place, _)| (queue, place));
        waiting.chain(held).chain(away).collect()
    }

    /// How many messages wait in a queue.
    pub fn ready(&mut self, (handler, priority): &QueueName) -> usize {
        let queue = self.broker.declare(handler, *priority);
        self.broker.waiting(queue).count()
    }
}

impl Default for OpenBroker {
    fn default() -> Self {
        Self::new()
    }
}

/// Queues with what waits in them, consumers with what they have, and faults; messages by their dispatch
/// numbers, with their ranks. Two brokers that read the same may do the same.
impl fmt::Display for OpenBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |body: &Body| match body {
            Body::Message(message) => message.dispatch_no.0.to_string(),
            Body::Malformed(_) => "malformed".to_owned(),
        };
        let places = self.places();
        let rank =
            |queue: QueueNo, place: u64| places.range(..(queue, place)).filter(|at| at.0 == queue).count();
        let mut text = String::new();
        for queue in self.queues() {
            let (handler, priority) = self.broker.name(queue);
            write!(text, "{handler} {priority} [")?;
            for (body, place, original) in self.broker.waiting(queue) {
                write!(text, " {}@{}{}", name(body), rank(queue, place), if original { "" } else { "'" })?;
            }
            text.push_str(" ]  ");
        }
        for consumer in self.broker.consumers() {
            let slot = consumer.life.slot.index();
            let takes = if consumer.takes { "takes" } else { "stopped" };
            write!(text, "#{slot} {takes} {} {{", consumer.prefetch)?;
            for (tag, queue, place, body) in consumer.held() {
                if self.void.contains(&(slot, tag)) {
                    write!(text, " {tag}:void")?;
                } else {
                    write!(text, " {tag}:{}@{queue}/{}", name(body), rank(queue, place))?;
                }
            }
            text.push_str(" }  ");
        }
        for (queue, place, body) in self.withdrawn.iter().flat_map(Withdrawn::all) {
            write!(text, "refused {}@{queue}/{}  ", name(body), rank(queue, place))?;
        }
        for (queue, place, body) in self.broker.may_come_back() {
            write!(text, "gone {}@{queue}/{}  ", name(body), rank(queue, place))?;
        }
        let held_up = self.broker.held_up();
        if held_up > 0 {
            write!(text, "{held_up} publications held up ")?;
        }
        for kind in self.broker.under_way() {
            write!(text, "  {kind}")?;
        }
        f.write_str(text.trim_end())
    }
}

/// As it reads: two brokers with the same hash may do the same, wherever their places are counted from.
impl Hash for OpenBroker {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let places: Vec<(QueueNo, u64)> = self.places().into_iter().collect();
        let message = |body: &Body, queue: QueueNo, place: u64| {
            let number = match body {
                Body::Message(message) => Some(message.dispatch_no.0),
                Body::Malformed(_) => None,
            };
            (number, queue, places.binary_search(&(queue, place)).ok())
        };
        for queue in self.queues() {
            self.broker.name(queue).hash(state);
            self.broker.waiting(queue).count().hash(state);
            for (body, place, original) in self.broker.waiting(queue) {
                (message(body, queue, place), original).hash(state);
            }
        }
        for consumer in self.broker.consumers() {
            let slot = consumer.life.slot.index();
            (slot, consumer.takes, consumer.prefetch, consumer.held().count()).hash(state);
            for (tag, queue, place, body) in consumer.held() {
                let is_void = self.void.contains(&(slot, tag));
                (tag, (!is_void).then(|| message(body, queue, place))).hash(state);
            }
        }
        let mut refused: Vec<Vec<_>> = self
            .withdrawn
            .iter()
            .map(|withdrawn| {
                withdrawn.all().map(|(queue, place, body)| message(body, queue, place)).collect()
            })
            .collect();
        // They go back in any order.
        refused.sort_unstable();
        refused.hash(state);
        for (queue, place, body) in self.broker.may_come_back() {
            message(body, queue, place).hash(state);
        }
        self.broker.held_up().hash(state);
        for kind in self.broker.under_way() {
            (kind as u16).hash(state);
        }
    }
}

fn life(slot: Slot) -> Life {
    Life { slot: NodeSlot::new(slot), incarnation: 0 }
}

/// Answers given in advance, and the first answer to whatever else is asked.
struct Answers {
    given: Vec<(u64, u64)>,
    asked: usize,
}

impl Choose for Answers {
    fn chance(&mut self, ppm: u32) -> bool {
        match ppm {
            0 => false,
            PPM.. => true,
            _ => self.below(2) == 1,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        if self.asked == self.given.len() {
            self.given.push((0, bound));
        }
        let (answer, _) = self.given[self.asked];
        self.asked += 1;
        answer
    }
}

/// What comes of every way to answer what is asked on the way.
fn every_way<T>(act: impl Fn(&mut Answers) -> T) -> Vec<T> {
    let mut results = Vec::new();
    let mut answers = Answers { given: Vec::new(), asked: 0 };
    loop {
        answers.asked = 0;
        results.push(act(&mut answers));
        // The next way differs in the last answer that has another.
        while answers.given.last().is_some_and(|(answer, bound)| answer + 1 >= *bound) {
            answers.given.pop();
        }
        match answers.given.last_mut() {
            Some((answer, _)) => *answer += 1,
            None => return results,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_walked_once() {
        let ways = every_way(|choices| {
            let first = choices.below(3);
            // Only some ways ask on.
            (first, first > 0 && choices.chance(PPM / 10), choices.chance(0), choices.chance(PPM))
        });
        let expected = [(0, false), (1, false), (1, true), (2, false), (2, true)];
        assert_eq!(ways, expected.map(|(first, second)| (first, second, false, true)));
    }
}
