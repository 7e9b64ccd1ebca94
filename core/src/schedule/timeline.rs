//! The timeline of a job: which of its versions decides about which stretch of time, and which fires that yields.
//!
//! A version is in force from its `effective_from` until that of the next one; the first one looked at also covers what
//! lies before it. A fire is a *nominal fire* of the job if the version in force at that instant yields it, within its
//! start and end. Those of an active version run by the job's policies. Those of a paused one are passed over, whatever
//! the policies say, and only once that version is over: as long as a job is paused, what will become of its time is
//! open, so the version in force has no nominal fires while it is paused. `max_runs` counts over the life of the job,
//! so the version in force alone says what it is.
//!
//! A fire on a day that its version excludes (`exclusion`) is a nominal fire all the same, and passed over as well: by
//! the calendar, so it is neither missed nor counted among those that make up for missed ones.
//!
//! A fire is *due* at its place in the flex window of its version (`flex`), or, where none has one, when it happens.
//!
//! Must stay true: nearly every job has one version that matters, and pays for no other. Where there are several, the
//! work depends on their number and on what is returned, never on how many fires lie in between.

use super::{Bounds, Excluded, Flex, Schedule};
use crate::execution::SkipReason;
use crate::id::{JobId, JobVersion};
use crate::job::{JobDefinition, Standing, Unreadable};
use crate::store::reply::{DueJob, EarlierVersion};
use crate::time::{Span, Timestamp};

/// One version, and from when it decides.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Which version.
    pub version: JobVersion,
    /// From when it decides.
    pub effective_from: Timestamp,
    /// Whether its fires run.
    pub standing: Standing,
    /// Its schedule.
    pub schedule: &'a Schedule,
    /// Its bounds.
    pub bounds: &'a Bounds,
    /// The window in which its fires are due.
    pub flex: Flex,
    /// The days on which its fires are passed over.
    pub excluded: Excluded<'a>,
}

impl<'a> Piece<'a> {
    /// The piece of a version with this definition.
    #[must_use]
    pub const fn of(
        job: JobId,
        version: JobVersion,
        effective_from: Timestamp,
        standing: Standing,
        definition: &'a JobDefinition,
    ) -> Self {
        let (schedule, bounds) = (&definition.schedule, &definition.bounds);
        let excluded = Excluded::of(&definition.exclude, schedule);
        let flex = Flex::of(job, definition.flex);
        Self { version, effective_from, standing, schedule, bounds, flex, excluded }
    }
}

/// The versions of a job that matter, by time.
#[derive(Clone, Debug)]
pub struct Timeline<'a> {
    earlier: Vec<Piece<'a>>,
    current: Piece<'a>,
}

const INSTANT: Span = Span::from_micros(1);

/// A piece with the ends that its neighbours give it, bounds included.
#[derive(Clone, Copy)]
struct Stretch<'a> {
    piece: &'a Piece<'a>,
    from: Timestamp,
    through: Timestamp,
}

impl Stretch<'_> {
    fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let after = if self.from == Timestamp::MIN { after } else { after.max(self.from.minus(INSTANT)) };
        if after >= self.through {
            return None;
        }
        let next = self.piece.bounds.next_fire_after(self.piece.schedule, after)?;
        (next <= self.through).then_some(next)
    }

    fn latest(&self, after: Timestamp, until: Timestamp, count: usize) -> Vec<Timestamp> {
        let after = if self.from == Timestamp::MIN { after } else { after.max(self.from.minus(INSTANT)) };
        let until = until.min(self.through);
        if after >= until {
            return Vec::new();
        }
        self.piece.bounds.latest_fires(self.piece.schedule, after, until, count)
    }

    /// The first fire after an instant on a day that is not excluded. Excluded days are leapt over.
    fn next_run(&self, after: Timestamp) -> Option<Timestamp> {
        let mut fire = self.next_after(after)?;
        while let Some(through) = self.piece.excluded.through(fire) {
            fire = self.next_after(through)?;
        }
        Some(fire)
    }

    /// The latest fires on days that are not excluded, oldest first.
    fn latest_runs(&self, after: Timestamp, mut until: Timestamp, count: usize) -> Vec<Timestamp> {
        let excluded = &self.piece.excluded;
        if excluded.is_nothing() {
            return self.latest(after, until, count);
        }
        let mut latest = Vec::new();
        while latest.len() < count
            && let Some(last) = self.latest(after, until, 1).pop()
        {
            if let Some(since) = excluded.since(last) {
                until = since.minus(INSTANT);
                continue;
            }
            let just_before = excluded.opens(last).max(after.next()).minus(INSTANT);
            let mut of_these = self.latest(just_before, last, count - latest.len());
            of_these.extend(latest);
            latest = of_these;
            until = just_before;
        }
        latest
    }

    /// The first fire after an instant on an excluded day.
    fn next_excluded(&self, mut after: Timestamp) -> Option<Timestamp> {
        let excluded = &self.piece.excluded;
        while !excluded.is_nothing()
            && let Some(fire) = self.next_after(after)
        {
            if excluded.calendar_of(fire).is_some() {
                return Some(fire);
            }
            after = excluded.closes(fire);
        }
        None
    }

    /// The last fire after `after` and at or before `until` on an excluded day.
    fn last_excluded(&self, after: Timestamp, mut until: Timestamp) -> Option<Timestamp> {
        let excluded = &self.piece.excluded;
        while !excluded.is_nothing()
            && let Some(last) = self.latest(after, until, 1).pop()
        {
            if excluded.calendar_of(last).is_some() {
                return Some(last);
            }
            let opens = excluded.opens(last);
            if opens <= after {
                return None;
            }
            until = opens.minus(INSTANT);
        }
        None
    }

    /// The fires after `after` of an active version that are passed over: what is missed up to `missed_through`, and what
    /// is excluded up to `through`, one range for each run of days.
    fn passed_over(
        &self,
        mut after: Timestamp,
        through: Timestamp,
        missed_through: Option<Timestamp>,
        ranges: &mut Vec<PassedOver>,
    ) {
        let excluded = &self.piece.excluded;
        let missed_through = missed_through.unwrap_or(Timestamp::MIN);
        while let Some(from) = self.next_after(after)
            && from <= through.max(missed_through)
        {
            let (days_end, most, reason) = match excluded.through(from) {
                Some(days_end) => (days_end, through, SkipReason::Calendar),
                None => (excluded.closes(from), missed_through, SkipReason::Misfire),
            };
            if from <= most {
                let through = self.latest(after, most.min(days_end), 1).pop().unwrap_or(from);
                ranges.push(PassedOver { from, through, reason });
            }
            if days_end == Timestamp::MAX {
                break;
            }
            after = days_end;
        }
    }
}

/// What is passed over of one version for one reason: its first and its last such fire.
pub(super) struct PassedOver {
    pub(super) from: Timestamp,
    pub(super) through: Timestamp,
    pub(super) reason: SkipReason,
}

impl<'a> Timeline<'a> {
    /// A timeline of these versions: those before the one in force, oldest first, and that one.
    #[must_use]
    pub const fn new(earlier: Vec<Piece<'a>>, current: Piece<'a>) -> Self {
        Self { earlier, current }
    }

    /// A timeline of one active version that has always been in force, whose fires are due when they happen.
    #[must_use]
    pub const fn of_one(schedule: &'a Schedule, bounds: &'a Bounds) -> Self {
        let current = Piece {
            version: JobVersion::FIRST,
            effective_from: Timestamp::MIN,
            standing: Standing::Active,
            schedule,
            bounds,
            flex: Flex::NONE,
            excluded: Excluded::NOTHING,
        };
        Self { earlier: Vec::new(), current }
    }

    /// The same with these days excluded by the version in force.
    #[must_use]
    pub const fn excluding(mut self, excluded: Excluded<'a>) -> Self {
        self.current.excluded = excluded;
        self
    }

    /// The timeline of these versions before the one in force, and that one.
    ///
    /// # Errors
    /// [`Unreadable`]: an earlier version that matters cannot be read.
    pub fn of_versions(
        job: JobId,
        earlier: &'a [EarlierVersion],
        current: Piece<'a>,
    ) -> Result<Self, Unreadable> {
        let piece = |version: &'a EarlierVersion| {
            let definition = version.definition.read().map_err(Unreadable::clone)?;
            Ok(Piece::of(job, version.version, version.effective_from, version.standing, definition))
        };
        Ok(Self { earlier: earlier.iter().map(piece).collect::<Result<_, Unreadable>>()?, current })
    }

    /// The timeline of a due job whose own definition is this one.
    ///
    /// # Errors
    /// [`Unreadable`]: an earlier version that matters cannot be read.
    pub fn of_due(job: &'a DueJob, definition: &'a JobDefinition) -> Result<Self, Unreadable> {
        let current = Piece::of(job.job, job.version, job.effective_from, job.standing, definition);
        Self::of_versions(job.job, &job.earlier, current)
    }

    /// The same without its pauses: for a deliberate bug.
    pub(crate) fn never_paused(mut self) -> Self {
        for piece in self.earlier.iter_mut().chain(core::iter::once(&mut self.current)) {
            piece.standing = Standing::Active;
        }
        self
    }

    /// The same without its flex windows: for a deliberate bug.
    pub(crate) fn never_flexed(mut self) -> Self {
        for piece in self.earlier.iter_mut().chain(core::iter::once(&mut self.current)) {
            piece.flex = Flex::NONE;
        }
        self
    }

    /// The same without its excluded days: for a deliberate bug.
    pub(crate) fn never_excluded(mut self) -> Self {
        for piece in self.earlier.iter_mut().chain(core::iter::once(&mut self.current)) {
            piece.excluded = Excluded::NOTHING;
        }
        self
    }

    /// The same with its excluded days taken for those of UTC: for a deliberate bug.
    pub(crate) fn excluded_by_utc(mut self) -> Self {
        for piece in self.earlier.iter_mut().chain(core::iter::once(&mut self.current)) {
            piece.excluded = piece.excluded.in_utc();
        }
        self
    }

    /// When a fire is due: at a place of its own in the window of its version, and no later than that decides.
    #[must_use]
    pub fn due_at(&self, fire: Timestamp) -> Timestamp {
        let Some(stretch) = self.stretches().find(|stretch| fire <= stretch.through) else { return fire };
        let flex = stretch.piece.flex;
        if flex.is_none() || !Self::runs(&stretch) || stretch.piece.excluded.calendar_of(fire).is_some() {
            return fire;
        }
        let next = stretch.piece.bounds.next_fire_after(stretch.piece.schedule, fire);
        fire.plus(flex.offset(fire, next)).min(stretch.through)
    }

    /// Whether `runs` runs leave no more.
    #[must_use]
    pub fn exhausted_by(&self, runs: u64) -> bool {
        self.current.bounds.exhausted_by(runs)
    }

    /// How often the job runs at most.
    #[must_use]
    pub const fn max_runs(&self) -> Option<u64> {
        self.current.bounds.max_runs
    }

    /// Which version decides about an instant.
    #[must_use]
    pub fn version_at(&self, at: Timestamp) -> JobVersion {
        let stretch = self.stretches().find(|stretch| at <= stretch.through);
        stretch.map_or(self.current.version, |stretch| stretch.piece.version)
    }

    /// The first nominal fire after an instant, whether it runs or is passed over.
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        // The stretches follow each other, so the first that has one decides.
        self.stretches().filter(Self::has_fires).find_map(|stretch| stretch.next_after(after))
    }

    /// The first fire of an active version after an instant that is not excluded.
    #[must_use]
    pub fn next_run_after(&self, after: Timestamp) -> Option<Timestamp> {
        self.stretches().filter(Self::runs).find_map(|stretch| stretch.next_run(after))
    }

    /// The latest `count` fires of active versions after `after` and at or before `until` that are not excluded, oldest
    /// first.
    #[must_use]
    pub fn latest_runs(&self, after: Timestamp, until: Timestamp, count: usize) -> Vec<Timestamp> {
        if self.earlier.is_empty() {
            return match self.current.standing {
                Standing::Active => self.all_of_current().latest_runs(after, until, count),
                Standing::Paused => Vec::new(),
            };
        }
        let stretches: Vec<Stretch<'_>> = self.stretches().filter(Self::runs).collect();
        let mut latest = Vec::new();
        for stretch in stretches.iter().rev() {
            let mut of_this = stretch.latest_runs(after, until, count.saturating_sub(latest.len()));
            of_this.extend(latest);
            latest = of_this;
        }
        latest
    }

    /// The last fire at or before `until`, and after `after`, that a pause or a calendar passes over.
    pub(super) fn last_passed_over(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let last = |stretch: Stretch<'_>| match stretch.piece.standing {
            Standing::Active => stretch.last_excluded(after, until),
            Standing::Paused => stretch.latest(after, until, 1).pop(),
        };
        self.stretches().filter(Self::has_fires).filter_map(last).last()
    }

    /// The first fire after `after` that a pause or a calendar passes over.
    pub(super) fn next_passed_over(&self, after: Timestamp) -> Option<Timestamp> {
        self.stretches().filter(Self::has_fires).find_map(|stretch| match stretch.piece.standing {
            Standing::Active => stretch.next_excluded(after),
            Standing::Paused => stretch.next_after(after),
        })
    }

    /// What each version passes over after `after`: of a paused one all up to `through`; of an active one all up to
    /// `missed_through`, where anything is missed, and up to `through` what is excluded.
    pub(super) fn passed_over(
        &self,
        after: Timestamp,
        through: Timestamp,
        missed_through: Option<Timestamp>,
    ) -> Vec<PassedOver> {
        let mut ranges = Vec::new();
        for stretch in self.stretches().filter(Self::has_fires) {
            match stretch.piece.standing {
                Standing::Active => stretch.passed_over(after, through, missed_through, &mut ranges),
                Standing::Paused => {
                    if let Some(from) = stretch.next_after(after).filter(|fire| *fire <= through) {
                        let through = stretch.latest(after, through, 1).pop().unwrap_or(from);
                        ranges.push(PassedOver { from, through, reason: SkipReason::Paused });
                    }
                }
            }
        }
        ranges
    }

    /// The first `limit` nominal fires after `after` and at or before `until`, in order.
    #[must_use]
    pub fn fires_between(&self, after: Timestamp, until: Timestamp, limit: usize) -> Vec<Timestamp> {
        let mut fires = Vec::new();
        for stretch in self.stretches().filter(Self::has_fires) {
            let mut after = after;
            while fires.len() < limit
                && let Some(fire) = stretch.next_after(after).filter(|fire| *fire <= until)
            {
                fires.push(fire);
                after = fire;
            }
        }
        fires
    }

    fn all_of_current(&self) -> Stretch<'_> {
        let from = if self.earlier.is_empty() { Timestamp::MIN } else { self.current.effective_from };
        Stretch { piece: &self.current, from, through: Timestamp::MAX }
    }

    fn stretches(&self) -> impl Iterator<Item = Stretch<'_>> {
        let earlier = self.earlier.iter().enumerate().map(|(at, piece)| {
            let next = self.earlier.get(at + 1).unwrap_or(&self.current);
            let from = if at == 0 { Timestamp::MIN } else { piece.effective_from };
            Stretch { piece, from, through: next.effective_from.minus(INSTANT) }
        });
        earlier.chain(core::iter::once(self.all_of_current()))
    }

    fn runs(stretch: &Stretch<'_>) -> bool {
        match stretch.piece.standing {
            Standing::Active => true,
            Standing::Paused => false,
        }
    }

    /// The version in force has no fires while it is paused: it has no end yet.
    fn has_fires(stretch: &Stretch<'_>) -> bool {
        Self::runs(stretch) || stretch.through != Timestamp::MAX
    }
}
