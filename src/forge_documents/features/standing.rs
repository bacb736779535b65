//! Standing of a feature by the evidence, and which feature comes next.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{Feature, FeaturesFile, Status, is_id};

/// Standing of a feature, by the evidence.
///
/// It is displayed as it is written: `passing_stale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It works: there is evidence, and the code that it is about is the same.
    Passing,
    /// There is evidence that it worked, but the code that it is about has changed since.
    ///
    /// It counts as passing; verify it again.
    PassingStale,
    /// It is marked as passing, without evidence. It counts as failing.
    UnverifiedPass,
    /// It does not work, and once did.
    Regressed,
    /// It does not work.
    Failing,
    /// It is being worked on.
    InProgress,
    /// It is not begun.
    NotImplemented,
    /// It waits for something else.
    Blocked,
    /// It is left for later, and counts for nothing.
    Deferred,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passing => "passing",
            Self::PassingStale => "passing_stale",
            Self::UnverifiedPass => "unverified_pass",
            Self::Regressed => "regressed",
            Self::Failing => "failing",
            Self::InProgress => "in_progress",
            Self::NotImplemented => "not_implemented",
            Self::Blocked => "blocked",
            Self::Deferred => "deferred",
        })
    }
}

impl Standing {
    /// Says whether it counts as passing.
    #[must_use]
    pub const fn counts(self) -> bool {
        matches!(self, Self::Passing | Self::PassingStale)
    }
}

/// Number of features by standing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// All features.
    pub total: usize,
    /// All but those left for later.
    pub counted: usize,
    /// Those that pass, with evidence.
    pub passing: usize,
    /// The passing ones that were verified with other code.
    pub stale: usize,
    /// Those marked as passing without evidence.
    pub unverified: usize,
    /// Those that no longer work.
    pub regressed: usize,
}

impl fmt::Display for Counts {
    /// Writes it for people: `12 of 14 pass, 3 of them on older code`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} pass", self.passing, self.counted)?;
        if self.stale > 0 {
            write!(f, ", {} of them on older code", self.stale)?;
        }
        Ok(())
    }
}

/// State of the project by which a pass is judged.
pub struct StatusInputs<'a> {
    /// Says whether the evidence of a feature exists and belongs to that feature.
    pub shows: &'a dyn Fn(&Feature) -> bool,
    /// Says whether the code that a feature is about is the code that was verified. Yes without
    /// git.
    pub is_same: &'a dyn Fn(&Feature) -> bool,
}

impl std::fmt::Debug for StatusInputs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatusInputs").finish_non_exhaustive()
    }
}

impl Feature {
    /// Returns its standing by the evidence.
    pub fn standing(&self, status_inputs: &StatusInputs<'_>) -> Standing {
        match self.status {
            Status::NotImplemented => Standing::NotImplemented,
            Status::InProgress => Standing::InProgress,
            Status::Failing if self.regressed_at.is_some() => Standing::Regressed,
            Status::Failing => Standing::Failing,
            Status::Blocked => Standing::Blocked,
            Status::Deferred => Standing::Deferred,
            Status::Passing => {
                let shown = self.evidence.is_some() && (status_inputs.shows)(self);
                if !(shown && self.verified_at.is_some()) {
                    Standing::UnverifiedPass
                } else if (status_inputs.is_same)(self) {
                    Standing::Passing
                } else {
                    Standing::PassingStale
                }
            }
        }
    }
}

impl FeaturesFile {
    /// Returns the number of features by standing.
    #[must_use]
    pub fn counts(standings: &[Standing]) -> Counts {
        let count = |which: &[Standing]| {
            standings
                .iter()
                .filter(|standing| which.contains(standing))
                .count()
        };
        Counts {
            total: standings.len(),
            counted: standings.len() - count(&[Standing::Deferred]),
            passing: count(&[Standing::Passing, Standing::PassingStale]),
            stale: count(&[Standing::PassingStale]),
            unverified: count(&[Standing::UnverifiedPass]),
            regressed: count(&[Standing::Regressed]),
        }
    }

    /// Returns the feature to work on next.
    ///
    /// The order: a feature that no longer works, then one in progress that is this agent's or has
    /// no agent, then one that does not work (or passes without evidence), then one that is not
    /// begun. The last two must wait for nothing. Within each group, the order of the file decides.
    /// Features that other sessions have claimed are left out.
    pub fn next(
        &self,
        standings: &[Standing],
        agent: &str,
        claimed: &BTreeSet<String>,
    ) -> Option<(&Feature, Next)> {
        let first = |why: Next, fits: &dyn Fn(&Feature, Standing) -> bool| {
            let mut all = self.features.iter().zip(standings);
            let fits = |(feature, standing): &(&Feature, &Standing)| {
                !claimed.contains(&feature.id) && fits(feature, **standing)
            };
            all.find(fits).map(|(feature, _)| (feature, why))
        };
        let free = |feature: &Feature| {
            feature.blockers().all(|blocker| {
                is_id(blocker)
                    && self
                        .features
                        .iter()
                        .zip(standings)
                        .any(|(other, standing)| other.id == blocker && standing.counts())
            })
        };
        first(Next::Regressed, &|_, standing| {
            standing == Standing::Regressed
        })
        .or_else(|| {
            first(Next::InProgress, &|feature, standing| {
                standing == Standing::InProgress
                    && feature.agent.as_deref().is_none_or(|other| other == agent)
            })
        })
        .or_else(|| {
            first(Next::Failing, &|feature, standing| {
                matches!(standing, Standing::Failing | Standing::UnverifiedPass) && free(feature)
            })
        })
        .or_else(|| {
            first(Next::NotImplemented, &|feature, standing| match standing {
                Standing::NotImplemented => free(feature),
                // Its blockers pass now.
                Standing::Blocked => feature.blockers().next().is_some() && free(feature),
                _ => false,
            })
        })
    }

    /// Returns at most `count` passing features, those whose verification is oldest.
    pub fn least_recent(&self, standings: &[Standing], count: usize) -> Vec<&Feature> {
        let mut all: Vec<&Feature> = self
            .features
            .iter()
            .zip(standings)
            .filter(|(feature, standing)| standing.counts() && !feature.tests().is_empty())
            .map(|(feature, _)| feature)
            .collect();
        all.sort_by_key(|feature| feature.verified_at);
        all.truncate(count);
        all
    }
}

/// Why a feature comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// It no longer works.
    Regressed,
    /// It is being worked on.
    InProgress,
    /// It does not work.
    Failing,
    /// It is not begun, and waits for nothing.
    NotImplemented,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::file::BlockedBy;
    use helmdeck_forge_files::time::Time;

    fn file(all: &[(&str, Status)]) -> FeaturesFile {
        let mut file: FeaturesFile = serde_json::from_str(r#"{"schema_version":"1.0"}"#).unwrap();
        for (id, status) in all {
            let mut feature = Feature::new(*id, "n");
            feature.status = *status;
            if *status == Status::Passing {
                feature.evidence = Some("triv:abc_def_ghi".into());
                feature.verified_at = Some(Time::parse("2025-12-24T12:00:00Z").unwrap());
                feature.verified_code_tree = Some("tree".into());
                feature.tests = Some(vec!["t".into()]);
            }
            file.features.push(feature);
        }
        file
    }

    fn judged(file: &FeaturesFile, status_inputs: &StatusInputs<'_>) -> Vec<Standing> {
        file.features
            .iter()
            .map(|feature| feature.standing(status_inputs))
            .collect()
    }

    fn standings(file: &FeaturesFile) -> Vec<Standing> {
        judged(
            file,
            &StatusInputs {
                shows: &|_| true,
                is_same: &|_| true,
            },
        )
    }

    fn next(file: &FeaturesFile) -> Option<(&str, Next)> {
        file.next(&standings(file), "Forge", &BTreeSet::new())
            .map(|(feature, why)| (feature.id.as_str(), why))
    }

    #[test]
    fn a_pass_without_evidence_counts_as_failing() {
        let rfc: FeaturesFile =
            serde_json::from_str(include_str!("../fixtures/features.json")).unwrap();
        assert_eq!(
            standings(&rfc),
            [Standing::UnverifiedPass, Standing::NotImplemented]
        );
        let counts = FeaturesFile::counts(&standings(&rfc));
        assert_eq!(
            (counts.passing, counts.counted, counts.unverified),
            (0, 2, 1)
        );
        let file = file(&[("A-001", Status::Passing)]);
        assert_eq!(standings(&file), [Standing::Passing]);
        let status_inputs = StatusInputs {
            shows: &|_| false,
            is_same: &|_| true,
        };
        assert_eq!(
            judged(&file, &status_inputs),
            [Standing::UnverifiedPass],
            "its evidence is gone"
        );
    }

    #[test]
    fn a_pass_of_other_code_is_stale_and_counts() {
        let file = file(&[("A-001", Status::Passing), ("A-002", Status::Deferred)]);
        let status_inputs = StatusInputs {
            shows: &|_| true,
            is_same: &|_| false,
        };
        assert_eq!(
            judged(&file, &status_inputs),
            [Standing::PassingStale, Standing::Deferred]
        );
        let counts = FeaturesFile::counts(&judged(&file, &status_inputs));
        assert_eq!(
            (counts.passing, counts.stale, counts.counted, counts.total),
            (1, 1, 1, 2)
        );
        assert_eq!(counts.to_string(), "1 of 1 pass, 1 of them on older code");
    }

    #[test]
    fn what_no_longer_works_comes_first() {
        let all = [
            ("A-001", Status::NotImplemented),
            ("A-002", Status::Failing),
            ("A-003", Status::InProgress),
            ("A-004", Status::InProgress),
            ("A-005", Status::Failing),
        ];
        let mut file = file(&all);
        file.features[2].agent = Some("Vector".into());
        file.features[4].regressed_at = Some(Time::parse("2025-12-24T12:00:00Z").unwrap());
        assert_eq!(next(&file), Some(("A-005", Next::Regressed)));
        file.features.remove(4);
        assert_eq!(next(&file), Some(("A-004", Next::InProgress)));
        file.features[3].agent = Some("Forge".into());
        assert_eq!(next(&file), Some(("A-004", Next::InProgress)));
        file.features.remove(3);
        assert_eq!(
            next(&file),
            Some(("A-002", Next::Failing)),
            "that in progress is another's"
        );
        file.features.remove(1);
        assert_eq!(next(&file), Some(("A-001", Next::NotImplemented)));
        file.features.remove(0);
        assert_eq!(next(&file), None);
    }

    #[test]
    fn what_waits_comes_when_its_blockers_pass() {
        let mut file = file(&[
            ("A-001", Status::NotImplemented),
            ("A-002", Status::Blocked),
            ("A-003", Status::Deferred),
        ]);
        file.features[0].blocked_by = Some(BlockedBy::One("the vendor".into()));
        file.features[1].blocked_by = Some(BlockedBy::Many(vec!["A-003".into()]));
        assert_eq!(next(&file), None);
        file.features[2] = super::tests::file(&[("A-003", Status::Passing)])
            .features
            .remove(0);
        assert_eq!(next(&file), Some(("A-002", Next::NotImplemented)));
        file.features[0].blocked_by = Some(BlockedBy::Nothing);
        assert_eq!(next(&file), Some(("A-001", Next::NotImplemented)));
    }

    #[test]
    fn those_verified_longest_ago_are_tried_again() {
        let all = [
            ("A-001", Status::Passing),
            ("A-002", Status::Passing),
            ("A-003", Status::Passing),
            ("A-004", Status::Failing),
        ];
        let mut file = file(&all);
        file.features[1].verified_at = Some(Time::parse("2025-12-23T12:00:00Z").unwrap());
        let ids = |file: &FeaturesFile| {
            file.least_recent(&standings(file), 2)
                .iter()
                .map(|feature| feature.id.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(&file), ["A-002", "A-001"]);
        file.features[0].tests = None;
        assert_eq!(ids(&file), ["A-002", "A-003"]);
    }
}
