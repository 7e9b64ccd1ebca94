//! Log lines on stderr: JSON for machines or pretty for people, filtered as the settings say.

use tracing_subscriber::EnvFilter;

use crate::failure::Failure;
use crate::settings::{LogFormat, LogSettings};

/// Starts logging.
///
/// # Errors
/// The filter cannot be read, or logging was started before.
pub fn start(settings: &LogSettings) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&settings.filter).map_err(|error| {
        Failure::usage(format!("log.filter {:?} cannot be read: {error}", settings.filter))
    })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match settings.format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Pretty => lines.try_init(),
    };
    started.map_err(|error| Failure::internal(format!("logging cannot be started: {error}")))
}
