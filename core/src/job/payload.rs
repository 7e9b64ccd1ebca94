//! Payloads: what a handler is given, as the very JSON text that the caller sent.
//!
//! The text is kept, not a value made of it, so that no number loses a digit on its way. It is checked
//! once, at the edge: size, syntax, depth, and no NUL character, which PostgreSQL cannot store in text.

use core::fmt;
use std::sync::Arc;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use thiserror::Error as ThisError;

use crate::limits::PAYLOAD_BYTES_MAX;

/// JSON text, checked. `null` by default.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Payload(Arc<str>);

/// Why a text is no payload.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum PayloadError {
    /// It is longer than [`PAYLOAD_BYTES_MAX`].
    #[error(
        "the payload has {bytes} bytes, more than the {PAYLOAD_BYTES_MAX} allowed: store the data elsewhere and pass a reference"
    )]
    TooLarge {
        /// How long it is.
        bytes: usize,
    },
    /// It is not JSON, or nested too deeply.
    #[error("the payload cannot be read: {detail}")]
    NotJson {
        /// What the parser says.
        detail: String,
    },
    /// It holds the character U+0000.
    #[error("the payload holds the character U+0000, which cannot be stored: leave it out or encode it")]
    Nul,
}

impl Payload {
    /// Checks a JSON text.
    ///
    /// # Errors
    /// [`PayloadError`], saying what is wrong with it.
    pub fn from_json(text: &str) -> Result<Self, PayloadError> {
        let text = text.trim();
        if text.len() > PAYLOAD_BYTES_MAX {
            return Err(PayloadError::TooLarge { bytes: text.len() });
        }
        let value: Value = serde_json::from_str(text)
            .map_err(|error| PayloadError::NotJson { detail: error.to_string() })?;
        if holds_nul(&value) {
            return Err(PayloadError::Nul);
        }
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// Wraps a text that this store holds because it was checked when it came in.
    #[must_use]
    pub fn from_stored(text: Arc<str>) -> Self {
        Self(text)
    }
}

/// Depth is bounded by the parser, which refuses more than 128 levels.
fn holds_nul(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(holds_nul),
        Value::Object(fields) => fields.iter().any(|(name, value)| name.contains('\0') || holds_nul(value)),
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self("null".into())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Payloads may hold secrets; logs and traces get their length.
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_json(raw.get()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_keeps_every_digit() {
        let text = r#"{"n":0.1000000000000000055511151231257827,"big":123456789012345678901234567890}"#;
        let payload = Payload::from_json(text).expect("valid");
        assert_eq!(payload.as_json(), text);
        let again = serde_json::to_string(&payload).expect("serialises");
        assert_eq!(again, text);
    }

    #[test]
    fn nul_is_refused_wherever_it_hides() {
        for text in [r#""\u0000""#, r#"{"a":["\u0000"]}"#, r#"{"\u0000":1}"#] {
            assert_eq!(Payload::from_json(text), Err(PayloadError::Nul), "{text}");
        }
    }

    #[test]
    fn size_and_depth_are_bounded() {
        let long = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX));
        assert!(matches!(Payload::from_json(&long), Err(PayloadError::TooLarge { .. })));
        let deep = "[".repeat(1_000) + &"]".repeat(1_000);
        assert!(matches!(Payload::from_json(&deep), Err(PayloadError::NotJson { .. })));
    }
}
