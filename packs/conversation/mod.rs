//! The `conversation.*` family: what was said in the conversations of the caller. Without a memory key each of them answers `not_found`.
//!
//! The packs write no audit rows, and none of their answers is cached: both would keep what was forgotten. No input names another
//! tenant or user: whose conversation is meant is known from the call.

mod add;
mod context;
mod delete;
mod flush;
mod forget;
mod health;
mod list;
mod restore;
mod show;
mod snapshot;
mod target;
#[cfg(test)]
mod tests;
mod trace;

use std::sync::Arc;

use helmdeck_conversation::Conversations;
use helmdeck_core::{Builtin, Handler};

/// Returns the packs of this family.
pub(crate) fn packs(conversations: &Conversations) -> Vec<Builtin> {
    let pack = |file, manifest, handler: Arc<dyn Handler>| Builtin { file, manifest, handler };
    let place = || conversations.clone();
    vec![
        pack("packs/conversation/add.toml", include_str!("add.toml"), Arc::new(add::Add(place()))),
        pack("packs/conversation/context.toml", include_str!("context.toml"), Arc::new(context::ShowContext(place()))),
        pack("packs/conversation/health.toml", include_str!("health.toml"), Arc::new(health::ShowHealth(place()))),
        pack("packs/conversation/trace.toml", include_str!("trace.toml"), Arc::new(trace::ShowTrace(place()))),
        pack("packs/conversation/list.toml", include_str!("list.toml"), Arc::new(list::List(place()))),
        pack("packs/conversation/show.toml", include_str!("show.toml"), Arc::new(show::Show(place()))),
        pack("packs/conversation/delete.toml", include_str!("delete.toml"), Arc::new(delete::Delete(place()))),
        pack("packs/conversation/snapshot.toml", include_str!("snapshot.toml"), Arc::new(snapshot::Export(place()))),
        pack("packs/conversation/restore.toml", include_str!("restore.toml"), Arc::new(restore::Restore(place()))),
        pack("packs/conversation/flush.toml", include_str!("flush.toml"), Arc::new(flush::Flush(place()))),
        pack("packs/conversation/forget.toml", include_str!("forget.toml"), Arc::new(forget::Forget(place()))),
    ]
}
