//! The features, and which of them work: a file for each, and `features.json` made from them.

pub mod contract;
pub mod entry;
pub mod file;
pub mod standing;

use helmdeck_forge_files::files::{Document, Entries};
use helmdeck_forge_files::json::Members;
use helmdeck_forge_files::layout::FEATURES;

pub use contract::{Change, Difference};
pub use entry::FeatureEntry;
pub use file::{
    ADOPTED_FROM, Amendment, BlockedBy, Feature, FeaturesFile, Status, adopted_name, is_id,
    split_id,
};
pub use standing::{Counts, Next, Standing};

impl Document for FeaturesFile {
    const PATH: &'static str = FEATURES;
    const ENTRIES: Option<Entries<Self>> = Some(entry::ENTRIES);

    fn skeleton() -> Self {
        Self {
            schema_version: "1.0".to_owned(),
            features: Vec::new(),
            retired: Vec::new(),
            not_adopted: Vec::new(),
            amendments: Vec::new(),
            other: Members::default(),
        }
    }

    fn check(&self) -> Result<(), String> {
        self.validate()
    }
}
