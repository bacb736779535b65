//! The `repo.*` family: packs that work on repositories and source trees.
//!
//! What goes to the network does so with trusted git on clean bare copies (`git/`, `mirror.rs`, `publish.rs`); what looks at files
//! that commands of a session may have written does so inside the session (`inside.rs`, `checkout.rs`, `changes.rs`).

mod changes;
mod checkout;
mod fetch;
mod git;
#[cfg(feature = "repo-map")]
mod head;
mod inside;
#[cfg(feature = "repo-map")]
mod languages;
#[cfg(feature = "repo-map")]
mod map;
mod mirror;
mod names;
mod publish;
mod push;
#[cfg(feature = "repo-map")]
mod rank;
#[cfg(feature = "repo-map")]
mod render;
#[cfg(feature = "repo-map")]
mod symbols;
mod url;
#[cfg(feature = "repo-map")]
mod walk;

use std::sync::Arc;

use helmdeck_core::{Builtin, Handler};

pub(crate) use git::Git;
pub use git::{Config, Paths};

/// Returns the packs of this family. Starts nothing yet.
pub(crate) fn packs(git: &Git) -> Vec<Builtin> {
    let pack = |file, manifest, handler: Arc<dyn Handler>| Builtin { file, manifest, handler };
    vec![
        #[cfg(feature = "repo-map")]
        pack("packs/repo/map.toml", include_str!("map.toml"), Arc::new(map::RepoMap)),
        pack("packs/repo/fetch.toml", include_str!("fetch.toml"), Arc::new(fetch::Fetch(git.clone()))),
        pack("packs/repo/push.toml", include_str!("push.toml"), Arc::new(push::Push(git.clone()))),
    ]
}

#[cfg(test)]
mod tests;
