//! Handlers: the code that executions run, by name and version.
//!
//! A handler is a Rust function in a [`HandlerRegistry`], or one of the two built in: [`http`], which posts
//! to a URL, and [`noop`], which does nothing. Executions are at least once: a handler may be called again for
//! an execution that it has already served, with the same idempotency key and a higher fencing token, so its
//! effects must be idempotent under the key, and a target that remembers tokens can refuse a stale caller.
//!
//! What must stay true: a handler's panic is its own, a retryable failure and nothing more; a handler that
//! is told to stop and does not heed it is dropped after a grace, so that "stopped" means stopped.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use fencepost_core::effect::Invocation;
use fencepost_core::event::{ErrorClass, HandlerResult};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, JobId, TenantId};
use fencepost_core::job::{DefinitionError, HandlerName, HandlerRef, Payload};
use fencepost_core::limits::ERROR_BYTES_MAX;
use fencepost_core::time::{Span, Timestamp};

use crate::ports::StopSignal;

pub mod http;
pub mod noop;
mod registry;
#[cfg(test)]
pub(crate) mod samples;

pub use registry::{HandlerRegistry, RegistryError};

/// What a handler is given.
#[derive(Clone, Debug)]
pub struct HandlerContext {
    /// The idempotency key: the same for every call about this execution.
    pub key: Arc<str>,
    /// Rises with every call about this execution: the highest one seen is the one that counts.
    pub token: FencingToken,
    /// Which attempt: 1 for the first.
    pub attempt: u32,
    /// The execution.
    pub execution: ExecutionId,
    /// Its job.
    pub job: JobId,
    /// Whose job that is.
    pub tenant: TenantId,
    /// When it was due: for a scheduled fire, the nominal time.
    pub scheduled_for: Timestamp,
    /// What the job says to run with: JSON text.
    pub payload: Payload,
    /// Tells when to stop.
    pub stop: StopSignal,
}

impl HandlerContext {
    /// The context of an invocation.
    #[must_use]
    pub fn of(invocation: Invocation, stop: StopSignal) -> Self {
        let message = &invocation.message;
        Self {
            key: Arc::clone(&message.key),
            token: invocation.run.token,
            attempt: invocation.attempt,
            execution: message.execution,
            job: message.job,
            tenant: message.tenant,
            scheduled_for: message.nominal_at(),
            payload: message.payload.clone(),
            stop,
        }
    }

    /// The payload as a type of the handler's own.
    ///
    /// # Errors
    /// [`HandlerError::NonRetryable`], naming what does not fit: no later attempt would read it better.
    pub fn payload<T: serde::de::DeserializeOwned>(&self) -> Result<T, HandlerError> {
        serde_json::from_str(self.payload.as_json()).map_err(|error| {
            HandlerError::non_retryable(format!("the payload does not fit the handler: {error}"))
        })
    }
}

/// Why a handler did not do what it was to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HandlerError {
    /// Trying again makes sense.
    #[error("{message}")]
    Retryable {
        /// What went wrong.
        message: String,
        /// When the target wants to be tried again, at the earliest.
        retry_after: Option<Duration>,
    },
    /// Trying again is pointless.
    #[error("{message}")]
    NonRetryable {
        /// What went wrong.
        message: String,
    },
    /// It stopped because it was told to.
    #[error("it was told to stop")]
    Stopped,
}

impl HandlerError {
    /// A failure after which trying again makes sense.
    #[must_use]
    pub fn retryable(message: impl Into<String>) -> Self {
        Self::Retryable { message: message.into(), retry_after: None }
    }

    /// A failure after which trying again is pointless.
    #[must_use]
    pub fn non_retryable(message: impl Into<String>) -> Self {
        Self::NonRetryable { message: message.into() }
    }

    fn into_result(self) -> HandlerResult {
        match self {
            Self::Retryable { message, retry_after } => HandlerResult::Failed {
                class: ErrorClass::Retryable,
                error: bounded(&message),
                retry_after: retry_after.map(Span::from),
            },
            Self::NonRetryable { message } => HandlerResult::Failed {
                class: ErrorClass::NonRetryable,
                error: bounded(&message),
                retry_after: None,
            },
            Self::Stopped => HandlerResult::Stopped,
        }
    }
}

/// The future of a handler's call.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send>>;

/// Code that executions run. Implemented by every async closure over a [`HandlerContext`].
pub trait Handler: Send + Sync + 'static {
    /// Runs it once.
    fn call(&self, context: HandlerContext) -> HandlerFuture;
}

impl<F, R> Handler for F
where
    F: Fn(HandlerContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    fn call(&self, context: HandlerContext) -> HandlerFuture {
        Box::pin(self(context))
    }
}

impl fmt::Debug for dyn Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

/// Checks a payload when it comes in, as far as its handler is one that the program brings. What other handlers
/// make of theirs is known to their workers alone.
///
/// # Errors
/// [`DefinitionError`] at the field, below `/payload`.
pub(crate) fn check_payload(handler: &HandlerRef, payload: &Payload) -> Result<(), DefinitionError> {
    if handler.name.as_str() != http::NAME || handler.version != http::VERSION {
        return Ok(());
    }
    match http::Asked::parse(payload) {
        Ok(_) => Ok(()),
        Err(error) => Err(DefinitionError::at(&format!("/payload{}", error.pointer), error.detail)),
    }
}

/// Which handlers are known, in which versions: what a worker's settings take.
pub type HandlerVersions = BTreeMap<HandlerName, BTreeSet<u32>>;

/// An error text, no longer than what is kept of it, and without the one character that cannot be stored.
fn bounded(text: &str) -> Arc<str> {
    let text = text.replace('\0', "\u{fffd}");
    let mut end = text.len().min(ERROR_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].into()
}
