//! Maps an unsuccessful answer to an error, by status, headers and documented fields.
//!
//! Never searches message text. Sources: GitHub's documentation of
//! [rate limits](https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api) and
//! [troubleshooting](https://docs.github.com/en/rest/using-the-rest-api/troubleshooting-the-rest-api).

use std::time::Duration;

use helmdeck_core::text::excerpt;
use helmdeck_core::upstream::retry_after;
use helmdeck_core::{Code, Error, Quota, Timestamp};
use http::StatusCode;
use serde::Deserialize;

use super::client::{Received, Target};

/// The wait that GitHub asks for where a secondary limit names none.
const DEFAULT_WAIT: Duration = Duration::from_secs(60);

/// The longest wait that is believed.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum length of GitHub's own words in a message, in bytes.
const MAX_WORDS_BYTES: usize = 300;

/// The whole messages of a 403 that means wrong credentials; GitHub gives no other sign of it.
const BAD_CREDENTIALS: [&str; 2] = [
    "Bad credentials",
    "Maximum number of login attempts exceeded. Please try again later.",
];

#[derive(Deserialize, Default)]
#[serde(default)]
struct Body {
    message: String,
    documentation_url: String,
    errors: Vec<Problem>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Problem {
    Words(String),
    Fields {
        #[serde(default)]
        resource: String,
        #[serde(default)]
        field: String,
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    },
    Other(serde::de::IgnoredAny),
}

/// Returns the error that an unsuccessful answer means.
pub(super) fn classify(
    received: &Received,
    target: &Target,
    with_token: bool,
    now: Timestamp,
) -> Error {
    let path = excerpt(
        target.1.split('?').next().unwrap_or_default(),
        MAX_WORDS_BYTES,
    );
    let body: Body = serde_json::from_slice(&received.body).unwrap_or_default();
    if let Some((wait, Limit::Secondary)) = limited(received, &body, now) {
        let message = "GitHub's secondary rate limit holds this machine back: too many requests in a short time";
        return Error::new(Code::RateLimited, message).with_retry_after(wait);
    }
    if let Some((wait, Limit::Primary)) = limited(received, &body, now) {
        let whose = if with_token {
            "the GitHub credential's"
        } else {
            "this machine's anonymous GitHub"
        };
        return Error::new(Code::RateLimited, format!("{whose} rate limit is used up"))
            .with_retry_after(wait);
    }
    match received.status {
        StatusCode::UNAUTHORIZED if with_token => Error::new(
            Code::CredentialInvalid,
            "GitHub does not accept the credential",
        ),
        StatusCode::UNAUTHORIZED => Error::new(
            Code::CredentialInvalid,
            format!("GitHub wants a credential for {path}"),
        ),
        StatusCode::FORBIDDEN if wants_sign_on(received) => Error::new(
            Code::CredentialInvalid,
            "the GitHub credential is not authorised for this organisation's single sign-on",
        ),
        StatusCode::FORBIDDEN if BAD_CREDENTIALS.contains(&body.message.as_str()) => Error::new(
            Code::CredentialInvalid,
            "GitHub does not accept the credential",
        ),
        StatusCode::FORBIDDEN | StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS => Error::new(
            Code::Forbidden,
            with_words(format!("GitHub does not allow {path}"), &body),
        ),
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            let hint = if with_token {
                "or the credential may not see it"
            } else {
                "or it is not public and needs a credential"
            };
            Error::new(Code::NotFound, format!("GitHub has no {path}, {hint}"))
        }
        StatusCode::CONFLICT => Error::new(
            Code::Conflict,
            with_words(format!("GitHub refused {path}"), &body),
        ),
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Error::new(
            Code::InvalidInput,
            with_words("GitHub does not accept the input".to_owned(), &body),
        ),
        StatusCode::NOT_ACCEPTABLE => Error::new(
            Code::TooLarge,
            with_words(
                format!("GitHub cannot give {path} in the form asked for"),
                &body,
            ),
        ),
        status => {
            let error = Error::new(
                Code::HandlerFailed,
                format!("GitHub answered {} for {path}", status.as_u16()),
            );
            let error = if status == StatusCode::SERVICE_UNAVAILABLE {
                error.of_upstream()
            } else {
                error
            };
            match wait(received) {
                Some(wait) => error.with_retry_after(wait),
                None => error,
            }
        }
    }
}

/// The limit that GitHub means: the hourly quota, or one against bursts, which leaves the quota
/// alone.
enum Limit {
    Primary,
    Secondary,
}

/// Returns how long to wait if the answer means a used-up limit, and which.
fn limited(received: &Received, body: &Body, now: Timestamp) -> Option<(Duration, Limit)> {
    if !matches!(
        received.status,
        StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
    ) {
        return None;
    }
    let used_up = received.header("x-ratelimit-remaining").map(str::trim) == Some("0");
    if let Some(wait) = wait(received) {
        return Some((
            wait,
            if used_up {
                Limit::Primary
            } else {
                Limit::Secondary
            },
        ));
    }
    if used_up {
        let wait = quota(received, now).map_or(DEFAULT_WAIT, |quota| quota.reset);
        return Some((wait.clamp(Duration::from_secs(1), MAX_WAIT), Limit::Primary));
    }
    let page = &body.documentation_url;
    let secondary = page.ends_with("secondary-rate-limits") || page.ends_with("abuse-rate-limits");
    (secondary || received.status == StatusCode::TOO_MANY_REQUESTS)
        .then_some((DEFAULT_WAIT, Limit::Secondary))
}

/// Returns what is left of the quota, if the answer says so.
pub(super) fn quota(received: &Received, now: Timestamp) -> Option<Quota> {
    Quota::read(|name| received.header(name), now)
}

/// Returns the wait that GitHub asks for, if it does.
fn wait(received: &Received) -> Option<Duration> {
    let wait = retry_after(|name| received.header(name))?;
    Some(wait.clamp(Duration::from_secs(1), MAX_WAIT))
}

fn wants_sign_on(received: &Received) -> bool {
    let required = |name| {
        received
            .header(name)
            .is_some_and(|value| value.trim_start().starts_with("required"))
    };
    required("x-github-sso") || required("x-github-otp")
}

/// Adds GitHub's own words and the fields it names.
fn with_words(mut text: String, body: &Body) -> String {
    if !body.message.is_empty() {
        text.push_str(": ");
        text.push_str(&excerpt(&body.message, MAX_WORDS_BYTES));
    }
    for problem in body.errors.iter().take(5) {
        let named = match problem {
            Problem::Words(said) => excerpt(said, MAX_WORDS_BYTES),
            Problem::Fields {
                resource,
                field,
                code,
                message,
            } => {
                let place = [resource, field].map(|part| excerpt(part, MAX_WORDS_BYTES));
                let place = place
                    .iter()
                    .filter(|part| !part.is_empty())
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(".");
                let said = if message.is_empty() { code } else { message };
                format!("{place} {}", excerpt(said, MAX_WORDS_BYTES))
                    .trim()
                    .to_owned()
            }
            Problem::Other(_) => continue,
        };
        if !named.is_empty() {
            text.push_str("; ");
            text.push_str(&named);
        }
    }
    text
}
