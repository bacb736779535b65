//! What was learned, for good: `knowledge.json`.

mod compact;
mod edit;
mod export;
mod file;
mod search;
mod text;

pub use compact::{Compacted, Folded, MOST_BYTES, MOST_ENTRIES, Merge, Oversize, Proposal};
pub use edit::{Added, Confirmed, Learning, Superseded, What};
pub use export::Format;
pub use file::{Decision, Failed, FullInvariant, Invariant, Kind, KnowledgeFile, Patterns, Successful, Trace};
pub use search::{Found, Hit, Search};
