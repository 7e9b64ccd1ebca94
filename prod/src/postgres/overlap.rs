//! Overlap: who holds a job's slot, decided while the job is locked.
//!
//! The rules are the reference semantics' own (`overlap` there). Which jobs are concerned is told by an index that is
//! mostly empty: those with a version that judges. Whatever decides about the slot of such a job, or gives it back,
//! locks the job's row first, in one statement, and decides in the next, which sees what was committed meanwhile. Jobs
//! without such a version are never locked here, and their acquires and completions stay one statement.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::execution::{CancelState, ExecutionState, SkipReason, WaitReason};
use fencepost_core::id::{EffectId, ExecutionId, JobId, NodeId};
use fencepost_core::job::Overlap;
use fencepost_core::lease::may_be_taken;
use fencepost_core::limits::{HELD_RECHECK, LIMIT_RECHECK, OVERLAP_RECHECK, PAUSE_RECHECK};
use fencepost_core::store::command::AcquireExecution;
use fencepost_core::store::reply::{AcquireReply, Grant};
use fencepost_core::time::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::fault::Fault;
use super::limits::{self, Limits};
use super::locked::{LockedExecution, LockedExecutions};
use super::notifications::notify;
use super::{outbox, read};

/// Locks the jobs of these executions that have a version which judges, by id.
pub(super) async fn lock_jobs(
    conn: &mut PgConnection,
    executions: impl IntoIterator<Item = ExecutionId>,
) -> Result<BTreeSet<JobId>, Fault> {
    let ids: Vec<Uuid> = executions.into_iter().map(ExecutionId::as_uuid).collect();
    if ids.is_empty() {
        return Ok(BTreeSet::new());
    }
    let jobs = sqlx::query_scalar!(
        "SELECT j.id FROM job j
         WHERE j.id = ANY (ARRAY(
             SELECT e.job FROM unnest($1::uuid[]) AS i (id) JOIN execution e ON e.id = ANY (ARRAY[i.id])
             WHERE (SELECT v.job FROM job_version v WHERE v.job = e.job AND v.overlap <> 'allow' LIMIT 1) IS NOT NULL))
         ORDER BY j.id FOR NO KEY UPDATE",
        &ids,
    )
    .fetch_all(conn)
    .await?;
    Ok(jobs.into_iter().map(JobId::from_uuid).collect())
}

/// Locks the jobs of these executions that have a version which judges what ends: by what it frees, or by how often it
/// fails. By id.
pub(super) async fn lock_jobs_of_ends(
    conn: &mut PgConnection,
    executions: impl IntoIterator<Item = ExecutionId>,
) -> Result<EndsJudged, Fault> {
    let ids: Vec<Uuid> = executions.into_iter().map(ExecutionId::as_uuid).collect();
    if ids.is_empty() {
        return Ok(EndsJudged::default());
    }
    let jobs = sqlx::query!(
        r#"SELECT j.id, (
             SELECT p.job FROM job_version p WHERE p.job = j.id AND p.pause_after IS NOT NULL LIMIT 1
           ) IS NOT NULL AS "pauses!"
           FROM job j
           WHERE j.id = ANY (ARRAY(
             SELECT e.job FROM unnest($1::uuid[]) AS i (id) JOIN execution e ON e.id = ANY (ARRAY[i.id])
             WHERE (SELECT v.job FROM job_version v WHERE v.job = e.job
                    AND (v.overlap <> 'allow' OR v.pause_after IS NOT NULL) LIMIT 1) IS NOT NULL))
           ORDER BY j.id FOR NO KEY UPDATE OF j"#,
        &ids,
    )
    .fetch_all(conn)
    .await?;
    let mut judged = EndsJudged::default();
    for row in jobs {
        let job = JobId::from_uuid(row.id);
        judged.all.insert(job);
        if row.pauses {
            judged.by_failures.insert(job);
        }
    }
    Ok(judged)
}

/// Jobs that are locked, and what their ends decide.
#[derive(Default)]
pub(super) struct EndsJudged {
    /// All of them.
    pub(super) all: BTreeSet<JobId>,
    /// Those with a version that pauses them after so many failures.
    pub(super) by_failures: BTreeSet<JobId>,
}

/// Of the slots that were given back, those of these jobs.
pub(super) fn among(judged: &BTreeSet<JobId>, mut freed: BTreeMap<JobId, NodeId>) -> BTreeMap<JobId, NodeId> {
    freed.retain(|job, _| judged.contains(job));
    freed
}

/// What is to follow once the ends of runs are written: where nobody holds a job's slot any more, whoever waits for it
/// gets its next dispatch, in the name of the node that held it, and the owner of its partition hears of it: whoever
/// comes later finds the slot free until that dispatch is answered.
pub(super) async fn lift(
    conn: &mut PgConnection,
    freed: &BTreeMap<JobId, NodeId>,
    now: i64,
) -> Result<(), Fault> {
    if freed.is_empty() {
        return Ok(());
    }
    let partitions = sqlx::query_scalar!(
        "WITH freed AS MATERIALIZED (
           SELECT f.job, f.node FROM unnest($1::uuid[], $2::uuid[]) AS f (job, node)),
         picked AS MATERIALIZED (
           SELECT f.node, (
             SELECT w.id FROM execution w WHERE w.job = f.job AND w.waiting = 'buffered'
             ORDER BY w.due_at, w.id LIMIT 1) AS id
           FROM freed f
           WHERE (
             SELECT h.id FROM execution h
             WHERE h.job = f.job AND h.state IN ('pending', 'running', 'retry_wait') AND h.nonce_node IS NOT NULL
             LIMIT 1) IS NULL),
         lifted AS (
           UPDATE execution e SET waiting = NULL, next_try_at = NULL, dispatch_no = e.dispatch_no + 1,
             dispatched_at = $3
           FROM picked p WHERE e.id = ANY (ARRAY[p.id]) AND coalesce(e.waiting, '') = 'buffered'
           RETURNING e.id, e.dispatch_no, e.tenant, e.partition, p.node)
         INSERT INTO outbox_event
           (execution, dispatch_no, tenant, partition, created_by, created_at, next_try_at, tries)
         SELECT id, dispatch_no, tenant, partition, node, $3, $3, 0 FROM lifted
         RETURNING partition",
        &freed.keys().map(|job| job.as_uuid()).collect::<Vec<_>>(),
        &freed.values().map(|node| node.as_uuid()).collect::<Vec<_>>(),
        now,
    )
    .fetch_all(&mut *conn)
    .await?;
    for partition in partitions.into_iter().collect::<BTreeSet<_>>() {
        notify(conn, partition).await?;
    }
    Ok(())
}

/// What of an execution does not change and its judgement takes.
struct Asking {
    due_at: i64,
    deadline_at: Option<i64>,
    overlap: Overlap,
    of_a_fire: bool,
    /// The pause of its tenant or queue, the tenant's first, and what it waits for then.
    pause: Option<(Uuid, WaitReason)>,
    /// What it is counted by.
    key: Option<String>,
}

/// The executions of some jobs that hold a slot, wait for one, or ask for one, all locked.
pub(super) struct Slots {
    now: Timestamp,
    node: NodeId,
    rows: LockedExecutions,
    asking: BTreeMap<ExecutionId, Asking>,
    paused: BTreeSet<JobId>,
    limits: Limits,
    /// Granted: their leases are to be written by the caller, between [`Self::write`] and [`Self::stop`].
    pub(super) granted: BTreeMap<ExecutionId, EffectId>,
    /// Granted, and asked to stop by what came after them.
    stopped: BTreeSet<ExecutionId>,
    /// Dispatched again, in the name of whom.
    lifted: Vec<(LockedExecution, NodeId)>,
}

impl Slots {
    /// Locks the tenants against pauses that begin or end meanwhile, the jobs, and then what is to be looked at.
    pub(super) async fn lock(
        conn: &mut PgConnection,
        node: NodeId,
        now: i64,
        items: &BTreeMap<ExecutionId, Uuid>,
    ) -> Result<Self, Fault> {
        let limited = limits::lock_tenants(conn, items.keys().copied()).await?;
        let jobs: BTreeSet<Uuid> = items.values().copied().collect();
        let jobs: Vec<Uuid> = jobs.into_iter().collect();
        sqlx::query!(
            "SELECT id FROM tenant WHERE id = ANY (ARRAY(SELECT tenant FROM job WHERE id = ANY($1)))
             ORDER BY id FOR SHARE",
            &jobs,
        )
        .fetch_all(&mut *conn)
        .await?;
        let standings = sqlx::query!(
            "SELECT id, standing FROM job WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE",
            &jobs,
        )
        .fetch_all(&mut *conn)
        .await?;
        let rows = sqlx::query!(
            r#"SELECT e.id, e.due_at, e.deadline_at, e.occurrence = 'scheduled' AS "of_a_fire!", (
                 SELECT v.overlap FROM job_version v WHERE v.job = e.job AND v.version = e.job_version) AS "overlap!", (
                 SELECT v.concurrency_key FROM job_version v WHERE v.job = e.job AND v.version = e.job_version) AS key,
                 p.id AS "pause?", p.scope AS "scope?"
               FROM unnest(ARRAY(
                 SELECT l.id FROM execution l WHERE l.job = ANY (ARRAY(
                   SELECT v.job FROM job_version v WHERE v.job = ANY($1) AND v.overlap <> 'allow')) AND l.state IN ('pending', 'running', 'retry_wait')
                   AND (l.nonce_node IS NOT NULL OR l.waiting = 'buffered')) || $2::uuid[]) AS i (id)
               JOIN execution e ON e.id = ANY (ARRAY[i.id])
               LEFT JOIN LATERAL (
                 SELECT p.id, p.scope FROM pause p WHERE p.tenant = e.tenant AND p.ended_at IS NULL AND (p.scope = 'tenant'
                   OR p.handler || '/' || p.handler_version = (SELECT queue_of(v.definition) FROM job_version v
                     WHERE v.job = e.job AND v.version = e.job_version)) ORDER BY p.scope DESC LIMIT 1) AS p ON true"#,
            &jobs,
            &items.keys().map(|id| id.as_uuid()).collect::<Vec<_>>(),
        )
        .fetch_all(&mut *conn)
        .await?;
        let mut asking = BTreeMap::new();
        for row in rows {
            let overlap = read::named("job_version.overlap", &row.overlap, Overlap::from_name)?;
            let reason = |scope: &str| match scope {
                "tenant" => WaitReason::TenantPaused,
                _ => WaitReason::QueuePaused,
            };
            let pause = row.pause.zip(row.scope.as_deref().map(reason));
            let it = Asking {
                due_at: row.due_at,
                deadline_at: row.deadline_at,
                overlap,
                of_a_fire: row.of_a_fire,
                pause,
                key: row.key,
            };
            asking.insert(ExecutionId::from_uuid(row.id), it);
        }
        let paused = standings.into_iter().filter(|job| job.standing == "paused");
        Ok(Self {
            now: Timestamp::from_micros(now),
            node,
            rows: LockedExecutions::lock(conn, asking.keys().copied()).await?,
            limits: Limits::of(conn, &limited).await?,
            asking,
            paused: paused.map(|job| JobId::from_uuid(job.id)).collect(),
            granted: BTreeMap::new(),
            stopped: BTreeSet::new(),
            lifted: Vec::new(),
        })
    }

    /// Answers one that asks for a lease, as things stand after those before it in the batch. No answer: it is granted,
    /// or is to be looked at anew once the leases are written.
    pub(super) fn answer(&mut self, item: &AcquireExecution) -> Option<AcquireReply> {
        let id = item.execution;
        if let Some(nonce) = self.granted.get(&id) {
            return (*nonce != item.nonce).then_some(AcquireReply::Never { state: ExecutionState::Running });
        }
        let row = self.rows.get(id)?;
        let asking = self.asking.get(&id)?;
        let state = row.state;
        if row.nonce_node == Some(self.node) && row.nonce == item.nonce {
            let runs_on = state == ExecutionState::Running && !may_be_taken(row.expires_at, self.now);
            return Some(match row.leased_at.filter(|_| runs_on) {
                Some(leased_at) => AcquireReply::Granted(Grant {
                    token: row.token,
                    attempts: row.attempts,
                    age: leased_at.since(Timestamp::from_micros(asking.due_at)),
                    left: read::instant(asking.deadline_at).map(|at| at.since(leased_at)),
                    cancel: row.cancel,
                }),
                None => AcquireReply::Never { state },
            });
        }
        match state {
            ExecutionState::Pending if asking.of_a_fire && self.paused.contains(&row.job) => {
                Some(self.hold_back(id, WaitReason::JobPaused, None))
            }
            ExecutionState::Pending if asking.pause.is_some() => {
                let (pause, reason) = asking.pause?;
                Some(self.hold_back(id, reason, Some(pause)))
            }
            ExecutionState::Pending if row.token.next().is_none() => Some(AcquireReply::Never { state }),
            ExecutionState::Pending if row.nonce_node.is_some() => self.grant(item),
            ExecutionState::Pending => self.judge(item),
            ExecutionState::RetryWait => Some(AcquireReply::NotNow { state }),
            ExecutionState::Running
            | ExecutionState::Completed
            | ExecutionState::DeadLettered
            | ExecutionState::Failed
            | ExecutionState::Cancelled
            | ExecutionState::Skipped => Some(AcquireReply::Never { state }),
        }
    }

    /// Unless a limit is in its way: then it waits for that. One that waits for the same already keeps its time.
    fn grant(&mut self, item: &AcquireExecution) -> Option<AcquireReply> {
        let (now, id) = (self.now, item.execution);
        let (tenant, key) = (self.rows.get(id)?.tenant, self.asking.get(&id)?.key.clone());
        if let Some(reason) = self.limits.in_the_way(tenant, key.as_deref()) {
            let row = self.row(id);
            if row.waiting != Some(reason) {
                row.waiting = Some(reason);
                row.held_by = None;
                row.next_try_at = Some(now.plus(LIMIT_RECHECK));
            }
            return Some(AcquireReply::NotNow { state: ExecutionState::Pending });
        }
        self.limits.begin(tenant, key.as_deref());
        self.granted.insert(id, item.nonce);
        None
    }

    /// One that waits already keeps its reason and its time.
    fn hold_back(&mut self, id: ExecutionId, reason: WaitReason, pause: Option<Uuid>) -> AcquireReply {
        let recheck = if pause.is_some() { HELD_RECHECK } else { PAUSE_RECHECK };
        let now = self.now;
        let row = self.row(id);
        if row.waiting.is_none() {
            row.waiting = Some(reason);
            row.held_by = pause;
            row.next_try_at = Some(now.plus(recheck));
        }
        AcquireReply::NotNow { state: ExecutionState::Pending }
    }

    /// Judges one that asks for its first lease.
    fn judge(&mut self, item: &AcquireExecution) -> Option<AcquireReply> {
        let id = item.execution;
        let (row, asking) = (self.rows.get(id)?, self.asking.get(&id)?);
        let (job, overlap, due_at) = (row.job, asking.overlap, asking.due_at);
        let holders = if overlap.judges() { self.holders_of(job) } else { Vec::new() };
        if holders.is_empty() {
            return self.grant(item);
        }
        match overlap {
            Overlap::Allow => self.grant(item),
            Overlap::Skip => Some(self.pass_over(id)),
            Overlap::BufferOne => match self.buffered_of(job) {
                Some(other) if other != id => Some(self.pass_over(id)),
                Some(_) | None => Some(self.buffer(id)),
            },
            Overlap::CancelRunning => self.replace(item, job, due_at, &holders),
        }
    }

    fn holds(&self, row: &LockedExecution) -> bool {
        !row.state.is_terminal() && (row.nonce_node.is_some() || self.granted.contains_key(&row.id))
    }

    /// Those that hold a job's slot, by id.
    fn holders_of(&self, job: JobId) -> Vec<ExecutionId> {
        self.rows.iter().filter(|row| row.job == job && self.holds(row)).map(|row| row.id).collect()
    }

    /// The one that waits for a job's slot: the first by due time.
    fn buffered_of(&self, job: JobId) -> Option<ExecutionId> {
        let waits = |row: &&LockedExecution| row.job == job && row.waiting == Some(WaitReason::Buffered);
        self.rows.iter().filter(waits).map(|row| row.id).min_by_key(|id| (self.due_at(*id), *id))
    }

    fn due_at(&self, id: ExecutionId) -> Option<i64> {
        self.asking.get(&id).map(|asking| asking.due_at)
    }

    fn row(&mut self, id: ExecutionId) -> &mut LockedExecution {
        self.rows.get_mut(id).expect("what is judged was locked")
    }

    fn pass_over(&mut self, id: ExecutionId) -> AcquireReply {
        let now = self.now;
        let row = self.row(id);
        row.settle(ExecutionState::Skipped, now);
        row.skip_reason = Some(SkipReason::Overlap);
        AcquireReply::Never { state: ExecutionState::Skipped }
    }

    /// One that waits for the slot already keeps its time.
    fn buffer(&mut self, id: ExecutionId) -> AcquireReply {
        let now = self.now;
        let row = self.row(id);
        if row.waiting != Some(WaitReason::Buffered) {
            row.waiting = Some(WaitReason::Buffered);
            row.next_try_at = Some(now.plus(OVERLAP_RECHECK));
        }
        AcquireReply::NotNow { state: ExecutionState::Pending }
    }

    fn replace(
        &mut self,
        item: &AcquireExecution,
        job: JobId,
        due_at: i64,
        holders: &[ExecutionId],
    ) -> Option<AcquireReply> {
        let id = item.execution;
        let runs_on = self.call_off(holders);
        let other = self.buffered_of(job).filter(|other| *other != id);
        if let Some(other) = other {
            if (self.due_at(other), other) > (Some(due_at), id) {
                let reply = self.pass_over(id);
                if !runs_on {
                    self.dispatch(other, holders);
                }
                return Some(reply);
            }
            self.pass_over(other);
        }
        if runs_on {
            return Some(self.buffer(id));
        }
        self.grant(item)
    }

    /// Cancels those that hold a slot, or asks them to stop; says whether one of them runs on.
    fn call_off(&mut self, holders: &[ExecutionId]) -> bool {
        let (now, mut runs_on) = (self.now, false);
        for holder in holders {
            if self.granted.contains_key(holder) {
                self.stopped.insert(*holder);
                runs_on = true;
                continue;
            }
            let row = self.row(*holder);
            if row.state == ExecutionState::Running {
                row.cancel = CancelState::Requested;
                runs_on = true;
            } else {
                row.settle(ExecutionState::Cancelled, now);
            }
        }
        runs_on
    }

    /// The one that waits gets its next dispatch, in the name of the node of the last of those that held the slot.
    fn dispatch(&mut self, id: ExecutionId, holders: &[ExecutionId]) {
        let (now, own) = (self.now, self.node);
        let last = holders.last().and_then(|holder| self.rows.get(*holder));
        let node = last.and_then(|row| row.nonce_node).unwrap_or(own);
        let row = self.row(id);
        row.waiting = None;
        row.next_try_at = None;
        row.dispatch(now);
        let dispatched = row.clone();
        self.lifted.push((dispatched, node));
    }

    /// Writes what was decided, but for the leases and what comes after them.
    pub(super) async fn write(&self, conn: &mut PgConnection) -> Result<(), Fault> {
        self.rows.write(conn).await?;
        for (row, node) in &self.lifted {
            outbox::insert(conn, *node, &[row], self.now.as_micros()).await?;
            notify(conn, row.partition).await?;
        }
        Ok(())
    }

    /// Asks those to stop that were granted before the one that is to replace them.
    pub(super) async fn stop(&self, conn: &mut PgConnection) -> Result<(), Fault> {
        if !self.stopped.is_empty() {
            sqlx::query!(
                "UPDATE execution SET cancel_requested = true WHERE id = ANY($1)",
                &self.stopped.iter().map(|id| id.as_uuid()).collect::<Vec<_>>(),
            )
            .execute(conn)
            .await?;
        }
        Ok(())
    }
}
