//! Repairs of the sweep: under the leadership guard, each conditional on what was observed.
//!
//! The executions are locked before their outbox rows are read, so what is decided here holds until it is
//! written: an outbox row is made under its execution's lock. Rows go without it, so a row was dropped here only if
//! this deletion found it.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::execution::{AttemptEnd, CancelState, ExecutionState, LeaseSign};
use fencepost_core::id::{ExecutionId, NodeId};
use fencepost_core::lease::{HeldLease, LeaseResource, RunId, may_be_taken};
use fencepost_core::store::command::{OutboxId, Repair, RepairItem, TakeOverEnd};
use fencepost_core::store::reply::{RepairItemReply, RepairReply, Reply, StoreReply};
use fencepost_core::store::row::{RefusedAction, RefusedResource};
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};

use super::context::Context;
use super::deadlines::{self, Bounded};
use super::endings::{Attempts, DeadLetters};
use super::failures;
use super::fault::Fault;
use super::guard::Guards;
use super::limits;
use super::locked::{LockedExecution, LockedExecutions};
use super::outbox;
use super::overlap;
use super::refusals::Refusals;

/// One refusal is recorded for the whole command, however many items it has.
pub(super) async fn repair(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &Repair,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let guards = Guards::share(cx, &mut tx, [LeaseResource::Leadership]).await?;
    let held = HeldLease { resource: LeaseResource::Leadership, token: ask.leadership };
    if let Err(current) = guards.check(ask.node, held) {
        let mut refusals = Refusals::new(ask.node, RefusedAction::Repair);
        refusals.note(RefusedResource::Lease(LeaseResource::Leadership), ask.leadership, current);
        refusals.record(&mut tx, guards.now).await?;
        tx.commit().await?;
        return Ok(cx.reply(guards.now, Reply::Repaired(RepairReply::StaleLeadership { current })));
    }
    let executions: BTreeSet<ExecutionId> = ask.items.iter().filter_map(execution_of).collect();
    let bounded = deadlines::of(cx, &mut tx, ask.items.iter().filter_map(overdue)).await?;
    let ends = || ask.items.iter().filter_map(overdue).chain(ask.items.iter().filter_map(taken_over));
    let limited = limits::lock_tenants(&mut tx, ask.items.iter().filter_map(taken_over)).await?;
    let judged = overlap::lock_jobs_of_ends(&mut tx, ends()).await?;
    let locked = LockedExecutions::lock(&mut tx, executions.iter().copied()).await?;
    let mut repairs = Repairs {
        now: Timestamp::EPOCH,
        executions: locked,
        bounded,
        outbox: outbox::rows_of(&mut tx, executions).await?,
        dropped: BTreeSet::new(),
        nodes: present_nodes(&mut tx, &ask.items).await?,
        attempts: Attempts::default(),
        dead_letters: DeadLetters::default(),
        dispatched: BTreeSet::new(),
        retired: BTreeSet::new(),
    };
    let now = cx.clock(&mut tx).await?;
    repairs.now = Timestamp::from_micros(now);
    let mut replies = vec![RepairItemReply::Moved; ask.items.len()];
    // What waits past its deadline is ended before all else.
    for are_ended in [true, false] {
        for (item, reply) in ask.items.iter().zip(&mut replies) {
            if overdue(item).is_some() == are_ended {
                *reply = repairs.item(item);
            }
        }
    }
    let mut gone = outbox::delete(&mut tx, &repairs.dropped).await?;
    for (item, reply) in ask.items.iter().zip(&mut replies) {
        if let (RepairItem::DropOutbox { row }, RepairItemReply::Done) = (item, &reply)
            && !gone.remove(row)
        {
            *reply = RepairItemReply::Moved;
        }
    }
    let freed = overlap::among(&judged.all, repairs.executions.freed(ends()));
    let ended = repairs.executions.ended_runs(ask.items.iter().filter_map(taken_over));
    let failed = repairs.executions.failed();
    repairs.write(&mut tx, ask.node, now).await?;
    overlap::lift(&mut tx, &freed, now).await?;
    limits::give_back(&mut tx, &limited, &ended, now).await?;
    failures::judge(&mut tx, &judged.by_failures, &failed, now).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::Repaired(RepairReply::Applied(replies))))
}

fn taken_over(item: &RepairItem) -> Option<ExecutionId> {
    match item {
        RepairItem::TakeOver { run, .. } => Some(run.execution),
        RepairItem::Redispatch { .. }
        | RepairItem::DropOutbox { .. }
        | RepairItem::EndOverdue { .. }
        | RepairItem::RetireNode { .. } => None,
    }
}

fn overdue(item: &RepairItem) -> Option<ExecutionId> {
    match item {
        RepairItem::EndOverdue { run, .. } => Some(run.execution),
        RepairItem::TakeOver { .. }
        | RepairItem::Redispatch { .. }
        | RepairItem::DropOutbox { .. }
        | RepairItem::RetireNode { .. } => None,
    }
}

fn execution_of(item: &RepairItem) -> Option<ExecutionId> {
    match item {
        RepairItem::TakeOver { run, .. } | RepairItem::EndOverdue { run, .. } => Some(run.execution),
        RepairItem::Redispatch { dispatch } => Some(dispatch.execution),
        RepairItem::DropOutbox { row } => Some(row.execution),
        RepairItem::RetireNode { .. } => None,
    }
}

/// The nodes that are to be retired and are not offline, locked by id, with their latest report.
async fn present_nodes(
    conn: &mut PgConnection,
    items: &[RepairItem],
) -> Result<BTreeMap<NodeId, Timestamp>, Fault> {
    let mut ids = Vec::new();
    for item in items {
        match item {
            RepairItem::RetireNode { node, .. } => ids.push(node.as_uuid()),
            RepairItem::TakeOver { .. }
            | RepairItem::Redispatch { .. }
            | RepairItem::DropOutbox { .. }
            | RepairItem::EndOverdue { .. } => {}
        }
    }
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows = sqlx::query!(
        "SELECT n.id, n.seen_at FROM node n WHERE n.id = ANY($1) AND n.state <> 'offline'
         ORDER BY n.id FOR NO KEY UPDATE",
        &ids,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (NodeId::from_uuid(row.id), Timestamp::from_micros(row.seen_at))).collect())
}

/// The rows under lock, and what the repairs make of them.
struct Repairs {
    now: Timestamp,
    executions: LockedExecutions,
    /// Those of them with a deadline that are to be ended.
    bounded: BTreeMap<ExecutionId, Bounded>,
    outbox: BTreeSet<OutboxId>,
    /// To go, if nobody else takes them first.
    dropped: BTreeSet<OutboxId>,
    nodes: BTreeMap<NodeId, Timestamp>,
    attempts: Attempts,
    dead_letters: DeadLetters,
    dispatched: BTreeSet<ExecutionId>,
    retired: BTreeSet<NodeId>,
}

impl Repairs {
    fn item(&mut self, item: &RepairItem) -> RepairItemReply {
        let done = match item {
            RepairItem::TakeOver { run, cancel, sign, end } => self.take_over(*run, *cancel, *sign, *end),
            RepairItem::Redispatch { dispatch } => self.redispatch(*dispatch),
            RepairItem::DropOutbox { row } => self.drop_outbox(*row),
            RepairItem::EndOverdue { run, state } => self.end_overdue(*run, *state),
            RepairItem::RetireNode { node, seen_at } => self.retire_node(*node, *seen_at),
        };
        done.map_or(RepairItemReply::Moved, |()| RepairItemReply::Done)
    }

    fn take_over(
        &mut self,
        run: RunId,
        cancel: CancelState,
        sign: LeaseSign,
        end: TakeOverEnd,
    ) -> Option<()> {
        let now = self.now;
        let is_observed = |row: &&mut LockedExecution| {
            row.state == ExecutionState::Running
                && row.token == run.token
                && row.cancel == cancel
                && row.sign == sign
                && may_be_taken(row.expires_at, now)
        };
        let row = self.executions.get_mut(run.execution).filter(is_observed)?;
        self.attempts.add(row, AttemptEnd::Lost, None);
        match sign {
            LeaseSign::Started => row.rescues = row.rescues.saturating_add(1),
            LeaseSign::None => row.lost_starts = row.lost_starts.saturating_add(1),
        }
        match end {
            TakeOverEnd::Retry(delay) => row.set_back(now.plus(delay)),
            TakeOverEnd::Cancelled => row.settle(ExecutionState::Cancelled, now),
            TakeOverEnd::DeadLettered(reason) => {
                row.settle(ExecutionState::DeadLettered, now);
                self.dead_letters.add(row, reason);
            }
            TakeOverEnd::Failed => row.settle(ExecutionState::Failed, now),
        }
        Some(())
    }

    fn end_overdue(&mut self, run: RunId, state: ExecutionState) -> Option<()> {
        let bounded = self.bounded.get(&run.execution)?;
        let now = self.now;
        let is_observed = |row: &&mut LockedExecution| {
            row.token == run.token && row.state == state && bounded.is_overdue(row, now)
        };
        let row = self.executions.get_mut(run.execution).filter(is_observed)?;
        bounded.end(row, now, &mut self.dead_letters);
        Some(())
    }

    fn redispatch(&mut self, dispatch: OutboxId) -> Option<()> {
        let has_row = self.outbox.iter().any(|row| row.execution == dispatch.execution);
        let is_observed =
            |row: &&mut LockedExecution| row.awaits(dispatch) && row.waiting.is_none() && !has_row;
        let row = self.executions.get_mut(dispatch.execution).filter(is_observed)?;
        row.dispatch(self.now);
        row.redispatches = row.redispatches.saturating_add(1);
        self.outbox.insert(OutboxId { execution: row.id, dispatch_no: row.dispatch_no });
        self.dispatched.insert(row.id);
        Some(())
    }

    fn drop_outbox(&mut self, id: OutboxId) -> Option<()> {
        self.executions.get(id.execution).filter(|row| row.state.is_terminal())?;
        if !self.outbox.remove(&id) {
            return None;
        }
        self.dropped.insert(id);
        Some(())
    }

    fn retire_node(&mut self, node: NodeId, seen_at: Timestamp) -> Option<()> {
        if self.nodes.get(&node) != Some(&seen_at) {
            return None;
        }
        self.nodes.remove(&node);
        self.retired.insert(node);
        Some(())
    }

    async fn write(self, conn: &mut PgConnection, node: NodeId, now: i64) -> Result<(), Fault> {
        let dispatched: Vec<LockedExecution> =
            self.dispatched.iter().filter_map(|id| self.executions.get(*id).cloned()).collect();
        self.executions.write(conn).await?;
        self.attempts.record(conn, now).await?;
        self.dead_letters.record(conn, now).await?;
        outbox::insert(conn, node, &dispatched.iter().collect::<Vec<_>>(), now).await?;
        if !self.retired.is_empty() {
            sqlx::query!(
                "UPDATE node SET state = 'offline' WHERE id = ANY($1)",
                &self.retired.iter().map(|id| id.as_uuid()).collect::<Vec<_>>(),
            )
            .execute(&mut *conn)
            .await?;
        }
        Ok(())
    }
}
