//! How fast the whole production path is, with real processes on real servers, and what it costs.
//!
//!     DATABASE_URL=… AMQP_URL=… cargo bench -p fencepost --bench burst -- [--only burst,trigger] [--check]
//!
//! One scheduler, one worker and one API run as processes of the program as it is released, with their default settings
//! and `noop` handlers; jobs are created and triggered over HTTP. Each part has a database and queues of its own,
//! which are removed again. The server that is measured wants `THROWAWAY_FSYNC=on scripts/throwaway-postgres`.
//! docs/performance.md says what the figures mean and what they were.
//!
//! What must stay true: times are reported, counts and memory are judged (by `--check`): only they mean the same on
//! every machine.

#[path = "burst/arguments.rs"]
mod arguments;
#[path = "burst/cluster.rs"]
mod cluster;
#[path = "burst/figures.rs"]
mod figures;
#[path = "burst/ground.rs"]
mod ground;
#[path = "burst/operator.rs"]
mod operator;
#[path = "burst/parts.rs"]
mod parts;
#[path = "burst/questions.rs"]
mod questions;

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::process::ExitCode;

use clap::Parser;
use futures_util::FutureExt;

use arguments::{Arguments, Part};
use figures::Figures;
use ground::{Ground, Servers};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (Ok(database_url), Ok(amqp_url)) = (std::env::var("DATABASE_URL"), std::env::var("AMQP_URL")) else {
        eprintln!("DATABASE_URL and AMQP_URL are needed: see the head of this file");
        return ExitCode::from(69);
    };
    let servers = Servers { database_url, amqp_url };
    let scratch = std::env::temp_dir().join(format!("fencepost-burst-{}", std::process::id()));
    let logs = arguments.logs.clone().unwrap_or_else(|| scratch.clone());
    let mut figures = Figures::default();
    for part in &arguments.only {
        measure(*part, &arguments, &servers, &logs, &mut figures).await;
    }
    if arguments.logs.is_none() {
        std::fs::remove_dir_all(&scratch).expect("the logs are ours");
    }
    figures.print();
    let missed = figures.missed();
    if arguments.check && !missed.is_empty() {
        eprintln!("\nmissed:\n{}", missed.join("\n"));
        return ExitCode::from(1);
    }
    ExitCode::SUCCESS
}

/// Measures one part on a ground that is removed whatever becomes of it; after a panic the logs stay.
async fn measure(
    part: Part,
    arguments: &Arguments,
    servers: &Servers,
    logs: &std::path::Path,
    figures: &mut Figures,
) {
    let purpose = match part {
        Part::Burst => "burst",
        Part::Lateness => "lateness",
        Part::Trigger => "trigger",
        Part::Memory => "memory",
        Part::Questions => "questions",
    };
    let ground = Ground::prepare(servers, purpose, logs).await;
    let measured = async {
        match part {
            Part::Burst => parts::burst(arguments, &ground, figures).await,
            Part::Lateness => parts::lateness(arguments, &ground, figures).await,
            Part::Trigger => parts::trigger(arguments, &ground, figures).await,
            Part::Memory => parts::memory(arguments, &ground, figures).await,
            Part::Questions => questions::questions(arguments, &ground, figures).await,
        }
    };
    let measured = AssertUnwindSafe(measured).catch_unwind().await;
    ground.remove().await;
    if let Err(panic) = measured {
        eprintln!("the logs of the processes are in {}", logs.display());
        resume_unwind(panic);
    }
}
