//! Decision table over the measures.
//!
//! It is total, the first row that matches wins, and the same input gives the same result.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// From where on a divergence counts as large, and tries as too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of paths of a small divergence. Default 10.
    pub files: u32,
    /// Maximum number of lines, added and deleted, of a small divergence. Default 400.
    pub lines: u64,
    /// Maximum number of commits of a small divergence. Default 10.
    pub commits: u32,
    /// As how many lines a binary file counts. Default 50.
    pub binary_lines: u64,
    /// From how many failed tries on one goes back. Default 3.
    pub attempts: u32,
    /// From how many regressed features on one goes back. Default 3.
    pub regressions: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { files: 10, lines: 400, commits: 10, binary_lines: 50, attempts: 3, regressions: 3 }
    }
}

/// How far the work tree is from the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
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
    pub const fn of(files: u32, lines: u64, commits: u32, touches_protected: bool, limits: &Limits) -> Self {
        if files == 0 {
            Self::None
        } else if files <= limits.files && lines <= limits.lines && commits <= limits.commits && !touches_protected {
            Self::Small
        } else {
            Self::Large
        }
    }
}

/// Input of the decision, when nothing is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Whether the first verify command succeeded.
    pub verified: bool,
    /// How far the work tree is from the checkpoint.
    pub size: Size,
    /// How many features passed at the checkpoint.
    pub listed: u32,
    /// How many of those fail now.
    pub regressions: u32,
    /// How many attempts to fix it failed since everything last worked.
    pub attempts: u32,
}

/// How bad it is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, IntoStaticStr, strum::Display,
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

impl Class {
    /// Returns the word in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Continue.
    Continue,
    /// Continue, and make a checkpoint now.
    Checkpoint,
    /// Continue by fixing what is broken.
    Fix,
    /// Continue by fixing; the regressed feature comes first.
    FixFeature,
    /// Roll back to the checkpoint.
    RollBack,
    /// Alert a human, and pause.
    Pause,
}

/// The decision, with the row of the table that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// The row, 0 to 10.
    pub row: u8,
    /// How bad it is.
    pub class: Class,
    /// The action.
    pub action: Action,
}

/// The decision when something is unknown: row 0.
pub const UNKNOWN: Decision = Decision { row: 0, class: Class::Unknown, action: Action::Pause };

/// Decides. Row 0, that something is unknown, is the caller's.
#[must_use]
pub const fn decide(case: &Case, limits: &Limits) -> Decision {
    let Case { verified, size, listed, regressions, attempts } = *case;
    let (row, class, action) = if !verified && matches!(size, Size::None) {
        // The code is the verified one, so its environment has changed.
        (1, Class::Unknown, Action::Pause)
    } else if regressions >= limits.regressions || (listed >= 2 && regressions >= listed) {
        (2, Class::Major, Action::RollBack)
    } else if verified && regressions == 0 {
        match size {
            Size::None => (3, Class::InSync, Action::Continue),
            Size::Small => (4, Class::Minor, Action::Continue),
            Size::Large => (5, Class::Minor, Action::Checkpoint),
        }
    } else if verified {
        if attempts < limits.attempts {
            (6, Class::Minor, Action::FixFeature)
        } else {
            (7, Class::Major, Action::RollBack)
        }
    } else if matches!(size, Size::Large) {
        (10, Class::Major, Action::RollBack)
    } else if attempts < limits.attempts {
        (8, Class::Minor, Action::Fix)
    } else {
        (9, Class::Major, Action::RollBack)
    };
    Decision { row, class, action }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rows 1 to 10 as the table has them: conditions that know nothing of the order, and the class.
    type Row = (u8, fn(&Case) -> bool, Class, Action);
    const TABLE: [Row; 10] = [
        (1, |case| !case.verified && case.size == Size::None, Class::Unknown, Action::Pause),
        (
            2,
            |case| case.regressions >= 3 || (case.listed >= 2 && case.regressions == case.listed),
            Class::Major,
            Action::RollBack,
        ),
        (3, |case| case.verified && case.size == Size::None && case.regressions == 0, Class::InSync, Action::Continue),
        (4, |case| case.verified && case.size == Size::Small && case.regressions == 0, Class::Minor, Action::Continue),
        (
            5,
            |case| case.verified && case.size == Size::Large && case.regressions == 0,
            Class::Minor,
            Action::Checkpoint,
        ),
        (
            6,
            |case| case.verified && (1..=2).contains(&case.regressions) && case.attempts < 3,
            Class::Minor,
            Action::FixFeature,
        ),
        (
            7,
            |case| case.verified && (1..=2).contains(&case.regressions) && case.attempts >= 3,
            Class::Major,
            Action::RollBack,
        ),
        (
            8,
            |case| !case.verified && case.size == Size::Small && case.regressions <= 2 && case.attempts < 3,
            Class::Minor,
            Action::Fix,
        ),
        (
            9,
            |case| !case.verified && case.size == Size::Small && case.regressions <= 2 && case.attempts >= 3,
            Class::Major,
            Action::RollBack,
        ),
        (
            10,
            |case| !case.verified && case.size == Size::Large && case.regressions <= 2,
            Class::Major,
            Action::RollBack,
        ),
    ];

    fn check(case: &Case) {
        let (row, _, class, action) = TABLE.iter().find(|row| row.1(case)).expect("the table is total");
        let decision = decide(case, &Limits::default());
        assert_eq!(decision, Decision { row: *row, class: *class, action: *action }, "{case:?}");
        // After rows 1 and 2 no two rows match the same input, so their order does not matter.
        if *row > 2 {
            assert_eq!(TABLE[2..].iter().filter(|row| row.1(case)).count(), 1, "{case:?}");
        }
    }

    #[test]
    fn every_cell_of_the_table_has_exactly_one_class() {
        let mut rows = std::collections::BTreeSet::new();
        for verified in [true, false] {
            for size in [Size::None, Size::Small, Size::Large] {
                for listed in 0..=5 {
                    for regressions in 0..=listed {
                        for attempts in 0..=4 {
                            let case = Case { verified, size, listed, regressions, attempts };
                            check(&case);
                            rows.insert(decide(&case, &Limits::default()).row);
                        }
                    }
                }
            }
        }
        assert_eq!(rows, (1..=10).collect(), "each row is reached");
    }

    proptest! {
        #[test]
        fn any_input_has_exactly_one_class(
            verified: bool,
            size in prop_oneof![Just(Size::None), Just(Size::Small), Just(Size::Large)],
            listed: u32,
            regressions: u32,
            attempts: u32,
        ) {
            check(&Case { verified, size, listed, regressions: regressions.min(listed), attempts });
        }

        #[test]
        fn more_trouble_never_gives_a_milder_answer(
            files in 0..40_u32, lines in 0..900_u64, commits in 0..30_u32, protected: bool,
            regressions in 0..4_u32, attempts in 0..5_u32,
        ) {
            let limits = Limits::default();
            let size = Size::of(files, lines, commits, protected, &limits);
            let case = Case { verified: true, size, listed: 9, regressions, attempts };
            let class = decide(&case, &limits).class;
            let worse = [
                Case { verified: false, ..case },
                Case { regressions: regressions + 1, ..case },
                Case { attempts: attempts + 1, ..case },
            ];
            let rank = |class| match class { Class::InSync => 0, Class::Minor => 1, Class::Major => 2, Class::Unknown => 3 };
            for worse in worse {
                prop_assert!(rank(decide(&worse, &limits).class) >= rank(class), "{case:?} {worse:?}");
            }
        }
    }

    #[test]
    fn the_size_turns_exactly_beyond_its_limits() {
        let limits = Limits::default();
        let size = |files, lines, commits, protected| Size::of(files, lines, commits, protected, &limits);
        assert_eq!(size(0, 0, 0, false), Size::None);
        assert_eq!(size(0, 0, 99, false), Size::None, "commits that cancel each other out");
        assert_eq!(size(1, 0, 0, false), Size::Small);
        assert_eq!(size(10, 400, 10, false), Size::Small);
        assert_eq!(size(11, 400, 10, false), Size::Large);
        assert_eq!(size(10, 401, 10, false), Size::Large);
        assert_eq!(size(10, 400, 11, false), Size::Large);
        assert_eq!(size(1, 1, 1, true), Size::Large);
    }

    #[test]
    fn all_features_regressed_is_major_only_if_there_were_two() {
        let case = |listed, regressions| Case { verified: true, size: Size::Small, listed, regressions, attempts: 0 };
        let row = |listed, regressions| decide(&case(listed, regressions), &Limits::default()).row;
        assert_eq!(row(1, 1), 6);
        assert_eq!(row(2, 1), 6);
        assert_eq!(row(2, 2), 2);
        assert_eq!(row(9, 2), 6);
        assert_eq!(row(9, 3), 2);
    }
}
