//! The backlog of a job: fires that are due and not in the ledger, what keeps them, and what is to become of them.
//!
//! What is to become of them is what `schedule::misfire` plans at this instant, as the owner of the partition would.

use std::sync::Arc;

use super::is_active;
use crate::explain::facts::JobFacts;
use crate::explain::owner;
use crate::explain::rule::{BacklogCause, Reader};
use crate::explain::statement::{Statement, in_words, statements};
use crate::limits::{EXPLAINED_BACKLOG_MAX, FIRES_PER_PASS_MAX};
use crate::schedule::misfire::{FirePlan, FirePlanInput, plan_fires};
use crate::schedule::timeline::{Piece, Timeline};
use crate::time::{Span, Timestamp};

statements!("job/now",
/// What of a job's fires is due and not recorded.
Backlog {
    /// Fires are due and not in the ledger yet; the statements after this one say what keeps them.
    Late = "backlog_late" {
        since: Timestamp, late: Span, fires: Option<u32>, is_counted_to_the_end: bool, cause: BacklogCause,
    } => format!(
        "The fire of {since} has been due for {} and is not recorded: {}{}.",
        in_words(late),
        match cause {
            BacklogCause::PartitionWithoutOwner => "nobody owns the partition",
            BacklogCause::DefinitionUnreadable => "the definition cannot be read",
            BacklogCause::PutOff => "it was put off",
            BacklogCause::OwnerBehind => "the owner of the partition has not come to it",
        },
        match (fires, is_counted_to_the_end) {
            (None | Some(0 | 1), _) => String::new(),
            (Some(fires), true) => format!("; {fires} fires are due in all"),
            (Some(fires), false) => format!("; at least {fires} fires are due in all"),
        },
    );
    /// A fire has happened and is not due yet: it has a place in its flex window.
    WithinFlex = "within_flex" {
        fire: Timestamp, due_at: Timestamp, into: Span, flex: Span,
    } => format!(
        "The fire of {fire} is due at {due_at}, {} into a flex window of {}.", in_words(into), in_words(flex),
    );
    /// A scan may not pick it before that instant, since it could not be served.
    PutOff = "put_off" {
        until: Timestamp,
    } => format!("It was put off until {until}.");
    /// The version that looked last, or this one, cannot read the definition.
    Unreadable = "definition_unreadable" {
        reason: Arc<str>, schema: u16, zone_data: Arc<str>, by: Reader,
    } => format!("The definition cannot be read by schema {schema} with zone data {zone_data}: {reason}.");
});

/// A backlog that was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    told: Vec<Statement>,
    /// Whether it is more than a fire on time whose turn comes.
    pub(super) is_trouble: bool,
    /// What becomes of it, where the definition can be read.
    pub(super) plan: Option<FirePlan>,
}

impl Found {
    /// That it is late, and why.
    pub(super) fn statements(&self) -> Vec<Statement> {
        self.told.clone()
    }
}

/// Why the job's definition cannot be read, by whoever looked last or by this process.
pub(super) fn unreadable(facts: &JobFacts) -> Option<Statement> {
    let noted = facts.job.unreadable.as_ref().map(|why| (why, Reader::PartitionOwner));
    let here = facts.job.definition.read().err().map(|why| (why, Reader::ThisProcess));
    let (why, by) = noted.or(here)?;
    let (reason, schema, zone_data) = (why.reason.clone(), why.schema, why.zone_data.clone());
    Some(Backlog::Unreadable { reason, schema, zone_data, by }.into())
}

/// The backlog, if there is one.
pub(super) fn of(facts: &JobFacts) -> Option<Found> {
    let (job, now) = (&facts.job, facts.now);
    let since = job.next_fire_time.filter(|fire| *fire <= now && is_active(facts))?;
    let definition = job.definition.read().ok();
    let timeline = definition.and_then(|definition| {
        let current = Piece::of(job.id, job.version, job.effective_from, job.standing, definition);
        Timeline::of_versions(job.id, &facts.earlier, current).ok()
    });
    let due_at = timeline.as_ref().map_or(since, |timeline| timeline.due_at(since));
    let unowned = owner::partition_without_owner(job.partition, &facts.partition_lease, now);
    let unreadable = unreadable(facts);
    if let Some(definition) = definition.filter(|_| due_at > now) {
        let (into, flex) = (due_at.since(since), definition.flex);
        let waits = Backlog::WithinFlex { fire: since, due_at, into, flex };
        let told: Vec<Statement> = [Some(waits.into()), unowned, unreadable].into_iter().flatten().collect();
        return Some(Found { is_trouble: told.len() > 1, told, plan: None });
    }
    let count = timeline.as_ref().map(|timeline| {
        let fires = timeline.fires_between(job.recorded_through, now, EXPLAINED_BACKLOG_MAX + 1);
        fires.iter().filter(|fire| timeline.due_at(**fire) <= now).count()
    });
    let plan = definition.zip(timeline.as_ref()).map(|(definition, timeline)| {
        plan_fires(&FirePlanInput {
            timeline,
            runs_so_far: job.runs,
            misfire: definition.misfire,
            grace: definition.grace(),
            recorded_through: job.recorded_through,
            now,
            limit: FIRES_PER_PASS_MAX,
            valid_for: Span::ZERO,
        })
    });
    let put_off = Some(job.next_try_at).filter(|until| *until > now);
    let cause = match (&unowned, &unreadable, put_off) {
        (Some(_), _, _) => BacklogCause::PartitionWithoutOwner,
        (None, Some(_), _) => BacklogCause::DefinitionUnreadable,
        (None, None, Some(_)) => BacklogCause::PutOff,
        (None, None, None) => BacklogCause::OwnerBehind,
    };
    let late = Backlog::Late {
        since,
        late: now.since(due_at),
        fires: count.map(|count| u32::try_from(count.min(EXPLAINED_BACKLOG_MAX)).unwrap_or(u32::MAX)),
        is_counted_to_the_end: count.is_some_and(|count| count <= EXPLAINED_BACKLOG_MAX),
        cause,
    };
    // The owner of the partition comes to what is due within the job's own grace as a rule.
    let is_missed = definition.is_none_or(|definition| now.since(due_at) > definition.grace());
    let is_trouble = is_missed || cause != BacklogCause::OwnerBehind;
    let put_off = put_off.map(|until| Statement::from(Backlog::PutOff { until }));
    let told = [Some(late.into()), unowned, unreadable, put_off].into_iter().flatten().collect();
    Some(Found { told, is_trouble, plan })
}
