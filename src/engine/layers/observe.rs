//! Observes every outcome, also refusals and hits: span, metrics, audit row.
//!
//! It never changes an answer.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use helmdeck_core::trace::SpanKind;
use helmdeck_core::{Call, Clock, Code, Error, Fault, Identity, Outcome, RequestId, Result, Span};
use tower::{Layer, Service};

use super::AnswerNow;
use super::finish::{After, Finish};
use crate::audit::{Audit, Record};
use crate::metrics::PackMetrics;

/// Observer of one pack.
///
/// It is shared as one value, because each call clones the stack: a reference count that two cores
/// change at once costs more than all that is counted here.
pub(crate) struct Observer {
    pub(crate) metrics: PackMetrics,
    /// `None` with gate 1 shut, or when the manifest says `no_audit`.
    pub(crate) audit: Option<Audit>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Observes one pack.
#[derive(Clone)]
pub(crate) struct ObserveLayer(pub(crate) Arc<Observer>);

impl<S> Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Observe {
            inner,
            observer: Arc::clone(&self.0),
        }
    }
}

/// The service of [`ObserveLayer`].
#[derive(Clone)]
pub(crate) struct Observe<S> {
    inner: S,
    observer: Arc<Observer>,
}

impl<S: Service<Call, Response = Outcome, Error = Error>> Service<Call> for Observe<S> {
    type Response = Outcome;
    type Error = Error;
    type Future = Finish<S::Future, Note>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut call: Call) -> Self::Future {
        let audited = self.observer.audited(&call);
        let span = call
            .correlation
            .begin_span(|| format!("pack {}", call.pack).into(), SpanKind::Internal);
        let pending = Pending {
            started: self.observer.clock.monotonic(),
            audited,
            span,
        };
        Finish::new(
            self.inner.call(call),
            Note(Some((Arc::clone(&self.observer), pending))),
        )
    }
}

impl<S: AnswerNow> AnswerNow for Observe<S> {
    fn answer_now(&self, call: &mut Call) -> Option<Result<Outcome>> {
        if call.correlation.is_recorded() {
            // The span of a call begins before what is inside of it.
            return None;
        }
        let started = self.observer.clock.monotonic();
        let result = self.inner.answer_now(call)?;
        let pending = Pending {
            started,
            audited: self.observer.audited(call),
            span: None,
        };
        Some(self.observer.write_down(pending, result))
    }
}

/// Recorded once when the call ends: with its result, or as cancelled if its future was dropped.
pub(crate) struct Note(Option<(Arc<Observer>, Pending)>);

struct Pending {
    started: Duration,
    audited: Option<Audited>,
    /// `None` = spans are not recorded.
    span: Option<Span>,
}

/// What the audit needs of a call: its caller and its request id.
type Audited = (Arc<Identity>, Option<RequestId>);

impl Observer {
    fn audited(&self, call: &Call) -> Option<Audited> {
        self.audit.is_some().then(|| {
            (
                Arc::clone(&call.identity),
                call.correlation.request_id.clone(),
            )
        })
    }

    fn write_down(&self, pending: Pending, mut result: Result<Outcome>) -> Result<Outcome> {
        let Self {
            metrics,
            audit,
            clock,
            ..
        } = self;
        let duration = clock.monotonic().saturating_sub(pending.started);
        if let Ok(outcome) = &mut result {
            outcome.duration = duration;
        }
        metrics.record(&result, duration);
        if let Some(span) = pending.span {
            describe(span, metrics, &result);
        }
        if let Err(error) = &result {
            report(metrics.pack(), error, duration);
        }
        if let (Some(audit), Some((identity, request_id))) = (audit, pending.audited) {
            let record = Record::of(metrics, &result, identity, duration, clock.now());
            audit.push(record.requested_by(request_id));
        }
        result
    }
}

impl After for Note {
    fn after(mut self, result: Result<Outcome>) -> Result<Outcome> {
        match self.0.take() {
            Some((observer, pending)) => observer.write_down(pending, result),
            None => result,
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if let Some((observer, pending)) = self.0.take() {
            let _ = observer.write_down(
                pending,
                Err(Error::new(Code::Cancelled, "the caller went away")),
            );
        }
    }
}

/// Completes the span of a call.
fn describe(mut span: Span, metrics: &PackMetrics, result: &Result<Outcome>) {
    span.set("helmdeck.pack.name", metrics.pack().to_string());
    span.set("helmdeck.pack.version", metrics.version().to_string());
    match result {
        Ok(outcome) => {
            if let Some(cache) = &outcome.cache {
                span.set("helmdeck.cache.status", cache.status.as_str());
            }
        }
        Err(error) => span.fail(error.code().as_str(), error.message().to_owned()),
    }
}

/// Failures are logged once, here. Mistakes of callers are not logged for the operator.
fn report(pack: &helmdeck_core::PackName, error: &Error, duration: Duration) {
    let (code, millis) = (
        error.code().as_str(),
        u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    );
    match error.code().fault() {
        Fault::Caller => {
            tracing::debug!(pack.name = %pack, code, duration_ms = millis, "call refused")
        }
        Fault::Pack | Fault::Host => {
            tracing::warn!(pack.name = %pack, code, duration_ms = millis, cause = error.cause(), "call failed: {}", error.message());
        }
    }
}
