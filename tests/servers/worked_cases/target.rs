//! A target for HTTP jobs that answers when it is told to, and remembers for whom it was called.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use fencepost_tests::waiting;
use tokio::sync::{Mutex, Semaphore};

use super::PATIENCE;

/// Answers as often as it is told to, and knows whom it was called for.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) called: Arc<Mutex<Vec<String>>>,
    pub(crate) answers: Arc<Semaphore>,
    pub(crate) url: String,
}

impl Target {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
        let target = Self { called: Arc::default(), answers: Arc::new(Semaphore::new(0)), url };
        let router = Router::new().route("/", post(Self::called)).with_state(target.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        target
    }

    async fn called(State(target): State<Self>, headers: HeaderMap) -> &'static str {
        let id = headers.get("fencepost-execution-id").and_then(|id| id.to_str().ok());
        target.called.lock().await.push(id.expect("every call says for which execution").to_owned());
        target.answers.acquire().await.expect("nobody closes it").forget();
        "done"
    }

    pub(crate) async fn is_called_for(&self, execution: &str) {
        waiting::until(&format!("a call for {execution}"), PATIENCE, async || {
            self.called.lock().await.iter().any(|id| id == execution).then_some(())
        })
        .await;
    }
}
