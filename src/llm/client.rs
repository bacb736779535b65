//! Sends requests, and retries within the caller's deadline.
//!
//! Asking a model changes nothing at the endpoint. A request whose answer got lost is sent again,
//! but only once: it costs twice.

use std::time::{Duration, Instant};

use bytes::Bytes;
use helmdeck_core::jitter::jittered;
use helmdeck_core::trace::SpanKind;
use helmdeck_core::{Code, Correlation, Error, Result, Secret};
use helmdeck_egress::{Egress, refusal};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Response, StatusCode};
use tokio::time::timeout;
use url::Url;

use crate::answer::{self, Answer, Taken, Unanswered, Usage};
use crate::classify::classify;
use crate::config::Config;
use crate::endpoint::{Endpoint, completions, is_private, parse};
use crate::message::{Body, Request};

/// Maximum length read of an unsuccessful answer.
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
    /// A retry can help, but the model worked: its answer got lost, and may have to be paid for.
    Lost(Error, Taken),
    /// A repetition would fail the same way.
    Final(Error),
    /// The model worked, and a repetition would fail the same way.
    Spent(Error),
}

impl Client {
    /// Decides which endpoint is asked: `given`, or the operator's.
    ///
    /// `given` is the base URL of a call's input.
    ///
    /// The operator's endpoint gets the key, if the credential is not bound to other hosts. A given
    /// one gets it only if the credential is bound to hosts, this one among them, and over https or
    /// on this machine; else it is asked without a key.
    ///
    /// # Errors
    /// `invalid_input` if there is no endpoint or no model, or the URL cannot be one; `forbidden`
    /// if the operator does not allow the model, the host may not be reached or the key is not for
    /// the operator's own endpoint.
    pub fn endpoint(
        &self,
        given: Option<&str>,
        model: Option<&str>,
        key: Option<Secret>,
    ) -> Result<Endpoint> {
        let named = self.operators.as_ref();
        let given = given.map(parse).transpose();
        let given = given
            .map_err(|message| Error::new(Code::InvalidInput, format!("endpoint {message}")))?;
        let given = given.filter(|given| {
            named.is_none_or(|(named, _)| completions(named) != completions(given))
        });
        let missing = |what: &str, setting: &str| {
            let message = format!(
                "no {what} is known: name one in the input, or set {setting} in the configuration"
            );
            Error::new(Code::InvalidInput, message).for_operator()
        };
        let model = model
            .or(Some(self.config.model.as_str()))
            .filter(|model| !model.is_empty());
        let model = model
            .ok_or_else(|| missing("model", "[llm] model"))?
            .to_owned();
        if !self.config.allows(&model) {
            let message = format!(
                "the model {model:?} is not among those that the operator allows ([llm] models)"
            );
            return Err(Error::new(Code::Forbidden, message));
        }
        match (given, named) {
            (Some(base), _) => {
                let url = completions(&base);
                self.given.check_url(&url)?;
                let fits = |key: &Secret| {
                    key.is_bound_to(url.host_str().unwrap_or_default()) && is_private(&url)
                };
                let there_is_one = key.is_some();
                let key = key.filter(fits);
                let withheld = there_is_one && key.is_none();
                Ok(Endpoint {
                    url,
                    model,
                    key,
                    withheld,
                    egress: self.given.clone(),
                })
            }
            (None, Some((base, egress))) => {
                if let Some(key) = &key {
                    key.expose_for(base.host_str().unwrap_or_default())?;
                }
                Ok(Endpoint {
                    url: completions(base),
                    model,
                    key,
                    withheld: false,
                    egress: egress.clone(),
                })
            }
            (None, None) => Err(missing("endpoint", "[llm] endpoint")),
        }
    }

    /// Says whether the operator set an endpoint.
    #[must_use]
    pub const fn has_endpoint(&self) -> bool {
        self.operators.is_some()
    }

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
        Ok(Self {
            given: egress.patient(config.idle_timeout),
            operators,
            config,
        })
    }

    /// Asks a model and returns its whole answer.
    ///
    /// A request that was limited (429), failed (408, 409, 5xx) or was never connected is repeated
    /// with growing waits, or with those that the endpoint asks for, as long as `deadline` lets it.
    /// One whose answer got lost (it broke off, came too late, or was no chat completion) is
    /// repeated once, and what it took is part of the answer's usage and cost. Dropping the future
    /// drops the request.
    ///
    /// # Errors
    /// `credential_invalid` (401, 403, no credit), `not_found` (no such model), `rate_limited` with
    /// the wait, `too_large` if the conversation is too long for the model, `invalid_input` if the
    /// endpoint does not accept the request, `forbidden` if the host may not be reached, `timeout`
    /// at the deadline, `handler_failed` for everything else.
    pub async fn chat(
        &self,
        endpoint: &Endpoint,
        request: &Request<'_>,
        deadline: Option<Instant>,
    ) -> Result<Answer, Unanswered> {
        let mut correlation = Correlation::current();
        let span = correlation.begin_span(
            || format!("chat {}", endpoint.model).into(),
            SpanKind::Client,
        );
        let Some(mut span) = span else {
            return self.ask(endpoint, request, deadline).await;
        };
        span.set("gen_ai.operation.name", "chat");
        span.set("gen_ai.request.model", endpoint.model.clone());
        span.set("server.address", endpoint.host().to_owned());
        let answer = correlation
            .scope(self.ask(endpoint, request, deadline))
            .await;
        match &answer {
            Ok(answer) => {
                if let Some(usage) = &answer.usage {
                    span.set("gen_ai.usage.input_tokens", usage.prompt_tokens);
                    span.set("gen_ai.usage.output_tokens", usage.completion_tokens);
                }
            }
            Err(unanswered) => span.fail(
                unanswered.error.code().as_str(),
                unanswered.error.message().to_owned(),
            ),
        }
        answer
    }

    /// Asks a model as [`Client::chat`] does.
    async fn ask(
        &self,
        endpoint: &Endpoint,
        request: &Request<'_>,
        deadline: Option<Instant>,
    ) -> Result<Answer, Unanswered> {
        let Request {
            messages,
            tools,
            temperature,
            max_tokens,
        } = *request;
        let body = Body {
            model: &endpoint.model,
            messages,
            tools,
            temperature,
            max_tokens,
        };
        let body = serde_json::to_vec(&body)
            .map(Bytes::from)
            .map_err(|error| {
                let error =
                    Error::new(Code::Internal, "the request cannot be written").with_source(error);
                Unanswered { error, lost: false }
            })?;
        let mut attempts = 1;
        let mut earlier: Option<Taken> = None;
        loop {
            let (error, taken) = match self.attempt(endpoint, body.clone(), deadline).await {
                Ok(answer) => {
                    return Ok(self.settled(endpoint, Answer { attempts, ..answer }, earlier));
                }
                Err(Failure::Final(error)) => {
                    return Err(Unanswered {
                        error,
                        lost: earlier.is_some(),
                    });
                }
                Err(Failure::Spent(error)) => return Err(Unanswered { error, lost: true }),
                Err(Failure::Passing(error)) => (error, None),
                Err(Failure::Lost(error, taken)) => (error, Some(taken)),
            };
            let again = earlier.is_some() && taken.is_some();
            earlier = earlier.or(taken);
            let wait = self.wait(attempts - 1, error.retry_after());
            let too_late = deadline.is_some_and(|deadline| Instant::now() + wait >= deadline);
            if again
                || attempts > self.config.max_repeats
                || wait > self.config.max_retry_wait
                || too_late
            {
                return Err(Unanswered {
                    error,
                    lost: earlier.is_some(),
                });
            }
            tracing::debug!(attempts, wait_ms = wait.as_millis(), code = %error.code(), "asking the model again");
            tokio::time::sleep(wait).await;
            attempts += 1;
        }
    }

    /// Returns an answer with its cost, and with what one before it took that got lost.
    fn settled(&self, endpoint: &Endpoint, mut answer: Answer, earlier: Option<Taken>) -> Answer {
        answer.cost = answer
            .cost
            .or_else(|| self.price(endpoint, answer.usage.as_ref()));
        if let Some(Taken { usage, cost }) = earlier {
            let cost = cost.or_else(|| self.price(endpoint, usage.as_ref()));
            answer.cost = answer.cost.zip(cost).map(|(this, earlier)| this + earlier);
            if let (Some(all), Some(usage)) = (&mut answer.usage, &usage) {
                all.add(usage);
            }
        }
        answer
    }

    fn price(&self, endpoint: &Endpoint, usage: Option<&Usage>) -> Option<f64> {
        // A price is that of the operator's contract; elsewhere the same name may cost anything.
        let named = self
            .operators
            .as_ref()
            .is_some_and(|(base, _)| crate::endpoint::completions(base) == endpoint.url);
        let price = self.config.prices.get(&endpoint.model).filter(|_| named)?;
        usage.map(|usage| price.of(usage))
    }

    /// Sends a request, once, within the client's own time and the deadline.
    async fn attempt(
        &self,
        endpoint: &Endpoint,
        body: Bytes,
        deadline: Option<Instant>,
    ) -> Result<Answer, Failure> {
        let left = deadline.map_or(Duration::MAX, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        let late = || {
            if left <= self.config.timeout {
                return Failure::Spent(Error::new(
                    Code::Timeout,
                    "the model did not answer before the deadline",
                ));
            }
            let seconds = self.config.timeout.as_secs();
            let error = Error::new(
                Code::HandlerFailed,
                format!("the model did not answer within {seconds} s"),
            );
            Failure::Lost(error, Taken::default())
        };
        timeout(self.config.timeout.min(left), self.send(endpoint, body))
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    async fn send(&self, endpoint: &Endpoint, body: Bytes) -> Result<Answer, Failure> {
        let client = endpoint
            .egress
            .single_step_client()
            .await
            .map_err(|error| Failure::Final(error.into()))?;
        let mut request = client
            .post(endpoint.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        if let Some(header) = authorization(endpoint).map_err(Failure::Final)? {
            request = request.header(AUTHORIZATION, header);
        }
        let response = helmdeck_egress::send(request)
            .await
            .map_err(|error| trouble(endpoint, error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        if !status.is_success() {
            let body = read(endpoint, response, MAX_ERROR_BYTES)
                .await?
                .unwrap_or_default();
            let error = classify(endpoint, status, &headers, &body);
            let passing = matches!(error.code(), Code::RateLimited | Code::HandlerFailed)
                || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT);
            return Err(if passing {
                Failure::Passing(error)
            } else {
                Failure::Final(error)
            });
        }
        let limit = usize::try_from(self.config.max_response_bytes).unwrap_or(usize::MAX);
        let body = read(endpoint, response, limit)
            .await
            .map_err(|failure| match failure {
                Failure::Passing(error) => Failure::Lost(error, Taken::default()),
                other => other,
            })?;
        let Some(body) = body else {
            let message = format!("the answer of {} is over {limit} bytes", endpoint.host());
            // It would be as long again.
            return Err(Failure::Spent(Error::new(Code::HandlerFailed, message)));
        };
        answer::read(&body).map_err(|taken| {
            let message = format!("{} did not answer with a chat completion", endpoint.host());
            Failure::Lost(Error::new(Code::HandlerFailed, message), taken)
        })
    }

    /// Returns how long to wait: as long as the endpoint asks, else doubling.
    ///
    /// Half of it is fixed and half is random, so that callers that failed together do not retry
    /// together.
    fn wait(&self, repeats: u32, asked: Option<Duration>) -> Duration {
        let step = self.config.retry_wait.saturating_mul(1 << repeats.min(16));
        let jittered = jittered(step, 0.5..=1.0);
        asked.map_or(jittered.min(self.config.max_retry_wait), |asked| {
            asked.max(jittered)
        })
    }
}

/// Returns the header that holds the key.
fn authorization(endpoint: &Endpoint) -> Result<Option<HeaderValue>> {
    let Some(key) = &endpoint.key else {
        return Ok(None);
    };
    let key = key.expose_for(endpoint.host())?.trim();
    if key.is_empty() {
        return Err(Error::new(
            Code::CredentialInvalid,
            "the model's credential is empty",
        ));
    }
    let mut header = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| {
        Error::new(
            Code::CredentialInvalid,
            "the model's credential has characters that no HTTP header can have",
        )
    })?;
    header.set_sensitive(true);
    Ok(Some(header))
}

/// Reads a body; `None` if it is over the limit. Then what was read is dropped.
async fn read(
    endpoint: &Endpoint,
    mut response: Response,
    limit: usize,
) -> Result<Option<Vec<u8>>, Failure> {
    let mut body = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| trouble(endpoint, error))?
    {
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
    let (unconnected, silent) = (error.is_connect(), error.is_timeout());
    let message = if unconnected {
        format!("{host} cannot be reached")
    } else if silent {
        format!("{host} was silent for too long")
    } else {
        format!("the connection to {host} broke")
    };
    // The URL's path and query are the operator's business.
    let error = Error::new(Code::HandlerFailed, message).with_source(error.without_url());
    if silent && !unconnected {
        Failure::Lost(error, Taken::default())
    } else {
        Failure::Passing(error)
    }
}
