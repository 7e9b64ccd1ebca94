//! Acknowledgements: as few frames as the order in which runs end allows.
//!
//! The broker takes "this one" and "all up to this one". What has ended without a gap is acknowledged at
//! once; what ended past a gap, one by one: a slow run must not hold the others' messages back.
//!
//! Deliveries of several queues reach us out of the order of their tags. A tag that has not been seen is a gap
//! too: "all up to this one" would acknowledge a message that nobody has had yet.

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
#[derive(Debug)]
pub(super) struct AckBook {
    open: BTreeSet<u64>,
    settled: BTreeSet<u64>,
    /// The first tag that has not been seen; a channel counts its deliveries from 1.
    unseen: u64,
    /// What was seen past it.
    ahead: BTreeSet<u64>,
}

impl Default for AckBook {
    fn default() -> Self {
        Self { open: BTreeSet::new(), settled: BTreeSet::new(), unseen: 1, ahead: BTreeSet::new() }
    }
}

impl AckBook {
    /// A message arrived.
    pub(super) fn delivered(&mut self, tag: u64) {
        self.open.insert(tag);
        self.ahead.insert(tag);
        while self.ahead.remove(&self.unseen) {
            self.unseen += 1;
        }
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
        let gap = self.open.first().copied().unwrap_or(u64::MAX).min(self.unseen);
        let later = self.settled.split_off(&gap);
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
    fn what_was_not_seen_yet_is_not_acknowledged_along_with_others() {
        let mut book = AckBook::default();
        // 2 and 3 are of another queue and still on their way through the client.
        [1, 4].into_iter().for_each(|tag| book.delivered(tag));
        [1, 4].into_iter().for_each(|tag| book.settle(tag));
        assert_eq!(book.frames(), [AckFrame::One(1), AckFrame::One(4)]);
        [3, 2].into_iter().for_each(|tag| book.delivered(tag));
        [5, 6].into_iter().for_each(|tag| book.delivered(tag));
        [2, 3, 5, 6].into_iter().for_each(|tag| book.settle(tag));
        assert_eq!(book.frames(), [AckFrame::UpTo(6)]);
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
