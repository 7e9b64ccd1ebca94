//! `fencepost verify`: does a live database agree with the invariants?
//!
//! Exit codes: 0 nothing speaks against them, 1 one is broken, 64 wrong usage, 69 the database is out of reach or its
//! schema is another version's, 130 stopped with Ctrl-C. The report goes to stdout in any case in which there is one.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use fencepost_core::time::Timestamp;
use fencepost_core::verify::{Report, Window};

use super::{DatabaseArguments, say};
use crate::failure::Failure;
use crate::settings::Settings;
use crate::verify::{Progress, verify};

mod layout;

/// How often the count on the terminal is renewed.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

/// The arguments of `verify`.
#[derive(Debug, Args)]
pub(super) struct Verify {
    /// Only fires, and other executions' due times, from this instant on, in RFC 3339.
    #[arg(long)]
    from: Option<String>,
    /// Only those before this instant.
    #[arg(long)]
    to: Option<String>,
    #[command(flatten)]
    pub(super) database: DatabaseArguments,
    /// One JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(super) async fn run(&self, settings: &Settings) -> Result<(), Failure> {
        let window = self.window()?;
        let url = settings.database_url()?;
        let progress = Progress::default();
        let report = tokio::select! {
            report = verify(url, window, &progress) => report,
            () = show(&progress) => unreachable!("it is shown for as long as it takes"),
            stopped = tokio::signal::ctrl_c() => Err(match stopped {
                Ok(()) => Failure::interrupted("stopped before there was a verdict; nothing was written"),
                Err(error) => Failure::internal(format!("signals cannot be listened for: {error}")),
            }),
        };
        clear();
        let report = report?;
        if self.json {
            let text =
                serde_json::to_string(&report).map_err(|error| Failure::internal(error.to_string()))?;
            say(&text)?;
        } else {
            say(&layout::lay_out(&report))?;
        }
        judged(&report)
    }

    fn window(&self) -> Result<Window, Failure> {
        let instant = |name: &str, text: &Option<String>, otherwise| match text {
            None => Ok(otherwise),
            Some(text) => Timestamp::parse_rfc3339(text).ok_or_else(|| {
                Failure::usage(format!(
                    "--{name} {text}: not an instant in RFC 3339, such as 2026-01-31T09:00:00Z"
                ))
            }),
        };
        let from = instant("from", &self.from, Window::ALL.from)?;
        let to = instant("to", &self.to, Window::ALL.to)?;
        if to < from {
            return Err(Failure::usage(format!("--to {to} lies before --from {from}")));
        }
        Ok(Window { from, to })
    }
}

fn judged(report: &Report) -> Result<(), Failure> {
    let broken: Vec<&str> = report.violated().map(|check| check.check.id()).collect();
    if broken.is_empty() {
        return Ok(());
    }
    let of = report.checks.len();
    Err(Failure::broken(format!("{} of {of} checks are violated: {}", broken.len(), broken.join(", "))))
}

/// Shows on a terminal how many rows were read, and never ends.
async fn show(progress: &Progress) {
    if !std::io::stderr().is_terminal() {
        return core::future::pending().await;
    }
    let mut ticks = tokio::time::interval(SHOWN_EVERY);
    loop {
        ticks.tick().await;
        eprint!("\r{} rows read ", progress.rows());
    }
}

/// Takes the count off the terminal.
fn clear() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\u{1b}[K");
    }
}
