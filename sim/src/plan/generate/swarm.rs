//! The swarm: which kinds of faults a plan has at all.
//!
//! A run with every fault switched on explores less than one would think, since the strong ones drown the
//! subtle ones. So each seed switches a random subset on, of random size; some have none.

use crate::fault::FaultKind;
use crate::plan::profile::FaultMix;
use crate::rng::{PPM, StreamKey};

/// The kinds that are switched on.
#[derive(Clone, Debug)]
pub(super) struct Swarm(Vec<bool>);

impl Swarm {
    /// Whether this kind is.
    pub(super) fn has(&self, kind: FaultKind) -> bool {
        self.0[kind as usize]
    }

    /// Whether any is.
    pub(super) fn any(&self) -> bool {
        self.0.contains(&true)
    }
}

/// These kinds and no others.
pub(super) fn only(kinds: &[FaultKind]) -> Swarm {
    Swarm(FaultKind::ALL.iter().map(|kind| kinds.contains(kind)).collect())
}

pub(super) fn draw(seed: u64, mix: FaultMix) -> Swarm {
    let shares = [0, PPM / 16, PPM / 8, PPM / 8, PPM / 4, PPM / 4, PPM / 3, PPM / 2];
    let share = match mix {
        FaultMix::None => 0,
        FaultMix::All => PPM,
        FaultMix::Swarm => *StreamKey::of(seed, "plan/swarm").open().pick(&shares),
    };
    // A stream per kind: a kind that is added leaves the others of every seed as they were.
    let on = |kind: &FaultKind| {
        let mut stream = StreamKey::of(seed, &format!("plan/swarm/{kind}")).open();
        share > 0 && stream.chance(share)
    };
    Swarm(FaultKind::ALL.iter().map(on).collect())
}
