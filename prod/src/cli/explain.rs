//! `fencepost explain`: what became of an execution or a job, asked of a running API and laid out for people.

use clap::{Args, Subcommand};
use uuid::Uuid;

use super::say;
use crate::client::ApiClient;
use crate::failure::Failure;

mod layout;

/// What is to be explained.
#[derive(Debug, Subcommand)]
pub(super) enum Explain {
    /// Why an execution did or did not run, what it waits for, what a replay would do.
    Execution(Ask),
    /// What a job's latest fires became, what is late and why, and when it fires next.
    Job(Ask),
}

/// Which one, and whom to ask.
#[derive(Debug, Args)]
pub(super) struct Ask {
    /// Its id.
    id: Uuid,
    /// The API; FENCEPOST_API_URL is read where this is not given.
    #[arg(long)]
    url: Option<String>,
    /// The tenant's key; FENCEPOST_API_KEY is read where this is not given, and is seen by fewer.
    #[arg(long)]
    key: Option<String>,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
}

/// Where an API listens that nobody moved.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";

impl Explain {
    pub(super) async fn run(&self) -> Result<(), Failure> {
        let (ask, path) = match self {
            Self::Execution(ask) => (ask, format!("/v1/executions/{}/explain", ask.id)),
            Self::Job(ask) => (ask, format!("/v1/jobs/{}/explain", ask.id)),
        };
        let set = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let url = ask.url.clone().or_else(|| set("FENCEPOST_API_URL"));
        let key = ask.key.clone().or_else(|| set("FENCEPOST_API_KEY")).ok_or_else(|| {
            Failure::usage("no key is given")
                .hint("give --key or FENCEPOST_API_KEY: a key of the tenant, from `fencepost tenant create`")
        })?;
        let client = ApiClient::new(url.as_deref().unwrap_or(DEFAULT_URL), &key)?;
        let (text, explanation) = client.get(&path).await?;
        if ask.json { say(&text) } else { say(&layout::lay_out(&explanation)) }
    }
}
