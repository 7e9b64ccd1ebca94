//! What a run measures, in simulated milliseconds: how long recoveries and dispatches take.
//!
//! Distributions are kept as counts by millisecond, so that those of a hundred thousand runs fit into memory
//! and are added up without a loss.

use std::collections::BTreeMap;

use fencepost_core::time::Span;
use serde::Serialize;

/// How often each length was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution(BTreeMap<u64, u64>);

/// The usual three of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Half are no longer.
    pub p50: u64,
    /// Ninety-nine in a hundred are no longer.
    pub p99: u64,
    /// None is longer.
    pub max: u64,
}

impl Distribution {
    /// One more of this length.
    pub fn add(&mut self, span: Span) {
        *self.0.entry(span.as_millis()).or_default() += 1;
    }

    /// All of another one.
    pub fn add_all(&mut self, other: &Self) {
        for (millis, count) in &other.0 {
            *self.0.entry(*millis).or_default() += count;
        }
    }

    /// The usual three; `None` where nothing was measured.
    #[must_use]
    pub fn percentiles(&self) -> Option<Percentiles> {
        let total: u64 = self.0.values().sum();
        let at = |percent: u64| {
            let rank = (total * percent).div_ceil(100).max(1);
            let mut seen = 0;
            self.0.iter().find_map(|(millis, count)| {
                seen += count;
                (seen >= rank).then_some(*millis)
            })
        };
        Some(Percentiles { p50: at(50)?, p99: at(99)?, max: *self.0.last_key_value()?.0 })
    }
}

/// Everything that a run measures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// From the loss of a leader to the next one's grant.
    pub failover: Distribution,
    /// From a change among the schedulers to an even distribution of all partitions.
    pub rebalance: Distribution,
    /// From due to the broker's confirm, by the store's clock.
    pub dispatch_lag: Distribution,
    /// From the request to the end of a drain.
    pub drain: Distribution,
    /// Executions made.
    pub executions: u64,
}

impl Measured {
    /// Adds those of another run.
    pub fn add_all(&mut self, other: &Self) {
        self.failover.add_all(&other.failover);
        self.rebalance.add_all(&other.rebalance);
        self.dispatch_lag.add_all(&other.dispatch_lag);
        self.drain.add_all(&other.drain);
        self.executions += other.executions;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_lengths_that_were_measured() {
        let mut distribution = Distribution::default();
        assert_eq!(distribution.percentiles(), None);
        (1..=200).for_each(|millis| distribution.add(Span::from_millis(millis)));
        let three = distribution.percentiles().expect("something was measured");
        assert_eq!((three.p50, three.p99, three.max), (100, 198, 200));
    }

    #[test]
    fn one_length_is_all_three() {
        let mut distribution = Distribution::default();
        distribution.add(Span::from_micros(7_999));
        assert_eq!(distribution.percentiles(), Some(Percentiles { p50: 7, p99: 7, max: 7 }));
    }
}
