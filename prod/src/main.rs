//! The `fencepost` command; all of it is in the library's `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencepost::cli::main()
}
