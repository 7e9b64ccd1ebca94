//! A violation: which invariant broke, when, and what was expected and seen.

use core::fmt;

use crate::sim_time::SimTime;

/// What kind of promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// Something happened that never may.
    Safety,
    /// Something did not happen in time after the heal.
    Liveness,
    /// The same plan did not give the same trace.
    Determinism,
    /// The program itself failed: a panic, or no progress in simulated time.
    Internal,
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its id.
    pub invariant: &'static str,
    /// Its kind.
    pub property: Property,
    /// When it was noticed.
    pub at: SimTime,
    /// What was expected, and what was seen.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broke at {} s: {}", self.invariant, self.at, self.detail)
    }
}

impl std::error::Error for Violation {}
