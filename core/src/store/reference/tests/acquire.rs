//! Execution leases, their renewal, and putting off.

use super::*;
use crate::execution::{CancelState, ExecutionState, LeaseSign};
use crate::limits::{LEASE_TTL_MAX, WAIT_DELAY_MAX};
use crate::store::row::{RefusedAction, RefusedResource};

#[test]
fn a_pending_execution_is_granted_under_the_next_token() {
    let mut world = World::with_execution();
    world.pass(secs(5));
    let grant = world.granted(WORKER);
    assert_eq!((grant.token, grant.attempts, grant.age), (FencingToken::from_i64(1), 0, secs(5)));
    let row = world.execution();
    assert_eq!(
        (row.state, row.owner, row.expires_at),
        (ExecutionState::Running, Some(WORKER), world.now.plus(TTL))
    );
    assert_eq!((row.sign, row.redispatches, row.started_at), (LeaseSign::None, 0, None));
}

#[test]
fn an_acquire_sent_again_is_answered_with_the_same_grant_which_lasts_no_longer() {
    let mut world = World::with_execution();
    let ask = world.ask_execution(WORKER);
    let first = world.acquire(&ask);
    world.pass(secs(3));
    let again = world.changes_nothing(Command::AcquireExecutions(ask));
    assert_eq!(again, Reply::Acquired(vec![first]));
}

#[test]
fn an_acquire_sent_again_learns_that_its_run_is_to_stop() {
    let mut world = World::with_execution();
    let ask = world.ask_execution(WORKER);
    world.acquire(&ask);
    world.ask_to_stop();
    let AcquireReply::Granted(again) = world.acquire(&ask) else { panic!("it runs under this nonce") };
    assert_eq!(again.cancel, CancelState::Requested);
}

#[test]
fn what_runs_is_granted_to_nobody_else() {
    let (mut world, _) = World::with_run();
    for node in [WORKER, OTHER_WORKER] {
        let ask = world.ask_execution(node);
        assert_eq!(world.acquire(&ask), AcquireReply::Never { state: ExecutionState::Running });
    }
}

#[test]
fn nonces_are_told_apart_by_node() {
    let mut world = World::with_execution();
    let ask = world.ask_execution(WORKER);
    world.acquire(&ask);
    let other = AcquireExecutions { node: OTHER_WORKER, ..ask };
    assert_eq!(world.acquire(&other), AcquireReply::Never { state: ExecutionState::Running });
}

#[test]
fn a_run_whose_lease_lapsed_is_left_to_the_sweep() {
    let mut world = World::with_execution();
    let ask = world.ask_execution(WORKER);
    world.acquire(&ask);
    world.pass(TTL);
    let never = AcquireReply::Never { state: ExecutionState::Running };
    assert_eq!(world.acquire(&ask), never);
    let other = world.ask_execution(OTHER_WORKER);
    assert_eq!(world.acquire(&other), never);
}

#[test]
fn an_acquire_sent_again_after_its_run_ended_starts_no_other() {
    let mut world = World::with_execution();
    let ask = world.ask_execution(WORKER);
    let AcquireReply::Granted(grant) = world.acquire(&ask) else { panic!("it is pending") };
    let run = RunId { execution: execution_id(1), token: grant.token };
    world.finish(WORKER, run, RunOutcome::Released);
    assert_eq!(world.acquire(&ask), AcquireReply::Never { state: ExecutionState::RetryWait });
    world.promote();
    assert_eq!(world.acquire(&ask), AcquireReply::Never { state: ExecutionState::Pending });
    let fresh = world.ask_execution(WORKER);
    assert!(matches!(world.acquire(&fresh), AcquireReply::Granted(_)));
}

#[test]
fn a_retry_does_not_start_before_it_is_promoted() {
    let (mut world, run) = World::with_run();
    world.finish(WORKER, run, RunOutcome::Retry { delay: secs(1), error: "no".into() });
    world.pass(MINUTE);
    let ask = world.ask_execution(OTHER_WORKER);
    assert_eq!(world.acquire(&ask), AcquireReply::NotNow { state: ExecutionState::RetryWait });
}

#[test]
fn what_has_ended_is_never_granted() {
    let (mut world, run) = World::with_run();
    world.finish(WORKER, run, RunOutcome::Completed);
    let ask = world.ask_execution(OTHER_WORKER);
    assert_eq!(world.acquire(&ask), AcquireReply::Never { state: ExecutionState::Completed });
}

#[test]
fn what_is_not_there_is_absent_and_recorded_nowhere() {
    let mut world = World::new();
    let ask = world.ask_execution(WORKER);
    assert_eq!(world.acquire(&ask), AcquireReply::Absent);
    let run = RunId { execution: execution_id(1), token: FencingToken::NEVER };
    assert_eq!(world.renew_run(WORKER, run), RenewReply::Absent);
    assert_eq!(world.finish(WORKER, run, RunOutcome::Completed), FinishReply::Absent);
    assert_eq!(world.defer(WaitReason::NoRoute), DeferReply::Absent);
    assert!(world.refusals().is_empty());
}

#[test]
fn an_older_dispatch_starts_what_waits_and_clears_its_waiting() {
    let mut world = World::with_execution();
    world.defer(WaitReason::UnknownHandler);
    world.granted(WORKER);
    let row = world.execution();
    assert_eq!((row.waiting, row.next_try_at, row.waits), (None, None, 0));
    world.pass(MINUTE);
    assert_eq!(world.promote().0, []);
}

#[test]
fn a_token_that_cannot_rise_is_granted_to_nobody() {
    let mut world = World::with_execution();
    world.doctor(|row| row.token = FencingToken::from_i64(i64::MAX));
    let ask = world.ask_execution(WORKER);
    assert_eq!(world.acquire(&ask), AcquireReply::Never { state: ExecutionState::Pending });
}

#[test]
fn the_lag_stamps_follow_what_was_reported() {
    let mut world = World::with_execution();
    world.pass(secs(10));
    let mut ask = world.ask_execution(WORKER);
    ask.items[0].published_at = fire(1).plus(secs(2));
    ask.items[0].held = secs(3);
    world.acquire(&ask);
    let row = world.execution();
    assert_eq!(row.published_at, Some(fire(1).plus(secs(2))));
    assert_eq!(row.received_at, Some(fire(1).plus(secs(7))));
    assert_eq!((row.leased_at, row.lag_clamped), (Some(world.now), false));
}

#[test]
fn lag_stamps_that_cannot_be_are_clamped_and_flagged() {
    let cases = [(secs(20), secs(0), secs(10), secs(10)), (secs(2), secs(9), secs(2), secs(2))];
    for (published, held, published_at, received_at) in cases {
        let mut world = World::with_execution();
        world.pass(secs(10));
        let mut ask = world.ask_execution(WORKER);
        ask.items[0].published_at = fire(1).plus(published);
        ask.items[0].held = held;
        world.acquire(&ask);
        let row = world.execution();
        assert_eq!(row.published_at, Some(fire(1).plus(published_at)));
        assert_eq!(row.received_at, Some(fire(1).plus(received_at)));
        assert_eq!((row.leased_at, row.lag_clamped), (Some(world.now), true));
    }
}

#[test]
fn lag_stamps_keep_their_order_when_the_clock_steps_back() {
    let mut world = World::with_execution();
    world.step_back(secs(30));
    world.granted(WORKER);
    let row = world.execution();
    let stamps = (row.published_at, row.received_at, row.leased_at);
    assert_eq!(stamps, (Some(fire(1)), Some(fire(1)), Some(fire(1))));
    assert!(row.lag_clamped);
}

#[test]
fn a_renewal_extends_even_a_lapsed_lease_and_is_a_sign_of_a_start() {
    let (mut world, run) = World::with_run();
    world.pass(MINUTE);
    assert_eq!(world.renew_run(WORKER, run), RenewReply::Renewed { cancel: CancelState::None });
    let row = world.execution();
    assert_eq!((row.expires_at, row.sign, row.token), (world.now.plus(TTL), LeaseSign::Started, run.token));
}

#[test]
fn a_renewal_brings_the_news_of_a_cancel_request() {
    let (mut world, run) = World::with_run();
    world.ask_to_stop();
    assert_eq!(world.renew_run(WORKER, run), RenewReply::Renewed { cancel: CancelState::Requested });
}

#[test]
fn a_run_that_has_passed_on_is_not_renewed_and_that_is_recorded() {
    let (mut world, run) = World::with_run();
    world.finish(WORKER, run, RunOutcome::Released);
    let refused = RenewReply::Refused { current: run.token, state: ExecutionState::RetryWait };
    assert_eq!(world.renew_run(WORKER, run), refused);
    world.promote();
    let current = world.granted(OTHER_WORKER).token;
    let refused = RenewReply::Refused { current, state: ExecutionState::Running };
    assert_eq!(world.renew_run(WORKER, run), refused);
    let refusal = world.refusals()[0];
    assert_eq!(
        (refusal.resource, refusal.action),
        (RefusedResource::Execution(execution_id(1)), RefusedAction::RenewExecution)
    );
    assert_eq!((refusal.token, refusal.current, refusal.count), (run.token, run.token, 2));
}

#[test]
fn a_lease_further_ahead_than_any_grant_reaches_answers_no_resend() {
    let mut world = World::with_execution();
    let ask = world.ask_execution(WORKER);
    world.acquire(&ask);
    world.step_back(LEASE_TTL_MAX);
    assert_eq!(world.acquire(&ask), AcquireReply::Never { state: ExecutionState::Running });
}

#[test]
fn each_deferral_waits_twice_as_long_up_to_the_longest() {
    let mut world = World::with_execution();
    for delay in [4, 8, 16, 32, 64, 128, 256, 300, 300] {
        assert_eq!(world.defer(WaitReason::UnknownHandler), DeferReply::Recorded);
        let row = world.execution();
        assert_eq!(row.next_try_at, Some(world.now.plus(secs(delay))), "after {} waits", row.waits);
        world.pass(WAIT_DELAY_MAX);
        assert_eq!(world.promote().0.len(), 1);
    }
}

#[test]
fn what_waits_already_keeps_its_reason_and_its_time() {
    let mut world = World::with_execution();
    world.defer(WaitReason::UnknownHandler);
    let before = world.execution().clone();
    world.pass(secs(1));
    assert_eq!(world.defer(WaitReason::NoRoute), DeferReply::Recorded);
    assert_eq!(world.execution(), &before);
}

#[test]
fn only_what_is_pending_is_deferred() {
    let (mut world, _) = World::with_run();
    assert_eq!(world.defer(WaitReason::NoRoute), DeferReply::NotPending { state: ExecutionState::Running });
}
