//! Lag: where the time of an execution went, from due to finished.
//!
//! The stages lie between the stamps that there are, of the latest run. In milliseconds they are cut such that they
//! add up to the total: each is the difference of two instants counted from the first and rounded down.

use serde::{Serialize, Serializer};

use crate::execution::ExecutionState;
use crate::fencing::FencingToken;
use crate::store::row::ExecutionRow;
use crate::time::{Span, Timestamp};

use super::as_text;

/// Where the time went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lag {
    /// The run that the stamps from `published` on are of, by its token; 0 before the first.
    pub token: FencingToken,
    /// The stages, in order.
    pub stages: Vec<Stage>,
    /// All of them together.
    #[serde(rename = "total_ms", serialize_with = "as_millis")]
    pub total: Span,
    /// The stage that it is in.
    pub open: Option<OpenStage>,
    /// Whether a span had to be clamped, because clocks disagreed.
    pub clamped: bool,
}

/// From one stamp to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// The stamp it begins with.
    pub from: &'static str,
    /// The stamp it ends with.
    pub to: &'static str,
    /// When that was.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
    /// How long it took.
    #[serde(rename = "span_ms", serialize_with = "as_millis")]
    pub span: Span,
}

/// The stage that an execution is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpenStage {
    /// The stamp it began with.
    pub from: &'static str,
    /// When that was.
    #[serde(serialize_with = "as_text")]
    pub since: Timestamp,
    /// How long ago that is.
    #[serde(rename = "span_ms", serialize_with = "as_millis")]
    pub span: Span,
}

fn as_millis<S: Serializer>(span: &Span, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(span.as_millis())
}

/// The stages of an execution as it stands at `now`.
pub(super) fn stages(row: &ExecutionRow, now: Timestamp) -> Lag {
    let stamps = [
        ("materialised", Some(row.materialised_at)),
        ("published", row.published_at),
        ("received", row.received_at),
        ("leased", row.leased_at),
        ("started", row.started_at),
        ("finished", row.finished_at),
    ];
    let since_due = |at: Timestamp| Span::from_millis(at.since(row.due_at).as_millis());
    let (mut from, mut reached) = ("due", row.due_at);
    let mut stages = Vec::with_capacity(stamps.len());
    for (to, at) in stamps {
        let Some(at) = at else { continue };
        stages.push(Stage { from, to, at, span: since_due(at).minus(since_due(reached)) });
        (from, reached) = (to, at);
    }
    // Between two runs the stamps are those of the one before; what is waited for then is said elsewhere.
    let open = match row.state {
        ExecutionState::Running => Some((from, reached)),
        ExecutionState::Pending if row.token == FencingToken::NEVER => Some((from, reached)),
        ExecutionState::Pending
        | ExecutionState::RetryWait
        | ExecutionState::Completed
        | ExecutionState::DeadLettered
        | ExecutionState::Failed
        | ExecutionState::Cancelled
        | ExecutionState::Skipped => None,
    };
    Lag {
        token: row.token,
        total: since_due(reached),
        stages,
        open: open.map(|(from, since)| OpenStage { from, since, span: now.since(since) }),
        clamped: row.lag_clamped,
    }
}
