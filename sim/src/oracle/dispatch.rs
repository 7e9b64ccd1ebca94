//! Dispatch: a transition and its outbox row commit together, and the row stays until the broker has it.

use std::collections::BTreeSet;

use fencepost_core::execution::ExecutionState;
use fencepost_core::store::change::{Change, Delta};
use fencepost_core::store::command::{Command, OutboxId};
use fencepost_core::store::row::{ExecutionRow, OutboxRow};

use super::Commit;
use super::brief::Brief;
use super::invariant::Invariant;
use super::mirror::Mirror;
use crate::violation::Violation;

/// What is remembered of dispatches.
#[derive(Debug, Default)]
pub(super) struct Dispatches {
    /// What the broker has confirmed, whether or not anybody heard of it.
    pub(super) confirmed: BTreeSet<OutboxId>,
}

impl Dispatches {
    /// A row that is made waits for a confirm of its own: one from before it existed is none.
    pub(super) fn absorb(&mut self, change: &Change) {
        if let Change::Outbox(Delta { before: None, after: Some(row) }) = change {
            self.confirmed.remove(&OutboxId { execution: row.execution, dispatch_no: row.dispatch_no });
        }
    }

    /// Checks that an outbox row goes only when it may. The mirror is as after the command.
    pub(super) fn check_removal(
        &self,
        commit: &Commit<'_>,
        mirror: &Mirror,
        delta: &Delta<OutboxRow>,
    ) -> Result<(), Violation> {
        let (Some(before), None) = (&delta.before, &delta.after) else { return Ok(()) };
        let id = OutboxId { execution: before.execution, dispatch_no: before.dispatch_no };
        let execution = mirror.executions.get(&id.execution);
        let needed = execution.is_some_and(|row| {
            row.state == ExecutionState::Pending && row.dispatch_no == id.dispatch_no && row.waiting.is_none()
        });
        let settled = execution.is_some_and(|row| row.state.is_terminal());
        let may_go = match commit.command {
            Command::RemoveOutbox(ask) => ask.rows.contains(&id) && self.confirmed.contains(&id),
            // The reason for waiting is recorded in the same commit, in place of the row.
            Command::ReturnOutbox(ask) => ask.rows.iter().any(|(row, _)| *row == id) && !needed,
            Command::Repair(_) => settled,
            _ => false,
        };
        if may_go {
            return Ok(());
        }
        Err(commit.broke(Invariant::OutboxUntilConfirmed, || {
            format!(
                "{} removed {id:?} of an execution that is {:?}; the broker {} it",
                commit.command.kind(),
                execution.map(|row| (row.state, row.dispatch_no, row.waiting)),
                if self.confirmed.contains(&id) { "has confirmed" } else { "has not confirmed" }
            )
        }))
    }
}

/// Whether this change of an execution needs a new dispatch.
fn needs_dispatch(delta: &Delta<ExecutionRow>) -> bool {
    let Some(after) = &delta.after else { return false };
    let Some(before) = &delta.before else { return after.state == ExecutionState::Pending };
    let woken = before.waiting.is_some() && after.waiting.is_none();
    after.state == ExecutionState::Pending
        && (before.state != ExecutionState::Pending || woken || before.dispatch_no != after.dispatch_no)
}

/// Checks a whole command: each dispatch has its row in the same commit. The mirror is as after it.
pub(super) fn check_atomic(
    commit: &Commit<'_>,
    mirror: &Mirror,
    changes: &[Change],
) -> Result<(), Violation> {
    let split = |detail: String| commit.broke(Invariant::AtomicDispatch, || detail);
    for change in changes {
        match change {
            Change::Execution(delta) => {
                let Some(after) = &delta.after else { continue };
                let id = OutboxId { execution: after.id, dispatch_no: after.dispatch_no };
                if needs_dispatch(delta) && !mirror.outbox.contains_key(&id) {
                    return Err(split(format!(
                        "{} became {} without an outbox row {id:?}",
                        after.id, after.state
                    )));
                }
                let known = after.waiting.is_some()
                    || after.dispatched_at.is_some()
                    || mirror.outbox.contains_key(&id);
                if after.state == ExecutionState::Pending && !known {
                    return Err(split(format!("{} is pending, and nothing will ever move it", after.id)));
                }
            }
            Change::Outbox(Delta { before: None, after: Some(row) }) => {
                let execution = mirror.executions.get(&row.execution);
                let belongs = execution.is_some_and(|execution| {
                    let started = matches!(commit.command, Command::AcquireExecutions(_));
                    (execution.state == ExecutionState::Pending || started)
                        && execution.dispatch_no == row.dispatch_no
                });
                if !belongs {
                    return Err(split(format!(
                        "an outbox row {} was made for {}",
                        Brief(row),
                        Brief(&execution)
                    )));
                }
            }
            Change::Outbox(_)
            | Change::Tenant(_)
            | Change::Lease(_)
            | Change::Node(_)
            | Change::Job(_)
            | Change::JobVersion(_)
            | Change::Attempt(_)
            | Change::DeadLetter(_)
            | Change::SkippedRange(_)
            | Change::Refusal(_)
            | Change::Request(_)
            | Change::Pause(_)
            | Change::Limit(_)
            | Change::Calendar(_)
            | Change::Malformed(_) => {}
        }
    }
    Ok(())
}
