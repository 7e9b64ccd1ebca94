//! Turns: whose turn it is, of the priorities that have something waiting.
//!
//! Each priority has a stride, which falls as its weight rises, and a pass, which grows by the stride with each turn. The
//! turn is that of the lowest pass; of equal ones, of the higher priority. One that had nothing waiting joins at the pass of
//! the latest turn: what it did not use is not kept for later. From this follow, for any arrivals whatever:
//!
//! - *work conserving*: as long as anything waits, there is a turn, and a priority alone has all of them;
//! - *no starving*: of any ten turns in a row through which a priority has something waiting, one at least is its own; of
//!   any n, the tenth part of n, rounded down. (In the long run an eighth is the least; the tenth has room for where a
//!   stretch begins and ends.)
//!
//! A turn that led to no start (the execution had ended, or waits for something) is given back, so that starts are shared,
//! not questions. But not without end: a priority whose messages all lead nowhere would hold the others up for as long as
//! it has any. So of its turns in a row that started nothing each tenth is charged like a start.

use super::{ByPriority, Priority};

/// How many turns in a row that started nothing are given back; the next one is not.
pub const IN_VAIN_MAX: u32 = 9;

/// Whose turn it is.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    passes: ByPriority<u64>,
    /// The pass of the latest turn.
    latest: u64,
    /// Turns in a row that started nothing and were given back.
    in_vain: ByPriority<u32>,
}

/// How far the pass of a priority moves on with each of its turns: the least common multiple of the weights by its weight.
const fn stride(priority: Priority) -> u64 {
    10 / priority.weight()
}

impl Turns {
    /// Nobody has had a turn.
    #[must_use]
    pub const fn new() -> Self {
        Self { passes: ByPriority::new([0, 0, 0]), latest: 0, in_vain: ByPriority::new([0, 0, 0]) }
    }

    /// Something waits of a priority of which nothing did.
    pub fn join(&mut self, priority: Priority) {
        let pass = self.passes.get_mut(priority);
        *pass = self.latest.max(*pass);
    }

    /// Gives the next turn to one of those that have something waiting; to nobody where nothing waits.
    pub fn next(&mut self, waits: impl Fn(Priority) -> bool) -> Option<Priority> {
        let those = Priority::ALL.iter().copied().filter(|priority| waits(*priority));
        let priority = those.min_by_key(|priority| *self.passes.get(*priority))?;
        let pass = self.passes.get_mut(priority);
        self.latest = self.latest.max(*pass);
        *pass += stride(priority);
        Some(priority)
    }

    /// A turn led to a start.
    pub const fn started(&mut self, priority: Priority) {
        *self.in_vain.get_mut(priority) = 0;
    }

    /// A turn led to none.
    pub const fn in_vain(&mut self, priority: Priority) {
        let in_vain = self.in_vain.get_mut(priority);
        if *in_vain < IN_VAIN_MAX {
            *in_vain += 1;
            let pass = self.passes.get_mut(priority);
            *pass = pass.saturating_sub(stride(priority));
        } else {
            *in_vain = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

    /// Lines of what waits, and the turns among them.
    #[derive(Default)]
    struct Lines {
        turns: Turns,
        waiting: ByPriority<u32>,
    }

    impl Lines {
        fn arrive(&mut self, priority: Priority, count: u32) {
            let waiting = self.waiting.get_mut(priority);
            if *waiting == 0 && count > 0 {
                self.turns.join(priority);
            }
            *waiting += count;
        }

        fn take(&mut self) -> Option<Priority> {
            let waiting = self.waiting;
            let priority = self.turns.next(|priority| *waiting.get(priority) > 0)?;
            *self.waiting.get_mut(priority) -= 1;
            Some(priority)
        }
    }

    #[test]
    fn the_weights_and_strides_fit() {
        assert_eq!(ALL.iter().map(|priority| priority.weight()).sum::<u64>(), Priority::WEIGHTS_SUM);
        for priority in ALL {
            assert_eq!(stride(priority) * priority.weight(), 10, "{priority}");
            assert!(priority.weight() * 10 >= Priority::WEIGHTS_SUM, "{priority} has a tenth at least");
        }
    }

    #[test]
    fn where_all_wait_eight_turns_are_five_two_and_one() {
        let mut lines = Lines::default();
        ALL.iter().for_each(|priority| lines.arrive(*priority, 1_000));
        for round in 0..10 {
            let mut counts = ByPriority::<u64>::default();
            for _ in 0..Priority::WEIGHTS_SUM {
                *counts.get_mut(lines.take().expect("everything waits")) += 1;
            }
            assert!(
                counts.iter().all(|(priority, count)| *count == priority.weight()),
                "{round}: {counts:?}"
            );
        }
    }

    #[test]
    fn a_backlog_of_low_ones_delays_a_high_one_by_no_turn() {
        let mut lines = Lines::default();
        lines.arrive(Priority::Low, 20_000);
        for _ in 0..500 {
            assert_eq!(lines.take(), Some(Priority::Low));
        }
        lines.arrive(Priority::High, 1);
        let soon: Vec<_> = (0..2).filter_map(|_| lines.take()).collect();
        assert!(soon.contains(&Priority::High), "{soon:?}");
    }

    #[test]
    fn what_was_not_used_is_not_kept() {
        let mut lines = Lines::default();
        lines.arrive(Priority::Low, 1_000);
        for _ in 0..500 {
            lines.take();
        }
        lines.arrive(Priority::High, 1_000);
        let highs = (0..80).filter(|_| lines.take() == Some(Priority::High)).count();
        assert!(highs < 72, "{highs} of 80: low ones had to wait for what high ones had not used");
    }

    #[test]
    fn turns_in_vain_are_given_back_but_do_not_hold_the_others_up() {
        let mut lines = Lines::default();
        ALL.iter().for_each(|priority| lines.arrive(*priority, 10_000));
        // Every other low one starts nothing: it has its share of starts all the same.
        let (mut starts, mut lows) = (0_u32, 0_u32);
        let mut vain = false;
        while starts < 800 {
            let priority = lines.take().expect("everything waits");
            if priority == Priority::Low {
                vain = !vain;
                if vain {
                    lines.turns.in_vain(priority);
                    continue;
                }
                lows += 1;
            }
            lines.turns.started(priority);
            starts += 1;
        }
        assert!((99..=101).contains(&lows), "{lows} of {starts}");
        // No high one ever starts anything: the others go on.
        let mut others = 0;
        for _ in 0..1_000 {
            match lines.take().expect("everything waits") {
                Priority::High => lines.turns.in_vain(Priority::High),
                other @ (Priority::Normal | Priority::Low) => {
                    lines.turns.started(other);
                    others += 1;
                }
            }
        }
        assert!(others >= 50, "{others} of 1000 turns");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever arrives when: as long as something waits there is a turn, and of any stretch of turns through which a
        /// priority has something waiting a tenth is its own.
        #[test]
        fn nobody_starves_and_no_turn_is_lost(
            arrivals in prop::collection::vec((0_usize..4, 0_u32..30, 1_usize..12), 1..120),
        ) {
            let mut lines = Lines::default();
            let mut history: Vec<(Priority, ByPriority<bool>)> = Vec::new();
            for (of, count, turns) in arrivals {
                if let Some(priority) = ALL.get(of) {
                    lines.arrive(*priority, count);
                }
                for _ in 0..turns {
                    let waited = lines.waiting.map(|count| *count > 0);
                    match lines.take() {
                        Some(priority) => history.push((priority, waited)),
                        None => prop_assert!(waited.iter().all(|(_, waits)| !waits)),
                    }
                }
            }
            for priority in ALL {
                for from in 0..history.len() {
                    let mut own = 0;
                    for (at, (turn, waited)) in history[from..].iter().enumerate() {
                        if !waited.get(priority) {
                            break;
                        }
                        own += usize::from(*turn == priority);
                        let length = at + 1;
                        prop_assert!(own >= length / 10, "{priority}: {own} of {length} from {from}");
                    }
                }
            }
        }
    }
}
