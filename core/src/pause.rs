//! Pauses of a tenant or of a handler queue: what one reaches, and what it does to an execution.
//!
//! A pause holds back every start of an attempt there: of fires, of what is triggered by hand, of retries and of
//! replays. Nothing is skipped: executions are made as ever and wait, on record, for the resume. A queue is shared
//! between tenants, and a tenant pauses its own work on it alone. What runs when a pause begins goes on.
//!
//! Which queue an execution belongs to follows from the definition of its own version, also where this version of the
//! program cannot read the rest of that: a pause must hold whatever a neighbour of another version could start.

use core::fmt;

use serde::Deserialize;

use crate::execution::WaitReason;
use crate::job::{HandlerName, HandlerRef, StoredDefinition};

/// What a pause reaches, of one tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PauseScope {
    /// Everything.
    Tenant,
    /// What this handler, in this version, is to run.
    Queue(HandlerRef),
}

impl PauseScope {
    /// The name that is stored and shown.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Queue(_) => "queue",
        }
    }

    /// The handler whose queue it is.
    #[must_use]
    pub const fn handler(&self) -> Option<&HandlerRef> {
        match self {
            Self::Tenant => None,
            Self::Queue(handler) => Some(handler),
        }
    }

    /// What an execution waits for that such a pause holds back.
    #[must_use]
    pub const fn wait_reason(&self) -> WaitReason {
        match self {
            Self::Tenant => WaitReason::TenantPaused,
            Self::Queue(_) => WaitReason::QueuePaused,
        }
    }
}

impl fmt::Display for PauseScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant => f.write_str("tenant"),
            Self::Queue(handler) => write!(f, "queue {} v{}", handler.name, handler.version),
        }
    }
}

#[derive(Deserialize)]
struct AnyBody {
    definition: AnyDefinition,
}

#[derive(Deserialize)]
struct AnyDefinition {
    handler: AnyHandler,
}

#[derive(Deserialize)]
struct AnyHandler {
    name: HandlerName,
    #[serde(default = "first_version")]
    version: u32,
}

const fn first_version() -> u32 {
    1
}

/// The queue of what is defined so; `None` where not even that can be read.
#[must_use]
pub fn queue_of(definition: &StoredDefinition) -> Option<HandlerRef> {
    match definition.read() {
        Ok(definition) => Some(definition.handler.clone()),
        Err(_) => {
            let body: AnyBody = serde_json::from_str(definition.text()).ok()?;
            let AnyHandler { name, version } = body.definition.handler;
            Some(HandlerRef { name, version })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(text: &str) -> Option<String> {
        queue_of(&StoredDefinition::from_text(text.into()))
            .map(|handler| PauseScope::Queue(handler).to_string())
    }

    #[test]
    fn the_queue_is_read_of_definitions_that_cannot_be_read_otherwise() {
        let later =
            r#"{"schema":99,"definition":{"what":1,"handler":{"name":"http","version":2,"more":[]}}}"#;
        assert_eq!(queue(later).as_deref(), Some("queue http v2"));
        let implied = r#"{"schema":99,"definition":{"handler":{"name":"http"}}}"#;
        assert_eq!(queue(implied).as_deref(), Some("queue http v1"));
        assert_eq!(queue(r#"{"schema":99,"definition":{"what":"is this"}}"#), None);
        assert_eq!(queue("no JSON"), None);
    }

    #[test]
    fn a_tenant_comes_before_its_queues() {
        let http = HandlerRef { name: HandlerName::parse("http").expect("a name"), version: 1 };
        assert!(PauseScope::Tenant < PauseScope::Queue(http));
    }
}
