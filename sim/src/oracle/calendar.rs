//! The oracle of fire times: a brute-force walk over a calendar, sharing no code with the core.
//!
//! It is written from the rules of schedules, the dumbest way that can be right: go through UTC
//! second by second, convert each to local time with `chrono-tz`, and look whether the fields match.
//! Two things follow from watching the clock instead of calculating: where local time jumps forward,
//! the seconds jumped over are looked at one by one; where it jumps back, the same local second is
//! simply seen twice, and the pair is decided when all of it has been seen.
//!
//! Whole days, hours and minutes are passed over when nothing in them can match, and so are the seconds of a
//! minute without a change of clocks; that is all the cleverness there is. Near a change of clocks the walk
//! begins and ends by as much earlier and later as the clock is changed, since a local second of the range may
//! have its twin outside.

use core::cell::Cell;
use std::rc::Rc;

use super::local_clock::LocalClock;

/// What becomes of matches in local time that is jumped over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// One fire at the first instant after the gap.
    After,
    /// No fire.
    Skip,
}

/// What becomes of matches in local time that is seen twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The first counts.
    First,
    /// The second counts.
    Last,
    /// Both count.
    Both,
}

/// A cron schedule as this oracle understands it.
#[derive(Clone, Debug)]
pub struct Calendar {
    clock: Rc<LocalClock>,
    gap: Gap,
    repeat: Repeat,
    seconds: Set,
    minutes: Set,
    hours: Set,
    days: Set,
    months: Set,
    weekdays: Set,
    either_day: bool,
    /// The day that was looked at last, and whether it matches.
    last_day: Cell<(i64, bool)>,
}

/// A set of field values: a bit for each.
type Set = u64;

const MICROS: i64 = 1_000_000;
const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;
/// Further than any clock was ever set forward or back.
const MARGIN: i64 = 26 * HOUR;

/// The fires after `after_us` and at or before `until_us`, in microseconds since 1970 UTC.
///
/// # Errors
/// What is wrong with the expression or the zone.
pub fn fires_between(
    expr: &str,
    zone: &str,
    gap: Option<Gap>,
    repeat: Option<Repeat>,
    after_us: i64,
    until_us: i64,
) -> Result<Vec<i64>, String> {
    Ok(Calendar::new(expr, zone, gap, repeat)?.fires_between(after_us, until_us))
}

impl Calendar {
    /// Reads an expression. Without a policy, the expression decides: with `*`, `/` or `-` in the second,
    /// minute or hour it is interval-like, and skips gaps and counts repeats twice.
    ///
    /// # Errors
    /// What is wrong with the expression or the zone.
    pub fn new(expr: &str, zone: &str, gap: Option<Gap>, repeat: Option<Repeat>) -> Result<Self, String> {
        Self::on(Rc::new(LocalClock::new(zone)?), expr, gap, repeat)
    }

    /// Like [`Calendar::new`], by a clock that others look at too.
    pub(super) fn on(
        clock: Rc<LocalClock>,
        expr: &str,
        gap: Option<Gap>,
        repeat: Option<Repeat>,
    ) -> Result<Self, String> {
        if expr.chars().count() > 1_000 {
            return Err("longer than 1000 characters".into());
        }
        let expr = match expr.to_lowercase().as_str() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ => expr,
        };
        let mut words: Vec<&str> = expr.split_ascii_whitespace().collect();
        if words.len() == 5 {
            words.insert(0, "0");
        }
        let &[second, minute, hour, day, month, weekday] = words.as_slice() else {
            return Err(format!("{} fields", words.len()));
        };
        let interval_like = [second, minute, hour].iter().any(|word| word.contains(['*', '/', '-']));
        let (default_gap, default_repeat) =
            if interval_like { (Gap::Skip, Repeat::Both) } else { (Gap::After, Repeat::First) };
        let weekdays = read_field(weekday, 0, 7, "sunmontuewedthufrisat")?;
        let calendar = Self {
            clock,
            gap: gap.unwrap_or(default_gap),
            repeat: repeat.unwrap_or(default_repeat),
            seconds: read_field(second, 0, 59, "")?,
            minutes: read_field(minute, 0, 59, "")?,
            hours: read_field(hour, 0, 23, "")?,
            days: read_field(day, 1, 31, "")?,
            months: read_field(month, 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec")?,
            weekdays: (weekdays | weekdays >> 7) & 0b111_1111,
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
            last_day: Cell::new((i64::MIN, false)),
        };
        // Four years hold every date; that it falls on every weekday in time is a fact of the calendar.
        let some_date = (0..1_461).any(|day| {
            let (_, month, date) = civil(day);
            holds(calendar.months, month) && holds(calendar.days, date)
        });
        if calendar.either_day || some_date { Ok(calendar) } else { Err("never fires".into()) }
    }

    /// The fires after `after_us` and at or before `until_us`, in microseconds since 1970 UTC.
    #[must_use]
    pub fn fires_between(&self, after_us: i64, until_us: i64) -> Vec<i64> {
        let first = after_us.div_euclid(MICROS) + 1;
        let last = until_us.div_euclid(MICROS);
        if first > last {
            return Vec::new();
        }
        let mut walked = Walked::default();
        let from = first - self.farthest_twin(first);
        let through = last + self.farthest_twin(last);
        self.walk(from, through, &mut walked);

        let mut fires = walked.after_gap;
        // Stable: twins stay in the order in which they were seen. Without any, it is sorted already.
        walked.matches.sort_by_key(|(local, _)| *local);
        for twins in walked.matches.chunk_by(|(local, _), (other, _)| local == other) {
            let counted = match self.repeat {
                Repeat::First => &twins[..1],
                Repeat::Last => &twins[twins.len() - 1..],
                Repeat::Both => twins,
            };
            fires.extend(counted.iter().map(|(_, at)| *at));
        }
        fires.sort_unstable();
        fires.dedup();
        fires.retain(|fire| (first..=last).contains(fire));
        fires.iter_mut().for_each(|fire| *fire *= MICROS);
        fires
    }

    /// How far the twin of a local second near an instant can be: by as much as the clock is changed there.
    fn farthest_twin(&self, near: i64) -> i64 {
        if self.clock.is_flat_around(near, MARGIN) {
            return 0;
        }
        // Changes are at least a day apart: steps of half a day pass over none.
        let offsets = (near - MARGIN..near + MARGIN).step_by((DAY / 2) as usize).chain([near + MARGIN]);
        let (least, most) = offsets
            .map(|at| self.clock.look_up(at))
            .fold((i64::MAX, i64::MIN), |(least, most), offset| (least.min(offset), most.max(offset)));
        most - least
    }

    /// Goes through UTC from one second to another, both included.
    fn walk(&self, from: i64, through: i64, walked: &mut Walked) {
        let mut now = from;
        while now <= through {
            let barren = [DAY, HOUR, MINUTE].into_iter().find_map(|unit| self.barren_rest(now, unit));
            if let Some(length) = barren {
                now += length;
                continue;
            }
            let stop = (now - now.rem_euclid(MINUTE) + MINUTE).min(through + 1);
            let mut before = self.offset(now - 1);
            let unchanged = self.offset(stop - 1) == before;
            if unchanged {
                for value in (0..60).filter(|value| holds(self.seconds, *value)) {
                    let second = now + (value - now - before).rem_euclid(MINUTE);
                    if second < stop {
                        self.look(second, before, before, walked);
                    }
                }
            } else {
                for second in now..stop {
                    let offset = self.offset(second);
                    self.look(second, before, offset, walked);
                    before = offset;
                }
            }
            now = stop;
        }
    }

    /// How long the rest of this day, hour or minute of UTC is, if in it the clock is not changed and nothing can
    /// match. Because of the offset it touches two units of local time.
    fn barren_rest(&self, now: i64, unit: i64) -> Option<i64> {
        let can_match = |local: i64| match unit {
            DAY => self.day_matches(local.div_euclid(DAY)),
            HOUR => self.hour_can_match(local),
            _ => self.minute_can_match(local),
        };
        let rest = unit - now.rem_euclid(unit);
        let offset = self.offset(now - 1);
        let is_barren = !can_match(now + offset)
            && !can_match(now + offset + rest - 1)
            && self.offset(now + rest) == offset;
        is_barren.then_some(rest)
    }

    /// Looks at one second, and at the local seconds that were jumped over right before it.
    fn look(&self, now: i64, offset_before: i64, offset: i64, walked: &mut Walked) {
        let local = now + offset;
        if self.gap == Gap::After && (now + offset_before..local).any(|missing| self.matches(missing)) {
            walked.after_gap.push(now);
        }
        if self.matches(local) {
            walked.matches.push((local, now));
        }
    }

    fn offset(&self, utc: i64) -> i64 {
        self.clock.offset(utc)
    }

    fn hour_can_match(&self, local: i64) -> bool {
        holds(self.hours, local.div_euclid(HOUR).rem_euclid(24)) && self.day_matches(local.div_euclid(DAY))
    }

    fn minute_can_match(&self, local: i64) -> bool {
        holds(self.minutes, local.div_euclid(MINUTE).rem_euclid(60)) && self.hour_can_match(local)
    }

    fn matches(&self, local: i64) -> bool {
        holds(self.seconds, local.rem_euclid(60)) && self.minute_can_match(local)
    }

    fn day_matches(&self, day: i64) -> bool {
        let (known, matches) = self.last_day.get();
        if known == day {
            return matches;
        }
        let matches = self.look_at_day(day);
        self.last_day.set((day, matches));
        matches
    }

    fn look_at_day(&self, day: i64) -> bool {
        let (_, month, date) = civil(day);
        // 1970-01-01 was a Thursday.
        let (by_date, by_weekday) = (holds(self.days, date), holds(self.weekdays, (day + 4).rem_euclid(7)));
        let matches = if self.either_day { by_date || by_weekday } else { by_date && by_weekday };
        matches && holds(self.months, month)
    }
}

#[derive(Default)]
struct Walked {
    /// Local seconds that match, each with the instant at which it was seen, in the order of these.
    matches: Vec<(i64, i64)>,
    /// Instants right after a gap that a match fell into.
    after_gap: Vec<i64>,
}

fn holds(set: Set, value: i64) -> bool {
    set >> value & 1 == 1
}

fn read_field(text: &str, smallest: i64, largest: i64, names: &str) -> Result<Set, String> {
    let number = |text: &str| -> Result<i64, String> {
        let named = (0..names.len() / 3).find(|index| names[index * 3..index * 3 + 3] == text.to_lowercase());
        let value = match named {
            Some(index) => index as i64 + smallest,
            None if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()) => {
                text.parse().map_err(|_| format!("{text} is too large"))?
            }
            None => return Err(format!("`{text}` is not a value")),
        };
        if (smallest..=largest).contains(&value) {
            Ok(value)
        } else {
            Err(format!("{value} is out of range"))
        }
    };
    let mut set = 0;
    for item in text.split(',') {
        let (base, step) = item.split_once('/').map_or((item, None), |(base, step)| (base, Some(step)));
        let (from, to) = match base.split_once('-') {
            Some((from, to)) if to.eq_ignore_ascii_case("sun") && number(from)? > 0 => (number(from)?, 7),
            Some((from, to)) => (number(from)?, number(to)?),
            None if base == "*" => (smallest, largest),
            None if step.is_some() => (number(base)?, largest),
            None => (number(base)?, number(base)?),
        };
        let step = match step {
            Some(step) if step.chars().all(|c| c.is_ascii_digit()) => {
                step.parse().map_err(|_| "no step".to_owned())?
            }
            Some(step) => return Err(format!("`{step}` is no step")),
            None => 1,
        };
        if from > to || !(1..=largest).contains(&step) {
            return Err(format!("`{item}` is reversed or has a bad step"));
        }
        set = (from..=to).step_by(step as usize).fold(set, |set, value| set | 1 << value);
    }
    Ok(set)
}

/// Year, month and day of a number of days since 1970-01-01 (the proleptic Gregorian calendar,
/// counted in eras of 400 years that begin in March).
fn civil(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let date = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, date)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::DateTime;

    fn at(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).expect("RFC 3339").timestamp_micros()
    }

    #[test]
    fn the_calendar_knows_leap_years() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(47_540), (2100, 2, 28));
        assert_eq!(civil(47_541), (2100, 3, 1));
        assert_eq!(civil(-1), (1969, 12, 31));
    }

    #[test]
    fn a_missing_and_a_repeated_hour_are_seen_by_looking() {
        let fires = |policy, after, until| {
            let (gap, repeat) = policy;
            let fires = fires_between("30 1,2 * * *", "America/New_York", gap, repeat, at(after), at(until));
            fires.expect("a valid expression")
        };
        let spring = |gap| fires((gap, None), "2026-03-08T06:30:00Z", "2026-03-08T12:00:00Z");
        assert_eq!(spring(Some(Gap::After)), [at("2026-03-08T07:00:00Z")]);
        assert_eq!(spring(Some(Gap::Skip)), [0_i64; 0]);
        let autumn = |repeat| fires((None, Some(repeat)), "2026-11-01T05:29:59Z", "2026-11-01T06:30:00Z");
        assert_eq!(autumn(Repeat::First), [at("2026-11-01T05:30:00Z")]);
        assert_eq!(autumn(Repeat::Last), [at("2026-11-01T06:30:00Z")]);
        assert_eq!(autumn(Repeat::Both), [at("2026-11-01T05:30:00Z"), at("2026-11-01T06:30:00Z")]);
    }
}
