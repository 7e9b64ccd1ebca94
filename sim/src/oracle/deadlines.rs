//! Deadlines of whole executions: each has the one that its version sets, nothing starts past its own, and what is ended
//! for it while nothing runs is past it.
//!
//! The deadline is on the row, so a change that has to do with none costs a look at a `None`.

use fencepost_core::execution::ExecutionState as S;
use fencepost_core::job::DeadLetters;
use fencepost_core::store::change::Delta;
use fencepost_core::store::command::{Command, RepairItem};
use fencepost_core::store::row::ExecutionRow;

use super::Commit;
use super::brief::Brief;
use super::executions::definition_of;
use super::invariant::Invariant;
use super::mirror::Mirror;
use crate::violation::Violation;

/// Checks one change of an execution. The mirror is as before it.
pub(super) fn check_change(
    commit: &Commit<'_>,
    mirror: &Mirror,
    delta: &Delta<ExecutionRow>,
) -> Result<(), Violation> {
    let Some(after) = &delta.after else { return Ok(()) };
    let Some(before) = &delta.before else { return check_birth(commit, mirror, after) };
    let broke =
        |what: &str| Err(commit.broke(Invariant::AttemptBounds, || format!("{} {what}", Brief(after))));
    if before.deadline_at != after.deadline_at {
        return broke("has another deadline than before");
    }
    let waited = matches!(before.state, S::Pending | S::RetryWait);
    let is_past = after.deadline_at.is_some_and(|at| at <= commit.now);
    match after.state {
        S::Running if waited && is_past => broke("was started past its deadline"),
        S::DeadLettered | S::Failed if waited && !is_past => {
            broke("was given up while nothing ran, before its deadline")
        }
        S::DeadLettered | S::Failed if waited && !is_named(commit, after) => Err(commit
            .broke(Invariant::FencedWrite, || {
                format!("{} was ended for its deadline by a command that does not name it", Brief(after))
            })),
        S::DeadLettered | S::Failed if waited => check_kept(commit, mirror, after),
        S::Pending
        | S::Running
        | S::RetryWait
        | S::Completed
        | S::DeadLettered
        | S::Failed
        | S::Cancelled
        | S::Skipped => Ok(()),
    }
}

fn check_birth(commit: &Commit<'_>, mirror: &Mirror, row: &ExecutionRow) -> Result<(), Violation> {
    let Some(definition) = definition_of(mirror, row) else { return Ok(()) };
    let expected = definition.deadline.map(|deadline| row.due_at.plus(deadline));
    if expected == row.deadline_at {
        return Ok(());
    }
    Err(commit.broke(Invariant::AttemptBounds, || {
        format!("{} was made with the deadline {:?}, not {expected:?}", row.id, row.deadline_at)
    }))
}

/// Whether the command is about this execution: its message arrived, or the sweep found it.
fn is_named(commit: &Commit<'_>, row: &ExecutionRow) -> bool {
    match commit.command {
        Command::AcquireExecutions(ask) => ask.items.iter().any(|item| item.execution == row.id),
        Command::Repair(ask) => {
            let names = |item: &RepairItem| matches!(item, RepairItem::EndOverdue { run, .. } if run.execution == row.id);
            ask.items.iter().any(names)
        }
        _ => false,
    }
}

fn check_kept(commit: &Commit<'_>, mirror: &Mirror, row: &ExecutionRow) -> Result<(), Violation> {
    let kept = match row.state {
        S::Failed => DeadLetters::Off,
        S::Pending
        | S::Running
        | S::RetryWait
        | S::Completed
        | S::DeadLettered
        | S::Cancelled
        | S::Skipped => DeadLetters::On,
    };
    match definition_of(mirror, row) {
        Some(definition) if definition.dead_letter != kept => Err(commit
            .broke(Invariant::DeadLetterOnce, || {
                format!("{} ended as {} for its deadline, against its version", row.id, row.state)
            })),
        Some(_) | None => Ok(()),
    }
}
