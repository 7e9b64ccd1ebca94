//! Reconciling: the leader looks for what got stuck and repairs it, each repair conditional on what it saw.
//!
//! It is never what makes the system correct, only what makes it finish: expired execution leases, dispatches
//! that led to nothing, outbox rows that nobody needs, nodes without a sign of life. A repair that comes
//! too late, twice, or from a leader that no longer is one, does nothing.

use crate::bug::Bug;
use crate::execution::{CancelState, DeadLetterReason};
use crate::fact::Fact;
use crate::job::DeadLetters;
use crate::retry::{RESCUE_DELAY_BASE, Verdict, after_loss, count_loss, within_deadline};
use crate::scheduler::calls::{Call, Concern, Turn, View, count};
use crate::scheduler::leadership::Leadership;
use crate::scheduler::pace::Pace;
use crate::store::command::{Command, Repair, RepairItem, ScanSweep, TakeOverEnd};
use crate::store::reply::{ExpiredRun, RepairItemReply, SweepFindings};
use crate::store::row::RefusedAction;
use crate::time::Monotonic;

/// The lists of a sweep; what all of them hold fits in one repair.
const LISTS: usize = 5;

#[derive(Debug)]
pub(super) struct Reconciler {
    pace: Pace,
}

impl Reconciler {
    pub(super) const fn new() -> Self {
        Self { pace: Pace::AT_ONCE }
    }

    pub(super) fn look_at_once(&mut self, turn: &Turn<'_>) {
        self.pace.sooner(turn.now);
    }

    pub(super) fn wakes_at(&self, view: View<'_>, leadership: &Leadership) -> Monotonic {
        let has_no_reason = leadership.lease().is_none() && !leadership.wants_probe();
        let waits =
            has_no_reason || view.calls.is_busy(Concern::Sweep) || view.calls.is_busy(Concern::Repair);
        if waits { Monotonic::MAX } else { self.pace.at() }
    }

    /// Sweeps if that is due. A wedged leader that was sweeps as a probe, to learn whether it can again.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>, leadership: &Leadership) {
        if self.wakes_at(turn.view(), leadership) > turn.now {
            return;
        }
        let scan = ScanSweep {
            limit: count(limit(turn)),
            redispatch_after: turn.config.redispatch_after,
            node_stale_after: turn.config.node_stale_after,
        };
        turn.call(Call::ScanSweep, Command::ScanSweep(scan));
    }

    /// A sweep succeeded: what it found is repaired, if this node may.
    pub(super) fn swept(&mut self, turn: &mut Turn<'_>, leadership: &Leadership, found: &SweepFindings) {
        let limit = limit(turn);
        let SweepFindings { expired, undelivered, settled, overdue, stale_nodes } = found;
        let lengths = [expired.len(), undelivered.len(), settled.len(), overdue.len(), stale_nodes.len()];
        let longest = lengths.into_iter().fold(0, usize::max);
        let Some(leadership) = leadership.lease() else {
            self.pace.set(turn.on_the_beat(turn.config.sweep_every));
            return;
        };
        if longest >= limit {
            self.pace.set(turn.now);
        } else {
            self.pace.set(turn.on_the_beat(turn.config.sweep_every));
        }
        let takeovers = expired.iter().map(|run| take_over(turn, run));
        let redispatches = undelivered.iter().map(|dispatch| RepairItem::Redispatch { dispatch: *dispatch });
        let drops = settled.iter().map(|row| RepairItem::DropOutbox { row: *row });
        let ends = overdue
            .iter()
            .map(|(run, state)| RepairItem::EndOverdue { run: *run, state: *state })
            .filter(|_| !turn.has(Bug::OverdueNeverEnded));
        let retirements = stale_nodes
            .iter()
            .map(|(node, seen_at)| RepairItem::RetireNode { node: *node, seen_at: *seen_at });
        let items: Vec<_> =
            takeovers.chain(redispatches).chain(drops).chain(ends).chain(retirements).collect();
        if items.is_empty() || turn.has(Bug::LeaderNeverRepairs) {
            return;
        }
        let command = Repair { node: turn.config.node, leadership: leadership.token, items: items.clone() };
        turn.call(Call::Repair { leadership, items }, Command::Repair(command));
    }

    pub(super) fn repaired(turn: &mut Turn<'_>, items: &[RepairItem], replies: &[RepairItemReply]) {
        let (mut taken_over, mut redispatched, mut dropped, mut overdue, mut retired) = (0, 0, 0, 0, 0);
        for (item, reply) in items.iter().zip(replies) {
            match (reply, item) {
                (RepairItemReply::Done, RepairItem::TakeOver { .. }) => taken_over += 1,
                (RepairItemReply::Done, RepairItem::Redispatch { .. }) => redispatched += 1,
                (RepairItemReply::Done, RepairItem::DropOutbox { .. }) => dropped += 1,
                (RepairItemReply::Done, RepairItem::EndOverdue { .. }) => overdue += 1,
                (RepairItemReply::Done, RepairItem::RetireNode { .. }) => retired += 1,
                (RepairItemReply::Moved, _) => turn.report(Fact::Conflict { action: RefusedAction::Repair }),
            }
        }
        if taken_over + redispatched + dropped + overdue + retired > 0 {
            turn.report(Fact::Swept { taken_over, redispatched, dropped, overdue, retired });
        }
    }

    /// The outcome of a sweep or a repair is unknown: the next sweep sees what is left.
    pub(super) fn unknown(&mut self, turn: &Turn<'_>) {
        let (first, most) = turn.patience();
        self.pace.after_unknown(turn.now, first, most);
    }
}

fn limit(turn: &Turn<'_>) -> usize {
    (turn.view().batch() / LISTS).max(1)
}

fn take_over(turn: &Turn<'_>, expired: &ExpiredRun) -> RepairItem {
    RepairItem::TakeOver {
        run: expired.run,
        cancel: expired.cancel,
        sign: expired.sign,
        end: end_of(turn, expired),
    }
}

/// What becomes of an execution whose worker was lost.
fn end_of(turn: &Turn<'_>, expired: &ExpiredRun) -> TakeOverEnd {
    match expired.cancel {
        CancelState::Requested if !turn.has(Bug::SweepIgnoresCancel) => return TakeOverEnd::Cancelled,
        CancelState::Requested | CancelState::None => {}
    }
    if turn.has(Bug::TakeOverCancels) {
        return TakeOverEnd::Cancelled;
    }
    if turn.has(Bug::SweepIgnoresBudgets) {
        return TakeOverEnd::Retry(RESCUE_DELAY_BASE);
    }
    let (rescues, lost_starts) = count_loss(expired.sign, expired.rescues, expired.lost_starts);
    let (policy, dead_letter) = expired.definition.retry_or_default();
    if turn.has(Bug::FirstLossGivesUp) {
        return give_up(dead_letter, DeadLetterReason::RescuesSpent);
    }
    match within_deadline(after_loss(&policy, rescues, lost_starts), expired.left) {
        Verdict::RetryIn(delay) => TakeOverEnd::Retry(delay),
        Verdict::GiveUp(reason) => give_up(dead_letter, reason),
    }
}

const fn give_up(dead_letter: DeadLetters, reason: DeadLetterReason) -> TakeOverEnd {
    match dead_letter {
        DeadLetters::On => TakeOverEnd::DeadLettered(reason),
        DeadLetters::Off => TakeOverEnd::Failed,
    }
}
