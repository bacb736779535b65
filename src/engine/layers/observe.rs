//! Sees every outcome, also refusals and hits: span, metrics, audit row. It never changes an answer, it only times it.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::{Call, Clock, Code, Error, Fault, Identity, Outcome, Result};
use tower::{Layer, Service};

use super::finish::{After, Finish};
use crate::audit::{Audit, Record};
use crate::metrics::PackMetrics;

/// Observes one pack.
#[derive(Clone)]
pub(crate) struct ObserveLayer {
    pub(crate) metrics: Arc<PackMetrics>,
    /// `None` with gate 1 shut, or when the manifest says `no_audit`.
    pub(crate) audit: Option<Audit>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl<S> Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Observe { inner, layer: self.clone() }
    }
}

/// The service of [`ObserveLayer`].
#[derive(Clone)]
pub(crate) struct Observe<S> {
    inner: S,
    layer: ObserveLayer,
}

impl<S: Service<Call, Response = Outcome, Error = Error>> Service<Call> for Observe<S> {
    type Response = Outcome;
    type Error = Error;
    type Future = Finish<S::Future, Note>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let layer = &self.layer;
        let audited = layer.audit.clone().map(|audit| (audit, Arc::clone(&call.identity), call.input.clone()));
        let note = Note(Some(Pending {
            metrics: Arc::clone(&layer.metrics),
            clock: Arc::clone(&layer.clock),
            started: layer.clock.monotonic(),
            audited,
        }));
        Finish::new(self.inner.call(call), note)
    }
}

/// What is written down when the call ends, once: with its result, or as cancelled if its future was dropped.
pub(crate) struct Note(Option<Pending>);

struct Pending {
    metrics: Arc<PackMetrics>,
    clock: Arc<dyn Clock>,
    started: Duration,
    audited: Option<(Audit, Arc<Identity>, Bytes)>,
}

impl Pending {
    fn write_down(self, mut result: Result<Outcome>) -> Result<Outcome> {
        let duration = self.clock.monotonic().saturating_sub(self.started);
        if let Ok(outcome) = &mut result {
            outcome.duration = duration;
        }
        self.metrics.record(&result, duration);
        if let Err(error) = &result {
            report(self.metrics.pack(), error, duration);
        }
        if let Some((audit, identity, input)) = self.audited {
            audit.push(Record::of(&self.metrics, &result, identity, input, duration, self.clock.now()));
        }
        result
    }
}

impl After for Note {
    fn after(mut self, result: Result<Outcome>) -> Result<Outcome> {
        match self.0.take() {
            Some(pending) => pending.write_down(result),
            None => result,
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if let Some(pending) = self.0.take() {
            let _ = pending.write_down(Err(Error::new(Code::Cancelled, "the caller went away")));
        }
    }
}

/// Failures are logged once, here; a caller's own mistakes are not news to an operator.
fn report(pack: &helmdeck_core::PackName, error: &Error, duration: Duration) {
    let (code, millis) = (error.code().as_str(), u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    match error.code().fault() {
        Fault::Caller => tracing::debug!(pack.name = %pack, code, duration_ms = millis, "call refused"),
        Fault::Pack | Fault::Host => {
            tracing::warn!(pack.name = %pack, code, duration_ms = millis, cause = error.cause(), "call failed: {}", error.message());
        }
    }
}
