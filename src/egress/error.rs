//! Errors of the guard. No message contains more of a URL than its host.

use std::sync::Arc;

use helmdeck_core::Code;

/// The longest host that a message repeats, in bytes.
const MAX_HOST_BYTES: usize = 255;

/// A host that may not be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "host \"{host}\" may not be reached: {reason}; the operator can allow it with HELMDECK_EGRESS_ALLOW={host} or `[egress] allow = [\"{host}\"]`"
)]
pub struct Refused {
    /// The host as the URL names it.
    pub host: String,
    /// Why (`it is a private address`).
    pub reason: String,
}

impl Refused {
    pub(crate) fn new(host: &str, reason: impl Into<String>) -> Self {
        let end = host.floor_char_boundary(MAX_HOST_BYTES);
        Self {
            host: host[..end].to_owned(),
            reason: reason.into(),
        }
    }
}

/// Why nothing went out.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host may not be reached.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The URL is not one that an HTTP client can use.
    #[error("only http and https URLs with a host can be reached")]
    NotHttp,
    /// The URL names no server of a known protocol.
    #[error(
        "only nats and tls URLs with a host can be reached by clients other than those of HTTP"
    )]
    NotServer,
    /// The client cannot be set up, for example because the system has no certificates.
    #[error("the HTTP client cannot be set up")]
    Setup(#[source] Arc<reqwest::Error>),
    /// The program is ending.
    #[error("the program is ending")]
    Ending,
}

impl From<Refused> for helmdeck_core::Error {
    fn from(refused: Refused) -> Self {
        Self::new(Code::Forbidden, refused.to_string())
    }
}

impl From<Error> for helmdeck_core::Error {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Refused(refused) => refused.into(),
            Error::NotHttp | Error::NotServer => Self::new(Code::InvalidInput, message),
            Error::Setup(_) => Self::new(Code::Internal, message).with_source(error),
            Error::Ending => Self::new(Code::Cancelled, message),
        }
    }
}

/// Returns the refusal inside an error of the client, if that is its cause.
#[must_use]
pub fn refusal<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Refused> {
    chain(error).find_map(|error| match error.downcast_ref() {
        Some(Error::Refused(refused)) => Some(refused),
        _ => error.downcast_ref(),
    })
}

/// Returns whether a client error means that no connection was made.
///
/// Then nothing can have been sent.
#[must_use]
pub fn never_connected(error: &(dyn std::error::Error + 'static)) -> bool {
    chain(error)
        .filter_map(|error| error.downcast_ref::<reqwest::Error>())
        .any(reqwest::Error::is_connect)
}

fn chain<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}
