//! Misfires: what becomes of fires that are due, some of them long ago.
//!
//! [`plan_fires`] looks at a job's **backlog**, the nominal fires after its watermark that are due by the
//! store's clock, and says once for all of it which run and which are passed over. A fire is
//! *missed* when it would be recorded more than the grace after it was due (at its place in the flex window, where the
//! job has one). Those that are not always run. Of the missed ones
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
//! Where a backlog reaches over an edit, a pause or a resume, its fires are those of the job's [`Timeline`]: each by
//! the version in force at its instant, while the policies, those of the version in force now, decide about the fires
//! of all active versions together. What is passed over is then one range per version, and those of paused versions
//! are ranges of their own.
//!
//! Fires on excluded days (`exclusion`) are no part of that decision: they are passed over by the calendar, each run of
//! days as a range of its own, and those around them run or are missed as if they were not there.
//!
//! A plan covers a prefix of the backlog, down to all of it: through its own last fire where the
//! number of runs is limited. The decision is about the covered fires and nothing else, and
//! `valid_until` is the latest store time at which the same fires, looked at again, would be
//! decided in the same way. A writer that is later than that has to plan again.
//!
//! Must stay true: the work depends on how many fires run, never on how many were missed; planning
//! again from the new watermark goes on where this plan ends.

use serde::{Deserialize, Serialize};

use super::timeline::{PassedOver, Timeline};
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
    /// The versions that decide about the backlog.
    pub timeline: &'a Timeline<'a>,
    /// How many fires have run so far, for `max_runs`.
    pub runs_so_far: u64,
    /// What becomes of missed fires.
    pub misfire: MisfirePolicy,
    /// How late a fire may be without being missed.
    pub grace: Span,
    /// The watermark: every fire up to it is recorded.
    pub recorded_through: Timestamp,
    /// A reading of the store's clock.
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
    /// The fires that are passed over, ascending; at most one range per version and run of days.
    pub skipped: Vec<SkippedRange>,
    /// The new watermark: the last fire covered, or the old watermark if none is due.
    pub recorded_through: Timestamp,
    /// The first nominal fire after the new watermark.
    pub next_fire: Option<Timestamp>,
    /// How long after that it is due.
    pub next_flex: Span,
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
    let start = input.recorded_through;
    let ended = input.timeline.exhausted_by(input.runs_so_far);
    let first = if ended { None } else { input.timeline.next_after(start) };
    match first {
        Some(first) if first <= input.now => {
            Backlog::read(input).plan().unwrap_or_else(|| nothing_due(input, Some(first)))
        }
        next_fire => nothing_due(input, next_fire),
    }
}

fn nothing_due(input: &FirePlanInput<'_>, next_fire: Option<Timestamp>) -> FirePlan {
    FirePlan {
        fires: Vec::new(),
        skipped: Vec::new(),
        recorded_through: input.recorded_through,
        next_fire,
        next_flex: flex_of(input, next_fire),
        valid_until: Timestamp::MAX,
    }
}

fn flex_of(input: &FirePlanInput<'_>, fire: Option<Timestamp>) -> Span {
    fire.map_or(Span::ZERO, |fire| input.timeline.due_at(fire).since(fire))
}

/// The latest `count` fires of active versions after `after` that are due at `until`, oldest first. Due times rise with
/// their fires, so at most the last that has happened is not due yet.
fn latest_due(input: &FirePlanInput<'_>, after: Timestamp, until: Timestamp, count: usize) -> Vec<Timestamp> {
    let happened = input.timeline.latest_runs(after, until, count);
    match happened.last() {
        Some(last) if input.timeline.due_at(*last) > until => {
            input.timeline.latest_runs(after, last.minus(INSTANT), count)
        }
        Some(_) | None => happened,
    }
}

/// The fires that are due, as far as they have to be looked at.
struct Backlog<'a> {
    input: &'a FirePlanInput<'a>,
    /// The last fire that is missed, if one is. What is said of fires here is said of those of active versions.
    last_missed: Option<Timestamp>,
    /// The missed fires that run.
    missed: Vec<Timestamp>,
    /// The fires that are on time, up to one more than may run, and the first after them.
    on_time: Vec<Timestamp>,
    upcoming: Option<Timestamp>,
}

const INSTANT: Span = Span::from_micros(1);

impl<'a> Backlog<'a> {
    fn read(input: &'a FirePlanInput<'a>) -> Self {
        let missed_through = input.now.minus(input.grace).minus(INSTANT);
        let first = input.timeline.next_run_after(input.recorded_through);
        let last_missed = first
            .filter(|first| input.timeline.due_at(*first) <= missed_through)
            .map(|first| latest_due(input, input.recorded_through, missed_through, 1).pop().unwrap_or(first));
        let mut backlog =
            Self { input, last_missed, missed: Vec::new(), on_time: Vec::new(), upcoming: None };
        backlog.missed = backlog.latest_missed();
        backlog.upcoming = last_missed.map_or(first, |missed| backlog.next_after(missed));
        while let Some(fire) = backlog.upcoming.filter(|fire| backlog.is_due(*fire))
            && backlog.on_time.len() <= backlog.room()
        {
            backlog.on_time.push(fire);
            backlog.upcoming = backlog.next_after(fire);
        }
        // On-time fires are what makes up for the missed ones.
        if input.misfire == MisfirePolicy::FireOnce && !backlog.on_time.is_empty() {
            backlog.missed.clear();
        }
        backlog
    }

    /// `None` where nothing is due yet.
    fn plan(mut self) -> Option<FirePlan> {
        let (input, start) = (self.input, self.input.recorded_through);
        let kept = self.kept();
        // On-time fires are contiguous and all run, so the next fire is the first that is left of them.
        let next_run = self.on_time.get(kept).copied().or(self.upcoming);
        self.on_time.truncate(kept);

        let valid_until = self.valid_until(&self.on_time);
        let fires = [self.missed.as_slice(), self.on_time.as_slice()].concat();
        let exhausted = input.timeline.exhausted_by(input.runs_so_far.saturating_add(fires.len() as u64));
        let decided = fires.last().copied().max(self.last_missed);
        let covered = if exhausted || next_run.is_some_and(|fire| self.is_due(fire)) {
            decided
        } else {
            // Nothing that runs is due, so whatever a pause or a calendar covers before the next that does goes
            // along.
            let until = next_run.map_or(input.now, |fire| input.now.min(fire.minus(INSTANT)));
            decided.max(input.timeline.last_passed_over(start, until))
        }?;
        // Of those that run it is known; one that is passed over may come before.
        let next_fire = input.timeline.next_passed_over(covered).into_iter().chain(next_run).min();
        let next_fire = next_fire.filter(|_| !exhausted);
        Some(FirePlan {
            skipped: self.skipped(fires.first().copied(), covered),
            recorded_through: covered,
            next_fire,
            next_flex: flex_of(input, next_fire),
            valid_until,
            fires,
        })
    }

    fn is_due(&self, fire: Timestamp) -> bool {
        fire <= self.input.now && self.input.timeline.due_at(fire) <= self.input.now
    }

    fn next_after(&self, fire: Timestamp) -> Option<Timestamp> {
        self.input.timeline.next_run_after(fire)
    }

    /// The missed fires that the policy would run if none followed on time, oldest first.
    fn latest_missed(&self) -> Vec<Timestamp> {
        let (input, Some(last)) = (self.input, self.last_missed) else { return Vec::new() };
        match input.misfire {
            MisfirePolicy::FireOnce => vec![last],
            MisfirePolicy::CatchUp { cap, window } => {
                let too_old = input.now.minus(window).minus(INSTANT).max(input.recorded_through);
                // Due times rise with their fires, so the last that happened before may be due after.
                let over = input.timeline.latest_runs(input.recorded_through, too_old, 1).pop();
                let over = over.filter(|fire| input.timeline.due_at(*fire) > too_old);
                let after = over.map_or(too_old, |fire| fire.minus(INSTANT));
                let count = self.runs_left().min(cap as usize);
                input.timeline.latest_runs(after, last, count)
            }
            MisfirePolicy::Skip => Vec::new(),
        }
    }

    /// How many more runs `max_runs` allows.
    fn runs_left(&self) -> usize {
        let left = self.input.timeline.max_runs().map(|max| max.saturating_sub(self.input.runs_so_far));
        left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// How many on-time fires may run. At least one where no missed one does, or nothing would be covered.
    fn room(&self) -> usize {
        let caught_up = match self.input.misfire {
            MisfirePolicy::CatchUp { .. } => self.missed.len(),
            MisfirePolicy::FireOnce | MisfirePolicy::Skip => 0,
        };
        self.runs_left().min(self.input.limit.max(1) as usize).saturating_sub(caught_up)
    }

    /// How many of the on-time fires are covered: as many as may run, but fewer if only then the
    /// plan stays valid for as long as was asked, and it still covers something.
    fn kept(&self) -> usize {
        let most = self.on_time.len().min(self.room());
        // Under `fire_once` the missed fires are passed over for the sake of the first on-time one.
        let fewest = match self.input.misfire {
            MisfirePolicy::FireOnce => most.min(1),
            MisfirePolicy::CatchUp { .. } | MisfirePolicy::Skip => {
                most.min(usize::from(self.last_missed.is_none()))
            }
        };
        let wanted = self.input.now.plus(self.input.valid_for);
        let lasts = |count: &usize| self.valid_until(&self.on_time[..*count]) >= wanted;
        (fewest..=most).rev().find(lasts).unwrap_or(most)
    }

    /// Until when the same fires would be decided in the same way: until an on-time fire becomes
    /// missed and the policy then has it, or another in its place, no longer run.
    fn valid_until(&self, on_time: &[Timestamp]) -> Timestamp {
        let grace = self.input.grace;
        let due = |fire: &Timestamp| self.input.timeline.due_at(*fire);
        let until_missed =
            |fire: Option<&Timestamp>| fire.map_or(Timestamp::MAX, |fire| due(fire).plus(grace));
        match self.input.misfire {
            // A single fire that becomes missed is the latest and still runs; of several, the first would not.
            MisfirePolicy::FireOnce => match on_time {
                [] | [_] => Timestamp::MAX,
                [first, ..] => until_missed(Some(first)),
            },
            MisfirePolicy::CatchUp { cap, window } => {
                // So many may become missed before one falls out of the latest `cap`.
                let spare = (cap as usize).saturating_sub(self.missed.len());
                let too_many = until_missed(on_time.get(spare));
                let too_old = match (self.missed.first(), on_time.first()) {
                    (Some(oldest), _) => due(oldest).plus(window),
                    (None, Some(oldest)) => due(oldest).plus(window.max(grace)),
                    (None, None) => Timestamp::MAX,
                };
                too_many.min(too_old)
            }
            MisfirePolicy::Skip => until_missed(on_time.first()),
        }
    }

    /// The missed fires before the first that runs, and what pauses and calendars cover.
    fn skipped(&self, first_run: Option<Timestamp>, covered: Timestamp) -> Vec<SkippedRange> {
        let before_runs = first_run.map_or(Timestamp::MAX, |run| run.minus(INSTANT));
        let missed_through = self.last_missed.map(|last| last.min(before_runs));
        let ranges = self.input.timeline.passed_over(self.input.recorded_through, covered, missed_through);
        let range = |range: PassedOver| SkippedRange {
            from: range.from,
            through: range.through,
            reason: range.reason,
        };
        ranges.into_iter().map(range).collect()
    }
}
