//! The `memory.*` family: what is durably known about the caller. Without a memory key each of them answers `not_found`.
//!
//! The packs write no audit rows, and none of their answers is cached: both would keep what was forgotten.

mod forget;
mod list;
mod recall;
mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use helmdeck_core::{Builtin, Handler};

/// Returns the packs of this family.
pub(crate) fn packs() -> Vec<Builtin> {
    let pack = |file, manifest, handler: Arc<dyn Handler>| Builtin { file, manifest, handler };
    vec![
        pack("packs/memory/store.toml", include_str!("store.toml"), Arc::new(store::Store)),
        pack("packs/memory/recall.toml", include_str!("recall.toml"), Arc::new(recall::Recall)),
        pack("packs/memory/list.toml", include_str!("list.toml"), Arc::new(list::List)),
        pack("packs/memory/forget.toml", include_str!("forget.toml"), Arc::new(forget::Forget)),
    ]
}
