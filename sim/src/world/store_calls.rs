//! Calls on the store: from a node or an operator, over its link, to a commit, and back, or not.
//!
//! A caller hears exactly one outcome for each call. It is unknown when the request or the reply is lost,
//! when the store refuses or rolls back, and when the reply takes longer than a caller waits; the command may
//! have been committed in any of these cases, or be committed later.

use fencepost_core::id::EffectId;
use fencepost_core::limits::STORE_CALL_TIMEOUT;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::{Command, Lane};
use fencepost_core::store::reply::StoreReply;
use fencepost_core::time::Span;

use super::World;
use super::happening::{Happening, Life};
use super::link::{Air, Fate, Way};
use super::role::RoleEvent;
use crate::fault::FaultKind;
use crate::plan::FaultSpec;
use crate::rng::Stream;
use crate::sim_time::SimTime;

/// Who called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    Node { life: Life, effect: EffectId },
    Operator { task: u16 },
}

/// A call under way.
#[derive(Debug)]
pub(super) struct Call {
    caller: Caller,
    command: Command,
    reply: Option<StoreReply>,
    sent: SimTime,
    /// Which boot of the store it is connected to.
    boot: u32,
    /// Whether it has waited inside the store already.
    waited: bool,
    /// Whether its caller has given up, or will at the deadline whatever happens.
    abandoned: bool,
}

impl Call {
    fn deadline(&self) -> SimTime {
        self.sent.plus(STORE_CALL_TIMEOUT)
    }

    fn connection(&self) -> usize {
        match self.command.lane() {
            Lane::Lease => 0,
            Lane::Work => 1,
        }
    }
}

/// What is wrong with the store.
#[derive(Debug, Default)]
pub(super) struct StoreHealth {
    /// Raised by each restart: connections of before are gone.
    boot: u32,
    troubles: Vec<(u16, FaultSpec)>,
}

impl StoreHealth {
    pub(super) fn begin(&mut self, index: u16, fault: &FaultSpec) {
        if matches!(fault.kind, FaultKind::StoreRestart | FaultKind::StoreFailover) {
            self.boot += 1;
        }
        self.troubles.push((index, *fault));
    }

    pub(super) fn end(&mut self, index: u16) {
        self.troubles.retain(|(active, _)| *active != index);
    }
}

/// What a store does with a call that has arrived.
enum Reception {
    Commit,
    /// It refuses, or rolls back, for this.
    Refuse(FaultKind),
    /// It commits after a while.
    Wait(Span),
}

/// When a caller hears what became of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hearing {
    At(SimTime),
    Never,
}

impl World<'_> {
    pub(super) fn call_store(&mut self, caller: Caller, command: Command) {
        let call = Call {
            caller,
            command,
            reply: None,
            sent: self.now,
            boot: self.store_health.boot,
            waited: false,
            abandoned: false,
        };
        if let Some(at) = self.duplicate(caller) {
            // Nobody hears of what becomes of a second copy.
            let place = self.calls.insert(Call {
                caller,
                command: call.command.clone(),
                reply: None,
                sent: call.sent,
                boot: call.boot,
                waited: false,
                abandoned: true,
            });
            self.queue.push(at, Happening::StoreArrives { call: place });
        }
        match self.pass_store(caller, Way::Out, call.connection()) {
            Fate::Lost => self.queue.push(call.deadline(), Happening::StoreSilent { caller }),
            Fate::Arrives(at) => {
                let place = self.calls.insert(call);
                self.queue.push(at, Happening::StoreArrives { call: place });
                if at > self.now.plus(STORE_CALL_TIMEOUT) {
                    self.abandon(place);
                }
            }
        }
    }

    fn duplicate(&mut self, caller: Caller) -> Option<SimTime> {
        let Caller::Node { life, .. } = caller else { return None };
        let mut air = Air { now: self.now, stream: &mut self.streams.store_links, counts: &mut self.counts };
        self.nodes[life.slot.index()].store_link.duplicate(&mut air)
    }

    fn pass_store(&mut self, caller: Caller, way: Way, connection: usize) -> Fate {
        let mut air = Air { now: self.now, stream: &mut self.streams.store_links, counts: &mut self.counts };
        match caller {
            Caller::Node { life, .. } => {
                self.nodes[life.slot.index()].store_link.pass(way, connection, &mut air)
            }
            Caller::Operator { .. } => self.operator_link.pass(way, connection, &mut air),
        }
    }

    /// The caller will hear nothing of this call but that nobody knows.
    fn abandon(&mut self, place: u32) {
        let Some(call) = self.calls.get_mut(place) else { return };
        if !call.abandoned {
            call.abandoned = true;
            let (at, caller) = (call.deadline().max(self.now), call.caller);
            self.queue.push(at, Happening::StoreSilent { caller });
        }
    }

    pub(super) fn on_store_arrives(&mut self, place: u32) {
        let call = self.calls.get(place).expect("a call arrives once, unless it waits");
        match self.store_health.receive(call, &mut self.streams.store, &mut self.counts) {
            Reception::Commit => {}
            Reception::Refuse(why) => {
                let call = self.calls.take(place).expect("it was there");
                self.store.roll_back(self.store_clock.read(self.now), &call.command, why);
                if !call.abandoned {
                    self.queue.push(
                        self.now.plus(Span::from_millis(1)),
                        Happening::StoreSilent { caller: call.caller },
                    );
                }
                return;
            }
            Reception::Wait(span) => {
                let at = self.now.plus(span);
                let call = self.calls.get_mut(place).expect("it was there");
                call.waited = true;
                let late = at > call.deadline();
                self.queue.push(at, Happening::StoreArrives { call: place });
                if late {
                    self.abandon(place);
                }
                return;
            }
        }
        let call = self.calls.get_mut(place).expect("it was there");
        let (caller, connection) = (call.caller, call.connection());
        let command = core::mem::replace(&mut call.command, Command::ReadClock);
        let (deadline, abandoned) = (call.deadline(), call.abandoned);
        // Drawn before the commit, so that the store can be told what becomes of its reply.
        let slow = self.store_health.linger(&mut self.streams.store, &mut self.counts);
        let hearing = match self.pass_store(caller, Way::Back, connection) {
            Fate::Arrives(at) if at.plus(slow) <= deadline && !abandoned => Hearing::At(at.plus(slow)),
            Fate::Arrives(_) | Fate::Lost => Hearing::Never,
        };
        let reply = self.commit(caller, &command, hearing);
        match hearing {
            Hearing::At(at) => {
                self.calls.get_mut(place).expect("it was there").reply = Some(reply);
                self.queue.push(at, Happening::StoreAnswers { call: place });
            }
            Hearing::Never => {
                self.abandon(place);
                self.calls.take(place);
            }
        }
    }

    pub(super) fn on_store_answers(&mut self, place: u32) {
        let call = self.calls.take(place).expect("a call is answered once");
        let broken = call.boot != self.store_health.boot && self.streams.store.chance(crate::rng::PPM / 2);
        let outcome = match call.reply {
            Some(reply) if !broken => StoreOutcome::Replied(reply),
            Some(_) | None => {
                self.counts.count(FaultKind::StoreRestart);
                StoreOutcome::Unknown
            }
        };
        self.tell_caller(call.caller, outcome);
    }

    pub(super) fn tell_caller(&mut self, caller: Caller, outcome: StoreOutcome) {
        match caller {
            Caller::Node { life, effect } => {
                self.deliver(life, RoleEvent::StoreReplied { effect, outcome });
            }
            Caller::Operator { task } => self.operator_hears(task, outcome),
        }
    }
}

impl StoreHealth {
    fn receive(&self, call: &Call, stream: &mut Stream, counts: &mut crate::fault::FaultCounts) -> Reception {
        if call.boot != self.boot {
            // Connected to a store that has gone since; unless it is a request that floated about for long.
            counts.count(FaultKind::StoreRestart);
            if !call.abandoned {
                return Reception::Refuse(FaultKind::StoreRestart);
            }
        }
        let mut wait = Span::ZERO;
        for (_, fault) in &self.troubles {
            let refuses = match fault.kind {
                FaultKind::StoreUnavailable | FaultKind::StoreRestart | FaultKind::StoreFailover => true,
                FaultKind::StoreSerializationFailure => stream.chance(fault.chance_ppm),
                FaultKind::StoreReadOnly => writes(&call.command),
                FaultKind::StorePoolExhausted if !call.waited => {
                    wait = wait.plus(stream.span(Span::ZERO, fault.amount));
                    counts.count(fault.kind);
                    false
                }
                FaultKind::StoreSlow if !call.waited && stream.chance(crate::rng::PPM / 2) => {
                    wait = wait.plus(stream.long_tailed(Span::from_millis(1), fault.amount));
                    counts.count(fault.kind);
                    false
                }
                _ => false,
            };
            if refuses {
                counts.count(fault.kind);
                return Reception::Refuse(fault.kind);
            }
        }
        if wait > Span::ZERO { Reception::Wait(wait) } else { Reception::Commit }
    }

    /// How long a reply takes after its commit, beyond its way back.
    fn linger(&self, stream: &mut Stream, counts: &mut crate::fault::FaultCounts) -> Span {
        let mut linger = Span::ZERO;
        for (_, fault) in &self.troubles {
            if fault.kind == FaultKind::StoreSlow && stream.chance(crate::rng::PPM / 2) {
                linger = linger.plus(stream.long_tailed(Span::from_millis(1), fault.amount));
                counts.count(fault.kind);
            }
        }
        linger
    }
}

/// Whether a command needs a store that writes.
const fn writes(command: &Command) -> bool {
    match command {
        Command::ReadClock | Command::ScanDueJobs(_) | Command::ScanSweep(_) => false,
        Command::Heartbeat(_)
        | Command::AcquireLeadership(_)
        | Command::AcquirePartitions(_)
        | Command::RenewLeases(_)
        | Command::ReleaseLeases(_)
        | Command::Materialise(_)
        | Command::PutOffJobs(_)
        | Command::PromoteDue(_)
        | Command::ScanOutbox(_)
        | Command::RemoveOutbox(_)
        | Command::ReturnOutbox(_)
        | Command::Repair(_)
        | Command::AcquireExecutions(_)
        | Command::RenewExecutions(_)
        | Command::FinishExecutions(_)
        | Command::DeferExecutions(_)
        | Command::RecordMalformed(_)
        | Command::CreateTenant(_)
        | Command::CreateJob(_)
        | Command::ChangeJob(_)
        | Command::DeleteJob(_)
        | Command::TriggerJob(_)
        | Command::CancelExecution(_)
        | Command::SetPause(_)
        | Command::ReplayDeadLetter(_)
        | Command::ReplayDeadLetters(_)
        | Command::PurgeDeadLetter(_)
        | Command::SetLimit(_)
        | Command::SetCalendar(_) => true,
    }
}
