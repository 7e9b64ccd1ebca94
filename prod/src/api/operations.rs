//! What operations watch: liveness, readiness and metrics.
//!
//! `/healthz` answers as long as the process can answer at all: a dependency that is out is no reason to
//! restart it. `/readyz` is false while it drains or while a dependency is out, and says which.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::time::{Duration, timeout};

use super::state::Operations;

/// How long the store is given to answer a readiness probe.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// Tells whether a link to the broker is up.
pub type LinkProbe = Arc<dyn Fn() -> bool + Send + Sync>;

/// Whether this process is of use right now.
#[derive(Clone)]
pub struct Readiness {
    draining: Arc<AtomicBool>,
    reads: sqlx::PgPool,
    links: Vec<(&'static str, LinkProbe)>,
}

#[derive(Debug, Serialize)]
struct Report {
    ready: bool,
    draining: bool,
    store: &'static str,
    broker: Vec<(&'static str, &'static str)>,
}

impl Readiness {
    /// Ready while the store answers and takes writes, and every one of the broker's links is up.
    #[must_use]
    pub fn new(reads: sqlx::PgPool, links: Vec<(&'static str, LinkProbe)>) -> Self {
        Self { draining: Arc::new(AtomicBool::new(false)), reads, links }
    }

    /// From now on the process is on its way out.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    async fn report(&self) -> Report {
        // A store that can be read and not written, or whose tables are gone, is of no use.
        let probe = sqlx::query_scalar!(
            r#"SELECT store_now(NULL) > 0 AND current_setting('transaction_read_only') = 'off'
                   AND has_table_privilege('lease', 'UPDATE') AS "usable!""#
        )
        .fetch_one(&self.reads);
        let store_up = matches!(timeout(PROBE_LIMIT, probe).await, Ok(Ok(true)));
        let draining = self.draining.load(Ordering::Relaxed);
        let word = |up: bool| if up { "up" } else { "out" };
        let broker: Vec<_> = self.links.iter().map(|(name, link)| (*name, word(link()))).collect();
        let links_up = self.links.iter().all(|(_, link)| link());
        Report { ready: store_up && links_up && !draining, draining, store: word(store_up), broker }
    }
}

/// `GET /healthz`
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /readyz`
pub(super) async fn readyz(State(state): State<Operations>) -> Response {
    let report = state.readiness.report().await;
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(report)).into_response()
}

/// `GET /metrics`
pub(super) async fn metrics(State(state): State<Operations>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], state.metrics.render()).into_response()
}
