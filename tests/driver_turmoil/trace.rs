//! The trace: a rolling hash over every event and every effect of every role, in the order they happened.
//!
//! A role that writes its trace also tells the oracles what only it can know: what it heard, whom it gave up, and
//! how its drain ended.

use core::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use fencepost::driver::Role;
use fencepost_core::effect::{SchedulerEffect, StopReason, WorkerEffect};
use fencepost_core::event::{PublishOutcome, SchedulerEvent, WorkerEvent};
use fencepost_core::id::NodeId;
use fencepost_core::lease::RunId;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::reply::StoreReply;
use fencepost_core::time::{Monotonic, Span};
use fencepost_core::wakeup::WakeReason;
use fencepost_sim::oracle::{DrainEnd, HandlerObservation};

use crate::sightings::{Sighting, Sightings};

/// FNV-1a: the same on every machine, unlike the standard hasher.
#[derive(Clone, Copy)]
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// How often the outside failed a role, as the roles saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) store_unknown: u32,
    pub(crate) publish_unknown: u32,
    pub(crate) consumers_lost: u32,
}

/// All that happened so far.
#[derive(Clone)]
pub(crate) struct Trace(Arc<Mutex<Noted>>);

struct Noted {
    hash: Fnv,
    tally: Tally,
    /// All that was noted, if it is to be read.
    lines: Option<Vec<String>>,
}

/// What is kept of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Its hash.
    Hash,
    /// Its lines too.
    Lines,
}

impl Trace {
    pub(crate) fn new(keep: Keep) -> Self {
        let lines = match keep {
            Keep::Hash => None,
            Keep::Lines => Some(Vec::new()),
        };
        Self(Arc::new(Mutex::new(Noted { hash: Fnv(0xcbf2_9ce4_8422_2325), tally: Tally::default(), lines })))
    }

    pub(crate) fn hash(&self) -> u64 {
        self.lock().hash.finish()
    }

    pub(crate) fn tally(&self) -> Tally {
        self.lock().tally
    }

    /// The lines that were kept.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        self.lock().lines.take().unwrap_or_default()
    }

    fn note(&self, what: &(impl Hash + fmt::Debug)) {
        let mut noted = self.lock();
        what.hash(&mut noted.hash);
        if let Some(lines) = &mut noted.lines {
            lines.push(format!("{what:?}"));
        }
    }

    fn count(&self, event: &impl Legible) {
        event.count(&mut self.lock().tally);
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().expect("nobody panics while holding it")
    }
}

/// An event, as far as anybody but its role looks into it.
pub(crate) trait Legible {
    /// Counts it, if it tells of a failure outside.
    fn count(&self, tally: &mut Tally);
    /// What the store has answered, if that is what it brings.
    fn heard(&self) -> Option<&StoreReply>;
    /// Whether it asks for a drain.
    fn asks_to_drain(&self) -> bool;
}

impl Legible for SchedulerEvent {
    fn count(&self, tally: &mut Tally) {
        match self {
            Self::StoreReplied { outcome: StoreOutcome::Unknown, .. } => tally.store_unknown += 1,
            Self::Published { outcomes, .. } if outcomes.contains(&PublishOutcome::Unknown) => {
                tally.publish_unknown += 1;
            }
            Self::Tick
            | Self::StoreReplied { .. }
            | Self::Published { .. }
            | Self::Notified { .. }
            | Self::DrainRequested => {}
        }
    }

    fn heard(&self) -> Option<&StoreReply> {
        match self {
            Self::StoreReplied { outcome: StoreOutcome::Replied(reply), .. } => Some(reply),
            Self::Tick
            | Self::StoreReplied { .. }
            | Self::Published { .. }
            | Self::Notified { .. }
            | Self::DrainRequested => None,
        }
    }

    fn asks_to_drain(&self) -> bool {
        matches!(self, Self::DrainRequested)
    }
}

impl Legible for WorkerEvent {
    fn count(&self, tally: &mut Tally) {
        match self {
            Self::StoreReplied { outcome: StoreOutcome::Unknown, .. } => tally.store_unknown += 1,
            Self::ConsumerLost { .. } => tally.consumers_lost += 1,
            Self::Tick
            | Self::StoreReplied { .. }
            | Self::Delivered { .. }
            | Self::HandlerFinished { .. }
            | Self::DrainRequested => {}
        }
    }

    fn heard(&self) -> Option<&StoreReply> {
        match self {
            Self::StoreReplied { outcome: StoreOutcome::Replied(reply), .. } => Some(reply),
            Self::Tick
            | Self::StoreReplied { .. }
            | Self::ConsumerLost { .. }
            | Self::Delivered { .. }
            | Self::HandlerFinished { .. }
            | Self::DrainRequested => None,
        }
    }

    fn asks_to_drain(&self) -> bool {
        matches!(self, Self::DrainRequested)
    }
}

/// An effect, as far as the oracles look into it.
pub(crate) trait Telling {
    /// The run that it gives up, and why.
    fn gives_up(&self) -> Option<(RunId, StopReason)>;
    /// Whether it says that the drain is over.
    fn is_drained(&self) -> bool;
}

impl Telling for SchedulerEffect {
    fn gives_up(&self) -> Option<(RunId, StopReason)> {
        None
    }

    fn is_drained(&self) -> bool {
        matches!(self, Self::Drained)
    }
}

impl Telling for WorkerEffect {
    fn gives_up(&self) -> Option<(RunId, StopReason)> {
        match self {
            Self::StopHandler { run, reason } => Some((*run, *reason)),
            Self::Store { .. }
            | Self::Consume { .. }
            | Self::StopConsuming
            | Self::Ack { .. }
            | Self::StartHandler(_)
            | Self::Report(_)
            | Self::Drained => None,
        }
    }

    fn is_drained(&self) -> bool {
        matches!(self, Self::Drained)
    }
}

/// A role that writes its trace.
pub(crate) struct Traced<R> {
    role: R,
    name: &'static str,
    node: NodeId,
    trace: Trace,
    sightings: Sightings,
    drain_within: Span,
    latest: Monotonic,
    /// Since when it drains.
    drains_since: Option<Monotonic>,
}

impl<R> Traced<R> {
    pub(crate) fn new(
        role: R,
        name: &'static str,
        node: NodeId,
        drain_within: Span,
        (trace, sightings): (Trace, Sightings),
    ) -> Self {
        let latest = Monotonic::ZERO;
        Self { role, name, node, trace, sightings, drain_within, latest, drains_since: None }
    }

    fn drain_end(&self) -> DrainEnd {
        match self.drains_since {
            Some(since) if self.latest.since(since) >= self.drain_within => DrainEnd::CutShort,
            Some(_) | None => DrainEnd::InTime,
        }
    }
}

impl<R: Role> Role for Traced<R>
where
    R::Event: Hash + fmt::Debug + Legible,
    R::Effect: Hash + fmt::Debug + Telling,
{
    type Event = R::Event;
    type Effect = R::Effect;

    fn tick() -> R::Event {
        R::tick()
    }

    fn drain() -> R::Event {
        R::drain()
    }

    fn handle(&mut self, now: Monotonic, event: R::Event) {
        self.trace.note(&(self.name, now));
        self.trace.note(&event);
        self.trace.count(&event);
        self.latest = now;
        if event.asks_to_drain() {
            self.drains_since.get_or_insert(now);
        }
        if let Some(reply) = event.heard() {
            self.sightings.add(Sighting::Heard { node: self.node, reply: reply.clone() });
        }
        self.role.handle(now, event);
    }

    fn poll_effect(&mut self) -> Option<R::Effect> {
        let effect = self.role.poll_effect()?;
        self.trace.note(&effect);
        if let Some((run, reason)) = effect.gives_up() {
            let seen = HandlerObservation::GivenUp { node: self.node, run, reason };
            self.sightings.add(Sighting::Handler(seen));
        }
        if effect.is_drained() {
            self.sightings.add(Sighting::Drained { node: self.node, how: self.drain_end() });
        }
        Some(effect)
    }

    fn next_wakeup(&self) -> Option<(Monotonic, WakeReason)> {
        self.role.next_wakeup()
    }
}
