//! `fencepost calendars`: list, show, set and delete calendars, through the API.
//!
//! Setting and deleting first say what they would do, and do it with `--yes`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::api_client::{ApiArguments, ApiClient, Ask};
use super::say;
use crate::failure::Failure;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(super) enum Calendars {
    /// List the calendars.
    List(List),
    /// Show the days of a calendar.
    Show(Show),
    /// Give a calendar these days and no others. Says what it would do; does it with --yes.
    Set(Set),
    /// Take a calendar away that no job names. Says what it would do; does it with --yes.
    Delete(Delete),
}

/// The arguments of `calendars list`.
#[derive(Debug, Args)]
pub(super) struct List {
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
}

/// The arguments of `calendars show`.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// The calendar.
    name: String,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
}

/// The arguments of `calendars set`.
#[derive(Debug, Args)]
pub(super) struct Set {
    #[command(flatten)]
    change: Change,
    /// A day, such as 2026-12-24; may be given often.
    #[arg(long = "day")]
    days: Vec<String>,
    /// Set it only if it has this version; 0: only if it was never set.
    #[arg(long)]
    version: Option<u32>,
}

/// The arguments of `calendars delete`.
#[derive(Debug, Args)]
pub(super) struct Delete {
    #[command(flatten)]
    change: Change,
}

/// What setting and deleting share.
#[derive(Debug, Args)]
struct Change {
    /// The calendar.
    name: String,
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

impl Calendars {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::List(list) => list.run().await,
            Self::Show(show) => show.run().await,
            Self::Set(set) => set.run().await,
            Self::Delete(delete) => delete.run().await,
        }
    }
}

/// A calendar in a line.
fn line(calendar: &Value) -> String {
    let text = |name: &str| calendar[name].as_str().unwrap_or("?").to_owned();
    format!(
        "{}: {} days, version {}; set at {} by {} ({})",
        text("name"),
        calendar["days"].as_array().map_or(0, Vec::len),
        calendar["version"],
        text("set_at"),
        text("actor"),
        text("reason")
    )
}

fn path_of(name: &str) -> String {
    let name: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    format!("/v1/calendars/{}", name.replace('+', "%20"))
}

async fn all(client: &ApiClient) -> Result<Value, Failure> {
    client.call(Method::GET, "/v1/calendars", Ask::default()).await
}

impl List {
    async fn run(&self) -> Result<(), Failure> {
        let calendars = all(&self.api.client()?).await?;
        if self.json {
            return say(&calendars.to_string());
        }
        for calendar in calendars["items"].as_array().into_iter().flatten() {
            say(&line(calendar))?;
        }
        Ok(())
    }
}

impl Show {
    async fn run(&self) -> Result<(), Failure> {
        let calendar = self.api.client()?.call(Method::GET, &path_of(&self.name), Ask::default()).await?;
        if self.json {
            return say(&calendar.to_string());
        }
        say(&line(&calendar))?;
        for day in calendar["days"].as_array().into_iter().flatten() {
            say(day.as_str().unwrap_or("?"))?;
        }
        Ok(())
    }
}

impl Set {
    async fn run(&self) -> Result<(), Failure> {
        let Self { change, days, version } = self;
        let client = change.api.client()?;
        if !change.yes {
            return change.forecast(&client, &format!("set to {} days", days.len())).await;
        }
        let mut body = json!({ "days": days, "actor": change.actor, "reason": change.reason });
        if let Some(version) = version {
            body["version"] = json!(version);
        }
        let ask = Ask { body: Some(body), ..Ask::default() };
        let calendar = client.call(Method::PUT, &path_of(&change.name), ask).await?;
        say(&if change.json { calendar.to_string() } else { line(&calendar) })
    }
}

impl Delete {
    async fn run(&self) -> Result<(), Failure> {
        let change = &self.change;
        let client = change.api.client()?;
        if !change.yes {
            return change.forecast(&client, "taken away").await;
        }
        let body = json!({ "actor": change.actor, "reason": change.reason });
        let ask = Ask { body: Some(body), ..Ask::default() };
        client.call(Method::DELETE, &path_of(&change.name), ask).await?;
        say(&if change.json {
            json!({ "name": change.name, "deleted": true }).to_string()
        } else {
            format!("{}: taken away", change.name)
        })
    }
}

impl Change {
    async fn forecast(&self, client: &ApiClient, what: &str) -> Result<(), Failure> {
        let calendars = all(client).await?;
        let mut known = calendars["items"].as_array().into_iter().flatten();
        let now = known.find(|calendar| calendar["name"].as_str() == Some(&self.name));
        if self.json {
            return say(&json!({ "now": now, "would_be": what }).to_string());
        }
        say(&now.map_or_else(|| format!("{}: no such calendar", self.name), line))?;
        say(&format!("it would be {what}; --yes does it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calendar_is_a_line() {
        let calendar = json!({ "name": "holidays", "version": 2, "days": ["2026-12-24"], "set_at": "t",
            "actor": "Zoë", "reason": "one was forgotten" });
        assert_eq!(line(&calendar), "holidays: 1 days, version 2; set at t by Zoë (one was forgotten)");
        assert_eq!(path_of("bank days"), "/v1/calendars/bank%20days");
    }
}
