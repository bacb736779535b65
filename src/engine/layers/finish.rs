//! Future that changes the result of another one, without a box.
//!
//! It is for layers that only handle the result of a call.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use helmdeck_core::{Outcome, Result};
use pin_project_lite::pin_project;

/// Action on a result.
pub(super) trait After {
    /// Converts the inner result to the outer one.
    fn after(self, result: Result<Outcome>) -> Result<Outcome>;
}

pin_project! {
    /// Runs `inner`, then `after`, once.
    #[derive(Debug)]
    pub(crate) struct Finish<F, A> {
        #[pin]
        inner: F,
        after: Option<A>,
    }
}

impl<F, A> Finish<F, A> {
    pub(super) const fn new(inner: F, after: A) -> Self {
        Self {
            inner,
            after: Some(after),
        }
    }
}

impl<F: Future<Output = Result<Outcome>>, A: After> Future for Finish<F, A> {
    type Output = Result<Outcome>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(cx));
        Poll::Ready(match this.after.take() {
            Some(after) => after.after(result),
            None => result,
        })
    }
}
