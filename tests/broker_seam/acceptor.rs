//! The acceptor: whether the simulated broker may do what was seen of a broker.
//!
//! It keeps every state that the simulated broker may be in and every act that may still be on its way. For
//! each round it searches the orders in which the acts can have reached the broker and what that may have
//! done in between, until everything that was seen is explained. The broker is the simulator's own
//! (`open_broker`); what is added here is the way to it: an actor's acts arrive in order, production's
//! consumer does not say when, whoever leaves without a word may leave what was on its way behind, and a
//! publication without an answer may have arrived or not.
//!
//! Faults are granted only where the script gives a cause: a return while a queue is missing, a refusal where
//! the length is limited, nothing taken in during an alarm. The simulated broker may do all of this at any
//! moment; an acceptor that let it would accept too much.
//!
//! There may be more orders than anybody has patience for: after a bound on the states that were looked at, the
//! search of a round is given up, which decides nothing and is told. `forced` keeps that rare.

use core::fmt::{self, Write as _};
use core::hash::{Hash, Hasher};
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::hash::DefaultHasher;

use fencepost_core::event::PublishOutcome;
use fencepost_sim::fault::FaultKind;
use fencepost_sim::world::open_broker::{OpenBroker, Slot};

use crate::history::{Act, Actor, Down, Round, Sight, message, name};
use crate::script::{LENGTH_LIMIT, Length, Settling};

#[path = "forced.rs"]
mod forced;

/// More states than this are not looked at for one round.
const STATES_MAX: usize = 100_000;

/// What may be the case between two rounds.
#[derive(Clone, Debug)]
struct State {
    broker: OpenBroker,
    /// What is on its way to the broker.
    coming: BTreeMap<Actor, VecDeque<Act>>,
    /// Which queues publications may find no way to.
    missing: BTreeSet<usize>,
    exchange: Exchange,
    /// What publications without an answer yet have come to.
    assumed: BTreeMap<u32, PublishOutcome>,
    /// Publications that nobody can say of whether they arrived: nobody waits for their deliveries either.
    doubtful: BTreeSet<u32>,
    /// What was sent to consumers and is still to be seen, since it is doubtful or follows what is.
    air: BTreeMap<Slot, VecDeque<(u64, u32)>>,
}

/// Whether what is published goes anywhere at all: without the exchange, the channel is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Exchange {
    There,
    Gone,
}

/// Which of a consumer's channels something came on: production has one for each priority, told by the first bits of its
/// tags. On each what was seen came in that order; what came on two of them has none. [`ENDS`] is what ends them all.
const fn channel_of(tag: u64) -> u64 {
    tag >> 62
}

/// Where the end of a consumer stands, behind all of its channels.
const ENDS: u64 = channel_of(u64::MAX);

/// A state within a round: how much of what each consumer saw on each channel is explained.
#[derive(Clone, Debug)]
struct Node {
    state: State,
    explained: BTreeMap<(Slot, u64), usize>,
}

/// What a round comes to.
#[derive(Clone, Debug)]
pub(super) struct Weighed {
    states: Vec<State>,
    /// Whether nothing needs to come any more.
    pub(super) settled: bool,
    /// How many states were looked at.
    pub(super) looked_at: usize,
}

/// Why a round is not explained.
#[derive(Clone, Debug)]
pub(super) enum Refusal {
    /// Nothing that the simulated broker may do is what was seen.
    Impossible {
        /// The furthest that an explanation comes, and what the simulated broker may do from there.
        furthest: String,
    },
    /// There are too many states to tell.
    GivenUp,
}

impl fmt::Display for Weighed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for state in self.states.iter().take(5) {
            writeln!(f, "the simulated broker may be at: {}; on the way: {:?}", state.broker, state.coming)?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub(super) struct Acceptor {
    queues: usize,
    length: Length,
    states: Vec<State>,
}

impl Acceptor {
    pub(super) fn new(queues: usize, length: Length) -> Self {
        let mut broker = OpenBroker::new();
        match length {
            Length::Free => {}
            Length::Limited => broker.begin(FaultKind::BrokerLengthLimit, LENGTH_LIMIT),
        }
        // In one order, so that what comes to the same looks the same.
        for queue in 0..queues {
            broker.ready(&name(queue));
        }
        let state = State {
            broker,
            coming: BTreeMap::new(),
            missing: BTreeSet::new(),
            exchange: Exchange::There,
            assumed: BTreeMap::new(),
            doubtful: BTreeSet::new(),
            air: BTreeMap::new(),
        };
        Self { queues, length, states: vec![state] }
    }

    /// The broker may be killed during this script.
    pub(super) fn expect_a_kill(&mut self) {
        self.states.iter_mut().for_each(|state| state.broker.may_be_killed());
    }

    /// Looks for explanations of a round, which may go on.
    pub(super) fn weigh(&self, round: &Round) -> Result<Weighed, Refusal> {
        let mut search = Search {
            queues: self.queues,
            length: self.length,
            round,
            open: Vec::new(),
            known: HashSet::new(),
            ends: BTreeMap::new(),
            settled: false,
            furthest: (0, String::new()),
        };
        for state in &self.states {
            search.start(state.clone());
        }
        search.run()
    }

    /// Goes on from what a round came to.
    pub(super) fn advance(&mut self, weighed: Weighed) {
        self.states = weighed.states;
    }

    /// Weighs a whole round and goes on from it; whether nothing needs to come any more.
    pub(super) fn take(&mut self, round: &Round) -> Result<bool, Refusal> {
        let weighed = self.weigh(round)?;
        let settled = weighed.settled;
        self.advance(weighed);
        Ok(settled)
    }

    /// How many messages the simulated broker may still have, at most, waiting or out.
    pub(super) fn left(&mut self) -> usize {
        let queues = self.queues;
        let left = |state: &mut State| {
            let waiting: usize = (0..queues).map(|queue| state.broker.ready(&name(queue))).sum();
            waiting + state.broker.out()
        };
        self.states.iter_mut().map(left).min().unwrap_or_default()
    }
}

struct Search<'a> {
    queues: usize,
    length: Length,
    round: &'a Round,
    open: Vec<Node>,
    known: HashSet<u64>,
    ends: BTreeMap<u64, State>,
    settled: bool,
    furthest: (usize, String),
}

impl Search<'_> {
    fn start(&mut self, mut state: State) {
        for (number, outcome) in &self.round.outcomes {
            let assumed = state.assumed.remove(number);
            if assumed.is_some_and(|assumed| !told(assumed, *outcome)) {
                return;
            }
        }
        for (actor, act) in &self.round.acts {
            state.coming.entry(*actor).or_default().push_back(act.clone());
        }
        self.visit(Node { state, explained: BTreeMap::new() });
    }

    fn run(mut self) -> Result<Weighed, Refusal> {
        while let Some(node) = self.open.pop() {
            if self.known.len() > STATES_MAX {
                return Err(Refusal::GivenUp);
            }
            if self.forced(&node) {
                continue;
            }
            self.arrivals(&node);
            let put_back = node.state.broker.put_back();
            let all_back = put_back.is_empty();
            for broker in put_back {
                self.visit(Node { state: State { broker, ..node.state.clone() }, ..node.clone() });
            }
            let due = self.deliveries(&node);
            let all_explained = self.round.sights.keys().all(|slot| self.next_sight(&node, *slot).is_none());
            if all_back
                && all_explained
                && node.state.coming.iter().all(|(actor, acts)| self.may_wait(*actor, acts))
            {
                self.settled |= due == Due::Nothing
                    && node.state.air.is_empty()
                    && node.state.coming.keys().all(|actor| *actor == Actor::Publisher);
                self.ends.insert(node.state.key(), node.state);
            }
        }
        if self.ends.is_empty() {
            return Err(Refusal::Impossible { furthest: self.furthest.1 });
        }
        let (settled, looked_at) = (self.settled, self.known.len());
        Ok(Weighed { states: self.ends.into_values().collect(), settled, looked_at })
    }

    /// Whether these may still be on their way when a round is over.
    fn may_wait(&self, actor: Actor, acts: &VecDeque<Act>) -> bool {
        match actor {
            // What has an outcome has arrived, or never will.
            Actor::Publisher => acts.iter().all(|act| match act {
                Act::Publish { number, .. } => !self.round.outcomes.contains_key(number),
                other => unreachable!("a publisher does nothing else: {other:?}"),
            }),
            Actor::Worker(_) => true,
            Actor::Passer(_) | Actor::Foreign(_) | Actor::Operator => false,
        }
    }

    fn visit(&mut self, mut node: Node) {
        node.state.forget_the_dead();
        for (slot, channel) in
            self.round.sights.keys().flat_map(|slot| (0..ENDS).map(|channel| (*slot, channel)))
        {
            while let Some(Sight::Delivered { tag, number, .. }) = self.next_on(&node, slot, channel)
                && let Some(sent) = node.state.air.get_mut(&slot)
                && let Some(first) = sent.iter().position(|(tag, _)| channel_of(*tag) == channel)
                && sent[first] == (tag, number)
            {
                sent.remove(first);
                *node.explained.entry((slot, channel)).or_default() += 1;
            }
        }
        node.state.air.retain(|_, sent| !sent.is_empty());
        if self.known.insert(node.key()) {
            let explained: usize = node.explained.values().sum();
            let coming: usize = node.state.coming.values().map(VecDeque::len).sum();
            let far = explained * 1_000 + 999_usize.saturating_sub(coming);
            if self.furthest.1.is_empty() || far > self.furthest.0 {
                self.furthest = (far, self.describe(&node));
            }
            self.open.push(node);
        }
    }

    fn describe(&self, node: &Node) -> String {
        let mut text = format!("the simulated broker: {}\n", node.state.broker);
        for (actor, acts) in &node.state.coming {
            let _infallible = writeln!(text, "on the way from {actor:?}: {acts:?}");
        }
        for slot in self.round.sights.keys() {
            let _infallible = writeln!(text, "next seen by #{slot}: {:?}", self.next_sight(node, *slot));
        }
        let mut broker = node.state.broker.clone();
        for queue in 0..self.queues {
            for delivery in broker.deliveries(&name(queue)) {
                let (slot, tag, number) = (delivery.slot, delivery.tag, delivery.message.dispatch_no.0);
                let _infallible = writeln!(text, "allowed: #{slot} gets {number} from q{queue} as {tag}");
            }
        }
        text
    }

    /// What is to be explained next of what came on a channel.
    fn next_on(&self, node: &Node, slot: Slot, channel: u64) -> Option<Sight> {
        let at = node.explained.get(&(slot, channel)).copied().unwrap_or_default();
        let sights = self.round.sights.get(&slot)?.iter();
        sights.filter(|sight| channel_of(sight.tag()) == channel).nth(at).copied()
    }

    /// What is to be explained next on some channel; the end of all, where nothing else is left.
    fn next_sight(&self, node: &Node, slot: Slot) -> Option<Sight> {
        (0..=ENDS).find_map(|channel| self.next_on(node, slot, channel))
    }

    /// What can have reached the broker next.
    fn arrivals(&mut self, node: &Node) {
        for (actor, acts) in &node.state.coming {
            for (at, act) in acts.iter().enumerate() {
                // Who goes without a word may leave what was on its way behind.
                let overtakes = act.overtakes();
                if at == 0 || overtakes {
                    let mut after = node.clone();
                    let coming = after.state.coming.get_mut(actor).expect("it is being walked");
                    coming.drain(..=at);
                    self.arrive(after, act);
                }
            }
        }
    }

    fn arrive(&mut self, mut node: Node, act: &Act) {
        let goes_down = node.goes_down();
        let broker = &mut node.state.broker;
        match act {
            Act::Publish { number, queue } => return self.publish(node, *number, *queue),
            Act::Consume { slot, prefetch, queues } => {
                let names: Vec<_> = queues.iter().map(|queue| name(*queue)).collect();
                broker.consume(*slot, usize::from(*prefetch), &names);
            }
            Act::Cancel { slot } => broker.cancel(*slot),
            Act::Settle { slot, tags, how } => {
                match how {
                    Settling::Ack | Settling::AckUpTo | Settling::NackAway | Settling::RejectAway => {
                        for tag in tags {
                            // Void where the queue is gone with what it had.
                            let _was_held = broker.acknowledge(*slot, *tag);
                        }
                    }
                    Settling::NackBack | Settling::NackUpToBack | Settling::RejectBack => {
                        broker.withdraw(*slot, tags);
                    }
                }
            }
            Act::Leave { slot, .. } => {
                broker.close(*slot);
                node.state.air.remove(slot);
            }
            Act::Ended { slot, told } => {
                // A restart is what ends it; before, nothing does.
                if goes_down {
                    return;
                }
                match told {
                    // Who lost its session still has to let go of it: that is an act of its own.
                    Sight::Cancelled | Sight::Lost => broker.cancel(*slot),
                    Sight::Delivered { .. } => unreachable!("a delivery ends nothing"),
                }
                node.state.air.remove(slot);
                if self.next_sight(&node, *slot) != Some(*told) {
                    return;
                }
                *node.explained.entry((*slot, ENDS)).or_default() += 1;
            }
            Act::Purge { queue, removed } => {
                if broker.purge(&name(*queue)) != *removed as usize {
                    return;
                }
            }
            Act::Count { queue, ready } => {
                if broker.ready(&name(*queue)) != *ready as usize {
                    return;
                }
            }
            Act::Met => {
                if !node.state.sessions_are_as_told() {
                    return;
                }
            }
            Act::DeleteQueue { queue } => {
                broker.delete(&name(*queue));
                node.state.missing.insert(*queue);
            }
            Act::DeleteExchange => {
                node.state.missing.extend(0..self.queues);
                node.state.exchange = Exchange::Gone;
            }
            Act::Alarm => broker.begin(FaultKind::BrokerAlarm, 0),
            Act::AlarmOver => {
                broker.end(FaultKind::BrokerAlarm);
                for broker in node.state.broker.released() {
                    self.visit(Node { state: State { broker, ..node.state.clone() }, ..node.clone() });
                }
                return;
            }
            Act::Down(Down::InOrder) => broker.stop(),
            Act::Down(Down::Killed) => {
                for broker in node.state.broker.killed() {
                    self.visit(Node { state: State { broker, ..node.state.clone() }, ..node.clone() });
                }
                return;
            }
            Act::Up => broker.end(FaultKind::BrokerRestart),
        }
        self.visit(node);
    }

    fn publish(&mut self, node: Node, number: u32, queue: usize) {
        let known = self.round.outcomes.get(&number).copied();
        if known == Some(PublishOutcome::Unknown) {
            // It never arrived.
            self.visit(node.clone());
            if node.state.exchange == Exchange::Gone {
                return;
            }
        }
        let mut broker = node.state.broker.clone();
        let may_be_missing = node.state.missing.contains(&queue);
        if may_be_missing {
            broker.begin(FaultKind::BrokerUnroutable, 0);
        }
        for publication in broker.publish(&message(number, queue)) {
            let mut after = node.clone();
            after.state.broker = publication.after;
            after.state.broker.end(FaultKind::BrokerUnroutable);
            match known {
                Some(known) if !told(publication.outcome, known) => continue,
                Some(PublishOutcome::Unknown) => {
                    after.state.doubtful.insert(number);
                }
                Some(_) => {}
                None => {
                    after.state.assumed.insert(number, publication.outcome);
                }
            }
            if known.is_some_and(|known| known != PublishOutcome::Unknown) {
                after.state.exchange = Exchange::There;
            }
            // Whoever is told otherwise has declared the queue anew.
            if may_be_missing && known == Some(PublishOutcome::Confirmed) {
                after.state.missing.remove(&queue);
            }
            self.visit(after);
        }
    }

    /// What the broker can have delivered next; whether there is something that it must.
    fn deliveries(&mut self, node: &Node) -> Due {
        let mut broker = node.state.broker.clone();
        let mut due = Due::Nothing;
        for queue in 0..self.queues {
            for delivery in broker.deliveries(&name(queue)) {
                due = Due::Something;
                let (slot, number) = (delivery.slot, delivery.message.dispatch_no.0);
                let mut after = node.clone();
                after.state.broker = delivery.after;
                let channel = channel_of(delivery.tag);
                let sent = after.state.air.get(&slot).into_iter().flatten();
                let flying = sent.into_iter().any(|(tag, _)| channel_of(*tag) == channel);
                match self.next_on(node, slot, channel).or_else(|| self.next_on(node, slot, ENDS)) {
                    // Not seen yet, and nobody waits for it.
                    None if flying || node.state.doubtful.contains(&number) => {
                        after.state.air.entry(slot).or_default().push_back((delivery.tag, number));
                        self.visit(after);
                    }
                    Some(Sight::Delivered { tag, number: seen, .. }) => {
                        if !flying && tag == delivery.tag && seen == number {
                            *after.explained.entry((slot, channel)).or_default() += 1;
                            self.visit(after);
                        }
                    }
                    // Sent to somebody who is going, and never seen.
                    None | Some(Sight::Lost) if node.is_going(slot) && !node.goes_down() => self.visit(after),
                    None | Some(Sight::Lost | Sight::Cancelled) => {}
                }
            }
        }
        due
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    Something,
}

/// Whether a publisher may be told this where the broker did that.
fn told(did: PublishOutcome, told: PublishOutcome) -> bool {
    told == did || told == PublishOutcome::Unknown
}

impl Node {
    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.state.hash(&mut hasher);
        self.explained.hash(&mut hasher);
        hasher.finish()
    }

    fn is_going(&self, slot: Slot) -> bool {
        self.state.coming.values().flatten().any(|act| match act {
            Act::Leave { slot: leaves, .. } | Act::Ended { slot: leaves, told: Sight::Lost } => {
                *leaves == slot
            }
            Act::Ended { told: Sight::Cancelled | Sight::Delivered { .. }, .. }
            | Act::Publish { .. }
            | Act::Consume { .. }
            | Act::Cancel { .. }
            | Act::Settle { .. }
            | Act::Purge { .. }
            | Act::Count { .. }
            | Act::Met
            | Act::DeleteQueue { .. }
            | Act::DeleteExchange
            | Act::Alarm
            | Act::AlarmOver
            | Act::Down(_)
            | Act::Up => false,
        })
    }

    /// Whether the broker is about to be ended. What it sends to nobody's eyes until then is back in its place
    /// afterwards, and nothing is counted or emptied in between.
    fn goes_down(&self) -> bool {
        let operated = self.state.coming.get(&Actor::Operator);
        operated.is_some_and(|acts| acts.iter().any(|act| matches!(act, Act::Down(_))))
    }
}

impl State {
    /// What is on its way for a consumer that is gone for good comes to nothing.
    fn forget_the_dead(&mut self) {
        let broker = &self.broker;
        for acts in self.coming.values_mut() {
            while let Some(Act::Leave { slot, .. } | Act::Cancel { slot } | Act::Settle { slot, .. }) =
                acts.front()
                && !broker.knows(*slot)
            {
                acts.pop_front();
            }
        }
        self.coming.retain(|_, acts| !acts.is_empty());
    }

    /// Whether no consumer takes anything whose end or cancel is still on its way.
    fn sessions_are_as_told(&self) -> bool {
        self.coming.values().flatten().all(|act| match act {
            Act::Leave { slot, .. } | Act::Cancel { slot } | Act::Ended { slot, .. } => {
                !self.broker.takes(*slot)
            }
            Act::Publish { .. }
            | Act::Consume { .. }
            | Act::Settle { .. }
            | Act::Purge { .. }
            | Act::Count { .. }
            | Act::Met
            | Act::DeleteQueue { .. }
            | Act::DeleteExchange
            | Act::Alarm
            | Act::AlarmOver
            | Act::Down(_)
            | Act::Up => true,
        })
    }

    /// Two states with the same key come to the same: a hash, since there are many.
    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    fn hash(&self, hasher: &mut impl Hasher) {
        self.broker.hash(hasher);
        (&self.coming, &self.missing, &self.exchange, &self.assumed, &self.air).hash(hasher);
    }
}
