//! What the handlers of requests share.

use std::sync::Arc;

use fencepost_core::explain::Spans;
use fencepost_core::id::NodeId;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::Command;
use fencepost_core::store::reply::StoreReply;
use metrics_exporter_prometheus::PrometheusHandle;
use sqlx::PgPool;

use super::operations::Readiness;
use super::problem::Problem;
use crate::postgres::PgStore;

/// How often a command whose outcome is unknown is sent again within one request.
const SENDINGS: u32 = 2;

/// What requests of tenants are answered from.
#[derive(Clone)]
pub struct ApiState {
    /// Commands go here.
    pub store: Arc<PgStore>,
    /// Reads come from here.
    pub reads: PgPool,
    /// This process: who commits the outbox rows of triggers.
    pub node: NodeId,
    /// The spans of the settings that explanations rely on.
    pub spans: Spans,
}

/// What operational requests are answered from.
#[derive(Clone)]
pub struct Operations {
    /// Whether the process is of use right now.
    pub readiness: Readiness,
    /// What was measured.
    pub metrics: PrometheusHandle,
}

impl ApiState {
    /// Executes a command. Every command is safe to send again, so an unknown outcome is asked about once
    /// more before the caller is told.
    pub(super) async fn execute(&self, command: &Command) -> Result<StoreReply, Problem> {
        for _ in 0..SENDINGS {
            match self.store.execute(command).await {
                StoreOutcome::Replied(reply) => return Ok(reply),
                StoreOutcome::Unknown => {}
            }
        }
        Err(Problem::unavailable(
            "the store does not answer; whether the request was carried out is not known",
        ))
    }
}
