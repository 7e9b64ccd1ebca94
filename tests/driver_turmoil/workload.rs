//! The workload: jobs that fire until everything heals, and are never too late to run.

use fencepost_core::id::{JobId, TenantId};
use fencepost_core::job::JobDefinition;
use fencepost_core::job_plan::plan_create;
use fencepost_core::store::command::{Command, CreateTenant};
use fencepost_core::store::reply::{CreateJobReply, Reply};
use fencepost_sim::sim_time::SimTime;

use crate::sightings::BEGINNING;
use crate::store_host::SharedStore;
use crate::weather::HEAL;

/// How many jobs there are, each firing every other second.
pub(crate) const JOBS: usize = 8;

/// Their definitions.
pub(crate) fn definitions() -> Vec<JobDefinition> {
    (0..JOBS).map(definition).collect()
}

fn definition(number: usize) -> JobDefinition {
    let schedule = if number.is_multiple_of(2) {
        r#"{"kind": "cron", "expr": "*/2 * * * * *"}"#.to_owned()
    } else {
        format!(r#"{{"kind": "interval", "start": "{BEGINNING}", "every_ms": 2000}}"#)
    };
    let end = BEGINNING.plus(HEAL);
    let priority = ["normal", "high", "low"][number % 3];
    let definition = JobDefinition::parse(&format!(
        r#"{{"name": "job {number}", "handler": {{"name": "sample"}}, "priority": "{priority}", "schedule": {schedule},
            "bounds": {{"end": "{end}"}}, "misfire_grace_ms": 600000, "attempt_timeout_ms": 10000,
            "retry": {{"max_attempts": 10, "base_ms": 500, "cap_ms": 5000, "max_rescues": 20,
                       "max_lost_starts": 20}}}}"#
    ));
    definition.expect("it is a definition")
}

/// Creates them, as an operator does.
pub(crate) fn set_up(store: &SharedStore) {
    let tenant = TenantId::from_u128(1);
    store.commit(SimTime::ZERO, None, Command::CreateTenant(CreateTenant { tenant, name: "tests".into() }));
    for (number, definition) in definitions().into_iter().enumerate() {
        let job = JobId::from_u128(0x1000 + number as u128);
        let planned = plan_create(tenant, job, None, definition, BEGINNING).expect("it fires");
        let made = store.commit(SimTime::ZERO, None, Command::CreateJob(planned));
        assert_eq!(made.reply, Reply::JobCreated(CreateJobReply::Created));
    }
}
