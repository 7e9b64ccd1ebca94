//! Topology: the names of the exchange and the queues, and their declaration.
//!
//! Publishers and consumers declare alike, so that either may come first. Declaring what exists is a
//! no-op; a queue that exists with other properties is an error that closes the channel, said as it is.
//!
//! Each handler has a queue for each priority. The normal one is named by the handler alone, as it was before there were
//! priorities, so that processes of before and after take the same messages from it; the others have a suffix that no
//! handler's name can have. The broker's own priorities within one queue are not used: they are strict, so the low ones
//! starve, and of what is prefetched nothing is overtaken.
//!
//! A broker writes a queue's declaration down a moment after it has answered it: one that is killed within
//! that moment comes back without the queue and what was in it, confirmed or not. Publishing again then
//! declares it anew, and the sweep repeats the dispatches that led to nothing.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, ExchangeKind};

use fencepost_core::job::HandlerName;
use fencepost_core::priority::Priority;

use super::settings::{QueueKind, RabbitSettings};

/// The names in use, and how queues are kept.
#[derive(Clone, Debug)]
pub struct Topology {
    exchange: ShortString,
    kind: QueueKind,
}

impl Topology {
    /// As the settings have it.
    #[must_use]
    pub fn of(settings: &RabbitSettings) -> Self {
        let exchange = format!("{}.executions", settings.prefix.as_str()).into();
        Self { exchange, kind: settings.queue_kind }
    }

    /// The exchange that executions are published to.
    #[must_use]
    pub fn exchange(&self) -> ShortString {
        self.exchange.clone()
    }

    /// The queue of a handler and a priority.
    #[must_use]
    pub fn queue(&self, handler: &HandlerName, priority: Priority) -> ShortString {
        format!("{}.{}", self.exchange, self.routing_key(handler, priority)).into()
    }

    /// All queues of a handler, the one of the highest priority first.
    pub fn queues(&self, handler: &HandlerName) -> impl Iterator<Item = ShortString> {
        Priority::ALL.iter().map(|priority| self.queue(handler, *priority))
    }

    /// The routing key of a handler and a priority.
    #[must_use]
    pub fn routing_key(&self, handler: &HandlerName, priority: Priority) -> ShortString {
        match priority {
            Priority::Normal => handler.as_str().into(),
            Priority::High | Priority::Low => format!("{handler}:{priority}").into(),
        }
    }

    pub(super) async fn declare_exchange(&self, channel: &Channel) -> lapin::Result<()> {
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        channel.exchange_declare(self.exchange(), ExchangeKind::Direct, durable, FieldTable::default()).await
    }

    pub(super) async fn declare_queue(
        &self,
        channel: &Channel,
        handler: &HandlerName,
        priority: Priority,
    ) -> lapin::Result<()> {
        let queue = self.queue(handler, priority);
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(queue.clone(), durable, self.queue_arguments()).await?;
        let key = self.routing_key(handler, priority);
        channel
            .queue_bind(queue, self.exchange(), key, QueueBindOptions::default(), FieldTable::default())
            .await
    }

    fn queue_arguments(&self) -> FieldTable {
        let kind = match self.kind {
            QueueKind::Classic => "classic",
            QueueKind::Quorum => "quorum",
        };
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        arguments
    }
}
