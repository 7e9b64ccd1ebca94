//! Batches of two that arrive at once, named in opposite orders.
//!
//! Every pair of commands that lock rows of one class: whatever order a batch is named in, the rows are taken in that of
//! their ids.

use fencepost_core::execution::{CancelState, LeaseSign, WaitReason};
use fencepost_core::id::{DispatchNo, EffectId, ExecutionId, JobId, JobVersion, NodeId, Occurrence};
use fencepost_core::job::Unreadable;
use fencepost_core::lease::{HeldLease, LeaseResource, RunId};
use fencepost_core::partition::PartitionId;
use fencepost_core::store::command::{
    AcquireExecution, AcquireExecutions, AcquirePartitions, Command, DeferExecutions, FinishExecution,
    FinishExecutions, Materialise, MaterialiseJob, NewExecution, OutboxId, PutOffJob, PutOffJobs,
    ReleaseLeases, RemoveOutbox, RenewExecutions, RenewLeases, Repair, RepairItem, ReturnOutbox, RunOutcome,
    TakeOverEnd,
};
use fencepost_core::time::Span;

use crate::authority::Row;
use crate::case::{Act, Case};
use crate::world::*;

/// Why any order will do.
const AT_ONCE: &str = "both arrive at once, and whoever is let in first commits first";

/// A case for the crowd at the door, with the statements that hold its two rows.
pub(crate) struct Batch {
    pub(crate) case: Case,
    pub(crate) holds: [String; 2],
}

/// A kind of batch: asked for with its two things in either order.
type Ask = (&'static str, Row, fn([usize; 2]) -> Command);

/// Every pair of these, each with itself too.
fn pairs(before: &[Act], holds: &[String; 2], asks: &[Ask]) -> Vec<Batch> {
    let mut batches = Vec::new();
    for (at_one, one) in asks.iter().enumerate() {
        for two in &asks[at_one..] {
            let name = format!("{} at once with {}", one.0, two.0);
            let (guarded, rival) = (at(40, one.2([0, 1])), at(41, two.2([1, 0])));
            let case =
                Case::new(name.leak(), one.1, before.to_vec(), guarded, rival).in_either_order(AT_ONCE);
            batches.push(Batch { case, holds: holds.clone() });
        }
    }
    batches
}

/// Every batch.
pub(crate) fn all() -> Vec<Batch> {
    [running(), pending(), outbox(), jobs(), leases()].into_iter().flatten().collect()
}

// ---------------------------------------------------------------------------------------------------------
// What they are about: two fires of one job, two jobs, two leases.

const FIRES: [u64; 2] = [10, 20];

fn fire_of(job: JobId, fire: u64) -> NewExecution {
    let occurrence = Occurrence::Scheduled { fire: second(fire) };
    NewExecution {
        version: JobVersion::FIRST,
        id: occurrence.execution_id(job),
        fire: second(fire),
        due_at: second(fire),
        deadline_at: None,
        key: occurrence.idempotency_key(job).expect("a scheduled fire has one"),
    }
}

fn two_executions() -> [ExecutionId; 2] {
    FIRES.map(|fire| fire_of(job(), fire).id)
}

fn run_of(at: usize) -> RunId {
    RunId { execution: two_executions()[at], token: token() }
}

fn dispatch_of(at: usize) -> OutboxId {
    OutboxId { execution: two_executions()[at], dispatch_no: DispatchNo(1) }
}

fn two_jobs() -> [JobId; 2] {
    [job(), next_job()]
}

fn two_leases() -> [HeldLease; 2] {
    two_jobs()
        .map(|job| HeldLease { resource: LeaseResource::Partition(PartitionId::of(job)), token: token() })
}

fn acquire_two(node: NodeId) -> Command {
    let (nonce, ttl) = (EffectId(2), Span::from_secs(10));
    Command::AcquirePartitions(AcquirePartitions { node, nonce, ttl, limit: 2 })
}

fn with_two_jobs() -> Vec<Act> {
    let mut before = with_tenant();
    before.push(at(0, create_job(job(), None, 0)));
    before.push(at(0, create_job(next_job(), None, 0)));
    before.push(at(1, acquire_two(OWNER)));
    before.push(at(1, acquire_leadership(OWNER)));
    before
}

fn materialise_item(job: JobId, fires: &[u64]) -> MaterialiseJob {
    let last = fires[fires.len() - 1];
    MaterialiseJob {
        job,
        partition: PartitionId::of(job),
        version: JobVersion::FIRST,
        expected_fire: second(fires[0]),
        executions: fires.iter().map(|fire| fire_of(job, *fire)).collect(),
        skipped: Vec::new(),
        recorded_through: second(last),
        next_fire_time: Some(second(last + 10)),
        next_flex: Span::ZERO,
        valid_until: second(1_000),
    }
}

fn materialise_items(items: Vec<MaterialiseJob>) -> Command {
    Command::Materialise(Materialise { node: OWNER, leases: two_leases().to_vec(), items })
}

fn with_two_pending() -> Vec<Act> {
    let mut before = with_two_jobs();
    before.push(at(21, materialise_items(vec![materialise_item(job(), &FIRES)])));
    before
}

fn with_two_running() -> Vec<Act> {
    let mut before = with_two_pending();
    before.push(at(22, acquire_items([0, 1], Span::from_secs(10))));
    before
}

fn hold_execution(id: ExecutionId) -> String {
    format!("SELECT FROM execution WHERE id = '{id}' FOR UPDATE")
}

// ---------------------------------------------------------------------------------------------------------
// What is asked.

fn finish_items(order: [usize; 2], outcome: &RunOutcome) -> Command {
    let item = |at| FinishExecution { run: run_of(at), outcome: outcome.clone(), started_ago: None };
    Command::FinishExecutions(FinishExecutions { node: WORKER, items: order.map(item).to_vec() })
}

fn acquire_items(order: [usize; 2], ttl: Span) -> Command {
    let item = |at: usize| AcquireExecution {
        execution: two_executions()[at],
        nonce: EffectId(7),
        published_at: second(21),
        held: Span::ZERO,
    };
    Command::AcquireExecutions(AcquireExecutions { node: WORKER, ttl, items: order.map(item).to_vec() })
}

fn repair_items(items: [RepairItem; 2]) -> Command {
    Command::Repair(Repair { node: OWNER, leadership: token(), items: items.to_vec() })
}

fn running() -> Vec<Batch> {
    let asks: [Ask; 5] = [
        ("completing two", Row::HoldExecution, |order| finish_items(order, &RunOutcome::Completed)),
        ("failing two", Row::HoldExecution, |order| finish_items(order, &retryably())),
        ("renewing two", Row::HoldExecution, |order| {
            let (ttl, runs) = (Span::from_secs(60), order.map(run_of).to_vec());
            Command::RenewExecutions(RenewExecutions { node: WORKER, ttl, runs })
        }),
        ("taking two over", Row::Repair, |order| {
            repair_items(order.map(|at| RepairItem::TakeOver {
                run: run_of(at),
                cancel: CancelState::None,
                sign: LeaseSign::None,
                end: TakeOverEnd::Retry(Span::from_secs(5)),
            }))
        }),
        ("deleting the job of two that run", Row::Operator, |_| delete_job()),
    ];
    pairs(&with_two_running(), &two_executions().map(hold_execution), &asks)
}

fn remove_two_old(order: [usize; 2]) -> Command {
    let (rows, grace) = (order.map(dispatch_of).to_vec(), Span::from_secs(1));
    Command::RemoveOutbox(RemoveOutbox { rows, grace })
}

fn return_two(order: [usize; 2]) -> Command {
    let row = |at| (dispatch_of(at), WaitReason::NoRoute);
    let (rows, delay) = (order.map(row).to_vec(), Span::from_secs(1));
    Command::ReturnOutbox(ReturnOutbox { rows, delay })
}

fn pending() -> Vec<Batch> {
    let asks: [Ask; 6] = [
        ("acquiring two", Row::AcquireExecution, |order| acquire_items(order, Span::from_secs(60))),
        ("deferring two", Row::AcquireExecution, |order| {
            let item = |at: usize| (two_executions()[at], WaitReason::UnknownHandler);
            let (items, delay) = (order.map(item).to_vec(), Span::from_secs(1));
            Command::DeferExecutions(DeferExecutions { items, delay })
        }),
        ("removing two old rows", Row::RemoveOutbox, remove_two_old),
        ("returning two rows", Row::RemoveOutbox, return_two),
        ("dispatching two again", Row::Repair, |order| {
            repair_items(order.map(|at| RepairItem::Redispatch { dispatch: dispatch_of(at) }))
        }),
        ("deleting the job of two that wait", Row::Operator, |_| delete_job()),
    ];
    pairs(&with_two_pending(), &two_executions().map(hold_execution), &asks)
}

fn outbox() -> Vec<Batch> {
    let asks: [Ask; 3] = [
        ("removing two young rows", Row::RemoveOutbox, |order| {
            let (rows, grace) = (order.map(dispatch_of).to_vec(), Span::from_secs(60));
            Command::RemoveOutbox(RemoveOutbox { rows, grace })
        }),
        ("removing two old rows", Row::RemoveOutbox, remove_two_old),
        ("returning two rows", Row::RemoveOutbox, return_two),
    ];
    let hold = |id| format!("SELECT FROM outbox_event WHERE execution = '{id}' FOR UPDATE");
    pairs(&with_two_pending(), &two_executions().map(hold), &asks)
}

fn materialise_two(order: [usize; 2]) -> Command {
    materialise_items(order.map(|at| materialise_item(two_jobs()[at], &[10])).to_vec())
}

fn put_off_two(order: [usize; 2]) -> Command {
    let item = |at: usize| PutOffJob {
        job: two_jobs()[at],
        partition: PartitionId::of(two_jobs()[at]),
        version: JobVersion::FIRST,
        expected_fire: second(10),
        unreadable: Unreadable { reason: "a new kind".into(), schema: 2, zone_data: "2026a".into() },
        delay: Span::from_secs(30),
    };
    let (leases, items) = (two_leases().to_vec(), order.map(item).to_vec());
    Command::PutOffJobs(PutOffJobs { node: OWNER, leases, items })
}

fn jobs() -> Vec<Batch> {
    let asks: [Ask; 2] = [
        ("materialising two", Row::Materialise, materialise_two),
        ("putting two off", Row::Materialise, put_off_two),
    ];
    let hold = |job| format!("SELECT FROM job WHERE id = '{job}' FOR UPDATE");
    pairs(&with_two_jobs(), &two_jobs().map(hold), &asks)
}

fn leases() -> Vec<Batch> {
    let asks: [Ask; 5] = [
        ("renewing two leases", Row::HoldLease, |order| {
            let leases = order.map(|at| two_leases()[at]).to_vec();
            Command::RenewLeases(RenewLeases { node: OWNER, ttl: Span::from_secs(60), leases })
        }),
        ("releasing two leases", Row::HoldLease, |order| {
            let leases = order.map(|at| two_leases()[at]).to_vec();
            Command::ReleaseLeases(ReleaseLeases { node: OWNER, leases })
        }),
        ("acquiring two leases", Row::AcquireLease, |_| acquire_two(HEIR)),
        ("materialising under two leases", Row::Materialise, materialise_two),
        ("putting off under two leases", Row::Materialise, put_off_two),
    ];
    let hold = |lease: HeldLease| {
        format!("SELECT FROM lease WHERE resource = {} FOR UPDATE", lease.resource.number())
    };
    pairs(&with_two_jobs(), &two_leases().map(hold), &asks)
}
