//! The `swe.*` packs: a model works on a repository.
//!
//! The model's commands run in a session only. Its key and the repository's credential never enter
//! the session.

mod action;
mod agent;
mod config;
mod conversation;
mod ending;
mod input;
mod mini;
mod observation;
mod progress;
mod prompt;
mod publish;
mod recall;
mod repository;
mod result;
mod solve;
mod trajectory;

use std::sync::Arc;

use helmdeck_core::{Builtin, Clock, Need};
use helmdeck_llm::Client;

pub use config::Config;
use repository::GitRepository;
use solve::Solve;

use crate::repo::Git;

/// Returns the need of the family: an endpoint for models.
pub(crate) fn need(client: &Client) -> Need {
    let missing = (!client.has_endpoint())
        .then_some("a model: set [llm] endpoint and model in the configuration");
    Need::check(move || missing)
}

/// The manifests of this family have their schemas.
const SCHEMAS: &str = "";

/// Returns the packs of this family. Connects to nothing yet.
///
/// `github_host` is where the repositories of the `github.*` packs are.
pub(crate) fn packs(
    config: &Config,
    client: &Client,
    git: Git,
    github_host: Option<String>,
    clock: &Arc<dyn Clock>,
) -> Vec<Builtin> {
    let repository = Arc::new(GitRepository(git));
    let solve = Solve {
        config: config.clone(),
        client: client.clone(),
        repository,
        github_host,
        clock: Arc::clone(clock),
    };
    vec![pack!("swe", "solve", solve)]
}

#[cfg(test)]
mod tests;
