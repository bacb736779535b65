//! The `conversation.*` packs: the conversations of the caller.
//!
//! Without a memory key each of them answers `not_found`. The packs write no audit rows, and their
//! answers are not cached: both would outlive what was forgotten. No input names another tenant or
//! user: the call itself says whose conversation it is.

mod add;
mod list;
mod target;
#[cfg(test)]
mod tests;
mod verbs;

use helmdeck_conversation::Conversations;
use helmdeck_core::Builtin;

/// The manifests of this family have their schemas.
const SCHEMAS: &str = "";

/// Returns the packs of this family.
pub(crate) fn packs(conversations: &Conversations) -> Vec<Builtin> {
    let memory = || conversations.clone();
    vec![
        pack!("conversation", "add", add::Add(memory())),
        pack!("conversation", "context", verbs::ShowContext(memory())),
        pack!("conversation", "health", verbs::ShowHealth(memory())),
        pack!("conversation", "trace", verbs::ShowTrace(memory())),
        pack!("conversation", "list", list::List(memory())),
        pack!("conversation", "show", verbs::Show(memory())),
        pack!("conversation", "delete", verbs::Delete(memory())),
        pack!("conversation", "snapshot", verbs::Export(memory())),
        pack!("conversation", "restore", verbs::Restore(memory())),
        pack!("conversation", "pin", verbs::Pin(memory())),
        pack!("conversation", "flush", verbs::Flush(memory())),
        pack!("conversation", "forget", verbs::Forget(memory())),
    ]
}
