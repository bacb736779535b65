//! Names, manifests and states of checkpoints.

pub mod manifest;
pub mod name;
pub mod state;

use helmdeck_forge_files::files::Document;
use helmdeck_forge_files::json::Members;
use helmdeck_forge_files::layout;
use helmdeck_forge_files::time::Time;

pub use manifest::{Check, Manifest};
pub use name::{NO_KEY, Name, PREFIX};
pub use state::State;

impl Document for Manifest {
    const PATH: &'static str = layout::CHECKPOINTS;

    fn skeleton() -> Self {
        Self {
            schema_version: Some("1.0".to_owned()),
            tag: String::new(),
            commit: String::new(),
            timestamp: Time(jiff::Timestamp::UNIX_EPOCH),
            verified_by: Vec::new(),
            features_passing: Vec::new(),
            linear_issues_closed: Vec::new(),
            can_rollback_to: false,
            tree: None,
            code_tree: None,
            patch_id: None,
            branch: None,
            session: None,
            checks: Vec::new(),
            features_total: None,
            knowledge_etag: None,
            parent_checkpoint: None,
            tool_version: None,
            other: Members::default(),
        }
    }

    fn check(&self) -> Result<(), String> {
        self.validate()
    }
}
