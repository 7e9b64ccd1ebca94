//! What the worker waits for, and that waking it too often does nothing.

use super::*;
use crate::wakeup::WakeReason;

/// How long until the next wakeup, and why.
fn next(hand: &Hand) -> (Span, WakeReason) {
    let (at, reason) = hand.worker.next_wakeup().expect("a worker at work reports its liveness");
    (at.since(hand.now), reason)
}

#[test]
fn a_worker_that_has_not_begun_wants_its_first_tick() {
    let hand = Hand::unbegun(config());
    assert_eq!(hand.worker.next_wakeup(), Some((Monotonic::ZERO, WakeReason::Heartbeat)));
}

#[test]
fn an_idle_worker_waits_for_its_next_report() {
    let mut hand = Hand::new();
    assert_eq!(next(&hand), (Span::from_secs(5), WakeReason::Heartbeat));
    assert_eq!(hand.wait(Span::from_secs(5)).heartbeats(), [NodeState::Active]);
    assert_eq!(next(&hand), (Span::from_secs(5), WakeReason::Heartbeat));
}

#[test]
fn a_report_of_unknown_outcome_is_sent_again_after_a_pause() {
    let mut worker = Worker::new(config());
    worker.handle(Monotonic::ZERO, WorkerEvent::Tick);
    let outcome = StoreOutcome::Unknown;
    worker.handle(Monotonic::ZERO, WorkerEvent::StoreReplied { effect: EffectId(1), outcome });
    let again = Monotonic::ZERO.plus(ms(200));
    assert_eq!(worker.next_wakeup(), Some((again, WakeReason::Heartbeat)));
    worker.handle(again, WorkerEvent::Tick);
    let effects = Effects(std::iter::from_fn(|| worker.poll_effect()).collect());
    assert_eq!(effects.heartbeats(), [NodeState::Active, NodeState::Active]);
}

#[test]
fn a_run_waits_for_renewal_then_for_the_end_of_trust() {
    let mut hand = Hand::with(|config| config.heartbeat_every = Span::from_secs(100));
    hand.run(message(1));
    assert_eq!(next(&hand), (Span::from_secs(5), WakeReason::LeaseCycle));
    hand.wait(Span::from_secs(5)).renewal();
    assert_eq!(next(&hand), (Span::from_secs(7), WakeReason::TrustEnds));
}

#[test]
fn a_short_attempt_waits_for_its_timeout() {
    let mut hand = Hand::new();
    hand.run(ExecutionMessage { attempt_timeout: Span::from_secs(2), ..message(1) });
    assert_eq!(next(&hand), (Span::from_secs(2), WakeReason::AttemptTimeout));
}

#[test]
fn an_unknown_outcome_waits_to_be_sent_again() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    hand.unknown(effects.acquire().0);
    assert_eq!(next(&hand), (ms(200), WakeReason::Resend));
    hand.wait(ms(200)).acquire();
    assert_eq!(next(&hand), (ms(4_800), WakeReason::Heartbeat));
}

#[test]
fn unknown_outcomes_in_a_row_are_met_with_growing_patience_up_to_an_eighth_of_a_lease() {
    let mut hand = Hand::with(|config| {
        config.heartbeat_every = Span::from_secs(100);
        config.lease_ttl = Span::from_secs(8);
    });
    let (_, effects) = hand.deliver(message(1));
    let mut call = effects.acquire().0;
    for delay in [200, 400, 800, 1_000, 1_000] {
        hand.unknown(call);
        assert_eq!(next(&hand), (ms(delay), WakeReason::Resend));
        call = hand.wait(ms(delay)).acquire().0;
    }
    // An answer ends the row: what is unknown next is asked again soon.
    hand.answer(call, Reply::Acquired(vec![granted(1)]));
    let (_, effects) = hand.deliver(message(2));
    hand.unknown(effects.acquire().0);
    assert_eq!(next(&hand).0, ms(200));
}

#[test]
fn a_spurious_tick_does_nothing() {
    let mut hand = Hand::new();
    hand.run(message(1));
    let (_, effects) = hand.deliver(message(2));
    hand.unknown(effects.acquire().0);
    for _ in 0..3 {
        assert_eq!(hand.wait(ms(1)).0, []);
    }
}
