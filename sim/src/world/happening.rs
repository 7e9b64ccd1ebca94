//! What can happen in a world: everything that the event queue holds.

use fencepost_core::event::Delivery;
use fencepost_core::id::EffectId;
use fencepost_core::partition::PartitionId;

use super::broker::Body;
use super::store_calls::Caller;
use crate::plan::NodeSlot;

/// A process, from one start to its end: what is meant for an earlier one is lost on a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) slot: NodeSlot,
    pub(super) incarnation: u32,
}

/// One run of a handler, and which of all the runs that were ever in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunRef {
    pub(super) place: u32,
    pub(super) serial: u32,
}

#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// A process's timer.
    Wake {
        life: Life,
    },
    /// A process that stood still goes on.
    Resume {
        life: Life,
    },
    /// A process starts.
    Start {
        life: Life,
    },
    /// A process dies.
    Die {
        life: Life,
    },

    /// A process that was asked to drain is to be gone.
    DrainDue {
        life: Life,
    },

    /// A request reaches the store.
    StoreArrives {
        call: u32,
    },
    /// A reply reaches its caller.
    StoreAnswers {
        call: u32,
    },
    /// A caller gives up on a reply.
    StoreSilent {
        caller: Caller,
    },

    /// A publication reaches the broker.
    PublishArrives {
        publication: u32,
    },
    /// Its outcome reaches the publisher.
    PublishAnswers {
        publication: u32,
    },
    /// A publisher gives up on an outcome.
    PublishSilent {
        life: Life,
        effect: EffectId,
        count: usize,
    },
    /// A delivery reaches its consumer.
    Delivery {
        life: Life,
        delivery: Delivery,
        body: Body,
    },
    /// An acknowledgement reaches the broker.
    AckArrives {
        life: Life,
        delivery: Delivery,
    },
    /// A consumer registers with the broker.
    ConsumerOpens {
        life: Life,
        epoch: u64,
    },
    /// The broker finds a consumer gone.
    ConsumerCloses {
        life: Life,
        epoch: u64,
    },
    /// A node finds its consumer gone.
    ConsumerDies {
        life: Life,
        epoch: u64,
    },
    /// The broker looks for deliveries that are unacknowledged for too long.
    ConsumerTimeoutCheck {
        fault: u16,
    },

    /// A handler calls what it calls.
    HandlerActs {
        run: RunRef,
    },
    /// That call arrives.
    EffectArrives {
        effect: u32,
    },
    /// A handler ends.
    HandlerEnds {
        run: RunRef,
    },

    /// An operator begins.
    OperatorActs {
        action: u16,
    },
    /// An operator tries again.
    OperatorTries {
        task: u16,
    },
    /// A scheduler hears that something was committed.
    Notify {
        life: Life,
        partition: PartitionId,
    },

    FaultBegins {
        fault: u16,
    },
    FaultEnds {
        fault: u16,
    },
    /// Everything heals.
    Heal,
    /// Is everything as it should be?
    Look,
}
