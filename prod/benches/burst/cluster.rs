//! One scheduler, one worker and one API, each a process of the program as it is released.
//!
//! The API comes first and may be gone before the others start: what creating jobs costs, notifications included, is
//! then not counted with what running them costs.
//!
//! What must stay true: a process inherits no setting from the environment of the benchmark, only processes
//! started here are ended, and none outlives this value.

use std::ffi::OsStr;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::Value;

use crate::ground::Ground;
use crate::operator::Operator;

/// How long a process may take until it is ready.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Ticks of the kernel's clock per second, as `/proc` counts processor time: fixed on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process of ours.
pub(crate) struct Process {
    label: &'static str,
    child: Child,
    pid: u32,
    address: SocketAddr,
    client: Client,
}

/// The API, with an operator before it.
pub(crate) struct Front {
    pub(crate) operator: Operator,
    api: Process,
    environment: Vec<(&'static str, String)>,
}

/// What does the work.
pub(crate) struct Roles {
    pub(crate) scheduler: Process,
    pub(crate) worker: Process,
}

fn command(program: &Path, arguments: &[&str], environment: &[(&'static str, String)]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().stdin(Stdio::null());
    command.envs(environment.iter().map(|(name, value)| (OsStr::new(name), OsStr::new(value))));
    command
}

fn run(program: &Path, arguments: &[&str], environment: &[(&'static str, String)]) -> String {
    let output = command(program, arguments, environment).output().expect("the program can be run");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "fencepost {arguments:?}: {}\n{said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Front {
    /// Migrates, makes a tenant, and starts the API.
    pub(crate) async fn open(program: &Path, ground: &Ground) -> Self {
        // Whoever came first has chosen; it is the same one.
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().build().expect("nothing but the provider can be missing");
        let environment = ground.environment();
        run(program, &["migrate"], &environment);
        let tenant = run(program, &["tenant", "create", "bench", "--json"], &environment);
        let tenant: Value = serde_json::from_str(&tenant).expect("--json prints one JSON document");
        let key = tenant["key"].as_str().expect("a tenant is made with a key").to_owned();
        let mut api = Process::start(program, "api", &environment, ground, client.clone());
        api.becomes_ready().await;
        let operator = Operator::new(client, api.address, key);
        Self { operator, api, environment }
    }

    /// Starts a scheduler and a worker beside it; returns once the one owns everything and the other consumes.
    pub(crate) async fn start_roles(&self, program: &Path, ground: &Ground) -> Roles {
        let start = |role| Process::start(program, role, &self.environment, ground, self.api.client.clone());
        let (mut scheduler, mut worker) = (start("scheduler"), start("worker"));
        for process in [&mut scheduler, &mut worker] {
            process.becomes_ready().await;
        }
        scheduler.owns_all_partitions().await;
        Roles { scheduler, worker }
    }

    /// Ends the API at once.
    pub(crate) fn close(mut self) {
        self.api.kill();
    }
}

impl Process {
    fn start(
        program: &Path,
        label: &'static str,
        environment: &[(&'static str, String)],
        ground: &Ground,
        client: Client,
    ) -> Self {
        let address = free_address();
        let mut environment = environment.to_vec();
        environment.push(("HOSTNAME", label.to_owned()));
        environment.push(("FENCEPOST_HTTP__LISTEN", address.to_string()));
        let log = File::create(ground.logs().join(format!("{label}.log")))
            .expect("the directory for logs is there");
        let also = log.try_clone().expect("it is open");
        let child = command(program, &["serve", "--role", label], &environment)
            .stdout(log)
            .stderr(also)
            .spawn()
            .expect("the program can be run");
        let pid = child.id();
        Self { label, child, pid, address, client }
    }

    async fn becomes_ready(&mut self) {
        let began = Instant::now();
        while self.get("/readyz").await.is_none_or(|(status, _)| status != 200) {
            let ended = self.child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "the {} ended instead of becoming ready: {ended:?}", self.label);
            assert!(began.elapsed() < READY_WITHIN, "the {} does not become ready", self.label);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn owns_all_partitions(&self) {
        let began = Instant::now();
        while self.metric("fencepost_partitions_owned").await != Some(128.0) {
            assert!(began.elapsed() < READY_WITHIN, "the {} does not own all partitions", self.label);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn get(&self, path: &str) -> Option<(u16, String)> {
        let answer = self.client.get(format!("http://{}{path}", self.address)).send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.text().await.ok()?))
    }

    /// A metric without labels, or one with its labels as they are printed.
    pub(crate) async fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics").await?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.parse().ok()
    }

    /// Resident memory, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("it runs on Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
        line.trim().trim_end_matches(" kB").parse().expect("it is a number")
    }

    /// Seconds of processor time so far.
    pub(crate) fn processor_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).expect("it runs on Linux");
        let (_, after_name) = stat.rsplit_once(')').expect("the name is in parentheses");
        let ticks = after_name.split_whitespace().skip(11).take(2);
        ticks.map(|ticks| ticks.parse::<f64>().expect("it is a number")).sum::<f64>() / TICKS_PER_SECOND
    }

    /// Ends it at once. Its connections close, and PostgreSQL knows all that they counted.
    pub(crate) fn kill(&mut self) {
        // Either may find it gone already.
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An address that nobody listens on.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there is a free port");
    listener.local_addr().expect("it is bound")
}
