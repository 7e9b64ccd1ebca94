//! Planning one due job: from what a scan showed to what is to be recorded.
//!
//! The decision about its fires is the schedule's (`schedule::misfire`); here it gets its identity, its
//! guards and its place in a command. A job that cannot be read is put off visibly, and alone.

use std::sync::Arc;

use crate::bug::Bug;
use crate::id::{JobId, Occurrence, TenantId};
use crate::job::{JobDefinition, StoredDefinition, Unreadable};
use crate::limits::{FIRES_PER_PASS_MAX, STORE_CALL_TIMEOUT, UNREADABLE_DELAY, WAIT_DELAY_MAX};
use crate::schedule::TZDATA_VERSION;
use crate::schedule::misfire::{FirePlanInput, plan_fires};
use crate::scheduler::calls::Turn;
use crate::store::command::{MaterialiseJob, NewExecution, NewSkippedRange, PutOffJob};
use crate::store::reply::DueJob;
use crate::time::{Span, Timestamp};

/// One job's part of a materialisation, with what its messages take once it is committed.
#[derive(Clone, Debug)]
pub(super) struct PlannedJob {
    pub(super) tenant: TenantId,
    pub(super) definition: Arc<StoredDefinition>,
    pub(super) item: MaterialiseJob,
}

/// What becomes of a due job.
#[derive(Debug)]
pub(super) enum Plan {
    Record(PlannedJob),
    PutOff(PutOffJob),
}

/// Plans a job that was due when the store's clock read `store_now`.
pub(super) fn plan(turn: &Turn<'_>, job: &DueJob, store_now: Timestamp) -> Plan {
    match job.definition.read() {
        Ok(definition) => Plan::Record(record(turn, job, definition, store_now)),
        Err(unreadable) => Plan::PutOff(put_off(job, unreadable)),
    }
}

fn record(turn: &Turn<'_>, job: &DueJob, definition: &JobDefinition, store_now: Timestamp) -> PlannedJob {
    // The command may wait for the one before it, and then takes its own time.
    let valid_for = STORE_CALL_TIMEOUT.times(2);
    let mut plan = plan_fires(&FirePlanInput {
        schedule: &definition.schedule,
        bounds: &definition.bounds,
        runs_so_far: job.runs,
        misfire: definition.misfire,
        grace: definition.grace(),
        recorded_through: job.recorded_through,
        now: store_now,
        limit: FIRES_PER_PASS_MAX,
        valid_for,
    });
    if turn.has(Bug::SkippedFiresGoUnrecorded) {
        plan.skipped.clear();
    }
    if turn.has(Bug::NextFireSkipsOne) {
        let after = |fire| definition.bounds.next_fire_after(&definition.schedule, fire);
        plan.next_fire = plan.next_fire.and_then(after);
    }
    if turn.has(Bug::FiresAreShifted) {
        plan.fires.iter_mut().for_each(|fire| *fire = fire.minus(Span::from_millis(1)));
    }
    let execution = |fire: Timestamp| {
        let occurrence = Occurrence::Scheduled { fire };
        NewExecution {
            id: occurrence.execution_id(job.job),
            fire,
            due_at: fire,
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
                from: range.from,
                through: range.through,
                reason: range.reason,
                zone_data: TZDATA_VERSION.into(),
            })
            .collect(),
        recorded_through: plan.recorded_through,
        next_fire_time: plan.next_fire,
        valid_until: plan.valid_until,
    };
    PlannedJob { tenant: job.tenant, definition: Arc::clone(&job.definition), item }
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
