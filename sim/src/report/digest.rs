//! The digest of one run, for a person: which faults happened, who led when, who died and who drained.
//!
//! It is short whatever the run was like: each list ends after its first entries and says how many follow;
//! the whole timeline is the page's (`html`).

use std::fmt::Write as _;

use super::text::wrapped;
use crate::fault::{FaultCounts, FaultGroup, FaultKind};
use crate::plan::{NodeSlot, Plan};
use crate::sim_time::SimTime;
use crate::timeline::{Entry, Moment};
use crate::world::Ended;

/// How many entries of a list are printed.
const ENTRIES_SHOWN: usize = 12;

/// The digest; `ended` has kept its timeline.
#[must_use]
pub fn digest(plan: &Plan, ended: &Ended) -> String {
    let mut text = String::new();
    faults(&mut text, &ended.faults);
    let (mut leaders, mut deaths, mut drains, mut healed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for entry in &ended.timeline {
        let list = match &entry.moment {
            Moment::Leads | Moment::LeadsNoMore => &mut leaders,
            Moment::Died => &mut deaths,
            Moment::DrainRequested | Moment::Drained => &mut drains,
            Moment::Healed => &mut healed,
            Moment::Started | Moment::StoodStill(_) | Moment::Fault(_) | Moment::Violated(_) => continue,
        };
        let whose = entry.slot.map_or(String::new(), |_| format!("{} ", who(plan, entry)));
        list.push(format!("{} s {whose}{}", seconds(entry.at), entry.moment));
    }
    section(&mut text, "leaders", leaders);
    section(&mut text, "deaths", deaths);
    section(&mut text, "drains", drains);
    section(&mut text, "heal", healed);
    text
}

/// The name of what an entry is about.
#[must_use]
pub fn who<'a>(plan: &'a Plan, entry: &Entry) -> &'a str {
    let label = |slot: NodeSlot| match slot.index().checked_sub(plan.schedulers.len()) {
        None => &*plan.schedulers[slot.index()].config.label,
        Some(worker) => &*plan.workers[worker].config.label,
    };
    entry.slot.map_or("all", label)
}

/// To the millisecond: nobody compares a digest with a trace.
fn seconds(at: SimTime) -> String {
    let millis = at.as_micros() / 1_000;
    format!("{}.{:03}", millis / 1_000, millis % 1_000)
}

/// The faults that happened, by group; a group without one is left out.
fn faults(text: &mut String, counts: &FaultCounts) {
    if counts.iter().all(|(_, count)| count == 0) {
        section(text, "faults", Vec::new());
        return;
    }
    let _ = writeln!(text, "faults that happened");
    for group in FaultGroup::ALL {
        let happened = FaultKind::ALL.iter().filter(|kind| kind.group() == group && counts.of(**kind) > 0);
        let items: Vec<String> = happened.map(|kind| format!("{kind} {}", counts.of(*kind))).collect();
        if !items.is_empty() {
            wrapped(text, group.name(), &items);
        }
    }
}

fn section(text: &mut String, head: &str, mut items: Vec<String>) {
    let more = items.len().saturating_sub(ENTRIES_SHOWN);
    items.truncate(ENTRIES_SHOWN);
    if more > 0 {
        items.push(format!("… and {more} more"));
    }
    if items.is_empty() {
        items.push("none".to_owned());
    }
    wrapped(text, head, &items);
}

#[cfg(test)]
mod tests {
    use fencepost_core::bug::Bugs;

    use super::*;
    use crate::plan::{Profile, generate};
    use crate::run::run;
    use crate::world::Keep;

    #[test]
    fn a_clean_run_has_its_faults_leaders_and_drains_in_thirty_lines() {
        for seed in 0..10 {
            let plan = generate::generate(seed, Profile::Default);
            let run = run(&plan, Bugs::NONE, Keep::Timeline);
            assert_eq!(run.ended.violation, None);
            let text = digest(&plan, &run.ended);
            for part in ["faults", "leaders", " leads", "deaths", "drains", "everything heals"] {
                assert!(text.contains(part), "seed {seed} has no {part}:\n{text}");
            }
            assert!(text.lines().count() <= 34, "seed {seed}:\n{text}");
        }
    }

    #[test]
    fn a_long_list_ends_with_how_many_follow() {
        let mut text = String::new();
        section(&mut text, "deaths", (0..15).map(|number| number.to_string()).collect());
        assert!(text.contains("11, … and 3 more"), "{text}");
    }
}
