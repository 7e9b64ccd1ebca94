//! The worker's effects: store calls, consuming and acknowledging, handlers, and what it reports.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencepost_core::effect::{Invocation, WorkerEffect};
use fencepost_core::event::{ErrorClass, HandlerResult, WorkerEvent};
use fencepost_core::id::EffectId;
use fencepost_core::lease::RunId;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::Command;

use super::lanes::{LanePermits, Lanes};
use super::outcomes::Outcomes;
use super::{Carried, Interpreter};
use crate::ports::{ConsumeEvent, ConsumePort, FactSink, HandlerPort, StopHandle, StopSignal, StorePort};

/// Carries out a worker's effects.
pub struct WorkerInterpreter<S, C, H, F> {
    lanes: Lanes<S, F>,
    consumer: C,
    handlers: Arc<H>,
    facts: Arc<F>,
    outcomes: Outcomes<WorkerEvent>,
    running: BTreeMap<RunId, StopHandle>,
}

impl<S, C, H, F> WorkerInterpreter<S, C, H, F>
where
    S: StorePort,
    C: ConsumePort,
    H: HandlerPort,
    F: FactSink,
{
    /// On these ports.
    #[must_use]
    pub fn new(store: Arc<S>, consumer: C, handlers: Arc<H>, facts: Arc<F>, permits: LanePermits) -> Self {
        let lanes = Lanes::new(store, Arc::clone(&facts), permits);
        Self { lanes, consumer, handlers, facts, outcomes: Outcomes::new(), running: BTreeMap::new() }
    }

    fn call_store(&mut self, id: EffectId, command: Command) {
        let lanes = self.lanes.clone();
        let replied = move |outcome| WorkerEvent::StoreReplied { effect: id, outcome };
        self.outcomes
            .spawn(async move { replied(lanes.call(command).await) }, move || replied(StoreOutcome::Unknown));
    }

    fn start_handler(&mut self, invocation: Invocation) {
        let run = invocation.run;
        let (handle, signal) = StopSignal::new();
        self.running.insert(run, handle);
        let handlers = Arc::clone(&self.handlers);
        let finished = move |result| WorkerEvent::HandlerFinished { run, result };
        self.outcomes.spawn(async move { finished(handlers.run(invocation, signal).await) }, move || {
            finished(HandlerResult::Failed {
                class: ErrorClass::Retryable,
                error: "the handler panicked".into(),
                retry_after: None,
            })
        });
    }
}

impl<S, C, H, F> Interpreter for WorkerInterpreter<S, C, H, F>
where
    S: StorePort,
    C: ConsumePort,
    H: HandlerPort,
    F: FactSink,
{
    type Effect = WorkerEffect;
    type Event = WorkerEvent;

    fn carry_out(&mut self, effect: WorkerEffect) -> Carried {
        match effect {
            WorkerEffect::Store { id, command } => self.call_store(id, command),
            WorkerEffect::Consume { prefetch } => self.consumer.start(prefetch),
            WorkerEffect::StopConsuming => self.consumer.stop(),
            WorkerEffect::Ack { delivery } => self.consumer.ack(delivery),
            WorkerEffect::StartHandler(invocation) => self.start_handler(invocation),
            WorkerEffect::StopHandler { run, reason } => {
                // A handler that has just ended has nothing left to stop.
                if let Some(handle) = self.running.get(&run) {
                    handle.stop(reason);
                }
            }
            WorkerEffect::Report(fact) => self.facts.report(&fact),
            WorkerEffect::Drained => return Carried::Drained,
        }
        Carried::On
    }

    fn round_over(&mut self) {
        self.facts.round_over();
    }

    async fn next(&mut self) -> WorkerEvent {
        let event = tokio::select! {
            biased;
            event = self.outcomes.next() => event,
            event = self.consumer.next() => match event {
                ConsumeEvent::Delivered { delivery, message } => WorkerEvent::Delivered { delivery, message },
                ConsumeEvent::Lost { epoch } => WorkerEvent::ConsumerLost { epoch },
            },
        };
        if let WorkerEvent::HandlerFinished { run, .. } = &event {
            self.running.remove(run);
        }
        event
    }

    async fn finish(self) {
        // Handlers that did not stop in time were given back by the role; they are abandoned first, so that
        // none of them works on while the last acknowledgements travel.
        drop(self.outcomes);
        self.consumer.close().await;
    }
}
