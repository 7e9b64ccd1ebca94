//! How a command fails: one sentence, a hint where there is one, and an exit code that scripts can rely on.

use core::fmt;
use std::process::ExitCode;

use crate::settings::SettingsError;

/// A safety invariant is broken.
pub(crate) const BROKEN: u8 = 1;
/// Wrong usage: arguments, settings, or an input that is refused.
pub(crate) const USAGE: u8 = 64;
/// A service is out of reach.
pub(crate) const UNAVAILABLE: u8 = 69;
/// A mistake of ours.
pub(crate) const INTERNAL: u8 = 70;
/// Stopped by SIGINT, as shells have it.
const INTERRUPTED: u8 = 130;

/// Why a command ended without doing what it was told.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    what: String,
    hint: Option<String>,
}

impl Failure {
    /// Wrong usage.
    #[must_use]
    pub fn usage(what: impl Into<String>) -> Self {
        Self { code: USAGE, what: what.into(), hint: None }
    }

    /// A service is out of reach, or not as it should be.
    #[must_use]
    pub fn unavailable(what: impl Into<String>) -> Self {
        Self { code: UNAVAILABLE, what: what.into(), hint: None }
    }

    /// A mistake of ours.
    #[must_use]
    pub fn internal(what: impl Into<String>) -> Self {
        Self { code: INTERNAL, what: what.into(), hint: None }
    }

    /// A safety invariant is broken.
    #[must_use]
    pub fn broken(what: impl Into<String>) -> Self {
        Self { code: BROKEN, what: what.into(), hint: None }
    }

    /// Whoever started it stopped it.
    #[must_use]
    pub fn interrupted(what: impl Into<String>) -> Self {
        Self { code: INTERRUPTED, what: what.into(), hint: None }
    }

    /// The same, of a service that is not as this command needs it.
    #[must_use]
    pub fn as_unavailable(self) -> Self {
        Self { code: UNAVAILABLE, ..self }
    }

    /// A command that a later version will have.
    #[must_use]
    pub fn not_yet(command: &str) -> Self {
        Self::usage(format!("the command `{command}` does not exist in this version"))
    }

    /// With a line that says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With what had come about by then in front.
    #[must_use]
    pub fn context(self, before: &str) -> Self {
        Self { what: format!("{before}: {}", self.what), ..self }
    }

    /// The exit code.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Self::usage(error.to_string())
    }
}
