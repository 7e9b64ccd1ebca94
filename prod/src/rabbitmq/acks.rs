//! Acknowledgements: as few frames as the order in which runs end allows.
//!
//! The broker takes "this one" and "all up to this one". What has ended without a gap is acknowledged at
//! once; what ended past a gap, one by one: a slow run must not hold the others' messages back.

use std::collections::BTreeSet;

/// One acknowledgement to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckFrame {
    /// This delivery.
    One(u64),
    /// This delivery and all before it.
    UpTo(u64),
}

/// The deliveries of one channel that the broker waits for.
#[derive(Debug, Default)]
pub(super) struct AckBook {
    open: BTreeSet<u64>,
    settled: BTreeSet<u64>,
}

impl AckBook {
    /// A message arrived.
    pub(super) fn delivered(&mut self, tag: u64) {
        self.open.insert(tag);
    }

    /// A message is to be acknowledged. What is not open is ignored: the broker closes the channel over a
    /// tag that it does not wait for.
    pub(super) fn settle(&mut self, tag: u64) {
        if self.open.remove(&tag) {
            self.settled.insert(tag);
        }
    }

    /// What to send now.
    pub(super) fn frames(&mut self) -> Vec<AckFrame> {
        let later = match self.open.first() {
            Some(gap) => self.settled.split_off(gap),
            None => BTreeSet::new(),
        };
        let without_a_gap = core::mem::take(&mut self.settled);
        let mut frames = Vec::with_capacity(later.len() + 1);
        match (without_a_gap.len(), without_a_gap.last()) {
            (_, None) => {}
            (1, Some(only)) => frames.push(AckFrame::One(*only)),
            (_, Some(last)) => frames.push(AckFrame::UpTo(*last)),
        }
        frames.extend(later.into_iter().map(AckFrame::One));
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(delivered: u64) -> AckBook {
        let mut book = AckBook::default();
        (1..=delivered).for_each(|tag| book.delivered(tag));
        book
    }

    #[test]
    fn what_ended_without_a_gap_is_one_frame() {
        let mut book = book(5);
        [3, 1, 2].into_iter().for_each(|tag| book.settle(tag));
        assert_eq!(book.frames(), [AckFrame::UpTo(3)]);
        assert_eq!(book.frames(), []);
    }

    #[test]
    fn a_slow_run_holds_no_other_back() {
        let mut book = book(4);
        [2, 4].into_iter().for_each(|tag| book.settle(tag));
        assert_eq!(book.frames(), [AckFrame::One(2), AckFrame::One(4)]);
        [1, 3].into_iter().for_each(|tag| book.settle(tag));
        assert_eq!(book.frames(), [AckFrame::UpTo(3)]);
    }

    #[test]
    fn a_delivery_is_acknowledged_once_and_only_if_it_is_open() {
        let mut book = book(1);
        [1, 1, 9].into_iter().for_each(|tag| book.settle(tag));
        assert_eq!(book.frames(), [AckFrame::One(1)]);
        book.settle(1);
        assert_eq!(book.frames(), []);
    }
}
