//! The deliberate bugs of this role do what their names say: a mutant that changes nothing proves nothing.

use super::*;
use crate::bug::{Bug, Bugs};
use crate::store::command::RunOutcome;

fn with(bug: Bug) -> Hand {
    Hand::with(|config| config.bugs = Bugs::only(bug))
}

#[test]
fn starts_without_lease() {
    let mut hand = with(Bug::StartsWithoutLease);
    let (_, effects) = hand.deliver(message(1));
    let reply = AcquireReply::Never { state: ExecutionState::Running };
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![reply]));
    assert_eq!(effects.started().len(), 1);
}

#[test]
fn copy_starts_again() {
    let mut hand = with(Bug::CopyStartsAgain);
    let (_, run) = hand.run(message(1));
    let (_, effects) = hand.deliver(message(1));
    assert_eq!(effects.started()[0].run, run);
}

#[test]
fn key_per_attempt() {
    let mut hand = with(Bug::KeyPerAttempt);
    let (_, effects) = hand.deliver(message(1));
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![granted_after(3, 1)]));
    assert_eq!(&*effects.started()[0].message.key, "key-1#2");
}

#[test]
fn retries_for_ever_and_too_soon() {
    let mut hand = with(Bug::RetriesForEver);
    let (_, run) = hand.run(ExecutionMessage {
        retry: RetryPolicy { max_attempts: 1, ..RetryPolicy::default() },
        ..message(1)
    });
    let (_, finish) = hand.end(run, failed("boom")).finish();
    assert!(matches!(finish.items[0].outcome, RunOutcome::Retry { .. }));

    let mut hand = with(Bug::RetriesTooSoon);
    let (_, run) = hand.run(message(1));
    let (_, finish) = hand.end(run, failed("boom")).finish();
    assert!(matches!(finish.items[0].outcome, RunOutcome::Retry { delay, .. } if delay <= ms(250)));
}

#[test]
fn no_attempt_timeout() {
    let mut hand = with(Bug::NoAttemptTimeout);
    hand.run(message(1));
    for _ in 0..20 {
        let (call, _) = hand.wait(Span::from_secs(5)).renewal();
        assert_eq!(hand.answer(call, Reply::RunsRenewed(vec![renewed()])).stopped(), []);
    }
}

#[test]
fn finish_sent_once() {
    let mut hand = with(Bug::FinishSentOnce);
    let (_, run) = hand.run(message(1));
    let (call, _) = hand.end(run, HandlerResult::Completed).finish();
    hand.unknown(call);
    for _ in 0..3 {
        let effects = hand.wait(Span::from_secs(5));
        let (call, renewal) = effects.renewal();
        assert_eq!(renewal.runs, [run]);
        hand.answer(call, Reply::RunsRenewed(vec![renewed()]));
    }
}

#[test]
fn unknown_acquire_awaited() {
    let mut hand = with(Bug::UnknownAcquireAwaited);
    let (_, effects) = hand.deliver(message(1));
    hand.unknown(effects.acquire().0);
    hand.deliver(message(2));
    assert!(hand.wait(Span::from_secs(60)).commands().iter().all(|c| matches!(c, Command::Heartbeat(_))));
}

#[test]
fn drain_waits_for_handlers() {
    let mut hand = with(Bug::DrainWaitsForHandlers);
    hand.run(message(1));
    hand.send(WorkerEvent::DrainRequested);
    assert_eq!(hand.wait(Span::from_secs(3_600)).count(&WorkerEffect::Drained), 0);
}

/// A worker whose one slot is held, with a low one that came first and five high ones; what it asks for in turn.
fn served(bug: Bug) -> Vec<u128> {
    let mut hand = Hand::with(|config| {
        config.slots = 1;
        config.bugs = Bugs::only(bug);
    });
    hand.run(message(1));
    hand.deliver(ExecutionMessage { priority: Priority::Low, ..message(2) });
    for number in 3..13 {
        hand.now = hand.now.plus(ms(1));
        hand.deliver(ExecutionMessage { priority: Priority::High, ..message(number) });
    }
    let mut asked = Vec::new();
    let mut running = 1;
    while asked.len() < 11 {
        let effects = hand.end(run_id(running, 1), HandlerResult::Completed);
        let effects = hand.answer(effects.finish().0, Reply::Finished(vec![completed()]));
        let (call, ask) = effects.acquire();
        running = ask.items[0].execution.as_uuid().as_u128();
        asked.push(running);
        hand.answer(call, Reply::Acquired(vec![granted(1)]));
    }
    asked
}

#[test]
fn highest_priority_alone_and_priorities_are_ignored() {
    assert_eq!(served(Bug::HighestPriorityAlone).last(), Some(&2));
    assert_eq!(served(Bug::PrioritiesAreIgnored).first(), Some(&2));
}
