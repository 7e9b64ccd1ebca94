//! Processes and the systems outside: settings that differ from seed to seed within what is sensible.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::config::{SchedulerConfig, WorkerConfig};
use fencepost_core::id::NodeId;
use fencepost_core::job::HandlerName;
use fencepost_core::lease::TrustWindow;
use fencepost_core::time::{Monotonic, Span};

use super::swarm::Swarm;
use super::wide;
use crate::fault::FaultKind;
use crate::plan::{Enforcement, OutsideSpec, ProcessSpec, SchedulerSpec, WorkerSpec};
use crate::rng::{PPM, Stream};
use crate::sim_time::SimTime;

/// The handlers' names, in order: also the numbers of their queues.
pub(super) const HANDLERS: [&str; 3] = ["invoice", "mail", "report"];

/// The version of a handler that an older worker does not know.
pub(super) const NEW_VERSION: u32 = 2;

fn process(stream: &mut Stream, swarm: &Swarm) -> ProcessSpec {
    let drifts = swarm.has(FaultKind::ClockDrift);
    let drift = stream.below(1_001) as i32 - 500;
    ProcessSpec {
        starts: SimTime::ZERO.plus(stream.span(Span::ZERO, Span::from_secs(3))),
        clock_origin: Monotonic::from_micros(stream.below(1 << 40)),
        drift_ppm: if drifts { drift } else { 0 },
        restart_after: stream.span(Span::from_millis(500), Span::from_secs(5)),
    }
}

pub(super) fn schedulers(stream: &mut Stream, count: usize, swarm: &Swarm) -> Vec<SchedulerSpec> {
    // One cluster, one configuration: what differs between seeds is the same on all nodes.
    // Mostly unhurried: a quiet cluster that asks all the time would be most of what is simulated. Even the
    // longest lease and the cycle after it stay within the objective for a failover.
    let hurried = stream.chance(PPM / 8);
    let (least, most) = if hurried { (6, 10) } else { (14, 20) };
    let ttl = stream.span(Span::from_secs(least), Span::from_secs(most));
    // Who renews twice within a lease has half a lease to make up for a call that was lost; production's third is in
    // one seed of three.
    let cycle_every = ttl.divided_by(*stream.pick(&[2, 2, 3]));
    let poll_every = Span::from_secs(if hurried { 2 } else { *stream.pick(&[8, 10, 12]) });
    let heartbeat_every = Span::from_secs(*stream.pick(&[6, 8, 10]));
    let sweep_every = Span::from_secs(if hurried { 2 } else { *stream.pick(&[4, 5, 6]) });
    let batch = *stream.pick(&[500, 500, 50, 7]);
    let redispatch_after = stream.span(Span::from_secs(10), Span::from_secs(60));
    let node_stale_after = stream.span(Span::from_secs(20), Span::from_secs(60));
    let per_cycle = *stream.pick(&[64, 64, 16]);
    let outbox_grace = stream.span(Span::from_millis(500), Span::from_secs(3));
    (0..count)
        .map(|index| {
            let node = NodeId::from_u128(wide(stream));
            let mut config = SchedulerConfig::new(node, format!("scheduler-{index}").into());
            config.lease_ttl = ttl;
            config.trust = TrustWindow::Margin(ttl.divided_by(5));
            config.cycle_every = cycle_every;
            config.heartbeat_every = heartbeat_every;
            config.live_within = heartbeat_every.times(3);
            config.poll_every = poll_every;
            config.sweep_every = sweep_every;
            config.batch = batch;
            config.redispatch_after = redispatch_after;
            config.node_stale_after = node_stale_after;
            config.acquire_per_cycle = per_cycle;
            config.release_per_cycle = per_cycle;
            config.outbox_grace = outbox_grace;
            config.outbox_delay = outbox_grace;
            SchedulerSpec { config, process: process(stream, swarm) }
        })
        .collect()
}

pub(super) fn workers(stream: &mut Stream, count: usize, swarm: &Swarm) -> Vec<WorkerSpec> {
    let ttl = stream.span(Span::from_secs(8), Span::from_secs(16));
    let heartbeat_every = Span::from_secs(*stream.pick(&[8, 10, 12]));
    let slots = *stream.pick(&[64, 32, 16]);
    let batch = *stream.pick(&[500, 50, 3]);
    let old = swarm.has(FaultKind::UnknownHandlerVersion).then(|| stream.below(count as u64) as usize);
    (0..count)
        .map(|index| {
            let node = NodeId::from_u128(wide(stream));
            let versions = |old: bool| -> BTreeSet<u32> {
                if old { (1..NEW_VERSION).collect() } else { (1..=NEW_VERSION).collect() }
            };
            // The old worker is never the only one: the others know every version.
            let is_old = count > 1 && old == Some(index);
            let handlers: BTreeMap<HandlerName, BTreeSet<u32>> = HANDLERS
                .iter()
                .map(|name| (HandlerName::parse(name).expect("a valid name"), versions(is_old)))
                .collect();
            let mut config = WorkerConfig::new(node, format!("worker-{index}").into(), handlers);
            config.lease_ttl = ttl;
            config.trust = TrustWindow::Margin(ttl.divided_by(5));
            config.renew_every = ttl.divided_by(3);
            config.heartbeat_every = heartbeat_every;
            config.slots = slots;
            config.batch = batch;
            config.defer_delay = Span::from_secs(1);
            if stream.chance(PPM / 4) {
                config.ack_early_above = Span::from_secs(8);
            }
            WorkerSpec { config, process: process(stream, swarm) }
        })
        .collect()
}

pub(super) fn outside(stream: &mut Stream) -> Vec<OutsideSpec> {
    let mut kinds = vec![Enforcement::Key, Enforcement::Token, Enforcement::Nothing];
    stream.shuffle(&mut kinds);
    kinds.into_iter().map(|enforces| OutsideSpec { enforces }).collect()
}
