//! Overlap: who holds a job's slot, by what was granted and what has ended, and whether what was granted, made to wait or
//! passed over meanwhile is as the policy of its own version says.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::execution::{ExecutionState, SkipReason, WaitReason};
use fencepost_core::id::{ExecutionId, JobId};
use fencepost_core::job::Overlap;
use fencepost_core::store::change::Delta;
use fencepost_core::store::command::Command;
use fencepost_core::store::row::ExecutionRow;

use super::Commit;
use super::executions::definition_of;
use super::invariant::Invariant;
use super::mirror::Mirror;
use crate::violation::Violation;

/// Who holds which slot.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// By job: what has had a lease and has not ended.
    held: BTreeMap<JobId, BTreeSet<ExecutionId>>,
    /// By job: what waits for its slot.
    waiting: BTreeMap<JobId, BTreeSet<ExecutionId>>,
    /// The jobs whose slot was given back by the command under way: what it decides it may have decided before.
    given_back: BTreeSet<JobId>,
}

impl Slots {
    /// A command begins.
    pub(super) fn begin(&mut self) {
        self.given_back.clear();
    }

    /// Checks one change of an execution, and takes it over. The mirror is as before it.
    pub(super) fn check_change(
        &mut self,
        commit: &Commit<'_>,
        mirror: &Mirror,
        delta: &Delta<ExecutionRow>,
    ) -> Result<(), Violation> {
        if let (Some(before), Some(after)) = (&delta.before, &delta.after) {
            let overlap =
                definition_of(mirror, after).map_or(Overlap::Allow, |definition| definition.overlap);
            self.check(commit, mirror, overlap, before, after)?;
        }
        if let Some(after) = &delta.after {
            self.absorb(after);
        }
        Ok(())
    }

    fn holds_slot(&self, id: ExecutionId, job: JobId) -> bool {
        self.held.get(&job).is_some_and(|held| held.contains(&id))
    }

    fn others(map: &BTreeMap<JobId, BTreeSet<ExecutionId>>, row: &ExecutionRow) -> Option<ExecutionId> {
        map.get(&row.job)?.iter().find(|id| **id != row.id).copied()
    }

    fn check(
        &self,
        commit: &Commit<'_>,
        mirror: &Mirror,
        overlap: Overlap,
        before: &ExecutionRow,
        after: &ExecutionRow,
    ) -> Result<(), Violation> {
        let holder = Self::others(&self.held, after);
        let is_first = !self.holds_slot(after.id, after.job);
        let broke = |invariant: Invariant, what: &str| {
            Err(commit.broke(invariant, || {
                format!(
                    "{} of {}, whose overlap is {overlap}, {what}: {holder:?} holds the slot",
                    after.id, after.job
                )
            }))
        };
        if before.state == ExecutionState::Pending
            && after.state == ExecutionState::Running
            && is_first
            && overlap != Overlap::Allow
            && holder.is_some()
        {
            return broke(Invariant::OverlapHonoured, "got its first lease");
        }
        let was_held = holder.is_some() || self.given_back.contains(&after.job);
        if before.state == ExecutionState::Pending && after.state == ExecutionState::Skipped {
            let justified = is_first
                && after.skip_reason == Some(SkipReason::Overlap)
                && match overlap {
                    Overlap::Allow => false,
                    Overlap::Skip => was_held,
                    Overlap::BufferOne => {
                        // An edit may have made a later one that takes the place of what waits.
                        let displaced = before.waiting == Some(WaitReason::Buffered)
                            && is_replaced(commit, mirror, after)
                            && has_later(mirror, after);
                        was_held && (displaced || Self::others(&self.waiting, after).is_some())
                    }
                    Overlap::CancelRunning => was_held && has_later(mirror, after),
                };
            if !justified {
                return broke(Invariant::NoLostFire, "was passed over");
            }
        }
        let waits = |row: &ExecutionRow| row.waiting == Some(WaitReason::Buffered);
        if waits(after) && !waits(before) {
            let may_wait = match overlap {
                Overlap::Allow | Overlap::Skip => false,
                Overlap::BufferOne | Overlap::CancelRunning => is_first && holder.is_some(),
            };
            if !may_wait || Self::others(&self.waiting, after).is_some() {
                return broke(Invariant::OverlapHonoured, "was made to wait for the slot");
            }
        }
        Ok(())
    }

    fn absorb(&mut self, row: &ExecutionRow) {
        let held = self.held.entry(row.job).or_default();
        if row.state == ExecutionState::Running {
            held.insert(row.id);
        } else if row.state.is_terminal() && held.remove(&row.id) {
            self.given_back.insert(row.job);
        }
        let waiting = self.waiting.entry(row.job).or_default();
        if row.waiting == Some(WaitReason::Buffered) {
            waiting.insert(row.id);
        } else {
            waiting.remove(&row.id);
        }
    }
}

/// Whether a later fire of the job is there that stays in its place.
fn has_later(mirror: &Mirror, row: &ExecutionRow) -> bool {
    let live = mirror.live_in(ExecutionState::Pending);
    live.filter(|other| other.job == row.job).any(|other| (other.due_at, other.id) > (row.due_at, row.id))
}

/// Whether a command may cancel, displace or lift an execution that it does not name: an acquire by one of the same job
/// whose policy replaces what runs.
pub(super) fn is_replaced(commit: &Commit<'_>, mirror: &Mirror, row: &ExecutionRow) -> bool {
    let Command::AcquireExecutions(ask) = commit.command else { return false };
    let asking = ask.items.iter().filter_map(|item| mirror.executions.get(&item.execution));
    asking.filter(|other| other.job == row.job).any(|other| {
        definition_of(mirror, other).is_some_and(|definition| definition.overlap == Overlap::CancelRunning)
    })
}

/// Whether something else of the job may stand in the way of an execution that asks for a lease: another that has had
/// one, or that asks in the same batch.
pub(super) fn may_stand_back(commit: &Commit<'_>, mirror: &Mirror, row: &ExecutionRow) -> bool {
    if row.leased_at.is_some() {
        return is_replaced(commit, mirror, row);
    }
    let Command::AcquireExecutions(ask) = commit.command else { return false };
    let judged = definition_of(mirror, row).is_some_and(|definition| definition.overlap != Overlap::Allow);
    let batch = || ask.items.iter().filter_map(|item| mirror.executions.get(&item.execution));
    let live = || mirror.live.iter().filter_map(|id| mirror.executions.get(id));
    let beside = |other: &ExecutionRow| other.job == row.job && other.id != row.id;
    judged && (batch().any(beside) || live().any(|other| beside(other) && other.leased_at.is_some()))
}

/// Whether a command lifts an execution that it does not name, because it ends what held the slot or counted.
pub(super) fn is_lifted(before: &ExecutionRow, after: &ExecutionRow) -> bool {
    matches!(before.waiting, Some(WaitReason::Buffered | WaitReason::TenantLimit | WaitReason::KeyLimit))
        && after.waiting.is_none()
        && (before.state, after.state) == (ExecutionState::Pending, ExecutionState::Pending)
        && before.dispatch_no.next() == after.dispatch_no
}
