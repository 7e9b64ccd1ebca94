//! Whether an owner still does what it owns its leases for.
//!
//! Renewals travel on a connection of their own, so they may get through while nothing else does. An owner
//! that has not scanned (or swept) for some lease times is *wedged*: it stops renewing, gives back what it
//! holds to somebody who can work, and asks for no more until a probe, a scan that is thrown away, has succeeded.

use crate::time::{Monotonic, Span};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sound,
    Wedged,
}

/// When the work that the leases are held for last succeeded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Health {
    worked_at: Monotonic,
    state: State,
}

impl Health {
    /// Of a node that has not begun.
    pub(super) const fn new() -> Self {
        Self { worked_at: Monotonic::ZERO, state: State::Sound }
    }

    /// A scan succeeded, or the first lease has just been granted: the time counts from here.
    pub(super) const fn works(&mut self, now: Monotonic) {
        *self = Self { worked_at: now, state: State::Sound };
    }

    /// Judges an owner about to renew.
    pub(super) fn judge(&mut self, now: Monotonic, patience: Span) {
        if now.since(self.worked_at) > patience {
            self.state = State::Wedged;
        }
    }

    pub(super) const fn is_wedged(self) -> bool {
        match self.state {
            State::Sound => false,
            State::Wedged => true,
        }
    }
}
