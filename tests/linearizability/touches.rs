//! What an atom reads and writes: where two of them can meet.
//!
//! Atoms that share nothing, or only read what they share, have no influence on each other; a history falls apart
//! into groups that are explained one by one, and its rows at the end with it. Said too generously this costs time;
//! said too narrowly it makes an explanation impossible that there is, which a run shows.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::execution::ExecutionState;
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, JobId, NodeId, TenantId};
use fencepost_core::job::StoredDefinition;
use fencepost_core::lease::{HeldLease, LeaseResource, RunId};
use fencepost_core::replay::execution_of;
use fencepost_core::store::command::{ChangeJob, Command, JobChange, PauseChange, RepairItem, ReplayNumber};
use fencepost_core::store::reference::{Choice, Picked, ReferenceStore};
use fencepost_core::store::reply::{
    AcquireReply, CancelReply, ChangeJobReply, CreateJobReply, CreateTenantReply, DeferReply, DeleteJobReply,
    FinishReply, HoldReply, LeadershipReply, MaterialiseReply, PageReplay, PurgeReply, PutOffReply,
    RemovalReply, RenewReply, RepairItemReply, RepairReply, ReplayReply, Reply, SetCalendarReply,
    SetLimitReply, SetPauseReply, TriggerReply,
};
use fencepost_core::store::row::{RefusalRow, RefusedAction, RefusedResource};
use fencepost_core::store::tables::{Contents, RefusalKey, Tables};
use fencepost_core::time::Timestamp;
use uuid::Uuid;

use crate::history::Operation;

/// A part of what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thing {
    /// A lease's row.
    Lease(LeaseResource),
    /// What is recorded of a node that was refused under a lease or a run: a row's key.
    Refusal(RefusalKey),
    /// A node's row.
    Node(NodeId),
    /// A tenant's row and the requests of its operators.
    Tenant(TenantId),
    /// The names of tenants, of which none is used twice.
    TenantNames,
    /// A job's row, its versions and skipped ranges.
    Job(JobId),
    /// Whether a job is paused, which acquisitions read. It is in the job's row; whoever writes it writes that as well.
    Standing(JobId),
    /// All pauses of tenants and queues.
    Pauses,
    /// The limits of tenants, and whoever is counted by them.
    Limits,
    /// The calendars of tenants.
    Calendars,
    /// An execution's row with its attempts, outbox rows and dead letter.
    Execution(ExecutionId),
    /// A malformed message.
    Message(Uuid),
}

/// What an atom may read and write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touches {
    /// What it may read and does not write.
    reads: BTreeSet<Thing>,
    /// What it may write.
    pub(crate) writes: BTreeSet<Thing>,
}

/// The executions that a history can be about, by job, the jobs that judge their executions beside each other (for overlap,
/// or for failures in a row), and those of the tenants that may have a concurrency limit, by tenant.
#[derive(Debug, Default)]
pub(crate) struct Executions(
    BTreeMap<JobId, BTreeSet<ExecutionId>>,
    BTreeSet<JobId>,
    BTreeMap<TenantId, BTreeSet<JobId>>,
);

impl Executions {
    /// Those there are, and those that some operation may make.
    pub(crate) fn of(operations: &[Operation], start: &ReferenceStore) -> Self {
        let mut all = Self::default();
        for row in start.tables().executions().iter() {
            all.0.entry(row.job).or_default().insert(row.id);
        }
        for row in start.tables().limits().iter().filter(|row| row.max_running.is_some()) {
            all.2.entry(row.tenant).or_default();
        }
        for operation in operations {
            if let Command::SetLimit(ask) = &operation.command {
                all.2.entry(ask.tenant).or_default();
            }
        }
        let created = operations.iter().filter_map(|operation| match &operation.command {
            Command::CreateJob(ask) => Some((ask.tenant, ask.job)),
            _ => None,
        });
        for (tenant, job) in start.tables().jobs().iter().map(|row| (row.tenant, row.id)).chain(created) {
            if let Some(jobs) = all.2.get_mut(&tenant) {
                jobs.insert(job);
            }
        }
        for version in start.tables().job_versions().iter() {
            all.1.extend(judges(&version.definition).then_some(version.job));
        }
        for operation in operations {
            match &operation.command {
                Command::CreateJob(ask) => {
                    all.1.extend(judges(&ask.definition).then_some(ask.job));
                }
                Command::ChangeJob(ChangeJob { job, change: JobChange::Edit(definition), .. }) => {
                    all.1.extend(judges(definition).then_some(*job));
                }
                Command::Materialise(ask) => {
                    for item in &ask.items {
                        let made = item.executions.iter().map(|execution| execution.id);
                        all.0.entry(item.job).or_default().extend(made);
                    }
                }
                Command::TriggerJob(ask) => {
                    all.0.entry(ask.job).or_default().insert(ask.execution);
                }
                _ => {}
            }
        }
        // A replay may be replayed: two rounds reach further than any history does.
        for _ in 0..2 {
            all.add_replays(operations, start);
        }
        all
    }

    /// The replays that some operation may make of those there are: by number, as far as so many operations count.
    fn add_replays(&mut self, operations: &[Operation], start: &ReferenceStore) {
        let mut asked: BTreeMap<ExecutionId, u32> = BTreeMap::new();
        let mut has_pages = false;
        for operation in operations {
            match &operation.command {
                Command::ReplayDeadLetter(ask) => *asked.entry(ask.origin).or_default() += 1,
                Command::ReplayDeadLetters(_) => has_pages = true,
                _ => {}
            }
        }
        for (job, known) in &mut self.0 {
            let mut made = Vec::new();
            for origin in known.iter() {
                let replays = start.tables().dead_letters().get(origin).map_or(0, |letter| letter.replays);
                let more = asked.get(origin).copied().unwrap_or(0) + u32::from(has_pages);
                made.extend((1..=replays + more).map(|number| execution_of(*job, *origin, number)));
            }
            known.extend(made);
        }
    }

    /// The job of an execution, and what replays of it there may be.
    fn replays_of(&self, origin: ExecutionId) -> (Option<JobId>, Vec<Thing>) {
        let Some((job, known)) = self.0.iter().find(|(_, known)| known.contains(&origin)) else {
            return (None, Vec::new());
        };
        let replays = (1..).map(|number| execution_of(*job, origin, number));
        let replays = replays.take_while(|id| known.contains(id)).map(Thing::Execution).collect();
        (Some(*job), replays)
    }

    fn job_of(&self, execution: ExecutionId) -> Option<JobId> {
        self.0.iter().find(|(_, known)| known.contains(&execution)).map(|(job, _)| *job)
    }

    fn jobs(&self) -> impl Iterator<Item = Thing> {
        self.0.keys().copied().map(Thing::Job)
    }

    /// What an execution is judged beside, where its job does that, or where there may be a limit.
    fn beside(&self, execution: ExecutionId) -> Vec<Thing> {
        let Some(job) = self.job_of(execution) else { return Vec::new() };
        let limited: Vec<&BTreeSet<JobId>> = self.2.values().filter(|jobs| jobs.contains(&job)).collect();
        if !limited.is_empty() {
            let counted = limited.into_iter().flatten().flat_map(|job| self.of_job(*job));
            return counted.chain([Thing::Limits]).collect();
        }
        if self.1.contains(&job) { self.of_job(job).collect() } else { Vec::new() }
    }

    /// The standing of an execution's job, which its end may change, where its job judges such.
    fn standing_of(&self, execution: ExecutionId) -> Vec<Thing> {
        let job = self.job_of(execution).filter(|job| self.1.contains(job));
        job.map(|job| vec![Thing::Job(job), Thing::Standing(job)]).unwrap_or_default()
    }

    fn of_job(&self, job: JobId) -> impl Iterator<Item = Thing> {
        self.0.get(&job).into_iter().flatten().copied().map(Thing::Execution)
    }

    fn all(&self) -> impl Iterator<Item = Thing> {
        self.0.values().flatten().copied().map(Thing::Execution)
    }
}

fn judges(definition: &StoredDefinition) -> bool {
    definition.overlap().judges() || definition.pause_after_failures().is_some()
}

impl Touches {
    /// Of an atom that looks at one thing.
    pub(crate) fn reading(thing: Thing) -> Self {
        Self { reads: [thing].into(), writes: BTreeSet::new() }
    }

    /// Whether one writes what the other reads or writes.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        !self.writes.is_disjoint(&other.writes)
            || !self.writes.is_disjoint(&other.reads)
            || !self.reads.is_disjoint(&other.writes)
    }

    /// Whether both are about some thing, if only to read it.
    pub(crate) fn shares(&self, other: &Self) -> bool {
        self.meets(other) || !self.reads.is_disjoint(&other.reads)
    }

    /// Whether this writes what the other only reads.
    pub(crate) fn spoils(&self, other: &Self) -> bool {
        !self.writes.is_disjoint(&other.reads)
    }

    fn write(mut self, things: impl IntoIterator<Item = Thing>) -> Self {
        self.writes.extend(things);
        self
    }

    /// What is written is not only read.
    fn read(mut self, things: impl IntoIterator<Item = Thing>) -> Self {
        self.reads.extend(things.into_iter().filter(|thing| !self.writes.contains(thing)));
        self
    }

    /// What `node` writes under leases that are read; a refusal of this action is recorded.
    fn guarded(node: NodeId, leases: &[HeldLease], refused: Option<RefusedAction>) -> Self {
        let refusals = leases.iter().flat_map(|held| refused.map(|action| refusal(node, *held, action)));
        Self {
            writes: refusals.collect(),
            reads: leases.iter().map(|held| Thing::Lease(held.resource)).collect(),
        }
    }

    /// What a worker writes about its runs: the executions, or that it was refused.
    fn of_runs(
        node: NodeId,
        runs: impl Iterator<Item = RunId>,
        action: RefusedAction,
        reply: Option<&Reply>,
    ) -> Self {
        let mut touches = Self::default();
        for run in runs {
            let execution = Thing::Execution(run.execution);
            let refusal =
                Thing::Refusal((RefusedResource::Execution(run.execution), run.token, node, action));
            match reply {
                Some(reply) if is_refusal(reply) => {
                    touches.reads.insert(execution);
                    touches.writes.insert(refusal);
                }
                Some(_) => {
                    touches.writes.insert(execution);
                }
                None => touches.writes.extend([execution, refusal]),
            }
        }
        touches
    }

    /// Of an atom with this command, of one item where it is a batch, which gave this answer.
    pub(crate) fn of(
        command: &Command,
        choice: &Choice,
        reply: Option<&Reply>,
        executions: &Executions,
    ) -> Self {
        let touches = Self::at_most(command, choice, reply, executions);
        if reply.is_some_and(is_of_nothing) {
            let reads = touches.reads.union(&touches.writes).copied().collect();
            return Self { reads, writes: BTreeSet::new() };
        }
        touches
    }

    fn at_most(command: &Command, choice: &Choice, reply: Option<&Reply>, executions: &Executions) -> Self {
        let nothing = Self::default;
        let refused = |action| reply.is_none_or(is_refusal).then_some(action);
        // A partition that no lease is presented for is presented under the token that nobody ever held.
        let under = |leases: &[HeldLease], partition| -> [HeldLease; 1] {
            let resource = LeaseResource::Partition(partition);
            let presented = leases.iter().find(|held| held.resource == resource).copied();
            [presented.unwrap_or(HeldLease { resource, token: FencingToken::NEVER })]
        };
        match command {
            Command::ReadClock | Command::ScanDueJobs(_) | Command::ScanSweep(_) => nothing(),
            Command::Heartbeat(report) => nothing().write([Thing::Node(report.node)]),
            Command::AcquireLeadership(_) => nothing().write([Thing::Lease(LeaseResource::Leadership)]),
            Command::AcquirePartitions(_) => nothing().write(LeaseResource::all().map(Thing::Lease)),
            Command::RenewLeases(ask) if reply.is_some_and(is_refusal) => {
                Self::guarded(ask.node, &ask.leases, Some(RefusedAction::RenewLease))
            }
            Command::RenewLeases(ask) => {
                let guarded = Self::guarded(ask.node, &ask.leases, refused(RefusedAction::RenewLease));
                guarded.write(ask.leases.iter().map(|held| Thing::Lease(held.resource)))
            }
            Command::ReleaseLeases(ask) if reply.is_some_and(is_refusal) => {
                Self::guarded(ask.node, &ask.leases, None)
            }
            Command::ReleaseLeases(ask) => {
                nothing().write(ask.leases.iter().map(|held| Thing::Lease(held.resource)))
            }
            Command::Materialise(ask) => {
                let item = &ask.items[0];
                let made = item.executions.iter().map(|execution| Thing::Execution(execution.id));
                let leases = under(&ask.leases, item.partition);
                let guarded = Self::guarded(ask.node, &leases, refused(RefusedAction::Materialise));
                if reply.is_some_and(is_refusal) {
                    return guarded.read(made.chain([Thing::Job(item.job)]));
                }
                guarded.write(made.chain([Thing::Job(item.job)]))
            }
            Command::PutOffJobs(ask) => {
                let item = &ask.items[0];
                let leases = under(&ask.leases, item.partition);
                let guarded = Self::guarded(ask.node, &leases, refused(RefusedAction::Materialise));
                if reply.is_some_and(is_refusal) {
                    return guarded.read([Thing::Job(item.job)]);
                }
                guarded.write([Thing::Job(item.job)])
            }
            Command::PromoteDue(ask) => {
                let guarded = match reply {
                    Some(Reply::Promoted { refused, .. }) => {
                        let is_refused = |held: &&HeldLease| refused.iter().any(|(one, _)| one == *held);
                        let those = ask.leases.iter().filter(is_refused);
                        let recorded = those.map(|held| refusal(ask.node, *held, RefusedAction::Promote));
                        Self::guarded(ask.node, &ask.leases, None).write(recorded)
                    }
                    _ => Self::guarded(ask.node, &ask.leases, Some(RefusedAction::Promote)),
                };
                // What a pause that ended left waiting is picked as well.
                guarded.write(picked(choice, executions)).read([Thing::Pauses])
            }
            Command::ScanOutbox(_) => nothing().write(picked(choice, executions)),
            Command::RemoveOutbox(ask) => {
                nothing().write(ask.rows.iter().map(|id| Thing::Execution(id.execution)))
            }
            Command::ReturnOutbox(ask) => {
                nothing().write(ask.rows.iter().map(|(id, _)| Thing::Execution(id.execution)))
            }
            Command::Repair(ask) => {
                let repaired = ask.items.iter().map(|item| match item {
                    RepairItem::TakeOver { run, .. } | RepairItem::EndOverdue { run, .. } => {
                        Thing::Execution(run.execution)
                    }
                    RepairItem::Redispatch { dispatch } => Thing::Execution(dispatch.execution),
                    RepairItem::DropOutbox { row } => Thing::Execution(row.execution),
                    RepairItem::RetireNode { node, .. } => Thing::Node(*node),
                });
                let held = HeldLease { resource: LeaseResource::Leadership, token: ask.leadership };
                let guarded = Self::guarded(ask.node, &[held], refused(RefusedAction::Repair));
                if reply.is_some_and(is_refusal) {
                    return guarded.read(repaired);
                }
                let beside = ask.items.iter().flat_map(|item| match item {
                    RepairItem::TakeOver { run, .. } | RepairItem::EndOverdue { run, .. } => {
                        [executions.beside(run.execution), executions.standing_of(run.execution)].concat()
                    }
                    RepairItem::Redispatch { .. }
                    | RepairItem::DropOutbox { .. }
                    | RepairItem::RetireNode { .. } => Vec::new(),
                });
                guarded.write(repaired).write(beside)
            }
            Command::AcquireExecutions(ask) => {
                // Whether its job is paused is read with it.
                let jobs = ask.items.iter().filter_map(|item| executions.job_of(item.execution));
                nothing()
                    .write(ask.items.iter().map(|item| Thing::Execution(item.execution)))
                    .write(ask.items.iter().flat_map(|item| executions.beside(item.execution)))
                    // What is past its deadline counts as a failure of its job.
                    .write(ask.items.iter().flat_map(|item| executions.standing_of(item.execution)))
                    .read(jobs.map(Thing::Standing).chain([Thing::Pauses]))
            }
            Command::RenewExecutions(ask) => {
                Self::of_runs(ask.node, ask.runs.iter().copied(), RefusedAction::RenewExecution, reply)
            }
            Command::FinishExecutions(ask) => {
                let runs = ask.items.iter().map(|item| item.run);
                let beside = ask.items.iter().flat_map(|item| executions.beside(item.run.execution));
                let standing = ask.items.iter().flat_map(|item| executions.standing_of(item.run.execution));
                let touches = Self::of_runs(ask.node, runs, RefusedAction::Finish, reply);
                if reply.is_some_and(is_refusal) { touches } else { touches.write(beside).write(standing) }
            }
            Command::DeferExecutions(ask) => {
                nothing().write(ask.items.iter().map(|(id, _)| Thing::Execution(*id)))
            }
            Command::RecordMalformed(report) => nothing().write([Thing::Message(report.digest)]),
            Command::CreateTenant(ask) => nothing().write([Thing::Tenant(ask.tenant), Thing::TenantNames]),
            Command::CreateJob(ask) => {
                let touches = nothing().write([Thing::Tenant(ask.tenant), Thing::Job(ask.job)]);
                touches.read(names_calendars(&ask.definition).then_some(Thing::Calendars))
            }
            Command::ChangeJob(ask) => {
                let requests = ask.request.iter().map(|_| Thing::Tenant(ask.tenant));
                let touches = nothing().write([Thing::Job(ask.job)]).write(requests);
                match &ask.change {
                    JobChange::Edit(definition) => {
                        touches.read(names_calendars(definition).then_some(Thing::Calendars))
                    }
                    JobChange::Pause => touches.write([Thing::Standing(ask.job)]),
                    // What was held back is let go.
                    JobChange::Resume => {
                        touches.write([Thing::Standing(ask.job)]).write(executions.of_job(ask.job))
                    }
                }
            }
            Command::DeleteJob(ask) => {
                nothing().write(executions.of_job(ask.job).chain([Thing::Job(ask.job)]))
            }
            Command::TriggerJob(ask) => {
                nothing().write(executions.of_job(ask.job).chain([Thing::Job(ask.job)]))
            }
            Command::CancelExecution(ask) => {
                nothing().write([Thing::Execution(ask.execution)]).write(executions.beside(ask.execution))
            }
            Command::SetPause(ask) => {
                let requests = ask.request.iter().map(|_| Thing::Tenant(ask.tenant));
                let touches = nothing().write([Thing::Pauses]).write(requests);
                match ask.change {
                    PauseChange::Pause { .. } => touches.read([Thing::Tenant(ask.tenant)]),
                    // What was held back is let go.
                    PauseChange::Resume { .. } => {
                        touches.write(executions.all()).read([Thing::Tenant(ask.tenant)])
                    }
                }
            }
            Command::ReplayDeadLetter(ask) => {
                let (job, replays) = executions.replays_of(ask.origin);
                let touches = nothing().write(replays).write([Thing::Execution(ask.origin)]);
                let touches = match ask.number {
                    ReplayNumber::Next(_) => touches.write([Thing::Tenant(ask.tenant)]),
                    ReplayNumber::Given(_) => touches,
                };
                // The request may have been made about another dead letter: the answer tells of that one's replay.
                let told = match reply {
                    Some(Reply::DeadLetterReplayed(ReplayReply::Repeated { execution, .. })) => {
                        Some(*execution)
                    }
                    Some(_) | None => None,
                };
                touches.read(job.map(Thing::Job)).read(told.map(Thing::Execution))
            }
            Command::ReplayDeadLetters(_) => match reply {
                Some(Reply::DeadLettersReplayed(page)) => {
                    let made = page.letters.iter().flat_map(|(origin, became)| match became {
                        PageReplay::Created { execution } => vec![*origin, *execution],
                        PageReplay::Refused(_) => Vec::new(),
                    });
                    let touches = nothing().write(made.map(Thing::Execution));
                    touches.read(executions.all()).read(executions.jobs())
                }
                Some(_) | None => nothing().write(executions.all()).read(executions.jobs()),
            },
            Command::PurgeDeadLetter(ask) => nothing().write([Thing::Execution(ask.execution)]),
            Command::SetCalendar(ask) => {
                // Of the jobs that it names some may have been made meanwhile.
                let named = ask.jobs.iter().map(|change| Thing::Job(change.job));
                let touches = nothing().write(executions.jobs()).write(named);
                touches.write([Thing::Calendars, Thing::Tenant(ask.tenant)])
            }
            Command::SetLimit(ask) => {
                nothing().write(executions.all()).write([Thing::Limits, Thing::Tenant(ask.tenant)])
            }
        }
    }
}

fn names_calendars(definition: &StoredDefinition) -> bool {
    definition.read().is_ok_and(|definition| !definition.exclude.is_none())
}

fn refusal(node: NodeId, held: HeldLease, action: RefusedAction) -> Thing {
    Thing::Refusal((RefusedResource::Lease(held.resource), held.token, node, action))
}

fn is_refusal(reply: &Reply) -> bool {
    match reply {
        Reply::LeasesRenewed(replies) | Reply::LeasesReleased(replies) => {
            replies.iter().all(|reply| matches!(reply, HoldReply::Refused { .. }))
        }
        Reply::RunsRenewed(replies) => {
            replies.iter().all(|reply| matches!(reply, RenewReply::Refused { .. }))
        }
        Reply::Finished(replies) => replies.iter().all(|reply| matches!(reply, FinishReply::Refused { .. })),
        Reply::Materialised(replies) => replies.iter().any(|reply| {
            matches!(reply, MaterialiseReply::StaleLease { .. } | MaterialiseReply::VersionChanged { .. })
        }),
        Reply::JobsPutOff(replies) => {
            replies.iter().any(|reply| matches!(reply, PutOffReply::StaleLease { .. }))
        }
        Reply::Promoted { refused, .. } => !refused.is_empty(),
        Reply::Repaired(reply) => matches!(reply, RepairReply::StaleLeadership { .. }),
        _ => false,
    }
}

/// Whether an answer says that there is nothing to write to.
fn is_of_nothing(reply: &Reply) -> bool {
    match reply {
        Reply::OutboxRemoved(replies) | Reply::OutboxReturned(replies) => {
            replies.iter().all(|reply| *reply == RemovalReply::Absent)
        }
        // What a pause holds back, or what waits for its job's slot, is written as waiting; what is passed over as skipped;
        // and what is past its deadline as given up.
        Reply::Acquired(replies) => replies.iter().all(|reply| {
            !matches!(
                reply,
                AcquireReply::Granted(_)
                    | AcquireReply::NotNow { state: ExecutionState::Pending }
                    | AcquireReply::Never {
                        state: ExecutionState::Skipped
                            | ExecutionState::DeadLettered
                            | ExecutionState::Failed
                    }
            )
        }),
        Reply::RunsRenewed(replies) => replies.iter().all(|reply| *reply == RenewReply::Absent),
        Reply::Finished(replies) => {
            replies.iter().all(|reply| matches!(reply, FinishReply::Absent | FinishReply::Already { .. }))
        }
        Reply::Materialised(replies) => replies.iter().all(|reply| {
            matches!(
                reply,
                MaterialiseReply::WatermarkMoved
                    | MaterialiseReply::Gone
                    | MaterialiseReply::NotDue
                    | MaterialiseReply::PlanExpired
            )
        }),
        Reply::JobsPutOff(replies) => replies.iter().all(|reply| *reply == PutOffReply::Moved),
        Reply::Repaired(RepairReply::Applied(items)) => {
            items.iter().all(|item| *item == RepairItemReply::Moved)
        }
        Reply::Deferred(replies) => replies.iter().all(|reply| *reply != DeferReply::Recorded),
        Reply::JobChanged(reply) => !matches!(reply, ChangeJobReply::Changed { .. }),
        Reply::PauseSet(reply) => !matches!(reply, SetPauseReply::Paused | SetPauseReply::Resumed),
        Reply::JobDeleted(reply) => matches!(reply, DeleteJobReply::NotFound | DeleteJobReply::Repeated),
        Reply::JobTriggered(reply) => *reply != TriggerReply::Created,
        Reply::JobCreated(reply) => *reply != CreateJobReply::Created,
        Reply::TenantCreated(reply) => *reply != CreateTenantReply::Created,
        Reply::ExecutionCancelled(reply) => {
            matches!(reply, CancelReply::NotFound | CancelReply::Ended { .. })
        }
        Reply::DeadLetterReplayed(reply) => !matches!(reply, ReplayReply::Created { .. }),
        Reply::DeadLettersReplayed(page) => {
            page.letters.iter().all(|(_, became)| matches!(became, PageReplay::Refused(_)))
        }
        Reply::DeadLetterPurged(reply) => *reply != PurgeReply::Purged,
        Reply::LimitSet(reply) => *reply != SetLimitReply::Set,
        Reply::CalendarSet(reply) => !matches!(reply, SetCalendarReply::Set { .. }),
        Reply::Leadership(reply) => matches!(reply, LeadershipReply::Held { .. }),
        Reply::Partitions { granted } => granted.is_empty(),
        _ => false,
    }
}

/// What was picked; where nobody knows, anything.
fn picked(choice: &Choice, executions: &Executions) -> Vec<Thing> {
    match choice {
        Choice::First => executions.all().collect(),
        Choice::Only(picked) => picked
            .iter()
            .map(|picked| match picked {
                Picked::Execution(id) => Thing::Execution(*id),
                Picked::Outbox(id) => Thing::Execution(id.execution),
                Picked::Partition(partition) => Thing::Lease(LeaseResource::Partition(*partition)),
            })
            .collect(),
    }
}

/// The rows of these things.
pub(crate) fn rows_of(tables: &Tables, things: &BTreeSet<Thing>) -> Contents {
    let has = |thing: Thing| things.contains(&thing);
    macro_rules! rows {
        ($table:ident, |$row:ident| $has:expr) => {
            tables.$table().iter().filter(|$row| $has).cloned().collect()
        };
    }
    Contents {
        tenants: rows!(tenants, |row| has(Thing::Tenant(row.id))),
        leases: rows!(leases, |row| has(Thing::Lease(row.resource))),
        nodes: rows!(nodes, |row| has(Thing::Node(row.id))),
        jobs: rows!(jobs, |row| has(Thing::Job(row.id))),
        job_versions: rows!(job_versions, |row| has(Thing::Job(row.job))),
        executions: rows!(executions, |row| has(Thing::Execution(row.id))),
        attempts: rows!(attempts, |row| has(Thing::Execution(row.execution))),
        outbox: rows!(outbox, |row| has(Thing::Execution(row.execution))),
        dead_letters: rows!(dead_letters, |row| has(Thing::Execution(row.execution))),
        skipped_ranges: rows!(skipped_ranges, |row| has(Thing::Job(row.job))),
        refusals: rows!(refusals, |row| has(refused(row))),
        requests: rows!(requests, |row| has(Thing::Tenant(row.tenant))),
        pauses: rows!(pauses, |_row| has(Thing::Pauses)),
        limits: rows!(limits, |_row| has(Thing::Limits)),
        calendars: rows!(calendars, |_row| has(Thing::Calendars)),
        malformed: rows!(malformed, |row| has(Thing::Message(row.digest))),
    }
}

/// Whether the rows of these things are those that were found.
pub(crate) fn are_found(things: &[Thing], tables: &Tables, found: &Contents) -> bool {
    // By name, so that no table is forgotten.
    let Contents {
        tenants,
        leases,
        nodes,
        jobs,
        job_versions,
        executions,
        attempts,
        outbox,
        dead_letters,
        skipped_ranges,
        refusals,
        requests,
        pauses,
        limits,
        calendars,
        malformed,
    } = found;
    let has = |thing: Thing| things.contains(&thing);
    let lease = |thing: &Thing| match thing {
        Thing::Lease(resource) => {
            leases.get(usize::from(resource.number())).is_some_and(|row| row == tables.lease(*resource))
        }
        _ => true,
    };
    macro_rules! same {
        ($table:ident, |$row:ident| $has:expr) => {
            tables.$table().iter().filter(|$row| $has).eq($table.iter().filter(|$row| $has))
        };
    }
    things.iter().all(lease)
        && same!(executions, |row| has(Thing::Execution(row.id)))
        && same!(jobs, |row| has(Thing::Job(row.id)))
        && same!(attempts, |row| has(Thing::Execution(row.execution)))
        && same!(outbox, |row| has(Thing::Execution(row.execution)))
        && same!(dead_letters, |row| has(Thing::Execution(row.execution)))
        && same!(nodes, |row| has(Thing::Node(row.id)))
        && same!(tenants, |row| has(Thing::Tenant(row.id)))
        && same!(job_versions, |row| has(Thing::Job(row.job)))
        && same!(skipped_ranges, |row| has(Thing::Job(row.job)))
        && same!(refusals, |row| has(refused(row)))
        && same!(requests, |row| has(Thing::Tenant(row.tenant)))
        && same!(pauses, |_row| has(Thing::Pauses))
        && same!(limits, |_row| has(Thing::Limits))
        && same!(calendars, |_row| has(Thing::Calendars))
        && same!(malformed, |row| has(Thing::Message(row.digest)))
}

/// The instants that the row of a thing keeps at the end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    /// That of whoever wrote it first, if it was not there at the beginning.
    pub(crate) first: Option<Timestamp>,
    /// That of whoever wrote it last.
    pub(crate) last: Option<Timestamp>,
}

/// Of a thing whose row keeps any.
pub(crate) fn kept_stamps(start: &ReferenceStore, contents: &Contents, thing: &Thing) -> Kept {
    let things = BTreeSet::from([*thing]);
    let (before, after) = (rows_of(start.tables(), &things), only(contents, &things));
    match thing {
        Thing::Refusal(_) => Kept {
            first: after.refusals.first().filter(|_| before.refusals.is_empty()).map(|row| row.first_at),
            last: after.refusals.first().map(|row| row.last_at),
        },
        Thing::Message(_) => Kept {
            first: after.malformed.first().filter(|_| before.malformed.is_empty()).map(|row| row.first_at),
            last: after.malformed.first().map(|row| row.last_at),
        },
        Thing::Node(_) => Kept { first: None, last: after.nodes.first().map(|row| row.seen_at) },
        Thing::Lease(_) => Kept { first: None, last: after.leases.first().map(|row| row.expires_at) },
        Thing::Tenant(_)
        | Thing::TenantNames
        | Thing::Job(_)
        | Thing::Standing(_)
        | Thing::Pauses
        | Thing::Limits
        | Thing::Calendars
        | Thing::Execution(_) => Kept::default(),
    }
}

/// The same of rows that were found.
pub(crate) fn only(contents: &Contents, things: &BTreeSet<Thing>) -> Contents {
    fn those<Row: Clone>(rows: &[Row], has: impl Fn(&Row) -> bool) -> Vec<Row> {
        rows.iter().filter(|row| has(row)).cloned().collect()
    }
    let has = |thing: Thing| things.contains(&thing);
    Contents {
        tenants: those(&contents.tenants, |row| has(Thing::Tenant(row.id))),
        leases: those(&contents.leases, |row| has(Thing::Lease(row.resource))),
        nodes: those(&contents.nodes, |row| has(Thing::Node(row.id))),
        jobs: those(&contents.jobs, |row| has(Thing::Job(row.id))),
        job_versions: those(&contents.job_versions, |row| has(Thing::Job(row.job))),
        executions: those(&contents.executions, |row| has(Thing::Execution(row.id))),
        attempts: those(&contents.attempts, |row| has(Thing::Execution(row.execution))),
        outbox: those(&contents.outbox, |row| has(Thing::Execution(row.execution))),
        dead_letters: those(&contents.dead_letters, |row| has(Thing::Execution(row.execution))),
        skipped_ranges: those(&contents.skipped_ranges, |row| has(Thing::Job(row.job))),
        refusals: those(&contents.refusals, |row| has(refused(row))),
        requests: those(&contents.requests, |row| has(Thing::Tenant(row.tenant))),
        pauses: those(&contents.pauses, |_| has(Thing::Pauses)),
        limits: those(&contents.limits, |_| has(Thing::Limits)),
        calendars: those(&contents.calendars, |_| has(Thing::Calendars)),
        malformed: those(&contents.malformed, |row| has(Thing::Message(row.digest))),
    }
}

fn refused(row: &RefusalRow) -> Thing {
    Thing::Refusal((row.resource, row.token, row.node, row.action))
}
