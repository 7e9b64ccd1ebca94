//! The catalogue of invariants, as data: what must hold, and where this version checks it.
//!
//! The ids never change. The documentation's list and the oracles are held to this one by tests.

use crate::sim_time::SimTime;
use crate::violation::{Property, Violation};

/// Where an invariant is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckedBy {
    /// An oracle after every commit in the simulator.
    Simulator,
    /// Property tests on the core.
    Properties,
    /// A constraint or guard in PostgreSQL.
    Constraint,
    /// `fencepost verify`, on a live database.
    Verification,
}

impl CheckedBy {
    /// The letter in the catalogue.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Simulator => 'S',
            Self::Properties => 'P',
            Self::Constraint => 'C',
            Self::Verification => 'V',
        }
    }
}

macro_rules! invariants {
    ($($variant:ident $id:literal $property:ident [$($checked:ident)*] $statement:literal,)+) => {
        /// One invariant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Invariant {
            $(#[doc = $statement] $variant,)+
        }

        impl Invariant {
            /// All of them, safety first.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Its id.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)+ }
            }

            /// What must hold.
            #[must_use]
            pub const fn statement(self) -> &'static str {
                match self { $(Self::$variant => $statement,)+ }
            }

            /// Safety or liveness.
            #[must_use]
            pub const fn property(self) -> Property {
                match self { $(Self::$variant => Property::$property,)+ }
            }

            /// Where this version checks it.
            #[must_use]
            pub const fn checked(self) -> &'static [CheckedBy] {
                match self { $(Self::$variant => &[$(CheckedBy::$checked,)*],)+ }
            }
        }
    };
}

invariants! {
    UniqueOccurrence "unique-occurrence" Safety [Simulator Properties Constraint Verification]
        "A job has at most one execution per fire time and one per caller's key, replays aside, a dead letter has at most one replay per number, and no fire is both an execution and inside a range row.",
    NoPhantomFire "no-phantom-fire" Safety [Simulator Verification]
        "Every scheduled execution is a fire that its job's version yields under its policies, materialised no earlier than due.",
    NoLostFire "no-lost-fire" Safety [Simulator Verification]
        "Every nominal fire up to the watermark is in the ledger, executed or justly skipped, and the next fire is the first after it.",
    TokenMonotone "token-monotone" Safety [Simulator Constraint Verification]
        "A resource's fencing token rises by one with each acquisition and never otherwise changes; a replay's begins no lower than its origin's ended.",
    SingleHolder "single-holder" Safety [Simulator]
        "A resource has at most one holder, and its expiry lies where the grant put it.",
    FencedWrite "fenced-write" Safety [Simulator Constraint]
        "Every protected write commits while the token, version, state or watermark that protects it is current.",
    NoEarlyTakeover "no-early-takeover" Safety [Simulator Properties]
        "A lease passes to another only after it expired, lay beyond the longest lease, or was released.",
    HeartbeatGrantsNothing "heartbeat-grants-nothing" Safety [Simulator]
        "No grant and no transition depends on a heartbeat, fresh or stale.",
    TerminalAbsorbs "terminal-absorbs" Safety [Simulator Properties Constraint Verification]
        "An execution in a terminal state never changes state.",
    LegalTransition "legal-transition" Safety [Simulator Properties Constraint Verification]
        "Every change of state is in the transition table.",
    AtomicDispatch "atomic-dispatch" Safety [Simulator Verification]
        "A transition that needs dispatch commits with its outbox row, and every pending execution has a row, a stamp or a recorded reason.",
    OutboxUntilConfirmed "outbox-until-confirmed" Safety [Simulator]
        "An outbox row goes only after a confirm for exactly that row, or when its execution no longer needs that dispatch.",
    AttemptBounds "attempt-bounds" Safety [Simulator Properties Verification]
        "Attempts, rescues and lost starts never fall and never exceed the policy of the execution's version, and no attempt starts past its deadline.",
    RetryNotEarly "retry-not-early" Safety [Simulator Properties]
        "No attempt starts before its stored retry time, and the stored delay is the policy's or the target's own.",
    DeadLetterOnce "dead-letter-once" Safety [Simulator Constraint Verification]
        "An execution is dead-lettered exactly when there is one dead-letter record of it, with its reason, or its purge tombstone, of which nothing is replayed.",
    CompletedSurvives "completed-survives" Safety [Simulator]
        "No repair, late worker or duplicate overwrites a committed completion.",
    OverlapHonoured "overlap-honoured" Safety [Simulator]
        "No first lease is granted against the overlap policy of its execution's version, counted over slots, and at most one execution of a job waits for its slot.",
    LimitsHonoured "limits-honoured" Safety [Simulator]
        "No lease is granted beyond the limit in force at that moment, counted over what runs, and nothing waits for a limit that has room.",
    PriorityShares "priority-shares" Safety [Simulator Properties]
        "Of a worker's starts in a row through which a priority waits there, it has its share: of any ten one at least.",
    PausedIsSilent "paused-is-silent" Safety [Simulator Verification]
        "Between a committed pause and its resume no fire of that job starts, and none that falls into it ever runs; neither does any after a delete.",
    TenantWall "tenant-wall" Safety [Simulator Constraint]
        "No command under one tenant's authority changes another's rows.",
    CancelFinal "cancel-final" Safety [Simulator]
        "Once cancelled is committed, that execution never completes, and a stored request is not forgotten by a failure.",
    SweepIdempotent "sweep-idempotent" Safety [Simulator Properties]
        "Applying the same observed repairs again changes nothing.",
    EffectOncePerKey "effect-once-per-key" Safety [Simulator]
        "A system that enforces the idempotency key, which a replay shares unless asked otherwise, performs each effect once; one that enforces the token never accepts a lower one later.",
    OverlapOnlyAfterExpiry "overlap-only-after-expiry" Safety [Simulator]
        "Two runs of one execution are under way at once only if the earlier lease had expired or its worker had given it up; their tokens differ.",
    Conservation "conservation" Safety [Simulator Verification]
        "No execution disappears.",
    DrainedHoldsNothing "drained-holds-nothing" Safety [Simulator]
        "A node that reports a finished drain holds nothing that it knows of but for handlers that would not stop.",
    LedgerOfRefusals "ledger-of-refusals" Safety [Simulator Verification]
        "Every refusal of a renew, finish, materialise, promotion or repair is recorded.",
    LagAddsUp "lag-adds-up" Safety [Simulator Verification]
        "The lag stamps of an execution are in order.",
    LeaderExists "leader-exists" Liveness [Simulator]
        "After the heal there is one leader whose lease is current.",
    PartitionsOwned "partitions-owned" Liveness [Simulator Properties]
        "After the heal every partition is owned, and shares differ by at most one.",
    OutboxDrains "outbox-drains" Liveness [Simulator]
        "After the heal no outbox row stays.",
    DueWorkEnds "due-work-ends" Liveness [Simulator]
        "After the heal every due execution ends, and no readable job stays due.",
    NoOrphanRunning "no-orphan-running" Liveness [Simulator]
        "After the heal no execution stays running without a current lease.",
    DrainEnds "drain-ends" Liveness [Simulator]
        "A drain ends within its limit, hung handlers or not.",
}

impl Invariant {
    /// A violation of this one.
    #[must_use]
    #[cold]
    pub fn broken(self, at: SimTime, detail: String) -> Violation {
        Violation { invariant: self.id(), property: self.property(), at, detail }
    }
}
