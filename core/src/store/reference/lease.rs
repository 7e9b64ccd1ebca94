//! Leadership and partitions: granted by expiry, kept by owner and token.
//!
//! A grant raises the token by one; nothing else touches it. Where the numbers are used up, nothing is
//! granted. The same request again is answered with the same grant while that lasts, not extended; once it
//! lapsed or was released, the request counts as a new one and is granted under the next token.

use crate::bug::Bug;
use crate::fencing::FencingToken;
use crate::id::{EffectId, NodeId};
use crate::lease::{HeldLease, LeaseResource, may_be_taken};
use crate::mark::{self, Mark};
use crate::partition::PartitionId;
use crate::store::command::{AcquireLeadership, AcquirePartitions, ReleaseLeases, RenewLeases};
use crate::store::reference::{Call, Picked};
use crate::store::reply::{HoldReply, LeadershipReply};
use crate::store::row::{LeaseRow, RefusedAction, RefusedResource};
use crate::time::{Span, Timestamp};

/// After how much silence the bug of that name takes a partition from its owner.
const SILENCE: Span = Span::from_secs(5);

impl Call<'_> {
    /// Whether the row is held under this very request.
    fn is_repeated(&self, row: &LeaseRow, node: NodeId, nonce: EffectId) -> bool {
        row.owner == Some(node) && row.nonce == nonce && !may_be_taken(row.expires_at, self.now)
    }

    /// Whether the row may be granted: no owner, or one whose time is over.
    fn is_free(&self, row: &LeaseRow) -> bool {
        let Some(owner) = row.owner else { return true };
        let over = may_be_taken(row.expires_at, self.now) && !self.bugs.has(Bug::ExpiredLeasesStayHeld);
        over || (self.bugs.has(Bug::PartitionGrantIgnoresExpiry) && row.resource != LeaseResource::Leadership)
            || (self.bugs.has(Bug::SilentOwnerLosesPartition) && self.is_silent(owner, SILENCE))
    }

    /// Whether a node's latest report is this old, or missing. For deliberate bugs alone.
    pub(super) fn is_silent(&self, node: NodeId, silence: Span) -> bool {
        self.tables.nodes.get(&node).is_none_or(|row| row.seen_at.plus(silence) <= self.now)
    }

    /// Grants a free row; `None` where its token cannot rise.
    fn grant(
        &mut self,
        resource: LeaseResource,
        node: NodeId,
        nonce: EffectId,
        ttl: Span,
    ) -> Option<FencingToken> {
        let row = self.tables.lease(resource);
        let token = match row.token.next()? {
            _ if self.bugs.has(Bug::LeaseGrantKeepsToken) && row.token != FencingToken::NEVER => row.token,
            next => next,
        };
        if row.owner.is_some_and(|owner| owner != node) {
            mark::hit(Mark::LeaseTakenOver);
        }
        let expires_at = self.now.plus(ttl);
        self.tables
            .leases
            .put(LeaseRow { resource, token, owner: Some(node), nonce, expires_at }, self.changes);
        Some(token)
    }

    /// What the bug of that name does to a repeated request.
    fn extend(&mut self, resource: LeaseResource, ttl: Span) {
        if self.bugs.has(Bug::RepeatedAcquireExtends) {
            let expires_at = self.now.plus(ttl);
            let row = LeaseRow { expires_at, ..self.tables.lease(resource).clone() };
            self.tables.leases.put(row, self.changes);
        }
    }

    /// Leadership is denied with the expiry of whoever holds it.
    pub(super) fn acquire_leadership(&mut self, ask: &AcquireLeadership) -> LeadershipReply {
        let row = self.tables.lease(LeaseResource::Leadership);
        let (token, expires_at) = (row.token, row.expires_at);
        if self.is_repeated(row, ask.node, ask.nonce) {
            mark::hit(Mark::LeaseGrantRepeated);
            self.extend(LeaseResource::Leadership, ask.ttl);
            return LeadershipReply::Granted { token };
        }
        if !self.is_free(row) {
            return LeadershipReply::Held { expires_at };
        }
        match self.grant(LeaseResource::Leadership, ask.node, ask.nonce, ask.ttl) {
            Some(token) => LeadershipReply::Granted { token },
            None => LeadershipReply::Held { expires_at },
        }
    }

    /// A partition whose token cannot rise is passed over and does not count towards the limit.
    pub(super) fn acquire_partitions(&mut self, ask: &AcquirePartitions) -> Vec<HeldLease> {
        let repeated: Vec<HeldLease> = PartitionId::all()
            .map(LeaseResource::Partition)
            .map(|resource| self.tables.lease(resource))
            .filter(|row| self.is_repeated(row, ask.node, ask.nonce))
            .map(|row| HeldLease { resource: row.resource, token: row.token })
            .collect();
        if !repeated.is_empty() {
            mark::hit(Mark::LeaseGrantRepeated);
            for held in &repeated {
                self.extend(held.resource, ask.ttl);
            }
            return repeated;
        }
        let limit = ask.limit as usize;
        let mut granted = Vec::new();
        for partition in PartitionId::all() {
            if granted.len() == limit {
                break;
            }
            let resource = LeaseResource::Partition(partition);
            let is_chosen = self.choice.allows(Picked::Partition(partition));
            if !is_chosen || !self.is_free(self.tables.lease(resource)) {
                continue;
            }
            if let Some(token) = self.grant(resource, ask.node, ask.nonce, ask.ttl) {
                granted.push(HeldLease { resource, token });
            }
        }
        granted
    }

    /// Whether `node` holds this lease under the token that it presents, lapsed or not; else the current
    /// token.
    pub(super) fn guard(&self, node: NodeId, held: HeldLease) -> Result<(), FencingToken> {
        let row = self.tables.lease(held.resource);
        if row.owner == Some(node) && row.token == held.token { Ok(()) } else { Err(row.token) }
    }

    /// [`Self::guard`], with the refusal recorded.
    pub(super) fn guard_recorded(
        &mut self,
        node: NodeId,
        held: HeldLease,
        action: RefusedAction,
    ) -> Result<(), FencingToken> {
        self.guard(node, held).inspect_err(|current| {
            self.refuse(RefusedResource::Lease(held.resource), held.token, node, action, *current);
        })
    }

    /// Whatever stands in the row, a renewal ends `ttl` from now: it may shorten a lease.
    pub(super) fn renew_leases(&mut self, ask: &RenewLeases) -> Vec<HoldReply> {
        let expires_at = self.now.plus(ask.ttl);
        let renew = |held: &HeldLease| match self.guard_recorded(ask.node, *held, RefusedAction::RenewLease) {
            Ok(()) => {
                let row = self.tables.lease(held.resource);
                if may_be_taken(row.expires_at, self.now) {
                    mark::hit(Mark::LeaseRenewedAfterLapse);
                }
                self.tables.leases.extend(held.resource, expires_at, self.changes);
                HoldReply::Done
            }
            Err(current) => {
                mark::hit(Mark::LeaseRenewRefused);
                HoldReply::Refused { current }
            }
        };
        ask.leases.iter().map(renew).collect()
    }

    /// What nobody holds and was last granted under the token presented has been released already, and the
    /// release is done.
    pub(super) fn release_leases(&mut self, ask: &ReleaseLeases) -> Vec<HoldReply> {
        let release = |held: &HeldLease| {
            let row = self.tables.lease(held.resource);
            if row.token == held.token && row.owner.is_none() {
                return HoldReply::Done;
            }
            match self.guard(ask.node, *held) {
                Ok(()) => {
                    let row = LeaseRow { owner: None, expires_at: Timestamp::EPOCH, ..row.clone() };
                    self.tables.leases.put(row, self.changes);
                    HoldReply::Done
                }
                Err(current) => HoldReply::Refused { current },
            }
        };
        ask.leases.iter().map(release).collect()
    }
}
