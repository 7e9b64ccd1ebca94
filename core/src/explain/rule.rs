//! Rules and causes: why something followed, ended or waits, as the fields of statements name them.

use crate::execution::named;
use crate::explain::statement::Field;
use serde_json::Value;

named!(
    /// What followed a run, and by which rule.
    Rule {
        /// Another after the policy's backoff.
        Backoff = "backoff",
        /// Another when its target asked for it.
        RetryAfter = "retry_after",
        /// Another, by one of the two; which is not on record.
        BackoffOrRetryAfter = "backoff_or_retry_after",
        /// Another after the delay that follows a loss.
        Rescue = "rescue",
        /// Another at once, since the run was given back.
        GivenBack = "given_back",
        /// None, since a cancel had been asked for.
        Cancel = "cancel",
        /// None, since the execution was given up.
        GivenUp = "given_up",
        /// Something that is not on record.
        NotRecorded = "not_recorded",
    }
);

named!(
    /// Which budget the loss of a lease costs.
    LossBudget {
        /// That of losses after a sign of a start.
        Rescues = "rescues",
        /// That of losses without one.
        LostStarts = "lost_starts",
    }
);

named!(
    /// How a run ended that had been asked to stop.
    StopEnd {
        /// Its worker stopped the handler.
        Stopped = "stopped",
        /// Its attempt failed.
        Failure = "failure",
        /// Its worker gave it back.
        GivenBack = "given_back",
        /// Its lease lapsed.
        LeaseLapsed = "lease_lapsed",
        /// That is not on record.
        NotRecorded = "not_recorded",
    }
);

named!(
    /// Why a lease has no holder.
    VacancyCause {
        /// It was never granted.
        NeverGranted = "never_granted",
        /// Its holder gave it back.
        Released = "released",
        /// It lapsed.
        Expired = "expired",
        /// It is from before the clock stepped back, and counts as dead.
        ClockSteppedBack = "clock_stepped_back",
    }
);

named!(
    /// What keeps a fire that is due.
    BacklogCause {
        /// Nobody owns the partition.
        PartitionWithoutOwner = "partition_without_owner",
        /// The definition cannot be read.
        DefinitionUnreadable = "definition_unreadable",
        /// It was put off.
        PutOff = "put_off",
        /// The owner of the partition has not come to it.
        OwnerBehind = "owner_behind",
    }
);

named!(
    /// Who cannot read a definition.
    Reader {
        /// The owner of its partition, when it looked last.
        PartitionOwner = "partition_owner",
        /// The process that explains.
        ThisProcess = "this_process",
    }
);

macro_rules! fields {
    ($($kind:ty),+) => {
        $(impl Field for $kind {
            fn value(&self) -> Value {
                self.name().into()
            }
        })+
    };
}

fields!(Rule, LossBudget, StopEnd, VacancyCause, BacklogCause, Reader);
