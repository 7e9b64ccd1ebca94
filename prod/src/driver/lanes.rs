//! Lanes: how many store calls may be under way, by lane, and how long each is waited for.
//!
//! Renewals and liveness travel on the lease lane, so that they never queue behind work. A call that
//! waits for its turn waits on the same deadline as for its answer: what has not come back by then is
//! `Unknown`, whether or not it was sent, and every command is safe to send again.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use fencepost_core::limits::STORE_CALL_TIMEOUT;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::{Command, Lane};

use crate::ports::{CallEnd, FactSink, StorePort};

/// How many calls of each lane may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanePermits {
    /// Of [`Lane::Lease`].
    pub lease: usize,
    /// Of [`Lane::Work`].
    pub work: usize,
}

impl Default for LanePermits {
    fn default() -> Self {
        Self { lease: 1, work: 4 }
    }
}

/// A store with its lanes. Clones share them.
pub struct Lanes<S, F> {
    store: Arc<S>,
    facts: Arc<F>,
    lease: Arc<Semaphore>,
    work: Arc<Semaphore>,
}

impl<S, F> Clone for Lanes<S, F> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            facts: Arc::clone(&self.facts),
            lease: Arc::clone(&self.lease),
            work: Arc::clone(&self.work),
        }
    }
}

impl<S: StorePort, F: FactSink> Lanes<S, F> {
    /// A store that takes this many calls at once.
    #[must_use]
    pub fn new(store: Arc<S>, facts: Arc<F>, permits: LanePermits) -> Self {
        let lease = Arc::new(Semaphore::new(permits.lease));
        let work = Arc::new(Semaphore::new(permits.work));
        Self { store, facts, lease, work }
    }

    /// Calls the store, in turn, and waits as long as a call is waited for.
    pub async fn call(&self, command: Command) -> StoreOutcome {
        let kind = command.kind();
        let began = Instant::now();
        let answered = timeout(STORE_CALL_TIMEOUT.to_duration(), self.in_turn(command)).await;
        let (outcome, end) = match answered {
            Ok(outcome @ StoreOutcome::Replied(_)) => (outcome, CallEnd::Replied),
            Ok(StoreOutcome::Unknown) => (StoreOutcome::Unknown, CallEnd::Unknown),
            Err(_) => (StoreOutcome::Unknown, CallEnd::TimedOut),
        };
        self.facts.store_called(kind, began.elapsed(), end);
        outcome
    }

    async fn in_turn(&self, command: Command) -> StoreOutcome {
        let lane = match command.lane() {
            Lane::Lease => &self.lease,
            Lane::Work => &self.work,
        };
        let _turn = lane.acquire().await.expect("nobody closes the lanes");
        self.store.call(command).await
    }
}
