//! Errors of a tracker. No message contains a key.

use std::fmt;
use std::time::Duration;

use helmdeck_forge::Category;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of an error: a closed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The key is missing, or the tracker does not accept it.
    Auth,
    /// The key may not do this.
    Forbidden,
    /// Not found, or not visible to the key.
    NotFound,
    /// The tracker refuses the input.
    Invalid,
    /// Too many requests for now.
    RateLimited,
    /// The tracker failed.
    Server,
    /// No connection was made: nothing was sent.
    Unreachable,
    /// The connection broke after the request was sent, which may have been carried out.
    Lost,
    /// The answer has another shape than the documented one.
    Shape,
    /// The answer or the text is larger than the limit.
    TooLarge,
    /// The settings do not allow this: endpoint, team, names without a counterpart.
    Settings,
}

impl Kind {
    /// Returns the code of the error, for programs.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Auth => "E_TRACKER_AUTH",
            Self::Forbidden => "E_TRACKER_FORBIDDEN",
            Self::NotFound => "E_TRACKER_NOT_FOUND",
            Self::Invalid => "E_TRACKER_INVALID",
            Self::RateLimited => "E_TRACKER_RATE_LIMITED",
            Self::Server => "E_TRACKER_SERVER",
            Self::Unreachable => "E_TRACKER_UNREACHABLE",
            Self::Lost => "E_TRACKER_LOST",
            Self::Shape => "E_TRACKER_SHAPE",
            Self::TooLarge => "E_TRACKER_TOO_LARGE",
            Self::Settings => "E_TRACKER_SETTINGS",
        }
    }

    /// Says whether a retry fails the same way until a person changes something.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        !matches!(
            self,
            Self::RateLimited | Self::Server | Self::Unreachable | Self::Lost
        )
    }
}

/// An error of a tracker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Its kind.
    pub kind: Kind,
    /// What failed, and why.
    pub message: String,
    /// The wait that the tracker asks for.
    pub retry_after: Option<Duration>,
}

impl Error {
    /// Makes an error.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after: None,
        }
    }

    /// Adds the wait that the tracker asks for.
    #[must_use]
    pub const fn after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<Error> for helmdeck_forge::Error {
    fn from(error: Error) -> Self {
        let category = match error.kind {
            Kind::Auth | Kind::Forbidden => Category::Refused,
            Kind::NotFound => Category::NotFound,
            Kind::Settings => Category::Usage,
            _ => Category::Failed,
        };
        let made = Self::new(category, error.kind.code(), error.message);
        match (error.kind, error.retry_after) {
            (_, Some(wait)) => made.hint(format!(
                "try again in {} seconds; nothing is lost meanwhile",
                wait.as_secs().max(1)
            )),
            (Kind::Auth, None) => made
                .hint("set the key of the tracker in the environment, and check that it is valid"),
            (kind, None) if !kind.is_permanent() => {
                made.hint("try again later; changes wait in the outbox")
            }
            _ => made,
        }
    }
}
