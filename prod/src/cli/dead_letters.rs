//! `fencepost dead-letters`: list, show, replay and purge, through the API.
//!
//! Replays and purges first say what they would do, and do it with `--yes`. A replay of all that was interrupted is
//! given again: what has a replay already is not replayed again.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::api_client::{ApiArguments, ApiClient, Ask};
use super::{one_line, say};
use crate::failure::Failure;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(super) enum DeadLetters {
    /// List dead letters, the newest first.
    List(List),
    /// Show one with its whole history, and what a replay would do.
    Show(Show),
    /// Replay one, or all that match. Says what it would do; does it with --yes.
    Replay(Replay),
    /// Purge dead letters. Says what it would do; does it with --yes.
    Purge(Purge),
}

/// Which dead letters.
#[derive(Clone, Debug, Args)]
struct Filter {
    /// Of this job.
    #[arg(long)]
    job: Option<Uuid>,
    /// That died for this reason: non_retryable, exhausted, too_old, rescues_spent or deadline.
    #[arg(long)]
    reason: Option<String>,
    /// That died at this instant (RFC 3339) or later.
    #[arg(long)]
    from: Option<String>,
    /// That died before this instant (RFC 3339).
    #[arg(long)]
    to: Option<String>,
}

impl Filter {
    fn fields(&self) -> Vec<(&'static str, String)> {
        let fields = [
            ("job_id", self.job.map(|job| job.to_string())),
            ("reason", self.reason.clone()),
            ("from", self.from.clone()),
            ("to", self.to.clone()),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// The arguments of `dead-letters list`.
#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    filter: Filter,
    /// How many at most.
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// Where an earlier page ended.
    #[arg(long)]
    cursor: Option<String>,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
}

/// The arguments of `dead-letters show`.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// The execution that was dead-lettered.
    execution: Uuid,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
}

/// The arguments of `dead-letters replay`.
#[derive(Debug, Args)]
pub(super) struct Replay {
    /// The execution that was dead-lettered.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    execution: Option<Uuid>,
    /// All that match and have no replay yet.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: Filter,
    /// Which replay of it; the first, where nothing is said.
    #[arg(long, conflicts_with_all = ["all", "again"])]
    number: Option<u32>,
    /// The next replay of it.
    #[arg(long, conflicts_with = "all")]
    again: bool,
    /// With an idempotency key of its own, so that targets take it for something new.
    #[arg(long)]
    new_key: bool,
    /// Dead letters with each request.
    #[arg(long, default_value_t = 100)]
    page: u32,
    /// Do it, and not only say what would be done.
    #[arg(long)]
    yes: bool,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
}

/// The arguments of `dead-letters purge`.
#[derive(Debug, Args)]
pub(super) struct Purge {
    /// The executions that were dead-lettered.
    #[arg(required = true)]
    executions: Vec<Uuid>,
    /// Do it, and not only say what would be done.
    #[arg(long)]
    yes: bool,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
}

impl DeadLetters {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::List(list) => list.run().await,
            Self::Show(show) => show.run().await,
            Self::Replay(replay) if replay.all => replay.run_all().await,
            Self::Replay(replay) => replay.run_one().await,
            Self::Purge(purge) => purge.run().await,
        }
    }
}

/// A field as text, for a line.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text),
        Value::Null => "-".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

impl List {
    async fn run(&self) -> Result<(), Failure> {
        let mut query = self.filter.fields();
        query.push(("limit", self.limit.to_string()));
        query.extend(self.cursor.clone().map(|cursor| ("cursor", cursor)));
        let ask = Ask { query, ..Ask::default() };
        let page = self.api.client()?.call(Method::GET, "/v1/dead-letters", ask).await?;
        if self.json {
            return say(&page.to_string());
        }
        for line in page["items"].as_array().into_iter().flatten() {
            let replays = match line["replays"].as_u64() {
                Some(0) | None => String::new(),
                Some(count) => format!("  replayed {count}x"),
            };
            say(&format!(
                "{}  {}  {:<13}  job {}  {}{replays}",
                text(&line["execution_id"]),
                text(&line["at"]),
                text(&line["reason"]),
                text(&line["job_id"]),
                text(&line["error"])
            ))?;
        }
        match page["next_cursor"].as_str() {
            Some(cursor) => say(&format!("more: --cursor {cursor}")),
            None => Ok(()),
        }
    }
}

impl Show {
    async fn run(&self) -> Result<(), Failure> {
        let path = format!("/v1/dead-letters/{}", self.execution);
        let letter = self.api.client()?.call(Method::GET, &path, Ask::default()).await?;
        if self.json {
            return say(&letter.to_string());
        }
        for name in
            ["execution_id", "job_id", "job_version", "occurrence", "idempotency_key", "due_at", "reason"]
        {
            say(&format!("{name:<16} {}", text(&letter[name])))?;
        }
        for name in ["rule", "error", "failed_attempts", "rescues", "lost_starts", "at", "purged_at"] {
            say(&format!("{name:<16} {}", text(&letter[name])))?;
        }
        for attempt in letter["attempts"].as_array().into_iter().flatten() {
            let (number, token) = (text(&attempt["attempt"]), text(&attempt["fencing_token"]));
            let (ended, at) = (text(&attempt["ended"]), text(&attempt["at"]));
            say(&format!("attempt {number} (token {token}) {ended} at {at}: {}", text(&attempt["error"])))?;
        }
        for refusal in letter["refusals"].as_array().into_iter().flatten() {
            let (action, presented) = (text(&refusal["action"]), text(&refusal["fencing_token"]));
            let (current, at) = (text(&refusal["current_token"]), text(&refusal["last_at"]));
            say(&format!("refused {action} under token {presented}, when {current} was current, at {at}"))?;
        }
        for replay in letter["replays"].as_array().into_iter().flatten() {
            let (number, execution) = (text(&replay["number"]), text(&replay["execution_id"]));
            say(&format!("replay {number} is {execution}, {}", text(&replay["state"])))?;
        }
        say(&forecast(&letter["replay"]))
    }
}

/// What a replay would do, in a sentence.
fn forecast(replay: &Value) -> String {
    if replay["replayable"] != true {
        return format!("it cannot be replayed: {}", text(&replay["why_not"]));
    }
    let mut told = format!(
        "a replay would be number {}, execution {}, with the idempotency key {}",
        text(&replay["number"]),
        text(&replay["execution_id"]),
        text(&replay["idempotency_key"])
    );
    if let Some(reason) = replay["waits_for"].as_str() {
        told.push_str(&format!("; executions of the job wait just now: {reason}"));
    }
    told
}

impl Replay {
    fn key(&self) -> &'static str {
        if self.new_key { "new" } else { "same" }
    }

    async fn run_one(&self) -> Result<(), Failure> {
        let execution = self.execution.map(|id| id.to_string()).unwrap_or_default();
        let path = format!("/v1/dead-letters/{execution}/replay");
        let client = self.api.client()?;
        if !self.yes {
            let body = Some(json!({"dry_run": true}));
            let told = client.call(Method::POST, &path, Ask { body, ..Ask::default() }).await?;
            if self.json {
                return say(&told.to_string());
            }
            say(&forecast(&told))?;
            return say("nothing was replayed; --yes does it");
        }
        // One request id for this run: whatever is sent again within it is the same replay.
        let request = self.again.then(|| Uuid::new_v4().to_string());
        let mut body = json!({"key": self.key()});
        if let Some(number) = self.number {
            body["number"] = number.into();
        }
        let ask = Ask { body: Some(body), request: request.as_deref(), ..Ask::default() };
        let made = client.call(Method::POST, &path, ask).await?;
        if self.json {
            return say(&made.to_string());
        }
        say(&format!("replayed as {}, {}", text(&made["id"]), text(&made["state"])))
    }

    fn body(&self) -> Value {
        let fields =
            self.filter.fields().into_iter().map(|(name, value)| (name.to_owned(), Value::String(value)));
        Value::Object(fields.collect())
    }

    async fn run_all(&self) -> Result<(), Failure> {
        let client = self.api.client()?;
        let mut body = self.body();
        body["dry_run"] = true.into();
        let ask = Ask { body: Some(body), ..Ask::default() };
        let counted = client.call(Method::POST, "/v1/dead-letters/replay", ask).await?;
        if !self.json {
            let letters = if counted["count"] == 1 { "dead letter" } else { "dead letters" };
            say(&format!("{} {letters} would be replayed", text(&counted["count"])))?;
            for (name, what) in [
                ("job_deleted", "match, but their jobs are deleted"),
                ("unreadable_definition", "match, but this version cannot read their definitions"),
                ("replayed_before", "match, and have been replayed before"),
            ] {
                if counted[name] != 0 {
                    say(&format!("{} {what}", text(&counted[name])))?;
                }
            }
        }
        if !self.yes {
            return say(&if self.json {
                counted.to_string()
            } else {
                "nothing was replayed; --yes does it".into()
            });
        }
        let (replayed, passed_over) = self.all_pages(&client, &counted).await?;
        if self.json {
            return say(
                &json!({"counted": counted, "replayed": replayed, "passed_over": passed_over}).to_string()
            );
        }
        say(&format!("{replayed} dead letters were replayed, {} passed over", passed_over.len()))
    }

    /// Page by page, up to what was counted.
    async fn all_pages(&self, client: &ApiClient, counted: &Value) -> Result<(u64, Vec<Value>), Failure> {
        let (mut replayed, mut passed_over, mut cursor) = (0, Vec::new(), None::<String>);
        loop {
            let mut body = self.body();
            body["to"] = counted["to"].clone();
            body["key"] = self.key().into();
            body["limit"] = self.page.into();
            if let Some(cursor) = &cursor {
                body["cursor"] = cursor.as_str().into();
            }
            let ask = Ask { body: Some(body), ..Ask::default() };
            let page =
                client.call(Method::POST, "/v1/dead-letters/replay", ask).await.map_err(|failure| {
                    failure.context(&format!("interrupted after {replayed} replays; given again, it goes on"))
                })?;
            replayed += page["replayed"].as_u64().unwrap_or_default();
            passed_over.extend(page["passed_over"].as_array().into_iter().flatten().cloned());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok((replayed, passed_over)),
            }
        }
    }
}

impl Purge {
    async fn run(&self) -> Result<(), Failure> {
        let client = self.api.client()?;
        let method = if self.yes { Method::DELETE } else { Method::GET };
        let mut done = Vec::new();
        for execution in &self.executions {
            let path = format!("/v1/dead-letters/{execution}");
            let answer = client.call(method.clone(), &path, Ask::default()).await?;
            if !self.json {
                let what = if self.yes { text(&answer["outcome"]) } else { "would be purged".to_owned() };
                say(&format!("{execution} {what}"))?;
            }
            done.push(answer);
        }
        match (self.json, self.yes) {
            (true, _) => say(&Value::Array(done).to_string()),
            (false, true) => Ok(()),
            (false, false) => say("nothing was purged; --yes does it"),
        }
    }
}
