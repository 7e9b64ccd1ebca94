//! Reading a plan from a file: the format's version, then the shape, then that every reference leads somewhere.

use serde::Deserialize;
use thiserror::Error;

use super::{Action, Definition, JobIndex, NodeSlot, OutsideIndex, PLAN_FORMAT, Plan, Target};
use crate::fault::{FaultGroup, FaultKind};

/// Why a text is no plan that can be run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// It is no plan at all.
    #[error("this is no plan: {0}")]
    Shape(String),
    /// It is a plan of another format.
    #[error(
        "the plan has format {found}; this version reads {PLAN_FORMAT} (make it again with `fencepost-sim plan`)"
    )]
    Format {
        /// Its format.
        found: u64,
    },
    /// It refers to something that is not there, or contradicts itself.
    #[error("the plan's {place}: {detail}")]
    Content {
        /// Where.
        place: String,
        /// What is wrong.
        detail: String,
    },
}

#[derive(Deserialize)]
struct Header {
    format: u64,
}

pub(super) fn read(text: &str) -> Result<Plan, PlanError> {
    let header: Header = serde_json::from_str(text).map_err(|error| PlanError::Shape(error.to_string()))?;
    if header.format != u64::from(PLAN_FORMAT) {
        return Err(PlanError::Format { found: header.format });
    }
    let plan: Plan = serde_json::from_str(text).map_err(|error| PlanError::Shape(error.to_string()))?;
    check(&plan)?;
    Ok(plan)
}

fn wrong(place: String, detail: impl Into<String>) -> PlanError {
    PlanError::Content { place, detail: detail.into() }
}

fn check(plan: &Plan) -> Result<(), PlanError> {
    if plan.schedulers.is_empty() || plan.workers.is_empty() {
        return Err(wrong("topology".into(), "at least one scheduler and one worker are needed"));
    }
    if plan.node_count() > 250 {
        return Err(wrong("topology".into(), "at most 250 nodes"));
    }
    if plan.jobs.len() > usize::from(u16::MAX) || plan.faults.len() > usize::from(u16::MAX) {
        return Err(wrong("jobs and faults".into(), "at most 65,535 of each"));
    }
    for (at, job) in plan.jobs.iter().enumerate() {
        let place = format!("jobs[{at}]");
        if usize::from(job.tenant) >= plan.tenants.len() {
            return Err(wrong(place, "no such tenant"));
        }
        if let Definition::Readable(definition) = &job.definition {
            definition.check().map_err(|error| wrong(place.clone(), error.to_string()))?;
        }
        check_outside(plan, place, job.behaviour.calls)?;
    }
    for (at, action) in plan.actions.iter().enumerate() {
        match &action.what {
            Action::Create { job }
            | Action::Trigger { job, .. }
            | Action::CancelNewest { job }
            | Action::Pause { job }
            | Action::Resume { job }
            | Action::Delete { job } => check_job(plan, format!("actions[{at}]"), *job)?,
            Action::Edit { job, to } => {
                let place = format!("actions[{at}]");
                to.check().map_err(|error| wrong(place.clone(), error.to_string()))?;
                check_job(plan, place, *job)?;
            }
            Action::ReplayAll { tenant, .. }
            | Action::PauseWork { tenant, .. }
            | Action::ResumeWork { tenant, .. }
            | Action::SetLimit { tenant, .. }
            | Action::SetCalendar { tenant, .. }
                if usize::from(*tenant) >= plan.tenants.len() =>
            {
                return Err(wrong(format!("actions[{at}]"), "no such tenant"));
            }
            Action::CancelStuck
            | Action::PauseWork { .. }
            | Action::ResumeWork { .. }
            | Action::Replay { .. }
            | Action::ReplayAll { .. }
            | Action::SetLimit { .. }
            | Action::SetCalendar { .. }
            | Action::Purge { .. } => {}
        }
    }
    for (at, fault) in plan.faults.iter().enumerate() {
        check_fault(plan, format!("faults[{at}]"), fault.kind, fault.target)?;
    }
    for slot in plan.heal.dead.iter().chain(&plan.heal.drains) {
        check_node(plan, "heal".into(), *slot)?;
    }
    let survives = |slot: NodeSlot| !plan.heal.dead.contains(&slot);
    let scheduler = (0..plan.schedulers.len()).map(Plan::scheduler_slot).any(survives);
    let worker = (0..plan.workers.len()).map(|index| plan.worker_slot(index)).any(survives);
    if scheduler && worker { Ok(()) } else { Err(wrong("heal".into(), "nobody survives to do the work")) }
}

fn check_job(plan: &Plan, place: String, job: JobIndex) -> Result<(), PlanError> {
    if job.index() < plan.jobs.len() { Ok(()) } else { Err(wrong(place, "no such job")) }
}

fn check_node(plan: &Plan, place: String, slot: NodeSlot) -> Result<(), PlanError> {
    if slot.index() < plan.node_count() { Ok(()) } else { Err(wrong(place, "no such node")) }
}

fn check_outside(plan: &Plan, place: String, index: OutsideIndex) -> Result<(), PlanError> {
    if index.index() < plan.outside.len() { Ok(()) } else { Err(wrong(place, "no such system outside")) }
}

fn check_fault(plan: &Plan, place: String, kind: FaultKind, target: Target) -> Result<(), PlanError> {
    match (kind.group(), target) {
        (FaultGroup::Process | FaultGroup::NodeStore | FaultGroup::NodeBroker, Target::Node(slot))
        | (FaultGroup::Clock | FaultGroup::Broker, Target::Node(slot)) => check_node(plan, place, slot),
        (FaultGroup::Store | FaultGroup::Clock, Target::Store) | (FaultGroup::Broker, Target::Broker) => {
            Ok(())
        }
        (FaultGroup::Broker | FaultGroup::Data, Target::Queue(_)) => Ok(()),
        (FaultGroup::Outside, Target::Outside(index)) => check_outside(plan, place, index),
        (
            FaultGroup::Process
            | FaultGroup::NodeStore
            | FaultGroup::NodeBroker
            | FaultGroup::Store
            | FaultGroup::Broker
            | FaultGroup::Clock
            | FaultGroup::Handler
            | FaultGroup::Outside
            | FaultGroup::Operator
            | FaultGroup::Data,
            _,
        ) => Err(wrong(place, format!("{kind} does not strike {target:?} from the fault schedule"))),
    }
}
