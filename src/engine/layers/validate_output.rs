//! Refuses output that does not match the pack's schema, before it is returned or stored.
//!
//! Answers of handlers outside this binary are parsed strictly too: at most 128 levels, and no
//! duplicate key in an object.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use helmdeck_core::error::Violation;
use helmdeck_core::manifest::HandlerSpec;
use helmdeck_core::schema::Effort;
use helmdeck_core::{Call, Code, Error, Manifest, Outcome, Result, json};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::heavy::{self, Patience, Side};

/// Checks output against a manifest.
#[derive(Debug, Clone)]
pub(crate) struct ValidateOutputLayer(pub(crate) Arc<Manifest>);

impl<S> Layer<S> for ValidateOutputLayer {
    type Service = ValidateOutput<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ValidateOutput {
            inner,
            manifest: Arc::clone(&self.0),
        }
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
    type Future = Checking<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let patience = Patience::of(&call);
        let (inner, manifest) = (self.inner.call(call), Arc::clone(&self.manifest));
        Checking {
            inner,
            check: Some((manifest, patience)),
            heavy: None,
        }
    }
}

type Heavy = Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>;

pin_project! {
    /// Runs the handler, then checks its output: at once, or on another thread if that takes long.
    pub(crate) struct Checking<F> {
        #[pin]
        inner: F,
        check: Option<(Arc<Manifest>, Patience)>,
        heavy: Option<Heavy>,
    }
}

impl<F: Future<Output = Result<Outcome>>> Future for Checking<F> {
    type Output = Result<Outcome>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Some(heavy) = this.heavy {
            return heavy.as_mut().poll(cx);
        }
        let result = ready!(this.inner.poll(cx));
        let outcome = result?;
        let Some((manifest, patience)) = this.check.take() else {
            return Poll::Ready(Ok(outcome));
        };
        let bytes = outcome.output.bytes();
        // A confirmed answer was checked when it was new, under the same contract.
        if outcome.remark.not_modified {
            return Poll::Ready(Ok(outcome));
        }
        let ours = matches!(manifest.handler, HandlerSpec::Builtin(_));
        if manifest.output.accepts_unread(bytes) {
            if !ours && let Err(error) = json::check_strict(bytes) {
                return Poll::Ready(Err(not_strict(&manifest, error)));
            }
            return Poll::Ready(Ok(outcome));
        }
        let value = if ours {
            serde_json::from_slice(bytes)
        } else {
            json::read_exact(bytes)
        };
        let value = match value {
            Ok(value) => value,
            Err(error) if ours => return Poll::Ready(Err(invalid(&manifest).with_source(error))),
            Err(error) => return Poll::Ready(Err(not_strict(&manifest, error))),
        };
        if let Ok(checked) = manifest.output.check(&value, &mut Effort::light()) {
            return Poll::Ready(fits(&manifest, outcome, checked));
        }
        let heavy = this.heavy.insert(Box::pin(async move {
            let text = outcome.output.bytes().clone();
            let (_, checked) =
                heavy::check(Arc::clone(&manifest), Side::Output, text, patience).await?;
            fits(&manifest, outcome, checked)
        }));
        heavy.as_mut().poll(cx)
    }
}

fn fits(
    manifest: &Manifest,
    outcome: Outcome,
    checked: Result<(), Vec<Violation>>,
) -> Result<Outcome> {
    match checked {
        Ok(()) => Ok(outcome),
        Err(violations) => Err(invalid(manifest).with_violations(violations)),
    }
}

fn invalid(manifest: &Manifest) -> Error {
    Error::new(
        Code::InvalidOutput,
        format!(
            "the output of pack \"{}\" does not fit its schema",
            manifest.name
        ),
    )
}

fn not_strict(manifest: &Manifest, error: serde_json::Error) -> Error {
    let message = format!(
        "the output of pack \"{}\" is not JSON that everybody reads alike: deeper than 128 levels, a key twice in one \
         object, or a number out of range",
        manifest.name
    );
    Error::new(Code::InvalidOutput, message).with_source(error)
}
