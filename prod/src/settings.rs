//! Settings: defaults, then a TOML file, then the environment, then flags; what is unknown is an error.
//!
//! `FENCEPOST_WORKER__SLOTS=64` in the environment is `slots = 64` under `[worker]` in the file.
//! `DATABASE_URL` and `AMQP_URL` are understood too, and yield to the former. Every duration is an
//! integer in milliseconds, in a key that ends in `_ms`. What is read here is checked here, so
//! that the rest of the shell never meets a setting that it cannot use.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use fencepost_core::config::{SchedulerConfig, WorkerConfig};
use fencepost_core::id::NodeId;
use fencepost_core::lease::TrustWindow;
use fencepost_core::limits::{BATCH_MAX, LEASE_TTL_MAX, LEASE_TTL_MIN};
use fencepost_core::time::Span;
use serde::Deserialize;
use thiserror::Error;
use toml::{Table, Value};

/// What a process runs with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Which roles this process plays.
    pub roles: BTreeSet<RoleName>,
    /// The store.
    pub database: DatabaseSettings,
    /// The broker.
    pub broker: BrokerSettings,
    /// The process's own HTTP endpoints.
    pub http: HttpSettings,
    /// The API that operators' commands talk to.
    pub client: ClientSettings,
    /// What the process logs.
    pub log: LogSettings,
    /// The scheduler's role.
    pub scheduler: SchedulerSettings,
    /// The worker's role.
    pub worker: WorkerSettings,
    /// Settings that weaken something, for tests.
    pub testing: TestingSettings,
}

/// A role that a process may play.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleName {
    /// Decides what is due.
    Scheduler,
    /// Runs handlers.
    Worker,
    /// Takes requests.
    Api,
}

/// `[database]`
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DatabaseSettings {
    /// `postgres://user:password@host:port/name`.
    pub url: String,
}

/// `[broker]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BrokerSettings {
    /// `amqp://user:password@host:port/vhost`.
    pub url: String,
    /// What the names of the exchange and the queues begin with.
    pub prefix: String,
    /// How queues are kept.
    pub queue: QueueSetting,
}

/// How queues are kept: `classic` on one node, or `quorum` on several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueSetting {
    /// On one node of the broker.
    Classic,
    /// Replicated over several.
    Quorum,
}

/// `[http]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSettings {
    /// Where `/healthz`, `/readyz`, `/metrics` and, with the `api` role, `/v1` are served.
    pub listen: SocketAddr,
}

/// `[client]`
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientSettings {
    /// `http://host:port`; where nothing is set, what `[http]` listens on.
    pub url: String,
    /// A tenant's key.
    pub key: String,
}

/// `[log]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// For machines or for people.
    pub format: LogFormat,
    /// Which events, as `tracing` filters are written: `info`, `fencepost=debug,warn`.
    pub filter: String,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Pretty,
}

/// `[scheduler]`: what is left out has the core's default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulerSettings {
    lease_ttl_ms: Option<u64>,
    trust_margin_ms: Option<u64>,
    heartbeat_every_ms: Option<u64>,
    live_within_ms: Option<u64>,
    cycle_every_ms: Option<u64>,
    poll_every_ms: Option<u64>,
    outbox_grace_ms: Option<u64>,
    sweep_every_ms: Option<u64>,
    redispatch_after_ms: Option<u64>,
    drain_within_ms: Option<u64>,
    batch: Option<u32>,
}

/// `[worker]`: what is left out has the core's default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerSettings {
    slots: Option<u32>,
    lease_ttl_ms: Option<u64>,
    trust_margin_ms: Option<u64>,
    renew_every_ms: Option<u64>,
    heartbeat_every_ms: Option<u64>,
    drain_within_ms: Option<u64>,
    ack_early_above_ms: Option<u64>,
    batch: Option<u32>,
}

/// `[testing]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TestingSettings {
    /// `off` lets a node act under leases that it should no longer trust, so that a test can watch the
    /// fencing token refuse it.
    pub trust_window: TrustWindowSetting,
}

/// Whether nodes keep silent once their leases are about to lapse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrustWindowSetting {
    /// They do.
    #[default]
    On,
    /// They do not.
    Off,
}

/// Why settings are refused.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("the settings file {path} cannot be read: {source}")]
    File {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file or a variable is not what it should be.
    #[error("{origin}: {detail}")]
    Refused {
        /// Where it was set.
        origin: String,
        /// What is wrong with it.
        detail: String,
    },
    /// Something that is needed was not given.
    #[error("{what} is not set: give {how}")]
    Missing {
        /// What.
        what: &'static str,
        /// How to give it.
        how: &'static str,
    },
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            roles: BTreeSet::from([RoleName::Scheduler, RoleName::Worker, RoleName::Api]),
            database: DatabaseSettings::default(),
            broker: BrokerSettings::default(),
            http: HttpSettings::default(),
            client: ClientSettings::default(),
            log: LogSettings::default(),
            scheduler: SchedulerSettings::default(),
            worker: WorkerSettings::default(),
            testing: TestingSettings::default(),
        }
    }
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self { url: String::new(), prefix: "fencepost".to_owned(), queue: QueueSetting::Classic }
    }
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 8080)) }
    }
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { format: LogFormat::Json, filter: "info".to_owned() }
    }
}

/// URLs hold passwords; only their presence is shown.
impl core::fmt::Debug for DatabaseSettings {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DatabaseSettings").field("url_given", &!self.url.is_empty()).finish()
    }
}

/// A key is shown to nobody.
impl core::fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ClientSettings")
            .field("url", &self.url)
            .field("key_given", &!self.key.is_empty())
            .finish()
    }
}

/// URLs hold passwords; only their presence is shown.
impl core::fmt::Debug for BrokerSettings {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("BrokerSettings")
            .field("url_given", &!self.url.is_empty())
            .field("prefix", &self.prefix)
            .field("queue", &self.queue)
            .finish()
    }
}

impl Settings {
    /// Reads the file, if one is given, and the environment over it.
    ///
    /// # Errors
    /// [`SettingsError`], naming the file or variable and the key.
    pub fn read(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let mut table = match file {
            Some(path) => {
                let origin = path.display().to_string();
                let text = std::fs::read_to_string(path)
                    .map_err(|source| SettingsError::File { path: origin.clone(), source })?;
                parse_file(&origin, &text)?
            }
            None => Table::new(),
        };
        overlay(&mut table, environment)?;
        let settings: Self =
            Value::Table(table).try_into().map_err(|error| refused("settings", one_line(&error)))?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), SettingsError> {
        for (key, millis) in [
            ("scheduler.lease_ttl_ms", self.scheduler.lease_ttl_ms),
            ("worker.lease_ttl_ms", self.worker.lease_ttl_ms),
        ] {
            let Some(millis) = millis else { continue };
            let allowed = LEASE_TTL_MIN..=LEASE_TTL_MAX;
            if !allowed.contains(&Span::from_millis(millis)) {
                let (least, most) = (LEASE_TTL_MIN.as_millis(), LEASE_TTL_MAX.as_millis());
                return Err(refused(key, format!("{millis} is not between {least} and {most}")));
            }
        }
        for (key, batch) in [("scheduler.batch", self.scheduler.batch), ("worker.batch", self.worker.batch)] {
            let Some(batch) = batch else { continue };
            if batch == 0 || batch as usize > BATCH_MAX {
                return Err(refused(key, format!("{batch} is not between 1 and {BATCH_MAX}")));
            }
        }
        for (key, zero) in [
            ("worker.slots", self.worker.slots == Some(0)),
            ("scheduler.cycle_every_ms", self.scheduler.cycle_every_ms == Some(0)),
            ("scheduler.poll_every_ms", self.scheduler.poll_every_ms == Some(0)),
            ("scheduler.heartbeat_every_ms", self.scheduler.heartbeat_every_ms == Some(0)),
            ("scheduler.sweep_every_ms", self.scheduler.sweep_every_ms == Some(0)),
            ("scheduler.redispatch_after_ms", self.scheduler.redispatch_after_ms == Some(0)),
            ("worker.renew_every_ms", self.worker.renew_every_ms == Some(0)),
            ("worker.heartbeat_every_ms", self.worker.heartbeat_every_ms == Some(0)),
        ] {
            if zero {
                return Err(refused(key, "must be at least 1"));
            }
        }
        if self.roles.is_empty() {
            return Err(refused("roles", "name at least one of scheduler, worker, api"));
        }
        self.check_renewals()
    }

    /// A lease that is not renewed well before it stops being trusted is lost while all is well.
    fn check_renewals(&self) -> Result<(), SettingsError> {
        let node = NodeId::from_u128(0);
        let scheduler = self.scheduler(SchedulerConfig::new(node, "".into()));
        let worker = self.worker(WorkerConfig::new(node, "".into(), Default::default()));
        let cycles = [
            ("scheduler.cycle_every_ms", scheduler.cycle_every, scheduler.lease_ttl, scheduler.trust),
            ("worker.renew_every_ms", worker.renew_every, worker.lease_ttl, worker.trust),
        ];
        for (key, every, ttl, trust) in cycles {
            let TrustWindow::Margin(margin) = trust else { continue };
            if every.plus(margin) >= ttl {
                let detail =
                    format!("{every} and a trust margin of {margin} leave no time in a lease of {ttl}");
                return Err(refused(key, detail));
            }
        }
        if scheduler.live_within <= scheduler.heartbeat_every {
            let (within, every) = (scheduler.live_within, scheduler.heartbeat_every);
            let detail = format!("reports every {every} are all older than {within} before the next comes");
            return Err(refused("scheduler.live_within_ms", detail));
        }
        Ok(())
    }

    /// The store's URL.
    ///
    /// # Errors
    /// [`SettingsError::Missing`], saying how to give it.
    pub fn database_url(&self) -> Result<&str, SettingsError> {
        let how = "--database-url, DATABASE_URL, or `url` under `[database]`";
        given(&self.database.url, "the database's URL", how)
    }

    /// The broker's URL.
    ///
    /// # Errors
    /// [`SettingsError::Missing`], saying how to give it.
    pub fn broker_url(&self) -> Result<&str, SettingsError> {
        given(&self.broker.url, "the broker's URL", "AMQP_URL, or `url` under `[broker]`")
    }

    /// The URL of the API that operators' commands talk to.
    #[must_use]
    pub fn client_url(&self) -> String {
        if self.client.url.is_empty() {
            format!("http://{}", self.http.listen)
        } else {
            self.client.url.clone()
        }
    }

    /// The key that they present.
    ///
    /// # Errors
    /// [`SettingsError::Missing`], saying how to give it.
    pub fn client_key(&self) -> Result<&str, SettingsError> {
        given(&self.client.key, "the tenant's key", "--key, FENCEPOST_CLIENT__KEY, or `key` under `[client]`")
    }

    /// The scheduler's configuration: `config` with what is set here.
    #[must_use]
    pub fn scheduler(&self, mut config: SchedulerConfig) -> SchedulerConfig {
        let set = &self.scheduler;
        override_span(&mut config.lease_ttl, set.lease_ttl_ms);
        override_span(&mut config.heartbeat_every, set.heartbeat_every_ms);
        override_span(&mut config.live_within, set.live_within_ms);
        override_span(&mut config.cycle_every, set.cycle_every_ms);
        override_span(&mut config.poll_every, set.poll_every_ms);
        override_span(&mut config.outbox_grace, set.outbox_grace_ms);
        override_span(&mut config.sweep_every, set.sweep_every_ms);
        override_span(&mut config.redispatch_after, set.redispatch_after_ms);
        override_span(&mut config.drain_within, set.drain_within_ms);
        config.batch = set.batch.unwrap_or(config.batch);
        config.trust = self.trust(set.trust_margin_ms, set.lease_ttl_ms, config.trust);
        config
    }

    /// The worker's configuration: `config` with what is set here.
    #[must_use]
    pub fn worker(&self, mut config: WorkerConfig) -> WorkerConfig {
        let set = &self.worker;
        config.slots = set.slots.unwrap_or(config.slots);
        override_span(&mut config.lease_ttl, set.lease_ttl_ms);
        override_span(&mut config.renew_every, set.renew_every_ms);
        override_span(&mut config.heartbeat_every, set.heartbeat_every_ms);
        override_span(&mut config.drain_within, set.drain_within_ms);
        override_span(&mut config.ack_early_above, set.ack_early_above_ms);
        config.batch = set.batch.unwrap_or(config.batch);
        config.trust = self.trust(set.trust_margin_ms, set.lease_ttl_ms, config.trust);
        config
    }

    /// The margin that is set; else a fifth of a lease that is set; else the default.
    fn trust(&self, margin_ms: Option<u64>, ttl_ms: Option<u64>, default: TrustWindow) -> TrustWindow {
        match (self.testing.trust_window, margin_ms, ttl_ms) {
            (TrustWindowSetting::Off, _, _) => TrustWindow::Off,
            (TrustWindowSetting::On, Some(margin), _) => TrustWindow::Margin(Span::from_millis(margin)),
            (TrustWindowSetting::On, None, Some(ttl)) => {
                TrustWindow::Margin(Span::from_millis(ttl).divided_by(5))
            }
            (TrustWindowSetting::On, None, None) => default,
        }
    }
}

fn override_span(span: &mut Span, millis: Option<u64>) {
    if let Some(millis) = millis {
        *span = Span::from_millis(millis);
    }
}

fn given<'a>(url: &'a str, what: &'static str, how: &'static str) -> Result<&'a str, SettingsError> {
    if url.is_empty() { Err(SettingsError::Missing { what, how }) } else { Ok(url) }
}

fn refused(origin: &str, detail: impl Into<String>) -> SettingsError {
    SettingsError::Refused { origin: origin.to_owned(), detail: detail.into() }
}

fn parse_file(origin: &str, text: &str) -> Result<Table, SettingsError> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| refused(origin, one_line(&error)))?;
    // Read once by itself, so that a mistake in the file is told as the file's.
    let settings: Result<Settings, toml::de::Error> = Value::Table(table.clone()).try_into();
    settings.map_err(|error| refused(origin, one_line(&error)))?;
    Ok(table)
}

fn one_line(error: &toml::de::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Lays `FENCEPOST_…` variables over the table, `__` nesting, and the two well-known URLs under them.
fn overlay(
    table: &mut Table,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<(), SettingsError> {
    let mut variables: Vec<(String, String)> = environment.into_iter().collect();
    variables.sort();
    // Ours come last and win.
    for key_of in [well_known_key, own_key] {
        for (name, text) in &variables {
            let Some(key) = key_of(name).filter(|_| !text.is_empty()) else { continue };
            let path: Vec<&str> = key.split("__").collect();
            set(table, &path, read_value(&path, text))
                .map_err(|detail| refused(&format!("the variable {name}"), detail))?;
        }
    }
    // Read once more by itself, so that a mistake in a variable is told as one.
    let settings: Result<Settings, toml::de::Error> = Value::Table(table.clone()).try_into();
    settings.map(drop).map_err(|error| refused("the environment (FENCEPOST_…)", one_line(&error)))
}

fn well_known_key(name: &str) -> Option<String> {
    match name {
        "DATABASE_URL" => Some("database__url".to_owned()),
        "AMQP_URL" => Some("broker__url".to_owned()),
        _ => None,
    }
}

fn own_key(name: &str) -> Option<String> {
    name.strip_prefix("FENCEPOST_").map(str::to_ascii_lowercase)
}

/// `roles` is a list; everything else is a number if it looks like one, and text otherwise.
fn read_value(path: &[&str], text: &str) -> Value {
    if path == ["roles"] {
        return Value::Array(text.split(',').map(|role| Value::String(role.trim().to_owned())).collect());
    }
    text.parse::<i64>().map_or_else(|_| Value::String(text.to_owned()), Value::Integer)
}

fn set(table: &mut Table, path: &[&str], value: Value) -> Result<(), String> {
    match path {
        [] | [""] => Err("names no setting".to_owned()),
        [key] => {
            table.insert((*key).to_owned(), value);
            Ok(())
        }
        [section, rest @ ..] => {
            let entry = table.entry((*section).to_owned()).or_insert_with(|| Value::Table(Table::new()));
            match entry {
                Value::Table(inner) => set(inner, rest, value),
                Value::String(_)
                | Value::Integer(_)
                | Value::Float(_)
                | Value::Boolean(_)
                | Value::Datetime(_)
                | Value::Array(_) => Err(format!("`{section}` is a value, not a section")),
            }
        }
    }
}

#[cfg(test)]
mod tests;
