//! One request with its redirects and retries.

use std::time::{Duration, Instant};

use helmdeck_core::manifest::http::{HttpMethod, HttpRequest, HttpSpec};
use helmdeck_core::{Code, Error, Result};
use helmdeck_egress::{Egress, never_connected, refusal};
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION,
    USER_AGENT,
};
use reqwest::{Client, Method, Response, StatusCode};
use url::Url;

use super::answer::Validator;

/// Limit of redirects.
const MAX_REDIRECTS: u32 = 5;
/// Number of retries of a request that reached no server.
const MAX_REPEATS: u32 = 2;
/// Wait before the first retry; it doubles.
const REPEAT_WAIT: Duration = Duration::from_millis(100);
/// Headers that are kept for another host: none that identifies the caller.
const TO_ANYBODY: [reqwest::header::HeaderName; 3] = [ACCEPT, ACCEPT_LANGUAGE, USER_AGENT];

/// The HTTP exchange of one call: its requests, redirects and retries.
pub(super) struct Exchange<'a> {
    pub(super) spec: &'a HttpSpec,
    pub(super) egress: &'a Egress,
    pub(super) deadline: Option<Instant>,
    /// Whether the last request carried a credential.
    pub(super) with_credential: bool,
    /// Number of requests sent.
    pub(super) requests: u32,
}

impl Exchange<'_> {
    /// Sends the request and follows redirects of a GET or HEAD. The headers are those of the
    /// manifest.
    ///
    /// On the way to another origin (scheme, host or port) they are left behind, credentials or
    /// not, and do not come back.
    ///
    /// # Errors
    /// `forbidden` for a host that may not be reached; `timeout`; `handler_failed` if it cannot be
    /// reached or redirects too often, or from https to http.
    pub(super) async fn send(
        &mut self,
        request: HttpRequest,
        mut headers: HeaderMap,
        validator: Option<&Validator>,
    ) -> Result<Response> {
        let client = self.egress.single_step_client().await?;
        if let Some((media_type, _)) = request.body
            && !headers.contains_key(CONTENT_TYPE)
        {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        }
        let body = request.body.map(|(_, bytes)| bytes);
        let mut url = request.url;
        for _ in 0..=MAX_REDIRECTS {
            let mut sent = headers.clone();
            // Bodies are not decompressed, so that no small answer becomes a large one.
            sent.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            if let Some(validator) = validator {
                validator.ask(&mut sent);
            }
            let response = self.once(&client, &url, &sent, body.as_ref()).await?;
            let Some(next) = self.redirect(&url, &response)? else {
                return Ok(response);
            };
            if next.origin() != url.origin() {
                let kept = TO_ANYBODY
                    .into_iter()
                    .filter_map(|name| Some((name.clone(), headers.remove(name)?)));
                headers = kept.collect();
                self.with_credential = false;
            }
            url = next;
        }
        Err(Error::new(
            Code::HandlerFailed,
            format!("{} redirects more than {MAX_REDIRECTS} times", host(&url)),
        ))
    }

    /// Returns the target of a redirect, if it must be followed.
    fn redirect(&self, url: &Url, response: &Response) -> Result<Option<Url>> {
        let status = response.status();
        let moves = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
        let location = response.headers().get(LOCATION);
        let (true, true, Some(location)) = (moves, self.spec.method.is_safe(), location) else {
            return Ok(None);
        };
        if self.spec.accepts(status.as_u16()) {
            return Ok(None);
        }
        let wrong = || {
            Error::new(
                Code::HandlerFailed,
                format!("{} redirects to an invalid URL", host(url)),
            )
        };
        let mut next = location
            .to_str()
            .ok()
            .and_then(|text| url.join(text).ok())
            .ok_or_else(wrong)?;
        if url.scheme() == "https" && next.scheme() == "http" {
            return Err(Error::new(
                Code::HandlerFailed,
                format!("{} redirects from https to http", host(url)),
            ));
        }
        self.egress.check_url(&next).map_err(|error| match error {
            helmdeck_egress::Error::NotHttp => wrong(),
            refused => refused.into(),
        })?;
        // A user name in a redirect would be sent as a credential.
        let _ = next.set_username("");
        let _ = next.set_password(None);
        Ok(Some(next))
    }

    /// Sends one request, and retries it if the method allows it and nothing can have been sent.
    async fn once(
        &mut self,
        client: &Client,
        url: &Url,
        headers: &HeaderMap,
        body: Option<&bytes::Bytes>,
    ) -> Result<Response> {
        self.egress.check_url(url)?;
        let method = Method::from_bytes(self.spec.method.as_str().as_bytes()).map_err(|error| {
            Error::new(Code::Internal, "the method cannot be written").with_source(error)
        })?;
        let mut repeats = 0;
        loop {
            let mut builder = client
                .request(method.clone(), url.clone())
                .headers(headers.clone());
            if let Some(body) = body {
                builder = builder.body(body.clone());
            }
            let error = match helmdeck_egress::send(builder).await {
                Ok(response) => {
                    self.requests += 1;
                    return Ok(response);
                }
                Err(error) => error,
            };
            let unsent = never_connected(&error) && refusal(&error).is_none();
            if unsent
                && self.spec.method.is_idempotent()
                && repeats < MAX_REPEATS
                && self.wait(repeats).await
            {
                repeats += 1;
                continue;
            }
            return Err(trouble(error, host(url), self.spec.method));
        }
    }

    /// Waits before a retry. Returns `false` if the deadline comes first.
    async fn wait(&self, repeats: u32) -> bool {
        let wait = REPEAT_WAIT * 2u32.pow(repeats);
        let fits = self
            .deadline
            .is_none_or(|deadline| Instant::now() + wait < deadline);
        if fits {
            tokio::time::sleep(wait).await;
        }
        fits
    }
}

/// Returns the public part of a URL: its host.
fn host(url: &Url) -> &str {
    url.host_str().unwrap_or("the host")
}

/// Returns the error for an error of the HTTP client.
///
/// The client's own text is left out: it contains the URL, which contains parts of the input.
pub(super) fn trouble(error: reqwest::Error, host: &str, method: HttpMethod) -> Error {
    if let Some(refused) = refusal(&error) {
        return refused.clone().into();
    }
    let (timeout, unsent) = (error.is_timeout(), never_connected(&error));
    let lost = if method.is_safe() {
        ""
    } else {
        "; what was asked may have been done"
    };
    let (code, message) = match (timeout, unsent) {
        (true, true) => (Code::Timeout, format!("{host} did not answer in time")),
        (true, false) => (
            Code::Timeout,
            format!("{host} did not answer in time{lost}"),
        ),
        (false, true) => (Code::HandlerFailed, format!("{host} cannot be reached")),
        (false, false) => (
            Code::HandlerFailed,
            format!("the connection to {host} broke{lost}"),
        ),
    };
    Error::new(code, message).with_source(error.without_url())
}

/// Returns whether a status is a redirect.
pub(super) fn is_redirect(status: StatusCode) -> bool {
    status.is_redirection() && status != StatusCode::NOT_MODIFIED
}
