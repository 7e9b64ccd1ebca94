//! Asking for leases of executions: what is granted, what waits and for what, and what is never granted.

use crate::id::{EffectId, ExecutionId, NodeId};
use crate::time::{Span, Timestamp};

/// [`Command::AcquireExecutions`](super::Command::AcquireExecutions).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AcquireExecutions {
    /// Who asks.
    pub node: NodeId,
    /// For how long.
    pub ttl: Span,
    /// What for.
    pub items: Vec<AcquireExecution>,
}

/// One execution lease asked for. What is `Pending` past its deadline (`deadline_at ≤ now`), and not by a resend, is ended
/// after all other items of its batch were answered: `DeadLettered` for
/// [`DeadLetterReason::Deadline`](crate::execution::DeadLetterReason::Deadline), or `Failed` where its version keeps no dead
/// letters, "never". All else is granted to `Pending` executions, waiting or not, unless it is of a fire and its job
/// is paused (then "not now": one that does not wait yet waits for [`WaitReason::JobPaused`](crate::execution::WaitReason::JobPaused), until
/// [`PAUSE_RECHECK`](crate::limits::PAUSE_RECHECK) from now), or its tenant or queue is paused (likewise, until
/// [`HELD_RECHECK`](crate::limits::HELD_RECHECK) from now, and it names the pause; the tenant's before the queue's, the
/// job's before both); `Running` under this very
/// nonce (of this node) answers the same grant again while it lasts (not extended). In any other state, or
/// lapsed, a row with this nonce answers "never", `Pending` too: the lease that it began has ended.
///
/// One that never had a lease is judged by the [`Overlap`](crate::job::Overlap) of its version, if its job's slot is held
/// (by another that has had a lease and is not terminal):
///
/// - `skip`: `Skipped` for [`SkipReason::Overlap`](crate::execution::SkipReason::Overlap), "never";
/// - `buffer_one`: it waits for [`WaitReason::Buffered`](crate::execution::WaitReason::Buffered), until [`OVERLAP_RECHECK`](crate::limits::OVERLAP_RECHECK) from
///   now, "not now"; where another waits so already, it is skipped;
/// - `cancel_running`: the holders are cancelled as by [`CancelExecution`](super::CancelExecution); of it and what waits so the latest by
///   (`due_at`, `id`) stays, the other is skipped; it is granted where no holder runs, else it waits.
///
/// One that would be granted, first lease or not, waits where its tenant's limit is reached
/// ([`WaitReason::TenantLimit`](crate::execution::WaitReason::TenantLimit)), or that of its version's concurrency key ([`WaitReason::KeyLimit`](crate::execution::WaitReason::KeyLimit)), counted over what
/// runs: until [`LIMIT_RECHECK`](crate::limits::LIMIT_RECHECK) from now, "not now". Each end of a run of such a tenant (a
/// finish or a takeover, whatever follows) dispatches the first by (`due_at`, `id`) of those waiting for a limit that
/// would be granted then, looking at no more than [`LIMIT_CANDIDATES_MAX`](crate::limits::LIMIT_CANDIDATES_MAX).
///
/// Whatever makes the last holder of a slot terminal (a finish, a takeover, a cancel) dispatches what waits for it,
/// with an outbox row in the name of the node of the holder's latest lease.
///
/// A grant raises the token by one (one that cannot rise: never), stores the nonce, clears `waiting`, `held_by`,
/// `next_try_at`, `waits`, `redispatches`, `sign` and `started_at`, and stamps `published_at` = max(min(published_at,
/// now), `materialised_at`), `received_at` = max(now − held, `published_at`), `leased_at` = max(now, `received_at`);
/// `lag_clamped` says anew whether one of these differs from what was reported (for `leased_at`: from now).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AcquireExecution {
    /// The execution.
    pub execution: ExecutionId,
    /// The effect that asks first; kept when sent again.
    pub nonce: EffectId,
    /// When its message was published, by the publisher's account of the store's clock.
    pub published_at: Timestamp,
    /// How long the worker has had the message, by its own steady clock.
    pub held: Span,
}
