//! Error type of the engine and the transports: a closed set of codes.
//!
//! Each code has a fault, a retry hint and an HTTP status. The public message never holds the
//! cause, a panic text or a secret; the cause is for the log only. Errors are never classified by
//! their message text.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Party that is at fault for an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The caller can fix it.
    Caller,
    /// The pack (or the system behind it) is at fault.
    Pack,
    /// This machine or something it depends on is at fault.
    Host,
}

/// Whether a retry of the same call may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Not without a change.
    Never,
    /// Later, perhaps.
    Later,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $fault:ident, $retry:ident, $status:literal;)*) => {
        /// Error codes: a closed set.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $($(#[$doc])* $variant,)* }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the name on the wire (`invalid_input`).
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Returns the party at fault.
            #[must_use]
            pub const fn fault(self) -> Fault {
                match self { $(Self::$variant => Fault::$fault,)* }
            }

            /// Returns whether a later retry can help.
            #[must_use]
            pub const fn retry(self) -> Retry {
                match self { $(Self::$variant => Retry::$retry,)* }
            }

            /// Returns the HTTP status of the REST transport.
            #[must_use]
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }
        }
    };
}

codes! {
    /// The input does not match the pack's schema.
    InvalidInput = "invalid_input", Caller, Never, 400;
    /// The caller is not authenticated.
    Unauthenticated = "unauthenticated", Caller, Never, 401;
    /// The caller may not do this.
    Forbidden = "forbidden", Caller, Never, 403;
    /// Pack, version or other object not found.
    NotFound = "not_found", Caller, Never, 404;
    /// The state has changed: a rejected push, a version that is no longer the newest.
    Conflict = "conflict", Caller, Never, 409;
    /// The input is over a size limit.
    TooLarge = "too_large", Caller, Never, 413;
    /// A credential is missing, wrong or expired.
    CredentialInvalid = "credential_invalid", Caller, Never, 424;
    /// A quota is used up; `retry_after_ms` says when to try again.
    RateLimited = "rate_limited", Caller, Later, 429;
    /// A defect of helmdeck.
    Internal = "internal", Host, Never, 500;
    /// The handler's output does not match the pack's schema.
    InvalidOutput = "invalid_output", Pack, Never, 502;
    /// The handler failed.
    HandlerFailed = "handler_failed", Pack, Later, 502;
    /// An artifact could not be stored or read.
    ArtifactFailed = "artifact_failed", Host, Later, 502;
    /// The pack needs a session, and none is available.
    SessionUnavailable = "session_unavailable", Host, Later, 503;
    /// Disk, memory or a quota of this machine ran out.
    ResourceExhausted = "resource_exhausted", Host, Later, 507;
    /// The deadline passed.
    Timeout = "timeout", Host, Later, 504;
    /// Too many calls at once.
    Overloaded = "overloaded", Host, Later, 503;
    /// The caller accepts only a cached answer, and none is stored.
    CacheMiss = "cache_miss", Caller, Never, 504;
    /// The caller disconnected or cancelled.
    Cancelled = "cancelled", Caller, Never, 499;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::ALL
            .iter()
            .find(|code| code.as_str() == text)
            .copied()
            .ok_or_else(|| serde::de::Error::custom("not an error code"))
    }
}

/// Schema violation in a document. It names the place and the rule, never the value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// JSON pointer (RFC 6901) to the value; empty for the whole document.
    pub pointer: String,
    /// What is wrong with it.
    pub detail: String,
}

/// Error of a call.
///
/// Cheap to clone, so that one failed run can answer all its waiters.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    message: Cow<'static, str>,
    retry_after: Option<Duration>,
    violations: Vec<Violation>,
    for_operator: bool,
    of_upstream: bool,
    replica: Option<Box<str>>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Makes an error with a public message: lower case, no period, names the thing, no secret, no
    /// cause.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Arc::new(Inner {
            code,
            message: message.into(),
            retry_after: None,
            violations: Vec::new(),
            for_operator: false,
            of_upstream: false,
            replica: None,
            source: None,
        }))
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Keeps the cause, for the log only.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let source: Box<dyn std::error::Error + Send + Sync> = source.into();
        self.edit(|inner| inner.source = Some(Arc::from(source)))
    }

    /// Sets when the caller may retry.
    #[must_use]
    pub fn with_retry_after(self, after: Duration) -> Self {
        self.edit(|inner| inner.retry_after = Some(after))
    }

    /// Marks the error as one that only the operator can fix: something is not set up.
    ///
    /// The caller cannot help it by sending something else.
    #[must_use]
    pub fn for_operator(self) -> Self {
        self.edit(|inner| inner.for_operator = true)
    }

    /// Marks the error as one of the service behind the pack as a whole, such as status 503.
    ///
    /// Every other request would fail too, so a cached pack asks that service nothing for a while.
    /// `rate_limited` means that without a mark.
    #[must_use]
    pub fn of_upstream(self) -> Self {
        self.edit(|inner| inner.of_upstream = true)
    }

    /// Names the replica that has what was asked for.
    #[must_use]
    pub fn with_replica(self, name: &str) -> Self {
        self.edit(|inner| inner.replica = Some(name.into()))
    }

    /// Adds the violations of the schema.
    #[must_use]
    pub fn with_violations(self, violations: Vec<Violation>) -> Self {
        self.edit(|inner| inner.violations = violations)
    }

    /// Replaces the public message, for example to redact a secret.
    #[must_use]
    pub fn with_message(self, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        self.edit(|inner| inner.message = message)
    }

    /// Returns the code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Returns the public message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns whether only the operator can fix it.
    #[must_use]
    pub fn is_for_operator(&self) -> bool {
        self.0.for_operator
    }

    /// Returns whether the service behind the pack refuses every request, not only this one.
    #[must_use]
    pub fn is_of_upstream(&self) -> bool {
        self.0.of_upstream || self.0.code == Code::RateLimited
    }

    /// Returns the party at fault: that of the code, but never the caller if only the operator can
    /// fix it.
    #[must_use]
    pub fn fault(&self) -> Fault {
        if self.0.for_operator {
            Fault::Host
        } else {
            self.code().fault()
        }
    }

    /// Returns when the caller may retry, if known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns the replica that has what was asked for, if it is another one.
    #[must_use]
    pub fn replica(&self) -> Option<&str> {
        self.0.replica.as_deref()
    }

    /// Returns the places that break the schema, for `invalid_input` and `invalid_output`.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.0.violations
    }

    /// Returns the cause for the log: every error of the chain, joined by `: `. Empty without a
    /// cause.
    #[must_use]
    pub fn cause(&self) -> String {
        let mut text = String::new();
        let mut next: Option<&(dyn std::error::Error + 'static)> =
            self.0.source.as_deref().map(|source| source as _);
        while let Some(error) = next {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&error.to_string());
            next = error.source();
        }
        text
    }

    /// Returns the body of RFC 9457 problem details.
    ///
    /// Its members are `type`, `title`, `status`, `detail`, and our `code`, `fault`, `retry`,
    /// `retry_after_ms`, `errors`.
    #[must_use]
    pub fn problem(&self) -> serde_json::Value {
        let code = self.code();
        let mut problem = serde_json::json!({
            "type": format!("urn:helmdeck:error:{code}"),
            "title": code.as_str().replace('_', " "),
            "status": code.http_status(),
            "detail": self.message(),
            "code": code,
            "fault": self.fault(),
            "retry": code.retry(),
        });
        if let Some(after) = self.retry_after() {
            problem["retry_after_ms"] = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).into();
        }
        if let Some(replica) = self.replica() {
            problem["replica"] = replica.into();
        }
        if !self.violations().is_empty() {
            problem["errors"] = serde_json::json!(self.violations());
        }
        problem
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.message)?;
        for violation in &self.0.violations {
            let place = if violation.pointer.is_empty() {
                "/"
            } else {
                &violation.pointer
            };
            write!(f, "; at {place}: {}", violation.detail)?;
        }
        Ok(())
    }
}

redacted_debug!(Error, this => code = this.0.code, message = this.0.message);

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_eighteen_and_read_back() {
        assert_eq!(Code::ALL.len(), 18);
        for code in Code::ALL {
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(serde_json::from_str::<Code>(&json).unwrap(), *code);
        }
    }

    #[test]
    fn the_cause_stays_out_of_public_text() {
        let error = Error::new(Code::HandlerFailed, "upstream failed")
            .with_source("token ghp_secret was refused");
        assert!(!error.to_string().contains("ghp_secret"));
        assert!(!format!("{error:?}").contains("ghp_secret"));
        assert!(!error.problem().to_string().contains("ghp_secret"));
        assert!(error.cause().contains("ghp_secret"));
    }
}
