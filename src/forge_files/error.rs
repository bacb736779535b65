//! Errors, each with a category and its exit code.

use std::fmt;

use serde::Serialize;

use crate::secrets::shown;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Category of an error: a closed set, each with an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// An operation failed: a test, a program, a file that cannot be written.
    Failed = 1,
    /// The request is malformed.
    Usage,
    /// Not found.
    NotFound,
    /// Work is paused until a person acknowledges the reason.
    Paused,
    /// Another process or session holds it.
    Locked,
    /// It was changed since the caller read it.
    Stale,
    /// A text looks like a credential.
    Secret,
    /// A file is damaged. Nothing was written over it.
    Corrupt,
    /// A rule of the project forbids it.
    Refused,
    /// The state of the project cannot be determined.
    Unknown,
}

impl Category {
    /// Every category, in the order of the exit codes.
    pub const ALL: [Self; 10] = {
        use Category::*;
        [
            Failed, Usage, NotFound, Paused, Locked, Stale, Secret, Corrupt, Refused, Unknown,
        ]
    };

    /// Returns the exit code of a command that ends so.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        self as u8
    }
}

/// An error. Its texts never hold a secret, nor a command that destroys anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Error {
    /// Which error it is, for programs: `E_CORRUPT`, `E_NOT_A_REPO`.
    pub code: &'static str,
    /// What kind of error it is.
    pub category: Category,
    /// What went wrong, and where.
    pub message: String,
    /// A likely cause, or how to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// A command that is safe to run next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The current content, if the caller's copy is stale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<Box<Current>>,
}

/// The current content of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Current {
    /// The etag of these bytes.
    pub etag: String,
    /// Its text.
    pub text: String,
}

impl Error {
    /// Makes an error.
    pub fn new(category: Category, code: &'static str, message: impl Into<String>) -> Self {
        // Whatever a caller got wrong may be named in it.
        Self {
            code,
            category,
            message: shown(message.into()),
            hint: None,
            next: None,
            current: None,
        }
    }

    /// Adds a hint how to fix it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(shown(hint.into()));
        self
    }

    /// Adds a command that is safe to run next.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(shown(next.into()));
        self
    }

    /// Makes `Failed` of an input or output error at a path.
    pub fn io(doing: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::new(
            Category::Failed,
            "E_IO",
            format!("{doing} {}: {error}", path.display()),
        )
    }

    /// Makes `Usage`.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Category::Usage, "E_USAGE", message)
    }

    /// Makes `NotFound`.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Category::NotFound, "E_NOT_FOUND", message)
    }

    /// Makes `Refused`.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(Category::Refused, "E_REFUSED", message)
    }
}

impl From<&Error> for helmdeck_core::Error {
    /// Makes the error of a call: the same code and text, and what to do.
    fn from(error: &Error) -> Self {
        use helmdeck_core::Code;
        let code = match error.category {
            _ if error.code == "E_TOO_LARGE" => Code::TooLarge,
            Category::Usage | Category::Secret => Code::InvalidInput,
            Category::NotFound => Code::NotFound,
            Category::Refused | Category::Paused => Code::Forbidden,
            Category::Locked | Category::Stale | Category::Unknown => Code::Conflict,
            Category::Failed => Code::HandlerFailed,
            // Calling again would not help.
            Category::Corrupt => Code::Internal,
        };
        let mut message = format!("{} ({})", error.message, error.code);
        message.extend(error.hint.iter().map(|hint| format!("; {hint}")));
        message.extend(
            error
                .next
                .iter()
                .map(|next| format!("; next, at a shell: {next}")),
        );
        Self::new(code, message)
    }
}

impl From<helmdeck_git::Error> for Error {
    fn from(error: helmdeck_git::Error) -> Self {
        let category = match error.kind {
            helmdeck_git::Kind::Failed => Category::Failed,
            helmdeck_git::Kind::Usage => Category::Usage,
            helmdeck_git::Kind::NotFound => Category::NotFound,
            helmdeck_git::Kind::Refused => Category::Refused,
        };
        Self {
            hint: error.hint.map(shown),
            ..Self::new(category, error.code, error.message)
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
