//! The command line of the benchmark.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// One of the things that are measured, each in a database and a cluster of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Many executions due at one instant: how many a second, and what PostgreSQL counted.
    Burst,
    /// Some due at one instant on an idle cluster: how late they start.
    Lateness,
    /// One triggered at a time on an idle cluster: how soon its handler starts.
    Trigger,
    /// A steady load: how the processes' memory grows.
    Memory,
    /// A full database: how long an operator waits for an answer.
    Questions,
}

/// The production path on real servers, with real processes.
#[derive(Debug, Parser)]
#[command(name = "burst")]
pub(crate) struct Arguments {
    /// Measure only these.
    #[arg(long, value_delimiter = ',', default_values = ["burst", "lateness", "trigger", "memory", "questions"])]
    pub(crate) only: Vec<Part>,
    /// Exit with 1 if a requirement is missed that does not depend on how fast the machine is.
    #[arg(long)]
    pub(crate) check: bool,
    /// Executions of the burst.
    #[arg(long, default_value_t = 20_000)]
    pub(crate) executions: u32,
    /// Executions whose lateness is measured.
    #[arg(long, default_value_t = 2_000)]
    pub(crate) at_one_instant: u32,
    /// Triggers, one after the other.
    #[arg(long, default_value_t = 400)]
    pub(crate) triggers: u32,
    /// How long the steady load lasts. Growth is judged from 10 up.
    #[arg(long, default_value_t = 1)]
    pub(crate) memory_minutes: u32,
    /// Executions per second of the steady load.
    #[arg(long, default_value_t = 300)]
    pub(crate) load: u32,
    /// Jobs of the full database.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) jobs: u32,
    /// Executions of the full database.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) stored: u32,
    /// How often each question is asked.
    #[arg(long, default_value_t = 500)]
    pub(crate) questions: u32,
    /// Measure this program instead of the one that was built with the benchmark.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_fencepost"))]
    pub(crate) program: PathBuf,
    /// Keep the processes' logs here.
    #[arg(long)]
    pub(crate) logs: Option<PathBuf>,
    /// What `cargo bench` adds by itself.
    #[arg(long, hide = true)]
    pub(crate) bench: bool,
}
