//! Outcomes made durable.

use super::*;
use crate::execution::DeadLetterReason;
use crate::store::command::RunOutcome;
use crate::store::row::{RefusedAction, RefusedResource};

#[test]
fn an_outcome_is_sent_at_once_and_acknowledged_when_it_is_durable() {
    let mut hand = Hand::new();
    let (delivery, run) = hand.run(message(1));
    hand.now = hand.now.plus(ms(40));
    let effects = hand.end(run, HandlerResult::Completed);
    assert_eq!(effects.acks(), []);
    let (call, finish) = effects.finish();
    assert_eq!(finish.items[0].run, run);
    assert_eq!(finish.items[0].outcome, RunOutcome::Completed);
    assert_eq!(finish.items[0].started_ago, Some(ms(40)));
    hand.now = hand.now.plus(ms(5));
    let effects = hand.answer(call, Reply::Finished(vec![completed()]));
    assert_eq!(effects.acks(), [delivery]);
    let fact = Fact::RunEnded { run, state: ExecutionState::Completed, ran: ms(40), dead_letter: None };
    assert_eq!(effects.facts(), [fact]);
}

#[test]
fn what_ends_while_a_finish_is_under_way_makes_the_next_batch() {
    let mut hand = Hand::new();
    let runs: Vec<RunId> = (1..=3).map(|number| hand.run(message(number)).1).collect();
    let (call, _) = hand.end(runs[0], HandlerResult::Completed).finish();
    assert_eq!(hand.end(runs[2], HandlerResult::Completed).0, []);
    assert_eq!(hand.end(runs[1], HandlerResult::Completed).0, []);
    let effects = hand.answer(call, Reply::Finished(vec![completed()]));
    let finished: Vec<RunId> = effects.finish().1.items.iter().map(|item| item.run).collect();
    assert_eq!(finished, [runs[2], runs[1]]);
}

#[test]
fn a_finish_of_unknown_outcome_is_sent_again_unchanged_but_for_the_time_passed() {
    let mut hand = Hand::new();
    let (delivery, run) = hand.run(message(1));
    let (call, first) = hand.end(run, failed("boom")).finish();
    assert_eq!(hand.unknown(call).acks(), []);
    let (call, again) = hand.wait(ms(200)).finish();
    assert_eq!(again.items[0].outcome, first.items[0].outcome);
    assert_eq!(again.items[0].started_ago, Some(ms(200)));
    let reply = FinishReply::Already { state: ExecutionState::RetryWait };
    assert_eq!(hand.answer(call, Reply::Finished(vec![reply])).acks(), [delivery]);
}

#[test]
fn a_refused_finish_is_reported_and_forgotten() {
    let mut hand = Hand::new();
    let (delivery, run) = hand.run(message(1));
    let (call, _) = hand.end(run, HandlerResult::Completed).finish();
    let current = FencingToken::from_i64(5);
    let reply = FinishReply::Refused { current, state: ExecutionState::Running };
    let effects = hand.answer(call, Reply::Finished(vec![reply]));
    assert_eq!(effects.acks(), [delivery]);
    let (resource, action) = (RefusedResource::Execution(run.execution), RefusedAction::Finish);
    let fact = Fact::WriteRefused { resource, action, presented: run.token, current };
    assert_eq!(effects.facts(), [fact]);
    assert_eq!(hand.wait(Span::from_secs(1)).commands(), []);
}

#[test]
fn a_finish_of_an_execution_that_is_gone_is_acknowledged() {
    let mut hand = Hand::new();
    let (delivery, run) = hand.run(message(1));
    let (call, _) = hand.end(run, HandlerResult::Completed).finish();
    assert_eq!(hand.answer(call, Reply::Finished(vec![FinishReply::Absent])).acks(), [delivery]);
}

#[test]
fn a_dead_letter_is_told_with_its_reason() {
    let mut hand = Hand::new();
    let once = RetryPolicy { max_attempts: 1, ..RetryPolicy::default() };
    let (_, run) = hand.run(ExecutionMessage { retry: once, ..message(1) });
    let (call, _) = hand.end(run, failed("boom")).finish();
    let reply = FinishReply::Applied { state: ExecutionState::DeadLettered };
    let effects = hand.answer(call, Reply::Finished(vec![reply]));
    let dead_letter = Some(DeadLetterReason::Exhausted);
    let fact = Fact::RunEnded { run, state: ExecutionState::DeadLettered, ran: Span::ZERO, dead_letter };
    assert_eq!(effects.facts(), [fact]);
}
