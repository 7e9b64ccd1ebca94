//! Operations taken apart into atoms: the smallest things that must each take effect at one moment.
//!
//! The protocol promises that a batch is a list of items, each atomic, which take effect on their own somewhere
//! within the call. So a batch becomes an atom per item. A command that picks rows is one atom that picks what
//! was seen to be picked. What only reads promises no snapshot, since whatever it finds is compared again by the
//! guarded write that follows: each thing found becomes an atom that must have been so at some moment of the
//! call. `next_due` of a scan is such a hint too, and is not compared here.

use std::collections::BTreeSet;

use fencepost_core::execution::ExecutionState;
use fencepost_core::id::NodeId;
use fencepost_core::lease::{LeaseResource, RunId};
use fencepost_core::limits::BATCH_MAX;
use fencepost_core::store::change::Change;
use fencepost_core::store::command::{
    AcquireExecutions, Command, DeferExecutions, FinishExecutions, Materialise, OutboxId, PutOffJobs,
    ReleaseLeases, RemoveOutbox, RenewExecutions, RenewLeases, Repair, ReturnOutbox, ScanDueJobs, ScanSweep,
};
use fencepost_core::store::reference::{Choice, Picked, ReferenceStore};
use fencepost_core::store::reply::{DueJob, ExpiredRun, RepairReply, Reply};
use fencepost_core::time::{Span, Timestamp};

use crate::history::Operation;
use crate::touches::{Executions, Thing, Touches};

/// The smallest thing that takes effect at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Atom {
    /// Which operation of the history it is of.
    pub(crate) operation: usize,
    /// By what time it is judged.
    pub(crate) now: Timestamp,
    /// From where on it may take effect.
    pub(crate) invoked: u64,
    /// By when it has; `None`: it may never.
    pub(crate) answered: Option<u64>,
    /// By when it has, most likely: when whoever asked went on to something else.
    pub(crate) likely_over: u64,
    command: Command,
    choice: Choice,
    expected: Expected,
    touches: Touches,
}

/// What an atom was seen to do.
#[derive(Clone, Debug)]
enum Expected {
    /// Nobody knows.
    Anything,
    /// It gave this answer.
    Reply(Reply),
    /// It gave this answer, but for the hint of when to look again.
    Picked(Reply),
    /// It read this, among other things, and changed nothing.
    Found(Found),
}

#[derive(Clone, Debug)]
enum Found {
    DueJob(Box<DueJob>),
    Expired(ExpiredRun),
    Undelivered(OutboxId),
    Settled(OutboxId),
    Overdue(RunId, ExecutionState),
    StaleNode(NodeId, Timestamp),
    Live(NodeId),
}

impl Atom {
    /// Takes effect on the state, and says what it changed; `None` if it would have been seen to do otherwise: then the
    /// state is as it was.
    pub(crate) fn take_effect(&self, state: &mut ReferenceStore) -> Option<Vec<Change>> {
        let mut changes = Vec::new();
        let reply = state.apply_choosing(&self.choice, self.now, &self.command, &mut changes).reply;
        let is_as_seen = match &self.expected {
            Expected::Anything => true,
            Expected::Reply(seen) => reply == *seen,
            Expected::Picked(seen) => without_hint(reply) == *seen,
            Expected::Found(found) => {
                state.take_back(changes);
                return found.is_in(&reply).then(Vec::new);
            }
        };
        if !is_as_seen {
            state.take_back(changes);
            return None;
        }
        assert!(
            changes.is_empty() || !self.writes().is_empty(),
            "{:?} writes although it is said not to",
            self.command
        );
        Some(changes)
    }

    /// Whether the two can have an influence on each other.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.touches.meets(&other.touches)
    }

    /// Whether both are about the same.
    pub(crate) fn shares(&self, other: &Self) -> bool {
        self.touches.shares(&other.touches)
    }

    /// Whether it writes what the other only reads.
    pub(crate) fn spoils(&self, other: &Self) -> bool {
        self.touches.spoils(&other.touches)
    }

    /// What it may change.
    pub(crate) fn writes(&self) -> &BTreeSet<Thing> {
        &self.touches.writes
    }

    /// The instant that a thing's row keeps of it, if it wrote there: over whatever stood there. What was answered did
    /// write; of what was not, such an instant at the end is the proof.
    pub(crate) fn stamp_on(&self, thing: &Thing) -> Option<Timestamp> {
        if !self.touches.writes.contains(thing) {
            return None;
        }
        match (thing, &self.command, &self.expected) {
            (Thing::Refusal(_), _, _) | (Thing::Message(_), Command::RecordMalformed(_), _) => Some(self.now),
            (Thing::Node(_), Command::Heartbeat(_), Expected::Anything) => Some(self.now),
            (Thing::Lease(_), Command::RenewLeases(ask), _) => Some(self.now.plus(ask.ttl)),
            (_, _, _) => None,
        }
    }

    /// Whether it left a trace, as far as that can be seen: every operation has a time of its own, which most of what
    /// takes effect writes somewhere. `traces` are all the numbers that were found or heard.
    pub(crate) fn left_a_trace(&self, traces: &BTreeSet<i64>) -> bool {
        let at = |span: Span| self.now.plus(span).as_micros();
        let written = match &self.command {
            Command::RenewLeases(ask) => at(ask.ttl),
            Command::RenewExecutions(ask) => at(ask.ttl),
            Command::AcquireLeadership(ask) => at(ask.ttl),
            Command::AcquirePartitions(ask) => at(ask.ttl),
            Command::AcquireExecutions(_)
            | Command::FinishExecutions(_)
            | Command::Heartbeat(_)
            | Command::Materialise(_)
            | Command::TriggerJob(_)
            | Command::PromoteDue(_)
            | Command::ReplayDeadLetter(_)
            | Command::ReplayDeadLetters(_)
            | Command::PurgeDeadLetter(_)
            | Command::SetLimit(_) => at(Span::ZERO),
            // These may leave nothing behind, or nothing with a time.
            Command::SetCalendar(_)
            | Command::ReadClock
            | Command::ReleaseLeases(_)
            | Command::ScanDueJobs(_)
            | Command::PutOffJobs(_)
            | Command::ScanOutbox(_)
            | Command::RemoveOutbox(_)
            | Command::ReturnOutbox(_)
            | Command::ScanSweep(_)
            | Command::Repair(_)
            | Command::DeferExecutions(_)
            | Command::RecordMalformed(_)
            | Command::CreateTenant(_)
            | Command::CreateJob(_)
            | Command::ChangeJob(_)
            | Command::DeleteJob(_)
            | Command::SetPause(_)
            | Command::CancelExecution(_) => return true,
        };
        traces.contains(&written)
    }

    /// Whether it may have been committed without the other items of its batch: these go in several transactions.
    pub(crate) fn may_be_committed_alone(&self) -> bool {
        matches!(
            self.command,
            Command::FinishExecutions(_) | Command::RemoveOutbox(_) | Command::AcquireExecutions(_)
        )
    }

    /// Whether both were under way at once.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let before = |a: &Self, b: &Self| a.answered.is_some_and(|answered| answered < b.invoked);
        !before(self, other) && !before(other, self)
    }
}

impl Found {
    fn thing(&self) -> Thing {
        match self {
            Self::DueJob(job) => Thing::Job(job.job),
            Self::Expired(run) => Thing::Execution(run.run.execution),
            Self::Undelivered(id) | Self::Settled(id) => Thing::Execution(id.execution),
            Self::Overdue(run, _) => Thing::Execution(run.execution),
            Self::StaleNode(node, _) | Self::Live(node) => Thing::Node(*node),
        }
    }

    fn is_in(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (Self::DueJob(job), Reply::DueJobs { jobs, .. }) => jobs.contains(job),
            (Self::Expired(run), Reply::Sweep(findings)) => findings.expired.contains(run),
            (Self::Undelivered(id), Reply::Sweep(findings)) => findings.undelivered.contains(id),
            (Self::Settled(id), Reply::Sweep(findings)) => findings.settled.contains(id),
            (Self::Overdue(run, state), Reply::Sweep(findings)) => findings.overdue.contains(&(*run, *state)),
            (Self::StaleNode(node, seen_at), Reply::Sweep(findings)) => {
                findings.stale_nodes.contains(&(*node, *seen_at))
            }
            (Self::Live(node), Reply::Heartbeat { schedulers }) => schedulers.contains(node),
            (_, _) => false,
        }
    }
}

fn without_hint(reply: Reply) -> Reply {
    match reply {
        Reply::Promoted { dispatches, refused, .. } => {
            Reply::Promoted { dispatches, refused, next_due: None }
        }
        Reply::Outbox { dispatches, .. } => Reply::Outbox { dispatches, next_due: None },
        other => other,
    }
}

/// The atoms of a history that begins in `start`, in the order of its operations.
pub(crate) fn atoms_of(operations: &[Operation], start: &ReferenceStore) -> Vec<Atom> {
    let executions = Executions::of(operations, start);
    let mut atoms = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        Apart { index, operation, executions: &executions, atoms: &mut atoms }.take();
    }
    atoms
}

/// An operation being taken apart.
struct Apart<'a> {
    index: usize,
    operation: &'a Operation,
    executions: &'a Executions,
    atoms: &'a mut Vec<Atom>,
}

impl Apart<'_> {
    fn push(&mut self, command: Command, choice: Choice, expected: Expected) {
        let touches = match &expected {
            Expected::Found(found) => Touches::reading(found.thing()),
            Expected::Anything => Touches::of(&command, &choice, None, self.executions),
            Expected::Reply(reply) | Expected::Picked(reply) => {
                Touches::of(&command, &choice, Some(reply), self.executions)
            }
        };
        self.atoms.push(Atom {
            operation: self.index,
            now: self.operation.now,
            invoked: self.operation.invoked,
            answered: self.operation.answered.as_ref().map(|(answered, _)| *answered),
            likely_over: self.operation.over,
            command,
            choice,
            expected,
            touches,
        });
    }

    fn reply(&self) -> Option<&Reply> {
        self.operation.answered.as_ref().map(|(_, reply)| reply)
    }

    fn whole(&mut self) {
        let expected = self.reply().cloned().map_or(Expected::Anything, Expected::Reply);
        self.push(self.operation.command.clone(), Choice::First, expected);
    }

    /// An atom per item, each with its own part of the reply.
    fn items<Item: Clone, Part: Clone>(
        &mut self,
        items: &[Item],
        parts: Option<&[Part]>,
        command: impl Fn(Item) -> Command,
        reply: impl Fn(Part) -> Reply,
    ) {
        for (at, item) in items.iter().enumerate() {
            let expected = match parts {
                Some(parts) => Expected::Reply(reply(parts[at].clone())),
                None => Expected::Anything,
            };
            self.push(command(item.clone()), Choice::First, expected);
        }
    }

    fn take(&mut self) {
        let operation = self.operation;
        let reply = operation.answered.as_ref().map(|(_, reply)| reply);
        macro_rules! parts {
            ($kind:ident) => {
                match reply {
                    Some(Reply::$kind(parts)) => Some(parts.as_slice()),
                    Some(other) => panic!("{:?} was answered by {other:?}", operation.command),
                    None => None,
                }
            };
        }
        match &operation.command {
            Command::RenewLeases(ask) => {
                let one = |lease| Command::RenewLeases(RenewLeases { leases: vec![lease], ..ask.clone() });
                self.items(&ask.leases, parts!(LeasesRenewed), one, |part| Reply::LeasesRenewed(vec![part]));
            }
            Command::ReleaseLeases(ask) => {
                let one =
                    |lease| Command::ReleaseLeases(ReleaseLeases { leases: vec![lease], ..ask.clone() });
                self.items(&ask.leases, parts!(LeasesReleased), one, |part| {
                    Reply::LeasesReleased(vec![part])
                });
            }
            Command::Materialise(ask) => {
                let one = |item| Command::Materialise(Materialise { items: vec![item], ..ask.clone() });
                self.items(&ask.items, parts!(Materialised), one, |part| Reply::Materialised(vec![part]));
            }
            Command::PutOffJobs(ask) => {
                let one = |item| Command::PutOffJobs(PutOffJobs { items: vec![item], ..ask.clone() });
                self.items(&ask.items, parts!(JobsPutOff), one, |part| Reply::JobsPutOff(vec![part]));
            }
            Command::RemoveOutbox(ask) => {
                let one = |row| Command::RemoveOutbox(RemoveOutbox { rows: vec![row], ..ask.clone() });
                self.items(&ask.rows, parts!(OutboxRemoved), one, |part| Reply::OutboxRemoved(vec![part]));
            }
            Command::ReturnOutbox(ask) => {
                let one = |row| Command::ReturnOutbox(ReturnOutbox { rows: vec![row], ..ask.clone() });
                self.items(&ask.rows, parts!(OutboxReturned), one, |part| Reply::OutboxReturned(vec![part]));
            }
            Command::AcquireExecutions(ask) => {
                let one =
                    |item| Command::AcquireExecutions(AcquireExecutions { items: vec![item], ..ask.clone() });
                self.items(&ask.items, parts!(Acquired), one, |part| Reply::Acquired(vec![part]));
            }
            Command::RenewExecutions(ask) => {
                let one = |run| Command::RenewExecutions(RenewExecutions { runs: vec![run], ..ask.clone() });
                self.items(&ask.runs, parts!(RunsRenewed), one, |part| Reply::RunsRenewed(vec![part]));
            }
            Command::FinishExecutions(ask) => {
                let one =
                    |item| Command::FinishExecutions(FinishExecutions { items: vec![item], ..ask.clone() });
                self.items(&ask.items, parts!(Finished), one, |part| Reply::Finished(vec![part]));
            }
            Command::DeferExecutions(ask) => {
                let one =
                    |item| Command::DeferExecutions(DeferExecutions { items: vec![item], ..ask.clone() });
                self.items(&ask.items, parts!(Deferred), one, |part| Reply::Deferred(vec![part]));
            }
            Command::Repair(ask) => self.repair(ask),
            Command::AcquirePartitions(_) | Command::PromoteDue(_) | Command::ScanOutbox(_) => self.picks(),
            Command::ScanDueJobs(_) | Command::ScanSweep(_) => self.found(),
            Command::Heartbeat(_) => {
                self.push(operation.command.clone(), Choice::First, Expected::Anything);
                self.found();
            }
            Command::ReadClock
            | Command::AcquireLeadership(_)
            | Command::RecordMalformed(_)
            | Command::CreateTenant(_)
            | Command::CreateJob(_)
            | Command::ChangeJob(_)
            | Command::DeleteJob(_)
            | Command::TriggerJob(_)
            | Command::CancelExecution(_)
            | Command::SetPause(_)
            | Command::ReplayDeadLetter(_)
            | Command::ReplayDeadLetters(_)
            | Command::PurgeDeadLetter(_)
            | Command::SetLimit(_)
            | Command::SetCalendar(_) => self.whole(),
        }
    }

    /// A refusal is of the whole; what was applied, was item by item.
    fn repair(&mut self, ask: &Repair) {
        let one = |item| Command::Repair(Repair { items: vec![item], ..ask.clone() });
        let whole = |part| Reply::Repaired(RepairReply::Applied(vec![part]));
        match self.reply().cloned() {
            Some(Reply::Repaired(RepairReply::Applied(parts))) => {
                self.items(&ask.items, Some(&parts), one, whole);
            }
            Some(_) => self.whole(),
            None => self.items(&ask.items, None, one, whole),
        }
    }

    /// One atom that picks what was picked. Of one without an answer nobody knows: the first by key, then.
    fn picks(&mut self) {
        let command = self.operation.command.clone();
        let Some(reply) = self.reply().cloned() else {
            self.push(command, Choice::First, Expected::Anything);
            return;
        };
        let picked: BTreeSet<Picked> = match &reply {
            Reply::Partitions { granted } => granted
                .iter()
                .filter_map(|held| match held.resource {
                    LeaseResource::Partition(partition) => Some(Picked::Partition(partition)),
                    LeaseResource::Leadership => None,
                })
                .collect(),
            Reply::Promoted { dispatches, .. } => {
                dispatches.iter().map(|dispatch| Picked::Execution(dispatch.execution)).collect()
            }
            Reply::Outbox { dispatches, .. } => {
                let id = |execution, dispatch_no| Picked::Outbox(OutboxId { execution, dispatch_no });
                dispatches.iter().map(|dispatch| id(dispatch.execution, dispatch.dispatch_no)).collect()
            }
            other => panic!("{command:?} was answered by {other:?}"),
        };
        self.push(command, Choice::Only(picked), Expected::Picked(without_hint(reply)));
    }

    /// An atom for each thing that was found. What was found by nobody constrains nothing.
    fn found(&mut self) {
        let Some(reply) = self.reply().cloned() else { return };
        let found: Vec<Found> = match reply {
            Reply::DueJobs { jobs, .. } => jobs.into_iter().map(|job| Found::DueJob(Box::new(job))).collect(),
            Reply::Heartbeat { schedulers } => schedulers.into_iter().map(Found::Live).collect(),
            Reply::Sweep(findings) => {
                let expired = findings.expired.into_iter().map(Found::Expired);
                let undelivered = findings.undelivered.into_iter().map(Found::Undelivered);
                let settled = findings.settled.into_iter().map(Found::Settled);
                let overdue = findings.overdue.into_iter().map(|(run, state)| Found::Overdue(run, state));
                let stale = findings.stale_nodes.into_iter().map(|(node, at)| Found::StaleNode(node, at));
                expired.chain(undelivered).chain(settled).chain(overdue).chain(stale).collect()
            }
            other => panic!("nothing is found in {other:?}"),
        };
        // However much there was to find: what was found is looked for among all of it.
        let limit = u32::try_from(BATCH_MAX).expect("a batch is short");
        let wide = match &self.operation.command {
            Command::ScanDueJobs(ask) => {
                Command::ScanDueJobs(ScanDueJobs { after: None, limit, ..ask.clone() })
            }
            Command::ScanSweep(ask) => Command::ScanSweep(ScanSweep { limit, ..ask.clone() }),
            other => other.clone(),
        };
        for one in found {
            self.push(wide.clone(), Choice::First, Expected::Found(one));
        }
    }
}
