//! The sweep: what it finds, and its repairs, each conditional on what was observed.
//!
//! A scan decides nothing and a repair looks again, so a repair that arrives late, or twice, finds what it
//! observed gone and does nothing. Repairs never make the system correct, they only make it finish.

use crate::bug::Bug;
use crate::execution::{AttemptEnd, CancelState, ExecutionState, LeaseSign};
use crate::id::{ExecutionId, NodeId};
use crate::lease::{HeldLease, LeaseResource, RunId, may_be_taken};
use crate::limits::{LEASE_TTL_MAX, LIVENESS_AHEAD_MAX};
use crate::mark::{self, Mark};
use crate::store::command::{OutboxId, Repair, RepairItem, ScanSweep, TakeOverEnd};
use crate::store::reference::Call;
use crate::store::reply::{ExpiredRun, RepairItemReply, RepairReply, SweepFindings};
use crate::store::row::{ExecutionRow, NodeRow, NodeState, RefusedAction};
use crate::time::Timestamp;

impl Call<'_> {
    /// Reads; whatever is found may have been repaired by the time a repair arrives.
    pub(super) fn scan_sweep(&self, ask: &ScanSweep) -> SweepFindings {
        let limit = ask.limit as usize;
        let is_stale = |row: &&NodeRow| {
            row.seen_at.plus(ask.node_stale_after) <= self.now
                || row.seen_at > self.now.plus(LIVENESS_AHEAD_MAX)
        };
        let nodes = self.tables.present_nodes();
        let stale = nodes.filter_map(|id| self.tables.nodes.get(&id)).filter(is_stale);
        let delivery = self.tables.delivery();
        let undelivered = delivery.undelivered(ask.redispatch_after, self.now, limit);
        SweepFindings {
            expired: self.expired().take(limit).map(|id| self.describe_expired(id)).collect(),
            undelivered: undelivered.into_iter().map(|id| self.latest_dispatch(id)).collect(),
            settled: delivery.settled().take(limit).collect(),
            overdue: self.overdue(limit),
            stale_nodes: stale.take(limit).map(|row| (row.id, row.seen_at)).collect(),
        }
    }

    /// Runs whose lease may be taken, by (`expires_at`, `id`): those that lapsed, then those that reach
    /// further ahead than any lease does.
    fn expired(&self) -> impl Iterator<Item = ExecutionId> {
        let running = &self.tables.executions().index().running;
        let until = if self.bugs.has(Bug::TakeOverIgnoresExpiry) { Timestamp::MAX } else { self.now };
        let nothing = self.bugs.has(Bug::SweepFindsNothingExpired);
        let ahead = self.now.max(until).plus(LEASE_TTL_MAX);
        let lapsed = running.iter().take_while(move |(at, _)| *at <= until);
        let first_ahead = (ahead, ExecutionId::from_u128(u128::MAX));
        let too_far = running.range(first_ahead..).filter(move |(at, _)| *at > ahead);
        lapsed.chain(too_far).map(|(_, id)| *id).filter(move |_| !nothing)
    }

    fn describe_expired(&self, id: ExecutionId) -> ExpiredRun {
        let row = self.tables.executions().get(&id).expect("the index names rows of its table");
        let version = self
            .tables
            .job_versions
            .get(&(row.job, row.job_version))
            .expect("a job's versions are kept as long as its executions");
        ExpiredRun {
            run: RunId { execution: row.id, token: row.token },
            cancel: row.cancel,
            sign: row.sign,
            rescues: row.rescues,
            lost_starts: row.lost_starts,
            left: row.deadline_at.map(|at| at.since(self.now)),
            definition: version.definition.clone(),
        }
    }

    fn latest_dispatch(&self, execution: ExecutionId) -> OutboxId {
        let row = self.tables.executions().get(&execution).expect("the index names rows of its table");
        OutboxId { execution, dispatch_no: row.dispatch_no }
    }

    /// One refusal is recorded for the whole command, however many items it has.
    pub(super) fn repair(&mut self, ask: &Repair) -> RepairReply {
        let held = HeldLease { resource: LeaseResource::Leadership, token: ask.leadership };
        if let Err(current) = self.guard_recorded(ask.node, held, RefusedAction::Repair) {
            mark::hit(Mark::RepairRefused);
            return RepairReply::StaleLeadership { current };
        }
        let ended = self.repair_overdue(&ask.items);
        let replies: Vec<RepairItemReply> = ask
            .items
            .iter()
            .zip(ended)
            .map(|(item, is_ended)| self.repair_item(ask.node, item, is_ended))
            .collect();
        let failed: Vec<ExecutionId> = ask.items.iter().zip(&replies).filter_map(given_up).collect();
        self.judge_failures(&failed);
        RepairReply::Applied(replies)
    }

    /// What waited past its deadline has been ended before.
    fn repair_item(&mut self, node: NodeId, item: &RepairItem, is_ended: bool) -> RepairItemReply {
        let done = match item {
            RepairItem::TakeOver { run, cancel, sign, end } => self.take_over(*run, *cancel, *sign, *end),
            RepairItem::Redispatch { dispatch } => self.redispatch(node, *dispatch),
            RepairItem::DropOutbox { row } => self.drop_outbox(*row),
            RepairItem::EndOverdue { .. } => is_ended.then_some(()),
            RepairItem::RetireNode { node, seen_at } => self.retire_node(*node, *seen_at),
        };
        match done {
            Some(()) => RepairItemReply::Done,
            None => {
                mark::hit(Mark::RepairMoved);
                RepairItemReply::Moved
            }
        }
    }

    /// The run as observed, if it is still so and its lease may be taken.
    fn observed_run(&self, run: RunId, cancel: CancelState, sign: LeaseSign) -> Option<&ExecutionRow> {
        let row = self.tables.executions().get(&run.execution)?;
        let is_observed = row.token == run.token && row.cancel == cancel && row.sign == sign;
        let is_over = may_be_taken(row.expires_at, self.now) || self.bugs.has(Bug::TakeOverIgnoresExpiry);
        let still_so = (is_observed && is_over) || self.bugs.has(Bug::TakeOverIgnoresObserved);
        (row.state == ExecutionState::Running && still_so).then_some(row)
    }

    /// The lost lease counts on its own budget and not as an attempt, whatever becomes of the execution; the
    /// dead letter carries the execution's latest error. What the caller decided is applied as it is: what
    /// was observed is what it decided on.
    fn take_over(
        &mut self,
        run: RunId,
        cancel: CancelState,
        sign: LeaseSign,
        end: TakeOverEnd,
    ) -> Option<()> {
        let mut row = self.observed_run(run, cancel, sign)?.clone();
        self.record_attempt(&row, row.owner, AttemptEnd::Lost, None);
        match sign {
            LeaseSign::Started if !self.bugs.has(Bug::LossesOnOneBudget) => {
                mark::hit(Mark::LostAfterSign);
                row.rescues = row.rescues.saturating_add(1);
            }
            LeaseSign::Started | LeaseSign::None => {
                mark::hit(Mark::LostWithoutSign);
                row.lost_starts = row.lost_starts.saturating_add(1);
            }
        }
        match end {
            TakeOverEnd::Retry(delay) => self.set_back(&mut row, self.now.plus(delay)),
            TakeOverEnd::Cancelled => self.settle(&mut row, ExecutionState::Cancelled),
            TakeOverEnd::DeadLettered(reason) => {
                self.settle(&mut row, ExecutionState::DeadLettered);
                self.record_dead_letter(&row, reason);
            }
            TakeOverEnd::Failed => self.settle(&mut row, ExecutionState::Failed),
        }
        self.tables.put_execution(row.clone(), self.changes);
        self.free_slot(&row);
        self.free_limits(&row);
        Some(())
    }

    fn redispatch(&mut self, node: NodeId, dispatch: OutboxId) -> Option<()> {
        let row = self.tables.executions().get(&dispatch.execution)?;
        let is_observed = Self::is_awaited(row, dispatch)
            && row.waiting.is_none()
            && self.tables.outbox_of(row.id).next().is_none();
        let ignores = self.bugs.has(Bug::RedispatchIgnoresObserved) && row.state == ExecutionState::Pending;
        if !is_observed && !ignores {
            return None;
        }
        mark::hit(Mark::Redispatched);
        let mut row = row.clone();
        self.dispatch(&mut row);
        row.redispatches = row.redispatches.saturating_add(1);
        let outbox = self.outbox_row(&row, node);
        self.tables.put_execution(row, self.changes);
        self.tables.put_outbox(outbox, self.changes);
        Some(())
    }

    fn drop_outbox(&mut self, id: OutboxId) -> Option<()> {
        let execution = self.tables.executions().get(&id.execution)?;
        if !execution.state.is_terminal() || !self.tables.remove_outbox(id, self.changes) {
            return None;
        }
        mark::hit(Mark::SettledDropped);
        if self.bugs.has(Bug::SweepDropsExecutions) {
            self.tables.remove_ended(id.execution, self.changes);
        }
        Some(())
    }

    /// A node that is offline already is not as it was observed.
    fn retire_node(&mut self, node: NodeId, seen_at: Timestamp) -> Option<()> {
        let row = self.tables.nodes.get(&node)?;
        if row.seen_at != seen_at || row.state == NodeState::Offline {
            return None;
        }
        mark::hit(Mark::NodeRetired);
        let row = NodeRow { state: NodeState::Offline, ..row.clone() };
        self.tables.nodes.put(row, self.changes);
        Some(())
    }
}

/// The execution that a repair made a failure of.
fn given_up((item, reply): (&RepairItem, &RepairItemReply)) -> Option<ExecutionId> {
    match (item, reply) {
        (
            RepairItem::TakeOver { run, end: TakeOverEnd::DeadLettered(_) | TakeOverEnd::Failed, .. }
            | RepairItem::EndOverdue { run, .. },
            RepairItemReply::Done,
        ) => Some(run.execution),
        (_, RepairItemReply::Done | RepairItemReply::Moved) => None,
    }
}
