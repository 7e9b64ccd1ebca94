//! Histories: what several sessions asked of one store at once, and what they heard.
//!
//! Invocations and answers are numbered by one counter, so that "answered before it was asked" is a comparison
//! of numbers and no clock is involved. An outcome that nobody learnt has no answer: it may take effect at any
//! later moment, or never.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fencepost_core::store::command::Command;
use fencepost_core::store::reply::Reply;
use fencepost_core::time::Timestamp;
use tokio::sync::Notify;

/// One command of one session.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// Whose it was.
    pub(crate) session: usize,
    /// The time that it was judged by. Each operation of a history has another.
    pub(crate) now: Timestamp,
    /// What was asked.
    pub(crate) command: Command,
    /// The number of its invocation.
    pub(crate) invoked: u64,
    /// The number of its answer and the answer; `None`: the outcome is unknown.
    pub(crate) answered: Option<(u64, Reply)>,
    /// When whoever asked went on, with an answer or without.
    pub(crate) over: u64,
}

/// The counter of a history.
#[derive(Debug, Default)]
pub(crate) struct Moments {
    count: AtomicU64,
    over: AtomicBool,
    changed: Notify,
}

impl Moments {
    /// Says that the history is over.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// The next moment.
    pub(crate) fn next(&self) -> u64 {
        let moment = self.count.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
        moment
    }

    /// Waits until a moment has passed, or the history is over.
    pub(crate) async fn passed(&self, moment: u64) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // What changes from here on is not missed.
            changed.as_mut().enable();
            if self.count.load(Ordering::SeqCst) > moment || self.over.load(Ordering::SeqCst) {
                return;
            }
            changed.await;
        }
    }
}
