//! The fault schedule: for each kind that is switched on, a few strikes at random moments.
//!
//! Lengths are long-tailed: many that a timeout hides, some that outlast every lease. Everything is over at
//! the heal, whatever its length.

use fencepost_core::time::Span;

use super::swarm::Swarm;
use crate::fault::{FaultGroup, FaultKind};
use crate::plan::{FaultSpec, NodeSlot, OutsideIndex, Plan, Target};
use crate::rng::{PPM, Stream, StreamKey};
use crate::sim_time::SimTime;

pub(super) fn draw(seed: u64, plan: &Plan, swarm: &Swarm) -> Vec<FaultSpec> {
    let mut faults = Vec::new();
    for kind in FaultKind::ALL.iter().copied().filter(|kind| swarm.has(*kind)) {
        let mut stream = StreamKey::of(seed, &format!("plan/fault/{kind}")).open();
        for _ in 0..stream.between(1, 4) {
            faults.extend(strike(&mut stream, kind, plan));
        }
    }
    faults.sort_by_key(|fault| (fault.at, fault.kind));
    faults
}

const fn millis(millis: u64) -> Span {
    Span::from_millis(millis)
}

const fn secs(secs: u64) -> Span {
    Span::from_secs(secs)
}

/// What a kind of fault strikes.
fn target(stream: &mut Stream, kind: FaultKind, plan: &Plan) -> Option<Target> {
    let any = |stream: &mut Stream| NodeSlot::new(stream.below(plan.node_count() as u64) as usize);
    match kind {
        FaultKind::NewNodeId | FaultKind::ClockDrift | FaultKind::DaylightSaving => None,
        FaultKind::ConsumerConnectionClosed | FaultKind::BrokerConsumerCancelled => {
            let worker = stream.below(plan.workers.len() as u64) as usize;
            Some(Target::Node(plan.worker_slot(worker)))
        }
        FaultKind::BrokerPurge => Some(Target::Queue(stream.below(3) as u8)),
        FaultKind::StoreClockBack | FaultKind::StoreClockForward => Some(Target::Store),
        FaultKind::MalformedMessage | FaultKind::NewerSchemaMessage | FaultKind::UnknownExecutionMessage => {
            Some(Target::Queue(stream.below(3) as u8))
        }
        _ => match kind.group() {
            FaultGroup::Process | FaultGroup::NodeStore | FaultGroup::NodeBroker | FaultGroup::Clock => {
                Some(Target::Node(any(stream)))
            }
            FaultGroup::Store => Some(Target::Store),
            FaultGroup::Broker => Some(Target::Broker),
            FaultGroup::Outside => {
                Some(Target::Outside(OutsideIndex(stream.below(plan.outside.len() as u64) as u8)))
            }
            // Part of the workload, not of the schedule.
            FaultGroup::Handler | FaultGroup::Operator | FaultGroup::Data => None,
        },
    }
}

/// How long it lasts, how many, how likely, how much: as the catalogue says for each kind.
#[derive(Default)]
struct Measure {
    lasts: Span,
    count: u32,
    chance_ppm: u32,
    amount: Span,
}

fn strike(stream: &mut Stream, kind: FaultKind, plan: &Plan) -> Option<FaultSpec> {
    let target = target(stream, kind, plan)?;
    let last = plan.heal.at.since(SimTime::ZERO).minus(secs(1));
    let at = SimTime::ZERO.plus(stream.span(secs(2), last));
    let Measure { lasts, count, chance_ppm, amount } = measure(stream, kind);
    Some(FaultSpec { kind, target, at, lasts, count, chance_ppm, amount })
}

fn measure(stream: &mut Stream, kind: FaultKind) -> Measure {
    let window = |stream: &mut Stream| stream.long_tailed(millis(500), secs(90));
    let down = |stream: &mut Stream| stream.long_tailed(millis(100), secs(60));
    let chance = |stream: &mut Stream| *stream.pick(&[PPM / 50, PPM / 10, PPM / 3, PPM]);
    match kind {
        FaultKind::Pause => Measure { lasts: stream.long_tailed(millis(1), secs(300)), ..Measure::default() },
        FaultKind::PauseBeforeSend => Measure {
            lasts: stream.long_tailed(millis(1), secs(120)),
            count: stream.between(1, 40) as u32,
            ..Measure::default()
        },
        FaultKind::PauseBeforeWrite => Measure {
            lasts: stream.long_tailed(secs(4), secs(90)),
            count: stream.between(1, 12) as u32,
            ..Measure::default()
        },
        FaultKind::PauseUntilFenced => Measure {
            lasts: secs(90),
            count: stream.between(1, 12) as u32,
            amount: *stream.pick(&[Span::ZERO, Span::ZERO, millis(50), secs(3), secs(10)]),
            ..Measure::default()
        },
        FaultKind::Crash => Measure { lasts: down(stream), ..Measure::default() },
        FaultKind::CrashBeforeEffect | FaultKind::CrashAfterEffect => {
            Measure { lasts: down(stream), count: stream.between(1, 40) as u32, ..Measure::default() }
        }
        FaultKind::CrashLoop => Measure {
            lasts: stream.span(secs(5), secs(60)),
            count: stream.between(1, 60) as u32,
            amount: stream.span(millis(200), secs(3)),
            ..Measure::default()
        },
        FaultKind::SlowNode => Measure {
            lasts: window(stream),
            amount: stream.long_tailed(millis(1), secs(4)),
            ..Measure::default()
        },
        FaultKind::RollingRestart | FaultKind::RollingUpgrade => {
            Measure { amount: stream.span(millis(200), secs(10)), ..Measure::default() }
        }
        FaultKind::KillDuringDrain => Measure {
            lasts: down(stream),
            amount: stream.long_tailed(millis(1), secs(10)),
            ..Measure::default()
        },
        FaultKind::StoreRequestLost
        | FaultKind::StoreReplyLost
        | FaultKind::BrokerRequestLost
        | FaultKind::BrokerReplyLost
        | FaultKind::StoreSerializationFailure
        | FaultKind::BrokerConfirmLost
        | FaultKind::BrokerNack
        | FaultKind::BrokerUnroutable
        | FaultKind::BrokerDuplicate
        | FaultKind::BrokerReorder => {
            Measure { lasts: window(stream), chance_ppm: chance(stream), ..Measure::default() }
        }
        FaultKind::StoreDelay | FaultKind::BrokerDelay => Measure {
            lasts: window(stream),
            chance_ppm: chance(stream),
            amount: stream.span(millis(100), secs(8)),
            ..Measure::default()
        },
        FaultKind::StoreReorder | FaultKind::BrokerLinkReorder => Measure {
            lasts: window(stream),
            amount: stream.long_tailed(millis(2), secs(2)),
            ..Measure::default()
        },
        FaultKind::StoreLateArrival | FaultKind::BrokerLateArrival => Measure {
            lasts: window(stream),
            chance_ppm: *stream.pick(&[PPM / 100, PPM / 20, PPM / 4]),
            amount: stream.long_tailed(secs(6), secs(600)),
            ..Measure::default()
        },
        FaultKind::StoreDuplicate => Measure {
            lasts: stream.span(secs(5), secs(120)),
            chance_ppm: *stream.pick(&[PPM / 20, PPM / 5, PPM]),
            // Soon after the first, before anything has come of it, or long after.
            amount: *stream.pick(&[millis(5), millis(200), secs(20), secs(300)]),
            ..Measure::default()
        },
        FaultKind::StoreFlapping | FaultKind::BrokerFlapping => Measure {
            lasts: window(stream),
            amount: stream.long_tailed(millis(50), secs(8)),
            ..Measure::default()
        },
        FaultKind::StoreSlow | FaultKind::StorePoolExhausted => Measure {
            lasts: window(stream),
            amount: stream.long_tailed(millis(10), secs(6)),
            ..Measure::default()
        },
        FaultKind::StoreFailover => Measure {
            lasts: stream.span(millis(500), secs(15)),
            amount: stream.span(Span::ZERO, millis(900)),
            ..Measure::default()
        },
        FaultKind::BrokerConsumerTimeout => {
            Measure { lasts: window(stream), amount: stream.span(secs(2), secs(10)), ..Measure::default() }
        }
        FaultKind::BrokerLengthLimit => {
            Measure { lasts: window(stream), count: stream.below(4) as u32, ..Measure::default() }
        }
        FaultKind::BrokerPurge => Measure { count: stream.below(6) as u32, ..Measure::default() },
        FaultKind::BrokerOversized => Measure { lasts: window(stream), count: 1_000, ..Measure::default() },
        FaultKind::ClockLeap => {
            Measure { amount: stream.long_tailed(millis(1), secs(60)), ..Measure::default() }
        }
        FaultKind::StoreClockBack => {
            Measure { amount: stream.long_tailed(millis(1), secs(600)), ..Measure::default() }
        }
        FaultKind::StoreClockForward => {
            Measure { amount: stream.long_tailed(millis(1), secs(900)), ..Measure::default() }
        }
        FaultKind::OutsideSlow => Measure {
            lasts: window(stream),
            amount: stream.long_tailed(millis(100), secs(20)),
            ..Measure::default()
        },
        FaultKind::MalformedMessage | FaultKind::NewerSchemaMessage | FaultKind::UnknownExecutionMessage => {
            Measure { count: stream.between(1, 5) as u32, ..Measure::default() }
        }
        FaultKind::StoreCutRequests
        | FaultKind::StoreCutReplies
        | FaultKind::StoreCut
        | FaultKind::BrokerCutRequests
        | FaultKind::BrokerCutReplies
        | FaultKind::BrokerCut
        | FaultKind::StoreUnavailable
        | FaultKind::StoreRestart
        | FaultKind::StoreReadOnly
        | FaultKind::BrokerOutage
        | FaultKind::BrokerRestart
        | FaultKind::BrokerAlarm
        | FaultKind::ClockStandsStill
        | FaultKind::OutsideDown => Measure { lasts: window(stream), ..Measure::default() },
        FaultKind::ConsumerConnectionClosed
        | FaultKind::PublishChannelClosed
        | FaultKind::BrokerRedeliverUnacked
        | FaultKind::BrokerConsumerCancelled
        | FaultKind::NewNodeId
        | FaultKind::ClockDrift
        | FaultKind::DaylightSaving
        | FaultKind::HandlerSlow
        | FaultKind::HandlerHangs
        | FaultKind::HandlerDeaf
        | FaultKind::HandlerFailsRetryably
        | FaultKind::HandlerFailsForGood
        | FaultKind::HandlerCrashesWorker
        | FaultKind::HandlerAnswerLost
        | FaultKind::HandlerOutputTooLarge
        | FaultKind::OperatorCreates
        | FaultKind::OperatorTriggers
        | FaultKind::OperatorCancels
        | FaultKind::OperatorEdits
        | FaultKind::OperatorPauses
        | FaultKind::OperatorHolds
        | FaultKind::OperatorLimits
        | FaultKind::OperatorCalendars
        | FaultKind::OperatorDeletes
        | FaultKind::OperatorCancelsStuck
        | FaultKind::OperatorRaces
        | FaultKind::OperatorTrespasses
        | FaultKind::OperatorReplays
        | FaultKind::OperatorReplaysAll
        | FaultKind::OperatorPurges
        | FaultKind::OperatorRepeats
        | FaultKind::Herd
        | FaultKind::UnreadableDefinition
        | FaultKind::UnknownHandlerVersion => Measure::default(),
    }
}
