//! Refuses output that does not fit the pack's schema, so that nothing outside ever sees or stores it.

use std::sync::Arc;
use std::task::{Context, Poll};

use helmdeck_core::{Call, Code, Error, Manifest, Outcome, Result};
use tower::{Layer, Service};

use super::finish::{After, Finish};

/// Checks output against a manifest.
#[derive(Debug, Clone)]
pub(crate) struct ValidateOutputLayer(pub(crate) Arc<Manifest>);

impl<S> Layer<S> for ValidateOutputLayer {
    type Service = ValidateOutput<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ValidateOutput { inner, manifest: Arc::clone(&self.0) }
    }
}

/// The service of [`ValidateOutputLayer`].
#[derive(Debug, Clone)]
pub(crate) struct ValidateOutput<S> {
    inner: S,
    manifest: Arc<Manifest>,
}

impl<S: Service<Call, Response = Outcome, Error = Error>> Service<Call> for ValidateOutput<S> {
    type Response = Outcome;
    type Error = Error;
    type Future = Finish<S::Future, Check>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        Finish::new(self.inner.call(call), Check(Arc::clone(&self.manifest)))
    }
}

#[derive(Debug)]
pub(crate) struct Check(Arc<Manifest>);

impl After for Check {
    fn after(self, result: Result<Outcome>) -> Result<Outcome> {
        let outcome = result?;
        // A confirmed answer was checked when it was new, under the same contract.
        if outcome.remark.not_modified || self.0.output.accepts_unread(outcome.output.bytes()) {
            return Ok(outcome);
        }
        let invalid = || {
            let message = format!("the output of pack \"{}\" does not fit its schema", self.0.name);
            Error::new(Code::InvalidOutput, message)
        };
        let value = serde_json::from_slice(outcome.output.bytes()).map_err(|error| invalid().with_source(error))?;
        match self.0.output.validate(&value) {
            Ok(()) => Ok(outcome),
            Err(violations) => Err(invalid().with_violations(violations)),
        }
    }
}
