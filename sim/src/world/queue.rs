//! The event queue: what happens next, and a place for what is under way.
//!
//! Ordered by time; what happens at the same moment is ordered by draws from a stream of its own, so that
//! another order is another seed and nobody relies on one. The heap holds bare numbers and the happenings lie
//! in a slab, which keeps its moves short.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::happening::Happening;
use crate::rng::Stream;
use crate::sim_time::SimTime;

/// What is yet to happen.
#[derive(Debug)]
pub(super) struct EventQueue {
    // Time, tie-break and place in the slab, from the highest bits to the lowest.
    heap: BinaryHeap<Reverse<u128>>,
    happenings: Slab<Happening>,
    tie_break: Stream,
}

impl EventQueue {
    pub(super) fn new(tie_break: Stream) -> Self {
        Self { heap: BinaryHeap::new(), happenings: Slab::default(), tie_break }
    }

    pub(super) fn push(&mut self, at: SimTime, happening: Happening) {
        let place = self.happenings.insert(happening);
        let tie = self.tie_break.word();
        self.heap.push(Reverse(u128::from(at.as_micros()) << 64 | u128::from(tie) << 32 | u128::from(place)));
    }

    pub(super) fn pop(&mut self) -> Option<(SimTime, Happening)> {
        let Reverse(key) = self.heap.pop()?;
        let happening = self.happenings.take(key as u32).expect("every key has its happening");
        Some((SimTime::from_micros((key >> 64) as u64), happening))
    }
}

/// Numbered places that are used again once they are free, the last one freed first.
#[derive(Debug)]
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = Some(item);
                place
            }
            None => {
                self.places.push(Some(item));
                u32::try_from(self.places.len() - 1).expect("fewer than four billion things are under way")
            }
        }
    }

    pub(super) fn take(&mut self, place: u32) -> Option<T> {
        let item = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(item)
    }

    pub(super) fn get(&self, place: u32) -> Option<&T> {
        self.places.get(place as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    /// What is there, with its places, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places.iter().enumerate().filter_map(|(place, item)| Some((place as u32, item.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::StreamKey;

    #[test]
    fn what_is_earlier_happens_earlier_and_ties_are_drawn() {
        let orders: Vec<Vec<u16>> = (0..8)
            .map(|seed| {
                let mut queue = EventQueue::new(StreamKey::of(seed, "tie-break").open());
                for fault in 0..4 {
                    queue.push(SimTime::from_secs(2), Happening::FaultBegins { fault });
                }
                queue.push(SimTime::from_secs(1), Happening::FaultBegins { fault: 9 });
                let mut order = Vec::new();
                while let Some((_, happening)) = queue.pop() {
                    if let Happening::FaultBegins { fault } = happening {
                        order.push(fault);
                    }
                }
                order
            })
            .collect();
        assert!(orders.iter().all(|order| order.len() == 5 && order[0] == 9));
        assert!(orders.iter().any(|order| *order != orders[0]));
    }
}
