//! The `memory.*` packs: durable facts about the caller.
//!
//! Without a memory key each of them answers `not_found`. The packs write no audit rows, and their
//! answers are not cached: both would outlive what was forgotten. Only a credential that a caller
//! allows in a fact gets a row.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::{Builtin, Context, Handler, Json, Need, Reply, Result};

/// Declares packs by their verbs. Each calls the method of the same name on the caller's facts.
macro_rules! packs {
    ($($verb:ident => $handler:ident),*) => {
        $(
            struct $handler;

            #[async_trait]
            impl Handler for $handler {
                async fn run(&self, context: Context, input: Json) -> Result<Reply> {
                    Reply::value(&context.facts()?.$verb(input.read()?).await?)
                }
            }
        )*

        /// Returns the packs of this family.
        pub(crate) fn packs() -> Vec<Builtin> {
            vec![$(Builtin {
                file: concat!("packs/memory/", stringify!($verb), ".toml"),
                schemas: "",
                manifest: include_str!(concat!(stringify!($verb), ".toml")),
                handler: Arc::new($handler),
                need: Need::Memory,
            }),*]
        }
    };
}

packs!(store => Store, recall => Recall, list => List, forget => Forget);
