//! The leak scan of what is about to be stored. Nothing here runs for a hit.

use bytes::Bytes;
use helmdeck_core::leaks;

/// From this size on, a text is scanned on a blocking thread: a scan takes about 10 ms a MiB.
const INLINE_BYTES: usize = 32 << 10;
/// The finding if a scan could not be finished: a text that was not scanned is not stored.
const NOT_SCANNED: &str = "not-scanned";

/// Returns the rule of the leak scanner that finds something in a text.
pub(crate) async fn first_leak(text: &Bytes) -> Option<&'static str> {
    if text.len() < INLINE_BYTES {
        return leaks::first_leak(text);
    }
    let text = text.clone();
    tokio::task::spawn_blocking(move || leaks::first_leak(&text)).await.unwrap_or(Some(NOT_SCANNED))
}
