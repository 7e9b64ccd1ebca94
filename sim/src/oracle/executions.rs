//! Executions: their states, their tokens, their budgets, and who may change them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fencepost_core::execution::{CancelState, ExecutionState, LeaseSign};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, Occurrence};
use fencepost_core::job::JobDefinition;
use fencepost_core::lease::{HeldLease, LeaseResource, RunId};
use fencepost_core::retry::{RESCUE_DELAY_MAX, RETRY_AFTER_MAX, RetryPolicy};
use fencepost_core::store::change::Delta;
use fencepost_core::store::command::{
    AcquireExecution, Command, FinishExecution, RepairItem, RunOutcome, lease_of,
};
use fencepost_core::store::row::ExecutionRow;
use fencepost_core::time::{Span, Timestamp};

use super::Commit;
use super::brief::Brief;
use super::invariant::Invariant;
use super::leases::{check_authority, has_lapsed};
use super::mirror::Mirror;
use super::runs::Heard;
use super::{Report, dead_letters, ends, overlap};
use crate::violation::Violation;

use ExecutionState as S;

/// What is remembered of executions beside their rows.
#[derive(Debug, Default)]
pub(super) struct Executions {
    /// The retry time that was stored when an execution last went to wait for one.
    retry_due: BTreeMap<ExecutionId, Timestamp>,
    /// Until when each granted run's lease lasted at the latest.
    pub(super) leases: BTreeMap<RunId, Granted>,
    /// The idempotency keys of all executions.
    keys: BTreeSet<Arc<str>>,
}

/// A granted execution lease, as last extended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) node: fencepost_core::id::NodeId,
    pub(super) expires_at: Timestamp,
    /// Which attempt it is.
    pub(super) attempt: u32,
    /// Whether a repair has ended it, which was judged at that commit.
    pub(super) taken_over: bool,
}

impl Executions {
    /// Checks one change of an execution row. `latest` is the latest store time that any commit has shown: a
    /// clock that steps back does not make the past undone.
    pub(super) fn check_change(
        &mut self,
        commit: &Commit<'_>,
        mirror: &Mirror,
        delta: &Delta<ExecutionRow>,
        heard: Heard,
        latest: Timestamp,
    ) -> Result<(), Violation> {
        let Some(after) = &delta.after else {
            return Err(commit
                .broke(Invariant::Conservation, || format!("an execution disappeared: {}", Brief(delta))));
        };
        let Some(before) = &delta.before else {
            check_birth(commit, mirror, after)?;
            return self.check_key(commit, mirror, after);
        };
        check_end_is_final(commit, before, after)?;
        if before.state != after.state && !is_legal(before.state, after.state) {
            return Err(commit.broke(Invariant::LegalTransition, || {
                format!("{} went from {} to {}", after.id, before.state, after.state)
            }));
        }
        check_token(commit, before, after)?;
        self.check_lease(commit, mirror, before, after)?;
        check_writer(commit, mirror, before, after)?;
        check_cancel(commit, mirror, before, after)?;
        let definition = definition_of(mirror, after);
        if let Some(definition) = &definition {
            check_budgets(commit, before, after, definition)?;
        }
        self.check_retry(commit, before, after, definition.as_deref(), heard, latest)?;
        if before.state == S::Running && after.state != S::Running {
            ends::check(commit, before, after, definition.as_deref(), heard, latest)?;
        }
        check_clamped(commit, before, after)?;
        check_stamps(commit, after)
    }

    /// No two executions share a key, or the systems outside would take one for the other; but that a replay has its
    /// origin's, where it was not to have one of its own.
    fn check_key(
        &mut self,
        commit: &Commit<'_>,
        mirror: &Mirror,
        row: &ExecutionRow,
    ) -> Result<(), Violation> {
        let is_origins = match row.occurrence {
            Occurrence::Replay { origin, .. } => {
                mirror.executions.get(&origin).is_some_and(|origin| origin.key == row.key)
            }
            Occurrence::Scheduled { .. } | Occurrence::Manual { .. } => false,
        };
        if is_origins || self.keys.insert(Arc::clone(&row.key)) {
            return Ok(());
        }
        Err(commit.broke(Invariant::EffectOncePerKey, || {
            format!("{} was made with the key {}, which is another's", row.id, row.key)
        }))
    }

    fn check_lease(
        &mut self,
        commit: &Commit<'_>,
        mirror: &Mirror,
        before: &ExecutionRow,
        after: &ExecutionRow,
    ) -> Result<(), Violation> {
        let run = RunId { execution: after.id, token: after.token };
        let ttl = match commit.command {
            Command::AcquireExecutions(ask) if after.token != before.token => Some(ask.ttl),
            Command::RenewExecutions(ask) => Some(ask.ttl),
            _ => None,
        };
        if after.state == S::Running && after.expires_at != before.expires_at {
            if ttl.map(|ttl| commit.now.plus(ttl)) != Some(after.expires_at) {
                return Err(commit.broke(Invariant::SingleHolder, || {
                    format!(
                        "{}'s lease was set to expire at {} at {}",
                        after.id, after.expires_at, commit.now
                    )
                }));
            }
            let Some(node) = after.owner else {
                return Err(
                    commit.broke(Invariant::SingleHolder, || format!("{} runs without an owner", after.id))
                );
            };
            let attempt = after.attempts.saturating_add(1);
            let granted = Granted { node, expires_at: after.expires_at, attempt, taken_over: false };
            self.leases.insert(run, granted);
        }
        if after.state == S::Running && after.token == before.token && after.owner != before.owner {
            return Err(commit.broke(Invariant::SingleHolder, || {
                format!(
                    "{} changed hands under one token: {:?}, then {:?}",
                    after.id, before.owner, after.owner
                )
            }));
        }
        if before.state == S::Running
            && after.state != S::Running
            && matches!(commit.command, Command::Repair(_))
            && let Some(granted) = self.leases.get_mut(&run)
        {
            granted.taken_over = true;
        }
        if before.state == S::Pending && after.state == S::Running {
            let deleted = mirror.jobs.get(&after.job).is_none_or(|job| job.state.name() == "deleted");
            if deleted {
                return Err(commit.broke(Invariant::CancelFinal, || {
                    format!("{} was started although its job is deleted", after.id)
                }));
            }
        }
        Ok(())
    }

    fn check_retry(
        &mut self,
        commit: &Commit<'_>,
        before: &ExecutionRow,
        after: &ExecutionRow,
        definition: Option<&JobDefinition>,
        heard: Heard,
        latest: Timestamp,
    ) -> Result<(), Violation> {
        let early = |due: Timestamp| {
            commit.broke(Invariant::RetryNotEarly, || {
                format!("{} went to {} at {}, before its retry time {due}", after.id, after.state, commit.now)
            })
        };
        match (before.state, after.state) {
            (S::Running, S::RetryWait) => {
                let Some(due) = after.next_try_at else {
                    return Err(
                        commit.broke(Invariant::RetryNotEarly, || format!("{} waits for no time", after.id))
                    );
                };
                self.retry_due.insert(after.id, due);
                let delay = Span::from_i64(due.as_micros().saturating_sub(commit.now.as_micros()));
                if let Some(definition) = definition
                    && !delay_is_lawful(commit, before, after, definition, heard, delay)
                {
                    return Err(commit.broke(Invariant::RetryNotEarly, || {
                        format!(
                            "after failure {} {} was to wait {delay}, by {:?}",
                            after.attempts, after.id, definition.retry
                        )
                    }));
                }
                Ok(())
            }
            (S::RetryWait, S::Pending) => match before.next_try_at {
                Some(due) if commit.now < due => Err(early(due)),
                Some(_) | None => Ok(()),
            },
            (S::Pending, S::Running) => match self.retry_due.remove(&after.id) {
                Some(due) if latest.max(commit.now) < due => Err(early(due)),
                Some(_) | None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// The definition of the version that an execution was made under.
pub(super) fn definition_of(mirror: &Mirror, row: &ExecutionRow) -> Option<Arc<JobDefinition>> {
    mirror
        .versions
        .get(&(row.job, row.job_version))
        .and_then(|version| version.definition.read().ok().cloned())
}

fn check_birth(commit: &Commit<'_>, mirror: &Mirror, row: &ExecutionRow) -> Result<(), Violation> {
    let twin = mirror.occurrences.get(&(row.job, row.occurrence.clone()));
    if let Some(twin) = twin {
        return Err(commit.broke(Invariant::UniqueOccurrence, || {
            format!("{:?} of {} is {twin}, and again {}", row.occurrence, row.job, row.id)
        }));
    }
    if row.occurrence.execution_id(row.job) != row.id {
        return Err(commit.broke(Invariant::UniqueOccurrence, || {
            format!("{} is not the id of {:?} of {}", row.id, row.occurrence, row.job)
        }));
    }
    if !matches!(row.state, S::Pending | S::Skipped) {
        return Err(commit.broke(Invariant::LegalTransition, || format!("{} was born {}", row.id, row.state)));
    }
    if let Occurrence::Replay { origin, number } = row.occurrence {
        return dead_letters::check_birth(commit, mirror, row, origin, number);
    }
    if row.token != FencingToken::NEVER {
        return Err(commit
            .broke(Invariant::TokenMonotone, || format!("{} was born with token {}", row.id, row.token)));
    }
    Ok(())
}

/// The transitions of DESIGN: what may follow what.
fn is_legal(from: ExecutionState, to: ExecutionState) -> bool {
    match from {
        // Given up while nothing runs: only for a deadline (`deadlines`).
        S::Pending => matches!(to, S::Running | S::Cancelled | S::Skipped | S::DeadLettered | S::Failed),
        S::Running => matches!(to, S::Completed | S::RetryWait | S::DeadLettered | S::Failed | S::Cancelled),
        S::RetryWait => matches!(to, S::Pending | S::Cancelled | S::DeadLettered | S::Failed),
        S::Completed | S::DeadLettered | S::Failed | S::Cancelled | S::Skipped => false,
    }
}

fn check_end_is_final(
    commit: &Commit<'_>,
    before: &ExecutionRow,
    after: &ExecutionRow,
) -> Result<(), Violation> {
    let started_again = matches!(commit.command, Command::AcquireExecutions(_));
    let invariant = match before.state {
        S::Completed if !started_again => Invariant::CompletedSurvives,
        S::Cancelled => Invariant::CancelFinal,
        S::Completed | S::DeadLettered | S::Failed | S::Skipped => Invariant::TerminalAbsorbs,
        S::Pending | S::Running | S::RetryWait => return Ok(()),
    };
    let touched =
        before.state != after.state || before.token != after.token || before.finished_at != after.finished_at;
    if !touched {
        return Ok(());
    }
    Err(commit.broke(invariant, || {
        format!(
            "{} had ended as {}, and was made {} by {}",
            after.id,
            before.state,
            after.state,
            commit.command.kind()
        )
    }))
}

fn check_token(commit: &Commit<'_>, before: &ExecutionRow, after: &ExecutionRow) -> Result<(), Violation> {
    let acquired = before.state == S::Pending && after.state == S::Running;
    let right = if acquired { before.token.next() == Some(after.token) } else { before.token == after.token };
    if right {
        return Ok(());
    }
    Err(commit.broke(Invariant::TokenMonotone, || {
        format!(
            "{} went from {} under {} to {} under {}",
            after.id, before.state, before.token, after.state, after.token
        )
    }))
}

/// Whether the command may change this row as things stand: the token presented is the row's, the lease
/// was expired, the authority is current.
fn check_writer(
    commit: &Commit<'_>,
    mirror: &Mirror,
    before: &ExecutionRow,
    after: &ExecutionRow,
) -> Result<(), Violation> {
    let fenced = |holds: bool, what: &str| {
        if holds {
            return Ok(());
        }
        Err(commit.broke(Invariant::FencedWrite, || {
            format!("{} {what}: it was {} under {}", after.id, before.state, before.token)
        }))
    };
    match commit.command {
        Command::FinishExecutions(ask) => {
            let item = finish_of(ask.items.as_slice(), after.id, before.token);
            fenced(
                (before.state == S::Running && item.is_some()) || overlap::is_lifted(before, after),
                "was finished by a run that is not the current one",
            )
        }
        Command::RenewExecutions(ask) => {
            let run = RunId { execution: after.id, token: before.token };
            let holds = before.state == S::Running && ask.runs.contains(&run);
            fenced(holds, "was renewed by a run that is not the current one")
        }
        Command::AcquireExecutions(ask) => {
            let item = ask.items.iter().any(|item: &AcquireExecution| item.execution == after.id);
            let by_another = overlap::is_replaced(commit, mirror, before) && after.token == before.token;
            fenced(
                (item && before.state == S::Pending) || by_another || overlap::is_lifted(before, after),
                "was acquired although it was not pending",
            )
        }
        Command::Repair(ask) => {
            let held = HeldLease { resource: LeaseResource::Leadership, token: ask.leadership };
            check_authority(commit, mirror, ask.node, Some(held))?;
            if overlap::is_lifted(before, after) {
                return Ok(());
            }
            check_repair(commit, &ask.items, before, after)
        }
        Command::PromoteDue(ask) => {
            let resource = LeaseResource::Partition(after.partition);
            let held = lease_of(&ask.leases, after.partition).map(|token| HeldLease { resource, token });
            check_authority(commit, mirror, ask.node, held)
        }
        _ => Ok(()),
    }
}

/// The item that finishes this run.
pub(super) fn finish_of(
    items: &[FinishExecution],
    execution: ExecutionId,
    token: FencingToken,
) -> Option<&FinishExecution> {
    items.iter().find(|item| item.run == RunId { execution, token })
}

fn check_repair(
    commit: &Commit<'_>,
    items: &[RepairItem],
    before: &ExecutionRow,
    after: &ExecutionRow,
) -> Result<(), Violation> {
    let observed = |item: &RepairItem| match item {
        RepairItem::TakeOver { run, cancel, sign, .. } => {
            run.execution == after.id
                && run.token == before.token
                && *cancel == before.cancel
                && *sign == before.sign
                && before.state == S::Running
        }
        RepairItem::Redispatch { dispatch } => {
            dispatch.execution == after.id
                && dispatch.dispatch_no == before.dispatch_no
                && before.state == S::Pending
        }
        RepairItem::EndOverdue { run, state } => {
            (run.execution, run.token, *state) == (after.id, before.token, before.state)
                && before.state != S::Running
        }
        RepairItem::DropOutbox { .. } | RepairItem::RetireNode { .. } => false,
    };
    if !items.iter().any(observed) {
        return Err(commit.broke(Invariant::FencedWrite, || {
            format!("a repair changed {} although what it had observed was gone: {}", after.id, Brief(before))
        }));
    }
    if before.state == S::Running && !has_lapsed(before.expires_at, commit.now) {
        return Err(commit.broke(Invariant::NoEarlyTakeover, || {
            format!("{} was taken over at {}, before {}", after.id, commit.now, before.expires_at)
        }));
    }
    Ok(())
}

fn check_cancel(
    commit: &Commit<'_>,
    mirror: &Mirror,
    before: &ExecutionRow,
    after: &ExecutionRow,
) -> Result<(), Violation> {
    let forgotten = before.cancel == CancelState::Requested
        && (after.state == S::RetryWait || (after.cancel == CancelState::None && !after.state.is_terminal()));
    if !forgotten {
        return check_cancel_was_asked(commit, mirror, before, after);
    }
    Err(commit.broke(Invariant::CancelFinal, || {
        format!("{} was asked to stop, and went to {} all the same", after.id, after.state)
    }))
}

/// Only an operator's command asks for a cancel, or cancels what does not run, or a later fire of a job that cancels what
/// runs; a run is cancelled only where
/// that was asked for.
fn check_cancel_was_asked(
    commit: &Commit<'_>,
    mirror: &Mirror,
    before: &ExecutionRow,
    after: &ExecutionRow,
) -> Result<(), Violation> {
    let cancelled = after.state == S::Cancelled && before.state != S::Cancelled;
    let requested = after.cancel == CancelState::Requested && before.cancel == CancelState::None;
    let asked_now = match commit.command {
        Command::CancelExecution(ask) => ask.execution == after.id,
        Command::DeleteJob(ask) => ask.job == after.job,
        Command::AcquireExecutions(_) => overlap::is_replaced(commit, mirror, before),
        _ => false,
    };
    let asked_before = before.state == S::Running && before.cancel == CancelState::Requested;
    let lawful = (!cancelled || asked_before || (asked_now && before.state != S::Running))
        && (!requested || asked_now);
    if lawful {
        return Ok(());
    }
    Err(commit.broke(Invariant::LegalTransition, || {
        let what = if cancelled { "cancelled" } else { "asked to stop" };
        format!(
            "{}, {}, was {what} by {}, and nobody had asked",
            after.id,
            before.state,
            commit.command.kind()
        )
    }))
}

fn check_budgets(
    commit: &Commit<'_>,
    before: &ExecutionRow,
    after: &ExecutionRow,
    definition: &JobDefinition,
) -> Result<(), Violation> {
    let policy = &definition.retry;
    let goes_on = !after.state.is_terminal();
    let failed = match commit.command {
        Command::FinishExecutions(ask) => {
            finish_of(&ask.items, after.id, before.token).is_some_and(|item| match item.outcome {
                RunOutcome::Retry { .. } | RunOutcome::DeadLettered { .. } | RunOutcome::Failed { .. } => {
                    true
                }
                RunOutcome::Completed | RunOutcome::Released | RunOutcome::Cancelled => false,
            })
        }
        _ => false,
    };
    let lost = before.state == S::Running && matches!(commit.command, Command::Repair(_));
    let risen = |before: u32, after: u32| after.checked_sub(before);
    let attempts = risen(before.attempts, after.attempts);
    let losses = risen(before.rescues, after.rescues)
        .zip(risen(before.lost_starts, after.lost_starts))
        .map(|(rescues, lost_starts)| rescues + lost_starts);
    // Each loss on the budget of its own kind.
    let on_rescues = u32::from(lost && before.sign == LeaseSign::Started);
    let counted = attempts == Some(u32::from(failed))
        && losses == Some(u32::from(lost))
        && risen(before.rescues, after.rescues) == Some(on_rescues);
    let within = after.attempts <= policy.max_attempts
        && after.rescues <= policy.max_rescues.saturating_add(1)
        && after.lost_starts <= policy.max_lost_starts.saturating_add(1)
        && !(goes_on && after.rescues > policy.max_rescues)
        && !(goes_on && after.lost_starts > policy.max_lost_starts)
        && !(after.state == S::RetryWait && after.attempts >= policy.max_attempts && failed);
    if counted && within {
        return Ok(());
    }
    Err(commit.broke(Invariant::AttemptBounds, || {
        format!(
            "{} went to {} with attempts {} then {}, rescues {} then {}, lost starts {} then {}, by {policy:?}",
            after.id,
            after.state,
            before.attempts,
            after.attempts,
            before.rescues,
            after.rescues,
            before.lost_starts,
            after.lost_starts
        )
    }))
}

/// Whether the delay before the next attempt is one that the policy, or the target itself, may ask for.
fn delay_is_lawful(
    commit: &Commit<'_>,
    before: &ExecutionRow,
    after: &ExecutionRow,
    definition: &JobDefinition,
    heard: Heard,
    delay: Span,
) -> bool {
    if after.attempts == before.attempts {
        // Given back, or taken over: at once, or after a rescue's delay.
        return match commit.command {
            Command::Repair(_) => delay <= RESCUE_DELAY_MAX,
            _ => delay == Span::ZERO,
        };
    }
    let most = most_delay(&definition.retry, after.attempts).as_micros();
    let by_policy = delay.as_micros() <= most && delay.as_micros() + 1 >= most / 5 * 4;
    match heard.report {
        // One that was given up before it could say so has no wish.
        Some(Report::FailedRetryably { wish: Some(wish) }) => {
            delay == wish.min(RETRY_AFTER_MAX) || (heard.timed_out && by_policy)
        }
        Some(Report::FailedRetryably { wish: None } | Report::FailedForGood | Report::Completed) | None => {
            by_policy
        }
    }
}

/// The longest delay of a policy after so many failed attempts.
pub(super) fn most_delay(policy: &RetryPolicy, attempts: u32) -> Span {
    let doublings = attempts.saturating_sub(1).min(40);
    policy.base.times(1 << doublings).min(policy.cap)
}

/// Whether the flag for clamped spans is set if, and only if, a stamp is not what was reported or the clock's.
fn check_clamped(commit: &Commit<'_>, before: &ExecutionRow, after: &ExecutionRow) -> Result<(), Violation> {
    let ended = after.finished_at != before.finished_at && after.finished_at != Some(commit.now);
    let clamped = match commit.command {
        // A grant; what is held back instead keeps the stamps that it had.
        Command::AcquireExecutions(ask) if after.token != before.token => {
            let mut items = ask.items.iter();
            let Some(item) = items.find(|item| item.execution == after.id && item.nonce == after.nonce)
            else {
                return Ok(());
            };
            after.published_at != Some(item.published_at)
                || after.received_at != Some(commit.now.minus(item.held))
                || after.leased_at != Some(commit.now)
        }
        Command::FinishExecutions(ask) => {
            let item = finish_of(&ask.items, after.id, before.token);
            let started_ago = item.and_then(|item| item.started_ago);
            let moved = started_ago.is_some_and(|ago| after.started_at != Some(commit.now.minus(ago)));
            before.lag_clamped || moved || ended
        }
        _ => before.lag_clamped || ended,
    };
    if clamped == after.lag_clamped {
        return Ok(());
    }
    let is_flagged = if after.lag_clamped { "is flagged" } else { "is not flagged" };
    Err(commit.broke(Invariant::LagAddsUp, || {
        format!("a clamped span of {} {is_flagged} at {}: {}", after.id, commit.now, Brief(after))
    }))
}

fn check_stamps(commit: &Commit<'_>, row: &ExecutionRow) -> Result<(), Violation> {
    if row.state != S::Completed {
        return Ok(());
    }
    let stamps = [
        Some(row.due_at),
        Some(row.materialised_at),
        row.published_at,
        row.received_at,
        row.leased_at,
        row.started_at,
        row.finished_at,
    ];
    let in_order = stamps.iter().all(Option::is_some) && stamps.is_sorted();
    if in_order {
        return Ok(());
    }
    Err(commit
        .broke(Invariant::LagAddsUp, || format!("the stamps of {} are not in order: {stamps:?}", row.id)))
}
