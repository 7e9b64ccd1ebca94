//! Outcomes: effects under way, each a task that ends in the event that says how it went.
//!
//! What must stay true: every effect that has an outcome gets one. A task that panics, in a port or in a
//! handler, ends in the event that it was given for that case.

use core::future::Future;
use core::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::task::JoinSet;

/// The effects under way. Dropping them abandons them all.
pub(super) struct Outcomes<E> {
    tasks: JoinSet<E>,
}

impl<E: Send + 'static> Outcomes<E> {
    pub(super) fn new() -> Self {
        Self { tasks: JoinSet::new() }
    }

    /// Starts one; `lost` is its event should it panic.
    pub(super) fn spawn(
        &mut self,
        outcome: impl Future<Output = E> + Send + 'static,
        lost: impl FnOnce() -> E + Send + 'static,
    ) {
        self.tasks.spawn(async move {
            match AssertUnwindSafe(outcome).catch_unwind().await {
                Ok(event) => event,
                Err(_panic) => {
                    tracing::error!("an effect panicked; its outcome is reported as lost");
                    lost()
                }
            }
        });
    }

    /// The next one to end; never, while there is none.
    pub(super) async fn next(&mut self) -> E {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(event)) => return event,
                // Only an abort ends a task without its event, and nobody aborts one that is waited for.
                Some(Err(error)) => tracing::error!(%error, "an effect ended without an outcome"),
                None => core::future::pending().await,
            }
        }
    }
}
