//! The record of refusals, written once per command: one row per (resource, token, node, action).

use std::collections::BTreeMap;

use fencepost_core::fencing::FencingToken;
use fencepost_core::id::NodeId;
use fencepost_core::store::row::{RefusedAction, RefusedResource};
use sqlx::PgConnection;

use super::fault::Fault;

/// What one command of `node` was refused.
pub(super) struct Refusals {
    node: NodeId,
    action: RefusedAction,
    /// By resource and presented token: the current token when first refused, and how often.
    noted: BTreeMap<(RefusedResource, FencingToken), (FencingToken, i64)>,
}

/// How a refused resource is stored.
pub(super) fn resource_text(resource: RefusedResource) -> String {
    match resource {
        RefusedResource::Lease(lease) => format!("lease/{}", lease.number()),
        RefusedResource::Execution(execution) => format!("execution/{execution}"),
    }
}

impl Refusals {
    /// None so far.
    pub(super) const fn new(node: NodeId, action: RefusedAction) -> Self {
        Self { node, action, noted: BTreeMap::new() }
    }

    /// One more: `presented` was refused, `current` is in force.
    pub(super) fn note(&mut self, resource: RefusedResource, presented: FencingToken, current: FencingToken) {
        self.noted.entry((resource, presented)).or_insert((current, 0)).1 += 1;
    }

    /// Writes what was noted.
    pub(super) async fn record(self, conn: &mut PgConnection, now: i64) -> Result<(), Fault> {
        if self.noted.is_empty() {
            return Ok(());
        }
        let mut resources = Vec::new();
        let mut tokens = Vec::new();
        let mut currents = Vec::new();
        let mut counts = Vec::new();
        for ((resource, token), (current, count)) in &self.noted {
            resources.push(resource_text(*resource));
            tokens.push(token.as_i64());
            currents.push(current.as_i64());
            counts.push(*count);
        }
        sqlx::query!(
            "INSERT INTO refusal AS r (node, action, resource, token, current, count, first_at, last_at)
             SELECT $1, $2, i.resource, i.token, i.current, i.count, $3, $3
             FROM unnest($4::text[], $5::int8[], $6::int8[], $7::int8[]) AS i (resource, token, current, count)
             ON CONFLICT (resource, token, node, action)
             DO UPDATE SET last_at = excluded.last_at, count = r.count + excluded.count",
            self.node.as_uuid(),
            self.action.name(),
            now,
            &resources,
            &tokens,
            &currents,
            &counts,
        )
        .execute(conn)
        .await?;
        Ok(())
    }
}
