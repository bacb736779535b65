//! Waits of asynchronous tests, as [`wait_for`](helmdeck_core::waiting::wait_for) waits on a
//! thread.

use std::fmt::Display;
use std::future::Future;

use helmdeck_core::waiting::{Looks, STUCK};

/// Waits until a condition holds, and lets other tasks run meanwhile.
///
/// # Panics
/// If it does not hold within [`STUCK`].
pub async fn until(what: impl Display, mut holds: impl AsyncFnMut() -> bool) {
    let mut looks = Looks::default();
    while !holds().await {
        assert!(!looks.are_over(), "waited {} s for {what}", STUCK.as_secs());
        tokio::time::sleep(looks.pause()).await;
    }
}

/// Waits for the end of something, and returns what it returns.
///
/// # Panics
/// If it does not end within [`STUCK`].
#[allow(clippy::panic, reason = "a test that is stuck fails")]
pub fn ends<F: Future>(what: impl Display, something: F) -> impl Future<Output = F::Output> {
    let something = Box::pin(something);
    async move {
        let waited = tokio::time::timeout(STUCK, something).await;
        waited.unwrap_or_else(|_| panic!("waited {} s for {what}", STUCK.as_secs()))
    }
}
