//! Errors as `application/problem+json` (RFC 9457): what happened, to which field, and what to do.

use std::any::Any;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fencepost_core::id::JobVersion;
use fencepost_core::job::DefinitionError;
use serde::Serialize;
use utoipa::ToSchema;

/// An error, as the caller sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Problem {
    /// A name for the kind of problem, stable.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: &'static str,
    /// The kind in words.
    #[schema(value_type = String)]
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What happened, to what, and what to do.
    detail: String,
    /// A JSON pointer to the field of the body, or the name of the parameter or header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<String>,
    /// The version of the job that is current, where another was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    current_version: Option<u32>,
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { kind, title, status: status.as_u16(), detail, pointer: None, current_version: None }
    }

    /// The same, at a field.
    #[must_use]
    pub(super) fn at(mut self, pointer: &str) -> Self {
        self.pointer = Some(pointer.to_owned());
        self
    }

    /// 400: a parameter or header cannot be read.
    pub(super) fn bad_parameter(name: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-parameter", "A parameter cannot be read", detail).at(name)
    }

    /// 400: the body cannot be read at all.
    pub(super) fn bad_body(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-body", "The body cannot be read", detail).at("")
    }

    /// 401: no key, or an unknown one.
    pub(super) fn unauthorized(detail: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "No tenant is known for this request", detail)
    }

    /// 404: not there, or another tenant's.
    pub(super) fn not_found(what: &str, id: impl std::fmt::Display) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "not-found",
            "There is no such thing",
            format!("this tenant has no {what} {id}"),
        )
    }

    /// 422: a key or request id was used before, for something else.
    pub(super) fn key_reused(detail: &str) -> Self {
        let title = "The key was used for something else";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "key-reused", title, detail).at("Idempotency-Key")
    }

    /// 409: what is stored cannot be read by this version.
    pub(super) fn unreadable(detail: &str) -> Self {
        Self::new(StatusCode::CONFLICT, "unreadable", "What is stored cannot be read here", detail)
    }

    /// 409: it cannot be replayed, or not so.
    pub(super) fn not_replayable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "not-replayable", "It cannot be replayed", detail)
    }

    /// 409: what was changed before is not in the ledger yet.
    pub(super) fn ledger_behind(detail: &str) -> Self {
        Self::new(StatusCode::CONFLICT, "ledger-behind", "The ledger of the job is behind", detail)
    }

    /// 409: as many pauses stand as may.
    pub(super) fn too_many_pauses(most: usize) -> Self {
        let detail =
            format!("{most} pauses stand; resume what need not be paused, or pause the whole tenant");
        Self::new(StatusCode::CONFLICT, "too-many-pauses", "Too many queues are paused", detail)
    }

    /// 409: the calendar has another version than was named.
    pub(super) fn calendar_moved_on(current: u64) -> Self {
        let detail = format!("the calendar has version {current} by now; look at it, and set that");
        Self::new(StatusCode::CONFLICT, "version-changed", "The calendar was set meanwhile", detail)
            .at("/version")
    }

    /// 409: jobs name the calendar.
    pub(super) fn calendar_in_use(jobs: &str) -> Self {
        let detail = format!("these jobs name it, and would lose it: {jobs}; edit or delete them first");
        Self::new(StatusCode::CONFLICT, "calendar-in-use", "The calendar is in use", detail)
    }

    /// 412: the job has another version than the one that was edited.
    pub(super) fn moved_on(current: JobVersion) -> Self {
        let detail = format!(
            "the job has version {} by now; look at it, and edit that (If-Match: \"{}\")",
            current.0, current.0
        );
        let title = "The job was changed meanwhile";
        let problem = Self::new(StatusCode::PRECONDITION_FAILED, "version-changed", title, detail);
        Self { current_version: Some(current.0), ..problem.at("If-Match") }
    }

    /// 428: an edit does not say which version it is of.
    pub(super) fn no_precondition() -> Self {
        let detail =
            "send If-Match with the ETag of the job as it was shown, so that nobody's edit is overwritten";
        let title = "The version that is edited is not named";
        Self::new(StatusCode::PRECONDITION_REQUIRED, "version-required", title, detail).at("If-Match")
    }

    /// 503: try again.
    pub(super) fn unavailable(detail: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "A dependency is out of reach", detail)
    }

    /// 500: our mistake; it is in the log.
    pub(super) fn internal() -> Self {
        let detail = "the request failed for a reason of ours, which is in the log";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Something went wrong here", detail)
    }

    /// What was answered for us, with this text.
    fn foreign(status: StatusCode, text: String) -> Self {
        match status {
            StatusCode::GATEWAY_TIMEOUT => Self::new(
                status,
                "timeout",
                "The request took too long",
                "it was given up; whether it was carried out is not known. Sent again with the same Idempotency-Key it has no \
                 second effect",
            ),
            StatusCode::BAD_REQUEST => Self::new(status, "bad-request", "The request cannot be read", text),
            _ => Self::new(status, "refused", "The request is refused", text),
        }
    }

    /// 413: too long.
    pub(super) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The body is too large", detail)
    }

    /// 415: not JSON.
    pub(super) fn not_json() -> Self {
        let detail = "send the body as Content-Type: application/json";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", "The body is not JSON", detail)
    }
}

impl From<DefinitionError> for Problem {
    fn from(error: DefinitionError) -> Self {
        if error.pointer.is_empty() {
            return Self::bad_body(error.detail);
        }
        let title = "A field has a value that is refused";
        Self::new(StatusCode::BAD_REQUEST, "bad-field", title, error.detail).at(&error.pointer)
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        tracing::warn!(%error, "a read from the store failed");
        Self::unavailable("the store does not answer; nothing was changed, try again")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).expect("a problem has no map keys that are not text");
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// The answer to a path that is not there.
pub(super) async fn no_such_path(uri: Uri) -> Problem {
    let detail = format!("there is nothing at {}; /openapi.json lists what there is", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "not-found", "There is no such path", detail)
}

/// The answer to a method that a path does not know.
pub(super) async fn no_such_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}; /openapi.json lists what it takes", uri.path());
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "no-such-method",
        "The path does not take this method",
        detail,
    )
}

/// Bytes of somebody else's error text that are passed on at most.
const TEXT_BYTES_MAX: usize = 4_096;

/// Errors that others make, in the way of ours: what the layers and extractors around our handlers answer is plain text, or
/// nothing.
pub(super) async fn as_problems(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !is_error || kind.is_some_and(|kind| kind.contains("json")) {
        return response;
    }
    let text = match to_bytes(response.into_body(), TEXT_BYTES_MAX).await {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    };
    Problem::foreign(status, text).into_response()
}

/// The answer when a handler panicked.
pub(super) fn panicked(_: Box<dyn Any + Send + 'static>) -> Response<Body> {
    tracing::error!("a request handler panicked");
    Problem::internal().into_response()
}
