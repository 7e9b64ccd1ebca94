//! `fencepost serve`: puts a process together from its settings and runs it until it has drained.
//!
//! Each role is a node of its own, with its own id, store connections and driver. SIGTERM or SIGINT
//! asks every role to drain; the process ends when all have. A second signal ends it at once, which is
//! a crash, and crashes are what everything else is built for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::config::{SchedulerConfig, WorkerConfig};
use fencepost_core::explain::Spans;
use fencepost_core::id::NodeId;
use fencepost_core::job::HandlerName;
use fencepost_core::scheduler::Scheduler;
use fencepost_core::worker::Worker;
use metrics_exporter_prometheus::PrometheusHandle;
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::api::{self, ApiState, LinkProbe, Operations, Readiness};
use crate::driver::{self, LanePermits, SchedulerInterpreter, WorkerInterpreter};
use crate::failure::Failure;
use crate::handler::HandlerRegistry;
use crate::listener::Listener;
use crate::ports::RuntimeClock;
use crate::postgres::{self, LaneSizes, PgStore};
use crate::rabbitmq::{LinkHealth, QueueKind, RabbitConsumer, RabbitPublisher, RabbitSettings};
use crate::settings::{QueueSetting, RoleName, Settings};
use crate::telemetry::{self, Telemetry};
use crate::{logging, schema};

/// How often a scheduler's process looks how much waits in the outbox.
const BACKLOG_EVERY: Duration = Duration::from_secs(10);

/// Runs the process with the handlers that are built in.
///
/// # Errors
/// [`Failure`]: a setting is missing, a dependency is out of reach, or the address cannot be listened on.
pub async fn run(settings: &Settings) -> Result<(), Failure> {
    run_with(settings, HandlerRegistry::with_built_in()).await
}

/// Runs the process with these handlers. For programs that bring handlers of their own.
///
/// # Errors
/// As [`run`].
pub async fn run_with(settings: &Settings, handlers: HandlerRegistry) -> Result<(), Failure> {
    logging::start(&settings.log)?;
    let recorder = telemetry::install()?;
    let (ask_to_drain, drain) = watch::channel(false);
    let process = Process::assemble(settings, handlers, drain).await?;
    process.run(recorder, ask_to_drain).await
}

/// A process that is put together and has not begun.
struct Process<'a> {
    settings: &'a Settings,
    reads: PgPool,
    label: Arc<str>,
    handlers: Arc<HandlerRegistry>,
    drain: watch::Receiver<bool>,
}

impl<'a> Process<'a> {
    async fn assemble(
        settings: &'a Settings,
        handlers: HandlerRegistry,
        drain: watch::Receiver<bool>,
    ) -> Result<Self, Failure> {
        let reads = schema::connect(settings.database_url()?).await?;
        schema::require_current(&reads).await?;
        let label = std::env::var("HOSTNAME").unwrap_or_else(|_| "localhost".to_owned()).into();
        Ok(Self { settings, reads, label, handlers: Arc::new(handlers), drain })
    }

    async fn run(self, recorder: PrometheusHandle, ask_to_drain: watch::Sender<bool>) -> Result<(), Failure> {
        let address = self.settings.http.listen;
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| Failure::unavailable(format!("cannot listen on {address}: {error}")))?;
        let mut roles = JoinSet::new();
        let mut links = Vec::new();
        if self.settings.roles.contains(&RoleName::Scheduler) {
            links.push(self.start_scheduler(&mut roles)?);
        }
        if self.settings.roles.contains(&RoleName::Worker) {
            links.push(self.start_worker(&mut roles)?);
        }
        let readiness = Readiness::new(self.reads.clone(), links);
        let mut router = api::operations(Operations { readiness: readiness.clone(), metrics: recorder });
        if self.settings.roles.contains(&RoleName::Api) {
            router = router.merge(api::tenants(self.api_state()?));
        }
        // The endpoints outlive the roles, so that a drain can be watched.
        let (end_serving, serving_ends) = watch::channel(false);
        let serving =
            axum::serve(Listener::new(listener), router).with_graceful_shutdown(became_true(serving_ends));
        let serving = tokio::spawn(async move { serving.await });
        tracing::info!(%address, roles = ?self.settings.roles, "serving");

        let api_alone = roles.is_empty();
        tokio::select! {
            () = termination()? => {}
            // A role ends by itself only by a panic; then the whole process goes, for its supervisor to restart.
            Some(_ended) = roles.join_next(), if !api_alone => tracing::error!("a role has ended; the process goes too"),
        }
        tracing::info!("draining");
        readiness.drain();
        ask_to_drain.send_replace(true);
        let drained = async { while roles.join_next().await.is_some() {} };
        tokio::select! {
            () = drained => tracing::info!("drained"),
            () = termination()? => return Err(Failure::internal("ended by a second signal, before the drain was over")),
        }
        end_serving.send_replace(true);
        match serving.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::internal(format!("serving HTTP failed: {error}"))),
            Err(error) => Err(Failure::internal(format!("serving HTTP ended early: {error}"))),
        }
    }

    fn store(&self) -> Result<Arc<PgStore>, Failure> {
        let options = schema::options(self.settings.database_url()?)?;
        Ok(Arc::new(PgStore::new(options, LaneSizes::default())))
    }

    fn broker(&self) -> Result<RabbitSettings, Failure> {
        let usage = |error: crate::rabbitmq::SettingsError| Failure::usage(error.to_string());
        let set = &self.settings.broker;
        let mut broker = RabbitSettings::new(self.settings.broker_url()?.parse().map_err(usage)?);
        broker.prefix = set.prefix.parse().map_err(usage)?;
        broker.queue_kind = match set.queue {
            QueueSetting::Classic => QueueKind::Classic,
            QueueSetting::Quorum => QueueKind::Quorum,
        };
        Ok(broker)
    }

    fn api_state(&self) -> Result<ApiState, Failure> {
        let node = new_node();
        let scheduler = self.settings.scheduler(SchedulerConfig::new(node, Arc::clone(&self.label)));
        let worker = self.settings.worker(WorkerConfig::new(node, Arc::clone(&self.label), BTreeMap::new()));
        let spans = Spans::of(&scheduler, &worker);
        Ok(ApiState { store: self.store()?, reads: self.reads.clone(), node, spans })
    }

    fn start_scheduler(&self, roles: &mut JoinSet<()>) -> Result<(&'static str, LinkProbe), Failure> {
        let node = new_node();
        let config = self.settings.scheduler(SchedulerConfig::new(node, Arc::clone(&self.label)));
        let publisher = Arc::new(RabbitPublisher::start(self.broker()?));
        let notifications = postgres::listen(schema::options(self.settings.database_url()?)?);
        let link = Arc::clone(&publisher);
        let interpreter = SchedulerInterpreter::new(
            self.store()?,
            publisher,
            notifications,
            Arc::new(Telemetry::new(node)),
            LanePermits::default(),
        );
        tokio::spawn(watch_outbox(self.reads.clone()));
        tracing::info!(%node, "a scheduler starts");
        let drain = became_true(self.drain.clone());
        roles.spawn(driver::run(Scheduler::new(config), interpreter, RuntimeClock::start(), drain));
        Ok(("publisher", Arc::new(move || link.health() == LinkHealth::Up)))
    }

    fn start_worker(&self, roles: &mut JoinSet<()>) -> Result<(&'static str, LinkProbe), Failure> {
        let node = new_node();
        let known: BTreeMap<HandlerName, BTreeSet<u32>> = self.handlers.versions();
        let queues: Vec<HandlerName> = known.keys().cloned().collect();
        let config = self.settings.worker(WorkerConfig::new(node, Arc::clone(&self.label), known));
        let consumer = RabbitConsumer::new(self.broker()?, queues);
        let link = consumer.link();
        let interpreter = WorkerInterpreter::new(
            self.store()?,
            consumer,
            Arc::clone(&self.handlers),
            Arc::new(Telemetry::new(node)),
            LanePermits::default(),
        );
        tracing::info!(%node, "a worker starts");
        let drain = became_true(self.drain.clone());
        roles.spawn(driver::run(Worker::new(config), interpreter, RuntimeClock::start(), drain));
        Ok(("consumer", Arc::new(move || link.is_up())))
    }
}

/// Tells now and then how much waits in the outbox. What could not be read is told the next time.
async fn watch_outbox(reads: PgPool) {
    loop {
        match telemetry::outbox_backlog(&reads).await {
            Ok(backlog) => telemetry::outbox_seen(backlog),
            Err(error) => tracing::debug!(%error, "the outbox could not be looked at"),
        }
        tokio::time::sleep(BACKLOG_EVERY).await;
    }
}

/// A node id: random, per process start.
fn new_node() -> NodeId {
    NodeId::from_uuid(Uuid::new_v4())
}

async fn became_true(mut flag: watch::Receiver<bool>) {
    // A sender that is gone can say nothing any more; then there is nothing to wait for either.
    let _gone = flag.wait_for(|set| *set).await;
}

/// Ready at the next SIGTERM or SIGINT.
fn termination() -> Result<impl Future<Output = ()>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen =
        |kind| signal(kind).map_err(|error| Failure::internal(format!("signals cannot be heard: {error}")));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
