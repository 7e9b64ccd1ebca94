//! Coverage marks: named points that a good simulation must have passed.
//!
//! [`hit`] counts, on the thread that runs the simulation, when the `simulation` feature is on, and is
//! nothing otherwise. A run over enough seeds fails if a mark was never hit: an unvisited corner is not
//! a tested one.

macro_rules! marks {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)+) => {
        /// One named point.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mark { $($(#[$doc])* $variant,)+ }

        impl Mark {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

marks! {
    /// An acquire was sent again and answered with the same grant.
    AcquireRepeated = "acquire-repeated",
    /// A finish was refused because the run had been taken over.
    FinishRefused = "finish-refused",
    /// A finish was sent again after it had been applied.
    FinishRepeated = "finish-repeated",
    /// A materialise met a watermark that had moved.
    WatermarkMoved = "watermark-moved",
    /// A materialise was refused for a stale partition token.
    MaterialiseRefused = "materialise-refused",
    /// Another copy of a message arrived whose execution this worker runs already.
    CopyOfHeldRun = "copy-of-held-run",
    /// An execution lease arrived too late to be trusted and was given back.
    GrantTooLate = "grant-too-late",
    /// An execution lease was not renewed in time and its handler was told to stop.
    TrustEnded = "trust-ended",
    /// An attempt took too long and was given up.
    AttemptTimedOut = "attempt-timed-out",
    /// A drain left a handler behind that would not stop.
    DrainLeftHandler = "drain-left-handler",
    /// A scheduler sent an acquisition of partitions again, under its nonce.
    PartitionsAskedAgain = "partitions-asked-again",
    /// A lease was no longer trusted for want of a renewal.
    LeaseFellSilent = "lease-fell-silent",
    /// A lease that had fallen silent was renewed.
    LeaseSpokeAgain = "lease-spoke-again",
    /// A wedged scheduler's probe succeeded.
    WedgeProbed = "wedge-probed",
    /// A scan of due jobs came back full, and the pass went on.
    DuePageFull = "due-page-full",
    /// A drain ran out of time.
    DrainCutShort = "drain-cut-short",
    /// Leadership or partitions were asked for again and answered with the same grant.
    LeaseGrantRepeated = "lease-grant-repeated",
    /// An expired lease was granted to another node.
    LeaseTakenOver = "lease-taken-over",
    /// A lease was renewed after it had lapsed.
    LeaseRenewedAfterLapse = "lease-renewed-after-lapse",
    /// A lease was not renewed because it had passed on.
    LeaseRenewRefused = "lease-renew-refused",
    /// A materialise met a job that had been deleted.
    MaterialiseMetDelete = "materialise-met-delete",
    /// A promotion was refused for a stale partition token.
    PromoteRefused = "promote-refused",
    /// A retry came due and was promoted.
    RetryPromoted = "retry-promoted",
    /// What waited for a recorded reason was dispatched again.
    WaitingDispatched = "waiting-dispatched",
    /// An outbox row was read back.
    OutboxReadBack = "outbox-read-back",
    /// The late removal of an outbox row stamped its execution.
    LateRemovalStamped = "late-removal-stamped",
    /// A returned message became a recorded reason for waiting.
    ReturnBecameWait = "return-became-wait",
    /// An acquire was sent again after the lease that it began had ended.
    AcquireResendRefused = "acquire-resend-refused",
    /// A message arrived whose execution waited for its next attempt.
    AcquireTooEarly = "acquire-too-early",
    /// A message arrived whose execution ran already.
    AcquireMetRunning = "acquire-met-running",
    /// A message arrived whose execution had ended.
    AcquireMetEnded = "acquire-met-ended",
    /// An older message started what waited for a recorded reason.
    WaitingStarted = "waiting-started",
    /// An execution lease was renewed after it had lapsed.
    RunRenewedAfterLapse = "run-renewed-after-lapse",
    /// An execution lease was not renewed because the run was no longer the current one.
    RunRenewRefused = "run-renew-refused",
    /// A renewal brought its worker the news of a cancel request.
    CancelLearnt = "cancel-learnt",
    /// A finish was accepted after the lease had lapsed.
    FinishAfterLapse = "finish-after-lapse",
    /// A completion was committed although a cancel request was stored.
    CancelLostToCompletion = "cancel-lost-to-completion",
    /// A cancel request made an end of what would have been tried again.
    CancelBeatRetry = "cancel-beat-retry",
    /// An execution was cancelled before it ran.
    CancelledBeforeRun = "cancelled-before-run",
    /// A running execution was asked to stop.
    CancelRequested = "cancel-requested",
    /// A run was taken over whose worker had given a sign of a start.
    LostAfterSign = "lost-after-sign",
    /// A run was taken over whose worker had given none.
    LostWithoutSign = "lost-without-sign",
    /// A repair found that what had been observed was no longer so.
    RepairMoved = "repair-moved",
    /// A repair was refused for a stale leadership token.
    RepairRefused = "repair-refused",
    /// What was dispatched and never started was dispatched again.
    Redispatched = "redispatched",
    /// The outbox row of an execution that had ended was removed.
    SettledDropped = "settled-dropped",
    /// A silent node was marked offline.
    NodeRetired = "node-retired",
    /// A lag stamp was clamped.
    LagClamped = "lag-clamped",
    /// A trigger was sent again.
    TriggerRepeated = "trigger-repeated",
    /// A job was edited.
    JobEdited = "job-edited",
    /// A job was paused.
    JobPaused = "job-paused",
    /// A job was resumed.
    JobResumed = "job-resumed",
    /// A change of a job was asked for again.
    ChangeRepeated = "change-repeated",
    /// A change of a job met another one.
    ChangeMetChange = "change-met-change",
    /// A change of a job met a watermark that had moved.
    ChangeMetWatermark = "change-met-watermark",
    /// A message arrived whose execution a pause holds back.
    AcquireMetPause = "acquire-met-pause",
    /// An execution was passed over because another of its job held the slot.
    OverlapPassedOver = "overlap-passed-over",
    /// An execution began to wait for its job's slot.
    OverlapBuffered = "overlap-buffered",
    /// The end of a run lifted an execution that waited for its job's slot.
    OverlapLifted = "overlap-lifted",
    /// An execution had those that held its job's slot cancelled.
    OverlapCancelled = "overlap-cancelled",
    /// A later fire took the place of one that waited for the slot.
    OverlapDisplaced = "overlap-displaced",
    /// A tenant was paused.
    TenantPaused = "tenant-paused",
    /// A queue was paused.
    QueuePaused = "queue-paused",
    /// A pause of a tenant or a queue ended.
    PauseEnded = "pause-ended",
    /// A pause or a resume of a tenant or a queue was asked for again.
    SetPauseRepeated = "set-pause-repeated",
    /// A message arrived whose tenant is paused.
    AcquireMetTenantPause = "acquire-met-tenant-pause",
    /// A message arrived whose queue is paused.
    AcquireMetQueuePause = "acquire-met-queue-pause",
    /// A partition's owner picked up what a resume had left waiting.
    LiftedByOwner = "lifted-by-owner",
    /// An execution began to wait for a limit.
    LimitReached = "limit-reached",
    /// An execution that waited for a limit was dispatched again.
    LimitLifted = "limit-lifted",
    /// A limit was set.
    LimitSet = "limit-set",
    /// A limit was to be set again by the same request.
    LimitRepeated = "limit-repeated",
    /// A calendar was set.
    CalendarSet = "calendar-set",
    /// A calendar was to be set again by the same request.
    CalendarRepeated = "calendar-repeated",
    /// A calendar and a job that names it were to be changed at once.
    CalendarMetChange = "calendar-met-change",
    /// Fires were passed over since a calendar excludes their days.
    CalendarPassedOver = "calendar-passed-over",
    /// A backlog reached over a change of its job.
    BacklogOverChange = "backlog-over-change",
    /// A fire became an execution later than it happened, since it has a flex window.
    FireFlexed = "fire-flexed",
    /// A job was paused since too many of its executions failed in a row.
    PausedForFailures = "paused-for-failures",
    /// An execution waited past its deadline, and was ended.
    DeadlinePassed = "deadline-passed",
    /// A worker stopped an attempt at the deadline of its execution.
    AttemptMetDeadline = "attempt-met-deadline",
    /// A retry was given up since it would have begun past the deadline.
    RetryMetDeadline = "retry-met-deadline",
    /// A dead letter was replayed.
    Replayed = "replayed",
    /// A replay was asked for again.
    ReplayRepeated = "replay-repeated",
    /// A dead letter was purged.
    DeadLetterPurged = "dead-letter-purged",
    /// A purge was asked for again.
    PurgeRepeated = "purge-repeated",
}

#[cfg(feature = "simulation")]
mod counters {
    use core::cell::RefCell;

    use super::Mark;

    std::thread_local! {
        static HITS: RefCell<Vec<u64>> = RefCell::new(vec![0; Mark::ALL.len()]);
    }

    /// Counts one passing. What is marked is out of the ordinary, and the compiler may know it.
    #[cold]
    #[inline(never)]
    pub fn hit(mark: Mark) {
        HITS.with_borrow_mut(|hits| hits[mark as usize] += 1);
    }

    /// The counts of this thread since the last call, by mark, and starts again from zero.
    #[must_use]
    pub fn take() -> Vec<u64> {
        HITS.replace(vec![0; Mark::ALL.len()])
    }
}

#[cfg(feature = "simulation")]
pub use counters::{hit, take};

/// Counts nothing in production.
#[cfg(not(feature = "simulation"))]
pub const fn hit(_mark: Mark) {}
