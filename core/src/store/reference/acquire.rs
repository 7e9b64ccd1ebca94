//! Execution leases: how they are granted, renewed, and put off.
//!
//! Only `Pending` is granted, waiting or not, but nothing of a paused job's fires, nothing of what a paused tenant or
//! queue has, and nothing against the overlap policy of its version (`overlap`): an older dispatch may start what a
//! newer one is on its way
//! for. The nonce stays in the row when the lease has ended, so that a late resend of the acquire that began
//! it is told "never" instead of beginning another run.

use crate::bug::Bug;
use crate::execution::{CancelState, ExecutionState, LeaseSign, WaitReason};
use crate::fencing::FencingToken;
use crate::id::Occurrence;
use crate::job::Standing;
use crate::lease::{RunId, may_be_taken};
use crate::limits::PAUSE_RECHECK;
use crate::mark::{self, Mark};
use crate::store::command::{AcquireExecution, AcquireExecutions, DeferExecutions, RenewExecutions};
use crate::store::reference::Call;
use crate::store::reference::overlap::Overlapping;
use crate::store::reply::{AcquireReply, DeferReply, Grant, RenewReply};
use crate::store::row::{ExecutionRow, RefusedAction, RefusedResource};
use crate::time::{Span, Timestamp};

/// After how much silence the bug of that name gives a worker nothing to run.
const SILENCE: Span = Span::from_secs(10);

/// The grant that stands in the row. Its age counts up to the lease's own stamp, so that a repeated answer
/// is the same answer.
fn grant_of(row: &ExecutionRow) -> Grant {
    let leased_at = leased_at(row);
    Grant {
        token: row.token,
        attempts: row.attempts,
        age: leased_at.since(row.due_at),
        left: row.deadline_at.map(|at| at.since(leased_at)),
        cancel: row.cancel,
    }
}

/// The stamp of the latest lease.
pub(super) fn leased_at(row: &ExecutionRow) -> Timestamp {
    row.leased_at.expect("what was leased has the stamp of its lease")
}

impl Call<'_> {
    /// Item by item; then those that wait past their deadline; then the jobs of those are looked at.
    pub(super) fn acquire_executions(&mut self, ask: &AcquireExecutions) -> Vec<AcquireReply> {
        let mut overdue = Vec::new();
        let mut replies = Vec::with_capacity(ask.items.len());
        for (at, item) in ask.items.iter().enumerate() {
            let row = self.tables.executions().get(&item.execution);
            if row.is_some_and(|row| self.is_too_late(ask, item, row)) {
                overdue.push(at);
            }
            // One that is too late has its answer below.
            let is_late = overdue.last() == Some(&at);
            replies.push(if is_late { AcquireReply::Absent } else { self.acquire_execution(ask, item) });
        }
        if overdue.is_empty() {
            return replies;
        }
        // What the others were granted may have ended it.
        let late = |call: &Self, row: &ExecutionRow| {
            let mut items = overdue.iter().map(|at| &ask.items[*at]);
            items.any(|item| item.execution == row.id && call.is_too_late(ask, item, row))
        };
        let ended = self.end_all_overdue(overdue.iter().map(|at| ask.items[*at].execution), late);
        for at in overdue {
            let item = &ask.items[at];
            let row = self.tables.executions().get(&item.execution);
            replies[at] = match row.filter(|row| ended.contains(&row.id)) {
                Some(row) => AcquireReply::Never { state: row.state },
                None => self.acquire_execution(ask, item),
            };
        }
        self.judge_failures(&ended);
        replies
    }

    /// Whether an execution that is pending is asked for after its deadline, and not by a resend.
    fn is_too_late(&self, ask: &AcquireExecutions, item: &AcquireExecution, row: &ExecutionRow) -> bool {
        let is_resent = row.nonce_node == Some(ask.node) && row.nonce == item.nonce;
        row.deadline_at.is_some()
            && row.state == ExecutionState::Pending
            && !is_resent
            && self.is_overdue(row)
            && !self.bugs.has(Bug::AcquireIgnoresDeadline)
    }

    fn acquire_execution(&mut self, ask: &AcquireExecutions, item: &AcquireExecution) -> AcquireReply {
        let Some(row) = self.tables.executions().get(&item.execution) else { return AcquireReply::Absent };
        let state = row.state;
        let is_running = state == ExecutionState::Running;
        let runs_on = is_running && !may_be_taken(row.expires_at, self.now);
        if row.nonce_node == Some(ask.node) && row.nonce == item.nonce {
            if runs_on {
                mark::hit(Mark::AcquireRepeated);
                return AcquireReply::Granted(self.repeat(ask, item));
            }
            mark::hit(Mark::AcquireResendRefused);
            return AcquireReply::Never { state };
        }
        if runs_on && self.bugs.has(Bug::AcquireIgnoresNonce) {
            return AcquireReply::Granted(grant_of(row));
        }
        if self.bugs.has(Bug::SilentWorkerGetsNothing) && self.is_silent(ask.node, SILENCE) {
            return AcquireReply::NotNow { state };
        }
        match state {
            ExecutionState::Pending if self.is_held_back(item) => {
                mark::hit(Mark::AcquireMetPause);
                self.hold_back(item);
                AcquireReply::NotNow { state }
            }
            ExecutionState::Pending => match self.pause_over(row) {
                Some((pause, reason)) => {
                    let row = row.clone();
                    self.hold_for_pause(&row, pause, reason);
                    AcquireReply::NotNow { state }
                }
                None => match self.judge_overlap(item.execution) {
                    Overlapping::Grant if self.waits_for_limit(item.execution) => {
                        AcquireReply::NotNow { state }
                    }
                    Overlapping::Grant => self.grant_execution(ask, item),
                    Overlapping::PassedOver => AcquireReply::Never { state: ExecutionState::Skipped },
                    Overlapping::Waits => AcquireReply::NotNow { state },
                },
            },
            ExecutionState::RetryWait => {
                mark::hit(Mark::AcquireTooEarly);
                AcquireReply::NotNow { state }
            }
            ExecutionState::Completed if self.bugs.has(Bug::AcquireRunsEndedAgain) => {
                self.grant_execution(ask, item)
            }
            ExecutionState::Running => {
                mark::hit(Mark::AcquireMetRunning);
                AcquireReply::Never { state }
            }
            ExecutionState::Completed
            | ExecutionState::DeadLettered
            | ExecutionState::Failed
            | ExecutionState::Cancelled
            | ExecutionState::Skipped => {
                mark::hit(Mark::AcquireMetEnded);
                AcquireReply::Never { state }
            }
        }
    }

    /// Whether it is of a fire, and its job is paused. What somebody asked for by hand is not held back.
    fn is_held_back(&self, item: &AcquireExecution) -> bool {
        let row = self.tables.executions().get(&item.execution).expect("the caller has read it");
        let of_a_fire = match row.occurrence {
            Occurrence::Scheduled { .. } => true,
            Occurrence::Manual { .. } | Occurrence::Replay { .. } => false,
        };
        let job = self.tables.jobs.get(&row.job);
        of_a_fire
            && job.is_some_and(|job| job.standing == Standing::Paused)
            && !self.bugs.has(Bug::AcquireIgnoresPause)
    }

    /// One that waits already keeps its reason and its time.
    fn hold_back(&mut self, item: &AcquireExecution) {
        let row = self.tables.executions().get(&item.execution).expect("the caller has read it");
        if row.waiting.is_none() {
            let row = ExecutionRow {
                waiting: Some(WaitReason::JobPaused),
                next_try_at: Some(self.now.plus(PAUSE_RECHECK)),
                ..row.clone()
            };
            self.tables.put_execution(row, self.changes);
        }
    }

    /// The grant that stands, as it stands.
    fn repeat(&mut self, ask: &AcquireExecutions, item: &AcquireExecution) -> Grant {
        let row = self.tables.executions().get(&item.execution).expect("the caller has read it");
        let grant = grant_of(row);
        if self.bugs.has(Bug::RepeatedAcquireExtends) {
            let row = ExecutionRow { expires_at: self.now.plus(ask.ttl), ..row.clone() };
            self.tables.put_execution(row, self.changes);
        }
        grant
    }

    /// An execution whose token cannot rise is granted to nobody, and no message will change that.
    fn grant_execution(&mut self, ask: &AcquireExecutions, item: &AcquireExecution) -> AcquireReply {
        let row = self.tables.executions().get(&item.execution).expect("the caller has read it");
        let token = match row.token.next() {
            None => return AcquireReply::Never { state: row.state },
            Some(_) if self.bugs.has(Bug::AcquireKeepsToken) && row.token != FencingToken::NEVER => row.token,
            Some(next) => next,
        };
        if row.waiting.is_some() {
            mark::hit(Mark::WaitingStarted);
        }
        let mut row = row.clone();
        self.transition(&mut row, ExecutionState::Running);
        row.token = token;
        row.owner = Some(ask.node);
        row.nonce = item.nonce;
        row.nonce_node = Some(ask.node);
        row.expires_at = self.now.plus(ask.ttl);
        row.sign = LeaseSign::None;
        row.waiting = None;
        row.held_by = None;
        row.next_try_at = None;
        row.waits = 0;
        row.redispatches = 0;
        self.stamp_lease(&mut row, item);
        let grant = grant_of(&row);
        self.tables.put_execution(row, self.changes);
        AcquireReply::Granted(grant)
    }

    /// The lag stamps of a new attempt, in place of those of the one before. Each is the later of its
    /// predecessor and what is reported, and nothing reported lies ahead of now.
    fn stamp_lease(&self, row: &mut ExecutionRow, item: &AcquireExecution) {
        let published_at = if self.bugs.has(Bug::StampsAreNotClamped) {
            item.published_at
        } else {
            item.published_at.min(self.now).max(row.materialised_at)
        };
        let reported = self.now.minus(item.held);
        let received_at = reported.max(published_at);
        let leased_at = self.now.max(received_at);
        row.published_at = Some(published_at);
        row.received_at = Some(received_at);
        row.leased_at = Some(leased_at);
        row.started_at = None;
        row.lag_clamped = false;
        let clamped = published_at != item.published_at || received_at != reported || leased_at != self.now;
        self.note_clamped(row, clamped);
    }

    /// Item by item: whoever presents the current token of what runs.
    pub(super) fn renew_executions(&mut self, ask: &RenewExecutions) -> Vec<RenewReply> {
        ask.runs.iter().map(|run| self.renew_execution(ask, *run)).collect()
    }

    fn renew_execution(&mut self, ask: &RenewExecutions, run: RunId) -> RenewReply {
        let Some(row) = self.tables.executions().get(&run.execution) else { return RenewReply::Absent };
        let (state, current) = (row.state, row.token);
        let mut row = if state == ExecutionState::Running && current == run.token {
            row.clone()
        } else if self.bugs.has(Bug::RenewRevivesLostRun)
            && state == ExecutionState::RetryWait
            && current == run.token
        {
            let (state, owner) = (ExecutionState::Running, Some(ask.node));
            ExecutionRow { state, owner, next_try_at: None, ..row.clone() }
        } else {
            mark::hit(Mark::RunRenewRefused);
            let resource = RefusedResource::Execution(run.execution);
            self.refuse(resource, run.token, ask.node, RefusedAction::RenewExecution, current);
            return RenewReply::Refused { current, state };
        };
        if may_be_taken(row.expires_at, self.now) {
            mark::hit(Mark::RunRenewedAfterLapse);
        }
        row.expires_at = self.now.plus(ask.ttl);
        row.sign = LeaseSign::Started;
        let cancel = row.cancel;
        if cancel == CancelState::Requested {
            mark::hit(Mark::CancelLearnt);
        }
        self.tables.put_execution(row, self.changes);
        RenewReply::Renewed { cancel }
    }

    /// Item by item. One that waits already keeps its reason and its time.
    pub(super) fn defer_executions(&mut self, ask: &DeferExecutions) -> Vec<DeferReply> {
        let mut replies = Vec::with_capacity(ask.items.len());
        for (execution, reason) in &ask.items {
            let Some(row) = self.tables.executions().get(execution) else {
                replies.push(DeferReply::Absent);
                continue;
            };
            let state = row.state;
            if state != ExecutionState::Pending {
                replies.push(DeferReply::NotPending { state });
                continue;
            }
            if row.waiting.is_none() {
                let row = ExecutionRow { waiting: Some(*reason), ..self.waited(row, ask.delay) };
                self.tables.put_execution(row, self.changes);
            }
            replies.push(DeferReply::Recorded);
        }
        replies
    }
}
