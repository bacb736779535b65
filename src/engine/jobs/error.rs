//! Errors of jobs, in a form that can be stored.

use std::time::Duration;

use helmdeck_core::error::{Retry, Violation};
use helmdeck_core::{Code, Error};
use serde::{Deserialize, Serialize};

/// Error of a job: the public part of the call's error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobError {
    /// Error code.
    pub code: Code,
    /// The public message.
    pub message: String,
    /// Whether a retry may succeed.
    pub retry: Retry,
    /// Time until a retry makes sense, in milliseconds, if known.
    #[serde(
        rename = "retry_after_ms",
        with = "millis",
        skip_serializing_if = "Option::is_none"
    )]
    pub retry_after: Option<Duration>,
    /// Violations of the schema.
    #[serde(rename = "errors", skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
    /// Whether only the operator can fix it.
    #[serde(skip)]
    pub for_operator: bool,
}

/// Stored form.
#[derive(Serialize, Deserialize)]
struct Document {
    code: Code,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    errors: Vec<InputProblem>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    for_operator: bool,
}

#[derive(Serialize, Deserialize)]
struct InputProblem {
    pointer: String,
    detail: String,
}

impl JobError {
    /// Makes the error of a job whose process has ended or is ending.
    pub(super) fn stopped() -> Self {
        Self::of(&Error::new(
            Code::Overloaded,
            "the server stopped while this job ran; start it again",
        ))
    }

    /// Makes the error of a job that no process took until it expired.
    pub(super) fn unclaimed() -> Self {
        let message =
            "no server that has this pack in this version took the job in time; start it again";
        Self::of(&Error::new(Code::Overloaded, message))
    }

    /// Takes the public part of an error.
    pub(super) fn of(error: &Error) -> Self {
        Self {
            code: error.code(),
            message: error.message().to_owned(),
            retry: error.code().retry(),
            retry_after: error.retry_after(),
            violations: error.violations().to_vec(),
            for_operator: error.is_for_operator(),
        }
    }

    /// Returns the error that the call itself returned.
    #[must_use]
    pub fn to_error(&self) -> Error {
        let error =
            Error::new(self.code, self.message.clone()).with_violations(self.violations.clone());
        let error = if self.for_operator {
            error.for_operator()
        } else {
            error
        };
        match self.retry_after {
            Some(after) => error.with_retry_after(after),
            None => error,
        }
    }

    /// Encodes the stored form.
    pub(super) fn to_document(&self) -> String {
        let places = self.violations.iter();
        let places = places.map(|it| InputProblem {
            pointer: it.pointer.clone(),
            detail: it.detail.clone(),
        });
        let document = Document {
            code: self.code,
            message: self.message.clone(),
            retry_after_ms: self
                .retry_after
                .map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
            errors: places.collect(),
            for_operator: self.for_operator,
        };
        // Plain data: writing it to memory cannot fail.
        serde_json::to_string(&document).unwrap_or_default()
    }

    /// Decodes the stored form; `None` if it is malformed.
    pub(super) fn of_document(text: &str) -> Option<Self> {
        let document: Document = serde_json::from_str(text).ok()?;
        let places = document.errors.into_iter();
        Some(Self {
            code: document.code,
            message: document.message,
            for_operator: document.for_operator,
            retry: document.code.retry(),
            retry_after: document.retry_after_ms.map(Duration::from_millis),
            violations: places
                .map(|it| Violation {
                    pointer: it.pointer,
                    detail: it.detail,
                })
                .collect(),
        })
    }
}

mod millis {
    use std::time::Duration;

    use serde::Serializer;

    #[expect(clippy::ref_option, reason = "the form that serde asks for")]
    pub(super) fn serialize<S: Serializer>(
        after: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(after.map_or(0, |after| {
            u64::try_from(after.as_millis()).unwrap_or(u64::MAX)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_round_trip_keeps_all_but_the_cause() {
        let violation = Violation {
            pointer: "/a".into(),
            detail: "is missing".into(),
        };
        let error = Error::new(Code::RateLimited, "slow down")
            .with_retry_after(Duration::from_millis(1_500))
            .with_violations(vec![violation])
            .with_source("a token")
            .for_operator();
        let kept = JobError::of(&error);
        let document = kept.to_document();
        assert!(!document.contains("token"), "{document}");
        let read = JobError::of_document(&document).unwrap();
        assert_eq!(read, kept);
        assert_eq!(read.to_error().problem(), error.problem());
        assert_eq!(
            JobError::of_document("{\"code\":\"no such\",\"message\":\"\"}"),
            None
        );
    }

    #[test]
    fn lost_job_is_retryable_and_no_caller_fault() {
        let lost = JobError::stopped();
        assert_eq!(
            (lost.retry, lost.code.fault()),
            (Retry::Later, helmdeck_core::Fault::Host)
        );
    }
}
