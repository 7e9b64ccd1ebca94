//! The calls under way: at most one per concern, each with what its outcome will be read by.
//!
//! Every store effect gets an id of its own, and its outcome comes back once, however late. One that no call
//! waits for is ignored. While a concern's call is under way the next batch accumulates, so nothing on the
//! hot path is one round trip per item.

use std::collections::VecDeque;

use crate::bug::Bug;
use crate::config::SchedulerConfig;
use crate::effect::SchedulerEffect;
use crate::execution::WaitReason;
use crate::fact::Fact;
use crate::id::EffectId;
use crate::lease::{HeldLease, LeaseResource};
use crate::limits::BATCH_MAX;
use crate::partition::PartitionId;
use crate::scheduler::outbox::Confirmed;
use crate::scheduler::partition_set::PartitionSet;
use crate::scheduler::plan::PlannedJob;
use crate::store::command::{Command, OutboxId, RepairItem};
use crate::store::reply::Reply;
use crate::store::row::NodeState;
use crate::time::{Monotonic, Span, Timestamp};

/// What at most one call is under way for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concern {
    Heartbeat,
    Leadership,
    Acquire,
    Renew,
    Release,
    ScanDue,
    Materialise,
    PutOff,
    Promote,
    ScanOutbox,
    Remove,
    Return,
    Sweep,
    Repair,
}

impl Concern {
    const COUNT: usize = Self::Repair as usize + 1;
}

/// An acquisition, kept until it is answered: sent again under the same nonce it gets the same grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) nonce: EffectId,
    /// When it was first sent: a grant is trusted from there, whichever sending it answers.
    pub(super) since: Monotonic,
    /// How many partitions; 1 for leadership.
    pub(super) limit: u32,
}

/// What a scan of due jobs is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanPurpose {
    /// To plan what is found.
    Plan,
    /// To learn whether scans succeed again.
    Probe,
}

/// A call under way.
#[derive(Debug)]
pub(super) enum Call {
    Heartbeat(NodeState),
    AcquireLeadership(Ask),
    AcquirePartitions(Ask),
    RenewLeases { leases: Vec<HeldLease>, sent_at: Monotonic },
    ReleaseLeases { leases: Vec<HeldLease> },
    ScanDueJobs(ScanPurpose),
    Materialise { leases: Vec<HeldLease>, jobs: Vec<PlannedJob> },
    PutOffJobs { leases: Vec<HeldLease>, partitions: Vec<PartitionId> },
    PromoteDue { leases: Vec<HeldLease> },
    ScanOutbox,
    RemoveOutbox { rows: Vec<Confirmed> },
    ReturnOutbox { rows: Vec<(OutboxId, WaitReason)> },
    ScanSweep,
    Repair { leadership: HeldLease, items: Vec<RepairItem> },
}

impl Call {
    const fn concern(&self) -> Concern {
        match self {
            Self::Heartbeat(_) => Concern::Heartbeat,
            Self::AcquireLeadership(_) => Concern::Leadership,
            Self::AcquirePartitions(_) => Concern::Acquire,
            Self::RenewLeases { .. } => Concern::Renew,
            Self::ReleaseLeases { .. } => Concern::Release,
            Self::ScanDueJobs(_) => Concern::ScanDue,
            Self::Materialise { .. } => Concern::Materialise,
            Self::PutOffJobs { .. } => Concern::PutOff,
            Self::PromoteDue { .. } => Concern::Promote,
            Self::ScanOutbox => Concern::ScanOutbox,
            Self::RemoveOutbox { .. } => Concern::Remove,
            Self::ReturnOutbox { .. } => Concern::Return,
            Self::ScanSweep => Concern::Sweep,
            Self::Repair { .. } => Concern::Repair,
        }
    }

    /// Whether a reply is of the kind that answers this call.
    pub(super) const fn is_answered_by(&self, reply: &Reply) -> bool {
        match self {
            Self::Heartbeat(_) => matches!(reply, Reply::Heartbeat { .. }),
            Self::AcquireLeadership(_) => matches!(reply, Reply::Leadership(_)),
            Self::AcquirePartitions(_) => matches!(reply, Reply::Partitions { .. }),
            Self::RenewLeases { .. } => matches!(reply, Reply::LeasesRenewed(_)),
            Self::ReleaseLeases { .. } => matches!(reply, Reply::LeasesReleased(_)),
            Self::ScanDueJobs(_) => matches!(reply, Reply::DueJobs { .. }),
            Self::Materialise { .. } => matches!(reply, Reply::Materialised(_)),
            Self::PutOffJobs { .. } => matches!(reply, Reply::JobsPutOff(_)),
            Self::PromoteDue { .. } => matches!(reply, Reply::Promoted { .. }),
            Self::ScanOutbox => matches!(reply, Reply::Outbox { .. }),
            Self::RemoveOutbox { .. } => matches!(reply, Reply::OutboxRemoved(_)),
            Self::ReturnOutbox { .. } => matches!(reply, Reply::OutboxReturned(_)),
            Self::ScanSweep => matches!(reply, Reply::Sweep(_)),
            Self::Repair { .. } => matches!(reply, Reply::Repaired(_)),
        }
    }

    /// The leases it was sent under.
    fn presented(&self) -> &[HeldLease] {
        match self {
            Self::RenewLeases { leases, .. }
            | Self::Materialise { leases, .. }
            | Self::PutOffJobs { leases, .. }
            | Self::PromoteDue { leases } => leases,
            Self::Repair { leadership, .. } => core::slice::from_ref(leadership),
            Self::Heartbeat(_)
            | Self::AcquireLeadership(_)
            | Self::AcquirePartitions(_)
            | Self::ReleaseLeases { .. }
            | Self::ScanDueJobs(_)
            | Self::ScanOutbox
            | Self::RemoveOutbox { .. }
            | Self::ReturnOutbox { .. }
            | Self::ScanSweep => &[],
        }
    }
}

/// The calls under way, and the effects that wait to be carried out.
#[derive(Debug)]
pub(super) struct Calls {
    last_id: u64,
    slots: [Option<(EffectId, Call)>; Concern::COUNT],
    effects: VecDeque<SchedulerEffect>,
}

impl Calls {
    pub(super) fn new() -> Self {
        Self { last_id: 0, slots: [const { None }; Concern::COUNT], effects: VecDeque::new() }
    }

    pub(super) const fn is_busy(&self, concern: Concern) -> bool {
        self.slots[concern as usize].is_some()
    }

    pub(super) fn under_way(&self, concern: Concern) -> Option<&Call> {
        self.slots[concern as usize].as_ref().map(|(_, call)| call)
    }

    /// Whether nothing but liveness reports is under way.
    pub(super) fn is_quiet(&self) -> bool {
        let reports = |call: &Call| call.concern() == Concern::Heartbeat;
        self.slots.iter().flatten().all(|(_, call)| reports(call))
    }

    /// The call that this outcome is of; `None` if none waits for it.
    pub(super) fn finish(&mut self, effect: EffectId) -> Option<Call> {
        let waits = |slot: &&mut Option<(EffectId, Call)>| slot.as_ref().is_some_and(|(id, _)| *id == effect);
        self.slots.iter_mut().find(waits)?.take().map(|(_, call)| call)
    }

    /// What the calls under way act under: a release must not overtake them.
    pub(super) fn presented(&self) -> Presented {
        let mut presented = Presented { partitions: PartitionSet::EMPTY, leadership: Leadership::Free };
        for lease in self.slots.iter().flatten().flat_map(|(_, call)| call.presented()) {
            match lease.resource {
                LeaseResource::Partition(partition) => presented.partitions.insert(partition),
                LeaseResource::Leadership => presented.leadership = Leadership::Presented,
            }
        }
        presented
    }

    pub(super) const fn next_id(&mut self) -> EffectId {
        self.last_id += 1;
        EffectId(self.last_id)
    }

    pub(super) fn push(&mut self, effect: SchedulerEffect) {
        self.effects.push_back(effect);
    }

    pub(super) fn poll(&mut self) -> Option<SchedulerEffect> {
        self.effects.pop_front()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leadership {
    Free,
    Presented,
}

/// The resources that calls under way act under.
#[derive(Clone, Copy, Debug)]
pub(super) struct Presented {
    partitions: PartitionSet,
    leadership: Leadership,
}

impl Presented {
    pub(super) fn contains(self, resource: LeaseResource) -> bool {
        match resource {
            LeaseResource::Partition(partition) => self.partitions.contains(partition),
            LeaseResource::Leadership => self.leadership == Leadership::Presented,
        }
    }
}

/// What can be seen between turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) config: &'a SchedulerConfig,
    pub(super) calls: &'a Calls,
}

impl View<'_> {
    pub(super) fn has(self, bug: Bug) -> bool {
        self.config.bugs.has(bug)
    }

    /// Items in one command at most.
    pub(super) fn batch(self) -> usize {
        (self.config.batch as usize).clamp(1, BATCH_MAX)
    }
}

/// How many things a batch holds.
pub(super) fn count(things: usize) -> u32 {
    u32::try_from(things).expect("batches are bounded far below four thousand million")
}

/// One turn of the role: what every concern works with while one event is handled.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) now: Monotonic,
    pub(super) config: &'a SchedulerConfig,
    pub(super) calls: &'a mut Calls,
}

impl Turn<'_> {
    pub(super) fn view(&self) -> View<'_> {
        View { config: self.config, calls: self.calls }
    }

    /// Calls the store.
    pub(super) fn call(&mut self, call: Call, command: Command) {
        let id = self.calls.next_id();
        self.call_as(id, call, command);
    }

    /// Calls the store under an id that was taken before, because the command names it.
    pub(super) fn call_as(&mut self, id: EffectId, call: Call, command: Command) {
        let slot = &mut self.calls.slots[call.concern() as usize];
        debug_assert!(slot.is_none(), "one call per concern: {call:?}");
        *slot = Some((id, call));
        self.calls.push(SchedulerEffect::Store { id, command });
    }

    pub(super) fn report(&mut self, fact: Fact) {
        self.calls.push(SchedulerEffect::Report(fact));
    }

    pub(super) fn has(&self, bug: Bug) -> bool {
        self.config.bugs.has(bug)
    }

    /// The first pause after an unknown outcome, and the longest.
    pub(super) const fn patience(&self) -> (Span, Span) {
        (self.config.resend_after, self.config.poll_every)
    }

    /// `span` from now, give or take half a beat: the beat is shared by what this node does again and again, so that
    /// what is due at about the same time is due at the same time, and one wake-up serves it all.
    pub(super) fn on_the_beat(&self, span: Span) -> Monotonic {
        self.config.on_the_beat(self.now, span)
    }

    /// When a known instant of the store's clock comes, given what it read when its reply arrived just now. Not
    /// earlier than a moment from now: a clock that crawls must not make a loop that runs.
    pub(super) fn when(&self, store_now: Timestamp, at: Timestamp) -> Monotonic {
        const LEAST: Span = Span::from_millis(1);
        self.now.plus(at.since(store_now).max(LEAST))
    }
}
