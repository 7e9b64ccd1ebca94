//! The `fencepost-sim` command. Everything is in the library, where tests reach it.

use std::process::ExitCode;

/// Runs are short and full of small rows: a tenth of their time would be the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(fencepost_sim::cli::main(std::env::args_os()))
}
