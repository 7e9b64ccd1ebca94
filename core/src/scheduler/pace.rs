//! When something is next to be done, and how that is put off while the store's answers stay away.

use crate::retry::doubled;
use crate::time::{Monotonic, Span};

/// The next time for one recurring thing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    at: Monotonic,
    unknowns: u32,
}

impl Pace {
    /// Not before somebody says when.
    pub(super) const NEVER: Self = Self { at: Monotonic::MAX, unknowns: 0 };
    /// At the first opportunity.
    pub(super) const AT_ONCE: Self = Self { at: Monotonic::ZERO, unknowns: 0 };

    pub(super) const fn at(&self) -> Monotonic {
        self.at
    }

    /// Sets the next time; what was unknown before is forgotten.
    pub(super) const fn set(&mut self, at: Monotonic) {
        *self = Self { at, unknowns: 0 };
    }

    /// Sets the next time while the outcome that decides is still out.
    pub(super) const fn until_answered(&mut self, at: Monotonic) {
        self.at = at;
    }

    /// An answer came: what was unknown before is forgotten.
    pub(super) const fn answered(&mut self) {
        self.unknowns = 0;
    }

    /// Moves the next time forward, never back.
    pub(super) fn sooner(&mut self, at: Monotonic) {
        self.at = self.at.min(at);
    }

    /// Sets the next time after an unknown outcome: `first` from now, doubled with each in a row, `most` at most.
    pub(super) fn after_unknown(&mut self, now: Monotonic, first: Span, most: Span) {
        self.at = now.plus(doubled(first, self.unknowns).min(most));
        self.unknowns = self.unknowns.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_outcomes_in_a_row_are_met_with_growing_patience_up_to_a_bound() {
        let (first, most) = (Span::from_millis(200), Span::from_secs(1));
        let mut pace = Pace::AT_ONCE;
        let delays: Vec<_> = (0..5)
            .map(|_| {
                pace.after_unknown(Monotonic::ZERO, first, most);
                pace.at().as_micros() / 1_000
            })
            .collect();
        assert_eq!(delays, [200, 400, 800, 1_000, 1_000]);
        pace.set(Monotonic::ZERO);
        pace.after_unknown(Monotonic::ZERO, first, most);
        assert_eq!(pace.at().as_micros(), 200_000);
    }
}
