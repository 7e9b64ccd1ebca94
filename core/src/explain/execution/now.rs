//! Where an execution stands: with whom, since when, and what it waits for.
//!
//! Which handlers a worker has is in no row, so where an execution waits for a worker, the present ones are counted
//! and no more is claimed. When a lease was renewed last is not stored either: it follows from its expiry and the
//! worker's lease time, of which this process knows its own.

use std::sync::Arc;

use super::definition;
use crate::execution::{CancelState, ExecutionState, LeaseSign, WaitReason};
use crate::explain::facts::{ExecutionFacts, StandingSaid};
use crate::explain::owner;
use crate::explain::statement::{Statement, in_words, many, statements, times};
use crate::fencing::FencingToken;
use crate::id::{DispatchNo, ExecutionId, NodeId, Occurrence};
use crate::job::{Overlap, Standing};
use crate::lease::may_be_taken;
use crate::pause::PauseScope;
use crate::store::row::{NodeRole, NodeState, OutboxRow, PauseRow};
use crate::time::{Span, Timestamp};

statements!("execution/now",
/// Where an execution stands.
Now {
    /// Its outbox row is there: the broker has not confirmed the dispatch.
    NotConfirmed = "outbox_not_confirmed" {
        since: Timestamp, age: Span, dispatch_no: DispatchNo, committed_by: NodeId, read_back: u32,
    } => format!(
        "Pending: dispatch {} was committed at {since} and the broker has not confirmed it for {}{}.",
        dispatch_no.0, in_words(age),
        if read_back == 0 { String::new() } else { format!(", though it was read back {}", times(read_back)) },
    );
    /// The outbox row of an older dispatch is there as well.
    OlderNotConfirmed = "older_dispatch_not_confirmed" {
        since: Timestamp, dispatch_no: DispatchNo, read_back: u32,
    } => format!("An older dispatch, {}, of {since} is not confirmed either.", dispatch_no.0);
    /// The broker confirmed the dispatch, and no worker has asked for the lease yet.
    NotReceived = "dispatched_not_received" {
        since: Timestamp, age: Span, dispatch_no: DispatchNo, redispatches: u32,
    } => format!(
        "Pending: dispatch {} of {since} is with the broker, and for {} no worker has asked for its lease{}.",
        dispatch_no.0, in_words(age),
        if redispatches == 0 { String::new() } else { format!("; it was dispatched again {}", times(redispatches)) },
    );
    /// The broker had no queue for its handler when its message came: it had been deleted, and is declared again before the next.
    NoRoute = "waiting_no_route" {
        handler: Option<Arc<str>>, put_off: u32, next_try_at: Option<Timestamp>,
    } => format!("Pending: the broker had no queue for its handler{}{}.", named(&handler), waits(put_off, next_try_at));
    /// The worker that received it does not have its handler, or not in that version.
    UnknownHandler = "waiting_unknown_handler" {
        handler: Option<Arc<str>>, handler_version: Option<u32>, put_off: u32, next_try_at: Option<Timestamp>,
    } => format!(
        "Pending: the worker that received it does not have the handler{}{}{}.",
        named(&handler),
        handler_version.map(|version| format!(" in version {version}")).unwrap_or_default(),
        waits(put_off, next_try_at),
    );
    /// The worker that received it cannot read the schema of its message.
    UnreadableMessage = "waiting_unreadable_message" {
        put_off: u32, next_try_at: Option<Timestamp>,
    } => format!(
        "Pending: the worker that received it cannot read the schema of its message{}.", waits(put_off, next_try_at),
    );
    /// The scheduler that dispatches it cannot read the definition it was made under.
    UnreadableDefinition = "waiting_unreadable_definition" {
        put_off: u32, next_try_at: Option<Timestamp>,
    } => format!(
        "Pending: the scheduler that dispatches it cannot read the definition it was made under{}.",
        waits(put_off, next_try_at),
    );
    /// Its job is paused, which holds it back: what is of a fire starts only once somebody resumes the job.
    JobPaused = "waiting_job_paused" {
        since: Timestamp, actor: Option<Arc<str>>, reason: Option<Arc<str>>,
    } => format!(
        "Its job is paused since {since}{}: it starts once the job is resumed.",
        StandingSaid::by(actor.as_deref(), reason.as_deref()),
    );
    /// A pause of its job held it back; the job was resumed, and it is about to be dispatched again.
    JobResumed = "waiting_job_resumed" {
        since: Timestamp, next_try_at: Option<Timestamp>,
    } => format!(
        "Pending: a pause of its job held it back; the job was resumed at {since}{}.", waits(0, next_try_at),
    );
    /// It waits until the execution that holds its job's slot has ended.
    Buffered = "waiting_buffered" {
        behind: Option<ExecutionId>, behind_state: Option<ExecutionState>, holders: u32, overlap: Option<Overlap>,
        next_try_at: Option<Timestamp>,
    } => format!(
        "Pending: it waits for the end of {}{}.",
        match (&behind, behind_state) {
            (Some(behind), Some(state)) => format!("{behind} of the same job, which is {state}"),
            (_, _) => "whoever holds its job's slot".to_owned(),
        },
        next_try_at.map(|at| format!("; without that it is looked at again at {at}")).unwrap_or_default(),
    );
    /// Its tenant is paused: nothing of it starts, whatever it is an occurrence of, until somebody resumes the tenant.
    TenantPaused = "waiting_tenant_paused" {
        since: Timestamp, actor: Arc<str>, reason: Arc<str>,
    } => format!("Its tenant is paused since {since} by {actor} ({reason}): it starts once the tenant is resumed.");
    /// Its tenant has paused the queue of its handler: nothing of the tenant starts there until somebody resumes it.
    QueuePaused = "waiting_queue_paused" {
        handler: Option<Arc<str>>, handler_version: Option<u32>, since: Timestamp, actor: Arc<str>, reason: Arc<str>,
    } => format!(
        "Its queue{}{} is paused since {since} by {actor} ({reason}): it starts once the queue is resumed.",
        named(&handler),
        handler_version.map(|version| format!(" in version {version}")).unwrap_or_default(),
    );
    /// A pause of its tenant or queue held it back and has ended; it is about to be dispatched again.
    PauseEnded = "waiting_pause_ended" {
        since: Option<Timestamp>, ended_at: Option<Timestamp>, actor: Option<Arc<str>>, reason: Option<Arc<str>>,
    } => format!(
        "Pending: a pause of its tenant or queue held it back{}, and it is about to be dispatched again.",
        ended_at.map(|at| {
            format!("; it was ended at {at}{}", StandingSaid::by(actor.as_deref(), reason.as_deref()))
        }).unwrap_or_default(),
    );
    /// It waits until fewer run that count against a limit: of its tenant, or of its concurrency key.
    LimitReached = "waiting_limit" {
        key: Option<Arc<str>>, max_running: Option<u32>, running: Option<u32>, held_by: Option<ExecutionId>,
        set_by: Option<Arc<str>>, reason: Option<Arc<str>>, next_try_at: Option<Timestamp>,
    } => format!(
        "Pending: it waits for the limit of {}{}{}.",
        key.as_ref().map_or("its tenant".to_owned(), |key| format!("the concurrency key {key:?}")),
        match (running, max_running) {
            (Some(running), Some(most)) => format!(": {running} of {most} run"),
            (_, _) => String::new(),
        },
        waits(0, next_try_at),
    );
    /// This process cannot read the definition it was made under, so the policies are not told.
    UnreadableHere = "definition_unreadable_here" {
        reason: Arc<str>, schema: u16, zone_data: Arc<str>,
    } => format!("The definition it was made under cannot be read here (schema {schema}): {reason}.");
    /// No worker is present at all.
    NoWorker = "no_worker_present" {
        handler: Option<Arc<str>>, handler_version: Option<u32>,
    } => format!("No worker is present{}.", handler.as_ref().map(|name| format!(" that could have {name}")).unwrap_or_default());
    /// So many workers are present; whether one has the handler in that version is in no row.
    Workers = "workers_present" {
        handler: Option<Arc<str>>, handler_version: Option<u32>, active: u32, draining: u32,
    } => format!(
        "Present are {}, {draining} of them draining; whether one has the handler{}{} is not on record.",
        many(active + draining, "worker"),
        named(&handler),
        handler_version.map(|version| format!(" in version {version}")).unwrap_or_default(),
    );
    /// It waits past its deadline; whoever comes to it next ends it.
    PastDeadline = "past_deadline" {
        since: Timestamp, late: Span,
    } => format!("Its deadline passed at {since}, {} ago; nothing starts it any more.", in_words(late));
    /// It waits for its next attempt.
    WaitsForRetry = "waits_for_retry" {
        since: Option<Timestamp>, attempts: u32, due: Option<Timestamp>,
    } => format!(
        "Waits for its next attempt{}{}.",
        due.map(|at| format!(", due at {at}")).unwrap_or_default(),
        if attempts == 0 { String::new() } else { format!(", after {}", many(attempts, "failed one")) },
    );
    /// Its next attempt is due, and the owner of its partition has not dispatched it yet.
    RetryOverdue = "retry_overdue" {
        since: Timestamp, late: Span, attempts: u32,
    } => format!("Its next attempt was due at {since}, {} ago, and is not dispatched yet.", in_words(late));
    /// A worker runs it under a lease.
    Running = "running" {
        worker: Option<NodeId>, worker_label: Option<Arc<str>>, worker_seen_at: Option<Timestamp>,
        token: FencingToken, since: Option<Timestamp>, expires_at: Timestamp, attempt: u32, max_attempts: Option<u32>,
    } => format!(
        "Runs{}{} under token {token}{}, in attempt {attempt}{}.",
        worker.map(|worker| format!(" on worker {worker}")).unwrap_or_default(),
        worker_label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default(),
        since.map(|at| format!(" since {at}")).unwrap_or_default(),
        max_attempts.map(|most| format!(" of {most}")).unwrap_or_default(),
    );
    /// Its lease was renewed; when follows from the expiry, if its worker leases for as long as this process would.
    Renewed = "lease_renewed" {
        renewed_at: Option<Timestamp>, assumed_lease: Span, expires_at: Timestamp,
    } => match renewed_at {
        Some(at) => format!(
            "Its lease was last renewed about {at}, if its worker leases for {} as this process would; it lasts until {expires_at}.", in_words(assumed_lease),
        ),
        None => format!(
            "Its lease was renewed and lasts until {expires_at}; when it was is not on record, and its worker's lease is not the {} of this process.", in_words(assumed_lease),
        ),
    };
    /// Its lease was granted and not renewed since: there is no sign of a start yet.
    NotRenewed = "lease_not_renewed" {
        granted_at: Option<Timestamp>, expires_at: Timestamp,
    } => format!(
        "Its lease was not renewed since it was granted{}, so there is no sign of a start yet; it lasts until {expires_at}.",
        granted_at.map(|at| format!(" at {at}")).unwrap_or_default(),
    );
    /// The node that holds the lease has not reported for long, or says that it is offline.
    WorkerSilent = "worker_not_present" {
        worker: NodeId, seen_at: Option<Timestamp>,
    } => format!(
        "Worker {worker} is not present{}; that alone ends no lease.",
        seen_at.map(|at| format!(", its latest report is of {at}")).unwrap_or_default(),
    );
    /// Its lease has lapsed; until the sweep takes it over its worker may still finish it.
    LeaseExpired = "lease_expired" {
        since: Option<Timestamp>, token: FencingToken, worker: Option<NodeId>,
    } => format!(
        "Its lease under token {token} {}; until the sweep takes it over, its worker may still finish it.",
        since.map_or_else(
            || "reaches further ahead than any and counts as dead".to_owned(), |at| format!("lapsed at {at}"),
        ),
    );
    /// An operator asked for it to stop; whether its worker has heard is not on record.
    CancelRequested = "cancel_requested" {
        heard_by: Option<Timestamp>,
    } => match heard_by {
        Some(at) => format!(
            "It was asked to stop; its worker hears of that with its next renewal, or loses its lease at {at}."
        ),
        None => "It was asked to stop, and its worker has not ended it within its lease.".to_owned(),
    };
    /// It has ended.
    Ended = "ended" {
        state: ExecutionState, at: Option<Timestamp>,
    } => format!("It has ended as {state}{}.", at.map(|at| format!(" at {at}")).unwrap_or_default());
    /// It has ended, and outbox rows of it are left, which the sweep removes.
    LeftOver = "outbox_rows_left" {
        rows: u32,
    } => format!("It has ended, and {} of it left for the sweep to remove.", if rows == 1 { "one outbox row is".to_owned() } else { format!("{rows} outbox rows are") });
});

fn named(handler: &Option<Arc<str>>) -> String {
    handler.as_ref().map(|name| format!(" {name}")).unwrap_or_default()
}

fn waits(put_off: u32, next_try_at: Option<Timestamp>) -> String {
    let next = next_try_at.map(|at| format!(", dispatched again at {at}")).unwrap_or_default();
    if put_off > 1 { format!("; put off {} in a row{next}", times(put_off)) } else { next }
}

/// All of it, what it waits for first.
pub(super) fn of(facts: &ExecutionFacts) -> Vec<Statement> {
    let row = &facts.execution;
    let mut told = match row.state {
        ExecutionState::Pending => pending(facts),
        ExecutionState::RetryWait => retry_wait(facts),
        ExecutionState::Running => running(facts),
        ExecutionState::Completed
        | ExecutionState::DeadLettered
        | ExecutionState::Failed
        | ExecutionState::Cancelled
        | ExecutionState::Skipped => return ended(facts),
    };
    if let Some(since) = row.deadline_at.filter(|at| *at <= facts.now && row.state != ExecutionState::Running)
    {
        told.insert(0, Now::PastDeadline { since, late: facts.now.since(since) }.into());
    }
    if let Err(why) = facts.definition.read() {
        let unreadable = Now::UnreadableHere {
            reason: why.reason.clone(),
            schema: why.schema,
            zone_data: why.zone_data.clone(),
        };
        told.push(unreadable.into());
    }
    told
}

fn pending(facts: &ExecutionFacts) -> Vec<Statement> {
    let row = &facts.execution;
    let latest = facts.outbox.iter().rfind(|outbox| outbox.dispatch_no == row.dispatch_no);
    let lead = match (row.waiting, latest) {
        (Some(reason), _) => waiting(facts, reason),
        (None, Some(outbox)) => not_confirmed(facts, outbox),
        (None, None) => {
            let since = row.dispatched_at.unwrap_or(row.materialised_at);
            Now::NotReceived {
                since,
                age: facts.now.since(since),
                dispatch_no: row.dispatch_no,
                redispatches: row.redispatches,
            }
        }
    };
    let mut told: Vec<Statement> = vec![lead.into()];
    if will_be_held_back(facts) {
        told.push(paused(facts).into());
    }
    told.extend(pauses_ahead(facts));
    let older = facts.outbox.iter().filter(|outbox| outbox.dispatch_no != row.dispatch_no);
    told.extend(older.map(|outbox| {
        Statement::from(Now::OlderNotConfirmed {
            since: outbox.created_at,
            dispatch_no: outbox.dispatch_no,
            read_back: outbox.tries,
        })
    }));
    // The owner reads back what is not confirmed and dispatches what waits; what is confirmed needs a worker.
    told.extend(owner::partition_without_owner(row.partition, &facts.partition_lease, facts.now));
    told.push(workers(facts).into());
    told
}

fn not_confirmed(facts: &ExecutionFacts, outbox: &OutboxRow) -> Now {
    Now::NotConfirmed {
        since: outbox.created_at,
        age: facts.now.since(outbox.created_at),
        dispatch_no: outbox.dispatch_no,
        committed_by: outbox.created_by,
        read_back: outbox.tries,
    }
}

/// The name and the version of its handler, where the definition can be read.
fn handler(facts: &ExecutionFacts) -> (Option<Arc<str>>, Option<u32>) {
    let handler = definition(facts).map(|definition| &definition.handler);
    (handler.map(|handler| handler.name.as_str().into()), handler.map(|handler| handler.version))
}

fn waiting(facts: &ExecutionFacts, reason: WaitReason) -> Now {
    let (handler, handler_version) = handler(facts);
    let (put_off, next_try_at) = (facts.execution.waits, facts.execution.next_try_at);
    match reason {
        WaitReason::NoRoute => Now::NoRoute { handler, put_off, next_try_at },
        WaitReason::UnknownHandler => Now::UnknownHandler { handler, handler_version, put_off, next_try_at },
        WaitReason::UnreadableMessage => Now::UnreadableMessage { put_off, next_try_at },
        WaitReason::UnreadableDefinition => Now::UnreadableDefinition { put_off, next_try_at },
        WaitReason::TenantLimit | WaitReason::KeyLimit => {
            let limit = facts.limit.as_ref();
            let row = limit.and_then(|limit| limit.row.as_ref());
            let of_key = reason == WaitReason::KeyLimit;
            Now::LimitReached {
                key: definition(facts)
                    .and_then(|definition| definition.concurrency_key.clone())
                    .filter(|_| of_key),
                max_running: row.and_then(|row| row.max_running),
                running: limit.map(|limit| limit.running),
                held_by: limit.and_then(|limit| limit.held_by),
                set_by: row.map(|row| row.actor.clone()),
                reason: row.map(|row| row.reason.clone()),
                next_try_at,
            }
        }
        WaitReason::Buffered => {
            let first = facts.slot_holders.first();
            Now::Buffered {
                behind: first.map(|(id, _)| *id),
                behind_state: first.map(|(_, state)| *state),
                holders: u32::try_from(facts.slot_holders.len()).unwrap_or(u32::MAX),
                overlap: definition(facts).map(|definition| definition.overlap),
                next_try_at,
            }
        }
        WaitReason::JobPaused => match facts.job.standing {
            Standing::Paused => paused(facts),
            Standing::Active => Now::JobResumed { since: facts.standing.at, next_try_at },
        },
        WaitReason::TenantPaused | WaitReason::QueuePaused => held_back(facts),
    }
}

fn paused(facts: &ExecutionFacts) -> Now {
    let said = &facts.standing;
    Now::JobPaused { since: said.at, actor: said.actor.clone(), reason: said.reason.clone() }
}

/// Whether a pause of its job will hold it back although it does not wait for that yet.
fn will_be_held_back(facts: &ExecutionFacts) -> bool {
    let of_a_fire = match facts.execution.occurrence {
        Occurrence::Scheduled { .. } => true,
        Occurrence::Manual { .. } | Occurrence::Replay { .. } => false,
    };
    let waits_for_that = facts.execution.waiting == Some(WaitReason::JobPaused);
    of_a_fire && !waits_for_that && facts.job.standing == Standing::Paused
}

/// What it says of the pause that holds it back, or did.
fn held_back(facts: &ExecutionFacts) -> Now {
    let pause = facts.pauses.iter().find(|pause| facts.execution.held_by == Some(pause.id));
    match pause {
        Some(pause) if pause.ended.is_none() => paused_above(pause),
        Some(_) | None => {
            let ended = pause.and_then(|pause| pause.ended.as_ref());
            Now::PauseEnded {
                since: pause.map(|pause| pause.since),
                ended_at: ended.map(|ended| ended.at),
                actor: ended.map(|ended| ended.actor.clone()),
                reason: ended.map(|ended| ended.reason.clone()),
            }
        }
    }
}

fn paused_above(pause: &PauseRow) -> Now {
    let (since, actor, reason) = (pause.since, pause.actor.clone(), pause.reason.clone());
    match &pause.scope {
        PauseScope::Tenant => Now::TenantPaused { since, actor, reason },
        PauseScope::Queue(handler) => Now::QueuePaused {
            handler: Some(handler.name.as_str().into()),
            handler_version: Some(handler.version),
            since,
            actor,
            reason,
        },
    }
}

/// Pauses of its tenant and queue that will hold it back although it does not wait for them yet.
fn pauses_ahead(facts: &ExecutionFacts) -> impl Iterator<Item = Statement> {
    let ahead = facts
        .pauses
        .iter()
        .filter(|pause| pause.ended.is_none() && facts.execution.held_by != Some(pause.id));
    ahead.map(|pause| Statement::from(paused_above(pause)))
}

fn workers(facts: &ExecutionFacts) -> Now {
    let (mut active, mut draining) = (0, 0);
    let present = facts.nodes.iter().filter(|node| node.is_live(facts.spans.node_stale_after, facts.now));
    for node in present.filter(|node| node.role == NodeRole::Worker) {
        match node.state {
            NodeState::Active => active += 1,
            NodeState::Draining => draining += 1,
            NodeState::Offline => {}
        }
    }
    let (handler, handler_version) = handler(facts);
    if active + draining == 0 {
        return Now::NoWorker { handler, handler_version };
    }
    Now::Workers { handler, handler_version, active, draining }
}

fn retry_wait(facts: &ExecutionFacts) -> Vec<Statement> {
    let row = &facts.execution;
    let lead = match row.next_try_at.filter(|at| *at <= facts.now) {
        Some(since) => Now::RetryOverdue { since, late: facts.now.since(since), attempts: row.attempts },
        None => Now::WaitsForRetry {
            since: facts.attempts.last().map(|run| run.at),
            attempts: row.attempts,
            due: row.next_try_at,
        },
    };
    let mut told: Vec<Statement> = vec![lead.into()];
    if will_be_held_back(facts) {
        told.push(paused(facts).into());
    }
    told.extend(pauses_ahead(facts));
    told.extend(owner::partition_without_owner(row.partition, &facts.partition_lease, facts.now));
    told
}

fn running(facts: &ExecutionFacts) -> Vec<Statement> {
    let row = &facts.execution;
    let worker = facts.worker.as_ref().filter(|node| Some(node.id) == row.owner);
    let mut told: Vec<Statement> = vec![
        Now::Running {
            worker: row.owner,
            worker_label: worker.map(|node| node.label.clone()),
            worker_seen_at: worker.map(|node| node.seen_at),
            token: row.token,
            since: row.leased_at,
            expires_at: row.expires_at,
            attempt: row.attempts.saturating_add(1),
            max_attempts: definition(facts).map(|definition| definition.retry.max_attempts),
        }
        .into(),
    ];
    let lapsed = may_be_taken(row.expires_at, facts.now);
    if lapsed {
        let since = Some(row.expires_at).filter(|at| *at <= facts.now);
        told.insert(0, Now::LeaseExpired { since, token: row.token, worker: row.owner }.into());
        told.extend(owner::no_leader(&facts.leadership, facts.now));
    } else {
        told.push(renewal(facts).into());
    }
    if row.cancel == CancelState::Requested {
        told.push(Now::CancelRequested { heard_by: Some(row.expires_at).filter(|_| !lapsed) }.into());
    }
    let is_there = |node: &crate::store::row::NodeRow| {
        node.state != NodeState::Offline && node.is_live(facts.spans.node_stale_after, facts.now)
    };
    if let Some(owner) = row.owner
        && !worker.is_some_and(is_there)
    {
        told.push(Now::WorkerSilent { worker: owner, seen_at: worker.map(|node| node.seen_at) }.into());
    }
    told
}

fn renewal(facts: &ExecutionFacts) -> Now {
    let row = &facts.execution;
    let expires_at = row.expires_at;
    match row.sign {
        LeaseSign::None => Now::NotRenewed { granted_at: row.leased_at, expires_at },
        LeaseSign::Started => {
            let assumed_lease = facts.spans.execution_lease;
            let renewed_at = expires_at.minus(assumed_lease);
            let fits = row.leased_at.is_none_or(|leased| leased <= renewed_at) && renewed_at <= facts.now;
            Now::Renewed { renewed_at: Some(renewed_at).filter(|_| fits), assumed_lease, expires_at }
        }
    }
}

fn ended(facts: &ExecutionFacts) -> Vec<Statement> {
    let row = &facts.execution;
    let mut told: Vec<Statement> = vec![Now::Ended { state: row.state, at: row.finished_at }.into()];
    let rows = u32::try_from(facts.outbox.len()).unwrap_or(u32::MAX);
    if rows > 0 {
        told.push(Now::LeftOver { rows }.into());
        told.extend(owner::no_leader(&facts.leadership, facts.now));
    }
    told
}
