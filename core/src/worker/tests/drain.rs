//! The orderly end. Drains take 20 s at most here: stopping from 10 s on, letting go from 15 s on.

use super::*;
use crate::store::command::RunOutcome;
use crate::wakeup::WakeReason;

#[test]
fn an_idle_worker_drains_at_once() {
    let mut hand = Hand::new();
    let effects = hand.send(WorkerEvent::DrainRequested);
    assert_eq!(effects.count(&WorkerEffect::StopConsuming), 1);
    assert_eq!(effects.heartbeats(), [NodeState::Offline]);
    assert_eq!(effects.0.last(), Some(&WorkerEffect::Drained));
    assert_eq!(hand.worker.next_wakeup(), None);
    assert_eq!(hand.wait(Span::from_secs(100)).0, []);
}

#[test]
fn a_worker_that_never_began_is_drained_at_once() {
    let mut hand = Hand::unbegun(config());
    assert_eq!(hand.send(WorkerEvent::DrainRequested).0, [WorkerEffect::Drained]);
}

#[test]
fn handlers_run_to_their_end_and_are_renewed_meanwhile() {
    let mut hand = Hand::new();
    let (delivery, run) = hand.run(message(1));
    let effects = hand.send(WorkerEvent::DrainRequested);
    assert_eq!(effects.heartbeats(), [NodeState::Draining]);
    assert_eq!(effects.count(&WorkerEffect::StopConsuming), 1);
    assert_eq!(effects.facts(), [Fact::DrainStarted]);
    assert!(hand.worker.is_draining());
    assert!(!hand.worker.is_ready());
    let effects = hand.wait(Span::from_secs(5));
    assert_eq!(effects.heartbeats(), [NodeState::Draining]);
    assert_eq!(effects.renewal().1.runs, [run]);
    hand.answer(effects.renewal().0, Reply::RunsRenewed(vec![renewed()]));
    let effects = hand.end(run, HandlerResult::Completed);
    let effects = hand.answer(effects.finish().0, Reply::Finished(vec![completed()]));
    assert_eq!(effects.acks(), [delivery]);
    assert_eq!(effects.heartbeats(), [NodeState::Offline]);
    assert_eq!(effects.count(&WorkerEffect::Drained), 1);
}

#[test]
fn a_drain_asked_for_twice_is_one_drain() {
    let mut hand = Hand::new();
    hand.run(message(1));
    hand.send(WorkerEvent::DrainRequested);
    hand.now = hand.now.plus(Span::from_secs(1));
    assert_eq!(hand.send(WorkerEvent::DrainRequested).0, []);
}

#[test]
fn what_was_not_asked_for_is_left_to_the_broker() {
    let mut hand = Hand::with(|config| config.slots = 1);
    let (_, run) = hand.run(message(1));
    hand.deliver(message(2));
    hand.send(WorkerEvent::DrainRequested);
    let (_, effects) = hand.deliver(message(3));
    assert_eq!(effects.0, []);
    let effects = hand.end(run, HandlerResult::Completed);
    let effects = hand.answer(effects.finish().0, Reply::Finished(vec![completed()]));
    assert_eq!(effects.acks().len(), 1);
    assert_eq!(effects.count(&WorkerEffect::Drained), 1);
}

#[test]
fn a_grant_under_way_is_given_back() {
    let mut hand = Hand::new();
    let (delivery, effects) = hand.deliver(message(1));
    let (call, _) = effects.acquire();
    let effects = hand.send(WorkerEvent::DrainRequested);
    assert_eq!(effects.count(&WorkerEffect::Drained), 0);
    let effects = hand.answer(call, Reply::Acquired(vec![granted(1)]));
    assert_eq!(effects.started(), []);
    let (call, finish) = effects.finish();
    assert_eq!(finish.items[0].outcome, RunOutcome::Released);
    let reply = FinishReply::Applied { state: ExecutionState::RetryWait };
    let effects = hand.answer(call, Reply::Finished(vec![reply]));
    assert_eq!(effects.acks(), [delivery]);
    assert_eq!(effects.count(&WorkerEffect::Drained), 1);
}

#[test]
fn an_acquire_of_unknown_outcome_is_not_sent_again() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    hand.send(WorkerEvent::DrainRequested);
    let effects = hand.unknown(effects.acquire().0);
    assert_eq!(effects.count(&WorkerEffect::Drained), 1);
}

#[test]
fn handlers_still_running_near_the_limit_are_stopped_and_given_back() {
    let mut hand = Hand::with(|config| config.lease_ttl = Span::from_secs(100));
    let (_, run) = hand.run(message(1));
    hand.send(WorkerEvent::DrainRequested);
    assert_eq!(hand.wait(ms(9_999)).stopped(), []);
    assert_eq!(hand.wait(ms(1)).stopped(), [(run, StopReason::Drain)]);
    let effects = hand.end(run, HandlerResult::Stopped);
    let (call, finish) = effects.finish();
    assert_eq!(finish.items[0].outcome, RunOutcome::Released);
    let reply = FinishReply::Applied { state: ExecutionState::RetryWait };
    let effects = hand.answer(call, Reply::Finished(vec![reply]));
    assert_eq!(effects.count(&WorkerEffect::Drained), 1);
}

#[test]
fn a_failure_in_answer_to_a_drain_costs_no_attempt() {
    let mut hand = Hand::with(|config| config.lease_ttl = Span::from_secs(100));
    let (_, run) = hand.run(message(1));
    hand.send(WorkerEvent::DrainRequested);
    hand.wait(Span::from_secs(10));
    let effects = hand.end(run, failed("interrupted"));
    assert_eq!(effects.finish().1.items[0].outcome, RunOutcome::Released);
}

#[test]
fn a_handler_that_would_not_stop_is_left_behind_unrenewed() {
    let mut hand = Hand::with(|config| config.lease_ttl = Span::from_secs(100));
    hand.run(message(1));
    hand.send(WorkerEvent::DrainRequested);
    let (call, _) = hand.wait(Span::from_secs(10)).renewal();
    hand.answer(call, Reply::RunsRenewed(vec![renewed()]));
    let effects = hand.wait(Span::from_secs(5));
    assert_eq!(effects.heartbeats(), [NodeState::Offline]);
    assert!(effects.commands().iter().all(|command| matches!(command, Command::Heartbeat(_))));
    assert_eq!(effects.count(&WorkerEffect::Drained), 1);
}

#[test]
fn a_drain_ends_at_its_limit_although_the_store_does_not_answer() {
    let mut hand = Hand::with(|config| config.heartbeat_every = Span::from_secs(7));
    let (_, run) = hand.run(message(1));
    hand.send(WorkerEvent::DrainRequested);
    hand.end(run, HandlerResult::Completed);
    for _ in 0..19 {
        assert_eq!(hand.wait(Span::from_secs(1)).count(&WorkerEffect::Drained), 0);
    }
    let (at, reason) = hand.worker.next_wakeup().expect("the limit is waited for");
    assert_eq!((at, reason), (hand.now.plus(Span::from_secs(1)), WakeReason::DrainEnds));
    let effects = hand.wait(Span::from_secs(1));
    assert_eq!(effects.heartbeats(), [], "a node that may still hold something does not sign off");
    assert_eq!(effects.count(&WorkerEffect::Drained), 1);
}

#[test]
fn an_unknown_last_report_ends_the_drain_too() {
    let mut worker = Worker::new(config());
    let now = Monotonic::from_micros(5);
    worker.handle(now, WorkerEvent::Tick);
    worker.handle(now, replied(EffectId(1), Reply::Heartbeat { schedulers: Vec::new() }));
    worker.handle(now, WorkerEvent::DrainRequested);
    worker.handle(now, WorkerEvent::StoreReplied { effect: EffectId(2), outcome: StoreOutcome::Unknown });
    let effects = Effects(std::iter::from_fn(|| worker.poll_effect()).collect());
    assert_eq!(effects.heartbeats(), [NodeState::Active, NodeState::Offline]);
    assert_eq!(effects.0.last(), Some(&WorkerEffect::Drained));
}

#[test]
fn a_report_under_way_is_never_overtaken_by_the_next() {
    let mut worker = Worker::new(config());
    let now = Monotonic::from_micros(5);
    worker.handle(now, WorkerEvent::Tick);
    worker.handle(now, WorkerEvent::DrainRequested);
    let effects = Effects(std::iter::from_fn(|| worker.poll_effect()).collect());
    assert_eq!(effects.heartbeats(), [NodeState::Active]);
    worker.handle(now, replied(EffectId(1), Reply::Heartbeat { schedulers: Vec::new() }));
    let effects = Effects(std::iter::from_fn(|| worker.poll_effect()).collect());
    assert_eq!(effects.heartbeats(), [NodeState::Offline]);
}
