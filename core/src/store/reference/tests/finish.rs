//! The ends of runs.

use super::*;
use crate::execution::{AttemptEnd, CancelState, DeadLetterReason, ExecutionState};
use crate::lease::may_be_taken;
use crate::store::row::{AttemptRow, RefusedAction, RefusedResource};

fn retry() -> RunOutcome {
    RunOutcome::Retry { delay: secs(7), error: "connection refused".into() }
}

fn dead_lettered() -> RunOutcome {
    RunOutcome::DeadLettered { reason: DeadLetterReason::NonRetryable, error: "bad request".into() }
}

fn failed() -> RunOutcome {
    RunOutcome::Failed { error: "bad request".into() }
}

fn every_outcome() -> [RunOutcome; 6] {
    [RunOutcome::Completed, retry(), dead_lettered(), failed(), RunOutcome::Released, RunOutcome::Cancelled]
}

impl World {
    fn attempt(&self) -> Option<&AttemptRow> {
        self.store.tables().attempts().iter().last()
    }

    /// What an outcome makes of a run: the state, failed attempts, and how the attempt is recorded.
    fn ended(outcome: RunOutcome, cancel: CancelState) -> (ExecutionState, u32, Option<AttemptEnd>) {
        let (mut world, run) = Self::with_run();
        if cancel == CancelState::Requested {
            world.ask_to_stop();
        }
        let reply = world.finish(WORKER, run, outcome);
        let row = world.execution();
        assert_eq!(reply, FinishReply::Applied { state: row.state });
        assert_eq!((row.owner, row.expires_at), (None, Timestamp::EPOCH));
        assert_eq!(row.finished_at.is_some(), row.state.is_terminal());
        assert_eq!(row.next_try_at.is_some(), !row.state.is_terminal());
        (row.state, row.attempts, world.attempt().map(|attempt| attempt.end))
    }
}

#[test]
fn each_outcome_has_its_state_its_count_and_its_record() {
    use AttemptEnd as End;
    use ExecutionState as State;
    let expected = [
        (State::Completed, 0, None),
        (State::RetryWait, 1, Some(End::FailedRetryably)),
        (State::DeadLettered, 1, Some(End::FailedForGood)),
        (State::Failed, 1, Some(End::FailedForGood)),
        (State::RetryWait, 0, Some(End::Released)),
        (State::RetryWait, 0, Some(End::Released)),
    ];
    for (outcome, expected) in every_outcome().into_iter().zip(expected) {
        assert_eq!(World::ended(outcome.clone(), CancelState::None), expected, "{outcome:?}");
    }
}

#[test]
fn a_cancel_request_makes_an_end_of_what_would_be_tried_again() {
    use AttemptEnd as End;
    use ExecutionState as State;
    let expected = [
        (State::Completed, 0, None),
        (State::Cancelled, 1, Some(End::FailedRetryably)),
        (State::DeadLettered, 1, Some(End::FailedForGood)),
        (State::Failed, 1, Some(End::FailedForGood)),
        (State::Cancelled, 0, Some(End::Released)),
        (State::Cancelled, 0, Some(End::Cancelled)),
    ];
    for (outcome, expected) in every_outcome().into_iter().zip(expected) {
        assert_eq!(World::ended(outcome.clone(), CancelState::Requested), expected, "{outcome:?}");
    }
}

#[test]
fn a_retry_is_due_after_its_delay_and_a_release_at_once() {
    for (outcome, delay) in
        [(retry(), secs(7)), (RunOutcome::Released, Span::ZERO), (RunOutcome::Cancelled, Span::ZERO)]
    {
        let (mut world, run) = World::with_run();
        world.finish(WORKER, run, outcome);
        assert_eq!(world.execution().next_try_at, Some(world.now.plus(delay)));
    }
}

#[test]
fn a_failed_attempt_is_recorded_with_its_worker_and_number() {
    let (mut world, run) = World::with_run();
    world.finish(WORKER, run, retry());
    world.promote();
    let token = world.granted(OTHER_WORKER).token;
    world.finish(OTHER_WORKER, RunId { token, ..run }, retry());
    let expected = AttemptRow {
        execution: execution_id(1),
        token,
        tenant: TENANT,
        node: Some(OTHER_WORKER),
        attempt: 2,
        end: AttemptEnd::FailedRetryably,
        error: Some("connection refused".into()),
        at: world.now,
    };
    assert_eq!(world.attempt(), Some(&expected));
    assert_eq!(world.execution().error.as_deref(), Some("connection refused"));
}

#[test]
fn a_dead_letter_has_one_record_with_reason_and_counts() {
    let (mut world, run) = World::with_run();
    world.finish(WORKER, run, dead_lettered());
    let records: Vec<_> = world.store.tables().dead_letters().iter().collect();
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].execution, records[0].reason), (execution_id(1), DeadLetterReason::NonRetryable));
    assert_eq!((records[0].attempts, records[0].error.as_deref()), (1, Some("bad request")));
}

#[test]
fn a_job_without_dead_letters_keeps_no_record() {
    let (mut world, run) = World::with_run();
    world.finish(WORKER, run, failed());
    assert!(world.store.tables().dead_letters().is_empty());
}

#[test]
fn a_finish_after_the_lease_lapsed_is_accepted_while_nobody_took_it() {
    let (mut world, run) = World::with_run();
    world.pass(MINUTE);
    assert!(may_be_taken(world.execution().expires_at, world.now));
    let reply = world.finish(WORKER, run, RunOutcome::Completed);
    assert_eq!(reply, FinishReply::Applied { state: ExecutionState::Completed });
}

#[test]
fn a_worker_that_lost_its_lease_cannot_finish() {
    let (mut world, run) = World::with_run();
    world.finish(WORKER, run, RunOutcome::Released);
    world.promote();
    let current = world.granted(OTHER_WORKER).token;
    for outcome in [RunOutcome::Completed, retry(), dead_lettered(), failed()] {
        let reply = world.finish(WORKER, run, outcome);
        assert_eq!(reply, FinishReply::Refused { current, state: ExecutionState::Running });
    }
    let refusal = world.refusals()[0];
    assert_eq!(refusal.resource, RefusedResource::Execution(execution_id(1)));
    assert_eq!((refusal.action, refusal.token, refusal.current), (RefusedAction::Finish, run.token, current));
    assert_eq!((refusal.node, refusal.count), (WORKER, 4));
}

#[test]
fn a_late_finish_does_not_overwrite_a_committed_outcome() {
    let (mut world, run) = World::with_run();
    world.finish(WORKER, run, RunOutcome::Released);
    world.promote();
    let token = world.granted(OTHER_WORKER).token;
    world.finish(OTHER_WORKER, RunId { token, ..run }, RunOutcome::Completed);
    let committed = world.execution().clone();
    for outcome in [RunOutcome::Completed, retry(), dead_lettered()] {
        let reply = world.finish(WORKER, run, outcome);
        assert_eq!(reply, FinishReply::Refused { current: token, state: ExecutionState::Completed });
        assert_eq!(world.execution(), &committed);
    }
}

#[test]
fn a_finish_sent_again_is_answered_already_and_is_no_refusal() {
    for outcome in every_outcome() {
        let (mut world, run) = World::with_run();
        world.finish(WORKER, run, outcome.clone());
        world.pass(secs(1));
        let state = world.execution().state;
        let item = FinishExecution { run, outcome, started_ago: None };
        let again = Command::FinishExecutions(FinishExecutions { node: WORKER, items: vec![item] });
        assert_eq!(world.changes_nothing(again), Reply::Finished(vec![FinishReply::Already { state }]));
    }
}

#[test]
fn a_finish_sent_again_after_later_runs_is_still_recognised() {
    let (mut world, run) = World::with_run();
    world.finish(WORKER, run, retry());
    world.promote();
    world.granted(OTHER_WORKER);
    let reply = world.finish(WORKER, run, retry());
    assert_eq!(reply, FinishReply::Already { state: ExecutionState::Running });
}

#[test]
fn a_cancelled_finish_sent_again_after_a_cancel_request_is_still_recognised() {
    for asked in [CancelState::None, CancelState::Requested] {
        let (mut world, run) = World::with_run();
        if asked == CancelState::Requested {
            world.ask_to_stop();
        }
        world.finish(WORKER, run, RunOutcome::Cancelled);
        let state = world.execution().state;
        assert_eq!(world.finish(WORKER, run, RunOutcome::Cancelled), FinishReply::Already { state });
    }
}

#[test]
fn another_outcome_under_a_token_that_has_ended_is_refused() {
    let (mut world, run) = World::with_run();
    world.finish(WORKER, run, dead_lettered());
    let refused = FinishReply::Refused { current: run.token, state: ExecutionState::DeadLettered };
    for outcome in [RunOutcome::Completed, retry(), failed(), RunOutcome::Released] {
        assert_eq!(world.finish(WORKER, run, outcome), refused);
    }
}

#[test]
fn a_start_is_stamped_between_the_lease_and_the_end() {
    let (mut world, run) = World::with_run();
    world.pass(secs(9));
    let outcome = RunOutcome::Completed;
    let item = FinishExecution { run, outcome, started_ago: Some(secs(5)) };
    world.apply(Command::FinishExecutions(FinishExecutions { node: WORKER, items: vec![item] }));
    let row = world.execution();
    assert_eq!((row.started_at, row.finished_at), (Some(fire(1).plus(secs(4))), Some(world.now)));
    assert!(!row.lag_clamped);
}

#[test]
fn a_start_before_the_lease_is_clamped_and_flagged() {
    let (mut world, run) = World::with_run();
    world.pass(secs(3));
    let item = FinishExecution { run, outcome: retry(), started_ago: Some(secs(5)) };
    world.apply(Command::FinishExecutions(FinishExecutions { node: WORKER, items: vec![item] }));
    let row = world.execution();
    assert_eq!((row.started_at, row.finished_at, row.lag_clamped), (row.leased_at, None, true));
}

#[test]
fn a_run_ends_no_earlier_than_it_began_when_the_clock_steps_back() {
    let (mut world, run) = World::with_run();
    world.step_back(secs(30));
    world.finish(WORKER, run, RunOutcome::Completed);
    let row = world.execution();
    assert_eq!((row.started_at, row.finished_at), (row.leased_at, row.leased_at));
    assert!(row.lag_clamped);
}

#[test]
fn a_handler_that_never_started_leaves_no_start() {
    let (mut world, run) = World::with_run();
    let item = FinishExecution { run, outcome: RunOutcome::Released, started_ago: None };
    world.apply(Command::FinishExecutions(FinishExecutions { node: WORKER, items: vec![item] }));
    assert_eq!(world.execution().started_at, None);
}
