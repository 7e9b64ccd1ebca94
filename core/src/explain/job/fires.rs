//! The fires of a job that are to come: what becomes of its backlog, the next ones, or why there are no more.

use std::sync::Arc;

use super::{Statement, backlog, is_active};
use crate::explain::facts::{JobFacts, StandingSaid};
use crate::explain::statement::{in_words, statements};
use crate::job::Standing;
use crate::limits::EXPLAINED_FIRES_MAX;
use crate::schedule::misfire::FirePlan;
use crate::schedule::{Flex, Schedule, preview_schedule};
use crate::time::{Span, Timestamp};

statements!("job/future",
/// What follows for a job.
Future {
    /// What the owner of the partition would decide now about the fires that are due.
    BacklogDecision = "backlog_decision" {
        runs: u32, first_run: Option<Timestamp>, last_run: Option<Timestamp>, skipped_from: Option<Timestamp>,
        skipped_through: Option<Timestamp>,
    } => format!(
        "Decided now, {runs} of the fires that are due would run{}{}.",
        last_run.map(|fire| format!(", the last of them that of {fire}")).unwrap_or_default(),
        match (skipped_from, skipped_through) {
            (Some(from), Some(through)) => format!(", and those from {from} through {through} would be passed over"),
            (_, _) => String::new(),
        },
    );
    /// A fire to come; `note` says what daylight saving does to it.
    NextFire = "next_fire" {
        at: String, local: String, note: Option<String>,
    } => format!(
        "Fires at {at} ({local}){}.", note.as_ref().map(|note| format!(": {note}")).unwrap_or_default(),
    );
    /// A fire to come that is due at a place of its own in a flex window; `note` as above.
    FlexedFire = "next_fire_in_flex" {
        at: String, local: String, due_at: String, flex: Span, note: Option<String>,
    } => format!(
        "Fires at {at} ({local}), due at {due_at} in a flex window of {}{}.", in_words(flex),
        note.as_ref().map(|note| format!(": {note}")).unwrap_or_default(),
    );
    /// A fire to come that is passed over, since a calendar excludes its day; `note` as above.
    ExcludedFire = "next_fire_excluded" {
        at: String, local: String, calendar: String, note: Option<String>,
    } => format!(
        "The fire of {at} ({local}) is passed over: the calendar {calendar:?} excludes its day{}.",
        note.as_ref().map(|note| format!("; {note}")).unwrap_or_default(),
    );
    /// It was deleted and never fires again.
    Deleted = "never_deleted" {
        at: Timestamp,
    } => format!("It never fires again: it was deleted at {at}.");
    /// It fires again once it is resumed; fires until then are passed over.
    Paused = "not_while_paused" {
        since: Timestamp, actor: Option<Arc<str>>, reason: Option<Arc<str>>,
    } => format!(
        "Paused since {since}{}: it fires again once it is resumed, and passes over what comes until then.",
        StandingSaid::by(actor.as_deref(), reason.as_deref()),
    );
    /// Only triggers run it.
    ManualOnly = "never_manual_only" {} => "It never fires by itself: it runs only when it is triggered.";
    /// It has had all its runs.
    MaxRuns = "never_maximum_runs" {
        runs: u64, max_runs: u64,
    } => format!("It never fires again: it has had {runs} of {max_runs} runs.");
    /// Its end has passed, or no fire lies before it.
    PastItsEnd = "never_ended" {
        end: Timestamp,
    } => format!("It never fires again: there is no fire left until its end, {end}.");
    /// Its one instant has passed.
    OneShotPast = "never_one_shot_past" {
        fire: Timestamp,
    } => format!("It never fires again: its one instant, {fire}, has passed and is recorded.");
    /// Its schedule yields no further fire.
    NoMoreFires = "never_no_more_fires" {} => "It never fires again: its schedule yields no further fire.";
    /// It fires only once a version that can read its definition owns the partition, or it is made anew.
    Unreadable = "never_while_unreadable" {
        schema: u16,
    } => format!("It does not fire as long as its definition cannot be read (by schema {schema}).");
});

/// All of it.
pub(super) fn of(facts: &JobFacts, backlog: Option<&backlog::Found>) -> Vec<Statement> {
    let job = &facts.job;
    if !is_active(facts) {
        return vec![Future::Deleted { at: job.effective_from }.into()];
    }
    let definition = match job.definition.read() {
        Ok(definition) => definition,
        Err(why) => return vec![Future::Unreadable { schema: why.schema }.into()],
    };
    let mut told = Vec::new();
    let plan = backlog.and_then(|found| found.plan.as_ref());
    told.extend(plan.map(|plan| Statement::from(decision(plan))));
    match job.standing {
        Standing::Paused => {
            let said = facts.standing.clone();
            let paused = Future::Paused { since: said.at, actor: said.actor, reason: said.reason };
            told.push(paused.into());
            return told;
        }
        Standing::Active => {}
    }
    let planned = plan.map_or(0, |plan| plan.fires.len() as u64);
    let runs = job.runs.saturating_add(planned);
    let after = facts.now.max(job.recorded_through);
    let next = {
        let flex = Flex::of(job.id, definition.flex);
        let (schedule, bounds, excluded) = (&definition.schedule, &definition.bounds, definition.excluded());
        preview_schedule(schedule, bounds, flex, excluded, runs, after, EXPLAINED_FIRES_MAX)
    };
    if next.is_empty() && plan.is_none() {
        told.push(never(facts, &definition.schedule, &definition.bounds).into());
    }
    told.extend(next.into_iter().map(|fire| match (fire.due, fire.excluded_by) {
        (_, Some(calendar)) => {
            let (at, local, note) = (fire.utc, fire.local, fire.note);
            Statement::from(Future::ExcludedFire { at, local, calendar, note })
        }
        (Some(due_at), None) => {
            let (at, local, note) = (fire.utc, fire.local, fire.note);
            Statement::from(Future::FlexedFire { at, local, due_at, flex: definition.flex, note })
        }
        (None, None) => {
            Statement::from(Future::NextFire { at: fire.utc, local: fire.local, note: fire.note })
        }
    }));
    told
}

fn decision(plan: &FirePlan) -> Future {
    Future::BacklogDecision {
        runs: u32::try_from(plan.fires.len()).unwrap_or(u32::MAX),
        first_run: plan.fires.first().copied(),
        last_run: plan.fires.last().copied(),
        skipped_from: plan.skipped.first().map(|range| range.from),
        skipped_through: plan.skipped.last().map(|range| range.through),
    }
}

fn never(facts: &JobFacts, schedule: &Schedule, bounds: &crate::schedule::Bounds) -> Future {
    let runs = facts.job.runs;
    if let Some(max_runs) = bounds.max_runs.filter(|_| bounds.exhausted_by(runs)) {
        return Future::MaxRuns { runs, max_runs };
    }
    match (schedule, bounds.end) {
        (Schedule::Manual, _) => Future::ManualOnly {},
        (Schedule::OneShot { at }, _) if *at <= facts.job.recorded_through => {
            Future::OneShotPast { fire: *at }
        }
        (Schedule::Cron { .. } | Schedule::Interval { .. } | Schedule::OneShot { .. }, Some(end)) => {
            Future::PastItsEnd { end }
        }
        (Schedule::Cron { .. } | Schedule::Interval { .. } | Schedule::OneShot { .. }, None) => {
            Future::NoMoreFires {}
        }
    }
}
