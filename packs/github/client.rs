//! Sends one request over octocrab. Never follows a link to another host, and limits the answer's
//! size.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::{Clock, Code, Error, Result, Secret, Upstream};
use helmdeck_egress::{Egress, Outgoing, never_connected, refusal};
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, IF_NONE_MATCH, USER_AGENT,
};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use octocrab::service::middleware::reqwest_connector::ReqwestConnector;
use octocrab::{AuthState, Octocrab, OctocrabBuilder};
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;
use url::Url;

use super::Config;

/// Maximum size of one answer, in bytes.
const MAX_BODY_BYTES: usize = 8 << 20;

/// The version of the REST API whose shapes `model.rs` knows.
const API_VERSION: &str = "2022-11-28";

/// Form of the requested answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Form {
    /// JSON.
    Json,
    /// A unified diff.
    Diff,
}

/// Something to read: its path with query, below the API's host, and the form it is read in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Target(pub(super) Form, pub(super) String);

/// An answer from GitHub.
pub(super) struct Received {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Received {
    /// Returns a header as text, `None` if it is absent or not ASCII.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Why nothing came back.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing can have reached GitHub; a repetition is harmless.
    NotSent(Error),
    /// The request may have been carried out.
    Lost(Error),
    /// A repetition would fail the same way.
    Final(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotSent(error) | Failure::Lost(error) | Failure::Final(error) => error,
        }
    }
}

/// The way to one GitHub, shared by all packs of the family.
pub(super) struct GitHubClient {
    egress: Egress,
    base: Url,
    user_agent: HeaderValue,
    octocrab: OnceCell<Octocrab>,
    pub(super) retry_wait: Duration,
    keep_quota: u64,
    pub(super) clock: Arc<dyn Clock>,
}

impl GitHubClient {
    pub(super) fn new(config: &Config, egress: &Egress, clock: Arc<dyn Clock>) -> Self {
        Self {
            egress: egress.naming(&config.base_url),
            base: config.base_url.clone(),
            user_agent: HeaderValue::from_str(&config.user_agent).unwrap_or(
                HeaderValue::from_static(concat!("helmdeck/", env!("CARGO_PKG_VERSION"))),
            ),
            octocrab: OnceCell::new(),
            retry_wait: config.retry_wait,
            keep_quota: config.keep_quota,
            clock,
        }
    }

    /// Returns this GitHub, whose limits all packs share that ask with the same credential.
    pub(super) fn upstream(&self) -> Upstream {
        let name = self.base.host_str().unwrap_or("GitHub").to_owned();
        Upstream {
            name,
            keep_quota: self.keep_quota,
        }
    }

    /// Returns what to read below the API's root; every segment and value is encoded.
    pub(super) fn target(&self, segments: &[&str], query: &[(&str, &str)]) -> Result<Target> {
        let mut url = self.base.clone();
        url.set_query(None);
        url.set_fragment(None);
        url.path_segments_mut()
            .map_err(|()| Error::new(Code::Internal, "the base URL of GitHub cannot have a path"))?
            .pop_if_empty()
            .extend(segments);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(Target(Form::Json, below_host(&url)))
    }

    /// Returns what a link of GitHub's points to.
    ///
    /// # Errors
    /// `handler_failed` if it points to another host: the token must not go there.
    pub(super) fn follow(&self, link: &str) -> Result<String> {
        match self.base.join(link) {
            Ok(url) if url.origin() == self.base.origin() => Ok(below_host(&url)),
            _ => Err(Error::new(
                Code::HandlerFailed,
                "GitHub's answer links to another host",
            )),
        }
    }

    /// Sends one request, once.
    pub(super) async fn send(
        &self,
        method: Method,
        target: &Target,
        token: Option<&Secret>,
        etag: Option<&str>,
        body: Option<&Bytes>,
    ) -> Result<Received, Failure> {
        let url = self.base.join(&target.1).map_err(|error| {
            Failure::Final(
                Error::new(Code::Internal, "a path on GitHub cannot be written").with_source(error),
            )
        })?;
        self.egress
            .check_url(&url)
            .map_err(|error| Failure::Final(error.into()))?;
        let mut request = self
            .request(method, &url, target.0, token, etag, body)
            .map_err(Failure::Final)?;
        let octocrab = self.octocrab().await.map_err(Failure::Final)?;
        let outgoing = Outgoing::begin(request.method(), &url);
        outgoing.add_to(request.headers_mut());
        let response = match octocrab.execute(request).await {
            Ok(response) => response,
            Err(error) => {
                outgoing.failed("_OTHER");
                return Err(trouble(error));
            }
        };
        outgoing.answered(response.status());

        let (parts, mut incoming) = response.into_parts();
        let mut body = Vec::new();
        while let Some(frame) = incoming.frame().await {
            let Ok(data) = frame.map_err(trouble)?.into_data() else {
                continue;
            };
            if body.len() + data.len() > MAX_BODY_BYTES {
                let message = format!(
                    "GitHub's answer is over {} MiB; ask for fewer items per page",
                    MAX_BODY_BYTES >> 20
                );
                return Err(Failure::Final(Error::new(Code::TooLarge, message)));
            }
            body.extend_from_slice(&data);
        }
        Ok(Received {
            status: parts.status,
            headers: parts.headers,
            body: body.into(),
        })
    }

    fn request(
        &self,
        method: Method,
        url: &Url,
        form: Form,
        token: Option<&Secret>,
        etag: Option<&str>,
        body: Option<&Bytes>,
    ) -> Result<Request<octocrab::OctoBody>> {
        let accept = match form {
            Form::Json => "application/vnd.github+json",
            Form::Diff => "application/vnd.github.diff",
        };
        let mut request = Request::builder()
            .method(method)
            .uri(url.as_str())
            .header(ACCEPT, accept)
            .header(USER_AGENT, &self.user_agent)
            .header("x-github-api-version", API_VERSION);
        if let Some(token) = token {
            // octocrab's own authentication panics on a token that fits no header, and shows it in
            // `Debug`.
            let token = token.expose_for(url.host_str().unwrap_or_default())?.trim();
            if token.is_empty() {
                return Err(Error::new(
                    Code::CredentialInvalid,
                    "the GitHub credential is empty",
                ));
            }
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
                Error::new(
                    Code::CredentialInvalid,
                    "the GitHub credential has characters that no token has",
                )
            })?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let body = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                octocrab::OctoBody::from(body.to_vec())
            }
            None => octocrab::OctoBody::empty(),
        };
        request.body(body).map_err(|error| {
            Error::new(Code::Internal, "a request to GitHub cannot be written").with_source(error)
        })
    }

    /// octocrab with nothing around the guarded client: no cache, no retries and no credentials.
    async fn octocrab(&self) -> Result<&Octocrab> {
        self.octocrab
            .get_or_try_init(|| async {
                let connector = ReqwestConnector::new(self.egress.client().await?);
                let built = OctocrabBuilder::new_empty()
                    .with_service(connector)
                    .with_auth(AuthState::None)
                    .build();
                Ok(built.unwrap_or_else(|never| match never {}))
            })
            .await
    }
}

/// Returns path and query.
fn below_host(url: &Url) -> String {
    match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    }
}

fn trouble(error: octocrab::Error) -> Failure {
    if let Some(refused) = refusal(&error) {
        return Failure::Final(refused.clone().into());
    }
    if never_connected(&error) {
        return Failure::NotSent(
            Error::new(Code::HandlerFailed, "GitHub cannot be reached").with_source(error),
        );
    }
    Failure::Lost(
        Error::new(Code::HandlerFailed, "the connection to GitHub broke").with_source(error),
    )
}
