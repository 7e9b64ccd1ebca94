//! Company: calls that follow each other closely carry more than a handful.

use super::*;
use crate::wakeup::WakeReason;

/// Eight slots, so two items are worth a call.
fn hand() -> Hand {
    Hand::with(|config| config.gather = ms(20))
}

#[test]
fn what_comes_up_at_a_rest_is_sent_at_once() {
    let mut hand = hand();
    hand.run(message(1));
    hand.wait(ms(20));
    let (_, effects) = hand.deliver(message(2));
    assert_eq!(effects.acquire().1.items.len(), 1);
}

#[test]
fn a_single_message_waits_a_moment_for_company_after_the_acquire_before_it() {
    let mut hand = hand();
    hand.run(message(1));
    let (_, effects) = hand.deliver(message(2));
    assert_eq!(effects.0, []);
    let soon = Some((hand.now.plus(ms(20)), WakeReason::Gather));
    assert_eq!(hand.worker.next_wakeup(), soon);
    assert_eq!(hand.wait(ms(20)).acquire().1.items.len(), 1);
}

#[test]
fn messages_that_are_worth_a_call_do_not_wait() {
    let mut hand = hand();
    hand.run(message(1));
    hand.deliver(message(2));
    let (_, effects) = hand.deliver(message(3));
    assert_eq!(effects.acquire().1.items.len(), 2);
}

#[test]
fn a_single_outcome_waits_a_moment_for_company_after_the_finish_before_it() {
    let mut hand = hand();
    let (_, first) = hand.run(message(1));
    hand.wait(ms(20));
    let (_, second) = hand.run(message(2));
    let (call, _) = hand.end(first, HandlerResult::Completed).finish();
    hand.answer(call, Reply::Finished(vec![FinishReply::Applied { state: ExecutionState::Completed }]));
    assert_eq!(hand.end(second, HandlerResult::Completed).0, []);
    assert_eq!(hand.wait(ms(20)).finish().1.items.len(), 1);
}
