//! The world: processes, links, a store, a broker, systems outside and operators, in simulated time.
//!
//! One event queue drives everything; time jumps from one happening to the next. The world carries out what
//! the roles decide, does to it what the plan says, and shows the oracles what is committed, called and
//! confirmed. Inside a run there is no thread, no clock and no float, and every draw comes from a stream whose
//! key is in the plan.
//!
//! - `queue`, `happening`: what happens next. - `clock`, `link`: time and distance.
//! - `node`, `role`, `process`: a process's life. - `store_calls`: calls on the store.
//! - `broker`, `traffic`: the broker, and what travels to and from it. - `open_broker`: all that it may do.
//! - `handlers`: what workers run, and what that calls. - `operators`: what people ask for.
//! - `striking`: faults. - `recovery`: the heal and what must follow. - `observer`: measurements.

mod broker;
mod clock;
mod handlers;
mod happening;
mod link;
mod node;
mod observer;
pub mod open_broker;
mod operators;
mod process;
mod queue;
mod recovery;
mod role;
mod store_calls;
mod striking;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fencepost_core::bug::Bugs;
use fencepost_core::execution::{ExecutionState, WaitReason};
use fencepost_core::id::{ExecutionId, JobId, NodeId, PauseId, TenantId};
use fencepost_core::lease::LeaseResource;
use fencepost_core::message::ExecutionMessage;
use fencepost_core::partition::PartitionId;
use fencepost_core::pause::PauseScope;
use fencepost_core::priority::Priority;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::change::{Change, Delta};
use fencepost_core::store::command::{Command, JobChange};
use fencepost_core::store::reply::{
    ChangeJobReply, CreateJobReply, Reply, SetCalendarReply, StoreReply, TriggerReply,
};
use fencepost_core::store::row::{CalendarRow, JobRow, LeaseRow};
use fencepost_core::time::Span;

use crate::fault::{FaultCounts, FaultKind};
use crate::measure::Measured;
use crate::oracle::Oracles;
use crate::plan::{JobIndex, NodeSlot, Plan};
use crate::rng::Stream;
use crate::sim_time::SimTime;
use crate::store::Store;
use crate::timeline::{Entry, Moment, Timeline};
use crate::trace::{Detail, Trace, TraceHash};
use crate::violation::{Property, Violation};
use broker::Broker;
use clock::StoreClock;
use handlers::{EffectCall, HandlerRun, Outside};
use happening::{Happening, Life};
use link::{Air, Fate, Link, Way};
use node::Node;
use observer::Observer;
use operators::Task;
use queue::{EventQueue, Slab};
use recovery::Healing;
use role::RoleEvent;
use store_calls::{Call, Caller, Hearing, StoreHealth};
use traffic::Publication;

/// A broker that remembers what it may have to bring back, if this plan ever kills it.
fn broker_for(plan: &Plan) -> Broker {
    let mut broker = Broker::new(plan.node_count());
    if plan.faults.iter().any(|fault| fault.kind == FaultKind::BrokerRestart) {
        broker.may_be_killed();
    }
    broker
}

/// So many happenings at one moment are no progress.
const AT_ONE_MOMENT: u32 = 2_000_000;

/// What a run is to keep besides its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Hash,
    /// The timeline.
    Timeline,
    /// The timeline and every line of the trace.
    Trace,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The hash of its trace.
    pub hash: TraceHash,
    /// What broke, if something did.
    pub violation: Option<Violation>,
    /// How many events the roles were given.
    pub events: u64,
    /// How much time was simulated.
    pub simulated: Span,
    /// How often each fault happened.
    pub faults: FaultCounts,
    /// What was measured.
    pub measured: Measured,
    /// The timeline, if it was to be kept.
    pub timeline: Vec<Entry>,
    /// The lines of the trace, if they were to be kept.
    pub lines: Vec<String>,
}

/// The streams that a run draws from.
#[derive(Debug)]
struct Draws {
    store_links: Stream,
    broker_links: Stream,
    store: Stream,
    broker: Stream,
    processes: Stream,
    handlers: Stream,
}

/// A world at work on a plan.
pub struct World<'a> {
    plan: &'a Plan,
    bugs: Bugs,
    now: SimTime,
    queue: EventQueue,
    streams: Draws,
    trace: Trace,
    timeline: Timeline,
    oracles: Oracles,
    measures: Observer,
    counts: FaultCounts,
    events: u64,
    violation: Option<Violation>,
    finished: bool,
    recovery: Option<Healing>,
    /// Which faults of the plan are under way.
    active: Vec<bool>,

    nodes: Vec<Node>,
    store: Box<dyn Store + 'a>,
    store_clock: StoreClock,
    store_health: StoreHealth,
    calls: Slab<Call>,
    changes: Vec<Change>,

    broker: Broker,
    publications: Slab<Publication>,
    last_published: Option<Arc<ExecutionMessage>>,

    runs: Slab<HandlerRun>,
    effects: Slab<EffectCall>,
    serial: u32,
    outside: Vec<Outside>,

    operator_link: Link,
    tasks: Vec<Task>,
    job_places: BTreeMap<JobId, JobIndex>,
    /// The newest execution of each job.
    newest: Vec<Option<ExecutionId>>,
    /// What runs: since when, and whose it is.
    running: BTreeMap<ExecutionId, (SimTime, TenantId)>,
    /// What was dead-lettered, in that order, and whose it is.
    dead: Vec<(ExecutionId, TenantId)>,
    /// The jobs as they stand.
    jobs: BTreeMap<JobId, JobRow>,
    /// Calendars, as the rows say.
    calendars: BTreeMap<(TenantId, Arc<str>), CalendarRow>,
    /// The pauses of tenants and queues that stand.
    paused: BTreeMap<(TenantId, PauseScope), PauseId>,
}

impl<'a> World<'a> {
    /// A world that has not begun, on this store.
    #[must_use]
    pub fn new(plan: &'a Plan, store: Box<dyn Store + 'a>, bugs: Bugs, keep: Keep) -> Self {
        let streams = &plan.streams;
        let (detail, timeline) = match keep {
            Keep::Hash => (Detail::Hash, Timeline::none()),
            Keep::Timeline => (Detail::Hash, Timeline::kept()),
            Keep::Trace => (Detail::Lines, Timeline::kept()),
        };
        let nodes = (0..plan.node_count()).map(|index| Node::new(plan, NodeSlot::new(index)));
        let job_places = plan.jobs.iter().enumerate().map(|(index, job)| (job.id, JobIndex(index as u16)));
        Self {
            plan,
            bugs,
            now: SimTime::ZERO,
            queue: EventQueue::new(streams.tie_break.open()),
            streams: Draws {
                store_links: streams.store_links.open(),
                broker_links: streams.broker_links.open(),
                store: streams.store.open(),
                broker: streams.broker.open(),
                processes: streams.processes.open(),
                handlers: streams.handlers.open(),
            },
            trace: Trace::new(detail),
            timeline,
            oracles: Oracles::new(plan),
            measures: Observer::new(plan.schedulers.len(), plan.node_count()),
            counts: FaultCounts::default(),
            events: 0,
            violation: None,
            finished: false,
            recovery: None,
            active: vec![false; plan.faults.len()],
            nodes: nodes.collect(),
            store,
            store_clock: StoreClock::new(plan.starts_at),
            store_health: StoreHealth::default(),
            calls: Slab::default(),
            changes: Vec::new(),
            broker: broker_for(plan),
            publications: Slab::default(),
            last_published: None,
            runs: Slab::default(),
            effects: Slab::default(),
            serial: 0,
            outside: plan.outside.iter().map(Outside::new).collect(),
            operator_link: Link::new(plan.network.store),
            tasks: Vec::new(),
            job_places: job_places.collect(),
            newest: vec![None; plan.jobs.len()],
            running: BTreeMap::new(),
            dead: Vec::new(),
            jobs: BTreeMap::new(),
            calendars: BTreeMap::new(),
            paused: BTreeMap::new(),
        }
    }

    /// Runs the plan to its end, or to the first violation.
    #[must_use]
    pub fn run(mut self) -> Ended {
        self.begin();
        let mut moment = (SimTime::ZERO, 0_u32);
        while self.violation.is_none() && !self.finished {
            let Some((at, happening)) = self.queue.pop() else { break };
            moment = if at == moment.0 { (at, moment.1 + 1) } else { (at, 0) };
            if moment.1 > AT_ONE_MOMENT {
                self.judge(Err(Violation {
                    invariant: "time-passes",
                    property: Property::Internal,
                    at,
                    detail: format!(
                        "more than {AT_ONE_MOMENT} things happen at one moment; the last is {happening:?}"
                    ),
                }));
                break;
            }
            self.now = at;
            self.happen(happening);
        }
        self.end()
    }

    fn begin(&mut self) {
        self.set_up();
        for index in 0..self.nodes.len() {
            let node = &self.nodes[index];
            for handler in node.handlers() {
                self.broker.declare(&handler, Priority::Normal);
            }
            let (slot, starts) = (self.nodes[index].slot, self.nodes[index].spec.starts);
            self.start_after(slot, starts.since(SimTime::ZERO));
        }
        for (index, fault) in self.plan.faults.iter().enumerate() {
            self.queue.push(fault.at, Happening::FaultBegins { fault: index as u16 });
        }
        for (index, action) in self.plan.actions.iter().enumerate() {
            self.queue.push(action.at, Happening::OperatorActs { action: index as u16 });
        }
        self.queue.push(self.plan.heal.at, Happening::Heal);
    }

    fn end(mut self) -> Ended {
        for _ in 0..self.measures.herds() {
            self.counts.count(FaultKind::Herd);
        }
        Ended {
            hash: self.trace.hash(),
            violation: self.violation,
            events: self.events,
            simulated: self.now.since(SimTime::ZERO),
            faults: self.counts,
            measured: self.measures.measured,
            timeline: self.timeline.into_entries(),
            lines: self.trace.into_lines(),
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Wake { life } => self.on_wake(life),
            Happening::Resume { life } => self.on_resume(life),
            Happening::Start { life } => self.on_start(life),
            Happening::Die { life } => self.on_die(life),
            Happening::DrainDue { life } => self.on_drain_due(life),
            Happening::StoreArrives { call } => self.on_store_arrives(call),
            Happening::StoreAnswers { call } => self.on_store_answers(call),
            Happening::StoreSilent { caller } => self.tell_caller(caller, StoreOutcome::Unknown),
            Happening::PublishArrives { publication } => self.on_publish_arrives(publication),
            Happening::PublishAnswers { publication } => self.on_publish_answers(publication),
            Happening::PublishSilent { life, effect, count } => self.on_publish_silent(life, effect, count),
            Happening::Delivery { life, delivery, body } => self.on_delivery(life, delivery, body),
            Happening::AckArrives { life, delivery } => self.on_ack_arrives(life, delivery),
            Happening::ConsumerOpens { life, epoch } => self.on_consumer_opens(life, epoch),
            Happening::ConsumerCloses { life, epoch } => self.on_consumer_closes(life, epoch),
            Happening::ConsumerDies { life, epoch } => self.on_consumer_dies(life, epoch),
            Happening::ConsumerTimeoutCheck { fault } => self.on_consumer_timeout_check(fault),
            Happening::HandlerActs { run } => self.on_handler_acts(run),
            Happening::EffectArrives { effect } => self.on_effect_arrives(effect),
            Happening::HandlerEnds { run } => self.on_handler_ends(run),
            Happening::OperatorActs { action } => self.on_operator_acts(action),
            Happening::OperatorTries { task } => self.on_operator_tries(task),
            Happening::Notify { life, partition } => self.deliver(life, RoleEvent::Notified { partition }),
            Happening::FaultBegins { fault } => self.on_fault_begins(fault),
            Happening::FaultEnds { fault } => self.on_fault_ends(fault),
            Happening::Heal => self.on_heal(),
            Happening::Look => self.on_look(),
        }
    }

    /// The first violation ends the run.
    fn judge(&mut self, verdict: Result<(), Violation>) {
        if let Err(violation) = verdict
            && self.violation.is_none()
        {
            self.timeline.violated(self.now, violation.to_string());
            self.violation = Some(violation);
        }
    }

    /// Executes one command, and shows everybody who watches what it did.
    fn commit(&mut self, caller: Caller, command: &Command, hearing: Hearing) -> StoreReply {
        let store_now = self.store_clock.read(self.now);
        self.changes.clear();
        let reply = match hearing {
            Hearing::At(_) => self.store.call(store_now, command, &mut self.changes),
            Hearing::Never => self.store.call_unheard(store_now, command, &mut self.changes),
        };
        let (lane, node) = match caller {
            Caller::Node { life, .. } => {
                let first = node::first_id(self.plan, life.slot);
                (life.slot.lane(), Some(node::later_id(first, life.incarnation)))
            }
            Caller::Operator { .. } => (striking::WORLD_LANE, None),
        };
        self.trace.absorb_changes(self.now, lane, &self.changes);
        let verdict = self.oracles.on_commit(self.now, node, command, &reply, &self.changes);
        self.measures.on_commit(&self.changes, self.now);
        if self.changes.iter().any(|change| !matches!(change, Change::Lease(_))) {
            self.remember();
        }
        if self.nodes.iter().any(|node| node.fenced.is_some()) {
            self.thaw_fenced();
        }
        if self.timeline.is_kept() {
            self.show_leaders();
        }
        self.judge(verdict);
        self.count_unknown_versions(command);
        self.notify(command, &reply);
        reply
    }

    /// Remembers what operators look at: the jobs, what is paused, the newest execution of each, what runs, and what was dead-lettered.
    fn remember(&mut self) {
        for change in &self.changes {
            if let Change::Job(delta) = change
                && let Some(row) = &delta.after
            {
                self.jobs.insert(row.id, row.clone());
            }
            if let Change::Calendar(delta) = change
                && let Some(row) = &delta.after
            {
                self.calendars.insert((row.tenant, row.name.clone()), row.clone());
            }
            if let Change::Pause(delta) = change
                && let Some(row) = &delta.after
            {
                let scope = (row.tenant, row.scope.clone());
                match row.ended {
                    None => self.paused.insert(scope, row.id),
                    Some(_) => self.paused.remove(&scope),
                };
            }
            let Change::Execution(delta) = change else { continue };
            let Some(row) = &delta.after else { continue };
            if delta.before.is_none()
                && let Some(place) = self.job_places.get(&row.job)
            {
                self.newest[place.index()] = Some(row.id);
            }
            if row.state == ExecutionState::DeadLettered
                && delta.before.as_ref().is_some_and(|before| before.state != row.state)
            {
                self.dead.push((row.id, row.tenant));
            }
            if row.state == ExecutionState::Running {
                self.running.entry(row.id).or_insert((self.now, row.tenant));
            } else if delta.before.as_ref().is_some_and(|before| before.state == ExecutionState::Running) {
                self.running.remove(&row.id);
            }
        }
    }

    /// Shows on the timeline who leads.
    fn show_leaders(&mut self) {
        for change in &self.changes {
            let Change::Lease(delta) = change else { continue };
            let owner = |row: &Option<LeaseRow>| {
                row.as_ref().filter(|row| row.resource == LeaseResource::Leadership).and_then(|row| row.owner)
            };
            let (before, after) = (owner(&delta.before), owner(&delta.after));
            if before == after {
                continue;
            }
            for (who, moment) in [(before, Moment::LeadsNoMore), (after, Moment::Leads)] {
                let slot = self.nodes.iter().find(|node| Some(node.id) == who).map(|node| node.slot);
                if let Some(slot) = slot {
                    self.timeline.mark(self.now, slot, moment);
                }
            }
        }
    }

    fn count_unknown_versions(&mut self, command: &Command) {
        if let Command::DeferExecutions(defer) = command {
            for (_, reason) in &defer.items {
                if *reason == WaitReason::UnknownHandler {
                    self.counts.count(FaultKind::UnknownHandlerVersion);
                }
            }
        }
    }

    /// Tells the schedulers what the store's notifications tell them; some of these are lost.
    fn notify(&mut self, command: &Command, reply: &StoreReply) {
        match (command, &reply.reply) {
            (Command::CreateJob(create), Reply::JobCreated(CreateJobReply::Created)) => {
                self.notify_of(PartitionId::of(create.job));
            }
            (Command::ChangeJob(change), Reply::JobChanged(ChangeJobReply::Changed { .. })) => {
                match change.change {
                    JobChange::Edit(_) | JobChange::Resume => self.notify_of(PartitionId::of(change.job)),
                    JobChange::Pause => {}
                }
            }
            (Command::SetCalendar(set), Reply::CalendarSet(SetCalendarReply::Set { .. })) => {
                set.jobs.iter().for_each(|change| self.notify_of(PartitionId::of(change.job)));
            }
            (Command::TriggerJob(trigger), Reply::JobTriggered(TriggerReply::Created)) => {
                self.notify_of(PartitionId::of(trigger.job));
            }
            // Whoever is lifted into a slot that was given back: what a repair dispatches itself is in its own name.
            (
                Command::FinishExecutions(_)
                | Command::AcquireExecutions(_)
                | Command::CancelExecution(_)
                | Command::SetLimit(_),
                _,
            ) => {
                self.notify_of_lifted(None);
            }
            (Command::Repair(repair), _) => self.notify_of_lifted(Some(repair.node)),
            (Command::ReplayDeadLetter(_) | Command::ReplayDeadLetters(_) | Command::SetPause(_), _) => {
                let partition = |change: &Change| match change {
                    Change::Execution(delta) => delta.after.as_ref().map(|row| row.partition),
                    _ => None,
                };
                let made: BTreeSet<PartitionId> = self.changes.iter().filter_map(partition).collect();
                made.into_iter().for_each(|partition| self.notify_of(partition));
            }
            _ => {}
        }
    }

    fn notify_of_lifted(&mut self, other_than: Option<NodeId>) {
        let lifted = |change: &Change| match change {
            Change::Outbox(Delta { before: None, after: Some(row) }) => {
                (Some(row.created_by) != other_than).then_some(row.partition)
            }
            _ => None,
        };
        let partitions: BTreeSet<PartitionId> = self.changes.iter().filter_map(lifted).collect();
        partitions.into_iter().for_each(|partition| self.notify_of(partition));
    }

    fn notify_of(&mut self, partition: PartitionId) {
        for index in 0..self.plan.schedulers.len() {
            let life: Life = self.nodes[index].life();
            let lost = self.streams.store.chance(self.plan.network.notify_loss_ppm);
            let mut air =
                Air { now: self.now, stream: &mut self.streams.store_links, counts: &mut self.counts };
            let fate = self.nodes[index].store_link.pass(Way::Back, 0, &mut air);
            if let Fate::Arrives(at) = fate
                && !lost
            {
                self.queue.push(at, Happening::Notify { life, partition });
            }
        }
    }
}
