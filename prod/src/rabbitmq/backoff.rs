//! Pauses between attempts to reach the broker: doubling up to a cap, and jittered, so that the nodes of
//! a cluster do not all return to a restarted broker in the same instant.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// How long to pause next.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) const fn new() -> Self {
        Self { next: FIRST }
    }

    /// Something worked: begin again.
    pub(super) const fn reset(&mut self) {
        self.next = FIRST;
    }

    /// Between half of the current pause and all of it; the next one is twice as long.
    pub(super) fn pause(&mut self) -> Duration {
        let longest = self.next;
        self.next = longest.saturating_mul(2).min(LONGEST);
        rand::random_range(longest / 2..=longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_cap_and_start_over_after_success() {
        let mut backoff = Backoff::new();
        for _ in 0..20 {
            backoff.pause();
        }
        let late = backoff.pause();
        assert!(late >= LONGEST / 2 && late <= LONGEST, "{late:?}");
        backoff.reset();
        assert!(backoff.pause() <= FIRST);
    }
}
