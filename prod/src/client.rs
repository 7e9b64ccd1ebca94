//! A client of the API, for commands that ask a running process instead of the database.
//!
//! It asks once and within a limit. What must stay true: whatever does not come back as asked for is a [`Failure`]
//! with the exit code of its kind: wrong usage where the request is at fault, out of reach where the service is.

use std::time::Duration;

use reqwest::{Client, StatusCode, Url};
use serde_json::Value;

use crate::failure::Failure;

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// Whoever holds a tenant's key, at one API.
#[derive(Debug)]
pub struct ApiClient {
    client: Client,
    base: Url,
    key: String,
}

impl ApiClient {
    /// For the API at `base` (`http://host:port`), speaking for the tenant of `key`. Connects with the first request.
    ///
    /// # Errors
    /// A usage failure: `base` is no such URL.
    pub fn new(base: &str, key: &str) -> Result<Self, Failure> {
        let refused = |why: &dyn core::fmt::Display| {
            Failure::usage(format!("the API's URL {base:?} cannot be used: {why}"))
                .hint("it looks like http://127.0.0.1:8080")
        };
        let url = Url::parse(base).map_err(|error| refused(&error))?;
        if !["http", "https"].contains(&url.scheme()) || url.cannot_be_a_base() {
            return Err(refused(&"it is neither http nor https"));
        }
        // Whoever came first in this process has chosen; it is the same one.
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .timeout(ANSWER_WITHIN)
            .build()
            .map_err(|error| Failure::internal(format!("no HTTP client can be made: {error}")))?;
        Ok(Self { client, base: url, key: key.to_owned() })
    }

    /// What stands at a path, as the text of its JSON and read.
    ///
    /// # Errors
    /// Usage: there is no such thing, or the key or the request is refused. Unavailable: no answer, or one that says
    /// that a service is out of reach.
    pub async fn get(&self, path: &str) -> Result<(String, Value), Failure> {
        let place = self.base.as_str().trim_end_matches('/').to_owned();
        let answer = self.client.get(format!("{place}{path}")).bearer_auth(&self.key).send().await;
        let out_of_reach = |error: &reqwest::Error| {
            Failure::unavailable(format!("the API at {place} does not answer: {}", causes(error)))
                .hint("is a process with the role `api` running there? See --url")
        };
        let answer = answer.map_err(|error| out_of_reach(&error))?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| out_of_reach(&error))?;
        let body: Option<Value> = serde_json::from_str(&text).ok();
        match (status, body) {
            (StatusCode::OK, Some(body)) => Ok((text, body)),
            (status, body) => Err(refusal(&place, status, body.as_ref())),
        }
    }
}

/// Of an answer that is not what was asked for.
fn refusal(place: &str, status: StatusCode, body: Option<&Value>) -> Failure {
    let Some(detail) = body.and_then(|body| body["detail"].as_str()) else {
        return Failure::unavailable(format!("what answers at {place} is not Fencepost's API ({status})"));
    };
    if status.is_client_error() && status != StatusCode::CONFLICT {
        Failure::usage(detail)
    } else {
        Failure::unavailable(format!("the API at {place} cannot answer: {detail}"))
    }
}

/// An error with what led to it: the outermost alone says little.
fn causes(error: &reqwest::Error) -> String {
    let causes = core::iter::successors(Some(error as &dyn core::error::Error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use serde_json::json;

    use super::*;
    use crate::failure::{UNAVAILABLE, USAGE};

    fn code(failure: &Failure) -> String {
        format!("{:?}", failure.exit_code())
    }

    fn exit(code: u8) -> String {
        format!("{:?}", ExitCode::from(code))
    }

    #[test]
    fn what_is_not_a_url_of_an_api_is_wrong_usage() {
        for url in ["", "8080", "ftp://host/", "mailto:a@b"] {
            let failure = ApiClient::new(url, "fp_").expect_err("refused");
            assert_eq!(code(&failure), exit(USAGE), "{url}: {failure}");
        }
    }

    #[test]
    fn a_refused_request_is_wrong_usage_and_a_service_that_cannot_answer_is_out_of_reach() {
        let told = json!({"detail": "why"});
        for (status, body, expected) in [
            (404, Some(&told), USAGE),
            (401, Some(&told), USAGE),
            (503, Some(&told), UNAVAILABLE),
            (409, Some(&told), UNAVAILABLE),
            (404, None, UNAVAILABLE),
            (200, None, UNAVAILABLE),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let failure = refusal("http://host", status, body);
            assert_eq!(code(&failure), exit(expected), "{status}: {failure}");
        }
    }

    #[tokio::test]
    async fn an_api_that_is_not_there_is_out_of_reach() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let address = listener.local_addr().expect("it is bound");
        drop(listener);
        let client = ApiClient::new(&format!("http://{address}/"), "fp_").expect("a URL");
        let failure = client.get("/v1/jobs").await.expect_err("nobody listens");
        assert_eq!(code(&failure), exit(UNAVAILABLE), "{failure}");
    }
}
