//! The fencing token: a number that says which grant of a resource a write was made under.
//!
//! Each resource (cluster leadership, each partition, each execution) has tokens of its own. A token
//! rises by one with every acquisition and never otherwise changes, so a write under an older token
//! comes from an owner whose authority has passed on and is refused.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Which grant of a resource something was done under. Zero: never granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(i64);

impl FencingToken {
    /// The token of a resource that was never granted.
    pub const NEVER: Self = Self(0);

    /// From the stored integer.
    #[must_use]
    pub const fn from_i64(raw: i64) -> Self {
        Self(raw)
    }

    /// The stored integer.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        self.0
    }

    /// The token of the next grant; `None` where the numbers are used up, which no acquisition may pass.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}
