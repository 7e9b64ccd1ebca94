//! A tenant's operator: creates and triggers jobs over HTTP.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures_util::StreamExt;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

/// Requests that are under way at once when many jobs are created.
const SIDE_BY_SIDE: usize = 16;
/// Jobs by which the speed of creation is learnt.
const SAMPLE: u32 = 500;
/// How long before their instant all jobs are there: roles are started in between.
const LEAD: Duration = Duration::from_secs(12);

/// Whoever holds the tenant's key.
#[derive(Clone)]
pub(crate) struct Operator {
    client: Client,
    api: SocketAddr,
    key: String,
}

/// Jobs that are due at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) due: DateTime<Utc>,
    pub(crate) created_per_second: f64,
}

/// What the API answered, and how long that took.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) body: Value,
    pub(crate) took: Duration,
}

impl Answer {
    async fn to(request: reqwest::RequestBuilder, path: &str) -> Self {
        let began = Instant::now();
        let answer = request.send().await.expect("the API answers");
        let status = answer.status();
        let text = answer.text().await.expect("an answer has an end");
        let took = began.elapsed();
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        Self { body: serde_json::from_str(&text).expect("an answer is JSON"), took }
    }
}

impl Operator {
    /// With this key, against this API.
    pub(crate) fn new(client: Client, api: SocketAddr, key: String) -> Self {
        Self { client, api, key }
    }

    /// Creates as many jobs that are due once, all at the same instant, which is some seconds after the last of
    /// them was created.
    pub(crate) async fn plan_burst(&self, jobs: u32) -> Planned {
        let sample = self.create_all(SAMPLE.min(jobs), &json!({"kind": "manual"})).await;
        let pessimistic = Duration::from_secs_f64(f64::from(jobs) / sample * 1.4);
        let due = Utc::now() + pessimistic + LEAD;
        let at = due.to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        let created_per_second = self.create_all(jobs, &json!({"kind": "one_shot", "at": at})).await;
        assert!(Utc::now() < due - LEAD / 2, "the jobs were created too slowly");
        Planned { due, created_per_second }
    }

    /// Creates jobs of this schedule; how many per second.
    pub(crate) async fn create_all(&self, jobs: u32, schedule: &Value) -> f64 {
        let began = Instant::now();
        futures_util::stream::iter(0..jobs)
            .for_each_concurrent(SIDE_BY_SIDE, |_| async {
                self.create(schedule).await;
            })
            .await;
        f64::from(jobs) / began.elapsed().as_secs_f64()
    }

    /// Creates one.
    pub(crate) async fn create(&self, schedule: &Value) -> Uuid {
        let job = json!({"name": "bench", "handler": {"name": "noop"}, "schedule": schedule});
        self.ask("/v1/jobs", job.to_string()).await
    }

    /// Runs one now; the execution.
    pub(crate) async fn trigger(&self, job: Uuid) -> Uuid {
        self.ask(&format!("/v1/jobs/{job}/trigger"), String::new()).await
    }

    /// Asks for something that is there, and reads the answer to its end.
    pub(crate) async fn ask_for(&self, path: &str) -> Answer {
        Answer::to(self.client.get(format!("http://{}{path}", self.api)).bearer_auth(&self.key), path).await
    }

    /// The same with a body.
    pub(crate) async fn ask_with(&self, path: &str, body: &Value) -> Answer {
        let request = self.client.post(format!("http://{}{path}", self.api)).bearer_auth(&self.key);
        Answer::to(request.header(CONTENT_TYPE, "application/json").body(body.to_string()), path).await
    }

    async fn ask(&self, path: &str, body: String) -> Uuid {
        let request = self.client.post(format!("http://{}{path}", self.api)).bearer_auth(&self.key);
        let request = if body.is_empty() {
            request
        } else {
            request.header(CONTENT_TYPE, "application/json").body(body)
        };
        let answer = request.send().await.expect("the API answers");
        let status = answer.status();
        let text = answer.text().await.expect("an answer has an end");
        assert_eq!(status, StatusCode::CREATED, "{path}: {text}");
        let body: Value = serde_json::from_str(&text).expect("an answer is JSON");
        let id = body["id"].as_str().and_then(|id| id.parse().ok());
        id.unwrap_or_else(|| panic!("there is no id in {body}"))
    }
}
