//! Renewal: one call per cycle for everything this node holds.
//!
//! It also judges who is wedged: partitions whose jobs have not been scanned, and leadership under which
//! nothing has been swept, for some lease times are left out and given back, to somebody who can work.

use crate::lease::{HeldLease, LeaseResource};
use crate::scheduler::calls::{Call, Concern, Turn, View};
use crate::scheduler::leadership::Leadership;
use crate::scheduler::pace::Pace;
use crate::scheduler::partition_set::PartitionSet;
use crate::scheduler::partitions::Partitions;
use crate::scheduler::release::Release;
use crate::store::command::{Command, RenewLeases};
use crate::time::Monotonic;

#[derive(Debug)]
pub(super) struct Renewal {
    pace: Pace,
}

impl Renewal {
    pub(super) const fn new() -> Self {
        Self { pace: Pace::NEVER }
    }

    pub(super) fn wakes_at(&self, view: View<'_>) -> Monotonic {
        if view.calls.is_busy(Concern::Renew) { Monotonic::MAX } else { self.pace.at() }
    }

    /// Something asked for at `since` was granted: it is renewed with the rest, at the latest a cycle after that.
    pub(super) fn begin(&mut self, turn: &Turn<'_>, since: Monotonic) {
        self.pace.sooner(since.plus(turn.config.cycle_every));
    }

    pub(super) fn advance(
        &mut self,
        turn: &mut Turn<'_>,
        partitions: &mut Partitions,
        leadership: &mut Leadership,
        release: &mut Release,
    ) {
        if self.wakes_at(turn.view()) > turn.now {
            return;
        }
        let patience = turn.config.lease_ttl.times(u64::from(turn.config.wedged_after_ttls));
        partitions.judge(turn, patience);
        leadership.judge(turn, patience);
        partitions.expire(turn, release);
        leadership.expire(turn, release);
        if partitions.owned().is_empty() && leadership.held_lease().is_none() {
            self.pace = Pace::NEVER;
            return;
        }
        self.pace.until_answered(turn.now.plus(turn.config.cycle_every));
        let mut leases = partitions.renewable();
        leases.extend(leadership.renewable());
        if leases.is_empty() {
            return;
        }
        let command =
            RenewLeases { node: turn.config.node, ttl: turn.config.lease_ttl, leases: leases.clone() };
        turn.call(Call::RenewLeases { leases, sent_at: turn.now }, Command::RenewLeases(command));
    }

    pub(super) fn answered(
        &mut self,
        turn: &mut Turn<'_>,
        partitions: &mut Partitions,
        leadership: &mut Leadership,
        renewed: Vec<HeldLease>,
        sent_at: Monotonic,
    ) {
        self.pace.answered();
        let mut renewed_partitions = PartitionSet::EMPTY;
        for lease in renewed {
            match lease.resource {
                LeaseResource::Partition(partition) if partitions.holds(partition, lease.token) => {
                    renewed_partitions.insert(partition);
                }
                LeaseResource::Partition(_) => {}
                LeaseResource::Leadership => leadership.renewed(turn, lease.token, sent_at),
            }
        }
        partitions.renewed(turn, renewed_partitions, sent_at);
    }

    /// Nobody knows whether it was renewed; the trust window runs, so the next try comes soon.
    pub(super) fn unknown(&mut self, turn: &Turn<'_>) {
        self.pace.after_unknown(turn.now, turn.config.resend_after, turn.config.cycle_every);
    }
}
