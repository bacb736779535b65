//! Maps an unsuccessful answer to an error, by its status and the fields of its body.
//!
//! Never searches message text. Source: OpenAI's [error
//! codes](https://platform.openai.com/docs/guides/error-codes), and what llama.cpp answers.

use std::time::Duration;

use helmdeck_core::text::excerpt;
use helmdeck_core::upstream::retry_after;
use helmdeck_core::{Code, Error};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::Value;

use crate::endpoint::Endpoint;

/// The wait after a limit that names none.
const DEFAULT_WAIT: Duration = Duration::from_secs(20);

/// The longest wait that is believed.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum length of the endpoint's own words in a message, in bytes.
const MAX_WORDS_BYTES: usize = 300;

/// Error codes for a conversation that is too long for the model.
///
/// They are from OpenAI, vLLM and gateways; llama.cpp; OpenAI for one text.
const TOO_LONG: [&str; 3] = [
    "context_length_exceeded",
    "exceed_context_size_error",
    "string_above_max_length",
];

/// The error code for an account without money: a wait does not help.
const NO_MONEY: &str = "insufficient_quota";

#[derive(Deserialize, Default)]
#[serde(default)]
struct Body {
    error: Problem,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Problem {
    message: Value,
    code: Value,
    #[serde(rename = "type")]
    kind: Value,
}

impl Problem {
    fn is(&self, word: &str) -> bool {
        self.code.as_str() == Some(word) || self.kind.as_str() == Some(word)
    }
}

/// Returns the error that an unsuccessful answer means.
///
/// `too_large` means that the conversation is too long for the model.
pub(crate) fn classify(
    endpoint: &Endpoint,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> Error {
    let Body { error: problem } = serde_json::from_slice(body).unwrap_or_default();
    let host = endpoint.host();
    let status_number = status.as_u16();
    if status == StatusCode::PAYLOAD_TOO_LARGE || TOO_LONG.iter().any(|word| problem.is(word)) {
        return Error::new(
            Code::TooLarge,
            format!(
                "the conversation is too long for the model {:?}",
                endpoint.model
            ),
        );
    }
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => refused(endpoint),
        StatusCode::PAYMENT_REQUIRED => no_money(host),
        StatusCode::TOO_MANY_REQUESTS if problem.is(NO_MONEY) => no_money(host),
        StatusCode::TOO_MANY_REQUESTS => {
            let wait = asked_wait(headers).unwrap_or(DEFAULT_WAIT);
            Error::new(
                Code::RateLimited,
                format!("the rate limit at {host} is used up"),
            )
            .with_retry_after(wait)
        }
        StatusCode::NOT_FOUND => {
            let message = format!(
                "{host} has no model {:?}, or no chat completions below the endpoint's path{}",
                endpoint.model,
                words(&problem, endpoint)
            );
            Error::new(Code::NotFound, message)
        }
        _ if status.is_redirection() => {
            let message =
                format!("{host} answered with a redirect ({status_number}), which is not followed");
            Error::new(Code::InvalidInput, message)
        }
        _ if status.is_client_error() => {
            let message = format!(
                "{host} does not accept the request ({status_number}){}",
                words(&problem, endpoint)
            );
            Error::new(Code::InvalidInput, message)
        }
        _ => {
            let error = Error::new(
                Code::HandlerFailed,
                format!("{host} answered {status_number}"),
            );
            match asked_wait(headers) {
                Some(wait) => error.with_retry_after(wait),
                None => error,
            }
        }
    }
}

fn refused(endpoint: &Endpoint) -> Error {
    let host = endpoint.host();
    let message = match (&endpoint.key, endpoint.withheld) {
        (Some(_), _) => format!("{host} does not accept the model's credential"),
        (None, true) => format!(
            "{host} wants a credential, and that of the model does not go there: it has to be bound to this host, and the address to be https"
        ),
        (None, false) => format!("{host} wants a credential, and there is none for the model"),
    };
    Error::new(Code::CredentialInvalid, message)
}

fn no_money(host: &str) -> Error {
    Error::new(
        Code::CredentialInvalid,
        format!("the account at {host} has no credit left"),
    )
}

/// Returns how long the endpoint asks to wait: in milliseconds in a header of OpenAI's, or as HTTP
/// has it.
fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let millis = header("retry-after-ms").and_then(|millis| millis.trim().parse::<f64>().ok());
    let wait = match millis {
        Some(millis) => Duration::try_from_secs_f64(millis / 1000.0).ok(),
        None => retry_after(header),
    };
    wait.map(|wait| wait.min(MAX_WAIT))
}

/// Returns the endpoint's own words, fit for a message.
///
/// That is one short line, without control characters and without the key.
fn words(problem: &Problem, endpoint: &Endpoint) -> String {
    let Some(said) = problem
        .message
        .as_str()
        .filter(|said| !said.trim().is_empty())
    else {
        return String::new();
    };
    let said = match &endpoint.key {
        Some(key) if !key.expose().trim().is_empty() => {
            said.replace(key.expose().trim(), "[secret]")
        }
        _ => said.to_owned(),
    };
    format!(": {}", excerpt(&said, MAX_WORDS_BYTES))
}
