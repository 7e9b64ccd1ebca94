//! Any events in any order: a property test on what the worker may never do.
//!
//! The storm answers calls with anything their kinds allow, late or never, repeats deliveries, breaks the
//! consumer, ends and hangs handlers and drains at some point. It checks what holds in every case.

use proptest::prelude::*;

use super::*;
use crate::event::MalformedMessage;
use crate::message::MessageError;
use crate::store::command::CommandKind;
use crate::store::reply::DeferReply;

/// One thing that happens. The numbers choose among what is possible at that moment.
#[derive(Clone, Debug)]
enum Gust {
    Wait(u64),
    Deliver { number: u128, dispatch: u32 },
    DeliverGarbage,
    Answer { which: usize, how: u8 },
    Unknown { which: usize },
    EndHandler { which: usize, how: u8 },
    LoseConsumer,
    Drain,
}

fn gust() -> impl Strategy<Value = Gust> {
    prop_oneof![
        4 => (0_u64..4_000).prop_map(Gust::Wait),
        8 => (1_u128..6, 1_u32..4).prop_map(|(number, dispatch)| Gust::Deliver { number, dispatch }),
        1 => Just(Gust::DeliverGarbage),
        10 => (any::<usize>(), any::<u8>()).prop_map(|(which, how)| Gust::Answer { which, how }),
        3 => any::<usize>().prop_map(|which| Gust::Unknown { which }),
        6 => (any::<usize>(), any::<u8>()).prop_map(|(which, how)| Gust::EndHandler { which, how }),
        1 => Just(Gust::LoseConsumer),
        1 => Just(Gust::Drain),
    ]
}

/// The world around the worker, as far as the checks need it.
struct Storm {
    hand: Hand,
    calls: BTreeMap<EffectId, Command>,
    latest_call: EffectId,
    handlers: BTreeSet<RunId>,
    tokens: i64,
    grants: BTreeSet<RunId>,
    started: BTreeSet<RunId>,
    delivered: BTreeSet<Delivery>,
    acked: BTreeSet<Delivery>,
    drained_at: Option<Monotonic>,
    drain_asked_at: Option<Monotonic>,
}

const SLOTS: u32 = 3;

impl Storm {
    fn new() -> Self {
        let config = WorkerConfig { slots: SLOTS, batch: 2, gather: ms(20), ..config() };
        let mut storm = Self {
            hand: Hand::unbegun(config),
            calls: BTreeMap::new(),
            latest_call: EffectId(0),
            handlers: BTreeSet::new(),
            tokens: 0,
            grants: BTreeSet::new(),
            started: BTreeSet::new(),
            delivered: BTreeSet::new(),
            acked: BTreeSet::new(),
            drained_at: None,
            drain_asked_at: None,
        };
        storm.event(WorkerEvent::Tick);
        storm
    }

    fn event(&mut self, event: WorkerEvent) {
        self.hand.worker.handle(self.hand.now, event);
        self.collect();
        self.hand.worker.handle(self.hand.now, WorkerEvent::Tick);
        assert!(self.hand.worker.poll_effect().is_none(), "a spurious tick does nothing");
        if let Some((at, reason)) = self.hand.worker.next_wakeup() {
            assert!(at > self.hand.now, "nothing due is left undone: {reason}");
        }
    }

    fn collect(&mut self) {
        while let Some(effect) = self.hand.worker.poll_effect() {
            assert_eq!(self.drained_at, None, "a drained worker wants nothing: {effect:?}");
            match effect {
                WorkerEffect::Store { id, command } => self.called(id, command),
                WorkerEffect::Ack { delivery } => {
                    assert_eq!(delivery.epoch, self.hand.epoch, "a void delivery is not acknowledged");
                    assert!(self.acked.insert(delivery), "{delivery:?} is acknowledged once");
                }
                WorkerEffect::StartHandler(invocation) => {
                    assert!(self.grants.contains(&invocation.run), "what runs was granted");
                    assert!(self.started.insert(invocation.run), "a run starts once");
                    assert_eq!(self.drain_asked_at, None, "nothing starts in a drain");
                    self.handlers.insert(invocation.run);
                }
                WorkerEffect::StopHandler { run, .. } => {
                    assert!(self.started.contains(&run), "what is stopped was started");
                }
                WorkerEffect::Drained => self.drained_at = Some(self.hand.now),
                WorkerEffect::Consume { prefetch } => assert_eq!(prefetch, SLOTS),
                WorkerEffect::StopConsuming | WorkerEffect::Report(_) => {}
            }
        }
        assert!(self.hand.worker.running() <= SLOTS as usize, "no more handlers than slots");
    }

    fn called(&mut self, id: EffectId, command: Command) {
        assert!(id > self.latest_call, "ids rise");
        self.latest_call = id;
        let kind = command.kind();
        assert!(!self.calls.values().any(|call| call.kind() == kind), "one {kind} at a time");
        match &command {
            Command::AcquireExecutions(ask) => {
                let executions: BTreeSet<_> = ask.items.iter().map(|item| item.execution).collect();
                assert_eq!(executions.len(), ask.items.len(), "an execution is asked for once");
                assert!(ask.items.len() <= 2 && ask.items.iter().all(|item| item.nonce <= id));
            }
            Command::RenewExecutions(ask) => assert!(!ask.runs.is_empty() && ask.runs.len() <= 2),
            Command::FinishExecutions(ask) => {
                assert!(!ask.items.is_empty() && ask.items.len() <= 2);
                assert!(
                    ask.items.iter().all(|item| self.grants.contains(&item.run)),
                    "only what was granted"
                );
            }
            other => assert!(matches!(
                other.kind(),
                CommandKind::Heartbeat | CommandKind::DeferExecutions | CommandKind::RecordMalformed
            )),
        }
        self.calls.insert(id, command);
    }

    fn answer(&mut self, id: EffectId, how: u8) {
        let command = self.calls.remove(&id).expect("chosen among the calls");
        let running = ExecutionState::Running;
        let reply = match command {
            Command::Heartbeat(_) => Reply::Heartbeat { schedulers: Vec::new() },
            Command::AcquireExecutions(ask) => {
                let replies = ask.items.iter().zip(0..).map(|(item, at)| match how.wrapping_add(at) % 6 {
                    0 => AcquireReply::Never { state: running },
                    1 => AcquireReply::NotNow { state: ExecutionState::RetryWait },
                    2 => AcquireReply::Absent,
                    _granted => {
                        self.tokens += 1;
                        let token = FencingToken::from_i64(self.tokens);
                        self.grants.insert(RunId { execution: item.execution, token });
                        let cancel = if how == 255 { CancelState::Requested } else { CancelState::None };
                        AcquireReply::Granted(Grant {
                            token,
                            attempts: 0,
                            age: Span::ZERO,
                            left: None,
                            cancel,
                        })
                    }
                });
                Reply::Acquired(replies.collect())
            }
            Command::RenewExecutions(ask) => {
                let current = FencingToken::from_i64(self.tokens + 1);
                let replies = ask.runs.iter().zip(0..).map(|(_, at)| match how.wrapping_add(at) % 5 {
                    0 => RenewReply::Refused { current, state: running },
                    1 => RenewReply::Renewed { cancel: CancelState::Requested },
                    2 => RenewReply::Absent,
                    _renewed => renewed(),
                });
                Reply::RunsRenewed(replies.collect())
            }
            Command::FinishExecutions(ask) => {
                let current = FencingToken::from_i64(self.tokens + 1);
                let replies = ask.items.iter().zip(0..).map(|(_, at)| match how.wrapping_add(at) % 4 {
                    0 => FinishReply::Refused { current, state: running },
                    1 => FinishReply::Absent,
                    _applied => completed(),
                });
                Reply::Finished(replies.collect())
            }
            Command::DeferExecutions(ask) => {
                Reply::Deferred(ask.items.iter().map(|_| DeferReply::Recorded).collect())
            }
            Command::RecordMalformed(_) => Reply::MalformedRecorded,
            other => panic!("a worker does not ask for {}", other.kind()),
        };
        self.event(replied(id, reply));
    }

    fn deliver(&mut self, message: Result<Arc<ExecutionMessage>, MalformedMessage>) {
        self.hand.tag += 1;
        let delivery = Delivery { epoch: self.hand.epoch, tag: self.hand.tag };
        self.delivered.insert(delivery);
        self.event(WorkerEvent::Delivered { delivery, message });
    }

    fn happen(&mut self, gust: Gust) {
        match gust {
            Gust::Wait(millis) => {
                self.hand.now = self.hand.now.plus(ms(millis));
                self.event(WorkerEvent::Tick);
            }
            Gust::Deliver { number, dispatch } => {
                let attempt_timeout = if number == 1 { Span::from_secs(3_600) } else { Span::from_secs(7) };
                let schema = if number == 5 { 9 } else { 1 };
                let dispatch_no = DispatchNo(dispatch);
                let message = ExecutionMessage { schema, dispatch_no, attempt_timeout, ..message(number) };
                self.deliver(Ok(Arc::new(message)));
            }
            Gust::DeliverGarbage => {
                let error = MessageError::TooLarge { bytes: 1 << 30 };
                let digest = uuid::Uuid::nil();
                self.deliver(Err(MalformedMessage { error, digest, excerpt: b"".as_slice().into() }));
            }
            Gust::Answer { which, how } => {
                if let Some(id) = choose(self.calls.keys(), which) {
                    self.answer(id, how);
                }
            }
            Gust::Unknown { which } => {
                if let Some(id) = choose(self.calls.keys(), which) {
                    self.calls.remove(&id);
                    self.event(WorkerEvent::StoreReplied { effect: id, outcome: StoreOutcome::Unknown });
                }
            }
            Gust::EndHandler { which, how } => {
                if let Some(run) = choose(self.handlers.iter(), which) {
                    self.handlers.remove(&run);
                    let result = match how % 4 {
                        0 => HandlerResult::Stopped,
                        1 => failed("boom"),
                        _completed => HandlerResult::Completed,
                    };
                    self.event(WorkerEvent::HandlerFinished { run, result });
                }
            }
            Gust::LoseConsumer => {
                let epoch = self.hand.epoch;
                self.hand.epoch += 1;
                self.event(WorkerEvent::ConsumerLost { epoch });
            }
            Gust::Drain => {
                self.drain_asked_at.get_or_insert(self.hand.now);
                self.event(WorkerEvent::DrainRequested);
            }
        }
        if let (None, Some(asked_at)) = (self.drained_at, self.drain_asked_at) {
            assert!(self.hand.now.since(asked_at) < Span::from_secs(20), "a drain ends within its limit");
        }
    }

    /// The weather clears: every call is answered, every handler stops when told to, and in the end the
    /// worker holds nothing.
    fn calm(&mut self) {
        for _ in 0..400 {
            if self.drained_at.is_some() {
                return;
            }
            if let Some(id) = choose(self.calls.keys(), 0) {
                self.answer(id, 3);
            } else if let Some(run) = choose(self.handlers.iter(), 0) {
                self.handlers.remove(&run);
                self.event(WorkerEvent::HandlerFinished { run, result: HandlerResult::Completed });
            } else {
                self.hand.now = self.hand.now.plus(ms(500));
                self.event(WorkerEvent::Tick);
            }
        }
    }
}

fn choose<'a, T: Copy + 'a>(among: impl ExactSizeIterator<Item = &'a T>, which: usize) -> Option<T> {
    let count = among.len();
    let mut among = among;
    if count == 0 { None } else { among.nth(which % count).copied() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_worker_keeps_its_rules(gusts in prop::collection::vec(gust(), 1..120)) {
        let mut storm = Storm::new();
        for gust in gusts {
            storm.happen(gust);
        }
        storm.calm();
        if storm.drain_asked_at.is_none() {
            prop_assert_eq!(storm.hand.worker.running(), 0);
            let owed = storm.delivered.difference(&storm.acked);
            let owed: Vec<_> = owed.filter(|delivery| delivery.epoch == storm.hand.epoch).collect();
            prop_assert_eq!(owed, Vec::<&Delivery>::new(), "every message is acknowledged in the end");
        }
    }
}
