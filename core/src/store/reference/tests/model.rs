//! Generated histories: whatever happens, in whatever order, on a clock that also steps back.
//!
//! After every command the scans are compared with their definitions, read off the rows by walking all of
//! them; and sending the same command again at the same instant changes nothing but what counts how often
//! it was sent.

use proptest::prelude::*;

use super::*;
use crate::execution::{DeadLetterReason, ExecutionState};
use crate::lease::{is_over, may_be_taken};
use crate::limits::{LIVENESS_AHEAD_MAX, OUTBOX_DELAY_MAX, REDISPATCH_DELAY_MAX};
use crate::retry::doubled;
use crate::store::command::{
    CancelExecution, DeleteJob, Heartbeat, ReleaseLeases, RenewExecutions, RenewLeases, Repair, RepairItem,
    ReturnOutbox, ScanDueJobs, ScanOutbox, ScanSweep, TakeOverEnd, TriggerJob,
};
use crate::store::row::{NodeRole, NodeState, OutboxRow};

const REDISPATCH_AFTER: Span = Span::from_secs(30);
const NODES: [NodeId; 2] = [SCHEDULER, OTHER_SCHEDULER];
const WORKERS: [NodeId; 2] = [WORKER, OTHER_WORKER];

/// One step: how far the clock goes, what is done, and three numbers that say to what and how.
#[derive(Clone, Copy, Debug)]
struct Step {
    clock: u8,
    kind: u8,
    which: u8,
    how: u8,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>());
    prop::collection::vec(
        step.prop_map(|(clock, kind, which, how)| Step { clock, kind, which, how }),
        40..160,
    )
}

impl Step {
    fn advance(self, now: Timestamp) -> Timestamp {
        match self.clock % 16 {
            0 => now,
            1..=6 => now.plus(Span::from_millis(700)),
            7 => now.plus(INSTANT),
            8 | 9 => now.plus(secs(5)),
            10..=12 => now.plus(secs(20)),
            13 => now.plus(secs(400)),
            14 => now.minus(secs(1)),
            _ => now.minus(secs(200)),
        }
    }

    fn of<Of: Copy>(self, all: [Of; 2]) -> Of {
        all[usize::from(self.which % 2)]
    }

    /// The token of now, or the one before it.
    fn about(self, token: FencingToken) -> FencingToken {
        if self.how.is_multiple_of(4) { FencingToken::from_i64(token.as_i64() - 1) } else { token }
    }

    fn held(self, world: &World) -> HeldLease {
        let resource =
            if self.how % 8 < 6 { LeaseResource::Partition(partition()) } else { LeaseResource::Leadership };
        HeldLease { resource, token: self.about(world.store.tables().lease(resource).token) }
    }

    fn partition_held(self, world: &World) -> HeldLease {
        let resource = LeaseResource::Partition(partition());
        HeldLease { resource, token: self.about(world.store.tables().lease(resource).token) }
    }

    /// Whoever holds the partition, or somebody.
    fn owner(self, world: &World) -> NodeId {
        let row = world.store.tables().lease(LeaseResource::Partition(partition()));
        row.owner.filter(|_| !self.which.is_multiple_of(4)).unwrap_or_else(|| self.of(NODES))
    }

    /// One of the executions, mostly one that has not ended, or none that is there.
    fn execution(self, world: &World) -> Option<&ExecutionRow> {
        let any = self.clock.is_multiple_of(8);
        let all = world.store.tables().executions().iter();
        let all: Vec<_> = all.filter(|row| any || !row.state.is_terminal()).collect();
        all.get(usize::from(self.which) % (all.len() + usize::from(any)).max(1)).copied()
    }

    fn execution_id(self, world: &World) -> ExecutionId {
        self.execution(world).map_or(ExecutionId::from_u128(9), |row| row.id)
    }

    fn run(self, world: &World) -> RunId {
        let token = self.execution(world).map_or(FencingToken::NEVER, |row| row.token);
        RunId { execution: self.execution_id(world), token: self.about(token) }
    }

    fn outbox(self, world: &World) -> OutboxId {
        let rows = world.outbox();
        rows.get(usize::from(self.which) % (rows.len() + 1)).copied().unwrap_or(dispatch(1, 7))
    }

    fn command(self, world: &mut World) -> Command {
        match self.kind % 24 {
            0 => Command::Heartbeat(Heartbeat {
                node: self.of(NODES),
                role: NodeRole::Scheduler,
                label: "host".into(),
                schema: 1,
                state: [NodeState::Active, NodeState::Active, NodeState::Draining][usize::from(self.how % 3)],
                capacity: 0,
                live_within: secs(10),
            }),
            1 => Command::AcquireLeadership(AcquireLeadership {
                node: self.of(NODES),
                nonce: EffectId(u64::from(self.how)),
                ttl: TTL,
            }),
            2 => Command::AcquirePartitions(AcquirePartitions {
                node: self.of(NODES),
                nonce: EffectId(u64::from(self.how)),
                ttl: TTL,
                limit: 128,
            }),
            3 if self.how.is_multiple_of(4) => Command::ReleaseLeases(ReleaseLeases {
                node: self.owner(world),
                leases: vec![self.held(world)],
            }),
            3 => Command::RenewLeases(RenewLeases {
                node: self.owner(world),
                ttl: TTL,
                leases: vec![self.held(world)],
            }),
            4..=6 => self.materialise(world),
            7..=9 => Command::PromoteDue(self.promote(world)),
            10 => Command::ScanOutbox(self.scan_outbox()),
            11 => Command::RemoveOutbox(RemoveOutbox { rows: vec![self.outbox(world)], grace: GRACE }),
            12 => Command::ReturnOutbox(ReturnOutbox {
                rows: vec![(self.outbox(world), WaitReason::NoRoute)],
                delay: DELAY,
            }),
            13 => self.repair(world),
            14..=16 => self.acquire(world),
            17 => Command::RenewExecutions(RenewExecutions {
                node: self.of(WORKERS),
                ttl: TTL,
                runs: vec![self.run(world)],
            }),
            18..=20 => self.finish(world),
            21 => Command::DeferExecutions(DeferExecutions {
                items: vec![(self.execution_id(world), WaitReason::UnknownHandler)],
                delay: DELAY,
            }),
            _ => self.operate(world),
        }
    }

    fn materialise(self, world: &World) -> Command {
        let expected = world.job().next_fire_time.unwrap_or(START);
        let number = expected.since(START).as_micros() / MINUTE.as_micros();
        let valid_until = Timestamp::MAX;
        let items = vec![MaterialiseJob { valid_until, ..due_item(number) }];
        let leases = vec![self.partition_held(world)];
        Command::Materialise(Materialise { node: self.owner(world), leases, items })
    }

    fn promote(self, world: &World) -> PromoteDue {
        PromoteDue { node: self.owner(world), leases: vec![self.partition_held(world)], limit: 100 }
    }

    fn scan_outbox(self) -> ScanOutbox {
        ScanOutbox {
            node: self.of(NODES),
            partitions: vec![partition()],
            own_grace: GRACE,
            delay: DELAY,
            limit: 100,
        }
    }

    /// Whatever a sweep finds, repaired in one of the ways.
    fn repair(self, world: &mut World) -> Command {
        let findings = found(world);
        let end = [
            TakeOverEnd::Retry(DELAY),
            TakeOverEnd::Cancelled,
            TakeOverEnd::DeadLettered(DeadLetterReason::RescuesSpent),
            TakeOverEnd::Failed,
        ][usize::from(self.how / 4 % 4)];
        let take_over = |run: crate::store::reply::ExpiredRun| RepairItem::TakeOver {
            run: run.run,
            cancel: run.cancel,
            sign: run.sign,
            end,
        };
        let mut items: Vec<RepairItem> = findings.expired.into_iter().map(take_over).collect();
        items.extend(findings.undelivered.into_iter().map(|dispatch| RepairItem::Redispatch { dispatch }));
        items.extend(findings.settled.into_iter().map(|row| RepairItem::DropOutbox { row }));
        items.extend(
            findings.stale_nodes.into_iter().map(|(node, seen_at)| RepairItem::RetireNode { node, seen_at }),
        );
        let row = world.store.tables().lease(LeaseResource::Leadership);
        let node = row.owner.unwrap_or_else(|| self.of(NODES));
        Command::Repair(Repair { node, leadership: self.about(row.token), items })
    }

    fn acquire(self, world: &mut World) -> Command {
        let execution = self.execution_id(world);
        let resent = self.execution(world).map(|row| row.nonce).filter(|_| self.how % 4 == 1);
        let nonce = resent.unwrap_or_else(|| world.nonce());
        let item = AcquireExecution { execution, nonce, published_at: world.now, held: secs(1) };
        let node = WORKERS[usize::from(self.how / 4 % 2)];
        Command::AcquireExecutions(AcquireExecutions { node, ttl: TTL, items: vec![item] })
    }

    fn finish(self, world: &World) -> Command {
        let error: Arc<str> = "no".into();
        let outcome = match self.how / 4 % 12 {
            0..=3 => RunOutcome::Retry { delay: DELAY, error },
            4..=6 => RunOutcome::Released,
            7 | 8 => RunOutcome::Cancelled,
            9 => RunOutcome::DeadLettered { reason: DeadLetterReason::Exhausted, error },
            10 => RunOutcome::Failed { error },
            _ => RunOutcome::Completed,
        };
        let item = FinishExecution { run: self.run(world), outcome, started_ago: Some(secs(2)) };
        Command::FinishExecutions(FinishExecutions { node: WORKER, items: vec![item] })
    }

    fn operate(self, world: &World) -> Command {
        let key: Arc<str> = format!("k{}", self.which % 5).into();
        match self.how % 16 {
            0 if self.which < 64 => Command::DeleteJob(DeleteJob { tenant: TENANT, job: JOB }),
            0..=3 => Command::CancelExecution(CancelExecution {
                tenant: TENANT,
                execution: self.execution_id(world),
            }),
            _ => Command::TriggerJob(TriggerJob {
                tenant: TENANT,
                job: JOB,
                execution: Occurrence::Manual { key: key.clone() }.execution_id(JOB),
                key,
                payload: None,
                node: self.of(NODES),
            }),
        }
    }
}

/// A scan, which changes nothing.
fn scan(world: &mut World, command: &Command) -> Reply {
    let mut changes = Vec::new();
    let answer = world.store.apply(world.now, command, &mut changes);
    assert_eq!(changes, []);
    answer.reply
}

fn found(world: &mut World) -> crate::store::reply::SweepFindings {
    let ask = ScanSweep { limit: 3, redispatch_after: REDISPATCH_AFTER, node_stale_after: MINUTE };
    match scan(world, &Command::ScanSweep(ask)) {
        Reply::Sweep(findings) => findings,
        other => panic!("another reply: {other:?}"),
    }
}

/// The first three, in order.
fn first<Key: Ord + Copy, What>(mut all: Vec<(Key, What)>) -> Vec<What> {
    all.sort_by_key(|(key, _)| *key);
    all.into_iter().take(3).map(|(_, what)| what).collect()
}

fn assert_sweep_finds_what_it_is_to_find(world: &mut World) {
    let findings = found(world);
    let now = world.now;
    let tables = world.store.tables();
    let executions = || tables.executions().iter();
    let running = executions().filter(|row| row.state == ExecutionState::Running);
    let expired = running
        .filter(|row| may_be_taken(row.expires_at, now))
        .map(|row| ((row.expires_at, row.id), RunId { execution: row.id, token: row.token }));
    let runs: Vec<RunId> = findings.expired.iter().map(|expired| expired.run).collect();
    assert_eq!(runs, first(expired.collect()));

    let has_row = |row: &ExecutionRow| tables.outbox().iter().any(|outbox| outbox.execution == row.id);
    let undelivered = executions()
        .filter(|row| row.state == ExecutionState::Pending && row.waiting.is_none() && !has_row(row))
        .filter_map(|row| row.dispatched_at.map(|at| (row, at)))
        .filter(|(row, at)| {
            let delay = doubled(REDISPATCH_AFTER, row.redispatches).min(REDISPATCH_DELAY_MAX);
            is_over(at.plus(delay), REDISPATCH_DELAY_MAX, now)
        })
        .map(|(row, at)| ((at, row.id), OutboxId { execution: row.id, dispatch_no: row.dispatch_no }));
    assert_eq!(findings.undelivered, first(undelivered.collect()));

    let has_ended =
        |id: &OutboxId| tables.executions().get(&id.execution).is_some_and(|row| row.state.is_terminal());
    let settled = world.outbox().into_iter().filter(has_ended).map(|id| (id, id));
    assert_eq!(findings.settled, first(settled.collect()));

    let stale = tables
        .nodes()
        .iter()
        .filter(|row| row.state != NodeState::Offline)
        .filter(|row| row.seen_at.plus(MINUTE) <= now || row.seen_at > now.plus(LIVENESS_AHEAD_MAX))
        .map(|row| (row.id, (row.id, row.seen_at)));
    assert_eq!(findings.stale_nodes, first(stale.collect()));
}

fn assert_due_jobs_are_those_that_are_due(world: &mut World) {
    let ask = ScanDueJobs { partitions: vec![partition()], after: None, limit: 3 };
    let Reply::DueJobs { jobs, next_due } = scan(world, &Command::ScanDueJobs(ask)) else {
        panic!("another reply")
    };
    let from = world.job().next_fire_time.map(|fire| fire.max(world.job().next_try_at));
    assert_eq!(jobs.len(), usize::from(from.is_some_and(|from| from <= world.now)));
    assert_eq!(next_due, from.filter(|from| *from > world.now));
}

/// On a copy of the store, since promoting changes it.
fn assert_promotes_what_is_due(world: &World) {
    let held = world.store.tables().lease(LeaseResource::Partition(partition()));
    let Some(node) = held.owner else { return };
    let leases = vec![HeldLease { resource: held.resource, token: held.token }];
    let ask = Command::PromoteDue(PromoteDue { node, leases, limit: 3 });
    let reply = world.store.clone().apply(world.now, &ask, &mut Vec::new()).reply;
    let Reply::Promoted { dispatches, next_due, .. } = reply else { panic!("another reply") };
    let rows = world.store.tables().executions().iter();
    let waits = rows.filter(|row| {
        row.state == ExecutionState::RetryWait
            || (row.state == ExecutionState::Pending && row.waiting.is_some())
    });
    let times: Vec<_> =
        waits.map(|row| ((row.next_try_at.expect("it waits for an instant"), row.id), row.id)).collect();
    let due = times.iter().copied().filter(|((at, _), _)| *at <= world.now).collect();
    let promoted: Vec<ExecutionId> = dispatches.iter().map(|dispatch| dispatch.execution).collect();
    assert_eq!(promoted, first(due));
    assert_eq!(next_due, times.iter().map(|((at, _), _)| *at).filter(|at| *at > world.now).min());
}

/// On a copy of the store, since reading back changes it.
fn assert_reads_back_what_is_due(world: &World, node: NodeId) {
    let limit = 3;
    let ask = ScanOutbox { node, partitions: vec![partition()], own_grace: GRACE, delay: DELAY, limit };
    let mut after = world.store.clone();
    let reply = after.apply(world.now, &Command::ScanOutbox(ask), &mut Vec::new()).reply;
    let Reply::Outbox { dispatches, next_due } = reply else { panic!("another reply") };
    let readable_from = |row: &OutboxRow| {
        let own = row.created_by == node;
        row.next_try_at.max(if own { row.created_at.plus(GRACE) } else { Timestamp::MIN })
    };
    let id = |row: &OutboxRow| OutboxId { execution: row.execution, dispatch_no: row.dispatch_no };
    let rows = || world.store.tables().outbox().iter();
    let due = rows().filter(|row| readable_from(row) <= world.now);
    let expected = first(due.map(|row| ((row.next_try_at, id(row)), id(row))).collect());
    let read: Vec<OutboxId> = dispatches
        .iter()
        .map(|read| OutboxId { execution: read.execution, dispatch_no: read.dispatch_no })
        .collect();
    assert_eq!(read, expected);
    for read in &read {
        let (was, is) = (world.store.tables().outbox().get(read), after.tables().outbox().get(read));
        let (was, is) = (was.expect("it was read"), is.expect("it was not confirmed"));
        assert_eq!(is.tries, was.tries + 1);
        assert!(is.next_try_at <= world.now.plus(OUTBOX_DELAY_MAX).max(was.created_at));
    }
    let later = after.tables().outbox().iter().map(readable_from).filter(|from| *from > world.now);
    assert_eq!(next_due, later.min());
}

/// Whether a change is one that may follow from sending a command again: it counts how often.
fn only_counts(change: &Change) -> bool {
    match change {
        Change::Refusal(_) | Change::Malformed(_) => true,
        Change::Tenant(_)
        | Change::Lease(_)
        | Change::Node(_)
        | Change::Job(_)
        | Change::JobVersion(_)
        | Change::Execution(_)
        | Change::Attempt(_)
        | Change::Outbox(_)
        | Change::DeadLetter(_)
        | Change::SkippedRange(_)
        | Change::Request(_)
        | Change::Pause(_)
        | Change::Limit(_)
        | Change::Calendar(_) => false,
    }
}

fn assert_token_only_rises(change: &Change) {
    let (before, after) = match change {
        Change::Lease(delta) => {
            (delta.before.as_ref().map(|row| row.token), delta.after.as_ref().map(|row| row.token))
        }
        Change::Execution(delta) => {
            (delta.before.as_ref().map(|row| row.token), delta.after.as_ref().map(|row| row.token))
        }
        _other => return,
    };
    let after = after.expect("leases and executions are not deleted");
    assert!(before.is_none_or(|before| after == before || Some(after) == before.next()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn scans_find_what_they_are_to_find_and_every_command_may_be_sent_again(steps in steps()) {
        let mut world = World::new();
        world.own(SCHEDULER);
        for step in steps {
            world.now = step.advance(world.now);
            let command = step.command(&mut world);
            let first = world.changes.len();
            world.apply(command.clone());
            let again = world.changes.len();
            world.apply(command.clone());
            let resent = &world.changes[again..];
            prop_assert!(resent.iter().all(only_counts), "{command:?} sent again changed {resent:?}");
            world.changes[first..].iter().for_each(assert_token_only_rises);
            assert_sweep_finds_what_it_is_to_find(&mut world);
            assert_due_jobs_are_those_that_are_due(&mut world);
            assert_promotes_what_is_due(&world);
            assert_reads_back_what_is_due(&world, step.of(NODES));
        }
    }
}
