//! Beginning of a server's end: it is not ready any more, and still answers.

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// Says whether a server was told to stop. Clones are of the same server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draining(CancellationToken);

/// Last lines of a stream of server-sent events: reconnect in a second (HTML standard, section
/// 9.2.6).
///
/// By then a balancer has chosen another replica.
pub(crate) const RECONNECT: &[u8] = b"retry: 1000\n\n";

impl Draining {
    /// Begins the drain. Later calls change nothing.
    pub(crate) fn begin(&self) {
        self.0.cancel();
    }

    /// Says whether the drain has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the drain begins.
    pub(crate) fn begun(&self) -> WaitForCancellationFuture<'_> {
        self.0.cancelled()
    }
}
