//! One process of the program `fencepost`: started, watched, signalled, and gone when this value is.
//!
//! Relies on the program lying beside the test, and on `sh` for the signals that the standard library does not
//! send. What must stay true: a process inherits no setting from the environment of the test, only processes
//! started here are signalled, and what it logged is shown if the test fails.

use std::ffi::OsStr;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use fencepost_tests::waiting;
use reqwest::Client;
use tokio::process::{Child, Command};

/// How long a process may take until it is ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How much of a log is shown after a failure.
const TAIL_LINES: usize = 40;

/// Signals that are sent here. SIGKILL is [`Process::kill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM: drain.
    Terminate,
    /// SIGSTOP: freeze.
    Freeze,
    /// SIGCONT: thaw.
    Thaw,
}

/// A running (or frozen, or dead) process.
pub(crate) struct Process {
    label: String,
    child: Child,
    pid: u32,
    address: SocketAddr,
    client: Client,
    log: PathBuf,
}

/// Where the program lies that is tested.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a program");
    let folder = test.parent().and_then(Path::parent).expect("test programs lie in `deps`");
    let program = folder.join("fencepost");
    assert!(
        program.is_file(),
        "the program under test is not built: there is no {}. `cargo build --workspace --bins` builds it, and \
         `./test` does so first",
        program.display()
    );
    program
}

/// The program with these arguments, and no setting but these.
pub(crate) fn command<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
    environment: &[(&'static str, String)],
) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    command.envs(environment.iter().map(|(name, value)| (OsStr::new(name), OsStr::new(value))));
    command
}

/// Runs a command that ends by itself, and returns what it printed.
pub(crate) async fn run(arguments: &[&str], environment: &[(&'static str, String)]) -> String {
    let Output { status, stdout, stderr } =
        command(arguments.iter().copied(), environment).output().await.expect("the program can be run");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "fencepost {arguments:?}: {status}\n{stdout}{stderr}");
    stdout.into_owned()
}

/// An address that nobody listens on, below the range from which outgoing connections take theirs.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 15_000 + u16::try_from(std::process::id() % 10_000).expect("less than 10,000");
    loop {
        let port = base + NEXT.fetch_add(1, Ordering::Relaxed);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

impl Process {
    /// Starts `fencepost serve` in one role. The label is its host's name, which its nodes report.
    pub(crate) fn start(
        label: &str,
        role: &str,
        environment: &[(&'static str, String)],
        logs: &Path,
        client: Client,
    ) -> Self {
        let address = free_address();
        let mut environment = environment.to_vec();
        environment.push(("HOSTNAME", label.to_owned()));
        environment.push(("FENCEPOST_HTTP__LISTEN", address.to_string()));
        let log = logs.join(format!("{label}.log"));
        let file = File::create(&log).expect("the directory for logs is there");
        let also = file.try_clone().expect("it is open");
        let child = command(["serve", "--role", role], &environment)
            .stdout(file)
            .stderr(also)
            .spawn()
            .expect("the program can be run");
        let pid = child.id().expect("nobody has waited for it");
        Self { label: label.to_owned(), child, pid, address, client, log }
    }

    /// Its name.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Where it answers.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it says that it is of use.
    pub(crate) async fn becomes_ready(&mut self) {
        let what = format!("{} is ready", self.label);
        waiting::until(&what, READY_WITHIN, async || {
            let ended = self.child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "{} ended instead of becoming ready: {ended:?}", self.label);
            self.get("/readyz").await.filter(|(status, _)| *status == 200)
        })
        .await;
    }

    /// Asks it something: the status and the body, where it answers at all.
    pub(crate) async fn get(&self, path: &str) -> Option<(u16, String)> {
        let answer = self.client.get(format!("http://{}{path}", self.address)).send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.text().await.ok()?))
    }

    /// Signals it.
    pub(crate) fn signal(&self, signal: Signal) {
        let name = match signal {
            Signal::Terminate => "TERM",
            Signal::Freeze => "STOP",
            Signal::Thaw => "CONT",
        };
        let script = format!("kill -{name} {}", self.pid);
        let status =
            std::process::Command::new("sh").args(["-c", &script]).status().expect("there is a shell");
        assert!(status.success(), "{} is gone already: `{script}` failed", self.label);
    }

    /// Ends it as a crash would.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("it is running");
    }

    /// Waits until it has ended by itself, with exit code 0.
    pub(crate) async fn ends_well(&mut self, limit: Duration) {
        let ended = tokio::time::timeout(limit, self.child.wait()).await;
        let status = ended
            .unwrap_or_else(|_| panic!("{} is still there {limit:?} after SIGTERM", self.label))
            .expect("it is our child");
        assert!(status.success(), "{} ended with {status}", self.label);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let log =
            std::fs::read_to_string(&self.log).unwrap_or_else(|error| format!("cannot be read: {error}"));
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n  ");
        eprintln!("the end of the log of {}:\n  {tail}", self.label);
    }
}
