//! The stopwatch: the one place that looks at a real clock, for speeds in reports. Never inside a run.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "reports say how long a campaign really took"
)]

use std::time::Duration;

/// A running stopwatch.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// Starts one.
    #[must_use]
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// How long it has run.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
