//! What came of a store call, and which concern takes it in.
//!
//! An outcome is read by the call that it is of: nothing else says what was asked. One that comes too late,
//! from a call that counts as unknown already, is ignored. A refusal for authority that has passed on ends
//! that lease here, whichever call it came back from.

use crate::fact::Fact;
use crate::fencing::FencingToken;
use crate::id::EffectId;
use crate::lease::{HeldLease, LeaseResource};
use crate::scheduler::Scheduler;
use crate::scheduler::calls::{Ask, Call, Turn};
use crate::scheduler::drain::Phase;
use crate::scheduler::partition_set::PartitionSet;
use crate::scheduler::reconcile::Reconciler;
use crate::store::StoreOutcome;
use crate::store::reply::{HoldReply, LeadershipReply, RepairReply, Reply, StoreReply};
use crate::store::row::{NodeState, RefusedAction, RefusedResource};
use crate::time::{Monotonic, Timestamp};

impl Scheduler {
    pub(super) fn store_replied(&mut self, effect: EffectId, outcome: StoreOutcome) {
        // An outcome that nothing waits for any more is news from the past.
        let Some(call) = self.calls.finish(effect) else { return };
        match outcome {
            StoreOutcome::Replied(StoreReply { now, reply }) if call.is_answered_by(&reply) => {
                self.answered(call, now, reply);
            }
            StoreOutcome::Replied(reply) => {
                debug_assert!(false, "{call:?} is not answered by {reply:?}");
                self.unknown(call);
            }
            StoreOutcome::Unknown => self.unknown(call),
        }
    }

    fn unknown(&mut self, call: Call) {
        let turn = &mut turn!(self);
        turn.report(Fact::StoreUnknown);
        match call {
            Call::Heartbeat(_) => self.membership.unknown(turn),
            Call::AcquireLeadership(ask) => self.leadership.unknown(turn, ask),
            Call::AcquirePartitions(ask) => self.partitions.unknown(turn, ask),
            Call::RenewLeases { .. } => self.renewal.unknown(turn),
            Call::ReleaseLeases { leases } => self.release.unknown(turn, leases),
            Call::ScanDueJobs(_) => self.materialiser.scan_unknown(turn),
            Call::Materialise { .. } | Call::PutOffJobs { .. } => self.materialiser.write_unknown(turn),
            Call::PromoteDue { .. } => self.promotion.unknown(turn),
            Call::ScanOutbox => self.outbox.read_back_unknown(turn),
            Call::RemoveOutbox { rows } => self.outbox.removal_unknown(turn, rows),
            Call::ReturnOutbox { rows } => self.outbox.return_unknown(turn, rows),
            Call::ScanSweep | Call::Repair { .. } => self.reconciler.unknown(turn),
        }
    }

    /// Takes in a reply, which is of the call's own kind.
    fn answered(&mut self, call: Call, store_now: Timestamp, reply: Reply) {
        let before = self.partitions.trusted();
        let turn = &mut turn!(self);
        match call {
            Call::Heartbeat(state) => {
                let Reply::Heartbeat { schedulers } = reply else { return };
                self.membership.answered(turn, &schedulers);
                if let (NodeState::Offline, Phase::Draining { .. }) = (state, self.phase) {
                    self.end();
                }
            }
            Call::AcquireLeadership(ask) => {
                let Reply::Leadership(reply) = reply else { return };
                self.leadership_answered(ask, store_now, reply);
            }
            Call::AcquirePartitions(ask) => {
                let Reply::Partitions { granted } = reply else { return };
                self.partitions_granted(ask, granted);
            }
            Call::RenewLeases { leases, sent_at } => {
                let Reply::LeasesRenewed(replies) = reply else { return };
                self.leases_renewed(&leases, sent_at, replies);
            }
            Call::ReleaseLeases { .. } => self.release.answered(),
            Call::ScanDueJobs(purpose) => {
                let Reply::DueJobs { jobs, next_due } = reply else { return };
                self.partitions.health.works(self.now);
                if self.phase == Phase::Active {
                    self.materialiser.scanned(turn, purpose, store_now, jobs, next_due);
                }
            }
            Call::Materialise { leases, jobs } => {
                let Reply::Materialised(replies) = reply else { return };
                let sent = (leases.as_slice(), jobs.as_slice());
                let stale = self.materialiser.written(turn, &mut self.outbox, store_now, sent, replies);
                self.refused(RefusedAction::Materialise, stale);
            }
            Call::PutOffJobs { leases, partitions } => {
                let Reply::JobsPutOff(replies) = reply else { return };
                let sent = (leases.as_slice(), partitions.as_slice());
                let stale = self.materialiser.jobs_put_off(turn, sent, &replies);
                self.refused(RefusedAction::Materialise, stale);
            }
            Call::PromoteDue { .. } => {
                let Reply::Promoted { dispatches, refused, next_due } = reply else { return };
                self.promotion.promoted(turn, &mut self.outbox, store_now, dispatches, next_due);
                self.refused(RefusedAction::Promote, refused);
            }
            Call::ScanOutbox => {
                let Reply::Outbox { dispatches, next_due } = reply else { return };
                self.outbox.was_read_back(turn, store_now, dispatches, next_due);
            }
            Call::RemoveOutbox { .. } => self.outbox.removed(),
            Call::ReturnOutbox { .. } => self.outbox.given_back(),
            Call::ScanSweep => {
                let Reply::Sweep(found) = reply else { return };
                self.leadership.health.works(self.now);
                self.reconciler.swept(turn, &self.leadership, &found);
            }
            Call::Repair { leadership, items } => {
                let Reply::Repaired(reply) = reply else { return };
                match reply {
                    RepairReply::Applied(replies) => Reconciler::repaired(turn, &items, &replies),
                    RepairReply::StaleLeadership { current } => {
                        self.refused(RefusedAction::Repair, [(leadership, current)]);
                    }
                }
            }
        }
        self.look_at_what_is_new(before);
    }

    fn leadership_answered(&mut self, ask: Ask, store_now: Timestamp, reply: LeadershipReply) {
        let turn = &mut turn!(self);
        match reply {
            LeadershipReply::Granted { token } if self.phase == Phase::Active => {
                self.leadership.granted(turn, ask, token);
                self.renewal.begin(turn, ask.since);
                self.reconciler.look_at_once(turn);
            }
            LeadershipReply::Granted { token } => {
                self.release.add(HeldLease { resource: LeaseResource::Leadership, token });
            }
            LeadershipReply::Held { expires_at } => {
                self.leadership.refused_for_now(turn, store_now, expires_at);
            }
        }
    }

    fn partitions_granted(&mut self, ask: Ask, granted: Vec<HeldLease>) {
        let turn = &mut turn!(self);
        if self.phase == Phase::Active {
            self.partitions.granted(turn, ask, &granted);
            self.renewal.begin(turn, ask.since);
        } else {
            granted.into_iter().for_each(|lease| self.release.add(lease));
        }
    }

    fn leases_renewed(&mut self, leases: &[HeldLease], sent_at: Monotonic, replies: Vec<HoldReply>) {
        let mut done = Vec::with_capacity(leases.len());
        let mut refused = Vec::new();
        for (lease, reply) in leases.iter().zip(replies) {
            match reply {
                HoldReply::Done => done.push(*lease),
                HoldReply::Refused { current } => refused.push((*lease, current)),
            }
        }
        let turn = &mut turn!(self);
        self.renewal.answered(turn, &mut self.partitions, &mut self.leadership, done, sent_at);
        self.refused(RefusedAction::RenewLease, refused);
    }

    /// The store says that these leases are others' by now: tells, and drops them at once.
    fn refused(&mut self, action: RefusedAction, stale: impl IntoIterator<Item = (HeldLease, FencingToken)>) {
        let turn = &mut turn!(self);
        for (lease, current) in stale {
            let HeldLease { resource, token } = lease;
            turn.report(Fact::WriteRefused {
                resource: RefusedResource::Lease(resource),
                action,
                presented: token,
                current,
            });
            match resource {
                LeaseResource::Partition(partition) => self.partitions.lost(turn, partition, token),
                LeaseResource::Leadership => self.leadership.lost(turn, token),
            }
        }
    }

    /// Partitions that were not acted for before may hold anything: due jobs, retries, outbox rows.
    fn look_at_what_is_new(&mut self, before: PartitionSet) {
        if !self.partitions.trusted().minus(before).is_empty() {
            let turn = &turn!(self);
            self.materialiser.look_at_once(turn);
            self.promotion.look_at_once(turn);
            self.outbox.look_at_once(turn);
        }
    }
}
