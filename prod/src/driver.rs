//! The driver: the only loop that feeds the core.
//!
//! It awaits one event, hands it to the role, carries out the effects that come of it, and arms one
//! timer for the role's next wakeup. Effects that have an outcome run as tasks of their own; their
//! outcome is the next event. The driver decides nothing: it bounds how long an outcome is waited for
//! (then it is `Unknown`) and how many store calls of a lane are under way, and that is all.
//!
//! The loop is one function over a [`Role`] and an [`Interpreter`] of its effects, generic over the ports, so
//! that a simulated network runs this very code. There is no hash order, wall clock or random choice in it:
//! selects are biased, so that the same inputs give the same run.

use core::future::Future;
use core::pin::{Pin, pin};

use tokio::time::Sleep;

use fencepost_core::effect::{SchedulerEffect, WorkerEffect};
use fencepost_core::event::{SchedulerEvent, WorkerEvent};
use fencepost_core::scheduler::Scheduler;
use fencepost_core::time::Monotonic;
use fencepost_core::wakeup::WakeReason;
use fencepost_core::worker::Worker;

use crate::ports::ClockPort;

mod lanes;
mod outcomes;
mod scheduler_effects;
mod worker_effects;

pub use lanes::{LanePermits, Lanes};
pub use scheduler_effects::SchedulerInterpreter;
pub use worker_effects::WorkerInterpreter;

/// A role of the core, as the loop sees it.
pub trait Role: Send {
    /// What may happen to it.
    type Event: Send + 'static;
    /// What it may want done.
    type Effect: Send;

    /// The event that says that time has passed.
    fn tick() -> Self::Event;
    /// The event that asks for an orderly end.
    fn drain() -> Self::Event;
    /// Takes in one event.
    fn handle(&mut self, now: Monotonic, event: Self::Event);
    /// The next effect to carry out; called until `None`.
    fn poll_effect(&mut self) -> Option<Self::Effect>;
    /// When to tick at the latest, and why.
    fn next_wakeup(&self) -> Option<(Monotonic, WakeReason)>;
}

impl Role for Scheduler {
    type Event = SchedulerEvent;
    type Effect = SchedulerEffect;

    fn tick() -> SchedulerEvent {
        SchedulerEvent::Tick
    }

    fn drain() -> SchedulerEvent {
        SchedulerEvent::DrainRequested
    }

    fn handle(&mut self, now: Monotonic, event: SchedulerEvent) {
        Self::handle(self, now, event);
    }

    fn poll_effect(&mut self) -> Option<SchedulerEffect> {
        Self::poll_effect(self)
    }

    fn next_wakeup(&self) -> Option<(Monotonic, WakeReason)> {
        Self::next_wakeup(self)
    }
}

impl Role for Worker {
    type Event = WorkerEvent;
    type Effect = WorkerEffect;

    fn tick() -> WorkerEvent {
        WorkerEvent::Tick
    }

    fn drain() -> WorkerEvent {
        WorkerEvent::DrainRequested
    }

    fn handle(&mut self, now: Monotonic, event: WorkerEvent) {
        Self::handle(self, now, event);
    }

    fn poll_effect(&mut self) -> Option<WorkerEffect> {
        Self::poll_effect(self)
    }

    fn next_wakeup(&self) -> Option<(Monotonic, WakeReason)> {
        Self::next_wakeup(self)
    }
}

/// Carries out the effects of a role, and brings what comes of them.
pub trait Interpreter: Send {
    /// What it is told to do.
    type Effect: Send;
    /// What it brings.
    type Event: Send + 'static;

    /// Begins to carry out one effect; never waits.
    fn carry_out(&mut self, effect: Self::Effect) -> Carried;

    /// All effects of one event have been given to it.
    fn round_over(&mut self) {}

    /// The next thing that happened. Dropping the future loses nothing.
    fn next(&mut self) -> impl Future<Output = Self::Event> + Send;

    /// Sends what is still to be sent, within a bounded time; the role has ended.
    fn finish(self) -> impl Future<Output = ()> + Send;
}

/// Whether the role goes on after an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// It does.
    On,
    /// The role has drained: it wants nothing more.
    Drained,
}

/// Runs a role until it has drained, which it is asked to do once `shutdown` is ready.
///
/// Dropping the future is a crash: what was under way is abandoned.
pub async fn run<R, I>(mut role: R, mut interpreter: I, clock: impl ClockPort, shutdown: impl Future + Send)
where
    R: Role,
    I: Interpreter<Effect = R::Effect, Event = R::Event>,
{
    let mut shutdown = pin!(shutdown);
    let mut asked_to_drain = false;
    let mut ticked = true;
    let mut timer = Timer::default();
    role.handle(clock.now(), R::tick());
    'feeding: loop {
        while let Some(effect) = role.poll_effect() {
            match interpreter.carry_out(effect) {
                Carried::On => {}
                Carried::Drained => {
                    interpreter.round_over();
                    break 'feeding;
                }
            }
        }
        interpreter.round_over();
        let now = clock.now();
        let wakeup = role.next_wakeup().map(|(at, _)| at);
        if !ticked && wakeup.is_some_and(|at| at <= now) {
            // Under load there is always a next event, and the timer must not wait for a lull. Every other
            // turn goes to the events, so that they need not wait for the timer either.
            ticked = true;
            role.handle(now, R::tick());
            continue;
        }
        ticked = false;
        timer.arm(wakeup, &clock);
        let event = tokio::select! {
            biased;
            _ = shutdown.as_mut(), if !asked_to_drain => {
                asked_to_drain = true;
                R::drain()
            }
            event = interpreter.next() => event,
            () = timer.fired() => R::tick(),
        };
        role.handle(clock.now(), event);
    }
    interpreter.finish().await;
}

/// The one timer, moved only when the wakeup moves.
#[derive(Default)]
struct Timer {
    armed: Option<Monotonic>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer {
    fn arm(&mut self, wakeup: Option<Monotonic>, clock: &impl ClockPort) {
        if self.armed == wakeup {
            return;
        }
        let instant = wakeup.and_then(|at| clock.instant(at));
        self.armed = instant.and(wakeup);
        match (instant, &mut self.sleep) {
            (Some(instant), Some(sleep)) => sleep.as_mut().reset(instant),
            (Some(instant), None) => self.sleep = Some(Box::pin(tokio::time::sleep_until(instant))),
            (None, _) => {}
        }
    }

    async fn fired(&mut self) {
        match (self.armed, &mut self.sleep) {
            (Some(_), Some(sleep)) => sleep.as_mut().await,
            (None, _) | (_, None) => core::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests;
