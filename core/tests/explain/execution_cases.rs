//! The cases of executions, in lifecycle order.

use fencepost_core::execution::{
    AttemptEnd, CancelState, DeadLetterReason, ExecutionState as S, LeaseSign, SkipReason, WaitReason,
};
use fencepost_core::explain::{ExecutionFacts, StandingSaid};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{DispatchNo, ExecutionId, JobVersion, Occurrence};
use fencepost_core::job::{HandlerName, HandlerRef, Standing};
use fencepost_core::pause::PauseScope;
use fencepost_core::retry;
use fencepost_core::store::row::{DeadLetterRow, JobState, NodeState, OutboxRow, RefusedAction};
use fencepost_core::time::{Span, Timestamp};

use crate::rows::{Happens, at, made, node, unreadable, with_policies};

const REFUSED: &str = "connection refused";

fn letter(facts: &mut ExecutionFacts) -> &mut DeadLetterRow {
    facts.dead_letter.as_mut().expect("the case has one")
}

/// Every case by the name of its golden.
pub(crate) fn all() -> Vec<(&'static str, ExecutionFacts)> {
    [pending(), retrying(), running(), given_up(), cancelled(), ended()].concat()
}

/// The queue that its definition says.
fn queue() -> PauseScope {
    PauseScope::Queue(HandlerRef { name: HandlerName::parse("report").expect("a name"), version: 2 })
}

/// Its job was paused right after the fire.
fn paused(facts: ExecutionFacts) -> ExecutionFacts {
    facts.with(|facts| {
        facts.job.standing = Standing::Paused;
        facts.job.version = JobVersion(2);
        facts.job.standing_since = JobVersion(2);
        facts.execution.waits = 0;
        facts.standing = StandingSaid {
            at: at("09:00:00.500"),
            actor: Some("Zoë".into()),
            reason: Some("the disk is full".into()),
        };
    })
}

fn pending() -> Vec<(&'static str, ExecutionFacts)> {
    vec![
        ("pending_just_committed", made()),
        (
            "pending_not_confirmed",
            made().later("09:05:00").with(|facts| {
                facts.outbox[0].tries = 6;
                facts.outbox[0].next_try_at = at("09:06:04");
            }),
        ),
        (
            "pending_not_confirmed_by_another_and_older",
            made().later("09:05:00").with(|facts| {
                facts.execution.dispatch_no = DispatchNo(2);
                let older = facts.outbox[0].clone();
                let latest = OutboxRow {
                    dispatch_no: DispatchNo(2),
                    created_by: crate::rows::OTHER_WORKER,
                    created_at: at("09:04:00"),
                    next_try_at: at("09:05:02"),
                    ..older.clone()
                };
                facts.outbox = vec![older, latest];
            }),
        ),
        ("pending_not_received", made().confirmed().later("09:00:20")),
        (
            "pending_not_received_dispatched_again",
            made().confirmed().later("09:04:00").with(|facts| {
                facts.execution.redispatches = 2;
                facts.execution.dispatch_no = DispatchNo(3);
                facts.execution.dispatched_at = Some(at("09:03:00"));
                facts.nodes[1].state = NodeState::Draining;
            }),
        ),
        (
            "pending_no_worker_present",
            made().confirmed().later("09:00:20").with(|facts| facts.nodes.truncate(1)),
        ),
        ("waiting_no_route", made().waits(WaitReason::NoRoute)),
        (
            "waiting_unknown_handler",
            made().waits(WaitReason::UnknownHandler).with(|facts| facts.execution.waits = 4),
        ),
        ("waiting_unreadable_message", made().waits(WaitReason::UnreadableMessage)),
        (
            "waiting_unreadable_definition",
            made().defined_by(unreadable()).waits(WaitReason::UnreadableDefinition),
        ),
        ("waiting_job_paused", paused(made().waits(WaitReason::JobPaused))),
        (
            "waiting_limit",
            made().defined_by(with_policies(r#","concurrency_key":"db""#)).waits(WaitReason::KeyLimit).with(
                |facts| {
                    facts.execution.waits = 0;
                    facts.limit = Some(fencepost_core::explain::LimitFacts {
                        row: Some(fencepost_core::store::row::LimitRow {
                            tenant: facts.execution.tenant,
                            key: "db".into(),
                            max_running: Some(2),
                            actor: "Zoë".into(),
                            reason: "the disk is slow".into(),
                            set_at: at("08:00:00"),
                        }),
                        running: 2,
                        held_by: Some(ExecutionId::from_u128(0xa11)),
                    });
                },
            ),
        ),
        (
            "waiting_buffered",
            made().defined_by(with_policies(r#","overlap":"buffer_one""#)).waits(WaitReason::Buffered).with(
                |facts| {
                    facts.execution.waits = 0;
                    facts.slot_holders = vec![(ExecutionId::from_u128(0xa11), S::Running)];
                },
            ),
        ),
        ("pending_of_a_paused_job", paused(made().confirmed().later("09:00:20"))),
        (
            "waiting_job_resumed",
            made().waits(WaitReason::JobPaused).with(|facts| {
                facts.standing.at = at("09:00:00.500");
                facts.execution.waits = 0;
            }),
        ),
        ("retry_of_a_paused_job", paused(failed_once())),
        ("pending_partition_lapsed", made().with(|facts| facts.partition_lease.expires_at = at("08:59:50"))),
        (
            "pending_partition_released",
            made().with(|facts| {
                facts.partition_lease.owner = None;
                facts.partition_lease.expires_at = Timestamp::EPOCH;
            }),
        ),
        (
            "pending_partition_never_granted",
            made().with(|facts| {
                facts.partition_lease.owner = None;
                facts.partition_lease.expires_at = Timestamp::EPOCH;
                facts.partition_lease.token = FencingToken::NEVER;
            }),
        ),
        (
            "pending_partition_of_before_the_clock_stepped_back",
            made().with(|facts| facts.partition_lease.expires_at = at("11:00:00")),
        ),
        (
            "pending_after_its_place_in_a_flex_window",
            made().later("09:00:38").with(|facts| {
                facts.definition = with_policies(r#","flex_ms":60000"#);
                facts.execution.due_at = at("09:00:37");
                facts.execution.materialised_at = at("09:00:37.012");
                facts.execution.dispatched_at = Some(at("09:00:37.012"));
                facts.outbox[0].created_at = at("09:00:37.012");
                facts.outbox[0].next_try_at = at("09:00:37.012");
                facts.partition_lease.expires_at = at("09:00:44");
            }),
        ),
        (
            "pending_with_high_priority",
            made().later("09:00:38").with(|facts| facts.definition = with_policies(r#","priority":"high""#)),
        ),
        (
            "pending_triggered",
            made().with(|facts| {
                facts.execution.occurrence = Occurrence::Manual { key: "order-42".into() };
                facts.execution.due_at = facts.execution.materialised_at;
                facts.execution.made_under = FencingToken::NEVER;
            }),
        ),
        (
            "pending_replay",
            made().with(|facts| {
                facts.execution.occurrence =
                    Occurrence::Replay { origin: ExecutionId::from_u128(0xdead), number: 1 };
                facts.execution.due_at = facts.execution.materialised_at;
            }),
        ),
    ]
}

/// One retryable failure, and the backoff after it.
fn failed_once() -> ExecutionFacts {
    let failed =
        made().leased("09:00:00.030").attempt("09:00:01.500", AttemptEnd::FailedRetryably, Some(REFUSED));
    let policy = retry::RetryPolicy::default();
    let delay = retry::backoff(&policy, failed.execution.id, 1);
    failed.set_back(delay)
}

fn retrying() -> Vec<(&'static str, ExecutionFacts)> {
    let aged = with_policies(r#","retry":{"max_attempts":4,"max_age_ms":600000}"#);
    vec![
        ("retry_by_backoff", failed_once().defined_by(aged)),
        (
            "retry_as_the_target_asked",
            made()
                .leased("09:00:00.030")
                .attempt("09:00:01.500", AttemptEnd::FailedRetryably, Some("503 Service Unavailable"))
                .set_back(Span::from_secs(30)),
        ),
        ("retry_overdue_without_owner", {
            failed_once().later("09:01:00").with(|facts| facts.partition_lease.expires_at = at("09:00:02"))
        }),
        ("retry_of_unreadable_definition", failed_once().defined_by(unreadable()).later("09:00:02")),
        (
            "rescue_after_a_sign_of_a_start",
            made()
                .leased("09:00:00.030")
                .renewed("09:00:05")
                .attempt("09:00:21", AttemptEnd::Lost, None)
                .set_back(retry::RESCUE_DELAY_BASE),
        ),
        (
            "rescue_without_a_sign_of_a_start",
            made()
                .leased("09:00:00.030")
                .attempt("09:00:16", AttemptEnd::Lost, None)
                .set_back(retry::RESCUE_DELAY_BASE),
        ),
        (
            "given_back_in_a_drain",
            made()
                .leased("09:00:00.030")
                .attempt("09:00:04", AttemptEnd::Released, None)
                .set_back(Span::ZERO),
        ),
        ("pending_after_a_failure", failed_once().promoted("09:00:03")),
    ]
}

fn running() -> Vec<(&'static str, ExecutionFacts)> {
    let started = || made().leased("09:00:00.030");
    vec![
        ("running_just_leased", started().later("09:00:01")),
        ("running_renewed", started().renewed("09:00:10").later("09:00:12")),
        (
            "running_renewed_by_a_worker_of_another_lease_time",
            started().renewed("09:00:10").later("09:00:12").with(|facts| {
                facts.execution.expires_at = at("09:00:42");
            }),
        ),
        ("running_last_attempt", {
            let policies = with_policies(r#","retry":{"max_attempts":2},"dead_letter":"off""#);
            failed_once().promoted("09:00:03").leased("09:00:03.020").renewed("09:00:08").defined_by(policies)
        }),
        ("running_with_its_last_rescue_spent", {
            let policies = with_policies(r#","retry":{"max_rescues":0}"#);
            started().renewed("09:00:05").defined_by(policies)
        }),
        ("running_asked_to_stop", started().renewed("09:00:05").asked_to_stop().later("09:00:06")),
        ("running_lease_lapsed", started().renewed("09:00:05").later("09:00:25")),
        (
            "running_lease_lapsed_without_leader",
            started().renewed("09:00:05").later("09:05:25").with(|facts| {
                facts.leadership.expires_at = at("09:01:00");
                let worker = facts.worker.as_mut().expect("it was leased");
                (worker.state, worker.seen_at) = (NodeState::Offline, at("09:00:06"));
            }),
        ),
        (
            "running_lease_lapsed_cancel_asked",
            started().renewed("09:00:05").asked_to_stop().later("09:00:25"),
        ),
        ("running_lease_lapsed_rescues_spent", {
            let policies = with_policies(r#","retry":{"max_rescues":0},"dead_letter":"off""#);
            started().renewed("09:00:05").later("09:00:25").defined_by(policies)
        }),
        (
            "running_lease_of_before_the_clock_stepped_back",
            started().renewed("09:00:05").with(|facts| facts.execution.expires_at = at("11:00:00")),
        ),
        (
            "running_while_an_older_worker_renews",
            failed_once()
                .promoted("09:00:03")
                .leased("09:00:03.020")
                .refused("09:00:04", RefusedAction::RenewExecution, 1)
                .with(|facts| facts.refusals[0].count = 3),
        ),
    ]
}

/// More policies of a job whose executions have half a minute.
fn bounded_policies(rest: &str) -> std::sync::Arc<fencepost_core::job::StoredDefinition> {
    with_policies(&format!(r#","attempt_timeout_ms":30000,"deadline_ms":30000{rest}"#))
}

fn bounded(facts: ExecutionFacts, deadline: &str) -> ExecutionFacts {
    facts.defined_by(bounded_policies("")).with(|facts| facts.execution.deadline_at = Some(at(deadline)))
}

fn given_up() -> Vec<(&'static str, ExecutionFacts)> {
    let policies = || with_policies(r#","retry":{"max_attempts":2,"max_age_ms":60000}"#);
    let kept_off = || with_policies(r#","retry":{"max_attempts":2},"dead_letter":"off""#);
    let failed_twice = || {
        failed_once().promoted("09:00:03").leased("09:00:03.020").attempt(
            "09:00:04",
            AttemptEnd::FailedForGood,
            Some(REFUSED),
        )
    };
    let failed_first = || {
        made().leased("09:00:00.030").attempt("09:00:01", AttemptEnd::FailedForGood, Some("404 Not Found"))
    };
    vec![
        (
            "dead_lettered_non_retryable",
            failed_first().ended("09:00:01", S::DeadLettered).dead_lettered(DeadLetterReason::NonRetryable),
        ),
        (
            "dead_lettered_exhausted",
            failed_twice()
                .ended("09:00:04", S::DeadLettered)
                .dead_lettered(DeadLetterReason::Exhausted)
                .defined_by(policies()),
        ),
        (
            "dead_lettered_too_old",
            made()
                .leased("09:00:50")
                .attempt("09:00:59.900", AttemptEnd::FailedForGood, Some(REFUSED))
                .ended("09:00:59.900", S::DeadLettered)
                .dead_lettered(DeadLetterReason::TooOld)
                .defined_by(policies()),
        ),
        (
            "dead_lettered_for_its_deadline_before_any_lease",
            bounded(made(), "09:00:30")
                .later("09:00:31")
                .ended("09:00:31", S::DeadLettered)
                .dead_lettered(DeadLetterReason::Deadline),
        ),
        (
            "dead_lettered_since_the_deadline_left_no_time_for_a_retry",
            bounded(made(), "09:00:30")
                .leased("09:00:00.030")
                .attempt("09:00:29.900", AttemptEnd::FailedForGood, Some(REFUSED))
                .ended("09:00:29.900", S::DeadLettered)
                .dead_lettered(DeadLetterReason::Deadline),
        ),
        (
            "failed_for_its_deadline_between_two_attempts",
            bounded(failed_once(), "09:00:30")
                .defined_by(bounded_policies(r#","dead_letter":"off""#))
                .ended("09:00:31", S::Failed),
        ),
        (
            "running_with_little_left_of_its_deadline",
            bounded(made(), "09:00:30").leased("09:00:00.030").later("09:00:29.500"),
        ),
        ("pending_past_its_deadline", bounded(made(), "09:00:30").later("09:00:32")),
        (
            "dead_lettered_rescues_spent_and_replayed_once",
            made()
                .leased("09:00:00.030")
                .attempt("09:00:16", AttemptEnd::Lost, None)
                .set_back(retry::RESCUE_DELAY_BASE)
                .promoted("09:00:17")
                .leased("09:00:17.020")
                .renewed("09:00:22")
                .attempt("09:00:38", AttemptEnd::Lost, None)
                .ended("09:00:38", S::DeadLettered)
                .dead_lettered(DeadLetterReason::RescuesSpent)
                .defined_by(with_policies(r#","retry":{"max_rescues":0}"#))
                .with(|facts| letter(facts).replays = 1),
        ),
        (
            "dead_lettered_and_purged",
            failed_first()
                .ended("09:00:01", S::DeadLettered)
                .dead_lettered(DeadLetterReason::NonRetryable)
                .with(|facts| {
                    let purged_at = facts.execution.finished_at;
                    *letter(facts) = DeadLetterRow { purged_at, error: None, ..letter(facts).clone() };
                }),
        ),
        (
            "dead_lettered_of_a_deleted_job",
            failed_first()
                .ended("09:00:01", S::DeadLettered)
                .dead_lettered(DeadLetterReason::NonRetryable)
                .with(|facts| facts.job.state = JobState::Deleted),
        ),
        ("dead_lettered_without_its_record", failed_first().ended("09:00:01", S::DeadLettered)),
        ("failed_exhausted", failed_twice().ended("09:00:04", S::Failed).defined_by(kept_off())),
        ("failed_non_retryable", failed_first().ended("09:00:01", S::Failed).defined_by(kept_off())),
        (
            "failed_rescues_spent",
            made()
                .leased("09:00:00.030")
                .renewed("09:00:05")
                .attempt("09:00:21", AttemptEnd::Lost, None)
                .ended("09:00:21", S::Failed)
                .defined_by(with_policies(r#","retry":{"max_rescues":0},"dead_letter":"off""#)),
        ),
    ]
}

fn cancelled() -> Vec<(&'static str, ExecutionFacts)> {
    let asked = || made().leased("09:00:00.030").renewed("09:00:05").asked_to_stop();
    vec![
        ("cancelled_while_pending", made().confirmed().ended("09:00:30", S::Cancelled)),
        (
            "cancelled_with_its_job",
            made().ended("09:00:30", S::Cancelled).with(|facts| {
                facts.job.state = JobState::Deleted;
                facts.job.effective_from = at("09:00:30");
                facts.job.next_fire_time = None;
            }),
        ),
        ("cancelled_between_runs", failed_once().ended("09:00:02", S::Cancelled)),
        (
            "cancelled_while_running",
            asked().attempt("09:00:06", AttemptEnd::Cancelled, None).ended("09:00:06", S::Cancelled),
        ),
        (
            "cancelled_while_running_by_a_failure",
            asked()
                .attempt("09:00:06", AttemptEnd::FailedRetryably, Some(REFUSED))
                .ended("09:00:06", S::Cancelled),
        ),
        (
            "cancelled_while_running_by_the_sweep",
            asked().attempt("09:00:21", AttemptEnd::Lost, None).ended("09:00:21", S::Cancelled),
        ),
    ]
}

fn ended() -> Vec<(&'static str, ExecutionFacts)> {
    let completed = || made().leased("09:00:00.030").renewed("09:00:05").ended("09:00:06", S::Completed);
    vec![
        ("completed", completed()),
        (
            "completed_after_retries_and_a_rescue",
            failed_once()
                .promoted("09:00:03")
                .leased("09:00:03.020")
                .renewed("09:00:08")
                .attempt("09:00:24", AttemptEnd::Lost, None)
                .set_back(retry::RESCUE_DELAY_BASE)
                .promoted("09:00:25")
                .leased("09:00:25.020")
                .attempt("09:00:41", AttemptEnd::Lost, None)
                .set_back(retry::RESCUE_DELAY_BASE)
                .promoted("09:00:42")
                .leased("09:00:42.020")
                .ended("09:00:43", S::Completed),
        ),
        (
            "completed_before_the_cancel_was_heard",
            made().leased("09:00:00.030").asked_to_stop().ended("09:00:02", S::Completed),
        ),
        (
            "completed_with_clamped_lag_and_an_outbox_row_left",
            completed().with(|facts| {
                facts.execution.published_at = Some(facts.execution.materialised_at);
                facts.execution.lag_clamped = true;
                facts.outbox = made().outbox;
                facts.leadership.owner = None;
                facts.leadership.expires_at = Timestamp::EPOCH;
            }),
        ),
        (
            "late_result_refused_after_the_end",
            failed_once()
                .promoted("09:00:03")
                .leased("09:00:03.020")
                .ended("09:00:04", S::Completed)
                .refused("09:00:09", RefusedAction::Finish, 1),
        ),
        (
            "skipped_for_misfire",
            made().with(|facts| {
                facts.outbox.clear();
                facts.execution.state = S::Skipped;
                facts.execution.skip_reason = Some(SkipReason::Misfire);
                facts.execution.materialised_at = at("09:10:00");
                facts.execution.dispatched_at = None;
                facts.now = at("09:12:00");
            }),
        ),
        (
            "skipped_for_overlap",
            made()
                .defined_by(with_policies(r#","overlap":"skip""#))
                .ended("09:00:00.050", S::Skipped)
                .with(|facts| facts.execution.skip_reason = Some(SkipReason::Overlap)),
        ),
        ("waiting_tenant_paused", made().under(PauseScope::Tenant, None).held()),
        ("waiting_queue_paused", made().under(queue(), None).held()),
        ("waiting_pause_ended", made().under(PauseScope::Tenant, Some("09:20:00")).held()),
        ("pending_of_a_paused_tenant_and_queue", made().under(PauseScope::Tenant, None).under(queue(), None)),
        ("retry_of_a_paused_queue", failed_once().under(queue(), None)),
        ("many_runs_given_back", {
            let mut facts = made();
            for second in 0..55 {
                let leased = format!("09:01:{second:02}");
                facts = facts.leased(&leased).attempt(&leased, AttemptEnd::Released, None);
                facts = facts.set_back(Span::ZERO).promoted(&leased);
            }
            // As they are read: one more than are told.
            facts.attempts.drain(..4);
            assert!(facts.execution.sign == LeaseSign::None && facts.execution.cancel == CancelState::None);
            facts.with(|facts| {
                facts.nodes.push(node(
                    crate::rows::OTHER_WORKER,
                    fencepost_core::store::row::NodeRole::Worker,
                    "worker-2",
                    facts.now,
                ))
            })
        }),
    ]
}
