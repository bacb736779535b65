//! Starts the first span of a request, in the caller's trace or in a new one.

use std::borrow::Cow;
use std::sync::Arc;

use super::context::{TraceContext, TraceId};
use super::span::{Recorder, Span, SpanKind, Trace};

/// Starter of spans, with the operator's sampling. Cheap to clone.
#[derive(Clone)]
pub struct Tracer {
    recorder: Arc<dyn Recorder>,
    /// Traces whose low 56 bits are below it are recorded.
    threshold: u64,
}

redacted_debug!(Tracer, this => threshold = this.threshold);

/// Number of the random bits of a trace id that decide (W3C Trace Context level 2).
const RANDOM_BITS: u32 = 56;

impl Tracer {
    /// Makes a tracer that records a share of the traces that begin here, from 0 to 1.
    ///
    /// For a trace that begins elsewhere, its `sampled` flag decides.
    #[must_use]
    pub fn new(recorder: Arc<dyn Recorder>, sample_ratio: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 2^56"
        )]
        let threshold = (sample_ratio.clamp(0.0, 1.0) * (1_u64 << RANDOM_BITS) as f64) as u64;
        Self {
            recorder,
            threshold,
        }
    }

    /// Starts a span: a child of `parent`, or the first of a new trace.
    ///
    /// Returns the trace for what is done within it, and the span if it is recorded.
    pub fn start(
        &self,
        parent: Option<&Trace>,
        name: impl FnOnce() -> Cow<'static, str>,
        kind: SpanKind,
    ) -> (Trace, Option<Span>) {
        let context = match parent {
            Some(parent) => parent.context(),
            None => {
                let new = TraceContext::start(false);
                TraceContext {
                    sampled: self.samples(new.trace_id),
                    ..new
                }
            }
        };
        if !context.sampled {
            // The decision is passed on, so that nobody further along records half a trace.
            let trace = parent
                .cloned()
                .unwrap_or_else(|| Trace::new(context, None, None));
            return (trace, None);
        }
        let state = parent.and_then(Trace::shared_state);
        let (own, above) = match parent {
            Some(_) => (context.child(), Some(context.span_id)),
            None => (context, None),
        };
        let span = Span::start(name(), kind, own, above, state, Arc::clone(&self.recorder));
        (span.trace(), Some(span))
    }

    fn samples(&self, trace_id: TraceId) -> bool {
        let random = u64::try_from(trace_id & ((1 << RANDOM_BITS) - 1)).unwrap_or_default();
        random < self.threshold
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::SpanRecord;
    use super::*;

    #[derive(Default)]
    struct Kept(Mutex<Vec<SpanRecord>>);

    impl Recorder for Kept {
        fn record(&self, span: SpanRecord) {
            self.0.lock().unwrap().push(span);
        }
    }

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    fn tracer(ratio: f64) -> (Tracer, Arc<Kept>) {
        let kept = Arc::new(Kept::default());
        (Tracer::new(Arc::clone(&kept) as _, ratio), kept)
    }

    fn start(tracer: &Tracer, parent: Option<&Trace>) -> (Trace, Option<Span>) {
        tracer.start(parent, || "GET".into(), SpanKind::Server)
    }

    #[test]
    fn spans_continue_the_callers_trace() {
        let (tracer, kept) = tracer(0.0);
        let parent = Trace::received(SAMPLED, Some("rojo=1")).unwrap();
        let (trace, span) = start(&tracer, Some(&parent));
        let mut inner = trace.span(|| "inner".into(), SpanKind::Internal).unwrap();
        inner.fail("timeout", "too late");
        drop(inner);
        drop(span);
        let spans = kept.0.lock().unwrap();
        let [inner, outer] = &spans[..] else {
            panic!("{spans:?}")
        };
        assert_eq!(
            (outer.context.trace_id, outer.parent),
            (parent.context().trace_id, Some(0x00f0_67aa_0ba9_02b7))
        );
        assert_eq!(
            (inner.parent, inner.error.as_deref()),
            (Some(outer.context.span_id), Some("too late"))
        );
        assert_eq!(outer.state.as_deref(), Some("rojo=1"));
    }

    #[test]
    fn unsampled_traces_are_passed_on_and_not_recorded() {
        let (tracer, kept) = tracer(1.0);
        let parent = Trace::received(UNSAMPLED, None).unwrap();
        let (trace, span) = start(&tracer, Some(&parent));
        assert!(span.is_none() && trace.span(|| "inner".into(), SpanKind::Internal).is_none());
        assert_eq!(trace.context(), parent.context());
        assert!(kept.0.lock().unwrap().is_empty());
    }

    #[test]
    fn new_traces_are_sampled_by_the_ratio() {
        for (ratio, least, most) in [(0.0, 0, 0), (0.5, 400, 600), (1.0, 1_000, 1_000)] {
            let (tracer, kept) = tracer(ratio);
            for _ in 0..1_000 {
                let (trace, span) = start(&tracer, None);
                assert_eq!(trace.context().sampled, span.is_some());
            }
            let count = kept.0.lock().unwrap().len();
            assert!((least..=most).contains(&count), "{ratio}: {count}");
        }
    }
}
