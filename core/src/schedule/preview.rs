//! Previews: the next fires as people read them, with what daylight saving did.

use chrono::{DateTime, FixedOffset, SecondsFormat};

use super::cron::CronExpr;
use super::fires::{CronFires, GapPolicy, RepeatPolicy};
use super::zone::Zone;
use super::{Bounds, Excluded, Fire, Flex, Schedule};
use crate::time::{Span, Timestamp};

/// The most fires that one preview shows.
pub const PREVIEW_MAX: usize = 1_000;

/// One fire of a preview.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PreviewedFire {
    /// RFC 3339 in UTC.
    pub utc: String,
    /// RFC 3339 in the zone, with its offset.
    pub local: String,
    /// What a clock change did to this fire and why; `None` where it did nothing.
    pub note: Option<String>,
    /// When it is due, in UTC, where that is at a place in a flex window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<String>,
    /// The calendar that excludes its day, so that it is passed over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded_by: Option<String>,
}

/// The first `count` fires of an expression after an instant, at most [`PREVIEW_MAX`]; fewer where there are no more.
#[must_use]
pub fn preview(
    expr: &CronExpr,
    zone: Zone,
    gap: Option<GapPolicy>,
    repeat: Option<RepeatPolicy>,
    after: Timestamp,
    count: usize,
) -> Vec<PreviewedFire> {
    let fires = CronFires::new(expr, zone, gap, repeat);
    fires.after(after).take(count.min(PREVIEW_MAX)).filter_map(|fire| show(&fire, zone, None)).collect()
}

/// The same for any schedule within its bounds, of which `runs` fires have run already; those on excluded days are
/// marked, and no runs. One without a zone is shown in
/// UTC, to the microsecond where its fires are not on whole seconds.
#[must_use]
pub fn preview_schedule(
    schedule: &Schedule,
    bounds: &Bounds,
    flex: Flex,
    excluded: Excluded<'_>,
    runs: u64,
    after: Timestamp,
    count: usize,
) -> Vec<PreviewedFire> {
    let left = bounds
        .max_runs
        .map_or(usize::MAX, |most| usize::try_from(most.saturating_sub(runs)).unwrap_or(usize::MAX));
    let count = count.min(PREVIEW_MAX);
    let is_within = |at: Timestamp| bounds.end.is_none_or(|end| at <= end);
    let after = bounds.start.map_or(after, |start| after.max(start.minus(Span::from_micros(1))));
    let due = |fire: Timestamp| {
        let next = || bounds.next_fire_after(schedule, fire);
        (!flex.is_none()).then(|| fire.plus(flex.offset(fire, next())))
    };
    let mut runs = 0_usize;
    let mut show = |fire: &Fire, zone| {
        let by = excluded.calendar_of(fire.at).map(|known| known.calendar.to_string());
        runs += usize::from(by.is_none());
        let due = due(fire.at).filter(|_| by.is_none());
        (runs <= left).then(|| Some(PreviewedFire { excluded_by: by, ..show(fire, zone, due)? }))
    };
    if let Schedule::Cron { expr, zone, gap, repeat } = schedule {
        let fires = CronFires::new(expr, *zone, *gap, *repeat);
        let within = fires.after(after).take_while(|fire| is_within(fire.at));
        return within.map_while(|fire| show(&fire, *zone)).flatten().take(count).collect();
    }
    let fires = core::iter::successors(schedule.next_fire_after(after), |at| schedule.next_fire_after(*at));
    let within = fires.take_while(|at| is_within(*at));
    within.map_while(|at| show(&Fire { at, note: None }, Zone::UTC)).flatten().take(count).collect()
}

fn show(fire: &Fire, zone: Zone, due: Option<Timestamp>) -> Option<PreviewedFire> {
    let utc = fire.at.to_utc()?;
    // RFC 3339 offsets have no seconds. Where history's offsets do, the nearest minute is shown
    // and the time moved with it, so that the text still names the instant.
    let minutes = (zone.offset_at(utc.timestamp()) + 30).div_euclid(60);
    let offset = i32::try_from(minutes * 60).ok().and_then(FixedOffset::east_opt)?;
    Some(PreviewedFire {
        utc: utc.to_rfc3339_opts(SecondsFormat::AutoSi, true),
        local: DateTime::to_rfc3339_opts(&utc.with_timezone(&offset), SecondsFormat::AutoSi, false),
        note: fire.note.map(|note| note.to_string()),
        due: due.map(|due| due.to_string()),
        excluded_by: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse_rfc3339(text).expect("RFC 3339")
    }

    fn utc(schedule: &Schedule, bounds: &Bounds, runs: u64, after: &str, count: usize) -> Vec<String> {
        let shown = preview_schedule(schedule, bounds, Flex::NONE, Excluded::NOTHING, runs, at(after), count);
        shown.into_iter().map(|fire| fire.utc).collect()
    }

    #[test]
    fn every_kind_of_schedule_is_shown_within_its_bounds() {
        let every = Schedule::Interval { start: at("2026-03-01T00:00:00.5Z"), every: Span::from_secs(60) };
        let none = Bounds::default();
        assert_eq!(
            utc(&every, &none, 0, "2026-03-01T00:01:00Z", 2),
            ["2026-03-01T00:01:00.500Z", "2026-03-01T00:02:00.500Z"]
        );
        let ends = Bounds { end: Some(at("2026-03-01T00:01:30Z")), ..none };
        assert_eq!(utc(&every, &ends, 0, "2026-03-01T00:00:00Z", 9).len(), 2);
        let starts = Bounds { start: Some(at("2026-03-01T00:05:00.5Z")), ..none };
        assert_eq!(utc(&every, &starts, 0, "2026-03-01T00:00:00Z", 1), ["2026-03-01T00:05:00.500Z"]);

        let once = Schedule::OneShot { at: at("2026-03-01T09:00:00Z") };
        assert_eq!(utc(&once, &none, 0, "2026-03-01T08:59:59Z", 5), ["2026-03-01T09:00:00Z"]);
        assert_eq!(utc(&once, &none, 0, "2026-03-01T09:00:00Z", 5), [""; 0]);
        assert_eq!(utc(&Schedule::Manual, &none, 0, "2026-03-01T00:00:00Z", 5), [""; 0]);
    }

    #[test]
    fn runs_that_are_used_up_are_not_shown_and_a_cron_keeps_its_notes() {
        let nightly = Schedule::Cron {
            expr: CronExpr::parse("30 2 * * *").expect("an expression"),
            zone: Zone::parse("Europe/Berlin").expect("a zone"),
            gap: None,
            repeat: None,
        };
        let limited = Bounds { max_runs: Some(3), ..Bounds::default() };
        let shown = preview_schedule(
            &nightly,
            &limited,
            Flex::NONE,
            Excluded::NOTHING,
            1,
            at("2026-03-27T12:00:00Z"),
            9,
        );
        let local: Vec<&str> = shown.iter().map(|fire| fire.local.as_str()).collect();
        assert_eq!(local, ["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00"]);
        assert!(shown[0].note.is_none() && shown[1].note.is_some(), "{shown:?}");
        assert!(
            preview_schedule(
                &nightly,
                &limited,
                Flex::NONE,
                Excluded::NOTHING,
                3,
                at("2026-03-27T12:00:00Z"),
                9
            )
            .is_empty()
        );
    }
}
