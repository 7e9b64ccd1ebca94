//! Calls of real targets on loopback ports: what they see, and what their answers lead to.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request as Incoming, State};
use axum::http::StatusCode as Status;
use axum::response::{IntoResponse, Response as Outgoing};
use axum::routing::any;
use fencepost_core::effect::StopReason;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::handler::samples;

/// What a target saw of one call.
#[derive(Debug)]
struct Seen {
    method: String,
    headers: axum::http::HeaderMap,
    body: String,
}

#[derive(Clone)]
struct Target {
    seen: mpsc::UnboundedSender<Seen>,
    answer: Arc<Mutex<Vec<Outgoing>>>,
}

/// A target that answers like this, once.
async fn target(answer: impl IntoResponse) -> (String, mpsc::UnboundedReceiver<Seen>) {
    let (seen, seen_by) = mpsc::unbounded_channel();
    let state = Target { seen, answer: Arc::new(Mutex::new(vec![answer.into_response()])) };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let app = Router::new().fallback(any(record)).with_state(state);
    tokio::spawn(async move { axum::serve(listener, app).await });
    (format!("http://{address}/hook"), seen_by)
}

async fn record(State(target): State<Target>, request: Incoming) -> Outgoing {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1_024).await.expect("it is short");
    let body = String::from_utf8(body.to_vec()).expect("it is text");
    let seen = Seen { method: parts.method.to_string(), headers: parts.headers, body };
    target.seen.send(seen).expect("the test listens");
    let answer = target.answer.lock().expect("nobody panicked").pop();
    answer.unwrap_or_else(|| Status::IM_A_TEAPOT.into_response())
}

async fn call(payload: &str) -> Result<(), HandlerError> {
    let (_handle, context) = samples::context(payload);
    Http::new().call(context).await
}

async fn answer_to(answer: impl IntoResponse) -> Result<(), HandlerError> {
    let (url, _seen) = target(answer).await;
    call(&format!(r#"{{"url": "{url}"}}"#)).await
}

#[tokio::test]
async fn a_call_carries_the_payloads_request_and_our_headers() {
    let (url, mut seen) = target(Status::NO_CONTENT).await;
    let payload = format!(
        r#"{{"url": "{url}", "method": "put", "headers": {{"X-Team": "a"}}, "body": {{"n": 1.10}}}}"#
    );
    assert_eq!(call(&payload).await, Ok(()));
    let seen = seen.recv().await.expect("it was called");
    assert_eq!((seen.method.as_str(), seen.body.as_str()), ("PUT", r#"{"n": 1.10}"#));
    let header = |name: &str| seen.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    assert_eq!(header("x-team"), "a");
    assert_eq!(header("content-type"), "application/json");
    assert_eq!(header("idempotency-key"), samples::message("http").key.as_ref());
    assert_eq!(header("fencepost-fencing-token"), "5");
    assert_eq!(header("fencepost-attempt"), "2");
    assert_eq!(header("fencepost-execution-id"), samples::message("http").execution.to_string());
    assert_eq!(header("fencepost-scheduled-time"), "2026-03-29T01:30:00.000000Z");
}

#[tokio::test]
async fn without_a_method_it_is_a_post_and_a_string_is_sent_as_its_text() {
    let (url, mut seen) = target(Status::OK).await;
    assert_eq!(call(&format!(r#"{{"url": "{url}", "body": "a \"b\""}}"#)).await, Ok(()));
    let seen = seen.recv().await.expect("it was called");
    assert_eq!((seen.method.as_str(), seen.body.as_str()), ("POST", r#"a "b""#));
}

#[tokio::test]
async fn the_status_decides_whether_it_is_tried_again() {
    for status in [200, 201, 204] {
        let status = Status::from_u16(status).expect("it is one");
        assert_eq!(answer_to(status).await, Ok(()), "{status}");
    }
    for status in [408, 425, 429, 500, 503] {
        let status = Status::from_u16(status).expect("it is one");
        let ended = answer_to((status, "why")).await;
        let Err(HandlerError::Retryable { message, .. }) = ended else { panic!("{status}: {ended:?}") };
        assert!(message.contains(status.as_str()) && message.ends_with(": why"), "{message}");
    }
    for status in [301, 307, 400, 404, 409, 422] {
        let status = Status::from_u16(status).expect("it is one");
        let ended = answer_to((status, [("location", "http://127.0.0.1:1/")])).await;
        assert!(matches!(ended, Err(HandlerError::NonRetryable { .. })), "{status}: {ended:?}");
    }
}

#[tokio::test]
async fn a_target_that_names_a_time_is_not_called_before() {
    let ended = answer_to((Status::SERVICE_UNAVAILABLE, [("retry-after", "120")])).await;
    let Err(HandlerError::Retryable { retry_after, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!(retry_after, Some(Duration::from_secs(120)));
}

#[test]
fn a_time_to_retry_at_may_be_a_date() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_700);
    let read = |text| retry_after(&HeaderValue::from_static(text), now);
    assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(77)));
    assert_eq!(read("Sun, 06 Nov 1983 08:49:37 GMT"), Some(Duration::ZERO));
    assert_eq!(read("soon"), None);
    assert_eq!(read("-1"), None);
}

#[tokio::test]
async fn a_target_that_is_not_there_is_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let ended = call(&format!(r#"{{"url": "http://{address}/"}}"#)).await;
    assert!(matches!(ended, Err(HandlerError::Retryable { .. })), "{ended:?}");
}

#[tokio::test]
async fn a_payload_that_is_no_request_is_refused_with_its_field() {
    let cases = [
        (r#"{"body": 1}"#, "url"),
        (r#"{"url": "ftp://host/"}"#, "`url`"),
        (r#"{"url": "nowhere"}"#, "`url`"),
        (r#"{"url": "http://host/", "method": "a b"}"#, "`method`"),
        (r#"{"url": "http://host/", "headers": {"a b": "c"}}"#, "`headers.a b`"),
        (r#"{"url": "http://host/", "headers": {"Host": "c"}}"#, "`headers.Host`"),
        (r#"{"url": "http://host/", "headers": {"Idempotency-Key": "c"}}"#, "`headers.Idempotency-Key`"),
        (r#"{"url": "http://host/", "header": {}}"#, "header"),
    ];
    for (payload, field) in cases {
        let ended = call(payload).await;
        let Err(HandlerError::NonRetryable { message }) = ended else { panic!("{payload}: {ended:?}") };
        assert!(message.contains(field), "{message}");
    }
}

#[tokio::test]
async fn a_stop_closes_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (handle, context) = samples::context(&format!(r#"{{"url": "http://{address}/"}}"#));
    let calling = tokio::spawn(Http::new().call(context));
    let (mut connection, _) = listener.accept().await.expect("it connects");
    handle.stop(StopReason::Cancelled);
    assert_eq!(calling.await.expect("it does not panic"), Err(HandlerError::Stopped));
    let mut rest = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut connection, &mut rest).await;
    assert!(read.is_ok(), "the other end is closed: {read:?}");
}
