//! The latest lines of a job's ledger, beside its birth and its end: what ran, by which fire or hand, and what did not.

use std::sync::Arc;

use crate::execution::{ExecutionState, SkipReason};
use crate::explain::facts::{JobFacts, RecentExecution, StandingSaid};
use crate::explain::statement::{Statement, statements};
use crate::fencing::FencingToken;
use crate::id::{ExecutionId, JobVersion, Occurrence};
use crate::job::Standing;
use crate::limits::EXPLAINED_LEDGER_MAX;
use crate::schedule::Exclusion;
use crate::store::row::{JobState, JobVersionRow, SkippedRangeRow};
use crate::time::Timestamp;

statements!("job/past",
/// What happened to a job.
Past {
    /// It was created; fires before that do not count.
    Created = "job_created" {
        at: Timestamp,
    } => format!("Created at {at}.");
    /// A fire became an execution.
    Fired = "fire_executed" {
        fire: Timestamp, execution_id: ExecutionId, state: ExecutionState, job_version: JobVersion,
        token: FencingToken,
    } => format!("The fire of {fire} became execution {execution_id}, which is {state}.");
    /// A fire became an execution that was skipped.
    FireSkipped = "fire_skipped" {
        fire: Timestamp, execution_id: ExecutionId, reason: SkipReason, job_version: JobVersion,
        token: FencingToken,
    } => format!("The fire of {fire} was skipped ({reason}), as execution {execution_id}.");
    /// A run of fires was passed over; its bounds are fires.
    RangeSkipped = "fires_skipped" {
        from: Timestamp, through: Timestamp, reason: SkipReason, decided_at: Timestamp, job_version: JobVersion,
        token: FencingToken, zone_data: Arc<str>,
    } => if from == through {
        format!("The fire of {from} was passed over ({reason}), decided at {decided_at}.")
    } else {
        format!("The fires from {from} through {through} were passed over ({reason}), decided at {decided_at}.")
    };
    /// A run of fires was passed over because the job was paused.
    RangePaused = "fires_skipped_paused" {
        from: Timestamp, through: Timestamp, paused_at: Option<Timestamp>, actor: Option<Arc<str>>,
        reason: Option<Arc<str>>, decided_at: Timestamp, job_version: JobVersion, token: FencingToken,
        zone_data: Arc<str>,
    } => format!(
        "{}: the job was paused{}{}.",
        if from == through {
            format!("The fire of {from} was passed over")
        } else {
            format!("The fires from {from} through {through} were passed over")
        },
        paused_at.map(|at| format!(" at {at}")).unwrap_or_default(),
        StandingSaid::by(actor.as_deref(), reason.as_deref()),
    );
    /// A run of fires was passed over because a calendar excludes their days.
    RangeExcluded = "fires_skipped_calendar" {
        from: Timestamp, through: Timestamp, calendar: Option<Arc<str>>, calendar_version: Option<u64>,
        decided_at: Timestamp, job_version: JobVersion, token: FencingToken, zone_data: Arc<str>,
    } => format!(
        "{} excluded by {}.",
        if from == through {
            format!("The fire of {from} was passed over: its day is")
        } else {
            format!("The fires from {from} through {through} were passed over: their days are")
        },
        match (&calendar, calendar_version) {
            (Some(name), Some(version)) => format!("the calendar {name:?} (version {version})"),
            (_, _) => "a calendar of the job".to_owned(),
        },
    );
    /// Its definition was changed; fires before that are those of the version before.
    Edited = "job_edited" {
        at: Timestamp, actor: Option<Arc<str>>, reason: Option<Arc<str>>, job_version: JobVersion,
    } => format!(
        "Edited{}: version {} decides from {at} on.", StandingSaid::by(actor.as_deref(), reason.as_deref()),
        job_version.0,
    );
    /// It was paused.
    Paused = "job_was_paused" {
        at: Timestamp, actor: Option<Arc<str>>, reason: Option<Arc<str>>, job_version: JobVersion,
    } => format!("Paused at {at}{}.", StandingSaid::by(actor.as_deref(), reason.as_deref()));
    /// It was resumed.
    Resumed = "job_was_resumed" {
        at: Timestamp, actor: Option<Arc<str>>, reason: Option<Arc<str>>, job_version: JobVersion,
    } => format!("Resumed at {at}{}.", StandingSaid::by(actor.as_deref(), reason.as_deref()));
    /// It was triggered by hand.
    RanByHand = "ran_by_hand" {
        at: Timestamp, execution_id: ExecutionId, state: ExecutionState, key: Arc<str>,
    } => format!("Triggered at {at} under the key {key:?}: execution {execution_id}, which is {state}.");
    /// A dead letter of it was replayed.
    RanByReplay = "ran_by_replay" {
        at: Timestamp, execution_id: ExecutionId, state: ExecutionState, origin: ExecutionId, number: u32,
    } => format!("Replay {number} of the dead letter {origin} at {at}: execution {execution_id}, which is {state}.");
    /// It was deleted, for good.
    Deleted = "job_deleted" {
        at: Timestamp, job_version: JobVersion,
    } => format!("Deleted at {at}.");
});

/// Its birth, the latest lines, and its end.
pub(super) fn of(facts: &JobFacts) -> Vec<Statement> {
    let mut lines: Vec<(Timestamp, Past)> = facts.executions.iter().map(execution).collect();
    lines.extend(facts.skipped.iter().map(|row| range(facts, row)));
    lines.extend(facts.changes.iter().map(change));
    lines.sort_by_key(|(at, _)| *at);
    let earlier = lines.len().saturating_sub(EXPLAINED_LEDGER_MAX);
    let job = &facts.job;
    let deleted = match job.state {
        JobState::Active => None,
        JobState::Deleted => Some(Past::Deleted { at: job.effective_from, job_version: job.version }),
    };
    core::iter::once(Past::Created { at: job.created_at })
        .chain(lines.into_iter().skip(earlier).map(|(_, line)| line))
        .chain(deleted)
        .map(Statement::from)
        .collect()
}

fn execution(row: &RecentExecution) -> (Timestamp, Past) {
    let (execution_id, state, job_version, token) = (row.id, row.state, row.job_version, row.made_under);
    let past = match (&row.occurrence, row.skip_reason) {
        (Occurrence::Scheduled { fire }, Some(reason)) => {
            Past::FireSkipped { fire: *fire, execution_id, reason, job_version, token }
        }
        (Occurrence::Scheduled { fire }, None) => {
            Past::Fired { fire: *fire, execution_id, state, job_version, token }
        }
        (Occurrence::Manual { key }, _) => {
            Past::RanByHand { at: row.due_at, execution_id, state, key: key.clone() }
        }
        (Occurrence::Replay { origin, number }, _) => {
            Past::RanByReplay { at: row.due_at, execution_id, state, origin: *origin, number: *number }
        }
    };
    (row.due_at, past)
}

/// What a version changed.
fn change(row: &JobVersionRow) -> (Timestamp, Past) {
    let (at, actor, reason, job_version) =
        (row.effective_from, row.actor.clone(), row.reason.clone(), row.version);
    let past = match row.standing {
        _ if row.standing_since != row.version => Past::Edited { at, actor, reason, job_version },
        Standing::Paused => Past::Paused { at, actor, reason, job_version },
        Standing::Active => Past::Resumed { at, actor, reason, job_version },
    };
    (at, past)
}

fn range(facts: &JobFacts, row: &SkippedRangeRow) -> (Timestamp, Past) {
    if row.reason == SkipReason::Paused {
        let pause = facts.pauses.iter().find(|(version, _)| *version == row.job_version);
        let pause = pause.map(|(_, pause)| pause);
        let past = Past::RangePaused {
            from: row.from,
            through: row.through,
            paused_at: pause.map(|pause| pause.at),
            actor: pause.and_then(|pause| pause.actor.clone()),
            reason: pause.and_then(|pause| pause.reason.clone()),
            decided_at: row.decided_at,
            job_version: row.job_version,
            token: row.made_under,
            zone_data: row.zone_data.clone(),
        };
        return (row.from, past);
    }
    if row.reason == SkipReason::Calendar {
        let known = calendar_of(facts, row);
        let past = Past::RangeExcluded {
            from: row.from,
            through: row.through,
            calendar: known.as_ref().map(|known| Arc::clone(&known.calendar)),
            calendar_version: known.map(|known| known.version),
            decided_at: row.decided_at,
            job_version: row.job_version,
            token: row.made_under,
            zone_data: row.zone_data.clone(),
        };
        return (row.from, past);
    }
    let past = Past::RangeSkipped {
        from: row.from,
        through: row.through,
        reason: row.reason,
        decided_at: row.decided_at,
        job_version: row.job_version,
        token: row.made_under,
        zone_data: row.zone_data.clone(),
    };
    (row.from, past)
}

/// The calendar that excludes a range, as the version that decided about it has it, if that is at hand.
fn calendar_of(facts: &JobFacts, row: &SkippedRangeRow) -> Option<Exclusion> {
    let is_current = facts.job.version == row.job_version;
    let earlier = facts.changes.iter().find(|version| version.version == row.job_version);
    let stored = if is_current { Some(&facts.job.definition) } else { earlier.map(|row| &row.definition) };
    let definition = stored?.read().ok()?;
    definition.excluded().calendar_of(row.from).cloned()
}
