//! A world for schedulers: the reference store, a broker that remembers, and links that a test may cut.
//!
//! Everything takes no time at all but waiting: the clock moves to the next wakeup when all have settled.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::config::SchedulerConfig;
use crate::effect::SchedulerEffect;
use crate::event::{PublishOutcome, SchedulerEvent};
use crate::fact::Fact;
use crate::id::{EffectId, ExecutionId, JobId, NodeId, TenantId};
use crate::job::{JobDefinition, StoredDefinition};
use crate::job_plan::plan_create;
use crate::lease::{LeaseResource, RunId};
use crate::message::ExecutionMessage;
use crate::partition::PartitionId;
use crate::scheduler::Scheduler;
use crate::store::StoreOutcome;
use crate::store::command::{
    AcquireExecution, AcquireExecutions, Command, CommandKind, CreateJob, CreateTenant,
};
use crate::store::reference::ReferenceStore;
use crate::store::reply::{AcquireReply, CreateJobReply, Reply};
use crate::store::row::{ExecutionRow, JobRow};
use crate::time::{Monotonic, Span, Timestamp};

/// 2026-01-01T00:00:00Z.
pub(super) const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);
pub(super) const TENANT: TenantId = TenantId::from_u128(1);
pub(super) const WORKER: NodeId = NodeId::from_u128(1_000);
/// As many events as any test here needs; more is a loop that does not end.
const EVENTS_MAX: usize = 200_000;

/// What becomes of a store call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Up,
    /// Not applied, and nobody knows.
    RequestLost,
    /// Applied, and nobody knows.
    ReplyLost,
    /// Nothing comes back, until the test says so.
    Held,
}

/// One scheduler and what it did.
pub(super) struct Node {
    pub(super) role: Scheduler,
    link: Box<dyn FnMut(CommandKind) -> Link>,
    pub(super) held: VecDeque<(EffectId, Command)>,
    /// Commands in the order sent, with when.
    pub(super) sent: Vec<(Monotonic, Command)>,
    pub(super) facts: Vec<Fact>,
    pub(super) drained_at: Option<Monotonic>,
    runs: Runs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Runs {
    Yes,
    Dead,
}

pub(super) struct World {
    pub(super) now: Monotonic,
    pub(super) store: ReferenceStore,
    pub(super) nodes: Vec<Node>,
    /// What reached the broker, in order.
    pub(super) published: Vec<(Monotonic, Arc<ExecutionMessage>)>,
    /// What the broker says to the next messages; confirmed when empty.
    pub(super) answers: VecDeque<PublishOutcome>,
    jobs: u128,
    effects: u64,
}

pub(super) const fn up(_: CommandKind) -> Link {
    Link::Up
}

pub(super) const fn down(_: CommandKind) -> Link {
    Link::RequestLost
}

impl World {
    pub(super) fn new() -> Self {
        let mut world = Self {
            now: Monotonic::ZERO,
            store: ReferenceStore::new(crate::bug::Bugs::NONE),
            nodes: Vec::new(),
            published: Vec::new(),
            answers: VecDeque::new(),
            jobs: 0,
            effects: 0,
        };
        world.apply(&Command::CreateTenant(CreateTenant { tenant: TENANT, name: "t".into() }));
        world
    }

    /// A world with so many schedulers that have just begun.
    pub(super) fn with(schedulers: usize) -> Self {
        let mut world = Self::new();
        for _ in 0..schedulers {
            world.start(|_| {});
        }
        world
    }

    /// Starts a scheduler and says which it is.
    pub(super) fn start(&mut self, adjust: impl FnOnce(&mut SchedulerConfig)) -> usize {
        let id = NodeId::from_u128(self.nodes.len() as u128 + 1);
        let mut config = SchedulerConfig::new(id, "test".into());
        adjust(&mut config);
        self.nodes.push(Node {
            role: Scheduler::new(config),
            link: Box::new(up),
            held: VecDeque::new(),
            sent: Vec::new(),
            facts: Vec::new(),
            drained_at: None,
            runs: Runs::Yes,
        });
        let node = self.nodes.len() - 1;
        self.give(node, SchedulerEvent::Tick);
        node
    }

    pub(super) fn kill(&mut self, node: usize) {
        self.nodes[node].runs = Runs::Dead;
    }

    pub(super) fn link(&mut self, node: usize, link: impl FnMut(CommandKind) -> Link + 'static) {
        self.nodes[node].link = Box::new(link);
    }

    pub(super) fn clock(&self) -> Timestamp {
        START.plus(self.now.since(Monotonic::ZERO))
    }

    pub(super) fn apply(&mut self, command: &Command) -> Reply {
        self.store.apply(self.clock(), command, &mut Vec::new()).reply
    }

    /// Gives a scheduler an event, and carries out all that follows at this instant.
    pub(super) fn give(&mut self, node: usize, event: SchedulerEvent) {
        let mut events = VecDeque::from([event]);
        let mut handled = 0;
        while let Some(event) = events.pop_front() {
            handled += 1;
            assert!(handled < EVENTS_MAX, "a loop at {:?}: {event:?}", self.now);
            if self.nodes[node].runs == Runs::Dead {
                return;
            }
            self.nodes[node].role.handle(self.now, event);
            while let Some(effect) = self.nodes[node].role.poll_effect() {
                events.extend(self.carry_out(node, effect));
            }
        }
    }

    fn carry_out(&mut self, node: usize, effect: SchedulerEffect) -> Option<SchedulerEvent> {
        match effect {
            SchedulerEffect::Store { id, command } => {
                self.nodes[node].sent.push((self.now, command.clone()));
                let outcome = match (self.nodes[node].link)(command.kind()) {
                    Link::Up => self.replied(&command),
                    Link::RequestLost => StoreOutcome::Unknown,
                    Link::ReplyLost => {
                        self.replied(&command);
                        StoreOutcome::Unknown
                    }
                    Link::Held => {
                        self.nodes[node].held.push_back((id, command));
                        return None;
                    }
                };
                Some(SchedulerEvent::StoreReplied { effect: id, outcome })
            }
            SchedulerEffect::Publish { id, messages } => {
                let outcomes = messages
                    .into_iter()
                    .map(|message| {
                        self.published.push((self.now, message));
                        self.answers.pop_front().unwrap_or(PublishOutcome::Confirmed)
                    })
                    .collect();
                Some(SchedulerEvent::Published { effect: id, outcomes })
            }
            SchedulerEffect::Report(fact) => {
                self.nodes[node].facts.push(fact);
                None
            }
            SchedulerEffect::Drained => {
                assert_eq!(self.nodes[node].drained_at, None, "a drain ends once");
                self.nodes[node].drained_at = Some(self.now);
                None
            }
        }
    }

    fn replied(&mut self, command: &Command) -> StoreOutcome {
        StoreOutcome::Replied(self.store.apply(self.clock(), command, &mut Vec::new()))
    }

    /// Has what was held carried out now, and answered.
    pub(super) fn let_go(&mut self, node: usize) {
        self.link(node, up);
        self.answer_held(node);
    }

    /// Has what was held carried out now, and answered, with the link as it is.
    pub(super) fn answer_held(&mut self, node: usize) {
        for (effect, command) in core::mem::take(&mut self.nodes[node].held) {
            let outcome = self.replied(&command);
            self.give(node, SchedulerEvent::StoreReplied { effect, outcome });
        }
    }

    /// Lets this much time pass, waking whoever wants to be woken.
    pub(super) fn pass(&mut self, span: Span) {
        let until = self.now.plus(span);
        for _ in 0..EVENTS_MAX {
            let running = self.nodes.iter().enumerate().filter(|(_, node)| node.runs == Runs::Yes);
            let next = running.filter_map(|(at, node)| Some((node.role.next_wakeup()?.0, at))).min();
            match next {
                Some((at, node)) if at <= until => {
                    self.now = self.now.max(at);
                    self.give(node, SchedulerEvent::Tick);
                }
                Some(_) | None => {
                    self.now = until;
                    return;
                }
            }
        }
        panic!("a loop at {:?}", self.now);
    }

    /// Lets time pass in which nobody is woken: all processes stand still.
    pub(super) fn freeze(&mut self, span: Span) {
        self.now = self.now.plus(span);
    }

    pub(super) fn seconds(&mut self, seconds: u64) {
        self.pass(Span::from_secs(seconds));
    }

    /// Creates a job by the JSON of its schedule, and more fields.
    pub(super) fn job(&mut self, schedule: &str, more: &str) -> JobId {
        let json = format!(r#"{{"name":"n","handler":{{"name":"noop"}},"schedule":{schedule}{more}}}"#);
        let definition = JobDefinition::parse(&json).expect("the test's own definition is valid");
        let job = self.next_job();
        let command =
            plan_create(TENANT, job, None, definition, self.clock()).expect("the test's own job is valid");
        assert_eq!(self.apply(&Command::CreateJob(command)), Reply::JobCreated(CreateJobReply::Created));
        job
    }

    /// Creates a job that fires once, so long from now.
    pub(super) fn one_shot(&mut self, after: Span) -> JobId {
        let at = self.clock().plus(after);
        self.job(&format!(r#"{{"kind":"one_shot","at":"{at}"}}"#), "")
    }

    /// Creates a job that is due now and whose definition nobody can read.
    pub(super) fn unreadable_job(&mut self) -> JobId {
        let job = self.next_job();
        let now = self.clock();
        let command = CreateJob {
            tenant: TENANT,
            job,
            request: None,
            definition: Arc::new(StoredDefinition::from_text("{}".into())),
            planned_at: now,
            recorded_through: now.minus(Span::from_secs(1)),
            next_fire_time: Some(now),
            next_flex: Span::ZERO,
        };
        assert_eq!(self.apply(&Command::CreateJob(command)), Reply::JobCreated(CreateJobReply::Created));
        job
    }

    fn next_job(&mut self) -> JobId {
        self.jobs += 1;
        // Spread over the partitions as random ids would be.
        JobId::from_u128(self.jobs.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
    }

    /// Has a worker take the lease of an execution.
    pub(super) fn run(&mut self, execution: ExecutionId, ttl: Span) -> RunId {
        self.effects += 1;
        let item = AcquireExecution {
            execution,
            nonce: EffectId(self.effects),
            published_at: self.clock(),
            held: Span::ZERO,
        };
        let ask = AcquireExecutions { node: WORKER, ttl, items: vec![item] };
        match self.apply(&Command::AcquireExecutions(ask)) {
            Reply::Acquired(replies) => match replies.as_slice() {
                [AcquireReply::Granted(grant)] => RunId { execution, token: grant.token },
                other => panic!("not granted: {other:?}"),
            },
            other => panic!("not an answer to an acquire: {other:?}"),
        }
    }

    pub(super) fn executions(&self) -> Vec<ExecutionRow> {
        self.store.tables().executions().iter().cloned().collect()
    }

    pub(super) fn only_execution(&self) -> ExecutionRow {
        let mut executions = self.executions();
        assert_eq!(executions.len(), 1, "{executions:#?}");
        executions.remove(0)
    }

    pub(super) fn outbox_len(&self) -> usize {
        self.store.tables().outbox().iter().count()
    }

    pub(super) fn job_row(&self, job: JobId) -> JobRow {
        self.store.tables().jobs().get(&job).expect("created before").clone()
    }

    /// Who holds a resource by the store's clock.
    pub(super) fn owner(&self, resource: LeaseResource) -> Option<NodeId> {
        let row = self.store.tables().lease(resource);
        row.owner.filter(|_| row.expires_at > self.clock())
    }

    /// How many partitions each scheduler holds, by the store and by its own word alike.
    pub(super) fn shares(&self) -> Vec<usize> {
        let share = |number: usize, node: &Node| {
            let id = NodeId::from_u128(number as u128 + 1);
            let stored: Vec<_> = PartitionId::all()
                .filter(|partition| self.owner(LeaseResource::Partition(*partition)) == Some(id))
                .collect();
            if node.runs == Runs::Yes {
                assert_eq!(stored, node.role.held_partitions().collect::<Vec<_>>(), "of scheduler {number}");
            }
            stored.len()
        };
        self.nodes.iter().enumerate().map(|(number, node)| share(number, node)).collect()
    }
}

impl Node {
    /// How often a kind of command was sent.
    pub(super) fn count(&self, kind: CommandKind) -> usize {
        self.sent.iter().filter(|(_, command)| command.kind() == kind).count()
    }
}
