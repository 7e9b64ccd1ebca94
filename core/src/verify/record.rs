//! Records beside executions: leases, what was refused under them, and records of what is not there.

use std::collections::BTreeMap;

use super::report::{Finding, Tallies};
use super::{Check, Verifier};
use crate::fencing::FencingToken;
use crate::id::{ExecutionId, JobId};
use crate::lease::LeaseResource;
use crate::store::row::{LeaseRow, RefusalRow, RefusedAction, RefusedResource};

/// The latest token of each lease, as its row has it.
#[derive(Debug, Default)]
pub(super) struct LeaseTokens(BTreeMap<LeaseResource, FencingToken>);

impl LeaseTokens {
    /// The token that a resource has now; `None` where its row is gone.
    pub(super) fn of(&self, resource: LeaseResource) -> Option<FencingToken> {
        self.0.get(&resource).copied()
    }

    /// Rows of leases are there from the start and for good.
    pub(super) fn finish(&self, tallies: &mut Tallies) {
        for resource in LeaseResource::all().filter(|resource| !self.0.contains_key(resource)) {
            let what = format!("the lease row of {resource} is gone");
            tallies
                .broke(Check::Conservation, Finding::of_record(what, "nobody can own it: restore the row"));
        }
    }
}

/// Which kind of row belongs to something that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanKind {
    /// An ended run.
    Attempt,
    /// An outbox row.
    Outbox,
    /// A dead letter.
    DeadLetter,
    /// A skipped range.
    SkippedRange,
    /// A job's version.
    JobVersion,
    /// A refusal about an execution.
    Refusal,
    /// A request that made a job or an execution.
    Request,
}

/// A row whose job or execution is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// What it is.
    pub kind: OrphanKind,
    /// The job that it names.
    pub job: Option<JobId>,
    /// The execution that it names.
    pub execution: Option<ExecutionId>,
}

impl Verifier {
    /// Takes a lease. All of them come first.
    pub fn lease(&mut self, row: &LeaseRow) {
        self.leases.0.insert(row.resource, row.token);
        self.tallies.look(Check::TokenMonotone);
        if row.owner.is_some() && row.token <= FencingToken::NEVER {
            let what = format!("{} is held under token {}, which no grant has", row.resource, row.token);
            let advice = "its owner's writes are not fenced: release it, and let it be acquired anew";
            self.tallies.broke(Check::TokenMonotone, Finding::of_record(what, advice));
        }
    }

    /// Takes what was refused under leadership or a partition. Refusals about executions come with those.
    pub fn lease_refusal(&mut self, row: &RefusalRow) {
        let RefusedResource::Lease(resource) = row.resource else { return };
        self.tallies.look(Check::LedgerOfRefusals);
        if row.first_at > row.last_at {
            let (first, last) = (row.first_at, row.last_at);
            self.tallies
                .clock_was_set_back(|| format!("from {first} to {last} or before, as a refusal shows"));
        }
        let current = self.leases.of(resource).unwrap_or(FencingToken::NEVER);
        let fits = match row.action {
            RefusedAction::RenewLease => true,
            RefusedAction::Materialise | RefusedAction::Promote => resource != LeaseResource::Leadership,
            RefusedAction::Repair => resource == LeaseResource::Leadership,
            RefusedAction::RenewExecution | RefusedAction::Finish => false,
        };
        let broken = wrong_refusal(row, current, fits);
        if let Some(broken) = broken {
            let what = format!("the refusal to {} of {resource} to {}: {broken}", row.action, row.node);
            let advice = "the record is not one that the scheduler writes: find out who changed it";
            self.tallies.broke(Check::LedgerOfRefusals, Finding::of_record(what, advice));
        }
    }

    /// Takes note of a row that holds what this version does not know; nothing else of it is judged.
    pub fn unreadable(
        &mut self,
        job: Option<JobId>,
        execution: Option<ExecutionId>,
        column: &'static str,
        value: &str,
    ) {
        let finding = Finding {
            job_id: job,
            execution_id: execution,
            what: format!("the column {column} holds {value:?}, which this version does not know"),
            advice: "a newer version wrote it, or somebody else: run the verification of the version that runs",
        };
        self.tallies.broke(Check::Conservation, finding);
    }

    /// Takes a row that belongs to nothing.
    pub fn orphan(&mut self, orphan: &Orphan) {
        let (check, what) = match orphan.kind {
            OrphanKind::Attempt => (Check::Conservation, "an ended run is on record of an execution"),
            OrphanKind::Outbox => (Check::AtomicDispatch, "an outbox row is there of an execution"),
            OrphanKind::DeadLetter => (Check::DeadLetterOnce, "a dead letter is there of an execution"),
            OrphanKind::SkippedRange => (Check::Conservation, "a skipped range is there of a job"),
            OrphanKind::JobVersion => (Check::Conservation, "a version is there of a job"),
            OrphanKind::Refusal => (Check::LedgerOfRefusals, "a refusal is on record about an execution"),
            OrphanKind::Request => (Check::Conservation, "a request is on record to have made what"),
        };
        let finding = Finding {
            job_id: orphan.job,
            execution_id: orphan.execution,
            what: format!("{what} that is not there"),
            advice: "the row it names was deleted past the scheduler: compare with a backup",
        };
        self.tallies.broke(check, finding);
    }
}

/// What is wrong with a refusal of a resource whose token is `current` now.
pub(super) fn wrong_refusal(row: &RefusalRow, current: FencingToken, fits: bool) -> Option<String> {
    if !fits {
        return Some(format!("{} is nothing that it can be asked for", row.action));
    }
    if row.count == 0 {
        return Some("it is on record not to have happened".to_owned());
    }
    let highest = row.current.max(row.token);
    (highest > current)
        .then(|| format!("it names the token {highest}, and the resource has never had one above {current}"))
}
