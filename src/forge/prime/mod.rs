//! What a session is told when it begins.

mod brief;
mod fence;
mod gather;

pub use brief::{
    BUDGET, Brief, CommitLine, FeatureLine, FocusLine, LEAST, Lag, LearningLine, LeftOut, Primed, Section, SkillLine,
    estimate,
};
