//! One decision about a backlog: what ran and what was passed over at one instant, against the misfire policy.
//!
//! Everything that one materialisation recorded of a job carries the same instant, and its ranges lie before the fires
//! that ran for them. So a decision is a stretch of the ledger, and only its open ranges and two counts are kept of it.

use std::sync::Arc;

use super::Check;
use super::report::{Finding, Tallies};
use crate::id::JobId;
use crate::job::JobDefinition;
use crate::schedule::misfire::MisfirePolicy;
use crate::store::row::SkippedRangeRow;
use crate::time::{Span, Timestamp};

const ADVICE: &str = "compare the job's definition and the store's clock at that time with what was decided";

/// A range of missed fires, and how many fires ran after it in the same decision.
#[derive(Debug)]
struct OpenRange {
    row: SkippedRangeRow,
    definition: Arc<JobDefinition>,
    /// When the last fire of it was due.
    last_due_at: Timestamp,
    later_runs: u64,
}

/// What was decided at one instant so far.
#[derive(Debug)]
pub(super) struct Decision {
    at: Timestamp,
    ranges: Vec<OpenRange>,
    missed: u64,
    policy: Option<MisfirePolicy>,
}

/// What is known of a job when a decision is judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) job: JobId,
    /// The runs that the job has had, by its own counter.
    pub(super) runs: u64,
    /// Whether the decision may go on behind what is looked at.
    pub(super) cut: Cut,
}

/// Whether all of a decision was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// All of it.
    Whole,
    /// What comes after it is not looked at.
    Short,
}

/// Whether a fire that was due at an instant counts as missed when it is recorded at another.
pub(super) fn is_missed(definition: &JobDefinition, due_at: Timestamp, recorded_at: Timestamp) -> bool {
    recorded_at > due_at.plus(definition.grace())
}

impl Decision {
    /// Nothing yet of what was decided at an instant.
    pub(super) const fn new(at: Timestamp) -> Self {
        Self { at, ranges: Vec::new(), missed: 0, policy: None }
    }

    /// When it was made.
    pub(super) const fn at(&self) -> Timestamp {
        self.at
    }

    /// A fire that ran, and when it was due.
    pub(super) fn ran(&mut self, due_at: Timestamp, definition: Option<&Arc<JobDefinition>>) {
        for range in &mut self.ranges {
            range.later_runs += 1;
        }
        if let Some(definition) = definition {
            self.policy = Some(definition.misfire);
            self.missed += u64::from(is_missed(definition, due_at, self.at));
        }
    }

    /// A range that was passed over, decided by this definition, and when the last fire of it was due.
    pub(super) fn passed_over(
        &mut self,
        row: SkippedRangeRow,
        definition: Arc<JobDefinition>,
        last_due_at: Timestamp,
    ) {
        self.ranges.push(OpenRange { row, definition, last_due_at, later_runs: 0 });
    }

    /// Judges it.
    pub(super) fn judge(self, tallies: &mut Tallies, judged: Judged) {
        let allowed = match self.policy {
            Some(MisfirePolicy::FireOnce) => 1,
            Some(MisfirePolicy::CatchUp { cap, .. }) => u64::from(cap),
            Some(MisfirePolicy::Skip) => 0,
            None => u64::MAX,
        };
        if self.missed > allowed {
            let what = format!(
                "at {} {} missed fires were run, and the policy {:?} runs at most {allowed}",
                self.at, self.missed, self.policy
            );
            tallies.broke(Check::NoPhantomFire, Finding::of_job(judged.job, what, ADVICE));
        }
        for range in &self.ranges {
            let Some(why) = unjustified(range, judged) else { continue };
            let row = &range.row;
            let what =
                format!("{} to {} was passed over at {}: {why}", row.from, row.through, row.decided_at);
            let finding = Finding::of_job(judged.job, what, ADVICE);
            // How long ago a fire was due is told by the clock.
            let by_clock = match range.definition.misfire {
                MisfirePolicy::CatchUp { window, .. } => window < Span::MAX,
                MisfirePolicy::FireOnce | MisfirePolicy::Skip => false,
            };
            match judged.cut {
                Cut::Whole if by_clock => tallies.broke_by_clock(Check::NoLostFire, finding),
                Cut::Whole => tallies.broke(Check::NoLostFire, finding),
                Cut::Short => tallies.cannot_compare(Check::NoLostFire, finding),
            }
        }
    }
}

/// Why a range should not have been passed over.
fn unjustified(range: &OpenRange, judged: Judged) -> Option<String> {
    let OpenRange { row, definition, last_due_at, later_runs } = range;
    let runs_ended = definition.bounds.exhausted_by(judged.runs);
    let justified = match definition.misfire {
        MisfirePolicy::Skip => true,
        MisfirePolicy::FireOnce => *later_runs >= 1,
        MisfirePolicy::CatchUp { cap, window } => {
            row.decided_at.since(*last_due_at) > window || *later_runs >= u64::from(cap) || runs_ended
        }
    };
    (!justified).then(|| {
        format!("the policy is {:?}, and {later_runs} later fires were run then", definition.misfire)
    })
}
