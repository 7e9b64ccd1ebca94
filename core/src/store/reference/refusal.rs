//! The record of refusals: who presented authority that had passed on, and how often.
//!
//! Recorded are refused renewals, materialisations, promotions, repairs and finishes. A refused release is
//! not (there is nothing left that it could have harmed), nor is a denied acquire, nor an optimistic check
//! that a resend fails lawfully (`WatermarkMoved`, `Moved`). Refusals of one (resource, token, node,
//! action) share a row, written once per command.

use crate::bug::Bug;
use crate::fencing::FencingToken;
use crate::id::NodeId;
use crate::store::reference::Call;
use crate::store::row::{RefusalRow, RefusedAction, RefusedResource};

impl Call<'_> {
    /// Notes that `node` was refused under the token `presented`, where `current` is in force.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        resource: RefusedResource,
        presented: FencingToken,
        node: NodeId,
        action: RefusedAction,
        current: FencingToken,
    ) {
        if self.bugs.has(Bug::RefusalsGoUnrecorded) {
            return;
        }
        self.refused.entry((resource, presented, node, action)).or_insert((current, 0)).1 += 1;
    }

    /// Writes what was noted.
    pub(super) fn record_refusals(&mut self) {
        while let Some((key, (current, times))) = self.refused.pop_first() {
            let row = match self.tables.refusals.get(&key) {
                Some(known) => RefusalRow {
                    last_at: self.now,
                    count: known.count.saturating_add(times),
                    ..known.clone()
                },
                None => {
                    let (resource, token, node, action) = key;
                    let (first_at, last_at) = (self.now, self.now);
                    let current = if self.bugs.has(Bug::RefusalNamesPresented) { token } else { current };
                    RefusalRow { resource, token, node, action, current, first_at, last_at, count: times }
                }
            };
            self.tables.refusals.put(row, self.changes);
        }
    }
}
