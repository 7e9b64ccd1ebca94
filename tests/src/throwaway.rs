//! A server of a test's own, to be stopped, killed and started again without harm to other tests.
//!
//! Relies on `scripts/throwaway-*`, which developers use by hand as well. What must stay true: the server is
//! gone when this value is, and it comes back on the same port with its durable data.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The database.
    Postgres,
    /// The broker.
    Rabbitmq,
}

/// A running (or stopped) server in a directory of its own.
#[derive(Debug)]
pub struct Throwaway {
    script: PathBuf,
    directory: PathBuf,
    url: String,
}

impl Throwaway {
    /// Starts a fresh server.
    ///
    /// # Panics
    /// Where it does not start, with what the script said.
    pub fn start(kind: Kind) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let name = match kind {
            Kind::Postgres => "throwaway-postgres",
            Kind::Rabbitmq => "throwaway-rabbitmq",
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts").join(name);
        let scratch = std::env::var_os("THROWAWAY_SCRATCH").map_or_else(std::env::temp_dir, PathBuf::from);
        let directory = scratch.join(format!(
            "{name}-{}-{}",
            std::process::id(),
            STARTED.fetch_add(1, Ordering::Relaxed)
        ));
        let mut server = Self { script, directory, url: String::new() };
        server.url = server.run("start");
        server
    }

    /// Where it listens, also after a restart.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops it in good order; its durable data stay.
    ///
    /// # Panics
    /// Where it does not stop.
    pub fn stop(&self) {
        self.run("stop");
    }

    /// Ends it as a crash would.
    ///
    /// # Panics
    /// Where it does not die.
    pub fn kill(&self) {
        self.run("kill");
    }

    /// Starts it again with the data that it had.
    ///
    /// # Panics
    /// Where it does not start, or listens somewhere else.
    pub fn start_again(&self) {
        assert_eq!(self.run("start"), self.url, "a server must come back where it was");
    }

    /// Has RabbitMQ's own tool do something to it.
    ///
    /// # Panics
    /// Where it does not, with what it said.
    pub fn control(&self, words: &[&str]) {
        self.run_with("control", words);
    }

    fn run(&self, verb: &str) -> String {
        self.run_with(verb, &[])
    }

    fn run_with(&self, verb: &str, words: &[&str]) -> String {
        let output = Command::new(&self.script)
            .arg(verb)
            .arg(&self.directory)
            .args(words)
            .output()
            .expect("the script lies in the repository and bash is there");
        assert!(
            output.status.success(),
            "{} {verb}: {}",
            self.script.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        // Not `run`: a panic here would hide the one that is being told.
        let removed = Command::new(&self.script).arg("remove").arg(&self.directory).status();
        if !removed.is_ok_and(|status| status.success()) {
            eprintln!("could not remove the throwaway server in {}", self.directory.display());
        }
    }
}
