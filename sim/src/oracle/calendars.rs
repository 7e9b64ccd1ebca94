//! Calendars: the days in a job's definition are always those that the calendar has, and a fire is passed over by a
//! calendar if, and only if, its local date is one of them.
//!
//! The local date is worked out anew here, by the zone's offset at the instant.

use chrono::DateTime;
use fencepost_core::job::JobDefinition;
use fencepost_core::schedule::{Day, Schedule};
use fencepost_core::store::change::Change;
use fencepost_core::store::row::{JobRow, JobState};
use fencepost_core::time::Timestamp;

use super::Commit;
use super::brief::Brief;
use super::invariant::Invariant;
use super::mirror::Mirror;
use crate::violation::Violation;

/// Whether a definition excludes a fire of its own.
pub(super) fn excludes(definition: &JobDefinition, fire: Timestamp) -> bool {
    if definition.exclude.is_none() {
        return false;
    }
    let zone = match &definition.schedule {
        Schedule::Cron { zone, .. } => zone.name(),
        Schedule::Interval { .. } | Schedule::OneShot { .. } | Schedule::Manual => "UTC",
    };
    let zone: chrono_tz::Tz = zone.parse().expect("a definition has a zone that is known");
    let utc =
        DateTime::from_timestamp_micros(fire.as_micros()).expect("fires lie in years that can be written");
    let date = utc.with_timezone(&zone).date_naive().to_string();
    let day = Day::parse(&date).expect("a date of these centuries");
    definition.exclude.all().iter().any(|known| known.days.has(day))
}

/// Whether each calendar that a job names has the days that its definition says.
fn is_as_its_calendars(mirror: &Mirror, job: &JobRow) -> bool {
    let Ok(definition) = job.definition.read() else { return true };
    definition.exclude.all().iter().all(|known| {
        let row = mirror.calendars.get(&(job.tenant, known.calendar.clone()));
        row.is_some_and(|row| row.version == known.version && row.days.as_ref() == Some(&known.days))
    })
}

/// Checks a whole command. The mirror is as after it. Only a job's new version and a calendar's change can part the two.
pub(super) fn check(commit: &Commit<'_>, mirror: &Mirror, changes: &[Change]) -> Result<(), Violation> {
    for change in changes {
        let parted = match change {
            Change::JobVersion(delta) => {
                let job = delta.after.as_ref().and_then(|row| mirror.jobs.get(&row.job));
                job.filter(|job| job.state == JobState::Active && !is_as_its_calendars(mirror, job))
            }
            Change::Calendar(delta) => delta.after.as_ref().and_then(|row| {
                let names = |job: &&JobRow| {
                    job.tenant == row.tenant
                        && job.state == JobState::Active
                        && job.definition.read().is_ok_and(|definition| definition.exclude.names(&row.name))
                };
                mirror.jobs.values().filter(names).find(|job| !is_as_its_calendars(mirror, job))
            }),
            _ => None,
        };
        if let Some(job) = parted {
            return Err(commit.broke(Invariant::NoLostFire, || {
                format!("a job excludes other days than its calendars have: {}", Brief(job))
            }));
        }
    }
    Ok(())
}
