//! Rows as the scheduler writes them: a job that fires every minute, one that was deleted, and executions in all states.
//!
//! The first was created at 08:00 on 2026-03-02. It fired at 08:01, 08:02 and 08:03; then nobody was there until
//! 08:14:40, when 08:14 was run for the ten fires before it; 08:15 was on time.

use std::sync::Arc;

use fencepost_core::execution::{
    AttemptEnd, CancelState, DeadLetterReason, ExecutionState, LeaseSign, SkipReason,
};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{
    DispatchNo, EffectId, ExecutionId, JobId, JobVersion, NodeId, Occurrence, TenantId,
};
use fencepost_core::job::{JobDefinition, Standing, StoredDefinition};
use fencepost_core::lease::LeaseResource;
use fencepost_core::partition::PartitionId;
use fencepost_core::schedule::TZDATA_VERSION;
use fencepost_core::store::row::{
    AttemptRow, DeadLetterRow, ExecutionRow, JobRow, JobState, JobVersionRow, LeaseRow, OutboxRow,
    RefusalRow, RefusedAction, RefusedResource, SkippedRangeRow,
};
use fencepost_core::time::{Span, Timestamp};
use fencepost_core::verify::{
    ExecutionFacts, JobOfExecution, LedgerFire, LedgerItem, OriginFacts, Orphan, OrphanKind, ReplayFacts,
    Report, Verifier, Window, ZoneData,
};

pub(crate) const TENANT: TenantId = TenantId::from_u128(0xa1);
pub(crate) const JOB: JobId = JobId::from_u128(0x0b);
pub(crate) const DELETED: JobId = JobId::from_u128(0x0c);
const WORKER: NodeId = NodeId::from_u128(0x71);

const EVERY_MINUTE: &str = r#"{"kind":"cron","expr":"* * * * *"}"#;

/// An instant of 2026-03-02, by its time.
pub(crate) fn at(time: &str) -> Timestamp {
    Timestamp::parse_rfc3339(&format!("2026-03-02T{time}Z")).expect("a time of day")
}

pub(crate) fn token(raw: i64) -> FencingToken {
    FencingToken::from_i64(raw)
}

/// A definition of this schedule, with more fields. Two attempts are allowed.
pub(crate) fn definition(schedule: &str, rest: &str) -> Arc<StoredDefinition> {
    let json = format!(
        r#"{{"name":"n","handler":{{"name":"noop"}},"schedule":{schedule},"retry":{{"max_attempts":2}}{rest}}}"#
    );
    Arc::new(StoredDefinition::of(
        JobDefinition::parse(&json).expect("the definitions of the cases are right"),
    ))
}

fn version(job: JobId, definition: &Arc<StoredDefinition>) -> JobVersionRow {
    JobVersionRow {
        job,
        version: JobVersion::FIRST,
        tenant: TENANT,
        definition: Arc::clone(definition),
        effective_from: at("08:00:00"),
        standing: Standing::Active,
        standing_since: JobVersion::FIRST,
        actor: None,
        reason: None,
    }
}

fn job(id: JobId, definition: &Arc<StoredDefinition>) -> JobRow {
    JobRow {
        id,
        tenant: TENANT,
        partition: PartitionId::of(id),
        version: JobVersion::FIRST,
        state: JobState::Active,
        standing: Standing::Active,
        standing_since: JobVersion::FIRST,
        definition: Arc::clone(definition),
        effective_from: at("08:00:00"),
        recorded_through: at("08:15:00"),
        next_fire_time: Some(at("08:16:00")),
        next_try_at: at("08:16:00"),
        runs: 5,
        unreadable: None,
        created_at: at("08:00:00"),
    }
}

fn entry(job: JobId, fire: Timestamp, job_version: u32, materialised_at: Timestamp) -> LedgerItem {
    LedgerItem::Fire(LedgerFire {
        id: Occurrence::Scheduled { fire }.execution_id(job),
        fire,
        job_version: JobVersion(job_version),
        due_at: fire,
        materialised_at,
        made_under: token(4),
        state: ExecutionState::Completed,
        skip_reason: None,
    })
}

/// A fire that was recorded at once.
pub(crate) fn fire(time: &str, job_version: u32) -> LedgerItem {
    entry(JOB, at(time), job_version, at(time).plus(Span::from_millis(12)))
}

/// A fire that was recorded late.
pub(crate) fn late_fire(time: &str, materialised_at: Timestamp) -> LedgerItem {
    entry(JOB, at(time), 1, materialised_at)
}

/// The same fire, of another version.
pub(crate) fn of_version(item: LedgerItem, version: u32) -> LedgerItem {
    match item {
        LedgerItem::Fire(fire) => LedgerItem::Fire(LedgerFire { job_version: JobVersion(version), ..fire }),
        LedgerItem::Range(range) => LedgerItem::Range(range),
    }
}

pub(crate) fn range(from: &str, through: Timestamp, decided_at: Timestamp) -> LedgerItem {
    LedgerItem::Range(SkippedRangeRow {
        job: JOB,
        from: at(from),
        through,
        tenant: TENANT,
        reason: SkipReason::Misfire,
        job_version: JobVersion::FIRST,
        made_under: token(4),
        decided_at,
        zone_data: TZDATA_VERSION.into(),
    })
}

pub(crate) fn orphan() -> Orphan {
    Orphan { kind: OrphanKind::Outbox, job: None, execution: Some(ExecutionId::from_u128(7)) }
}

/// An execution that was just made, a second after it was due.
fn made(job: JobId, occurrence: Occurrence, due_at: Timestamp) -> ExecutionFacts {
    let made_at = due_at.plus(Span::from_secs(1));
    let key = occurrence.idempotency_key(job).unwrap_or_else(|| "".into());
    let execution = ExecutionRow {
        id: occurrence.execution_id(job),
        tenant: TENANT,
        job,
        job_version: JobVersion::FIRST,
        partition: PartitionId::of(job),
        key,
        occurrence,
        payload: None,
        state: ExecutionState::Pending,
        skip_reason: None,
        due_at,
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
        dispatched_at: Some(made_at),
        redispatches: 0,
        materialised_at: made_at,
        published_at: None,
        received_at: None,
        leased_at: None,
        started_at: None,
        finished_at: None,
        lag_clamped: false,
        error: None,
    };
    let definition = definition(EVERY_MINUTE, "");
    ExecutionFacts {
        job: Some(JobOfExecution {
            tenant: TENANT,
            partition: PartitionId::of(job),
            state: JobState::Active,
            effective_from: at("08:00:00"),
        }),
        definition: Some(definition),
        attempts: Vec::new(),
        outbox: Vec::new(),
        dead_letter: None,
        replays: Vec::new(),
        origin: None,
        refusals: Vec::new(),
        execution,
    }
}

fn of_fire(time: &str) -> ExecutionFacts {
    made(JOB, Occurrence::Scheduled { fire: at(time) }, at(time))
}

/// It got a lease, so many seconds after it was due.
fn leased(facts: &mut ExecutionFacts, after: u64) {
    let row = &mut facts.execution;
    let leased_at = row.due_at.plus(Span::from_secs(after));
    row.state = ExecutionState::Running;
    row.token = row.token.next().expect("far from the last token");
    row.owner = Some(WORKER);
    row.expires_at = leased_at.plus(Span::from_secs(30));
    row.published_at = Some(leased_at);
    row.received_at = Some(leased_at);
    row.leased_at = Some(leased_at);
    row.started_at = Some(leased_at);
}

/// Its run ended, so many seconds after it was due.
fn ended(facts: &mut ExecutionFacts, end: AttemptEnd, to: ExecutionState, after: u64) {
    let row = &mut facts.execution;
    let at = row.due_at.plus(Span::from_secs(after));
    facts.attempts.push(attempt(row, end, at));
    match end {
        AttemptEnd::FailedRetryably | AttemptEnd::FailedForGood => row.attempts += 1,
        AttemptEnd::Lost => row.rescues += 1,
        AttemptEnd::Released | AttemptEnd::Cancelled => {}
    }
    set_down(row, to, at);
}

pub(crate) fn attempt(row: &ExecutionRow, end: AttemptEnd, at: Timestamp) -> AttemptRow {
    AttemptRow {
        execution: row.id,
        token: row.token,
        tenant: TENANT,
        node: Some(WORKER),
        attempt: row.attempts + 1,
        end,
        error: None,
        at,
    }
}

fn set_down(row: &mut ExecutionRow, to: ExecutionState, at: Timestamp) {
    row.state = to;
    row.owner = None;
    row.expires_at = Timestamp::EPOCH;
    row.next_try_at = (to == ExecutionState::RetryWait).then(|| at.plus(Span::from_secs(1)));
    row.finished_at = to.is_terminal().then_some(at);
}

pub(crate) fn outbox(row: &ExecutionRow, created_at: Timestamp) -> OutboxRow {
    OutboxRow {
        execution: row.id,
        dispatch_no: row.dispatch_no,
        tenant: TENANT,
        partition: row.partition,
        created_by: WORKER,
        created_at,
        next_try_at: created_at,
        tries: 0,
    }
}

fn letter(row: &ExecutionRow) -> DeadLetterRow {
    DeadLetterRow {
        execution: row.id,
        tenant: TENANT,
        job: row.job,
        reason: DeadLetterReason::Exhausted,
        error: Some("it cannot work".into()),
        attempts: row.attempts,
        rescues: row.rescues,
        lost_starts: row.lost_starts,
        at: row.finished_at.expect("it has ended"),
        replays: 1,
        purged_at: None,
    }
}

fn refusal(resource: RefusedResource, presented: i64, current: i64, action: RefusedAction) -> RefusalRow {
    RefusalRow {
        resource,
        token: token(presented),
        node: WORKER,
        action,
        current: token(current),
        first_at: at("08:01:10"),
        last_at: at("08:01:20"),
        count: 2,
    }
}

/// All rows of a database.
pub(crate) struct Rows {
    pub(crate) leases: Vec<LeaseRow>,
    pub(crate) jobs: Vec<(JobRow, Vec<JobVersionRow>, Vec<LedgerItem>)>,
    pub(crate) executions: Vec<ExecutionFacts>,
    pub(crate) refusals: Vec<RefusalRow>,
    pub(crate) orphans: Vec<Orphan>,
    pub(crate) zone_data: ZoneData,
}

/// Where each execution stands among those of [`Rows::right`].
pub(crate) const COMPLETED: usize = 0;
pub(crate) const DEAD: usize = 1;
pub(crate) const CANCELLED: usize = 2;
pub(crate) const RUNNING: usize = 3;
pub(crate) const PENDING: usize = 4;
pub(crate) const RETRYING: usize = 5;
pub(crate) const REPLAY: usize = 6;
pub(crate) const OF_DELETED: usize = 7;

impl Rows {
    /// As the scheduler writes them.
    pub(crate) fn right() -> Self {
        let every_minute = definition(EVERY_MINUTE, "");
        let ledger = vec![
            fire("08:01:00", 1),
            fire("08:02:00", 1),
            fire("08:03:00", 1),
            range("08:04:00", at("08:13:00"), at("08:14:40")),
            late_fire("08:14:00", at("08:14:40")),
            fire("08:15:00", 1),
        ];
        let mut gone = job(DELETED, &every_minute);
        gone.state = JobState::Deleted;
        gone.version = JobVersion(2);
        gone.effective_from = at("08:01:30");
        (gone.recorded_through, gone.next_fire_time, gone.runs) = (at("08:01:00"), None, 1);
        let of_gone = entry(DELETED, at("08:01:00"), 1, at("08:01:01"));
        let lease = |resource| LeaseRow {
            resource,
            token: token(4),
            owner: Some(WORKER),
            nonce: EffectId(1),
            expires_at: at("08:16:00"),
        };
        Self {
            leases: LeaseResource::all().map(lease).collect(),
            jobs: vec![
                (job(JOB, &every_minute), vec![version(JOB, &every_minute)], ledger),
                (gone, vec![version(DELETED, &every_minute)], vec![of_gone]),
            ],
            executions: Self::executions(),
            refusals: vec![refusal(
                RefusedResource::Lease(LeaseResource::Leadership),
                3,
                4,
                RefusedAction::Repair,
            )],
            orphans: Vec::new(),
            zone_data: ZoneData::OURS,
        }
    }

    fn executions() -> Vec<ExecutionFacts> {
        let mut completed = of_fire("08:01:00");
        leased(&mut completed, 2);
        ended(&mut completed, AttemptEnd::FailedRetryably, ExecutionState::RetryWait, 3);
        leased(&mut completed, 5);
        set_down(&mut completed.execution, ExecutionState::Completed, at("08:01:06"));
        let id = completed.execution.id;
        completed.refusals = vec![refusal(RefusedResource::Execution(id), 1, 2, RefusedAction::Finish)];

        let mut dead = of_fire("08:02:00");
        leased(&mut dead, 2);
        ended(&mut dead, AttemptEnd::FailedRetryably, ExecutionState::RetryWait, 3);
        leased(&mut dead, 5);
        ended(&mut dead, AttemptEnd::FailedForGood, ExecutionState::DeadLettered, 6);
        dead.dead_letter = Some(letter(&dead.execution));
        dead.replays = vec![ReplayFacts { number: 1, materialised_at: at("08:05:01") }];

        let mut cancelled = of_fire("08:03:00");
        set_down(&mut cancelled.execution, ExecutionState::Cancelled, at("08:03:20"));

        let mut running = of_fire("08:14:00");
        leased(&mut running, 42);

        let mut pending = of_fire("08:15:00");
        pending.outbox = vec![outbox(&pending.execution, at("08:15:01"))];

        let mut retrying = made(JOB, Occurrence::Manual { key: "by hand".into() }, at("08:10:00"));
        leased(&mut retrying, 2);
        ended(&mut retrying, AttemptEnd::Lost, ExecutionState::RetryWait, 40);

        let occurrence = Occurrence::Replay { origin: dead.execution.id, number: 1 };
        let mut replay = made(JOB, occurrence, at("08:05:00"));
        replay.execution.key = Arc::clone(&dead.execution.key);
        replay.execution.token = dead.execution.token;
        replay.origin =
            Some(OriginFacts { token: dead.execution.token, key: Arc::clone(&dead.execution.key) });

        let mut of_deleted = made(DELETED, Occurrence::Scheduled { fire: at("08:01:00") }, at("08:01:00"));
        leased(&mut of_deleted, 3);
        of_deleted.execution.cancel = CancelState::Requested;
        let job = of_deleted.job.as_mut().expect("it has one");
        (job.state, job.effective_from) = (JobState::Deleted, at("08:01:30"));
        vec![completed, dead, cancelled, running, pending, retrying, replay, of_deleted]
    }

    pub(crate) fn job(&mut self) -> &mut JobRow {
        &mut self.jobs[0].0
    }

    pub(crate) fn ledger(&mut self) -> &mut Vec<LedgerItem> {
        &mut self.jobs[0].2
    }

    pub(crate) fn fire(&mut self, nth: usize) -> &mut LedgerFire {
        match &mut self.ledger()[nth] {
            LedgerItem::Fire(fire) => fire,
            LedgerItem::Range(range) => panic!("entry {nth} is {range:?}"),
        }
    }

    pub(crate) fn range(&mut self) -> &mut SkippedRangeRow {
        match &mut self.ledger()[3] {
            LedgerItem::Range(range) => range,
            LedgerItem::Fire(fire) => panic!("the fourth entry is {fire:?}"),
        }
    }

    pub(crate) fn row(&mut self, nth: usize) -> &mut ExecutionRow {
        &mut self.executions[nth].execution
    }

    /// The job has had this definition from the start.
    pub(crate) fn define(&mut self, definition: &Arc<StoredDefinition>) {
        let (job, versions, _) = &mut self.jobs[0];
        job.definition = Arc::clone(definition);
        versions[0].definition = Arc::clone(definition);
    }

    /// The job is given this definition.
    pub(crate) fn edit(&mut self, definition: &Arc<StoredDefinition>, effective_from: Timestamp) {
        let (job, versions, _) = &mut self.jobs[0];
        job.definition = Arc::clone(definition);
        job.version = job.version.next();
        job.effective_from = effective_from;
        versions.push(JobVersionRow {
            version: job.version,
            definition: Arc::clone(definition),
            effective_from,
            ..versions[0].clone()
        });
    }

    /// The job is paused or resumed.
    pub(crate) fn stand(&mut self, standing: Standing, effective_from: Timestamp) {
        let definition = Arc::clone(&self.jobs[0].0.definition);
        self.edit(&definition, effective_from);
        let (job, versions, _) = &mut self.jobs[0];
        (job.standing, job.standing_since) = (standing, job.version);
        let last = versions.last_mut().expect("an edit leaves a version");
        (last.standing, last.standing_since) = (standing, job.version);
    }

    /// What a verification says of what lies in a window.
    pub(crate) fn judged(&self, window: Window) -> Report {
        let mut verifier = Verifier::new(window, self.zone_data.clone());
        self.leases.iter().for_each(|row| verifier.lease(row));
        for (job, versions, ledger) in &self.jobs {
            verifier.begin_job(job.clone(), versions);
            let is_in = |item: &&LedgerItem| match item {
                LedgerItem::Fire(fire) => window.contains(fire.fire),
                LedgerItem::Range(range) => range.through >= window.from && range.from < window.to,
            };
            ledger.iter().filter(is_in).for_each(|item| verifier.ledger_item(item.clone()));
            verifier.end_job();
        }
        self.executions.iter().for_each(|facts| verifier.execution(facts));
        self.refusals.iter().for_each(|row| verifier.lease_refusal(row));
        self.orphans.iter().for_each(|orphan| verifier.orphan(orphan));
        verifier.finish(at("08:15:10"))
    }
}
