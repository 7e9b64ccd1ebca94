//! `shrink`: from a failing plan to a small one that fails alike.

use std::path::PathBuf;

use clap::Args;

use super::{Setting, Source, refuse, source};

#[derive(Clone, Debug, Args)]
pub(super) struct ShrinkArgs {
    /// A seed, or the file of a plan.
    #[arg(value_name = "SEED|PLAN.json", value_parser = source)]
    source: Source,
    /// Where to write the smaller plan.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    setting: Setting,
}

pub(super) fn shrink(args: &ShrinkArgs) -> u8 {
    let ShrinkArgs { source: _, out: _, setting: _ } = args;
    refuse("the command `shrink` does not exist in this version")
}
