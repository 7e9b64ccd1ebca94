//! Sets of partitions: one bit each, so that asking and joining cost nothing on the hot path.

use crate::partition::{PARTITION_COUNT, PartitionId};

/// A set of partitions, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PartitionSet(u128);

impl PartitionSet {
    pub(super) const EMPTY: Self = Self(0);
    pub(super) const ALL: Self = Self(u128::MAX);

    const fn bit(partition: PartitionId) -> u128 {
        const { assert!(PARTITION_COUNT as u32 == u128::BITS, "one bit for each partition") };
        1 << partition.number()
    }

    pub(super) const fn contains(self, partition: PartitionId) -> bool {
        self.0 & Self::bit(partition) != 0
    }

    pub(super) const fn insert(&mut self, partition: PartitionId) {
        self.0 |= Self::bit(partition);
    }

    pub(super) const fn remove(&mut self, partition: PartitionId) {
        self.0 &= !Self::bit(partition);
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// What is in this set and not in the other.
    pub(super) const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The one with the highest number.
    pub(super) fn last(self) -> Option<PartitionId> {
        let number = u128::BITS.checked_sub(self.0.leading_zeros() + 1)?;
        PartitionId::new(u16::try_from(number).expect("a bit number of 128 fits"))
    }

    pub(super) const fn iter(self) -> Members {
        Members(self)
    }
}

/// The partitions of a set that are still to come.
#[derive(Clone, Debug)]
pub(super) struct Members(PartitionSet);

impl Iterator for Members {
    type Item = PartitionId;

    fn next(&mut self) -> Option<PartitionId> {
        let rest = self.0.0;
        let number = u16::try_from(rest.trailing_zeros()).expect("a bit number of 128 fits");
        self.0 = PartitionSet(rest & rest.wrapping_sub(1));
        PartitionId::new(number)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.0.len() as usize;
        (left, Some(left))
    }
}

impl FromIterator<PartitionId> for PartitionSet {
    fn from_iter<I: IntoIterator<Item = PartitionId>>(partitions: I) -> Self {
        let mut set = Self::EMPTY;
        partitions.into_iter().for_each(|partition| set.insert(partition));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_gives_back_what_was_put_in_ascending() {
        let numbers = [127, 0, 64, 63];
        let set: PartitionSet = numbers.into_iter().filter_map(PartitionId::new).collect();
        assert_eq!(set.iter().map(PartitionId::number).collect::<Vec<_>>(), [0, 63, 64, 127]);
        assert_eq!(set.len(), 4);
        assert_eq!(set.last(), PartitionId::new(127));
    }

    #[test]
    fn all_partitions_are_in_the_full_set_and_none_in_the_empty_one() {
        assert!(PartitionSet::ALL.iter().eq(PartitionId::all()));
        assert!(PartitionSet::EMPTY.iter().next().is_none() && PartitionSet::EMPTY.last().is_none());
    }
}
