//! The report: how many rows each check looked at, what it found, and the verdict.
//!
//! Its JSON is stable: fields are added, never renamed.

use serde::{Serialize, Serializer};

use super::{Check, Window, ZoneData};
use crate::id::{ExecutionId, JobId};
use crate::time::Timestamp;

/// How many violations of one check are told; all are counted.
pub const FINDINGS_KEPT: usize = 10;

/// One violation, or one thing that could not be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The job that it is about.
    pub job_id: Option<JobId>,
    /// The execution that it is about.
    pub execution_id: Option<ExecutionId>,
    /// What was expected and seen.
    pub what: String,
    /// What to do about it.
    pub advice: &'static str,
}

impl Finding {
    /// About a job.
    pub(super) const fn of_job(job: JobId, what: String, advice: &'static str) -> Self {
        Self { job_id: Some(job), execution_id: None, what, advice }
    }

    /// About an execution of a job.
    pub(super) const fn of_execution(
        job: JobId,
        execution: ExecutionId,
        what: String,
        advice: &'static str,
    ) -> Self {
        Self { job_id: Some(job), execution_id: Some(execution), what, advice }
    }

    /// About neither.
    pub(super) const fn of_record(what: String, advice: &'static str) -> Self {
        Self { job_id: None, execution_id: None, what, advice }
    }
}

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing in the rows speaks against it.
    Holds,
    /// It is broken.
    Violated,
    /// Nothing speaks against it where it could be compared, and something could not be.
    HoldsWhereCompared,
    /// There was nothing to look at.
    NothingToLookAt,
}

impl Verdict {
    /// As people read it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Violated => "VIOLATED",
            Self::HoldsWhereCompared => "holds where compared",
            Self::NothingToLookAt => "nothing to look at",
        }
    }
}

/// One check of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Which.
    pub check: Check,
    /// What it came to.
    pub verdict: Verdict,
    /// How many rows it looked at.
    pub looked_at: u64,
    /// What those are.
    pub unit: &'static str,
    /// How many violations there are.
    pub violations: u64,
    /// The first of them.
    pub found: Vec<Finding>,
    /// How often no verdict was possible.
    pub not_compared: u64,
    /// The first of those.
    pub uncompared: Vec<Finding>,
    /// What the check looks at.
    pub sees: &'static str,
    /// What rows cannot show it.
    pub cannot_see: &'static str,
}

/// What a verification came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// When the rows were read, by the store's clock.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
    /// The first nominal time that was looked at; `None` for all.
    #[serde(serialize_with = "as_optional_text")]
    pub from: Option<Timestamp>,
    /// The first that was not any more; `None` for all.
    #[serde(serialize_with = "as_optional_text")]
    pub to: Option<Timestamp>,
    /// The zone data that fires were worked out with.
    pub zone_data: &'static str,
    /// Whether nothing is violated.
    pub holds: bool,
    /// The checks, in the order of the catalogue.
    pub checks: Vec<CheckReport>,
}

fn as_text<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

fn as_optional_text<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => serializer.collect_str(at),
        None => serializer.serialize_none(),
    }
}

#[derive(Clone, Debug, Default)]
struct Tally {
    looked_at: u64,
    violations: u64,
    found: Vec<Finding>,
    not_compared: u64,
    uncompared: Vec<Finding>,
    by_clock: u64,
    found_by_clock: Vec<Finding>,
}

impl Tally {
    /// What hangs on the order of instants is broken, unless the clock that they were read from was set back.
    fn settle(&mut self, set_back: Option<&str>) {
        let found = core::mem::take(&mut self.found_by_clock);
        match set_back {
            None => {
                self.violations += self.by_clock;
                self.found.extend(found);
                self.found.truncate(FINDINGS_KEPT);
            }
            Some(evidence) => {
                self.not_compared += self.by_clock;
                let told = |finding: Finding| Finding {
                    what: format!("{}; but the database's clock was set back: {evidence}", finding.what),
                    ..finding
                };
                self.uncompared.extend(found.into_iter().map(told));
                self.uncompared.truncate(FINDINGS_KEPT);
            }
        }
    }
}

/// The counts of all checks.
#[derive(Debug)]
pub(super) struct Tallies {
    of: Vec<Tally>,
    /// Two instants in the wrong order, of which the order is known otherwise.
    set_back: Option<String>,
}

impl Default for Tallies {
    fn default() -> Self {
        Self { of: vec![Tally::default(); Check::ALL.len()], set_back: None }
    }
}

impl Tallies {
    fn of(&mut self, check: Check) -> &mut Tally {
        &mut self.of[check as usize]
    }

    /// One more row that this check looks at.
    pub(super) fn look(&mut self, check: Check) {
        self.of(check).looked_at += 1;
    }

    /// A violation.
    pub(super) fn broke(&mut self, check: Check, finding: Finding) {
        let tally = self.of(check);
        tally.violations += 1;
        if tally.found.len() < FINDINGS_KEPT {
            tally.found.push(finding);
        }
    }

    /// A violation if the database's clock never went back, which is known in the end.
    pub(super) fn broke_by_clock(&mut self, check: Check, finding: Finding) {
        let tally = self.of(check);
        tally.by_clock += 1;
        if tally.found_by_clock.len() < FINDINGS_KEPT {
            tally.found_by_clock.push(finding);
        }
    }

    /// The rows show that the database's clock was set back.
    pub(super) fn clock_was_set_back(&mut self, evidence: impl FnOnce() -> String) {
        self.set_back.get_or_insert_with(evidence);
    }

    /// Something of which no verdict is possible.
    pub(super) fn cannot_compare(&mut self, check: Check, finding: Finding) {
        let tally = self.of(check);
        tally.not_compared += 1;
        if tally.uncompared.len() < FINDINGS_KEPT {
            tally.uncompared.push(finding);
        }
    }

    pub(super) fn report(mut self, at: Timestamp, window: Window, zone_data: &ZoneData) -> Report {
        self.of.iter_mut().for_each(|tally| tally.settle(self.set_back.as_deref()));
        let check = |(check, tally): (&Check, Tally)| CheckReport {
            check: *check,
            verdict: match (tally.violations, tally.not_compared, tally.looked_at) {
                (1.., _, _) => Verdict::Violated,
                (0, 1.., _) => Verdict::HoldsWhereCompared,
                (0, 0, 0) => Verdict::NothingToLookAt,
                (0, 0, 1..) => Verdict::Holds,
            },
            looked_at: tally.looked_at,
            unit: check.unit(),
            violations: tally.violations,
            found: tally.found,
            not_compared: tally.not_compared,
            uncompared: tally.uncompared,
            sees: check.sees(),
            cannot_see: check.cannot_see(),
        };
        let checks: Vec<CheckReport> = Check::ALL.iter().zip(self.of).map(check).collect();
        Report {
            at,
            from: Some(window.from).filter(|from| *from != Timestamp::MIN),
            to: Some(window.to).filter(|to| *to != Timestamp::MAX),
            zone_data: zone_data.ours,
            holds: checks.iter().all(|check| check.violations == 0),
            checks,
        }
    }
}

impl Report {
    /// The checks that found a violation.
    pub fn violated(&self) -> impl Iterator<Item = &CheckReport> {
        self.checks.iter().filter(|check| check.violations > 0)
    }

    /// One check.
    ///
    /// # Panics
    /// Never: a report has all of them.
    #[must_use]
    pub fn of(&self, check: Check) -> &CheckReport {
        &self.checks[check as usize]
    }
}
