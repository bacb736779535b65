//! Requests to the REST API, and the errors that answers mean.

use helmdeck_core::text::excerpt;
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::GitHub;
use crate::error::{Error, Kind, Result};
use crate::http::{Received, Repeat, Sent};

/// Items on a page.
pub(super) const PER_PAGE: &str = "100";
/// Maximum number of pages of labels and people.
const MAX_PAGES: u32 = 20;
/// Maximum length of GitHub's own words in a message, in bytes.
const MAX_WORDS: usize = 300;

impl GitHub {
    pub(super) fn team(&self) -> String {
        format!("{}/{}", self.owner, self.repository)
    }

    /// Returns a URL below the root; every segment and value is encoded.
    pub(super) fn url(&self, segments: &[&str], query: &[(&str, &str)]) -> Result<Url> {
        let mut url = self.root.clone();
        let mut path = url.path_segments_mut().map_err(|()| {
            Error::new(Kind::Settings, "the endpoint of GitHub cannot have a path")
        })?;
        path.pop_if_empty().extend(segments);
        drop(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    /// Returns a URL below the repository.
    pub(super) fn below(&self, segments: &[&str], query: &[(&str, &str)]) -> Result<Url> {
        let all: Vec<&str> = ["repos", &self.owner, &self.repository]
            .into_iter()
            .chain(segments.iter().copied())
            .collect();
        self.url(&all, query)
    }

    pub(super) async fn send(
        &self,
        method: Method,
        url: &Url,
        body: Option<&Value>,
    ) -> Result<Received> {
        let repeat = if method == Method::GET {
            Repeat::Safe
        } else {
            Repeat::Once
        };
        let body = body.map(|body| body.to_string().into_bytes());
        self.http
            .send(
                &Sent {
                    method,
                    url,
                    body: body.as_deref(),
                    repeat,
                },
                problem,
            )
            .await
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, url: &Url) -> Result<T> {
        parse(&self.send(Method::GET, url, None).await?)
    }

    /// Returns all items of a list.
    pub(super) async fn list<T: DeserializeOwned>(&self, segments: &[&str]) -> Result<Vec<T>> {
        let mut all = Vec::new();
        for page in 1..=MAX_PAGES {
            let url = self.below(
                segments,
                &[("per_page", PER_PAGE), ("page", &page.to_string())],
            )?;
            let received = self.send(Method::GET, &url, None).await?;
            let is_last = !has_next(&received);
            all.extend(parse::<Vec<T>>(&received)?);
            if is_last {
                break;
            }
        }
        Ok(all)
    }
}

/// Removing what is gone already is fine.
pub(super) fn gone(result: Result<Received>) -> Result<()> {
    match result {
        Err(error) if error.kind != Kind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn has_next(received: &Received) -> bool {
    received
        .header("link")
        .is_some_and(|links| links.contains("rel=\"next\""))
}

pub(super) fn parse<T: DeserializeOwned>(received: &Received) -> Result<T> {
    serde_json::from_slice(&received.body).map_err(|error| shape(&error))
}

pub(super) fn shape(error: &serde_json::Error) -> Error {
    Error::new(
        Kind::Shape,
        format!("GitHub's answer has another shape than expected: {error}"),
    )
}

/// Returns the error that an answer means.
fn problem(received: &Received) -> Option<Error> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Body {
        message: String,
    }

    let status = received.status;
    if status.is_success() {
        return None;
    }
    let body: Body = serde_json::from_slice(&received.body).unwrap_or_default();
    let said = excerpt(&body.message, MAX_WORDS);
    let used_up = received.header("x-ratelimit-remaining").map(str::trim) == Some("0");
    let limited = status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::FORBIDDEN && (used_up || received.retry_after().is_some());
    Some(if limited {
        Error::new(Kind::RateLimited, "GitHub takes no more requests for now")
            .after(received.retry_after())
    } else {
        match status {
            StatusCode::UNAUTHORIZED => Error::new(Kind::Auth, "GitHub does not accept the token"),
            StatusCode::FORBIDDEN => Error::new(
                Kind::Forbidden,
                format!("GitHub does not allow this: {said}"),
            ),
            StatusCode::MOVED_PERMANENTLY
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT => Error::new(
                Kind::NotFound,
                "it has moved to another repository: check repository under [github]",
            ),
            StatusCode::NOT_FOUND | StatusCode::GONE => Error::new(
                Kind::NotFound,
                "GitHub does not know it, or the token may not see it",
            ),
            _ if status.is_server_error() => {
                Error::new(Kind::Server, format!("GitHub answered {}", status.as_u16()))
                    .after(received.retry_after())
            }
            _ => Error::new(Kind::Invalid, format!("GitHub refuses the input: {said}")),
        }
    })
}
