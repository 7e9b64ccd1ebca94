//! Flex: by how much a fire is due after its nominal time, so that jobs which fire together do not run together.
//!
//! A job may give its fires a window. Where in the window a fire is due is a hash of its execution's id: spread out, and
//! the same on every node and whenever it is worked out. The window of a fire ends at the next fire of its version, and
//! no fire is due later than its version decides. So fires are due in their order, and a fire is due before the next one
//! happens, also where an edit comes between.
//!
//! What must stay true: the nominal time, and so the identity, is never touched; and due times rise strictly with
//! their fires, which the planning of misfires relies on.

use crate::id::{JobId, Occurrence};
use crate::time::{Span, Timestamp};

/// The window in which the fires of a job are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flex {
    job: JobId,
    window: Span,
}

impl Flex {
    /// No window: each fire is due at its nominal time.
    pub const NONE: Self = Self { job: JobId::from_u128(0), window: Span::ZERO };

    /// A window of this length for the fires of a job.
    #[must_use]
    pub const fn of(job: JobId, window: Span) -> Self {
        Self { job, window }
    }

    /// Whether there is a window at all.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.window == Span::ZERO
    }

    /// By how much a fire is due after its nominal time, if the next fire of its version is `next`.
    #[must_use]
    pub fn offset(&self, fire: Timestamp, next: Option<Timestamp>) -> Span {
        let window = next.map_or(self.window, |next| self.window.min(next.since(fire)));
        if window == Span::ZERO {
            return Span::ZERO;
        }
        let id = Occurrence::Scheduled { fire }.execution_id(self.job);
        // The half of the id that names no version of UUIDs.
        let half: [u8; 8] = id.as_bytes()[8..].try_into().expect("an id has 16 bytes");
        Span::from_micros(u64::from_be_bytes(half) % window.as_micros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId::from_u128(0x1234_5678_9abc_def0_0123_4567_89ab_cdef);

    fn second(second: i64) -> Timestamp {
        Timestamp::from_micros(1_767_225_600_000_000 + second * 1_000_000)
    }

    #[test]
    fn without_a_window_a_fire_is_due_at_its_nominal_time() {
        assert_eq!(Flex::NONE.offset(second(0), None), Span::ZERO);
        assert!(Flex::of(JOB, Span::ZERO).is_none());
    }

    #[test]
    fn fires_are_spread_over_the_window_and_each_keeps_its_place() {
        let flex = Flex::of(JOB, Span::from_secs(60));
        let offsets: Vec<Span> = (0..600).map(|nth| flex.offset(second(nth * 300), None)).collect();
        assert!(offsets.iter().all(|offset| *offset < Span::from_secs(60)));
        for tenth in 0..10 {
            let within = |offset: &&Span| offset.as_micros() / 6_000_000 == tenth;
            let count = offsets.iter().filter(within).count();
            assert!((30..=90).contains(&count), "{count} of 600 lie in tenth {tenth}");
        }
        assert_eq!(flex.offset(second(0), None), offsets[0]);
    }

    #[test]
    fn the_place_of_a_fire_is_pinned() {
        let flex = Flex::of(JOB, Span::from_secs(60));
        assert_eq!(flex.offset(second(0), None), Span::from_micros(PINNED), "the same in every version");
    }

    /// The last eight bytes of the execution's id, modulo the window in microseconds.
    const PINNED: u64 = 27_194_547;

    #[test]
    fn the_window_ends_at_the_next_fire() {
        let flex = Flex::of(JOB, Span::from_secs(3_600));
        for nth in 0..100 {
            assert!(flex.offset(second(nth), Some(second(nth + 1))) < Span::from_secs(1));
        }
    }
}
