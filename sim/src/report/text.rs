//! The report as text: what a person wants to know first comes last, at the bottom of the terminal.

use std::fmt::Write as _;
use std::time::Duration;

use fencepost_core::mark::Mark;

use super::{Failure, Tally};
use crate::fault::{FaultGroup, FaultKind};
use crate::measure::Distribution;

/// How many failures are printed in full.
const FAILURES_SHOWN: usize = 10;

/// A failure, and how to see it again.
#[must_use]
pub fn failure(failure: &Failure, profile: &str, mutant: Option<&str>) -> String {
    let violation = &failure.violation;
    // A plan's file says its profile; which bug was switched on is said by the command line alone.
    let mut replay = match &failure.file {
        Some(file) => format!("fencepost-sim replay {} --trace", file.display()),
        None => format!("fencepost-sim replay {} --profile {profile} --trace", failure.seed),
    };
    if let Some(name) = mutant {
        let _ = write!(replay, " --mutant {name}");
    }
    format!(
        "seed {}: {} broke at {} s\n  {}\n  replay: {replay}",
        failure.seed, violation.invariant, violation.at, violation.detail
    )
}

/// The whole report.
#[must_use]
pub fn summary(tally: &Tally, profile: &str, mutant: Option<&str>, took: Duration) -> String {
    let mut text = String::new();
    faults(&mut text, tally);
    marks(&mut text, tally);
    let _ = writeln!(text, "in simulated time (p50 / p99 / longest)");
    measured(&mut text, "leader failover", &tally.measured.failover);
    measured(&mut text, "rebalancing", &tally.measured.rebalance);
    measured(&mut text, "due to dispatched", &tally.measured.dispatch_lag);
    measured(&mut text, "drain", &tally.measured.drain);
    for failed in tally.failures.iter().take(FAILURES_SHOWN) {
        let _ = writeln!(text, "\n{}", failure(failed, profile, mutant));
    }
    if tally.failures.len() > FAILURES_SHOWN {
        let _ = writeln!(text, "\n… and {} more", tally.failures.len() - FAILURES_SHOWN);
    }
    let missed = tally.marks_missed();
    if !missed.is_empty() {
        let names: Vec<&str> = missed.iter().map(|mark| mark.name()).collect();
        let _ = writeln!(text, "\nmarks never passed: {}", names.join(", "));
    }
    let seconds = took.as_secs_f64().max(0.001);
    let _ = writeln!(
        text,
        "\n{} seeds of `{profile}` in {seconds:.1} s ({:.0} seeds/s, {:.2} million events/s): {} executions in {} simulated hours",
        tally.seeds,
        tally.seeds as f64 / seconds,
        tally.events as f64 / seconds / 1e6,
        tally.measured.executions,
        tally.simulated.as_millis() / 3_600_000,
    );
    let verdict = match tally.failures.len() {
        0 if missed.is_empty() => "every invariant held".to_owned(),
        0 => "every invariant held, but not every mark was passed".to_owned(),
        failures => format!("{failures} of them failed"),
    };
    let _ = writeln!(text, "{verdict}; hash {}", tally.hash());
    text
}

fn faults(text: &mut String, tally: &Tally) {
    let _ = writeln!(text, "faults that happened");
    for group in FaultGroup::ALL {
        let of_group = FaultKind::ALL.iter().copied().filter(|kind| kind.group() == group);
        let counts: Vec<String> = of_group.map(|kind| format!("{kind} {}", tally.faults.of(kind))).collect();
        wrapped(text, group.name(), &counts);
    }
}

fn marks(text: &mut String, tally: &Tally) {
    let passed: Vec<String> =
        Mark::ALL.iter().map(|mark| format!("{} {}", mark.name(), tally.marks[*mark as usize])).collect();
    let _ = writeln!(text, "marks passed");
    wrapped(text, "core", &passed);
}

fn measured(text: &mut String, name: &str, distribution: &Distribution) {
    let _ = match distribution.percentiles() {
        Some(three) => writeln!(text, "  {name:<18}{} / {} / {} ms", three.p50, three.p99, three.max),
        None => writeln!(text, "  {name:<18}nothing to measure"),
    };
}

/// A heading and what is under it, in as many lines as it takes.
pub(super) fn wrapped(text: &mut String, head: &str, items: &[String]) {
    const WIDTH: usize = 110;
    let mut line = format!("  {head:<18}");
    for (at, item) in items.iter().enumerate() {
        let comma = if at + 1 < items.len() { ", " } else { "" };
        if line.len() + item.len() + comma.len() > WIDTH {
            let _ = writeln!(text, "{}", line.trim_end());
            line = " ".repeat(20);
        }
        line.push_str(item);
        line.push_str(comma);
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim_time::SimTime;
    use crate::trace::TraceHash;
    use crate::violation::{Property, Violation};

    #[test]
    fn a_failure_replays_from_its_plans_file_with_its_mutant() {
        let mut failed = Failure {
            seed: 7,
            hash: TraceHash(0),
            violation: Violation {
                invariant: "any",
                property: Property::Safety,
                at: SimTime::ZERO,
                detail: String::new(),
            },
            file: None,
        };
        let text = failure(&failed, "small", Some("a-bug"));
        assert!(text.ends_with("fencepost-sim replay 7 --profile small --trace --mutant a-bug"), "{text}");
        failed.file = Some("plans/7.json".into());
        let text = failure(&failed, "small", Some("a-bug"));
        assert!(text.ends_with("fencepost-sim replay plans/7.json --trace --mutant a-bug"), "{text}");
    }
}
