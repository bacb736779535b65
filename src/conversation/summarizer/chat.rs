//! Summarizer for an OpenAI-compatible endpoint.
//!
//! It tries once; the worker decides when to ask again.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use helmdeck_core::{Code, Secret};
use helmdeck_llm::{Answer, Client, Config, Endpoint, Message, Request, Unanswered};

use super::{
    Failure, SummarizeError, SummarizeRequest, SummarizeResponse, Summarizer, check, prompt,
};
use crate::config::SummarizerConfig;
use crate::identity::Identity;

/// Low, for plain summaries, but not 0: the same turns would fail the same way for ever.
const TEMPERATURE: f32 = 0.2;

/// Finds the endpoint's key for the owner of a conversation; `None` = request without one.
type FindKey = dyn Fn(&Identity) -> helmdeck_core::Result<Option<Secret>> + Send + Sync;

/// Asks a model for summaries.
pub struct ChatSummarizer {
    client: Client,
    timeout: Duration,
    find_key: Box<FindKey>,
}

/// Returns the client settings for a [`ChatSummarizer`].
///
/// The client sends each request once. Its timeouts are longer than the deadline of a request,
/// which ends slow ones.
#[must_use]
pub fn client_config(settings: &SummarizerConfig) -> Config {
    let patience = settings.timeout.saturating_add(Duration::from_secs(1));
    Config {
        endpoint: settings.endpoint.clone(),
        model: settings.model.clone(),
        timeout: patience,
        idle_timeout: patience,
        max_repeats: 0,
        ..Config::default()
    }
}

impl ChatSummarizer {
    /// Makes a summarizer. `client` has the settings of [`client_config`].
    ///
    /// `find_key` is called for each summary; its result goes to the configured endpoint only.
    #[must_use]
    pub fn new(
        client: Client,
        settings: &SummarizerConfig,
        find_key: impl Fn(&Identity) -> helmdeck_core::Result<Option<Secret>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            client,
            timeout: settings.timeout,
            find_key: Box::new(find_key),
        }
    }

    /// Asks with temperature and token limit, then without.
    ///
    /// Some models accept no temperature, or have another name for the limit.
    async fn ask(
        &self,
        endpoint: &Endpoint,
        messages: &[Message],
        max_tokens: u32,
        deadline: Option<Instant>,
    ) -> Result<Answer, Unanswered> {
        let plain = Request {
            messages,
            ..Request::default()
        };
        let tuned = Request {
            temperature: Some(TEMPERATURE),
            max_tokens: Some(max_tokens),
            ..plain
        };
        match self.client.chat(endpoint, &tuned, deadline).await {
            Err(refused) if refused.error.code() == Code::InvalidInput => {
                self.client.chat(endpoint, &plain, deadline).await
            }
            other => other,
        }
    }
}

#[async_trait]
impl Summarizer for ChatSummarizer {
    async fn summarize(
        &self,
        identity: &Identity,
        request: SummarizeRequest,
    ) -> Result<SummarizeResponse, SummarizeError> {
        let key = (self.find_key)(identity).map_err(|error| {
            failed(
                Failure::Credential,
                format!(
                    "the credential of the summarizer cannot be had ({})",
                    error.code()
                ),
            )
        })?;
        let endpoint =
            self.client
                .endpoint(None, None, key)
                .map_err(|error| match error.code() {
                    Code::Forbidden => failed(
                        Failure::Credential,
                        "the credential is not for the host of the summarizer",
                    ),
                    _ => failed(
                        Failure::Refused,
                        "the summarizer has no endpoint, or no model",
                    ),
                })?;
        let messages = prompt::messages(&request);
        let max_tokens = answer_tokens(request.max_tokens);
        // A deadline beyond the clock's range is none.
        let deadline = Instant::now().checked_add(self.timeout);
        let answer = self.ask(&endpoint, &messages, max_tokens, deadline).await;
        let answer = answer.map_err(|unanswered| {
            let error = unanswered_error(&endpoint, &unanswered);
            // On a busy machine the connection may fail before the deadline is checked.
            let late = error.reason == Failure::Unavailable
                && deadline.is_some_and(|at| at <= Instant::now());
            if late {
                SummarizeError {
                    reason: Failure::Timeout,
                    ..error
                }
            } else {
                error
            }
        })?;
        let asked_bytes = messages[1].bytes();
        match check::summary(&answer, max_tokens, asked_bytes) {
            Ok(summary) => Ok(SummarizeResponse { summary }),
            Err((reason, detail)) => Err(failed(reason, detail)),
        }
    }
}

helmdeck_core::redacted_debug!(ChatSummarizer, this => timeout = this.timeout);

/// Returns the token limit of an answer: generous, for models that count badly.
fn answer_tokens(summary_tokens: u64) -> u32 {
    u32::try_from(summary_tokens.saturating_mul(2).saturating_add(64)).unwrap_or(u32::MAX)
}

fn failed(reason: Failure, detail: impl Into<String>) -> SummarizeError {
    SummarizeError {
        reason,
        retry_after: None,
        detail: detail.into(),
    }
}

fn unanswered_error(endpoint: &Endpoint, unanswered: &Unanswered) -> SummarizeError {
    let error = &unanswered.error;
    // A broken connection has a source error; a complete but invalid answer has none.
    let came_whole = unanswered.lost && std::error::Error::source(error).is_none();
    let reason = match error.code() {
        Code::CredentialInvalid => Failure::Credential,
        Code::RateLimited => Failure::RateLimited,
        Code::TooLarge => Failure::TooLong,
        Code::Timeout => Failure::Timeout,
        Code::InvalidInput | Code::NotFound => Failure::Refused,
        Code::HandlerFailed if came_whole => Failure::Garbage,
        _ => Failure::Unavailable,
    };
    let detail = match reason {
        // The message may repeat the endpoint's words, and those may repeat the turns.
        Failure::Refused => {
            format!(
                "{} does not accept the request, or has no model {:?}",
                endpoint.origin(),
                endpoint.model()
            )
        }
        _ => [error.message(), &error.cause()]
            .map(str::trim)
            .join(": ")
            .trim_end_matches(": ")
            .to_owned(),
    };
    SummarizeError {
        reason,
        retry_after: error.retry_after(),
        detail,
    }
}
