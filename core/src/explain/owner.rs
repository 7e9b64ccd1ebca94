//! Who may act: the owner of a partition and the leader, as their leases tell.

use crate::explain::rule::VacancyCause;
use crate::explain::statement::{CodeEntry, Statement, statements};
use crate::fencing::FencingToken;
use crate::id::NodeId;
use crate::lease::may_be_taken;
use crate::partition::PartitionId;
use crate::store::row::{LeaseRow, NodeRow};
use crate::time::Timestamp;

pub(super) const CODES: &[CodeEntry] = Owner::CODES;

statements!("both/now",
/// Whether somebody may act.
Owner {
    /// A scheduler owns the job's partition.
    Owned = "partition_owned" {
        partition: PartitionId, owner: NodeId, owner_label: Option<std::sync::Arc<str>>, token: FencingToken,
        expires_at: Timestamp,
    } => format!(
        "Partition {} belongs to scheduler {owner}{} under token {token}, until {expires_at} unless renewed.",
        partition.number(),
        owner_label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default(),
    );
    /// Nobody owns the job's partition, so nothing of it is materialised, promoted or read back.
    Unowned = "partition_without_owner" {
        partition: PartitionId, since: Option<Timestamp>, cause: VacancyCause, last_token: FencingToken,
    } => format!("Partition {} has no owner{}", partition.number(), unowned(since, cause, last_token));
    /// There is no leader, so nothing is swept.
    NoLeader = "no_leader" {
        since: Option<Timestamp>, cause: VacancyCause, last_token: FencingToken,
    } => format!("There is no leader to sweep{}", unowned(since, cause, last_token));
});

/// Why a lease has no holder, and since when, where the row tells.
#[derive(Clone, Copy, Debug)]
struct Vacancy {
    since: Option<Timestamp>,
    cause: VacancyCause,
}

/// Who holds a lease, or why nobody does. A release leaves no instant behind, nor does a lease from before the clock
/// stepped back.
fn held(lease: &LeaseRow, now: Timestamp) -> Result<NodeId, Vacancy> {
    let Some(owner) = lease.owner else {
        let cause = if lease.token == FencingToken::NEVER {
            VacancyCause::NeverGranted
        } else {
            VacancyCause::Released
        };
        return Err(Vacancy { since: None, cause });
    };
    if !may_be_taken(lease.expires_at, now) {
        return Ok(owner);
    }
    if lease.expires_at > now {
        return Err(Vacancy { since: None, cause: VacancyCause::ClockSteppedBack });
    }
    Err(Vacancy { since: Some(lease.expires_at), cause: VacancyCause::Expired })
}

fn unowned(since: Option<Timestamp>, cause: VacancyCause, last_token: FencingToken) -> String {
    match cause {
        VacancyCause::NeverGranted => ": it was never granted.".to_owned(),
        VacancyCause::Released => {
            format!(": token {last_token} was released; the row does not say when.")
        }
        VacancyCause::Expired => {
            let since = since.map(|at| format!(" since {at}")).unwrap_or_default();
            format!("{since}, when the lease under token {last_token} lapsed.")
        }
        VacancyCause::ClockSteppedBack => {
            format!(
                ": the lease under token {last_token} reaches further ahead than any, and counts as dead."
            )
        }
    }
}

/// The scheduler that holds this lease.
pub(super) fn holder(lease: &LeaseRow, now: Timestamp) -> Option<NodeId> {
    held(lease, now).ok()
}

/// Who owns a partition, or that nobody does.
pub(super) fn of_partition(
    partition: PartitionId,
    lease: &LeaseRow,
    owner: Option<&NodeRow>,
    now: Timestamp,
) -> Statement {
    match held(lease, now) {
        Ok(owner_id) => Owner::Owned {
            partition,
            owner: owner_id,
            owner_label: owner.map(|node| node.label.clone()),
            token: lease.token,
            expires_at: lease.expires_at,
        }
        .into(),
        Err(Vacancy { since, cause }) => {
            Owner::Unowned { partition, since, cause, last_token: lease.token }.into()
        }
    }
}

/// That a partition has no owner, where it has none.
pub(super) fn partition_without_owner(
    partition: PartitionId,
    lease: &LeaseRow,
    now: Timestamp,
) -> Option<Statement> {
    held(lease, now).is_err().then(|| of_partition(partition, lease, None, now))
}

/// That there is no leader, where there is none.
pub(super) fn no_leader(lease: &LeaseRow, now: Timestamp) -> Option<Statement> {
    let Vacancy { since, cause } = held(lease, now).err()?;
    Some(Owner::NoLeader { since, cause, last_token: lease.token }.into())
}
