//! Copies both ways between two connections.
//!
//! It ends when one of them ends, both are silent for too long, or the proxy ends.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Runs a tunnel to its end.
pub(super) async fn run<A, B>(mut near: A, far: B, idle: Duration)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let moves = Arc::new(AtomicU64::new(0));
    let mut far = Counted {
        inner: far,
        moves: Arc::clone(&moves),
    };
    tokio::select! {
        // How it ends is between the two that talk.
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
        () = silence(&moves, idle) => {}
    }
}

async fn silence(moves: &AtomicU64, idle: Duration) {
    loop {
        let before = moves.load(Ordering::Relaxed);
        tokio::time::sleep(idle).await;
        if moves.load(Ordering::Relaxed) == before {
            return;
        }
    }
}

/// A connection that counts how often something went through it, either way.
struct Counted<S> {
    inner: S,
    moves: Arc<AtomicU64>,
}

impl<S> Counted<S> {
    fn note<T>(&self, poll: &Poll<io::Result<T>>) {
        if matches!(poll, Poll::Ready(Ok(_))) {
            self.moves.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_read(cx, buffer);
        self.note(&poll);
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.note(&poll);
        poll
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
