//! The catalogue of checks, as data: what each looks at, and what it cannot see.
//!
//! The ids are those of the invariants and never change.

use serde::{Serialize, Serializer};

macro_rules! checks {
    ($($variant:ident $id:literal $unit:literal sees $sees:literal blind $blind:literal,)+) => {
        /// One check of a live database.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Check {
            $(#[doc = $sees] $variant,)+
        }

        impl Check {
            /// All of them, in the order of the catalogue.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The invariant's id.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)+ }
            }

            /// What is counted as looked at.
            #[must_use]
            pub const fn unit(self) -> &'static str {
                match self { $(Self::$variant => $unit,)+ }
            }

            /// What it looks at.
            #[must_use]
            pub const fn sees(self) -> &'static str {
                match self { $(Self::$variant => $sees,)+ }
            }

            /// What rows cannot show it.
            #[must_use]
            pub const fn cannot_see(self) -> &'static str {
                match self { $(Self::$variant => $blind,)+ }
            }
        }
    };
}

checks! {
    UniqueOccurrence "unique-occurrence" "executions and skipped ranges"
        sees "Every execution has the id and the key that follow from its job and occurrence, which its primary key then makes unique; no fire stands twice in a job's ledger, as two executions, as an execution inside a skipped range, or inside two ranges; a dead letter has one replay per number."
        blind "What was deleted from the tables.",
    NoPhantomFire "no-phantom-fire" "scheduled executions"
        sees "Every scheduled execution's fire is one that the version in force at that time yields within its bounds and number of runs; it was made no earlier than it was due, and late ones are no more than the misfire policy allows."
        blind "With which zone data an execution was decided: only skipped ranges say so.",
    NoLostFire "no-lost-fire" "jobs"
        sees "Every nominal fire from a job's creation to its watermark is an execution or lies inside a skipped range; ranges begin and end at fires, were late when they were decided, and the misfire policy justifies them; the next fire is the first after the watermark. Long ranges are checked at their bounds."
        blind "Fires of jobs whose rows are gone, and whether the watermark was ever set back.",
    TokenMonotone "token-monotone" "leases and executions"
        sees "The tokens of an execution's ended runs rise one by one up to its own; a replay's lie above its origin's; along a job's ledger the partition's token never falls and never lies above the partition's lease."
        blind "The acquisitions of partitions and leadership one by one: their rows hold the latest token only.",
    TerminalAbsorbs "terminal-absorbs" "ended executions"
        sees "What has ended holds no lease, waits for nothing, has its end stamped, and its latest run ended no later than it; what has not ended has no end stamped."
        blind "A change from one terminal state to another that also rewrote the stamps: that takes the history of a row.",
    LegalTransition "legal-transition" "executions"
        sees "Each state goes with the traces that every legal way to it leaves: the lease, the end of the latest run, the reason; no run follows one that ended for good."
        blind "Detours that leave no trace in the row or among its ended runs.",
    AtomicDispatch "atomic-dispatch" "pending executions and outbox rows"
        sees "Every pending execution has a dispatch stamp or a recorded reason for waiting with the time of the next try; every outbox row belongs to an execution, to one of its dispatches, and to its tenant and partition, and the latest carries the stamp of its dispatch."
        blind "Whether a row that is gone was confirmed by the broker.",
    AttemptBounds "attempt-bounds" "executions"
        sees "Attempts, rescues and lost starts are within the policy of the execution's own version, what is still to run has budget left, and the counters are those of the recorded ends."
        blind "Whether a counter ever fell and rose again.",
    DeadLetterOnce "dead-letter-once" "dead letters and dead-lettered executions"
        sees "An execution is dead-lettered exactly when it has a record; the record counts what the execution counts; its replays are numbered from 1 without a gap up to its count, and none was made after a purge."
        blind "The error text of a dead letter that was purged.",
    PausedIsSilent "paused-is-silent" "executions of jobs that were silenced"
        sees "No fire that falls into a pause was made, and no run of a scheduled execution began during one. After a job's delete no fire of it was made, no run of it began, nothing of it still waits, and what ran then was asked to stop."
        blind "The first minute of a pause, whose commit is not on record, and any but the latest run of an execution.",
    Conservation "conservation" "executions and records"
        sees "Every execution has its job, the version it was made under, its tenant and partition; a job's versions are whole; its counter of runs is the number of its scheduled executions; every record belongs to an execution that is there, and what a request is on record to have made is there."
        blind "Executions that were deleted together with everything that names them, and all counting under --from or --to.",
    LedgerOfRefusals "ledger-of-refusals" "refusals"
        sees "Every recorded refusal is of a known resource and of an action that it can be asked for, names no token that the resource has not had, and counts at least one."
        blind "Refusals that were never written down.",
    LagAddsUp "lag-adds-up" "executions"
        sees "The stamps of the stages are in order, none is missing before one that is there, what completed has all of them, and the stages add up to the whole."
        blind "Whether a span was clamped that is not flagged.",
}

impl core::fmt::Display for Check {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.id())
    }
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}
