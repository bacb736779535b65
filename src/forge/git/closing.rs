//! Commits that close issues on GitHub: `Closes #12`, `Fixes acme/app#12`.

use crate::config::{Config, TrackerKind};

/// Words that close an issue when a commit or pull request with them is merged.
const WORDS: [&str; 9] = [
    "close", "closes", "closed", "fix", "fixes", "fixed", "resolve", "resolves", "resolved",
];
/// Prefix of keys without a setting.
const PREFIX: &str = "GH";

/// How commits name the issues that they close, in the project's tracker.
#[derive(Debug, Clone, Default)]
pub struct Closing {
    /// Prefix of keys, if the tracker is GitHub.
    prefix: Option<String>,
    repository: String,
}

impl Closing {
    /// Returns how commits of a project name issues.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let is_github = config.tracker.kind == TrackerKind::Github;
        let prefix = config
            .github
            .prefix
            .clone()
            .unwrap_or_else(|| PREFIX.to_owned());
        let repository = config.github.repository.clone().unwrap_or_default();
        Self {
            prefix: is_github.then_some(prefix),
            repository,
        }
    }

    /// Returns the keys of the issues that a text closes: `GH-12`.
    #[must_use]
    pub fn keys(&self, text: &str) -> Vec<String> {
        let Some(prefix) = &self.prefix else {
            return Vec::new();
        };
        numbers(text, &self.repository)
            .map(|number| format!("{prefix}-{number}"))
            .collect()
    }

    /// Says whether a text closes an issue.
    #[must_use]
    pub fn closes(&self, text: &str, key: &str) -> bool {
        self.prefix.is_some() && self.keys(text).iter().any(|one| one == key)
    }

    /// Returns what a commit writes after `Closes:` to close an issue: `#12`, or the key in another
    /// tracker.
    ///
    /// `None` for an issue that the tracker does not have.
    #[must_use]
    pub fn reference(&self, key: &str) -> Option<String> {
        let (prefix, number) = key.split_once('-')?;
        match &self.prefix {
            Some(own) => (own == prefix).then(|| format!("#{number}")),
            None => (prefix != crate::issues::LOCAL).then(|| key.to_owned()),
        }
    }
}

/// Returns the numbers of the issues of a repository (`owner/name`) that a text closes.
pub fn numbers<'a>(text: &'a str, repository: &'a str) -> impl Iterator<Item = u64> + 'a {
    let is_word = |word: &str| {
        let word = word.trim_start_matches(|c: char| !c.is_alphanumeric());
        let word = word.strip_suffix(':').unwrap_or(word);
        WORDS.iter().any(|one| one.eq_ignore_ascii_case(word))
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let pairs: Vec<(&str, &str)> = words
        .iter()
        .copied()
        .zip(words.iter().copied().skip(1))
        .collect();
    pairs
        .into_iter()
        .filter(move |(word, _)| is_word(word))
        .filter_map(move |(_, target)| number(target, repository))
}

fn number(target: &str, repository: &str) -> Option<u64> {
    let target = target.trim_end_matches(|c: char| !c.is_ascii_digit());
    let issue = target.strip_prefix("https://github.com/").and_then(|rest| {
        let (name, number) = rest.split_once("/issues/")?;
        name.eq_ignore_ascii_case(repository).then_some(number)
    });
    let short = target
        .split_once('#')
        .filter(|(name, _)| name.is_empty() || name.eq_ignore_ascii_case(repository));
    let number = issue.or_else(|| short.map(|(_, number)| number))?;
    number.parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_words_name_issues() {
        for (text, expected) in [
            ("Halve\n\nCloses #12.", vec![12]),
            ("fixes: #3, RESOLVED acme/app#4", vec![3, 4]),
            ("(Fix #7)", vec![7]),
            ("Close https://github.com/acme/app/issues/9", vec![9]),
            (
                "see #12; closes the door; closes other/app#5; fixes #0 #x",
                vec![],
            ),
        ] {
            assert_eq!(
                numbers(text, "acme/app").collect::<Vec<_>>(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn references_are_those_of_the_tracker() {
        let github =
            Config::parse("[tracker]\nkind = \"github\"\n[github]\nrepository = \"acme/app\"\n")
                .unwrap();
        let (github, linear) = (Closing::of(&github), Closing::of(&Config::default()));
        assert_eq!(
            (
                github.reference("GH-12").as_deref(),
                github.reference("LOCAL-1")
            ),
            (Some("#12"), None)
        );
        assert_eq!(
            (
                linear.reference("SX9-1").as_deref(),
                linear.reference("LOCAL-1")
            ),
            (Some("SX9-1"), None)
        );
        assert_eq!(
            (github.keys("Fixes #12"), linear.keys("Fixes #12")),
            (vec!["GH-12".to_owned()], Vec::new())
        );
    }
}
