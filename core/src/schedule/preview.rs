//! The preview of a cron schedule: the next fires as people read them, with what daylight saving did.

use chrono::{DateTime, FixedOffset, SecondsFormat};

use super::cron::CronExpr;
use super::fires::{CronFires, GapPolicy, RepeatPolicy};
use super::zone::Zone;
use crate::time::Timestamp;

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
}

/// The first `count` fires after an instant, at most [`PREVIEW_MAX`]; fewer where there are no more.
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
    let shown = fires.after(after).take(count.min(PREVIEW_MAX)).filter_map(|fire| {
        let utc = fire.at.to_utc()?;
        // RFC 3339 offsets have no seconds. Where history's offsets do, the nearest minute is shown
        // and the time moved with it, so that the text still names the instant.
        let minutes = (zone.offset_at(utc.timestamp()) + 30).div_euclid(60);
        let offset = i32::try_from(minutes * 60).ok().and_then(FixedOffset::east_opt)?;
        Some(PreviewedFire {
            utc: utc.to_rfc3339_opts(SecondsFormat::Secs, true),
            local: DateTime::to_rfc3339_opts(&utc.with_timezone(&offset), SecondsFormat::Secs, false),
            note: fire.note.map(|note| note.to_string()),
        })
    });
    shown.collect()
}
