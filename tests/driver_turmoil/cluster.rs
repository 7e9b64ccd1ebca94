//! The cluster: two schedulers, two workers, the store and the broker, each a host of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost::driver::{self, LanePermits, SchedulerInterpreter, WorkerInterpreter};
use fencepost::ports::{HandlerPort, NoFacts, NoNotifications, RuntimeClock, StopSignal};
use fencepost_core::bug::Bugs;
use fencepost_core::config::{SchedulerConfig, WorkerConfig};
use fencepost_core::effect::Invocation;
use fencepost_core::event::{ErrorClass, HandlerResult};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, JobId, NodeId, TenantId};
use fencepost_core::job::{HandlerName, JobDefinition};
use fencepost_core::job_plan::plan_create;
use fencepost_core::scheduler::Scheduler;
use fencepost_core::store::command::{Command, CreateTenant};
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::reply::{CreateJobReply, Reply};
use fencepost_core::time::Span;
use fencepost_core::worker::Worker;
use tokio::sync::watch;

use crate::broker_host::{Broker, RemotePublisher};
use crate::consumer::RemoteConsumer;
use crate::parcel::Parcels;
use crate::store_host::{self, BEGINNING, RemoteStore, SharedStore};
use crate::trace::{Tally, Trace, Traced};

/// How many jobs there are, each firing once a second.
pub(crate) const JOBS: usize = 10;
/// For how many seconds they fire.
const FIRING_SECS: u64 = 80;
/// How long after the last fault and the last fire all work may take to end, in simulated seconds: longer
/// than the sweep waits before it repeats a dispatch that led to nothing.
const SETTLE_SECS: u64 = 200;
/// How long a drain may take, in simulated seconds.
const DRAIN_SECS: u64 = 30;

/// A change of the weather.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Nothing travels between the two any more.
    Cut(&'static str, &'static str),
    /// Everything does again.
    Mend(&'static str, &'static str),
    /// The host is gone.
    Crash(&'static str),
    /// It is back, as another node.
    Restart(&'static str),
}

/// One call of a handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) execution: ExecutionId,
    pub(crate) token: FencingToken,
    pub(crate) attempt: u32,
}

/// All of it.
pub(crate) struct Cluster {
    sim: turmoil::Sim<'static>,
    store: SharedStore,
    calls: Arc<Mutex<Vec<Call>>>,
    trace: Trace,
    shutdown: watch::Sender<bool>,
}

/// What the nodes share with the test.
#[derive(Clone)]
struct Shared {
    parcels: Parcels,
    trace: Trace,
    calls: Arc<Mutex<Vec<Call>>>,
    nodes: Arc<AtomicU64>,
    shutdown: watch::Receiver<bool>,
}

impl Cluster {
    pub(crate) fn new(seed: u64) -> Self {
        let mut sim = turmoil::Builder::new()
            .rng_seed(seed)
            .tick_duration(Duration::from_millis(10))
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(60))
            .udp_capacity(4_096)
            .tcp_capacity(4_096)
            .simulation_duration(Duration::from_secs(3_600))
            .build();
        let (shutdown, shutdown_asked) = watch::channel(false);
        let shared = Shared {
            parcels: Parcels::default(),
            trace: Trace::new(),
            calls: Arc::default(),
            nodes: Arc::default(),
            shutdown: shutdown_asked,
        };
        let store: SharedStore = Arc::new(Mutex::new(with_jobs()));
        let (served, parcels) = (Arc::clone(&store), shared.parcels.clone());
        sim.host("store", move || store_host::serve(Arc::clone(&served), parcels.clone()));
        let (broker, parcels) = (Broker::default(), shared.parcels.clone());
        sim.host("broker", move || broker.clone().serve(parcels.clone()));
        for name in ["scheduler-1", "scheduler-2"] {
            let shared = shared.clone();
            sim.host(name, move || schedule(name, shared.clone()));
        }
        for name in ["worker-1", "worker-2"] {
            let shared = shared.clone();
            sim.host(name, move || work(name, shared.clone()));
        }
        Self { sim, store, calls: shared.calls, trace: shared.trace, shutdown }
    }

    /// Lets time pass, with these faults at their seconds, until all work has ended.
    pub(crate) fn run_until_settled(&mut self, faults: &[(u64, Fault)]) {
        for (second, fault) in faults {
            self.run_to(*second);
            self.strike(*fault);
        }
        self.run_to(FIRING_SECS + 1);
        let limit = self.sim.elapsed() + Duration::from_secs(SETTLE_SECS);
        while !self.has_settled() {
            assert!(self.sim.elapsed() < limit, "work did not end: {:?}", self.unsettled());
            self.run_to(self.sim.elapsed().as_secs() + 1);
        }
    }

    /// Asks every node to end in order, and waits until all have.
    pub(crate) fn drain(&mut self) {
        self.shutdown.send_replace(true);
        let limit = self.sim.elapsed() + Duration::from_secs(DRAIN_SECS);
        for name in ["scheduler-1", "scheduler-2", "worker-1", "worker-2"] {
            while self.sim.is_host_running(name) {
                assert!(self.sim.elapsed() < limit, "{name} did not drain");
                self.step();
            }
        }
    }

    pub(crate) fn with_store(&self, look: impl FnOnce(&ReferenceStore)) {
        look(&self.store.lock().expect("nobody panics while holding it"));
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("nobody panics while holding it").clone()
    }

    pub(crate) fn trace(&self) -> u64 {
        self.trace.hash()
    }

    pub(crate) fn tally(&self) -> Tally {
        self.trace.tally()
    }

    fn step(&mut self) {
        self.sim.step().expect("no host fails, whatever is done to it");
    }

    fn run_to(&mut self, second: u64) {
        while self.sim.elapsed() < Duration::from_secs(second) {
            self.step();
        }
    }

    fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Cut(one, other) => self.sim.partition(one, other),
            Fault::Mend(one, other) => self.sim.repair(one, other),
            Fault::Crash(host) => self.sim.crash(host),
            Fault::Restart(host) => self.sim.bounce(host),
        }
    }

    fn unsettled(&self) -> Vec<String> {
        let store = self.store.lock().expect("nobody panics while holding it");
        let tables = store.tables();
        let jobs = tables.jobs().iter().filter(|job| job.next_fire_time.is_some());
        let executions = tables.executions().iter().filter(|execution| !execution.state.is_terminal());
        let jobs = jobs.map(|job| format!("job {} has a fire to come", job.id));
        let executions = executions.map(|row| format!("execution {} is {}", row.id, row.state));
        let outbox = tables.outbox().iter().map(|row| format!("outbox row of {}", row.execution));
        jobs.chain(executions).chain(outbox).collect()
    }

    fn has_settled(&self) -> bool {
        self.unsettled().is_empty()
    }
}

/// A store with jobs that fire once a second, for a while, and are never too late.
fn with_jobs() -> ReferenceStore {
    let mut store = ReferenceStore::new(Bugs::NONE);
    let tenant = TenantId::from_u128(1);
    let create = Command::CreateTenant(CreateTenant { tenant, name: "tests".into() });
    store.apply(BEGINNING, &create, &mut Vec::new());
    let end = BEGINNING.plus(Span::from_secs(FIRING_SECS));
    for number in 0..JOBS {
        let schedule = if number % 2 == 0 {
            r#"{"kind": "cron", "expr": "* * * * * *"}"#.to_owned()
        } else {
            format!(r#"{{"kind": "interval", "start": "{BEGINNING}", "every_ms": 1000}}"#)
        };
        let definition = JobDefinition::parse(&format!(
            r#"{{"name": "job {number}", "handler": {{"name": "sample"}}, "schedule": {schedule},
                "bounds": {{"end": "{end}"}}, "misfire_grace_ms": 600000,
                "retry": {{"max_attempts": 10, "base_ms": 500, "cap_ms": 5000, "max_rescues": 100,
                           "max_lost_starts": 100}}}}"#
        ));
        let definition = definition.expect("it is a definition");
        let job = JobId::from_u128(0x1000 + number as u128);
        let planned = plan_create(tenant, job, None, definition, BEGINNING).expect("it fires");
        let made = store.apply(BEGINNING, &Command::CreateJob(planned), &mut Vec::new());
        assert_eq!(made.reply, Reply::JobCreated(CreateJobReply::Created));
    }
    store
}

impl Shared {
    /// The next node's id. A restart is another node.
    fn node(&self) -> NodeId {
        NodeId::from_u128(1 + u128::from(self.nodes.fetch_add(1, Ordering::Relaxed)))
    }

    fn shutdown(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut asked = self.shutdown.clone();
        async move {
            asked.wait_for(|asked| *asked).await.expect("the test outlives the hosts");
        }
    }
}

async fn schedule(name: &'static str, shared: Shared) -> turmoil::Result {
    let config = SchedulerConfig::new(shared.node(), name.into());
    let role = Traced { role: Scheduler::new(config), name, trace: shared.trace.clone() };
    let interpreter = SchedulerInterpreter::new(
        Arc::new(RemoteStore(shared.parcels.clone())),
        Arc::new(RemotePublisher(shared.parcels.clone())),
        NoNotifications,
        Arc::new(NoFacts),
        LanePermits::default(),
    );
    driver::run(role, interpreter, RuntimeClock::start(), shared.shutdown()).await;
    Ok(())
}

async fn work(name: &'static str, shared: Shared) -> turmoil::Result {
    let handler = HandlerName::parse("sample").expect("it is a name");
    let handlers = BTreeMap::from([(handler, BTreeSet::from([1]))]);
    let mut config = WorkerConfig::new(shared.node(), name.into(), handlers);
    config.slots = 32;
    let role = Traced { role: Worker::new(config), name, trace: shared.trace.clone() };
    let interpreter = WorkerInterpreter::new(
        Arc::new(RemoteStore(shared.parcels.clone())),
        RemoteConsumer::new(shared.parcels.clone()),
        Arc::new(Handlers(Arc::clone(&shared.calls))),
        Arc::new(NoFacts),
        LanePermits::default(),
    );
    driver::run(role, interpreter, RuntimeClock::start(), shared.shutdown()).await;
    Ok(())
}

/// Notes its calls, takes some time, and now and then fails the first time.
struct Handlers(Arc<Mutex<Vec<Call>>>);

impl HandlerPort for Handlers {
    async fn run(&self, invocation: Invocation, stop: StopSignal) -> HandlerResult {
        let execution = invocation.run.execution;
        let call = Call { execution, token: invocation.run.token, attempt: invocation.attempt };
        self.0.lock().expect("nobody panics while holding it").push(call);
        let dice = u64::from(execution.as_bytes()[15]);
        tokio::select! {
            biased;
            _ = stop.stopped() => HandlerResult::Stopped,
            () = tokio::time::sleep(Duration::from_millis(5 + dice * 2)) => {
                if dice % 16 == 0 && invocation.attempt == 1 {
                    let error = "the first attempt fails".into();
                    HandlerResult::Failed { class: ErrorClass::Retryable, error, retry_after: None }
                } else {
                    HandlerResult::Completed
                }
            }
        }
    }
}
