//! The broker's host: queues that outlive a crash, confirms, and deliveries until they are acknowledged.
//!
//! Publications are asked and answered; consumers hold a connection on which both sides speak at least once
//! a second. A connection that falls silent is given up, and what was delivered on it and not acknowledged
//! goes back to its queue.
//!
//! All connections are served by one task, and both halves of each lie side by side: tokio drops the tasks of a host
//! that crashes in an order that hangs on how many tasks the program has ever had, and each connection says a last
//! word as it is dropped. With one task per connection, the same seed would not give the same run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fencepost::ports::PublishPort;
use fencepost_core::event::{Delivery, PublishOutcome};
use fencepost_core::message::ExecutionMessage;
use fencepost_core::priority::ByPriority;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::{Instant, interval, sleep_until};
use turmoil::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use turmoil::net::{TcpListener, TcpStream};

use crate::parcel::{Asker, Parcel, Parcels, Route, answer};
use crate::sightings::{Sighting, Sightings};
use crate::weather::{Direction, WORKERS};

const PUBLISH_PORT: u16 = 5672;
pub(crate) const CONSUME_PORT: u16 = 5673;
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(4);

/// What a consumer and the broker say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Still there.
    Heartbeat,
    /// Deliver, with at most so many unacknowledged.
    Consume(u64),
    /// Deliver no more.
    Stop,
    /// The delivery of this tag is acknowledged.
    Ack(u64),
    /// A delivery: its tag, and the parcel with the message.
    Deliver(u64, u64),
}

impl Frame {
    async fn write(self, connection: &mut OwnedWriteHalf) -> std::io::Result<()> {
        let (kind, a, b) = match self {
            Self::Heartbeat => (0, 0, 0),
            Self::Consume(prefetch) => (1, prefetch, 0),
            Self::Stop => (2, 0, 0),
            Self::Ack(tag) => (3, tag, 0),
            Self::Deliver(tag, parcel) => (4, tag, parcel),
        };
        let mut bytes = [0; FRAME_BYTES];
        bytes[0] = kind;
        bytes[1..9].copy_from_slice(&u64::to_be_bytes(a));
        bytes[9..].copy_from_slice(&u64::to_be_bytes(b));
        connection.write_all(&bytes).await
    }

    fn parse(bytes: &[u8; FRAME_BYTES]) -> Self {
        let number = |at: usize| {
            u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes are eight bytes"))
        };
        match bytes[0] {
            0 => Self::Heartbeat,
            1 => Self::Consume(number(1)),
            2 => Self::Stop,
            3 => Self::Ack(number(1)),
            4 => Self::Deliver(number(1), number(9)),
            other => panic!("no frame has kind {other}"),
        }
    }
}

const FRAME_BYTES: usize = 17;

/// One end of a consumer's connection.
pub(crate) struct Line {
    read: Reader,
    write: OwnedWriteHalf,
    heartbeat: tokio::time::Interval,
    heard: Instant,
}

/// The reading half, and what has come of the frame under way: reading may be given up at any await.
struct Reader {
    half: OwnedReadHalf,
    frame: [u8; FRAME_BYTES],
    filled: usize,
}

impl Reader {
    /// The next frame; `None` once the connection has ended.
    async fn next(&mut self) -> Option<Frame> {
        while self.filled < FRAME_BYTES {
            let more = self.half.read(&mut self.frame[self.filled..]).await.ok().filter(|more| *more > 0)?;
            self.filled += more;
        }
        self.filled = 0;
        Some(Frame::parse(&self.frame))
    }
}

impl Line {
    pub(crate) fn on(connection: TcpStream) -> Self {
        let (half, write) = connection.into_split();
        let read = Reader { half, frame: [0; FRAME_BYTES], filled: 0 };
        Self { read, write, heartbeat: interval(HEARTBEAT), heard: Instant::now() }
    }

    /// The next frame that means something; `None` once the line is dead.
    pub(crate) async fn hear(&mut self) -> Option<Frame> {
        loop {
            tokio::select! {
                biased;
                frame = self.read.next() => {
                    self.heard = Instant::now();
                    match frame {
                        Some(Frame::Heartbeat) => {}
                        other => return other,
                    }
                }
                _ = self.heartbeat.tick() => Frame::Heartbeat.write(&mut self.write).await.ok()?,
                () = sleep_until(self.heard + SILENCE_MAX) => return None,
            }
        }
    }

    pub(crate) async fn say(&mut self, frame: Frame) -> Option<()> {
        frame.write(&mut self.write).await.ok()
    }
}

/// What the broker keeps.
#[derive(Clone)]
pub(crate) struct Broker {
    state: Arc<Mutex<State>>,
    parcels: Parcels,
    sightings: Sightings,
}

#[derive(Default)]
struct State {
    queues: ByPriority<VecDeque<Arc<ExecutionMessage>>>,
    /// By connection and tag.
    unacknowledged: BTreeMap<(u64, u64), Arc<ExecutionMessage>>,
    /// How to wake each connection. One each, since several waiters on one thing wake in random order.
    connections: BTreeMap<u64, Arc<Notify>>,
    latest_connection: u64,
}

impl State {
    /// The next message of a priority of which fewer are out than may be.
    fn next(&mut self, open: &ByPriority<u64>, prefetch: u64) -> Option<Arc<ExecutionMessage>> {
        let mut queues = self.queues.values_mut().zip(open.iter());
        queues.find_map(|(queue, (_, open))| if *open < prefetch { queue.pop_front() } else { None })
    }
}

impl Broker {
    pub(crate) fn new(parcels: Parcels, sightings: Sightings) -> Self {
        Self { state: Arc::default(), parcels, sightings }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    fn tell(&self) {
        for arrivals in self.lock().connections.values() {
            arrivals.notify_one();
        }
    }

    fn connect(&self) -> (u64, Arc<Notify>) {
        let mut state = self.lock();
        state.latest_connection += 1;
        let number = state.latest_connection;
        let arrivals = Arc::default();
        state.connections.insert(number, Arc::clone(&arrivals));
        (number, arrivals)
    }

    fn disconnect(&self, number: u64) {
        self.lock().connections.remove(&number);
        self.requeue(|of| of == number);
    }

    fn requeue(&self, whose: impl Fn(u64) -> bool) {
        let mut state = self.lock();
        let gone: Vec<_> = state.unacknowledged.keys().copied().filter(|(of, _)| whose(*of)).collect();
        for key in gone.into_iter().rev() {
            let message = state.unacknowledged.remove(&key).expect("it was listed just now");
            state.queues.get_mut(message.priority).push_front(message);
        }
        drop(state);
        self.tell();
    }

    /// Serves publishers and consumers.
    pub(crate) async fn serve(self) -> turmoil::Result {
        // A crash ended every connection.
        self.lock().connections.clear();
        self.requeue(|_| true);
        let queues = self.clone();
        let publishing = answer(PUBLISH_PORT, self.parcels.clone(), move |parcel| match parcel {
            Parcel::Messages(messages) => Parcel::Outcomes(queues.take_in(messages)),
            Parcel::Command(..) | Parcel::Reply(_) | Parcel::Outcomes(_) | Parcel::Message(_) => {
                panic!("only messages are published")
            }
        });
        let listener = TcpListener::bind(("0.0.0.0", CONSUME_PORT)).await?;
        let consuming = async move {
            let mut connections = FuturesUnordered::new();
            loop {
                tokio::select! {
                    biased;
                    accepted = listener.accept() => {
                        let (connection, from) = accepted?;
                        let from = turmoil::reverse_lookup(from.ip());
                        let worker = WORKERS.into_iter().find(|worker| from.as_deref() == Some(worker));
                        let worker = worker.expect("only workers consume");
                        connections.push(self.clone().deliver(connection, worker));
                    }
                    Some(()) = connections.next() => {}
                }
            }
        };
        tokio::select! {
            biased;
            ended = publishing => ended,
            ended = consuming => ended,
        }
    }

    /// Takes messages in, and confirms them.
    fn take_in(&self, messages: Vec<Arc<ExecutionMessage>>) -> Vec<PublishOutcome> {
        let outcomes = vec![PublishOutcome::Confirmed; messages.len()];
        for message in &messages {
            let (execution, dispatch_no) = (message.execution, message.dispatch_no);
            self.sightings.add(Sighting::Confirmed { execution, dispatch_no });
        }
        let mut state = self.lock();
        for message in messages {
            state.queues.get_mut(message.priority).push_back(message);
        }
        drop(state);
        self.tell();
        outcomes
    }

    /// Serves one consumer to its end.
    async fn deliver(self, connection: TcpStream, worker: &'static str) {
        let route = Route { node: worker, server: "broker", direction: Direction::Back };
        let (number, arrivals) = self.connect();
        let mut line = Line::on(connection);
        let (mut prefetch, mut open, mut number_of) = (0, ByPriority::default(), ByPriority::default());
        loop {
            loop {
                let next = self.lock().next(&open, prefetch);
                let Some(message) = next else { break };
                let priority = message.priority;
                *open.get_mut(priority) += 1;
                *number_of.get_mut(priority) += 1;
                let tag = Delivery::tag_of(priority, *number_of.get(priority));
                self.lock().unacknowledged.insert((number, tag), Arc::clone(&message));
                let parcel = self.parcels.park(Parcel::Message(message), route);
                if line.say(Frame::Deliver(tag, parcel)).await.is_none() {
                    return self.disconnect(number);
                }
            }
            tokio::select! {
                biased;
                frame = line.hear() => match frame {
                    Some(Frame::Consume(most)) => prefetch = most,
                    Some(Frame::Stop) => prefetch = 0,
                    Some(Frame::Ack(tag)) => {
                        if self.lock().unacknowledged.remove(&(number, tag)).is_some() {
                            let (priority, _) = Delivery { epoch: number, tag }.place();
                            *open.get_mut(priority) -= 1;
                        }
                    }
                    Some(Frame::Heartbeat | Frame::Deliver(..)) | None => {
                        return self.disconnect(number);
                    }
                },
                () = arrivals.notified() => {}
            }
        }
    }
}

/// The publishing side, over the network.
pub(crate) struct RemotePublisher(pub(crate) Asker);

impl PublishPort for RemotePublisher {
    async fn publish(&self, messages: Vec<Arc<ExecutionMessage>>) -> Vec<PublishOutcome> {
        match self.0.ask("broker", PUBLISH_PORT, Parcel::Messages(messages)).await {
            Parcel::Outcomes(outcomes) => outcomes,
            Parcel::Command(..) | Parcel::Reply(_) | Parcel::Messages(_) | Parcel::Message(_) => {
                panic!("the broker answers a publication with its outcomes")
            }
        }
    }
}
