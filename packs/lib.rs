#![doc = include_str!("README.md")]

use std::sync::Arc;

use helmdeck_conversation::Conversations;
use helmdeck_core::{Builtin, Clock, Code, Error, Json, Need, Reply, Result, schema};
use helmdeck_egress::Egress;
use helmdeck_llm::Client;
use serde::Serialize;

/// Declares a pack by its family, verb and handler.
///
/// The manifest is `<verb>.toml` beside the caller, and the schemas are `SCHEMAS` of the caller.
macro_rules! pack {
    ($family:literal, $verb:literal, $handler:expr) => {
        ::helmdeck_core::Builtin {
            file: concat!("packs/", $family, "/", $verb, ".toml"),
            manifest: include_str!(concat!($verb, ".toml")),
            schemas: SCHEMAS,
            handler: ::std::sync::Arc::new($handler),
            need: ::helmdeck_core::Need::Nothing,
        }
    };
}

mod conversation;
pub mod forge;
#[cfg(feature = "github")]
pub mod github;
#[cfg(test)]
mod manifests;
mod memory;
pub mod repo;
#[cfg(test)]
mod schemas;
pub mod seam;
pub mod swe;
#[cfg(feature = "tiktoken")]
mod text;

/// Dependencies of the packs.
#[derive(Clone)]
pub struct Dependencies {
    /// The guarded HTTP client.
    pub egress: Egress,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Settings of the `github.*` packs.
    #[cfg(feature = "github")]
    pub github: github::Config,
    /// Settings of the `repo.*` packs.
    pub repo: repo::Config,
    /// The client for models.
    pub llm: Client,
    /// Settings of `swe.solve`.
    pub swe: swe::Config,
    /// The conversation memory; may be set later.
    pub conversations: Conversations,
    /// Settings of the `forge.*` packs.
    pub forge: forge::Config,
    /// Settings of the `seam.*` packs.
    pub seam: seam::Config,
}

helmdeck_core::redacted_debug!(Dependencies, this => egress = this.egress);

/// Families of the packs that [`all`] returns, in the order of their names.
pub const FAMILIES: &[&str] = &[
    "conversation",
    "forge",
    #[cfg(feature = "github")]
    "github",
    "memory",
    "repo",
    "seam",
    "swe",
    #[cfg(feature = "tiktoken")]
    "text",
];

/// Returns every pack of this build. Opens nothing and reads nothing yet.
#[must_use]
pub fn all(dependencies: &Dependencies) -> Vec<Builtin> {
    let git = repo::Git::new(dependencies.repo.clone(), dependencies.egress.clone());
    let families: Vec<Vec<Builtin>> = vec![
        memory::packs(),
        needing(
            &Need::Memory,
            conversation::packs(&dependencies.conversations),
        ),
        needing(
            &dependencies.forge.need(),
            forge::packs(&dependencies.forge),
        ),
        #[cfg(feature = "github")]
        github::packs(
            &dependencies.github,
            &dependencies.egress,
            &dependencies.clock,
        ),
        repo::packs(&git),
        needing(&dependencies.seam.need(), seam::packs(&dependencies.seam)),
        needing(
            &swe::need(&dependencies.llm),
            swe::packs(
                &dependencies.swe,
                &dependencies.llm,
                git,
                github_host(dependencies),
                &dependencies.clock,
            ),
        ),
        #[cfg(feature = "tiktoken")]
        text::packs(),
    ];
    families.into_iter().flatten().collect()
}

/// Gives all packs of a family the same need.
fn needing(need: &Need, packs: Vec<Builtin>) -> Vec<Builtin> {
    packs
        .into_iter()
        .map(|pack| Builtin {
            need: need.clone(),
            ..pack
        })
        .collect()
}

/// Returns where the repositories are that the `github.*` packs speak of; `None` without those.
fn github_host(dependencies: &Dependencies) -> Option<String> {
    #[cfg(feature = "github")]
    return dependencies.github.web_host().map(str::to_owned);
    #[cfg(not(feature = "github"))]
    {
        let _ = dependencies;
        None
    }
}

/// Runs work on a blocking thread and replies with its result.
async fn blocking<O: Serialize + Send + 'static>(
    work: impl FnOnce() -> Result<O> + Send + 'static,
) -> Result<Reply> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| {
        Error::new(Code::Internal, "the work came to a sudden end").with_source(error)
    })?;
    Reply::value(&done?)
}

/// Splits the member `session` off an input.
fn take_session(input: Json) -> Result<(Option<String>, Json)> {
    let read = |text: String| {
        Json::parse(text).map_err(|error| {
            Error::new(Code::Internal, "a part of the input is not JSON").with_source(error)
        })
    };
    match schema::take_member(input.as_str(), "session") {
        Some((session, rest)) => Ok((Some(read(session)?.read()?), read(rest)?)),
        None => Ok((None, input)),
    }
}
