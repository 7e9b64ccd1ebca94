//! Commands of schedulers.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencepost_core::execution::{CancelState, DeadLetterReason, LeaseSign, SkipReason};
use fencepost_core::id::{JobVersion, NodeId, Occurrence};
use fencepost_core::job::Unreadable;
use fencepost_core::lease::{HeldLease, LeaseResource, RunId};
use fencepost_core::partition::PartitionId;
use fencepost_core::store::command::{
    AcquireLeadership, AcquirePartitions, Command, Heartbeat, Materialise, MaterialiseJob, NewExecution,
    NewSkippedRange, OutboxId, PromoteDue, PutOffJob, PutOffJobs, ReleaseLeases, RemoveOutbox, RenewLeases,
    Repair, RepairItem, ReturnOutbox, ScanDueJobs, ScanOutbox, ScanSweep, TakeOverEnd,
};
use fencepost_core::store::row::{JobRow, JobState, NodeRole, NodeState};
use fencepost_core::time::{Span, Timestamp};

use crate::universe::{Draw, jobs, nodes};

impl Draw<'_> {
    pub(crate) fn heartbeat(&mut self) -> Command {
        Command::Heartbeat(Heartbeat {
            node: self.node(),
            role: if self.chance(75) { NodeRole::Scheduler } else { *self.stream.pick(NodeRole::ALL) },
            label: Arc::from(*self.stream.pick(&["host-a", "höst"])),
            schema: self.stream.between(1, 2) as u16,
            state: if self.chance(75) { NodeState::Active } else { *self.stream.pick(NodeState::ALL) },
            capacity: self.stream.between(0, 512) as u32,
            live_within: self.stream.span(Span::from_secs(1), Span::from_secs(60)),
        })
    }

    pub(crate) fn acquire_leadership(&mut self) -> Command {
        Command::AcquireLeadership(AcquireLeadership {
            node: self.node(),
            nonce: self.nonce(),
            ttl: self.ttl(),
        })
    }

    /// All of them often, so that the universe's few are among them.
    pub(crate) fn acquire_partitions(&mut self) -> Command {
        let limit = if self.chance(60) { 128 } else { self.limit() };
        let (node, nonce, ttl) = (self.node(), self.nonce(), self.ttl());
        Command::AcquirePartitions(AcquirePartitions { node, nonce, ttl, limit })
    }

    fn held_leases(&mut self) -> (NodeId, Vec<HeldLease>) {
        let mut resources: Vec<LeaseResource> =
            self.partitions().into_iter().map(LeaseResource::Partition).collect();
        resources.push(LeaseResource::Leadership);
        self.stream.shuffle(&mut resources);
        resources.truncate(self.items());
        let node = self.holder(resources[0]);
        let leases = resources
            .into_iter()
            .map(|resource| {
                let current = self.store.tables().lease(resource).token;
                HeldLease { resource, token: self.token(current) }
            })
            .collect();
        (node, leases)
    }

    pub(crate) fn renew_leases(&mut self) -> Command {
        let (node, leases) = self.held_leases();
        Command::RenewLeases(RenewLeases { node, ttl: self.ttl(), leases })
    }

    pub(crate) fn release_leases(&mut self) -> Command {
        let (node, leases) = self.held_leases();
        Command::ReleaseLeases(ReleaseLeases { node, leases })
    }

    pub(crate) fn scan_due_jobs(&mut self) -> Command {
        let after = self.chance(20).then(|| (self.about_now(), self.job()));
        Command::ScanDueJobs(ScanDueJobs { partitions: self.partitions(), after, limit: self.limit() })
    }

    /// A plan for a job: fires a second apart from the expected one on, the first few of them perhaps skipped.
    fn plan(&mut self, row: &JobRow) -> MaterialiseJob {
        let expected_fire = match row.next_fire_time {
            Some(fire) if self.chance(90) => fire,
            Some(_) | None => self.about_now(),
        };
        let fires: Vec<Timestamp> = (0..self.stream.between(0, 4))
            .map(|nth| expected_fire.plus(Span::from_secs(nth)))
            .filter(|fire| *fire <= self.now || self.chance(15))
            .collect();
        let skips = if self.can_skip(row, expected_fire) { self.stream.between(0, 2) as usize } else { 0 };
        let (skipped, executed) = fires.split_at(skips.min(fires.len()));
        let paused = self.chance(30);
        let last = fires.last().copied().unwrap_or(row.recorded_through);
        // Rarely the watermark stays, so that its fires are planned again and met.
        let next_fire_time = match self.stream.between(0, 99) {
            0..=69 => Some(last.max(expected_fire).plus(Span::from_millis(self.stream.between(1, 5_000)))),
            70..=94 => Some(expected_fire),
            _ => None,
        };
        MaterialiseJob {
            job: row.id,
            partition: if self.chance(97) { row.partition } else { PartitionId::of(self.job()) },
            version: if self.chance(95) { row.version } else { row.version.next() },
            expected_fire,
            executions: executed.iter().map(|fire| self.new_execution(row, *fire)).collect(),
            skipped: skipped
                .first()
                .zip(skipped.last())
                .map(|(from, through)| NewSkippedRange {
                    version: row.standing_since,
                    from: *from,
                    through: *through,
                    reason: if paused { SkipReason::Paused } else { SkipReason::Misfire },
                    zone_data: Arc::from("2026a"),
                })
                .into_iter()
                .collect(),
            recorded_through: last,
            next_fire_time,
            next_flex: self.flex(),
            valid_until: if self.chance(92) { Timestamp::MAX } else { self.now.minus(Span::from_micros(1)) },
        }
    }

    /// Ranges of a job never overlap: whoever plans reads the watermark. A draw keeps to that.
    fn can_skip(&self, row: &JobRow, from: Timestamp) -> bool {
        self.store
            .tables()
            .skipped_ranges()
            .iter()
            .filter(|range| range.job == row.id)
            .all(|range| range.through < from)
    }

    fn new_execution(&mut self, row: &JobRow, fire: Timestamp) -> NewExecution {
        let occurrence = Occurrence::Scheduled { fire };
        let due_at = if self.chance(95) { fire } else { self.about_now() };
        let given = self.chance(30).then(|| due_at.plus(self.stream.span(Span::ZERO, Span::from_secs(20))));
        NewExecution {
            id: occurrence.execution_id(row.id),
            version: if self.chance(80) { row.version } else { row.standing_since },
            fire,
            due_at,
            deadline_at: row.definition.deadline_of(due_at).or(given),
            key: occurrence.idempotency_key(row.id).expect("a scheduled occurrence has a key of its own"),
        }
    }

    pub(crate) fn materialise(&mut self) -> Command {
        let mut rows: Vec<JobRow> = self.store.tables().jobs().iter().cloned().collect();
        if self.chance(5) {
            rows.extend(
                self.job_row(|_| true)
                    .map(|row| JobRow { id: fencepost_core::id::JobId::from_u128(0xdead), ..row }),
            );
        }
        if self.chance(80) {
            let now = self.now;
            rows.retain(|row| row.next_fire_time.is_some_and(|fire| fire <= now));
        }
        self.stream.shuffle(&mut rows);
        rows.truncate(self.items() + 1);
        let items: Vec<MaterialiseJob> = rows.iter().map(|row| self.plan(row)).collect();
        let mut partitions: Vec<PartitionId> = items.iter().map(|item| item.partition).collect();
        partitions.sort_unstable();
        partitions.dedup();
        let node = match partitions.first() {
            Some(partition) => self.holder(LeaseResource::Partition(*partition)),
            None => self.node(),
        };
        Command::Materialise(Materialise { node, leases: self.presented(&partitions), items })
    }

    pub(crate) fn put_off_jobs(&mut self) -> Command {
        let mut items = BTreeMap::new();
        for _ in 0..self.items() {
            let Some(row) = self.job_row(|row| row.state == JobState::Active) else { continue };
            let expected_fire = row.next_fire_time.unwrap_or(self.now);
            items.insert(
                row.id,
                PutOffJob {
                    job: row.id,
                    partition: row.partition,
                    version: if self.chance(95) { row.version } else { JobVersion(9) },
                    expected_fire: if self.chance(90) { expected_fire } else { self.about_now() },
                    unreadable: Unreadable {
                        reason: "unknown field".into(),
                        schema: 2,
                        zone_data: "2026a".into(),
                    },
                    delay: self.delay(),
                },
            );
        }
        let items: Vec<PutOffJob> = items.into_values().collect();
        let mut partitions: Vec<PartitionId> = items.iter().map(|item| item.partition).collect();
        partitions.sort_unstable();
        partitions.dedup();
        let node = match partitions.first() {
            Some(partition) => self.holder(LeaseResource::Partition(*partition)),
            None => self.node(),
        };
        Command::PutOffJobs(PutOffJobs { node, leases: self.presented(&partitions), items })
    }

    pub(crate) fn promote_due(&mut self) -> Command {
        let partitions = self.partitions();
        let node = self.holder(LeaseResource::Partition(partitions[0]));
        Command::PromoteDue(PromoteDue { node, leases: self.presented(&partitions), limit: self.limit() })
    }

    pub(crate) fn scan_outbox(&mut self) -> Command {
        Command::ScanOutbox(ScanOutbox {
            node: self.node(),
            partitions: self.partitions(),
            own_grace: self.stream.span(Span::ZERO, Span::from_secs(10)),
            delay: self.delay(),
            limit: self.limit(),
        })
    }

    pub(crate) fn remove_outbox(&mut self) -> Command {
        let rows = (0..self.items()).map(|_| self.outbox_id()).collect();
        Command::RemoveOutbox(RemoveOutbox { rows, grace: self.stream.span(Span::ZERO, Span::from_secs(10)) })
    }

    pub(crate) fn return_outbox(&mut self) -> Command {
        let rows = (0..self.items()).map(|_| (self.outbox_id(), self.wait_reason())).collect();
        Command::ReturnOutbox(ReturnOutbox { rows, delay: self.delay() })
    }

    pub(crate) fn scan_sweep(&mut self) -> Command {
        Command::ScanSweep(ScanSweep {
            limit: self.limit(),
            redispatch_after: self.delay(),
            node_stale_after: self.stream.span(Span::from_secs(1), Span::from_secs(120)),
        })
    }

    pub(crate) fn repair(&mut self) -> Command {
        let items = (0..self.items()).map(|_| self.repair_item()).collect();
        let current = self.store.tables().lease(LeaseResource::Leadership).token;
        let node = self.holder(LeaseResource::Leadership);
        Command::Repair(Repair { node, leadership: self.token(current), items })
    }

    fn repair_item(&mut self) -> RepairItem {
        match self.stream.between(0, 4) {
            0 => self.take_over(),
            4 => self.end_overdue(),
            1 => RepairItem::Redispatch { dispatch: self.latest_dispatch() },
            2 => RepairItem::DropOutbox { row: self.outbox_id() },
            _ => {
                let node = *self.stream.pick(&nodes());
                let seen_at = match self.store.tables().nodes().get(&node) {
                    Some(row) if self.chance(85) => row.seen_at,
                    _ => self.about_now(),
                };
                RepairItem::RetireNode { node, seen_at }
            }
        }
    }

    fn end_overdue(&mut self) -> RepairItem {
        use fencepost_core::execution::ExecutionState;
        let waiting = [ExecutionState::Pending, ExecutionState::RetryWait];
        let row = self.execution_row(&waiting);
        let Some(row) = row else { return RepairItem::EndOverdue { run: self.run(), state: waiting[0] } };
        let state = if self.chance(90) { row.state } else { *self.stream.pick(&waiting) };
        RepairItem::EndOverdue { run: RunId { execution: row.id, token: self.token(row.token) }, state }
    }

    fn take_over(&mut self) -> RepairItem {
        let run = self.run();
        let row = self.store.tables().executions().get(&run.execution);
        let (cancel, sign) = row.map_or((CancelState::None, LeaseSign::None), |row| (row.cancel, row.sign));
        let end = match self.stream.between(0, 3) {
            0 => TakeOverEnd::Retry(self.delay()),
            1 => TakeOverEnd::Cancelled,
            2 => TakeOverEnd::DeadLettered(*self.stream.pick(DeadLetterReason::ALL)),
            _ => TakeOverEnd::Failed,
        };
        RepairItem::TakeOver {
            run: RunId { execution: run.execution, token: run.token },
            cancel,
            sign: if self.chance(90) { sign } else { LeaseSign::Started },
            end,
        }
    }

    fn latest_dispatch(&mut self) -> OutboxId {
        use fencepost_core::execution::ExecutionState;
        let unknown = self.outbox_id();
        self.execution_row(&[ExecutionState::Pending])
            .map_or(unknown, |row| OutboxId { execution: row.id, dispatch_no: row.dispatch_no })
    }

    /// Whether any job of the universe is there.
    pub(crate) fn has_jobs(&self) -> bool {
        jobs().iter().any(|job| self.store.tables().jobs().contains(job))
    }
}
