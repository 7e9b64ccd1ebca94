//! The tally: how often each kind of thing happened, so that a run without some of them is noticed.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::event::PublishOutcome;

use crate::history::{Act, Actor, Down, Flag, History, Sight};
use crate::script::{Leaving, Settling};

/// Everything that has to happen.
const KINDS: [&str; 33] = [
    "confirmed",
    "returned",
    "refused",
    "unknown",
    "published and left",
    "held up by an alarm",
    "delivered to a worker",
    "delivered to a stranger",
    "delivered again",
    "flagged as redelivered",
    "consumed",
    "consumed anew with another prefetch",
    "cancelled",
    "acknowledged",
    "acknowledged up to",
    "refused back",
    "refused up to, back",
    "refused away",
    "rejected back",
    "rejected away",
    "channel closed",
    "connection closed",
    "gone abruptly",
    "gone with unacknowledged messages",
    "cancelled by the broker",
    "session lost",
    "purged something",
    "purged nothing",
    "queue deleted",
    "exchange deleted",
    "alarm",
    "restart in order",
    "restart after a kill",
];

#[derive(Debug, Default)]
pub(super) struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    pub(super) fn add(&mut self, history: &History) {
        let mut seen: BTreeSet<u32> = BTreeSet::new();
        let mut consuming = BTreeSet::new();
        let mut workers = BTreeSet::new();
        let mut alarm = false;
        for round in &history.rounds {
            for (actor, act) in &round.acts {
                if let (Actor::Worker(slot), _) = (actor, act) {
                    workers.insert(*slot);
                }
                if let Act::Alarm | Act::AlarmOver = act {
                    alarm = *act == Act::Alarm;
                }
                if let Act::Publish { number, .. } = act
                    && alarm
                    && round.outcomes.get(number) != Some(&PublishOutcome::Confirmed)
                {
                    self.note("held up by an alarm");
                }
                if let Act::Consume { slot, .. } = act
                    && !consuming.insert(*slot)
                {
                    self.note("consumed anew with another prefetch");
                }
                if let Act::Leave { holding: 1.., .. } = act {
                    self.note("gone with unacknowledged messages");
                }
                if let Some(kind) = kind_of(*actor, act) {
                    self.note(kind);
                }
            }
            for outcome in round.outcomes.values() {
                self.note(match outcome {
                    PublishOutcome::Confirmed => "confirmed",
                    PublishOutcome::Returned => "returned",
                    PublishOutcome::Nacked => "refused",
                    PublishOutcome::Unknown => "unknown",
                });
            }
            for (slot, sights) in &round.sights {
                for sight in sights {
                    match sight {
                        Sight::Delivered { number, flag, .. } => {
                            let worker = workers.contains(slot);
                            self.note(if worker {
                                "delivered to a worker"
                            } else {
                                "delivered to a stranger"
                            });
                            if !seen.insert(*number) {
                                self.note("delivered again");
                            }
                            if *flag == Flag::Redelivered {
                                self.note("flagged as redelivered");
                            }
                        }
                        Sight::Cancelled => self.note("cancelled by the broker"),
                        Sight::Lost => self.note("session lost"),
                    }
                }
            }
        }
    }

    fn note(&mut self, kind: &'static str) {
        assert!(KINDS.contains(&kind), "`{kind}` has to be in the list");
        *self.0.entry(kind).or_default() += 1;
    }

    /// What never happened.
    pub(super) fn never(&self) -> Vec<&'static str> {
        KINDS.into_iter().filter(|kind| !self.0.contains_key(kind)).collect()
    }
}

fn kind_of(actor: Actor, act: &Act) -> Option<&'static str> {
    Some(match act {
        Act::Publish { .. } if matches!(actor, Actor::Passer(_)) => "published and left",
        Act::Publish { .. } | Act::Count { .. } | Act::Met | Act::Ended { .. } | Act::AlarmOver | Act::Up => {
            return None;
        }
        Act::Consume { .. } => "consumed",
        Act::Cancel { .. } => "cancelled",
        Act::Settle { how, .. } => match how {
            Settling::Ack => "acknowledged",
            Settling::AckUpTo => "acknowledged up to",
            Settling::NackBack => "refused back",
            Settling::NackUpToBack => "refused up to, back",
            Settling::NackAway => "refused away",
            Settling::RejectBack => "rejected back",
            Settling::RejectAway => "rejected away",
        },
        Act::Leave { how, .. } => match how {
            Leaving::Channel => "channel closed",
            Leaving::Connection => "connection closed",
            Leaving::Abruptly => "gone abruptly",
        },
        Act::Purge { removed: 0, .. } => "purged nothing",
        Act::Purge { .. } => "purged something",
        Act::DeleteQueue { .. } => "queue deleted",
        Act::DeleteExchange => "exchange deleted",
        Act::Alarm => "alarm",
        Act::Down(Down::InOrder) => "restart in order",
        Act::Down(Down::Killed) => "restart after a kill",
    })
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in KINDS {
            writeln!(f, "  {:>7} {kind}", self.0.get(kind).copied().unwrap_or_default())?;
        }
        Ok(())
    }
}
