//! What can be set about the broker, checked where it comes in.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use lapin::uri::AMQPUri;
use thiserror::Error;

/// The heartbeat asked for where the URL asks for none, in seconds. A silent broker is given up after two.
const HEARTBEAT_SECS: u16 = 10;
/// The longest prefix.
const PREFIX_CHARS_MAX: usize = 64;

/// Where the broker is, and as whom. It holds a password, so it is never printed.
#[derive(Clone)]
pub struct AmqpUrl(AMQPUri);

/// What the names of exchange and queues begin with, so that installations can share a virtual host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePrefix(Arc<str>);

/// How queues are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueKind {
    /// Durable on one node. The outbox makes up for what such a queue may lose: a dispatch that led to
    /// nothing is repeated.
    #[default]
    Classic,
    /// Replicated over the broker's cluster, for a price per message. The prefetch of a priority is then split evenly between
    /// handlers, since these queues know no limit common to several.
    Quorum,
}

/// Why a setting is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// The URL is not one.
    #[error("the broker's URL cannot be read: {detail}; it looks like amqp://user:password@host:5672/%2f")]
    Url {
        /// What the parser says.
        detail: String,
    },
    /// The prefix cannot begin a queue's name.
    #[error("`{prefix}` cannot be a prefix: 1 to {PREFIX_CHARS_MAX} of a-z 0-9 . _ - are allowed")]
    Prefix {
        /// What was given.
        prefix: String,
    },
}

/// The broker, and how it is used.
#[derive(Clone, Debug)]
pub struct RabbitSettings {
    /// Where it is.
    pub url: AmqpUrl,
    /// What names begin with.
    pub prefix: QueuePrefix,
    /// How queues are kept.
    pub queue_kind: QueueKind,
    /// How many publications may be under way; each has a channel of its own.
    pub publish_channels: usize,
    /// How connections are labelled in the broker's own listings.
    pub label: Arc<str>,
    /// How long the broker is given to answer anything but a publication.
    pub answer_within: Duration,
}

impl RabbitSettings {
    /// The defaults, for this broker.
    #[must_use]
    pub fn new(url: AmqpUrl) -> Self {
        Self {
            url,
            prefix: QueuePrefix::default(),
            queue_kind: QueueKind::default(),
            publish_channels: 4,
            label: "fencepost".into(),
            answer_within: Duration::from_secs(5),
        }
    }
}

impl AmqpUrl {
    pub(super) fn uri(&self) -> &AMQPUri {
        &self.0
    }
}

impl FromStr for AmqpUrl {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let mut uri: AMQPUri = text.parse().map_err(|detail| SettingsError::Url { detail })?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT_SECS);
        Ok(Self(uri))
    }
}

impl fmt::Debug for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AmqpUrl({self})")
    }
}

/// Host, port and virtual host: what may be printed.
impl fmt::Display for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = &self.0.authority;
        write!(f, "{}:{}, virtual host {}", authority.host, authority.port, self.0.vhost)
    }
}

impl QueuePrefix {
    /// The prefix as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for QueuePrefix {
    fn default() -> Self {
        Self("fencepost".into())
    }
}

impl FromStr for QueuePrefix {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_".contains(c);
        if text.is_empty() || text.len() > PREFIX_CHARS_MAX || !text.chars().all(allowed) {
            return Err(SettingsError::Prefix { prefix: text.to_owned() });
        }
        Ok(Self(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_never_printed_with_its_password() {
        let url: AmqpUrl = "amqp://someone:secret@localhost:5673/%2f".parse().expect("it is a URL");
        assert_eq!(url.to_string(), "localhost:5673, virtual host /");
        let settings = RabbitSettings::new(url);
        assert!(!format!("{settings:?}").contains("secret"));
    }

    #[test]
    fn what_is_no_url_is_refused_with_an_example() {
        let error = "localhost".parse::<AmqpUrl>().expect_err("it has no scheme");
        assert!(error.to_string().contains("amqp://user:password@host:5672/%2f"), "{error}");
    }

    #[test]
    fn a_prefix_holds_only_what_a_queue_name_may() {
        assert!("team-a.test_1".parse::<QueuePrefix>().is_ok());
        for refused in ["", "Über", "a b", &"x".repeat(65)] {
            assert!(refused.parse::<QueuePrefix>().is_err(), "{refused}");
        }
    }
}
