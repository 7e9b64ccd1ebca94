//! The scheduler's effects: store calls, publications, and what it reports.

use std::sync::Arc;

use tokio::time::timeout;

use fencepost_core::effect::SchedulerEffect;
use fencepost_core::event::{PublishOutcome, SchedulerEvent};
use fencepost_core::id::EffectId;
use fencepost_core::limits::PUBLISH_TIMEOUT;
use fencepost_core::message::ExecutionMessage;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::Command;

use super::lanes::{LanePermits, Lanes};
use super::outcomes::Outcomes;
use super::{Carried, Interpreter};
use crate::ports::{FactSink, NotifyPort, PublishPort, StorePort};

/// Carries out a scheduler's effects.
pub struct SchedulerInterpreter<S, P, N, F> {
    lanes: Lanes<S, F>,
    publisher: Arc<P>,
    notifications: N,
    facts: Arc<F>,
    outcomes: Outcomes<SchedulerEvent>,
}

impl<S, P, N, F> SchedulerInterpreter<S, P, N, F>
where
    S: StorePort,
    P: PublishPort,
    N: NotifyPort,
    F: FactSink,
{
    /// On these ports.
    #[must_use]
    pub fn new(
        store: Arc<S>,
        publisher: Arc<P>,
        notifications: N,
        facts: Arc<F>,
        permits: LanePermits,
    ) -> Self {
        let lanes = Lanes::new(store, Arc::clone(&facts), permits);
        Self { lanes, publisher, notifications, facts, outcomes: Outcomes::new() }
    }

    fn call_store(&mut self, id: EffectId, command: Command) {
        let lanes = self.lanes.clone();
        let replied = move |outcome| SchedulerEvent::StoreReplied { effect: id, outcome };
        self.outcomes
            .spawn(async move { replied(lanes.call(command).await) }, move || replied(StoreOutcome::Unknown));
    }

    fn publish(&mut self, id: EffectId, messages: Vec<Arc<ExecutionMessage>>) {
        let count = messages.len();
        let publisher = Arc::clone(&self.publisher);
        let published = move |outcomes| SchedulerEvent::Published { effect: id, outcomes };
        let unknown = move || published(vec![PublishOutcome::Unknown; count]);
        self.outcomes.spawn(
            async move {
                match timeout(PUBLISH_TIMEOUT.to_duration(), publisher.publish(messages)).await {
                    Ok(outcomes) if outcomes.len() == count => published(outcomes),
                    Ok(outcomes) => {
                        let answers = outcomes.len();
                        tracing::error!(
                            count,
                            answers,
                            "a publisher answered for another number of messages"
                        );
                        unknown()
                    }
                    Err(_) => unknown(),
                }
            },
            unknown,
        );
    }
}

impl<S, P, N, F> Interpreter for SchedulerInterpreter<S, P, N, F>
where
    S: StorePort,
    P: PublishPort,
    N: NotifyPort,
    F: FactSink,
{
    type Effect = SchedulerEffect;
    type Event = SchedulerEvent;

    fn carry_out(&mut self, effect: SchedulerEffect) -> Carried {
        match effect {
            SchedulerEffect::Store { id, command } => self.call_store(id, command),
            SchedulerEffect::Publish { id, messages } => self.publish(id, messages),
            SchedulerEffect::Report(fact) => self.facts.report(&fact),
            SchedulerEffect::Drained => return Carried::Drained,
        }
        Carried::On
    }

    fn round_over(&mut self) {
        self.facts.round_over();
    }

    async fn next(&mut self) -> SchedulerEvent {
        tokio::select! {
            biased;
            event = self.outcomes.next() => event,
            partition = self.notifications.next() => SchedulerEvent::Notified { partition },
        }
    }

    async fn finish(self) {
        // A drained scheduler has released what it held; whatever is still under way is nobody's concern.
        drop(self.outcomes);
    }
}
