//! The HTTP API: what tenants may ask, and what operations watch.
//!
//! Requests that change something become commands of the store protocol, planned by the core; what is only
//! read comes from [`views`]. Every request under `/v1` speaks for one tenant, the key's, and every statement
//! names that tenant: an id of another tenant is as absent as one that never was (404).
//!
//! - [`state`]: what handlers share. - [`auth`]: whose request it is. - [`problem`]: how errors look.
//! - [`jobs`], [`job_changes`], [`pauses`], [`limits`], [`calendars`], [`executions`], [`fires`], [`explain`], [`dead_letters`],
//!   [`replays`]: the resources.
//! - [`operations`]: health, readiness, metrics.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post, put};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::{DefaultMakeSpan, TraceLayer};
use utoipa::OpenApi;

mod auth;
mod calendars;
mod dead_letters;
mod executions;
mod explain;
mod fires;
mod job_changes;
mod jobs;
mod limits;
mod operations;
mod pauses;
mod problem;
mod query;
mod replays;
mod state;
mod views;

pub use operations::{LinkProbe, Readiness};
pub use state::{ApiState, Operations};

/// Bytes of a request's body at most: a payload, its definition around it, and room for escapes.
const BODY_BYTES_MAX: usize = 256 * 1_024;
/// How long a request may take. Longer than a store call, which has a limit of its own.
const REQUEST_LIMIT: std::time::Duration = std::time::Duration::from_secs(15);

/// The shape of the API, for machines; served as `/openapi.json`.
#[derive(OpenApi)]
#[openapi(
    info(title = "Fencepost", description = "Jobs, executions and what became of them."),
    paths(
        jobs::create,
        jobs::list,
        jobs::show,
        job_changes::edit,
        job_changes::pause,
        job_changes::resume,
        jobs::delete,
        jobs::trigger,
        pauses::show_tenant,
        pauses::pause_tenant,
        pauses::resume_tenant,
        pauses::list_queues,
        pauses::pause_queue,
        pauses::resume_queue,
        fires::of_job,
        fires::of_definition,
        fires::ledger,
        executions::list,
        executions::show,
        executions::cancel,
        explain::execution,
        explain::job,
        dead_letters::list,
        dead_letters::show,
        dead_letters::purge,
        replays::one,
        replays::many,
        limits::list,
        limits::set_tenant,
        limits::set_key,
        calendars::list,
        calendars::show,
        calendars::set,
        calendars::delete
    )
)]
struct Description;

/// `/healthz`, `/readyz` and `/metrics`: what every process serves.
pub fn operations(state: Operations) -> Router {
    Router::new()
        .route("/healthz", get(operations::healthz))
        .route("/readyz", get(operations::readyz))
        .route("/metrics", get(operations::metrics))
        .with_state(state)
}

/// `/v1` and its description: what a process with the `api` role serves as well.
pub fn tenants(state: ApiState) -> Router {
    Router::new()
        .route("/v1/jobs", post(jobs::create).get(jobs::list))
        .route("/v1/jobs/{id}", get(jobs::show).put(job_changes::edit).delete(jobs::delete))
        .route("/v1/jobs/{id}/pause", post(job_changes::pause))
        .route("/v1/jobs/{id}/resume", post(job_changes::resume))
        .route("/v1/jobs/{id}/trigger", post(jobs::trigger))
        .route("/v1/jobs/{id}/fires", get(fires::of_job))
        .route("/v1/jobs/{id}/ledger", get(fires::ledger))
        .route("/v1/jobs/{id}/explain", get(explain::job))
        .route("/v1/tenant", get(pauses::show_tenant))
        .route("/v1/tenant/pause", post(pauses::pause_tenant))
        .route("/v1/tenant/resume", post(pauses::resume_tenant))
        .route("/v1/queues", get(pauses::list_queues))
        .route("/v1/queues/{handler}/{version}/pause", post(pauses::pause_queue))
        .route("/v1/queues/{handler}/{version}/resume", post(pauses::resume_queue))
        .route("/v1/preview", post(fires::of_definition))
        .route("/v1/dead-letters", get(dead_letters::list))
        .route("/v1/dead-letters/replay", post(replays::many))
        .route("/v1/dead-letters/{execution}", get(dead_letters::show).delete(dead_letters::purge))
        .route("/v1/dead-letters/{execution}/replay", post(replays::one))
        .route("/v1/limits", get(limits::list))
        .route("/v1/limits/tenant", put(limits::set_tenant))
        .route("/v1/limits/keys/{key}", put(limits::set_key))
        .route("/v1/calendars", get(calendars::list))
        .route("/v1/calendars/{name}", get(calendars::show).put(calendars::set).delete(calendars::delete))
        .route("/v1/executions", get(executions::list))
        .route("/v1/executions/{id}", get(executions::show))
        .route("/v1/executions/{id}/explain", get(explain::execution))
        .route("/v1/executions/{id}/cancel", post(executions::cancel))
        .route("/openapi.json", get(async || axum::Json(Description::openapi())))
        .fallback(problem::no_such_path)
        .method_not_allowed_fallback(problem::no_such_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(CatchPanicLayer::custom(problem::panicked))
        .layer(TimeoutLayer::with_status_code(axum::http::StatusCode::GATEWAY_TIMEOUT, REQUEST_LIMIT))
        .layer(axum::middleware::from_fn(problem::as_problems))
        // What failed is told with its method and path.
        .layer(TraceLayer::new_for_http().make_span_with(DefaultMakeSpan::new().level(tracing::Level::ERROR)))
        .with_state(state)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_answer_is_described_and_every_reference_leads_somewhere() {
        let document = serde_json::to_value(Description::openapi()).expect("the description is JSON");
        let paths = document["paths"].as_object().expect("there are paths");
        let mut answers = 0;
        for (path, operations) in paths {
            for (method, operation) in operations.as_object().expect("a path has operations") {
                for (status, answer) in operation["responses"].as_object().expect("an operation is answered")
                {
                    let content = answer["content"].as_object().expect("an answer has a body");
                    let described = content.values().all(|body| body["schema"].is_object());
                    assert!(described && !content.is_empty(), "{method} {path}: {status} has no schema");
                    answers += 1;
                }
            }
        }
        assert!(answers > 20, "only {answers} answers are described");
        let mut references = Vec::new();
        collect_references(&document, &mut references);
        assert!(!references.is_empty(), "schemas refer to each other");
        for reference in references {
            let pointer = reference.strip_prefix('#').expect("a reference into this document");
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        }
    }

    fn collect_references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| collect_references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| collect_references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}
