//! Errors of git.

use std::fmt;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of error it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// git, the network or the disk failed.
    Failed,
    /// The caller's input is invalid.
    Usage,
    /// It does not exist.
    NotFound,
    /// The state of the repository forbids it.
    Refused,
}

/// An error of git. Its texts are not redacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The code, for programs: `E_GIT`, `E_NO_GIT`, `E_TIMEOUT`, `E_TOO_LARGE`, `E_BARE_REPO`,
    /// `E_IO`, `E_USAGE`, `E_NOT_FOUND`, `E_REFUSED`.
    pub code: &'static str,
    /// The kind.
    pub kind: Kind,
    /// What failed.
    pub message: String,
    /// How to repair it.
    pub hint: Option<String>,
}

#[cfg(feature = "run")]
impl Error {
    pub(crate) fn new(kind: Kind, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            kind,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }

    pub(crate) fn io(doing: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::new(
            Kind::Failed,
            "E_IO",
            format!("{doing} {}: {error}", path.display()),
        )
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, "E_USAGE", message)
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(Kind::Refused, "E_REFUSED", message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
