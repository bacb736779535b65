//! Advice when to make a checkpoint.

use std::time::Duration;

use serde::Serialize;

use super::Sessions;
use crate::checkpoints::Checkpoints;
use crate::error::Result;
use crate::features::{Features, Item};
use crate::git::Oid;

/// Number of commits since the last checkpoint from which a new one is advised.
const COMMITS: usize = 5;
/// Age of the last checkpoint from which a new one is advised.
const AGE: Duration = Duration::from_secs(60 * 60);

/// What happened since the last checkpoint, or since the session began if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Since {
    /// Features newly verified.
    pub features: usize,
    /// Number of commits.
    pub commits: usize,
    /// Elapsed time.
    pub age: Duration,
    /// Whether the code differs from the checkpoint's.
    pub changed: bool,
}

/// The reason to advise a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// A feature was verified.
    FeaturePassing,
    /// Five commits or more.
    Commits,
    /// An hour or more, in which the code changed.
    Age,
}

impl Advice {
    /// Returns the reason as text for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::FeaturePassing => "a feature was shown to work since the last checkpoint",
            Self::Commits => "5 commits or more since the last checkpoint",
            Self::Age => "an hour or more since the last checkpoint",
        }
    }
}

/// Says whether a checkpoint is advised, and the first reason.
#[must_use]
pub fn advise(since: &Since) -> Option<Advice> {
    // Without a change in an hour, the last checkpoint already holds everything.
    match since {
        Since { features: 1.., .. } => Some(Advice::FeaturePassing),
        Since {
            commits: COMMITS.., ..
        } => Some(Advice::Commits),
        Since {
            age, changed: true, ..
        } if *age >= AGE => Some(Advice::Age),
        _ => None,
    }
}

impl Sessions<'_> {
    /// Says whether a checkpoint is advised now, and why. Without git there are none.
    ///
    /// # Errors
    /// Errors from git and the files.
    pub fn advice(&self) -> Result<Option<Advice>> {
        let Ok(git) = self.project.git() else {
            return Ok(None);
        };
        let Some(head) = git.head()? else {
            return Ok(None);
        };
        let session = self.shown()?;
        let last = Checkpoints::new(self.project).newest_valid()?;
        // Without a checkpoint, count from the start of the session.
        let (commit, at) = match (&last, &session) {
            (Some(last), _) => (last.oid(), last.timestamp),
            (None, Some(session)) => (
                session.head.as_deref().and_then(Oid::parse),
                Some(session.started_at),
            ),
            (None, None) => return Ok(None),
        };
        let Some(at) = at else { return Ok(None) };
        let range = commit
            .as_ref()
            .map_or_else(|| "HEAD".to_owned(), |commit| format!("{commit}..HEAD"));
        let seconds = self
            .project
            .environment()
            .now()
            .0
            .as_second()
            .saturating_sub(at.0.as_second());
        let age = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        let changed = || -> Result<bool> {
            let tree = commit
                .as_ref()
                .map(|commit| git.code_tree(commit))
                .transpose()?;
            Ok(tree != Some(git.code_tree(&head)?)
                || git.status()?.outside(git.memory()).next().is_some())
        };
        let listed = Features::new(self.project).list()?;
        // Do not count features that worked then, or that the session start only tested again.
        let known = last
            .as_ref()
            .and_then(|last| last.manifest.as_ref())
            .map(|known| known.features_passing.clone());
        let probed = session
            .as_ref()
            .and_then(|session| session.step(super::start::step::PROBE)?.note.clone());
        let known = known.unwrap_or_else(|| {
            probed
                .iter()
                .flat_map(|ids| ids.split(", "))
                .map(str::to_owned)
                .collect()
        });
        let fresh = |item: &Item| {
            let tested =
                item.standing.counts() && item.feature.verified_at.is_some_and(|then| then > at);
            tested && !known.contains(&item.feature.id)
        };
        Ok(advise(&Since {
            features: listed.features.iter().filter(|item| fresh(item)).count(),
            commits: usize::try_from(git.count_work(&range)?).unwrap_or(usize::MAX),
            age,
            changed: age >= AGE && changed()?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_advised_at_each_boundary() {
        let none = Since {
            changed: true,
            ..Since::default()
        };
        let minutes = |minutes: u64| Since {
            age: Duration::from_secs(60 * minutes),
            ..none
        };
        for (since, advice) in [
            (none, None),
            (
                Since {
                    features: 1,
                    ..none
                },
                Some(Advice::FeaturePassing),
            ),
            (Since { commits: 4, ..none }, None),
            (Since { commits: 5, ..none }, Some(Advice::Commits)),
            (
                Since {
                    commits: 6,
                    features: 1,
                    ..none
                },
                Some(Advice::FeaturePassing),
            ),
            (minutes(59), None),
            (minutes(60), Some(Advice::Age)),
            (
                Since {
                    changed: false,
                    ..minutes(600)
                },
                None,
            ),
        ] {
            assert_eq!(advise(&since), advice, "{since:?}");
        }
    }
}
