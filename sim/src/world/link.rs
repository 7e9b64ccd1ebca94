//! Links: between a process and the store, and between a process and the broker.
//!
//! A link that is well delays what passes, and keeps the order within each of its connections. What is wrong
//! with it is a list of troubles that come and go with the fault schedule; each is asked about everything that
//! passes while it lasts.

use fencepost_core::time::Span;

use crate::fault::{FaultCounts, FaultKind};
use crate::plan::{DelayRange, FaultSpec};
use crate::rng::Stream;
use crate::sim_time::SimTime;

/// Which way something passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From the process.
    Out,
    /// To the process.
    Back,
}

/// What becomes of something that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives(SimTime),
    Lost,
}

#[derive(Clone, Copy, Debug)]
enum Trouble {
    LosesOut,
    LosesBack,
    Delays,
    Reorders,
    CutOut,
    CutBack,
    Cut,
    Flaps,
    Postpones,
    Duplicates,
}

const CONNECTIONS: usize = 2;

/// One link.
#[derive(Debug)]
pub(super) struct Link {
    delay: DelayRange,
    troubles: Vec<(u16, Trouble, FaultSpec)>,
    latest: [[SimTime; CONNECTIONS]; 2],
}

/// What passing over a link draws from and counts in.
pub(super) struct Air<'a> {
    pub(super) now: SimTime,
    pub(super) stream: &'a mut Stream,
    pub(super) counts: &'a mut FaultCounts,
}

impl Link {
    pub(super) fn new(delay: DelayRange) -> Self {
        Self { delay, troubles: Vec::new(), latest: [[SimTime::ZERO; CONNECTIONS]; 2] }
    }

    /// A fault of this link begins.
    pub(super) fn begin(&mut self, index: u16, fault: &FaultSpec) {
        let trouble = match fault.kind {
            FaultKind::StoreRequestLost | FaultKind::BrokerRequestLost => Trouble::LosesOut,
            FaultKind::StoreReplyLost | FaultKind::BrokerReplyLost => Trouble::LosesBack,
            FaultKind::StoreDelay | FaultKind::BrokerDelay => Trouble::Delays,
            FaultKind::StoreReorder | FaultKind::BrokerLinkReorder => Trouble::Reorders,
            FaultKind::StoreCutRequests | FaultKind::BrokerCutRequests => Trouble::CutOut,
            FaultKind::StoreCutReplies | FaultKind::BrokerCutReplies => Trouble::CutBack,
            FaultKind::StoreCut | FaultKind::BrokerCut => Trouble::Cut,
            FaultKind::StoreFlapping | FaultKind::BrokerFlapping => Trouble::Flaps,
            FaultKind::StoreDuplicate => Trouble::Duplicates,
            FaultKind::StoreLateArrival | FaultKind::BrokerLateArrival => Trouble::Postpones,
            other => unreachable!("{other} is no fault of a link"),
        };
        self.troubles.push((index, trouble, *fault));
    }

    /// A fault of this link ends.
    pub(super) fn end(&mut self, index: u16) {
        self.troubles.retain(|(active, _, _)| *active != index);
    }

    /// Sends something, on one of the link's connections.
    pub(super) fn pass(&mut self, way: Way, connection: usize, air: &mut Air<'_>) -> Fate {
        let delay = self.delay.draw(air.stream);
        if self.troubles.is_empty() {
            return Fate::Arrives(self.in_order(way, connection, air.now.plus(delay)));
        }
        self.pass_troubled(way, connection, delay, air)
    }

    /// When a second copy of what is sent now arrives, if there is one: on no connection that has an order.
    pub(super) fn duplicate(&mut self, air: &mut Air<'_>) -> Option<SimTime> {
        let duplicates = |trouble: &Trouble| matches!(trouble, Trouble::Duplicates);
        let (_, _, fault) = self.troubles.iter().find(|(_, trouble, _)| duplicates(trouble))?;
        if !air.stream.chance(fault.chance_ppm) {
            return None;
        }
        air.counts.count(fault.kind);
        let later = air.stream.long_tailed(fault.amount.divided_by(64), fault.amount);
        Some(air.now.plus(self.delay.draw(air.stream)).plus(later))
    }

    fn in_order(&mut self, way: Way, connection: usize, at: SimTime) -> SimTime {
        let latest = &mut self.latest[way as usize][connection];
        let at = at.max(latest.plus(Span::from_micros(1)));
        *latest = at;
        at
    }

    fn pass_troubled(&mut self, way: Way, connection: usize, delay: Span, air: &mut Air<'_>) -> Fate {
        let mut delay = delay;
        let mut overtakes = false;
        let mut postponed = false;
        for (_, trouble, fault) in &self.troubles {
            let lost = match trouble {
                Trouble::LosesOut => way == Way::Out && air.stream.chance(fault.chance_ppm),
                Trouble::LosesBack => way == Way::Back && air.stream.chance(fault.chance_ppm),
                Trouble::CutOut => way == Way::Out,
                Trouble::CutBack => way == Way::Back,
                Trouble::Cut => true,
                Trouble::Flaps => {
                    let turn = fault.amount.as_micros().max(1);
                    (air.now.since(fault.at).as_micros() / turn).is_multiple_of(2)
                }
                Trouble::Delays => {
                    if air.stream.chance(fault.chance_ppm) {
                        let more = air.stream.long_tailed(Span::from_micros(100), fault.amount);
                        delay = delay.plus(more);
                        air.counts.count(fault.kind);
                    }
                    false
                }
                Trouble::Reorders => {
                    delay = delay.plus(air.stream.span(Span::ZERO, fault.amount));
                    overtakes = true;
                    air.counts.count(fault.kind);
                    false
                }
                Trouble::Duplicates => false,
                Trouble::Postpones => {
                    if way == Way::Out && air.stream.chance(fault.chance_ppm) {
                        delay = delay.plus(fault.amount);
                        postponed = true;
                        air.counts.count(fault.kind);
                    }
                    false
                }
            };
            if lost {
                air.counts.count(fault.kind);
                return Fate::Lost;
            }
        }
        let at = air.now.plus(delay);
        // What was delayed on its way for minutes was on a connection that nobody uses any more.
        if overtakes || postponed {
            Fate::Arrives(at)
        } else {
            Fate::Arrives(self.in_order(way, connection, at))
        }
    }
}
