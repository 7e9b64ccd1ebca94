//! The message on the wire: JSON with a schema number, flat, every span in microseconds.
//!
//! The wire's shape is its own, apart from the types it is made of, so that a change of those is a
//! decision about the wire too. Unknown fields are ignored: a newer writer may add some.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use super::ExecutionMessage;
use crate::event::MalformedMessage;
use crate::id::{DispatchNo, ExecutionId, JobId, JobVersion, MALFORMED_NAMESPACE, Occurrence, TenantId};
use crate::job::{DeadLetters, HandlerName, HandlerRef, Payload, Unreadable};
use crate::limits::{EXCERPT_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::priority::Priority;
use crate::retry::RetryPolicy;
use crate::store::reply::Dispatch;
use crate::time::{Span, Timestamp};

/// Why a broker message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
pub enum MessageError {
    /// It is longer than [`MESSAGE_BYTES_MAX`].
    #[error("it has {bytes} bytes, more than the {MESSAGE_BYTES_MAX} that are read")]
    TooLarge {
        /// How long it is.
        bytes: usize,
    },
    /// It is not an execution message.
    #[error("it is not an execution message: {detail}")]
    Malformed {
        /// What the parser says.
        detail: Arc<str>,
    },
    /// It names its execution, but has a schema whose fields this version cannot make sense of.
    #[error("it has schema {schema}, which this version cannot read: {detail}")]
    UnknownSchema {
        /// The writer's schema version.
        schema: u16,
        /// Which execution it is about: that can be handed back.
        execution: ExecutionId,
        /// What the parser says.
        detail: Arc<str>,
    },
}

#[derive(Serialize, Deserialize)]
struct Wire {
    schema: u16,
    execution: ExecutionId,
    dispatch_no: DispatchNo,
    tenant: TenantId,
    job: JobId,
    job_version: JobVersion,
    occurrence: Occurrence,
    key: Arc<str>,
    due_at: Timestamp,
    handler: HandlerName,
    handler_version: u32,
    #[serde(default, skip_serializing_if = "Priority::is_normal")]
    priority: Priority,
    payload: Payload,
    attempt_timeout_us: Span,
    max_attempts: u32,
    retry_base_us: Span,
    retry_cap_us: Span,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_age_us: Option<Span>,
    max_rescues: u32,
    max_lost_starts: u32,
    dead_letter: DeadLetters,
    dispatched_at: Timestamp,
    publish_delay_us: Span,
}

/// What every schema keeps: enough to hand a message back.
#[derive(Deserialize)]
struct Envelope {
    schema: u16,
    execution: ExecutionId,
}

impl ExecutionMessage {
    /// The message of a dispatch whose outbox row the store showed at `dispatched_at`.
    ///
    /// # Errors
    /// [`Unreadable`], where the running version cannot read the definition.
    pub fn compose(schema: u16, dispatch: &Dispatch, dispatched_at: Timestamp) -> Result<Self, Unreadable> {
        let definition = dispatch.definition.read().map_err(Clone::clone)?;
        Ok(Self {
            schema,
            execution: dispatch.execution,
            dispatch_no: dispatch.dispatch_no,
            tenant: dispatch.tenant,
            job: dispatch.job,
            job_version: dispatch.job_version,
            occurrence: dispatch.occurrence.clone(),
            key: Arc::clone(&dispatch.key),
            due_at: dispatch.due_at,
            handler: definition.handler.clone(),
            priority: definition.priority,
            payload: dispatch.payload.clone().unwrap_or_else(|| definition.payload.clone()),
            attempt_timeout: definition.attempt_timeout,
            retry: definition.retry.clone(),
            dead_letter: definition.dead_letter,
            dispatched_at,
            publish_delay: Span::ZERO,
        })
    }

    /// The bytes that travel.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let wire = Wire {
            schema: self.schema,
            execution: self.execution,
            dispatch_no: self.dispatch_no,
            tenant: self.tenant,
            job: self.job,
            job_version: self.job_version,
            occurrence: self.occurrence.clone(),
            key: Arc::clone(&self.key),
            due_at: self.due_at,
            handler: self.handler.name.clone(),
            handler_version: self.handler.version,
            priority: self.priority,
            payload: self.payload.clone(),
            attempt_timeout_us: self.attempt_timeout,
            max_attempts: self.retry.max_attempts,
            retry_base_us: self.retry.base,
            retry_cap_us: self.retry.cap,
            max_age_us: self.retry.max_age,
            max_rescues: self.retry.max_rescues,
            max_lost_starts: self.retry.max_lost_starts,
            dead_letter: self.dead_letter,
            dispatched_at: self.dispatched_at,
            publish_delay_us: self.publish_delay,
        };
        serde_json::to_vec(&wire).expect("the wire's shape has no map keys that are not text")
    }

    /// Reads the bytes that arrived.
    ///
    /// # Errors
    /// [`MalformedMessage`], with all that recording it takes.
    pub fn decode(body: &[u8]) -> Result<Self, MalformedMessage> {
        Self::read(body).map_err(|error| MalformedMessage {
            error,
            digest: Uuid::new_v5(&MALFORMED_NAMESPACE, body),
            excerpt: body[..body.len().min(EXCERPT_BYTES_MAX)].into(),
        })
    }

    fn read(body: &[u8]) -> Result<Self, MessageError> {
        if body.len() > MESSAGE_BYTES_MAX {
            return Err(MessageError::TooLarge { bytes: body.len() });
        }
        let wire: Wire = serde_json::from_slice(body).map_err(|error| {
            let detail: Arc<str> = error.to_string().into();
            match serde_json::from_slice::<Envelope>(body) {
                Ok(Envelope { schema, execution }) if schema > crate::job::SCHEMA_VERSION => {
                    MessageError::UnknownSchema { schema, execution, detail }
                }
                Ok(_) | Err(_) => MessageError::Malformed { detail },
            }
        })?;
        Ok(Self {
            schema: wire.schema,
            execution: wire.execution,
            dispatch_no: wire.dispatch_no,
            tenant: wire.tenant,
            job: wire.job,
            job_version: wire.job_version,
            occurrence: wire.occurrence,
            key: wire.key,
            due_at: wire.due_at,
            handler: HandlerRef { name: wire.handler, version: wire.handler_version },
            priority: wire.priority,
            payload: wire.payload,
            attempt_timeout: wire.attempt_timeout_us,
            retry: RetryPolicy {
                max_attempts: wire.max_attempts,
                base: wire.retry_base_us,
                cap: wire.retry_cap_us,
                max_age: wire.max_age_us,
                max_rescues: wire.max_rescues,
                max_lost_starts: wire.max_lost_starts,
            },
            dead_letter: wire.dead_letter,
            dispatched_at: wire.dispatched_at,
            publish_delay: wire.publish_delay_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A message as it was written before there were priorities.
    fn without_priority() -> Value {
        json!({
            "schema": 1, "execution": "00000000-0000-0000-0000-000000000001", "dispatch_no": 1,
            "tenant": "00000000-0000-0000-0000-000000000002", "job": "00000000-0000-0000-0000-000000000003",
            "job_version": 1, "occurrence": {"manual": {"key": "k"}}, "key": "k",
            "due_at": 1_000, "handler": "mail", "handler_version": 1, "payload": null,
            "attempt_timeout_us": 1_000_000, "max_attempts": 1, "retry_base_us": 1_000, "retry_cap_us": 2_000,
            "max_rescues": 1, "max_lost_starts": 1, "dead_letter": "on",
            "dispatched_at": 2_000, "publish_delay_us": 0
        })
    }

    fn read(message: &Value) -> Result<ExecutionMessage, MessageError> {
        ExecutionMessage::decode(message.to_string().as_bytes()).map_err(|malformed| malformed.error)
    }

    #[test]
    fn a_message_without_a_priority_has_normal_priority_and_stays_as_it_was() {
        let message = read(&without_priority()).expect("it was written by a version before this one");
        assert_eq!(message.priority, Priority::Normal);
        let again: Value = serde_json::from_slice(&message.encode()).expect("it is JSON");
        assert_eq!(again, without_priority());
    }

    #[test]
    fn a_priority_travels() {
        for priority in [Priority::High, Priority::Low] {
            let mut written = without_priority();
            written["priority"] = json!(priority.name());
            let message = read(&written).expect("it is one of ours");
            assert_eq!(message.priority, priority);
            assert_eq!(ExecutionMessage::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn a_priority_of_a_newer_schema_that_is_not_known_here_is_handed_back() {
        let mut written = without_priority();
        written["priority"] = json!("urgent");
        assert!(matches!(read(&written), Err(MessageError::Malformed { .. })));
        written["schema"] = json!(2);
        assert!(matches!(read(&written), Err(MessageError::UnknownSchema { schema: 2, .. })));
    }
}
