//! What comes due, by partition: the index behind every scan that a partition's owner makes.
//!
//! Each partition has an ordered set of (instant, key). A scan over some partitions merges their sets, so
//! it reads what it returns and one entry more per partition, however much belongs to others or comes later.

use core::cmp::Reverse;
use core::ops::Bound;
use std::collections::{BTreeSet, BinaryHeap};

use crate::id::{DispatchNo, ExecutionId, JobId};
use crate::partition::{PARTITION_COUNT, PartitionId};
use crate::store::command::OutboxId;
use crate::time::Timestamp;

/// A key with a least value, where an instant's entries begin.
pub(in crate::store) trait Least: Ord + Copy {
    /// No key is less than this one.
    const LEAST: Self;
}

impl Least for JobId {
    const LEAST: Self = Self::from_u128(0);
}

impl Least for ExecutionId {
    const LEAST: Self = Self::from_u128(0);
}

impl Least for OutboxId {
    const LEAST: Self = Self { execution: ExecutionId::LEAST, dispatch_no: DispatchNo(0) };
}

/// An entry: whose, when, what.
pub(super) type Entry<Key> = (PartitionId, Timestamp, Key);

/// Ordered sets of (instant, key), one per partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct DueIndex<Key> {
    sets: Vec<BTreeSet<(Timestamp, Key)>>,
}

impl<Key> Default for DueIndex<Key> {
    fn default() -> Self {
        Self { sets: (0..PARTITION_COUNT).map(|_| BTreeSet::new()).collect() }
    }
}

impl<Key: Least> DueIndex<Key> {
    /// Takes a row's entry from where it was to where it is.
    pub(super) fn shift(&mut self, before: Option<Entry<Key>>, after: Option<Entry<Key>>) {
        if before == after {
            return;
        }
        if let Some((partition, at, key)) = before {
            self.sets[usize::from(partition.number())].remove(&(at, key));
        }
        if let Some((partition, at, key)) = after {
            self.sets[usize::from(partition.number())].insert((at, key));
        }
    }

    /// The entries of these partitions up to `now`, by (instant, key), those after `after` alone.
    pub(in crate::store) fn due(
        &self,
        partitions: impl IntoIterator<Item = PartitionId>,
        after: Option<(Timestamp, Key)>,
        now: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, Key)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.merged(partitions, from, now)
    }

    /// The entries of these partitions later than `now`, by (instant, key).
    pub(in crate::store) fn later(
        &self,
        partitions: impl IntoIterator<Item = PartitionId>,
        now: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, Key)> {
        let nothing_is_later = now == Timestamp::MAX;
        let from = Bound::Included((now.next(), Key::LEAST));
        self.merged(partitions, from, Timestamp::MAX).take_while(move |_| !nothing_is_later)
    }

    /// The first instant later than `now` in these partitions.
    pub(in crate::store) fn next_after(
        &self,
        partitions: impl IntoIterator<Item = PartitionId>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let next = |partition: PartitionId| {
            let set = &self.sets[usize::from(partition.number())];
            let (first, _) = set.first()?;
            if *first > now {
                return Some(*first);
            }
            let (at, _) = set.range((now.next(), Key::LEAST)..).next()?;
            (*at > now).then_some(*at)
        };
        partitions.into_iter().filter_map(next).min()
    }

    /// The entries of these partitions from `from` to the instant `until`, in one order.
    fn merged(
        &self,
        partitions: impl IntoIterator<Item = PartitionId>,
        from: Bound<(Timestamp, Key)>,
        until: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, Key)> {
        let mut tails = Vec::new();
        let mut heads = BinaryHeap::new();
        for partition in partitions {
            let set = &self.sets[usize::from(partition.number())];
            // Mostly nothing is due in a partition, and its first entry says so.
            if set.first().is_none_or(|(at, _)| *at > until) {
                continue;
            }
            let mut tail =
                set.range((from, Bound::Unbounded)).copied().take_while(move |(at, _)| *at <= until);
            if let Some(head) = tail.next() {
                heads.push(Reverse((head, tails.len())));
                tails.push(tail);
            }
        }
        core::iter::from_fn(move || {
            let Reverse((head, from)) = heads.pop()?;
            if let Some(next) = tails[from].next() {
                heads.push(Reverse((next, from)));
            }
            Some(head)
        })
    }
}
