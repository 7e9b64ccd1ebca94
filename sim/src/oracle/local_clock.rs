//! What a clock on the wall of some zone shows: its distance to UTC, second by second.
//!
//! Every question is answered by looking into `chrono-tz`, and remembered for as long around it as the distance
//! stays the same: the jobs of a run share few zones, and ask about the same days.
//!
//! Relied upon: a zone's offset changes on whole UTC seconds, and never twice within one day.

use std::cell::{Cell, RefCell};

use chrono::{DateTime, Offset, TimeZone, Utc};
use chrono_tz::Tz;

const DAY: i64 = 86_400;
/// How many half days around an instant are looked at for a change of clocks.
const HALF_DAYS_FLAT: u32 = 6;

/// A stretch of UTC, first and last second, in which the offset is one.
#[derive(Clone, Copy, Debug)]
struct Flat {
    from: i64,
    through: i64,
    offset: i64,
}

impl Flat {
    fn contains(self, utc: i64) -> bool {
        (self.from..=self.through).contains(&utc)
    }
}

/// The clock of one zone.
#[derive(Clone, Debug)]
pub(super) struct LocalClock {
    zone: Tz,
    latest: Cell<Flat>,
    known: RefCell<Vec<Flat>>,
}

impl LocalClock {
    /// The clock of a zone of this name; abbreviations such as `EST` are none.
    pub(super) fn new(name: &str) -> Result<Self, String> {
        let zone: Tz = name.parse().map_err(|_| format!("no zone {name}"))?;
        let abbreviation = !name.contains('/') && name != "UTC" && name == name.to_uppercase();
        if abbreviation {
            return Err(format!("{name} is an abbreviation"));
        }
        // Empty: nothing has been looked up.
        let latest = Cell::new(Flat { from: 1, through: 0, offset: 0 });
        Ok(Self { zone, latest, known: RefCell::default() })
    }

    /// Local time minus UTC at a second of UTC, in seconds.
    pub(super) fn offset(&self, utc: i64) -> i64 {
        self.flat_around(utc).offset
    }

    /// Whether the offset is known to stay the same for this long before and after a second of UTC.
    pub(super) fn is_flat_around(&self, utc: i64, margin: i64) -> bool {
        let flat = self.flat_around(utc);
        flat.contains(utc - margin) && flat.contains(utc + margin)
    }

    fn flat_around(&self, utc: i64) -> Flat {
        let latest = self.latest.get();
        if latest.contains(utc) {
            return latest;
        }
        let known = self.known.borrow().iter().copied().find(|flat| flat.contains(utc));
        let flat = known.unwrap_or_else(|| {
            let offset = self.look_up(utc);
            let (from, through) = (self.edge(utc, -DAY / 2, offset), self.edge(utc, DAY / 2, offset));
            let flat = Flat { from, through, offset };
            self.known.borrow_mut().push(flat);
            flat
        });
        self.latest.set(flat);
        flat
    }

    /// How far from `utc` its offset holds in one direction, to the second where it ends within some days. Looks
    /// at every half day: changes are at least a day apart.
    fn edge(&self, utc: i64, step: i64, offset: i64) -> i64 {
        let mut same = utc;
        for _ in 0..HALF_DAYS_FLAT {
            let mut other = same + step;
            if self.look_up(other) == offset {
                same = other;
                continue;
            }
            while (other - same).abs() > 1 {
                let middle = same + (other - same) / 2;
                if self.look_up(middle) == offset { same = middle } else { other = middle }
            }
            break;
        }
        same
    }

    /// The offset as the zone's own table has it.
    pub(super) fn look_up(&self, utc: i64) -> i64 {
        let at = DateTime::<Utc>::from_timestamp(utc, 0).unwrap_or_default();
        i64::from(self.zone.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_what_is_looked_up() {
        let clock = LocalClock::new("Europe/Berlin").expect("a zone");
        // Across the change of 2026-10-25T01:00:00Z, forwards and then at random.
        let change = 1_792_890_000;
        let around = (-5 * DAY..5 * DAY).step_by(1_777).chain([-1, 0, 1, -DAY, DAY]);
        for distance in around {
            assert_eq!(clock.offset(change + distance), clock.look_up(change + distance), "{distance}");
        }
        assert_ne!(clock.offset(change - 1), clock.offset(change));
        assert!(clock.is_flat_around(change + 2 * DAY, DAY));
        assert!(!clock.is_flat_around(change + DAY / 2, DAY));
    }

    #[test]
    fn an_abbreviation_is_no_zone() {
        assert!(LocalClock::new("EST").is_err());
        assert!(LocalClock::new("Mars/Olympus").is_err());
    }
}
