//! The handler that calls a URL.
//!
//! The payload says what to send: `{"url": …, "method"?: …, "headers"?: {…}, "body"?: …}`. Without a method
//! it is a POST. A body that is a JSON string is sent as that text, any other as its JSON. Five headers are
//! added, which let the target be idempotent and refuse a stale caller: `Idempotency-Key`,
//! `Fencepost-Fencing-Token`, `Fencepost-Attempt`, `Fencepost-Execution-Id` and `Fencepost-Scheduled-Time`.
//!
//! A 2xx answer completes the run. 408, 425, 429, 5xx and network errors are retryable, not before the time
//! that a `Retry-After` names; any other answer is not, redirects included, which are not followed. Being told
//! to stop closes the connection.
//!
//! Whoever may create jobs decides where requests go, so a worker that runs this handler must not be able
//! to reach what tenants must not: put it behind an egress filter. Proxies named in the environment are not
//! used.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use fencepost_core::job::shape::{Field, Shape};
use fencepost_core::job::{DefinitionError, Payload};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Handler, HandlerContext, HandlerError, HandlerFuture};

/// The name it goes by.
pub const NAME: &str = "http";

/// How long connecting may take. How long all of it may take is the job's attempt timeout.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How much of an answer is read: enough to use the connection again in the usual case.
const BODY_BYTES_MAX: usize = 64 * 1_024;
/// How long reading the rest of an answer may take once its status is known.
const BODY_WITHIN: Duration = Duration::from_secs(1);
/// How much of an answer is quoted in an error.
const QUOTE_CHARS_MAX: usize = 300;
/// Headers that are the connection's business, or ours.
const RESERVED: [&str; 10] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "idempotency-key",
    "fencepost-fencing-token",
    "fencepost-attempt",
    "fencepost-execution-id",
    "fencepost-scheduled-time",
];

/// Calls URLs, over connections that are kept for the next call.
#[derive(Clone, Debug)]
pub struct Http {
    client: Client,
}

/// The version of the built-in handler. Another version of this name is somebody else's.
pub const VERSION: u32 = 1;

/// What the payload may hold.
const SHAPE: Shape = Shape::Object(&[
    Field::required("url", Shape::Text),
    Field::nullable("method", Shape::Text),
    Field::optional("headers", Shape::TextByName),
    Field::nullable("body", Shape::Anything),
]);

/// What the payload says, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    url: String,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default, borrow)]
    body: Option<&'a RawValue>,
}

/// The request that a payload asks for.
#[derive(Debug)]
pub(crate) struct Asked {
    url: Url,
    method: Method,
    headers: HeaderMap,
    body: Option<String>,
}

impl Asked {
    /// Reads a payload: when a job or a trigger brings it, and again when it is to be sent.
    ///
    /// # Errors
    /// [`DefinitionError`] at the field of the payload that is refused.
    pub(crate) fn parse(payload: &Payload) -> Result<Self, DefinitionError> {
        let refuse =
            |pointer: &str, detail: &dyn core::fmt::Display| DefinitionError::at(pointer, detail.to_string());
        SHAPE.check(payload.as_json())?;
        let written: Written<'_> =
            serde_json::from_str(payload.as_json()).map_err(|error| refuse("", &error))?;
        let url = Url::parse(&written.url).map_err(|error| refuse("/url", &error))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refuse("/url", &"it must begin with http:// or https://"));
        }
        let method = match written.method {
            None => Method::POST,
            Some(name) => Method::from_bytes(name.to_ascii_uppercase().as_bytes())
                .map_err(|error| refuse("/method", &error))?,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in &written.headers {
            let field = format!("/headers/{}", name.replace('~', "~0").replace('/', "~1"));
            if RESERVED.contains(&name.to_ascii_lowercase().as_str()) {
                return Err(refuse(&field, &"this header is not the payload's to set"));
            }
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| refuse(&field, &error))?;
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|error| refuse(&field, &error))?;
            headers.insert(name, value);
        }
        let body = written.body.map(|body| match serde_json::from_str::<String>(body.get()) {
            Ok(text) => (text, "text/plain; charset=utf-8"),
            Err(_) => (body.get().to_owned(), "application/json"),
        });
        if let Some((_, content_type)) = &body {
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(content_type));
        }
        Ok(Self { url, method, headers, body: body.map(|(text, _)| text) })
    }
}

/// A refusal as an operator reads it in an attempt: the field, and what is wrong with it.
fn no_request(error: &DefinitionError) -> HandlerError {
    let field = error.pointer.trim_start_matches('/').replacen('/', ".", 1);
    let detail = &error.detail;
    HandlerError::non_retryable(match field.as_str() {
        "" => format!("the payload is no HTTP request: {detail}"),
        field => format!("the payload's `{field}`: {detail}"),
    })
}

impl Default for Http {
    fn default() -> Self {
        Self::new()
    }
}

impl Http {
    /// The handler, with the system's root certificates.
    ///
    /// # Panics
    /// Where not even a client without certificates can be made, which no system is known to cause.
    #[must_use]
    pub fn new() -> Self {
        // Whoever came first has chosen; the whole program uses one provider.
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
        let client = builder().build().unwrap_or_else(|error| {
            // A bare container may have none. Plain HTTP needs none, and https says why it fails.
            tracing::warn!(
                error = with_causes(&error),
                "no root certificates: https targets cannot be trusted"
            );
            builder().tls_certs_only([]).build().expect("nothing is read from the system")
        });
        Self { client }
    }

    async fn run(self, context: HandlerContext) -> Result<(), HandlerError> {
        let request = self.request(&context)?;
        tokio::select! {
            biased;
            // Dropping the exchange closes its connection.
            _ = context.stop.stopped() => Err(HandlerError::Stopped),
            answered = exchange(request) => answered,
        }
    }

    fn request(&self, context: &HandlerContext) -> Result<reqwest::RequestBuilder, HandlerError> {
        let Asked { url, method, mut headers, body } =
            Asked::parse(&context.payload).map_err(|error| no_request(&error))?;
        add_ours(&mut headers, context)?;
        let request = self.client.request(method, url).headers(headers);
        Ok(match body {
            Some(text) => request.body(text),
            None => request,
        })
    }
}

impl Handler for Http {
    fn call(&self, context: HandlerContext) -> HandlerFuture {
        Box::pin(self.clone().run(context))
    }
}

fn add_ours(headers: &mut HeaderMap, context: &HandlerContext) -> Result<(), HandlerError> {
    let ours = [
        ("idempotency-key", context.key.to_string()),
        ("fencepost-fencing-token", context.token.as_i64().to_string()),
        ("fencepost-attempt", context.attempt.to_string()),
        ("fencepost-execution-id", context.execution.to_string()),
        ("fencepost-scheduled-time", context.scheduled_for.to_string()),
    ];
    for (name, value) in ours {
        let value = HeaderValue::from_bytes(value.as_bytes())
            .map_err(|_| HandlerError::non_retryable(format!("{value:?} cannot be sent as {name}")))?;
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(())
}

fn builder() -> reqwest::ClientBuilder {
    Client::builder()
        .connect_timeout(CONNECT_WITHIN)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("fencepost/", env!("CARGO_PKG_VERSION")))
}

async fn exchange(request: reqwest::RequestBuilder) -> Result<(), HandlerError> {
    let answer = request.send().await.map_err(|error| {
        let message = with_causes(&error);
        if error.is_builder() {
            HandlerError::non_retryable(message)
        } else {
            HandlerError::retryable(message)
        }
    })?;
    let status = answer.status();
    let retry_after =
        answer.headers().get(RETRY_AFTER).and_then(|value| retry_after(value, SystemTime::now()));
    let body = read_some(answer).await;
    if status.is_success() {
        return Ok(());
    }
    let quote: String = String::from_utf8_lossy(&body).trim().chars().take(QUOTE_CHARS_MAX).collect();
    let message = if quote.is_empty() {
        format!("the target answered {status}")
    } else {
        format!("the target answered {status}: {quote}")
    };
    if is_retryable(status) {
        Err(HandlerError::Retryable { message, retry_after })
    } else {
        Err(HandlerError::NonRetryable { message })
    }
}

fn is_retryable(status: StatusCode) -> bool {
    status.is_server_error()
        || status == StatusCode::REQUEST_TIMEOUT
        || status == StatusCode::TOO_EARLY
        || status == StatusCode::TOO_MANY_REQUESTS
}

/// Reads the beginning of an answer. Its status has decided already, so nothing that goes wrong here counts.
async fn read_some(mut answer: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let reading = async {
        while let Ok(Some(chunk)) = answer.chunk().await {
            let room = BODY_BYTES_MAX.saturating_sub(body.len());
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if body.len() >= BODY_BYTES_MAX {
                break;
            }
        }
    };
    let _cut_short = tokio::time::timeout(BODY_WITHIN, reading).await;
    body
}

/// `Retry-After` is a number of seconds, or a date.
fn retry_after(value: &HeaderValue, now: SystemTime) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at: SystemTime = chrono::DateTime::parse_from_rfc2822(text).ok()?.into();
    Some(at.duration_since(now).unwrap_or(Duration::ZERO))
}

fn with_causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause {
        text.push_str(": ");
        text.push_str(&deeper.to_string());
        cause = deeper.source();
    }
    text
}

#[cfg(test)]
mod tests;
