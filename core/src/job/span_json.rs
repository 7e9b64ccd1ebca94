//! Spans in JSON: integer milliseconds, in fields named `…_ms`.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

use crate::time::Span;

/// The largest number of milliseconds that is still a span: the store counts microseconds in 63 bits.
pub(super) const MILLIS_MAX: u64 = i64::MAX as u64 / 1_000;

fn checked<E: Error>(millis: u64) -> Result<Span, E> {
    if millis > MILLIS_MAX {
        return Err(E::custom(format!("{millis} ms is longer than the longest span, {MILLIS_MAX} ms")));
    }
    Ok(Span::from_millis(millis))
}

/// For `#[serde(with = …)]` on a [`Span`].
pub(crate) mod span_ms {
    use super::{Deserialize, Deserializer, Serializer, Span, checked};

    pub(crate) fn serialize<S: Serializer>(span: &Span, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(span.as_millis())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        checked(u64::deserialize(deserializer)?)
    }
}

/// For `#[serde(with = …, default)]` on an `Option<Span>`.
pub(crate) mod optional_span_ms {
    use super::{Deserialize, Deserializer, Serializer, Span, checked};

    pub(crate) fn serialize<S: Serializer>(span: &Option<Span>, serializer: S) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => serializer.serialize_some(&span.as_millis()),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Span>, D::Error> {
        Option::<u64>::deserialize(deserializer)?.map(checked).transpose()
    }
}
