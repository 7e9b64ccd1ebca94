//! The day that a run is laid over: an ordinary one, or one on which a clock in some zone is changed.

use fencepost_core::time::{Span, Timestamp};

use super::swarm::Swarm;
use crate::fault::FaultKind;
use crate::rng::{PPM, Stream};
use crate::sim_time::SimTime;

/// The day of a run.
#[derive(Clone, Debug)]
pub(super) struct Day {
    /// What the store's clock shows at the beginning.
    pub(super) starts_at: Timestamp,
    /// The zone that most of the jobs' schedules are in.
    pub(super) zone: &'static str,
    /// Whether that zone's clock is changed during the run.
    pub(super) clocks_change: bool,
}

/// Zones for the jobs that are not in the day's zone.
pub(super) const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Pacific/Kiritimati",
    "Africa/Casablanca",
];

/// Zones and the instants at which their clocks are changed: by an hour, by half an hour, by two; forward and
/// back; at local midnight and at other times.
const CHANGES: [(&str, &str); 16] = [
    ("Europe/Berlin", "2026-03-29T01:00:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00:00Z"),
    ("America/New_York", "2026-03-08T07:00:00Z"),
    ("America/New_York", "2026-11-01T06:00:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
    ("America/St_Johns", "2026-03-08T05:30:00Z"),
    ("America/St_Johns", "2026-11-01T04:30:00Z"),
    ("Asia/Beirut", "2026-03-28T22:00:00Z"),
    ("Asia/Beirut", "2026-10-24T21:00:00Z"),
    ("America/Santiago", "2026-04-05T03:00:00Z"),
    ("America/Santiago", "2026-09-06T04:00:00Z"),
    ("Antarctica/Troll", "2026-03-29T01:00:00Z"),
    ("Antarctica/Troll", "2026-10-25T01:00:00Z"),
    ("America/Havana", "2026-03-08T05:00:00Z"),
    ("Pacific/Chatham", "2026-04-04T14:00:00Z"),
];

/// The first day that ordinary runs are laid over.
const ORDINARY_FROM: &str = "2026-01-05T00:00:00Z";

pub(super) fn draw(stream: &mut Stream, swarm: &Swarm, heal_at: SimTime) -> Day {
    let instant = |text| Timestamp::parse_rfc3339(text).expect("a valid instant");
    let (zone, change) = *stream.pick(&CHANGES);
    let run = heal_at.since(SimTime::ZERO);
    let before = stream.span(run.divided_by(10), run.divided_by(10).times(9));
    let ordinary = instant(ORDINARY_FROM).plus(stream.span(Span::ZERO, Span::from_secs(360 * 86_400)));
    // A run on the turn of a minute or hour and one somewhere within it meet different herds.
    let fine = if stream.chance(PPM / 2) { Span::ZERO } else { stream.span(Span::ZERO, Span::from_secs(1)) };
    if swarm.has(FaultKind::DaylightSaving) {
        let seconds = before.as_micros() / 1_000_000;
        let starts_at = instant(change).minus(Span::from_secs(seconds)).plus(fine);
        Day { starts_at, zone, clocks_change: true }
    } else {
        let whole = ordinary.as_micros().div_euclid(1_000_000) * 1_000_000;
        Day { starts_at: Timestamp::from_micros(whole).plus(fine), zone, clocks_change: false }
    }
}

#[cfg(test)]
mod tests {
    use chrono::{Offset, TimeZone};

    use super::*;

    #[test]
    fn the_listed_instants_are_those_at_which_the_clocks_are_changed() {
        for (zone, text) in CHANGES {
            let zone: chrono_tz::Tz = zone.parse().expect("a zone");
            let change = Timestamp::parse_rfc3339(text).and_then(Timestamp::to_utc).expect("an instant");
            let before = change - chrono::TimeDelta::microseconds(1);
            let offset = |at: chrono::DateTime<chrono::Utc>| {
                zone.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc()
            };
            assert_ne!(offset(before), offset(change), "{zone} at {text}");
        }
    }
}
