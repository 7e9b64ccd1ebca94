//! The script language: what publishers, consumers and operators do to a broker, and scripts made of it.
//!
//! A script is a list of windows. What is in one window is done at once, by parties that do not wait for each
//! other; a window ends when nothing more is due. Steps name consumers and queues, not deliveries: which ones a
//! step can touch shows only in the run, and a step that has nothing to touch is left out there. What must
//! stay true: a seed gives the same script on any machine.

use core::fmt;

use fencepost_sim::rng::{Stream, StreamKey};

use crate::history::name;

/// So many messages may wait in a queue of a limited script.
pub(super) const LENGTH_LIMIT: u32 = 3;

/// A script: a small universe and what happens in it.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) seed: u64,
    pub(super) queues: usize,
    pub(super) length: Length,
    pub(super) parties: Vec<Party>,
    pub(super) windows: Vec<Vec<Step>>,
}

/// Whether an operator has limited the queues' length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Free,
    Limited,
}

/// Who consumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Party {
    /// Production's consumer.
    Worker { queues: Vec<usize> },
    /// Somebody else's, on a channel of its own.
    Foreign { queue: usize },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Production's publisher sends one batch and waits for what becomes of it.
    Publish { queues: Vec<usize> },
    /// Somebody publishes and closes the channel without waiting.
    PublishAndLeave { queue: usize, count: usize },
    /// A party begins to consume, or goes on with another prefetch.
    Consume { party: usize, prefetch: u16 },
    /// A party consumes no more and keeps what it has.
    Cancel { party: usize },
    /// A party deals with something that it has.
    Settle { party: usize, how: Settling, pick: u64 },
    /// A party goes, whatever it has.
    Leave { party: usize, how: Leaving },
    /// An operator empties a queue.
    Purge { queue: usize },
    /// An operator deletes a queue.
    DeleteQueue { queue: usize },
    /// An operator deletes the exchange that everything is published to.
    DeleteExchange,
}

/// What becomes of deliveries. Production acknowledges and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Settling {
    Ack,
    AckUpTo,
    NackBack,
    NackUpToBack,
    NackAway,
    RejectBack,
    RejectAway,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Leaving {
    /// The channel is closed, the connection stays for a moment.
    Channel,
    /// The connection is closed in order.
    Connection,
    /// Its process is gone.
    Abruptly,
}

impl Settling {
    pub(super) const ALL: [Self; 7] = [
        Self::Ack,
        Self::AckUpTo,
        Self::NackBack,
        Self::NackUpToBack,
        Self::NackAway,
        Self::RejectBack,
        Self::RejectAway,
    ];
}

impl Script {
    /// The script of a seed.
    pub(super) fn of(seed: u64, length: Length) -> Self {
        let mut stream = StreamKey::of(seed, "broker script").open();
        let queues = stream.between(1, 3) as usize;
        let parties = (0..stream.between(1, 3)).map(|_| Party::draw(queues, &mut stream)).collect();
        let mut script = Self { seed, queues, length, parties, windows: Vec::new() };
        for at in 0..stream.between(8, 14) {
            let window = script.draw_window(at == 0, &mut stream);
            script.windows.push(window);
        }
        script
    }

    fn draw_window(&self, first: bool, stream: &mut Stream) -> Vec<Step> {
        if first {
            let consume = |party| Step::Consume { party, prefetch: 2 };
            return [Step::Publish { queues: (0..self.queues).collect() }]
                .into_iter()
                .chain((0..self.parties.len()).map(consume))
                .collect();
        }
        // What changes the topology stands alone: production's own repair of it is not raced here.
        match stream.below(24) {
            0 => return vec![Step::DeleteQueue { queue: self.queue(stream) }],
            1 if stream.chance(500_000) => return vec![Step::DeleteExchange],
            _ => {}
        }
        let mut window: Vec<Step> = Vec::new();
        for _ in 0..stream.between(1, 4) {
            let step = self.draw_step(stream);
            if !window.iter().any(|other| other.same_actor(&step)) {
                window.push(step);
            }
        }
        window
    }

    fn draw_step(&self, stream: &mut Stream) -> Step {
        let party = stream.below(self.parties.len() as u64) as usize;
        match stream.below(100) {
            0..28 => {
                Step::Publish { queues: (0..stream.between(1, 4)).map(|_| self.queue(stream)).collect() }
            }
            28..32 => {
                Step::PublishAndLeave { queue: self.queue(stream), count: stream.between(1, 2) as usize }
            }
            32..48 => Step::Consume { party, prefetch: stream.between(1, 4) as u16 },
            48..78 => {
                let how = match self.parties[party] {
                    Party::Worker { .. } => *stream.pick(&[Settling::Ack, Settling::AckUpTo]),
                    Party::Foreign { .. } => *stream.pick(&Settling::ALL),
                };
                Step::Settle { party, how, pick: stream.long() }
            }
            78..85 => Step::Cancel { party },
            85..94 => {
                let all = [Leaving::Channel, Leaving::Connection, Leaving::Abruptly];
                Step::Leave { party, how: *stream.pick(&all) }
            }
            _ => Step::Purge { queue: self.queue(stream) },
        }
    }

    fn queue(&self, stream: &mut Stream) -> usize {
        stream.below(self.queues as u64) as usize
    }
}

impl Party {
    fn draw(queues: usize, stream: &mut Stream) -> Self {
        let queue = stream.below(queues as u64) as usize;
        if stream.chance(500_000) {
            return Self::Foreign { queue };
        }
        let also = stream.below(queues as u64) as usize;
        let drawn = [queue, also];
        // What is consumed with which is production's: all that a handler has.
        let with = |queue: &usize| name(*queue).0;
        let queues =
            (0..queues).filter(|other| drawn.iter().any(|drawn| with(drawn) == with(other))).collect();
        Self::Worker { queues }
    }

    /// From which queues it consumes.
    pub(super) fn queues(&self) -> &[usize] {
        match self {
            Self::Worker { queues } => queues,
            Self::Foreign { queue } => core::slice::from_ref(queue),
        }
    }
}

impl Step {
    fn party(&self) -> Option<usize> {
        match self {
            Self::Consume { party, .. }
            | Self::Cancel { party }
            | Self::Settle { party, .. }
            | Self::Leave { party, .. } => Some(*party),
            Self::Publish { .. }
            | Self::PublishAndLeave { .. }
            | Self::Purge { .. }
            | Self::DeleteQueue { .. }
            | Self::DeleteExchange => None,
        }
    }

    /// Whether one actor would have to do two things at once.
    fn same_actor(&self, other: &Self) -> bool {
        match (self.party(), other.party()) {
            (Some(one), Some(other)) => one == other,
            (None, None) => core::mem::discriminant(self) == core::mem::discriminant(other),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {} queues ({:?}), parties {:?}",
            self.seed, self.queues, self.length, self.parties
        )?;
        for (at, window) in self.windows.iter().enumerate() {
            writeln!(f, "  {at:2}  {window:?}")?;
        }
        Ok(())
    }
}
