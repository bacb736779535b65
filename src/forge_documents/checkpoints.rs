//! Names, manifests and states of checkpoints.

pub mod manifest;
pub mod name;
pub mod state;

use helmdeck_forge_files::files::Document;
use helmdeck_forge_files::layout;

pub use manifest::{Check, FeaturePass, Manifest};
pub use name::{NO_KEY, Name, PREFIX};
pub use state::State;

impl Document for Manifest {
    const PATH: &'static str = layout::CHECKPOINTS;

    fn skeleton() -> Self {
        Self {
            schema_version: Some("1.0".to_owned()),
            ..Self::default()
        }
    }

    fn check(&self) -> Result<(), String> {
        self.validate()
    }
}
