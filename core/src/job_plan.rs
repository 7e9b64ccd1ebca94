//! Planning an operator's command: what creating a job means at a given reading of the store's clock.
//!
//! The store cannot compute fires, so whoever creates a job reads the store's clock, plans here, and sends
//! the plan; the store refuses one that was made too long ago or ahead of its clock, and the caller plans
//! again. Fires before `planned_at` do not count, but for a one-shot that is to run although it is past.

use std::sync::Arc;

use crate::id::{JobId, TenantId};
use crate::job::{DefinitionError, JobDefinition, StoredDefinition};
use crate::schedule::Schedule;
use crate::store::command::{CreateJob, OperatorRequest};
use crate::time::{Span, Timestamp};

/// The command that creates `job` by `definition`, planned at `now`.
///
/// # Errors
/// [`DefinitionError`]: a one-shot lies in the past, or the job would never fire.
pub fn plan_create(
    tenant: TenantId,
    job: JobId,
    request: Option<OperatorRequest>,
    definition: JobDefinition,
    now: Timestamp,
) -> Result<CreateJob, DefinitionError> {
    let recorded_through = match &definition.schedule {
        Schedule::OneShot { at } if definition.run_if_past => now.min(at.minus(Span::from_micros(1))),
        schedule @ (Schedule::Cron { .. }
        | Schedule::Interval { .. }
        | Schedule::OneShot { .. }
        | Schedule::Manual) => {
            schedule
                .check_not_past(now)
                .map_err(|error| DefinitionError::at("/schedule/at", error.to_string()))?;
            now
        }
    };
    let next_fire_time = definition.bounds.next_fire_after(&definition.schedule, recorded_through);
    if next_fire_time.is_none() && definition.schedule != Schedule::Manual {
        return Err(DefinitionError::at("/schedule", "never fires within its bounds from now on"));
    }
    Ok(CreateJob {
        tenant,
        job,
        request,
        definition: Arc::new(StoredDefinition::of(definition)),
        planned_at: now,
        recorded_through,
        next_fire_time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

    fn plan(schedule: &str, rest: &str) -> Result<CreateJob, DefinitionError> {
        let json = format!(r#"{{"name":"n","handler":{{"name":"noop"}},"schedule":{schedule}{rest}}}"#);
        let definition = JobDefinition::parse(&json).expect("valid");
        plan_create(TenantId::from_u128(1), JobId::from_u128(2), None, definition, NOW)
    }

    #[test]
    fn the_first_fire_is_after_now() {
        let command = plan(r#"{"kind":"cron","expr":"0 * * * *"}"#, "").expect("planned");
        assert_eq!(command.recorded_through, NOW);
        assert_eq!(command.next_fire_time, Some(NOW.plus(Span::from_secs(3_600))));
    }

    #[test]
    fn a_one_shot_in_the_past_needs_a_word() {
        let schedule = r#"{"kind":"one_shot","at":"2025-06-01T00:00:00Z"}"#;
        assert_eq!(plan(schedule, "").expect_err("past").pointer, "/schedule/at");
        let command = plan(schedule, r#","run_if_past":true"#).expect("planned");
        assert_eq!(command.next_fire_time, Timestamp::parse_rfc3339("2025-06-01T00:00:00Z"));
    }

    #[test]
    fn a_job_that_would_never_fire_is_refused() {
        let bounds = r#","bounds":{"end":"2025-12-31T00:00:00Z"}"#;
        assert!(plan(r#"{"kind":"cron","expr":"0 * * * *"}"#, bounds).is_err());
        assert!(plan(r#"{"kind":"manual"}"#, "").is_ok());
    }
}
