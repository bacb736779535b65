//! The requests of one call.
//!
//! Retries what may be repeated, within the call's deadline, and counts used quota.

use std::time::{Duration, Instant};

use bytes::Bytes;
use helmdeck_core::jitter::jittered;
use helmdeck_core::{Code, Context, Error, Quota, Reply, Result, Secret};
use http::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::classify::{classify, quota};
use super::client::{Failure, Form, GitHubClient, Received, Target};

/// Maximum number of retries of a request.
const MAX_REPEATS: u32 = 3;

/// Maximum number of redirects to follow for a writing request.
const MAX_REDIRECTS: u32 = 3;

/// A shorter text is no token, and taking it out would only garble the message.
const MIN_SECRET_BYTES: usize = 8;

/// Exchange of one call with GitHub.
pub(super) struct Exchange<'a> {
    pub(super) client: &'a GitHubClient,
    token: Option<Secret>,
    deadline: Option<Instant>,
    /// Whether what fails is repeated: not where a stored answer covers it.
    repeats: bool,
    quota: Option<Quota>,
    calls: u32,
}

impl<'a> Exchange<'a> {
    /// Starts with the credential that the manifest declares; without one the requests are
    /// anonymous.
    pub(super) fn new(client: &'a GitHubClient, context: &Context) -> Result<Self> {
        Ok(Self {
            client,
            token: context.credential()?,
            deadline: context.deadline,
            repeats: !context.covered,
            quota: None,
            calls: 0,
        })
    }

    /// Confirms the stale answer.
    pub(super) fn not_modified(&self) -> Reply {
        Reply::not_modified()
            .with_upstream_calls(self.calls)
            .with_quota(self.quota)
    }

    /// Reads something. With an `ETag`, `None` means that it has not changed.
    ///
    /// # Errors
    /// What [`classify`] says; `handler_failed` if GitHub cannot be reached or keeps failing.
    pub(super) async fn get(
        &mut self,
        target: &Target,
        etag: Option<&str>,
    ) -> Result<Option<Received>> {
        let mut repeats = 0;
        loop {
            let (error, asked_wait) = match self
                .client
                .send(Method::GET, target, self.token.as_ref(), etag, None)
                .await
            {
                Ok(received) if received.status == StatusCode::NOT_MODIFIED && etag.is_some() => {
                    self.quota = quota(&received, self.client.clock.now()).or(self.quota);
                    // GitHub forgives an unchanged answer only to those who say who they are.
                    self.calls += u32::from(self.token.is_none());
                    return Ok(None);
                }
                Ok(received) => {
                    self.calls += 1;
                    self.quota = quota(&received, self.client.clock.now()).or(self.quota);
                    if received.status.is_success() {
                        return Ok(Some(received));
                    }
                    let error = self.refused(&received, target);
                    if !received.status.is_server_error() {
                        return Err(error);
                    }
                    let asked = error.retry_after();
                    (error, asked)
                }
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::NotSent(error) | Failure::Lost(error)) => (error, None),
            };
            if !self.repeats || repeats == MAX_REPEATS || !self.wait(repeats, asked_wait).await {
                return Err(error);
            }
            repeats += 1;
        }
    }

    /// Writes something and reads the answer.
    ///
    /// Repeated only where no connection was made, since GitHub may have carried out anything it
    /// was sent. A redirect that keeps method and body (a renamed repository) is followed on the
    /// API's own host.
    ///
    /// # Errors
    /// What [`classify`] says; `handler_failed` if GitHub cannot be reached or its answer got lost.
    pub(super) async fn post<T: DeserializeOwned>(
        &mut self,
        mut target: Target,
        body: &impl Serialize,
    ) -> Result<T> {
        let body = serde_json::to_vec(body).map(Bytes::from).map_err(|error| {
            Error::new(Code::Internal, "a request to GitHub cannot be written").with_source(error)
        })?;
        let (mut repeats, mut redirects) = (0, 0);
        loop {
            match self
                .client
                .send(
                    Method::POST,
                    &target,
                    self.token.as_ref(),
                    None,
                    Some(&body),
                )
                .await
            {
                Ok(received) => {
                    self.calls += 1;
                    let moved = matches!(
                        received.status,
                        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
                    );
                    if let (true, Some(location)) = (
                        moved && redirects < MAX_REDIRECTS,
                        received.header("location"),
                    ) {
                        target = Target(Form::Json, self.client.follow(location)?);
                        redirects += 1;
                        continue;
                    }
                    return match received.status {
                        StatusCode::CREATED => parse(&received.body),
                        _ => Err(self.refused(&received, &target)),
                    };
                }
                Err(Failure::NotSent(error)) => {
                    if repeats == MAX_REPEATS || !self.wait(repeats, None).await {
                        return Err(error);
                    }
                    repeats += 1;
                }
                Err(Failure::Lost(error)) => {
                    return Err(error.with_message(
                        "GitHub's answer got lost; what was asked may have been done",
                    ));
                }
                Err(Failure::Final(error)) => return Err(error),
            }
        }
    }

    /// Ends the call with what it found.
    pub(super) fn reply<T: Serialize>(&self, output: &T) -> Result<Reply> {
        Ok(Reply::value(output)?
            .with_upstream_calls(self.calls)
            .with_quota(self.quota))
    }

    fn refused(&self, received: &Received, target: &Target) -> Error {
        let error = classify(
            received,
            target,
            self.token.is_some(),
            self.client.clock.now(),
        );
        // GitHub repeats parts of the input in its messages; a token pasted there must not come
        // back out.
        match self.token.as_ref().map(|token| token.expose().trim()) {
            Some(token) if token.len() >= MIN_SECRET_BYTES && error.message().contains(token) => {
                let message = error.message().replace(token, "[redacted]");
                error.with_message(message)
            }
            _ => error,
        }
    }

    /// Waits before a retry: as long as GitHub asks, else doubling with jitter.
    ///
    /// Returns `false` if the deadline comes first.
    async fn wait(&self, repeats: u32, asked: Option<Duration>) -> bool {
        let step = self.client.retry_wait * 2u32.pow(repeats);
        // Half fixed, half random, so that callers who failed together do not retry together.
        let jittered = jittered(step, 0.5..=1.0);
        let wait = asked.map_or(jittered, |asked| asked.max(jittered));
        let fits = match self.deadline {
            Some(deadline) => Instant::now() + wait < deadline,
            None => asked.is_none_or(|asked| asked <= Duration::from_secs(60)),
        };
        if fits {
            tokio::time::sleep(wait).await;
        }
        fits
    }
}

/// Reads an answer's body.
///
/// # Errors
/// `handler_failed` if it does not have the documented form.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|error| {
        Error::new(
            Code::HandlerFailed,
            "GitHub's answer does not have the documented form",
        )
        .with_source(error)
    })
}
