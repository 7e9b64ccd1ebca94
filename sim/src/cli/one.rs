//! `replay` and `plan`: one seed.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::{INTERNAL, Setting, Source, print, refuse, source};
use crate::plan::{Plan, Profile, generate};
use crate::report::digest::{digest, who};
use crate::report::{exit_code, html};
use crate::run::{Run, run};
use crate::timeline::Entry;
use crate::world::Keep;

#[derive(Clone, Debug, Args)]
pub(super) struct ReplayArgs {
    /// A seed, or the file of a plan.
    #[arg(value_name = "SEED|PLAN.json", value_parser = source)]
    source: Source,
    /// Prints every event, effect and change.
    #[arg(long)]
    trace: bool,
    /// Writes the timeline as a page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// One JSON document on stdout; a trace goes to stderr then.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    setting: Setting,
}

#[derive(Clone, Debug, Args)]
pub(super) struct PlanArgs {
    /// The seed.
    seed: u64,
    /// What kind of run it expands to (see `profiles`).
    #[arg(long, default_value = "default", value_parser = super::profile)]
    profile: Profile,
}

/// How much of the timeline is printed before a violation.
const ENTRIES_SHOWN: usize = 25;

#[derive(Serialize)]
struct ReplayJson<'a> {
    seed: u64,
    profile: &'a str,
    hash: String,
    violation: Option<ViolationJson<'a>>,
}

#[derive(Serialize)]
struct ViolationJson<'a> {
    invariant: &'static str,
    at: String,
    detail: &'a str,
}

pub(super) fn plan(args: &PlanArgs) -> u8 {
    print(&generate::generate(args.seed, args.profile).to_json());
    print("\n");
    0
}

pub(super) fn replay(args: &ReplayArgs) -> u8 {
    let plan = match args.source.plan(args.setting.profile) {
        Ok(plan) => plan,
        Err(error) => return refuse(&error),
    };
    let keep = if args.trace { Keep::Trace } else { Keep::Timeline };
    let run = run(&plan, args.setting.bugs(), keep);
    for line in &run.ended.lines {
        if args.json {
            eprintln!("{line}");
        } else {
            print(&format!("{line}\n"));
        }
    }
    if args.json {
        print(&format!("{}\n", json(&plan, &run)));
    } else {
        print(&text(&plan, &run));
    }
    if let Some(path) = &args.html
        && let Err(error) = std::fs::write(path, html::page(&plan, &run.ended))
    {
        eprintln!("fencepost-sim: {}: {error}", path.display());
        return INTERNAL;
    }
    run.ended.violation.map_or(0, |violation| exit_code(violation.property))
}

fn json(plan: &Plan, run: &Run) -> String {
    let violation = run.ended.violation.as_ref().map(|violation| ViolationJson {
        invariant: violation.invariant,
        at: violation.at.to_string(),
        detail: &violation.detail,
    });
    let document =
        ReplayJson { seed: plan.seed, profile: &plan.profile, hash: run.ended.hash.to_string(), violation };
    serde_json::to_string(&document).expect("the document has no map keys that are not text")
}

fn text(plan: &Plan, run: &Run) -> String {
    let ended = &run.ended;
    let verdict = match &ended.violation {
        Some(violation) => format!("{violation}\n"),
        None => "every invariant held\n".to_owned(),
    };
    let before = match &ended.violation {
        Some(_) => before_it_broke(plan, &ended.timeline),
        None => String::new(),
    };
    format!(
        "{before}{}{verdict}seed {} of `{}`: {} events, {} executions, {} simulated seconds, hash {}\n",
        digest(plan, ended),
        plan.seed,
        plan.profile,
        ended.events,
        ended.measured.executions,
        ended.simulated.as_millis() / 1_000,
        ended.hash
    )
}

/// The last things that happened, one a line: what a person looks at first.
fn before_it_broke(plan: &Plan, timeline: &[Entry]) -> String {
    let from = timeline.len().saturating_sub(ENTRIES_SHOWN);
    let mut text = String::new();
    for entry in &timeline[from..] {
        let who = who(plan, entry);
        let until = if entry.until > entry.at { format!(" until {} s", entry.until) } else { String::new() };
        text.push_str(&format!("{:>12} s  {who:<12} {}{until}\n", entry.at.to_string(), entry.moment));
    }
    text
}
