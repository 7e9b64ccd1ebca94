//! Messages and contexts for the tests of this crate.

use std::sync::Arc;

use fencepost_core::effect::Invocation;
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{DispatchNo, ExecutionId, JobId, JobVersion, Occurrence, TenantId};
use fencepost_core::job::{DeadLetters, HandlerName, HandlerRef, Payload, SCHEMA_VERSION};
use fencepost_core::lease::RunId;
use fencepost_core::message::ExecutionMessage;
use fencepost_core::priority::Priority;
use fencepost_core::retry::RetryPolicy;
use fencepost_core::time::{Span, Timestamp};

use super::HandlerContext;
use crate::ports::{StopHandle, StopSignal};

/// A message for this handler, version 1.
pub(crate) fn message(handler: &str) -> Arc<ExecutionMessage> {
    message_with(handler, "null")
}

/// A message for this handler, with a payload.
pub(crate) fn message_with(handler: &str, payload: &str) -> Arc<ExecutionMessage> {
    let job = JobId::from_u128(7);
    let due_at = Timestamp::parse_rfc3339("2026-03-29T01:30:00Z").expect("it is a time");
    let occurrence = Occurrence::Scheduled { fire: due_at };
    Arc::new(ExecutionMessage {
        schema: SCHEMA_VERSION,
        execution: occurrence.execution_id(job),
        dispatch_no: DispatchNo(1),
        tenant: TenantId::from_u128(3),
        job,
        job_version: JobVersion::FIRST,
        key: occurrence.idempotency_key(job).expect("a fire has one"),
        occurrence,
        due_at,
        handler: HandlerRef { name: HandlerName::parse(handler).expect("it is a name"), version: 1 },
        priority: Priority::Normal,
        payload: Payload::from_json(payload).expect("it is JSON"),
        attempt_timeout: Span::from_secs(60),
        retry: RetryPolicy::default(),
        dead_letter: DeadLetters::On,
        dispatched_at: due_at,
        publish_delay: Span::ZERO,
    })
}

/// An invocation of this handler, version 1, with a payload.
pub(crate) fn invocation(handler: &str, payload: &str) -> Invocation {
    let message = message_with(handler, payload);
    let execution: ExecutionId = message.execution;
    Invocation { run: RunId { execution, token: FencingToken::from_i64(5) }, attempt: 2, message }
}

/// What a handler is given, and the handle that stops it.
pub(crate) fn context(payload: &str) -> (StopHandle, HandlerContext) {
    let (handle, signal) = StopSignal::new();
    (handle, HandlerContext::of(invocation("http", payload), signal))
}
