//! What a run showed: which kinds of commands succeeded, and which answers occurred.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::execution::ExecutionState;
use fencepost_core::replay::NotReplayable;
use fencepost_core::store::command::CommandKind;
use fencepost_core::store::reply::{
    AcquireReply, CancelReply, ChangeJobReply, CreateJobReply, CreateTenantReply, DeferReply, DeleteJobReply,
    FinishReply, HoldReply, LeadershipReply, MadeExecution, MaterialiseReply, PageReplay, PurgeReply,
    PutOffReply, RemovalReply, RenewReply, RepairItemReply, RepairReply, ReplayPage, ReplayReply, Reply,
    SetCalendarReply, SetLimitReply, SetPauseReply, TriggerReply,
};

/// The answers that mean success of a kind. A scan succeeds by finding something.
const SUCCESSES: [(CommandKind, &str); 32] = [
    (CommandKind::ReadClock, "clock"),
    (CommandKind::Heartbeat, "heartbeat: others live"),
    (CommandKind::AcquireLeadership, "leadership: granted"),
    (CommandKind::AcquirePartitions, "partitions: some"),
    (CommandKind::RenewLeases, "leases renewed: done"),
    (CommandKind::ReleaseLeases, "leases released: done"),
    (CommandKind::ScanDueJobs, "due jobs: some"),
    (CommandKind::Materialise, "materialised: made"),
    (CommandKind::PutOffJobs, "put off: done"),
    (CommandKind::PromoteDue, "promoted: some"),
    (CommandKind::ScanOutbox, "outbox: some"),
    (CommandKind::RemoveOutbox, "outbox removed: removed"),
    (CommandKind::ReturnOutbox, "outbox returned: removed"),
    (CommandKind::ScanSweep, "sweep: expired"),
    (CommandKind::Repair, "repaired: done"),
    (CommandKind::AcquireExecutions, "acquired: granted"),
    (CommandKind::RenewExecutions, "runs renewed: renewed"),
    (CommandKind::FinishExecutions, "finished: applied"),
    (CommandKind::DeferExecutions, "deferred: recorded"),
    (CommandKind::RecordMalformed, "malformed"),
    (CommandKind::CreateTenant, "tenant: created"),
    (CommandKind::CreateJob, "job: created"),
    (CommandKind::ChangeJob, "changed: changed"),
    (CommandKind::DeleteJob, "job deleted: deleted"),
    (CommandKind::TriggerJob, "triggered: created"),
    (CommandKind::CancelExecution, "cancelled: cancelled"),
    (CommandKind::SetPause, "pause set: paused"),
    (CommandKind::ReplayDeadLetter, "replayed: created"),
    (CommandKind::ReplayDeadLetters, "page: created"),
    (CommandKind::PurgeDeadLetter, "purged: purged"),
    (CommandKind::SetLimit, "limit: set"),
    (CommandKind::SetCalendar, "calendar: set"),
];

/// Answers that are so rare that no run can be asked to have met them.
const RARE: [&str; 1] = ["calendar: ledger behind"];

/// Every other answer.
const ANSWERS: [&str; 102] = [
    "sweep: overdue",
    "pause set: resumed",
    "pause set: already",
    "pause set: repeated",
    "pause set: request reused",
    "pause set: id taken",
    "pause set: not found",
    "leadership: held",
    "partitions: none",
    "leases renewed: refused",
    "leases released: refused",
    "due jobs: none",
    "due jobs: next due",
    "due jobs: unreadable",
    "materialised: existed",
    "materialised: nothing to make",
    "materialised: stale lease",
    "materialised: version changed",
    "materialised: watermark moved",
    "materialised: gone",
    "materialised: not due",
    "materialised: plan expired",
    "put off: stale lease",
    "put off: moved",
    "promoted: refused",
    "promoted: next due",
    "outbox: none",
    "outbox: next due",
    "outbox removed: absent",
    "outbox returned: absent",
    "sweep: undelivered",
    "sweep: settled",
    "sweep: stale nodes",
    "repaired: stale leadership",
    "repaired: moved",
    "acquired: never",
    "acquired: not now",
    "acquired: absent",
    "runs renewed: refused",
    "runs renewed: absent",
    "finished: already",
    "finished: refused",
    "finished: absent",
    "deferred: not pending",
    "deferred: absent",
    "tenant: repeated",
    "tenant: name taken",
    "job: repeated",
    "job: request reused",
    "job: id taken",
    "job: no tenant",
    "job: plan expired",
    "due jobs: earlier versions",
    "acquired: not now, pending",
    "changed: repeated",
    "changed: already",
    "changed: version changed",
    "changed: plan expired",
    "changed: ledger behind",
    "changed: request reused",
    "changed: not found",
    "job deleted: cancelled some",
    "job deleted: requested some",
    "job deleted: repeated",
    "job deleted: not found",
    "triggered: repeated",
    "triggered: key reused",
    "triggered: not found",
    "cancelled: requested",
    "cancelled: ended",
    "cancelled: not found",
    "runs renewed: asked to stop",
    "heartbeat: nobody lives",
    "replayed: created, not the first",
    "replayed: repeated",
    "replayed: other key",
    "replayed: request reused",
    "replayed: wrong number",
    "replayed: purged",
    "replayed: job deleted",
    "replayed: unreadable definition",
    "replayed: not dead-lettered",
    "replayed: not found",
    "page: none",
    "page: more",
    "page: job deleted",
    "page: unreadable definition",
    "purged: repeated",
    "purged: not dead-lettered",
    "purged: not found",
    "limit: repeated",
    "limit: request reused",
    "limit: no tenant",
    "calendar: repeated",
    "calendar: request reused",
    "calendar: no tenant",
    "calendar: not found",
    "calendar: version changed",
    "calendar: in use",
    "calendar: plan expired",
    "job: calendar changed",
    "changed: calendar changed",
];

/// What occurred, and how often.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    pub(crate) seen: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// What occurred least often, with how often: the next to be missing.
    pub(crate) fn rarest(&self, count: usize) -> Vec<(&'static str, u64)> {
        let mut all: Vec<_> = self.seen.iter().map(|(label, count)| (*label, *count)).collect();
        all.sort_by_key(|(_, count)| *count);
        all.truncate(count);
        all
    }

    /// What never occurred and should have.
    pub(crate) fn missing(&self) -> Vec<String> {
        let successes = SUCCESSES.iter().map(|(kind, label)| (format!("{kind}: {label}"), *label));
        let answers = ANSWERS.iter().map(|label| ((*label).to_owned(), *label));
        let all: BTreeSet<CommandKind> = SUCCESSES.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(all.len(), CommandKind::ALL.len(), "every kind of command has its success");
        successes
            .chain(answers)
            .filter(|(_, label)| !self.seen.contains_key(label))
            .map(|(what, _)| what)
            .collect()
    }

    fn see(&mut self, label: &'static str) {
        let is_success = SUCCESSES.iter().any(|(_, success)| *success == label);
        let is_known = is_success || ANSWERS.contains(&label) || RARE.contains(&label);
        assert!(is_known, "{label:?} is in no list");
        *self.seen.entry(label).or_default() += 1;
    }

    fn see_if(&mut self, holds: bool, label: &'static str) {
        if holds {
            self.see(label);
        }
    }

    /// Notes what a reply shows.
    pub(crate) fn note(&mut self, reply: &Reply) {
        match reply {
            Reply::Clock => self.see("clock"),
            Reply::Heartbeat { schedulers } => {
                self.see(if schedulers.len() > 1 {
                    "heartbeat: others live"
                } else {
                    "heartbeat: nobody lives"
                });
            }
            Reply::Leadership(LeadershipReply::Granted { .. }) => self.see("leadership: granted"),
            Reply::Leadership(LeadershipReply::Held { .. }) => self.see("leadership: held"),
            Reply::Partitions { granted } => {
                self.see(if granted.is_empty() { "partitions: none" } else { "partitions: some" });
            }
            Reply::LeasesRenewed(replies) => {
                replies.iter().for_each(|reply| {
                    self.see(match reply {
                        HoldReply::Done => "leases renewed: done",
                        HoldReply::Refused { .. } => "leases renewed: refused",
                    });
                });
            }
            Reply::LeasesReleased(replies) => replies.iter().for_each(|reply| {
                self.see(match reply {
                    HoldReply::Done => "leases released: done",
                    HoldReply::Refused { .. } => "leases released: refused",
                });
            }),
            Reply::DueJobs { jobs, next_due } => {
                self.see(if jobs.is_empty() { "due jobs: none" } else { "due jobs: some" });
                self.see_if(next_due.is_some(), "due jobs: next due");
                self.see_if(jobs.iter().any(|job| !job.earlier.is_empty()), "due jobs: earlier versions");
                self.see_if(jobs.iter().any(|job| job.unreadable.is_some()), "due jobs: unreadable");
            }
            Reply::Materialised(replies) => replies.iter().for_each(|reply| self.note_materialised(reply)),
            Reply::JobsPutOff(replies) => replies.iter().for_each(|reply| {
                self.see(match reply {
                    PutOffReply::Done => "put off: done",
                    PutOffReply::StaleLease { .. } => "put off: stale lease",
                    PutOffReply::Moved => "put off: moved",
                });
            }),
            Reply::Promoted { dispatches, refused, next_due } => {
                self.see_if(!dispatches.is_empty(), "promoted: some");
                self.see_if(!refused.is_empty(), "promoted: refused");
                self.see_if(next_due.is_some(), "promoted: next due");
            }
            Reply::Outbox { dispatches, next_due } => {
                self.see(if dispatches.is_empty() { "outbox: none" } else { "outbox: some" });
                self.see_if(next_due.is_some(), "outbox: next due");
            }
            Reply::OutboxRemoved(replies) => replies.iter().for_each(|reply| {
                self.see(match reply {
                    RemovalReply::Removed => "outbox removed: removed",
                    RemovalReply::Absent => "outbox removed: absent",
                });
            }),
            Reply::OutboxReturned(replies) => replies.iter().for_each(|reply| {
                self.see(match reply {
                    RemovalReply::Removed => "outbox returned: removed",
                    RemovalReply::Absent => "outbox returned: absent",
                });
            }),
            Reply::Sweep(found) => {
                self.see_if(!found.expired.is_empty(), "sweep: expired");
                self.see_if(!found.undelivered.is_empty(), "sweep: undelivered");
                self.see_if(!found.settled.is_empty(), "sweep: settled");
                self.see_if(!found.overdue.is_empty(), "sweep: overdue");
                self.see_if(!found.stale_nodes.is_empty(), "sweep: stale nodes");
            }
            Reply::Repaired(RepairReply::StaleLeadership { .. }) => self.see("repaired: stale leadership"),
            Reply::Repaired(RepairReply::Applied(replies)) => replies.iter().for_each(|reply| {
                self.see(match reply {
                    RepairItemReply::Done => "repaired: done",
                    RepairItemReply::Moved => "repaired: moved",
                });
            }),
            Reply::Acquired(replies) => replies.iter().for_each(|reply| {
                self.see(match reply {
                    AcquireReply::Granted(_) => "acquired: granted",
                    AcquireReply::Never { .. } => "acquired: never",
                    AcquireReply::NotNow { state: ExecutionState::Pending } => "acquired: not now, pending",
                    AcquireReply::NotNow { .. } => "acquired: not now",
                    AcquireReply::Absent => "acquired: absent",
                });
            }),
            Reply::RunsRenewed(replies) => replies.iter().for_each(|reply| self.note_renewed(reply)),
            Reply::Finished(replies) => replies.iter().for_each(|reply| {
                self.see(match reply {
                    FinishReply::Applied { .. } => "finished: applied",
                    FinishReply::Already { .. } => "finished: already",
                    FinishReply::Refused { .. } => "finished: refused",
                    FinishReply::Absent => "finished: absent",
                });
            }),
            Reply::Deferred(replies) => replies.iter().for_each(|reply| {
                self.see(match reply {
                    DeferReply::Recorded => "deferred: recorded",
                    DeferReply::NotPending { .. } => "deferred: not pending",
                    DeferReply::Absent => "deferred: absent",
                });
            }),
            Reply::MalformedRecorded => self.see("malformed"),
            Reply::TenantCreated(reply) => self.see(match reply {
                CreateTenantReply::Created => "tenant: created",
                CreateTenantReply::Repeated => "tenant: repeated",
                CreateTenantReply::NameTaken => "tenant: name taken",
            }),
            Reply::JobCreated(reply) => self.see(match reply {
                CreateJobReply::Created => "job: created",
                CreateJobReply::Repeated { .. } => "job: repeated",
                CreateJobReply::RequestReused => "job: request reused",
                CreateJobReply::IdTaken => "job: id taken",
                CreateJobReply::NoTenant => "job: no tenant",
                CreateJobReply::CalendarChanged => "job: calendar changed",
                CreateJobReply::PlanExpired => "job: plan expired",
            }),
            Reply::JobChanged(reply) => self.see(match reply {
                ChangeJobReply::Changed { .. } => "changed: changed",
                ChangeJobReply::Repeated { .. } => "changed: repeated",
                ChangeJobReply::Already { .. } => "changed: already",
                ChangeJobReply::VersionChanged { .. } => "changed: version changed",
                ChangeJobReply::PlanExpired => "changed: plan expired",
                ChangeJobReply::CalendarChanged => "changed: calendar changed",
                ChangeJobReply::LedgerBehind => "changed: ledger behind",
                ChangeJobReply::RequestReused => "changed: request reused",
                ChangeJobReply::NotFound => "changed: not found",
            }),
            Reply::JobDeleted(reply) => self.note_deleted(reply),
            Reply::JobTriggered(reply) => self.see(match reply {
                TriggerReply::Created => "triggered: created",
                TriggerReply::Repeated { .. } => "triggered: repeated",
                TriggerReply::KeyReused => "triggered: key reused",
                TriggerReply::NotFound => "triggered: not found",
            }),
            Reply::ExecutionCancelled(reply) => self.see(match reply {
                CancelReply::Cancelled { .. } => "cancelled: cancelled",
                CancelReply::Requested => "cancelled: requested",
                CancelReply::Ended { .. } => "cancelled: ended",
                CancelReply::NotFound => "cancelled: not found",
            }),
            Reply::PauseSet(reply) => self.see(match reply {
                SetPauseReply::Paused => "pause set: paused",
                SetPauseReply::Resumed => "pause set: resumed",
                SetPauseReply::Already { .. } => "pause set: already",
                SetPauseReply::Repeated { .. } => "pause set: repeated",
                SetPauseReply::RequestReused => "pause set: request reused",
                SetPauseReply::IdTaken => "pause set: id taken",
                SetPauseReply::NotFound => "pause set: not found",
            }),
            Reply::DeadLetterReplayed(reply) => self.note_replayed(*reply),
            Reply::DeadLettersReplayed(page) => self.note_page(page),
            Reply::LimitSet(reply) => self.see(match reply {
                SetLimitReply::Set => "limit: set",
                SetLimitReply::Repeated => "limit: repeated",
                SetLimitReply::RequestReused => "limit: request reused",
                SetLimitReply::NoTenant => "limit: no tenant",
            }),
            Reply::CalendarSet(reply) => self.see(match reply {
                SetCalendarReply::Set { .. } => "calendar: set",
                SetCalendarReply::Repeated => "calendar: repeated",
                SetCalendarReply::RequestReused => "calendar: request reused",
                SetCalendarReply::NoTenant => "calendar: no tenant",
                SetCalendarReply::NotFound => "calendar: not found",
                SetCalendarReply::VersionChanged { .. } => "calendar: version changed",
                SetCalendarReply::InUse { .. } => "calendar: in use",
                SetCalendarReply::PlanExpired => "calendar: plan expired",
                // As rare as the same of a change, of which it is a part.
                SetCalendarReply::LedgerBehind { .. } => "calendar: ledger behind",
            }),
            Reply::DeadLetterPurged(reply) => self.see(match reply {
                PurgeReply::Purged => "purged: purged",
                PurgeReply::Repeated => "purged: repeated",
                PurgeReply::NotDeadLettered { .. } => "purged: not dead-lettered",
                PurgeReply::NotFound => "purged: not found",
            }),
        }
    }

    fn note_replayed(&mut self, reply: ReplayReply) {
        self.see(match reply {
            ReplayReply::Created { number: 1, .. } => "replayed: created",
            ReplayReply::Created { .. } => "replayed: created, not the first",
            ReplayReply::Repeated { .. } => "replayed: repeated",
            ReplayReply::OtherKey { .. } => "replayed: other key",
            ReplayReply::RequestReused => "replayed: request reused",
            ReplayReply::WrongNumber { .. } => "replayed: wrong number",
            ReplayReply::Refused(NotReplayable::Purged) => "replayed: purged",
            ReplayReply::Refused(NotReplayable::JobDeleted) => "replayed: job deleted",
            ReplayReply::Refused(NotReplayable::UnreadableDefinition) => "replayed: unreadable definition",
            ReplayReply::NotDeadLettered { .. } => "replayed: not dead-lettered",
            ReplayReply::NotFound => "replayed: not found",
        });
    }

    fn note_page(&mut self, page: &ReplayPage) {
        self.see_if(page.letters.is_empty(), "page: none");
        self.see_if(page.next.is_some(), "page: more");
        for (_, became) in &page.letters {
            self.see(match became {
                PageReplay::Created { .. } => "page: created",
                PageReplay::Refused(NotReplayable::JobDeleted) => "page: job deleted",
                PageReplay::Refused(NotReplayable::UnreadableDefinition) => "page: unreadable definition",
                PageReplay::Refused(NotReplayable::Purged) => panic!("what is purged is in no page"),
            });
        }
    }

    fn note_materialised(&mut self, reply: &MaterialiseReply) {
        match reply {
            MaterialiseReply::Applied(made) => {
                self.see_if(made.is_empty(), "materialised: nothing to make");
                self.see_if(made.contains(&MadeExecution::Made), "materialised: made");
                self.see_if(made.contains(&MadeExecution::Existed), "materialised: existed");
            }
            MaterialiseReply::StaleLease { .. } => self.see("materialised: stale lease"),
            MaterialiseReply::VersionChanged { .. } => self.see("materialised: version changed"),
            MaterialiseReply::WatermarkMoved => self.see("materialised: watermark moved"),
            MaterialiseReply::Gone => self.see("materialised: gone"),
            MaterialiseReply::NotDue => self.see("materialised: not due"),
            MaterialiseReply::PlanExpired => self.see("materialised: plan expired"),
        }
    }

    fn note_renewed(&mut self, reply: &RenewReply) {
        match reply {
            RenewReply::Renewed { cancel } => {
                self.see("runs renewed: renewed");
                let asked = *cancel == fencepost_core::execution::CancelState::Requested;
                self.see_if(asked, "runs renewed: asked to stop");
            }
            RenewReply::Refused { .. } => self.see("runs renewed: refused"),
            RenewReply::Absent => self.see("runs renewed: absent"),
        }
    }

    fn note_deleted(&mut self, reply: &DeleteJobReply) {
        match reply {
            DeleteJobReply::Deleted { cancelled, requested } => {
                self.see("job deleted: deleted");
                self.see_if(*cancelled > 0, "job deleted: cancelled some");
                self.see_if(*requested > 0, "job deleted: requested some");
            }
            DeleteJobReply::Repeated => self.see("job deleted: repeated"),
            DeleteJobReply::NotFound => self.see("job deleted: not found"),
        }
    }
}
