//! Failures in a row: a job pauses itself when, and only when, so many of its executions in a row failed as it says.
//!
//! The row of a job is worked out anew from all of its executions whenever one of them fails: those that ended since it
//! was last resumed (or created), by their due times, those that were cancelled or skipped left out. A pause that is due
//! and does not come leaves a job firing that is to be silent; one that comes for nothing has fires passed over that
//! its policies do not pass over.

use std::collections::BTreeSet;

use fencepost_core::execution::ExecutionState as S;
use fencepost_core::id::JobId;
use fencepost_core::job::Standing;
use fencepost_core::store::change::Change;
use fencepost_core::store::command::Command;
use fencepost_core::store::row::{ExecutionRow, JobRow, JobState, JobVersionRow};

use super::Commit;
use super::brief::Brief;
use super::invariant::Invariant;
use super::mirror::Mirror;
use crate::violation::Violation;

/// Versions of a job with fires before them that nobody has recorded, from which on a pause may have to wait.
const MANY_VERSIONS: usize = 15;

/// Checks a whole command. The mirror is as after it.
pub(super) fn check(commit: &Commit<'_>, mirror: &Mirror, changes: &[Change]) -> Result<(), Violation> {
    let failed: BTreeSet<JobId> = changes.iter().filter_map(failure).map(|row| row.job).collect();
    for change in changes {
        let Change::JobVersion(delta) = change else { continue };
        let Some(row) = &delta.after else { continue };
        let by_operator =
            matches!(commit.command, Command::CreateJob(_) | Command::ChangeJob(_) | Command::SetCalendar(_));
        if !by_operator && !failed.contains(&row.job) {
            return Err(commit.broke(Invariant::NoLostFire, || {
                format!("a job was changed by nobody, and nothing of it failed: {}", Brief(row))
            }));
        }
    }
    for job in failed {
        check_job(commit, mirror, changes, job)?;
    }
    Ok(())
}

/// The execution that failed by a change, for good.
fn failure(change: &Change) -> Option<&ExecutionRow> {
    let Change::Execution(delta) = change else { return None };
    let was_live = delta.before.as_ref().is_some_and(|before| !before.state.is_terminal());
    delta.after.as_ref().filter(|after| was_live && matches!(after.state, S::DeadLettered | S::Failed))
}

fn check_job(commit: &Commit<'_>, mirror: &Mirror, changes: &[Change], id: JobId) -> Result<(), Violation> {
    let Some(after) = mirror.jobs.get(&id) else { return Ok(()) };
    let before = changes.iter().find_map(|change| match change {
        Change::Job(delta) => delta.before.as_ref().filter(|row| row.id == id),
        _ => None,
    });
    let before = before.unwrap_or(after);
    let pause = changes.iter().find_map(|change| match change {
        Change::JobVersion(delta) => delta.after.as_ref().filter(|row| row.job == id),
        _ => None,
    });
    let row = row_of(mirror, before);
    match (row, pause) {
        (None, None) => Ok(()),
        (Some(_), None) if has_many_versions(mirror, before) => Ok(()),
        (Some(row), None) => Err(commit.broke(Invariant::PausedIsSilent, || {
            format!("{id} was not paused, and these failed in a row: {}", Brief(&ids(&row)))
        })),
        (None, Some(pause)) => Err(commit.broke(Invariant::NoLostFire, || {
            format!("{id} was paused, and not so many failed in a row: {}", Brief(pause))
        })),
        (Some(row), Some(pause)) => check_pause(commit, after, pause, &row),
    }
}

/// The latest executions of a job, latest first, if they are as many as it says and all of them failed.
fn row_of<'a>(mirror: &'a Mirror, job: &JobRow) -> Option<Vec<&'a ExecutionRow>> {
    let most = job.definition.read().ok()?.pause_after_failures? as usize;
    if job.state != JobState::Active || job.standing != Standing::Active {
        return None;
    }
    let since = mirror.versions.get(&(job.id, job.standing_since))?.effective_from;
    let ended = |row: &&ExecutionRow| {
        matches!(row.state, S::Completed | S::DeadLettered | S::Failed)
            && row.finished_at.is_some_and(|at| at >= since)
    };
    let mut row: Vec<&ExecutionRow> =
        mirror.executions.values().filter(|row| row.job == job.id).filter(ended).collect();
    row.sort_by_key(|row| core::cmp::Reverse((row.due_at, row.id)));
    row.truncate(most);
    (row.len() == most && row.iter().all(|row| row.state != S::Completed)).then_some(row)
}

fn has_many_versions(mirror: &Mirror, job: &JobRow) -> bool {
    let undecided = mirror.versions_of(job.id).filter(|(row, _)| row.effective_from > job.recorded_through);
    undecided.count() >= MANY_VERSIONS
}

/// The pause says who paused the job and for which failure, and stands.
fn check_pause(
    commit: &Commit<'_>,
    job: &JobRow,
    pause: &JobVersionRow,
    row: &[&ExecutionRow],
) -> Result<(), Violation> {
    let latest = row.first().map(|row| row.id.to_string()).unwrap_or_default();
    let is_told = pause.actor.as_deref() == Some("fencepost")
        && pause.reason.as_deref().is_some_and(|reason| reason.contains(&latest));
    let stands = pause.standing == Standing::Paused
        && (job.standing, job.standing_since, job.version)
            == (Standing::Paused, pause.version, pause.version);
    if is_told && stands {
        return Ok(());
    }
    Err(commit.broke(Invariant::PausedIsSilent, || {
        format!("{} failed too often, and its pause does not stand or say so: {}", job.id, Brief(pause))
    }))
}

fn ids(row: &[&ExecutionRow]) -> Vec<String> {
    row.iter().map(|row| row.id.to_string()).collect()
}
