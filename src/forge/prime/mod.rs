//! The briefing of a new session.

mod brief;
mod fence;
mod gather;

pub use brief::{
    BUDGET, Brief, CommentLine, CommitLine, FeatureLine, FocusLine, IssueLines, LEAST, Lag, LearningLine, LeftOut,
    Primed, Section, SkillLine, estimate,
};
pub(crate) use gather::budget;
pub(crate) use gather::gather;
pub use gather::prime;
