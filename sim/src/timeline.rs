//! The timeline of a run: what happened to each node, for people to look at.
//!
//! Kept only when asked for. Nothing is decided by it.

use crate::fault::FaultKind;
use crate::plan::NodeSlot;
use crate::sim_time::SimTime;

/// Something that happened to a node or to all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A process started.
    Started,
    /// It died.
    Died,
    /// It stood still until then, at least.
    StoodStill(SimTime),
    /// It was asked to drain.
    DrainRequested,
    /// It drained and ended.
    Drained,
    /// It became the leader.
    Leads,
    /// It is the leader no more.
    LeadsNoMore,
    /// A fault struck.
    Fault(FaultKind),
    /// Everything healed.
    Healed,
    /// An invariant broke.
    Violated(String),
}

impl core::fmt::Display for Moment {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Started => f.write_str("starts"),
            Self::Died => f.write_str("dies"),
            Self::StoodStill(_) => f.write_str("stands still"),
            Self::DrainRequested => f.write_str("is asked to drain"),
            Self::Drained => f.write_str("has drained"),
            Self::Leads => f.write_str("leads"),
            Self::LeadsNoMore => f.write_str("leads no more"),
            Self::Fault(kind) => write!(f, "fault {kind}"),
            Self::Healed => f.write_str("everything heals"),
            Self::Violated(detail) => f.write_str(detail),
        }
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it began.
    pub at: SimTime,
    /// When it ended, if it lasted.
    pub until: SimTime,
    /// Whose it is; `None`: the store's, the broker's, or all's.
    pub slot: Option<NodeSlot>,
    /// What.
    pub moment: Moment,
}

/// The timeline of a run.
#[derive(Clone, Debug, Default)]
pub struct Timeline(Option<Vec<Entry>>);

impl Timeline {
    /// One that keeps what it is told.
    #[must_use]
    pub fn kept() -> Self {
        Self(Some(Vec::new()))
    }

    /// One that keeps nothing.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// Whether it keeps what it is told.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Something happened to a node.
    pub fn mark(&mut self, at: SimTime, slot: NodeSlot, moment: Moment) {
        let until = if let Moment::StoodStill(until) = moment { until } else { at };
        self.push(Entry { at, until, slot: Some(slot), moment });
    }

    /// A fault began, and ends then.
    pub fn fault(&mut self, at: SimTime, until: SimTime, slot: Option<NodeSlot>, moment: Moment) {
        self.push(Entry { at, until, slot, moment });
    }

    /// Everything healed.
    pub fn heal(&mut self, at: SimTime) {
        self.push(Entry { at, until: at, slot: None, moment: Moment::Healed });
    }

    /// An invariant broke.
    pub fn violated(&mut self, at: SimTime, detail: String) {
        self.push(Entry { at, until: at, slot: None, moment: Moment::Violated(detail) });
    }

    fn push(&mut self, entry: Entry) {
        if let Some(entries) = &mut self.0 {
            entries.push(entry);
        }
    }

    /// What was kept, in order.
    #[must_use]
    pub fn into_entries(self) -> Vec<Entry> {
        self.0.unwrap_or_default()
    }
}
