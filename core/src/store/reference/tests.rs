//! Sentences about the reference semantics, one file per family, on a small world: one tenant, one job that
//! fires every minute, two schedulers and two workers.
//!
//! After every command the world holds the store to what no command may break: its indexes are those that
//! its rows make, and every change of a state is legal.

use std::sync::Arc;

use crate::bug::Bugs;
use crate::execution::{WaitReason, is_legal};
use crate::fencing::FencingToken;
use crate::id::{DispatchNo, EffectId, ExecutionId, JobId, JobVersion, NodeId, Occurrence, TenantId};
use crate::job::StoredDefinition;
use crate::lease::{HeldLease, LeaseResource, RunId};
use crate::partition::PartitionId;
use crate::store::change::{Change, Delta};
use crate::store::command::{
    AcquireExecution, AcquireExecutions, AcquireLeadership, AcquirePartitions, CancelExecution, Command,
    CreateJob, CreateTenant, DeferExecutions, FinishExecution, FinishExecutions, Materialise, MaterialiseJob,
    NewExecution, OutboxId, PromoteDue, RemoveOutbox, RenewExecutions, RunOutcome,
};
use crate::store::reference::ReferenceStore;
use crate::store::reply::{
    AcquireReply, DeferReply, Dispatch, FinishReply, Grant, LeadershipReply, MadeExecution, MaterialiseReply,
    RenewReply, Reply,
};
use crate::store::row::{ExecutionRow, JobRow, RefusalRow};
use crate::store::tables::Tables;
use crate::time::{Span, Timestamp};

mod acquire;
mod calendar;
mod change_job;
mod dead_letters;
mod deadline;
mod dispatch;
mod failures;
mod finish;
mod lease;
mod limit;
mod materialise;
mod model;
mod node;
mod operator;
mod overlap;
mod pause;
mod sweep;

const TENANT: TenantId = TenantId::from_u128(0x7e);
const JOB: JobId = JobId::from_u128(0x10b);
const SCHEDULER: NodeId = NodeId::from_u128(0x51);
const OTHER_SCHEDULER: NodeId = NodeId::from_u128(0x52);
const WORKER: NodeId = NodeId::from_u128(0x61);
const OTHER_WORKER: NodeId = NodeId::from_u128(0x62);
/// When the world begins.
const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);
const MINUTE: Span = Span::from_secs(60);
const TTL: Span = Span::from_secs(10);
const GRACE: Span = Span::from_secs(2);
const DELAY: Span = Span::from_secs(4);
const INSTANT: Span = Span::from_micros(1);

const fn secs(secs: u64) -> Span {
    Span::from_secs(secs)
}

/// The job's nth nominal fire.
fn fire(number: u64) -> Timestamp {
    START.plus(MINUTE.times(number))
}

fn execution_id(number: u64) -> ExecutionId {
    Occurrence::Scheduled { fire: fire(number) }.execution_id(JOB)
}

fn partition() -> PartitionId {
    PartitionId::of(JOB)
}

fn dispatch(number: u64, dispatch_no: u32) -> OutboxId {
    OutboxId { execution: execution_id(number), dispatch_no: DispatchNo(dispatch_no) }
}

fn definition(text: &str) -> Arc<StoredDefinition> {
    Arc::new(StoredDefinition::from_text(text.into()))
}

/// What the nth fire needs to be materialised, as planned at its time.
fn due_item(number: u64) -> MaterialiseJob {
    let occurrence = Occurrence::Scheduled { fire: fire(number) };
    MaterialiseJob {
        job: JOB,
        partition: partition(),
        version: JobVersion::FIRST,
        expected_fire: fire(number),
        executions: vec![NewExecution {
            id: execution_id(number),
            version: JobVersion::FIRST,
            fire: fire(number),
            due_at: fire(number),
            deadline_at: None,
            key: occurrence.idempotency_key(JOB).expect("a scheduled occurrence has a key"),
        }],
        skipped: Vec::new(),
        recorded_through: fire(number),
        next_fire_time: Some(fire(number + 1)),
        next_flex: Span::ZERO,
        valid_until: fire(number).plus(secs(30)),
    }
}

/// A store, the clock it is asked by, and what its commands changed.
struct World {
    store: ReferenceStore,
    now: Timestamp,
    changes: Vec<Change>,
    effects: u64,
}

impl World {
    /// With the tenant and the job, whose first fire is a minute away.
    fn new() -> Self {
        let store = ReferenceStore::new(Bugs::NONE);
        let mut world = Self { store, now: START, changes: Vec::new(), effects: 0 };
        world.apply(Command::CreateTenant(CreateTenant { tenant: TENANT, name: "acme".into() }));
        world.apply(Command::CreateJob(world.new_job(JOB)));
        world
    }

    /// At the first fire, which has been materialised by the scheduler, and its outbox row confirmed.
    fn with_execution() -> Self {
        let mut world = Self::new();
        world.materialise_due(1);
        world.apply(Command::RemoveOutbox(RemoveOutbox { rows: vec![dispatch(1, 1)], grace: GRACE }));
        world
    }

    /// The first execution runs, under this token.
    fn with_run() -> (Self, RunId) {
        let mut world = Self::with_execution();
        let grant = world.granted(WORKER);
        (world, RunId { execution: execution_id(1), token: grant.token })
    }

    fn new_job(&self, job: JobId) -> CreateJob {
        CreateJob {
            tenant: TENANT,
            job,
            request: None,
            definition: definition("one"),
            planned_at: self.now,
            recorded_through: self.now,
            next_fire_time: Some(self.now.plus(MINUTE)),
            next_flex: Span::ZERO,
        }
    }

    fn pass(&mut self, span: Span) {
        self.now = self.now.plus(span);
    }

    fn step_back(&mut self, span: Span) {
        self.now = self.now.minus(span);
    }

    /// Executes a command, and holds the store to what no command may break.
    fn apply(&mut self, command: Command) -> Reply {
        let first = self.changes.len();
        let answer = self.store.apply(self.now, &command, &mut self.changes);
        assert_eq!(answer.now, self.now);
        self.changes[first..].iter().for_each(assert_legal);
        assert_eq!(self.store.tables(), &rebuilt(self.store.tables()), "an index does not fit its rows");
        answer.reply
    }

    /// What the changes of a command are: none, when it was sent again.
    fn changes_nothing(&mut self, command: Command) -> Reply {
        let before = self.changes.len();
        let reply = self.apply(command);
        assert_eq!(self.changes[before..], []);
        reply
    }

    fn nonce(&mut self) -> EffectId {
        self.effects += 1;
        EffectId(self.effects)
    }

    fn ask_partitions(&mut self, node: NodeId, limit: u32) -> AcquirePartitions {
        AcquirePartitions { node, nonce: self.nonce(), ttl: TTL, limit }
    }

    fn acquire_partitions(&mut self, ask: &AcquirePartitions) -> Vec<HeldLease> {
        match self.apply(Command::AcquirePartitions(ask.clone())) {
            Reply::Partitions { granted } => granted,
            other => panic!("another reply: {other:?}"),
        }
    }

    /// Every free partition goes to `node`; the answer is the job's.
    fn own(&mut self, node: NodeId) -> HeldLease {
        let ask = self.ask_partitions(node, 128);
        let granted = self.acquire_partitions(&ask);
        let job = LeaseResource::Partition(partition());
        *granted.iter().find(|held| held.resource == job).expect("the job's partition is free")
    }

    fn acquire_leadership(&mut self, ask: &AcquireLeadership) -> LeadershipReply {
        match self.apply(Command::AcquireLeadership(ask.clone())) {
            Reply::Leadership(reply) => reply,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn lead(&mut self, node: NodeId) -> FencingToken {
        let ask = AcquireLeadership { node, nonce: self.nonce(), ttl: TTL };
        match self.acquire_leadership(&ask) {
            LeadershipReply::Granted { token } => token,
            LeadershipReply::Held { .. } => panic!("leadership is free"),
        }
    }

    fn materialise(&mut self, node: NodeId, held: HeldLease, item: MaterialiseJob) -> MaterialiseReply {
        let ask = Materialise { node, leases: vec![held], items: vec![item] };
        match self.apply(Command::Materialise(ask)) {
            Reply::Materialised(mut replies) => replies.remove(0),
            other => panic!("another reply: {other:?}"),
        }
    }

    /// Goes to the nth fire and materialises it under a fresh lease.
    fn materialise_due(&mut self, number: u64) -> HeldLease {
        self.now = fire(number);
        let held = self.own(SCHEDULER);
        let reply = self.materialise(SCHEDULER, held, due_item(number));
        assert_eq!(reply, MaterialiseReply::Applied(vec![MadeExecution::Made]));
        held
    }

    fn ask_execution(&mut self, node: NodeId) -> AcquireExecutions {
        let nonce = self.nonce();
        let item =
            AcquireExecution { execution: execution_id(1), nonce, published_at: self.now, held: Span::ZERO };
        AcquireExecutions { node, ttl: TTL, items: vec![item] }
    }

    fn acquire(&mut self, ask: &AcquireExecutions) -> AcquireReply {
        match self.apply(Command::AcquireExecutions(ask.clone())) {
            Reply::Acquired(mut replies) => replies.remove(0),
            other => panic!("another reply: {other:?}"),
        }
    }

    /// The first execution is granted to `node`.
    fn granted(&mut self, node: NodeId) -> Grant {
        let ask = self.ask_execution(node);
        match self.acquire(&ask) {
            AcquireReply::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    fn finish(&mut self, node: NodeId, run: RunId, outcome: RunOutcome) -> FinishReply {
        let item = FinishExecution { run, outcome, started_ago: Some(Span::ZERO) };
        match self.apply(Command::FinishExecutions(FinishExecutions { node, items: vec![item] })) {
            Reply::Finished(mut replies) => replies.remove(0),
            other => panic!("another reply: {other:?}"),
        }
    }

    fn renew_run(&mut self, node: NodeId, run: RunId) -> RenewReply {
        match self.apply(Command::RenewExecutions(RenewExecutions { node, ttl: TTL, runs: vec![run] })) {
            Reply::RunsRenewed(mut replies) => replies.remove(0),
            other => panic!("another reply: {other:?}"),
        }
    }

    /// An operator cancels the first execution.
    fn ask_to_stop(&mut self) {
        let ask = CancelExecution { tenant: TENANT, execution: execution_id(1) };
        self.apply(Command::CancelExecution(ask));
    }

    fn defer(&mut self, reason: WaitReason) -> DeferReply {
        let ask = DeferExecutions { items: vec![(execution_id(1), reason)], delay: DELAY };
        match self.apply(Command::DeferExecutions(ask)) {
            Reply::Deferred(mut replies) => replies.remove(0),
            other => panic!("another reply: {other:?}"),
        }
    }

    /// Takes the partitions and promotes what is due.
    fn promote(&mut self) -> (Vec<Dispatch>, Option<Timestamp>) {
        self.pass(TTL);
        let held = self.own(SCHEDULER);
        let ask = PromoteDue { node: SCHEDULER, leases: vec![held], limit: 10 };
        match self.apply(Command::PromoteDue(ask)) {
            Reply::Promoted { dispatches, refused, next_due } => {
                assert_eq!(refused, []);
                (dispatches, next_due)
            }
            other => panic!("another reply: {other:?}"),
        }
    }

    fn job(&self) -> &JobRow {
        self.store.tables().jobs().get(&JOB).expect("the world has its job")
    }

    /// The first execution.
    fn execution(&self) -> &ExecutionRow {
        self.store.tables().executions().get(&execution_id(1)).expect("the first fire was materialised")
    }

    fn outbox(&self) -> Vec<OutboxId> {
        let rows = self.store.tables().outbox().iter();
        rows.map(|row| OutboxId { execution: row.execution, dispatch_no: row.dispatch_no }).collect()
    }

    fn refusals(&self) -> Vec<&RefusalRow> {
        self.store.tables().refusals().iter().collect()
    }

    /// Makes the first execution another one, as no command would.
    fn doctor(&mut self, change: impl FnOnce(&mut ExecutionRow)) {
        let mut row = self.execution().clone();
        change(&mut row);
        self.store.tables.put_execution(row, &mut Vec::new());
    }
}

fn assert_legal(change: &Change) {
    let Change::Execution(delta) = change else { return };
    let Delta { before, after: Some(after) } = &**delta else { panic!("executions are not deleted") };
    let from = before.as_ref().map(|row| row.state);
    assert!(from == Some(after.state) || is_legal(from, after.state), "{from:?} to {}", after.state);
}

/// Tables made anew of the same rows, one by one.
fn rebuilt(tables: &Tables) -> Tables {
    let rows = tables.contents();
    let mut made = Tables::default();
    let changes = &mut Vec::new();
    rows.tenants.into_iter().for_each(|row| made.tenants.put(row, changes));
    rows.leases.into_iter().for_each(|row| made.leases.put(row, changes));
    rows.nodes.into_iter().for_each(|row| made.nodes.put(row, changes));
    rows.jobs.into_iter().for_each(|row| made.jobs.put(row, changes));
    rows.job_versions.into_iter().for_each(|row| made.job_versions.put(row, changes));
    rows.calendars.into_iter().for_each(|row| made.calendars.put(row, changes));
    rows.limits.into_iter().for_each(|row| made.limits.put(row, changes));
    rows.outbox.into_iter().for_each(|row| made.put_outbox(row, changes));
    rows.executions.into_iter().for_each(|row| made.put_execution(row, changes));
    rows.attempts.into_iter().for_each(|row| made.attempts.put(row, changes));
    rows.dead_letters.into_iter().for_each(|row| made.dead_letters.put(row, changes));
    rows.skipped_ranges.into_iter().for_each(|row| made.skipped_ranges.put(row, changes));
    rows.refusals.into_iter().for_each(|row| made.refusals.put(row, changes));
    rows.requests.into_iter().for_each(|row| made.requests.put(row, changes));
    rows.pauses.into_iter().for_each(|row| made.pauses.put(row, changes));
    rows.malformed.into_iter().for_each(|row| made.malformed.put(row, changes));
    made
}
