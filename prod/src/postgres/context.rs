//! What a command is executed with, beside its connection: its clock and the definitions known so far.

use fencepost_core::store::reply::{Reply, StoreReply};
use fencepost_core::time::{Span, Timestamp};
use sqlx::PgConnection;

use super::definitions::Definitions;
use super::fault::Fault;

/// No stored span is longer: an instant plus this stays an instant. About 73,000 years.
const LONGEST: i64 = i64::MAX / 4;

/// What every command is executed with.
pub(super) struct Context<'a> {
    /// The `now` that was passed in, if one was.
    pub(super) given: Option<i64>,
    /// Definitions read before.
    pub(super) definitions: &'a Definitions,
}

impl Context<'_> {
    /// The one `now` of the command: to be read once, after its locks are held.
    pub(super) async fn clock(&self, conn: &mut PgConnection) -> Result<i64, Fault> {
        match self.given {
            Some(now) => Ok(now),
            None => Ok(sqlx::query_scalar!(r#"SELECT store_now(NULL) AS "now!""#).fetch_one(conn).await?),
        }
    }

    /// A reply at `now`.
    pub(super) fn reply(&self, now: i64, reply: Reply) -> StoreReply {
        StoreReply { now: Timestamp::from_micros(now), reply }
    }
}

/// A span as the server is given it.
pub(super) fn micros(span: Span) -> i64 {
    span.as_i64().min(LONGEST)
}

/// An instant this much after another, saturating as everywhere.
pub(super) const fn later(at: i64, span: Span) -> i64 {
    at.saturating_add(span.as_i64())
}
