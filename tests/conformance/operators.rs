//! Commands of operators, and of whoever else stands outside the two roles.

use std::sync::Arc;

use fencepost_core::execution::ExecutionState;
use fencepost_core::id::Occurrence;
use fencepost_core::job::Payload;
use fencepost_core::store::command::{
    CancelExecution, Command, CreateJob, CreateTenant, DeleteJob, OperatorRequest, RecordMalformed,
    TriggerJob,
};
use fencepost_core::store::row::JobState;
use fencepost_core::time::Span;
use uuid::Uuid;

use crate::universe::{Draw, definitions, tenants};

impl Draw<'_> {
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
            0..=84 => self.now.minus(Span::from_millis(self.stream.below(1_000))),
            85..=89 => self.now,
            90..=94 => self.now.minus(Span::from_secs(61)),
            _ => self.now.plus(Span::from_micros(1)),
        };
        let next_fire_time =
            self.chance(90).then(|| planned_at.plus(Span::from_millis(self.stream.between(1, 8_000))));
        Command::CreateJob(CreateJob {
            tenant: self.tenant(),
            job: self.job(),
            request,
            definition: Arc::clone(self.stream.pick(&definitions())),
            planned_at,
            recorded_through: planned_at,
            next_fire_time,
        })
    }

    pub(crate) fn delete_job(&mut self) -> Command {
        let known = self.job_row(|_| true);
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
