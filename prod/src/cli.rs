//! The command line: what it takes, what it prints, and how it exits.
//!
//! Results go to stdout, as text or with `--json` as one JSON document; logs go to stderr. Exit codes: 0
//! fine, 1 an invariant is broken, 64 wrong usage, 69 a service is out of reach, 70 a mistake of ours, 130 stopped
//! with Ctrl-C.

use std::borrow::Cow;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::failure::{self, Failure};
use crate::settings::{RoleName, Settings, SettingsError};

mod api_client;
mod calendars;
mod cron_next;
mod dead_letters;
mod explain;
mod jobs;
mod limits;
mod migrate;
mod pauses;
mod tenant;
mod verify;

/// A distributed job scheduler for people who must be able to defend what it does when things fail.
#[derive(Debug, Parser)]
#[command(name = "fencepost", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Cron expressions: when do they fire?
    Cron {
        #[command(subcommand)]
        command: CronCommand,
    },
    /// Why: what became of an execution or a job, what it waits for, what comes next.
    Explain {
        #[command(subcommand)]
        command: explain::Explain,
    },
    /// Jobs: show, edit, pause, resume, through the API.
    Jobs {
        #[command(subcommand)]
        command: jobs::Jobs,
    },
    /// Calendars, on whose days jobs do not run: list, show, set, delete, through the API.
    Calendars {
        #[command(subcommand)]
        command: calendars::Calendars,
    },
    /// Concurrency limits: list, set, clear, through the API.
    Limits {
        #[command(subcommand)]
        command: limits::Limits,
    },
    /// Dead letters: list, show, replay, purge, through the API.
    DeadLetters {
        #[command(subcommand)]
        command: dead_letters::DeadLetters,
    },
    /// Bring the database's schema up to this version.
    Migrate(DatabaseArguments),
    /// Run schedulers, workers and the API, as the settings say.
    Serve(ServeArguments),
    /// Queues: list those that the tenant's jobs go to, pause and resume the tenant's work there, through the API.
    Queues {
        #[command(subcommand)]
        command: pauses::Queues,
    },
    /// Tenants: make one in the database; show, pause and resume the one whose key it is, through the API.
    Tenant {
        #[command(subcommand)]
        command: TenantCommand,
    },
    /// Check a live database against the invariants, by what its rows say. Reads only.
    Verify(verify::Verify),
    /// Diagnose an installation. Not in this version.
    Doctor(LaterArguments),
}

#[derive(Debug, Subcommand)]
enum CronCommand {
    /// Print the next fires of an expression.
    Next(cron_next::CronNext),
}

#[derive(Debug, Subcommand)]
enum TenantCommand {
    /// Make a tenant and print its first key, which is shown only now.
    Create(tenant::Create),
    /// Show the tenant whose key is given: what of it is paused, and what was. Asks the API.
    Show(pauses::Look),
    /// Pause all work of the tenant whose key is given: nothing starts, and all of it waits. Asks the API; does it with
    /// --yes.
    Pause(pauses::Stand),
    /// Resume all work of the tenant whose key is given: what has waited starts. Asks the API; does it with --yes.
    Resume(pauses::Stand),
}

/// Where the settings come from.
#[derive(Clone, Debug, Args)]
pub struct DatabaseArguments {
    /// The database; DATABASE_URL and the settings file are read where this is not given.
    #[arg(long)]
    database_url: Option<String>,
    /// A settings file in TOML.
    #[arg(long)]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct ServeArguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// Which roles this process plays.
    #[arg(long, value_delimiter = ',')]
    role: Vec<RoleArgument>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RoleArgument {
    Scheduler,
    Worker,
    Api,
}

#[derive(Debug, Args)]
struct LaterArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<String>,
}

/// Runs the command that the process's arguments name.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no errors; clap knows which stream each belongs to.
            let printed = error.print();
            return match (error.use_stderr(), printed) {
                (false, Ok(())) => ExitCode::SUCCESS,
                (false, Err(_)) => ExitCode::from(failure::INTERNAL),
                (true, _) => ExitCode::from(failure::USAGE),
            };
        }
    };
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("fencepost: {failure}");
            failure.exit_code()
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Cron { command: CronCommand::Next(next) } => next.run(),
        Command::Explain { command } => runtime()?.block_on(command.run()),
        Command::Jobs { command } => runtime()?.block_on(command.run()),
        Command::Limits { command } => runtime()?.block_on(command.run()),
        Command::Calendars { command } => runtime()?.block_on(command.run()),
        Command::DeadLetters { command } => runtime()?.block_on(command.run()),
        Command::Migrate(database) => runtime()?.block_on(migrate::run(&settings(&database)?)),
        Command::Tenant { command: TenantCommand::Create(create) } => {
            let settings = settings(&create.database)?;
            runtime()?.block_on(create.run(&settings))
        }
        Command::Tenant { command: TenantCommand::Show(look) } => {
            runtime()?.block_on(pauses::show_tenant(&look))
        }
        Command::Tenant { command: TenantCommand::Pause(stand) } => {
            runtime()?.block_on(pauses::stand_tenant(&stand, "pause"))
        }
        Command::Tenant { command: TenantCommand::Resume(stand) } => {
            runtime()?.block_on(pauses::stand_tenant(&stand, "resume"))
        }
        Command::Queues { command } => runtime()?.block_on(command.run()),
        Command::Serve(serve) => {
            let mut settings = settings(&serve.database)?;
            if !serve.role.is_empty() {
                settings.roles = serve.role.into_iter().map(RoleName::from).collect();
            }
            runtime()?.block_on(crate::serve::run(&settings))
        }
        Command::Verify(verify) => {
            let settings = settings(&verify.database)?;
            runtime()?.block_on(verify.run(&settings))
        }
        Command::Doctor(_) => Err(Failure::not_yet("doctor")),
    }
}

/// Writes a line of results. Whoever stops reading, as `head` does, has what it wants.
/// What others wrote, targets among them, may hold what terminals obey. It is shown as JSON would escape it, which leaves
/// JSON what it is.
fn harmless(text: &str) -> Cow<'_, str> {
    let obeyed = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|letter| match letter {
        letter if obeyed(letter) => format!("\\u{:04x}", u32::from(letter)),
        letter => letter.to_string(),
    });
    Cow::Owned(shown.collect())
}

/// The same where a line is to stay one.
fn one_line(text: &str) -> String {
    harmless(text).replace('\n', "\\n").replace('\t', "\\t")
}

fn say(line: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{}", harmless(line)).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::internal(format!("the result could not be written to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

fn settings(arguments: &DatabaseArguments) -> Result<Settings, SettingsError> {
    let mut settings = Settings::read(arguments.config.as_deref(), std::env::vars())?;
    if let Some(url) = &arguments.database_url {
        settings.database.url.clone_from(url);
    }
    Ok(settings)
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("the runtime cannot be started: {error}")))
}

impl From<RoleArgument> for RoleName {
    fn from(argument: RoleArgument) -> Self {
        match argument {
            RoleArgument::Scheduler => Self::Scheduler,
            RoleArgument::Worker => Self::Worker,
            RoleArgument::Api => Self::Api,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_and_not_done() {
        let told = "\u{1b}[31mred\u{1b}]0;title\u{7}\r\u{9b}2J\nnext\ttab é";
        assert_eq!(harmless(told), "\\u001b[31mred\\u001b]0;title\\u0007\\u000d\\u009b2J\nnext\ttab é");
        assert_eq!(one_line("a\nb\tc"), "a\\nb\\tc");
        let json = serde_json::json!({ "error": told }).to_string();
        let read: serde_json::Value = serde_json::from_str(&harmless(&json)).expect("still JSON");
        assert_eq!(read["error"], told, "nothing is lost to machines");
    }
}
