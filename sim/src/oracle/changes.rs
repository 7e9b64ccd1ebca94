//! Changes of a job: an edit, a pause or a resume is planned on what the job is, makes one more version, and is answered
//! as it was; and what is paused is silent.

use fencepost_core::execution::ExecutionState;
use fencepost_core::id::Occurrence;
use fencepost_core::job::Standing;
use fencepost_core::store::change::{Change, Delta};
use fencepost_core::store::command::{ChangeJob, Command, JobChange};
use fencepost_core::store::reply::{ChangeJobReply, Reply};
use fencepost_core::store::row::{ExecutionRow, JobRow, JobState, JobVersionRow};

use super::Commit;
use super::brief::Brief;
use super::invariant::Invariant;
use super::mirror::Mirror;
use crate::violation::Violation;

/// Checks that nothing of a fire starts while its job is paused. The mirror is as before the change.
pub(super) fn check_start(
    commit: &Commit<'_>,
    mirror: &Mirror,
    delta: &Delta<ExecutionRow>,
) -> Result<(), Violation> {
    let (Some(before), Some(after)) = (&delta.before, &delta.after) else { return Ok(()) };
    let starts = before.state == ExecutionState::Pending && after.state == ExecutionState::Running;
    if !starts || !matches!(after.occurrence, Occurrence::Scheduled { .. }) {
        return Ok(());
    }
    match mirror.jobs.get(&after.job) {
        Some(job) if job.standing == Standing::Paused && job.state == JobState::Active => Err(commit
            .broke(Invariant::PausedIsSilent, || {
                format!("{} was started although its job is paused: {}", after.id, Brief(job))
            })),
        Some(_) | None => Ok(()),
    }
}

/// Checks a whole change and its answer. The mirror is as after the command.
pub(super) fn check(commit: &Commit<'_>, mirror: &Mirror, changes: &[Change]) -> Result<(), Violation> {
    for change in changes {
        if let Change::JobVersion(delta) = change {
            check_version(commit, mirror, delta)?;
        }
    }
    let (Command::ChangeJob(ask), Reply::JobChanged(reply)) = (commit.command, commit.reply) else {
        return Ok(());
    };
    let job = mirror.jobs.get(&ask.job);
    let is_true = match reply {
        ChangeJobReply::Changed { version } => {
            let before = changes.iter().find_map(|change| match change {
                Change::Job(delta) if delta.after.is_some() => delta.before.as_ref(),
                _ => None,
            });
            if let Some(before) = before {
                check_expected(commit, ask, before)?;
            }
            let row = mirror.versions.get(&(ask.job, *version));
            before.is_some_and(|before| before.version.next() == *version)
                && job.zip(row).is_some_and(|(job, row)| is_as_asked(ask, job, row))
        }
        ChangeJobReply::Repeated { version } => {
            changes.is_empty() && mirror.versions.contains_key(&(ask.job, *version))
        }
        ChangeJobReply::Already { version } => {
            let stands =
                |job: &JobRow| job.version == *version && ask.change.standing() == Some(job.standing);
            changes.is_empty() && job.is_some_and(stands)
        }
        ChangeJobReply::VersionChanged { current } => {
            changes.is_empty() && job.is_some_and(|job| job.version == *current)
        }
        ChangeJobReply::PlanExpired
        | ChangeJobReply::LedgerBehind
        | ChangeJobReply::CalendarChanged
        | ChangeJobReply::RequestReused
        | ChangeJobReply::NotFound => changes.is_empty(),
    };
    if is_true {
        return Ok(());
    }
    Err(commit.broke(Invariant::Conservation, || {
        format!("a change was answered {reply:?}, and the rows say otherwise: {}", Brief(&job))
    }))
}

/// The version and the watermark that a change was planned on were current.
fn check_expected(commit: &Commit<'_>, ask: &ChangeJob, before: &JobRow) -> Result<(), Violation> {
    if before.version == ask.expected_version && before.recorded_through == ask.expected_watermark {
        return Ok(());
    }
    Err(commit.broke(Invariant::FencedWrite, || {
        format!(
            "{} was changed by a plan on version {} and watermark {}: {}",
            before.id,
            ask.expected_version.0,
            ask.expected_watermark,
            Brief(before)
        )
    }))
}

/// Versions are appended, one by one, and never decide about less than those before them.
fn check_version(
    commit: &Commit<'_>,
    mirror: &Mirror,
    delta: &Delta<JobVersionRow>,
) -> Result<(), Violation> {
    let appended = match (&delta.before, &delta.after) {
        (None, Some(row)) => {
            let before =
                mirror.versions.range(..(row.job, row.version)).next_back().map(|(_, before)| before);
            match before.filter(|before| before.job == row.job) {
                Some(before) => {
                    before.version.next() == row.version && before.effective_from <= row.effective_from
                }
                None => row.version == fencepost_core::id::JobVersion::FIRST,
            }
        }
        (_, _) => false,
    };
    if appended {
        return Ok(());
    }
    Err(commit.broke(Invariant::Conservation, || format!("a version is not the next one: {}", Brief(delta))))
}

/// Whether the job and its new version are what was asked for.
fn is_as_asked(ask: &ChangeJob, job: &JobRow, row: &JobVersionRow) -> bool {
    let is_asked = match &ask.change {
        JobChange::Edit(definition) => {
            job.definition == *definition && row.standing == job.standing && job.unreadable.is_none()
        }
        JobChange::Pause => job.standing == Standing::Paused && job.standing_since == row.version,
        JobChange::Resume => job.standing == Standing::Active && job.standing_since == row.version,
    };
    is_asked
        && job.version == row.version
        && (job.standing, job.standing_since) == (row.standing, row.standing_since)
        && job.definition == row.definition
        && job.effective_from == row.effective_from
        && (&row.actor, &row.reason) == (&ask.actor, &ask.reason)
}
