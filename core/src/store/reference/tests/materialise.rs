//! Due jobs.

use super::*;
use crate::execution::{ExecutionState, SkipReason};
use crate::job::Unreadable;
use crate::store::command::{DeleteJob, NewSkippedRange, PutOffJob, PutOffJobs, ScanDueJobs};
use crate::store::reply::{DueJob, PutOffReply};
use crate::store::row::{RefusedAction, RefusedResource};

/// Another job of the same partition, the `nth`.
fn sibling(nth: usize) -> JobId {
    let mut others = (0x1000_u128..).map(JobId::from_u128).filter(|job| PartitionId::of(*job) == partition());
    others.nth(nth).expect("every partition has many jobs")
}

fn unreadable() -> Unreadable {
    Unreadable { reason: "zone Nowhere/Land".into(), schema: 1, zone_data: "2025b".into() }
}

impl World {
    fn scan(&mut self, after: Option<(Timestamp, JobId)>, limit: u32) -> (Vec<DueJob>, Option<Timestamp>) {
        let ask = ScanDueJobs { partitions: vec![partition()], after, limit };
        match self.changes_nothing(Command::ScanDueJobs(ask)) {
            Reply::DueJobs { jobs, next_due } => (jobs, next_due),
            other => panic!("another reply: {other:?}"),
        }
    }

    fn scanned(&mut self) -> Vec<JobId> {
        self.scan(None, 10).0.into_iter().map(|job| job.job).collect()
    }

    fn put_off(&mut self, held: HeldLease, delay: Span) -> PutOffReply {
        let item = PutOffJob {
            job: JOB,
            partition: partition(),
            version: JobVersion::FIRST,
            expected_fire: fire(1),
            unreadable: unreadable(),
            delay,
        };
        let ask = PutOffJobs { node: SCHEDULER, leases: vec![held], items: vec![item] };
        match self.apply(Command::PutOffJobs(ask)) {
            Reply::JobsPutOff(mut replies) => replies.remove(0),
            other => panic!("another reply: {other:?}"),
        }
    }
}

#[test]
fn a_job_is_due_from_the_very_instant_of_its_fire() {
    let mut world = World::new();
    world.now = fire(1).minus(INSTANT);
    assert_eq!(world.scan(None, 10), (vec![], Some(fire(1))));
    world.pass(INSTANT);
    let (jobs, next_due) = world.scan(None, 10);
    assert_eq!((jobs.len(), next_due), (1, None));
    assert_eq!((jobs[0].job, jobs[0].next_fire_time, jobs[0].recorded_through), (JOB, fire(1), START));
}

#[test]
fn due_jobs_come_in_order_page_by_page_and_the_next_one_is_named() {
    let mut world = World::new();
    for nth in 0..3 {
        let create = CreateJob {
            next_fire_time: Some(START.plus(secs([30, 20, 90][nth]))),
            ..world.new_job(sibling(nth))
        };
        world.apply(Command::CreateJob(create));
    }
    world.now = fire(1);
    let (first, next_due) = world.scan(None, 2);
    assert_eq!(first.iter().map(|job| job.job).collect::<Vec<_>>(), [sibling(1), sibling(0)]);
    assert_eq!(next_due, Some(START.plus(secs(90))));
    let (rest, _) = world.scan(Some((first[1].next_try_at, first[1].job)), 2);
    assert_eq!(rest.iter().map(|job| job.job).collect::<Vec<_>>(), [JOB]);
}

#[test]
fn jobs_of_other_partitions_are_not_scanned() {
    let mut world = World::new();
    world.now = fire(1);
    let others = PartitionId::all().filter(|other| *other != partition()).collect();
    let ask = ScanDueJobs { partitions: others, after: None, limit: 10 };
    let reply = world.apply(Command::ScanDueJobs(ask));
    assert_eq!(reply, Reply::DueJobs { jobs: vec![], next_due: None });
}

#[test]
fn a_job_without_a_next_fire_is_never_due() {
    let mut world = World::new();
    world.now = fire(1);
    let held = world.own(SCHEDULER);
    world.materialise(SCHEDULER, held, MaterialiseJob { next_fire_time: None, ..due_item(1) });
    world.pass(MINUTE);
    assert_eq!(world.scan(None, 10), (vec![], None));
    assert_eq!(world.job().next_try_at, fire(1));
}

#[test]
fn execution_outbox_row_and_watermark_are_written_together() {
    let mut world = World::new();
    let held = world.materialise_due(1);
    let row = world.execution();
    assert_eq!(
        (row.state, row.made_under, row.materialised_at),
        (ExecutionState::Pending, held.token, fire(1))
    );
    assert_eq!((row.dispatch_no, row.dispatched_at), (DispatchNo(1), Some(fire(1))));
    assert_eq!(&*row.key, format!("{JOB}/{}", fire(1)));
    assert_eq!(world.outbox(), [dispatch(1, 1)]);
    let outbox = world.store.tables().outbox().get(&dispatch(1, 1)).expect("it was just listed");
    assert_eq!((outbox.created_by, outbox.next_try_at, outbox.tries), (SCHEDULER, fire(1), 0));
    let job = world.job();
    assert_eq!(
        (job.recorded_through, job.next_fire_time, job.next_try_at),
        (fire(1), Some(fire(2)), fire(2))
    );
    assert_eq!(job.runs, 1);
}

#[test]
fn a_materialise_sent_again_changes_nothing_and_is_no_refusal() {
    let mut world = World::new();
    let held = world.materialise_due(1);
    let again = Materialise { node: SCHEDULER, leases: vec![held], items: vec![due_item(1)] };
    let reply = world.changes_nothing(Command::Materialise(again));
    assert_eq!(reply, Reply::Materialised(vec![MaterialiseReply::WatermarkMoved]));
}

#[test]
fn a_scheduler_that_lost_the_partition_cannot_materialise() {
    let mut world = World::new();
    let stale = world.own(SCHEDULER);
    world.now = fire(1);
    let current = world.own(OTHER_SCHEDULER).token;
    let reply = world.materialise(SCHEDULER, stale, due_item(1));
    assert_eq!(reply, MaterialiseReply::StaleLease { current });
    assert!(world.store.tables().executions().is_empty());
    let refusal = world.refusals()[0];
    assert_eq!(refusal.resource, RefusedResource::Lease(stale.resource));
    assert_eq!((refusal.token, refusal.node, refusal.current), (stale.token, SCHEDULER, current));
    assert_eq!(refusal.action, RefusedAction::Materialise);
}

#[test]
fn a_partition_that_is_not_presented_is_not_held() {
    let mut world = World::new();
    world.now = fire(1);
    let current = world.own(SCHEDULER).token;
    let ask = Materialise { node: SCHEDULER, leases: vec![], items: vec![due_item(1)] };
    let reply = world.apply(Command::Materialise(ask));
    assert_eq!(reply, Reply::Materialised(vec![MaterialiseReply::StaleLease { current }]));
    assert_eq!(world.refusals()[0].token, FencingToken::NEVER);
}

#[test]
fn a_lapsed_partition_that_nobody_took_still_materialises() {
    let mut world = World::new();
    let held = world.own(SCHEDULER);
    world.now = fire(1);
    let reply = world.materialise(SCHEDULER, held, due_item(1));
    assert_eq!(reply, MaterialiseReply::Applied(vec![MadeExecution::Made]));
}

#[test]
fn a_changed_version_is_refused_and_recorded_under_the_current_token() {
    let mut world = World::new();
    world.now = fire(1);
    let held = world.own(SCHEDULER);
    let item = MaterialiseJob { version: JobVersion(2), ..due_item(1) };
    let reply = world.materialise(SCHEDULER, held, item);
    assert_eq!(reply, MaterialiseReply::VersionChanged { current: JobVersion::FIRST });
    assert_eq!((world.refusals()[0].token, world.refusals()[0].current), (held.token, held.token));
}

#[test]
fn a_deleted_job_or_one_of_another_partition_is_gone() {
    let mut world = World::new();
    world.now = fire(1);
    let held = world.own(SCHEDULER);
    let other = PartitionId::all().find(|other| *other != partition()).expect("there are 128");
    let held_other = HeldLease { resource: LeaseResource::Partition(other), ..held };
    let elsewhere = MaterialiseJob { partition: other, ..due_item(1) };
    assert_eq!(world.materialise(SCHEDULER, held_other, elsewhere), MaterialiseReply::Gone);
    world.apply(Command::DeleteJob(DeleteJob { tenant: TENANT, job: JOB }));
    assert_eq!(world.materialise(SCHEDULER, held, due_item(1)), MaterialiseReply::Gone);
    assert!(world.refusals().is_empty());
}

#[test]
fn nothing_is_recorded_that_the_stores_clock_has_not_reached() {
    let mut world = World::new();
    world.now = fire(1).minus(INSTANT);
    let held = world.own(SCHEDULER);
    assert_eq!(world.materialise(SCHEDULER, held, due_item(1)), MaterialiseReply::NotDue);
    let skipped = NewSkippedRange {
        version: JobVersion::FIRST,
        from: fire(1),
        through: fire(1),
        reason: SkipReason::Misfire,
        zone_data: "2025b".into(),
    };
    let item = MaterialiseJob { executions: vec![], skipped: vec![skipped], ..due_item(1) };
    assert_eq!(world.materialise(SCHEDULER, held, item), MaterialiseReply::NotDue);
}

#[test]
fn a_decision_holds_up_to_its_last_instant() {
    let mut world = World::new();
    world.now = due_item(1).valid_until.plus(INSTANT);
    let held = world.own(SCHEDULER);
    assert_eq!(world.materialise(SCHEDULER, held, due_item(1)), MaterialiseReply::PlanExpired);
    world.step_back(INSTANT);
    let reply = world.materialise(SCHEDULER, held, due_item(1));
    assert_eq!(reply, MaterialiseReply::Applied(vec![MadeExecution::Made]));
}

#[test]
fn an_execution_that_exists_is_left_alone_and_the_watermark_moves() {
    let mut world = World::new();
    world.now = fire(1);
    let held = world.own(SCHEDULER);
    let stays = MaterialiseJob { next_fire_time: Some(fire(1)), ..due_item(1) };
    world.materialise(SCHEDULER, held, stays);
    let before = world.execution().clone();
    world.pass(secs(1));
    let reply = world.materialise(SCHEDULER, held, due_item(1));
    assert_eq!(reply, MaterialiseReply::Applied(vec![MadeExecution::Existed]));
    assert_eq!(world.execution(), &before);
    assert_eq!(world.outbox(), [dispatch(1, 1)]);
    assert_eq!((world.job().runs, world.job().next_fire_time), (1, Some(fire(2))));
}

#[test]
fn fires_passed_over_are_recorded_with_their_reason() {
    let mut world = World::new();
    world.now = fire(9);
    let held = world.own(SCHEDULER);
    let skipped = NewSkippedRange {
        version: JobVersion::FIRST,
        from: fire(1),
        through: fire(8),
        reason: SkipReason::Misfire,
        zone_data: "2025b".into(),
    };
    let item = MaterialiseJob { expected_fire: fire(1), skipped: vec![skipped], ..due_item(9) };
    world.materialise(SCHEDULER, held, item);
    let rows: Vec<_> = world.store.tables().skipped_ranges().iter().collect();
    assert_eq!((rows.len(), rows[0].from, rows[0].through), (1, fire(1), fire(8)));
    assert_eq!((rows[0].made_under, rows[0].decided_at), (held.token, fire(9)));
}

#[test]
fn a_job_that_cannot_be_read_is_put_off_visibly_and_hides_nothing() {
    let mut world = World::new();
    world.now = fire(1);
    let held = world.own(SCHEDULER);
    assert_eq!(world.put_off(held, secs(20)), PutOffReply::Done);
    assert_eq!(world.job().unreadable, Some(unreadable()));
    assert_eq!(world.scan(None, 10), (vec![], Some(fire(1).plus(secs(20)))));
    world.pass(secs(20));
    assert_eq!(world.scanned(), [JOB]);
    world.materialise(SCHEDULER, held, due_item(1));
    assert_eq!((world.job().unreadable.as_ref(), world.job().next_try_at), (None, fire(2)));
}

#[test]
fn a_job_is_not_put_off_to_before_its_fire() {
    let mut world = World::new();
    let held = world.own(SCHEDULER);
    world.put_off(held, secs(1));
    assert_eq!(world.job().next_try_at, fire(1));
}

#[test]
fn what_was_read_too_long_ago_is_not_put_off() {
    let mut world = World::new();
    let held = world.materialise_due(1);
    assert_eq!(world.put_off(held, secs(20)), PutOffReply::Moved);
    assert!(world.refusals().is_empty());
    world.now = fire(2);
    let current = world.own(OTHER_SCHEDULER).token;
    assert_eq!(world.put_off(held, secs(20)), PutOffReply::StaleLease { current });
    assert_eq!(world.refusals()[0].action, RefusedAction::Materialise);
}
