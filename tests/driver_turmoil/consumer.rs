//! The consuming side, over the network: connects, and connects again.

use std::time::Duration;

use fencepost::ports::{ConsumeEvent, ConsumePort};
use fencepost_core::event::Delivery;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use turmoil::net::TcpStream;

use crate::broker_host::{CONSUME_PORT, Frame, Line, SILENCE_MAX};
use crate::parcel::{Parcel, Parcels};

/// The pause before connecting again.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy)]
enum Order {
    Start(u32),
    Stop,
    Ack(Delivery),
}

/// A consumer.
pub(crate) struct RemoteConsumer {
    orders: mpsc::UnboundedSender<Order>,
    events: mpsc::UnboundedReceiver<ConsumeEvent>,
}

impl RemoteConsumer {
    pub(crate) fn new(parcels: Parcels) -> Self {
        let (orders, orders_in) = mpsc::unbounded_channel();
        let (events_out, events) = mpsc::unbounded_channel();
        tokio::spawn(Keeper { parcels, orders: orders_in, events: events_out, wanted: None }.run());
        Self { orders, events }
    }

    fn order(&self, order: Order) {
        self.orders.send(order).expect("the keeper lives as long as its consumer");
    }
}

impl ConsumePort for RemoteConsumer {
    fn start(&mut self, prefetch: u32) {
        self.order(Order::Start(prefetch));
    }

    fn stop(&mut self) {
        self.order(Order::Stop);
    }

    fn ack(&mut self, delivery: Delivery) {
        self.order(Order::Ack(delivery));
    }

    async fn next(&mut self) -> ConsumeEvent {
        self.events.recv().await.expect("the keeper lives as long as its consumer")
    }

    async fn close(mut self) {
        // The keeper sends what is left and ends when it finds nobody there.
        drop(self.orders);
        while self.events.recv().await.is_some() {}
    }
}

struct Keeper {
    parcels: Parcels,
    orders: mpsc::UnboundedReceiver<Order>,
    events: mpsc::UnboundedSender<ConsumeEvent>,
    wanted: Option<u32>,
}

impl Keeper {
    async fn run(mut self) {
        let mut epoch = 0;
        loop {
            let Some(prefetch) = self.wanted else {
                match self.orders.recv().await {
                    Some(Order::Start(prefetch)) => self.wanted = Some(prefetch),
                    Some(Order::Stop | Order::Ack(_)) => {}
                    None => return,
                }
                continue;
            };
            if let Ok(Ok(connection)) =
                timeout(SILENCE_MAX, TcpStream::connect(("broker", CONSUME_PORT))).await
            {
                epoch += 1;
                let mut line = Line::on(connection);
                let began = line.say(Frame::Consume(prefetch.into())).await;
                if began.is_some() && self.serve(&mut line, epoch).await.is_none() {
                    return;
                }
                self.tell(ConsumeEvent::Lost { epoch });
            }
            sleep(PAUSE).await;
        }
    }

    fn tell(&self, event: ConsumeEvent) {
        // Nobody may be listening any more; then the orders end too, and that is where it is noticed.
        let _unheard = self.events.send(event);
    }

    /// Serves one connection to its end; `None` once nobody gives orders any more.
    async fn serve(&mut self, line: &mut Line, epoch: u64) -> Option<()> {
        loop {
            let said = tokio::select! {
                biased;
                order = self.orders.recv() => match order? {
                    Order::Start(prefetch) => {
                        self.wanted = Some(prefetch);
                        line.say(Frame::Consume(prefetch.into())).await
                    }
                    Order::Stop => {
                        self.wanted = None;
                        line.say(Frame::Stop).await
                    }
                    Order::Ack(delivery) if delivery.epoch == epoch => line.say(Frame::Ack(delivery.tag)).await,
                    Order::Ack(_) => Some(()),
                },
                frame = line.hear() => match frame {
                    Some(Frame::Deliver(tag, parcel)) => {
                        let Some((Parcel::Message(message), _)) = self.parcels.collect(parcel) else {
                            panic!("a delivery carries a message")
                        };
                        self.tell(ConsumeEvent::Delivered { delivery: Delivery { epoch, tag }, message: Ok(message) });
                        Some(())
                    }
                    Some(Frame::Heartbeat | Frame::Consume(_) | Frame::Stop | Frame::Ack(_)) | None => None,
                },
            };
            if said.is_none() {
                return Some(());
            }
        }
    }
}
