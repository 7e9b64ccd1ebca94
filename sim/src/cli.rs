//! The `fencepost-sim` command: its arguments, and one file per subcommand.
//!
//! What is printed and how it exits is what users and checks rely on: `--json` prints one document on stdout,
//! everything else that is said goes to stderr with it; exit codes are those of `report::exit_code`, 4 for
//! marks never passed, 5 for a surviving mutant, 64 for wrong usage, 70 for a failure of the program itself.

mod catalogues;
mod many;
mod nearest;
mod one;
mod shrinking;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::{Args, Parser, Subcommand};
use fencepost_core::bug::{Bug, Bugs};

use crate::plan::{Plan, Profile, generate};

/// Wrong usage, as `sysexits.h` numbers it.
pub const USAGE: u8 = 64;
/// A failure of the program itself.
pub const INTERNAL: u8 = 70;

#[derive(Debug, Parser)]
#[command(name = "fencepost-sim", version, about = "Runs Fencepost's core from a seed, through faults")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs many seeds.
    Run(many::RunArgs),
    /// Runs one seed, or a plan from a file.
    Replay(one::ReplayArgs),
    /// Prints the plan of a seed.
    Plan(one::PlanArgs),
    /// Makes a failing plan smaller, keeping the invariant that it breaks.
    Shrink(shrinking::ShrinkArgs),
    /// Switches on one deliberate bug after the other; each must be caught.
    Mutants(many::MutantsArgs),
    /// Lists the invariants.
    Invariants(catalogues::ListArgs),
    /// Lists the kinds of faults.
    Faults(catalogues::ListArgs),
    /// Lists the coverage marks.
    Marks(catalogues::ListArgs),
    /// Lists the profiles.
    Profiles(catalogues::ListArgs),
}

/// How long the file of a plan may be. A run of the largest profile has a hundredth of it.
const PLAN_BYTES_MAX: u64 = 16 << 20;

/// How many names are offered in the place of a wrong one.
const NAMES_OFFERED: usize = 4;

/// Which profile, and which deliberate bug.
#[derive(Clone, Copy, Debug, Args)]
struct Setting {
    /// What kind of run the seed expands to (see `profiles`).
    #[arg(long, default_value = "default", value_parser = profile)]
    profile: Profile,
    /// A deliberate bug to switch on (see `mutants --list`).
    #[arg(long, value_name = "NAME", value_parser = mutant)]
    mutant: Option<Bug>,
}

impl Setting {
    fn bugs(self) -> Bugs {
        self.mutant.map_or(Bugs::NONE, Bugs::only)
    }
}

fn profile(name: &str) -> Result<Profile, String> {
    Profile::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Profile::ALL.iter().map(|profile| profile.name()).collect();
        format!("no such profile; there are {}", names.join(", "))
    })
}

fn mutant(name: &str) -> Result<Bug, String> {
    Bug::from_name(name).ok_or_else(|| {
        let names = nearest::nearest(name, Bug::ALL.iter().map(|bug| bug.name()), NAMES_OFFERED);
        format!(
            "no such mutant; the nearest are {} (`fencepost-sim mutants --list` prints all {})",
            names.join(", "),
            Bug::ALL.len()
        )
    })
}

/// A seed, or the file of a plan.
#[derive(Clone, Debug)]
enum Source {
    Seed(u64),
    File(PathBuf),
}

fn source(text: &str) -> Result<Source, String> {
    match text.parse() {
        Ok(seed) => Ok(Source::Seed(seed)),
        Err(_) if text.bytes().all(|byte| byte.is_ascii_digit()) => Err("a seed is below 2^64".into()),
        Err(_) => Ok(Source::File(PathBuf::from(text))),
    }
}

impl Source {
    /// The plan; or what is wrong with its file.
    fn plan(&self, profile: Profile) -> Result<Plan, String> {
        match self {
            Self::Seed(seed) => Ok(generate::generate(*seed, profile)),
            Self::File(path) => {
                let unreadable = |error: io::Error| {
                    format!("{} is neither a seed nor a file that can be read: {error}", path.display())
                };
                let mut text = String::new();
                File::open(path)
                    .and_then(|file| file.take(PLAN_BYTES_MAX + 1).read_to_string(&mut text))
                    .map_err(unreadable)?;
                if text.len() as u64 > PLAN_BYTES_MAX {
                    return Err(format!("{}: a plan has at most {PLAN_BYTES_MAX} bytes", path.display()));
                }
                Plan::from_json(&text).map_err(|error| format!("{}: {error}", path.display()))
            }
        }
    }
}

/// Runs the command line; the exit code.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too, and are no mistake.
            let wrong = error.use_stderr();
            return if error.print().is_err() {
                INTERNAL
            } else if wrong {
                USAGE
            } else {
                0
            };
        }
    };
    let code = match cli.command {
        Command::Run(args) => many::run(&args),
        Command::Replay(args) => one::replay(&args),
        Command::Plan(args) => one::plan(&args),
        Command::Shrink(args) => shrinking::shrink(&args),
        Command::Mutants(args) => many::mutants(&args),
        Command::Invariants(args) => catalogues::invariants(args),
        Command::Faults(args) => catalogues::faults(args),
        Command::Marks(args) => catalogues::marks(args),
        Command::Profiles(args) => catalogues::profiles(args),
    };
    match LOST.get() {
        Some(error) => {
            eprintln!("fencepost-sim: the result could not be written to stdout: {error}");
            // What the run found out matters more.
            if code == 0 { INTERNAL } else { code }
        }
        None => code,
    }
}

/// Why stdout lost something, if it did.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Prints to stdout; a reader that has gone is no failure of ours, a full disk is.
fn print(text: &str) {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        LOST.get_or_init(|| error);
    }
}

/// Says what is wrong with the usage.
fn refuse(text: &str) -> u8 {
    eprintln!("fencepost-sim: {text}");
    USAGE
}
