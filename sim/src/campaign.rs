//! A campaign: many seeds over several threads.
//!
//! Each run is single-threaded; threads only share the work out. Whoever counts gets the runs in the order of
//! their seeds, so that nothing depends on how many threads there are.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use fencepost_core::bug::Bugs;

use crate::plan::Profile;
use crate::run::{Run, run_seed, run_twice};

/// Every seed that this divides is run twice.
const TWICE_EVERY: u64 = 64;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The first seed.
    pub start: u64,
    /// How many.
    pub seeds: u64,
    /// Of which profile.
    pub profile: Profile,
    /// With which deliberate bug, if any.
    pub bugs: Bugs,
    /// On how many threads.
    pub threads: usize,
    /// Whether some seeds are run twice, to see that they do the same.
    pub recheck: Recheck,
}

/// Whether some seeds are run twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recheck {
    /// One in sixty-four.
    Some,
    /// None.
    Never,
}

impl Campaign {
    /// Runs it. `each` gets every run, in the order of the seeds, and may end the campaign.
    pub fn run(&self, mut each: impl FnMut(Run) -> ControlFlow<()>) {
        let next = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        let (sender, receiver) = mpsc::sync_channel::<Run>(256);
        thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                let sender = sender.clone();
                let (next, stop) = (&next, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= self.seeds || sender.send(self.one(number)).is_err() {
                            return;
                        }
                    }
                });
            }
            // The threads have senders of their own; without this one the channel ends with them.
            drop(sender);
            let mut early: BTreeMap<u64, Run> = BTreeMap::new();
            let mut due = self.start;
            for run in receiver {
                early.insert(run.seed, run);
                while let Some(run) = early.remove(&due) {
                    due = due.wrapping_add(1);
                    if each(run).is_break() {
                        stop.store(true, Ordering::Relaxed);
                        return;
                    }
                }
            }
        });
    }

    fn one(&self, number: u64) -> Run {
        let seed = self.start.wrapping_add(number);
        match self.recheck {
            Recheck::Some if seed.is_multiple_of(TWICE_EVERY) => run_twice(seed, self.profile, self.bugs),
            Recheck::Some | Recheck::Never => run_seed(seed, self.profile, self.bugs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(threads: usize) -> Vec<(u64, String)> {
        let campaign = Campaign {
            start: 60,
            seeds: 12,
            profile: Profile::Small,
            bugs: Bugs::NONE,
            threads,
            recheck: Recheck::Some,
        };
        let mut hashes = Vec::new();
        campaign.run(|run| {
            hashes.push((run.seed, run.ended.hash.to_string()));
            ControlFlow::Continue(())
        });
        hashes
    }

    #[test]
    fn the_number_of_threads_does_not_matter() {
        let one = hashes(1);
        assert_eq!(one.len(), 12);
        assert!(one.iter().map(|(seed, _)| *seed).eq(60..72));
        assert_eq!(one, hashes(3));
    }

    #[test]
    fn a_campaign_ends_when_it_is_told_to() {
        let campaign = Campaign {
            start: 0,
            seeds: 1_000_000,
            profile: Profile::Small,
            bugs: Bugs::NONE,
            threads: 2,
            recheck: Recheck::Never,
        };
        let mut seen = 0;
        campaign.run(|_| {
            seen += 1;
            if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(seen, 3);
    }
}
