//! Decision table over the measures.
//!
//! It is total, the first row that matches wins, and the same input gives the same result.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::report::Measures;

/// From how many regressed features on work is rolled back.
pub const REGRESSIONS: usize = 3;

/// Limits of a small divergence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Maximum number of files. Default: 10.
    pub files: usize,
    /// Maximum number of lines, added and deleted. Default: 400.
    pub lines: u64,
    /// Maximum number of commits. Default: 10.
    pub commits: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            files: 10,
            lines: 400,
            commits: 10,
        }
    }
}

/// How far the work tree is from the checkpoint.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Size {
    /// No path differs.
    None,
    /// Within all limits, and nothing protected is touched.
    Small,
    /// Anything else.
    Large,
}

impl Size {
    /// Returns the size of a divergence.
    #[must_use]
    pub const fn of(
        files: usize,
        lines: u64,
        commits: u64,
        touches_protected: bool,
        limits: &Limits,
    ) -> Self {
        if files == 0 {
            Self::None
        } else if files <= limits.files
            && lines <= limits.lines
            && commits <= limits.commits
            && !touches_protected
        {
            Self::Small
        } else {
            Self::Large
        }
    }
}

/// How bad it is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, strum::Display,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum Class {
    /// Nothing has changed, and everything works.
    InSync,
    /// Small changes: continue.
    Minor,
    /// Changes too large: roll back.
    Major,
    /// The state cannot be determined.
    Unknown,
}

/// The action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Continue.
    Continue,
    /// Continue by fixing what fails.
    Fix,
    /// Roll back to the checkpoint.
    RollBack,
    /// Alert a human, and pause.
    Pause,
}

/// The decision, with the row of the table that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// The row, 0 to 6.
    pub row: u8,
    /// How bad it is.
    pub class: Class,
    /// The action.
    pub action: Action,
}

/// The decision when something is unknown: row 0.
pub const UNKNOWN: Decision = Decision {
    row: 0,
    class: Class::Unknown,
    action: Action::Pause,
};

/// Decides. Row 0, that something is unknown, is the caller's.
#[must_use]
pub const fn decide(measures: &Measures) -> Decision {
    let (verified, regressions) = (measures.verify.passed, measures.regressions.len());
    let is_same = matches!(measures.size, Size::None);
    let are_all_lost = measures.features_listed >= 2 && regressions >= measures.features_listed;
    let (row, class, action) = if is_same && !verified {
        // The code is the verified one, so its environment has changed.
        (1, Class::Unknown, Action::Pause)
    } else if is_same && regressions == 0 {
        (2, Class::InSync, Action::Continue)
    } else if !is_same && (regressions >= REGRESSIONS || are_all_lost) {
        (3, Class::Major, Action::RollBack)
    } else if matches!(measures.size, Size::Large) && !verified {
        (4, Class::Major, Action::RollBack)
    } else if verified && regressions == 0 {
        (5, Class::Minor, Action::Continue)
    } else {
        (6, Class::Minor, Action::Fix)
    };
    Decision { row, class, action }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::report::Verify;
    use super::*;

    fn case(verified: bool, size: Size, features_listed: usize, regressions: usize) -> Measures {
        Measures {
            files: 0,
            lines: 0,
            commits: 0,
            size,
            touched_protected: Vec::new(),
            features_listed,
            regressions: vec!["A-001".to_owned(); regressions],
            verify: Verify {
                command: None,
                ran: true,
                passed: verified,
                exit: None,
                ms: 0,
                output: String::new(),
            },
        }
    }

    #[test]
    fn each_row_is_reached_by_its_case() {
        use Size::{Large, None, Small};
        for (case, row, class, action) in [
            (case(false, None, 3, 3), 1, Class::Unknown, Action::Pause),
            (case(true, None, 3, 0), 2, Class::InSync, Action::Continue),
            // There is nothing to roll back: what failed has to run again.
            (case(true, None, 3, 3), 6, Class::Minor, Action::Fix),
            (case(true, Small, 9, 3), 3, Class::Major, Action::RollBack),
            (case(true, Small, 2, 2), 3, Class::Major, Action::RollBack),
            (case(false, Large, 2, 0), 4, Class::Major, Action::RollBack),
            (case(true, Small, 2, 0), 5, Class::Minor, Action::Continue),
            (case(true, Large, 2, 0), 5, Class::Minor, Action::Continue),
            (case(true, Small, 1, 1), 6, Class::Minor, Action::Fix),
            (case(true, Large, 9, 2), 6, Class::Minor, Action::Fix),
            (case(false, Small, 9, 2), 6, Class::Minor, Action::Fix),
        ] {
            assert_eq!(decide(&case), Decision { row, class, action }, "{case:?}");
        }
    }

    proptest! {
        #[test]
        fn more_trouble_never_gives_a_milder_answer(
            files in 0..40_usize, lines in 0..900_u64, commits in 0..30_u64, protected: bool,
            verified: bool, regressions in 0..4_usize,
        ) {
            let limits = Limits::default();
            let size = Size::of(files, lines, commits, protected, &limits);
            let class = decide(&case(verified, size, 9, regressions)).class;
            let rank = |class| match class { Class::InSync => 0, Class::Minor => 1, Class::Major => 2, Class::Unknown => 3 };
            for worse in [case(false, size, 9, regressions), case(verified, size, 9, regressions + 1)] {
                prop_assert!(rank(decide(&worse).class) >= rank(class), "{worse:?}");
            }
        }
    }

    #[test]
    fn the_size_turns_exactly_beyond_its_limits() {
        let limits = Limits::default();
        let size =
            |files, lines, commits, protected| Size::of(files, lines, commits, protected, &limits);
        assert_eq!(size(0, 0, 0, false), Size::None);
        assert_eq!(
            size(0, 0, 99, false),
            Size::None,
            "commits that cancel each other out"
        );
        assert_eq!(size(1, 0, 0, false), Size::Small);
        assert_eq!(size(10, 400, 10, false), Size::Small);
        assert_eq!(size(11, 400, 10, false), Size::Large);
        assert_eq!(size(10, 401, 10, false), Size::Large);
        assert_eq!(size(10, 400, 11, false), Size::Large);
        assert_eq!(size(1, 1, 1, true), Size::Large);
    }
}
