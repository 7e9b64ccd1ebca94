//! What `./test` asks about a server that is not its own: `check` whether tests can run there, `sweep` what is left.
//!
//! Relies on `DATABASE_URL`, and on `THROWAWAY_RUN` to know which databases are this run's. Exit codes are those of the
//! program under test: 64 wrong usage, 69 out of reach.

use std::process::ExitCode;

use fencepost_tests::own_database::{Unsuitable, suitable, sweep};
use fencepost_tests::server_url::database_url;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let url = database_url();
    let outcome: Result<(), Unsuitable> = match std::env::args().nth(1).as_deref() {
        Some("check") => suitable(&url).await.map(|_| ()),
        Some("sweep") => {
            sweep(&url).await.map(|left| left.iter().for_each(|name| println!("dropped {name}")))
        }
        _ => {
            eprintln!("usage: test-databases check|sweep");
            return ExitCode::from(64);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(unsuitable) => {
            eprintln!("{unsuitable}");
            ExitCode::from(unsuitable.exit_code())
        }
    }
}
