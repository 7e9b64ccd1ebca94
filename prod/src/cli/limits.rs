//! `fencepost limits`: list, set and clear concurrency limits, through the API.
//!
//! Setting and clearing first say what they would do, and do it with `--yes`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::api_client::{ApiArguments, ApiClient, Ask};
use super::say;
use crate::failure::Failure;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(super) enum Limits {
    /// List the limits, with what runs and what waits under each.
    List(List),
    /// Set a limit: of a concurrency key, or of the whole tenant. Says what it would do; does it with --yes.
    Set(Set),
    /// Take a limit away. Says what it would do; does it with --yes.
    Clear(Clear),
}

/// The arguments of `limits list`.
#[derive(Debug, Args)]
pub(super) struct List {
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
}

/// The arguments of `limits set`.
#[derive(Debug, Args)]
pub(super) struct Set {
    /// How many may run at once.
    max_running: u32,
    #[command(flatten)]
    change: Change,
}

/// The arguments of `limits clear`.
#[derive(Debug, Args)]
pub(super) struct Clear {
    #[command(flatten)]
    change: Change,
}

/// What setting and clearing share.
#[derive(Debug, Args)]
struct Change {
    /// Of which concurrency key; of all that the tenant runs where none is given.
    #[arg(long)]
    of_key: Option<String>,
    /// Who does it.
    #[arg(long)]
    actor: String,
    /// Why.
    #[arg(long)]
    reason: String,
    /// Do it, and not only say what would be done.
    #[arg(long)]
    yes: bool,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
}

impl Limits {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::List(list) => list.run().await,
            Self::Set(set) => set.change.run(Some(set.max_running)).await,
            Self::Clear(clear) => clear.change.run(None).await,
        }
    }
}

async fn all(client: &ApiClient) -> Result<Value, Failure> {
    client.call(Method::GET, "/v1/limits", Ask::default()).await
}

/// A limit in a line.
fn line(limit: &Value) -> String {
    let of = limit["key"].as_str().map_or_else(|| "tenant".to_owned(), |key| format!("key {key}"));
    let most =
        limit["max_running"].as_u64().map_or_else(|| "no limit".to_owned(), |most| format!("{most} at once"));
    let text = |name: &str| limit[name].as_str().unwrap_or("?").to_owned();
    format!(
        "{of}: {most}, {} run, {} wait; set at {} by {} ({})",
        limit["running"],
        limit["waiting"],
        text("set_at"),
        text("actor"),
        text("reason")
    )
}

impl List {
    async fn run(&self) -> Result<(), Failure> {
        let limits = all(&self.api.client()?).await?;
        if self.json {
            return say(&limits.to_string());
        }
        for limit in limits["items"].as_array().into_iter().flatten() {
            say(&line(limit))?;
        }
        Ok(())
    }
}

impl Change {
    async fn run(&self, max_running: Option<u32>) -> Result<(), Failure> {
        let client = self.api.client()?;
        if !self.yes {
            let limits = all(&client).await?;
            let of = self.of_key.as_deref();
            let mut known = limits["items"].as_array().into_iter().flatten();
            let now = known.find(|limit| limit["key"].as_str() == of);
            if self.json {
                return say(&json!({ "now": now, "max_running": max_running }).to_string());
            }
            say(&now.map_or_else(|| "no limit was ever set".to_owned(), line))?;
            let what = max_running.map_or("taken away".to_owned(), |most| format!("set to {most}"));
            return say(&format!("it would be {what}; --yes does it"));
        }
        let path = match &self.of_key {
            Some(key) => {
                let key: String = form_urlencoded::byte_serialize(key.as_bytes()).collect();
                format!("/v1/limits/keys/{}", key.replace('+', "%20"))
            }
            None => "/v1/limits/tenant".to_owned(),
        };
        let body = json!({ "max_running": max_running, "actor": self.actor, "reason": self.reason });
        let limit = client.call(Method::PUT, &path, Ask { body: Some(body), ..Ask::default() }).await?;
        say(&if self.json { limit.to_string() } else { line(&limit) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_line() {
        let limit = json!({ "key": "db", "max_running": 2, "running": 2, "waiting": 1, "set_at": "t", "actor": "Zoë",
            "reason": "the disk is slow" });
        assert_eq!(line(&limit), "key db: 2 at once, 2 run, 1 wait; set at t by Zoë (the disk is slow)");
        let limit = json!({ "key": null, "max_running": null, "running": 0, "waiting": 0, "set_at": "t", "actor": "a",
            "reason": "r" });
        assert_eq!(line(&limit), "tenant: no limit, 0 run, 0 wait; set at t by a (r)");
    }
}
