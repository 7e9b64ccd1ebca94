//! A tenant's operator: creates, triggers and deletes jobs over HTTP.

use std::net::SocketAddr;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use uuid::Uuid;

/// Whoever holds the tenant's key.
pub(crate) struct Operator {
    client: Client,
    api: SocketAddr,
    key: String,
}

/// A job to be: what it is called, when it runs, and what it calls.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// Its name.
    pub(crate) name: String,
    /// A cron expression; without one it runs only when triggered.
    pub(crate) cron: Option<String>,
    /// The URL that it calls.
    pub(crate) url: String,
}

impl Wish {
    /// However late it becomes and however many workers are lost, every fire is to run: the test is about none
    /// being lost.
    fn definition(&self) -> Value {
        let schedule = match &self.cron {
            Some(expr) => json!({"kind": "cron", "expr": expr, "zone": "UTC"}),
            None => json!({"kind": "manual"}),
        };
        json!({
            "name": self.name,
            "handler": {"name": "http"},
            "payload": {"url": self.url},
            "schedule": schedule,
            "misfire": {"catch_up": {"cap": 100}},
            "misfire_grace_ms": 600_000,
            "attempt_timeout_ms": 30_000,
            "retry": {"base_ms": 500, "cap_ms": 2_000, "max_attempts": 100, "max_rescues": 100, "max_lost_starts": 100},
        })
    }
}

impl Operator {
    /// With this key, against this API.
    pub(crate) fn new(client: Client, api: SocketAddr, key: String) -> Self {
        Self { client, api, key }
    }

    /// The API's URL and the tenant's key.
    pub(crate) fn reach(&self) -> (String, &str) {
        (format!("http://{}", self.api), &self.key)
    }

    /// Creates a job.
    pub(crate) async fn create(&self, wish: &Wish) -> Uuid {
        let (status, body) = self.ask(Method::POST, "/v1/jobs", Some(&wish.definition()), &[]).await;
        assert_eq!(status, 201, "creating {wish:?}: {body}");
        id_of(&body)
    }

    /// Tries to create a job that cannot be: what the answer points at.
    pub(crate) async fn is_refused(&self, wish: &Wish) -> String {
        let (status, body) = self.ask(Method::POST, "/v1/jobs", Some(&wish.definition()), &[]).await;
        assert_eq!(status, 400, "creating {wish:?}: {body}");
        body["pointer"].as_str().expect("a refusal names the field").to_owned()
    }

    /// Runs a job now: the execution.
    pub(crate) async fn trigger(&self, job: Uuid) -> Uuid {
        let (status, body) = self.ask(Method::POST, &format!("/v1/jobs/{job}/trigger"), None, &[]).await;
        assert_eq!(status, 201, "triggering {job}: {body}");
        id_of(&body)
    }

    /// Deletes a job.
    pub(crate) async fn delete(&self, job: Uuid) {
        let (status, body) = self.ask(Method::DELETE, &format!("/v1/jobs/{job}"), None, &[]).await;
        assert_eq!(status, 200, "deleting {job}: {body}");
    }

    /// The fires of a job that are in its ledger, page by page: when, and as which execution. Nothing was passed over.
    pub(crate) async fn ledger(&self, job: Uuid, page: u32) -> Vec<(String, Uuid)> {
        let mut fires = Vec::new();
        let mut from = "2000-01-01T00:00:00Z".to_owned();
        loop {
            let path = format!("/v1/jobs/{job}/ledger?from={from}&limit={page}");
            let (status, body) = self.ask(Method::GET, &path, None, &[]).await;
            assert_eq!(status, 200, "the ledger of {job}: {body}");
            for item in body["items"].as_array().expect("a page has items") {
                let fire =
                    item["fire"].as_str().unwrap_or_else(|| panic!("something was passed over: {item}"));
                let execution = item["execution_id"].as_str().and_then(|id| id.parse().ok());
                fires.push((fire.to_owned(), execution.expect("a fire that ran is an execution")));
            }
            match body["next_from"].as_str() {
                Some(next) => next.clone_into(&mut from),
                None => return fires,
            }
        }
    }

    /// The next fires of a job, by its preview.
    pub(crate) async fn next_fires(&self, job: Uuid, count: u32) -> Vec<String> {
        let (status, body) =
            self.ask(Method::GET, &format!("/v1/jobs/{job}/fires?count={count}"), None, &[]).await;
        assert_eq!(status, 200, "the next fires of {job}: {body}");
        utc(&body)
    }

    /// The next fires of a job that is not made, after an instant.
    pub(crate) async fn preview(&self, wish: &Wish, after: &str, count: u32) -> Vec<String> {
        let path = format!("/v1/preview?after={after}&count={count}");
        let (status, body) = self.ask(Method::POST, &path, Some(&wish.definition()), &[]).await;
        assert_eq!(status, 200, "previewing {wish:?}: {body}");
        utc(&body)
    }

    /// How many dead letters there are.
    pub(crate) async fn dead_letters(&self) -> usize {
        let (status, body) = self.ask(Method::GET, "/v1/dead-letters?reason=exhausted", None, &[]).await;
        assert_eq!(status, 200, "the dead letters: {body}");
        body["items"].as_array().expect("a page has items").len()
    }

    /// Asks for anything, with more headers.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        let url = format!("http://{}{path}", self.api);
        let mut request = self.client.request(method, url).bearer_auth(&self.key);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.expect("nothing is done to the API");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("an answer has an end");
        let body = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text:?}"));
        (status, body)
    }
}

fn utc(body: &Value) -> Vec<String> {
    let fires = body["fires"].as_array().expect("a preview has fires").iter();
    fires.map(|fire| fire["utc"].as_str().expect("a fire has its instant").to_owned()).collect()
}

fn id_of(body: &Value) -> Uuid {
    let id = body["id"].as_str().and_then(|id| id.parse().ok());
    id.unwrap_or_else(|| panic!("there is no id in {body}"))
}
