//! Pauses of a tenant and of a queue: against each other, and against whoever starts or dispatches what they reach.

use std::sync::Arc;

use fencepost_core::execution::ExecutionState;
use fencepost_core::id::PauseId;
use fencepost_core::job::{HandlerName, HandlerRef};
use fencepost_core::pause::PauseScope;
use fencepost_core::store::command::{Command, OperatorRequest, PauseChange, SetPause};
use fencepost_core::store::reply::{AcquireReply, Reply, SetPauseReply};
use uuid::Uuid;

use crate::authority::Row;
use crate::case::{Act, Case};
use crate::world::*;

/// Why an acquisition and a pause wait for nobody.
const UNLOCKED: &str = "what is paused is read without a lock, once the execution's row is held";
/// Why a promotion and a resume wait for nobody.
const FOUND_LATER: &str = "what a resume leaves waiting is found by whoever promotes next";

/// What is held back is recorded against its resume.
pub(crate) const HELD_AGAINST_RESUME: &str = "acquiring what a tenant's pause holds back against the resume";

const FIRST: PauseId = PauseId::from_u128(0x1);
const SECOND: PauseId = PauseId::from_u128(0x2);

fn set(change: PauseChange, request: Option<&str>) -> Command {
    let request =
        request.map(|request| OperatorRequest { request: request.into(), fingerprint: Uuid::from_u128(1) });
    let (actor, reason): (Arc<str>, Arc<str>) = ("somebody".into(), "some reason".into());
    Command::SetPause(SetPause { tenant: TENANT, request, change, actor, reason })
}

fn pause_tenant(pause: PauseId, request: Option<&str>) -> Command {
    set(PauseChange::Pause { pause, scope: PauseScope::Tenant }, request)
}

fn pause_queue(pause: PauseId) -> Command {
    let handler = HandlerRef { name: HandlerName::parse("noop").expect("a name"), version: 1 };
    set(PauseChange::Pause { pause, scope: PauseScope::Queue(handler) }, None)
}

fn resume_first(at_once: u32) -> Command {
    set(PauseChange::Resume { pause: FIRST, at_once }, None)
}

fn is_already(reply: &Reply) -> bool {
    matches!(reply, Reply::PauseSet(SetPauseReply::Already { .. }))
}

fn is_repeated(reply: &Reply) -> bool {
    *reply == Reply::PauseSet(SetPauseReply::Repeated { pause: FIRST })
}

fn is_held_back(reply: &Reply) -> bool {
    let held_back = AcquireReply::NotNow { state: ExecutionState::Pending };
    matches!(reply, Reply::Acquired(replies) if *replies == [held_back])
}

fn is_granted(reply: &Reply) -> bool {
    matches!(reply, Reply::Acquired(replies) if matches!(replies[..], [AcquireReply::Granted(_)]))
}

fn is_dispatched(reply: &Reply) -> bool {
    matches!(reply, Reply::Promoted { dispatches, .. } if dispatches.len() == 1)
}

fn and(mut before: Vec<Act>, acts: impl IntoIterator<Item = Act>) -> Vec<Act> {
    before.extend(acts);
    before
}

fn case(name: &'static str, before: Vec<Act>, guarded: Command, rival: Command) -> Case {
    Case::new(name, Row::Operator, before, at(30, guarded), at(31, rival))
}

pub(crate) fn cases() -> Vec<Case> {
    let paused = || and(with_pending(), [at(20, pause_tenant(FIRST, None))]);
    let queue_paused = and(with_pending(), [at(20, pause_queue(FIRST))]);
    let held = and(paused(), [at(21, acquire(OTHER_WORKER, 3))]);
    vec![
        case(
            "pausing a tenant against its pause",
            with_job(),
            pause_tenant(FIRST, None),
            pause_tenant(SECOND, None),
        )
        .yields(is_already),
        case(
            "pausing a tenant against the same request",
            with_job(),
            pause_tenant(SECOND, Some("r")),
            pause_tenant(FIRST, Some("r")),
        )
        .yields(is_repeated),
        case("resuming a tenant against its resume", paused(), resume_first(1), resume_first(1))
            .yields(is_already),
        Case::new(
            "acquiring against a pause of the tenant",
            Row::AcquireExecution,
            with_pending(),
            at(30, acquire(WORKER, 7)),
            at(31, pause_tenant(FIRST, None)),
        )
        .yields(is_held_back)
        .in_either_order(UNLOCKED)
        .passes_by(UNLOCKED),
        Case::new(
            "acquiring against a pause of the queue",
            Row::AcquireExecution,
            with_pending(),
            at(30, acquire(WORKER, 7)),
            at(31, pause_queue(FIRST)),
        )
        .yields(is_held_back)
        .in_either_order(UNLOCKED)
        .passes_by(UNLOCKED),
        Case::new(
            HELD_AGAINST_RESUME,
            Row::AcquireExecution,
            paused(),
            at(30, acquire(WORKER, 7)),
            at(31, resume_first(1)),
        )
        .yields(is_granted),
        Case::new(
            "acquiring what a queue's pause holds back against the resume",
            Row::AcquireExecution,
            queue_paused,
            at(30, acquire(WORKER, 7)),
            at(31, resume_first(0)),
        )
        .yields(is_granted),
        Case::new(
            "promoting against a resume that leaves it waiting",
            Row::Promote,
            held,
            at(30, promote()),
            at(31, resume_first(0)),
        )
        .yields(is_dispatched)
        .in_either_order(FOUND_LATER)
        .passes_by(FOUND_LATER),
    ]
}
