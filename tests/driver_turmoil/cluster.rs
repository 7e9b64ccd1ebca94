//! The cluster: two schedulers, two workers, the store and the broker, each a host of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fencepost::driver::{self, LanePermits, SchedulerInterpreter, WorkerInterpreter};
use fencepost::ports::{NoFacts, NoNotifications, RuntimeClock};
use fencepost_core::bug::Bugs;
use fencepost_core::config::{SchedulerConfig, WorkerConfig};
use fencepost_core::id::NodeId;
use fencepost_core::scheduler::Scheduler;
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::time::Span;
use fencepost_core::worker::Worker;
use fencepost_sim::sim_time::SimTime;
use fencepost_sim::violation::{Property, Violation};
use tokio::sync::watch;

use crate::broker_host::{Broker, RemotePublisher};
use crate::consumer::RemoteConsumer;
use crate::handlers::{Call, Handlers};
use crate::judge::Judge;
use crate::parcel::{Asker, Parcels};
use crate::sightings::{Sighting, Sightings};
use crate::store_host::{self, RemoteStore, SharedStore};
use crate::trace::{Keep, Trace, Traced};
use crate::weather::{
    Kind, LATENCY_MAX, LOSS_RATE, REPAIR_RATE, SCHEDULERS, Strike, TAIL_MAX, Target, Turn, WORKERS,
};
use crate::{settings, workload};

/// How finely the network keeps time: what is sent within a step arrives in a later one.
const STEP: Duration = Duration::from_millis(40);

/// All of it.
pub(crate) struct Cluster {
    sim: turmoil::Sim<'static>,
    pub(crate) shared: Shared,
    pub(crate) judge: Judge,
    shutdown: BTreeMap<&'static str, watch::Sender<bool>>,
    /// How often each host was really struck.
    pub(crate) struck: BTreeMap<(Kind, &'static str), u64>,
}

/// What the nodes share with the test.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) store: SharedStore,
    pub(crate) parcels: Parcels,
    pub(crate) trace: Trace,
    pub(crate) calls: Arc<Mutex<Vec<Call>>>,
    sightings: Sightings,
    processes: Arc<Mutex<Processes>>,
    bugs: Bugs,
}

/// The processes that there are and were.
#[derive(Default)]
struct Processes {
    /// On which host each node ran.
    hosts: BTreeMap<NodeId, &'static str>,
    /// The node that each host runs.
    running: BTreeMap<&'static str, NodeId>,
}

impl Cluster {
    pub(crate) fn new(seed: u64, bugs: Bugs, keep: Keep) -> Self {
        let mut sim = turmoil::Builder::new()
            .rng_seed(seed)
            .tick_duration(STEP)
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(LATENCY_MAX)
            .repair_rate(REPAIR_RATE)
            .udp_capacity(4_096)
            .tcp_capacity(4_096)
            .simulation_duration(Duration::from_secs(100_000))
            .build();
        let sightings = Sightings::default();
        let shared = Shared {
            store: SharedStore::new(ReferenceStore::new(bugs), sightings.clone()),
            parcels: Parcels::default(),
            trace: Trace::new(keep),
            calls: Arc::default(),
            sightings: sightings.clone(),
            processes: Arc::default(),
            bugs,
        };
        workload::set_up(&shared.store);
        let (served, parcels) = (shared.store.clone(), shared.parcels.clone());
        sim.host("store", move || store_host::serve(served.clone(), parcels.clone()));
        let broker = Broker::new(shared.parcels.clone(), sightings.clone());
        sim.host("broker", move || broker.clone().serve());
        let mut shutdown = BTreeMap::new();
        for name in SCHEDULERS {
            let (shared, asked) = (shared.clone(), channel(&mut shutdown, name));
            sim.host(name, move || schedule(name, shared.clone(), asked.clone()));
        }
        for name in WORKERS {
            let (shared, asked) = (shared.clone(), channel(&mut shutdown, name));
            sim.host(name, move || work(name, shared.clone(), asked.clone()));
        }
        Self { sim, shared, judge: Judge::new(sightings), shutdown, struck: BTreeMap::new() }
    }

    /// How long it has run.
    pub(crate) fn now(&self) -> SimTime {
        SimTime::ZERO.plus(Span::from(self.sim.elapsed()))
    }

    /// Lets time pass until this moment, or until something breaks.
    pub(crate) fn run_to(&mut self, until: SimTime) -> Result<(), Violation> {
        while self.now() < until {
            self.step()?;
        }
        Ok(())
    }

    /// The schedulers that are up, ascending.
    pub(crate) fn live_schedulers(&self) -> Vec<NodeId> {
        let processes = self.shared.processes();
        let mut nodes: Vec<_> =
            SCHEDULERS.iter().filter_map(|name| processes.running.get(name)).copied().collect();
        nodes.sort_unstable();
        nodes
    }

    /// Asks every node to end in order, and waits until all have, but not for longer than this.
    pub(crate) fn drain(&mut self, within: Span) -> Result<(), Violation> {
        for asked in self.shutdown.values() {
            asked.send_replace(true);
        }
        let limit = self.now().plus(within);
        while let Some(name) = self.shutdown.keys().find(|name| self.sim.is_host_running(**name)) {
            if self.now() > limit {
                let detail = format!("{name} was asked to drain {within} ago, and is still there");
                return Err(Violation {
                    invariant: "drain-ends",
                    property: Property::Liveness,
                    at: self.now(),
                    detail,
                });
            }
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Violation> {
        let stepped = self.sim.step();
        stepped.map_err(|error| Violation {
            invariant: "no-host-fails",
            property: Property::Internal,
            at: self.now(),
            detail: error.to_string(),
        })?;
        self.judge.look(&self.shared.processes().hosts)
    }

    /// A strike begins or ends.
    pub(crate) fn turn(&mut self, turn: Turn, strike: Strike) {
        match (strike.target, turn) {
            (Target::Host(host), Turn::Begins) => {
                if self.sim.is_host_running(host) {
                    *self.struck.entry((strike.kind, host)).or_default() += 1;
                }
                self.strike_host(host, strike.kind);
            }
            (Target::Host(host), Turn::Ends) => self.mend_host(host, strike.kind),
            (Target::Link { node, server }, Turn::Begins) => {
                self.shared.parcels.change_weather(strike.target, Some(strike.kind));
                self.strike_link(node, server, strike.kind);
            }
            (Target::Link { node, server }, Turn::Ends) => {
                self.shared.parcels.change_weather(strike.target, None);
                self.mend_link(node, server, strike.kind);
            }
        }
    }

    fn strike_host(&mut self, host: &'static str, kind: Kind) {
        match kind {
            Kind::Crash => self.kill(host, |sim| sim.crash(host)),
            Kind::Bounce => self.kill(host, |sim| sim.bounce(host)),
            Kind::Drain => {
                self.shutdown[host].send_replace(true);
            }
            Kind::Hold | Kind::Cut | Kind::CutThere | Kind::CutBack | Kind::Tail | Kind::Loss => {
                unreachable!("{kind} strikes links")
            }
        }
    }

    fn mend_host(&mut self, host: &'static str, kind: Kind) {
        match kind {
            Kind::Crash => self.sim.bounce(host),
            Kind::Bounce => {}
            Kind::Drain => {
                self.shutdown[host].send_replace(false);
                self.kill(host, |sim| sim.bounce(host));
            }
            Kind::Hold | Kind::Cut | Kind::CutThere | Kind::CutBack | Kind::Tail | Kind::Loss => {
                unreachable!("{kind} strikes links")
            }
        }
    }

    fn strike_link(&mut self, node: &'static str, server: &'static str, kind: Kind) {
        match kind {
            Kind::Hold => self.sim.hold(node, server),
            Kind::Cut => self.sim.partition(node, server),
            Kind::CutThere => self.sim.partition_oneway(node, server),
            Kind::CutBack => self.sim.partition_oneway(server, node),
            Kind::Tail => self.sim.set_link_max_message_latency(node, server, TAIL_MAX),
            Kind::Loss => self.sim.set_link_fail_rate(node, server, LOSS_RATE),
            Kind::Crash | Kind::Bounce | Kind::Drain => unreachable!("{kind} strikes hosts"),
        }
    }

    fn mend_link(&mut self, node: &'static str, server: &'static str, kind: Kind) {
        match kind {
            Kind::Hold => self.sim.release(node, server),
            Kind::Cut => self.sim.repair(node, server),
            Kind::CutThere => self.sim.repair_oneway(node, server),
            Kind::CutBack => self.sim.repair_oneway(server, node),
            Kind::Tail => self.sim.set_link_max_message_latency(node, server, LATENCY_MAX),
            Kind::Loss => {
                self.sim.set_link_fail_rate(node, server, 0.0);
                self.sim.repair(node, server);
            }
            Kind::Crash | Kind::Bounce | Kind::Drain => unreachable!("{kind} strikes hosts"),
        }
    }

    /// Ends a host's process in this way, if one is running.
    fn kill(&mut self, host: &'static str, how: impl FnOnce(&mut turmoil::Sim<'static>)) {
        let killed = self.shared.processes().running.remove(host);
        how(&mut self.sim);
        if let Some(node) = killed {
            self.shared.sightings.add_in_passing(Sighting::Ended { node });
        }
    }
}

fn channel(
    shutdown: &mut BTreeMap<&'static str, watch::Sender<bool>>,
    name: &'static str,
) -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    shutdown.insert(name, sender);
    receiver
}

async fn asked_to_drain(mut asked: watch::Receiver<bool>) {
    asked.wait_for(|asked| *asked).await.expect("the test outlives the hosts");
}

impl Shared {
    fn processes(&self) -> MutexGuard<'_, Processes> {
        self.processes.lock().expect("nobody panics while holding it")
    }

    /// A process starts: a new node, whether or not the host has had one before.
    fn begin(&self, host: &'static str) -> NodeId {
        let mut processes = self.processes();
        let node = NodeId::from_u128(1 + processes.hosts.len() as u128);
        processes.hosts.insert(node, host);
        processes.running.insert(host, node);
        node
    }

    /// A process has ended by itself.
    fn end(&self, host: &'static str, node: NodeId) {
        self.processes().running.remove(host);
        self.sightings.add(Sighting::Ended { node });
    }

    fn asker(&self, me: &'static str) -> Asker {
        Asker { me, parcels: self.parcels.clone() }
    }

    fn store(&self, me: &'static str, node: NodeId) -> Arc<RemoteStore> {
        Arc::new(RemoteStore { asker: self.asker(me), node })
    }

    fn records(&self) -> (Trace, Sightings) {
        (self.trace.clone(), self.sightings.clone())
    }
}

async fn schedule(name: &'static str, shared: Shared, asked: watch::Receiver<bool>) -> turmoil::Result {
    let node = shared.begin(name);
    let config = SchedulerConfig { bugs: shared.bugs, ..settings::scheduler(node, name) };
    let within = config.drain_within;
    let role = Traced::new(Scheduler::new(config), name, node, within, shared.records());
    let interpreter = SchedulerInterpreter::new(
        shared.store(name, node),
        Arc::new(RemotePublisher(shared.asker(name))),
        NoNotifications,
        Arc::new(NoFacts),
        LanePermits::default(),
    );
    driver::run(role, interpreter, RuntimeClock::start(), asked_to_drain(asked)).await;
    shared.end(name, node);
    Ok(())
}

async fn work(name: &'static str, shared: Shared, asked: watch::Receiver<bool>) -> turmoil::Result {
    let node = shared.begin(name);
    let config = WorkerConfig { bugs: shared.bugs, ..settings::worker(node, name) };
    let within = config.drain_within;
    let role = Traced::new(Worker::new(config), name, node, within, shared.records());
    let (calls, sightings) = (Arc::clone(&shared.calls), shared.sightings.clone());
    let interpreter = WorkerInterpreter::new(
        shared.store(name, node),
        RemoteConsumer::new(shared.parcels.clone()),
        Arc::new(Handlers { node, sightings, calls }),
        Arc::new(NoFacts),
        LanePermits::default(),
    );
    driver::run(role, interpreter, RuntimeClock::start(), asked_to_drain(asked)).await;
    shared.end(name, node);
    Ok(())
}
