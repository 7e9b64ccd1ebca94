//! Fires: from the walk over local time to instants, through a zone and its clock changes.
//!
//! The rule is one sentence: a fire is an instant whose local time matches. Two exceptions need a
//! policy. Where the clock was set forward over a match ([`GapPolicy`]) there is no such instant;
//! where it was set back over one ([`RepeatPolicy`]) there are two. An expression asking for times
//! of day runs once in either case; an interval-like one keeps its distances instead.
//!
//! How [`CronFires::next_after`] avoids looking at every offset change: the fires are the union,
//! over all matching local times, of the instants that each maps to. If `t` is not inside a stretch
//! that is passed twice, no match at or before `t`'s local time maps to anything after `t`, and
//! matches later in local time map to later instants. So the next match in local time decides. Only
//! inside a repeated stretch do the two passes have to be told apart. The way back is the mirror
//! image of this.
//!
//! Must stay true: fires rise strictly, asking again from a fire is the same as going on from it,
//! and no call takes more steps than the zone has clock changes.

use core::fmt;
use core::iter;

use chrono::{DateTime, NaiveDateTime};
use serde::{Deserialize, Serialize};

use super::cron::CronExpr;
use super::walk::{FIRST_LOCAL, LAST_LOCAL, LocalSeconds};
use super::zone::{CHANGES_APART, LocalTime, UtcSeconds, Zone};
use crate::time::Timestamp;

const MICROS: i64 = 1_000_000;

/// The first instant that may be a fire: the year 1 begins.
pub const FIRST_FIRE: Timestamp = Timestamp::from_micros(FIRST_LOCAL * MICROS);
/// The last instant that may be a fire: the year 9999 ends.
pub const LAST_FIRE: Timestamp = Timestamp::from_micros(LAST_LOCAL * MICROS + MICROS - 1);

/// What becomes of a match in a stretch of local time that the clock was set forward over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapPolicy {
    /// It fires at the first instant after the gap; several in one gap fire once.
    After,
    /// It does not fire.
    Skip,
}

/// What becomes of a match in a stretch of local time that is passed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepeatPolicy {
    /// It fires the first time.
    First,
    /// It fires the second time.
    Last,
    /// It fires both times.
    Both,
}

/// One fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fire {
    /// When.
    pub at: Timestamp,
    /// What a clock change did to it, if one did.
    pub note: Option<FireNote>,
}

/// What a clock change did to a fire. Displays as a sentence for the person who set the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FireNote {
    /// The local time asked for is missing; it fires right after the gap.
    MovedPastGap {
        /// The (first) local time that is missing.
        wanted: NaiveDateTime,
        /// The first local time of the gap.
        from: NaiveDateTime,
        /// The first local time after the gap.
        to: NaiveDateTime,
    },
    /// Between the fire before and this one, local times asked for are missing, and were skipped.
    SkippedGap {
        /// The (first) local time that is missing.
        wanted: NaiveDateTime,
        /// The first local time of the gap.
        from: NaiveDateTime,
        /// The first local time after the gap.
        to: NaiveDateTime,
    },
    /// The local time occurs twice; this is the first time.
    FirstOfTwo {
        /// Whether the second fires as well.
        policy: RepeatPolicy,
    },
    /// The local time occurs twice; this is the second time.
    SecondOfTwo {
        /// Whether the first fired as well.
        policy: RepeatPolicy,
    },
}

impl fmt::Display for FireNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = |at: &NaiveDateTime| at.format("%Y-%m-%d %H:%M:%S");
        match self {
            Self::MovedPastGap { wanted, from, to } => write!(
                f,
                "local time {} does not exist, the clock is set forward from {} to {}: \
                 fires at the first instant after the gap (gap=after)",
                clock(wanted),
                clock(from),
                clock(to)
            ),
            Self::SkippedGap { wanted, from, to } => write!(
                f,
                "before this, local time {} was skipped: it does not exist, the clock is set forward \
                 from {} to {} (gap=skip)",
                clock(wanted),
                clock(from),
                clock(to)
            ),
            Self::FirstOfTwo { policy: RepeatPolicy::Both } => f.write_str(
                "local time occurs twice, the clock is set back: this is the first time, the second fires too \
                 (repeat=both)",
            ),
            Self::FirstOfTwo { .. } => f.write_str(
                "local time occurs twice, the clock is set back: this is the first time, the second does not fire \
                 (repeat=first)",
            ),
            Self::SecondOfTwo { policy: RepeatPolicy::Both } => f.write_str(
                "local time occurs twice, the clock is set back: this is the second time, the first fires too \
                 (repeat=both)",
            ),
            Self::SecondOfTwo { .. } => f.write_str(
                "local time occurs twice, the clock is set back: this is the second time, the first does not fire \
                 (repeat=last)",
            ),
        }
    }
}

/// The fires of an expression in a zone under given policies.
#[derive(Clone, Copy, Debug)]
pub struct CronFires<'a> {
    expr: &'a CronExpr,
    zone: Zone,
    gap: GapPolicy,
    repeat: RepeatPolicy,
}

impl<'a> CronFires<'a> {
    /// `None` stands for the default of either half, which depends on the expression.
    #[must_use]
    pub fn new(expr: &'a CronExpr, zone: Zone, gap: Option<GapPolicy>, repeat: Option<RepeatPolicy>) -> Self {
        let (default_gap, default_repeat) = if expr.interval_like() {
            (GapPolicy::Skip, RepeatPolicy::Both)
        } else {
            (GapPolicy::After, RepeatPolicy::First)
        };
        Self { expr, zone, gap: gap.unwrap_or(default_gap), repeat: repeat.unwrap_or(default_repeat) }
    }

    /// The first fire after an instant; `None` if there is none before the year 10000.
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Fire> {
        let now = clamp(after.as_micros().div_euclid(MICROS));
        let walk = self.expr.walk();
        let local = now + self.zone.offset_at(now);
        let mut found = walk.after(local)?;
        if let Some(utc) = self.steady(now, local, found) {
            return fire(utc, None);
        }
        if let LocalTime::Twice { first, second } = self.zone.at_local(local) {
            let repeat = self.zone.repeat_around(first, second);
            let mut passed = local;
            if now < repeat.change {
                if self.fires_first() && found < repeat.to {
                    return self.first_of_two(repeat.first_pass(found));
                }
                passed = repeat.from - 1;
            }
            if self.fires_second()
                && let Some(again) = walk.after(passed).filter(|again| *again < repeat.to)
            {
                return self.second_of_two(repeat.second_pass(again));
            }
            found = walk.after(repeat.to - 1)?;
        }
        let mut skipped = None;
        loop {
            match self.zone.at_local(found) {
                LocalTime::Once(utc) => return fire(utc, skipped),
                LocalTime::Twice { first, .. } if self.fires_first() => return self.first_of_two(first),
                LocalTime::Twice { second, .. } => return self.second_of_two(second),
                LocalTime::Missing(gap) => {
                    let (wanted, from, to) = (clock(found), clock(gap.from), clock(gap.to));
                    match self.gap {
                        GapPolicy::After => {
                            return fire(gap.change, Some(FireNote::MovedPastGap { wanted, from, to }));
                        }
                        GapPolicy::Skip => {
                            skipped = skipped.or(Some(FireNote::SkippedGap { wanted, from, to }));
                            found = walk.after(gap.to - 1)?;
                        }
                    }
                }
            }
        }
    }

    /// The last fire before an instant; `None` if there is none after the year 0.
    #[must_use]
    pub fn last_before(&self, before: Timestamp) -> Option<Timestamp> {
        let now = clamp(before.as_micros().saturating_sub(1).div_euclid(MICROS));
        let walk = self.expr.walk();
        let local = now + self.zone.offset_at(now);
        let mut found = walk.before(local + 1)?;
        if let Some(utc) = self.steady(now, local, found) {
            return instant(utc);
        }
        if let LocalTime::Twice { first, second } = self.zone.at_local(local) {
            let repeat = self.zone.repeat_around(first, second);
            let mut passed = local + 1;
            if now >= repeat.change {
                if self.fires_second() && found >= repeat.from {
                    return instant(repeat.second_pass(found));
                }
                passed = repeat.to;
            }
            if self.fires_first()
                && let Some(again) = walk.before(passed).filter(|again| *again >= repeat.from)
            {
                return instant(repeat.first_pass(again));
            }
            found = walk.before(repeat.from)?;
        }
        loop {
            match self.zone.at_local(found) {
                LocalTime::Once(utc) => return instant(utc),
                LocalTime::Twice { second, .. } if self.fires_second() => return instant(second),
                LocalTime::Twice { first, .. } => return instant(first),
                LocalTime::Missing(gap) => match self.gap {
                    GapPolicy::After => return instant(gap.change),
                    GapPolicy::Skip => found = walk.before(gap.from)?,
                },
            }
        }
    }

    /// The short way, which nearly always serves: where a match lies so near that there can be one
    /// change at most in between, and has the same offset, there is none, and nothing else to look at.
    fn steady(&self, now: UtcSeconds, local: LocalSeconds, found: LocalSeconds) -> Option<UtcSeconds> {
        if (found - local).abs() >= CHANGES_APART {
            return None;
        }
        match self.zone.at_local(found) {
            LocalTime::Once(utc) if utc - now == found - local => Some(utc),
            LocalTime::Once(_) | LocalTime::Twice { .. } | LocalTime::Missing(_) => None,
        }
    }

    /// All fires after an instant, in order.
    pub fn after(&self, after: Timestamp) -> impl Iterator<Item = Fire> + use<'a> {
        let fires = *self;
        iter::successors(fires.next_after(after), move |fire| fires.next_after(fire.at))
    }

    fn fires_first(&self) -> bool {
        match self.repeat {
            RepeatPolicy::First | RepeatPolicy::Both => true,
            RepeatPolicy::Last => false,
        }
    }

    fn fires_second(&self) -> bool {
        match self.repeat {
            RepeatPolicy::Last | RepeatPolicy::Both => true,
            RepeatPolicy::First => false,
        }
    }

    fn first_of_two(&self, utc: UtcSeconds) -> Option<Fire> {
        fire(utc, Some(FireNote::FirstOfTwo { policy: self.repeat }))
    }

    fn second_of_two(&self, utc: UtcSeconds) -> Option<Fire> {
        fire(utc, Some(FireNote::SecondOfTwo { policy: self.repeat }))
    }
}

fn fire(utc: UtcSeconds, note: Option<FireNote>) -> Option<Fire> {
    instant(utc).map(|at| Fire { at, note })
}

/// The instant, if RFC 3339 can write it: a fire has an idempotency key with its time in it.
fn instant(utc: UtcSeconds) -> Option<Timestamp> {
    let micros = utc.checked_mul(MICROS)?;
    (FIRST_FIRE..=LAST_FIRE)
        .contains(&Timestamp::from_micros(micros))
        .then_some(Timestamp::from_micros(micros))
}

/// Keeps an instant within the years of fires, and one second before them, so that arithmetic on it
/// cannot overflow and that a walk begins with fires that count.
fn clamp(utc: UtcSeconds) -> UtcSeconds {
    utc.clamp(FIRST_LOCAL - 1, LAST_LOCAL)
}

fn clock(local: LocalSeconds) -> NaiveDateTime {
    DateTime::from_timestamp(local, 0).map_or(NaiveDateTime::MAX, |at| at.naive_utc())
}
