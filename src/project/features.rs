//! The features, and which of them work: `features.json`.

mod file;
mod standing;

pub use file::{Amendment, BlockedBy, Feature, FeaturesFile, Status, is_id};
pub use standing::{Counts, Next, Standing};

use crate::error::Result;
use crate::files::Document;
use crate::json::Members;
use crate::layout::FEATURES;

impl Document for FeaturesFile {
    const PATH: &'static str = FEATURES;

    fn skeleton() -> Self {
        Self {
            schema_version: "1.0".to_owned(),
            features: Vec::new(),
            retired: Vec::new(),
            amendments: Vec::new(),
            other: Members::default(),
        }
    }

    fn check(&self) -> Result<(), String> {
        self.validate()
    }
}
