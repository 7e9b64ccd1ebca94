//! Grants, trust, renewals.

use super::*;
use crate::lease::TrustWindow;
use crate::store::command::RunOutcome;
use crate::store::row::{RefusedAction, RefusedResource};

#[test]
fn a_grant_starts_its_handler_under_its_token() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    hand.now = hand.now.plus(ms(20));
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![granted_after(7, 2)]));
    let started = effects.started();
    assert_eq!(started[0].run, run_id(1, 7));
    assert_eq!(started[0].attempt, 3);
    assert_eq!(&*started[0].message.key, "key-1");
    let (queue_lag, lag, due_lag) = (ms(497), ms(20), ms(520));
    let fact = Fact::RunStarted {
        run: run_id(1, 7),
        priority: Priority::Normal,
        attempt: 3,
        queue_lag,
        lag,
        due_lag,
    };
    assert_eq!(effects.facts(), [fact]);
}

#[test]
fn a_grant_that_arrives_too_late_to_be_trusted_is_given_back_unstarted() {
    let mut hand = Hand::new();
    let (delivery, effects) = hand.deliver(message(1));
    hand.now = hand.now.plus(Span::from_secs(12));
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![granted(1)]));
    assert_eq!(effects.started(), []);
    let (call, finish) = effects.finish();
    assert_eq!(finish.items[0].outcome, RunOutcome::Released);
    assert_eq!(finish.items[0].started_ago, None);
    let reply = FinishReply::Applied { state: ExecutionState::RetryWait };
    assert_eq!(hand.answer(call, Reply::Finished(vec![reply])).acks(), [delivery]);
}

#[test]
fn a_repeated_grant_is_trusted_from_the_first_sending_on() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    hand.now = hand.now.plus(Span::from_secs(5));
    hand.unknown(effects.acquire().0);
    let effects = hand.wait(Span::from_secs(6));
    let (again, _) = effects.acquire();
    hand.now = hand.now.plus(Span::from_secs(1));
    let effects = hand.answer(again, Reply::Acquired(vec![granted(1)]));
    assert_eq!(effects.started(), []);
    assert_eq!(effects.finish().1.items[0].outcome, RunOutcome::Released);
}

#[test]
fn a_grant_that_is_asked_to_stop_is_not_started() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    let token = FencingToken::from_i64(1);
    let grant = Grant { token, attempts: 0, age: Span::ZERO, left: None, cancel: CancelState::Requested };
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![AcquireReply::Granted(grant)]));
    assert_eq!(effects.started(), []);
    assert_eq!(effects.finish().1.items[0].outcome, RunOutcome::Cancelled);
}

#[test]
fn leases_that_come_due_about_now_are_renewed_in_one_call() {
    let mut hand = Hand::new();
    hand.run(message(1));
    hand.now = hand.now.plus(ms(1_000));
    hand.run(message(2));
    hand.now = hand.now.plus(ms(3_000));
    hand.run(message(3));
    let effects = hand.wait(ms(1_000));
    assert_eq!(effects.renewal().1.runs, [run_id(1, 1), run_id(2, 1)]);
    assert_eq!(effects.renewal().1.ttl, Span::from_secs(15));
}

#[test]
fn one_renewal_is_under_way_at_a_time() {
    let mut hand = Hand::new();
    hand.run(message(1));
    hand.now = hand.now.plus(ms(3_000));
    hand.run(message(2));
    let (call, _) = hand.wait(ms(2_000)).renewal();
    assert_eq!(hand.wait(ms(3_500)).commands(), []);
    let effects = hand.answer(call, Reply::RunsRenewed(vec![renewed()]));
    assert_eq!(effects.renewal().1.runs, [run_id(2, 1)]);
}

#[test]
fn a_renewal_counts_from_its_sending_on() {
    let mut hand = Hand::new();
    let (_, run) = hand.run(message(1));
    let (call, _) = hand.wait(Span::from_secs(5)).renewal();
    hand.now = hand.now.plus(Span::from_secs(3));
    hand.answer(call, Reply::RunsRenewed(vec![renewed()]));
    let (call, _) = hand.wait(Span::from_secs(2)).renewal();
    hand.unknown(call);
    assert_eq!(hand.wait(Span::from_secs(6)).stopped(), []);
    assert_eq!(hand.wait(Span::from_secs(1)).stopped(), [(run, StopReason::LeaseLost)]);
}

#[test]
fn a_renewal_of_unknown_outcome_is_sent_again_after_a_pause() {
    let mut hand = Hand::new();
    let (_, run) = hand.run(message(1));
    let (call, _) = hand.wait(Span::from_secs(5)).renewal();
    assert_eq!(hand.unknown(call).commands(), []);
    assert_eq!(hand.wait(ms(200)).renewal().1.runs, [run]);
}

#[test]
fn a_refused_renewal_stops_the_handler_and_its_result_is_moot() {
    let mut hand = Hand::new();
    let (delivery, run) = hand.run(message(1));
    let (call, _) = hand.wait(Span::from_secs(5)).renewal();
    let current = FencingToken::from_i64(2);
    let refused = RenewReply::Refused { current, state: ExecutionState::Running };
    let effects = hand.answer(call, Reply::RunsRenewed(vec![refused]));
    assert_eq!(effects.stopped(), [(run, StopReason::LeaseLost)]);
    assert_eq!(effects.acks(), [delivery]);
    let (resource, presented) = (RefusedResource::Execution(run.execution), run.token);
    let action = RefusedAction::RenewExecution;
    assert_eq!(effects.facts(), [Fact::WriteRefused { resource, action, presented, current }]);
    assert_eq!(hand.end(run, HandlerResult::Completed).0, []);
    assert_eq!(hand.worker.running(), 0);
}

#[test]
fn a_cancel_request_stops_the_handler_which_ends_as_cancelled() {
    let mut hand = Hand::new();
    let (_, run) = hand.run(message(1));
    let (call, _) = hand.wait(Span::from_secs(5)).renewal();
    let reply = RenewReply::Renewed { cancel: CancelState::Requested };
    let effects = hand.answer(call, Reply::RunsRenewed(vec![reply]));
    assert_eq!(effects.stopped(), [(run, StopReason::Cancelled)]);
    let effects = hand.end(run, HandlerResult::Stopped);
    assert_eq!(effects.finish().1.items[0].outcome, RunOutcome::Cancelled);
}

#[test]
fn a_cancelled_handler_is_told_once_and_renewed_until_it_stops() {
    let mut hand = Hand::new();
    hand.run(message(1));
    for round in 0..3 {
        let (call, _) = hand.wait(Span::from_secs(5)).renewal();
        let reply = RenewReply::Renewed { cancel: CancelState::Requested };
        let effects = hand.answer(call, Reply::RunsRenewed(vec![reply]));
        assert_eq!(effects.stopped().len(), usize::from(round == 0));
    }
}

#[test]
fn a_cancel_request_may_lose_to_a_completion() {
    let mut hand = Hand::new();
    let (_, run) = hand.run(message(1));
    let (call, _) = hand.wait(Span::from_secs(5)).renewal();
    let reply = RenewReply::Renewed { cancel: CancelState::Requested };
    hand.answer(call, Reply::RunsRenewed(vec![reply]));
    let effects = hand.end(run, HandlerResult::Completed);
    assert_eq!(effects.finish().1.items[0].outcome, RunOutcome::Completed);
}

#[test]
fn a_lease_that_was_not_renewed_in_time_is_not_trusted_and_not_renewed() {
    let mut hand = Hand::new();
    let (_, run) = hand.run(message(1));
    let (call, _) = hand.wait(Span::from_secs(5)).renewal();
    let effects = hand.wait(Span::from_secs(7));
    assert_eq!(effects.stopped(), [(run, StopReason::LeaseLost)]);
    let effects = hand.answer(call, Reply::RunsRenewed(vec![renewed()]));
    assert_eq!(effects.0, []);
    assert!(hand.wait(Span::from_secs(20)).commands().iter().all(|c| matches!(c, Command::Heartbeat(_))));
}

#[test]
fn a_handler_that_stops_after_its_trust_ended_leaves_the_sweep_to_decide() {
    let mut hand = Hand::new();
    let (delivery, run) = hand.run(message(1));
    hand.wait(Span::from_secs(12));
    let effects = hand.end(run, HandlerResult::Stopped);
    assert_eq!(effects.commands(), []);
    assert_eq!(effects.acks(), [delivery]);
}

#[test]
fn a_handler_that_completes_after_its_trust_ended_is_still_finished() {
    let mut hand = Hand::new();
    let (_, run) = hand.run(message(1));
    hand.wait(Span::from_secs(12));
    let effects = hand.end(run, HandlerResult::Completed);
    assert_eq!(effects.finish().1.items[0].outcome, RunOutcome::Completed);
    assert_eq!(effects.finish().1.items[0].run, run);
}

#[test]
fn without_a_trust_window_only_the_store_ends_a_lease() {
    let mut hand = Hand::with(|config| config.trust = TrustWindow::Off);
    hand.run(ExecutionMessage { attempt_timeout: Span::from_secs(3_600), ..message(1) });
    assert_eq!(hand.wait(Span::from_secs(600)).stopped(), []);
}

#[test]
fn a_newer_grant_ends_the_older_run_of_the_same_execution() {
    let mut hand = Hand::new();
    let (old_delivery, old) = hand.run(message(1));
    let (_, effects) = hand.deliver(ExecutionMessage { dispatch_no: DispatchNo(2), ..message(1) });
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![granted(2)]));
    assert_eq!(effects.stopped(), [(old, StopReason::LeaseLost)]);
    assert_eq!(effects.acks(), [old_delivery]);
    assert_eq!(effects.started()[0].run, run_id(1, 2));
    assert_eq!(hand.worker.running(), 1);
}

#[test]
fn a_decided_run_is_not_renewed_and_a_refusal_behind_it_is_moot() {
    let mut hand = Hand::new();
    let (_, run) = hand.run(message(1));
    let (renewal, _) = hand.wait(Span::from_secs(5)).renewal();
    let (finish, _) = hand.end(run, HandlerResult::Completed).finish();
    let current = run.token;
    let refused = RenewReply::Refused { current, state: ExecutionState::Completed };
    assert_eq!(hand.answer(renewal, Reply::RunsRenewed(vec![refused])).0, []);
    hand.unknown(finish);
    let effects = hand.wait(Span::from_secs(9));
    assert_eq!(effects.finish().1.items[0].run, run);
    assert!(!effects.commands().iter().any(|command| matches!(command, Command::RenewExecutions(_))));
}
