//! Who asks for a place under a concurrency limit, against another that asks, against the end of what has it, and against
//! whoever sets the limit.

use std::sync::Arc;

use fencepost_core::execution::ExecutionState;
use fencepost_core::id::{EffectId, ExecutionId, JobId, NodeId, Occurrence};
use fencepost_core::job::StoredDefinition;
use fencepost_core::lease::RunId;
use fencepost_core::store::command::{
    AcquireExecution, AcquireExecutions, Command, CreateJob, FinishExecution, FinishExecutions,
    OperatorRequest, RunOutcome, SetLimit, TriggerJob,
};
use fencepost_core::store::reply::{AcquireReply, Reply, SetLimitReply};
use fencepost_core::time::Span;
use uuid::Uuid;

use crate::authority::Row;
use crate::case::{Act, Case};
use crate::world::*;

/// Two of different jobs ask for the only place.
pub(crate) const TWO_ASK: &str = "acquiring under the limit of a key against another of that key";

/// A job that fires by hand alone, counted by the one key there is.
fn create(id: JobId, name: &str) -> Command {
    let text = format!(
        r#"{{"schema":1,"definition":{{"name":"{name}","handler":{{"name":"noop"}},"schedule":{{"kind":"manual"}},"concurrency_key":"k"}}}}"#
    );
    Command::CreateJob(CreateJob {
        tenant: TENANT,
        job: id,
        request: None,
        definition: Arc::new(StoredDefinition::from_text(text.into())),
        planned_at: second(0),
        recorded_through: second(0),
        next_fire_time: None,
        next_flex: Span::ZERO,
    })
}

fn occurrence() -> Occurrence {
    Occurrence::Manual { key: "once".into() }
}

fn trigger_of(id: JobId) -> Command {
    Command::TriggerJob(TriggerJob {
        tenant: TENANT,
        job: id,
        execution: execution_of(id),
        key: "once".into(),
        payload: None,
        node: OWNER,
    })
}

fn execution_of(id: JobId) -> ExecutionId {
    occurrence().execution_id(id)
}

fn acquire_of(id: JobId, node: NodeId) -> Command {
    let item = AcquireExecution {
        execution: execution_of(id),
        nonce: EffectId(7),
        published_at: second(12),
        held: Span::ZERO,
    };
    Command::AcquireExecutions(AcquireExecutions { node, ttl: TTL, items: vec![item] })
}

fn finish_of(id: JobId) -> Command {
    let run = RunId { execution: execution_of(id), token: token() };
    let item = FinishExecution { run, outcome: RunOutcome::Completed, started_ago: None };
    Command::FinishExecutions(FinishExecutions { node: WORKER, items: vec![item] })
}

fn set(key: Option<&str>, max_running: Option<u32>, request: Option<&str>) -> Command {
    Command::SetLimit(SetLimit {
        tenant: TENANT,
        key: key.map(Into::into),
        max_running,
        request: request
            .map(|request| OperatorRequest { request: request.into(), fingerprint: Uuid::from_u128(1) }),
        actor: "somebody".into(),
        reason: "some reason".into(),
        node: OWNER,
    })
}

/// An execution of each of two jobs, and what is said.
fn with_two(acts: impl IntoIterator<Item = Act>) -> Vec<Act> {
    let mut before = with_tenant();
    before.extend([at(0, create(job(), "a")), at(0, create(next_job(), "b"))]);
    before.extend([at(10, trigger_of(job())), at(11, trigger_of(next_job()))]);
    before.extend(acts);
    before
}

fn is_held_back(reply: &Reply) -> bool {
    let held_back = AcquireReply::NotNow { state: ExecutionState::Pending };
    matches!(reply, Reply::Acquired(replies) if *replies == [held_back])
}

fn is_granted(reply: &Reply) -> bool {
    matches!(reply, Reply::Acquired(replies) if matches!(replies[..], [AcquireReply::Granted(_)]))
}

fn is_repeated(reply: &Reply) -> bool {
    *reply == Reply::LimitSet(SetLimitReply::Repeated)
}

pub(crate) fn cases() -> Vec<Case> {
    let limited = || at(12, set(Some("k"), Some(1), None));
    let first_runs = || at(13, acquire_of(job(), WORKER));
    let asks = || acquire_of(next_job(), OTHER_WORKER);
    vec![
        Case::new(
            TWO_ASK,
            Row::AcquireExecution,
            with_two([limited()]),
            at(30, acquire_of(job(), WORKER)),
            at(31, asks()),
        )
        .yields(is_held_back),
        Case::new(
            "acquiring under a limit against the end of what has the place",
            Row::AcquireExecution,
            with_two([limited(), first_runs()]),
            at(30, asks()),
            at(31, finish_of(job())),
        )
        .yields(is_granted),
        Case::new(
            "completing under a limit against who is to wait for the place",
            Row::HoldExecution,
            with_two([limited(), first_runs()]),
            at(30, finish_of(job())),
            at(31, asks()),
        ),
        Case::new(
            "acquiring against a limit of the tenant that is set",
            Row::AcquireExecution,
            with_two([first_runs()]),
            at(30, asks()),
            at(31, set(None, Some(1), None)),
        )
        .yields(is_held_back),
        Case::new(
            "completing against a limit of the tenant that is set",
            Row::HoldExecution,
            with_two([first_runs()]),
            at(30, finish_of(job())),
            at(31, set(None, Some(1), None)),
        )
        .the_same_in_both_orders("nothing waits for a limit yet, so that the end lifts nothing"),
        Case::new(
            "taking a limit away against the end of what has the place",
            Row::Operator,
            with_two([limited(), first_runs(), at(14, asks())]),
            at(30, set(Some("k"), None, None)),
            at(31, finish_of(job())),
        ),
        Case::new(
            "acquiring what waits for a limit against its being taken away",
            Row::AcquireExecution,
            with_two([limited(), first_runs(), at(14, asks())]),
            at(30, acquire_of(next_job(), WORKER)),
            at(31, set(Some("k"), None, None)),
        )
        .yields(is_granted),
        Case::new(
            "setting a limit against the same request",
            Row::Operator,
            with_two([]),
            at(30, set(None, Some(2), Some("r"))),
            at(31, set(None, Some(2), Some("r"))),
        )
        .yields(is_repeated),
    ]
}
