//! Clocks: each host's steady one, and the store's.
//!
//! A steady clock drifts by up to 500 ppm, may leap ahead, may stand still while its host is suspended, and
//! never goes back. The store's clock runs true but may step either way.

use fencepost_core::time::{Monotonic, Span, Timestamp};

use crate::rng::PPM;
use crate::sim_time::SimTime;

/// Longer than any run takes.
const FAR: Span = Span::from_secs(30 * 86_400);

/// A host's steady clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeClock {
    since: SimTime,
    then: u64,
    drift_ppm: i64,
}

impl NodeClock {
    pub(super) fn new(origin: Monotonic, drift_ppm: i32) -> Self {
        let drift_ppm = i64::from(drift_ppm).clamp(-500_000, 500_000);
        Self { since: SimTime::ZERO, then: origin.as_micros(), drift_ppm }
    }

    /// What it shows.
    pub(super) fn read(&self, now: SimTime) -> Monotonic {
        let passed = now.since(self.since).as_micros();
        // A run is at most some hours long: the products stay far below the edge.
        let drift = passed.saturating_mul(self.drift_ppm.unsigned_abs()) / u64::from(PPM);
        let shown = if self.drift_ppm < 0 { passed - drift } else { passed.saturating_add(drift) };
        Monotonic::from_micros(self.then.saturating_add(shown))
    }

    /// The first moment, from `now` on, at which it shows `at` or more.
    pub(super) fn when(&self, at: Monotonic, now: SimTime) -> SimTime {
        let shown = self.read(now);
        if shown >= at {
            return now;
        }
        // Further than any run goes: never.
        if at.since(shown) > FAR {
            return SimTime::MAX;
        }
        if self.drift_ppm == 0 {
            return now.plus(at.since(shown));
        }
        let ahead = at.as_micros() - self.then;
        let rate = if self.drift_ppm < 0 {
            u64::from(PPM) - self.drift_ppm.unsigned_abs()
        } else {
            u64::from(PPM) + self.drift_ppm.unsigned_abs()
        };
        let mut when = self.since.plus(Span::from_micros(ahead.saturating_mul(u64::from(PPM)) / rate));
        // Reading rounds towards the true time, so the moment may be a microsecond or two off either way.
        let one = Span::from_micros(1);
        while self.read(when) < at && when < SimTime::MAX {
            when = when.plus(one);
        }
        loop {
            let before = SimTime::from_micros(when.as_micros().saturating_sub(1));
            if before <= now || self.read(before) < at {
                return when;
            }
            when = before;
        }
    }

    /// It leaps ahead.
    pub(super) fn leap(&mut self, now: SimTime, by: Span) {
        self.then = self.read(now).plus(by).as_micros();
        self.since = now;
    }

    /// It stood still from `from` until now.
    pub(super) fn stood_still(&mut self, from: SimTime, now: SimTime) {
        self.then = self.read(from).as_micros();
        self.since = now;
    }
}

/// The store's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreClock {
    origin: Timestamp,
    ahead: Span,
    behind: Span,
}

impl StoreClock {
    pub(super) fn new(origin: Timestamp) -> Self {
        Self { origin, ahead: Span::ZERO, behind: Span::ZERO }
    }

    pub(super) fn read(&self, now: SimTime) -> Timestamp {
        self.origin.plus(now.since(SimTime::ZERO)).plus(self.ahead).minus(self.behind)
    }

    pub(super) fn step_forward(&mut self, by: Span) {
        self.ahead = self.ahead.plus(by);
    }

    pub(super) fn step_back(&mut self, by: Span) {
        self.behind = self.behind.plus(by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drifting_clock_reaches_what_it_is_asked_for_and_not_a_moment_before() {
        for drift in [-500, -7, 0, 3, 500] {
            let mut clock = NodeClock::new(Monotonic::from_micros(12_345), drift);
            clock.leap(SimTime::from_micros(77), Span::from_secs(9));
            for ahead in [1, 2, 999, 1_000_000, 3_600_000_003] {
                let at = clock.read(SimTime::from_micros(77)).plus(Span::from_micros(ahead));
                let when = clock.when(at, SimTime::from_micros(77));
                assert!(clock.read(when) >= at);
                assert!(clock.read(SimTime::from_micros(when.as_micros() - 1)) < at);
            }
        }
    }

    #[test]
    fn a_clock_that_stood_still_shows_what_it_showed() {
        let mut clock = NodeClock::new(Monotonic::ZERO, 0);
        let (from, until) = (SimTime::from_secs(5), SimTime::from_secs(65));
        let shown = clock.read(from);
        clock.stood_still(from, until);
        assert_eq!(clock.read(until), shown);
    }

    #[test]
    fn the_stores_clock_steps_both_ways() {
        let mut clock = StoreClock::new(Timestamp::from_micros(1_000));
        clock.step_forward(Span::from_micros(10));
        clock.step_back(Span::from_micros(25));
        assert_eq!(clock.read(SimTime::from_micros(100)), Timestamp::from_micros(1_085));
    }
}
