//! The API as the command line talks to it: one tenant's key, JSON both ways, and errors in one sentence.
//!
//! What the API refuses is wrong usage (64); where it cannot be reached, or answers that it is not well, a service is
//! out of reach (69), and the same command may be given again.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, IF_MATCH};
use reqwest::{Client, Method, StatusCode, Url};
use serde_json::Value;

use crate::failure::Failure;
use crate::settings::Settings;

/// How long a request may take; longer than the API takes to give up.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// Where the API is, and who asks.
#[derive(Clone, Debug, Args)]
pub(super) struct ApiArguments {
    /// The API; FENCEPOST_CLIENT__URL and the settings file are read where this is not given.
    #[arg(long)]
    url: Option<String>,
    /// The tenant's key; FENCEPOST_CLIENT__KEY and the settings file are read where this is not given.
    #[arg(long)]
    key: Option<String>,
    /// A settings file in TOML.
    #[arg(long)]
    config: Option<PathBuf>,
}

/// A request's parts beside its path.
#[derive(Debug, Default)]
pub(super) struct Ask<'a> {
    /// Parameters of the path.
    pub(super) query: Vec<(&'static str, String)>,
    /// The body.
    pub(super) body: Option<Value>,
    /// The `Idempotency-Key`.
    pub(super) request: Option<&'a str>,
    /// The `If-Match`.
    pub(super) if_match: Option<String>,
}

/// The API of one tenant.
pub(super) struct ApiClient {
    client: Client,
    url: String,
    key: String,
}

impl ApiArguments {
    /// The API that they name.
    pub(super) fn client(&self) -> Result<ApiClient, Failure> {
        let mut settings = Settings::read(self.config.as_deref(), std::env::vars())?;
        if let Some(url) = &self.url {
            settings.client.url.clone_from(url);
        }
        if let Some(key) = &self.key {
            settings.client.key.clone_from(key);
        }
        ApiClient::new(&settings.client_url(), settings.client_key()?)
    }
}

impl ApiClient {
    /// For the API at `url` (`http://host:port`), speaking for the tenant of `key`. Connects with the first request.
    fn new(url: &str, key: &str) -> Result<Self, Failure> {
        let unusable = |why: &dyn core::fmt::Display| {
            Failure::usage(format!("the API's URL {url:?} cannot be used: {why}"))
                .hint("it looks like http://127.0.0.1:8080")
        };
        let parsed = Url::parse(url).map_err(|error| unusable(&error))?;
        if !["http", "https"].contains(&parsed.scheme()) {
            return Err(unusable(&"it is neither http nor https"));
        }
        // An error says that somebody else chose already, which serves as well.
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .timeout(REQUEST_LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| Failure::internal(format!("the HTTP client cannot be made: {error}")))?;
        Ok(Self { client, url: url.trim_end_matches('/').to_owned(), key: key.to_owned() })
    }

    /// The answer to a request that was carried out.
    pub(super) async fn call(&self, method: Method, path: &str, ask: Ask<'_>) -> Result<Value, Failure> {
        let mut url = format!("{}{path}", self.url);
        if !ask.query.is_empty() {
            let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&ask.query).finish();
            url = format!("{url}?{query}");
        }
        let mut request =
            self.client.request(method, &url).header(AUTHORIZATION, format!("Bearer {}", self.key));
        if let Some(body) = ask.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        if let Some(key) = ask.request {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(tag) = ask.if_match {
            request = request.header(IF_MATCH, tag);
        }
        let response = request.send().await.map_err(|error| self.out_of_reach(&error))?;
        let status = response.status();
        let body = response.bytes().await.map_err(|error| self.out_of_reach(&error))?;
        let answer = serde_json::from_slice(&body);
        if status.is_success() {
            let what = |error| Failure::unavailable(format!("{} does not answer in JSON: {error}", self.url));
            return answer.map_err(what);
        }
        Err(refusal(&self.url, status, &answer.unwrap_or(Value::Null)))
    }

    fn out_of_reach(&self, error: &reqwest::Error) -> Failure {
        Failure::unavailable(format!("the API at {} is out of reach: {}", self.url, causes(error))).hint(
            "is `fencepost serve --role api` up there? See --url, FENCEPOST_CLIENT__URL and [client] url; \
             the same command may be given again",
        )
    }
}

/// An error with what led to it: the outermost alone says little.
fn causes(error: &reqwest::Error) -> String {
    let causes = core::iter::successors(Some(error as &dyn core::error::Error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// A problem of the API's, in one sentence.
fn refusal(url: &str, status: StatusCode, problem: &Value) -> Failure {
    let text = |name: &str| problem[name].as_str().filter(|text| !text.is_empty());
    let title = text("title").map_or_else(|| format!("the API at {url} answered {status}"), str::to_owned);
    let at = text("pointer").map_or_else(String::new, |pointer| format!(" ({pointer})"));
    let what = match text("detail") {
        Some(detail) => format!("{title}{at}: {detail}"),
        None => format!("{title}{at}"),
    };
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return Failure::unavailable(what).hint("the same command may be given again");
    }
    Failure::usage(what)
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use super::*;
    use crate::failure::{UNAVAILABLE, USAGE};

    fn exits_with(failure: &Failure, code: u8) -> bool {
        format!("{:?}", failure.exit_code()) == format!("{:?}", ExitCode::from(code))
    }

    #[test]
    fn what_is_not_a_url_of_an_api_is_wrong_usage() {
        for url in ["", "8080", "ftp://host/", "mailto:a@b"] {
            let failure = ApiClient::new(url, "fp_").err().expect("refused");
            assert!(exits_with(&failure, USAGE), "{url}: {failure}");
        }
    }

    #[tokio::test]
    async fn an_api_that_is_not_there_is_out_of_reach() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let address = listener.local_addr().expect("it is bound");
        drop(listener);
        let client = ApiClient::new(&format!("http://{address}/"), "fp_").expect("a URL");
        let failure = client.call(Method::GET, "/v1/jobs", Ask::default()).await.expect_err("nobody listens");
        assert!(exits_with(&failure, UNAVAILABLE), "{failure}");
    }

    #[test]
    fn a_problem_is_told_with_its_field() {
        let problem = serde_json::json!({"title": "No", "detail": "it is 7", "pointer": "/number"});
        let told = refusal("http://x", StatusCode::BAD_REQUEST, &problem).to_string();
        assert_eq!(told, "No (/number): it is 7");
        let told = refusal("http://x", StatusCode::BAD_GATEWAY, &Value::Null).to_string();
        assert!(told.starts_with("the API at http://x answered 502"), "{told}");
    }
}
