//! The worker's role: messages in, execution leases, handlers, outcomes, and an orderly end.
//!
//! A message only says which execution to ask about. The worker asks for its lease, starts the handler
//! under the token it is granted, renews the lease while the handler runs, makes the outcome durable under
//! that token, and then acknowledges the message. The store decides all of it; what this role decides alone
//! is when to stay silent.
//!
//! It relies on the interpreter for three things: every store effect's outcome comes back once under its id,
//! every started handler's end is reported unless it hangs, and time is the process's steady clock.
//!
//! What must stay true: no handler starts under a lease that is not granted and trusted; no message is
//! acknowledged before its fate is durable; runs and lingering handlers never exceed the slots by what this
//! role starts; nothing a drained worker holds is renewed.
//!
//! One file per concern, each a part of [`Worker`]: `calls` (store calls under way), `intake` (from
//! delivery to acknowledgement), `record` (what cannot run here), `lease` (asking, trust, renewal), `run`
//! (from start to decision), `verdict` (what a result means), `finish` (durable outcomes), `heartbeat`,
//! `drain`.

use std::collections::VecDeque;

use crate::config::WorkerConfig;
use crate::effect::WorkerEffect;
use crate::event::WorkerEvent;
use crate::time::Monotonic;
use crate::wakeup::WakeReason;

mod calls;
mod drain;
mod finish;
mod heartbeat;
mod intake;
mod lease;
mod record;
mod run;
#[cfg(test)]
mod tests;
mod verdict;

use drain::Phase;
use finish::Finishes;
use heartbeat::Heart;
use intake::Intake;
use lease::Leases;
use record::Records;
use run::Runs;

/// Runs: intake into free slots, execution leases, renewal, outcome, cancel, drain.
#[derive(Debug)]
pub struct Worker {
    config: WorkerConfig,
    phase: Phase,
    /// Store calls so far; the latest one's id.
    calls: u64,
    effects: VecDeque<WorkerEffect>,
    intake: Intake,
    records: Records,
    leases: Leases,
    runs: Runs,
    finishes: Finishes,
    heart: Heart,
}

impl Worker {
    /// A worker that has not begun; its first `Tick` starts it.
    #[must_use]
    pub fn new(config: WorkerConfig) -> Self {
        Self {
            config,
            phase: Phase::New,
            calls: 0,
            effects: VecDeque::new(),
            intake: Intake::new(),
            records: Records::new(),
            leases: Leases::new(),
            runs: Runs::new(),
            finishes: Finishes::new(),
            heart: Heart::new(),
        }
    }

    /// Takes in one event.
    pub fn handle(&mut self, now: Monotonic, event: WorkerEvent) {
        if self.phase == Phase::Drained {
            return;
        }
        match event {
            WorkerEvent::Tick => self.begin(now),
            WorkerEvent::StoreReplied { effect, outcome } => self.store_replied(now, effect, outcome),
            WorkerEvent::Delivered { delivery, message } => self.delivered(now, delivery, message),
            WorkerEvent::ConsumerLost { epoch } => self.consumer_lost(epoch),
            WorkerEvent::HandlerFinished { run, result } => self.handler_finished(now, run, &result),
            WorkerEvent::DrainRequested => self.begin_drain(now),
        }
        self.proceed(now);
    }

    /// The next effect to carry out; call until `None`.
    pub fn poll_effect(&mut self) -> Option<WorkerEffect> {
        self.effects.pop_front()
    }

    /// When to send a `Tick` at the latest, and why.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<(Monotonic, WakeReason)> {
        match self.phase {
            Phase::New => return Some((Monotonic::ZERO, WakeReason::Heartbeat)),
            Phase::Drained => return None,
            Phase::Active | Phase::Draining(_) => {}
        }
        let wakeups = [
            (self.heart.beats_at(), WakeReason::Heartbeat),
            (self.renews_at(), WakeReason::LeaseCycle),
            (self.trust_ends_at(), WakeReason::TrustEnds),
            (self.acquires_at(), self.leases.acquiring.waits_for()),
            (self.finishes_at(), self.finishes.line.waits_for()),
            (self.records.resends_at(), WakeReason::Resend),
            (self.runs.times_out_at(), WakeReason::AttemptTimeout),
            (self.slot_freed_at(), WakeReason::AttemptTimeout),
            (self.drain_goes_on_at(), WakeReason::DrainEnds),
        ];
        let known = wakeups.into_iter().filter_map(|(at, reason)| Some((at?, reason)));
        known.filter(|(at, _)| *at < Monotonic::MAX).min()
    }

    /// How many handlers are under way, those that were given up not counted.
    #[must_use]
    pub fn running(&self) -> usize {
        self.runs.undecided().count()
    }

    /// Whether it is on its way out.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        match self.phase {
            Phase::Draining(_) => true,
            Phase::New | Phase::Active | Phase::Drained => false,
        }
    }

    /// Whether it takes in work.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        match self.phase {
            Phase::Active => true,
            Phase::New | Phase::Draining(_) | Phase::Drained => false,
        }
    }

    /// The first `Tick` starts the worker; later ones only let time pass.
    fn begin(&mut self, now: Monotonic) {
        match self.phase {
            Phase::New => {
                self.phase = Phase::Active;
                self.beat(now);
                self.open_consumer();
            }
            Phase::Active | Phase::Draining(_) | Phase::Drained => {}
        }
    }

    /// Does what is due at `now`, and sends what can be sent.
    fn proceed(&mut self, now: Monotonic) {
        // Trust first: a process that was suspended past both must not charge the job an attempt for it.
        self.end_trust(now);
        self.time_out(now);
        self.free_lingering(now);
        self.advance_drain(now);
        match self.phase {
            Phase::New | Phase::Drained => return,
            Phase::Active | Phase::Draining(_) => {}
        }
        self.send_renewal(now);
        self.send_finishes(now);
        self.send_acquire(now);
        self.send_records(now);
        self.steer_consumer();
        self.beat(now);
    }
}
