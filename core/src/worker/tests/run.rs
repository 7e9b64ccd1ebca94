//! Handlers: how they end, and when they do not.

use super::*;
use crate::execution::DeadLetterReason;
use crate::limits::ERROR_BYTES_MAX;
use crate::store::command::RunOutcome;

/// What the worker makes of a first attempt that ends so.
fn outcome(message: ExecutionMessage, result: HandlerResult) -> RunOutcome {
    let mut hand = Hand::new();
    let (_, run) = hand.run(message);
    hand.end(run, result).finish().1.items[0].outcome.clone()
}

fn for_good(error: &str) -> HandlerResult {
    HandlerResult::Failed { class: ErrorClass::NonRetryable, error: error.into(), retry_after: None }
}

#[test]
fn a_retryable_failure_is_retried_within_the_policys_bounds() {
    let RunOutcome::Retry { delay, error } = outcome(message(1), failed("boom")) else {
        panic!("a first failure of five is retried");
    };
    assert!(delay >= ms(800) && delay <= ms(1_000), "{delay}");
    assert_eq!(&*error, "boom");
}

#[test]
fn the_targets_own_wish_decides_the_delay() {
    let wish = Some(Span::from_secs(90));
    let result =
        HandlerResult::Failed { class: ErrorClass::Retryable, error: "busy".into(), retry_after: wish };
    let expected = RunOutcome::Retry { delay: Span::from_secs(90), error: "busy".into() };
    assert_eq!(outcome(message(1), result), expected);
}

#[test]
fn the_last_attempt_is_dead_lettered_as_exhausted() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    hand.answer(effects.acquire().0, Reply::Acquired(vec![granted_after(1, 4)]));
    let (_, finish) = hand.end(run_id(1, 1), failed("boom")).finish();
    let (reason, error) = (DeadLetterReason::Exhausted, "boom".into());
    assert_eq!(finish.items[0].outcome, RunOutcome::DeadLettered { reason, error });
}

#[test]
fn an_execution_too_old_for_a_retry_is_dead_lettered_as_too_old() {
    let policy = RetryPolicy { max_age: Some(Span::from_secs(3)), ..RetryPolicy::default() };
    let mut hand = Hand::new();
    let (_, run) = hand.run(ExecutionMessage { retry: policy, ..message(1) });
    hand.now = hand.now.plus(Span::from_secs(2));
    let (_, finish) = hand.end(run, failed("boom")).finish();
    let (reason, error) = (DeadLetterReason::TooOld, "boom".into());
    assert_eq!(finish.items[0].outcome, RunOutcome::DeadLettered { reason, error });
}

/// A grant of a first attempt whose deadline leaves so long.
fn granted_with(left: Span) -> Reply {
    let AcquireReply::Granted(grant) = granted(1) else { panic!("it is a grant") };
    Reply::Acquired(vec![AcquireReply::Granted(Grant { left: Some(left), ..grant })])
}

#[test]
fn an_attempt_is_stopped_at_the_deadline_and_given_up() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    hand.answer(effects.acquire().0, granted_with(Span::from_secs(2)));
    let effects = hand.wait(Span::from_secs(2));
    assert_eq!(effects.stopped(), [(run_id(1, 1), StopReason::Timeout)]);
    let (_, finish) = effects.finish();
    let RunOutcome::DeadLettered { reason, error } = &finish.items[0].outcome else {
        panic!("no other attempt follows");
    };
    assert_eq!(*reason, DeadLetterReason::Deadline);
    assert!(error.contains("deadline"), "{error}");
}

#[test]
fn a_retry_that_would_begin_past_the_deadline_is_given_up_with_its_own_error() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    hand.answer(effects.acquire().0, granted_with(ms(700)));
    let (_, finish) = hand.end(run_id(1, 1), failed("boom")).finish();
    let (reason, error) = (DeadLetterReason::Deadline, "boom".into());
    assert_eq!(finish.items[0].outcome, RunOutcome::DeadLettered { reason, error });
}

#[test]
fn a_grant_whose_deadline_has_passed_on_its_way_starts_nothing() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    hand.now = hand.now.plus(ms(100));
    let effects = hand.answer(effects.acquire().0, granted_with(ms(100)));
    assert!(effects.started().is_empty());
    assert!(matches!(
        effects.finish().1.items[0].outcome,
        RunOutcome::DeadLettered { reason: DeadLetterReason::Deadline, .. }
    ));
}

#[test]
fn a_failure_for_good_is_dead_lettered_unless_the_job_keeps_none() {
    let (reason, error): (_, Arc<str>) = (DeadLetterReason::NonRetryable, "no such user".into());
    let kept = outcome(message(1), for_good("no such user"));
    assert_eq!(kept, RunOutcome::DeadLettered { reason, error: error.clone() });
    let off = ExecutionMessage { dead_letter: DeadLetters::Off, ..message(1) };
    assert_eq!(outcome(off, for_good("no such user")), RunOutcome::Failed { error });
}

#[test]
fn an_error_text_is_kept_without_nul_and_cut_between_characters() {
    let long = format!("\0{}", "ä".repeat(ERROR_BYTES_MAX));
    let RunOutcome::Retry { error, .. } = outcome(message(1), failed(&long)) else {
        panic!("a first failure of five is retried");
    };
    assert_eq!(error.len(), ERROR_BYTES_MAX);
    assert!(error.chars().all(|character| character == 'ä'));
}

#[test]
fn a_handler_that_stops_unasked_has_failed() {
    let RunOutcome::Retry { error, .. } = outcome(message(1), HandlerResult::Stopped) else {
        panic!("it counts as an attempt");
    };
    assert_eq!(&*error, "the handler stopped without having been told to");
}

#[test]
fn an_attempt_that_takes_too_long_is_stopped_and_fails_at_once() {
    let mut hand = Hand::with(|config| config.lease_ttl = Span::from_secs(100));
    let (delivery, run) = hand.run(message(1));
    assert_eq!(hand.wait(ms(59_999)).stopped(), []);
    let effects = hand.wait(ms(1));
    assert_eq!(effects.stopped(), [(run, StopReason::Timeout)]);
    let (call, finish) = effects.finish();
    let RunOutcome::Retry { error, .. } = &finish.items[0].outcome else {
        panic!("a first timeout of five attempts is retried");
    };
    assert_eq!(&**error, "the attempt timed out after 60s");
    let reply = FinishReply::Applied { state: ExecutionState::RetryWait };
    assert_eq!(hand.answer(call, Reply::Finished(vec![reply])).acks(), [delivery]);
    assert_eq!(hand.end(run, HandlerResult::Completed).0, []);
}

#[test]
fn a_hung_handler_keeps_its_slot_for_one_lease_time() {
    let mut hand = Hand::with(|config| config.slots = 1);
    let short = ExecutionMessage { attempt_timeout: Span::from_secs(4), ..message(1) };
    hand.run(short);
    let (call, _) = hand.wait(Span::from_secs(4)).finish();
    let reply = FinishReply::Applied { state: ExecutionState::RetryWait };
    hand.answer(call, Reply::Finished(vec![reply]));
    let (_, effects) = hand.deliver(message(2));
    assert_eq!(effects.commands(), []);
    assert_eq!(hand.worker.next_wakeup().map(|(at, _)| at), Some(Monotonic::from_micros(6_000_000)));
    hand.wait(ms(14_999));
    assert_eq!(hand.wait(ms(1)).acquire().1.items.len(), 1);
}

#[test]
fn a_handler_that_stops_late_frees_its_slot() {
    let mut hand = Hand::with(|config| config.slots = 1);
    let (_, run) = hand.run(ExecutionMessage { attempt_timeout: Span::from_secs(4), ..message(1) });
    let (call, _) = hand.wait(Span::from_secs(4)).finish();
    let reply = FinishReply::Applied { state: ExecutionState::RetryWait };
    hand.answer(call, Reply::Finished(vec![reply]));
    hand.deliver(message(2));
    let effects = hand.end(run, HandlerResult::Stopped);
    assert_eq!(effects.acquire().1.items.len(), 1);
}

#[test]
fn a_cancelled_handler_that_does_not_stop_is_given_up_at_its_timeout() {
    let mut hand = Hand::new();
    let (_, run) = hand.run(ExecutionMessage { attempt_timeout: Span::from_secs(8), ..message(1) });
    let (call, _) = hand.wait(Span::from_secs(5)).renewal();
    let reply = RenewReply::Renewed { cancel: CancelState::Requested };
    hand.answer(call, Reply::RunsRenewed(vec![reply]));
    let effects = hand.wait(Span::from_secs(3));
    assert_eq!(effects.stopped(), [(run, StopReason::Timeout)]);
    assert_eq!(effects.finish().1.items[0].outcome, RunOutcome::Cancelled);
}

#[test]
fn a_failure_in_answer_to_a_cancel_counts_as_cancelled() {
    let mut hand = Hand::new();
    let (_, run) = hand.run(message(1));
    let (call, _) = hand.wait(Span::from_secs(5)).renewal();
    let reply = RenewReply::Renewed { cancel: CancelState::Requested };
    hand.answer(call, Reply::RunsRenewed(vec![reply]));
    let effects = hand.end(run, failed("interrupted"));
    assert_eq!(effects.finish().1.items[0].outcome, RunOutcome::Cancelled);
}

#[test]
fn a_hung_handler_whose_trust_ended_is_forgotten_in_silence_at_its_timeout() {
    let mut hand = Hand::new();
    let (delivery, run) = hand.run(ExecutionMessage { attempt_timeout: Span::from_secs(14), ..message(1) });
    hand.wait(Span::from_secs(12));
    let effects = hand.wait(Span::from_secs(2));
    assert_eq!(effects.stopped(), [(run, StopReason::Timeout)]);
    assert_eq!(effects.acks(), [delivery]);
    assert!(effects.commands().iter().all(|command| matches!(command, Command::RenewExecutions(_))));
    assert_eq!(hand.worker.running(), 0);
}

#[test]
fn a_long_suspension_of_the_process_costs_no_attempt() {
    let mut hand = Hand::new();
    let (_, run) = hand.run(message(1));
    let effects = hand.wait(Span::from_secs(3_600));
    assert_eq!(effects.stopped(), [(run, StopReason::LeaseLost), (run, StopReason::Timeout)]);
    assert!(effects.commands().iter().all(|command| matches!(command, Command::Heartbeat(_))));
}
