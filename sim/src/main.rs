//! The `fencepost-sim` command. Everything is in the library, where tests reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(fencepost_sim::cli::main(std::env::args_os()))
}
