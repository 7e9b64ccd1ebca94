//! Two schedulers, two workers and an API, each a process, with leases short enough to be waited for.

use std::time::Duration;

use reqwest::Client;
use serde_json::Value;

use crate::grounds::Grounds;
use crate::operator::Operator;
use crate::process::{self, Process};

/// The lease of leadership, partitions and executions.
pub(crate) const LEASE: Duration = Duration::from_secs(4);
/// How long a drain may take by the settings.
pub(crate) const DRAIN_WITHIN: Duration = Duration::from_secs(10);

/// How long an answer of one of the processes may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Whether schedulers keep silent once their leases are about to lapse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrustWindow {
    /// They do.
    On,
    /// They do not: the tokens alone keep them out.
    Off,
}

/// The processes.
pub(crate) struct Cluster {
    pub(crate) schedulers: Vec<Process>,
    pub(crate) workers: Vec<Process>,
    pub(crate) api: Process,
    pub(crate) operator: Operator,
    environment: Vec<(&'static str, String)>,
    logs: std::path::PathBuf,
    client: Client,
}

impl Cluster {
    /// Migrates, makes a tenant, and starts everything.
    pub(crate) async fn start(grounds: &Grounds, trust: TrustWindow) -> Self {
        // Whoever came first in this process has chosen; it is the same one.
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .no_proxy()
            .timeout(ANSWER_WITHIN)
            .build()
            .expect("nothing but the provider can be missing");
        let environment = grounds.environment();
        process::run(&["migrate"], &environment).await;
        let tenant = process::run(&["tenant", "create", "crontab-owner", "--json"], &environment).await;
        let tenant: Value = serde_json::from_str(&tenant).expect("--json prints one JSON document");
        let key = tenant["key"].as_str().expect("a tenant is made with a key").to_owned();

        let start = |label: &str, role: &str, settings: Vec<(&'static str, String)>| {
            let environment = [environment.clone(), settings].concat();
            Process::start(label, role, &environment, grounds.logs(), client.clone())
        };
        let schedulers =
            ["scheduler-1", "scheduler-2"].map(|label| start(label, "scheduler", scheduler_settings(trust)));
        let workers = ["worker-1", "worker-2"].map(|label| start(label, "worker", worker_settings()));
        let api = start("api-1", "api", Vec::new());
        let operator = Operator::new(client.clone(), api.address(), key);
        let logs = grounds.logs().to_owned();
        let mut cluster = Self {
            schedulers: schedulers.into(),
            workers: workers.into(),
            api,
            operator,
            environment,
            logs,
            client,
        };
        for process in cluster.processes() {
            process.becomes_ready().await;
        }
        cluster
    }

    /// One more worker.
    pub(crate) async fn start_worker(&mut self, label: &str) {
        let environment = [self.environment.clone(), worker_settings()].concat();
        let mut worker = Process::start(label, "worker", &environment, &self.logs, self.client.clone());
        worker.becomes_ready().await;
        self.workers.push(worker);
    }

    /// Takes a worker out, to be killed.
    pub(crate) fn take_worker(&mut self, label: &str) -> Process {
        let place = self.workers.iter().position(|worker| worker.label() == label);
        self.workers.swap_remove(place.expect("only workers of this run report to its database"))
    }

    /// The scheduler of that name.
    pub(crate) fn scheduler(&self, label: &str) -> &Process {
        let found = self.schedulers.iter().find(|scheduler| scheduler.label() == label);
        found.expect("only schedulers of this run hold leases in its database")
    }

    /// All of them.
    pub(crate) fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        self.schedulers.iter_mut().chain(&mut self.workers).chain([&mut self.api])
    }
}

fn scheduler_settings(trust: TrustWindow) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("FENCEPOST_SCHEDULER__LEASE_TTL_MS", millis(LEASE)),
        ("FENCEPOST_SCHEDULER__LIVE_WITHIN_MS", millis(LEASE)),
        ("FENCEPOST_SCHEDULER__HEARTBEAT_EVERY_MS", "500".to_owned()),
        ("FENCEPOST_SCHEDULER__CYCLE_EVERY_MS", "500".to_owned()),
        ("FENCEPOST_SCHEDULER__POLL_EVERY_MS", "500".to_owned()),
        ("FENCEPOST_SCHEDULER__SWEEP_EVERY_MS", "500".to_owned()),
        ("FENCEPOST_SCHEDULER__DRAIN_WITHIN_MS", millis(DRAIN_WITHIN)),
    ];
    match trust {
        TrustWindow::On => {}
        TrustWindow::Off => settings.push(("FENCEPOST_TESTING__TRUST_WINDOW", "off".to_owned())),
    }
    settings
}

fn worker_settings() -> Vec<(&'static str, String)> {
    vec![
        ("FENCEPOST_WORKER__LEASE_TTL_MS", millis(LEASE)),
        ("FENCEPOST_WORKER__RENEW_EVERY_MS", "1000".to_owned()),
        ("FENCEPOST_WORKER__HEARTBEAT_EVERY_MS", "1000".to_owned()),
        ("FENCEPOST_WORKER__DRAIN_WITHIN_MS", millis(DRAIN_WITHIN)),
    ]
}

fn millis(span: Duration) -> String {
    span.as_millis().to_string()
}
