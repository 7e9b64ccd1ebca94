//! Leases: tokens that only acquisitions raise, one holder, no early takeover, and heartbeats that grant nothing.

use std::collections::BTreeSet;

use fencepost_core::execution::ExecutionState;
use fencepost_core::id::NodeId;
use fencepost_core::lease::{HeldLease, LeaseResource};
use fencepost_core::limits::LEASE_TTL_MAX;
use fencepost_core::store::change::Delta;
use fencepost_core::store::command::{AcquireExecutions, Command};
use fencepost_core::store::reply::{AcquireReply, LeadershipReply, Reply};
use fencepost_core::store::row::LeaseRow;
use fencepost_core::time::{Span, Timestamp};

use super::Commit;
use super::brief::Brief;
use super::invariant::Invariant;
use super::limits;
use super::mirror::Mirror;
use super::overlap;
use crate::violation::Violation;

/// Whether a lease row may be granted to another at `now`.
pub(super) fn is_free(row: Option<&LeaseRow>, now: Timestamp) -> bool {
    row.is_none_or(|row| row.owner.is_none() || has_lapsed(row.expires_at, now))
}

/// Whether a lease with this expiry is dead at `now`: it has passed, or no grant reaches so far.
pub(super) fn has_lapsed(expires_at: Timestamp, now: Timestamp) -> bool {
    expires_at <= now || expires_at.as_micros().saturating_sub(now.as_micros()) > LEASE_TTL_MAX.as_i64()
}

/// Checks one change of a lease row, the command's change of this number.
pub(super) fn check_change(
    commit: &Commit<'_>,
    number: usize,
    delta: &Delta<LeaseRow>,
) -> Result<(), Violation> {
    let (Some(before), Some(after)) = (&delta.before, &delta.after) else {
        return Err(
            commit.broke(Invariant::SingleHolder, || format!("a lease row came or went: {}", Brief(delta)))
        );
    };
    let rose = before.token.next() == Some(after.token);
    let granted_to_another =
        after.token != before.token || (after.owner.is_some() && after.owner != before.owner);
    let acquires = match commit.command {
        Command::AcquireLeadership(ask) => Some((ask.node, ask.ttl)),
        Command::AcquirePartitions(ask) => Some((ask.node, ask.ttl)),
        _ => None,
    };
    match (granted_to_another, acquires) {
        (true, Some((node, ttl))) => {
            if !rose || after.owner != Some(node) {
                return Err(commit.broke(Invariant::TokenMonotone, || {
                    format!("an acquisition raises the token by one; {before:?} became {after:?}")
                }));
            }
            if !is_free(Some(before), commit.now) {
                return Err(commit.broke(Invariant::NoEarlyTakeover, || {
                    format!(
                        "{} was granted to {node} at {} while {before:?} was current",
                        after.resource, commit.now
                    )
                }));
            }
            check_expiry(commit, after, ttl)
        }
        (true, None) => Err(commit.broke(Invariant::TokenMonotone, || {
            format!("only an acquisition changes owner and token; {before:?} became {after:?}")
        })),
        (false, _) => check_hold(commit, number, before, after),
    }
}

/// A change that grants nothing new: a renewal, or a release.
fn check_hold(
    commit: &Commit<'_>,
    number: usize,
    before: &LeaseRow,
    after: &LeaseRow,
) -> Result<(), Violation> {
    match commit.command {
        Command::RenewLeases(ask) => {
            let current = HeldLease { resource: after.resource, token: before.token };
            if !presents(&ask.leases, current, number) || before.owner != Some(ask.node) {
                return Err(commit.broke(Invariant::FencedWrite, || {
                    format!("{} renewed {before:?} and presented {}", ask.node, Brief(&ask.leases))
                }));
            }
            check_expiry(commit, after, ask.ttl)
        }
        Command::ReleaseLeases(ask) => {
            let current = HeldLease { resource: after.resource, token: before.token };
            if !presents(&ask.leases, current, number) || before.owner != Some(ask.node) {
                return Err(commit.broke(Invariant::FencedWrite, || {
                    format!("{} released {before:?} and presented {}", ask.node, Brief(&ask.leases))
                }));
            }
            Ok(())
        }
        _ => Err(commit.broke(Invariant::SingleHolder, || {
            format!("only acquisitions, renewals and releases touch a lease; {before:?} became {after:?}")
        })),
    }
}

/// Whether a command presents this grant: it may present an older one of the same resource beside it. Mostly
/// every lease presented is changed, in order, so the change's number is where it is looked for first.
fn presents(leases: &[HeldLease], lease: HeldLease, number: usize) -> bool {
    leases.get(number) == Some(&lease) || leases.contains(&lease)
}

fn check_expiry(commit: &Commit<'_>, after: &LeaseRow, ttl: Span) -> Result<(), Violation> {
    if after.expires_at == commit.now.plus(ttl) {
        return Ok(());
    }
    Err(commit.broke(Invariant::SingleHolder, || {
        format!("a grant at {} for {ttl} does not expire at {}", commit.now, after.expires_at)
    }))
}

/// Checks that a grant depends on nothing but the lease rows: what is free is granted, in order, whoever
/// reported liveness how recently. Looks at the rows before the command.
pub(super) fn check_grants(commit: &Commit<'_>, mirror: &Mirror) -> Result<(), Violation> {
    match (commit.command, commit.reply) {
        (Command::AcquireLeadership(ask), Reply::Leadership(LeadershipReply::Held { .. })) => {
            let row = mirror.leases.get(&LeaseResource::Leadership);
            // A dead lease is free for anybody, but a grant repeated under its nonce is not a new one.
            if is_free(row, commit.now) {
                return Err(commit.broke(Invariant::HeartbeatGrantsNothing, || {
                    format!("{} was told that leadership is held, but it is free: {row:?}", ask.node)
                }));
            }
            Ok(())
        }
        (Command::AcquirePartitions(ask), Reply::Partitions { granted }) => {
            let own = |row: &&LeaseRow| {
                row.resource != LeaseResource::Leadership
                    && row.owner == Some(ask.node)
                    && row.nonce == ask.nonce
                    && !has_lapsed(row.expires_at, commit.now)
            };
            let repeated: Vec<LeaseResource> =
                mirror.leases.values().filter(own).map(|row| row.resource).collect();
            let expected: Vec<LeaseResource> = if repeated.is_empty() {
                let partitions =
                    LeaseResource::all().filter(|resource| *resource != LeaseResource::Leadership);
                let free = partitions.filter(|resource| is_free(mirror.leases.get(resource), commit.now));
                free.take(ask.limit as usize).collect()
            } else {
                repeated
            };
            if granted.iter().map(|held| held.resource).ne(expected.iter().copied()) {
                return Err(commit.broke(Invariant::HeartbeatGrantsNothing, || {
                    format!(
                        "of the free partitions {} were to be granted, and {} were",
                        Brief(&expected),
                        Brief(&granted)
                    )
                }));
            }
            Ok(())
        }
        (Command::AcquireExecutions(ask), Reply::Acquired(replies)) => {
            check_execution_grants(commit, mirror, ask, replies)
        }
        _ => Ok(()),
    }
}

/// What is pending is granted to whoever asks first, except to a resend of the acquire whose lease has ended, and
/// unless its deadline has passed, a pause holds it back, or its job's slot may be held (which is judged for itself).
fn check_execution_grants(
    commit: &Commit<'_>,
    mirror: &Mirror,
    ask: &AcquireExecutions,
    replies: &[AcquireReply],
) -> Result<(), Violation> {
    let mut asked = BTreeSet::new();
    for (item, reply) in ask.items.iter().zip(replies) {
        let first = asked.insert(item.execution);
        let pending = mirror.executions.get(&item.execution).is_some_and(|row| {
            let resent = row.nonce == item.nonce && row.nonce_node == Some(ask.node);
            row.state == ExecutionState::Pending
                && !resent
                && row.deadline_at.is_none_or(|at| at > commit.now)
                && !mirror.is_held_back(row)
                && !overlap::may_stand_back(commit, mirror, row)
                && !limits::may_wait(mirror, row)
        });
        if first && pending && !matches!(reply, AcquireReply::Granted(_)) {
            return Err(commit.broke(Invariant::HeartbeatGrantsNothing, || {
                format!("{} is pending, and {} was told {reply:?}", item.execution, ask.node)
            }));
        }
    }
    Ok(())
}

/// Checks that a lease that a command acts under is its node's at this very commit.
pub(super) fn check_authority(
    commit: &Commit<'_>,
    mirror: &Mirror,
    node: NodeId,
    presented: Option<HeldLease>,
) -> Result<(), Violation> {
    let current = presented.and_then(|held| mirror.leases.get(&held.resource));
    let holds =
        presented.zip(current).is_some_and(|(held, row)| row.token == held.token && row.owner == Some(node));
    if holds {
        return Ok(());
    }
    Err(commit.broke(Invariant::FencedWrite, || {
        format!("{node} wrote under {presented:?}, while the lease is {current:?}")
    }))
}
