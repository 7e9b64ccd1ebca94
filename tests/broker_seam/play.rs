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
use tokio::task::block_in_place;
use tokio::time::timeout;

use crate::acceptor::{Acceptor, Refusal, Weighed};
use crate::history::{Act, Actor, Down, History, Round, Sight, message, name};
use crate::parties::{Fence, Foreign, Look, News, Slots, Teller, Worker, connect, look, tell};
use crate::script::{Leaving, Party, Script, Settling, Step};

/// How long something that is due may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long news may come that make a search shorter that was given up.
const PATIENCE_WHERE_GIVEN_UP: Duration = Duration::from_secs(1);
/// News that come closer to one another than this are weighed together: it costs less.
const BREATH: Duration = Duration::from_millis(5);

/// Why a script's run does not count as explained.
#[derive(Debug)]
pub(super) enum Failure {
    /// The simulated broker cannot do that.
    Unexplained { seed: u64, report: String },
    /// The search was given up, which says nothing.
    GivenUp { seed: u64 },
}

/// A run that is explained.
#[derive(Debug)]
pub(super) struct Explained {
    pub(super) history: History,
    /// The most states that a round's search looked at.
    pub(super) longest_search: usize,
}

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
    slots: Slots,
    longest_search: usize,
    next_number: u32,
    next_passer: u32,
    /// Publications without an outcome yet.
    outstanding: BTreeSet<u32>,
    queue_of: BTreeMap<u32, usize>,
    present: BTreeSet<usize>,
    /// Messages below this number were published to a queue that is gone.
    deleted_below: BTreeMap<usize, u32>,
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
    /// What it has and may settle.
    held: BTreeSet<u64>,
    /// What it has of a queue that was deleted. That is settled by nobody: once the queue was declared again, a
    /// message of somebody else's was gone after it, as if RabbitMQ took it for a delivery of the new queue.
    void: BTreeSet<u64>,
    hand: Hand,
    session: Session,
    orders: Orders,
}

/// What is known of a worker's session. When something of production's is carried out, nobody knows: where it
/// finds a queue missing its session ends, and where somebody else has just declared it, not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    /// There is none until it consumes again.
    None,
    Stays,
    MayEnd,
    MustEnd,
}

/// What is known of a worker's orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Orders {
    CarriedOut,
    /// It was told to go on with another prefetch, which cannot be seen from outside. It consumes no more for a
    /// moment, and then again, whenever that is.
    Unknown,
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
            slots: Slots::default(),
            longest_search: 0,
            next_number: 1,
            next_passer: 0,
            outstanding: BTreeSet::new(),
            queue_of: BTreeMap::new(),
            present: BTreeSet::new(),
            deleted_below: BTreeMap::new(),
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
    pub(super) async fn play(mut self) -> Result<Explained, Failure> {
        for at in 0..self.script.windows.len() {
            self.window(at).await?;
        }
        self.finish().await
    }

    /// Plays one window, if there is one of this number.
    pub(super) async fn window(&mut self, at: usize) -> Result<(), Failure> {
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

    fn queue(&self, queue: usize) -> ShortString {
        let (handler, priority) = name(queue);
        self.topology.queue(&handler, priority)
    }

    async fn foreign(&self, queue: usize, slot: Slot, teller: Teller) -> Foreign {
        Foreign::open(&self.url, self.queue(queue), name(queue).1, slot, teller).await
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
            let key = self.topology.routing_key(&message.handler.name, message.priority);
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
            let slot = self.slots.next();
            let teller = self.teller.clone();
            let hand = match &self.script.parties[party] {
                Party::Worker { queues } => {
                    let slots = self.slots.clone();
                    Hand::Worker(Worker::start(self.settings.clone(), queues, slot, slots, teller))
                }
                Party::Foreign { queue } => Hand::Foreign(Box::new(self.foreign(*queue, slot, teller).await)),
            };
            let (held, void) = (BTreeSet::new(), BTreeSet::new());
            let (session, orders) = (Session::None, Orders::CarriedOut);
            self.parties[party] =
                Some(Member { slot, prefetch, consumes: false, held, void, hand, session, orders });
        }
        let member = self.parties[party].as_mut().expect("it was just made");
        let actor = member.actor();
        match &mut member.hand {
            Hand::Worker(worker) => {
                worker.consume(prefetch);
                if member.consumes && member.prefetch != prefetch {
                    member.orders = Orders::Unknown;
                }
                member.session = match member.session {
                    Session::None => Session::Stays,
                    // It ends over the queue that is gone, and the next declares it.
                    Session::Stays if missing && !member.consumes => Session::MayEnd,
                    session @ (Session::Stays | Session::MayEnd | Session::MustEnd) => session,
                };
            }
            Hand::Foreign(_) if missing => return,
            Hand::Foreign(foreign) => foreign.consume(prefetch).await,
        }
        (member.consumes, member.prefetch) = (true, prefetch);
        let slot = member.slot;
        self.act(actor, Act::Consume { slot, prefetch, queues: queues.clone() });
        self.declaring.extend(queues);
    }

    /// A worker's session was seen to be over; it makes itself another where it still consumes.
    fn replace_session(&mut self, old: Slot, new: Slot) {
        let Some(party) = self.parties.iter().position(|at| at.as_ref().is_some_and(|at| at.slot == old))
        else {
            return;
        };
        let member = self.parties[party].as_mut().expect("it has a session");
        let (actor, prefetch, had_cause) = (member.actor(), member.prefetch, member.session.may_end());
        member.slot = new;
        member.held.clear();
        member.void.clear();
        member.orders = Orders::CarriedOut;
        member.session = if member.consumes { Session::Stays } else { Session::None };
        let (next, consumes) = (member.actor(), member.consumes);
        // Without a cause there is no act that explains what was seen.
        if had_cause {
            self.act(actor, Act::Ended { slot: old, told: Sight::Lost });
            // The old one is dropped by production, and what it had goes back when the broker hears of that.
            self.act(actor, Act::Leave { slot: old, how: Leaving::Abruptly, holding: 0 });
        }
        if consumes {
            let queues = self.script.parties[party].queues().to_vec();
            self.act(next, Act::Consume { slot: new, prefetch, queues });
        }
    }

    async fn cancel(&mut self, party: usize) {
        // Whether a cancel was carried out shows in the broker's count, unless the order before it is unknown.
        let may = |member: &&mut Member| member.consumes && member.orders == Orders::CarriedOut;
        let Some(member) = self.parties[party].as_mut().filter(may) else { return };
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
            Settling::AckUpTo | Settling::NackUpToBack => {
                let past_the_void = member.void.first().copied().unwrap_or(u64::MAX);
                held[..=at].iter().copied().filter(|tag| *tag < past_the_void).collect()
            }
            Settling::Ack
            | Settling::NackBack
            | Settling::NackAway
            | Settling::RejectBack
            | Settling::RejectAway => vec![held[at]],
        };
        if tags.is_empty() {
            return;
        }
        tags.iter().for_each(|tag| {
            member.held.remove(tag);
        });
        let (actor, slot) = (member.actor(), member.slot);
        match &member.hand {
            Hand::Worker(worker) => {
                worker.acknowledge(slot, &tags);
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
        self.deleted_below.insert(queue, self.next_number);
        let (queue_of, history) = (&self.queue_of, &self.history);
        let number_of = |slot: Slot, tag: u64| {
            let sights =
                history.rounds.iter().chain([&self.round]).filter_map(|round| round.sights.get(&slot));
            sights.flatten().find_map(|sight| match sight {
                Sight::Delivered { tag: of, number, .. } if *of == tag => Some(*number),
                Sight::Delivered { .. } | Sight::Cancelled | Sight::Lost => None,
            })
        };
        for member in self.parties.iter_mut().flatten() {
            let of_it = |tag: &u64| {
                number_of(member.slot, *tag).is_some_and(|number| queue_of.get(&number) == Some(&queue))
            };
            let (void, held): (BTreeSet<u64>, BTreeSet<u64>) = member.held.iter().copied().partition(of_it);
            member.held = held;
            member.void.extend(void);
        }
        let mut comes_back = false;
        self.act(Actor::Operator, Act::DeleteQueue { queue });
        for party in touched {
            let Some(member) = self.parties[party].as_mut() else { continue };
            let (actor, slot) = (member.actor(), member.slot);
            match (&mut member.hand, member.consumes) {
                (Hand::Worker(_) | Hand::Foreign(_), false) => {}
                (Hand::Worker(_), true) => {
                    comes_back = true;
                    member.session = match member.orders {
                        Orders::CarriedOut => Session::MustEnd,
                        Orders::Unknown => Session::MayEnd,
                    };
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
    pub(super) async fn alarm(&mut self, act: Act) -> Result<(), Failure> {
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
            let Some(member) = self.parties[party].as_mut() else { continue };
            let (actor, slot) = (member.actor(), member.slot);
            match (&member.hand, member.consumes) {
                (Hand::Worker(_), _) if member.session == Session::None => {}
                (Hand::Worker(_), _) => member.session = Session::MustEnd,
                (Hand::Foreign(_), true) => self.act(actor, Act::Ended { slot, told: Sight::Lost }),
                (Hand::Foreign(_), false) => {}
            }
        }
    }

    /// The broker is back.
    pub(super) async fn after_restart(&mut self) -> Result<(), Failure> {
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
    async fn settle(&mut self) -> Result<(), Failure> {
        self.explain().await?;
        self.present.append(&mut self.declaring);
        self.await_consumers().await?;
        self.await_ends().await;
        if !self.present.is_empty() {
            self.act(Actor::Operator, Act::Met);
        }
        for queue in self.present.clone() {
            let Look { ready, .. } = self.look(queue).await.expect("its consumers were just counted");
            self.act(Actor::Operator, Act::Count { queue, ready });
        }
        self.explain().await
    }

    async fn explain(&mut self) -> Result<(), Failure> {
        loop {
            while let Ok(news) = self.news.try_recv() {
                self.note(news);
            }
            // Others go on meanwhile.
            let weighed = self.may_be_complete().then(|| block_in_place(|| self.acceptor.weigh(&self.round)));
            if let Some(Ok(weighed @ Weighed { settled: true, .. })) = weighed {
                self.longest_search = self.longest_search.max(weighed.looked_at);
                self.acceptor.advance(weighed);
                self.history.rounds.push(core::mem::take(&mut self.round));
                return Ok(());
            }
            let patience = match weighed {
                Some(Err(Refusal::GivenUp)) => PATIENCE_WHERE_GIVEN_UP,
                None | Some(Ok(_) | Err(Refusal::Impossible { .. })) => PATIENCE,
            };
            match timeout(patience, self.news.recv()).await {
                Ok(news) => self.note(news.expect("we hold a teller ourselves")),
                Err(_) => return Err(self.failure(weighed)),
            }
            while let Ok(news) = timeout(BREATH, self.news.recv()).await {
                self.note(news.expect("we hold a teller ourselves"));
            }
        }
    }

    /// Whether all has come that comes in any case: outcomes, unless an alarm holds them up, and the ends of
    /// sessions.
    fn may_be_complete(&self) -> bool {
        let must_end = |member: &Member| member.session == Session::MustEnd;
        if self.parties.iter().flatten().any(must_end) {
            return false;
        }
        let answered = self.alarm == Alarm::On || self.outstanding.is_empty();
        let ended = |(_, act): &(Actor, Act)| {
            let Act::Ended { slot, told } = act else { return true };
            self.round.sights.get(slot).is_some_and(|sights| sights.contains(told))
        };
        answered && self.round.acts.iter().all(ended)
    }

    fn failure(&self, weighed: Option<Result<Weighed, Refusal>>) -> Failure {
        let why = match weighed {
            None => {
                let ends = self.parties.iter().flatten().filter(|at| at.session == Session::MustEnd);
                let ends: Vec<Slot> = ends.map(|member| member.slot).collect();
                let unanswered = &self.outstanding;
                format!("publications without an answer: {unanswered:?}; sessions that did not end: {ends:?}")
            }
            Some(Err(Refusal::GivenUp)) => return Failure::GivenUp { seed: self.script.seed },
            Some(Err(Refusal::Impossible { furthest })) => {
                format!("no order of things explains the last round:\n{furthest}")
            }
            Some(Ok(weighed)) => format!("something is due that does not come:\n{weighed}"),
        };
        self.unexplained(&why)
    }

    fn unexplained(&self, why: &str) -> Failure {
        let report = format!("{}\n{}    last round\n{}\n{why}", self.script, self.history, self.round);
        Failure::Unexplained { seed: self.script.seed, report }
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
            News::Replaced { old, new } => self.replace_session(old, new),
            News::Seen(slot, sight) => {
                let sights = self.round.sights.entry(slot).or_default();
                // Production merges what comes from several queues; the tags say in which order it came on each channel.
                let at = sights.partition_point(|earlier| earlier.tag() <= sight.tag());
                sights.insert(at, sight);
                if let Sight::Delivered { tag, number, .. } = sight {
                    let below = self.deleted_below.get(&self.queue_of[&number]).copied().unwrap_or_default();
                    let members = self.parties.iter_mut().flatten();
                    for member in members.filter(|member| member.slot == slot) {
                        let place = if number < below { &mut member.void } else { &mut member.held };
                        place.insert(tag);
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
    async fn await_consumers(&mut self) -> Result<(), Failure> {
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
                return Err(self.unexplained(&furthest));
            }
        }
        Ok(())
    }

    /// Hears of every session that has ended. The broker knows as many consumers as it should, so whoever has
    /// lost one has another by now and knows of both.
    async fn await_ends(&mut self) {
        let mut parties = core::mem::take(&mut self.parties);
        for member in parties.iter_mut().flatten().filter(|member| member.session == Session::MayEnd) {
            if let Hand::Worker(worker) = &member.hand {
                worker.tell_all().await;
            }
        }
        self.parties = parties;
        while let Ok(news) = self.news.try_recv() {
            self.note(news);
        }
        for member in self.parties.iter_mut().flatten().filter(|member| member.session == Session::MayEnd) {
            (member.session, member.orders) = (Session::Stays, Orders::CarriedOut);
        }
    }

    /// Lets everybody go, fetches all that is left, and removes what the script made.
    pub(super) async fn finish(mut self) -> Result<Explained, Failure> {
        for party in 0..self.parties.len() {
            self.leave(party, Leaving::Connection).await;
        }
        self.settle().await?;
        let mut drains = Vec::new();
        for queue in self.present.clone() {
            let slot = self.slots.next();
            let mut foreign = self.foreign(queue, slot, self.teller.clone()).await;
            foreign.consume(u16::MAX).await;
            let act = Act::Consume { slot, prefetch: u16::MAX, queues: vec![queue] };
            self.act(Actor::Foreign(slot), act);
            drains.push((slot, foreign));
        }
        self.explain().await?;
        let fetched = self.history.rounds.last().cloned().unwrap_or_default();
        for (slot, foreign) in drains {
            let sights = fetched.sights.get(&slot).into_iter().flatten();
            let tags: Vec<u64> = sights.map(|sight| sight.tag()).collect();
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
            return Err(self.unexplained("messages are missing"));
        }
        // Production declares those of other priorities too.
        let handlers: BTreeSet<_> = (0..self.script.queues).map(|queue| name(queue).0).collect();
        for queue in handlers.iter().flat_map(|handler| self.topology.queues(handler)) {
            let deleted = self.operator.1.queue_delete(queue, QueueDeleteOptions::default());
            deleted.await.expect("deleting is idempotent");
        }
        let deleted =
            self.operator.1.exchange_delete(self.topology.exchange(), ExchangeDeleteOptions::default());
        deleted.await.expect("deleting is idempotent");
        Ok(Explained { history: self.history, longest_search: self.longest_search })
    }
}

impl Session {
    fn may_end(self) -> bool {
        match self {
            Self::MayEnd | Self::MustEnd => true,
            Self::None | Self::Stays => false,
        }
    }
}

impl Member {
    fn actor(&self) -> Actor {
        match self.hand {
            Hand::Worker(_) => Actor::Worker(self.slot),
            Hand::Foreign(_) => Actor::Foreign(self.slot),
        }
    }
}
