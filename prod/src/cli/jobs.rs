//! `fencepost jobs`: show, edit, pause and resume, through the API.
//!
//! Edits, pauses and resumes first say what they would do, and do it with `--yes`. An edit is of the version that was
//! shown (`--if-version`), or of the one that is current when the command is given; where somebody else was faster, it
//! is refused and nothing is overwritten.

use std::io::Read;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::api_client::{ApiArguments, ApiClient, Ask};
use super::say;
use crate::failure::Failure;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(super) enum Jobs {
    /// Show a job: how it stands, who brought that about and why, when it fires next.
    Show(Show),
    /// Give a job another definition. Says what it would do; does it with --yes.
    Edit(Edit),
    /// Pause a job: it fires no more by itself until it is resumed. Says what it would do; does it with --yes.
    Pause(Stand),
    /// Resume a job. What fell into the pause is passed over. Says what it would do; does it with --yes.
    Resume(Stand),
}

/// The arguments of `jobs show`.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// The job.
    job: Uuid,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
}

/// The arguments of `jobs edit`.
#[derive(Debug, Args)]
pub(super) struct Edit {
    /// The job.
    job: Uuid,
    /// A file with the new definition as JSON; `-` is standard input.
    #[arg(long)]
    definition: PathBuf,
    /// The version that is edited; the current one where nothing is said.
    #[arg(long)]
    if_version: Option<u32>,
    /// Do it, and not only say what would be done.
    #[arg(long)]
    yes: bool,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
}

/// The arguments of `jobs pause` and `jobs resume`.
#[derive(Debug, Args)]
pub(super) struct Stand {
    /// The job.
    job: Uuid,
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

impl Jobs {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Show(show) => show.run().await,
            Self::Edit(edit) => edit.run().await,
            Self::Pause(stand) => stand.run("pause", "paused").await,
            Self::Resume(stand) => stand.run("resume", "resumed").await,
        }
    }
}

fn path(job: Uuid) -> String {
    format!("/v1/jobs/{job}")
}

async fn read(client: &ApiClient, job: Uuid) -> Result<Value, Failure> {
    client.call(Method::GET, &path(job), Ask::default()).await
}

fn current_version(job: &Value) -> Result<u32, Failure> {
    let version = job["version"].as_u64().and_then(|version| u32::try_from(version).ok());
    version.ok_or_else(|| Failure::unavailable("the API shows a job without its version".to_owned()))
}

/// A job in lines, or as it is.
fn tell(job: &Value, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return say(&job.to_string());
    }
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    say(&format!("{}  {}  version {}", text(&job["id"]), text(&job["name"]), job["version"]))?;
    say(&standing(job))?;
    if let Some(priority) = job["definition"]["priority"].as_str() {
        say(&format!("{priority} priority"))?;
    }
    match job["next_fire_time"].as_str() {
        Some(fire) => say(&format!("fires next at {fire}")),
        None => say("does not fire by itself as things stand"),
    }
}

/// How a job stands, in a sentence.
fn standing(job: &Value) -> String {
    let said = &job["standing"];
    let part = |name: &str, before: &str, after: &str| {
        said[name].as_str().map(|text| format!("{before}{text}{after}")).unwrap_or_default()
    };
    if job["state"] == "deleted" {
        return "deleted".to_owned();
    }
    format!(
        "{}{}{}{}",
        part("state", "", ""),
        part("since", " since ", ""),
        part("actor", ", by ", ""),
        part("reason", " (", ")")
    )
}

impl Show {
    async fn run(&self) -> Result<(), Failure> {
        tell(&read(&self.api.client()?, self.job).await?, self.json)
    }
}

impl Edit {
    async fn run(&self) -> Result<(), Failure> {
        let definition = self.definition()?;
        let client = self.api.client()?;
        let version = match self.if_version {
            Some(version) => version,
            None => current_version(&read(&client, self.job).await?)?,
        };
        if !self.yes {
            return self.forecast(&client, version, definition).await;
        }
        let ask = Ask { body: Some(definition), if_match: Some(format!("\"{version}\"")), ..Ask::default() };
        tell(&client.call(Method::PUT, &path(self.job), ask).await?, self.json)
    }

    fn definition(&self) -> Result<Value, Failure> {
        let shown = self.definition.display();
        let cannot = |why: &dyn core::fmt::Display| {
            Failure::usage(format!("the definition at {shown} cannot be read: {why}"))
        };
        let mut text = String::new();
        if self.definition.as_os_str() == "-" {
            std::io::stdin().read_to_string(&mut text).map_err(|error| cannot(&error))?;
        } else {
            text = std::fs::read_to_string(&self.definition).map_err(|error| cannot(&error))?;
        }
        serde_json::from_str(&text).map_err(|error| cannot(&error))
    }

    /// What the new definition's fires would be, which also has it checked.
    async fn forecast(&self, client: &ApiClient, version: u32, definition: Value) -> Result<(), Failure> {
        let job = read(client, self.job).await?;
        let ask = Ask { body: Some(definition), ..Ask::default() };
        let preview = client.call(Method::POST, "/v1/preview", ask).await?;
        if self.json {
            return say(&json!({ "job": job, "edits_version": version, "preview": preview }).to_string());
        }
        tell(&job, false)?;
        if current_version(&job)? != version {
            say(&format!("version {version} is no longer the current one: the edit would be refused"))?;
        }
        for fire in preview["fires"].as_array().into_iter().flatten() {
            say(&format!("would fire at {}", fire["utc"].as_str().unwrap_or("?")))?;
        }
        say("nothing was changed; --yes does it")
    }
}

impl Stand {
    async fn run(&self, what: &str, done: &str) -> Result<(), Failure> {
        let client = self.api.client()?;
        if !self.yes {
            let job = read(&client, self.job).await?;
            tell(&job, self.json)?;
            return if self.json { Ok(()) } else { say(&format!("it would be {done}; --yes does it")) };
        }
        let body = json!({ "actor": self.actor, "reason": self.reason });
        let ask = Ask { body: Some(body), ..Ask::default() };
        let job = client.call(Method::POST, &format!("{}/{what}", path(self.job)), ask).await?;
        tell(&job, self.json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standing_is_a_sentence() {
        let job = json!({ "state": "active", "standing": {
            "state": "paused", "since": "2026-03-02T01:00:00.000000Z", "actor": "Zoë", "reason": "the disk is full" } });
        assert_eq!(standing(&job), "paused since 2026-03-02T01:00:00.000000Z, by Zoë (the disk is full)");
        let job =
            json!({ "state": "active", "standing": { "state": "active", "since": "t", "actor": null } });
        assert_eq!(standing(&job), "active since t");
        assert_eq!(standing(&json!({ "state": "deleted" })), "deleted");
    }
}
