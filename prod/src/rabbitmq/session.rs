//! A session: one connection and a channel for each priority that messages arrive on, from its opening to its end.
//!
//! All handlers' queues of a priority are consumed on one channel, so that the prefetch bounds their sum; those of each
//! priority on one of their own, so that whatever many there are of one takes no room from the others. Each channel counts
//! its deliveries by itself: the tags that the role sees tell the priority too. Consuming can stop and start again within a session; what was delivered stays open and
//! can be acknowledged all the while. Whatever goes wrong ends the whole session, and with it the validity
//! of its deliveries.

use core::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{SelectAll, once};
use futures_util::{FutureExt, Stream, StreamExt};
use lapin::message::Delivery as Arrival;
use lapin::options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Connection};

use fencepost_core::event::{Delivery, MalformedMessage};
use fencepost_core::job::HandlerName;
use fencepost_core::message::ExecutionMessage;
use fencepost_core::priority::{ByPriority, Priority};

use super::acks::{AckBook, AckFrame};
use super::connection::{BrokerError, Link, News, Purpose, answered, connect, open_channel};
use super::settings::{QueueKind, RabbitSettings};
use super::topology::Topology;
use crate::ports::ConsumeEvent;

/// Which of a session's stretches of consuming something belongs to.
type Stretch = u64;
type Arrivals = SelectAll<Pin<Box<dyn Stream<Item = (Stretch, Priority, Arriving)> + Send>>>;

/// What a consumer brings.
enum Arriving {
    Message(Box<Arrival>),
    Error(lapin::Error),
    /// It has ended: by our cancel, or by the broker's.
    End,
}

/// What a session brings.
pub(super) enum SessionEvent {
    /// A delivery to pass on.
    Delivered(ConsumeEvent),
    /// Nothing of interest.
    Quiet,
    /// The session is over.
    Over(String),
}

pub(super) struct Session {
    settings: Arc<RabbitSettings>,
    epoch: u64,
    connection: Connection,
    news: News,
    channels: ByPriority<Channel>,
    arrivals: Arrivals,
    consuming: Vec<(Priority, ShortString)>,
    stretch: Stretch,
    books: ByPriority<AckBook>,
}

impl Session {
    /// Connects, declares and begins to consume.
    pub(super) async fn open(
        settings: Arc<RabbitSettings>,
        handlers: &[HandlerName],
        prefetch: u32,
        epoch: u64,
    ) -> Result<Self, BrokerError> {
        let Link { connection, news } = connect(&settings, Purpose::Consume).await?;
        let channels = ByPriority::new([
            open_channel(&settings, &connection).await?,
            open_channel(&settings, &connection).await?,
            open_channel(&settings, &connection).await?,
        ]);
        let topology = Topology::of(&settings);
        answered(&settings, topology.declare_exchange(channels.get(Priority::Normal))).await?;
        for (priority, channel) in channels.iter() {
            for handler in handlers {
                answered(&settings, topology.declare_queue(channel, handler, priority)).await?;
            }
        }
        let mut session = Self {
            settings,
            epoch,
            connection,
            news,
            channels,
            arrivals: SelectAll::new(),
            consuming: Vec::new(),
            stretch: 0,
            books: ByPriority::default(),
        };
        session.start(handlers, prefetch).await?;
        Ok(session)
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Begins to consume, with at most `prefetch` messages unacknowledged of each priority.
    pub(super) async fn start(&mut self, handlers: &[HandlerName], prefetch: u32) -> Result<(), BrokerError> {
        self.stop().await?;
        self.stretch += 1;
        let stretch = self.stretch;
        let topology = Topology::of(&self.settings);
        for (priority, channel) in self.channels.iter() {
            let (count, options) = limit(self.settings.queue_kind, prefetch, handlers.len());
            answered(&self.settings, channel.basic_qos(count, options)).await?;
            for handler in handlers {
                let consuming = channel.basic_consume(
                    topology.queue(handler, priority),
                    ShortString::default(),
                    BasicConsumeOptions::default(),
                    FieldTable::default(),
                );
                let consumer = answered(&self.settings, consuming).await?;
                self.consuming.push((priority, consumer.tag()));
                let arriving = consumer.map(|item| match item {
                    Ok(arrival) => Arriving::Message(Box::new(arrival)),
                    Err(error) => Arriving::Error(error),
                });
                let arriving = arriving.chain(once(core::future::ready(Arriving::End)));
                self.arrivals.push(Box::pin(arriving.map(move |item| (stretch, priority, item))));
            }
        }
        Ok(())
    }

    /// Consumes no more. What is under way still arrives.
    pub(super) async fn stop(&mut self) -> Result<(), BrokerError> {
        self.stretch += 1;
        for (priority, tag) in core::mem::take(&mut self.consuming) {
            let cancel = self.channels.get(priority).basic_cancel(tag, BasicCancelOptions::default());
            answered(&self.settings, cancel).await?;
        }
        Ok(())
    }

    /// Notes that a delivery is to be acknowledged; [`send_acks`](Self::send_acks) sends it.
    pub(super) fn ack(&mut self, delivery: Delivery) {
        if delivery.epoch == self.epoch {
            let (priority, number) = delivery.place();
            self.books.get_mut(priority).settle(number);
        }
    }

    /// Sends the acknowledgements noted so far.
    pub(super) async fn send_acks(&mut self) -> Result<(), BrokerError> {
        let books = self.books.values_mut().zip(self.channels.iter());
        let frames = books
            .flat_map(|(book, (_, channel))| book.frames().into_iter().map(move |frame| (channel, frame)));
        let sending = frames.map(|(channel, frame)| match frame {
            AckFrame::One(tag) => channel.basic_ack(tag, BasicAckOptions { multiple: false }),
            AckFrame::UpTo(tag) => channel.basic_ack(tag, BasicAckOptions { multiple: true }),
        });
        let sending: Vec<_> = sending.collect();
        if sending.is_empty() {
            return Ok(());
        }
        answered(&self.settings, futures_util::future::try_join_all(sending)).await?;
        Ok(())
    }

    /// What comes next. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> SessionEvent {
        tokio::select! {
            biased;
            Some((stretch, priority, arriving)) = self.arrivals.next() => match arriving {
                Arriving::Message(arrival) => SessionEvent::Delivered(self.deliver(priority, *arrival)),
                Arriving::Error(error) => SessionEvent::Over(error.to_string()),
                Arriving::End if stretch == self.stretch => {
                    SessionEvent::Over("the broker cancelled the consumer".to_owned())
                }
                Arriving::End => SessionEvent::Quiet,
            },
            () = self.news.worth_a_look() => {
                let are_open = || self.channels.iter().all(|(_, channel)| channel.status().connected());
                if self.connection.status().connected() && are_open() {
                    SessionEvent::Quiet
                } else {
                    SessionEvent::Over("its connection or one of its channels was closed".to_owned())
                }
            }
        }
    }

    /// Closes the connection, after what is still to be sent.
    pub(super) async fn close(mut self) {
        let closing = async {
            self.send_acks().await?;
            answered(&self.settings, self.connection.close(200, "OK".into())).await
        };
        if let Err(error) = closing.await {
            tracing::debug!(%error, "the broker's connection was not closed in order");
        }
    }

    fn deliver(&mut self, priority: Priority, arrival: Arrival) -> ConsumeEvent {
        self.books.get_mut(priority).delivered(arrival.delivery_tag);
        let tag = Delivery::tag_of(priority, arrival.delivery_tag);
        let delivery = Delivery { epoch: self.epoch, tag };
        let message: Result<_, MalformedMessage> = ExecutionMessage::decode(&arrival.data).map(Arc::new);
        ConsumeEvent::Delivered { delivery, message }
    }
}

impl Drop for Session {
    /// Whatever is under way, the broker is told at once that this is over, and gives what was not acknowledged to
    /// others. The client by itself closes what is let go only once none of its own tasks holds it any more.
    fn drop(&mut self) {
        // The first look at the future sends; nobody waits for the answer. One that is closed already says so.
        let _sent = self.connection.close(200, "let go".into()).now_or_never();
    }
}

/// The prefetch of a priority as the kind of queue takes it: one limit for its channel, or an even share per consumer.
fn limit(kind: QueueKind, prefetch: u32, handlers: usize) -> (u16, BasicQosOptions) {
    let shares = match kind {
        QueueKind::Classic => 1,
        QueueKind::Quorum => u32::try_from(handlers.max(1)).unwrap_or(u32::MAX),
    };
    // Zero would mean no limit at all.
    let count = u16::try_from((prefetch / shares).max(1)).unwrap_or(u16::MAX);
    (count, BasicQosOptions { global: kind == QueueKind::Classic })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefetch_is_never_unlimited() {
        assert_eq!(limit(QueueKind::Classic, 0, 3).0, 1);
        assert_eq!(limit(QueueKind::Classic, 512, 3).0, 512);
        assert_eq!(limit(QueueKind::Classic, 1_000_000, 1).0, u16::MAX);
        assert_eq!(limit(QueueKind::Quorum, 512, 4).0, 128);
        assert_eq!(limit(QueueKind::Quorum, 2, 4).0, 1);
    }
}
