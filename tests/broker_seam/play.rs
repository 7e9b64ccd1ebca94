//! Playing a script on RabbitMQ: step by step, recording a history, with the acceptor looking on.
//!
//! Nothing waits for a time: a window is over when the acceptor knows of nothing that is still due and the
//! broker's own count of consumers agrees with ours. At the end everything that may be left is fetched, and
//! what the simulated broker would still have is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fencepost::ports::PublishPort;
use fencepost::rabbitmq::{RabbitPublisher, RabbitSettings, Topology};
use fencepost_core::event::PublishOutcome;
use fencepost_sim::world::open_broker::Slot;
use fencepost_tests::waiting;
use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeDeleteOptions, QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Connection};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::acceptor::{Acceptor, Refusal, Weighed};
use crate::history::{Act, Actor, Down, History, Round, Sight, handler, message};
use crate::parties::{Fence, Foreign, Look, News, Teller, Worker, connect, look, tell};
use crate::script::{Leaving, Party, Script, Settling, Step};

/// How long something that is due may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A run that the simulated broker does not explain.
#[derive(Debug)]
pub(super) struct Unexplained(pub String);

/// A script being played.
pub(super) struct Player {
    script: Script,
    url: String,
    settings: RabbitSettings,
    topology: Topology,
    acceptor: Acceptor,
    history: History,
    round: Round,
    publisher: Arc<RabbitPublisher>,
    operator: (Connection, Channel),
    passers: Option<Connection>,
    parties: Vec<Option<Member>>,
    teller: Teller,
    news: UnboundedReceiver<News>,
    next_slot: Slot,
    next_number: u32,
    next_passer: u32,
    /// Publications without an outcome yet.
    outstanding: BTreeSet<u32>,
    queue_of: BTreeMap<u32, usize>,
    present: BTreeSet<usize>,
    /// Queues that workers are about to declare.
    declaring: BTreeSet<usize>,
    alarm: Alarm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alarm {
    Off,
    On,
}

/// A party with a session.
struct Member {
    slot: Slot,
    prefetch: u16,
    consumes: bool,
    held: BTreeSet<u64>,
    hand: Hand,
}

enum Hand {
    Worker(Worker),
    Foreign(Box<Foreign>),
}

impl Player {
    pub(super) async fn new(url: &str, prefix: &str, script: Script) -> Self {
        // The client keeps buffers of many frames, and these connections are many and short.
        let url = format!("{url}{}frame_max=8192", if url.contains('?') { '&' } else { '?' });
        let url = url.as_str();
        let mut settings = RabbitSettings::new(url.parse().expect("it is a URL"));
        settings.prefix = prefix.parse().expect("it is a prefix");
        settings.publish_channels = 1;
        let connection = connect(url).await;
        let channel = connection.create_channel().await.expect("a new connection has a channel");
        let (teller, news) = unbounded_channel();
        Self {
            acceptor: Acceptor::new(script.queues, script.length),
            topology: Topology::of(&settings),
            publisher: Arc::new(RabbitPublisher::start(settings.clone())),
            parties: script.parties.iter().map(|_| None).collect(),
            url: url.to_owned(),
            operator: (connection, channel),
            passers: None,
            history: History::default(),
            round: Round::default(),
            next_slot: 0,
            next_number: 1,
            next_passer: 0,
            outstanding: BTreeSet::new(),
            queue_of: BTreeMap::new(),
            present: BTreeSet::new(),
            declaring: BTreeSet::new(),
            alarm: Alarm::Off,
            settings,
            script,
            teller,
            news,
        }
    }

    /// The broker may be killed while this is played.
    pub(super) fn expect_a_kill(mut self) -> Self {
        self.acceptor.expect_a_kill();
        self
    }

    /// Plays all of it, to the end.
    pub(super) async fn play(mut self) -> Result<History, Unexplained> {
        for at in 0..self.script.windows.len() {
            self.window(at).await?;
        }
        self.finish().await
    }

    /// Plays one window, if there is one of this number.
    pub(super) async fn window(&mut self, at: usize) -> Result<(), Unexplained> {
        for step in self.script.windows.get(at).cloned().unwrap_or_default() {
            self.step(step).await;
        }
        self.settle().await
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Publish { queues } => self.publish(&queues),
            Step::PublishAndLeave { queue, count } => self.publish_and_leave(queue, count).await,
            Step::Consume { party, prefetch } => self.consume(party, prefetch).await,
            Step::Cancel { party } => self.cancel(party).await,
            Step::Settle { party, how, pick } => self.settle_some(party, how, pick).await,
            Step::Leave { party, how } => self.leave(party, how).await,
            Step::Purge { queue } => self.purge(queue).await,
            Step::DeleteQueue { queue } => self.delete_queue(queue).await,
            Step::DeleteExchange => {
                let exchange = self.topology.exchange();
                let deleted = self.operator.1.exchange_delete(exchange, ExchangeDeleteOptions::default());
                deleted.await.expect("deleting is idempotent");
                self.act(Actor::Operator, Act::DeleteExchange);
            }
        }
    }

    fn act(&mut self, actor: Actor, act: Act) {
        self.round.acts.push((actor, act));
    }

    fn new_slot(&mut self) -> Slot {
        let slot = self.next_slot;
        self.next_slot += 1;
        slot
    }

    fn queue(&self, queue: usize) -> ShortString {
        self.topology.queue(&handler(queue))
    }

    fn number(&mut self, queue: usize) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        self.queue_of.insert(number, queue);
        number
    }

    fn publish(&mut self, queues: &[usize]) {
        let mut batch = Vec::new();
        let mut numbers = Vec::new();
        for queue in queues {
            let number = self.number(*queue);
            self.act(Actor::Publisher, Act::Publish { number, queue: *queue });
            self.outstanding.insert(number);
            batch.push(message(number, *queue));
            numbers.push(number);
        }
        let (publisher, teller) = (Arc::clone(&self.publisher), self.teller.clone());
        tokio::spawn(async move {
            let outcomes = publisher.publish(batch).await;
            for (number, outcome) in numbers.into_iter().zip(outcomes) {
                tell(&teller, News::Published(number, outcome));
            }
        });
    }

    async fn publish_and_leave(&mut self, queue: usize, count: usize) {
        if self.alarm == Alarm::On {
            return;
        }
        let passer = Actor::Passer(self.next_passer);
        self.next_passer += 1;
        // What is sent on a channel that the broker has just closed costs the whole connection.
        let dead = self.passers.as_ref().is_none_or(|passers| !passers.status().connected());
        if dead {
            self.passers = Some(connect(&self.url).await);
        }
        let passers = self.passers.as_ref().expect("it was just opened");
        let channel = match passers.create_channel().await {
            Ok(channel) => channel,
            Err(_) => {
                let fresh = connect(&self.url).await;
                let channel = fresh.create_channel().await.expect("a new connection has a channel");
                self.passers = Some(fresh);
                channel
            }
        };
        channel.confirm_select(ConfirmSelectOptions::default()).await.expect("it is a plain channel");
        for _ in 0..count {
            let number = self.number(queue);
            self.act(passer, Act::Publish { number, queue });
            self.round.outcomes.insert(number, PublishOutcome::Unknown);
            let message = message(number, queue);
            let key = self.topology.routing_key(&handler(queue));
            let properties = BasicProperties::default().with_delivery_mode(2);
            let mandatory = BasicPublishOptions { mandatory: true, immediate: false };
            let sent = channel
                .basic_publish(self.topology.exchange(), key, mandatory, &message.encode(), properties)
                .await;
            drop(sent);
        }
        // Where the exchange is missing, the broker has closed it first.
        let _closed = channel.close(200, "OK".into()).await;
    }

    async fn consume(&mut self, party: usize, prefetch: u16) {
        let queues = self.script.parties[party].queues().to_vec();
        let missing = queues.iter().any(|queue| !self.present.contains(queue));
        if self.parties[party].is_none() {
            if let Party::Foreign { queue } = self.script.parties[party]
                && !self.present.contains(&queue)
            {
                return;
            }
            let slot = self.new_slot();
            let teller = self.teller.clone();
            let hand = match &self.script.parties[party] {
                Party::Worker { queues } => {
                    Hand::Worker(Worker::start(self.settings.clone(), queues, slot, teller))
                }
                Party::Foreign { queue } => {
                    Hand::Foreign(Box::new(Foreign::open(&self.url, self.queue(*queue), slot, teller).await))
                }
            };
            let held = BTreeSet::new();
            self.parties[party] = Some(Member { slot, prefetch, consumes: false, held, hand });
        } else if missing && self.parties[party].as_ref().is_some_and(Member::is_an_idle_worker) {
            // Its session ends over the queue that is gone; the next declares it.
            self.replace_session(party);
        }
        let member = self.parties[party].as_mut().expect("it was just made");
        let actor = member.actor();
        match &mut member.hand {
            Hand::Worker(worker) => worker.consume(prefetch),
            Hand::Foreign(_) if missing => return,
            Hand::Foreign(foreign) => foreign.consume(prefetch).await,
        }
        (member.consumes, member.prefetch) = (true, prefetch);
        let slot = member.slot;
        self.act(actor, Act::Consume { slot, prefetch, queues: queues.clone() });
        self.declaring.extend(queues);
    }

    /// The broker ends a worker's session; it makes itself another.
    fn replace_session(&mut self, party: usize) {
        let slot = self.new_slot();
        let member = self.parties[party].as_mut().expect("it has a session");
        let (actor, old) = (member.actor(), member.slot);
        if let Hand::Worker(worker) = &member.hand {
            worker.next_session_is(slot);
        }
        member.slot = slot;
        member.held.clear();
        self.act(actor, Act::Ended { slot: old, told: Sight::Lost });
        // The old one is dropped by production, and what it had goes back when the broker hears of that.
        self.act(actor, Act::Leave { slot: old, how: Leaving::Abruptly, holding: 0 });
    }

    async fn cancel(&mut self, party: usize) {
        let Some(member) = self.parties[party].as_mut().filter(|member| member.consumes) else { return };
        member.consumes = false;
        match &mut member.hand {
            Hand::Worker(worker) => worker.cancel(),
            Hand::Foreign(foreign) => foreign.cancel().await,
        }
        let (actor, slot) = (member.actor(), member.slot);
        self.act(actor, Act::Cancel { slot });
    }

    async fn settle_some(&mut self, party: usize, how: Settling, pick: u64) {
        let there = self.script.parties[party].queues().iter().all(|queue| self.present.contains(queue));
        let Some(member) = self.parties[party].as_mut().filter(|member| !member.held.is_empty()) else {
            return;
        };
        let held: Vec<u64> = member.held.iter().copied().collect();
        let at = (pick % held.len() as u64) as usize;
        let tags = match how {
            Settling::AckUpTo | Settling::NackUpToBack => held[..=at].to_vec(),
            Settling::Ack
            | Settling::NackBack
            | Settling::NackAway
            | Settling::RejectBack
            | Settling::RejectAway => vec![held[at]],
        };
        tags.iter().for_each(|tag| {
            member.held.remove(tag);
        });
        let (actor, slot) = (member.actor(), member.slot);
        match &member.hand {
            Hand::Worker(worker) => {
                worker.acknowledge(&tags);
                for tag in tags {
                    self.act(actor, Act::Settle { slot, tags: vec![tag], how });
                }
            }
            Hand::Foreign(foreign) => {
                let fence = if there { Fence::Queue } else { Fence::Gone };
                foreign.settle(&tags, how, fence).await;
                self.act(actor, Act::Settle { slot, tags, how });
            }
        }
    }

    async fn leave(&mut self, party: usize, how: Leaving) {
        let Some(member) = self.parties[party].take() else { return };
        let (actor, slot, holding) = (member.actor(), member.slot, member.held.len());
        let how = match member.hand {
            Hand::Worker(worker) => worker.leave(how).await,
            Hand::Foreign(foreign) => {
                foreign.leave(how).await;
                how
            }
        };
        if how == Leaving::Abruptly {
            // A consumer that is dropped is cancelled first; its channel follows in its own time.
            self.act(actor, Act::Cancel { slot });
        }
        self.act(actor, Act::Leave { slot, how, holding });
    }

    async fn purge(&mut self, queue: usize) {
        if !self.present.contains(&queue) {
            return;
        }
        let purged = self.operator.1.queue_purge(self.queue(queue), QueuePurgeOptions::default());
        let removed = purged.await.expect("it is there");
        self.act(Actor::Operator, Act::Purge { queue, removed });
    }

    async fn delete_queue(&mut self, queue: usize) {
        if !self.present.contains(&queue) {
            return;
        }
        let touched: Vec<usize> =
            (0..self.parties.len()).filter(|at| self.script.parties[*at].queues().contains(&queue)).collect();
        let mut comes_back = false;
        self.act(Actor::Operator, Act::DeleteQueue { queue });
        for party in touched {
            let Some(member) = self.parties[party].as_mut() else { continue };
            let (actor, slot, prefetch) = (member.actor(), member.slot, member.prefetch);
            match (&mut member.hand, member.consumes) {
                (Hand::Worker(_) | Hand::Foreign(_), false) => {}
                (Hand::Worker(_), true) => {
                    comes_back = true;
                    self.replace_session(party);
                    let member = self.parties[party].as_ref().expect("it has a session");
                    let (actor, slot) = (member.actor(), member.slot);
                    let queues = self.script.parties[party].queues().to_vec();
                    self.act(actor, Act::Consume { slot, prefetch, queues });
                }
                (Hand::Foreign(foreign), true) => {
                    foreign.was_cancelled();
                    member.consumes = false;
                    self.act(actor, Act::Ended { slot, told: Sight::Cancelled });
                }
            }
        }
        if !comes_back {
            self.present.remove(&queue);
        }
        let deleted = self.operator.1.queue_delete(self.queue(queue), QueueDeleteOptions::default());
        deleted.await.expect("deleting is idempotent");
    }

    /// An alarm has begun, or is over.
    pub(super) async fn alarm(&mut self, act: Act) -> Result<(), Unexplained> {
        self.alarm = if act == Act::Alarm { Alarm::On } else { Alarm::Off };
        self.act(Actor::Operator, act);
        self.settle().await
    }

    /// The broker is about to be ended and started again, with publications under way.
    ///
    /// Half of them have only acknowledged something, which a broker writes down later than what it confirms.
    pub(super) async fn before_restart(&mut self, down: Down) {
        match self.script.seed % 2 {
            0 => self.publish(&(0..self.script.queues).collect::<Vec<_>>()),
            _ => {
                for party in 0..self.parties.len() {
                    self.settle_some(party, Settling::Ack, 0).await;
                }
            }
        }
        self.act(Actor::Operator, Act::Down(down));
        self.act(Actor::Operator, Act::Up);
        for party in 0..self.parties.len() {
            let Some(member) = self.parties[party].as_ref() else { continue };
            let (actor, slot, prefetch, consumes) =
                (member.actor(), member.slot, member.prefetch, member.consumes);
            match &member.hand {
                Hand::Worker(_) => {
                    self.replace_session(party);
                    if consumes {
                        let member = self.parties[party].as_ref().expect("it has a session");
                        let (actor, slot) = (member.actor(), member.slot);
                        let queues = self.script.parties[party].queues().to_vec();
                        self.act(actor, Act::Consume { slot, prefetch, queues });
                    }
                }
                Hand::Foreign(_) => {
                    if consumes {
                        self.act(actor, Act::Ended { slot, told: Sight::Lost });
                    }
                }
            }
        }
    }

    /// The broker is back.
    pub(super) async fn after_restart(&mut self) -> Result<(), Unexplained> {
        let connection = connect(&self.url).await;
        let channel = connection.create_channel().await.expect("a new connection has a channel");
        self.operator = (connection, channel);
        for party in &mut self.parties {
            if party.as_ref().is_some_and(|member| matches!(member.hand, Hand::Foreign(_))) {
                *party = None;
            }
        }
        self.settle().await
    }

    /// Waits until nothing is due, and looks whether the queues agree.
    async fn settle(&mut self) -> Result<(), Unexplained> {
        self.explain().await?;
        self.present.append(&mut self.declaring);
        self.await_consumers().await?;
        if !self.present.is_empty() {
            self.act(Actor::Operator, Act::Met);
        }
        for queue in self.present.clone() {
            let Look { ready, .. } = self.look(queue).await.expect("its consumers were just counted");
            self.act(Actor::Operator, Act::Count { queue, ready });
        }
        self.explain().await
    }

    async fn explain(&mut self) -> Result<(), Unexplained> {
        loop {
            while let Ok(news) = self.news.try_recv() {
                self.note(news);
            }
            let weighed = self.may_be_complete().then(|| self.acceptor.weigh(&self.round));
            if let Some(Ok(weighed @ Weighed { settled: true, .. })) = weighed {
                self.acceptor.advance(weighed);
                self.history.rounds.push(core::mem::take(&mut self.round));
                return Ok(());
            }
            match timeout(PATIENCE, self.news.recv()).await {
                Ok(news) => self.note(news.expect("we hold a teller ourselves")),
                Err(_) => return Err(self.unexplained(weighed)),
            }
        }
    }

    /// Whether all has come that comes in any case: outcomes, unless an alarm holds them up, and the ends of
    /// sessions.
    fn may_be_complete(&self) -> bool {
        let answered = self.alarm == Alarm::On || self.outstanding.is_empty();
        let ended = |(_, act): &(Actor, Act)| {
            let Act::Ended { slot, told } = act else { return true };
            self.round.sights.get(slot).is_some_and(|sights| sights.contains(told))
        };
        answered && self.round.acts.iter().all(ended)
    }

    fn unexplained(&self, weighed: Option<Result<Weighed, Refusal>>) -> Unexplained {
        let why = match weighed {
            None => format!("something is not answered, or did not end: {:?}", self.outstanding),
            Some(Err(Refusal { furthest })) => {
                format!("no order of things explains the last round:\n{furthest}")
            }
            Some(Ok(weighed)) => format!("something is due that does not come:\n{weighed}"),
        };
        Unexplained(format!("{}\n{}    last round\n{}\n{why}", self.script, self.history, self.round))
    }

    fn note(&mut self, news: News) {
        match news {
            News::Published(number, outcome) => {
                self.outstanding.remove(&number);
                self.round.outcomes.insert(number, outcome);
                if outcome == PublishOutcome::Confirmed {
                    self.present.insert(self.queue_of[&number]);
                }
            }
            News::Seen(slot, sight) => {
                let sights = self.round.sights.entry(slot).or_default();
                // Production merges what comes from several queues; the tags say in which order it came.
                let at = sights.partition_point(|earlier| earlier.tag() <= sight.tag());
                sights.insert(at, sight);
                if let Sight::Delivered { tag, .. } = sight {
                    let members = self.parties.iter_mut().flatten();
                    for member in members.filter(|member| member.slot == slot) {
                        member.held.insert(tag);
                    }
                }
            }
        }
    }

    async fn look(&mut self, queue: usize) -> Option<Look> {
        match look(&self.operator.1, self.queue(queue)).await {
            Ok(look) => Some(look),
            Err(_) => {
                self.operator.1 = self.operator.0.create_channel().await.expect("the connection stays");
                None
            }
        }
    }

    /// Waits until the broker knows as many consumers as we have.
    async fn await_consumers(&mut self) -> Result<(), Unexplained> {
        for queue in self.present.clone() {
            let members = self.parties.iter().zip(&self.script.parties);
            let wanted = members
                .filter(|(member, party)| {
                    member.as_ref().is_some_and(|member| member.consumes) && party.queues().contains(&queue)
                })
                .count();
            let mut last = None;
            let counted =
                waiting::until("the broker's count of consumers is ours", PATIENCE * 2, async || {
                    last = self.look(queue).await;
                    (last?.consumers as usize == wanted).then_some(())
                });
            if timeout(PATIENCE, counted).await.is_err() {
                let furthest = format!("q{queue} should have {wanted} consumers and stands at {last:?}");
                return Err(self.unexplained(Some(Err(Refusal { furthest }))));
            }
        }
        Ok(())
    }

    /// Lets everybody go, fetches all that is left, and removes what the script made.
    pub(super) async fn finish(mut self) -> Result<History, Unexplained> {
        for party in 0..self.parties.len() {
            self.leave(party, Leaving::Connection).await;
        }
        self.settle().await?;
        let mut drains = Vec::new();
        for queue in self.present.clone() {
            let slot = self.new_slot();
            let mut foreign = Foreign::open(&self.url, self.queue(queue), slot, self.teller.clone()).await;
            foreign.consume(u16::MAX).await;
            let act = Act::Consume { slot, prefetch: u16::MAX, queues: vec![queue] };
            self.act(Actor::Foreign(slot), act);
            drains.push((slot, foreign));
        }
        self.explain().await?;
        let fetched = self.history.rounds.last().cloned().unwrap_or_default();
        for (slot, foreign) in drains {
            let tags: Vec<u64> = (1..=fetched.sights.get(&slot).map_or(0, Vec::len) as u64).collect();
            if !tags.is_empty() {
                foreign.settle(&tags, Settling::AckUpTo, Fence::Queue).await;
                self.act(Actor::Foreign(slot), Act::Settle { slot, tags, how: Settling::AckUpTo });
            }
            foreign.leave(Leaving::Connection).await;
            let act = Act::Leave { slot, how: Leaving::Connection, holding: 0 };
            self.act(Actor::Foreign(slot), act);
        }
        self.settle().await?;
        if self.acceptor.left() > 0 {
            return Err(self.unexplained(Some(Err(Refusal { furthest: "messages are missing".to_owned() }))));
        }
        for queue in self.present.clone() {
            let deleted = self.operator.1.queue_delete(self.queue(queue), QueueDeleteOptions::default());
            deleted.await.expect("deleting is idempotent");
        }
        let deleted =
            self.operator.1.exchange_delete(self.topology.exchange(), ExchangeDeleteOptions::default());
        deleted.await.expect("deleting is idempotent");
        Ok(self.history)
    }
}

impl Member {
    fn is_an_idle_worker(&self) -> bool {
        !self.consumes && matches!(self.hand, Hand::Worker(_))
    }

    fn actor(&self) -> Actor {
        match self.hand {
            Hand::Worker(_) => Actor::Worker(self.slot),
            Hand::Foreign(_) => Actor::Foreign(self.slot),
        }
    }
}
