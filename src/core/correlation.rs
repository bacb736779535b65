//! Correlation: the request id and the trace that log lines, problems, spans and outgoing requests
//! of a call share.
//!
//! It travels in the [`Call`](crate::Call), and is also current while code of the call runs: a log
//! line or an HTTP client deep inside finds it there. It identifies a request, never a caller.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::hex::hex_digits;
use crate::random::random_u64;
use crate::trace::{Span, SpanKind, Trace};

/// Limit of a request id, in bytes.
const MAX_BYTES: usize = 128;

/// Id of one request: from its caller, or made here.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestId(Id);

#[derive(Clone, PartialEq, Eq)]
enum Id {
    Made([u64; 2]),
    Given(Arc<str>),
}

impl RequestId {
    /// Makes a new id. It allocates nothing.
    #[must_use]
    pub fn random() -> Self {
        Self(Id::Made([random_u64(), random_u64()]))
    }

    /// Takes over the id of a caller, `None` unless it is 1 to 128 visible ASCII characters.
    #[must_use]
    pub fn given(text: &[u8]) -> Option<Self> {
        let well_formed =
            (1..=MAX_BYTES).contains(&text.len()) && text.iter().all(u8::is_ascii_graphic);
        let text = std::str::from_utf8(text).ok().filter(|_| well_formed)?;
        Some(Self(Id::Given(text.into())))
    }

    /// Returns whether the caller chose it.
    #[must_use]
    pub const fn is_given(&self) -> bool {
        matches!(self.0, Id::Given(_))
    }

    /// Passes it as text to `read`: 32 hexadecimal digits if it was made here. It allocates
    /// nothing.
    pub fn with_text<T>(&self, read: impl FnOnce(&str) -> T) -> T {
        match &self.0 {
            Id::Given(text) => read(text),
            Id::Made(numbers) => {
                let text = numbers.map(|number| hex_digits(number.to_be_bytes()));
                read(std::str::from_utf8(text.as_flattened()).unwrap_or_default())
            }
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.write_str(text))
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Request id and trace of a call. Cheap to clone; empty by default.
#[derive(Debug, Clone, Default)]
pub struct Correlation {
    /// The request; `None` outside of requests, as on the command line.
    pub request_id: Option<RequestId>,
    /// The trace; `None` if there is none.
    pub trace: Option<Trace>,
}

thread_local! {
    static CURRENT: RefCell<Correlation> = const { RefCell::new(Correlation { request_id: None, trace: None }) };
}

impl Correlation {
    /// Returns what is current on this thread; empty if nothing is.
    #[must_use]
    pub fn current() -> Self {
        CURRENT.with_borrow(Self::clone)
    }

    /// Passes what is current on this thread to `read`.
    pub fn with_current<T>(read: impl FnOnce(&Self) -> T) -> T {
        CURRENT.with_borrow(read)
    }

    /// Makes it current whenever `future` runs, and while it is dropped.
    pub fn scope<F: Future>(self, future: F) -> Scope<F> {
        Scope {
            future: Some(future),
            correlation: self,
        }
    }

    /// Returns whether spans are recorded.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.trace.as_ref().is_some_and(Trace::is_recorded)
    }

    /// Starts a child span, and makes it the parent of further ones. `None` if spans are not
    /// recorded.
    #[must_use]
    pub fn begin_span(
        &mut self,
        name: impl FnOnce() -> std::borrow::Cow<'static, str>,
        kind: SpanKind,
    ) -> Option<Span> {
        let span = self.trace.as_ref()?.span(name, kind)?;
        self.trace = Some(span.trace());
        Some(span)
    }
}

/// Makes a correlation current until it is dropped.
struct Entered<'a>(&'a mut Correlation);

impl<'a> Entered<'a> {
    fn new(correlation: &'a mut Correlation) -> Self {
        CURRENT.with_borrow_mut(|current| std::mem::swap(current, correlation));
        Self(correlation)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| std::mem::swap(current, self.0));
    }
}

pin_project! {
    /// Future of [`Correlation::scope`].
    #[derive(Debug)]
    pub struct Scope<F> {
        #[pin]
        future: Option<F>,
        correlation: Correlation,
    }

    impl<F> PinnedDrop for Scope<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let _entered = Entered::new(this.correlation);
            this.future.set(None);
        }
    }
}

impl<F: Future> Future for Scope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let _entered = Entered::new(this.correlation);
        let Some(future) = this.future.as_mut().as_pin_mut() else {
            return Poll::Pending;
        };
        let output = std::task::ready!(future.poll(cx));
        this.future.set(None);
        Poll::Ready(output)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn named(id: &str) -> Correlation {
        Correlation {
            request_id: RequestId::given(id.as_bytes()),
            trace: None,
        }
    }

    fn current() -> Option<String> {
        Correlation::with_current(|current| current.request_id.as_ref().map(ToString::to_string))
    }

    #[test]
    fn ids_of_callers_are_bounded_and_visible() {
        assert_eq!(RequestId::given(b"a-1").unwrap().to_string(), "a-1");
        assert!(RequestId::given(&[b'x'; 128]).is_some());
        for wrong in [&b""[..], b"a b", b"a\n", "é".as_bytes(), &[b'x'; 129]] {
            assert_eq!(RequestId::given(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn made_ids_are_32_hex_digits() {
        let (one, other) = (
            RequestId::random().to_string(),
            RequestId::random().to_string(),
        );
        assert_ne!(one, other);
        assert!(
            one.len() == 32 && one.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{one}"
        );
        let known = RequestId(Id::Made([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]));
        assert_eq!(known.to_string(), "0123456789abcdeffedcba9876543210");
    }

    #[test]
    fn scope_is_current_in_polls_and_drop_only() {
        struct OnDrop(Arc<std::sync::Mutex<Option<String>>>);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                *self.0.lock().unwrap() = current();
            }
        }
        let seen = Arc::new(std::sync::Mutex::new(None));
        let dropped = OnDrop(Arc::clone(&seen));
        let future = std::future::poll_fn(move |_| {
            let _kept = &dropped;
            assert_eq!(current().as_deref(), Some("outer"));
            Poll::<()>::Pending
        });
        let mut future = Box::pin(named("outer").scope(future));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            assert!(future.as_mut().poll(&mut context).is_pending());
            assert_eq!(current(), None);
        }
        drop(future);
        assert_eq!(
            (seen.lock().unwrap().as_deref(), current()),
            (Some("outer"), None)
        );
    }

    #[test]
    fn inner_scopes_end_with_their_future() {
        let future = named("outer").scope(async {
            assert_eq!(
                named("inner").scope(async { current() }).await.as_deref(),
                Some("inner")
            );
            current()
        });
        let mut future = std::pin::pin!(future);
        let ended = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(ended, Poll::Ready(Some("outer".to_owned())));
    }
}
