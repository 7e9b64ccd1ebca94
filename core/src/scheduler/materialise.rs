//! Materialising: due jobs become executions with their outbox rows, and the watermark moves on.
//!
//! A *pass* reads due jobs page by page, in the order of (`next_try_at`, id), each page after the last row of
//! the page before. A page is planned and written while the next one is read, one write under way at a time;
//! what an earlier page is still writing lies before the cursor and is not read twice. A pass that has seen
//! everything sleeps until the next due time that is known: the scan's own, or one that a write brought
//! about after the scan had looked. Polling alone finds everything.
//!
//! Nothing here has to be right about what the store holds by now: version, watermark and token are compared
//! when the write commits, and whatever was refused or lost is found again by the next pass.

use std::collections::{BTreeMap, VecDeque};

use crate::bug::Bug;
use crate::fact::Fact;
use crate::fencing::FencingToken;
use crate::id::{DispatchNo, JobId, Occurrence};
use crate::lease::{HeldLease, LeaseResource};
use crate::limits::BATCH_MAX;
use crate::mark::{self, Mark};
use crate::partition::PartitionId;
use crate::scheduler::calls::{Call, Concern, ScanPurpose, Turn, View, count};
use crate::scheduler::outbox::Outbox;
use crate::scheduler::pace::Pace;
use crate::scheduler::partition_set::PartitionSet;
use crate::scheduler::partitions::Partitions;
use crate::scheduler::plan::{Plan, PlannedJob, place, plan};
use crate::store::command::lease_of;
use crate::store::command::{Command, Materialise, PutOffJob, PutOffJobs, ScanDueJobs};
use crate::store::reply::{Dispatch, DueJob, MadeExecution, MaterialiseReply, PutOffReply};
use crate::store::row::RefusedAction;
use crate::time::{Monotonic, Span, Timestamp};

/// Pages of one pass. After that it begins again, so that rows behind the cursor have their turn too.
const PAGES_PER_PASS_MAX: u32 = 64;

#[derive(Debug)]
pub(super) struct Materialiser {
    scan: Pace,
    write: Pace,
    cursor: Option<(Timestamp, JobId)>,
    pages: u32,
    /// The earliest time at which something is due that the pass under way may not see.
    unseen_due: Monotonic,
    staged: VecDeque<PlannedJob>,
    put_off: BTreeMap<JobId, PutOffJob>,
    /// What the store's clock read in the latest scan.
    scanned_at: Timestamp,
}

/// A partition whose token a write was refused for: presented, and current.
pub(super) type Stale = (HeldLease, FencingToken);

impl Materialiser {
    pub(super) const fn new() -> Self {
        Self {
            scan: Pace::AT_ONCE,
            write: Pace::AT_ONCE,
            cursor: None,
            pages: 0,
            unseen_due: Monotonic::MAX,
            staged: VecDeque::new(),
            put_off: BTreeMap::new(),
            scanned_at: Timestamp::EPOCH,
        }
    }

    /// Has due jobs looked for at once: there may be some that no scan has seen.
    pub(super) fn look_at_once(&mut self, turn: &Turn<'_>) {
        self.due_again(turn, turn.now);
    }

    fn due_again(&mut self, turn: &Turn<'_>, at: Monotonic) {
        self.unseen_due = self.unseen_due.min(at);
        if self.cursor.is_none() && !turn.calls.is_busy(Concern::ScanDue) {
            self.scan.sooner(at);
        }
    }

    /// When a scan, a write or a put-off is to be sent next; one that waits for an outcome wakes by that.
    pub(super) fn wakes_at(&self, view: View<'_>, partitions: &Partitions) -> Monotonic {
        self.scans_at(view, partitions).min(self.writes_at(view)).min(self.puts_off_at(view))
    }

    fn scans_at(&self, view: View<'_>, partitions: &Partitions) -> Monotonic {
        let nothing_to_scan = partitions.trusted().is_empty() && !partitions.wants_probe();
        // A page of the pass under way lies behind what is being written; a new pass would see that again.
        let sees_what_is_written = self.cursor.is_none() && view.calls.is_busy(Concern::Materialise);
        let waits = nothing_to_scan
            || sees_what_is_written
            || !self.staged.is_empty()
            || view.calls.is_busy(Concern::ScanDue);
        if waits { Monotonic::MAX } else { self.scan.at() }
    }

    fn writes_at(&self, view: View<'_>) -> Monotonic {
        let waits = self.staged.is_empty() || view.calls.is_busy(Concern::Materialise);
        if waits { Monotonic::MAX } else { self.write.at() }
    }

    fn puts_off_at(&self, view: View<'_>) -> Monotonic {
        let waits = self.put_off.is_empty() || view.calls.is_busy(Concern::PutOff);
        if waits { Monotonic::MAX } else { self.write.at() }
    }

    /// Sends what is due: the staged write first, so that the next page can be read meanwhile.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>, partitions: &Partitions, outbox: &mut Outbox) {
        if self.writes_at(turn.view()) <= turn.now {
            self.send_write(turn, partitions, outbox);
        }
        if self.puts_off_at(turn.view()) <= turn.now {
            self.send_put_off(turn, partitions);
        }
        if self.scans_at(turn.view(), partitions) <= turn.now {
            self.send_scan(turn, partitions);
        }
    }

    fn send_scan(&mut self, turn: &mut Turn<'_>, partitions: &Partitions) {
        let (set, purpose, limit) = if partitions.wants_probe() {
            (PartitionSet::ALL, ScanPurpose::Probe, 1)
        } else {
            (partitions.trusted(), ScanPurpose::Plan, count(turn.view().batch()))
        };
        if self.cursor.is_none() {
            self.pages = 0;
            self.unseen_due = Monotonic::MAX;
        }
        let scan = ScanDueJobs { partitions: set.iter().collect(), after: self.cursor, limit };
        turn.call(Call::ScanDueJobs(purpose), Command::ScanDueJobs(scan));
    }

    /// A scan succeeded.
    pub(super) fn scanned(
        &mut self,
        turn: &mut Turn<'_>,
        purpose: ScanPurpose,
        store_now: Timestamp,
        jobs: Vec<DueJob>,
        next_due: Option<Timestamp>,
    ) {
        match purpose {
            ScanPurpose::Plan => {}
            ScanPurpose::Probe => {
                mark::hit(Mark::WedgeProbed);
                self.end_pass(turn.now);
                return;
            }
        }
        self.scanned_at = store_now;
        self.pages += 1;
        let is_full = jobs.len() >= turn.view().batch();
        let last = jobs.last().map(place);
        for job in &jobs {
            match plan(turn, job, store_now) {
                Plan::Record(planned) => self.staged.push_back(planned),
                Plan::PutOff(item) => {
                    let why = item.unreadable.clone();
                    turn.report(Fact::JobUnreadable { job: job.job, tenant: job.tenant, why });
                    // By job: one that is seen again before it could be put off is put off once.
                    if self.put_off.len() < BATCH_MAX {
                        self.put_off.insert(job.job, item);
                    }
                }
            }
        }
        if is_full && self.pages < PAGES_PER_PASS_MAX {
            mark::hit(Mark::DuePageFull);
            self.cursor = last;
            self.scan.set(turn.now);
        } else if is_full {
            self.end_pass(turn.now);
        } else {
            let known = next_due.map_or(Monotonic::MAX, |at| turn.when(store_now, at));
            self.end_pass(turn.on_the_beat(turn.config.poll_every).min(known));
        }
    }

    fn end_pass(&mut self, next: Monotonic) {
        self.cursor = None;
        self.scan.set(next.min(self.unseen_due));
    }

    pub(super) fn scan_unknown(&mut self, turn: &Turn<'_>) {
        let (first, most) = turn.patience();
        self.cursor = None;
        self.scan.after_unknown(turn.now, first, most);
    }

    fn send_write(&mut self, turn: &mut Turn<'_>, partitions: &Partitions, outbox: &mut Outbox) {
        let mut jobs: Vec<PlannedJob> = Vec::new();
        let mut named = PartitionSet::EMPTY;
        let mut executions = 0;
        while let Some(next) = self.staged.front() {
            let weight = next.item.executions.len().max(1);
            let is_full = jobs.len() >= turn.view().batch() || executions + weight > BATCH_MAX;
            if is_full && !jobs.is_empty() {
                break;
            }
            let Some(job) = self.staged.pop_front() else { break };
            // Lost since it was scanned: whoever owns it now records its fires.
            if partitions.trusted().contains(job.item.partition) {
                named.insert(job.item.partition);
                executions += weight;
                jobs.push(job);
            }
        }
        if jobs.is_empty() {
            return;
        }
        if turn.has(Bug::PublishesBeforeCommit) {
            let dispatches = jobs.iter().flat_map(dispatches_of).collect();
            outbox.publish(turn, dispatches, self.scanned_at);
        }
        let leases: Vec<_> = named.iter().filter_map(|partition| partitions.lease(partition)).collect();
        let items = jobs.iter().map(|job| job.item.clone()).collect();
        let command = Materialise { node: turn.config.node, leases: leases.clone(), items };
        turn.call(Call::Materialise { leases, jobs }, Command::Materialise(command));
    }

    /// A write was answered: what was made is published at once, from memory.
    pub(super) fn written(
        &mut self,
        turn: &mut Turn<'_>,
        outbox: &mut Outbox,
        store_now: Timestamp,
        (leases, jobs): (&[HeldLease], &[PlannedJob]),
        replies: Vec<MaterialiseReply>,
    ) -> Vec<Stale> {
        self.write = Pace::AT_ONCE;
        let mut dispatches = Vec::new();
        let mut stale = Vec::new();
        let (mut skipped, mut lag) = (0, Span::ZERO);
        let mut again = Monotonic::MAX;
        let soon = turn.now.plus(turn.config.resend_after);
        for (job, reply) in jobs.iter().zip(replies) {
            match reply {
                MaterialiseReply::Applied(made) => {
                    if let Some(next) = job.item.next_fire_time {
                        again = again.min(turn.when(store_now, next.plus(job.item.next_flex)));
                    }
                    skipped += job.item.skipped.len();
                    let made = dispatches_of(job).zip(made).filter(|(_, made)| match made {
                        MadeExecution::Made => true,
                        MadeExecution::Existed => false,
                    });
                    dispatches.extend(made.map(|(dispatch, _)| dispatch));
                }
                MaterialiseReply::StaleLease { current } => {
                    stale.extend(presented(leases, job.item.partition).map(|lease| (lease, current)));
                }
                MaterialiseReply::VersionChanged { .. }
                | MaterialiseReply::WatermarkMoved
                | MaterialiseReply::NotDue
                | MaterialiseReply::PlanExpired => {
                    turn.report(Fact::Conflict { action: RefusedAction::Materialise });
                    again = again.min(soon);
                }
                MaterialiseReply::Gone => {
                    turn.report(Fact::Conflict { action: RefusedAction::Materialise });
                }
            }
        }
        for dispatch in &dispatches {
            lag = lag.max(store_now.since(dispatch.due_at));
        }
        if !dispatches.is_empty() || skipped > 0 {
            turn.report(Fact::Materialised { made: count(dispatches.len()), skipped: count(skipped), lag });
        }
        if !turn.has(Bug::PublishesBeforeCommit) {
            outbox.publish(turn, dispatches, store_now);
        }
        if again < Monotonic::MAX {
            self.due_again(turn, again);
        }
        stale
    }

    /// Nobody knows whether it was written. The next pass finds what was not.
    pub(super) fn write_unknown(&mut self, turn: &Turn<'_>) {
        let (first, most) = turn.patience();
        self.write.after_unknown(turn.now, first, most);
        self.due_again(turn, self.write.at());
    }

    fn send_put_off(&mut self, turn: &mut Turn<'_>, partitions: &Partitions) {
        let mut items = Vec::new();
        while items.len() < turn.view().batch()
            && let Some((_, item)) = self.put_off.pop_first()
        {
            if partitions.trusted().contains(item.partition) {
                items.push(item);
            }
        }
        if items.is_empty() {
            return;
        }
        let named: PartitionSet = items.iter().map(|item| item.partition).collect();
        let leases: Vec<_> = named.iter().filter_map(|partition| partitions.lease(partition)).collect();
        let partitions = items.iter().map(|item| item.partition).collect();
        let command = PutOffJobs { node: turn.config.node, leases: leases.clone(), items };
        turn.call(Call::PutOffJobs { leases, partitions }, Command::PutOffJobs(command));
    }

    /// A put-off was answered. One that moved is found again by the next pass.
    pub(super) fn jobs_put_off(
        &mut self,
        turn: &mut Turn<'_>,
        (leases, partitions): (&[HeldLease], &[PartitionId]),
        replies: &[PutOffReply],
    ) -> Vec<Stale> {
        self.write = Pace::AT_ONCE;
        let mut stale = Vec::new();
        for (partition, reply) in partitions.iter().zip(replies) {
            match reply {
                PutOffReply::Done => {}
                PutOffReply::StaleLease { current } => {
                    stale.extend(presented(leases, *partition).map(|lease| (lease, *current)));
                }
                PutOffReply::Moved => turn.report(Fact::Conflict { action: RefusedAction::Materialise }),
            }
        }
        stale
    }

    /// Forgets what was planned: another owner will plan it again.
    pub(super) fn stop(&mut self) {
        self.staged.clear();
        self.put_off.clear();
    }
}

/// The first dispatches of the executions of a planned job.
fn dispatches_of(job: &PlannedJob) -> impl Iterator<Item = Dispatch> {
    job.item.executions.iter().map(|execution| Dispatch {
        execution: execution.id,
        dispatch_no: DispatchNo(1),
        tenant: job.tenant,
        job: job.item.job,
        job_version: execution.version,
        occurrence: Occurrence::Scheduled { fire: execution.fire },
        key: execution.key.clone(),
        due_at: execution.due_at,
        payload: None,
        definition: job.definition_of(execution.version),
    })
}

fn presented(leases: &[HeldLease], partition: PartitionId) -> Option<HeldLease> {
    let token = lease_of(leases, partition)?;
    Some(HeldLease { resource: LeaseResource::Partition(partition), token })
}
