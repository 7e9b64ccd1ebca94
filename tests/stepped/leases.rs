//! Leadership and partitions: acquired, renewed and given back.

use fencepost_core::id::NodeId;
use fencepost_core::lease::LeaseResource;
use fencepost_core::store::reply::{HoldReply, LeadershipReply, Reply};
use fencepost_core::store::row::RefusedAction;

use crate::authority::Row;
use crate::case::{Act, Case};
use crate::world::*;

const LEADERSHIP: LeaseResource = LeaseResource::Leadership;

fn is_held(reply: &Reply) -> bool {
    matches!(reply, Reply::Leadership(LeadershipReply::Held { .. }))
}

/// Whoever comes second is granted another partition, if any.
fn is_without_the_partition(reply: &Reply) -> bool {
    matches!(reply, Reply::Partitions { granted } if granted.iter().all(|held| held.resource != partition()))
}

fn is_not_renewed(reply: &Reply) -> bool {
    matches!(reply, Reply::LeasesRenewed(replies) if matches!(replies[..], [HoldReply::Refused { .. }]))
}

fn is_not_released(reply: &Reply) -> bool {
    matches!(reply, Reply::LeasesReleased(replies) if matches!(replies[..], [HoldReply::Refused { .. }]))
}

fn leaders(name: &'static str, before: Vec<Act>) -> Case {
    let ask = |at_second, node: NodeId| at(at_second, acquire_leadership(node));
    Case::new(name, Row::AcquireLease, before, ask(30, HEIR), ask(31, RIVAL_HEIR)).yields(is_held)
}

fn owners(name: &'static str, before: Vec<Act>) -> Case {
    let ask = |at_second, node: NodeId| at(at_second, acquire_partition(node));
    let case = Case::new(name, Row::AcquireLease, before, ask(30, HEIR), ask(31, RIVAL_HEIR));
    case.yields(is_without_the_partition)
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        leaders("two acquisitions of leadership that lapsed", with_job()),
        leaders("two acquisitions of leadership that was released", with_released()),
        leaders("two acquisitions of leadership from a clock far ahead", with_leases_far_ahead()),
        owners("two acquisitions of a partition that lapsed", with_job()),
        owners("two acquisitions of a partition that was released", with_released()),
        owners("two acquisitions of a partition from a clock far ahead", with_leases_far_ahead()),
        Case::new(
            "leadership acquired against its renewal",
            Row::AcquireLease,
            with_job(),
            at(30, acquire_leadership(HEIR)),
            at(31, renew(LEADERSHIP)),
        )
        .yields(is_held),
        Case::new(
            "a partition acquired against its renewal",
            Row::AcquireLease,
            with_job(),
            at(30, acquire_partition(HEIR)),
            at(31, renew(partition())),
        )
        .yields(is_without_the_partition),
        Case::new(
            "leadership renewed against a takeover",
            Row::HoldLease,
            with_job(),
            at(30, renew(LEADERSHIP)),
            at(31, acquire_leadership(HEIR)),
        )
        .refused(RefusedAction::RenewLease, is_not_renewed),
        Case::new(
            "a partition renewed against a takeover",
            Row::HoldLease,
            with_job(),
            at(30, renew(partition())),
            at(31, acquire_partition(HEIR)),
        )
        .refused(RefusedAction::RenewLease, is_not_renewed),
        Case::new(
            "a drain's release of leadership against a takeover",
            Row::HoldLease,
            with_job(),
            at(30, release(LEADERSHIP)),
            at(31, acquire_leadership(HEIR)),
        )
        .yields(is_not_released),
        Case::new(
            "a drain's release of a partition against a takeover",
            Row::HoldLease,
            with_job(),
            at(30, release(partition())),
            at(31, acquire_partition(HEIR)),
        )
        .yields(is_not_released),
        Case::new(
            "a partition renewed against its release",
            Row::HoldLease,
            with_job(),
            at(30, renew(partition())),
            at(31, release(partition())),
        )
        .refused(RefusedAction::RenewLease, is_not_renewed),
    ]
}
