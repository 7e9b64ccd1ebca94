//! The drain: an orderly end, within its limit in any case.
//!
//! Intake stops at once: nothing more is acquired, scanned, materialised, promoted or swept. What is under
//! way comes to its end, everything held is given back, and the store is told that this node is gone. An
//! optimisation: nothing depends on it, and what a cut-short drain leaves behind lapses by itself.

use crate::time::Monotonic;

/// How far a drain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Calls end, leases go back.
    Leaving,
    /// The store is told.
    SigningOff,
}

/// Where a scheduler stands, from its first tick to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for its first tick.
    Idle,
    /// At work.
    Active,
    /// On its way out, by then at the latest.
    Draining { ends: Monotonic, step: Step },
    /// Over.
    Drained,
}
