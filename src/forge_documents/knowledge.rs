//! Knowledge of a project: a file for each entry, and `knowledge.json` made from them.
//!
//! Nothing in it is deleted by age. An entry that no longer holds is superseded and stays; what did
//! not work stays as a warning.

pub mod edit;
pub mod entry;
pub mod file;
pub mod search;
pub mod text;

use helmdeck_forge_files::files::{Document, Entries};
use helmdeck_forge_files::json::Members;
use helmdeck_forge_files::layout::KNOWLEDGE;

pub use edit::{Added, Confirmed, Learning, Superseded, What};
pub use entry::LearningEntry;
pub use file::{
    Decision, Failed, FullInvariant, Invariant, Kind, KnowledgeEntry, KnowledgeFile, Patterns,
    Successful, Trace,
};
pub use search::{Hit, Search, SearchHit};
pub use text::id as id_of;

impl Document for KnowledgeFile {
    const PATH: &'static str = KNOWLEDGE;
    const ENTRIES: Option<Entries<Self>> = Some(entry::ENTRIES);

    fn skeleton() -> Self {
        Self {
            schema_version: "1.0".to_owned(),
            patterns: Patterns::default(),
            invariants: Vec::new(),
            decisions: Vec::new(),
            other: Members::default(),
        }
    }

    fn check(&self) -> Result<(), String> {
        self.validate()
    }
}
