//! Commands of operators, and of whoever else stands outside the two roles.

use std::sync::Arc;

use fencepost_core::execution::{DeadLetterReason, ExecutionState};
use fencepost_core::id::{ExecutionId, JobVersion, Occurrence, PauseId, TenantId};
use fencepost_core::job::{HandlerName, HandlerRef, JobDefinition, Payload, StoredDefinition};
use fencepost_core::pause::PauseScope;
use fencepost_core::schedule::{Day, Days};
use fencepost_core::store::command::{
    CancelExecution, ChangeJob, Command, CreateJob, CreateTenant, DeadLetterFilter, DeleteJob, JobChange,
    OperatorRequest, PauseChange, PurgeDeadLetter, RecordMalformed, ReplayDeadLetter, ReplayDeadLetters,
    ReplayKey, ReplayNumber, SetCalendar, SetLimit, SetPause, TriggerJob,
};
use fencepost_core::store::row::{DeadLetterRow, JobRow, JobState, PauseRow};
use fencepost_core::time::Span;
use uuid::Uuid;

use crate::universe::{Draw, definitions, tenants, with_calendar};

/// The one calendar that definitions name.
const HOLIDAYS: &str = "holidays";

fn with_days(definition: &JobDefinition, version: u64, days: &Days) -> Arc<StoredDefinition> {
    let exclude = definition.exclude.with(HOLIDAYS, version, days);
    Arc::new(StoredDefinition::of(JobDefinition { exclude, ..definition.clone() }))
}

impl Draw<'_> {
    /// Of a tenant or of the key of some definitions; as often as not it is taken away again.
    pub(crate) fn set_limit(&mut self) -> Command {
        let request = self.chance(60).then(|| OperatorRequest {
            request: (*self.stream.pick(&["l1", "l2", "r2"])).into(),
            fingerprint: Uuid::from_u128(self.stream.between(1, 2).into()),
        });
        Command::SetLimit(SetLimit {
            tenant: self.tenant(),
            key: self.chance(50).then(|| "k".into()),
            max_running: *self.stream.pick(&[None, None, Some(1), Some(2)]),
            request,
            actor: "Zoë".into(),
            reason: "é".into(),
            node: self.node(),
        })
    }

    /// One of few; where it names a calendar, mostly with the days that this has now.
    fn definition(&mut self, tenant: TenantId, with_a_calendar: u32) -> Arc<StoredDefinition> {
        let is_there = self.has_calendar(tenant);
        if !self.chance(if is_there { with_a_calendar } else { 4 }) {
            return Arc::clone(self.stream.pick(&definitions()));
        }
        let known = with_calendar();
        let row = self.store.tables().calendars().get(&(tenant, HOLIDAYS.into()));
        let row = row.cloned().filter(|_| self.chance(85));
        match (known.read(), row.and_then(|row| Some((row.version, row.days?)))) {
            (Ok(definition), Some((version, days))) if definition.exclude.names(HOLIDAYS) => {
                with_days(definition, version, &days)
            }
            (_, _) => known,
        }
    }

    fn has_calendar(&self, tenant: TenantId) -> bool {
        let row = self.store.tables().calendars().get(&(tenant, HOLIDAYS.into()));
        row.is_some_and(|row| row.days.is_some())
    }

    /// Whether any tenant has the calendar.
    pub(crate) fn has_some_calendar(&self) -> bool {
        self.store.tables().calendars().iter().any(|row| row.days.is_some())
    }

    /// Whether a job names the calendar.
    pub(crate) fn has_naming_jobs(&self) -> bool {
        self.store.tables().jobs().iter().any(|row| {
            row.state == JobState::Active
                && row.definition.read().is_ok_and(|definition| definition.exclude.names(HOLIDAYS))
        })
    }

    /// Mostly planned on the jobs that name it; now and then it is taken away.
    pub(crate) fn set_calendar(&mut self) -> Command {
        let request = self.chance(40).then(|| OperatorRequest {
            request: (*self.stream.pick(&["k1", "k2", "r2"])).into(),
            fingerprint: Uuid::from_u128(self.stream.between(1, 2).into()),
        });
        let tenant = self.tenant();
        let row = self.store.tables().calendars().get(&(tenant, HOLIDAYS.into()));
        let known = row.map_or(0, |row| row.version);
        let expected_version = if self.chance(90) { known } else { known + 1 };
        let day = Day::from_number(self.stream.between(20_000, 20_003) as i32);
        let often = if self.has_naming_jobs() { 60 } else { 85 };
        let days = self.chance(often).then(|| Days::new(vec![day]).expect("one"));
        let names = |row: &&JobRow| {
            row.tenant == tenant
                && row.state == JobState::Active
                && row.definition.read().is_ok_and(|definition| definition.exclude.names(HOLIDAYS))
        };
        let naming: Vec<JobRow> = self.store.tables().jobs().iter().filter(names).cloned().collect();
        let mut jobs = Vec::new();
        for row in &naming {
            let definition = row.definition.read().expect("it was read above");
            let definition =
                with_days(definition, expected_version + 1, days.as_ref().unwrap_or(&Days::default()));
            let plan = self.change_of(row);
            if self.chance(85) {
                let expected_version = row.version;
                let (expected_watermark, change) = (row.recorded_through, JobChange::Edit(definition));
                let request = None;
                jobs.push(ChangeJob {
                    tenant,
                    request,
                    expected_version,
                    expected_watermark,
                    change,
                    ..plan
                });
            }
        }
        Command::SetCalendar(SetCalendar {
            tenant,
            name: HOLIDAYS.into(),
            expected_version,
            jobs: if days.is_some() { jobs } else { Vec::new() },
            days,
            request,
            actor: "Zoë".into(),
            reason: "é".into(),
        })
    }

    /// Two ids and two names, so that either is met again alone.
    pub(crate) fn create_tenant(&mut self) -> Command {
        let tenant = *self.stream.pick(&tenants()[..2]);
        let name = if self.chance(80) { format!("tenant {tenant}") } else { "tenant ü".to_owned() };
        Command::CreateTenant(CreateTenant { tenant, name: name.into() })
    }

    pub(crate) fn create_job(&mut self) -> Command {
        let request = self.chance(60).then(|| OperatorRequest {
            request: Arc::from(*self.stream.pick(&["r1", "r2", "r3", "r4", "ä", "Z"])),
            fingerprint: Uuid::from_u128(u128::from(self.stream.between(1, 2))),
        });
        let planned_at = match self.stream.between(0, 99) {
            0..=69 => self.now.minus(Span::from_millis(self.stream.below(1_000))),
            70..=79 => self.now,
            80..=89 => self.now.minus(Span::from_secs(61)),
            90..=94 => self.now.plus(Span::from_micros(1)),
            _ => self.now.plus(Span::from_secs(10)),
        };
        let next_fire_time =
            self.chance(90).then(|| planned_at.plus(Span::from_millis(self.stream.between(1, 8_000))));
        let tenant = self.tenant();
        Command::CreateJob(CreateJob {
            tenant,
            job: self.job(),
            request,
            definition: self.definition(tenant, 40),
            planned_at,
            recorded_through: planned_at,
            next_fire_time,
            next_flex: self.flex(),
        })
    }

    /// Often a change of a job that was changed lately and whose fires nobody records, so that versions pile up.
    pub(crate) fn change_job(&mut self) -> Command {
        let most = self.store.tables().jobs().iter().map(|row| row.version).max();
        let known = match self.stream.between(0, 99) {
            0..=59 => self.job_row(|row| row.state == JobState::Active && Some(row.version) == most),
            60..=94 => self.job_row(|row| row.state == JobState::Active),
            _ => self.job_row(|_| true),
        };
        match known {
            Some(row) => Command::ChangeJob(self.change_of(&row)),
            None => self.create_job(),
        }
    }

    /// Another change of the job that was changed most, while its versions pile up and nobody records its fires.
    pub(crate) fn pile_up(&mut self) -> Option<Command> {
        let active = self.store.tables().jobs().iter().filter(|row| row.state == JobState::Active);
        let row = active.max_by_key(|row| row.version)?.clone();
        let third_last = JobVersion(row.version.0.checked_sub(2)?);
        let version = self.store.tables().job_versions().get(&(row.id, third_last))?;
        if version.effective_from <= row.recorded_through.next() {
            return None;
        }
        let ask = self.change_of(&row);
        let next_fire_time = row.next_fire_time.or(Some(row.recorded_through.next()));
        Some(Command::ChangeJob(ChangeJob { recorded_through: row.recorded_through, next_fire_time, ..ask }))
    }

    fn change_of(&mut self, row: &JobRow) -> ChangeJob {
        let request = self.chance(45).then(|| OperatorRequest {
            request: Arc::from(*self.stream.pick(&["r1", "r2", "c1", "c2", "c3", "c4"])),
            fingerprint: Uuid::from_u128(u128::from(self.stream.between(1, 2))),
        });
        let planned_at = match self.stream.between(0, 99) {
            0..=84 => self.now.minus(Span::from_millis(self.stream.below(1_000))),
            85..=94 => self.now,
            95..=97 => self.now.minus(Span::from_secs(61)),
            _ => self.now.plus(Span::from_micros(1)),
        };
        let change = match self.stream.between(0, 9) {
            0..=5 => JobChange::Edit(self.definition(row.tenant, 12)),
            6..=7 => JobChange::Pause,
            _ => JobChange::Resume,
        };
        let (actor, reason): (Option<Arc<str>>, Option<Arc<str>>) = match change {
            JobChange::Edit(_) if self.chance(50) => (None, None),
            JobChange::Edit(_) | JobChange::Pause | JobChange::Resume => {
                (Some("Zoë".into()), Some("maintenance".into()))
            }
        };
        let effective_from = planned_at.max(row.recorded_through.next()).max(row.effective_from);
        // Mostly something before it stays to be recorded.
        let (recorded_through, next_fire_time) = if self.chance(75) {
            (row.recorded_through, row.next_fire_time.or(Some(row.recorded_through.next())))
        } else {
            let next =
                self.chance(70).then(|| effective_from.plus(Span::from_millis(self.stream.below(5_000))));
            (effective_from.minus(Span::from_micros(1)), next)
        };
        ChangeJob {
            tenant: if self.chance(96) { row.tenant } else { self.tenant() },
            job: row.id,
            request,
            expected_version: if self.chance(93) { row.version } else { row.version.next() },
            expected_watermark: if self.chance(96) { row.recorded_through } else { self.about_now() },
            planned_at,
            change,
            actor,
            reason,
            effective_from,
            recorded_through,
            next_fire_time,
            next_flex: self.flex(),
        }
    }

    /// Mostly a resume where something is paused, so that it does not last; a few ids, so that they are met again.
    pub(crate) fn set_pause(&mut self) -> Command {
        let pauses = self.store.tables().pauses();
        let in_force: Vec<PauseRow> = pauses.iter().filter(|row| row.ended.is_none()).cloned().collect();
        let known: Vec<PauseRow> = pauses.iter().cloned().collect();
        let request = self.chance(40).then(|| OperatorRequest {
            request: Arc::from(*self.stream.pick(&["r1", "r2", "q1", "q2", "q3"])),
            fingerprint: Uuid::from_u128(u128::from(self.stream.between(1, 2))),
        });
        let (tenant, change) = if !in_force.is_empty() && self.chance(65) {
            let row = self.stream.pick(&in_force).clone();
            let tenant = if self.chance(95) { row.tenant } else { self.tenant() };
            let at_once = if self.chance(50) { self.stream.between(0, 2) as u32 } else { 1_000 };
            (tenant, PauseChange::Resume { pause: row.id, at_once })
        } else if !known.is_empty() && self.chance(10) {
            let row = self.stream.pick(&known).clone();
            (row.tenant, PauseChange::Resume { pause: row.id, at_once: 0 })
        } else {
            let number = if self.chance(30) { self.stream.between(1, 3) } else { known.len() as u64 + 4 };
            let pause = PauseId::from_u128(u128::from(number) << 64);
            (self.tenant(), PauseChange::Pause { pause, scope: self.pause_scope() })
        };
        let (actor, reason) = ("Zoë".into(), "ünplanned".into());
        Command::SetPause(SetPause { tenant, request, change, actor, reason })
    }

    fn pause_scope(&mut self) -> PauseScope {
        if self.chance(40) {
            return PauseScope::Tenant;
        }
        let (name, version) = *self.stream.pick(&[("noop", 1), ("http", 2), ("http", 1)]);
        PauseScope::Queue(HandlerRef { name: HandlerName::parse(name).expect("a name"), version })
    }

    pub(crate) fn delete_job(&mut self) -> Command {
        let dead = self.dead_letter().filter(|_| self.chance(40)).map(|letter| letter.job);
        let known = self.job_row(|row| dead.is_none_or(|job| row.id == job));
        let job = known.as_ref().map_or_else(|| self.job(), |row| row.id);
        let tenant = match known {
            Some(row) if self.chance(60) => row.tenant,
            _ => self.tenant(),
        };
        Command::DeleteJob(DeleteJob { tenant, job })
    }

    pub(crate) fn trigger_job(&mut self) -> Command {
        let known = if self.chance(90) {
            self.job_row(|row| row.state == JobState::Active)
        } else {
            self.job_row(|_| true)
        };
        let job = known.as_ref().map_or_else(|| self.job(), |row| row.id);
        let tenant = match known {
            Some(row) if self.chance(95) => row.tenant,
            _ => self.tenant(),
        };
        let key: Arc<str> = Arc::from(*self.stream.pick(&["k1", "k2", "k3", "k4", "ß", "order-42"]));
        let json = *self.stream.pick(&["{\"a\":1}", "[1, 2]"]);
        let payload = self.chance(40).then(|| Payload::from_json(json).expect("valid JSON"));
        Command::TriggerJob(TriggerJob {
            tenant,
            job,
            execution: Occurrence::Manual { key: Arc::clone(&key) }.execution_id(job),
            key,
            payload,
            node: self.node(),
        })
    }

    pub(crate) fn cancel_execution(&mut self) -> Command {
        let live = [ExecutionState::Pending, ExecutionState::Running, ExecutionState::RetryWait];
        let known = self.execution_row(&live);
        let execution = known.as_ref().map_or_else(|| self.execution(&live), |row| row.id);
        let tenant = match known {
            Some(row) if self.chance(90) => row.tenant,
            _ => self.tenant(),
        };
        Command::CancelExecution(CancelExecution { tenant, execution })
    }

    /// A dead letter, mostly one that is there.
    fn dead_letter(&mut self) -> Option<DeadLetterRow> {
        let rows: Vec<DeadLetterRow> = self.store.tables().dead_letters().iter().cloned().collect();
        (!rows.is_empty() && self.chance(95)).then(|| self.stream.pick(&rows).clone())
    }

    /// Whose it is, and which execution: a dead letter's, or another's that is none.
    fn asked_letter(&mut self) -> (TenantId, ExecutionId, u32) {
        let (owner, execution, replays) = match self.dead_letter() {
            Some(row) => (Some(row.tenant), row.execution, row.replays),
            None => {
                let known = self.execution_row(&ExecutionState::ALL);
                let execution = known.as_ref().map_or(ExecutionId::from_u128(0xdead), |row| row.id);
                (known.map(|row| row.tenant), execution, 0)
            }
        };
        let tenant = match owner {
            Some(owner) if self.chance(95) => owner,
            _ => self.tenant(),
        };
        (tenant, execution, replays)
    }

    fn replay_key(&mut self) -> ReplayKey {
        if self.chance(75) { ReplayKey::Origin } else { ReplayKey::Own }
    }

    pub(crate) fn replay_dead_letter(&mut self) -> Command {
        let (tenant, origin, replays) = self.asked_letter();
        let number = match self.stream.between(0, 99) {
            0..=29 => ReplayNumber::Given(replays + 1),
            30..=54 => ReplayNumber::Given(replays),
            55..=64 => ReplayNumber::Given(self.stream.between(0, 3) as u32),
            _ => ReplayNumber::Next(OperatorRequest {
                request: Arc::from(*self.stream.pick(&["r1", "r2", "p1", "p2"])),
                fingerprint: Uuid::from_u128(u128::from(self.stream.between(1, 2))),
            }),
        };
        let key = self.replay_key();
        Command::ReplayDeadLetter(ReplayDeadLetter { tenant, origin, number, key, node: self.node() })
    }

    pub(crate) fn replay_dead_letters(&mut self) -> Command {
        let known = self.dead_letter();
        let tenant = match &known {
            Some(row) if self.chance(95) => row.tenant,
            _ => self.tenant(),
        };
        let filter = DeadLetterFilter {
            job: self.chance(15).then(|| known.as_ref().map_or_else(|| self.job(), |row| row.job)),
            reason: self.chance(15).then(|| *self.stream.pick(DeadLetterReason::ALL)),
            from: self.chance(15).then(|| self.about_now().minus(Span::from_secs(60))),
            to: self.chance(30).then(|| self.about_now()),
        };
        let after = match known {
            Some(row) if self.chance(20) => Some((row.at, row.execution)),
            _ => None,
        };
        let limit = if self.chance(80) { self.stream.between(1, 3) as u32 } else { self.limit() };
        let key = self.replay_key();
        Command::ReplayDeadLetters(ReplayDeadLetters { tenant, filter, after, limit, key, node: self.node() })
    }

    pub(crate) fn purge_dead_letter(&mut self) -> Command {
        let (tenant, execution, _) = self.asked_letter();
        Command::PurgeDeadLetter(PurgeDeadLetter { tenant, execution })
    }

    pub(crate) fn record_malformed(&mut self) -> Command {
        let which = self.stream.between(1, 3);
        Command::RecordMalformed(RecordMalformed {
            node: self.node(),
            digest: Uuid::from_u128(u128::from(which)),
            reason: format!("not a message: {which}").into(),
            excerpt: vec![0, 0xff, which as u8].into(),
        })
    }
}
