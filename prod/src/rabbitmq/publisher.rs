//! The publisher: batches out, each on a channel of its own, until every confirm is in or time is up.
//!
//! A task of its own keeps one connection up for as long as the publisher lives. A publication waits for
//! it, for a channel and for the confirms on one deadline; what has no answer by then is `Unknown`, and the
//! core decides when to send it again. While the broker blocks publishing, nothing is sent at all, so that
//! nothing piles up in memory.
//!
//! One batch at a time on a channel: see [`confirms`](super::confirms) for why. A channel on which a batch
//! ended without all its answers is never used again; a connection on which one timed out is replaced.

use core::future::poll_fn;
use core::task::Poll;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use fencepost_core::event::PublishOutcome;
use fencepost_core::job::HandlerName;
use fencepost_core::limits::PUBLISH_TIMEOUT;
use fencepost_core::message::ExecutionMessage;
use fencepost_core::priority::{ByPriority, Priority};

use super::backoff::Backoff;
use super::confirms::{Answer, settle};
use super::connection::{BrokerError, Link, News, Purpose, answered, connect_patiently, open_channel};
use super::settings::RabbitSettings;
use super::topology::Topology;
use crate::ports::PublishPort;

/// How much earlier than the driver a publication gives up, so that what is known of it still gets there.
const MARGIN: Duration = Duration::from_millis(250);
/// `delivery_mode` of messages that survive a restart of the broker.
const PERSISTENT: u8 = 2;

/// Publishes execution messages. Dropping it closes its connection.
pub struct RabbitPublisher {
    settings: Arc<RabbitSettings>,
    topology: Topology,
    lanes: Semaphore,
    idle: Mutex<Vec<IdleChannel>>,
    link: watch::Receiver<LinkState>,
    keeper: tokio::task::JoinHandle<()>,
}

/// Whether the broker takes publications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkHealth {
    /// It does.
    Up,
    /// It is reached, but takes none for the moment.
    Blocked,
    /// It is not reached.
    Down,
}

#[derive(Clone)]
enum LinkState {
    Up(Arc<Live>),
    Blocked,
    Down,
}

/// A connection in use.
struct Live {
    connection: Connection,
    /// Which connection, so that a channel of an older one is told apart.
    generation: u64,
    declared: Mutex<ByPriority<BTreeSet<HandlerName>>>,
    broken: Notify,
}

/// A channel between two batches.
struct IdleChannel {
    channel: Channel,
    generation: u64,
}

/// How a batch ended.
enum Ended {
    /// With all answers: its channel can be used again.
    Answered,
    /// The channel or the connection broke.
    Broken,
    /// In silence.
    TimedOut,
}

impl RabbitPublisher {
    /// A publisher that begins to connect at once.
    #[must_use]
    pub fn start(settings: RabbitSettings) -> Self {
        let settings = Arc::new(settings);
        let (state, link) = watch::channel(LinkState::Down);
        Self {
            topology: Topology::of(&settings),
            lanes: Semaphore::new(settings.publish_channels),
            idle: Mutex::new(Vec::new()),
            link,
            keeper: tokio::spawn(keep_connected(Arc::clone(&settings), state)),
            settings,
        }
    }

    /// Whether the broker takes publications, as far as is known.
    #[must_use]
    pub fn health(&self) -> LinkHealth {
        match &*self.link.borrow() {
            LinkState::Up(_) => LinkHealth::Up,
            LinkState::Blocked => LinkHealth::Blocked,
            LinkState::Down => LinkHealth::Down,
        }
    }

    /// A connection that takes publications, other than one that has just failed.
    async fn live(&self, failed: Option<u64>) -> Arc<Live> {
        let mut link = self.link.clone();
        let usable = |state: &LinkState| match state {
            LinkState::Up(live) => failed != Some(live.generation),
            LinkState::Blocked | LinkState::Down => false,
        };
        let found = match link.wait_for(usable).await.as_deref() {
            Ok(LinkState::Up(live)) => Some(Arc::clone(live)),
            Ok(LinkState::Blocked | LinkState::Down) | Err(_) => None,
        };
        match found {
            Some(live) => live,
            // The keeper never ends before the publisher; without it there is nothing to wait for.
            None => core::future::pending().await,
        }
    }

    async fn channel(&self, live: &Live) -> Result<Channel, BrokerError> {
        while let Some(idle) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            if idle.generation == live.generation && idle.channel.status().connected() {
                return Ok(idle.channel);
            }
        }
        let channel = open_channel(&self.settings, &live.connection).await?;
        answered(&self.settings, channel.confirm_select(ConfirmSelectOptions::default())).await?;
        answered(&self.settings, self.topology.declare_exchange(&channel)).await?;
        Ok(channel)
    }

    async fn declare(
        &self,
        live: &Live,
        channel: &Channel,
        messages: &[Arc<ExecutionMessage>],
    ) -> Result<(), BrokerError> {
        let new: BTreeSet<(Priority, HandlerName)> = {
            let declared = live.declared.lock().unwrap_or_else(PoisonError::into_inner);
            let is_known =
                |message: &ExecutionMessage| declared.get(message.priority).contains(&message.handler.name);
            let unknown = messages.iter().filter(|message| !is_known(message));
            unknown.map(|message| (message.priority, message.handler.name.clone())).collect()
        };
        for (priority, name) in new {
            answered(&self.settings, self.topology.declare_queue(channel, &name, priority)).await?;
            let mut declared = live.declared.lock().unwrap_or_else(PoisonError::into_inner);
            declared.get_mut(priority).insert(name);
        }
        Ok(())
    }

    /// A channel on which these can be published. As nothing was sent yet, a connection that turns out to be
    /// dead is no reason to give up, only to wait for the next.
    async fn prepare(&self, messages: &[Arc<ExecutionMessage>]) -> Result<(Arc<Live>, Channel), BrokerError> {
        let mut failed = None;
        loop {
            let live = self.live(failed).await;
            let prepared = match self.channel(&live).await {
                Ok(channel) => self.declare(&live, &channel, messages).await.map(|()| channel),
                Err(error) => Err(error),
            };
            match prepared {
                Ok(channel) => return Ok((live, channel)),
                Err(BrokerError::Broker(error)) if error.is_amqp_soft_error() => return Err(error.into()),
                Err(error) => {
                    tracing::debug!(%error, "a connection is dead");
                    live.broken.notify_one();
                    failed = Some(live.generation);
                }
            }
        }
    }

    async fn publish_by(&self, deadline: Instant, messages: &[Arc<ExecutionMessage>]) -> Vec<PublishOutcome> {
        let unknown = || vec![PublishOutcome::Unknown; messages.len()];
        let Ok(lane) = timeout_at(deadline, self.lanes.acquire()).await else { return unknown() };
        let _lane = lane.expect("nobody closes the lanes");
        let (live, channel) = match timeout_at(deadline, self.prepare(messages)).await {
            Ok(Ok(prepared)) => prepared,
            Ok(Err(error)) => {
                tracing::error!(%error, "nothing could be published: does a queue exist with other properties?");
                return unknown();
            }
            Err(_) => return unknown(),
        };
        let (outcomes, ended) = self.send(deadline, &channel, messages).await;
        self.forget_queues_that_are_gone(&live, messages, &outcomes);
        match ended {
            Ended::Answered => {
                let idle = IdleChannel { channel, generation: live.generation };
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(idle);
            }
            Ended::Broken => {}
            Ended::TimedOut => live.broken.notify_one(),
        }
        outcomes
    }

    /// Sends the batch in one go, then waits for its confirms.
    async fn send(
        &self,
        deadline: Instant,
        channel: &Channel,
        messages: &[Arc<ExecutionMessage>],
    ) -> (Vec<PublishOutcome>, Ended) {
        let bodies: Vec<Vec<u8>> = messages.iter().map(|message| message.encode()).collect();
        let mut sent = Vec::with_capacity(messages.len());
        for (message, body) in messages.iter().zip(&bodies) {
            let mut sending = Box::pin(channel.basic_publish(
                self.topology.exchange(),
                self.topology.routing_key(&message.handler.name, message.priority),
                BasicPublishOptions { mandatory: true, immediate: false },
                body,
                properties(message),
            ));
            // The first poll queues the frames; waiting for each to leave would send one message per turn.
            let queued = poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await;
            sent.push((sending, queued));
        }
        let mut answers = Vec::with_capacity(messages.len());
        let mut handed_back = BTreeSet::new();
        let mut ended = Ended::Answered;
        for (message, (sending, queued)) in messages.iter().zip(sent) {
            let confirm = async {
                let confirm = match queued {
                    Poll::Ready(confirm) => confirm,
                    Poll::Pending => sending.await,
                };
                confirm?.await
            };
            // Past the deadline this still takes what is already there.
            let answer = match timeout_at(deadline, confirm).await {
                Ok(Ok(Confirmation::Ack(returned))) => {
                    handed_back.extend(returned.and_then(|returned| id_of_returned(&returned)));
                    Answer::Acked
                }
                Ok(Ok(Confirmation::Nack(returned))) => {
                    handed_back.extend(returned.and_then(|returned| id_of_returned(&returned)));
                    Answer::Nacked
                }
                Ok(Ok(Confirmation::NotRequested)) => Answer::None,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "a publication has no confirm");
                    ended = Ended::Broken;
                    Answer::None
                }
                Err(_) => {
                    ended = Ended::TimedOut;
                    Answer::None
                }
            };
            answers.push((message_id(message), answer));
        }
        (settle(&answers, &handed_back), ended)
    }

    /// A message that came back had no queue, although one was declared: somebody deleted it. The next
    /// publication declares it anew.
    fn forget_queues_that_are_gone(
        &self,
        live: &Live,
        messages: &[Arc<ExecutionMessage>],
        outcomes: &[PublishOutcome],
    ) {
        for (message, outcome) in messages.iter().zip(outcomes) {
            if *outcome == PublishOutcome::Returned {
                let mut declared = live.declared.lock().unwrap_or_else(PoisonError::into_inner);
                declared.get_mut(message.priority).remove(&message.handler.name);
            }
        }
    }
}

impl PublishPort for RabbitPublisher {
    async fn publish(&self, messages: Vec<Arc<ExecutionMessage>>) -> Vec<PublishOutcome> {
        let deadline = Instant::now() + PUBLISH_TIMEOUT.to_duration().saturating_sub(MARGIN);
        self.publish_by(deadline, &messages).await
    }
}

impl Drop for RabbitPublisher {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// The id that a message travels under: its outbox row's.
fn message_id(message: &ExecutionMessage) -> String {
    format!("{}/{}", message.execution, message.dispatch_no.0)
}

fn properties(message: &ExecutionMessage) -> BasicProperties {
    BasicProperties::default()
        .with_content_type("application/json".into())
        .with_delivery_mode(PERSISTENT)
        .with_message_id(message_id(message).into())
}

fn id_of_returned(returned: &lapin::message::BasicReturnMessage) -> Option<String> {
    returned.properties.message_id().as_ref().map(ToString::to_string)
}

/// Keeps one connection up and tells how it stands.
async fn keep_connected(settings: Arc<RabbitSettings>, state: watch::Sender<LinkState>) {
    let mut backoff = Backoff::new();
    let mut generation = 0;
    loop {
        let Link { connection, news } = connect_patiently(&settings, Purpose::Publish, &mut backoff).await;
        generation += 1;
        let live =
            Arc::new(Live { connection, generation, declared: Mutex::default(), broken: Notify::new() });
        let connected_at = Instant::now();
        watch_over(&live, news, &state).await;
        state.send_replace(LinkState::Down);
        if connected_at.elapsed() > settings.answer_within {
            backoff.reset();
        }
        tokio::time::sleep(backoff.pause()).await;
    }
}

/// Follows a connection to its end.
async fn watch_over(live: &Arc<Live>, mut news: News, state: &watch::Sender<LinkState>) {
    loop {
        let status = live.connection.status();
        if !status.connected() {
            return;
        }
        let blocked = status.blocked();
        state.send_if_modified(|state| match (&state, blocked) {
            (LinkState::Up(_), false) | (LinkState::Blocked, true) => false,
            (_, true) => {
                *state = LinkState::Blocked;
                true
            }
            (_, false) => {
                *state = LinkState::Up(Arc::clone(live));
                true
            }
        });
        tokio::select! {
            biased;
            () = live.broken.notified() => {
                // A blocked connection answers nothing either, and is still good.
                if !live.connection.status().blocked() {
                    tracing::warn!("the broker's connection is given up and replaced");
                    return;
                }
            }
            () = news.worth_a_look() => {}
        }
    }
}
