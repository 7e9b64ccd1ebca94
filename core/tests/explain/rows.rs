//! Rows for the cases: an execution and a job as they are right after a fire, and what may happen to them.
//!
//! One tenant, one job that fires every minute and has the handler `report` in version 2, a scheduler that owns its
//! partition and leads, and a worker. It is 09:00 and the execution is the fire of 09:00; a case moves the clock on.

use std::sync::Arc;

use fencepost_core::config::{SchedulerConfig, WorkerConfig};
use fencepost_core::execution::{
    AttemptEnd, CancelState, DeadLetterReason, ExecutionState, LeaseSign, WaitReason,
};
use fencepost_core::explain::{ExecutionFacts, JobFacts, Spans, StandingSaid};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{
    DispatchNo, EffectId, ExecutionId, JobId, JobVersion, NodeId, Occurrence, PauseId, TenantId,
};
use fencepost_core::job::{JobDefinition, Standing, StoredDefinition};
use fencepost_core::lease::LeaseResource;
use fencepost_core::limits::HELD_RECHECK;
use fencepost_core::partition::PartitionId;
use fencepost_core::pause::PauseScope;
use fencepost_core::schedule::{Day, Days};
use fencepost_core::store::row::{
    AttemptRow, DeadLetterRow, ExecutionRow, JobRow, JobState, LeaseRow, NodeRole, NodeRow, NodeState,
    OutboxRow, PauseEnd, PauseRow, RefusalRow, RefusedAction, RefusedResource,
};
use fencepost_core::time::{Span, Timestamp};

pub(crate) const TENANT: TenantId = TenantId::from_u128(0xa1);
pub(crate) const JOB: JobId = JobId::from_u128(0x0b);
pub(crate) const SCHEDULER: NodeId = NodeId::from_u128(0x51);
pub(crate) const WORKER: NodeId = NodeId::from_u128(0x71);
pub(crate) const OTHER_WORKER: NodeId = NodeId::from_u128(0x72);

const EVERY_MINUTE: &str = r#"{"kind":"cron","expr":"* * * * *"}"#;

/// An instant of 2026-03-02, by its time.
pub(crate) fn at(time: &str) -> Timestamp {
    Timestamp::parse_rfc3339(&format!("2026-03-02T{time}Z")).expect("a time of day")
}

pub(crate) fn token(raw: i64) -> FencingToken {
    FencingToken::from_i64(raw)
}

/// A definition of this schedule, with more fields.
pub(crate) fn definition(schedule: &str, rest: &str) -> Arc<StoredDefinition> {
    let json = format!(
        r#"{{"name":"report","handler":{{"name":"report","version":2}},"schedule":{schedule}{rest}}}"#
    );
    let definition = JobDefinition::parse(&json).expect("the definitions of the cases are right");
    Arc::new(StoredDefinition::of(definition))
}

/// The usual one, with other policies.
pub(crate) fn with_policies(rest: &str) -> Arc<StoredDefinition> {
    definition(EVERY_MINUTE, rest)
}

/// The usual one, with a calendar of these days.
pub(crate) fn with_calendar(name: &str, version: u64, days: &[&str]) -> Arc<StoredDefinition> {
    let usual = with_policies(&format!(r#","exclude":[{name:?}]"#));
    let days = days.iter().map(|day| Day::parse(day).expect("a date")).collect();
    let mut definition = JobDefinition::clone(usual.read().expect("it is right"));
    definition.exclude = definition.exclude.with(name, version, &Days::new(days).expect("few"));
    Arc::new(StoredDefinition::of(definition))
}

/// One that no version can read.
pub(crate) fn unreadable() -> Arc<StoredDefinition> {
    Arc::new(StoredDefinition::from_text(r#"{"schema":99,"definition":{}}"#.into()))
}

pub(crate) fn job(definition: Arc<StoredDefinition>) -> JobRow {
    JobRow {
        id: JOB,
        tenant: TENANT,
        partition: PartitionId::of(JOB),
        version: JobVersion::FIRST,
        state: JobState::Active,
        standing: Standing::Active,
        standing_since: JobVersion::FIRST,
        definition,
        effective_from: at("08:00:00"),
        recorded_through: at("09:00:00"),
        next_fire_time: Some(at("09:01:00")),
        next_try_at: at("09:01:00"),
        runs: 60,
        unreadable: None,
        created_at: at("08:00:00"),
    }
}

pub(crate) fn lease(resource: LeaseResource, owner: Option<NodeId>, expires_at: Timestamp) -> LeaseRow {
    LeaseRow { resource, token: token(4), owner, nonce: EffectId(1), expires_at }
}

pub(crate) fn node(id: NodeId, role: NodeRole, label: &str, seen_at: Timestamp) -> NodeRow {
    NodeRow {
        id,
        role,
        label: label.into(),
        schema: 1,
        state: NodeState::Active,
        capacity: 8,
        started_at: at("07:00:00"),
        seen_at,
    }
}

/// How a job stands that nobody paused or resumed.
fn as_created() -> StandingSaid {
    StandingSaid { at: at("08:00:00"), actor: None, reason: None }
}

fn execution() -> ExecutionRow {
    let occurrence = Occurrence::Scheduled { fire: at("09:00:00") };
    ExecutionRow {
        id: occurrence.execution_id(JOB),
        tenant: TENANT,
        job: JOB,
        job_version: JobVersion::FIRST,
        partition: PartitionId::of(JOB),
        key: occurrence.idempotency_key(JOB).expect("a fire has a key"),
        occurrence,
        payload: None,
        state: ExecutionState::Pending,
        skip_reason: None,
        due_at: at("09:00:00"),
        deadline_at: None,
        made_under: token(4),
        token: FencingToken::NEVER,
        owner: None,
        nonce: EffectId::default(),
        nonce_node: None,
        expires_at: Timestamp::EPOCH,
        sign: LeaseSign::None,
        cancel: CancelState::None,
        attempts: 0,
        rescues: 0,
        lost_starts: 0,
        next_try_at: None,
        waiting: None,
        held_by: None,
        waits: 0,
        dispatch_no: DispatchNo(1),
        dispatched_at: Some(at("09:00:00.012")),
        redispatches: 0,
        materialised_at: at("09:00:00.012"),
        published_at: None,
        received_at: None,
        leased_at: None,
        started_at: None,
        finished_at: None,
        lag_clamped: false,
        error: None,
    }
}

fn outbox(execution: ExecutionId, dispatch_no: u32, created_at: Timestamp) -> OutboxRow {
    OutboxRow {
        execution,
        dispatch_no: DispatchNo(dispatch_no),
        tenant: TENANT,
        partition: PartitionId::of(JOB),
        created_by: SCHEDULER,
        created_at,
        next_try_at: created_at,
        tries: 0,
    }
}

/// An execution that was just made, its outbox row with it; everybody is there.
pub(crate) fn made() -> ExecutionFacts {
    let definition = with_policies("");
    let execution = execution();
    let ahead = at("09:00:08");
    ExecutionFacts {
        now: at("09:00:01"),
        spans: spans(),
        outbox: vec![outbox(execution.id, 1, at("09:00:00.012"))],
        attempts: Vec::new(),
        dead_letter: None,
        refusals: Vec::new(),
        job: job(Arc::clone(&definition)),
        standing: as_created(),
        pauses: Vec::new(),
        definition,
        partition_lease: lease(LeaseResource::Partition(execution.partition), Some(SCHEDULER), ahead),
        leadership: lease(LeaseResource::Leadership, Some(SCHEDULER), ahead),
        nodes: vec![
            node(SCHEDULER, NodeRole::Scheduler, "scheduler-1", at("08:59:59")),
            node(WORKER, NodeRole::Worker, "worker-1", at("08:59:58")),
        ],
        slot_holders: Vec::new(),
        limit: None,
        worker: None,
        execution,
    }
}

fn spans() -> Spans {
    let scheduler = SchedulerConfig::new(SCHEDULER, "scheduler-1".into());
    Spans::of(&scheduler, &WorkerConfig::new(WORKER, "worker-1".into(), Default::default()))
}

/// What may happen to an execution. Each moves the clock to when it happens.
pub(crate) trait Happens: Sized {
    fn later(self, now: &str) -> Self;
    fn with(self, change: impl FnOnce(&mut ExecutionFacts)) -> Self;
    fn defined_by(self, definition: Arc<StoredDefinition>) -> Self;
    fn confirmed(self) -> Self;
    fn waits(self, reason: WaitReason) -> Self;
    fn under(self, scope: PauseScope, ended: Option<&str>) -> Self;
    fn held(self) -> Self;
    fn leased(self, now: &str) -> Self;
    fn renewed(self, now: &str) -> Self;
    fn asked_to_stop(self) -> Self;
    fn ended(self, now: &str, state: ExecutionState) -> Self;
    fn attempt(self, now: &str, end: AttemptEnd, error: Option<&str>) -> Self;
    fn set_back(self, delay: Span) -> Self;
    fn promoted(self, now: &str) -> Self;
    fn dead_lettered(self, reason: DeadLetterReason) -> Self;
    fn refused(self, now: &str, action: RefusedAction, presented: i64) -> Self;
}

impl Happens for ExecutionFacts {
    /// Time passes; whoever holds a lease or reports goes on doing so.
    fn later(mut self, now: &str) -> Self {
        self.now = at(now);
        for lease in [&mut self.partition_lease, &mut self.leadership] {
            if lease.owner.is_some() {
                lease.expires_at = self.now.plus(Span::from_secs(7));
            }
        }
        for node in self.nodes.iter_mut().chain(&mut self.worker) {
            node.seen_at = self.now.minus(Span::from_secs(1));
        }
        self
    }

    fn with(mut self, change: impl FnOnce(&mut ExecutionFacts)) -> Self {
        change(&mut self);
        self
    }

    fn defined_by(mut self, definition: Arc<StoredDefinition>) -> Self {
        self.job.definition = Arc::clone(&definition);
        self.definition = definition;
        self
    }

    /// The broker confirmed the latest dispatch.
    fn confirmed(mut self) -> Self {
        self.outbox.clear();
        self
    }

    fn waits(mut self, reason: WaitReason) -> Self {
        self.outbox.clear();
        let row = &mut self.execution;
        row.waiting = Some(reason);
        row.waits += 1;
        row.next_try_at = Some(self.now.plus(Span::from_secs(5)));
        self
    }

    /// Paused since five seconds to nine, as its tenant or its queue.
    fn under(mut self, scope: PauseScope, ended: Option<&str>) -> Self {
        self.pauses.push(PauseRow {
            id: PauseId::from_u128(0x9a + self.pauses.len() as u128),
            tenant: TENANT,
            scope,
            since: at("08:59:55"),
            actor: "Zoë".into(),
            reason: "the disk is full".into(),
            ended: ended.map(|ended| PauseEnd {
                at: at(ended),
                actor: "Ada".into(),
                reason: "it was emptied".into(),
            }),
            lift_until: None,
        });
        self
    }

    /// The first of its pauses holds it back.
    fn held(self) -> Self {
        let mut facts = self.confirmed();
        let pause = facts.pauses.first().expect("there is one").clone();
        facts.execution.waiting = Some(pause.scope.wait_reason());
        facts.execution.held_by = Some(pause.id);
        facts.execution.next_try_at = Some(facts.now.plus(HELD_RECHECK));
        if let Some(end) = pause.ended {
            facts.execution.next_try_at = Some(end.at);
            facts.now = end.at.plus(Span::from_millis(200));
        }
        facts
    }

    fn leased(self, now: &str) -> Self {
        let mut facts = self.later(now).confirmed();
        let now = facts.now;
        let row = &mut facts.execution;
        row.state = ExecutionState::Running;
        row.token = row.token.next().expect("far from the edge");
        (row.owner, row.nonce_node) = (Some(WORKER), Some(WORKER));
        row.expires_at = now.plus(Span::from_secs(15));
        row.sign = LeaseSign::None;
        (row.waiting, row.next_try_at, row.waits, row.redispatches) = (None, None, 0, 0);
        row.published_at = Some(now.minus(Span::from_micros(9_400)));
        row.received_at = Some(now.minus(Span::from_micros(6_300)));
        row.leased_at = Some(now);
        row.started_at = None;
        facts.worker = Some(node(WORKER, NodeRole::Worker, "worker-1", now.minus(Span::from_secs(1))));
        facts
    }

    fn renewed(self, now: &str) -> Self {
        let mut facts = self.later(now);
        facts.execution.sign = LeaseSign::Started;
        facts.execution.expires_at = facts.now.plus(Span::from_secs(15));
        facts
    }

    fn asked_to_stop(mut self) -> Self {
        self.execution.cancel = CancelState::Requested;
        self
    }

    fn ended(self, now: &str, state: ExecutionState) -> Self {
        let mut facts = self.later(now);
        let row = &mut facts.execution;
        row.state = state;
        (row.owner, row.expires_at) = (None, Timestamp::EPOCH);
        (row.waiting, row.next_try_at) = (None, None);
        row.started_at = row.leased_at.map(|leased| leased.plus(Span::from_micros(700)));
        row.finished_at = Some(facts.now);
        facts
    }

    /// A run ends otherwise than completed; what becomes of the execution is to follow.
    fn attempt(self, now: &str, end: AttemptEnd, error: Option<&str>) -> Self {
        let mut facts = self.later(now);
        let error: Option<Arc<str>> = error.map(Arc::from);
        let row = &mut facts.execution;
        facts.attempts.push(AttemptRow {
            execution: row.id,
            token: row.token,
            tenant: TENANT,
            node: row.owner,
            attempt: row.attempts + 1,
            end,
            error: error.clone(),
            at: facts.now,
        });
        match end {
            AttemptEnd::FailedRetryably | AttemptEnd::FailedForGood => row.attempts += 1,
            AttemptEnd::Lost => match row.sign {
                LeaseSign::Started => row.rescues += 1,
                LeaseSign::None => row.lost_starts += 1,
            },
            AttemptEnd::Released | AttemptEnd::Cancelled => {}
        }
        row.error = error.or(row.error.take());
        facts
    }

    fn set_back(mut self, delay: Span) -> Self {
        let row = &mut self.execution;
        row.state = ExecutionState::RetryWait;
        (row.owner, row.expires_at) = (None, Timestamp::EPOCH);
        row.next_try_at = Some(self.now.plus(delay));
        self
    }

    fn promoted(self, now: &str) -> Self {
        let mut facts = self.later(now);
        let row = &mut facts.execution;
        row.state = ExecutionState::Pending;
        row.next_try_at = None;
        row.dispatch_no = row.dispatch_no.next();
        row.dispatched_at = Some(facts.now);
        facts.outbox = vec![outbox(row.id, row.dispatch_no.0, facts.now)];
        facts
    }

    fn dead_lettered(mut self, reason: DeadLetterReason) -> Self {
        let now = self.execution.finished_at.expect("what is dead-lettered has ended");
        let row = &self.execution;
        self.dead_letter = Some(DeadLetterRow {
            execution: row.id,
            tenant: TENANT,
            job: JOB,
            reason,
            error: row.error.clone(),
            attempts: row.attempts,
            rescues: row.rescues,
            lost_starts: row.lost_starts,
            at: now,
            replays: 0,
            purged_at: None,
        });
        self
    }

    fn refused(self, now: &str, action: RefusedAction, presented: i64) -> Self {
        let mut facts = self.later(now);
        facts.refusals.push(RefusalRow {
            resource: RefusedResource::Execution(facts.execution.id),
            token: token(presented),
            node: OTHER_WORKER,
            action,
            current: facts.execution.token,
            first_at: facts.now,
            last_at: facts.now,
            count: 1,
        });
        facts
    }
}

/// A job at 09:00:30 whose latest fire is recorded and whose partition is owned.
pub(crate) fn standing(definition: Arc<StoredDefinition>) -> JobFacts {
    let now = at("09:00:30");
    let job = job(definition);
    JobFacts {
        now,
        standing: as_created(),
        earlier: Vec::new(),
        changes: Vec::new(),
        pauses: Vec::new(),
        executions: Vec::new(),
        skipped: Vec::new(),
        live: vec![(ExecutionState::Running, 1)],
        partition_lease: lease(
            LeaseResource::Partition(job.partition),
            Some(SCHEDULER),
            now.plus(Span::from_secs(7)),
        ),
        owner: Some(node(SCHEDULER, NodeRole::Scheduler, "scheduler-1", now)),
        job,
    }
}
