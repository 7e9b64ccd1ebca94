//! Reach: whether the server can be reached, told once when that changes and not once per call.
//!
//! While a server is away every call fails, several times a second. An operator needs two lines of it: when it
//! went out of reach and why, and when it was back and after how long. What lies between is for debugging.

use core::fmt::Display;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// Since when the server is out of reach, if it is.
#[derive(Debug, Default)]
pub(super) struct Reach {
    lost_at: Mutex<Option<Instant>>,
}

impl Reach {
    /// A call failed for want of a server.
    pub(super) fn failed(&self, cause: &dyn Display, hint: &str) {
        if self.lost() {
            tracing::warn!(%cause, hint, "PostgreSQL is out of reach; calls are repeated until it is back");
        }
    }

    /// A call was answered.
    pub(super) fn answered(&self) {
        if let Some(after) = self.regained() {
            tracing::warn!(?after, "PostgreSQL is back");
        }
    }

    /// Whether this is news.
    fn lost(&self) -> bool {
        let mut lost_at = self.lost_at.lock().expect("no holder of this lock panics");
        let is_news = lost_at.is_none();
        lost_at.get_or_insert_with(Instant::now);
        is_news
    }

    /// For how long it was away, if it was.
    fn regained(&self) -> Option<Duration> {
        let mut lost_at = self.lost_at.lock().expect("no holder of this lock panics");
        lost_at.take().map(|at| at.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_news_when_it_begins_and_when_it_ends() {
        let reach = Reach::default();
        assert_eq!(reach.regained(), None);
        assert_eq!([reach.lost(), reach.lost(), reach.lost()], [true, false, false]);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(reach.regained(), Some(Duration::from_secs(7)));
        assert_eq!(reach.regained(), None);
        assert!(reach.lost());
    }
}
