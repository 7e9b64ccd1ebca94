//! Pauses of tenants and queues: made, ended, and what they hold back and let go.
//!
//! An execution that is held back names the pause, so that the resume finds what waits for it without looking at
//! anything else: the command itself lets the first go, and partition owners pick up the rest, with whatever else is
//! due. Nothing depends on their doing so: what is held back comes due by itself as well, only later.

use crate::bug::Bug;
use crate::execution::WaitReason;
use crate::id::{ExecutionId, Occurrence, PauseId, TenantId};
use crate::limits::{BATCH_MAX, HELD_RECHECK};
use crate::mark::{self, Mark};
use crate::partition::PartitionId;
use crate::pause::{PauseScope, queue_of};
use crate::store::command::{PauseChange, SetPause};
use crate::store::reference::{Call, Picked};
use crate::store::reply::SetPauseReply;
use crate::store::row::{ExecutionRow, PauseEnd, PauseRow, RequestRow};

impl Call<'_> {
    pub(super) fn set_pause(&mut self, ask: &SetPause) -> SetPauseReply {
        if !self.tables.tenants.contains(&ask.tenant) {
            return SetPauseReply::NotFound;
        }
        if let Some(asked) = &ask.request
            && let Some(known) = self.tables.requests.get(&(ask.tenant, asked.request.clone()))
        {
            return match known.set_a_pause(asked.fingerprint) {
                Some(pause) => {
                    mark::hit(Mark::SetPauseRepeated);
                    SetPauseReply::Repeated { pause }
                }
                None => SetPauseReply::RequestReused,
            };
        }
        match &ask.change {
            PauseChange::Pause { pause, scope } => self.begin_pause(ask, *pause, scope),
            PauseChange::Resume { pause, at_once } => self.end_pause(ask, *pause, *at_once),
        }
    }

    fn begin_pause(&mut self, ask: &SetPause, id: PauseId, scope: &PauseScope) -> SetPauseReply {
        if let Some(known) = self.pause_in_force(ask.tenant, scope) {
            return SetPauseReply::Already { pause: known };
        }
        if self.tables.pauses.contains(&id) {
            return SetPauseReply::IdTaken;
        }
        mark::hit(match scope {
            PauseScope::Tenant => Mark::TenantPaused,
            PauseScope::Queue(_) => Mark::QueuePaused,
        });
        let row = PauseRow {
            id,
            tenant: ask.tenant,
            scope: scope.clone(),
            since: self.now,
            actor: ask.actor.clone(),
            reason: ask.reason.clone(),
            ended: None,
            lift_until: None,
        };
        self.tables.pauses.put(row, self.changes);
        self.record_pause_request(ask, id);
        SetPauseReply::Paused
    }

    fn end_pause(&mut self, ask: &SetPause, id: PauseId, at_once: u32) -> SetPauseReply {
        let row = match self.tables.pauses.get(&id).filter(|row| row.tenant == ask.tenant) {
            None => return SetPauseReply::NotFound,
            Some(row) if row.ended.is_some() => return SetPauseReply::Already { pause: id },
            Some(row) => row.clone(),
        };
        mark::hit(Mark::PauseEnded);
        let at_once = (at_once as usize).min(BATCH_MAX);
        let mut held: Vec<ExecutionId> = self.held_by(id).take(at_once + 1).collect();
        let is_more = held.len() > at_once;
        held.truncate(at_once);
        let lifts = !self.bugs.has(Bug::ResumeLiftsNothing);
        let ended = PauseEnd { at: self.now, actor: ask.actor.clone(), reason: ask.reason.clone() };
        let lift_until = (is_more && lifts).then(|| self.now.plus(HELD_RECHECK));
        self.tables.pauses.put(PauseRow { ended: Some(ended), lift_until, ..row }, self.changes);
        self.record_pause_request(ask, id);
        for id in held.into_iter().filter(|_| lifts) {
            let row = self.tables.executions().get(&id).expect("the index names rows of its table");
            let row = ExecutionRow { next_try_at: Some(self.now), ..row.clone() };
            self.tables.put_execution(row, self.changes);
        }
        SetPauseReply::Resumed
    }

    fn record_pause_request(&mut self, ask: &SetPause, pause: PauseId) {
        if let Some(asked) = &ask.request {
            let row = RequestRow {
                tenant: ask.tenant,
                request: asked.request.clone(),
                fingerprint: asked.fingerprint,
                job: None,
                execution: None,
                version: None,
                pause: Some(pause),
                at: self.now,
            };
            self.tables.requests.put(row, self.changes);
        }
    }

    fn pause_in_force(&self, tenant: TenantId, scope: &PauseScope) -> Option<PauseId> {
        self.tables.pauses.index().in_force.get(&(tenant, scope.clone())).copied()
    }

    /// What a pause holds back, by id.
    fn held_by(&self, pause: PauseId) -> impl Iterator<Item = ExecutionId> {
        let least = (pause, ExecutionId::from_u128(0));
        let most = (pause, ExecutionId::from_u128(u128::MAX));
        self.tables.executions().index().held.range(least..=most).map(|(_, id)| *id)
    }

    /// The pause that an execution must not start under, and what it waits for then: its tenant's before its queue's.
    pub(super) fn pause_over(&self, row: &ExecutionRow) -> Option<(PauseId, WaitReason)> {
        if self.bugs.has(Bug::ManualIgnoresTenantPause) && matches!(row.occurrence, Occurrence::Manual { .. })
        {
            return None;
        }
        let over_tenant = self.pause_in_force(row.tenant, &PauseScope::Tenant);
        if let Some(pause) = over_tenant.filter(|_| !self.bugs.has(Bug::AcquireIgnoresTenantPause)) {
            mark::hit(Mark::AcquireMetTenantPause);
            return Some((pause, WaitReason::TenantPaused));
        }
        // Mostly no queue is paused, and nothing needs to be known of the definition.
        let mut paused = self.tables.pauses.index().in_force.range((row.tenant, PauseScope::Tenant)..);
        let is_queue =
            |tenant: TenantId, scope: &PauseScope| tenant == row.tenant && scope.handler().is_some();
        paused.find(|((tenant, scope), _)| *tenant != row.tenant || is_queue(*tenant, scope))?;
        let version = self.tables.job_versions.get(&(row.job, row.job_version))?;
        let scope = PauseScope::Queue(queue_of(&version.definition)?);
        let over_queue = self.pause_in_force(row.tenant, &scope);
        let pause = over_queue.filter(|_| !self.bugs.has(Bug::AcquireIgnoresQueuePause))?;
        mark::hit(Mark::AcquireMetQueuePause);
        Some((pause, WaitReason::QueuePaused))
    }

    /// One that waits already keeps its reason and its time.
    pub(super) fn hold_for_pause(&mut self, row: &ExecutionRow, pause: PauseId, reason: WaitReason) {
        if row.waiting.is_none() {
            let row = ExecutionRow {
                waiting: Some(reason),
                held_by: Some(pause),
                next_try_at: Some(self.now.plus(HELD_RECHECK)),
                ..row.clone()
            };
            self.tables.put_execution(row, self.changes);
        }
    }

    /// What pauses held back that have ended, in these partitions and not yet due by itself: by pause, then id.
    pub(super) fn pick_lifted(&self, partitions: &[PartitionId], limit: usize) -> Vec<ExecutionId> {
        if self.bugs.has(Bug::OwnersLiftNothing) {
            return Vec::new();
        }
        let lifting = &self.tables.pauses.index().lifting;
        let mut ended: Vec<PauseId> =
            lifting.range((self.now, PauseId::from_u128(0))..).map(|(_, id)| *id).collect();
        ended.sort_unstable();
        let is_here = |row: &ExecutionRow| {
            partitions.contains(&row.partition) && row.next_try_at.is_some_and(|at| at > self.now)
        };
        let held = ended.into_iter().flat_map(|pause| self.held_by(pause));
        held.filter(|id| {
            is_here(self.tables.executions().get(id).expect("the index names rows of its table"))
        })
        .filter(|id| self.choice.allows(Picked::Execution(*id)))
        .take(limit)
        .inspect(|_| mark::hit(Mark::LiftedByOwner))
        .collect()
    }
}
