//! The registry: which handlers there are, and how one run of one goes.

use core::panic::AssertUnwindSafe;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use thiserror::Error;
use tokio::time::timeout;

use fencepost_core::effect::Invocation;
use fencepost_core::event::HandlerResult;
use fencepost_core::job::{HandlerName, HandlerRef};

use super::http::{self, Http};
use super::noop::{self, Noop};
use super::{Handler, HandlerContext, HandlerError, HandlerVersions};
use crate::ports::{HandlerPort, StopSignal};

/// How long a handler may take to heed that it is to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// The handlers of a worker.
///
/// ```
/// use fencepost::handler::{HandlerContext, HandlerError, HandlerRegistry};
///
/// let mut handlers = HandlerRegistry::new();
/// handlers.register("greet", 1, |context: HandlerContext| async move {
///     let name: String = context.payload()?;
///     println!("{}: hello {name}", context.key);
///     Ok::<(), HandlerError>(())
/// })?;
/// # Ok::<(), fencepost::handler::RegistryError>(())
/// ```
#[derive(Debug, Default)]
pub struct HandlerRegistry {
    handlers: BTreeMap<HandlerRef, Arc<dyn Handler>>,
}

/// Why a handler is not registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegistryError {
    /// The name is none.
    #[error("{0}")]
    Name(String),
    /// Versions start at 1.
    #[error("the version of handler `{name}` is 0: versions start at 1")]
    Version {
        /// Of which handler.
        name: HandlerName,
    },
    /// There is one already.
    #[error("handler `{name}` version {version} is registered already: raise the version")]
    Taken {
        /// Which handler.
        name: HandlerName,
        /// In which version.
        version: u32,
    },
}

impl HandlerRegistry {
    /// No handlers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler. Jobs name it and its version.
    ///
    /// # Errors
    /// [`RegistryError`], where name or version are none, or taken.
    pub fn register(
        &mut self,
        name: &str,
        version: u32,
        handler: impl Handler,
    ) -> Result<&mut Self, RegistryError> {
        let name = HandlerName::parse(name).map_err(RegistryError::Name)?;
        if version == 0 {
            return Err(RegistryError::Version { name });
        }
        let handler_ref = HandlerRef { name, version };
        if self.handlers.contains_key(&handler_ref) {
            let HandlerRef { name, version } = handler_ref;
            return Err(RegistryError::Taken { name, version });
        }
        self.handlers.insert(handler_ref, Arc::new(handler));
        Ok(self)
    }

    /// The handlers that the program brings: [`http`] and [`noop`], each in version 1.
    #[must_use]
    pub fn with_built_in() -> Self {
        let mut built_in = Self::new();
        let free = "the registry is empty and these are names";
        built_in.register(http::NAME, http::VERSION, Http::new()).expect(free);
        built_in.register(noop::NAME, 1, Noop).expect(free);
        built_in
    }

    /// Which handlers there are, in which versions.
    #[must_use]
    pub fn versions(&self) -> HandlerVersions {
        let mut known = HandlerVersions::new();
        for HandlerRef { name, version } in self.handlers.keys() {
            known.entry(name.clone()).or_default().insert(*version);
        }
        known
    }
}

impl HandlerPort for HandlerRegistry {
    async fn run(&self, invocation: Invocation, stop: StopSignal) -> HandlerResult {
        let Some(handler) = self.handlers.get(&invocation.message.handler).map(Arc::clone) else {
            let HandlerRef { name, version } = &invocation.message.handler;
            return HandlerError::retryable(format!("no handler `{name}` in version {version} here"))
                .into_result();
        };
        let context = HandlerContext::of(invocation, stop.clone());
        // Within the guard, since a handler may panic before its future exists.
        let call = AssertUnwindSafe(async move { handler.call(context).await }).catch_unwind();
        let mut call = Box::pin(call);
        let ended = tokio::select! {
            biased;
            ended = &mut call => Some(ended),
            _ = stop.stopped() => timeout(STOP_GRACE, &mut call).await.ok(),
        };
        match ended {
            Some(Ok(Ok(()))) => HandlerResult::Completed,
            Some(Ok(Err(error))) => error.into_result(),
            Some(Err(panic)) => {
                HandlerError::retryable(format!("the handler panicked: {}", what_it_said(&*panic)))
                    .into_result()
            }
            // Dropped where it stood.
            None => HandlerResult::Stopped,
        }
    }
}

fn what_it_said(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "without a word",
    }
}

#[cfg(test)]
mod tests;
