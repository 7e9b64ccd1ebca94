//! The two clocks, kept apart by their types.
//!
//! [`Timestamp`] is an instant on the store's clock: UTC, in microseconds, PostgreSQL's own
//! resolution. Only it decides whether a lease has expired or a job is due. [`Monotonic`] is a
//! reading of this process's own steady clock; timers and trust windows live on it. Neither type
//! converts into the other, so no rule can compare what must not be compared. [`Span`] is a
//! distance on either clock.
//!
//! Arithmetic saturates: a time that would leave the representable range stays at its edge, which
//! every caller treats as "never", so nothing here can wrap around or panic.

use core::fmt;
use core::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// A distance in time, in whole microseconds, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(u64);

/// An instant on the store's clock: microseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

/// A reading of one process's steady clock: microseconds since an origin of that process's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Monotonic(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than anything that is waited for.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// A span of whole microseconds; more than [`Span::MAX`] becomes that.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 { Self::MAX } else { Self(micros) }
    }

    /// A span of whole milliseconds, saturating.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self::from_micros(millis.saturating_mul(1_000))
    }

    /// A span of whole seconds, saturating.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self::from_micros(secs.saturating_mul(1_000_000))
    }

    /// Whole microseconds.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole milliseconds, rounded down.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole microseconds as the signed integer that is stored.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        // Cannot wrap: the constructors keep the value at or below i64::MAX.
        self.0 as i64
    }

    /// A stored signed integer back into a span; negative becomes zero.
    #[must_use]
    pub const fn from_i64(micros: i64) -> Self {
        if micros < 0 { Self::ZERO } else { Self(micros as u64) }
    }

    /// The sum, saturating.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self::from_micros(self.0.saturating_add(other.0))
    }

    /// The difference, zero where `other` is the longer.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `self × factor`, saturating.
    #[must_use]
    pub const fn times(self, factor: u64) -> Self {
        Self::from_micros(self.0.saturating_mul(factor))
    }

    /// `self ÷ divisor`, rounded down.
    ///
    /// # Panics
    /// If `divisor` is zero, which is a mistake of the caller's.
    #[must_use]
    pub const fn divided_by(self, divisor: u64) -> Self {
        Self(self.0 / divisor)
    }

    /// The same span as a [`Duration`], for timers.
    #[must_use]
    pub const fn to_duration(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            micros if micros % 1_000_000 == 0 => write!(f, "{}s", micros / 1_000_000),
            micros if micros % 1_000 == 0 => write!(f, "{}ms", micros / 1_000),
            micros => write!(f, "{micros}us"),
        }
    }
}

impl Timestamp {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);
    /// Later than every instant that is stored; read as "never".
    pub const MAX: Self = Self(i64::MAX);
    /// Earlier than every instant that is stored.
    pub const MIN: Self = Self(i64::MIN);

    /// From microseconds since 1970 UTC.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970 UTC.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This much later, saturating.
    #[must_use]
    pub const fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.as_i64()))
    }

    /// This much earlier, saturating.
    #[must_use]
    pub const fn minus(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.as_i64()))
    }

    /// How long ago `earlier` was, seen from here; zero where it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span::from_i64(self.0.saturating_sub(earlier.0))
    }

    /// The next representable instant, saturating.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// As a calendar instant; `None` outside the years that chrono represents.
    #[must_use]
    pub fn to_utc(self) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp_micros(self.0)
    }

    /// From a calendar instant; what is finer than a microsecond is dropped.
    #[must_use]
    pub fn from_utc(utc: DateTime<Utc>) -> Self {
        Self(utc.timestamp_micros())
    }

    /// From RFC 3339 text with any offset; `None` if it is not that.
    #[must_use]
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        DateTime::parse_from_rfc3339(text).ok().map(|at| Self(at.timestamp_micros()))
    }
}

/// RFC 3339 in UTC with microseconds, as in idempotency keys; the raw number where no calendar reaches.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_utc() {
            Some(utc) => f.write_str(&utc.to_rfc3339_opts(SecondsFormat::Micros, true)),
            None => write!(f, "{}us", self.0),
        }
    }
}

impl Monotonic {
    /// The origin of a process's steady clock.
    pub const ZERO: Self = Self(0);
    /// A moment that is never reached.
    pub const MAX: Self = Self(u64::MAX);

    /// From microseconds since the process's origin.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the process's origin.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// This much later, saturating.
    #[must_use]
    pub const fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.as_micros()))
    }

    /// How long ago `earlier` was; zero where it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span::from_micros(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_prints_as_rfc3339_with_microseconds() {
        assert_eq!(Timestamp::from_micros(1_500_000).to_string(), "1970-01-01T00:00:01.500000Z");
    }

    #[test]
    fn arithmetic_stays_at_the_edges() {
        assert_eq!(Timestamp::MAX.plus(Span::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.minus(Span::MAX), Timestamp::MIN);
        assert_eq!(Span::MAX.times(u64::MAX), Span::MAX);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::MAX), Span::ZERO);
        assert_eq!(Monotonic::MAX.plus(Span::from_secs(1)), Monotonic::MAX);
    }
}
