//! Notifies listeners that their tools changed.
//!
//! Only the callers concerned are notified, and no listener whose token ended.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::Caller;

use super::state::{McpState, Validity};
use super::table::{Table, ToolEntry};

/// How long to wait for more of the same: packs change in bunches.
const BUNCH: Duration = Duration::from_millis(50);
/// How often it is asked whether a listener that hears nothing is still there and still may listen.
const CHECK: Duration = Duration::from_secs(10);

/// Calls `tell` whenever the tools of a caller are not those of `before` any more, and then at each
/// change, until it answers no, the caller may not listen any more, or the server stops.
pub(crate) async fn changes<T: Future<Output = bool>>(
    mcp: Arc<McpState>,
    caller: Caller,
    validity: Validity,
    before: Arc<Table>,
    gone: impl Fn() -> bool,
    tell: impl Fn() -> T,
) {
    let mut events = mcp.engine.events().subscribe();
    let mut known = tools(&before, &caller);
    drop(before);
    let drain = mcp.drain.clone();
    loop {
        let now = tools(&mcp.tables.current(), &caller);
        if now != known {
            known = now;
            if !validity.holds().await || !tell().await {
                return;
            }
        }
        tokio::select! {
            biased;
            () = drain.cancelled() => return,
            // Whatever it was, and also if some were missed: the packs are looked at anew.
            event = events.next() => if event.is_none() { return },
            () = tokio::time::sleep(CHECK) => {
                if gone() || !validity.holds().await {
                    return;
                }
                continue;
            }
        }
        tokio::time::sleep(BUNCH).await;
    }
}

fn tools(table: &Table, caller: &Caller) -> Vec<Arc<ToolEntry>> {
    table.visible(caller).cloned().collect()
}
