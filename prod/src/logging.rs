//! Log lines on stderr: JSON for machines or pretty for people, filtered as the settings say.

use tracing_subscriber::EnvFilter;

use crate::failure::Failure;
use crate::settings::{LogFormat, LogSettings};

/// Starts logging.
///
/// # Errors
/// The filter cannot be read, or logging was started before.
pub fn start(settings: &LogSettings) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter(&settings.filter)).map_err(|error| {
        Failure::usage(format!("log.filter {:?} cannot be read: {error}", settings.filter))
    })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match settings.format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Pretty => lines.try_init(),
    };
    started.map_err(|error| Failure::internal(format!("logging cannot be started: {error}")))
}

/// What the settings say, and of the broker's client only what they ask for by name: it logs messages that are returned
/// with their bodies, which hold what tenants keep secret, and tells again what we tell of connections.
fn filter(asked: &str) -> String {
    if asked.contains("lapin") || asked.trim().is_empty() {
        return asked.to_owned();
    }
    format!("{asked},lapin=off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brokers_client_speaks_only_when_asked() {
        assert_eq!(filter("info"), "info,lapin=off");
        assert_eq!(filter("fencepost=debug,warn"), "fencepost=debug,warn,lapin=off");
        assert_eq!(filter("info,lapin=warn"), "info,lapin=warn");
        assert!(EnvFilter::try_new(filter("info")).is_ok());
    }
}
