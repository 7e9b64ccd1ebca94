//! RabbitMQ: execution messages out with confirms, and in with acknowledgements.
//!
//! One durable direct exchange; one durable queue per handler and priority, bound by their names. A message is
//! persistent and mandatory, and its id is its outbox row's (`execution/dispatch number`), because the
//! broker hands an unroutable message back before it acknowledges it, and the return carries no delivery
//! tag. Publishing and consuming use separate connections: an alarm of the broker's blocks the publishing
//! one, and acknowledgements must not be held up by it.
//!
//! What must stay true: nothing is `Confirmed` that the broker did not put into a queue; a message is
//! acknowledged only when the role says so; nothing is ever requeued by us. Connections, channels and
//! consumers that die are replaced, with growing and jittered pauses, for as long as the process lives.
//!
//! - [`settings`]: what can be set. - [`topology`]: names and declarations.
//! - [`connection`]: connecting, patiently. - [`publisher`], [`confirms`]: the way out.
//! - [`consumer`], [`session`], [`acks`]: the way in.

mod acks;
mod backoff;
mod confirms;
mod connection;
mod consumer;
mod publisher;
mod session;
mod settings;
mod topology;

pub use consumer::{ConsumerLink, RabbitConsumer};
pub use publisher::{LinkHealth, RabbitPublisher};
pub use settings::{AmqpUrl, QueueKind, QueuePrefix, RabbitSettings, SettingsError};
pub use topology::Topology;
