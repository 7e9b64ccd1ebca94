//! Drain: an orderly end, within a limit, whatever hangs.
//!
//! From the request on nothing new is taken in: the consumer is cancelled, what was not asked for is left
//! unacknowledged to the broker, and a grant that is still under way is given back. Then, step by step:
//!
//! 1. *Waiting*: handlers run to their end; liveness reports (draining) and renewals go on.
//! 2. *Stopping*: handlers still running are told to stop; those that do are given back at once.
//! 3. *Letting go*: handlers that would not stop are forgotten; their leases are renewed no more and lapse.
//! 4. *Signing off*: when nothing is held and no call about work is under way, the node reports itself
//!    offline; once that is answered, in whatever way, the drain is over.
//!
//! At the limit it is over in any case. The steps take their times from the end backwards, in store calls:
//! a release whose reply is lost can be sent once more before the limit. Nothing depends on a drain: what it
//! leaves undone lapses and is swept.

use crate::bug::Bug;
use crate::effect::WorkerEffect;
use crate::fact::Fact;
use crate::limits::STORE_CALL_TIMEOUT;
use crate::mark::{self, Mark};
use crate::time::{Monotonic, Span};
use crate::worker::Worker;

/// Where the worker is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not begun.
    New,
    /// At work.
    Active,
    /// On its way out.
    Draining(Drain),
    /// Gone: nothing more happens.
    Drained,
}

/// A drain under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drain {
    step: Step,
    stop_at: Monotonic,
    let_go_at: Monotonic,
    ends_at: Monotonic,
}

/// How far a drain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Waiting,
    Stopping,
    LettingGo,
    SigningOff,
}

impl Drain {
    /// One that waits for its handlers, however long that takes.
    const ENDLESS: Self = Self {
        step: Step::Waiting,
        stop_at: Monotonic::MAX,
        let_go_at: Monotonic::MAX,
        ends_at: Monotonic::MAX,
    };

    fn begin(now: Monotonic, within: Span) -> Self {
        let tail = within.divided_by(2).min(STORE_CALL_TIMEOUT.times(2));
        Self {
            step: Step::Waiting,
            stop_at: now.plus(within.minus(tail)),
            let_go_at: now.plus(within.minus(tail.divided_by(2))),
            ends_at: now.plus(within),
        }
    }

    /// When time alone takes it further.
    fn next_step_at(&self) -> Monotonic {
        match self.step {
            Step::Waiting => self.stop_at,
            Step::Stopping => self.let_go_at,
            Step::LettingGo | Step::SigningOff => self.ends_at,
        }
    }
}

impl Worker {
    /// An orderly end is asked for.
    pub(super) fn begin_drain(&mut self, now: Monotonic) {
        match self.phase {
            Phase::Active => {}
            Phase::New => {
                self.end_drain();
                return;
            }
            Phase::Draining(_) | Phase::Drained => return,
        }
        let drain = if self.config.bugs.has(Bug::DrainWaitsForHandlers) {
            Drain::ENDLESS
        } else {
            Drain::begin(now, self.config.drain_within)
        };
        self.phase = Phase::Draining(drain);
        self.report(Fact::DrainStarted);
        self.close_intake();
        self.records.clear();
        self.heart.hurry(now);
    }

    /// When the drain goes on by itself.
    pub(super) fn drain_goes_on_at(&self) -> Option<Monotonic> {
        match self.phase {
            Phase::Draining(drain) => Some(drain.next_step_at()),
            Phase::New | Phase::Active | Phase::Drained => None,
        }
    }

    /// Takes the drain as far as time allows.
    pub(super) fn advance_drain(&mut self, now: Monotonic) {
        while let Phase::Draining(drain) = self.phase
            && drain.next_step_at() <= now
        {
            let step = match drain.step {
                Step::Waiting => {
                    self.stop_for_drain();
                    Step::Stopping
                }
                Step::Stopping => {
                    self.let_go();
                    Step::LettingGo
                }
                Step::LettingGo | Step::SigningOff => {
                    self.end_drain();
                    return;
                }
            };
            self.phase = Phase::Draining(Drain { step, ..drain });
        }
    }

    /// Whether the time has come to sign off: nothing is held and nothing about work is under way.
    pub(super) fn may_sign_off(&self) -> bool {
        let Phase::Draining(drain) = self.phase else { return false };
        if self.config.bugs.has(Bug::DrainWaitsForHandlers) && !self.runs.is_silent() {
            return false;
        }
        drain.step != Step::SigningOff
            && self.runs.is_empty()
            && self.leases.acquiring.under_way().is_none()
            && self.finishes.line.under_way().is_none()
            && !self.records.is_under_way()
    }

    /// The last report is on its way.
    pub(super) fn sign_off(&mut self) {
        if let Phase::Draining(drain) = self.phase {
            self.phase = Phase::Draining(Drain { step: Step::SigningOff, ..drain });
        }
    }

    /// Forgets the handlers that would not stop.
    fn let_go(&mut self) {
        let undecided: Vec<_> = self.runs.undecided().collect();
        for id in undecided {
            mark::hit(Mark::DrainLeftHandler);
            self.forget(id);
        }
    }

    /// The drain is over.
    pub(super) fn end_drain(&mut self) {
        self.phase = Phase::Drained;
        self.effects.push_back(WorkerEffect::Drained);
    }
}
