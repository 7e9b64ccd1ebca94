//! Promotion: retries that came due, and what waited for a reason, are dispatched (again).
//!
//! Each dispatch is committed with its outbox row and then published from memory, like a first one.

use crate::bug::Bug;
use crate::fact::Fact;
use crate::scheduler::calls::{Call, Concern, Turn, View, count};
use crate::scheduler::outbox::Outbox;
use crate::scheduler::pace::Pace;
use crate::scheduler::partitions::Partitions;
use crate::store::command::{Command, PromoteDue};
use crate::store::reply::Dispatch;
use crate::time::{Monotonic, Timestamp};

#[derive(Debug)]
pub(super) struct Promotion {
    pace: Pace,
}

impl Promotion {
    pub(super) const fn new() -> Self {
        Self { pace: Pace::AT_ONCE }
    }

    pub(super) fn look_at_once(&mut self, turn: &Turn<'_>) {
        self.pace.sooner(turn.now);
    }

    pub(super) fn wakes_at(&self, view: View<'_>, partitions: &Partitions, outbox: &Outbox) -> Monotonic {
        let waits = partitions.trusted().is_empty()
            || view.calls.is_busy(Concern::Promote)
            || !outbox.has_room()
            || view.has(Bug::NeverPromotes);
        if waits { Monotonic::MAX } else { self.pace.at() }
    }

    pub(super) fn advance(&mut self, turn: &mut Turn<'_>, partitions: &Partitions, outbox: &Outbox) {
        if self.wakes_at(turn.view(), partitions, outbox) > turn.now {
            return;
        }
        // Until it is answered; a look asked for meanwhile moves it forward and is not lost.
        self.pace.until_answered(Monotonic::MAX);
        let leases = partitions.trusted_leases();
        let command =
            PromoteDue { node: turn.config.node, leases: leases.clone(), limit: count(turn.view().batch()) };
        turn.call(Call::PromoteDue { leases }, Command::PromoteDue(command));
    }

    pub(super) fn promoted(
        &mut self,
        turn: &mut Turn<'_>,
        outbox: &mut Outbox,
        store_now: Timestamp,
        dispatches: Vec<Dispatch>,
        next_due: Option<Timestamp>,
    ) {
        let is_full = dispatches.len() >= turn.view().batch();
        let next = if is_full {
            turn.now
        } else {
            let known = next_due.map_or(Monotonic::MAX, |at| turn.when(store_now, at));
            turn.on_the_beat(turn.config.poll_every).min(known)
        };
        self.pace.set(next.min(self.pace.at()));
        if !dispatches.is_empty() {
            turn.report(Fact::Promoted { count: count(dispatches.len()) });
            outbox.publish(turn, dispatches, store_now);
        }
    }

    /// Rows that were written all the same are read back from the outbox.
    pub(super) fn unknown(&mut self, turn: &Turn<'_>) {
        let (first, most) = turn.patience();
        self.pace.after_unknown(turn.now, first, most);
    }
}
