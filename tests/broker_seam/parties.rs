//! The parties: production's consumer and somebody else's, each driven by orders and telling what it sees.
//!
//! What must stay true: whatever a party has seen when an order to it is carried out was told before; what
//! comes of a cancel or a close that it ordered itself is told by nobody.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fencepost::ports::{ConsumeEvent, ConsumePort};
use fencepost::rabbitmq::{RabbitConsumer, RabbitSettings};
use fencepost_core::event::{Delivery, PublishOutcome};
use fencepost_core::message::ExecutionMessage;
use fencepost_core::priority::Priority;
use fencepost_sim::world::open_broker::Slot;
use futures_util::{FutureExt, StreamExt};
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions,
    BasicRejectOptions,
};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Connection, ConnectionProperties};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, unconstrained};

use crate::history::{Flag, Sight, name};
use crate::script::{Leaving, Settling};

/// A consumer of production's gives its broker this long to close; after that, what it sent may be lost.
const CLOSES_FOR_SURE_WITHIN: Duration = Duration::from_millis(1_500);

/// What a party tells.
#[derive(Clone, Copy, Debug)]
pub(super) enum News {
    Seen(Slot, Sight),
    /// A worker's session is over, as was seen; what it sees from here on is seen in another slot.
    Replaced {
        old: Slot,
        new: Slot,
    },
    Published(u32, PublishOutcome),
}

pub(super) type Teller = UnboundedSender<News>;

/// Tells news; after the end of a script there is nobody to hear them.
pub(super) fn tell(teller: &Teller, news: News) {
    let _nobody_listens = teller.send(news);
}

/// Where slots come from that nobody had before.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(Arc<AtomicUsize>);

impl Slots {
    pub(super) fn next(&self) -> Slot {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

enum Order {
    Start {
        prefetch: u32,
    },
    Stop,
    /// Of the session in this slot.
    Ack(Slot, Vec<u64>),
    /// Tell what has come so far.
    Tell(oneshot::Sender<()>),
    Close(oneshot::Sender<()>),
}

/// Production's consumer. Dropping it ends it without a word.
pub(super) struct Worker {
    orders: UnboundedSender<Order>,
    task: JoinHandle<()>,
}

impl Worker {
    /// Its first session sees things in `slot`.
    pub(super) fn start(
        settings: RabbitSettings,
        queues: &[usize],
        slot: Slot,
        slots: Slots,
        teller: Teller,
    ) -> Self {
        let eyes = Eyes { slot, epoch: 0, slots, teller };
        let handlers: BTreeSet<_> = queues.iter().map(|queue| name(*queue).0).collect();
        let consumer = RabbitConsumer::new(settings, handlers.into_iter().collect());
        let (orders, orders_in) = unbounded_channel();
        Self { orders, task: tokio::spawn(work(consumer, orders_in, eyes)) }
    }

    pub(super) fn consume(&self, prefetch: u16) {
        self.order(Order::Start { prefetch: u32::from(prefetch) });
    }

    pub(super) fn cancel(&self) {
        self.order(Order::Stop);
    }

    /// What a session that is over had is acknowledged by nobody.
    pub(super) fn acknowledge(&self, slot: Slot, tags: &[u64]) {
        self.order(Order::Ack(slot, tags.to_vec()));
    }

    /// Waits until all that has come to it by now was told.
    pub(super) async fn tell_all(&self) {
        let (done, told) = oneshot::channel();
        self.order(Order::Tell(done));
        told.await.expect("it ends only when it is told to");
    }

    /// Closes; how it must be taken.
    pub(super) async fn leave(self, how: Leaving) -> Leaving {
        if how == Leaving::Abruptly {
            self.task.abort();
            return how;
        }
        let began = Instant::now();
        let (done, closed) = oneshot::channel();
        self.order(Order::Close(done));
        let answered = closed.await.is_ok();
        if answered && began.elapsed() < CLOSES_FOR_SURE_WITHIN { how } else { Leaving::Abruptly }
    }

    fn order(&self, order: Order) {
        let _it_has_closed = self.orders.send(order);
    }
}

async fn work(mut consumer: RabbitConsumer, mut orders: UnboundedReceiver<Order>, mut eyes: Eyes) {
    loop {
        tokio::select! {
            biased;
            order = orders.recv() => match order {
                Some(Order::Start { prefetch }) => consumer.start(prefetch),
                Some(Order::Stop) => consumer.stop(),
                Some(Order::Ack(slot, tags)) if slot == eyes.slot => {
                    tags.into_iter().for_each(|tag| consumer.ack(Delivery { epoch: eyes.epoch, tag }));
                }
                Some(Order::Ack(..)) => {}
                Some(Order::Tell(done)) => {
                    while let Some(event) = unconstrained(consumer.next()).now_or_never() {
                        eyes.see(event);
                    }
                    let _nobody_waits = done.send(());
                }
                Some(Order::Close(done)) => {
                    consumer.close().await;
                    let _nobody_waits = done.send(());
                    return;
                }
                None => return,
            },
            event = consumer.next() => eyes.see(event),
        }
    }
}

/// What a worker has seen last, and where it tells what it sees.
struct Eyes {
    slot: Slot,
    epoch: u64,
    slots: Slots,
    teller: Teller,
}

impl Eyes {
    fn see(&mut self, event: ConsumeEvent) {
        match event {
            ConsumeEvent::Delivered { delivery, message } => {
                self.epoch = delivery.epoch;
                let number = message.expect("all is published by us").dispatch_no.0;
                let sight = Sight::Delivered { tag: delivery.tag, number, flag: Flag::NotSeen };
                tell(&self.teller, News::Seen(self.slot, sight));
            }
            ConsumeEvent::Lost { .. } => {
                let (old, new) = (self.slot, self.slots.next());
                tell(&self.teller, News::Seen(old, Sight::Lost));
                tell(&self.teller, News::Replaced { old, new });
                self.slot = new;
            }
        }
    }
}

/// Somebody else's consumer, of one queue.
pub(super) struct Foreign {
    connection: Connection,
    channel: Channel,
    queue: ShortString,
    priority: Priority,
    slot: Slot,
    teller: Teller,
    consuming: Option<Consuming>,
}

struct Consuming {
    tag: ShortString,
    /// Whether its end was ordered.
    expected: Arc<AtomicBool>,
    told: JoinHandle<()>,
}

impl Foreign {
    pub(super) async fn open(
        url: &str,
        queue: ShortString,
        priority: Priority,
        slot: Slot,
        teller: Teller,
    ) -> Self {
        let connection = connect(url).await;
        let channel = connection.create_channel().await.expect("a new connection has a channel");
        Self { connection, channel, queue, priority, slot, teller, consuming: None }
    }

    pub(super) async fn consume(&mut self, prefetch: u16) {
        let for_the_channel = BasicQosOptions { global: true };
        self.channel.basic_qos(prefetch, for_the_channel).await.expect("any prefetch is taken");
        if self.consuming.is_some() {
            return;
        }
        let consumer = self
            .channel
            .basic_consume(
                self.queue.clone(),
                ShortString::default(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            )
            .await
            .expect("the queue is there");
        let expected = Arc::new(AtomicBool::new(false));
        self.consuming = Some(Consuming {
            tag: consumer.tag(),
            expected: Arc::clone(&expected),
            told: tokio::spawn(follow(consumer, self.priority, self.slot, expected, self.teller.clone())),
        });
    }

    pub(super) async fn cancel(&mut self) {
        if let Some(consuming) = self.consuming.take() {
            consuming.expected.store(true, Ordering::SeqCst);
            let cancelled = self.channel.basic_cancel(consuming.tag, BasicCancelOptions::default()).await;
            cancelled.expect("it consumes");
            consuming.told.await.expect("it only tells");
        }
    }

    /// The broker has ended it.
    pub(super) fn was_cancelled(&mut self) {
        self.consuming = None;
    }

    /// Settles, and waits until the broker must have it.
    pub(super) async fn settle(&self, tags: &[u64], how: Settling, fence: Fence) {
        let last = *tags.last().expect("there is something to settle");
        let (_, tag) = Delivery { epoch: 0, tag: last }.place();
        let nack = |multiple, requeue| BasicNackOptions { multiple, requeue };
        let sent = match how {
            Settling::Ack => self.channel.basic_ack(tag, BasicAckOptions { multiple: false }).await,
            Settling::AckUpTo => self.channel.basic_ack(tag, BasicAckOptions { multiple: true }).await,
            Settling::NackBack => self.channel.basic_nack(tag, nack(false, true)).await,
            Settling::NackUpToBack => self.channel.basic_nack(tag, nack(true, true)).await,
            Settling::NackAway => self.channel.basic_nack(tag, nack(false, false)).await,
            Settling::RejectBack => {
                self.channel.basic_reject(tag, BasicRejectOptions { requeue: true }).await
            }
            Settling::RejectAway => {
                self.channel.basic_reject(tag, BasicRejectOptions { requeue: false }).await
            }
        };
        sent.expect("the channel is open");
        match fence {
            Fence::Queue => {
                look(&self.channel, self.queue.clone()).await.expect("the queue is there");
            }
            Fence::Gone => {}
        }
    }

    pub(super) async fn leave(mut self, how: Leaving) {
        let consuming = self.consuming.take();
        if let Some(consuming) = &consuming {
            consuming.expected.store(true, Ordering::SeqCst);
        }
        if how == Leaving::Channel {
            self.channel.close(200, "OK".into()).await.expect("it is open");
        }
        self.connection.close(200, "OK".into()).await.expect("it is open");
        if let Some(consuming) = consuming {
            consuming.told.await.expect("it only tells");
        }
    }
}

/// Whether the queue is still there to ask whether it has got something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    Queue,
    Gone,
}

async fn follow(
    mut consumer: lapin::Consumer,
    priority: Priority,
    slot: Slot,
    expected: Arc<AtomicBool>,
    teller: Teller,
) {
    while let Some(arrival) = consumer.next().await {
        let Ok(arrival) = arrival else {
            if !expected.load(Ordering::SeqCst) {
                tell(&teller, News::Seen(slot, Sight::Lost));
            }
            return;
        };
        let number = ExecutionMessage::decode(&arrival.data).expect("all is published by us").dispatch_no.0;
        let flag = if arrival.redelivered { Flag::Redelivered } else { Flag::First };
        let tag = Delivery::tag_of(priority, arrival.delivery_tag);
        tell(&teller, News::Seen(slot, Sight::Delivered { tag, number, flag }));
    }
    if !expected.load(Ordering::SeqCst) {
        tell(&teller, News::Seen(slot, Sight::Cancelled));
    }
}

pub(super) async fn connect(url: &str) -> Connection {
    Connection::connect(url, ConnectionProperties::default()).await.expect("the broker is there")
}

/// What is known of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) ready: u32,
    pub(super) consumers: u32,
}

/// Looks at a queue; an error where it is not there, and the channel is gone.
pub(super) async fn look(channel: &Channel, queue: ShortString) -> lapin::Result<Look> {
    let passive = lapin::options::QueueDeclareOptions { passive: true, ..Default::default() };
    let queue = channel.queue_declare(queue, passive, FieldTable::default()).await?;
    Ok(Look { ready: queue.message_count(), consumers: queue.consumer_count() })
}
