//! Deliberate bugs (mutants), one at a time, that the simulator's oracles must catch.
//!
//! A checker that cannot fail is worthless; this is how we know that ours can. Without the `simulation`
//! feature a [`Bugs`] is always [`Bugs::NONE`], [`Bugs::has`] is constantly false and the compiler drops
//! every branch.

use core::fmt;

macro_rules! bugs {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)+) => {
        /// One deliberate bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Bug { $($(#[$doc])* $variant,)+ }

        impl Bug {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The bug of this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|bug| bug.name() == name)
            }
        }
    };
}

bugs! {
    /// The store does not compare the execution token when a run is finished. `fenced-write`.
    FinishIgnoresToken = "finish-ignores-token",
    /// The store does not compare the partition token when fires are materialised. `fenced-write`.
    MaterialiseIgnoresToken = "materialise-ignores-token",
    /// The worker takes "running elsewhere" for a grant and starts the handler too. `overlap-only-after-expiry`.
    StartsWithoutLease = "starts-without-lease",
    /// The worker starts the handler again for another copy of a message that it runs already.
    /// `overlap-only-after-expiry`.
    CopyStartsAgain = "copy-starts-again",
    /// The worker gives each attempt an idempotency key of its own. `effect-once-per-key`.
    KeyPerAttempt = "key-per-attempt",
    /// The worker retries beyond the policy's attempts. `attempt-bounds`.
    RetriesForEver = "retries-for-ever",
    /// The worker asks for a retry after a quarter of the policy's delay. `retry-not-early`.
    RetriesTooSoon = "retries-too-soon",
    /// The worker lets an attempt take as long as it likes, and renews its lease. `due-work-ends`.
    NoAttemptTimeout = "no-attempt-timeout",
    /// The worker never sends an outcome again whose sending is unknown, and renews the lease. `due-work-ends`.
    FinishSentOnce = "finish-sent-once",
    /// The worker waits for ever for an acquire whose outcome is unknown. `due-work-ends`.
    UnknownAcquireAwaited = "unknown-acquire-awaited",
    /// A draining worker waits without a limit for its handlers, those that it gave up included. `drain-ends`.
    DrainWaitsForHandlers = "drain-waits-for-handlers",
    // Of the scheduler's role.
    /// The scheduler publishes an execution when it sends the command that makes it, not once that has
    /// committed. Predicted: outbox-until-confirmed (a confirm from before the row existed is none of it).
    PublishesBeforeCommit = "publishes-before-commit",
    /// The scheduler removes an outbox row when it publishes, not once the broker has confirmed. Predicted:
    /// outbox-until-confirmed.
    RemovesOutboxBeforeConfirm = "removes-outbox-before-confirm",
    /// The scheduler takes an unroutable return for a confirm. Predicted: outbox-until-confirmed.
    ReturnCountsAsConfirm = "return-counts-as-confirm",
    /// The scheduler passes missed fires over without recording them. Predicted: no-lost-fire.
    SkippedFiresGoUnrecorded = "skipped-fires-go-unrecorded",
    /// The scheduler computes the fire after the next one as the next. Predicted: no-lost-fire.
    NextFireSkipsOne = "next-fire-skips-one",
    /// The scheduler materialises fires a millisecond off. Predicted: no-phantom-fire.
    FiresAreShifted = "fires-are-shifted",
    /// The scheduler never promotes retries or what waits. Predicted: due-work-ends.
    NeverPromotes = "never-promotes",
    /// The scheduler never reads the outbox back. Predicted: outbox-drains.
    NeverReadsOutboxBack = "never-reads-outbox-back",
    /// The scheduler never gives back what lies above its share. Predicted: partitions-owned.
    NeverReleasesAboveTarget = "never-releases-above-target",
    /// A scheduler that once found leadership held never asks again. Predicted: leader-exists.
    AsksForLeadershipOnce = "asks-for-leadership-once",
    /// The leader sweeps and repairs nothing. Predicted: no-orphan-running.
    LeaderNeverRepairs = "leader-never-repairs",
    /// A takeover does not look at the cancel request. Predicted: cancel-final, whose oracle knows that a
    /// lost run with a stored request can only become cancelled.
    SweepIgnoresCancel = "sweep-ignores-cancel",
    /// A takeover does not look at the rescue budgets. Predicted: attempt-bounds.
    SweepIgnoresBudgets = "sweep-ignores-budgets",
    /// A draining scheduler reports its end at once and gives nothing back. Predicted: drained-holds-nothing.
    DrainKeepsItsLeases = "drain-keeps-its-leases",
    /// A drained scheduler never says so. Predicted: drain-ends.
    DrainNeverEnds = "drain-never-ends",
    /// The store grants a lease that was granted before without raising its token. `token-monotone`.
    LeaseGrantKeepsToken = "lease-grant-keeps-token",
    /// The store grants partitions whose leases have not expired. `no-early-takeover`.
    PartitionGrantIgnoresExpiry = "partition-grant-ignores-expiry",
    /// The store never grants what expired, only what was released. `partitions-owned`.
    ExpiredLeasesStayHeld = "expired-leases-stay-held",
    /// The store grants leases of owners whose latest heartbeat is old. `heartbeat-grants-nothing`.
    SilentOwnerLosesPartition = "silent-owner-loses-partition",
    /// The store grants no execution to workers whose latest heartbeat is old. `heartbeat-grants-nothing`.
    SilentWorkerGetsNothing = "silent-worker-gets-nothing",
    /// The store extends a lease when the acquire that began it is sent again. `single-holder`.
    RepeatedAcquireExtends = "repeated-acquire-extends",
    /// The store does not compare the watermark when fires are materialised. `fenced-write`.
    MaterialiseIgnoresWatermark = "materialise-ignores-watermark",
    /// The store sets what has completed back to pending when its materialise comes again. `completed-survives`.
    RepeatedMaterialiseResets = "repeated-materialise-resets",
    /// The store records fires that are not due by its clock. `no-phantom-fire`.
    MaterialiseAheadOfTime = "materialise-ahead-of-time",
    /// The store records decisions that no longer hold. `no-phantom-fire`.
    MaterialiseIgnoresPlanAge = "materialise-ignores-plan-age",
    /// The store does not look whether a job was deleted (or changed) since it was planned. `fenced-write`.
    DeletedJobsFire = "deleted-jobs-fire",
    /// The store does not record the fires that were passed over. `no-lost-fire`.
    SkippedRangesForgotten = "skipped-ranges-forgotten",
    /// The store promotes retries without an outbox row. `atomic-dispatch`.
    PromoteWithoutOutbox = "promote-without-outbox",
    /// The store promotes retries before they are due. `retry-not-early`.
    PromoteIgnoresDueTime = "promote-ignores-due-time",
    /// The store never dispatches again what waits for a recorded reason. `due-work-ends`.
    WaitingNeverPromoted = "waiting-never-promoted",
    /// The store never reads outbox rows back. `outbox-drains`.
    OutboxNotReadBack = "outbox-not-read-back",
    /// The store removes the latest outbox row of an execution, whichever was confirmed. `outbox-until-confirmed`.
    RemovalTakesOtherDispatch = "removal-takes-other-dispatch",
    /// The store removes an outbox row that came back without recording why it waits. `outbox-until-confirmed`.
    ReturnForgetsReason = "return-forgets-reason",
    /// The store answers an acquire of what runs with its grant, whoever asks. `overlap-only-after-expiry`.
    AcquireIgnoresNonce = "acquire-ignores-nonce",
    /// The store grants an execution that was granted before without raising its token. `token-monotone`.
    AcquireKeepsToken = "acquire-keeps-token",
    /// The store grants executions that have completed. `terminal-absorbs`.
    AcquireRunsEndedAgain = "acquire-runs-ended-again",
    /// The store renews a run that was taken over, which runs again by that. `legal-transition`.
    RenewRevivesLostRun = "renew-revives-lost-run",
    /// The store applies a finish to what has completed. `completed-survives`.
    FinishOverwritesEnded = "finish-overwrites-ended",
    /// The store writes the error and the end of a refused finish into a completed execution. `completed-survives`.
    LateFinishRewritesCompleted = "late-finish-rewrites-completed",
    /// The store completes an execution that was cancelled while it ran. `cancel-final`.
    CancelledCompletes = "cancelled-completes",
    /// The store tries again what was asked to stop. `cancel-final`.
    CancelForgottenOnRetry = "cancel-forgotten-on-retry",
    /// The store does not count failed attempts. `attempt-bounds`.
    AttemptsNotCounted = "attempts-not-counted",
    /// The store dead-letters without a record. `dead-letter-once`.
    DeadLetterWithoutRecord = "dead-letter-without-record",
    /// The store finds and takes over runs whose leases have not expired. `overlap-only-after-expiry`.
    TakeOverIgnoresExpiry = "take-over-ignores-expiry",
    /// The store takes over what runs, whatever was observed of it. `fenced-write`.
    TakeOverIgnoresObserved = "take-over-ignores-observed",
    /// The store dispatches again whatever was observed of the dispatch. `sweep-idempotent`.
    RedispatchIgnoresObserved = "redispatch-ignores-observed",
    /// The sweep removes an ended execution with the outbox row that it no longer needs. `conservation`.
    SweepDropsExecutions = "sweep-drops-executions",
    /// The store finds no expired runs. `no-orphan-running`.
    SweepFindsNothingExpired = "sweep-finds-nothing-expired",
    /// The store makes another execution for a key that has triggered one. `unique-occurrence`.
    TriggerIgnoresKey = "trigger-ignores-key",
    /// The store cancels an execution for whoever asks. `tenant-wall`.
    CancelIgnoresTenant = "cancel-ignores-tenant",
    /// The store refuses without a record. `ledger-of-refusals`.
    RefusalsGoUnrecorded = "refusals-go-unrecorded",
    /// The store takes the publisher's word for when a message was published. `lag-adds-up`.
    StampsAreNotClamped = "stamps-are-not-clamped",
    /// The store does not flag that a stamp was clamped. `lag-adds-up`.
    ClampsGoUnflagged = "clamps-go-unflagged",
    /// The store takes the first fire of a new job for recorded. `no-lost-fire`.
    FirstFireTakenForRecorded = "first-fire-taken-for-recorded",
    /// The store answers that a job was created, and writes nothing. `conservation`.
    CreateWritesNothing = "create-writes-nothing",
    /// The store answers that a job was deleted, and writes nothing. `conservation`.
    DeleteWritesNothing = "delete-writes-nothing",
    /// The store answers that a key had triggered a job when it had not, and writes nothing. `conservation`.
    TriggerWritesNothing = "trigger-writes-nothing",
    /// The store cancels a run that was given back although nobody asked. `legal-transition`.
    ReleaseCancels = "release-cancels",
    /// The store writes no attempt rows. `dead-letter-once`, whose history they are.
    AttemptsGoUnrecorded = "attempts-go-unrecorded",
    /// The store's attempt rows do not say whose attempt it was. `dead-letter-once`.
    AttemptsNameNobody = "attempts-name-nobody",
    /// The store counts every lost lease as one without a sign of a start. `attempt-bounds`.
    LossesOnOneBudget = "losses-on-one-budget",
    /// The store records a refusal as if the token presented were the current one. `ledger-of-refusals`.
    RefusalNamesPresented = "refusal-names-presented",
    /// The scheduler gives all fires of a job one idempotency key. `effect-once-per-key`.
    KeyPerJob = "key-per-job",
    /// A takeover cancels whatever was lost, asked for or not. `legal-transition`.
    TakeOverCancels = "take-over-cancels",
    /// A takeover gives up at the first loss. `attempt-bounds`.
    FirstLossGivesUp = "first-loss-gives-up",
    /// The worker records a failure that may be tried again as a completion. `legal-transition`.
    FailureCompletes = "failure-completes",
    /// The worker tries again what failed for good. `legal-transition`.
    FailureForGoodRetried = "failure-for-good-retried",
    /// The worker gives up at the first failure. `attempt-bounds`.
    FirstFailureGivesUp = "first-failure-gives-up",
    /// The worker does not look at how old an execution is. `attempt-bounds`.
    RetriesWhatIsTooOld = "retries-what-is-too-old",
    /// The worker keeps no dead letter of a job that wants them. `dead-letter-once`.
    DeadLettersNotKept = "dead-letters-not-kept",
    /// The worker does not listen to when the target wants to be tried again. `retry-not-early`.
    WishIgnored = "wish-ignored",
    /// The worker tells the handler the number of the attempt before. `attempt-bounds`.
    AttemptMiscounted = "attempt-miscounted",
    /// The worker starts whatever has the highest priority, always. `priority-shares`.
    HighestPriorityAlone = "highest-priority-alone",
    /// The worker starts what it has in the order of arrival, whatever its priority. `priority-shares`.
    PrioritiesAreIgnored = "priorities-are-ignored",
    // Of changes of a job.
    /// The store changes a job whatever version the change was planned on. `fenced-write`.
    ChangeIgnoresVersion = "change-ignores-version",
    /// The store changes a job whatever watermark the change was planned on. `fenced-write`.
    ChangeIgnoresWatermark = "change-ignores-watermark",
    /// The store materialises what was planned under another version of the job. `fenced-write`.
    MaterialiseIgnoresVersion = "materialise-ignores-version",
    /// The store grants executions of fires while their job is paused. `paused-is-silent`.
    AcquireIgnoresPause = "acquire-ignores-pause",
    /// The scheduler runs fires that fell into a pause. `paused-is-silent`.
    PausedFiresRun = "paused-fires-run",
    /// A pause forgets the fires before it that nobody has recorded yet. `no-lost-fire`.
    PauseForgetsBacklog = "pause-forgets-backlog",
    /// The scheduler records fires of before an edit under the version that it made. `no-phantom-fire`.
    EditTakesFiresBefore = "edit-takes-fires-before",
    /// The scheduler makes fires due when they happen, whatever the flex window. `no-phantom-fire`.
    FlexIsIgnored = "flex-is-ignored",
    // Of failures in a row.
    /// The store pauses no job however often it fails. `paused-is-silent`.
    FailuresNeverPause = "failures-never-pause",
    /// The store counts failures of before a resume again. `no-lost-fire`.
    ResumeKeepsFailures = "resume-keeps-failures",
    /// The store lets no completion end a row of failures. `no-lost-fire`.
    CompletionsKeepTheRow = "completions-keep-the-row",
    // Of overlap.
    /// The store grants first leases whatever else of the job is under way. `overlap-honoured`.
    OverlapIsIgnored = "overlap-is-ignored",
    /// The store takes a job's slot for free while its holder waits for a retry. `overlap-honoured`.
    RetryGivesSlotAway = "retry-gives-slot-away",
    /// The store lets every execution wait for its job's slot, not one. `overlap-honoured`.
    BufferTakesAll = "buffer-takes-all",
    /// The store passes executions over although their job's slot is free. `no-lost-fire`.
    OverlapSkipsFreely = "overlap-skips-freely",
    /// The end of a run lifts nothing that waits for the slot, and nobody looks again. `due-work-ends`.
    EndLiftsNothing = "end-lifts-nothing",
    /// The end of a run lifts what waits for the slot without an outbox row. `atomic-dispatch`.
    LiftWithoutOutbox = "lift-without-outbox",
    // Of pauses of tenants and queues.
    /// The store grants executions while their tenant is paused. `paused-is-silent`.
    AcquireIgnoresTenantPause = "acquire-ignores-tenant-pause",
    /// The store grants executions while their queue is paused. `paused-is-silent`.
    AcquireIgnoresQueuePause = "acquire-ignores-queue-pause",
    /// The store grants what was triggered by hand whatever is paused. `paused-is-silent`.
    ManualIgnoresTenantPause = "manual-ignores-tenant-pause",
    /// A resume lets nothing go of what its pause held back. `due-work-ends`.
    ResumeLiftsNothing = "resume-lifts-nothing",
    /// Partition owners do not pick up what a resume left waiting. `due-work-ends`.
    OwnersLiftNothing = "owners-lift-nothing",
    // Of calendars.
    /// The scheduler runs fires on days that a calendar excludes. `no-phantom-fire`.
    CalendarsAreIgnored = "calendars-are-ignored",
    /// The scheduler takes the days of calendars for days of UTC. `no-lost-fire`.
    CalendarsGoByUtc = "calendars-go-by-utc",
    /// The store sets a calendar and leaves the jobs that name it with the days of before. `no-lost-fire`.
    CalendarKeepsOldDays = "calendar-keeps-old-days",
    // Of limits.
    /// The store grants beyond every limit. `limits-honoured`.
    LimitsAreIgnored = "limits-are-ignored",
    /// The store counts the runs of one job where it is to count those of a tenant or a key. `limits-honoured`.
    LimitCountsOneJob = "limit-counts-one-job",
    /// The store looks at the limits of keys alone. `limits-honoured`.
    TenantLimitForgotten = "tenant-limit-forgotten",
    /// The end of a run lifts nothing that waits for a limit, and nobody looks again. `due-work-ends`.
    LimitLiftsNothing = "limit-lifts-nothing",
    // Of dead letters.
    /// The store gives a replay a key of its own where the origin's was asked for. `effect-once-per-key`.
    ReplayGetsOwnKey = "replay-gets-own-key",
    /// The store begins the tokens of a replay anew. `token-monotone`.
    ReplayTokenFromStart = "replay-token-from-start",
    /// The store makes a replay without an outbox row. `atomic-dispatch`.
    ReplayWithoutOutbox = "replay-without-outbox",
    /// The store makes another replay for a number that it has made. `unique-occurrence`.
    ReplayIgnoresNumber = "replay-ignores-number",
    /// The store replays pages of dead letters that were replayed before. `unique-occurrence`.
    BulkReplaysAgain = "bulk-replays-again",
    /// The store replays what was purged. `dead-letter-once`.
    PurgedAreReplayed = "purged-are-replayed",
    /// The store deletes the record of a dead letter that is purged. `dead-letter-once`.
    PurgeLeavesNothing = "purge-leaves-nothing",
    // Of deadlines.
    /// The store grants a lease of what is past its deadline. `attempt-bounds`.
    AcquireIgnoresDeadline = "acquire-ignores-deadline",
    /// The worker has an attempt follow that would begin past the deadline. `attempt-bounds`.
    RetriesPastDeadline = "retries-past-deadline",
    /// The sweep ends what waits a minute before its deadline. `attempt-bounds`.
    OverdueTooSoon = "overdue-too-soon",
    /// What is triggered by hand has no deadline. `attempt-bounds`.
    TriggerForgetsDeadline = "trigger-forgets-deadline",
    /// The leader ends nothing that waits past its deadline. `due-work-ends`.
    OverdueNeverEnded = "overdue-never-ended",
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which deliberate bug is switched on, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bugs {
    #[cfg(feature = "simulation")]
    only: Option<Bug>,
}

impl Bugs {
    /// None: how it runs in production.
    #[cfg(feature = "simulation")]
    pub const NONE: Self = Self { only: None };
    /// None: how it runs in production.
    #[cfg(not(feature = "simulation"))]
    pub const NONE: Self = Self {};

    /// This one alone.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub const fn only(bug: Bug) -> Self {
        Self { only: Some(bug) }
    }

    /// Whether this one is switched on.
    #[cfg(feature = "simulation")]
    #[must_use]
    #[inline]
    pub fn has(self, bug: Bug) -> bool {
        // Says to the compiler that what a bug does is not worth a place beside what happens without it.
        #[cold]
        const fn seldom() {}
        let is_on = self.only == Some(bug);
        if is_on {
            seldom();
        }
        is_on
    }

    /// Whether this one is switched on: never, in production.
    #[cfg(not(feature = "simulation"))]
    #[must_use]
    pub const fn has(self, _bug: Bug) -> bool {
        false
    }
}
