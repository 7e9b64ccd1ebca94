//! Pauses of tenants and queues: what is paused is silent, what waits for a pause waits for one that stands, and pauses
//! begin and end as they were asked for.
//!
//! Judged by the order of commits: between that of a pause and that of its resume, no attempt of that tenant, or of that
//! tenant's work on that queue, starts. Which queue an execution goes to is read here from the text of its version.

use fencepost_core::execution::ExecutionState;
use fencepost_core::job::StoredDefinition;
use fencepost_core::pause::PauseScope;
use fencepost_core::store::change::{Change, Delta};
use fencepost_core::store::command::{Command, PauseChange, SetPause};
use fencepost_core::store::reply::{Reply, SetPauseReply};
use fencepost_core::store::row::{ExecutionRow, PauseRow};
use serde_json::Value;

use super::Commit;
use super::brief::Brief;
use super::invariant::Invariant;
use super::mirror::Mirror;
use crate::violation::Violation;

/// Whether work that is defined so goes to this queue.
fn goes_to(definition: &StoredDefinition, name: &str, version: u32) -> bool {
    let Ok(text) = serde_json::from_str::<Value>(definition.text()) else { return false };
    let handler = &text["definition"]["handler"];
    let stored = handler.get("version").map_or(Some(1), Value::as_u64);
    handler["name"].as_str() == Some(name) && stored == Some(u64::from(version))
}

/// The pause that an execution lies under.
pub(super) fn over<'a>(mirror: &'a Mirror, row: &ExecutionRow) -> Option<&'a PauseRow> {
    mirror.paused.values().find(|pause| {
        pause.tenant == row.tenant
            && match &pause.scope {
                PauseScope::Tenant => true,
                PauseScope::Queue(handler) => mirror
                    .versions
                    .get(&(row.job, row.job_version))
                    .is_some_and(|made| goes_to(&made.definition, handler.name.as_str(), handler.version)),
            }
    })
}

/// Checks one change of an execution. The mirror is as before it.
pub(super) fn check_execution(
    commit: &Commit<'_>,
    mirror: &Mirror,
    delta: &Delta<ExecutionRow>,
) -> Result<(), Violation> {
    let (Some(before), Some(after)) = (&delta.before, &delta.after) else { return Ok(()) };
    let starts = before.state == ExecutionState::Pending && after.state == ExecutionState::Running;
    if starts && let Some(pause) = over(mirror, after) {
        return Err(commit.broke(Invariant::PausedIsSilent, || {
            format!("{} was started although this pause stands: {}", after.id, Brief(pause))
        }));
    }
    let Some(id) = after.held_by.filter(|_| before.held_by.is_none()) else { return Ok(()) };
    match mirror.paused.get(&id) {
        Some(pause) if pause.tenant == after.tenant => Ok(()),
        Some(pause) => Err(commit.broke(Invariant::TenantWall, || {
            format!(
                "{} of tenant {} waits for the pause of another: {}",
                after.id,
                after.tenant,
                Brief(pause)
            )
        })),
        None => Err(commit.broke(Invariant::AtomicDispatch, || {
            format!("{} waits for {id}, which is no pause that stands", after.id)
        })),
    }
}

/// Checks that pauses begin and end as asked for, and are answered so. The mirror is as after the command.
pub(super) fn check(commit: &Commit<'_>, mirror: &Mirror, changes: &[Change]) -> Result<(), Violation> {
    let mut written = changes.iter().filter_map(|change| match change {
        Change::Pause(delta) => Some(delta),
        _ => None,
    });
    let first = written.next();
    let (Command::SetPause(ask), Reply::PauseSet(reply)) = (commit.command, commit.reply) else {
        return match first {
            None => Ok(()),
            Some(delta) => Err(commit.broke(Invariant::Conservation, || {
                format!("{} changed a pause: {}", commit.command.kind(), Brief(delta))
            })),
        };
    };
    let is_true = written.next().is_none()
        && match reply {
            SetPauseReply::Paused => first.is_some_and(|delta| is_begun(commit, ask, mirror, delta)),
            SetPauseReply::Resumed => first.is_some_and(|delta| is_ended(commit, ask, delta)),
            SetPauseReply::Already { pause } => changes.is_empty() && stands_so(ask, mirror, *pause),
            SetPauseReply::Repeated { .. }
            | SetPauseReply::RequestReused
            | SetPauseReply::IdTaken
            | SetPauseReply::NotFound => changes.is_empty(),
        };
    if is_true {
        return Ok(());
    }
    Err(commit.broke(Invariant::Conservation, || {
        format!("a pause was answered {reply:?}, and the rows say otherwise: {}", Brief(&first))
    }))
}

fn stands_so(ask: &SetPause, mirror: &Mirror, pause: fencepost_core::id::PauseId) -> bool {
    match &ask.change {
        PauseChange::Pause { scope, .. } => {
            mirror.paused.get(&pause).is_some_and(|row| row.tenant == ask.tenant && row.scope == *scope)
        }
        PauseChange::Resume { pause: asked, .. } => *asked == pause && !mirror.paused.contains_key(asked),
    }
}

/// One pause more, since now, and the only one of its scope.
fn is_begun(commit: &Commit<'_>, ask: &SetPause, mirror: &Mirror, delta: &Delta<PauseRow>) -> bool {
    let (PauseChange::Pause { pause, scope }, None, Some(row)) = (&ask.change, &delta.before, &delta.after)
    else {
        return false;
    };
    let alike = mirror.paused.values().filter(|known| known.tenant == row.tenant && known.scope == row.scope);
    alike.count() == 1
        && (row.id, row.tenant, &row.scope, row.since) == (*pause, ask.tenant, scope, commit.now)
        && (&row.actor, &row.reason) == (&ask.actor, &ask.reason)
        && row.ended.is_none()
}

/// It ended now, and is otherwise as it was.
fn is_ended(commit: &Commit<'_>, ask: &SetPause, delta: &Delta<PauseRow>) -> bool {
    let (PauseChange::Resume { pause, .. }, Some(before), Some(after)) =
        (&ask.change, &delta.before, &delta.after)
    else {
        return false;
    };
    let ended = after
        .ended
        .as_ref()
        .is_some_and(|end| end.at == commit.now && (&end.actor, &end.reason) == (&ask.actor, &ask.reason));
    let as_before = PauseRow { ended: None, lift_until: None, ..after.clone() };
    ended && after.id == *pause && before.ended.is_none() && *before == as_before
}
