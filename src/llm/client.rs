//! Sends a request and repeats it where that can help, within the caller's deadline.
//!
//! Asking a model changes nothing at the endpoint, so a request whose answer got lost is sent again; it may cost twice.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use bytes::Bytes;
use helmdeck_core::{Code, Error, Result};
use helmdeck_egress::{Egress, refusal};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Response, StatusCode};
use tokio::time::timeout;
use url::Url;

use crate::answer::{self, Answer};
use crate::classify::classify;
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::message::{Body, Request};

/// The most of an unsuccessful answer that is read.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// Asks models. Cheap to clone; clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) config: Config,
    /// The way to endpoints of calls' inputs.
    pub(crate) given: Egress,
    /// The operator's endpoint, and the way to exactly that.
    pub(crate) operators: Option<(Url, Egress)>,
}

/// Why there is no answer.
enum Failure {
    /// A repetition can help.
    Passing(Error),
    /// A repetition would fail the same way.
    Final(Error),
}

impl Client {
    /// Makes a client. Connects to nothing yet.
    ///
    /// # Errors
    /// What [`Config::validate`] says.
    pub fn new(egress: &Egress, config: Config) -> Result<Self, String> {
        config.validate()?;
        let operators = config.base_url()?.map(|base| {
            let only = egress.reaching_only(&base, config.idle_timeout);
            (base, only)
        });
        Ok(Self { given: egress.patient(config.idle_timeout), operators, config })
    }

    /// Asks a model and returns its whole answer.
    ///
    /// A request that was limited (429), failed (408, 409, 5xx), broke off or was never connected is repeated with growing
    /// waits, or with those that the endpoint asks for, as long as `deadline` lets it. Dropping the future drops the request.
    ///
    /// # Errors
    /// `credential_invalid` (401, 403, no credit), `not_found` (no such model), `rate_limited` with the wait, `too_large` if the
    /// dialogue is too long for the model, `invalid_input` if the endpoint does not accept the request, `forbidden` if the host
    /// may not be reached, `timeout` at the deadline, `handler_failed` for everything else.
    pub async fn chat(&self, endpoint: &Endpoint, request: &Request<'_>, deadline: Option<Instant>) -> Result<Answer> {
        let Request { messages, tools, temperature, max_tokens } = *request;
        let body = Body { model: &endpoint.model, messages, tools, temperature, max_tokens };
        let body = serde_json::to_vec(&body)
            .map(Bytes::from)
            .map_err(|error| Error::new(Code::Internal, "the request cannot be written").with_source(error))?;
        let mut attempts = 1;
        loop {
            let error = match self.attempt(endpoint, body.clone(), deadline).await {
                Ok(mut answer) => {
                    answer.attempts = attempts;
                    answer.cost = answer.cost.or_else(|| self.price(endpoint, &answer));
                    return Ok(answer);
                }
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Passing(error)) => error,
            };
            let wait = self.wait(attempts - 1, error.retry_after());
            let too_late = deadline.is_some_and(|deadline| Instant::now() + wait >= deadline);
            if attempts > self.config.max_repeats || wait > self.config.max_retry_wait || too_late {
                return Err(error);
            }
            tracing::debug!(attempts, wait_ms = wait.as_millis(), code = %error.code(), "asking the model again");
            tokio::time::sleep(wait).await;
            attempts += 1;
        }
    }

    fn price(&self, endpoint: &Endpoint, answer: &Answer) -> Option<f64> {
        // A price is that of the operator's contract; elsewhere the same name may cost anything.
        let named = self.operators.as_ref().is_some_and(|(base, _)| crate::endpoint::completions(base) == endpoint.url);
        let price = self.config.prices.get(&endpoint.model).filter(|_| named)?;
        answer.usage.as_ref().map(|usage| price.of(usage))
    }

    /// Sends a request, once, within the client's own time and the deadline.
    async fn attempt(&self, endpoint: &Endpoint, body: Bytes, deadline: Option<Instant>) -> Result<Answer, Failure> {
        let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        let late = || {
            if left <= self.config.timeout {
                return Failure::Final(Error::new(Code::Timeout, "the model did not answer before the deadline"));
            }
            let seconds = self.config.timeout.as_secs();
            Failure::Passing(Error::new(Code::HandlerFailed, format!("the model did not answer within {seconds} s")))
        };
        timeout(self.config.timeout.min(left), self.send(endpoint, body)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn send(&self, endpoint: &Endpoint, body: Bytes) -> Result<Answer, Failure> {
        let client = endpoint.egress.single_step_client().await.map_err(|error| Failure::Final(error.into()))?;
        let mut request = client.post(endpoint.url.clone()).header(CONTENT_TYPE, "application/json").body(body);
        if let Some(header) = authorization(endpoint).map_err(Failure::Final)? {
            request = request.header(AUTHORIZATION, header);
        }
        let response = request.send().await.map_err(|error| trouble(endpoint, error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        if !status.is_success() {
            let body = read(endpoint, response, MAX_ERROR_BYTES).await?.unwrap_or_default();
            let error = classify(endpoint, status, &headers, &body);
            let passing = matches!(error.code(), Code::RateLimited | Code::HandlerFailed)
                || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT);
            return Err(if passing { Failure::Passing(error) } else { Failure::Final(error) });
        }
        let limit = usize::try_from(self.config.max_response_bytes).unwrap_or(usize::MAX);
        let Some(body) = read(endpoint, response, limit).await? else {
            let message = format!("the answer of {} is over {limit} bytes", endpoint.host());
            return Err(Failure::Final(Error::new(Code::HandlerFailed, message)));
        };
        let garbage = || {
            let message = format!("{} did not answer with a chat completion", endpoint.host());
            Failure::Passing(Error::new(Code::HandlerFailed, message))
        };
        answer::read(&body).ok_or_else(garbage)
    }

    /// Returns how long to wait: as long as the endpoint asks, else doubling; half fixed, half random, so that those who
    /// failed together do not come back together.
    fn wait(&self, repeats: u32, asked: Option<Duration>) -> Duration {
        let step = self.config.retry_wait.saturating_mul(1 << repeats.min(16));
        let random = u32::try_from(RandomState::new().hash_one(repeats) % 1000).unwrap_or(0);
        let jittered = step / 2 + step / 2000 * random;
        asked.map_or(jittered.min(self.config.max_retry_wait), |asked| asked.max(jittered))
    }
}

/// Returns the header that holds the key.
fn authorization(endpoint: &Endpoint) -> Result<Option<HeaderValue>> {
    let Some(key) = &endpoint.key else { return Ok(None) };
    let key = key.expose_for(endpoint.host())?.trim();
    if key.is_empty() {
        return Err(Error::new(Code::CredentialInvalid, "the model's credential is empty"));
    }
    let mut header = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| {
        Error::new(Code::CredentialInvalid, "the model's credential has characters that no HTTP header can have")
    })?;
    header.set_sensitive(true);
    Ok(Some(header))
}

/// Reads a body, `None` if it is over the limit; what came of it is dropped then.
async fn read(endpoint: &Endpoint, mut response: Response, limit: usize) -> Result<Option<Vec<u8>>, Failure> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| trouble(endpoint, error))? {
        if body.len() + chunk.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

fn trouble(endpoint: &Endpoint, error: reqwest::Error) -> Failure {
    if let Some(refused) = refusal(&error) {
        return Failure::Final(refused.clone().into());
    }
    let host = endpoint.host();
    let message = if error.is_connect() {
        format!("{host} cannot be reached")
    } else if error.is_timeout() {
        format!("{host} was silent for too long")
    } else {
        format!("the connection to {host} broke")
    };
    // The URL's path and query are the operator's business.
    Failure::Passing(Error::new(Code::HandlerFailed, message).with_source(error.without_url()))
}
