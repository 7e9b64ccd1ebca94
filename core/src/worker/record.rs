//! Records: what arrives and cannot run here is written down first and acknowledged then.
//!
//! An execution whose handler or message this worker does not know gets a durable reason for waiting; a
//! message that cannot be read at all is recorded with its digest. Only when that is known to be in the
//! store is the delivery acknowledged, and an unknown outcome is asked for again: so neither is ever lost,
//! and neither ever blocks the consumer. Both queues are as long as the broker's prefetch at most.

use std::collections::{BTreeSet, VecDeque};

use crate::event::{Delivery, MalformedMessage};
use crate::execution::WaitReason;
use crate::fact::Fact;
use crate::id::ExecutionId;
use crate::store::StoreOutcome;
use crate::store::command::{Command, DeferExecutions, RecordMalformed};
use crate::store::reply::{DeferReply, Reply, StoreReply};
use crate::time::Monotonic;
use crate::worker::calls::Line;
use crate::worker::drain::Phase;
use crate::worker::{Worker, verdict};

/// What is to be recorded before its delivery is acknowledged.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) deferring: Line<Vec<Deferral>>,
    pub(super) recording: Line<(Delivery, MalformedMessage)>,
    deferrals: VecDeque<Deferral>,
    malformed: VecDeque<(Delivery, MalformedMessage)>,
}

/// An execution that cannot run here, and why.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deferral {
    execution: ExecutionId,
    reason: WaitReason,
    delivery: Delivery,
}

impl Records {
    pub(super) const fn new() -> Self {
        Self {
            deferring: Line::new(),
            recording: Line::new(),
            deferrals: VecDeque::new(),
            malformed: VecDeque::new(),
        }
    }

    /// Takes in an execution that cannot run here.
    pub(super) fn defer(&mut self, execution: ExecutionId, reason: WaitReason, delivery: Delivery) {
        self.deferrals.push_back(Deferral { execution, reason, delivery });
    }

    /// Takes in a message that cannot be read.
    pub(super) fn record(&mut self, delivery: Delivery, malformed: MalformedMessage) {
        self.malformed.push_back((delivery, malformed));
    }

    /// Leaves to the broker what was not asked for yet.
    pub(super) fn clear(&mut self) {
        self.deferrals.clear();
        self.malformed.clear();
    }

    /// Whether a call is under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.deferring.under_way().is_some() || self.recording.under_way().is_some()
    }

    /// When something is to be asked for again.
    pub(super) fn resends_at(&self) -> Option<Monotonic> {
        let deferral = self.deferring.pauses_until().filter(|_| !self.deferrals.is_empty());
        let malformed = self.recording.pauses_until().filter(|_| !self.malformed.is_empty());
        deferral.into_iter().chain(malformed).min()
    }

    /// The next deferrals, at most `most` and one per execution.
    fn take(&mut self, most: usize) -> Vec<Deferral> {
        let mut executions = BTreeSet::new();
        let mut batch = Vec::new();
        while batch.len() < most
            && let Some(next) = self.deferrals.front()
            && executions.insert(next.execution)
        {
            batch.extend(self.deferrals.pop_front());
        }
        batch
    }
}

impl Worker {
    /// Sends what is to be recorded.
    pub(super) fn send_records(&mut self, now: Monotonic) {
        if !self.records.deferrals.is_empty() && self.records.deferring.is_free(now) {
            let batch = self.records.take(self.batch());
            let items = batch.iter().map(|deferral| (deferral.execution, deferral.reason)).collect();
            let delay = self.config.defer_delay;
            let id = self.call(Command::DeferExecutions(DeferExecutions { items, delay }));
            self.records.deferring.begin(id, now, batch);
        }
        if self.records.recording.is_free(now)
            && let Some((delivery, malformed)) = self.records.malformed.pop_front()
        {
            let id = self.call(Command::RecordMalformed(RecordMalformed {
                node: self.config.node,
                digest: malformed.digest,
                reason: verdict::clip(&malformed.error.to_string().into()),
                excerpt: malformed.excerpt.clone(),
            }));
            self.records.recording.begin(id, now, (delivery, malformed));
        }
    }

    /// The store answered a `DeferExecutions`.
    pub(super) fn deferred(&mut self, now: Monotonic, batch: Vec<Deferral>, outcome: StoreOutcome) {
        let replies = match outcome {
            StoreOutcome::Replied(StoreReply { reply: Reply::Deferred(replies), .. })
                if replies.len() == batch.len() =>
            {
                replies
            }
            StoreOutcome::Replied(_) | StoreOutcome::Unknown => {
                let patience = self.unknown(now);
                self.records.deferring.pause(patience);
                if self.asks_again() {
                    for deferral in batch.into_iter().rev() {
                        self.records.deferrals.push_front(deferral);
                    }
                }
                return;
            }
        };
        for (Deferral { execution, reason, delivery }, reply) in batch.into_iter().zip(replies) {
            match reply {
                DeferReply::Recorded => {
                    self.acknowledge(delivery);
                    self.report(Fact::Deferred { execution, reason });
                }
                DeferReply::NotPending { .. } | DeferReply::Absent => self.drop_message(execution, delivery),
            }
        }
    }

    /// The store answered a `RecordMalformed`.
    pub(super) fn recorded(
        &mut self,
        now: Monotonic,
        (delivery, malformed): (Delivery, MalformedMessage),
        outcome: &StoreOutcome,
    ) {
        if let StoreOutcome::Replied(StoreReply { reply: Reply::MalformedRecorded, .. }) = outcome {
            self.acknowledge(delivery);
            self.report(Fact::MalformedMessage);
            return;
        }
        let patience = self.unknown(now);
        self.records.recording.pause(patience);
        if self.asks_again() {
            self.records.malformed.push_front((delivery, malformed));
        }
    }

    /// Whether what arrived is still this worker's to ask about; a draining one leaves it to the broker.
    fn asks_again(&self) -> bool {
        match self.phase {
            Phase::Active => true,
            Phase::New | Phase::Draining(_) | Phase::Drained => false,
        }
    }
}
