//! The judge: shows the simulator's oracles what the hosts did, and counts what a run has shown.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::execution::ExecutionState;
use fencepost_core::id::NodeId;
use fencepost_core::lease::LeaseResource;
use fencepost_core::store::change::Change;
use fencepost_core::store::command::Command;
use fencepost_sim::oracle::{DrainEnd, HandlerEnd, HandlerObservation, Oracles, Recovery};
use fencepost_sim::violation::Violation;

use crate::sightings::{Sighting, Sightings, store_clock};

/// What the oracles were shown, as far as a run would prove little without it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) commits: u64,
    pub(crate) confirms: u64,
    pub(crate) refusals: u64,
    pub(crate) handlers_started: u64,
    pub(crate) handlers_given_up: u64,
    pub(crate) handlers_died: u64,
    pub(crate) drains_in_time: u64,
    pub(crate) drains_cut_short: u64,
    /// Grants of partitions that another node had held until they lapsed.
    pub(crate) partitions_taken_over: u64,
    /// Who has led, and whose runs were taken over, by the names of their hosts.
    pub(crate) leaders: BTreeSet<&'static str>,
    pub(crate) runs_taken_over: BTreeMap<&'static str, u64>,
    /// How often leadership passed to another node.
    pub(crate) leaders_followed: u64,
}

/// Oracles at work on a run.
pub(crate) struct Judge {
    sightings: Sightings,
    oracles: Oracles,
    pub(crate) shown: Shown,
}

impl Judge {
    pub(crate) fn new(sightings: Sightings) -> Self {
        Self { sightings, oracles: Oracles::default(), shown: Shown::default() }
    }

    /// Looks at all that has happened since the last time. `hosts` says on which host a node ran.
    pub(crate) fn look(&mut self, hosts: &BTreeMap<NodeId, &'static str>) -> Result<(), Violation> {
        for (at, sighting) in self.sightings.take() {
            self.count(&sighting, hosts);
            match sighting {
                Sighting::Committed { node, command, reply, changes } => {
                    self.oracles.on_commit(at, node, &command, &reply, &changes)?;
                }
                Sighting::Confirmed { execution, dispatch_no } => {
                    self.oracles.on_confirmed(at, execution, dispatch_no)?;
                }
                Sighting::Heard { node, reply } => self.oracles.on_heard(node, &reply),
                Sighting::Handler(seen) => self.oracles.on_handler(at, store_clock(at), &seen)?,
                Sighting::Drained { node, how } => {
                    self.oracles.on_drained(at, store_clock(at), node, how)?;
                }
                Sighting::Ended { node } => self.oracles.on_process_ended(node),
            }
        }
        Ok(())
    }

    /// What is not as it should be yet.
    pub(crate) fn unfinished(&mut self, recovery: &Recovery<'_>) -> Option<Violation> {
        self.oracles.unfinished(recovery)
    }

    fn count(&mut self, sighting: &Sighting, hosts: &BTreeMap<NodeId, &'static str>) {
        let shown = &mut self.shown;
        match sighting {
            Sighting::Committed { command, changes, .. } => {
                shown.commits += 1;
                for change in changes {
                    count_change(shown, command, change, hosts);
                }
            }
            Sighting::Confirmed { .. } => shown.confirms += 1,
            Sighting::Handler(HandlerObservation::Started { .. }) => shown.handlers_started += 1,
            Sighting::Handler(HandlerObservation::GivenUp { .. }) => shown.handlers_given_up += 1,
            Sighting::Handler(HandlerObservation::Ended { how: HandlerEnd::Died, .. }) => {
                shown.handlers_died += 1;
            }
            Sighting::Drained { how: DrainEnd::InTime, .. } => shown.drains_in_time += 1,
            Sighting::Drained { how: DrainEnd::CutShort, .. } => shown.drains_cut_short += 1,
            Sighting::Heard { .. } | Sighting::Handler(_) | Sighting::Ended { .. } => {}
        }
    }
}

fn count_change(
    shown: &mut Shown,
    command: &Command,
    change: &Change,
    hosts: &BTreeMap<NodeId, &'static str>,
) {
    match change {
        Change::Refusal(_) => shown.refusals += 1,
        Change::Lease(delta) => {
            let owner = |row: &Option<_>| {
                row.as_ref().and_then(|row: &fencepost_core::store::row::LeaseRow| row.owner)
            };
            let (before, after) = (owner(&delta.before), owner(&delta.after));
            let Some(after) = after.filter(|after| Some(*after) != before) else { return };
            let leads = delta.after.as_ref().is_some_and(|row| row.resource == LeaseResource::Leadership);
            if leads {
                shown.leaders.extend(hosts.get(&after));
                shown.leaders_followed += u64::from(before.is_some());
            } else {
                shown.partitions_taken_over += u64::from(before.is_some());
            }
        }
        Change::Execution(delta) => {
            let Some(before) = &delta.before else { return };
            let taken = matches!(command, Command::Repair(_)) && before.state == ExecutionState::Running;
            if let Some(host) = before.owner.filter(|_| taken).and_then(|owner| hosts.get(&owner)) {
                *shown.runs_taken_over.entry(host).or_default() += 1;
            }
        }
        Change::Tenant(_)
        | Change::Node(_)
        | Change::Job(_)
        | Change::JobVersion(_)
        | Change::Attempt(_)
        | Change::Outbox(_)
        | Change::DeadLetter(_)
        | Change::SkippedRange(_)
        | Change::Request(_)
        | Change::Pause(_)
        | Change::Limit(_)
        | Change::Calendar(_)
        | Change::Malformed(_) => {}
    }
}
