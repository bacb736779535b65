//! Notifies listeners that their tools changed.
//!
//! Only the callers concerned are notified, and no listener whose token ended.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::Caller;

use super::state::McpState;
use super::table::{Table, ToolEntry};
use crate::validity::Validity;

/// Time to wait for further changes: packs change in bunches.
const BUNCH: Duration = Duration::from_millis(50);
/// Interval of the check that a silent listener is still connected and may still listen.
const CHECK: Duration = Duration::from_secs(10);

/// Calls `tell` when the tools of a caller differ from `before`, and then at each change.
///
/// It ends when `tell` answers no, the caller may not listen any more, or the server stops.
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
            // Compare the packs anew: it does not matter which change it was, or whether some were
            // missed.
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
