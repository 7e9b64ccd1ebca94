//! The fault schedule: which fault, where, when, for how long and how hard.

use fencepost_core::time::Span;
use serde::{Deserialize, Serialize};

use super::topology::NodeSlot;
use super::workload::OutsideIndex;
use crate::fault::FaultKind;
use crate::sim_time::SimTime;

/// What a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A process, or its link.
    Node(NodeSlot),
    /// The store.
    Store,
    /// The broker.
    Broker,
    /// The queue of this number, in the order of the handlers' names.
    Queue(u8),
    /// A system that handlers call.
    Outside(OutsideIndex),
}

/// One fault. What its parameters mean depends on the kind, and the catalogue says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSpec {
    /// Which.
    pub kind: FaultKind,
    /// Where.
    pub target: Target,
    /// From when.
    pub at: SimTime,
    /// For how long.
    #[serde(default, skip_serializing_if = "is_zero_span")]
    pub lasts: Span,
    /// How many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub count: u32,
    /// How likely, in parts per million.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chance_ppm: u32,
    /// How much.
    #[serde(default, skip_serializing_if = "is_zero_span")]
    pub amount: Span,
}

impl FaultSpec {
    /// When it is over.
    #[must_use]
    pub fn ends(&self) -> SimTime {
        self.at.plus(self.lasts)
    }
}

fn is_zero_span(span: &Span) -> bool {
    *span == Span::ZERO
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}
