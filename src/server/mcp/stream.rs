//! Body of a long answer. It ends on request, with a hint to reconnect, and reports when it was
//! dropped.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::BoxBody;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::draining::RECONNECT;

/// Passes a body on until a token is cancelled. Its guard is dropped with it.
pub(crate) struct Stream<K> {
    body: BoxBody<Bytes, Infallible>,
    end: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    ended: bool,
    /// Guard that is never read: it acts when it is dropped.
    _kept: K,
}

impl<K> Stream<K> {
    pub(crate) fn new(
        body: BoxBody<Bytes, Infallible>,
        end: Option<CancellationToken>,
        kept: K,
    ) -> Self {
        Self {
            body,
            end: end.map(|end| Box::pin(end.cancelled_owned())),
            ended: false,
            _kept: kept,
        }
    }
}

impl<K: Unpin> Body for Stream<K> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if self
            .end
            .as_mut()
            .is_some_and(|end| end.as_mut().poll(cx).is_ready())
        {
            self.ended = true;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(RECONNECT)))));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
