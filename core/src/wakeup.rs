//! Why a role wants to be woken: for traces, and for whoever asks what a quiet node waits for.

use crate::execution::named;

named!(
    /// What the next wakeup is for.
    WakeReason {
        /// To report liveness.
        Heartbeat = "heartbeat",
        /// To renew, release or acquire leases.
        LeaseCycle = "lease_cycle",
        /// Because a lease is about to be trusted no longer.
        TrustEnds = "trust_ends",
        /// To look for due jobs.
        Scan = "scan",
        /// To promote retries and what waited.
        Promote = "promote",
        /// To read the outbox back.
        Outbox = "outbox",
        /// To sweep.
        Sweep = "sweep",
        /// To send a store call again.
        Resend = "resend",
        /// To send what has waited for company.
        Gather = "gather",
        /// Because an attempt has taken as long as it may.
        AttemptTimeout = "attempt_timeout",
        /// Because a drain has taken as long as it may.
        DrainEnds = "drain_ends",
    }
);
