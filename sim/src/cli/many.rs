//! `run` and `mutants`: many seeds.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use fencepost_core::bug::Bug;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{INTERNAL, Setting, print, refuse};
use crate::campaign::{Campaign, Recheck};
use crate::mutants::{self, Fate};
use crate::plan::{Profile, generate};
use crate::report::{self, Failure, Tally};
use crate::stopwatch::Stopwatch;

#[derive(Clone, Debug, Args)]
pub(super) struct RunArgs {
    /// How many seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first one.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// On how many threads; as many as there are processors by default.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Where to write the plan of each run that fails.
    #[arg(long, value_name = "DIR")]
    fail_dir: Option<PathBuf>,
    /// One JSON document, on the last line of stdout.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    setting: Setting,
}

#[derive(Clone, Debug, Args)]
pub(super) struct MutantsArgs {
    /// How many seeds each mutant may live through at most.
    #[arg(long, default_value_t = mutants::SEEDS)]
    seeds: u64,
    /// This one alone.
    #[arg(long, value_name = "NAME", value_parser = super::mutant)]
    only: Option<Bug>,
    /// Lists the mutants, each with the invariant that is to catch it, and runs none.
    #[arg(long)]
    list: bool,
    /// One JSON document on stdout.
    #[arg(long)]
    json: bool,
}

/// What is said of a campaign without a seed: it would pass whatever is broken.
const NO_SEEDS: &str = "--seeds 0 runs nothing and so shows nothing; give at least 1";

pub(super) fn run(args: &RunArgs) -> u8 {
    if args.seeds == 0 {
        return refuse(NO_SEEDS);
    }
    if args.start.checked_add(args.seeds).is_none() {
        return refuse("--start and --seeds together go beyond the last seed, 2^64 - 1");
    }
    if let Some(dir) = &args.fail_dir
        && let Err(error) = std::fs::create_dir_all(dir)
    {
        return refuse(&format!("--fail-dir {}: {error}", dir.display()));
    }
    let setting = args.setting;
    let mutant = setting.mutant.map(Bug::name);
    let campaign = Campaign {
        start: args.start,
        seeds: args.seeds,
        profile: setting.profile,
        bugs: setting.bugs(),
        threads: threads(args.threads),
        recheck: Recheck::Some,
    };
    let watch = Stopwatch::start();
    let mut tally = Tally::default();
    let mut unwritten = None;
    let bar = bar(args.seeds);
    campaign.run(|run| {
        tally.add(&run);
        if run.ended.violation.is_some()
            && let Some(failed) = tally.failures.last_mut()
        {
            if let Some(dir) = &args.fail_dir {
                match keep(dir, failed, setting) {
                    Ok(path) => failed.file = Some(path),
                    Err(error) => {
                        unwritten.get_or_insert(error);
                    }
                }
            }
            bar.suspend(|| eprintln!("{}", report::failure(failed, setting.profile.name(), mutant)));
        }
        bar.set_position(tally.seeds);
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    let took = watch.elapsed();
    let summary = report::summary(&tally, setting.profile.name(), mutant, took);
    if args.json {
        eprint!("{summary}");
        print(&format!("{}\n", tally.to_json(setting.profile.name(), took)));
    } else {
        print(&summary);
    }
    match unwritten {
        Some(error) if tally.failures.is_empty() => {
            eprintln!("fencepost-sim: {error}");
            INTERNAL
        }
        Some(error) => {
            eprintln!("fencepost-sim: {error}");
            tally.exit_code()
        }
        None => tally.exit_code(),
    }
}

/// Writes the plan of a failed run; where to. A plan holds no deliberate bug, so the file's name says which
/// one was switched on.
fn keep(dir: &Path, failed: &Failure, setting: Setting) -> Result<PathBuf, String> {
    let profile = setting.profile;
    let with = setting.mutant.map_or(String::new(), |bug| format!("-with-{}", bug.name()));
    let name = format!("{}-{}-{}{with}.json", profile.name(), failed.seed, failed.violation.invariant);
    let path = dir.join(name);
    let plan = generate::generate(failed.seed, profile).to_json();
    match std::fs::write(&path, plan) {
        Ok(()) => Ok(path),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn bar(seeds: u64) -> ProgressBar {
    // Draws on a terminal alone.
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta} to go")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(seeds).with_style(style)
}

fn threads(wanted: Option<NonZeroUsize>) -> usize {
    let all = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    wanted.unwrap_or_else(all).get()
}

#[derive(Serialize)]
struct Fates<'a> {
    mutants: &'a [Fate],
}

/// A mutant that no oracle caught, or another than was predicted.
const SURVIVED: u8 = 5;

pub(super) fn mutants(args: &MutantsArgs) -> u8 {
    let bugs = args.only.map_or_else(|| Bug::ALL.to_vec(), |only| vec![only]);
    if args.list {
        return list(&bugs, args.json);
    }
    if args.seeds == 0 {
        return refuse(NO_SEEDS);
    }
    let bar = bar(bugs.len() as u64);
    let mut fates = Vec::new();
    for bug in bugs {
        let fate = mutants::run(bug, args.seeds, Profile::Default, threads(None));
        let line = describe(&fate, args.seeds);
        if args.json {
            bar.suspend(|| eprintln!("{line}"));
        } else {
            bar.suspend(|| print(&format!("{line}\n")));
        }
        fates.push(fate);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let killed = fates.iter().filter(|fate| fate.is_as_predicted()).count();
    eprintln!("{killed} of {} mutants killed, each by the invariant that was predicted", fates.len());
    if args.json {
        let json = serde_json::to_string(&Fates { mutants: &fates }).expect("the keys are text");
        print(&format!("{json}\n"));
    }
    if killed == fates.len() { 0 } else { SURVIVED }
}

/// What became of a mutant, and how to see it; `tried` seeds at most.
fn describe(fate: &Fate, tried: u64) -> String {
    let name = fate.name;
    let predicted = fate.predicted;
    let (Some(by), Some(seed)) = (fate.killed_by, fate.seed) else {
        return format!(
            "{name:34} SURVIVED the {tried} seeds tried; {predicted} was to kill it, which may need more: --seeds N"
        );
    };
    let replay = format!("fencepost-sim replay {seed} --mutant {name}");
    if by == predicted {
        format!("{name:34} killed by {by} in seed {seed}: {replay}")
    } else {
        format!("{name:34} KILLED BY {by} in seed {seed}, not by {predicted}: {replay}")
    }
}

#[derive(Serialize)]
struct Prediction {
    name: &'static str,
    predicted: &'static str,
}

#[derive(Serialize)]
struct Predictions {
    mutants: Vec<Prediction>,
}

fn list(bugs: &[Bug], json: bool) -> u8 {
    let mutants: Vec<Prediction> = bugs
        .iter()
        .map(|bug| Prediction { name: bug.name(), predicted: mutants::predicted(*bug).id() })
        .collect();
    if json {
        let json = serde_json::to_string(&Predictions { mutants }).expect("the keys are text");
        print(&format!("{json}\n"));
    } else {
        for mutant in &mutants {
            print(&format!("{:34} {}\n", mutant.name, mutant.predicted));
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survivor_is_told_with_the_seeds_tried_and_that_it_may_need_more() {
        let survivor =
            Fate { name: "a-bug", predicted: "a-rule", killed_by: None, seeds_to_kill: None, seed: None };
        let line = describe(&survivor, 3);
        assert!(line.contains("SURVIVED the 3 seeds tried") && line.contains("may need more"), "{line}");
        let killed = Fate { killed_by: Some("another"), seeds_to_kill: Some(4), seed: Some(3), ..survivor };
        let line = describe(&killed, 9);
        assert!(line.contains("KILLED BY another in seed 3, not by a-rule"), "{line}");
        assert!(line.ends_with("fencepost-sim replay 3 --mutant a-bug"), "{line}");
    }
}
