//! Due jobs: which there are, what is recorded of them, and which are put off.
//!
//! An item is checked in this order: the partition's lease, the job (there, active, of that partition), its
//! version, its watermark, the store's clock against every fire, and against `valid_until`. A stale lease
//! and a changed version are recorded as refusals of the partition's lease; a watermark that has moved is
//! not, since that is what a resend meets.

use std::sync::Arc;

use crate::bug::Bug;
use crate::execution::{CancelState, ExecutionState, LeaseSign, is_legal};
use crate::fencing::FencingToken;
use crate::id::{DispatchNo, EffectId, ExecutionId, JobVersion, NodeId, Occurrence};
use crate::lease::{HeldLease, LeaseResource};
use crate::limits::UNRECORDED_VERSIONS_MAX;
use crate::mark::{self, Mark};
use crate::partition::PartitionId;
use crate::store::command::{
    Materialise, MaterialiseJob, NewExecution, NewSkippedRange, PutOffJob, PutOffJobs, ScanDueJobs, lease_of,
};
use crate::store::reference::Call;
use crate::store::reply::{DueJob, EarlierVersion, MadeExecution, MaterialiseReply, PutOffReply, Reply};
use crate::store::row::{ExecutionRow, JobRow, JobState, RefusedAction, RefusedResource, SkippedRangeRow};
use crate::time::Timestamp;

/// Everything that a new execution has in common, scheduled or manual: `Pending` under its first dispatch,
/// without a lease or an attempt; made, dispatched and, unless said otherwise, due at `now`.
pub(super) fn new_execution(
    job: &JobRow,
    id: ExecutionId,
    occurrence: Occurrence,
    key: Arc<str>,
    now: Timestamp,
) -> ExecutionRow {
    assert!(is_legal(None, ExecutionState::Pending), "executions are born pending");
    ExecutionRow {
        id,
        tenant: job.tenant,
        job: job.id,
        job_version: job.version,
        partition: job.partition,
        occurrence,
        key,
        payload: None,
        state: ExecutionState::Pending,
        skip_reason: None,
        due_at: now,
        deadline_at: None,
        made_under: FencingToken::NEVER,
        token: FencingToken::NEVER,
        owner: None,
        nonce: EffectId::default(),
        nonce_node: None,
        expires_at: Timestamp::EPOCH,
        sign: LeaseSign::None,
        cancel: CancelState::None,
        attempts: 0,
        rescues: 0,
        lost_starts: 0,
        next_try_at: None,
        waiting: None,
        held_by: None,
        waits: 0,
        dispatch_no: DispatchNo(1),
        dispatched_at: Some(now),
        redispatches: 0,
        materialised_at: now,
        published_at: None,
        received_at: None,
        leased_at: None,
        started_at: None,
        finished_at: None,
        lag_clamped: false,
        error: None,
    }
}

impl Call<'_> {
    /// The cursor bounds what is returned, not `next_due`: that is the earliest instant after now at which a
    /// job of these partitions comes due. `next_try_at` never lies before `next_fire_time`, so it alone says
    /// when.
    pub(super) fn scan_due_jobs(&mut self, ask: &ScanDueJobs) -> Reply {
        let due = &self.tables.jobs.index().due;
        let describe = |(next_try_at, id)| {
            let row = self.tables.jobs.get(&id).expect("the index names rows of its table");
            DueJob {
                job: row.id,
                tenant: row.tenant,
                partition: row.partition,
                version: row.version,
                definition: row.definition.clone(),
                standing: row.standing,
                effective_from: row.effective_from,
                earlier: self.earlier_versions(row),
                recorded_through: row.recorded_through,
                next_fire_time: row.next_fire_time.expect("the index holds jobs with a next fire"),
                next_try_at,
                runs: row.runs,
                unreadable: row.unreadable.clone(),
            }
        };
        let partitions = || ask.partitions.iter().copied();
        let jobs =
            due.due(partitions(), ask.after, self.now).map(describe).take(ask.limit as usize).collect();
        let next_due = due.next_after(partitions(), self.now);
        Reply::DueJobs { jobs, next_due }
    }

    /// The versions before the current one that decide about what follows the watermark: those that begin after it, and
    /// the one in force right after it.
    fn earlier_versions(&self, job: &JobRow) -> Vec<EarlierVersion> {
        let first = job.recorded_through.next();
        if job.effective_from <= first {
            return Vec::new();
        }
        let mut earlier = Vec::new();
        for version in (1..job.version.0).rev().take(UNRECORDED_VERSIONS_MAX as usize) {
            let version = JobVersion(version);
            let Some(row) = self.tables.job_versions.get(&(job.id, version)) else { break };
            earlier.push(EarlierVersion {
                version,
                definition: row.definition.clone(),
                standing: row.standing,
                effective_from: row.effective_from,
            });
            if row.effective_from <= first {
                break;
            }
        }
        earlier.reverse();
        earlier
    }

    /// Item by item.
    pub(super) fn materialise(&mut self, ask: &Materialise) -> Vec<MaterialiseReply> {
        ask.items.iter().map(|item| self.materialise_job(ask, item)).collect()
    }

    fn materialise_job(&mut self, ask: &Materialise, item: &MaterialiseJob) -> MaterialiseReply {
        let held = presented(&ask.leases, item.partition);
        if let Err(current) = self.guard(ask.node, held)
            && !self.bugs.has(Bug::MaterialiseIgnoresToken)
        {
            mark::hit(Mark::MaterialiseRefused);
            self.refuse_materialise(ask.node, held, current);
            return MaterialiseReply::StaleLease { current };
        }
        let Some(job) = self.tables.jobs.get(&item.job).filter(|job| job.partition == item.partition) else {
            return MaterialiseReply::Gone;
        };
        if job.state == JobState::Deleted {
            mark::hit(Mark::MaterialiseMetDelete);
            if !self.bugs.has(Bug::DeletedJobsFire) {
                return MaterialiseReply::Gone;
            }
        } else if job.version != item.version && !self.bugs.has(Bug::MaterialiseIgnoresVersion) {
            let current = job.version;
            self.refuse_materialise(ask.node, held, held.token);
            return MaterialiseReply::VersionChanged { current };
        } else if job.next_fire_time != Some(item.expected_fire)
            && !self.bugs.has(Bug::MaterialiseIgnoresWatermark)
        {
            mark::hit(Mark::WatermarkMoved);
            if self.bugs.has(Bug::RepeatedMaterialiseResets) {
                self.reset_existing(item);
            }
            return MaterialiseReply::WatermarkMoved;
        }
        let is_ahead = |new: &NewExecution| new.fire > self.now || new.due_at > self.now;
        let lies_ahead = |range: &NewSkippedRange| range.through > self.now;
        if (item.executions.iter().any(is_ahead) || item.skipped.iter().any(lies_ahead))
            && !self.bugs.has(Bug::MaterialiseAheadOfTime)
        {
            return MaterialiseReply::NotDue;
        }
        if self.now > item.valid_until && !self.bugs.has(Bug::MaterialiseIgnoresPlanAge) {
            return MaterialiseReply::PlanExpired;
        }
        MaterialiseReply::Applied(self.record_fires(ask.node, held.token, item, job.clone()))
    }

    /// Writes what was decided. Without a next fire, `next_try_at` stays where it was: no scan reads it.
    fn record_fires(
        &mut self,
        node: NodeId,
        made_under: FencingToken,
        item: &MaterialiseJob,
        mut job: JobRow,
    ) -> Vec<MadeExecution> {
        let make = |new: &NewExecution| {
            if self.tables.executions().contains(&new.id) {
                return MadeExecution::Existed;
            }
            if new.due_at > new.fire {
                mark::hit(Mark::FireFlexed);
            }
            let occurrence = Occurrence::Scheduled { fire: new.fire };
            let row = ExecutionRow {
                job_version: new.version,
                due_at: new.due_at,
                deadline_at: new.deadline_at,
                made_under,
                ..new_execution(&job, new.id, occurrence, new.key.clone(), self.now)
            };
            let outbox = self.outbox_row(&row, node);
            self.tables.put_execution(row, self.changes);
            self.tables.put_outbox(outbox, self.changes);
            MadeExecution::Made
        };
        let made: Vec<MadeExecution> = item.executions.iter().map(make).collect();
        for range in &item.skipped {
            self.record_skipped(range, made_under, &job);
        }
        let runs = made.iter().filter(|made| **made == MadeExecution::Made).count();
        job.runs = job.runs.saturating_add(runs as u64);
        job.recorded_through = item.recorded_through;
        job.next_fire_time = item.next_fire_time;
        job.next_try_at = item.next_fire_time.map_or(job.next_try_at, |fire| fire.plus(item.next_flex));
        job.unreadable = None;
        self.tables.jobs.put(job, self.changes);
        made
    }

    /// A range that starts where one does already is left as that is.
    fn record_skipped(&mut self, range: &NewSkippedRange, made_under: FencingToken, job: &JobRow) {
        if self.tables.skipped_ranges.contains(&(job.id, range.from))
            || self.bugs.has(Bug::SkippedRangesForgotten)
        {
            return;
        }
        let row = SkippedRangeRow {
            job: job.id,
            from: range.from,
            through: range.through,
            tenant: job.tenant,
            reason: range.reason,
            job_version: range.version,
            made_under,
            decided_at: self.now,
            zone_data: range.zone_data.clone(),
        };
        self.tables.skipped_ranges.put(row, self.changes);
    }

    /// What the bug of that name does with a resend.
    fn reset_existing(&mut self, item: &MaterialiseJob) {
        for new in &item.executions {
            let known = self.tables.executions().get(&new.id);
            let Some(row) = known.filter(|row| row.state == ExecutionState::Completed) else { continue };
            let row = ExecutionRow { state: ExecutionState::Pending, owner: None, ..row.clone() };
            self.tables.put_execution(row, self.changes);
        }
    }

    fn refuse_materialise(&mut self, node: NodeId, held: HeldLease, current: FencingToken) {
        let resource = RefusedResource::Lease(held.resource);
        self.refuse(resource, held.token, node, RefusedAction::Materialise, current);
    }

    /// Item by item. A stale lease is recorded as a refusal to materialise; `Moved` is not recorded.
    pub(super) fn put_off_jobs(&mut self, ask: &PutOffJobs) -> Vec<PutOffReply> {
        ask.items.iter().map(|item| self.put_off_job(ask, item)).collect()
    }

    fn put_off_job(&mut self, ask: &PutOffJobs, item: &PutOffJob) -> PutOffReply {
        let held = presented(&ask.leases, item.partition);
        if let Err(current) = self.guard_recorded(ask.node, held, RefusedAction::Materialise) {
            return PutOffReply::StaleLease { current };
        }
        let observed = |job: &&JobRow| {
            job.partition == item.partition
                && job.state == JobState::Active
                && job.version == item.version
                && job.next_fire_time == Some(item.expected_fire)
        };
        let Some(job) = self.tables.jobs.get(&item.job).filter(observed) else { return PutOffReply::Moved };
        let job = JobRow {
            unreadable: Some(item.unreadable.clone()),
            next_try_at: self.now.plus(item.delay).max(item.expected_fire),
            ..job.clone()
        };
        self.tables.jobs.put(job, self.changes);
        PutOffReply::Done
    }
}

/// What is presented for a partition; where nothing is, a token that no grant ever had.
fn presented(leases: &[HeldLease], partition: PartitionId) -> HeldLease {
    let token = lease_of(leases, partition).unwrap_or(FencingToken::NEVER);
    HeldLease { resource: LeaseResource::Partition(partition), token }
}
