//! The `repo.*` packs: repositories and source trees.
//!
//! Network access uses trusted git on clean bare copies (`git/`, `mirror.rs`, `publish.rs`). Files
//! that commands of a session may have written are read inside the session (`inside.rs`,
//! `checkout.rs`, `changes.rs`).

mod changes;
mod checkout;
mod fetch;
mod git;
#[cfg(feature = "repo-map")]
mod ignored;
mod inside;
#[cfg(feature = "repo-map")]
mod languages;
#[cfg(feature = "repo-map")]
mod map;
#[cfg(feature = "repo-map")]
mod map_root;
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

use helmdeck_core::{Builtin, Context, Result};

pub(crate) use self::url::RepoUrl;
pub(crate) use changes::changes;
pub(crate) use checkout::{Checkout, check_out};
pub use git::{Config, Paths};
pub(crate) use git::{Git, Remote};
pub(crate) use mirror::Wish;
pub(crate) use publish::{Proposal, apply_and_push};

/// The manifests of this family have their schemas.
const SCHEMAS: &str = "";

/// Returns the packs of this family.
pub(crate) fn packs(git: &Git) -> Vec<Builtin> {
    vec![
        #[cfg(feature = "repo-map")]
        pack!("repo", "map", map::RepoMap),
        pack!("repo", "fetch", fetch::Fetch(git.clone())),
        pack!("repo", "push", push::Push(git.clone())),
    ]
}

/// Returns the map of a folder of the context's session as text; empty in a build without
/// `repo.map`.
pub(crate) async fn map_of_session(
    context: &Context,
    folder: &str,
    token_budget: usize,
) -> Result<String> {
    #[cfg(feature = "repo-map")]
    return map::of_session(context, folder, token_budget).await;
    #[cfg(not(feature = "repo-map"))]
    {
        let _ = (context, folder, token_budget);
        Ok(String::new())
    }
}

#[cfg(test)]
mod tests;
