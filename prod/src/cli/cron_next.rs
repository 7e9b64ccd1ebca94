//! `fencepost cron next`: the next fires of an expression, and what daylight saving does to them.

use chrono::Utc;
use clap::{Args, ValueEnum};
use fencepost_core::schedule::{
    CronExpr, GapPolicy, PREVIEW_MAX, PreviewedFire, RepeatPolicy, TZDATA_VERSION, Zone, preview,
};
use fencepost_core::time::Timestamp;
use serde::Serialize;

use super::say;
use crate::failure::Failure;

/// The arguments of `cron next`.
#[derive(Debug, Args)]
pub(super) struct CronNext {
    /// The expression: five fields, six with seconds first, or a macro such as @daily.
    #[arg(allow_hyphen_values = true)]
    expr: String,
    /// An IANA time zone.
    #[arg(long, default_value = "UTC")]
    tz: String,
    /// Fires strictly after this instant, in RFC 3339; now, where it is not given.
    #[arg(long)]
    after: Option<String>,
    /// How many, 1 to 1000.
    #[arg(long, default_value_t = 5)]
    count: usize,
    /// What becomes of a fire whose local time the clock skips.
    #[arg(long)]
    gap: Option<GapArgument>,
    /// Which of the two runs of a local time that the clock repeats.
    #[arg(long)]
    repeat: Option<RepeatArgument>,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum GapArgument {
    After,
    Skip,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RepeatArgument {
    First,
    Last,
    Both,
}

#[derive(Serialize)]
struct Document {
    fires: Vec<PreviewedFire>,
    tzdata: &'static str,
}

impl CronNext {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let expr = CronExpr::parse(&self.expr).map_err(|error| Failure::usage(error.to_string()))?;
        let zone = Zone::parse(&self.tz).map_err(|error| Failure::usage(error.to_string()))?;
        let after = match &self.after {
            Some(text) => Timestamp::parse_rfc3339(text).ok_or_else(|| {
                Failure::usage(format!(
                    "--after {text}: not an instant in RFC 3339, such as 2026-01-31T09:00:00Z"
                ))
            })?,
            None => Timestamp::from_utc(Utc::now()),
        };
        if !(1..=PREVIEW_MAX).contains(&self.count) {
            return Err(Failure::usage(format!(
                "--count {}: from 1 to {PREVIEW_MAX} fires can be asked for",
                self.count
            )));
        }
        let (gap, repeat) = (self.gap.map(GapPolicy::from), self.repeat.map(RepeatPolicy::from));
        self.print(preview(&expr, zone, gap, repeat, after, self.count))
    }

    fn print(&self, fires: Vec<PreviewedFire>) -> Result<(), Failure> {
        if self.json {
            let document = Document { fires, tzdata: TZDATA_VERSION };
            let text =
                serde_json::to_string(&document).map_err(|error| Failure::internal(error.to_string()))?;
            return say(&text);
        }
        if fires.is_empty() {
            // Not on stdout, where every line is a fire.
            eprintln!("no further fire");
        }
        for fire in fires {
            let note = fire.note.map(|note| format!("  ({note})")).unwrap_or_default();
            say(&format!("{}  {}{note}", fire.utc, fire.local))?;
        }
        Ok(())
    }
}

impl From<GapArgument> for GapPolicy {
    fn from(argument: GapArgument) -> Self {
        match argument {
            GapArgument::After => Self::After,
            GapArgument::Skip => Self::Skip,
        }
    }
}

impl From<RepeatArgument> for RepeatPolicy {
    fn from(argument: RepeatArgument) -> Self {
        match argument {
            RepeatArgument::First => Self::First,
            RepeatArgument::Last => Self::Last,
            RepeatArgument::Both => Self::Both,
        }
    }
}
