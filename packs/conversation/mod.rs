//! The `conversation.*` packs: the conversations of the caller. Without a memory key each of them answers `not_found`.
//!
//! The packs write no audit rows, and their answers are not cached: both would outlive what was forgotten. No input
//! names another tenant or user: the call itself says whose conversation it is.

mod add;
mod list;
mod target;
#[cfg(test)]
mod tests;
mod verbs;

use std::sync::Arc;

use helmdeck_conversation::Conversations;
use helmdeck_core::Builtin;

/// Declares a pack by its verb and its handler.
macro_rules! pack {
    ($verb:literal, $handler:expr) => {
        Builtin {
            file: concat!("packs/conversation/", $verb, ".toml"),
            manifest: include_str!(concat!($verb, ".toml")),
            handler: Arc::new($handler),
        }
    };
}

/// Returns the packs of this family.
pub(crate) fn packs(conversations: &Conversations) -> Vec<Builtin> {
    let memory = || conversations.clone();
    vec![
        pack!("add", add::Add(memory())),
        pack!("context", verbs::ShowContext(memory())),
        pack!("health", verbs::ShowHealth(memory())),
        pack!("trace", verbs::ShowTrace(memory())),
        pack!("list", list::List(memory())),
        pack!("show", verbs::Show(memory())),
        pack!("delete", verbs::Delete(memory())),
        pack!("snapshot", verbs::Export(memory())),
        pack!("restore", verbs::Restore(memory())),
        pack!("flush", verbs::Flush(memory())),
        pack!("forget", verbs::Forget(memory())),
    ]
}
