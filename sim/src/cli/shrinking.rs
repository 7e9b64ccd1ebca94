//! `shrink`: from a failing plan to a small one that fails alike.

use std::path::PathBuf;

use clap::Args;
use indicatif::ProgressBar;

use super::{INTERNAL, Setting, Source, print, refuse, source};
use crate::plan::Plan;
use crate::report::exit_code;
use crate::shrink::shrink as make_smaller;

#[derive(Clone, Debug, Args)]
pub(super) struct ShrinkArgs {
    /// A seed, or the file of a plan.
    #[arg(value_name = "SEED|PLAN.json", value_parser = source)]
    source: Source,
    /// Where to write the smaller plan.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// How many plans to try at most.
    #[arg(long, default_value_t = 2_000)]
    tries: u32,
    #[command(flatten)]
    setting: Setting,
}

pub(super) fn shrink(args: &ShrinkArgs) -> u8 {
    let plan = match args.source.plan(args.setting.profile) {
        Ok(plan) => plan,
        Err(error) => return refuse(&error),
    };
    let bar = ProgressBar::new_spinner();
    let mut progress = |plan: &Plan, tries: u32| bar.set_message(format!("try {tries}: {}", size(plan)));
    let Some(shrunk) = make_smaller(&plan, args.setting.bugs(), args.tries, &mut progress) else {
        return refuse("this plan breaks no invariant: there is nothing to shrink");
    };
    bar.finish_and_clear();
    if let Err(error) = std::fs::write(&args.out, shrunk.plan.to_json() + "\n") {
        eprintln!("fencepost-sim: {}: {error}", args.out.display());
        return INTERNAL;
    }
    let mutant = args.setting.mutant.map_or(String::new(), |bug| format!(" --mutant {}", bug.name()));
    print(&format!(
        "{}\nfrom {}\n  to {} in {} tries\n  replay: fencepost-sim replay {} --trace{mutant}\n",
        shrunk.violation,
        size(&plan),
        size(&shrunk.plan),
        shrunk.tries,
        args.out.display()
    ));
    exit_code(shrunk.violation.property)
}

fn size(plan: &Plan) -> String {
    format!(
        "{} faults, {} operators' actions, {} jobs, {} nodes, {} s",
        plan.faults.len(),
        plan.actions.len(),
        plan.jobs.len(),
        plan.node_count(),
        plan.heal.at.as_micros() / 1_000_000
    )
}
