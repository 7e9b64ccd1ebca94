//! The consumer: a task that keeps a session up while messages are wanted, and replaces one that ends.
//!
//! Orders from the driver (start, stop, acknowledge) and events to it travel through two queues, so the
//! driver never waits for the broker. The event queue is bounded by the prefetch of each priority, since a delivery is only
//! followed by another once something was acknowledged. Each session has an epoch of its own; when one
//! ends, `Lost` is reported before anything of the next.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use fencepost_core::event::Delivery;
use fencepost_core::job::HandlerName;

use super::backoff::Backoff;
use super::connection::{Outage, Purpose};
use super::session::{Session, SessionEvent};
use super::settings::RabbitSettings;
use crate::ports::{ConsumeEvent, ConsumePort};

/// Orders taken up in one go.
const ORDERS_MAX: usize = 1_024;
/// How long closing may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Consumes execution messages for some handlers. Dropping it drops its connection.
pub struct RabbitConsumer {
    orders: UnboundedSender<Order>,
    events: UnboundedReceiver<ConsumeEvent>,
    link: ConsumerLink,
    keeper: JoinHandle<()>,
}

/// Tells whether a consumer is connected, also once the driver has it.
#[derive(Clone, Debug)]
pub struct ConsumerLink(watch::Receiver<bool>);

impl ConsumerLink {
    /// Whether it is connected.
    #[must_use]
    pub fn is_up(&self) -> bool {
        *self.0.borrow()
    }
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Start { prefetch: u32 },
    Stop,
    Ack(Delivery),
    Close,
}

impl RabbitConsumer {
    /// A consumer that connects once messages are wanted.
    #[must_use]
    pub fn new(settings: RabbitSettings, handlers: Vec<HandlerName>) -> Self {
        let (orders, orders_in) = unbounded_channel();
        let (events_out, events) = unbounded_channel();
        let (up, link) = watch::channel(false);
        let keeper = Keeper {
            settings: Arc::new(settings),
            handlers,
            orders: orders_in,
            events: events_out,
            up,
            wanted: None,
            epoch: 0,
            backoff: Backoff::new(),
            outage: Outage::default(),
        };
        Self { orders, events, link: ConsumerLink(link), keeper: tokio::spawn(keeper.run()) }
    }

    /// Tells whether it is connected, now and later.
    #[must_use]
    pub fn link(&self) -> ConsumerLink {
        self.link.clone()
    }

    fn order(&self, order: Order) {
        // The keeper ends only on `Close` or with the consumer; an order after that has no addressee.
        let _unheard = self.orders.send(order);
    }
}

impl ConsumePort for RabbitConsumer {
    fn start(&mut self, prefetch: u32) {
        self.order(Order::Start { prefetch });
    }

    fn stop(&mut self) {
        self.order(Order::Stop);
    }

    fn ack(&mut self, delivery: Delivery) {
        self.order(Order::Ack(delivery));
    }

    async fn next(&mut self) -> ConsumeEvent {
        match self.events.recv().await {
            Some(event) => event,
            None => core::future::pending().await,
        }
    }

    async fn close(mut self) {
        self.order(Order::Close);
        if timeout(CLOSE_WITHIN, &mut self.keeper).await.is_err() {
            tracing::warn!("the broker did not let go in time; its connection is dropped");
        }
    }
}

impl Drop for RabbitConsumer {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

struct Keeper {
    settings: Arc<RabbitSettings>,
    handlers: Vec<HandlerName>,
    orders: UnboundedReceiver<Order>,
    events: UnboundedSender<ConsumeEvent>,
    up: watch::Sender<bool>,
    /// The prefetch, while messages are wanted.
    wanted: Option<u32>,
    epoch: u64,
    backoff: Backoff,
    outage: Outage,
}

/// Whether the keeper goes on.
enum Next {
    On,
    Close,
}

impl Keeper {
    async fn run(mut self) {
        while let Some(session) = self.open().await {
            let epoch = session.epoch();
            let opened_at = Instant::now();
            self.up.send_replace(true);
            let next = self.serve(session).await;
            self.up.send_replace(false);
            match next {
                Next::Close => return,
                Next::On => {}
            }
            if self.events.send(ConsumeEvent::Lost { epoch }).is_err() {
                return;
            }
            if opened_at.elapsed() > self.settings.answer_within {
                self.backoff.reset();
            }
        }
    }

    /// Waits until messages are wanted, and opens a session, however long that takes. `None`: close.
    async fn open(&mut self) -> Option<Session> {
        let mut pause = Duration::ZERO;
        loop {
            let Some(prefetch) = self.wanted else {
                match self.orders.recv().await {
                    None => return None,
                    Some(order) => match self.note(order) {
                        Next::On => continue,
                        Next::Close => return None,
                    },
                }
            };
            let epoch = self.epoch + 1;
            let attempt = Session::open(Arc::clone(&self.settings), &self.handlers, prefetch, epoch);
            let opened = tokio::select! {
                biased;
                // A changed mind begins the attempt anew; acknowledgements find no session and are void.
                order = self.orders.recv() => match order {
                    None => return None,
                    Some(order) => match self.note(order) {
                        Next::On => continue,
                        Next::Close => return None,
                    },
                },
                opened = async { sleep(pause).await; attempt.await } => opened,
            };
            match opened {
                Ok(session) => {
                    self.outage.over(&self.settings, Purpose::Consume);
                    tracing::info!(broker = %self.settings.url, epoch, prefetch, "consuming");
                    self.epoch = epoch;
                    return Some(session);
                }
                Err(error) => {
                    pause = self.backoff.pause();
                    self.outage.goes_on(&self.settings, Purpose::Consume, &error);
                }
            }
        }
    }

    /// Takes in an order while there is no session.
    fn note(&mut self, order: Order) -> Next {
        match order {
            Order::Start { prefetch } => self.wanted = Some(prefetch),
            Order::Stop => self.wanted = None,
            Order::Ack(_) => {}
            Order::Close => return Next::Close,
        }
        Next::On
    }

    /// Serves a session to its end.
    async fn serve(&mut self, mut session: Session) -> Next {
        let mut batch = Vec::with_capacity(ORDERS_MAX);
        loop {
            let ended = tokio::select! {
                biased;
                taken = self.orders.recv_many(&mut batch, ORDERS_MAX) => {
                    if taken == 0 {
                        return Next::Close;
                    }
                    match self.obey(&mut session, &mut batch).await {
                        Ok(Next::On) => None,
                        Ok(Next::Close) => {
                            session.close().await;
                            return Next::Close;
                        }
                        Err(error) => Some(error.to_string()),
                    }
                }
                event = session.next() => match event {
                    SessionEvent::Quiet => None,
                    SessionEvent::Over(why) => Some(why),
                    SessionEvent::Delivered(event) => {
                        if self.events.send(event).is_err() {
                            return Next::Close;
                        }
                        None
                    }
                },
            };
            if let Some(why) = ended {
                tracing::warn!(broker = %self.settings.url, epoch = session.epoch(), why, "the consumer is gone");
                return Next::On;
            }
        }
    }

    async fn obey(
        &mut self,
        session: &mut Session,
        batch: &mut Vec<Order>,
    ) -> Result<Next, super::connection::BrokerError> {
        for order in batch.drain(..) {
            match order {
                Order::Start { prefetch } if self.wanted == Some(prefetch) => {}
                Order::Start { prefetch } => {
                    self.wanted = Some(prefetch);
                    session.start(&self.handlers, prefetch).await?;
                }
                Order::Stop => {
                    self.wanted = None;
                    session.stop().await?;
                }
                Order::Ack(delivery) => session.ack(delivery),
                Order::Close => {
                    session.send_acks().await?;
                    return Ok(Next::Close);
                }
            }
        }
        session.send_acks().await?;
        Ok(Next::On)
    }
}
