//! The `fencepost-sim` command.
//!
//! A subcommand that is not there says so and exits 64: wrong usage, never a silent success.

use std::process::ExitCode;

/// Wrong usage, as `sysexits.h` numbers it.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_else(|| String::from("(none given)"));
    eprintln!("fencepost-sim: the command `{command}` does not exist in this version");
    ExitCode::from(USAGE)
}
