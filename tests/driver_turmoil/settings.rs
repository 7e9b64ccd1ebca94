//! Settings: those of production, with leases so short that a strike of seconds outlasts them.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::config::{SchedulerConfig, WorkerConfig};
use fencepost_core::id::NodeId;
use fencepost_core::job::{HandlerName, JobDefinition};
use fencepost_core::lease::TrustWindow;
use fencepost_core::time::Span;
use fencepost_sim::plan::{Bounds, JobLoad, Settings};
use fencepost_sim::sim_time::SimTime;

use crate::handlers::LONGEST_RUN;
use crate::weather::{SCHEDULERS, WORKERS};

/// The settings of a scheduler.
pub(crate) fn scheduler(node: NodeId, name: &str) -> SchedulerConfig {
    let mut config = SchedulerConfig::new(node, name.into());
    config.lease_ttl = Span::from_secs(7);
    config.trust = TrustWindow::Margin(Span::from_secs(1));
    config.heartbeat_every = Span::from_secs(2);
    config.live_within = Span::from_secs(6);
    config.redispatch_after = Span::from_secs(10);
    config.node_stale_after = Span::from_secs(20);
    config.drain_within = Span::from_secs(8);
    config
}

/// The settings of a worker.
pub(crate) fn worker(node: NodeId, name: &str) -> WorkerConfig {
    let handler = HandlerName::parse("sample").expect("it is a name");
    let handlers = BTreeMap::from([(handler, BTreeSet::from([1]))]);
    let mut config = WorkerConfig::new(node, name.into(), handlers);
    config.slots = 32;
    config.lease_ttl = Span::from_secs(8);
    config.trust = TrustWindow::Margin(Span::from_secs(1));
    config.renew_every = Span::from_secs(2);
    config.heartbeat_every = Span::from_secs(2);
    config.defer_delay = Span::from_secs(2);
    config.drain_within = Span::from_secs(8);
    config
}

/// How long each liveness invariant may take after a heal at this moment, with these jobs.
pub(crate) fn bounds(healed_at: SimTime, jobs: &[JobDefinition]) -> Bounds {
    let nobody = NodeId::from_u128(0);
    let schedulers = SCHEDULERS.map(|name| scheduler(nobody, name));
    let workers = WORKERS.map(|name| worker(nobody, name));
    let load = |definition| JobLoad { definition, wish: Span::ZERO, longest_run: LONGEST_RUN };
    Bounds::from_settings(&Settings {
        elapsed: healed_at.since(SimTime::ZERO),
        clock_back: Span::ZERO,
        restarts: Span::ZERO,
        schedulers: schedulers.iter().collect(),
        workers: workers.iter().collect(),
        slots: workers.iter().map(|config| u64::from(config.slots)).sum(),
        jobs: jobs.iter().map(load).collect(),
    })
}
