//! The time of day: which seconds of a day match, as three sets of bits.
//!
//! A day here is 86,400 seconds of local time; what a clock change does to it is for `fires.rs`.

use super::field::ValueSet;

/// The times of day that match. No set is empty.
pub(super) struct TimeOfDay {
    pub(super) hours: ValueSet,
    pub(super) minutes: ValueSet,
    pub(super) seconds: ValueSet,
}

impl TimeOfDay {
    /// The first second of the day that matches and comes after `time`, which may be -1.
    pub(super) fn after(&self, time: i64) -> Option<i64> {
        let (hour, minute, second) = clock(time + 1);
        let first = |set: ValueSet| set.at_or_after(0);
        if self.hours.contains(hour) {
            if self.minutes.contains(minute)
                && let Some(second) = self.seconds.at_or_after(second)
            {
                return Some(seconds(hour, minute, second));
            }
            if let Some(minute) = self.minutes.at_or_after(minute + 1) {
                return Some(seconds(hour, minute, first(self.seconds)?));
            }
        }
        let hour = self.hours.at_or_after(hour + 1)?;
        Some(seconds(hour, first(self.minutes)?, first(self.seconds)?))
    }

    /// The last second of the day that matches and comes before `time`, which may be the day's length.
    pub(super) fn before(&self, time: i64) -> Option<i64> {
        let (hour, minute, second) = clock((time > 0).then_some(time - 1)?);
        let last = |set: ValueSet| set.before(u64::BITS);
        if self.hours.contains(hour) {
            if self.minutes.contains(minute)
                && let Some(second) = self.seconds.before(second + 1)
            {
                return Some(seconds(hour, minute, second));
            }
            if let Some(minute) = self.minutes.before(minute) {
                return Some(seconds(hour, minute, last(self.seconds)?));
            }
        }
        let hour = self.hours.before(hour)?;
        Some(seconds(hour, last(self.minutes)?, last(self.seconds)?))
    }
}

/// Hour, minute and second of a second of the day; the day's length is hour 24, which nothing matches.
fn clock(time: i64) -> (u32, u32, u32) {
    let time = u32::try_from(time).unwrap_or_default();
    (time / 3_600, time / 60 % 60, time % 60)
}

fn seconds(hour: u32, minute: u32, second: u32) -> i64 {
    i64::from(hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::field::{CronField, parse};

    #[test]
    fn from_every_second_of_a_day_the_neighbours_are_those_that_counting_finds() {
        let set = |field, text| parse(field, text).expect("a valid field").values;
        for (hour, minute, second) in
            [("0,5,23", "0,59", "0,59"), ("*", "*/7", "30"), ("3", "4", "5"), ("*", "*", "*")]
        {
            let time = TimeOfDay {
                hours: set(CronField::Hour, hour),
                minutes: set(CronField::Minute, minute),
                seconds: set(CronField::Second, second),
            };
            let matches = |at: &i64| {
                let (hour, minute, second) = clock(*at);
                time.hours.contains(hour) && time.minutes.contains(minute) && time.seconds.contains(second)
            };
            let all: Vec<i64> = (0..86_400).filter(matches).collect();
            let mut behind = 0;
            for at in -1..=86_400 {
                let ahead = behind + usize::from(all.get(behind) == Some(&at));
                assert_eq!(time.before(at), behind.checked_sub(1).map(|index| all[index]), "before {at}");
                assert_eq!(time.after(at), all.get(ahead).copied(), "after {at}");
                behind = ahead;
            }
        }
    }
}
