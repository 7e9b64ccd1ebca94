//! What schedulers do under a partition or under leadership, and to the outbox.

use fencepost_core::lease::LeaseResource;
use fencepost_core::store::command::{Command, RepairItem, RunOutcome};
use fencepost_core::store::reply::{
    MaterialiseReply, PutOffReply, RemovalReply, RepairItemReply, RepairReply, Reply,
};
use fencepost_core::store::row::RefusedAction;

use crate::authority::Row;
use crate::case::{Act, Case};
use crate::world::*;

/// Why a renewal is not in the way.
const SAME_KEY: &str = "a renewal changes no key of the lease, and guards lock its key alone";

fn is_stale_materialise(reply: &Reply) -> bool {
    matches!(reply, Reply::Materialised(replies) if matches!(replies[..], [MaterialiseReply::StaleLease { .. }]))
}

fn is_gone(reply: &Reply) -> bool {
    matches!(reply, Reply::Materialised(replies) if matches!(replies[..], [MaterialiseReply::Gone]))
}

fn is_watermark_moved(reply: &Reply) -> bool {
    matches!(reply, Reply::Materialised(replies) if matches!(replies[..], [MaterialiseReply::WatermarkMoved]))
}

fn is_stale_put_off(reply: &Reply) -> bool {
    matches!(reply, Reply::JobsPutOff(replies) if matches!(replies[..], [PutOffReply::StaleLease { .. }]))
}

fn is_not_put_off(reply: &Reply) -> bool {
    matches!(reply, Reply::JobsPutOff(replies) if matches!(replies[..], [PutOffReply::Moved]))
}

fn is_stale_promotion(reply: &Reply) -> bool {
    matches!(reply, Reply::Promoted { dispatches, refused, .. } if dispatches.is_empty() && refused.len() == 1)
}

fn is_nothing_promoted(reply: &Reply) -> bool {
    matches!(reply, Reply::Promoted { dispatches, refused, .. } if dispatches.is_empty() && refused.is_empty())
}

fn is_absent(reply: &Reply) -> bool {
    match reply {
        Reply::OutboxRemoved(replies) | Reply::OutboxReturned(replies) => *replies == [RemovalReply::Absent],
        _ => false,
    }
}

fn is_stale_repair(reply: &Reply) -> bool {
    matches!(reply, Reply::Repaired(RepairReply::StaleLeadership { .. }))
}

fn is_moved(reply: &Reply) -> bool {
    matches!(reply, Reply::Repaired(RepairReply::Applied(replies)) if *replies == [RepairItemReply::Moved])
}

fn case(name: &'static str, row: Row, before: Vec<Act>, guarded: Command, rival: Command) -> Case {
    Case::new(name, row, before, at(30, guarded), at(31, rival))
}

fn drop_outbox() -> Command {
    repair(RepairItem::DropOutbox { row: first_dispatch() })
}

fn retire_node() -> Command {
    repair(RepairItem::RetireNode { node: WORKER, seen_at: second(5) })
}

pub(crate) fn materialising() -> Vec<Case> {
    let row = Row::Materialise;
    vec![
        case(
            "materialising against a takeover of the partition",
            row,
            with_job(),
            materialise(10),
            acquire_partition(HEIR),
        )
        .refused(RefusedAction::Materialise, is_stale_materialise),
        case(
            "materialising against the end of the job's version",
            row,
            with_job(),
            materialise(10),
            delete_job(),
        )
        .yields(is_gone),
        case(
            "materialising against the same fire materialised",
            row,
            with_job(),
            materialise(10),
            materialise(10),
        )
        .yields(is_watermark_moved),
        case(
            "materialising against a release of the partition",
            row,
            with_job(),
            materialise(10),
            release(partition()),
        )
        .refused(RefusedAction::Materialise, is_stale_materialise),
        case(
            "materialising against a renewal of the partition",
            row,
            with_job(),
            materialise(10),
            renew(partition()),
        )
        .the_same_in_both_orders(SAME_KEY)
        .passes_by(SAME_KEY),
        case(
            "putting a job off against a takeover of the partition",
            row,
            with_job(),
            put_off(10),
            acquire_partition(HEIR),
        )
        .refused(RefusedAction::Materialise, is_stale_put_off),
        case("putting a job off against the end of its version", row, with_job(), put_off(10), delete_job())
            .yields(is_not_put_off),
        case("putting a job off against its fire", row, with_job(), put_off(10), materialise(10))
            .yields(is_not_put_off),
    ]
}

pub(crate) fn promoting() -> Vec<Case> {
    let row = Row::Promote;
    let skips =
        "what is picked skips what somebody has locked, and whoever locks it waits for what was picked";
    vec![
        case(
            "promoting a retry against a takeover of the partition",
            row,
            with_retry(),
            promote(),
            acquire_partition(HEIR),
        )
        .refused(RefusedAction::Promote, is_stale_promotion),
        case(
            "dispatching what waited against a takeover of the partition",
            row,
            with_waiting(),
            promote(),
            acquire_partition(HEIR),
        )
        .refused(RefusedAction::Promote, is_stale_promotion),
        case("promoting a retry against a cancel", row, with_retry(), promote(), cancel())
            .yields(is_nothing_promoted),
        case("promoting a retry against its promotion", row, with_retry(), promote(), promote())
            .yields(is_nothing_promoted)
            .in_either_order(skips)
            .passes_by(skips),
        case(
            "dispatching what waited against its acquisition",
            row,
            with_waiting(),
            promote(),
            acquire(WORKER, 7),
        )
        .yields(is_nothing_promoted),
        case(
            "dispatching what waited against the end of the job",
            row,
            with_waiting(),
            promote(),
            delete_job(),
        )
        .yields(is_nothing_promoted),
    ]
}

pub(crate) fn removing() -> Vec<Case> {
    let row = Row::RemoveOutbox;
    vec![
        case(
            "removing a young outbox row against its removal",
            row,
            with_pending(),
            remove_outbox(60),
            remove_outbox(60),
        )
        .yields(is_absent),
        case(
            "removing an old outbox row against its removal",
            row,
            with_pending(),
            remove_outbox(1),
            remove_outbox(1),
        )
        .yields(is_absent),
        case(
            "removing an old outbox row against the acquisition",
            row,
            with_pending(),
            remove_outbox(1),
            acquire(WORKER, 7),
        ),
        case("removing an old outbox row against a cancel", row, with_pending(), remove_outbox(1), cancel()),
        case(
            "removing an outbox row against its return",
            row,
            with_pending(),
            remove_outbox(60),
            return_outbox(),
        )
        .yields(is_absent),
        case(
            "removing an outbox row against the sweep",
            row,
            with_settled(),
            remove_outbox(60),
            drop_outbox(),
        )
        .yields(is_absent),
        case(
            "returning an outbox row against its removal",
            row,
            with_pending(),
            return_outbox(),
            remove_outbox(60),
        )
        .yields(is_absent),
        case(
            "returning an outbox row against the acquisition",
            row,
            with_pending(),
            return_outbox(),
            acquire(WORKER, 7),
        )
        .the_same_in_both_orders("an acquisition ends the wait that a return began"),
        case("returning an outbox row against a cancel", row, with_pending(), return_outbox(), cancel()),
    ]
}

pub(crate) fn repairing() -> Vec<Case> {
    let row = Row::Repair;
    let leader = || acquire_leadership(HEIR);
    let released = || release(LeaseResource::Leadership);
    let renewed = || renew(LeaseResource::Leadership);
    vec![
        case("taking a run over against another leader", row, with_running(), take_over(), leader())
            .refused(RefusedAction::Repair, is_stale_repair),
        case(
            "taking a run over against a release of leadership",
            row,
            with_running(),
            take_over(),
            released(),
        )
        .refused(RefusedAction::Repair, is_stale_repair),
        case(
            "taking a run over against a renewal of leadership",
            row,
            with_running(),
            take_over(),
            renewed(),
        )
        .the_same_in_both_orders(SAME_KEY)
        .passes_by(SAME_KEY),
        case("taking a run over against its takeover", row, with_running(), take_over(), take_over())
            .yields(is_moved),
        case("taking a run over against its renewal", row, with_running(), take_over(), renew_run())
            .yields(is_moved),
        case(
            "taking a run over against its completion",
            row,
            with_running(),
            take_over(),
            finish(RunOutcome::Completed),
        )
        .yields(is_moved),
        case("taking a run over against its failure", row, with_running(), take_over(), finish(retryably()))
            .yields(is_moved),
        case("taking a run over against a cancel", row, with_running(), take_over(), cancel())
            .yields(is_moved),
        case("dispatching again against another leader", row, with_dispatched(), redispatch(), leader())
            .refused(RefusedAction::Repair, is_stale_repair),
        case(
            "dispatching again against the acquisition",
            row,
            with_dispatched(),
            redispatch(),
            acquire(WORKER, 7),
        )
        .yields(is_moved),
        case("dispatching again against a deferral", row, with_dispatched(), redispatch(), defer())
            .yields(is_moved),
        case("dropping an outbox row against another leader", row, with_settled(), drop_outbox(), leader())
            .refused(RefusedAction::Repair, is_stale_repair),
        case(
            "dropping an outbox row against its removal",
            row,
            with_settled(),
            drop_outbox(),
            remove_outbox(60),
        )
        .yields(is_moved),
        case("retiring a node against another leader", row, with_node(), retire_node(), leader())
            .refused(RefusedAction::Repair, is_stale_repair),
        case("retiring a node against its report", row, with_node(), retire_node(), heartbeat())
            .yields(is_moved),
    ]
}
