//! The oracles: what is checked, and when the world lets them look.
//!
//! The world calls in here after every commit, whenever a handler or a system outside does something, when
//! the broker confirms, when a node drains, and, after the heal, again and again until nothing is unfinished.
//! What must stay true: an oracle only looks. It draws nothing, changes nothing, and is never switched off,
//! whatever fault is under way.
//!
//! They are written from the invariants, not from the code: they keep their own copy of the rows ([`mirror`]),
//! their own table of transitions ([`executions`]) and their own calendar ([`calendar`]).
//!
//! - [`invariant`]: the catalogue. - [`leases`]: leadership and partitions. - [`executions`]: states, tokens, budgets.
//! - [`ends`]: why runs ended, and that it was recorded.
//! - [`ledger`], [`fires`], [`calendar`]: fires. - [`dispatch`]: the outbox. - [`runs`]: handlers and what they call.
//! - [`changes`]: edits, pauses and resumes. - [`pauses`]: of tenants and queues.
//! - [`overlap`]: the slots of jobs. - [`limits`]: how many run at once. - [`shares`]: of starts, by priority.
//! - [`calendars`]: on which days jobs do not run.
//! - [`claims`]: that rows are as replies say.
//! - [`dead_letters`]: replays and purges. - [`deadlines`]: of whole executions.
//! - [`records`]: dead letters, refusals, repairs, tenants, nothing forgotten. - [`drains`]: what a drain leaves.
//! - [`recovery`]: what must come right after the heal.

mod brief;
pub mod calendar;
mod calendars;
mod changes;
mod claims;
mod dead_letters;
mod deadlines;
mod dispatch;
mod drains;
mod ends;
mod executions;
mod failures;
mod fires;
pub mod invariant;
mod lease_rows;
mod leases;
mod ledger;
mod limits;
mod local_clock;
mod mirror;
mod overlap;
mod pauses;
mod records;
mod recovery;
mod runs;
mod shares;

use std::sync::Arc;

use fencepost_core::effect::StopReason;
use fencepost_core::id::{DispatchNo, ExecutionId, JobId, NodeId};
use fencepost_core::lease::RunId;
use fencepost_core::store::change::Change;
use fencepost_core::store::command::Command;
use fencepost_core::store::command::OutboxId;
use fencepost_core::store::reply::{Reply, StoreReply};
use fencepost_core::time::{Span, Timestamp};

use brief::Brief;
use dispatch::Dispatches;
use drains::Drains;
use executions::Executions;
use invariant::Invariant;
use ledger::Ledger;
use mirror::Mirror;
use overlap::Slots;
use records::Records;
use runs::Runs;
use shares::Shares;
pub use shares::Standing;

use crate::plan::{Bounds, Enforcement, OutsideIndex, Plan};
use crate::sim_time::SimTime;
use crate::violation::Violation;

/// All oracles of one run.
#[derive(Debug, Default)]
pub struct Oracles {
    mirror: Mirror,
    executions: Executions,
    ledger: Ledger,
    dispatches: Dispatches,
    runs: Runs,
    shares: Shares,
    records: Records,
    drains: Drains,
    slots: Slots,
    /// The latest time that any commit's clock has shown.
    latest: Option<Timestamp>,
}

/// A command as it was committed.
struct Commit<'a> {
    at: SimTime,
    command: &'a Command,
    /// The one `now` that it was judged by.
    now: Timestamp,
    /// The latest that the store's clock has shown by then: what was decided before it was set back stays right.
    latest: Timestamp,
    reply: &'a Reply,
}

impl Commit<'_> {
    /// A violation by this commit; the words are put together only then, out of the way of what holds.
    #[cold]
    #[inline(never)]
    fn broke(&self, invariant: Invariant, detail: impl FnOnce() -> String) -> Violation {
        invariant.broken(self.at, detail())
    }

    fn is_about_leases(&self) -> bool {
        matches!(
            self.command,
            Command::RenewLeases(_)
                | Command::ReleaseLeases(_)
                | Command::AcquireLeadership(_)
                | Command::AcquirePartitions(_)
        )
    }

    fn kind_is_materialise(&self) -> bool {
        matches!(self.command, Command::Materialise(_))
    }
}

/// Something that a handler, or what it calls, did.
#[derive(Clone, Debug)]
pub enum HandlerObservation {
    /// A handler started.
    Started {
        /// In which process.
        node: NodeId,
        /// Which run.
        run: RunId,
        /// Of which job.
        job: JobId,
        /// Which attempt.
        attempt: u32,
        /// The idempotency key that it was given.
        key: Arc<str>,
        /// How its worker stood, where that is known.
        standing: Option<Standing>,
    },
    /// Its worker gave it up: told it to stop.
    GivenUp {
        /// In which process.
        node: NodeId,
        /// Which run.
        run: RunId,
        /// Why.
        reason: StopReason,
    },
    /// It ended.
    Ended {
        /// In which process.
        node: NodeId,
        /// Which run.
        run: RunId,
        /// How.
        how: HandlerEnd,
    },
    /// A call of a handler's reached a system outside.
    Effect {
        /// Which system.
        outside: OutsideIndex,
        /// What it enforces.
        enforces: Enforcement,
        /// Of which run.
        run: RunId,
        /// The idempotency key presented.
        key: Arc<str>,
        /// What the system did about it.
        answer: EffectAnswer,
    },
}

/// What a handler reported of its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Report {
    /// It did what it was to do.
    Completed,
    /// It failed, and trying again makes sense.
    FailedRetryably {
        /// When the target wants to be tried again.
        wish: Option<Span>,
    },
    /// It failed, and trying again does not.
    FailedForGood,
}

/// How a handler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandlerEnd {
    /// It reported something.
    Reported(Report),
    /// It stopped because it was told to.
    Stopped,
    /// Its process died.
    Died,
}

/// What a system outside did about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EffectAnswer {
    /// It performed the effect.
    Performed,
    /// It had performed it before, and did nothing.
    Repeated,
    /// It refused a stale token.
    Refused,
    /// It was down.
    Down,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainEnd {
    /// Before its limit.
    InTime,
    /// By its limit: it may leave things undone.
    CutShort,
}

/// The cluster some time after the heal.
#[derive(Clone, Copy, Debug)]
pub struct Recovery<'a> {
    /// Now.
    pub at: SimTime,
    /// What the store's clock shows now.
    pub store_now: Timestamp,
    /// When everything healed.
    pub healed_at: SimTime,
    /// What the store's clock showed then: what was due by then must end.
    pub healed_store: Timestamp,
    /// The schedulers that are up and not draining, ascending.
    pub schedulers: &'a [NodeId],
    /// How long each liveness invariant may take.
    pub bounds: &'a Bounds,
}

impl Oracles {
    /// Oracles that have seen nothing.
    #[must_use]
    pub fn new(_plan: &Plan) -> Self {
        Self::default()
    }

    /// A command was committed: by a node, or by an operator (`None`).
    ///
    /// # Errors
    /// The safety invariant that it broke.
    pub fn on_commit(
        &mut self,
        at: SimTime,
        _node: Option<NodeId>,
        command: &Command,
        reply: &StoreReply,
        changes: &[Change],
    ) -> Result<(), Violation> {
        let latest = self.latest.map_or(reply.now, |latest| latest.max(reply.now));
        self.latest = Some(latest);
        let commit = Commit { at, command, now: reply.now, latest, reply: &reply.reply };
        // Judged by the rows before the command, and told after whatever its changes break by themselves.
        let grants = leases::check_grants(&commit, &self.mirror);
        if commit.is_about_leases() {
            self.check_leases(&commit, changes)?;
            return grants;
        }
        // Before anything that a repair breaks by being done a second time.
        self.records.check_repairs(&commit, &self.mirror)?;
        self.slots.begin();
        for (number, change) in changes.iter().enumerate() {
            self.check_change(&commit, number, change, latest)?;
            self.mirror.absorb(change);
            self.dispatches.absorb(change);
        }
        grants?;
        if changes.is_empty() {
            changes::check(&commit, &self.mirror, changes)?;
            pauses::check(&commit, &self.mirror, changes)?;
            return self.records.check(&commit, &self.mirror, changes);
        }
        self.check_whole(&commit, changes)
    }

    /// Checks a command that changes leases, and nothing else but the record of refusals. Nine tenths of all changes are
    /// renewals, so they meet no more questions than are theirs.
    fn check_leases(&mut self, commit: &Commit<'_>, changes: &[Change]) -> Result<(), Violation> {
        for (number, change) in changes.iter().enumerate() {
            match change {
                Change::Lease(delta) => {
                    if let Some(contradiction) = self.mirror.contradiction(change) {
                        return Err(commit.broke(Invariant::Conservation, || contradiction));
                    }
                    leases::check_change(commit, number, delta)?;
                    self.mirror.absorb(change);
                }
                Change::Refusal(_) => {}
                Change::Tenant(_)
                | Change::Node(_)
                | Change::Job(_)
                | Change::JobVersion(_)
                | Change::Execution(_)
                | Change::Attempt(_)
                | Change::Outbox(_)
                | Change::DeadLetter(_)
                | Change::SkippedRange(_)
                | Change::Request(_)
                | Change::Pause(_)
                | Change::Limit(_)
                | Change::Calendar(_)
                | Change::Malformed(_) => {
                    return Err(commit.broke(Invariant::Conservation, || {
                        format!("{} changed what is no lease: {}", commit.command.kind(), Brief(change))
                    }));
                }
            }
        }
        records::check_refusals(commit, &self.mirror, changes)
    }

    /// Checks one change. The mirror is as before it.
    fn check_change(
        &mut self,
        commit: &Commit<'_>,
        number: usize,
        change: &Change,
        latest: Timestamp,
    ) -> Result<(), Violation> {
        if let Some(contradiction) = self.mirror.contradiction(change) {
            // An execution that is made although it is there: its id is that of one occurrence.
            let is_made_again = matches!(change, Change::Execution(delta) if delta.before.is_none());
            let broken = if is_made_again { Invariant::UniqueOccurrence } else { Invariant::Conservation };
            return Err(commit.broke(broken, || contradiction));
        }
        match change {
            Change::Lease(delta) => leases::check_change(commit, number, delta),
            Change::Execution(delta) => {
                let heard = self.runs.take_heard(commit, delta);
                changes::check_start(commit, &self.mirror, delta)?;
                self.slots.check_change(commit, &self.mirror, delta)?;
                pauses::check_execution(commit, &self.mirror, delta)?;
                limits::check_change(commit, &self.mirror, delta)?;
                deadlines::check_change(commit, &self.mirror, delta)?;
                self.executions.check_change(commit, &self.mirror, delta, heard, latest)?;
                match (&delta.before, &delta.after) {
                    (None, Some(row)) => self.ledger.check_birth(commit, &self.mirror, row),
                    (_, _) => Ok(()),
                }
            }
            Change::SkippedRange(delta) => self.ledger.check_range(commit, &self.mirror, delta),
            Change::Tenant(_)
            | Change::Node(_)
            | Change::Job(_)
            | Change::JobVersion(_)
            | Change::Attempt(_)
            | Change::Outbox(_)
            | Change::DeadLetter(_)
            | Change::Refusal(_)
            | Change::Request(_)
            | Change::Pause(_)
            | Change::Limit(_)
            | Change::Calendar(_)
            | Change::Malformed(_) => Ok(()),
        }
    }

    /// Checks what only the whole command shows. The mirror is as after it; leases are as before, since no
    /// command that changes one is guarded by one.
    fn check_whole(&mut self, commit: &Commit<'_>, changes: &[Change]) -> Result<(), Violation> {
        changes::check(commit, &self.mirror, changes)?;
        pauses::check(commit, &self.mirror, changes)?;
        failures::check(commit, &self.mirror, changes)?;
        calendars::check(commit, &self.mirror, changes)?;
        self.ledger.check_materialise(commit, &self.mirror, changes)?;
        for change in changes {
            match change {
                Change::Job(delta) => self.ledger.check_job(commit, &self.mirror, delta)?,
                Change::Outbox(delta) => self.dispatches.check_removal(commit, &self.mirror, delta)?,
                Change::Tenant(_)
                | Change::Lease(_)
                | Change::Node(_)
                | Change::JobVersion(_)
                | Change::Execution(_)
                | Change::Attempt(_)
                | Change::DeadLetter(_)
                | Change::SkippedRange(_)
                | Change::Refusal(_)
                | Change::Request(_)
                | Change::Pause(_)
                | Change::Limit(_)
                | Change::Calendar(_)
                | Change::Malformed(_) => {}
            }
        }
        dispatch::check_atomic(commit, &self.mirror, changes)?;
        self.records.check(commit, &self.mirror, changes)?;
        ends::check_recorded(commit, changes)
    }

    /// A handler, or what it calls, did something.
    ///
    /// # Errors
    /// The safety invariant that it broke.
    pub fn on_handler(
        &mut self,
        at: SimTime,
        store_now: Timestamp,
        seen: &HandlerObservation,
    ) -> Result<(), Violation> {
        let latest = self.latest.unwrap_or(store_now);
        if let HandlerObservation::Started { node, standing: Some(standing), .. } = seen {
            self.shares.check(at, *node, standing)?;
        }
        self.runs.check(at, store_now, latest, &self.executions, seen)
    }

    /// The broker confirmed a message, whether or not anybody hears of it.
    ///
    /// # Errors
    /// None at present: that a broker may confirm what was never in the outbox is no promise of ours.
    pub fn on_confirmed(
        &mut self,
        _at: SimTime,
        execution: ExecutionId,
        dispatch_no: DispatchNo,
    ) -> Result<(), Violation> {
        self.dispatches.confirmed.insert(OutboxId { execution, dispatch_no });
        Ok(())
    }

    /// A node heard what the store answered it.
    pub fn on_heard(&mut self, node: NodeId, reply: &StoreReply) {
        self.drains.on_heard(node, &reply.reply);
    }

    /// A node reported that its drain is over.
    ///
    /// # Errors
    /// The safety invariant that it broke.
    pub fn on_drained(
        &mut self,
        at: SimTime,
        store_now: Timestamp,
        node: NodeId,
        how: DrainEnd,
    ) -> Result<(), Violation> {
        let left = drains::Left { at, store_now, node, how };
        self.drains.check(&left, &self.mirror, &self.runs)
    }

    /// A node's process ended, drained or not.
    pub fn on_process_ended(&mut self, node: NodeId) {
        self.drains.forget(node);
        self.shares.forget(node);
    }

    /// After the heal: what is not as it should be yet, the thing with the shortest bound first, and what it
    /// waits for. The world makes it a failure once that invariant's bound has passed.
    #[must_use]
    pub fn unfinished(&mut self, recovery: &Recovery<'_>) -> Option<Violation> {
        recovery::unfinished(&self.mirror, recovery)
    }
}
