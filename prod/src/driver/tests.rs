//! The loop, driven by scripted roles on ports that hang, panic and flood.

use core::future::{Future, pending, ready};
use core::marker::PhantomData;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use fencepost_core::effect::{Invocation, SchedulerEffect, WorkerEffect};
use fencepost_core::event::{
    Delivery, ErrorClass, HandlerResult, PublishOutcome, SchedulerEvent, WorkerEvent,
};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{EffectId, NodeId};
use fencepost_core::lease::RunId;
use fencepost_core::limits::{PUBLISH_TIMEOUT, STORE_CALL_TIMEOUT};
use fencepost_core::message::ExecutionMessage;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::{Command, RenewLeases};
use fencepost_core::store::reply::{Reply, StoreReply};
use fencepost_core::time::{Monotonic, Span, Timestamp};
use fencepost_core::wakeup::WakeReason;

use super::{LanePermits, Role, SchedulerInterpreter, WorkerInterpreter, run};
use crate::handler::samples;
use crate::ports::{
    ConsumeEvent, ConsumePort, HandlerPort, NoFacts, NoNotifications, NotifyPort, PublishPort, RuntimeClock,
    StopSignal, StorePort,
};

/// What a script answers to an event: effects, and when it wants to be woken.
type Answer<F> = (Vec<F>, Option<Monotonic>);

/// A role that does what its script says.
struct Script<E, F, S> {
    script: S,
    effects: VecDeque<F>,
    wakeup: Option<Monotonic>,
    event: PhantomData<fn(E)>,
}

impl<E, F, S: FnMut(Monotonic, E) -> Answer<F>> Script<E, F, S> {
    fn new(script: S) -> Self {
        Self { script, effects: VecDeque::new(), wakeup: None, event: PhantomData }
    }
}

/// The two events that the loop itself makes.
trait LoopEvent {
    const TICK: fn() -> Self;
    const DRAIN: fn() -> Self;
}

impl LoopEvent for SchedulerEvent {
    const TICK: fn() -> Self = || Self::Tick;
    const DRAIN: fn() -> Self = || Self::DrainRequested;
}

impl LoopEvent for WorkerEvent {
    const TICK: fn() -> Self = || Self::Tick;
    const DRAIN: fn() -> Self = || Self::DrainRequested;
}

impl<E, F, S> Role for Script<E, F, S>
where
    E: LoopEvent + Send + 'static,
    F: Send,
    S: FnMut(Monotonic, E) -> Answer<F> + Send,
{
    type Event = E;
    type Effect = F;

    fn tick() -> E {
        E::TICK()
    }

    fn drain() -> E {
        E::DRAIN()
    }

    fn handle(&mut self, now: Monotonic, event: E) {
        let (effects, wakeup) = (self.script)(now, event);
        self.effects.extend(effects);
        self.wakeup = wakeup;
    }

    fn poll_effect(&mut self) -> Option<F> {
        self.effects.pop_front()
    }

    fn next_wakeup(&self) -> Option<(Monotonic, WakeReason)> {
        self.wakeup.map(|at| (at, WakeReason::Scan))
    }
}

/// A store that does what its closure says.
struct Store<A>(A);

impl<A, R> StorePort for Store<A>
where
    A: Fn(Command) -> R + Send + Sync + 'static,
    R: Future<Output = StoreOutcome> + Send,
{
    fn call(&self, command: Command) -> impl Future<Output = StoreOutcome> + Send {
        (self.0)(command)
    }
}

fn replied() -> StoreOutcome {
    StoreOutcome::Replied(StoreReply { now: Timestamp::EPOCH, reply: Reply::Clock })
}

/// A publisher that does what its closure says.
struct Publisher<A>(A);

impl<A, R> PublishPort for Publisher<A>
where
    A: Fn(usize) -> R + Send + Sync + 'static,
    R: Future<Output = Vec<PublishOutcome>> + Send,
{
    fn publish(
        &self,
        messages: Vec<Arc<ExecutionMessage>>,
    ) -> impl Future<Output = Vec<PublishOutcome>> + Send {
        (self.0)(messages.len())
    }
}

fn no_publisher() -> Arc<impl PublishPort> {
    Arc::new(Publisher(|count| ready(vec![PublishOutcome::Nacked; count])))
}

fn renew() -> Command {
    let node = NodeId::from_u128(1);
    Command::RenewLeases(RenewLeases { node, ttl: Span::from_secs(1), leases: Vec::new() })
}

fn store_effect(id: u64, command: Command) -> SchedulerEffect {
    SchedulerEffect::Store { id: EffectId(id), command }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_is_unknown_after_the_timeout() {
    let began = Instant::now();
    let role = Script::new(|_, event| match event {
        SchedulerEvent::Tick => (vec![store_effect(7, Command::ReadClock)], None),
        SchedulerEvent::StoreReplied { effect, outcome } => {
            assert_eq!((effect, outcome), (EffectId(7), StoreOutcome::Unknown));
            (vec![SchedulerEffect::Drained], None)
        }
        other => panic!("nobody asked for {other:?}"),
    });
    let store = Arc::new(Store(|_| pending()));
    run_scheduler(role, store, no_publisher(), NoNotifications, pending::<()>()).await;
    assert_eq!(began.elapsed(), STORE_CALL_TIMEOUT.to_duration());
}

#[tokio::test]
async fn a_port_that_panics_is_unknown_and_nothing_more() {
    let mut left = 2;
    let role = Script::new(move |_, event| match event {
        SchedulerEvent::Tick => {
            let messages = vec![samples::message("noop"), samples::message("noop")];
            let publish = SchedulerEffect::Publish { id: EffectId(2), messages };
            (vec![store_effect(1, Command::ReadClock), publish], None)
        }
        SchedulerEvent::StoreReplied { effect: EffectId(1), outcome: StoreOutcome::Unknown } => {
            left -= 1;
            (drained_if(left == 0), None)
        }
        SchedulerEvent::Published { effect: EffectId(2), outcomes } => {
            assert_eq!(outcomes, [PublishOutcome::Unknown; 2]);
            left -= 1;
            (drained_if(left == 0), None)
        }
        other => panic!("nobody asked for {other:?}"),
    });
    let store = Arc::new(Store(|_| -> core::future::Ready<StoreOutcome> { panic!("as a test") }));
    let publisher =
        Arc::new(Publisher(|_| -> core::future::Ready<Vec<PublishOutcome>> { panic!("as a test") }));
    run_scheduler(role, store, publisher, NoNotifications, pending::<()>()).await;
}

#[tokio::test(start_paused = true)]
async fn a_publisher_that_never_answers_is_unknown_message_by_message() {
    let began = Instant::now();
    let role = Script::new(|_, event| match event {
        SchedulerEvent::Tick => {
            let messages = vec![samples::message("noop"); 3];
            (vec![SchedulerEffect::Publish { id: EffectId(1), messages }], None)
        }
        SchedulerEvent::Published { outcomes, .. } => {
            assert_eq!(outcomes, [PublishOutcome::Unknown; 3]);
            (vec![SchedulerEffect::Drained], None)
        }
        other => panic!("nobody asked for {other:?}"),
    });
    let store = Arc::new(Store(|_| ready(replied())));
    let publisher = Arc::new(Publisher(|_| pending()));
    run_scheduler(role, store, publisher, NoNotifications, pending::<()>()).await;
    assert_eq!(began.elapsed(), PUBLISH_TIMEOUT.to_duration());
}

#[tokio::test(start_paused = true)]
async fn renewals_do_not_queue_behind_work() {
    let role = Script::new(|_, event| match event {
        SchedulerEvent::Tick => {
            let work = (0..100).map(|id| store_effect(id, Command::ReadClock));
            (work.chain([store_effect(1_000, renew())]).collect(), None)
        }
        SchedulerEvent::StoreReplied { effect, outcome } => {
            assert_eq!((effect, outcome), (EffectId(1_000), replied()), "work hangs, the renewal does not");
            (vec![SchedulerEffect::Drained], None)
        }
        other => panic!("nobody asked for {other:?}"),
    });
    let store = Arc::new(Store(|command| async move {
        match command {
            Command::ReadClock => pending().await,
            _renewal => replied(),
        }
    }));
    run_scheduler(role, store, no_publisher(), NoNotifications, pending::<()>()).await;
}

#[tokio::test(start_paused = true)]
async fn no_more_store_calls_are_under_way_than_the_lane_permits() {
    let under_way = Arc::new(AtomicU32::new(0));
    let most = Arc::new(AtomicU32::new(0));
    let mut left = 20;
    let role = Script::new(move |_, event| match event {
        SchedulerEvent::Tick => ((0..20).map(|id| store_effect(id, Command::ReadClock)).collect(), None),
        SchedulerEvent::StoreReplied { .. } => {
            left -= 1;
            (drained_if(left == 0), None)
        }
        other => panic!("nobody asked for {other:?}"),
    });
    let (calls, peak) = (Arc::clone(&under_way), Arc::clone(&most));
    let store = Arc::new(Store(move |_| {
        let (calls, peak) = (Arc::clone(&calls), Arc::clone(&peak));
        async move {
            let now = calls.fetch_add(1, Ordering::Relaxed) + 1;
            peak.fetch_max(now, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(1)).await;
            calls.fetch_sub(1, Ordering::Relaxed);
            replied()
        }
    }));
    run_scheduler(role, store, no_publisher(), NoNotifications, pending::<()>()).await;
    assert_eq!(most.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_due_timer_does_not_wait_for_a_lull_in_the_events() {
    let (notify, notifications) = mpsc::channel(10_000);
    for _ in 0..10_000 {
        let partition = fencepost_core::partition::PartitionId::new(3).expect("there are 128");
        notify.try_send(partition).expect("there is room");
    }
    let (mut ticks, mut notified) = (0, 0);
    let role = Script::new(move |now, event| {
        match event {
            SchedulerEvent::Tick => ticks += 1,
            SchedulerEvent::Notified { .. } => notified += 1,
            other => panic!("nobody asked for {other:?}"),
        }
        assert!(ticks <= notified + 2, "nor do the events wait for the timer");
        (drained_if(ticks > 100 && notified > 100), Some(now))
    });
    let store = Arc::new(Store(|_| ready(replied())));
    run_scheduler(role, store, no_publisher(), notifications, pending::<()>()).await;
    drop(notify);
}

#[tokio::test(start_paused = true)]
async fn the_timer_fires_when_the_role_wants_to_be_woken() {
    let mut woken_at = Vec::new();
    let role = Script::new(move |now, event| {
        assert_eq!(event, SchedulerEvent::Tick);
        woken_at.push(now.as_micros() / 1_000);
        let done = woken_at.len() == 4;
        assert!(!done || woken_at == [0, 250, 500, 750], "{woken_at:?}");
        (drained_if(done), Some(now.plus(Span::from_millis(250))))
    });
    let store = Arc::new(Store(|_| ready(replied())));
    run_scheduler(role, store, no_publisher(), NoNotifications, pending::<()>()).await;
}

#[tokio::test]
async fn shutting_down_asks_for_a_drain_once_and_waits_for_its_end() {
    let mut asked = 0;
    let role = Script::new(move |_, event| match event {
        SchedulerEvent::Tick => (Vec::new(), None),
        SchedulerEvent::DrainRequested => {
            asked += 1;
            assert_eq!(asked, 1);
            (vec![store_effect(1, renew())], None)
        }
        SchedulerEvent::StoreReplied { .. } => (vec![SchedulerEffect::Drained], None),
        other => panic!("nobody asked for {other:?}"),
    });
    let store = Arc::new(Store(|_| ready(replied())));
    run_scheduler(role, store, no_publisher(), NoNotifications, ready(())).await;
}

/// A consumer that delivers what it was given and notes what it is told.
struct Consumer {
    deliveries: VecDeque<ConsumeEvent>,
    told: mpsc::UnboundedSender<String>,
}

impl Consumer {
    fn tell(&self, what: String) {
        self.told.send(what).expect("the test listens");
    }
}

impl ConsumePort for Consumer {
    fn start(&mut self, prefetch: u32) {
        self.tell(format!("start {prefetch}"));
    }

    fn stop(&mut self) {
        self.tell("stop".to_owned());
    }

    fn ack(&mut self, delivery: Delivery) {
        self.tell(format!("ack {}:{}", delivery.epoch, delivery.tag));
    }

    async fn next(&mut self) -> ConsumeEvent {
        match self.deliveries.pop_front() {
            Some(event) => event,
            None => pending().await,
        }
    }

    async fn close(self) {
        self.tell("close".to_owned());
    }
}

/// Runs until told to stop, or panics, as the message's handler says.
struct Handlers;

impl HandlerPort for Handlers {
    async fn run(&self, invocation: Invocation, stop: StopSignal) -> HandlerResult {
        assert!(invocation.message.handler.name.as_str() == "waits", "as a test");
        stop.stopped().await;
        HandlerResult::Stopped
    }
}

fn start(number: u128, handler: &str) -> WorkerEffect {
    let execution = fencepost_core::id::ExecutionId::from_u128(number);
    let run = RunId { execution, token: FencingToken::from_i64(1) };
    WorkerEffect::StartHandler(Invocation { run, attempt: 1, message: samples::message(handler) })
}

#[tokio::test]
async fn a_worker_consumes_runs_stops_and_acknowledges() {
    let (told, mut heard) = mpsc::unbounded_channel();
    let delivery = Delivery { epoch: 4, tag: 9 };
    let deliveries = VecDeque::from([
        ConsumeEvent::Delivered { delivery, message: Ok(samples::message("waits")) },
        ConsumeEvent::Lost { epoch: 4 },
    ]);
    let mut ended = 0;
    let role = Script::new(move |_, event| match event {
        WorkerEvent::Tick => (vec![WorkerEffect::Consume { prefetch: 16 }], None),
        WorkerEvent::Delivered { .. } => (vec![start(1, "waits"), start(2, "panics")], None),
        WorkerEvent::ConsumerLost { epoch: 4 } => (Vec::new(), None),
        WorkerEvent::HandlerFinished { run, result } => {
            ended += 1;
            let effects = match result {
                HandlerResult::Failed { class: ErrorClass::Retryable, .. } => {
                    let run = RunId { execution: fencepost_core::id::ExecutionId::from_u128(1), ..run };
                    let reason = fencepost_core::effect::StopReason::Cancelled;
                    vec![WorkerEffect::StopHandler { run, reason }]
                }
                HandlerResult::Stopped => {
                    assert_eq!(ended, 2);
                    vec![WorkerEffect::Ack { delivery }, WorkerEffect::StopConsuming, WorkerEffect::Drained]
                }
                other => panic!("no handler ends with {other:?}"),
            };
            (effects, None)
        }
        other => panic!("nobody asked for {other:?}"),
    });
    let consumer = Consumer { deliveries, told };
    let store = Arc::new(Store(|_| ready(replied())));
    let interpreter = WorkerInterpreter::new(
        store,
        consumer,
        Arc::new(Handlers),
        Arc::new(NoFacts),
        LanePermits::default(),
    );
    run(role, interpreter, RuntimeClock::start(), pending::<()>()).await;
    let mut all = Vec::new();
    while let Some(what) = heard.recv().await {
        all.push(what);
    }
    assert_eq!(all, ["start 16", "ack 4:9", "stop", "close"]);
}

fn drained_if(done: bool) -> Vec<SchedulerEffect> {
    if done { vec![SchedulerEffect::Drained] } else { Vec::new() }
}

async fn run_scheduler(
    role: impl Role<Event = SchedulerEvent, Effect = SchedulerEffect>,
    store: Arc<impl StorePort>,
    publisher: Arc<impl PublishPort>,
    notifications: impl NotifyPort,
    shutdown: impl Future + Send,
) {
    let permits = LanePermits { lease: 1, work: 3 };
    let interpreter = SchedulerInterpreter::new(store, publisher, notifications, Arc::new(NoFacts), permits);
    run(role, interpreter, RuntimeClock::start(), shutdown).await;
}
