//! Verbs that use several parts of a project. Those of issues are in [`crate::issues`].

mod checkpoints;
mod features;
mod knowledge;
mod recovery;
mod skills;
mod state;
mod work;

pub use checkpoints::{CreateCheckpoint, ListCheckpoints};
pub use features::{AddFeature, ListFeatures, SetFeature};
pub use knowledge::{Learn, Remember, SearchKnowledge};
pub use recovery::{ApplyRecovery, AssessRecovery};
pub use skills::UseSkill;
pub use state::{MeasureHealth, Prime};
pub use work::{CommitWork, FinishWork, StartWork, VerifyWork};
