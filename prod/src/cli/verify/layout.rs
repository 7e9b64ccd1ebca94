//! A report for people: a table of the checks, then what is violated or could not be compared, and what to do.

use core::fmt::Write as _;

use fencepost_core::verify::{CheckReport, Finding, Report};

/// How many findings of one check are shown; the JSON has more.
const SHOWN: usize = 3;

pub(super) fn lay_out(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        // A string takes whatever is written.
        let _written = writeln!(text, "{words}");
    };
    let stretch = match (report.from, report.to) {
        (None, None) => "all of time".to_owned(),
        (from, to) => {
            let words = |at: Option<_>, otherwise: &str| {
                at.map_or(otherwise.to_owned(), |at: fencepost_core::time::Timestamp| at.to_string())
            };
            format!("{} to {}", words(from, "the beginning"), words(to, "the end"))
        }
    };
    line(format!("as of {}, {stretch}, zone data {}\n", report.at, report.zone_data));
    line(format!("{:<20} {:>12}  verdict", "check", "looked at"));
    for check in &report.checks {
        line(format!("{:<20} {:>12}  {}", check.check, check.looked_at, verdict(check)));
    }
    for check in report.checks.iter().filter(|check| check.violations + check.not_compared > 0) {
        line(format!("\n{}: {}", check.check, check.sees));
        findings(&mut line, "violated", check.violations, &check.found);
        findings(&mut line, "not compared", check.not_compared, &check.uncompared);
    }
    line(String::new());
    line(if report.holds {
        "nothing in these rows speaks against the invariants; docs/verify.md says what rows cannot show"
            .to_owned()
    } else {
        "VIOLATED: keep a copy of the database before anything is repaired".to_owned()
    });
    text.truncate(text.trim_end().len());
    text
}

fn verdict(check: &CheckReport) -> String {
    let mut words = check.verdict.words().to_owned();
    if check.violations > 0 {
        let _written = write!(words, " {} times", check.violations);
    }
    if check.not_compared > 0 {
        let _written = write!(words, ", {} not compared", check.not_compared);
    }
    words
}

fn findings(line: &mut impl FnMut(String), kind: &str, count: u64, found: &[Finding]) {
    for finding in found.iter().take(SHOWN) {
        line(format!("  {kind}: {}", finding.what));
        if let Some(job) = finding.job_id {
            line(format!("    job {job}"));
        }
        if let Some(execution) = finding.execution_id {
            line(format!("    execution {execution}"));
        }
        line(format!("    {}", finding.advice));
    }
    let shown = u64::try_from(found.len().min(SHOWN)).unwrap_or(u64::MAX);
    if count > shown {
        line(format!("  and {} more {kind}; --json tells the first of them", count - shown));
    }
}
