//! Handlers: most are quick, some fail, some outlast a lease, some hang, some heed no stop.
//!
//! What one does follows from its execution alone, and from which attempt it is. All that the oracles want to know of
//! is written down here: starts, ends of every kind, and a stop that came before the start.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost::ports::{HandlerPort, StopSignal};
use fencepost_core::effect::Invocation;
use fencepost_core::event::{ErrorClass, HandlerResult};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, NodeId};
use fencepost_core::lease::RunId;
use fencepost_core::time::Span;
use fencepost_sim::oracle::{HandlerEnd, HandlerObservation, Report};

use crate::sightings::{Sighting, Sightings};

/// The longest run of a handler that ends by itself.
pub(crate) const LONGEST_RUN: Span = Span::from_secs(8);

/// One call of a handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) execution: ExecutionId,
    pub(crate) token: FencingToken,
    pub(crate) attempt: u32,
}

/// What a handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    /// It takes this long, and completes.
    Completes(Duration),
    /// It takes this long, and fails.
    Fails(Duration),
    /// It ends when it is told to.
    Hangs,
    /// It takes this long, told to stop or not.
    Deaf(Duration),
}

impl Behaviour {
    fn of(execution: ExecutionId, attempt: u32) -> Self {
        let bytes = execution.as_bytes();
        let (kind, length) = (bytes[15], u64::from(bytes[14]));
        let (short, long) = (Duration::from_millis(5 + length), Duration::from_millis(2_000 + 20 * length));
        match (kind, attempt) {
            (0..=15, 1) => Self::Fails(short),
            (16..=19, 1) => Self::Hangs,
            (20..=47, _) => Self::Completes(long),
            (48..=55, _) => Self::Deaf(LONGEST_RUN.to_duration()),
            (_, _) => Self::Completes(short),
        }
    }
}

/// The handlers of one process.
pub(crate) struct Handlers {
    pub(crate) node: NodeId,
    pub(crate) sightings: Sightings,
    pub(crate) calls: Arc<Mutex<Vec<Call>>>,
}

/// A handler under way; one that is dropped has died with its process.
struct UnderWay<'a> {
    of: &'a Handlers,
    run: RunId,
    ended: Option<HandlerEnd>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let how = self.ended.unwrap_or(HandlerEnd::Died);
        let seen = HandlerObservation::Ended { node: self.of.node, run: self.run, how };
        match self.ended {
            Some(_) => self.of.sightings.add(Sighting::Handler(seen)),
            None => self.of.sightings.add_in_passing(Sighting::Handler(seen)),
        }
    }
}

impl HandlerPort for Handlers {
    async fn run(&self, invocation: Invocation, stop: StopSignal) -> HandlerResult {
        let (run, attempt) = (invocation.run, invocation.attempt);
        let call = Call { execution: run.execution, token: run.token, attempt };
        self.calls.lock().expect("nobody panics while holding it").push(call);
        let started = HandlerObservation::Started {
            node: self.node,
            run,
            job: invocation.message.job,
            attempt,
            key: Arc::clone(&invocation.message.key),
            standing: None,
        };
        self.sightings.add(Sighting::Handler(started));
        if let Some(reason) = stop.reason() {
            // Told before it began, when there was nothing yet to be given up.
            let seen = HandlerObservation::GivenUp { node: self.node, run, reason };
            self.sightings.add(Sighting::Handler(seen));
        }
        let mut under_way = UnderWay { of: self, run, ended: None };
        let (heeds, lasts, report) = match Behaviour::of(run.execution, attempt) {
            Behaviour::Completes(lasts) => (true, lasts, Report::Completed),
            Behaviour::Deaf(lasts) => (false, lasts, Report::Completed),
            Behaviour::Hangs => (true, Duration::MAX, Report::Completed),
            Behaviour::Fails(lasts) => (true, lasts, Report::FailedRetryably { wish: None }),
        };
        let result = match report {
            Report::Completed => HandlerResult::Completed,
            Report::FailedRetryably { wish: retry_after } => {
                let error = "the first attempt fails".into();
                HandlerResult::Failed { class: ErrorClass::Retryable, error, retry_after }
            }
            Report::FailedForGood => unreachable!("no handler here fails for good"),
        };
        let (how, result) = tokio::select! {
            biased;
            _ = stop.stopped(), if heeds => (HandlerEnd::Stopped, HandlerResult::Stopped),
            () = tokio::time::sleep(lasts) => (HandlerEnd::Reported(report), result),
        };
        under_way.ended = Some(how);
        result
    }
}
