//! `fencepost explain`: what became of an execution or a job, asked of a running API and laid out for people.

use clap::{Args, Subcommand};
use reqwest::Method;
use uuid::Uuid;

use super::api_client::{ApiArguments, Ask};
use super::say;
use crate::failure::Failure;

mod layout;

/// What is to be explained.
#[derive(Debug, Subcommand)]
pub(super) enum Explain {
    /// Why an execution did or did not run, what it waits for, what a replay would do.
    Execution(Wanted),
    /// What a job's latest fires became, what is late and why, and when it fires next.
    Job(Wanted),
}

/// Which one, and whom to ask.
#[derive(Debug, Args)]
pub(super) struct Wanted {
    /// Its id.
    id: Uuid,
    #[command(flatten)]
    api: ApiArguments,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(super) async fn run(&self) -> Result<(), Failure> {
        let (wanted, path) = match self {
            Self::Execution(wanted) => (wanted, format!("/v1/executions/{}/explain", wanted.id)),
            Self::Job(wanted) => (wanted, format!("/v1/jobs/{}/explain", wanted.id)),
        };
        let explanation = wanted.api.client()?.call(Method::GET, &path, Ask::default()).await?;
        if wanted.json { say(&explanation.to_string()) } else { say(&layout::lay_out(&explanation)) }
    }
}
