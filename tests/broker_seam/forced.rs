//! What the search need not try in every order: steps that may as well be taken at once.
//!
//! A step may be taken at once where it comes in any case, is possible now, and where whatever can happen before it
//! can also happen after it and come to the same. The search then follows this one step and no other. What must
//! stay true: nothing that has an explanation loses it here. So an operator's act that is on its way, which may
//! look into a queue or empty it, forbids every step of this kind, and so does the end of a broker.

use fencepost_core::event::PublishOutcome;
use fencepost_sim::world::open_broker::Slot;

use super::{ENDS, Exchange, Node, Search, channel_of};
use crate::history::{Act, Actor, Sight, name};
use crate::script::{Length, Settling};

impl Search<'_> {
    /// Takes a step that may as well be taken at once. Whether there was one.
    pub(super) fn forced(&mut self, node: &Node) -> bool {
        if let Some(after) = self.told_of_the_end(node) {
            self.visit(after);
            return true;
        }
        if node.state.coming.contains_key(&Actor::Operator) {
            return false;
        }
        if let Some((actor, act)) = self.arrives_at_once(node) {
            let mut after = node.clone();
            after.state.coming.entry(actor).or_default().pop_front();
            self.arrive(after, &act);
            return true;
        }
        match self.delivered_at_once(node) {
            Some(after) => {
                self.visit(after);
                true
            }
            None => false,
        }
    }

    /// Where a consumer that is gone is told so: that touches nothing else.
    fn told_of_the_end(&self, node: &Node) -> Option<Node> {
        if node.goes_down() {
            return None;
        }
        let (actor, at, slot) = node.state.coming.iter().find_map(|(actor, acts)| {
            acts.iter().enumerate().find_map(|(at, act)| match act {
                Act::Ended { slot, told: Sight::Lost }
                    if !node.state.broker.knows(*slot)
                        && self.next_sight(node, *slot) == Some(Sight::Lost) =>
                {
                    Some((*actor, at, *slot))
                }
                _other => None,
            })
        })?;
        let mut after = node.clone();
        after.state.coming.get_mut(&actor)?.drain(..=at);
        *after.explained.entry((slot, ENDS)).or_default() += 1;
        Some(after)
    }

    /// An act that makes more possible and nothing impossible, and that nothing overtakes.
    fn arrives_at_once(&self, node: &Node) -> Option<(Actor, Act)> {
        node.state.coming.iter().find_map(|(actor, acts)| {
            let act = acts.front()?;
            let overtaken = acts.iter().any(Act::overtakes);
            let at_once = match act {
                Act::Publish { number, queue } => self.is_taken_in_at_once(node, *actor, *number, *queue),
                // Room, and nothing goes back. When something of production's arrives, nobody knows.
                Act::Settle {
                    how: Settling::Ack | Settling::AckUpTo | Settling::NackAway | Settling::RejectAway,
                    ..
                } => matches!(actor, Actor::Foreign(_)) && !overtaken,
                Act::Consume { slot, .. } => !node.state.broker.knows(*slot) && !overtaken,
                Act::Settle {
                    how: Settling::NackBack | Settling::NackUpToBack | Settling::RejectBack,
                    ..
                }
                | Act::Cancel { .. }
                | Act::Leave { .. }
                | Act::Ended { .. }
                | Act::Purge { .. }
                | Act::Count { .. }
                | Act::Met
                | Act::DeleteQueue { .. }
                | Act::DeleteExchange
                | Act::Alarm
                | Act::AlarmOver
                | Act::Down(_)
                | Act::Up => false,
            };
            at_once.then(|| (*actor, act.clone()))
        })
    }

    /// What was confirmed is at the end of its queue, if nobody else is about to publish there.
    fn is_taken_in_at_once(&self, node: &Node, actor: Actor, number: u32, queue: usize) -> bool {
        let contested = || {
            let others = node.state.coming.iter().filter(|(other, _)| **other != actor);
            others.flat_map(|(_, acts)| acts).any(|act| match act {
                Act::Publish { queue: theirs, .. } => *theirs == queue,
                _other => false,
            })
        };
        self.length == Length::Free
            && self.round.outcomes.get(&number) == Some(&PublishOutcome::Confirmed)
            && node.state.exchange == Exchange::There
            && !node.state.missing.contains(&queue)
            && !contested()
    }

    /// A delivery that was seen, of a message that nobody is known to have got but its consumer.
    fn delivered_at_once(&self, node: &Node) -> Option<Node> {
        if self.length == Length::Limited || !node.state.air.is_empty() {
            return None;
        }
        let next: Vec<(Slot, u64, u32)> = self
            .round
            .sights
            .keys()
            .flat_map(|slot| (0..ENDS).map(|channel| (*slot, channel)))
            .filter_map(|(slot, channel)| match self.next_on(node, slot, channel)? {
                Sight::Delivered { tag, number, .. } => Some((slot, tag, number)),
                Sight::Cancelled | Sight::Lost => None,
            })
            .filter(|(.., number)| !node.state.doubtful.contains(number))
            .filter(|(.., number)| self.still_seen(node, *number) == 1)
            .collect();
        if next.is_empty() {
            return None;
        }
        let mut broker = node.state.broker.clone();
        let delivery = (0..self.queues).find_map(|queue| {
            let mut deliveries = broker.deliveries(&name(queue)).into_iter();
            deliveries.find(|delivery| {
                next.contains(&(delivery.slot, delivery.tag, delivery.message.dispatch_no.0))
            })
        })?;
        let mut after = node.clone();
        after.state.broker = delivery.after;
        *after.explained.entry((delivery.slot, channel_of(delivery.tag))).or_default() += 1;
        Some(after)
    }

    /// How many of the deliveries that are still to be explained are of this message.
    fn still_seen(&self, node: &Node, wanted: u32) -> usize {
        let rest = self.round.sights.iter().flat_map(|(slot, sights)| {
            (0..ENDS).flat_map(move |channel| {
                let of_channel = sights.iter().filter(move |sight| channel_of(sight.tag()) == channel);
                of_channel.skip(node.explained.get(&(*slot, channel)).copied().unwrap_or_default())
            })
        });
        rest.filter(|sight| matches!(sight, Sight::Delivered { number, .. } if *number == wanted)).count()
    }
}
