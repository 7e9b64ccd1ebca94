//! Planning one due job: from what a scan showed to what is to be recorded.
//!
//! The decision about its fires is the schedule's (`schedule::misfire`); here it gets its identity, its
//! guards and its place in a command. A job that cannot be read is put off visibly, and alone.

use std::sync::Arc;

use crate::bug::Bug;
use crate::execution::SkipReason;
use crate::id::{JobId, JobVersion, Occurrence, TenantId};
use crate::job::{JobDefinition, StoredDefinition, Unreadable};
use crate::limits::{FIRES_PER_PASS_MAX, STORE_CALL_TIMEOUT, UNREADABLE_DELAY, WAIT_DELAY_MAX};
use crate::mark::{self, Mark};
use crate::schedule::TZDATA_VERSION;
use crate::schedule::misfire::{FirePlanInput, plan_fires};
use crate::schedule::timeline::Timeline;
use crate::scheduler::calls::Turn;
use crate::store::command::{MaterialiseJob, NewExecution, NewSkippedRange, PutOffJob};
use crate::store::reply::{DueJob, EarlierVersion};
use crate::time::{Span, Timestamp};

/// One job's part of a materialisation, with what its messages take once it is committed.
#[derive(Clone, Debug)]
pub(super) struct PlannedJob {
    pub(super) tenant: TenantId,
    /// Of the version in force.
    definition: Arc<StoredDefinition>,
    /// Versions before it that fires may lie in.
    earlier: Vec<EarlierVersion>,
    pub(super) item: MaterialiseJob,
}

impl PlannedJob {
    /// The definition of the version that an execution was planned under.
    pub(super) fn definition_of(&self, version: JobVersion) -> Arc<StoredDefinition> {
        let earlier = self.earlier.iter().find(|earlier| earlier.version == version);
        Arc::clone(earlier.map_or(&self.definition, |earlier| &earlier.definition))
    }
}

/// What becomes of a due job.
#[derive(Debug)]
pub(super) enum Plan {
    Record(PlannedJob),
    PutOff(PutOffJob),
}

/// Plans a job that was due when the store's clock read `store_now`.
pub(super) fn plan(turn: &Turn<'_>, job: &DueJob, store_now: Timestamp) -> Plan {
    let definition = match job.definition.read() {
        Ok(definition) => definition,
        Err(unreadable) => return Plan::PutOff(put_off(job, unreadable)),
    };
    match Timeline::of_due(job, definition) {
        Ok(timeline) if turn.has(Bug::PausedFiresRun) => {
            Plan::Record(record(turn, job, definition, &timeline.never_paused(), store_now))
        }
        Ok(timeline) if turn.has(Bug::FlexIsIgnored) => {
            Plan::Record(record(turn, job, definition, &timeline.never_flexed(), store_now))
        }
        Ok(timeline) if turn.has(Bug::CalendarsAreIgnored) => {
            Plan::Record(record(turn, job, definition, &timeline.never_excluded(), store_now))
        }
        Ok(timeline) if turn.has(Bug::CalendarsGoByUtc) => {
            Plan::Record(record(turn, job, definition, &timeline.excluded_by_utc(), store_now))
        }
        Ok(timeline) => Plan::Record(record(turn, job, definition, &timeline, store_now)),
        Err(unreadable) => Plan::PutOff(put_off(job, &unreadable)),
    }
}

fn record(
    turn: &Turn<'_>,
    job: &DueJob,
    definition: &JobDefinition,
    timeline: &Timeline<'_>,
    store_now: Timestamp,
) -> PlannedJob {
    if !job.earlier.is_empty() {
        mark::hit(Mark::BacklogOverChange);
    }
    // The command may wait for the one before it, and then takes its own time.
    let valid_for = STORE_CALL_TIMEOUT.times(2);
    let mut plan = plan_fires(&FirePlanInput {
        timeline,
        runs_so_far: job.runs,
        misfire: definition.misfire,
        grace: definition.grace(),
        recorded_through: job.recorded_through,
        now: store_now,
        limit: FIRES_PER_PASS_MAX,
        valid_for,
    });
    if plan.skipped.iter().any(|range| range.reason == SkipReason::Calendar) {
        mark::hit(Mark::CalendarPassedOver);
    }
    if turn.has(Bug::SkippedFiresGoUnrecorded) {
        plan.skipped.clear();
    }
    if turn.has(Bug::NextFireSkipsOne) {
        plan.next_fire = plan.next_fire.and_then(|fire| timeline.next_after(fire));
    }
    if turn.has(Bug::FiresAreShifted) {
        plan.fires.iter_mut().for_each(|fire| *fire = fire.minus(Span::from_millis(1)));
    }
    let version_at = |fire| {
        if turn.has(Bug::EditTakesFiresBefore) { job.version } else { timeline.version_at(fire) }
    };
    let deadline_of = |version: JobVersion, due_at: Timestamp| {
        let earlier = job.earlier.iter().find(|earlier| earlier.version == version);
        earlier.map_or(&job.definition, |earlier| &earlier.definition).deadline_of(due_at)
    };
    let execution = |fire: Timestamp| {
        let occurrence = Occurrence::Scheduled { fire };
        let (version, due_at) = (version_at(fire), timeline.due_at(fire));
        NewExecution {
            id: occurrence.execution_id(job.job),
            version,
            fire,
            due_at,
            deadline_at: deadline_of(version, due_at),
            key: if turn.has(Bug::KeyPerJob) {
                job.job.to_string().into()
            } else {
                occurrence.idempotency_key(job.job).expect("only a replay has no key of its own")
            },
        }
    };
    let item = MaterialiseJob {
        job: job.job,
        partition: job.partition,
        version: job.version,
        expected_fire: job.next_fire_time,
        executions: plan.fires.into_iter().map(execution).collect(),
        skipped: plan
            .skipped
            .into_iter()
            .map(|range| NewSkippedRange {
                version: version_at(range.from),
                from: range.from,
                through: range.through,
                reason: range.reason,
                zone_data: TZDATA_VERSION.into(),
            })
            .collect(),
        recorded_through: plan.recorded_through,
        next_fire_time: plan.next_fire,
        next_flex: plan.next_flex,
        valid_until: plan.valid_until,
    };
    PlannedJob {
        tenant: job.tenant,
        definition: Arc::clone(&job.definition),
        earlier: job.earlier.clone(),
        item,
    }
}

/// A job that another version may be able to read is tried again soon; one that this very version has failed
/// to read before, rarely.
fn put_off(job: &DueJob, unreadable: &Unreadable) -> PutOffJob {
    let same_reader =
        |before: &Unreadable| before.schema == unreadable.schema && before.zone_data == unreadable.zone_data;
    let delay =
        if job.unreadable.as_ref().is_some_and(same_reader) { WAIT_DELAY_MAX } else { UNREADABLE_DELAY };
    PutOffJob {
        job: job.job,
        partition: job.partition,
        version: job.version,
        expected_fire: job.next_fire_time,
        unreadable: unreadable.clone(),
        delay,
    }
}

/// The place of a due job in the order of scans.
pub(super) const fn place(job: &DueJob) -> (Timestamp, JobId) {
    (job.next_try_at, job.job)
}
