//! Losses: leases that ended against their holder's will, and writes that were refused, told once per round.
//!
//! Whoever loses one partition usually loses all of them in one go, and a line for each would bury what happened.
//! So they are gathered while one event is dealt with, and told in one line per kind, with a count and one of them
//! as an example. What must stay true: nothing is left untold once the round is over, and a round in which
//! nothing was lost costs next to nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use fencepost_core::fact::LeaseEnd;
use fencepost_core::fencing::FencingToken;
use fencepost_core::lease::LeaseResource;
use fencepost_core::store::row::{RefusedAction, RefusedResource};

/// What was lost since it was last told.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Whether there is anything: so that a round without losses takes no lock.
    any: AtomicBool,
    round: Mutex<Round>,
}

/// What one round brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) ended: BTreeMap<(&'static str, LeaseEnd), Ended>,
    pub(super) refused: BTreeMap<(&'static str, RefusedAction), Refused>,
}

/// Leases of one domain that ended in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) count: u32,
    /// The first of them.
    pub(super) example: (LeaseResource, FencingToken),
}

/// Writes of one kind that were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) count: u32,
    /// The first of them: what it was about, the token presented and the current one.
    pub(super) example: (RefusedResource, FencingToken, FencingToken),
}

impl Losses {
    /// A lease was lost.
    pub(super) fn ended(
        &self,
        domain: &'static str,
        how: LeaseEnd,
        resource: LeaseResource,
        token: FencingToken,
    ) {
        self.note(|round| {
            let first = Ended { count: 0, example: (resource, token) };
            round.ended.entry((domain, how)).or_insert(first).count += 1;
        });
    }

    /// A write was refused.
    pub(super) fn refused(
        &self,
        about: &'static str,
        action: RefusedAction,
        example: (RefusedResource, FencingToken, FencingToken),
    ) {
        self.note(|round| {
            round.refused.entry((about, action)).or_insert(Refused { count: 0, example }).count += 1;
        });
    }

    fn note(&self, add: impl FnOnce(&mut Round)) {
        add(&mut self.round.lock().unwrap_or_else(PoisonError::into_inner));
        self.any.store(true, Ordering::Release);
    }

    /// What there is to tell, if there is anything. It is told once.
    pub(super) fn take(&self) -> Option<Round> {
        let any = self.any.load(Ordering::Relaxed) && self.any.swap(false, Ordering::Acquire);
        any.then(|| core::mem::take(&mut *self.round.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[cfg(test)]
mod tests {
    use fencepost_core::partition::PartitionId;

    use super::*;

    #[test]
    fn however_many_partitions_are_lost_they_are_told_once_and_together() {
        let losses = Losses::default();
        assert_eq!(losses.take(), None);
        let token = FencingToken::from_i64(3);
        for partition in PartitionId::all() {
            losses.ended("partition", LeaseEnd::Untrusted, LeaseResource::Partition(partition), token);
        }
        losses.ended("leadership", LeaseEnd::Refused, LeaseResource::Leadership, token);
        let told = losses.take().expect("there were losses");
        let counts: Vec<_> = told.ended.iter().map(|(kind, ended)| (*kind, ended.count)).collect();
        assert_eq!(
            counts,
            [(("leadership", LeaseEnd::Refused), 1), (("partition", LeaseEnd::Untrusted), 128)]
        );
        assert_eq!(losses.take(), None);
    }

    #[test]
    fn refusals_of_one_kind_are_one_line_with_the_first_as_an_example() {
        let losses = Losses::default();
        let (presented, current) = (FencingToken::from_i64(3), FencingToken::from_i64(4));
        for partition in PartitionId::all().take(5) {
            let resource = RefusedResource::Lease(LeaseResource::Partition(partition));
            losses.refused("partition", RefusedAction::Materialise, (resource, presented, current));
        }
        let told = losses.take().expect("there were losses");
        let refused = told.refused[&("partition", RefusedAction::Materialise)];
        assert_eq!(refused.count, 5);
        let first = PartitionId::all().next().map(LeaseResource::Partition);
        assert_eq!(Some(refused.example.0), first.map(RefusedResource::Lease));
    }
}
