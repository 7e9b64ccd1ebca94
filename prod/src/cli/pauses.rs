//! `fencepost queues` and the part of `fencepost tenant` that talks to the API: show, list, pause and resume.
//!
//! Whose work it is follows from the key alone: none of these takes a tenant's name, so nobody pauses another tenant by a
//! slip, and `tenant create NAME`, which talks to the database, cannot be confused with them. Pauses and resumes first
//! say what they would do, and do it with `--yes`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::api_client::{ApiArguments, ApiClient, Ask};
use super::say;
use crate::failure::Failure;

/// The subcommands of `queues`.
#[derive(Debug, Subcommand)]
pub(super) enum Queues {
    /// List the queues that the tenant's jobs go to, and which of them are paused.
    List(Look),
    /// Pause the tenant's work on a queue: nothing of it starts there, and all of it waits. Does it with --yes.
    Pause(QueueStand),
    /// Resume the tenant's work on a queue: what has waited starts. Does it with --yes.
    Resume(QueueStand),
}

/// The arguments of `tenant show` and `queues list`.
#[derive(Debug, Args)]
pub(super) struct Look {
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
}

/// The arguments of `tenant pause` and `tenant resume`. The tenant is the key's.
#[derive(Debug, Args)]
pub(super) struct Stand {
    /// Who does it.
    #[arg(long)]
    actor: String,
    /// Why.
    #[arg(long)]
    reason: String,
    /// Do it, and not only say what would be done.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    look: Look,
}

/// The arguments of `queues pause` and `queues resume`.
#[derive(Debug, Args)]
pub(super) struct QueueStand {
    /// The handler.
    handler: String,
    /// Its version.
    #[arg(long, default_value_t = 1)]
    handler_version: u32,
    #[command(flatten)]
    stand: Stand,
}

/// Shows the tenant of the key.
pub(super) async fn show_tenant(look: &Look) -> Result<(), Failure> {
    let tenant = look.api.client()?.call(Method::GET, "/v1/tenant", Ask::default()).await?;
    tell_tenant(&tenant, look.json)
}

/// Pauses (`what` = `pause`) or resumes the tenant of the key.
pub(super) async fn stand_tenant(stand: &Stand, what: &str) -> Result<(), Failure> {
    let client = stand.look.api.client()?;
    if !stand.yes {
        let tenant = client.call(Method::GET, "/v1/tenant", Ask::default()).await?;
        tell_tenant(&tenant, stand.look.json)?;
        return stand.forecast(what);
    }
    tell_tenant(&stand.ask(&client, &format!("/v1/tenant/{what}")).await?, stand.look.json)
}

impl Stand {
    async fn ask(&self, client: &ApiClient, path: &str) -> Result<Value, Failure> {
        let body = json!({ "actor": self.actor, "reason": self.reason });
        client.call(Method::POST, path, Ask { body: Some(body), ..Ask::default() }).await
    }

    fn forecast(&self, what: &str) -> Result<(), Failure> {
        if self.look.json { Ok(()) } else { say(&format!("it would be {what}d; --yes does it")) }
    }
}

impl Queues {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::List(look) => list(&look).await,
            Self::Pause(stand) => stand_queue(&stand, "pause").await,
            Self::Resume(stand) => stand_queue(&stand, "resume").await,
        }
    }
}

async fn list(look: &Look) -> Result<(), Failure> {
    let queues = look.api.client()?.call(Method::GET, "/v1/queues", Ask::default()).await?;
    if look.json {
        return say(&queues.to_string());
    }
    if !queues["tenant_paused"].is_null() {
        say(&format!("all queues: {}", told(&queues["tenant_paused"])))?;
    }
    queues["items"].as_array().into_iter().flatten().try_for_each(tell_queue)
}

async fn stand_queue(stand: &QueueStand, what: &str) -> Result<(), Failure> {
    let client = stand.stand.look.api.client()?;
    let as_json = stand.stand.look.json;
    if !stand.stand.yes {
        let queues = client.call(Method::GET, "/v1/queues", Ask::default()).await?;
        let all = queues["items"].as_array().into_iter().flatten();
        let is_it = |queue: &&Value| {
            queue["handler"] == stand.handler.as_str() && queue["handler_version"] == stand.handler_version
        };
        match all.clone().find(is_it) {
            Some(queue) if as_json => say(&queue.to_string())?,
            Some(queue) => tell_queue(queue)?,
            None if as_json => say("null")?,
            None => say("no job goes to this queue, and it is not paused")?,
        }
        return stand.stand.forecast(what);
    }
    // What cannot be a handler's name is refused by the API, and must not become another path.
    let handler: String = form_urlencoded::byte_serialize(stand.handler.as_bytes()).collect();
    let path = format!("/v1/queues/{handler}/{}/{what}", stand.handler_version);
    let queue = stand.stand.ask(&client, &path).await?;
    if as_json { say(&queue.to_string()) } else { tell_queue(&queue) }
}

fn tell_tenant(tenant: &Value, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return say(&tenant.to_string());
    }
    say(&format!("{}  {}", text(&tenant["id"]), text(&tenant["name"])))?;
    say(&told(&tenant["paused"]))?;
    for pause in tenant["paused_queues"].as_array().into_iter().flatten() {
        say(&format!("queue {} v{}: {}", text(&pause["handler"]), pause["handler_version"], told(pause)))?;
    }
    for pause in tenant["ended"].as_array().into_iter().flatten() {
        say(&format!("before: {}", told_ended(pause)))?;
    }
    Ok(())
}

fn tell_queue(queue: &Value) -> Result<(), Failure> {
    say(&format!(
        "{} v{}  {} jobs  {}",
        text(&queue["handler"]),
        queue["handler_version"],
        queue["jobs"],
        told(&queue["paused"])
    ))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// How something stands, by the pause over it.
fn told(pause: &Value) -> String {
    if pause.is_null() {
        return "active".to_owned();
    }
    let waiting = pause["waiting"].as_i64().map(|count| format!(", {count} waiting")).unwrap_or_default();
    format!(
        "paused since {}, by {} ({}){waiting}",
        text(&pause["since"]),
        text(&pause["actor"]),
        text(&pause["reason"])
    )
}

fn told_ended(pause: &Value) -> String {
    let queue = match pause["handler"].as_str() {
        Some(handler) => format!("queue {handler} v{}, ", pause["handler_version"]),
        None => String::new(),
    };
    format!(
        "{queue}{} to {}, by {} ({}), ended by {} ({})",
        text(&pause["since"]),
        text(&pause["ended"]["at"]),
        text(&pause["actor"]),
        text(&pause["reason"]),
        text(&pause["ended"]["actor"]),
        text(&pause["ended"]["reason"])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_a_sentence() {
        let pause = json!({ "since": "T", "actor": "Zoë", "reason": "the disk is full", "waiting": 3 });
        assert_eq!(told(&pause), "paused since T, by Zoë (the disk is full), 3 waiting");
        assert_eq!(told(&Value::Null), "active");
        let ended = json!({ "since": "T", "actor": "a", "reason": "r", "handler": "http", "handler_version": 2,
            "ended": { "at": "U", "actor": "b", "reason": "s" } });
        assert_eq!(told_ended(&ended), "queue http v2, T to U, by a (r), ended by b (s)");
    }
}
