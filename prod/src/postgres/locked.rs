//! Executions under lock: read, changed in memory, written back in one statement.
//!
//! The ways of [`LockedExecution`] to change are the reference semantics' own (`transition.rs` there). Legal
//! transitions are held by a trigger as well, so a mistake here would fail and not pass.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::execution::{CancelState, ExecutionState, LeaseSign, SkipReason, WaitReason};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{DispatchNo, EffectId, ExecutionId, JobId, NodeId, TenantId};
use fencepost_core::job::failures::is_failure;
use fencepost_core::limits::WAIT_DELAY_MAX;
use fencepost_core::retry::doubled;
use fencepost_core::store::command::OutboxId;
use fencepost_core::time::{Span, Timestamp};
use sqlx::PgConnection;
use uuid::Uuid;

use super::fault::Fault;
use super::limits::{Ended, has_stopped};
use super::read;

/// What of an execution its lease, its ends and its dispatches change, and what deciding about them takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LockedExecution {
    pub(super) id: ExecutionId,
    pub(super) tenant: TenantId,
    pub(super) job: JobId,
    pub(super) partition: i16,
    pub(super) state: ExecutionState,
    pub(super) skip_reason: Option<SkipReason>,
    pub(super) token: FencingToken,
    pub(super) owner: Option<NodeId>,
    /// The node of its latest acquire; `None` where it never had a lease.
    pub(super) nonce_node: Option<NodeId>,
    /// The effect of that acquire.
    pub(super) nonce: EffectId,
    pub(super) expires_at: Timestamp,
    pub(super) sign: LeaseSign,
    pub(super) cancel: CancelState,
    pub(super) attempts: u32,
    pub(super) rescues: u32,
    pub(super) lost_starts: u32,
    pub(super) next_try_at: Option<Timestamp>,
    pub(super) waiting: Option<WaitReason>,
    /// The pause that it is to wait for from now on: to be given with another reason for waiting than it had.
    pub(super) held_by: Option<Uuid>,
    pub(super) waits: u32,
    pub(super) dispatch_no: DispatchNo,
    pub(super) dispatched_at: Option<Timestamp>,
    pub(super) redispatches: u32,
    pub(super) leased_at: Option<Timestamp>,
    pub(super) started_at: Option<Timestamp>,
    pub(super) finished_at: Option<Timestamp>,
    pub(super) lag_clamped: bool,
    pub(super) error: Option<String>,
    /// The latest of the stamps before the lease.
    latest_before: Timestamp,
}

impl LockedExecution {
    /// Nobody holds it, and it is due again at `at`.
    pub(super) fn set_back(&mut self, at: Timestamp) {
        self.state = ExecutionState::RetryWait;
        self.owner = None;
        self.expires_at = Timestamp::EPOCH;
        self.next_try_at = Some(at);
    }

    /// It ended: now, or at its latest stamp where that lies ahead of the clock.
    pub(super) fn settle(&mut self, to: ExecutionState, now: Timestamp) {
        self.state = to;
        self.owner = None;
        self.expires_at = Timestamp::EPOCH;
        self.waiting = None;
        self.next_try_at = None;
        let stamps = [self.leased_at, self.started_at];
        let latest = stamps.into_iter().flatten().fold(self.latest_before, Timestamp::max);
        let finished_at = now.max(latest);
        self.finished_at = Some(finished_at);
        self.lag_clamped |= finished_at != now;
    }

    /// It waits for this reason, by the next of its growing delays.
    pub(super) fn wait(&mut self, reason: WaitReason, delay: Span, now: Timestamp) {
        self.waiting = Some(reason);
        self.next_try_at = Some(now.plus(doubled(delay, self.waits).min(WAIT_DELAY_MAX)));
        self.waits = self.waits.saturating_add(1);
    }

    /// It gets its next dispatch; the outbox row is to follow.
    pub(super) fn dispatch(&mut self, now: Timestamp) {
        self.dispatch_no = self.dispatch_no.next();
        self.dispatched_at = Some(now);
    }

    /// Whether this is its latest dispatch, and it is still to be started.
    pub(super) fn awaits(&self, dispatch: OutboxId) -> bool {
        self.state == ExecutionState::Pending && self.dispatch_no == dispatch.dispatch_no
    }
}

/// Executions by id, as they are under lock and as they are to be.
pub(super) struct LockedExecutions {
    before: BTreeMap<ExecutionId, LockedExecution>,
    after: BTreeMap<ExecutionId, LockedExecution>,
}

impl LockedExecutions {
    /// Locks those of these executions that exist, by id. Guards by key are not in the way.
    pub(super) async fn lock(
        conn: &mut PgConnection,
        ids: impl IntoIterator<Item = ExecutionId>,
    ) -> Result<Self, Fault> {
        let mut ids: Vec<Uuid> = ids.into_iter().map(ExecutionId::as_uuid).collect();
        ids.sort_unstable();
        ids.dedup();
        let rows = sqlx::query!(
            r#"SELECT e.id, e.tenant, e.job, e.partition, e.state, e.skip_reason, e.token, e.owner, e.nonce_node, e.nonce, e.expires_at, e.start_seen,
                 e.cancel_requested, e.attempts, e.rescues, e.lost_starts, e.next_try_at, e.waiting, e.waits,
                 e.dispatch_no, e.dispatched_at, e.redispatches, e.leased_at, e.started_at, e.finished_at,
                 e.lag_clamped, e.error,
                 greatest(e.materialised_at, e.published_at, e.received_at) AS "latest_before!"
               FROM unnest($1::uuid[]) WITH ORDINALITY AS i (id, place) JOIN execution e ON e.id = ANY (ARRAY[i.id])
               ORDER BY i.place FOR NO KEY UPDATE OF e"#,
            &ids,
        )
        .fetch_all(conn)
        .await?;
        let mut before = BTreeMap::new();
        for row in rows {
            let row = LockedExecution {
                id: ExecutionId::from_uuid(row.id),
                tenant: TenantId::from_uuid(row.tenant),
                job: JobId::from_uuid(row.job),
                partition: row.partition,
                state: read::state(&row.state)?,
                skip_reason: read::skipped(row.skip_reason.as_deref())?,
                token: FencingToken::from_i64(row.token),
                owner: row.owner.map(NodeId::from_uuid),
                nonce_node: row.nonce_node.map(NodeId::from_uuid),
                nonce: EffectId(row.nonce.cast_unsigned()),
                expires_at: Timestamp::from_micros(row.expires_at),
                sign: read::sign(row.start_seen),
                cancel: read::cancel(row.cancel_requested),
                attempts: read::count("execution.attempts", row.attempts)?,
                rescues: read::count("execution.rescues", row.rescues)?,
                lost_starts: read::count("execution.lost_starts", row.lost_starts)?,
                next_try_at: read::instant(row.next_try_at),
                waiting: read::waiting(row.waiting.as_deref())?,
                held_by: None,
                waits: read::count("execution.waits", row.waits)?,
                dispatch_no: DispatchNo(read::count("execution.dispatch_no", row.dispatch_no)?),
                dispatched_at: read::instant(row.dispatched_at),
                redispatches: read::count("execution.redispatches", row.redispatches)?,
                leased_at: read::instant(row.leased_at),
                started_at: read::instant(row.started_at),
                finished_at: read::instant(row.finished_at),
                lag_clamped: row.lag_clamped,
                error: row.error,
                latest_before: Timestamp::from_micros(row.latest_before),
            };
            before.insert(row.id, row);
        }
        Ok(Self { after: before.clone(), before })
    }

    /// One of them, if it exists.
    pub(super) fn get(&self, id: ExecutionId) -> Option<&LockedExecution> {
        self.after.get(&id)
    }

    /// One of them, to be changed.
    pub(super) fn get_mut(&mut self, id: ExecutionId) -> Option<&mut LockedExecution> {
        self.after.get_mut(&id)
    }

    /// All of them, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LockedExecution> {
        self.after.values()
    }

    /// The runs among these that have ended under this lock, whatever follows, in the order in which they are named.
    pub(super) fn ended_runs(&self, named: impl IntoIterator<Item = ExecutionId>) -> Vec<Ended> {
        let mut seen = BTreeSet::new();
        let ended = |id: ExecutionId| {
            let (before, after) = (self.before.get(&id)?, self.after.get(&id)?);
            let stopped = has_stopped(before.state, after.state) && seen.insert(id);
            let node = after.nonce_node.filter(|_| stopped)?;
            Some(Ended { execution: id, tenant: after.tenant, node })
        };
        named.into_iter().filter_map(ended).collect()
    }

    /// The jobs whose slot was held by one of these that has ended under this lock, each with the node of the latest
    /// lease of the last of them, in the order in which they are named.
    pub(super) fn freed(&self, named: impl IntoIterator<Item = ExecutionId>) -> BTreeMap<JobId, NodeId> {
        let mut freed = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for id in named {
            let (Some(before), Some(after)) = (self.before.get(&id), self.after.get(&id)) else { continue };
            let ended = !before.state.is_terminal() && after.state.is_terminal();
            if let Some(node) = after.nonce_node.filter(|_| ended && seen.insert(id)) {
                freed.insert(after.job, node);
            }
        }
        freed
    }

    /// The jobs of which one of these failed for good under this lock.
    pub(super) fn failed(&self) -> BTreeSet<JobId> {
        let was_live = |id| self.before.get(id).is_some_and(|row| !row.state.is_terminal());
        let failed = self.after.iter().filter(|(id, row)| is_failure(row.state) && was_live(*id));
        failed.map(|(_, row)| row.job).collect()
    }

    /// Writes those that changed.
    pub(super) async fn write(&self, conn: &mut PgConnection) -> Result<(), Fault> {
        let changed: Vec<&LockedExecution> =
            self.after.values().filter(|row| self.before.get(&row.id) != Some(*row)).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let micros = |stamp: Option<Timestamp>| stamp.map(Timestamp::as_micros);
        let counts = |of: fn(&LockedExecution) -> u32| -> Vec<i32> {
            changed.iter().map(|row| read::stored_count(of(row))).collect()
        };
        let stamps = |of: fn(&LockedExecution) -> Option<Timestamp>| -> Vec<Option<i64>> {
            changed.iter().map(|row| micros(of(row))).collect()
        };
        sqlx::query!(
            "UPDATE execution e SET state = i.state, owner = i.owner, expires_at = i.expires_at,
               start_seen = i.start_seen, cancel_requested = i.cancel_requested, attempts = i.attempts,
               rescues = i.rescues, lost_starts = i.lost_starts, next_try_at = i.next_try_at,
               waiting = i.waiting, held_by = CASE WHEN i.waiting = e.waiting THEN e.held_by ELSE i.held_by END,
               waits = i.waits, dispatch_no = i.dispatch_no,
               dispatched_at = i.dispatched_at, redispatches = i.redispatches, started_at = i.started_at,
               finished_at = i.finished_at, lag_clamped = i.lag_clamped, error = i.error,
               skip_reason = i.skip_reason
             FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::int8[], $5::bool[], $6::bool[], $7::int4[],
               $8::int4[], $9::int4[], $10::int8[], $11::text[], $12::int4[], $13::int4[], $14::int8[],
               $15::int4[], $16::int8[], $17::int8[], $18::bool[], $19::text[], $20::text[], $21::uuid[])
               AS i (id, state, owner, expires_at, start_seen, cancel_requested, attempts, rescues,
                 lost_starts, next_try_at, waiting, waits, dispatch_no, dispatched_at, redispatches, started_at,
                 finished_at, lag_clamped, error, skip_reason, held_by)
             WHERE e.id = ANY (ARRAY[i.id])",
            &changed.iter().map(|row| row.id.as_uuid()).collect::<Vec<_>>(),
            &changed.iter().map(|row| row.state.name().to_owned()).collect::<Vec<_>>(),
            &changed.iter().map(|row| row.owner.map(NodeId::as_uuid)).collect::<Vec<_>>() as &[Option<Uuid>],
            &changed.iter().map(|row| row.expires_at.as_micros()).collect::<Vec<_>>(),
            &changed.iter().map(|row| row.sign == LeaseSign::Started).collect::<Vec<_>>(),
            &changed.iter().map(|row| row.cancel == CancelState::Requested).collect::<Vec<_>>(),
            &counts(|row| row.attempts),
            &counts(|row| row.rescues),
            &counts(|row| row.lost_starts),
            &stamps(|row| row.next_try_at) as &[Option<i64>],
            &changed.iter().map(|row| row.waiting.map(|why| why.name().to_owned())).collect::<Vec<_>>()
                as &[Option<String>],
            &counts(|row| row.waits),
            &counts(|row| row.dispatch_no.0),
            &stamps(|row| row.dispatched_at) as &[Option<i64>],
            &counts(|row| row.redispatches),
            &stamps(|row| row.started_at) as &[Option<i64>],
            &stamps(|row| row.finished_at) as &[Option<i64>],
            &changed.iter().map(|row| row.lag_clamped).collect::<Vec<_>>(),
            &changed.iter().map(|row| row.error.clone()).collect::<Vec<_>>() as &[Option<String>],
            &changed.iter().map(|row| row.skip_reason.map(|why| why.name().to_owned())).collect::<Vec<_>>()
                as &[Option<String>],
            &changed.iter().map(|row| row.held_by).collect::<Vec<_>>() as &[Option<Uuid>],
        )
        .execute(conn)
        .await?;
        Ok(())
    }
}
