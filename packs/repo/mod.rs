//! The `repo.*` family: packs that read source trees on this machine. They work without a network.

mod git;
mod languages;
mod map;
mod rank;
mod render;
mod symbols;
mod walk;

use std::sync::Arc;

use helmdeck_core::Builtin;

/// Returns the packs of this family.
pub(crate) fn packs() -> Vec<Builtin> {
    vec![Builtin { file: "packs/repo/map.toml", manifest: include_str!("map.toml"), handler: Arc::new(map::RepoMap) }]
}
