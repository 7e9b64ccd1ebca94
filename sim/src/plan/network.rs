//! Delays and chances that are no faults: what a healthy network looks like.

use fencepost_core::time::Span;
use serde::{Deserialize, Serialize};

use crate::rng::Stream;

/// A range that delays are drawn from, evenly; both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelayRange {
    /// The shortest.
    pub least: Span,
    /// The longest.
    pub most: Span,
}

impl DelayRange {
    /// Draws one.
    pub fn draw(self, stream: &mut Stream) -> Span {
        stream.span(self.least, self.most)
    }
}

/// A healthy network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// One way between a node and the store.
    pub store: DelayRange,
    /// One way between a node and the broker.
    pub broker: DelayRange,
    /// One way between a handler and what it calls.
    pub outside: DelayRange,
    /// How long a consumer takes to connect, and waits before it tries again.
    pub reconnect: DelayRange,
    /// Within which time a connection that lost something is found broken.
    pub detect: DelayRange,
    /// The chance that a notification is lost.
    pub notify_loss_ppm: u32,
    /// The chance that a message is encoded and decoded on its way, instead of passed on.
    pub recode_ppm: u32,
}
