//! Operators: they create, edit, pause, resume, trigger, cancel, delete, replay and purge, over a link of their own, and ask again until
//! they are answered.
//!
//! A job is created as the API creates one: read the store's clock, plan on that reading, send the plan, and
//! begin anew where the store finds the plan too old.

use std::collections::BTreeSet;
use std::sync::Arc;

use fencepost_core::calendar_plan::{CalendarChange, plan_calendar, with_calendars};
use fencepost_core::id::{ExecutionId, JobId, NodeId, Occurrence, PauseId, TenantId};
use fencepost_core::job::{HandlerRef, JobDefinition, StoredDefinition};
use fencepost_core::job_plan::{ChangedBy, plan_change, plan_create};
use fencepost_core::pause::PauseScope;
use fencepost_core::schedule::Days;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::{
    CancelExecution, ChangeJob, Command, CreateJob, DeadLetterFilter, DeleteJob, JobChange, OperatorRequest,
    PauseChange, PurgeDeadLetter, ReplayDeadLetter, ReplayDeadLetters, ReplayKey, ReplayNumber, SetCalendar,
    SetLimit, SetPause, TriggerJob,
};
use fencepost_core::store::reply::{ChangeJobReply, CreateJobReply, Reply, SetCalendarReply, StoreReply};
use fencepost_core::store::row::JobState;
use fencepost_core::time::{Span, Timestamp};
use uuid::Uuid;

use super::World;
use super::happening::Happening;
use super::store_calls::{Caller, Hearing};
use crate::fault::FaultKind;
use crate::plan::{Action, Authority, Creation, Definition, JobIndex, Timing};

/// The process that operators' requests come through, as rows name it.
const API_NODE: NodeId = NodeId::from_u128(0x0a91_0000_0000_0000_0000_0000_0000_0001);
/// How long an operator waits before it asks again.
const ASK_AGAIN: Span = Span::from_secs(1);
/// How often it asks in all.
const TRIES: u32 = 1_000;

fn scope_of(queue: Option<&HandlerRef>) -> PauseScope {
    queue.map_or(PauseScope::Tenant, |handler| PauseScope::Queue(handler.clone()))
}

/// One copy of an action.
#[derive(Debug)]
pub(super) struct Task {
    action: u16,
    /// What was sent last; the same again until it is answered.
    command: Option<Command>,
    tries: u32,
    /// Answers so far.
    pages: u32,
    done: bool,
}

impl World<'_> {
    /// The jobs and tenants that are there from the start. No fault is under way yet.
    pub(super) fn set_up(&mut self) {
        let task = self.tasks.len() as u16;
        for (number, tenant) in self.plan.tenants.iter().enumerate() {
            let name = format!("tenant {number}").into();
            self.commit(
                Caller::Operator { task },
                &Command::CreateTenant(fencepost_core::store::command::CreateTenant {
                    tenant: *tenant,
                    name,
                }),
                Hearing::At(self.now),
            );
        }
        self.set_up_calendars(task);
        let now = self.store_clock.read(self.now);
        for index in 0..self.plan.jobs.len() {
            let job = JobIndex(index as u16);
            if self.plan.jobs[index].created == Creation::AtStart
                && let Some(command) = self.creation(job, now)
            {
                self.commit(Caller::Operator { task }, &command, Hearing::At(self.now));
            }
        }
    }

    /// The command that creates a job; `None` where it is refused before it is sent: it would never fire.
    fn creation(&mut self, index: JobIndex, now: Timestamp) -> Option<Command> {
        let spec = &self.plan.jobs[index.index()];
        let (job, tenant) = (spec.id, self.tenant_of(index));
        let request = Some(OperatorRequest {
            request: format!("create {}", index.0).into(),
            fingerprint: Uuid::from_u128(job.as_uuid().as_u128() ^ 1),
        });
        match &spec.definition {
            Definition::Readable(definition) => {
                let definition = self.with_calendars(tenant, definition)?;
                plan_create(tenant, job, request, definition, now).ok().map(Command::CreateJob)
            }
            Definition::Text(text) => {
                self.counts.count(FaultKind::UnreadableDefinition);
                // Planned by a version that could read it.
                Some(Command::CreateJob(CreateJob {
                    tenant,
                    job,
                    request,
                    definition: Arc::new(StoredDefinition::from_text(Arc::clone(text))),
                    planned_at: now,
                    recorded_through: now,
                    next_fire_time: Some(now.plus(Span::from_secs(20))),
                    next_flex: Span::ZERO,
                }))
            }
        }
    }

    /// A definition with the days that its calendars have now; `None` where one is not there.
    fn with_calendars(&self, tenant: TenantId, definition: &JobDefinition) -> Option<JobDefinition> {
        let find = |name: &str| self.calendars.get(&(tenant, name.into()));
        with_calendars(definition.clone(), find).ok()
    }

    /// The calendars that jobs name, without any day yet.
    fn set_up_calendars(&mut self, task: u16) {
        let mut named = BTreeSet::new();
        for job in &self.plan.jobs {
            let Definition::Readable(definition) = &job.definition else { continue };
            let tenant = self.plan.tenants[usize::from(job.tenant)];
            named.extend(definition.exclude.all().iter().map(|known| (tenant, known.calendar.clone())));
        }
        for (tenant, name) in named {
            let command = Command::SetCalendar(SetCalendar {
                tenant,
                name,
                expected_version: 0,
                days: Some(Days::default()),
                jobs: Vec::new(),
                request: None,
                actor: "whoever set it up".into(),
                reason: "as planned".into(),
            });
            self.commit(Caller::Operator { task }, &command, Hearing::At(self.now));
        }
    }

    /// A calendar is set, planned on the jobs that name it as they stand.
    fn calendar(&self, action: u16, now: Timestamp) -> Option<Command> {
        let Action::SetCalendar { tenant, name, days } = &self.plan.actions[usize::from(action)].what else {
            return None;
        };
        let tenant = self.plan.tenants[usize::from(*tenant)];
        let expected_version = self.calendars.get(&(tenant, name.clone())).map_or(0, |row| row.version);
        let change = CalendarChange {
            tenant,
            name: name.clone(),
            expected_version,
            days: days.clone(),
            request: Some(OperatorRequest {
                request: format!("calendar {action}").into(),
                fingerprint: Uuid::from_u128(u128::from(action) ^ 5),
            }),
            actor: format!("operator {action}").into(),
            reason: "as planned".into(),
        };
        let naming = self.jobs.values().filter(|job| {
            job.tenant == tenant
                && job.state == JobState::Active
                && job.definition.read().is_ok_and(|definition| definition.exclude.names(name))
        });
        plan_calendar(change, naming, now).ok().map(Command::SetCalendar)
    }

    fn tenant_of(&self, job: JobIndex) -> TenantId {
        self.plan.tenants[usize::from(self.plan.jobs[job.index()].tenant)]
    }

    fn job_id(&self, job: JobIndex) -> JobId {
        self.plan.jobs[job.index()].id
    }

    pub(super) fn on_operator_acts(&mut self, action: u16) {
        let spec = &self.plan.actions[usize::from(action)];
        let copies = spec.copies;
        let kind = match (spec.under, &spec.what) {
            (Authority::Stranger, _) => FaultKind::OperatorTrespasses,
            (Authority::Owner, Action::Create { .. }) => FaultKind::OperatorCreates,
            (Authority::Owner, Action::Trigger { .. }) => FaultKind::OperatorTriggers,
            (Authority::Owner, Action::CancelNewest { .. }) => FaultKind::OperatorCancels,
            (Authority::Owner, Action::CancelStuck) => FaultKind::OperatorCancelsStuck,
            (Authority::Owner, Action::Edit { .. }) => FaultKind::OperatorEdits,
            (Authority::Owner, Action::Pause { .. } | Action::Resume { .. }) => FaultKind::OperatorPauses,
            (Authority::Owner, Action::PauseWork { .. } | Action::ResumeWork { .. }) => {
                FaultKind::OperatorHolds
            }
            (Authority::Owner, Action::SetLimit { .. }) => FaultKind::OperatorLimits,
            (Authority::Owner, Action::SetCalendar { .. }) => FaultKind::OperatorCalendars,
            (Authority::Owner, Action::Delete { .. }) => FaultKind::OperatorDeletes,
            (Authority::Owner, Action::Replay { .. }) => FaultKind::OperatorReplays,
            (Authority::Owner, Action::ReplayAll { .. }) => FaultKind::OperatorReplaysAll,
            (Authority::Owner, Action::Purge { .. }) => FaultKind::OperatorPurges,
        };
        let needs_dead_letter = match spec.what {
            Action::Replay { .. } | Action::ReplayAll { .. } | Action::Purge { .. } => true,
            Action::Create { .. }
            | Action::Trigger { .. }
            | Action::CancelNewest { .. }
            | Action::CancelStuck
            | Action::Edit { .. }
            | Action::Pause { .. }
            | Action::Resume { .. }
            | Action::PauseWork { .. }
            | Action::ResumeWork { .. }
            | Action::SetLimit { .. }
            | Action::SetCalendar { .. }
            | Action::Delete { .. } => false,
        };
        if needs_dead_letter && self.dead.is_empty() {
            return;
        }
        self.counts.count(kind);
        match spec.timing {
            Timing::Chance => {}
            Timing::Fire => self.counts.count(FaultKind::OperatorRaces),
        }
        if copies > 1 {
            self.counts.count(FaultKind::OperatorRepeats);
        }
        for _ in 0..copies {
            let task = u16::try_from(self.tasks.len()).expect("plans have few actions");
            let command = self.first_command(action);
            self.tasks.push(Task { action, command, tries: 0, pages: 0, done: false });
            self.on_operator_tries(task);
        }
    }

    /// What an action sends first; a creation reads the clock.
    fn first_command(&self, action: u16) -> Option<Command> {
        let spec = &self.plan.actions[usize::from(action)];
        let asks = |job| self.authority(self.tenant_of(job), spec.under);
        match &spec.what {
            Action::Create { .. }
            | Action::Edit { .. }
            | Action::Pause { .. }
            | Action::Resume { .. }
            | Action::SetCalendar { .. } => Some(Command::ReadClock),
            Action::Trigger { job, key } => Some(self.trigger(asks(*job), *job, key)),
            Action::CancelNewest { job } => {
                let execution = (*self.newest.get(job.index())?)?;
                let tenant = asks(*job);
                Some(Command::CancelExecution(CancelExecution { tenant, execution }))
            }
            Action::CancelStuck => {
                let (execution, (_, owner)) = self.running.iter().min_by_key(|(_, (since, _))| *since)?;
                let (tenant, execution) = (self.authority(*owner, spec.under), *execution);
                Some(Command::CancelExecution(CancelExecution { tenant, execution }))
            }
            Action::SetLimit { tenant, key, max_running } => {
                let owner = self.plan.tenants[usize::from(*tenant)];
                Some(Command::SetLimit(SetLimit {
                    tenant: owner,
                    key: key.clone(),
                    max_running: *max_running,
                    request: Some(OperatorRequest {
                        request: format!("limit {action}").into(),
                        fingerprint: Uuid::from_u128(u128::from(action) ^ 3),
                    }),
                    actor: format!("operator {action}").into(),
                    reason: "as planned".into(),
                    node: API_NODE,
                }))
            }
            Action::Delete { job } => {
                let (tenant, job) = (asks(*job), self.job_id(*job));
                Some(Command::DeleteJob(DeleteJob { tenant, job }))
            }
            Action::PauseWork { tenant, queue } => {
                let change = PauseChange::Pause {
                    pause: PauseId::from_u128((1_u128 << 64) + u128::from(action)),
                    scope: scope_of(queue.as_ref()),
                };
                Some(self.set_pause(action, self.plan.tenants[usize::from(*tenant)], change))
            }
            Action::ResumeWork { tenant, queue, at_once } => {
                let owner = self.plan.tenants[usize::from(*tenant)];
                let pause = *self.paused.get(&(owner, scope_of(queue.as_ref())))?;
                let change = PauseChange::Resume { pause, at_once: *at_once };
                Some(self.set_pause(action, self.authority(owner, spec.under), change))
            }
            Action::Replay { nth, number, key } => {
                let (origin, owner) = self.dead_letter(*nth)?;
                let number = match number {
                    Some(number) => ReplayNumber::Given(*number),
                    None => ReplayNumber::Next(OperatorRequest {
                        request: format!("replay {action}").into(),
                        fingerprint: Uuid::from_u128(origin.as_uuid().as_u128() ^ 1),
                    }),
                };
                let tenant = self.authority(owner, spec.under);
                let ask = ReplayDeadLetter { tenant, origin, number, key: *key, node: API_NODE };
                Some(Command::ReplayDeadLetter(ask))
            }
            // What dies while it goes on is not for this one.
            Action::ReplayAll { .. } => Some(Command::ReadClock),
            Action::Purge { nth } => {
                let (execution, owner) = self.dead_letter(*nth)?;
                let tenant = self.authority(owner, spec.under);
                Some(Command::PurgeDeadLetter(PurgeDeadLetter { tenant, execution }))
            }
        }
    }

    fn set_pause(&self, action: u16, tenant: TenantId, change: PauseChange) -> Command {
        let request = Some(OperatorRequest {
            request: format!("pause {action}").into(),
            fingerprint: Uuid::from_u128(u128::from(action) ^ 3),
        });
        let (actor, reason) = (format!("operator {action}").into(), "as planned".into());
        Command::SetPause(SetPause { tenant, request, change, actor, reason })
    }

    /// The nth that died, counted around, and whose it is.
    fn dead_letter(&self, nth: u32) -> Option<(ExecutionId, TenantId)> {
        let place = (nth as usize).checked_rem(self.dead.len())?;
        self.dead.get(place).copied()
    }

    /// What an answer makes of a change of a job: planned on the clock's reading and the job as it stands, and planned
    /// anew where the store says so. An edit that meets another is given up: its operator looks first.
    fn next_of_change(&mut self, action: u16, reply: &StoreReply) -> Option<Command> {
        let spec = &self.plan.actions[usize::from(action)];
        let (job, change) = match &spec.what {
            Action::Edit { job, to } => {
                let to = self.with_calendars(self.tenant_of(*job), to)?;
                (*job, JobChange::Edit(Arc::new(StoredDefinition::of(to))))
            }
            Action::Pause { job } => (*job, JobChange::Pause),
            Action::Resume { job } => (*job, JobChange::Resume),
            Action::Create { .. }
            | Action::Trigger { .. }
            | Action::CancelNewest { .. }
            | Action::CancelStuck
            | Action::PauseWork { .. }
            | Action::ResumeWork { .. }
            | Action::SetLimit { .. }
            | Action::SetCalendar { .. }
            | Action::Delete { .. }
            | Action::Replay { .. }
            | Action::ReplayAll { .. }
            | Action::Purge { .. } => return None,
        };
        match (&reply.reply, &change) {
            (Reply::Clock, _) => {}
            (Reply::JobChanged(ChangeJobReply::PlanExpired | ChangeJobReply::CalendarChanged), _)
            | (
                Reply::JobChanged(ChangeJobReply::VersionChanged { .. }),
                JobChange::Pause | JobChange::Resume,
            ) => return Some(Command::ReadClock),
            (_, _) => return None,
        }
        let row = self.jobs.get(&self.job_id(job))?;
        let request = Some(OperatorRequest {
            request: format!("change {action}").into(),
            fingerprint: Uuid::from_u128(row.id.as_uuid().as_u128() ^ 2),
        });
        let by = ChangedBy::new(&format!("operator {action}"), "as planned").expect("both are short");
        let planned = plan_change(row, request, change, by, reply.now).ok()?;
        let tenant = self.authority(row.tenant, spec.under);
        Some(Command::ChangeJob(ChangeJob { tenant, ..planned }))
    }

    /// The page of a replay of all that follows an answer; `None` after the last, or when the operator is gone.
    fn next_page(&self, task: u16, reply: &StoreReply) -> Option<Command> {
        let task = &self.tasks[usize::from(task)];
        let spec = &self.plan.actions[usize::from(task.action)];
        let Action::ReplayAll { tenant, page, pages } = spec.what else { return None };
        let owner = self.plan.tenants[usize::from(tenant)];
        let tenant = self.authority(owner, spec.under);
        match (&reply.reply, &task.command) {
            (Reply::Clock, _) => Some(Command::ReplayDeadLetters(ReplayDeadLetters {
                tenant,
                filter: DeadLetterFilter { to: Some(reply.now), ..DeadLetterFilter::default() },
                after: None,
                limit: page,
                key: ReplayKey::Origin,
                node: API_NODE,
            })),
            (Reply::DeadLettersReplayed(done), Some(Command::ReplayDeadLetters(ask)))
                if task.pages <= pages =>
            {
                let after = Some(done.next?);
                Some(Command::ReplayDeadLetters(ReplayDeadLetters { after, ..ask.clone() }))
            }
            (_, _) => None,
        }
    }

    /// The tenant in whose name is asked for what is `owner`'s.
    fn authority(&self, owner: TenantId, under: Authority) -> TenantId {
        match under {
            Authority::Owner => owner,
            Authority::Stranger => {
                self.plan.tenants.iter().copied().find(|tenant| *tenant != owner).unwrap_or(owner)
            }
        }
    }

    fn trigger(&self, tenant: TenantId, index: JobIndex, key: &Arc<str>) -> Command {
        let job = self.job_id(index);
        let execution: ExecutionId = Occurrence::Manual { key: Arc::clone(key) }.execution_id(job);
        Command::TriggerJob(TriggerJob {
            tenant,
            job,
            execution,
            key: Arc::clone(key),
            payload: None,
            node: API_NODE,
        })
    }

    pub(super) fn on_operator_tries(&mut self, task: u16) {
        let state = &mut self.tasks[usize::from(task)];
        state.tries += 1;
        if state.done || state.tries > TRIES {
            return;
        }
        if let Some(command) = state.command.clone() {
            self.call_store(Caller::Operator { task }, command);
        }
    }

    pub(super) fn operator_hears(&mut self, task: u16, outcome: StoreOutcome) {
        let again = self.now.plus(ASK_AGAIN);
        let StoreOutcome::Replied(reply) = outcome else {
            self.queue.push(again, Happening::OperatorTries { task });
            return;
        };
        let action = self.tasks[usize::from(task)].action;
        self.tasks[usize::from(task)].pages += 1;
        let next = match (&self.plan.actions[usize::from(action)].what, &reply.reply) {
            (Action::Create { job }, Reply::Clock) => self.creation(*job, reply.now),
            (
                Action::Create { .. },
                Reply::JobCreated(CreateJobReply::PlanExpired | CreateJobReply::CalendarChanged),
            ) => Some(Command::ReadClock),
            (Action::SetCalendar { .. }, reply_to_it) => match reply_to_it {
                Reply::Clock => self.calendar(action, reply.now),
                Reply::CalendarSet(
                    SetCalendarReply::PlanExpired | SetCalendarReply::VersionChanged { .. },
                ) => Some(Command::ReadClock),
                _ => None,
            },
            (Action::ReplayAll { .. }, _) => self.next_page(task, &reply),
            (Action::Edit { .. } | Action::Pause { .. } | Action::Resume { .. }, _) => {
                self.next_of_change(action, &reply)
            }
            (
                Action::Replay { .. }
                | Action::Purge { .. }
                | Action::Create { .. }
                | Action::Trigger { .. }
                | Action::CancelNewest { .. }
                | Action::CancelStuck
                | Action::PauseWork { .. }
                | Action::ResumeWork { .. }
                | Action::SetLimit { .. }
                | Action::Delete { .. },
                _,
            ) => None,
        };
        let state = &mut self.tasks[usize::from(task)];
        match next {
            Some(command) => {
                state.command = Some(command);
                self.on_operator_tries(task);
            }
            None => state.done = true,
        }
    }
}
