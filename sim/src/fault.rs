//! The fault catalogue as data: every kind of fault that a plan may hold, and what its parameters mean.
//!
//! A fault is counted when it really happened (a message was lost, a process was killed), not when it was
//! planned. `fencepost-sim faults` prints this list.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Where a fault acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultGroup {
    /// On a scheduler's or worker's process.
    Process,
    /// Between a node and the store.
    NodeStore,
    /// Between a node and the broker.
    NodeBroker,
    /// In the store.
    Store,
    /// In the broker.
    Broker,
    /// On a clock.
    Clock,
    /// In a handler.
    Handler,
    /// In a system that handlers call.
    Outside,
    /// By an operator.
    Operator,
    /// In what is stored or sent.
    Data,
}

impl FaultGroup {
    /// All groups, in the order of the catalogue.
    pub const ALL: [Self; 10] = [
        Self::Process,
        Self::NodeStore,
        Self::NodeBroker,
        Self::Store,
        Self::Broker,
        Self::Clock,
        Self::Handler,
        Self::Outside,
        Self::Operator,
        Self::Data,
    ];

    /// Its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::NodeStore => "node-store link",
            Self::NodeBroker => "node-broker link",
            Self::Store => "store",
            Self::Broker => "broker",
            Self::Clock => "clock",
            Self::Handler => "handler",
            Self::Outside => "outside",
            Self::Operator => "operator",
            Self::Data => "data",
        }
    }
}

macro_rules! faults {
    ($($group:ident { $($variant:ident = $text:literal: $doc:literal,)+ })+) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum FaultKind { $($(#[doc = $doc] #[serde(rename = $text)] $variant,)+)+ }

        impl FaultKind {
            /// All kinds, in the order of the catalogue.
            pub const ALL: &'static [Self] = &[$($(Self::$variant,)+)+];

            /// The name in plans and reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($(Self::$variant => $text,)+)+ }
            }

            /// What it does, and what its parameters mean.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $($(Self::$variant => $doc,)+)+ }
            }

            /// Where it acts.
            #[must_use]
            pub const fn group(self) -> FaultGroup {
                match self { $($(Self::$variant => FaultGroup::$group,)+)+ }
            }
        }
    };
}

faults! {
    Process {
        Pause = "pause": "The process stands still for `lasts`, between two events; its clock runs on.",
        PauseBeforeSend = "pause-before-send":
            "The process stands still for `lasts` after deciding on its `count`-th effect from `at`, before sending it.",
        PauseBeforeWrite = "pause-before-write":
            "The process stands still for `lasts` after deciding on its `count`-th write under a token from `at`, before sending it.",
        PauseUntilFenced = "pause-until-fenced":
            "The process stands still after deciding on its `count`-th write under a token from `at`, until that token is no longer the current one, and up to `amount` longer; for `lasts` at most.",
        Crash = "crash": "The process dies between two events and starts again after `lasts`.",
        CrashBeforeEffect = "crash-before-effect":
            "The process dies just before it sends its `count`-th effect from `at`; starts again after `lasts`.",
        CrashAfterEffect = "crash-after-effect":
            "The process dies just after it sent its `count`-th effect from `at`; starts again after `lasts`.",
        CrashLoop = "crash-loop":
            "For `lasts`, the process dies after every `count` events and starts again after `amount`.",
        NewNodeId = "new-node-id": "A process that died starts again as another node (with every restart).",
        SlowNode = "slow-node": "For `lasts`, each event takes the process up to `amount`, before or after it sends.",
        RollingRestart = "rolling-restart": "The process drains, ends, and starts again after `amount`.",
        KillDuringDrain = "kill-during-drain":
            "The process is asked to drain and killed after `amount`; starts again after `lasts`.",
        RollingUpgrade = "rolling-upgrade":
            "The process drains, ends, and starts again after `amount`, writing the next schema version.",
    }
    NodeStore {
        StoreRequestLost = "store-request-lost": "For `lasts`, requests are lost with a chance of `chance_ppm`.",
        StoreReplyLost = "store-reply-lost":
            "For `lasts`, replies are lost with a chance of `chance_ppm`: committed, but unknown to the caller.",
        StoreDelay = "store-delay":
            "For `lasts`, requests and replies take up to `amount` longer, most of them little, with a chance of `chance_ppm`.",
        StoreReorder = "store-reorder":
            "For `lasts`, requests of one connection overtake each other by up to `amount`.",
        StoreCutRequests = "store-cut-requests": "For `lasts`, no request reaches the store; replies do arrive.",
        StoreCutReplies = "store-cut-replies": "For `lasts`, no reply reaches the node; requests do arrive.",
        StoreCut = "store-cut": "For `lasts`, nothing passes between node and store.",
        StoreFlapping = "store-flapping": "For `lasts`, the link is cut and whole by turns of `amount`.",
        StoreLateArrival = "store-late-arrival":
            "For `lasts`, requests arrive `amount` late with a chance of `chance_ppm`, long after their caller gave up.",
        StoreDuplicate = "store-duplicate":
            "For `lasts`, requests arrive a second time up to `amount` later, with a chance of `chance_ppm`.",
    }
    NodeBroker {
        BrokerRequestLost = "broker-request-lost":
            "For `lasts`, publications and acknowledgements are lost with a chance of `chance_ppm`.",
        BrokerReplyLost = "broker-reply-lost":
            "For `lasts`, confirms and deliveries are lost with a chance of `chance_ppm`.",
        BrokerDelay = "broker-delay":
            "For `lasts`, what passes takes up to `amount` longer, most of it little, with a chance of `chance_ppm`.",
        BrokerLinkReorder = "broker-link-reorder": "For `lasts`, what passes overtakes each other by up to `amount`.",
        BrokerCutRequests = "broker-cut-requests": "For `lasts`, nothing of the node's reaches the broker.",
        BrokerCutReplies = "broker-cut-replies": "For `lasts`, nothing of the broker's reaches the node.",
        BrokerCut = "broker-cut": "For `lasts`, nothing passes between node and broker.",
        BrokerFlapping = "broker-flapping": "For `lasts`, the link is cut and whole by turns of `amount`.",
        BrokerLateArrival = "broker-late-arrival":
            "For `lasts`, publications arrive `amount` late with a chance of `chance_ppm`, long after their caller gave up.",
        ConsumerConnectionClosed = "consumer-connection-closed":
            "The connection that a worker consumes on is closed under it.",
        PublishChannelClosed = "publish-channel-closed":
            "The channel that a node publishes on is closed at its next publication, whose outcome nobody knows.",
    }
    Store {
        StoreUnavailable = "store-unavailable": "For `lasts`, the store refuses every connection.",
        StoreRestart = "store-restart":
            "The store restarts and is back after `lasts`; what was under way is rolled back, or committed unheard.",
        StoreSlow = "store-slow": "For `lasts`, each command takes up to `amount` longer, before or after its commit.",
        StoreSerializationFailure = "store-serialization-failure":
            "For `lasts`, commands are rolled back with a chance of `chance_ppm`, as serialization failures and deadlocks are.",
        StorePoolExhausted = "store-pool-exhausted": "For `lasts`, commands wait up to `amount` for a connection.",
        StoreReadOnly = "store-read-only": "For `lasts`, the store refuses to write.",
        StoreFailover = "store-failover":
            "A replica in sync takes over within `lasts`; its clock is `amount` behind the old one's.",
    }
    Broker {
        BrokerOutage = "broker-outage": "For `lasts`, the broker is gone; what it had is durable.",
        BrokerRestart = "broker-restart":
            "The broker restarts and is back after `lasts`; what was under way may or may not be in its queues.",
        BrokerConfirmLost = "broker-confirm-lost":
            "For `lasts`, the broker takes messages with no word about it, with a chance of `chance_ppm`.",
        BrokerNack = "broker-nack": "For `lasts`, the broker refuses messages with a chance of `chance_ppm`.",
        BrokerUnroutable = "broker-unroutable":
            "For `lasts`, messages come back for want of a queue, with a chance of `chance_ppm`.",
        BrokerDuplicate = "broker-duplicate":
            "For `lasts`, messages are delivered twice with a chance of `chance_ppm`.",
        BrokerReorder = "broker-reorder":
            "For `lasts`, a message is overtaken by the next one in its queue, with a chance of `chance_ppm`.",
        BrokerRedeliverUnacked = "broker-redeliver-unacked":
            "Everything that is delivered and not acknowledged is delivered again.",
        BrokerConsumerCancelled = "broker-consumer-cancelled": "The broker cancels a worker's consumer.",
        BrokerConsumerTimeout = "broker-consumer-timeout":
            "For `lasts`, the broker closes the channel of a consumer that left a delivery unacknowledged for `amount`.",
        BrokerAlarm = "broker-alarm": "For `lasts`, an alarm blocks publishers: messages are taken when it ends.",
        BrokerPurge = "broker-purge": "A queue is purged: what it had and had confirmed is gone, and so are the next `count` messages.",
        BrokerLengthLimit = "broker-length-limit": "For `lasts`, a queue holds `count` messages and refuses more.",
        BrokerOversized = "broker-oversized": "For `lasts`, the broker refuses messages over `count` bytes.",
    }
    Clock {
        ClockDrift = "clock-drift": "The process's steady clock runs fast or slow, to 500 ppm, all its life.",
        ClockLeap = "clock-leap": "The process's steady clock leaps ahead by `amount`, with no pause to show for it.",
        ClockStandsStill = "clock-stands-still":
            "The host is suspended for `lasts` and its steady clock stands still: leases look younger than they are.",
        StoreClockBack = "store-clock-back": "The store's clock steps back by `amount`.",
        StoreClockForward = "store-clock-forward": "The store's clock steps forward by `amount`.",
        DaylightSaving = "daylight-saving": "The run is laid over a change of clocks in one of the jobs' zones.",
    }
    Handler {
        HandlerSlow = "handler-slow": "A handler takes longer than its lease lasts.",
        HandlerHangs = "handler-hangs": "A handler does not end until it is told to.",
        HandlerDeaf = "handler-deaf": "A handler goes on far longer than its attempt may, told to stop or not.",
        HandlerFailsRetryably = "handler-fails-retryably": "A handler reports an error; trying again makes sense.",
        HandlerFailsForGood = "handler-fails-for-good": "A handler reports an error; trying again does not.",
        HandlerCrashesWorker = "handler-crashes-worker": "A handler takes its process with it.",
        HandlerAnswerLost = "handler-answer-lost":
            "A handler's effect was done, but its answer is lost and it reports an error.",
        HandlerOutputTooLarge = "handler-output-too-large": "A handler's error is longer than what is kept.",
    }
    Outside {
        OutsideDown = "outside-down": "For `lasts`, a system that handlers call is down.",
        OutsideSlow = "outside-slow": "For `lasts`, a system that handlers call takes up to `amount` longer.",
    }
    Operator {
        OperatorCreates = "operator-creates": "An operator creates a job while the cluster works.",
        OperatorTriggers = "operator-triggers": "An operator triggers a job.",
        OperatorCancels = "operator-cancels": "An operator cancels an execution.",
        OperatorEdits = "operator-edits": "An operator gives a job another definition.",
        OperatorPauses = "operator-pauses": "An operator pauses a job, and mostly resumes it later.",
        OperatorHolds = "operator-holds": "An operator pauses a tenant or a queue of one, and mostly resumes it later.",
        OperatorLimits = "operator-limits":
            "An operator sets how many executions of a tenant or a key run at once, and takes it away later.",
        OperatorCalendars = "operator-calendars":
            "An operator sets the days of a calendar that jobs name, or takes it away.",
        OperatorDeletes = "operator-deletes": "An operator deletes a job.",
        OperatorCancelsStuck = "operator-cancels-stuck":
            "An operator cancels the execution that has been running for longest.",
        OperatorRaces = "operator-races":
            "An operator deletes a job, or cancels its newest execution, at an instant at which it fires.",
        OperatorTrespasses = "operator-trespasses":
            "An operator asks for what is another tenant's: to trigger, to cancel, to delete it.",
        OperatorReplays = "operator-replays": "An operator replays a dead letter.",
        OperatorReplaysAll = "operator-replays-all":
            "An operator replays all dead letters of a tenant, page by page, perhaps not to the end.",
        OperatorPurges = "operator-purges": "An operator purges a dead letter.",
        OperatorRepeats = "operator-repeats": "An operator sends the same request twice at once.",
        Herd = "herd": "Many jobs are due at one instant.",
    }
    Data {
        MalformedMessage = "malformed-message": "`count` messages in a queue cannot be read.",
        NewerSchemaMessage = "newer-schema-message":
            "`count` messages in a queue have a schema whose fields nobody here can make sense of.",
        UnknownExecutionMessage = "unknown-execution-message":
            "`count` messages in a queue are about an execution that does not exist.",
        UnreadableDefinition = "unreadable-definition": "A job's row has a definition that nobody here can read.",
        UnknownHandlerVersion = "unknown-handler-version":
            "A worker gets a message for a version of its handler that it does not know.",
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each kind of fault really happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultCounts(Vec<u64>);

impl Default for FaultCounts {
    fn default() -> Self {
        Self(vec![0; FaultKind::ALL.len()])
    }
}

impl FaultCounts {
    /// One more of this kind.
    pub fn count(&mut self, kind: FaultKind) {
        self.0[kind as usize] += 1;
    }

    /// How often this kind happened.
    #[must_use]
    pub fn of(&self, kind: FaultKind) -> u64 {
        self.0[kind as usize]
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// Every kind with its count, in the order of the catalogue.
    pub fn iter(&self) -> impl Iterator<Item = (FaultKind, u64)> {
        FaultKind::ALL.iter().map(|kind| (*kind, self.of(*kind)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_group_has_a_kind() {
        let mut names: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FaultKind::ALL.len());
        for group in FaultGroup::ALL {
            assert!(FaultKind::ALL.iter().any(|kind| kind.group() == group), "{}", group.name());
        }
    }

    #[test]
    fn a_kind_is_its_name_in_json() {
        for kind in FaultKind::ALL {
            let json = serde_json::to_string(kind).expect("serialises");
            assert_eq!(json, format!("\"{}\"", kind.name()));
            assert_eq!(serde_json::from_str::<FaultKind>(&json).expect("is read back"), *kind);
        }
    }
}
