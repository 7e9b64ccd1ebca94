//! Retry: what follows a failed attempt, and when.
//!
//! The delay is `base × 2^(attempt−1)`, capped and saturating, then scaled into [0.8, 1] by a hash of
//! (execution, attempt): spread out, and the same on every node and in every replay. A target's own
//! `retry_after` is honoured instead, up to [`RETRY_AFTER_MAX`]. Attempts are counted on failures;
//! losing a worker is counted on budgets of its own (see `rescue`), so that a crash-looping job ends
//! in the dead letters and a deploy costs no attempt.

use serde::{Deserialize, Serialize};

use crate::execution::{DeadLetterReason, LeaseSign};
use crate::id::ExecutionId;
use crate::limits::REDISPATCH_DELAY_MAX;
use crate::time::Span;

/// The longest `retry_after` of a target that is honoured.
pub const RETRY_AFTER_MAX: Span = Span::from_secs(24 * 3_600);
/// The delay before an execution whose worker was lost is tried again: doubled with each rescue.
pub const RESCUE_DELAY_BASE: Span = Span::from_millis(500);
/// The longest such delay.
pub const RESCUE_DELAY_MAX: Span = Span::from_secs(60);

/// What a job says about trying again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryPolicy {
    /// Attempts in all, the first included; at least 1.
    pub max_attempts: u32,
    /// The delay after the first failure.
    #[serde(rename = "base_ms", with = "crate::job::span_ms")]
    pub base: Span,
    /// The longest delay.
    #[serde(rename = "cap_ms", with = "crate::job::span_ms")]
    pub cap: Span,
    /// How long after it was due an execution may still be tried again.
    #[serde(
        rename = "max_age_ms",
        with = "crate::job::optional_span_ms",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_age: Option<Span>,
    /// Workers that an execution may lose after they gave a sign of a start.
    pub max_rescues: u32,
    /// Leases of an execution that may lapse without any sign of a start.
    pub max_lost_starts: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            base: Span::from_secs(1),
            cap: Span::from_secs(300),
            max_age: None,
            max_rescues: 5,
            max_lost_starts: 20,
        }
    }
}

/// What follows a failed attempt or a lost worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Another attempt, this long from now.
    RetryIn(Span),
    /// No other attempt, for this reason.
    GiveUp(DeadLetterReason),
}

/// What follows a retryable failure of attempt number `attempt` (1 for the first) of an execution that
/// is `age` past its due time. `retry_after` is the target's own wish.
#[must_use]
pub fn after_failure(
    policy: &RetryPolicy,
    execution: ExecutionId,
    attempt: u32,
    age: Span,
    retry_after: Option<Span>,
) -> Verdict {
    if attempt >= policy.max_attempts {
        return Verdict::GiveUp(DeadLetterReason::Exhausted);
    }
    let delay = match retry_after {
        Some(wish) => wish.min(RETRY_AFTER_MAX),
        None => backoff(policy, execution, attempt),
    };
    match policy.max_age {
        Some(max_age) if age.plus(delay) > max_age => Verdict::GiveUp(DeadLetterReason::TooOld),
        Some(_) | None => Verdict::RetryIn(delay),
    }
}

/// What a verdict comes to where the execution has a deadline, which leaves it so long: what would begin no earlier than
/// then is given up at once.
#[must_use]
pub fn within_deadline(verdict: Verdict, left: Option<Span>) -> Verdict {
    match (verdict, left) {
        (Verdict::RetryIn(delay), Some(left)) if delay >= left => Verdict::GiveUp(DeadLetterReason::Deadline),
        (Verdict::RetryIn(_) | Verdict::GiveUp(_), _) => verdict,
    }
}

/// The delay after attempt number `attempt`: within `[0.8, 1] × min(base × 2^(attempt−1), cap)`.
#[must_use]
pub fn backoff(policy: &RetryPolicy, execution: ExecutionId, attempt: u32) -> Span {
    let doubled = doubled(policy.base, attempt.saturating_sub(1)).min(policy.cap);
    // Parts per 1024 between 820 (just above 0.8) and 1024, from the hash.
    let parts = 820 + spread(execution, attempt) % 205;
    let whole = doubled.divided_by(1_024).times(parts);
    let rest = Span::from_micros(doubled.as_micros() % 1_024 * parts / 1_024);
    whole.plus(rest).min(doubled)
}

/// What follows the loss of a worker that had given a sign of a start (`rescues` so far, this one
/// included) or of a lease that never showed one (`lost_starts` so far, this one included).
#[must_use]
pub fn after_loss(policy: &RetryPolicy, rescues: u32, lost_starts: u32) -> Verdict {
    if rescues > policy.max_rescues || lost_starts > policy.max_lost_starts {
        return Verdict::GiveUp(DeadLetterReason::RescuesSpent);
    }
    Verdict::RetryIn(rescue_delay(rescues.saturating_add(lost_starts)))
}

/// The delay after the loss that makes it so many in all.
#[must_use]
pub fn rescue_delay(losses: u32) -> Span {
    doubled(RESCUE_DELAY_BASE, losses.saturating_sub(1)).min(RESCUE_DELAY_MAX)
}

/// The two counts of losses, rescues and lost starts, once a lease with this sign of a start is lost too.
#[must_use]
pub const fn count_loss(sign: LeaseSign, rescues: u32, lost_starts: u32) -> (u32, u32) {
    match sign {
        LeaseSign::Started => (rescues.saturating_add(1), lost_starts),
        LeaseSign::None => (rescues, lost_starts.saturating_add(1)),
    }
}

/// How long a dispatch that was repeated so often may lead to nothing before it is repeated again.
#[must_use]
pub fn redispatch_delay(redispatch_after: Span, redispatches: u32) -> Span {
    doubled(redispatch_after, redispatches).min(REDISPATCH_DELAY_MAX)
}

/// `base × 2^times`, saturating.
#[must_use]
pub fn doubled(base: Span, times: u32) -> Span {
    1_u64
        .checked_shl(times)
        .filter(|_| times < 63)
        .map_or_else(|| if base == Span::ZERO { Span::ZERO } else { Span::MAX }, |factor| base.times(factor))
}

/// A number that is spread evenly over executions and attempts: FNV-1a over both, finished by a mix.
fn spread(execution: ExecutionId, attempt: u32) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let attempt = attempt.to_be_bytes();
    let bytes = execution.as_bytes().iter().chain(attempt.iter());
    let hash = bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXECUTION: ExecutionId = ExecutionId::from_u128(7);

    #[test]
    fn the_delay_doubles_up_to_the_cap_and_never_overflows() {
        let policy = RetryPolicy { max_attempts: u32::MAX, ..RetryPolicy::default() };
        for (attempt, most) in [(1, 1), (2, 2), (3, 4), (64, 300), (1_025, 300), (u32::MAX, 300)] {
            let delay = backoff(&policy, EXECUTION, attempt);
            let most = Span::from_secs(most);
            assert!(delay <= most && delay.times(5) >= most.times(4), "attempt {attempt}: {delay}");
        }
    }

    #[test]
    fn the_last_attempt_is_not_followed_by_another() {
        let policy = RetryPolicy { max_attempts: 3, ..RetryPolicy::default() };
        let verdict = after_failure(&policy, EXECUTION, 3, Span::ZERO, None);
        assert_eq!(verdict, Verdict::GiveUp(DeadLetterReason::Exhausted));
    }

    #[test]
    fn a_retry_that_would_come_too_late_is_given_up_now() {
        let policy = RetryPolicy { max_age: Some(Span::from_secs(10)), ..RetryPolicy::default() };
        let verdict = after_failure(&policy, EXECUTION, 1, Span::from_secs(10), None);
        assert_eq!(verdict, Verdict::GiveUp(DeadLetterReason::TooOld));
    }

    #[test]
    fn a_retry_that_would_begin_at_the_deadline_or_past_it_is_given_up_now() {
        let (second, retry) = (Span::from_secs(1), Verdict::RetryIn(Span::from_secs(1)));
        let given_up = Verdict::GiveUp(DeadLetterReason::Deadline);
        for left in [Span::ZERO, second] {
            assert_eq!(within_deadline(retry, Some(left)), given_up);
        }
        assert_eq!(within_deadline(retry, Some(second.plus(Span::from_micros(1)))), retry);
        assert_eq!(within_deadline(retry, None), retry);
    }

    #[test]
    fn the_targets_own_wish_replaces_the_backoff() {
        let wish = Some(Span::from_secs(77));
        let verdict = after_failure(&RetryPolicy::default(), EXECUTION, 1, Span::ZERO, wish);
        assert_eq!(verdict, Verdict::RetryIn(Span::from_secs(77)));
    }

    #[test]
    fn each_rescue_budget_ends_in_a_dead_letter() {
        let policy = RetryPolicy::default();
        assert_eq!(after_loss(&policy, 6, 0), Verdict::GiveUp(DeadLetterReason::RescuesSpent));
        assert_eq!(after_loss(&policy, 0, 21), Verdict::GiveUp(DeadLetterReason::RescuesSpent));
        assert_eq!(after_loss(&policy, 1, 0), Verdict::RetryIn(RESCUE_DELAY_BASE));
        assert_eq!(after_loss(&policy, 5, 20), Verdict::RetryIn(RESCUE_DELAY_MAX));
    }
}
