//! Simulated time: microseconds since the run began, as only the world sees it.
//!
//! Neither role ever meets it. Each process has a steady clock of its own and the store has its clock
//! (`world::clock`); both are functions of this time, and neither is this time.

use core::fmt;

use fencepost_core::time::Span;
use serde::{Deserialize, Serialize};

/// A moment of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SimTime(u64);

impl SimTime {
    /// The beginning.
    pub const ZERO: Self = Self(0);
    /// Never.
    pub const MAX: Self = Self(u64::MAX);

    /// From microseconds since the beginning.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// From seconds since the beginning.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the beginning.
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

/// Seconds, with all six digits: traces line up.
impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}
