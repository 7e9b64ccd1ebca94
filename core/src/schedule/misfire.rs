//! Misfires: what becomes of fires that are due, some of them long ago.
//!
//! [`plan_fires`] looks at a job's **backlog**, the nominal fires after its watermark and up to the
//! store's clock, and says once for all of it which run and which are passed over. A fire is
//! *missed* when it would be recorded more than the grace after it was due. Those that are not always
//! run. Of the missed ones
//!
//! - `fire_once` runs the latest, unless a fire that is on time follows it in the backlog: that one is
//!   the run that makes up for all before it. Either way a backlog ends with a run of its latest fire;
//! - `catch_up` runs the latest `cap`, but none that was due longer than `window` ago, oldest first;
//! - `skip` runs none.
//!
//! What is passed over is one range, from the first to the last such fire. It always lies before the
//! fires that run, so it covers none of them, and ranges of one job, planned one after the other from
//! a rising watermark, never overlap.
//!
//! A plan covers a prefix of the backlog, down to all of it: through its own last fire where the
//! number of runs is limited. The decision is about the covered fires and nothing else, and
//! `valid_until` is the latest store time at which the same fires, looked at again, would be
//! decided in the same way. A writer that is later than that has to plan again.
//!
//! Must stay true: the work depends on how many fires run, never on how many were missed; planning
//! again from the new watermark goes on where this plan ends.

use serde::{Deserialize, Serialize};

use super::{Bounds, Schedule};
use crate::execution::SkipReason;
use crate::limits::FIRES_PER_PASS_MAX;
use crate::time::{Span, Timestamp};

/// How late a fire may be recorded without counting as missed, where a job does not say.
pub const MISFIRE_GRACE_DEFAULT: Span = Span::from_secs(30);

/// What becomes of fires that were missed. In JSON `"fire_once"`, `{"catch_up":{"cap":10,
/// "window_ms":3600000}}` (without `window_ms` there is no limit to their age) or `"skip"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "super::wire::MisfireWire", into = "super::wire::MisfireWire")]
pub enum MisfirePolicy {
    /// One run makes up for them.
    #[default]
    FireOnce,
    /// The latest are run, oldest first.
    CatchUp {
        /// How many at most, from 1 to [`FIRES_PER_PASS_MAX`].
        cap: u32,
        /// How long ago they may have been due.
        window: Span,
    },
    /// None is run.
    Skip,
}

/// What is wrong with a misfire policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MisfireError {
    /// The cap is zero or too large.
    #[error("cap: from 1 to {FIRES_PER_PASS_MAX} missed fires can be caught up; use skip for none")]
    Cap,
}

impl MisfirePolicy {
    /// Checks what the type leaves open; a policy that was read from JSON has passed.
    ///
    /// # Errors
    /// [`MisfireError::Cap`].
    pub fn validate(self) -> Result<(), MisfireError> {
        match self {
            Self::CatchUp { cap, .. } if !(1..=FIRES_PER_PASS_MAX).contains(&cap) => Err(MisfireError::Cap),
            Self::FireOnce | Self::CatchUp { .. } | Self::Skip => Ok(()),
        }
    }
}

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct FirePlanInput<'a> {
    /// The schedule of the version in force.
    pub schedule: &'a Schedule,
    /// Its bounds.
    pub bounds: &'a Bounds,
    /// How many fires have run so far, for `max_runs`.
    pub runs_so_far: u64,
    /// What becomes of missed fires.
    pub misfire: MisfirePolicy,
    /// How late a fire may be without being missed.
    pub grace: Span,
    /// The watermark: every fire up to it is recorded.
    pub recorded_through: Timestamp,
    /// A reading of the store's clock. Fires up to it are due.
    pub now: Timestamp,
    /// How many fires may run by this plan; at least one is assumed, and at least a `catch_up`'s cap,
    /// since that decision is not divided.
    pub limit: u32,
    /// How long after `now` the plan should still be valid, if covering fewer fires can bring that about:
    /// the time that the writer may need.
    pub valid_for: Span,
}

/// What is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirePlan {
    /// The fires that run, oldest first.
    pub fires: Vec<Timestamp>,
    /// The fires that are passed over; at most one range.
    pub skipped: Vec<SkippedRange>,
    /// The new watermark: the last fire covered, or the old watermark if none is due.
    pub recorded_through: Timestamp,
    /// The first nominal fire after the new watermark.
    pub next_fire: Option<Timestamp>,
    /// The latest store time at which the decision is still this one; [`Timestamp::MAX`] if for ever.
    pub valid_until: Timestamp,
}

/// A run of fires that are passed over. Its bounds are fires and belong to it; a single fire is both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkippedRange {
    /// The first of them.
    pub from: Timestamp,
    /// The last of them.
    pub through: Timestamp,
    /// Why.
    pub reason: SkipReason,
}

/// Decides what becomes of the fires that are due.
#[must_use]
pub fn plan_fires(input: &FirePlanInput<'_>) -> FirePlan {
    Backlog { input }.plan()
}

struct Backlog<'a> {
    input: &'a FirePlanInput<'a>,
}

/// The fires of a backlog that would run.
struct Runs {
    missed: Vec<Timestamp>,
    on_time: Vec<Timestamp>,
}

const INSTANT: Span = Span::from_micros(1);

impl Backlog<'_> {
    fn plan(&self) -> FirePlan {
        let input = self.input;
        let start = input.recorded_through;
        if input.bounds.exhausted_by(input.runs_so_far) {
            return FirePlan {
                fires: Vec::new(),
                skipped: Vec::new(),
                recorded_through: start,
                next_fire: None,
                valid_until: Timestamp::MAX,
            };
        }
        let last_missed = self.last_fire(start, self.missed_through());
        let mut runs = self.runs();
        // One more than may run was asked for, to learn where the fires begin that are left.
        let kept = self.kept(&runs, last_missed);
        let first_left = runs.on_time.get(kept).copied();
        runs.on_time.truncate(kept);

        let valid_until = self.valid_until(&runs.missed, &runs.on_time);
        let fires = [runs.missed, runs.on_time].concat();
        let exhausted = input.bounds.exhausted_by(input.runs_so_far.saturating_add(fires.len() as u64));
        // On-time fires are contiguous and all run, so the last fire covered is the last to run, or
        // the last missed one where none runs after it.
        let covered = fires.last().copied().max(last_missed.filter(|_| !exhausted)).unwrap_or(start);
        debug_assert!(
            first_left.is_none_or(|left| left > covered),
            "what is left lies beyond what is covered"
        );
        FirePlan {
            skipped: self.skipped(fires.first().copied(), covered),
            recorded_through: covered,
            next_fire: if exhausted { None } else { input.bounds.next_fire_after(input.schedule, covered) },
            valid_until,
            fires,
        }
    }

    /// The last instant at which a due fire is missed by now.
    fn missed_through(&self) -> Timestamp {
        self.input.now.minus(self.input.grace).minus(INSTANT)
    }

    fn limit(&self) -> usize {
        self.input.limit.max(1) as usize
    }

    /// How many more runs `max_runs` allows, as far as that is less than a plan makes anyway.
    fn runs_left(&self) -> usize {
        let left = self.input.bounds.max_runs.map(|max| max.saturating_sub(self.input.runs_so_far));
        left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// The missed fires that run, and the on-time ones up to one more than may run.
    fn runs(&self) -> Runs {
        let input = self.input;
        let after = input.recorded_through.max(self.missed_through());
        let on_time = |count: usize| input.bounds.fires_between(input.schedule, after, input.now, count);
        let latest_missed = |oldest: Timestamp, count: usize| {
            let after = input.recorded_through.max(oldest.minus(INSTANT));
            input.bounds.latest_fires(
                input.schedule,
                after,
                self.missed_through(),
                count.min(self.runs_left()),
            )
        };
        let limit = self.limit();
        match input.misfire {
            MisfirePolicy::FireOnce => {
                let on_time = on_time(limit + 1);
                let missed = if on_time.is_empty() { latest_missed(Timestamp::MIN, 1) } else { Vec::new() };
                Runs { missed, on_time }
            }
            MisfirePolicy::CatchUp { cap, window } => {
                let missed = latest_missed(input.now.minus(window), cap as usize);
                Runs { on_time: on_time(limit.saturating_sub(missed.len()) + 1), missed }
            }
            MisfirePolicy::Skip => Runs { missed: Vec::new(), on_time: on_time(limit + 1) },
        }
    }

    /// How many of the on-time fires are covered: as many as may run, but fewer if only then the
    /// plan stays valid for as long as was asked, and it still covers something.
    fn kept(&self, runs: &Runs, last_missed: Option<Timestamp>) -> usize {
        let room = self.limit().min(self.runs_left()).saturating_sub(runs.missed.len());
        let most = runs.on_time.len().min(room);
        // Under `fire_once` the missed fires are passed over for the sake of the first on-time one.
        let fewest = match self.input.misfire {
            MisfirePolicy::FireOnce => most.min(1),
            MisfirePolicy::CatchUp { .. } | MisfirePolicy::Skip => {
                usize::from(last_missed.is_none()).min(most)
            }
        };
        let wanted = self.input.now.plus(self.input.valid_for);
        let lasts = |count: &usize| self.valid_until(&runs.missed, &runs.on_time[..*count]) >= wanted;
        (fewest..=most).rev().find(lasts).unwrap_or(most)
    }

    /// Until when the same fires would be decided in the same way: until an on-time fire becomes
    /// missed and the policy then has it, or another in its place, no longer run.
    fn valid_until(&self, missed: &[Timestamp], on_time: &[Timestamp]) -> Timestamp {
        let grace = self.input.grace;
        let until_missed = |fire: Option<&Timestamp>| fire.map_or(Timestamp::MAX, |fire| fire.plus(grace));
        match self.input.misfire {
            // A single fire that becomes missed is the latest and still runs; of several, the first would not.
            MisfirePolicy::FireOnce => match on_time {
                [] | [_] => Timestamp::MAX,
                [first, ..] => until_missed(Some(first)),
            },
            MisfirePolicy::CatchUp { cap, window } => {
                // So many may become missed before one falls out of the latest `cap`.
                let spare = (cap as usize).saturating_sub(missed.len());
                let too_many = until_missed(on_time.get(spare));
                let too_old = match (missed.first(), on_time.first()) {
                    (Some(oldest), _) => oldest.plus(window),
                    (None, Some(oldest)) => oldest.plus(window.max(grace)),
                    (None, None) => Timestamp::MAX,
                };
                too_many.min(too_old)
            }
            MisfirePolicy::Skip => until_missed(on_time.first()),
        }
    }

    /// The fires before the first that runs, or all that are covered if none does.
    fn skipped(&self, first_run: Option<Timestamp>, covered: Timestamp) -> Vec<SkippedRange> {
        let start = self.input.recorded_through;
        let until = first_run.map_or(covered, |run| run.minus(INSTANT));
        let from =
            self.input.bounds.next_fire_after(self.input.schedule, start).filter(|from| *from <= until);
        let through = from.and_then(|_| self.last_fire(start, until));
        from.zip(through)
            .map(|(from, through)| SkippedRange { from, through, reason: SkipReason::Misfire })
            .into_iter()
            .collect()
    }

    fn last_fire(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        self.input.bounds.latest_fires(self.input.schedule, after, until, 1).pop()
    }
}
