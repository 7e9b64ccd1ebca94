//! The calendar of a job: which fires its versions yield, each for the time that it was in force.
//!
//! A version decides from its `effective_from` to that of the next one. Each answer takes steps for what it returns,
//! never for what lies between.

use std::sync::Arc;

use crate::id::{JobId, JobVersion};
use crate::job::{JobDefinition, Standing};
use crate::schedule::{Schedule, Zone};
use crate::store::row::JobVersionRow;
use crate::time::{Span, Timestamp};

/// One version, for the time that it was in force.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Which version.
    pub(super) version: JobVersion,
    /// The first instant that it decides about; the first version decides about everything before, too.
    from: Timestamp,
    /// Whether its fires run.
    pub(super) standing: Standing,
    /// Its definition; `None` where this version of the program cannot read it.
    pub(super) definition: Option<Arc<JobDefinition>>,
}

impl Piece {
    /// Whether zone data that changes can change its fires.
    pub(super) fn depends_on_zone_data(&self) -> bool {
        self.definition.as_ref().is_none_or(|definition| match &definition.schedule {
            Schedule::Cron { zone, .. } => *zone != Zone::UTC,
            Schedule::Interval { .. } | Schedule::OneShot { .. } | Schedule::Manual => false,
        })
    }
}

/// The first fire after an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This one, of the piece with this index.
    At(Timestamp, usize),
    /// There is none.
    Never,
    /// The definition that decides cannot be read.
    Unreadable,
    /// It hangs on how many runs there had been, and those were not counted.
    NotCounted,
}

/// What is known of the runs that a job has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// So many.
    Counted(u64),
    /// Not known: not all of them were looked at.
    NotCounted,
    /// To be ignored.
    Unlimited,
}

/// All versions of a job, in order.
#[derive(Clone, Debug)]
pub(super) struct Calendar(Vec<Piece>);

impl Calendar {
    /// Of these versions, ascending.
    pub(super) fn new(versions: &[JobVersionRow]) -> Self {
        let piece = |row: &JobVersionRow| Piece {
            version: row.version,
            from: row.effective_from,
            standing: row.standing,
            definition: row.definition.read().ok().cloned(),
        };
        Self(versions.iter().map(piece).collect())
    }

    /// The piece with this index.
    pub(super) fn piece(&self, index: usize) -> &Piece {
        &self.0[index]
    }

    /// The index of the piece that decides about an instant. There is at least one piece.
    pub(super) fn index_at(&self, at: Timestamp) -> Option<usize> {
        let later = self.0.iter().skip(1).take_while(|piece| piece.from <= at).count();
        (!self.0.is_empty()).then_some(later)
    }

    /// When the next piece begins.
    pub(super) fn end(&self, index: usize) -> Timestamp {
        self.0.get(index + 1).map_or(Timestamp::MAX, |next| next.from)
    }

    /// From when to when the job was paused, each time.
    pub(super) fn pauses(&self) -> Vec<(Timestamp, Timestamp)> {
        let paused = self.0.iter().enumerate().filter(|(_, piece)| piece.standing == Standing::Paused);
        paused.map(|(index, piece)| (piece.from, self.end(index))).collect()
    }

    /// Whether what is recorded of a piece is at its end: while a job is paused, what will become of its time is open.
    fn has_fires(&self, index: usize) -> bool {
        self.0[index].standing == Standing::Active || index + 1 < self.0.len()
    }

    /// Whether a version that decides from here on leaves no run after so many. How often a job runs at most is said by
    /// the version in force when a fire is recorded, which may be a later one than that of the fire.
    fn exhausted_from(&self, index: usize, runs: u64) -> bool {
        let definitions = self.0[index..].iter().filter_map(|piece| piece.definition.as_ref());
        definitions.into_iter().any(|definition| definition.bounds.exhausted_by(runs))
    }

    /// The first fire after an instant, of a job that has had so many runs by then.
    pub(super) fn next_after(&self, after: Timestamp, runs: Runs) -> Next {
        let Some(first) = self.index_at(after.next()) else { return Next::Never };
        for (index, piece) in self.0.iter().enumerate().skip(first) {
            if !self.has_fires(index) {
                continue;
            }
            let Some(definition) = &piece.definition else { return Next::Unreadable };
            let from = if index == 0 { after } else { after.max(piece.from.minus(Span::from_micros(1))) };
            let next = definition.bounds.next_fire_after(&definition.schedule, from);
            let Some(fire) = next.filter(|fire| *fire < self.end(index)) else { continue };
            match runs {
                Runs::Counted(runs) if self.exhausted_from(index, runs) => {}
                Runs::NotCounted if definition.bounds.max_runs.is_some() => return Next::NotCounted,
                Runs::Counted(_) | Runs::NotCounted | Runs::Unlimited => return Next::At(fire, index),
            }
        }
        Next::Never
    }

    /// Whether an instant is a fire, whatever the number of runs; `None` where that cannot be read.
    pub(super) fn yields(&self, fire: Timestamp) -> Option<bool> {
        match self.next_after(fire.minus(Span::from_micros(1)), Runs::Unlimited) {
            Next::At(next, _) => Some(next == fire),
            Next::Never | Next::NotCounted => Some(false),
            Next::Unreadable => None,
        }
    }

    /// When a fire of a job is due: at its place in the window of the version that decides, no later than that decides.
    pub(super) fn due_at(&self, job: JobId, fire: Timestamp) -> Timestamp {
        let Some(index) = self.index_at(fire) else { return fire };
        let Some(definition) = &self.0[index].definition else { return fire };
        let due_at = fire.plus(definition.flex_of(job, fire));
        due_at.min(self.end(index).minus(Span::from_micros(1))).max(fire)
    }

    /// How many fires lie after one instant and before another, counted up to a bound, and the last of those.
    pub(super) fn count_between(
        &self,
        after: Timestamp,
        before: Timestamp,
        most: usize,
    ) -> (usize, Option<Timestamp>) {
        let next = |at: Timestamp| match self.next_after(at, Runs::Unlimited) {
            Next::At(fire, _) => Some(fire).filter(|fire| *fire < before),
            Next::Never | Next::Unreadable | Next::NotCounted => None,
        };
        let fires = core::iter::successors(next(after), |fire| next(*fire));
        fires.take(most).fold((0, None), |(count, _), fire| (count + 1, Some(fire)))
    }
}
