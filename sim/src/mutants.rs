//! Mutants: every deliberate bug of the core, the invariant that is to catch it, and how soon it did.
//!
//! A mutant runs through the seeds from 0 until a run fails by the invariant that was predicted, and counts as
//! killed only then: an oracle that fails for another reason proves nothing about the one that was meant. (A bug can
//! break more than one invariant; which of them is first to notice is up to the seed.)

use std::ops::ControlFlow;

use fencepost_core::bug::{Bug, Bugs};
use serde::Serialize;

use crate::campaign::{Campaign, Recheck};
use crate::oracle::invariant::Invariant;
use crate::plan::Profile;

/// How many seeds each mutant may live through, unless the command line says otherwise.
pub const SEEDS: u64 = 2_000;

/// The invariant that catches a bug.
#[must_use]
pub const fn predicted(bug: Bug) -> Invariant {
    use Invariant as I;
    match bug {
        Bug::AcquireIgnoresTenantPause | Bug::AcquireIgnoresQueuePause | Bug::ManualIgnoresTenantPause => {
            Invariant::PausedIsSilent
        }
        Bug::ResumeLiftsNothing | Bug::OwnersLiftNothing => Invariant::DueWorkEnds,
        Bug::AcquireIgnoresDeadline
        | Bug::RetriesPastDeadline
        | Bug::OverdueTooSoon
        | Bug::TriggerForgetsDeadline => I::AttemptBounds,
        Bug::OverdueNeverEnded => I::DueWorkEnds,
        Bug::FinishIgnoresToken => I::FencedWrite,
        Bug::MaterialiseIgnoresToken => I::FencedWrite,
        Bug::StartsWithoutLease => I::OverlapOnlyAfterExpiry,
        Bug::CopyStartsAgain => I::OverlapOnlyAfterExpiry,
        Bug::KeyPerAttempt => I::EffectOncePerKey,
        Bug::RetriesForEver => I::AttemptBounds,
        Bug::RetriesTooSoon => I::RetryNotEarly,
        Bug::NoAttemptTimeout => I::DueWorkEnds,
        Bug::FinishSentOnce => I::DueWorkEnds,
        Bug::UnknownAcquireAwaited => I::DueWorkEnds,
        Bug::DrainWaitsForHandlers => I::DrainEnds,
        Bug::PublishesBeforeCommit => I::OutboxUntilConfirmed,
        Bug::RemovesOutboxBeforeConfirm => I::OutboxUntilConfirmed,
        Bug::ReturnCountsAsConfirm => I::OutboxUntilConfirmed,
        Bug::SkippedFiresGoUnrecorded => I::NoLostFire,
        Bug::NextFireSkipsOne => I::NoLostFire,
        Bug::FiresAreShifted => I::NoPhantomFire,
        Bug::NeverPromotes => I::DueWorkEnds,
        Bug::NeverReadsOutboxBack => I::OutboxDrains,
        Bug::NeverReleasesAboveTarget => I::PartitionsOwned,
        Bug::AsksForLeadershipOnce => I::LeaderExists,
        Bug::LeaderNeverRepairs => I::NoOrphanRunning,
        Bug::SweepIgnoresCancel => I::CancelFinal,
        Bug::SweepIgnoresBudgets => I::AttemptBounds,
        Bug::DrainKeepsItsLeases => I::DrainedHoldsNothing,
        Bug::DrainNeverEnds => I::DrainEnds,
        Bug::LeaseGrantKeepsToken => I::TokenMonotone,
        Bug::PartitionGrantIgnoresExpiry => I::NoEarlyTakeover,
        Bug::ExpiredLeasesStayHeld => I::HeartbeatGrantsNothing,
        Bug::SilentOwnerLosesPartition => I::NoEarlyTakeover,
        Bug::SilentWorkerGetsNothing => I::HeartbeatGrantsNothing,
        Bug::RepeatedAcquireExtends => I::SingleHolder,
        Bug::MaterialiseIgnoresWatermark => I::FencedWrite,
        Bug::RepeatedMaterialiseResets => I::CompletedSurvives,
        Bug::MaterialiseAheadOfTime => I::NoPhantomFire,
        Bug::MaterialiseIgnoresPlanAge => I::NoPhantomFire,
        Bug::DeletedJobsFire => I::FencedWrite,
        Bug::SkippedRangesForgotten => I::NoLostFire,
        Bug::PromoteWithoutOutbox => I::AtomicDispatch,
        Bug::PromoteIgnoresDueTime => I::RetryNotEarly,
        Bug::WaitingNeverPromoted => I::DueWorkEnds,
        Bug::OutboxNotReadBack => I::OutboxDrains,
        Bug::RemovalTakesOtherDispatch => I::OutboxUntilConfirmed,
        Bug::ReturnForgetsReason => I::OutboxUntilConfirmed,
        Bug::AcquireIgnoresNonce => I::OverlapOnlyAfterExpiry,
        Bug::AcquireKeepsToken => I::TokenMonotone,
        Bug::AcquireRunsEndedAgain => I::TerminalAbsorbs,
        Bug::RenewRevivesLostRun => I::LegalTransition,
        Bug::FinishOverwritesEnded => I::CompletedSurvives,
        Bug::LateFinishRewritesCompleted => I::CompletedSurvives,
        Bug::CancelledCompletes => I::CancelFinal,
        Bug::CancelForgottenOnRetry => I::CancelFinal,
        Bug::AttemptsNotCounted => I::AttemptBounds,
        Bug::DeadLetterWithoutRecord => I::DeadLetterOnce,
        Bug::TakeOverIgnoresExpiry => I::NoEarlyTakeover,
        Bug::TakeOverIgnoresObserved => I::FencedWrite,
        Bug::RedispatchIgnoresObserved => I::SweepIdempotent,
        Bug::SweepDropsExecutions => I::Conservation,
        Bug::CancelIgnoresTenant => I::TenantWall,
        Bug::SweepFindsNothingExpired => I::NoOrphanRunning,
        Bug::TriggerIgnoresKey => I::UniqueOccurrence,
        Bug::RefusalsGoUnrecorded => I::LedgerOfRefusals,
        Bug::StampsAreNotClamped => I::LagAddsUp,
        Bug::ClampsGoUnflagged => I::LagAddsUp,
        Bug::FirstFireTakenForRecorded => I::NoLostFire,
        Bug::CreateWritesNothing => I::Conservation,
        Bug::DeleteWritesNothing => I::Conservation,
        Bug::TriggerWritesNothing => I::Conservation,
        Bug::ReleaseCancels => I::LegalTransition,
        Bug::AttemptsGoUnrecorded => I::DeadLetterOnce,
        Bug::AttemptsNameNobody => I::DeadLetterOnce,
        Bug::LossesOnOneBudget => I::AttemptBounds,
        Bug::RefusalNamesPresented => I::LedgerOfRefusals,
        Bug::KeyPerJob => I::EffectOncePerKey,
        Bug::TakeOverCancels => I::LegalTransition,
        Bug::FirstLossGivesUp => I::AttemptBounds,
        Bug::FailureCompletes => I::LegalTransition,
        Bug::FailureForGoodRetried => I::LegalTransition,
        Bug::FirstFailureGivesUp => I::AttemptBounds,
        Bug::RetriesWhatIsTooOld => I::AttemptBounds,
        Bug::DeadLettersNotKept => I::DeadLetterOnce,
        Bug::WishIgnored => I::RetryNotEarly,
        Bug::AttemptMiscounted => I::AttemptBounds,
        Bug::HighestPriorityAlone | Bug::PrioritiesAreIgnored => I::PriorityShares,
        Bug::ChangeIgnoresVersion => I::FencedWrite,
        Bug::ChangeIgnoresWatermark => I::FencedWrite,
        Bug::MaterialiseIgnoresVersion => I::FencedWrite,
        Bug::AcquireIgnoresPause => I::PausedIsSilent,
        Bug::PausedFiresRun => I::PausedIsSilent,
        Bug::PauseForgetsBacklog => I::NoLostFire,
        Bug::EditTakesFiresBefore => I::NoPhantomFire,
        Bug::FailuresNeverPause => I::PausedIsSilent,
        Bug::ResumeKeepsFailures | Bug::CompletionsKeepTheRow => I::NoLostFire,
        Bug::FlexIsIgnored => I::NoPhantomFire,
        Bug::OverlapIsIgnored => I::OverlapHonoured,
        Bug::RetryGivesSlotAway => I::OverlapHonoured,
        Bug::BufferTakesAll => I::OverlapHonoured,
        Bug::OverlapSkipsFreely => I::NoLostFire,
        Bug::EndLiftsNothing => I::DueWorkEnds,
        Bug::LiftWithoutOutbox => I::AtomicDispatch,
        Bug::CalendarsAreIgnored => I::NoPhantomFire,
        Bug::CalendarsGoByUtc | Bug::CalendarKeepsOldDays => I::NoLostFire,
        Bug::LimitsAreIgnored => I::LimitsHonoured,
        Bug::LimitCountsOneJob => I::LimitsHonoured,
        Bug::TenantLimitForgotten => I::LimitsHonoured,
        Bug::LimitLiftsNothing => I::DueWorkEnds,
        Bug::ReplayGetsOwnKey => I::EffectOncePerKey,
        Bug::ReplayTokenFromStart => I::TokenMonotone,
        Bug::ReplayWithoutOutbox => I::AtomicDispatch,
        Bug::ReplayIgnoresNumber => I::UniqueOccurrence,
        Bug::BulkReplaysAgain => I::UniqueOccurrence,
        Bug::PurgedAreReplayed => I::DeadLetterOnce,
        Bug::PurgeLeavesNothing => I::DeadLetterOnce,
    }
}

/// How a mutant fared.
#[derive(Clone, Debug, Serialize)]
pub struct Fate {
    /// The mutant.
    pub name: &'static str,
    /// The invariant that is to catch it.
    pub predicted: &'static str,
    /// The predicted invariant, if it broke first in any run; else the one that broke in the first run that failed. None
    /// if it survived. (A bug can break more than one, and which of them shows first is up to the seed.)
    pub killed_by: Option<&'static str>,
    /// How many seeds it took until then.
    pub seeds_to_kill: Option<u64>,
    /// The seed whose run failed: it replays with this mutant switched on.
    pub seed: Option<u64>,
}

impl Fate {
    /// Whether the predicted invariant caught it.
    #[must_use]
    pub fn is_as_predicted(&self) -> bool {
        self.killed_by == Some(self.predicted)
    }
}

/// Runs one mutant until a run fails by the predicted invariant, or through `seeds` of them.
#[must_use]
pub fn run(bug: Bug, seeds: u64, profile: Profile, threads: usize) -> Fate {
    let campaign =
        Campaign { start: 0, seeds, profile, bugs: Bugs::only(bug), threads, recheck: Recheck::Never };
    let mut fate = Fate {
        name: bug.name(),
        predicted: predicted(bug).id(),
        killed_by: None,
        seeds_to_kill: None,
        seed: None,
    };
    let mut lived = 0;
    campaign.run(|run| {
        lived += 1;
        match run.ended.violation {
            Some(violation) => {
                let is_predicted = violation.invariant == fate.predicted;
                if is_predicted || fate.killed_by.is_none() {
                    fate.killed_by = Some(violation.invariant);
                    fate.seeds_to_kill = Some(lived);
                    fate.seed = Some(run.seed);
                }
                if is_predicted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            None => ControlFlow::Continue(()),
        }
    });
    fate
}
