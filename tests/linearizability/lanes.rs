//! Lanes: databases that are worked on side by side, each with epochs of its own.
//!
//! A history mostly waits, for connections that were cut and for locks that are held on purpose; a second database
//! fills that time. Histories of different lanes share nothing but the server. Where one has no explanation, all
//! lanes stop at the end of their histories.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::HISTORIES_PER_EPOCH;
use crate::epoch::{Decided, Epoch, Ground, Tally};

/// The grounds of all lanes.
pub(crate) struct Lanes {
    grounds: Vec<Ground>,
}

/// What the lanes of a run share: which seeds are left.
struct Seeds {
    next: AtomicU64,
    until: u64,
    stopped: AtomicBool,
}

impl Seeds {
    /// Those of the next epoch.
    fn take(&self) -> Option<Range<u64>> {
        let first = self.next.fetch_add(HISTORIES_PER_EPOCH, Ordering::SeqCst);
        let is_there = first < self.until && !self.is_stopped();
        is_there.then(|| first..(first + HISTORIES_PER_EPOCH).min(self.until))
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

impl Lanes {
    /// Makes so many.
    pub(crate) async fn new(count: usize) -> Self {
        let mut grounds = Vec::new();
        for lane in 0..count {
            grounds.push(Ground::new(&format!("linearizability_{lane}"), &[]).await);
        }
        Self { grounds }
    }

    /// Runs the histories of these seeds, and adds what they showed. Says why one has no explanation.
    pub(crate) async fn run(&mut self, seeds: Range<u64>, tally: &mut Tally) -> Result<(), String> {
        let stopped = AtomicBool::new(false);
        let seeds = Arc::new(Seeds { next: AtomicU64::new(seeds.start), until: seeds.end, stopped });
        let mut lanes = Vec::new();
        for ground in self.grounds.drain(..) {
            lanes.push(tokio::spawn(work(ground, Arc::clone(&seeds))));
        }
        let mut report = Ok(());
        for lane in lanes {
            let (ground, shown, result) = lane.await.expect("a lane does not panic");
            self.grounds.push(ground);
            tally.add(shown);
            report = report.and(result);
        }
        report
    }

    /// Deletes their databases.
    pub(crate) async fn remove(self) {
        for ground in self.grounds {
            ground.remove().await;
        }
    }
}

/// One lane: epoch after epoch while there are seeds.
async fn work(mut ground: Ground, seeds: Arc<Seeds>) -> (Ground, Tally, Result<(), String>) {
    let mut tally = Tally::default();
    while let Some(mut left) = seeds.take() {
        while !left.is_empty() {
            let mut epoch = Epoch::begin(&mut ground, left.start, &mut tally).await;
            for seed in left.by_ref() {
                if seeds.is_stopped() {
                    return (ground, tally, Ok(()));
                }
                match epoch.history(seed, &mut tally).await {
                    Ok(Decided::Explained) => {}
                    // What the next one would go on from is not known.
                    Ok(Decided::No) => break,
                    Err(report) => {
                        seeds.stop();
                        let report = format!("history {seed} has no serial explanation: {report}");
                        return (ground, tally, Err(report));
                    }
                }
            }
        }
    }
    (ground, tally, Ok(()))
}
