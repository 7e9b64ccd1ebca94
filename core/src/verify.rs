//! Verification: whether the rows of a live database agree with the invariants, as far as rows can tell.
//!
//! Rows are what is left when the history is over: they show where everything stands, what was recorded on the way, and
//! nothing of a change that left no trace. So each [`Check`] says in words what it looks at and what it cannot see, and
//! a verdict of "holds" means that nothing in these rows speaks against it.
//!
//! Whoever reads the rows hands them over one job, one execution, one record at a time, in any number: a [`Verifier`]
//! keeps counts, the first few violations of each check and when jobs were paused, never the rows. The order within a job is by nominal fire
//! ([`Verifier::begin_job`], then its ledger, then [`Verifier::end_job`]); executions come with what belongs to them
//! ([`Verifier::execution`]), after all jobs; the leases come first, for everybody else's tokens are compared with theirs.
//!
//! Must stay true: nothing is judged by a decision of the scheduler's that could be wrong in the same way. The nominal
//! fires come from the definitions, which is all that the two have in common.

use std::collections::BTreeMap;

use crate::id::JobId;
use crate::schedule::TZDATA_VERSION;
use crate::time::Timestamp;

mod calendar;
mod catalogue;
mod decision;
mod execution;
mod ledger;
mod record;
mod report;

pub use catalogue::Check;
pub use execution::{ExecutionFacts, JobOfExecution, OriginFacts, ReplayFacts};
pub use ledger::{LedgerFire, LedgerItem};
pub use record::{Orphan, OrphanKind};
pub use report::{CheckReport, FINDINGS_KEPT, Finding, Report, Verdict};

use ledger::JobWalk;
use record::LeaseTokens;
use report::Tallies;

/// Which nominal times are looked at: from the first (included) to the last (excluded).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first instant that is looked at; [`Timestamp::MIN`] for everything.
    pub from: Timestamp,
    /// The first that is not any more; [`Timestamp::MAX`] for everything.
    pub to: Timestamp,
}

impl Window {
    /// All of time.
    pub const ALL: Self = Self { from: Timestamp::MIN, to: Timestamp::MAX };

    /// Whether everything from the beginning on is looked at, so that what is counted can be compared with a counter.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self == Self::ALL
    }

    /// Whether an instant is looked at.
    #[must_use]
    pub fn contains(self, at: Timestamp) -> bool {
        self.from <= at && at < self.to
    }
}

/// Until when decisions about fires may have been made with other zone data than ours.
///
/// Skipped ranges store the version that they were decided with, executions and watermarks do not. So where a range
/// names another version, everything that was decided up to then, in a zone whose rules may differ, is not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneData {
    /// The version to judge by.
    pub ours: &'static str,
    /// The latest decision that names another.
    pub foreign_until: Option<Timestamp>,
}

impl ZoneData {
    /// Ours, where nobody is on record with another.
    pub const OURS: Self = Self { ours: TZDATA_VERSION, foreign_until: None };

    /// Whether what was decided at an instant was decided with our data, as far as anybody recorded.
    fn decided(&self, at: Timestamp) -> bool {
        self.foreign_until.is_none_or(|until| at > until)
    }
}

/// Takes rows and judges them.
#[derive(Debug)]
pub struct Verifier {
    window: Window,
    zone_data: ZoneData,
    tallies: Tallies,
    leases: LeaseTokens,
    job: Option<JobWalk>,
    /// From when to when jobs were paused; those that never were are not in it.
    pauses: BTreeMap<JobId, Vec<(Timestamp, Timestamp)>>,
}

impl Verifier {
    /// Nothing looked at yet.
    #[must_use]
    pub fn new(window: Window, zone_data: ZoneData) -> Self {
        Self {
            window,
            zone_data,
            tallies: Tallies::default(),
            leases: LeaseTokens::default(),
            job: None,
            pauses: BTreeMap::new(),
        }
    }

    /// The verdicts. `at` is when the rows were read, by the store's clock.
    #[must_use]
    pub fn finish(mut self, at: Timestamp) -> Report {
        self.leases.finish(&mut self.tallies);
        self.tallies.report(at, self.window, &self.zone_data)
    }
}
