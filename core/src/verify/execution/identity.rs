//! Who an execution is: its id and key follow from its occurrence, and what it belongs to is there.

use super::{Docket, ExecutionFacts};
use crate::id::Occurrence;
use crate::partition::PartitionId;
use crate::replay::own_key;
use crate::verify::Check;

const FORGED: &str =
    "an id that does not follow from the occurrence lets it run twice: find out who made the row";
const MISPLACED: &str = "the row was changed past the scheduler: compare with a backup";

pub(super) fn check(docket: &mut Docket<'_>, facts: &ExecutionFacts) {
    docket.look(Check::UniqueOccurrence);
    let row = &facts.execution;
    let derived = row.occurrence.execution_id(row.job);
    if derived != row.id {
        let what = format!("{:?} has the id {derived}, and this row another", row.occurrence);
        docket.broke(Check::UniqueOccurrence, what, FORGED);
    }
    let expected = match &row.occurrence {
        Occurrence::Scheduled { .. } | Occurrence::Manual { .. } => {
            row.occurrence.idempotency_key(row.job).filter(|key| *key != row.key)
        }
        Occurrence::Replay { origin, number } => {
            let its_own = own_key(row.job, *origin, *number);
            let is_origins = facts.origin.as_ref().is_none_or(|origin| origin.key == row.key);
            Some(its_own).filter(|own| !is_origins && *own != row.key)
        }
    };
    if let Some(expected) = expected {
        let what = format!("its key is {:?}, and {expected:?} is that of its occurrence", row.key);
        docket.broke(Check::UniqueOccurrence, what, FORGED);
    }
    check_belongings(docket, facts);
}

fn check_belongings(docket: &mut Docket<'_>, facts: &ExecutionFacts) {
    docket.look(Check::Conservation);
    let row = &facts.execution;
    match &facts.job {
        None => docket.broke(Check::Conservation, "its job is not there".to_owned(), MISPLACED),
        Some(job) => {
            let is_home = job.tenant == row.tenant
                && job.partition == row.partition
                && row.partition == PartitionId::of(row.job);
            if !is_home {
                let what = format!(
                    "it is of tenant {} in {}, and its job of tenant {} in {}",
                    row.tenant, row.partition, job.tenant, job.partition
                );
                docket.broke(Check::Conservation, what, MISPLACED);
            }
            if facts.definition.is_none() {
                let what = format!(
                    "version {} of its job, which it was made under, is not there",
                    row.job_version.0
                );
                docket.broke(Check::Conservation, what, MISPLACED);
            }
        }
    }
    if facts.is_replay() && facts.origin.is_none() {
        let what = "what it is a replay of is not there".to_owned();
        docket.broke(Check::Conservation, what, MISPLACED);
    }
}
