//! Leak scan of what is about to be stored, off the runtime and a few at once. Nothing here runs
//! for a hit.

use bytes::Bytes;
use helmdeck_core::leaks;
use tokio::sync::Semaphore;

/// From this size on, a text is scanned on a blocking thread: a scan takes about 10 ms a MiB, and
/// much more of a text that was made for it.
const INLINE_BYTES: usize = 4 << 10;
/// Limit of scans on blocking threads at once: others need those threads, too.
const AT_ONCE: usize = 4;
/// The finding if a scan could not be finished: a text that was not scanned is not stored.
const NOT_SCANNED: &str = "not-scanned";

/// Returns the rule of the leak scanner that finds something in a text; `None` if it finds nothing.
pub async fn first_leak(text: &Bytes) -> Option<&'static str> {
    if text.len() < INLINE_BYTES {
        return leaks::first_leak(text);
    }
    static PLACES: Semaphore = Semaphore::const_new(AT_ONCE);
    let Ok(place) = PLACES.acquire().await else {
        return Some(NOT_SCANNED);
    };
    let text = text.clone();
    let scan = move || {
        let _place = place;
        leaks::first_leak(&text)
    };
    tokio::task::spawn_blocking(scan)
        .await
        .unwrap_or(Some(NOT_SCANNED))
}
