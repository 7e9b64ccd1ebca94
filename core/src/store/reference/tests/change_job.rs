//! Edits, pauses and resumes, by the reference semantics.

use super::{
    JOB, MINUTE, OTHER_WORKER, START, TENANT, WORKER, World, definition, due_item, execution_id, fire, secs,
};
use crate::execution::{ExecutionState, WaitReason};
use crate::id::{JobVersion, Occurrence, TenantId};
use crate::job::Standing;
use crate::limits::{PAUSE_RECHECK, UNRECORDED_VERSIONS_MAX};
use crate::store::command::{
    AcquireExecution, AcquireExecutions, ChangeJob, Command, DeleteJob, JobChange, OperatorRequest,
    ScanDueJobs, TriggerJob,
};
use crate::store::reply::{AcquireReply, ChangeJobReply, MaterialiseReply, Reply};
use crate::time::{Span, Timestamp};

fn edit(text: &str) -> JobChange {
    JobChange::Edit(definition(text))
}

/// A change of the job as it stands, planned now: its next fire stays to be recorded.
pub(super) fn change_of(world: &World, change: JobChange) -> ChangeJob {
    let job = world.job();
    ChangeJob {
        tenant: TENANT,
        job: JOB,
        request: None,
        expected_version: job.version,
        expected_watermark: job.recorded_through,
        planned_at: world.now,
        change,
        actor: Some("Zoë".into()),
        reason: Some("the disk is full".into()),
        effective_from: world.now.max(job.recorded_through.next()).max(job.effective_from),
        recorded_through: job.recorded_through,
        next_fire_time: job.next_fire_time,
        next_flex: Span::ZERO,
    }
}

fn requested(ask: ChangeJob, request: &str, fingerprint: u128) -> ChangeJob {
    let request =
        OperatorRequest { request: request.into(), fingerprint: uuid::Uuid::from_u128(fingerprint) };
    ChangeJob { request: Some(request), ..ask }
}

impl World {
    fn change(&mut self, ask: ChangeJob) -> ChangeJobReply {
        match self.apply(Command::ChangeJob(ask)) {
            Reply::JobChanged(reply) => reply,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn is_refused(&mut self, ask: ChangeJob) -> ChangeJobReply {
        match self.changes_nothing(Command::ChangeJob(ask)) {
            Reply::JobChanged(reply) => reply,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn changed(&mut self, change: JobChange) -> JobVersion {
        let ask = change_of(self, change);
        match self.change(ask) {
            ChangeJobReply::Changed { version } => version,
            other => panic!("not changed: {other:?}"),
        }
    }
}

#[test]
fn a_change_appends_a_version_with_who_and_why_and_takes_effect_on_the_job() {
    let mut world = World::new();
    world.pass(secs(10));
    assert_eq!(world.changed(JobChange::Pause), JobVersion(2));
    assert_eq!(world.changed(edit("two")), JobVersion(3));
    let job = world.job().clone();
    assert_eq!((job.standing, job.standing_since), (Standing::Paused, JobVersion(2)), "an edit leaves it");
    assert_eq!((job.version, job.definition), (JobVersion(3), definition("two")));
    let said: Vec<_> = world
        .store
        .tables()
        .job_versions()
        .iter()
        .map(|row| (row.version.0, row.standing, row.standing_since.0, row.actor.as_deref()))
        .collect();
    assert_eq!(
        said,
        [
            (1, Standing::Active, 1, None),
            (2, Standing::Paused, 2, Some("Zoë")),
            (3, Standing::Paused, 2, Some("Zoë")),
        ]
    );
}

#[test]
fn a_change_planned_on_another_version_watermark_or_time_is_refused() {
    let mut world = World::new();
    let stale = change_of(&world, edit("stale"));
    world.changed(edit("two"));
    let current = JobVersion(2);
    assert_eq!(world.is_refused(stale), ChangeJobReply::VersionChanged { current });
    let before_the_fire = change_of(&world, edit("three"));
    world.now = fire(1);
    let held = world.own(super::SCHEDULER);
    let item = crate::store::command::MaterialiseJob { version: current, ..due_item(1) };
    assert!(matches!(world.materialise(super::SCHEDULER, held, item), MaterialiseReply::Applied(_)));
    assert_eq!(world.is_refused(before_the_fire), ChangeJobReply::PlanExpired);
    let ask = change_of(&world, edit("three"));
    let ahead = ChangeJob { planned_at: world.now.next(), ..ask.clone() };
    assert_eq!(world.is_refused(ahead), ChangeJobReply::PlanExpired);
    world.pass(secs(61));
    assert_eq!(world.is_refused(ask), ChangeJobReply::PlanExpired);
}

#[test]
fn what_stands_as_asked_for_is_left_as_it_is() {
    let mut world = World::new();
    let ask = change_of(&world, JobChange::Resume);
    assert_eq!(world.is_refused(ask), ChangeJobReply::Already { version: JobVersion(1) });
    let first = change_of(&world, JobChange::Pause);
    world.change(first.clone());
    assert_eq!(world.is_refused(first), ChangeJobReply::Already { version: JobVersion(2) }, "planned on 1");
}

#[test]
fn a_request_is_remembered_with_the_version_that_it_made_also_after_the_end_of_the_job() {
    let mut world = World::new();
    let ask = requested(change_of(&world, edit("two")), "r", 1);
    world.change(ask.clone());
    world.changed(edit("three"));
    world.apply(Command::DeleteJob(DeleteJob { tenant: TENANT, job: JOB }));
    assert_eq!(world.is_refused(ask.clone()), ChangeJobReply::Repeated { version: JobVersion(2) });
    assert_eq!(world.is_refused(requested(ask.clone(), "r", 2)), ChangeJobReply::RequestReused);
    assert_eq!(world.is_refused(requested(ask, "s", 1)), ChangeJobReply::NotFound, "it is deleted");
}

#[test]
fn what_is_anothers_is_not_there() {
    let mut world = World::new();
    let ask = ChangeJob { tenant: TenantId::from_u128(9), ..change_of(&world, JobChange::Pause) };
    assert_eq!(world.is_refused(ask), ChangeJobReply::NotFound);
}

#[test]
fn no_more_versions_pile_up_than_a_plan_looks_at() {
    let mut world = World::new();
    for _ in 1..UNRECORDED_VERSIONS_MAX + 1 {
        world.pass(Span::from_millis(1));
        world.changed(edit("more"));
    }
    world.pass(Span::from_millis(1));
    let ask = change_of(&world, edit("one too many"));
    assert_eq!(world.is_refused(ask.clone()), ChangeJobReply::LedgerBehind);
    let through = world.now.minus(super::INSTANT);
    let jumps = ChangeJob { recorded_through: through, next_fire_time: Some(fire(1)), ..ask };
    assert!(matches!(world.change(jumps), ChangeJobReply::Changed { .. }), "nothing is left to be recorded");
}

#[test]
fn a_scan_shows_the_versions_that_decide_about_what_follows_the_watermark() {
    let mut world = World::new();
    let scan = |world: &mut World| {
        let partitions = vec![super::partition()];
        match world.apply(Command::ScanDueJobs(ScanDueJobs { partitions, after: None, limit: 9 })) {
            Reply::DueJobs { mut jobs, .. } => jobs.remove(0),
            other => panic!("another reply: {other:?}"),
        }
    };
    world.pass(secs(30));
    world.changed(edit("two"));
    world.pass(secs(20));
    world.changed(JobChange::Pause);
    world.now = fire(1);
    let due = scan(&mut world);
    let earlier: Vec<(u32, Timestamp)> =
        due.earlier.iter().map(|version| (version.version.0, version.effective_from)).collect();
    assert_eq!(earlier, [(1, START), (2, START.plus(secs(30)))]);
    assert_eq!((due.version.0, due.standing), (3, Standing::Paused));
    world.pass(MINUTE);
    let ask = change_of(&world, JobChange::Resume);
    let through = ask.effective_from.minus(super::INSTANT);
    world.change(ChangeJob { recorded_through: through, next_fire_time: Some(world.now), ..ask });
    assert_eq!(scan(&mut world).earlier, [], "what lies before the watermark is nobody's business any more");
}

#[test]
fn a_pause_holds_fires_back_until_the_resume_and_nothing_that_was_asked_for_by_hand() {
    let mut world = World::with_execution();
    world.changed(JobChange::Pause);
    let ask = world.ask_execution(WORKER);
    assert_eq!(world.acquire(&ask), AcquireReply::NotNow { state: ExecutionState::Pending });
    let row = world.execution().clone();
    assert_eq!(row.waiting, Some(WaitReason::JobPaused));
    assert_eq!(row.next_try_at, Some(world.now.plus(PAUSE_RECHECK)));
    let reply = world.changes_nothing(Command::AcquireExecutions(ask));
    assert_eq!(reply, Reply::Acquired(vec![AcquireReply::NotNow { state: ExecutionState::Pending }]));

    let by_hand = Occurrence::Manual { key: "k".into() }.execution_id(JOB);
    world.apply(Command::TriggerJob(TriggerJob {
        tenant: TENANT,
        job: JOB,
        execution: by_hand,
        key: "k".into(),
        payload: None,
        node: OTHER_WORKER,
    }));
    let item = AcquireExecution {
        execution: by_hand,
        nonce: world.nonce(),
        published_at: world.now,
        held: Span::ZERO,
    };
    let by_hand = AcquireExecutions { node: WORKER, ttl: secs(10), items: vec![item] };
    assert!(matches!(world.acquire(&by_hand), AcquireReply::Granted(_)));

    world.pass(secs(5));
    world.changed(JobChange::Resume);
    assert_eq!(world.execution().next_try_at, Some(world.now), "the owner's next scan dispatches it");
    assert_eq!(world.promote().0.first().map(|dispatch| dispatch.execution), Some(execution_id(1)));
    world.granted(WORKER);
}

#[test]
fn what_runs_goes_on_when_its_job_is_paused() {
    let (mut world, run) = World::with_run();
    world.changed(JobChange::Pause);
    world.renew_run(WORKER, run);
    let done = world.finish(WORKER, run, crate::store::command::RunOutcome::Completed);
    assert_eq!(done, crate::store::reply::FinishReply::Applied { state: ExecutionState::Completed });
}
