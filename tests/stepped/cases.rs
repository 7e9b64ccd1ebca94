//! All cases, family by family.

use crate::case::Case;

pub(crate) mod batches;
pub(crate) mod calendars;
pub(crate) mod changes;
pub(crate) mod dead_letters;
pub(crate) mod deadlines;
pub(crate) mod failures;
pub(crate) mod leases;
pub(crate) mod limits;
pub(crate) mod operators;
pub(crate) mod overlap;
pub(crate) mod pauses;
pub(crate) mod schedulers;
pub(crate) mod workers;

/// Every case.
pub(crate) fn all() -> Vec<Case> {
    [
        leases::cases(),
        schedulers::materialising(),
        schedulers::promoting(),
        schedulers::removing(),
        schedulers::repairing(),
        workers::acquiring(),
        workers::holding(),
        operators::cases(),
        changes::cases(),
        changes::met(),
        overlap::cases(),
        limits::cases(),
        calendars::cases(),
        failures::cases(),
        pauses::cases(),
        dead_letters::cases(),
        deadlines::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
