//! The phases of a dev loop: how much is recalled in each, and what of a project.

use serde::Serialize;

/// A phase of a dev loop.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    strum::IntoStaticStr,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Phase {
    /// The project is set up.
    Setup,
    /// Work is planned.
    Plan,
    /// Work is done. Whatever is not known counts as this.
    #[default]
    Work,
    /// Work is reviewed.
    Review,
    /// Work is released.
    Release,
    /// A fault is searched for.
    Bugfix,
    /// Documents are written.
    Documenter,
}

/// Part of a project that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// `_index.md`: what the project is.
    Index,
    /// `decisions/`.
    Decisions,
    /// `open-questions/`.
    Questions,
    /// `known-issues/`.
    Issues,
    /// `wiki-style/`.
    Style,
}

impl Read {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [
        Self::Index,
        Self::Decisions,
        Self::Questions,
        Self::Issues,
        Self::Style,
    ];

    /// Returns its path in the folder of a project.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Index => "_index.md",
            Self::Decisions => "decisions",
            Self::Questions => "open-questions",
            Self::Issues => "known-issues",
            Self::Style => "wiki-style",
        }
    }
}

impl Phase {
    /// Every phase.
    pub const ALL: [Self; 7] = [
        Self::Setup,
        Self::Plan,
        Self::Work,
        Self::Review,
        Self::Release,
        Self::Bugfix,
        Self::Documenter,
    ];

    /// Returns the phase of a name; `work` for any other. Small letters matter.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|phase| phase.as_str() == name)
            .unwrap_or_default()
    }

    /// Returns the phase that a misspelled name surely means, if it does not count as that one
    /// already.
    ///
    /// The name differs in letter case or in blanks around it.
    pub(crate) fn meant(name: &str) -> Option<Self> {
        let meant = Self::ALL
            .into_iter()
            .find(|phase| phase.as_str().eq_ignore_ascii_case(name.trim()))?;
        Some(meant).filter(|meant| *meant != Self::of(name))
    }

    /// Returns its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the default budget of a recall, in tokens.
    #[must_use]
    pub const fn budget(self) -> usize {
        match self {
            Self::Setup | Self::Review => 4_000,
            Self::Plan | Self::Work | Self::Release | Self::Bugfix => 6_000,
            Self::Documenter => 10_000,
        }
    }

    /// Returns what is read of a project, in reading order.
    ///
    /// A review does not get the decisions: it looks for itself.
    pub(crate) const fn reads(self) -> &'static [Read] {
        match self {
            Self::Setup => &[Read::Index],
            Self::Plan => &[Read::Index, Read::Decisions, Read::Questions],
            Self::Work => &[Read::Decisions, Read::Issues],
            Self::Review => &[],
            Self::Release => &[Read::Decisions],
            Self::Bugfix => &[Read::Issues],
            Self::Documenter => &[Read::Index, Read::Decisions, Read::Style],
        }
    }

    /// Returns whether the notes of the project come before those that are always loaded.
    pub(crate) const fn project_first(self) -> bool {
        matches!(self, Self::Documenter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_phase_is_work() {
        for phase in Phase::ALL {
            assert_eq!(Phase::of(phase.as_str()), phase);
        }
        for other in ["", "Work", "WORK", " plan", "not-a-real-phase", "plan\n"] {
            assert_eq!(Phase::of(other), Phase::Work, "{other:?}");
        }
    }

    #[test]
    fn what_is_surely_a_slip_is_known() {
        for (name, meant) in [
            ("PLAN", Some(Phase::Plan)),
            ("Review", Some(Phase::Review)),
            (" setup\n", Some(Phase::Setup)),
            ("plan", None),
            ("WORK", None),
            ("", None),
            ("not-a-real-phase", None),
            ("BUILD", None),
        ] {
            assert_eq!(Phase::meant(name), meant, "{name:?}");
        }
    }
}
