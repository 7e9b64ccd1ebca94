//! The trace: a rolling hash over every event and every effect of every role, in the order they happened.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use fencepost::driver::Role;
use fencepost_core::event::{PublishOutcome, SchedulerEvent, WorkerEvent};
use fencepost_core::store::StoreOutcome;
use fencepost_core::time::Monotonic;
use fencepost_core::wakeup::WakeReason;

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
pub(crate) struct Trace(Arc<Mutex<(Fnv, Tally)>>);

impl Trace {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new((Fnv(0xcbf2_9ce4_8422_2325), Tally::default()))))
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.lock().expect("nobody panics while holding it").0.finish()
    }

    pub(crate) fn tally(&self) -> Tally {
        self.0.lock().expect("nobody panics while holding it").1
    }

    fn note(&self, what: &impl Hash) {
        what.hash(&mut self.0.lock().expect("nobody panics while holding it").0);
    }

    fn count(&self, event: &impl Countable) {
        event.count(&mut self.0.lock().expect("nobody panics while holding it").1);
    }
}

/// An event that may tell of a failure outside.
pub(crate) trait Countable {
    fn count(&self, tally: &mut Tally);
}

impl Countable for SchedulerEvent {
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
}

impl Countable for WorkerEvent {
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
}

/// A role that writes its trace.
pub(crate) struct Traced<R> {
    pub(crate) role: R,
    pub(crate) name: &'static str,
    pub(crate) trace: Trace,
}

impl<R: Role> Role for Traced<R>
where
    R::Event: Hash + Countable,
    R::Effect: Hash,
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
        self.role.handle(now, event);
    }

    fn poll_effect(&mut self) -> Option<R::Effect> {
        let effect = self.role.poll_effect();
        if let Some(effect) = &effect {
            self.trace.note(effect);
        }
        effect
    }

    fn next_wakeup(&self) -> Option<(Monotonic, WakeReason)> {
        self.role.next_wakeup()
    }
}
