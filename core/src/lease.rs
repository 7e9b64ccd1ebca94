//! Leases: temporary ownership, in three domains that never imply each other.
//!
//! Cluster leadership, each partition and each execution are leased alike: an owner, an expiry on the
//! store's clock and a fencing token. Whether a lease may be granted to another is decided by the store
//! alone ([`may_be_taken`]); whether a node may still act under its own is decided by that node alone,
//! on its own steady clock ([`TrustWindow`]). Trust windows save work; the token alone gives safety.

use core::fmt;
use core::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use crate::fencing::FencingToken;
use crate::id::ExecutionId;
use crate::limits::LEASE_TTL_MAX;
use crate::partition::PartitionId;
use crate::time::{Monotonic, Span, Timestamp};

/// What the lease table holds one row for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseResource {
    /// The schedules of one partition.
    Partition(PartitionId),
    /// The right to reconcile.
    Leadership,
}

impl LeaseResource {
    /// The stored number: partitions 0 to 127, leadership 128.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Partition(partition) => partition.number(),
            Self::Leadership => crate::partition::PARTITION_COUNT,
        }
    }

    /// The resource with this stored number.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        match PartitionId::new(number) {
            Some(partition) => Some(Self::Partition(partition)),
            None if number == crate::partition::PARTITION_COUNT => Some(Self::Leadership),
            None => None,
        }
    }

    /// Every resource, ascending by number.
    pub fn all() -> impl Iterator<Item = Self> {
        PartitionId::all().map(Self::Partition).chain(core::iter::once(Self::Leadership))
    }
}

/// By number. Every renewal looks its rows up, so this is one comparison instead of a walk over the variants.
impl Ord for LeaseResource {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.number().cmp(&other.number())
    }
}

impl PartialOrd for LeaseResource {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// By number, as they are compared.
impl Hash for LeaseResource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number().hash(state);
    }
}

impl fmt::Display for LeaseResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partition(partition) => write!(f, "partition {}", partition.number()),
            Self::Leadership => f.write_str("leadership"),
        }
    }
}

/// A grant that a node holds, as it presents it: this resource, under this token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HeldLease {
    /// What is held.
    pub resource: LeaseResource,
    /// Under which grant.
    pub token: FencingToken,
}

/// One run of one execution: the execution under one execution lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunId {
    /// Which execution.
    pub execution: ExecutionId,
    /// Under which grant.
    pub token: FencingToken,
}

/// Whether a lease that expires at `expires_at` may be granted to another at `now`, both on the store's
/// clock. A lease further ahead than any grant reaches was written before the clock stepped back, and
/// counts as dead: a step must not lengthen a dead owner's lease.
#[must_use]
pub fn may_be_taken(expires_at: Timestamp, now: Timestamp) -> bool {
    expires_at <= now || expires_at > now.plus(LEASE_TTL_MAX)
}

/// The same rule for a stored instant that lies at most `longest` ahead when written: whether waiting
/// for it is over.
#[must_use]
pub fn is_over(at: Timestamp, longest: Span, now: Timestamp) -> bool {
    at <= now || at > now.plus(longest)
}

/// How long a node trusts a lease of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrustWindow {
    /// Until `sent_at + ttl − margin`, then it stays silent.
    Margin(Span),
    /// For ever. Only for tests that want to see the token refuse what the window would have held back.
    Off,
}

impl TrustWindow {
    /// Until when a lease requested at `sent_at` for `ttl` is trusted.
    #[must_use]
    pub fn trusted_until(self, sent_at: Monotonic, ttl: Span) -> Monotonic {
        match self {
            Self::Margin(margin) => sent_at.plus(ttl.minus(margin)),
            Self::Off => Monotonic::MAX,
        }
    }
}
