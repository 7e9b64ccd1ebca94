//! Execution leases: asked for in batches, renewed in batches, trusted for a while.
//!
//! - **Asking.** One acquire at a time, of as many executions as there are free slots, in the turns of their priorities;
//!   what arrives meanwhile makes the next one, for which a few alone wait a moment longer. The nonce of an execution is the first call that carried it and stays
//!   with it: sent again after an unknown outcome, it gets the very grant that the first may have got.
//! - **Trust.** A grant is trusted until `sent_at + ttl − margin` on this worker's own clock, counted from
//!   the *first* sending under its nonce, since the store may have granted it then and a repeated answer
//!   does not extend it. A grant that arrives too late to be trusted is given back, not run. No handler is
//!   ever started under a lease that is not trusted.
//! - **Renewal.** One renewal at a time, of all leases that come due about now; each is counted from the
//!   sending of its renewal from then on. Runs whose outcome is decided are not renewed: the finish is on
//!   its way, and a renewal behind it would only be refused.
//! - **Trust ends** for want of a renewal in time: the handler is told to stop and nothing more is renewed.
//!   Its result, should it still end, is sent all the same: the token decides, and the outcome matters.
//!   If it stops, the worker stays silent and the store's sweep takes over.
//! - **A refused renewal** means that the run is somebody else's or over: the handler is told to stop and
//!   the run is forgotten, since its finish could only be refused.
//!
//! One ordered set by (counted from, run) serves renewal and trust alike: both are a fixed span later.

use std::collections::BTreeSet;

use crate::bug::Bug;
use crate::effect::{StopReason, WorkerEffect};
use crate::execution::{CancelState, DeadLetterReason, ExecutionState};
use crate::fact::Fact;
use crate::fencing::FencingToken;
use crate::id::{EffectId, ExecutionId};
use crate::lease::RunId;
use crate::mark::{self, Mark};
use crate::store::StoreOutcome;
use crate::store::command::{AcquireExecution, AcquireExecutions, Command, RenewExecutions, RunOutcome};
use crate::store::reply::{AcquireReply, Grant, RenewReply, Reply, StoreReply};
use crate::store::row::{RefusedAction, RefusedResource};
use crate::time::{Monotonic, Span};
use crate::worker::calls::{Cadence, Line};
use crate::worker::drain::Phase;
use crate::worker::intake::{Asked, FirstAsk};
use crate::worker::run::Stage;
use crate::worker::{Worker, verdict};

/// Leases coming due within this part of the renewal interval are renewed together.
const COALESCE_DIVISOR: u64 = 4;

/// What is asked for and what is held.
#[derive(Debug)]
pub(super) struct Leases {
    pub(super) acquiring: Line<Vec<ExecutionId>>,
    acquires: Cadence,
    pub(super) renewing: Line<Vec<RunId>>,
    /// The leases that are held and renewed, by the sending that they are counted from.
    held: BTreeSet<(Monotonic, RunId)>,
}

impl Leases {
    pub(super) const fn new() -> Self {
        Self {
            acquiring: Line::new(),
            acquires: Cadence::new(),
            renewing: Line::new(),
            held: BTreeSet::new(),
        }
    }

    /// Holds a lease counted from `basis`: it will be renewed.
    pub(super) fn hold(&mut self, basis: Monotonic, id: RunId) {
        self.held.insert((basis, id));
    }

    /// Renews a lease no more; whether it was held.
    pub(super) fn let_lapse(&mut self, basis: Monotonic, id: RunId) -> bool {
        self.held.remove(&(basis, id))
    }

    fn oldest_basis(&self) -> Option<Monotonic> {
        self.held.first().map(|(basis, _)| *basis)
    }
}

impl Worker {
    /// When the next renewal is due, unless one is under way.
    pub(super) fn renews_at(&self) -> Option<Monotonic> {
        let due = self.leases.oldest_basis()?.plus(self.config.renew_every);
        self.leases.renewing.free_at().map(|free| free.max(due))
    }

    /// When the next lease is trusted no longer.
    pub(super) fn trust_ends_at(&self) -> Option<Monotonic> {
        self.leases.oldest_basis().map(|basis| self.trusted_until(basis))
    }

    /// When the next leases are to be asked for, unless that waits for an outcome or for a slot.
    pub(super) fn acquires_at(&self) -> Option<Monotonic> {
        let items = self.intake.queued().min(self.free_slots());
        let free_at = self.leases.acquiring.free_at().filter(|_| items > 0)?;
        Some(free_at.max(self.worth_sending_at(self.leases.acquires, items)))
    }

    fn trusted_until(&self, basis: Monotonic) -> Monotonic {
        self.config.trust.trusted_until(basis, self.config.lease_ttl)
    }

    /// How many more executions may be asked for.
    fn free_slots(&self) -> usize {
        let slots = usize::try_from(self.slots()).unwrap_or(usize::MAX);
        slots.saturating_sub(self.runs.holding_slots())
    }

    /// Asks for the next leases, if no acquire is under way and slots are free.
    pub(super) fn send_acquire(&mut self, now: Monotonic) {
        if self.acquires_at().is_none_or(|at| at > now) {
            return;
        }
        let most = self.batch().min(self.free_slots());
        let id = self.next_call();
        let mut executions = Vec::new();
        let mut items = Vec::new();
        while items.len() < most
            && let Some((execution, asked)) = self.intake.next(self.config.bugs)
        {
            let first = *asked.first.get_or_insert(FirstAsk { nonce: id, sent_at: now });
            executions.push(execution);
            items.push(AcquireExecution {
                execution,
                nonce: first.nonce,
                published_at: asked.arrival.message.published_at(),
                held: now.since(asked.arrival.received_at),
            });
        }
        let (node, ttl) = (self.config.node, self.config.lease_ttl);
        let id = self.call(Command::AcquireExecutions(AcquireExecutions { node, ttl, items }));
        self.leases.acquiring.begin(id, now, executions);
        self.leases.acquires.sent(now);
    }

    /// The store answered an `AcquireExecutions`.
    pub(super) fn acquired(
        &mut self,
        now: Monotonic,
        sent_at: Monotonic,
        executions: Vec<ExecutionId>,
        outcome: StoreOutcome,
    ) {
        let replies = match outcome {
            StoreOutcome::Replied(StoreReply { reply: Reply::Acquired(replies), .. })
                if replies.len() == executions.len() =>
            {
                replies
            }
            StoreOutcome::Replied(_) | StoreOutcome::Unknown => {
                self.acquire_unknown(now, executions);
                return;
            }
        };
        for (execution, reply) in executions.into_iter().zip(replies) {
            let asked = self.intake.answered(execution).expect("what is under way is asked for");
            self.acquire_answered(now, sent_at, asked, reply);
            self.unpark(execution);
        }
    }

    fn acquire_unknown(&mut self, now: Monotonic, executions: Vec<ExecutionId>) {
        let patience = self.unknown(now);
        if self.config.bugs.has(Bug::UnknownAcquireAwaited) {
            self.leases.acquiring.begin(EffectId::default(), now, executions);
            return;
        }
        self.leases.acquiring.pause(patience);
        match self.phase {
            Phase::Active => self.intake.put_back(&executions),
            // Not asked for again: a grant that came of it lapses, and the sweep finds it.
            Phase::New | Phase::Draining(_) | Phase::Drained => {
                for execution in executions {
                    self.intake.answered(execution);
                }
            }
        }
    }

    fn acquire_answered(&mut self, now: Monotonic, sent_at: Monotonic, asked: Asked, reply: AcquireReply) {
        let execution = asked.arrival.message.execution;
        match reply {
            AcquireReply::Granted(grant) => self.granted(now, sent_at, asked, &grant),
            AcquireReply::Never { state: ExecutionState::Running }
                if self.config.bugs.has(Bug::StartsWithoutLease) =>
            {
                let grant = Grant {
                    token: FencingToken::NEVER,
                    attempts: 0,
                    age: Span::ZERO,
                    left: None,
                    cancel: CancelState::None,
                };
                self.granted(now, sent_at, asked, &grant);
            }
            AcquireReply::Never { .. } | AcquireReply::Absent => {
                self.intake.turn_in_vain(asked.arrival.message.priority);
                self.drop_message(execution, asked.arrival.delivery);
            }
            // Why it waits is recorded; another dispatch will come.
            AcquireReply::NotNow { .. } => {
                self.intake.turn_in_vain(asked.arrival.message.priority);
                self.acknowledge(asked.arrival.delivery);
            }
        }
    }

    fn granted(&mut self, now: Monotonic, sent_at: Monotonic, asked: Asked, grant: &Grant) {
        let id = RunId { execution: asked.arrival.message.execution, token: grant.token };
        let basis = asked.first.map_or(sent_at, |first| first.sent_at);
        let priority = asked.arrival.message.priority;
        if self.runs.get(id).is_some() {
            self.intake.turn_in_vain(priority);
            self.acknowledge(asked.arrival.delivery);
            return;
        }
        self.supersede(now, id);
        let give_back = match (grant.cancel, self.phase) {
            (CancelState::Requested, _) => Some(RunOutcome::Cancelled),
            (CancelState::None, Phase::New | Phase::Draining(_) | Phase::Drained) => {
                Some(RunOutcome::Released)
            }
            (CancelState::None, Phase::Active) if self.trusted_until(basis) <= now => {
                mark::hit(Mark::GrantTooLate);
                Some(RunOutcome::Released)
            }
            (CancelState::None, Phase::Active) if grant.left.is_some_and(|left| basis.plus(left) <= now) => {
                let error = "the deadline passed before its handler could start".into();
                let kept = asked.arrival.message.dead_letter;
                Some(verdict::given_up(kept, DeadLetterReason::Deadline, error, self.config.bugs))
            }
            (CancelState::None, Phase::Active) => None,
        };
        match give_back {
            Some(outcome) => {
                self.intake.turn_in_vain(priority);
                self.give_back(now, id, asked.arrival, outcome);
            }
            None => {
                self.intake.turn_started(priority);
                self.start(now, id, asked.arrival, grant, sent_at, basis);
            }
        }
    }

    /// A newer lease of an execution ends every older run of it here that has no outcome yet.
    fn supersede(&mut self, now: Monotonic, newer: RunId) {
        while let Some(older) = self.runs.undecided_before(newer) {
            self.lose(now, older);
        }
    }

    /// Renews all leases that come due about now.
    pub(super) fn send_renewal(&mut self, now: Monotonic) {
        if self.renews_at().is_none_or(|at| at > now) {
            return;
        }
        let every = self.config.renew_every;
        let horizon = now.plus(every.divided_by(COALESCE_DIVISOR));
        let due = self.leases.held.iter().take_while(|(basis, _)| basis.plus(every) <= horizon);
        let runs: Vec<RunId> = due.take(self.batch()).map(|(_, id)| *id).collect();
        let (node, ttl) = (self.config.node, self.config.lease_ttl);
        let id = self.call(Command::RenewExecutions(RenewExecutions { node, ttl, runs: runs.clone() }));
        self.leases.renewing.begin(id, now, runs);
    }

    /// The store answered a `RenewExecutions`.
    pub(super) fn renewed(
        &mut self,
        now: Monotonic,
        sent_at: Monotonic,
        runs: &[RunId],
        outcome: StoreOutcome,
    ) {
        let replies = match outcome {
            StoreOutcome::Replied(StoreReply { reply: Reply::RunsRenewed(replies), .. })
                if replies.len() == runs.len() =>
            {
                replies
            }
            StoreOutcome::Replied(_) | StoreOutcome::Unknown => {
                let patience = self.unknown(now);
                self.leases.renewing.pause(patience);
                return;
            }
        };
        for (id, reply) in runs.iter().zip(replies) {
            self.renewal_answered(now, sent_at, *id, &reply);
        }
    }

    fn renewal_answered(&mut self, now: Monotonic, sent_at: Monotonic, id: RunId, reply: &RenewReply) {
        let Some(run) = self.runs.get_mut(id) else { return };
        // Decided or given up since: whatever the renewal says, the finish or the sweep has the last word.
        if !self.leases.let_lapse(run.basis, id) {
            return;
        }
        match reply {
            RenewReply::Renewed { cancel } => {
                run.basis = sent_at;
                self.leases.hold(sent_at, id);
                if *cancel == CancelState::Requested && run.stage == Stage::Running {
                    run.stage = Stage::Cancelling;
                    let reason = StopReason::Cancelled;
                    self.effects.push_back(WorkerEffect::StopHandler { run: id, reason });
                }
            }
            RenewReply::Refused { current, .. } => {
                self.refused(id, RefusedAction::RenewExecution, *current);
                self.lose(now, id);
            }
            RenewReply::Absent => self.lose(now, id),
        }
    }

    /// Leases that were not renewed in time are trusted no longer.
    pub(super) fn end_trust(&mut self, now: Monotonic) {
        while let Some((basis, id)) = self.leases.held.first().copied()
            && self.trusted_until(basis) <= now
        {
            self.leases.held.pop_first();
            let Some(run) = self.runs.get_mut(id) else { continue };
            match run.stage {
                Stage::Running => {
                    mark::hit(Mark::TrustEnded);
                    run.stage = Stage::Lapsed;
                    let reason = StopReason::LeaseLost;
                    self.effects.push_back(WorkerEffect::StopHandler { run: id, reason });
                }
                // It is being stopped already, and what it was stopped for still decides its outcome.
                Stage::Cancelling | Stage::Draining => {}
                Stage::Lapsed | Stage::Ended => {}
            }
        }
    }

    /// The run is no longer this worker's: its handler is told to stop, and whatever it says is moot.
    fn lose(&mut self, now: Monotonic, id: RunId) {
        let Some(run) = self.forget(id) else { return };
        match run.stage {
            Stage::Running | Stage::Cancelling | Stage::Draining => {
                let reason = StopReason::LeaseLost;
                self.effects.push_back(WorkerEffect::StopHandler { run: id, reason });
            }
            Stage::Lapsed => {}
            Stage::Ended => return,
        }
        self.runs.linger(id, now.plus(self.config.lease_ttl));
    }

    /// Reports a write that was refused.
    pub(super) fn refused(&mut self, id: RunId, action: RefusedAction, current: FencingToken) {
        let resource = RefusedResource::Execution(id.execution);
        self.report(Fact::WriteRefused { resource, action, presented: id.token, current });
    }
}
