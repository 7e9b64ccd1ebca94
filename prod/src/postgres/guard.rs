//! Guards: leases read under a lock that a takeover waits for.

use std::collections::BTreeMap;

use fencepost_core::fencing::FencingToken;
use fencepost_core::id::NodeId;
use fencepost_core::lease::{HeldLease, LeaseResource};
use sqlx::PgConnection;
use uuid::Uuid;

use super::context::Context;
use super::fault::Fault;

/// Leases as they are until this transaction ends, and the command's `now`, read once they were locked.
pub(super) struct Guards {
    /// The one `now` of the command.
    pub(super) now: i64,
    rows: BTreeMap<i16, (i64, Option<Uuid>)>,
}

/// The stored number of a resource.
pub(super) fn number(resource: LeaseResource) -> i16 {
    i16::try_from(resource.number()).expect("there are 129 resources")
}

impl Guards {
    /// Locks these leases against a takeover, by number.
    pub(super) async fn share(
        cx: &Context<'_>,
        conn: &mut PgConnection,
        resources: impl IntoIterator<Item = LeaseResource>,
    ) -> Result<Self, Fault> {
        let mut numbers: Vec<i16> = resources.into_iter().map(number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let row = sqlx::query!(
            r#"WITH held AS MATERIALIZED (
                 SELECT resource, token, owner FROM lease WHERE resource = ANY($1) ORDER BY resource FOR KEY SHARE)
               SELECT coalesce(array_agg(resource), '{}') AS "resources!", coalesce(array_agg(token), '{}') AS "tokens!",
                 coalesce(array_agg(owner), '{}') AS "owners!: Vec<Option<Uuid>>", store_now($2) AS "now!"
               FROM held"#,
            &numbers,
            cx.given,
        )
        .fetch_one(conn)
        .await?;
        let held = row.tokens.into_iter().zip(row.owners);
        Ok(Self { now: row.now, rows: row.resources.into_iter().zip(held).collect() })
    }

    /// Whether `node` holds this lease under the token that it presents, lapsed or not; else the current token.
    pub(super) fn check(&self, node: NodeId, held: HeldLease) -> Result<(), FencingToken> {
        let (token, owner) =
            self.rows.get(&number(held.resource)).expect("the caller locked what it asks about");
        if *owner == Some(node.as_uuid()) && *token == held.token.as_i64() {
            Ok(())
        } else {
            Err(FencingToken::from_i64(*token))
        }
    }
}
