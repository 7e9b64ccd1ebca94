//! Connections: opening one, with a bound on how long that may take, and telling when it is gone.

use core::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use lapin::{Channel, Connection, ConnectionProperties, Event};
use thiserror::Error;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::backoff::Backoff;
use super::settings::RabbitSettings;

/// How often a connection is looked at although nothing was heard of it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a connection is for: its label in the broker's listings.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Publish,
    Consume,
}

/// What went wrong between us and the broker.
#[derive(Debug, Error)]
pub(super) enum BrokerError {
    #[error("the broker said or did: {0}")]
    Broker(#[from] lapin::Error),
    #[error("the broker did not answer within {0:?}")]
    Silent(Duration),
}

impl Purpose {
    const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Consume => "consume",
        }
    }
}

/// An open connection, and what is heard of it.
pub(super) struct Link {
    pub(super) connection: Connection,
    pub(super) news: News,
}

/// What is heard of a connection.
pub(super) struct News {
    events: Pin<Box<dyn Stream<Item = Event> + Send>>,
    look: tokio::time::Interval,
}

impl News {
    /// Waits until it is worth looking at the connection's status. Dropping the future loses nothing: the
    /// status is what counts.
    pub(super) async fn worth_a_look(&mut self) {
        tokio::select! {
            biased;
            Some(event) = self.events.next() => match event {
                Event::ConnectionBlocked(reason) => {
                    tracing::warn!(%reason, "the broker blocks publishing");
                }
                Event::ConnectionUnblocked => tracing::info!("the broker takes publications again"),
                Event::Error(error) => tracing::warn!(%error, "the broker reports an error"),
                other => tracing::debug!(?other, "heard from the broker"),
            },
            _ = self.look.tick() => {}
        }
    }
}

/// Waits for an answer, but not for ever.
pub(super) async fn answered<T>(
    settings: &RabbitSettings,
    question: impl Future<Output = lapin::Result<T>>,
) -> Result<T, BrokerError> {
    match timeout(settings.answer_within, question).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(BrokerError::Silent(settings.answer_within)),
    }
}

/// Opens a connection.
pub(super) async fn connect(settings: &RabbitSettings, purpose: Purpose) -> Result<Link, BrokerError> {
    let name = format!("{} ({})", settings.label, purpose.name());
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let connection =
        answered(settings, Connection::connect_uri(settings.url.uri().clone(), properties)).await?;
    let events = Box::pin(connection.events_listener());
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Ok(Link { connection, news: News { events, look } })
}

/// The broker out of reach, told when it begins and when it ends: what lies between is for debugging.
#[derive(Debug, Default)]
pub(super) struct Outage {
    since: Option<Instant>,
}

impl Outage {
    /// Another attempt failed.
    pub(super) fn goes_on(&mut self, settings: &RabbitSettings, purpose: Purpose, cause: &BrokerError) {
        let (broker, purpose) = (&settings.url, purpose.name());
        if self.begins() {
            tracing::warn!(%broker, purpose, %cause, "RabbitMQ cannot be reached; trying until it can; check AMQP_URL");
        } else {
            tracing::debug!(%broker, purpose, %cause, "RabbitMQ still cannot be reached");
        }
    }

    /// An attempt succeeded.
    pub(super) fn over(&mut self, settings: &RabbitSettings, purpose: Purpose) {
        let (broker, purpose) = (&settings.url, purpose.name());
        match self.since.take() {
            None => tracing::info!(%broker, purpose, "connected to RabbitMQ"),
            Some(since) => tracing::warn!(%broker, purpose, after = ?since.elapsed(), "RabbitMQ is back"),
        }
    }

    fn begins(&mut self) -> bool {
        let begins = self.since.is_none();
        self.since.get_or_insert_with(Instant::now);
        begins
    }
}

/// Opens a connection and a first channel on it, however long that takes.
pub(super) async fn connect_patiently(
    settings: &RabbitSettings,
    purpose: Purpose,
    backoff: &mut Backoff,
) -> Link {
    let mut outage = Outage::default();
    loop {
        match connect(settings, purpose).await {
            Ok(link) => {
                outage.over(settings, purpose);
                return link;
            }
            Err(error) => {
                outage.goes_on(settings, purpose, &error);
                tokio::time::sleep(backoff.pause()).await;
            }
        }
    }
}

/// Opens a channel.
pub(super) async fn open_channel(
    settings: &RabbitSettings,
    connection: &Connection,
) -> Result<Channel, BrokerError> {
    answered(settings, connection.create_channel()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_begins_once_until_it_is_over() {
        let mut outage = Outage::default();
        assert_eq!([outage.begins(), outage.begins()], [true, false]);
        outage.since.take().expect("it had begun");
        assert!(outage.begins());
    }
}
