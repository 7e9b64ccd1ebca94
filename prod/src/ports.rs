//! The ports: what the driver needs of the outside, one trait each.
//!
//! The driver is generic over them, so that the same loop runs on PostgreSQL, RabbitMQ and HTTP, and on
//! a simulated network against hosts that serve the reference store and a simulated broker. A port
//! carries out and reports; whether, when and how often something is done is the core's decision.
//!
//! What must stay true of every implementation: an answer that is not known is reported as `Unknown`,
//! never guessed; and no call waits for another port.

use core::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use fencepost_core::effect::{Invocation, StopReason};
use fencepost_core::event::{Delivery, HandlerResult, MalformedMessage, PublishOutcome};
use fencepost_core::fact::Fact;
use fencepost_core::message::ExecutionMessage;
use fencepost_core::partition::PartitionId;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::{Command, CommandKind};
use fencepost_core::time::{Monotonic, Span};

/// The store.
pub trait StorePort: Send + Sync + 'static {
    /// Executes one command, on a connection of its lane. The driver bounds how long it waits and how
    /// many calls of a lane are under way.
    fn call(&self, command: Command) -> impl Future<Output = StoreOutcome> + Send;
}

/// The publishing side of the broker.
pub trait PublishPort: Send + Sync + 'static {
    /// Publishes all of them and waits for their confirms; answers message by message, in order. A queue
    /// is declared before the first message for it.
    fn publish(
        &self,
        messages: Vec<Arc<ExecutionMessage>>,
    ) -> impl Future<Output = Vec<PublishOutcome>> + Send;
}

/// The consuming side of the broker. Reconnects by itself, under a new epoch each time.
pub trait ConsumePort: Send + 'static {
    /// Begins to consume, with at most `prefetch` messages unacknowledged.
    fn start(&mut self, prefetch: u32);

    /// Consumes no more. What was delivered may still be acknowledged.
    fn stop(&mut self);

    /// Acknowledges. Void if the delivery's consumer is gone.
    fn ack(&mut self, delivery: Delivery);

    /// What comes next. Dropping the future loses nothing.
    fn next(&mut self) -> impl Future<Output = ConsumeEvent> + Send;

    /// Sends what is still to be sent and closes, within a bounded time.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// What a [`ConsumePort`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumeEvent {
    /// A message arrived.
    Delivered {
        /// Names the delivery.
        delivery: Delivery,
        /// The message, or why it cannot be read.
        message: Result<Arc<ExecutionMessage>, MalformedMessage>,
    },
    /// The consumer of this epoch is gone, and with it its deliveries.
    Lost {
        /// Which.
        epoch: u64,
    },
}

/// What runs handlers.
pub trait HandlerPort: Send + Sync + 'static {
    /// Runs one to its end, and heeds `stop`. A handler that panics has failed retryably.
    fn run(&self, invocation: Invocation, stop: StopSignal) -> impl Future<Output = HandlerResult> + Send;
}

/// Tells a handler that it is to stop, and why.
#[derive(Clone, Debug)]
pub struct StopSignal(tokio::sync::watch::Receiver<Option<StopReason>>);

/// The other end of a [`StopSignal`].
#[derive(Debug)]
pub struct StopHandle(tokio::sync::watch::Sender<Option<StopReason>>);

impl StopSignal {
    /// A signal and its handle.
    #[must_use]
    pub fn new() -> (StopHandle, Self) {
        let (sender, receiver) = tokio::sync::watch::channel(None);
        (StopHandle(sender), Self(receiver))
    }

    /// The reason, once the handler was told to stop.
    #[must_use]
    pub fn reason(&self) -> Option<StopReason> {
        *self.0.borrow()
    }

    /// Waits until the handler is told to stop. For ever, if its handle is gone without a word.
    pub async fn stopped(&self) -> StopReason {
        let mut receiver = self.0.clone();
        let told = receiver.wait_for(Option::is_some).await.ok().and_then(|reason| *reason);
        match told {
            Some(reason) => reason,
            None => core::future::pending().await,
        }
    }
}

impl StopHandle {
    /// Tells the handler to stop. The first reason stays.
    pub fn stop(&self, reason: StopReason) {
        self.0.send_if_modified(|told| {
            let first = told.is_none();
            if first {
                *told = Some(reason);
            }
            first
        });
    }
}

/// This process's steady clock.
///
/// Timers are tokio's, which a simulated network moves; a clock says where they stand.
pub trait ClockPort: Send + Sync + 'static {
    /// Where it stands.
    fn now(&self) -> Monotonic;

    /// The timer's instant at which it stands there; `None` for what is never reached.
    fn instant(&self, at: Monotonic) -> Option<Instant>;
}

/// The steady clock of the runtime, counted from its making.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    origin: Instant,
}

impl RuntimeClock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }
}

impl ClockPort for RuntimeClock {
    fn now(&self) -> Monotonic {
        Monotonic::ZERO.plus(Span::from(self.origin.elapsed()))
    }

    fn instant(&self, at: Monotonic) -> Option<Instant> {
        // Timers reach about two years ahead; whatever lies further is as good as never.
        const FURTHEST: Duration = Duration::from_secs(365 * 24 * 3_600);
        let after = at.since(Monotonic::ZERO).to_duration();
        if after > self.origin.elapsed().saturating_add(FURTHEST) {
            return None;
        }
        self.origin.checked_add(after)
    }
}

/// Tells of committed work, partition by partition. An optimisation: polling alone finds everything.
pub trait NotifyPort: Send + 'static {
    /// The next partition that something was committed for. Dropping the future loses nothing that
    /// polling would not find.
    fn next(&mut self) -> impl Future<Output = PartitionId> + Send;
}

/// Never tells anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNotifications;

impl NotifyPort for NoNotifications {
    async fn next(&mut self) -> PartitionId {
        core::future::pending().await
    }
}

/// Notifications from whoever listens to the store; silent once the other end is gone.
impl NotifyPort for tokio::sync::mpsc::Receiver<PartitionId> {
    async fn next(&mut self) -> PartitionId {
        match self.recv().await {
            Some(partition) => partition,
            None => core::future::pending().await,
        }
    }
}

/// Takes in what is worth telling. Logs and metrics are made of it; it steers nothing.
pub trait FactSink: Send + Sync + 'static {
    /// A role reports.
    fn report(&self, fact: &Fact);

    /// All that came of one event has been reported: what belongs together can be told together.
    fn round_over(&self) {}

    /// A store call came to its end.
    fn store_called(&self, kind: CommandKind, took: Duration, end: CallEnd) {
        let (_, _, _) = (kind, took, end);
    }
}

/// How a store call ended, as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The store answered.
    Replied,
    /// The store's connection broke.
    Unknown,
    /// No answer came in time.
    TimedOut,
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFacts;

impl FactSink for NoFacts {
    fn report(&self, _fact: &Fact) {}
}

impl<S: StorePort> StorePort for Arc<S> {
    fn call(&self, command: Command) -> impl Future<Output = StoreOutcome> + Send {
        S::call(self, command)
    }
}

impl<P: PublishPort> PublishPort for Arc<P> {
    fn publish(
        &self,
        messages: Vec<Arc<ExecutionMessage>>,
    ) -> impl Future<Output = Vec<PublishOutcome>> + Send {
        P::publish(self, messages)
    }
}

impl<H: HandlerPort> HandlerPort for Arc<H> {
    fn run(&self, invocation: Invocation, stop: StopSignal) -> impl Future<Output = HandlerResult> + Send {
        H::run(self, invocation, stop)
    }
}

impl<F: FactSink> FactSink for Arc<F> {
    fn report(&self, fact: &Fact) {
        F::report(self, fact);
    }

    fn round_over(&self) {
        F::round_over(self);
    }

    fn store_called(&self, kind: CommandKind, took: Duration, end: CallEnd) {
        F::store_called(self, kind, took, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_to_stop_stays() {
        let (handle, signal) = StopSignal::new();
        assert_eq!(signal.reason(), None);
        handle.stop(StopReason::Timeout);
        handle.stop(StopReason::Drain);
        assert_eq!(signal.stopped().await, StopReason::Timeout);
        drop(handle);
        assert_eq!(signal.stopped().await, StopReason::Timeout, "a reason outlives its handle");
    }

    #[tokio::test]
    async fn a_moment_that_is_never_reached_has_no_timer() {
        let clock = RuntimeClock::start();
        assert_eq!(clock.instant(Monotonic::MAX), None);
        let soon = clock.now().plus(Span::from_secs(1));
        assert!(clock.instant(soon).is_some_and(|at| at > Instant::now()));
    }
}
