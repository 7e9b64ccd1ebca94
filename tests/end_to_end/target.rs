//! The target that jobs call: it notes who called with which key and token, and may take its time to answer.
//!
//! `/fast/NAME` answers at once, `/slow/MILLIS/NAME` after so long. It refuses nothing: what an idempotent
//! target would have to refuse is judged afterwards.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use fencepost_core::time::Timestamp;
use tokio::net::TcpListener;
use uuid::Uuid;

/// A call, as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) key: String,
    pub(crate) token: i64,
    pub(crate) attempt: u32,
    pub(crate) execution: Uuid,
    pub(crate) scheduled: Timestamp,
    /// By the wall clock of this process.
    pub(crate) arrived: Timestamp,
    /// Whether the answer was under way before the caller hung up.
    pub(crate) answered: bool,
    since: Instant,
}

#[derive(Debug, Default)]
struct Notes {
    calls: Vec<Call>,
    malformed: Vec<String>,
}

/// A listening target.
pub(crate) struct Target {
    address: SocketAddr,
    notes: Arc<Mutex<Notes>>,
}

impl Target {
    /// Starts to listen.
    pub(crate) async fn start() -> Self {
        let notes = Arc::new(Mutex::new(Notes::default()));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let router = Router::new().fallback(answer).with_state(Arc::clone(&notes));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, notes }
    }

    /// Where a job finds it.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Executions whose calls arrived no longer ago than that and still wait for their answer.
    pub(crate) fn waiting_since(&self, age: Duration) -> Vec<Uuid> {
        let notes = self.notes.lock().expect("no holder of this lock panics");
        let waits = |call: &&Call| !call.answered && call.since.elapsed() < age;
        notes.calls.iter().filter(waits).map(|call| call.execution).collect()
    }

    /// Whether a call of this execution was answered.
    pub(crate) fn has_answered(&self, execution: Uuid) -> bool {
        let notes = self.notes.lock().expect("no holder of this lock panics");
        notes.calls.iter().any(|call| call.execution == execution && call.answered)
    }

    /// All calls, by execution, in the order in which they arrived.
    pub(crate) fn calls(&self) -> BTreeMap<Uuid, Vec<Call>> {
        let notes = self.notes.lock().expect("no holder of this lock panics");
        let mut calls: BTreeMap<Uuid, Vec<Call>> = BTreeMap::new();
        for call in &notes.calls {
            calls.entry(call.execution).or_default().push(call.clone());
        }
        calls
    }

    /// Calls that lacked something, which there must not be.
    pub(crate) fn malformed(&self) -> Vec<String> {
        self.notes.lock().expect("no holder of this lock panics").malformed.clone()
    }
}

async fn answer(State(notes): State<Arc<Mutex<Notes>>>, uri: Uri, headers: HeaderMap) -> StatusCode {
    let place = {
        let mut notes = notes.lock().expect("no holder of this lock panics");
        let Some(call) = read(&headers) else {
            notes.malformed.push(format!("{uri}: {headers:?}"));
            return StatusCode::BAD_REQUEST;
        };
        notes.calls.push(call);
        notes.calls.len() - 1
    };
    if let Some(pause) = pause(uri.path()) {
        // A caller that hangs up ends this here.
        tokio::time::sleep(pause).await;
    }
    notes.lock().expect("no holder of this lock panics").calls[place].answered = true;
    StatusCode::NO_CONTENT
}

fn pause(path: &str) -> Option<Duration> {
    let millis = path.strip_prefix("/slow/")?.split('/').next()?.parse().ok()?;
    Some(Duration::from_millis(millis))
}

fn read(headers: &HeaderMap) -> Option<Call> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(Call {
        key: text("idempotency-key")?.to_owned(),
        token: text("fencepost-fencing-token")?.parse().ok()?,
        attempt: text("fencepost-attempt")?.parse().ok()?,
        execution: text("fencepost-execution-id")?.parse().ok()?,
        scheduled: Timestamp::parse_rfc3339(text("fencepost-scheduled-time")?)?,
        arrived: Timestamp::from_micros(i64::try_from(since_1970.as_micros()).ok()?),
        answered: false,
        since: Instant::now(),
    })
}
