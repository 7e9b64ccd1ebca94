//! Liveness reports, and what arrived that could not be read: rows that inform and grant nothing.

use std::sync::Arc;

use crate::id::NodeId;
use crate::store::command::{Heartbeat, RecordMalformed};
use crate::store::reference::Call;
use crate::store::reply::Reply;
use crate::store::row::{MalformedRow, NodeRow};

impl Call<'_> {
    /// A node that the sweep marked offline comes back with its next report. The sender counts as seen now,
    /// so it is among the live ones where it is an active scheduler.
    pub(super) fn heartbeat(&mut self, report: &Heartbeat) -> Vec<NodeId> {
        let known = self.tables.nodes.get(&report.node);
        let row = NodeRow {
            id: report.node,
            role: report.role,
            label: Arc::clone(&report.label),
            schema: report.schema,
            state: report.state,
            capacity: report.capacity,
            started_at: known.map_or(self.now, |known| known.started_at),
            seen_at: self.now,
        };
        self.tables.nodes.put(row, self.changes);
        let live = |node: &NodeId| {
            let row = self.tables.nodes.get(node).expect("the index names rows of its table");
            row.is_live(report.live_within, self.now)
        };
        self.tables.active_schedulers().filter(live).collect()
    }

    /// The first report's reason, excerpt and node stay. A resend counts once more: the count says how
    /// often it was reported, not how often it arrived.
    pub(super) fn record_malformed(&mut self, report: &RecordMalformed) -> Reply {
        let row = match self.tables.malformed.get(&report.digest) {
            Some(known) => {
                MalformedRow { last_at: self.now, count: known.count.saturating_add(1), ..known.clone() }
            }
            None => MalformedRow {
                digest: report.digest,
                reason: Arc::clone(&report.reason),
                excerpt: Arc::clone(&report.excerpt),
                node: report.node,
                first_at: self.now,
                last_at: self.now,
                count: 1,
            },
        };
        self.tables.malformed.put(row, self.changes);
        Reply::MalformedRecorded
    }
}
