//! Contract of a feature since its checkpoint.
//!
//! Name, steps, tests and test files must not be weakened silently.

use std::sync::LazyLock;

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{Feature, FeaturesFile};

/// Difference between a feature and its contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// The feature.
    pub id: String,
    /// What differs.
    pub change: Change,
    /// The value in the contract.
    pub before: String,
    /// The value now; empty if it is gone.
    pub after: String,
}

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The feature is gone.
    Removed,
    /// Tests are gone from its list.
    TestsShrunk,
    /// It has another name.
    Renamed,
    /// Its steps changed.
    StepsChanged,
    /// A person's confirmation now replaces the tests.
    MadeManual,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (id, before, after) = (&self.id, &self.before, &self.after);
        match self.change {
            Change::Removed => write!(f, "{id} was removed: {before}"),
            Change::TestsShrunk => write!(f, "{id} lost the tests {before}"),
            Change::Renamed => write!(f, "{id} was called {before:?}, and is {after:?}"),
            Change::StepsChanged => write!(f, "the steps of {id} were {before}, and are {after}"),
            Change::MadeManual => write!(f, "{id} needed tests, and now needs a person's word"),
        }
    }
}

/// Returns how features differ from their contract. More tests and more features are no difference.
pub fn differences(agreed: &FeaturesFile, now: &FeaturesFile) -> Vec<Difference> {
    let mut all = Vec::new();
    for before in &agreed.features {
        let mut add = |change: Change, was: String, is: String| {
            all.push(Difference { id: before.id.clone(), change, before: was, after: is });
        };
        let Some(after) = now.get(&before.id) else {
            add(Change::Removed, before.name.clone(), String::new());
            continue;
        };
        let lost: Vec<&str> =
            before.tests().iter().filter(|test| !after.tests().contains(test)).map(String::as_str).collect();
        if !lost.is_empty() {
            add(Change::TestsShrunk, lost.join(", "), after.tests().join(", "));
        }
        if before.name != after.name {
            add(Change::Renamed, before.name.clone(), after.name.clone());
        }
        let steps = |feature: &Feature| feature.steps.clone().unwrap_or_default();
        if !steps(before).is_empty() && steps(before) != steps(after) {
            add(Change::StepsChanged, steps(before).join("; "), steps(after).join("; "));
        }
        if after.manual == Some(true) && before.manual != Some(true) && !before.tests().is_empty() {
            add(Change::MadeManual, before.tests().join(", "), String::new());
        }
    }
    all
}

/// A file with tests that shows less than it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Weakened {
    /// The file.
    pub path: String,
    /// How many tests it had.
    pub tests_before: usize,
    /// How many it has.
    pub tests_after: usize,
    /// How many of them were not run.
    pub ignored_before: usize,
    /// How many are not.
    pub ignored_after: usize,
}

/// Returns how a test file was weakened: fewer tests, or more ignored ones.
///
/// A missing file has no tests.
pub fn weakened(path: &str, before: &str, after: &str) -> Option<Weakened> {
    let (tests_before, ignored_before) = count(path, before)?;
    let (tests_after, ignored_after) = count(path, after)?;
    (tests_after < tests_before || ignored_after > ignored_before).then(|| Weakened {
        path: path.to_owned(),
        tests_before,
        tests_after,
        ignored_before,
        ignored_after,
    })
}

/// Says whether tests are counted in files of this name.
pub fn has_tests(path: &str) -> bool {
    patterns(path).is_some()
}

struct Patterns {
    test: Option<Regex>,
    ignored: Option<Regex>,
}

/// Returns what begins a test in a file, and what leaves one out.
fn patterns(path: &str) -> Option<&'static Patterns> {
    fn both(test: &str, ignored: &str) -> Patterns {
        Patterns { test: Regex::new(test).ok(), ignored: Regex::new(ignored).ok() }
    }
    static RUST: LazyLock<Patterns> = LazyLock::new(|| {
        both(
            r"(?m)^\s*#\[(?:\w+::)*(?:test|rstest|test_case|proptest)(?:\(|\]|\s)",
            r"(?m)^\s*#\[(?:ignore\b|cfg_attr\([^\]]*\bignore\b)",
        )
    });
    static PYTHON: LazyLock<Patterns> = LazyLock::new(|| {
        both(
            r"(?m)^\s*(?:async\s+)?def\s+test\w*\s*\(",
            r"(?m)^\s*@(?:pytest\.mark\.(?:skip|skipif|xfail)|unittest\.(?:skip\w*|expectedFailure))\b",
        )
    });
    static GO: LazyLock<Patterns> =
        LazyLock::new(|| both(r"(?m)^func\s+(?:Test|Fuzz|Example)\w*\s*\(", r"(?m)\bt\.Skip(?:f|Now)?\("));
    static SCRIPT: LazyLock<Patterns> = LazyLock::new(|| {
        both(
            r"(?m)^\s*(?:it|test)(?:\.\w+)*\s*\(",
            r"(?m)^\s*(?:(?:it|test|describe)(?:\.\w+)*\.(?:skip|todo|only)|xit|xtest|xdescribe)\s*\(",
        )
    });
    match path.rsplit_once('.')?.1 {
        "rs" => Some(&RUST),
        "py" => Some(&PYTHON),
        "go" => Some(&GO),
        "js" | "mjs" | "cjs" | "jsx" | "ts" | "mts" | "cts" | "tsx" => Some(&SCRIPT),
        _ => None,
    }
}

/// Returns how many tests a file has, and how many of them are left out.
fn count(path: &str, text: &str) -> Option<(usize, usize)> {
    let patterns = patterns(path)?;
    let number = |pattern: &Option<Regex>| pattern.as_ref().map_or(0, |pattern| pattern.find_iter(text).count());
    Some((number(&patterns.test), number(&patterns.ignored)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> FeaturesFile {
        let mut file: FeaturesFile = serde_json::from_str(include_str!("../fixtures/features.json")).unwrap();
        file.features[0].steps = Some(vec!["open it".into(), "see it".into()]);
        file
    }

    fn changes(change: impl FnOnce(&mut FeaturesFile)) -> Vec<Change> {
        let mut now = file();
        change(&mut now);
        differences(&file(), &now).into_iter().map(|difference| difference.change).collect()
    }

    #[test]
    fn what_weakens_the_contract_is_a_difference() {
        assert_eq!(changes(|_| {}), []);
        assert_eq!(changes(|file| drop(file.features.remove(0))), [Change::Removed]);
        assert_eq!(changes(|file| file.features[0].tests = None), [Change::TestsShrunk]);
        assert_eq!(changes(|file| file.features[0].tests = Some(vec!["x".into()])), [Change::TestsShrunk]);
        assert_eq!(changes(|file| file.features[1].name.push('!')), [Change::Renamed]);
        assert_eq!(changes(|file| drop(file.features[0].steps.take())), [Change::StepsChanged]);
        assert_eq!(changes(|file| file.features[0].manual = Some(true)), [Change::MadeManual]);
    }

    #[test]
    fn what_strengthens_it_is_none() {
        let none = changes(|file| {
            file.features[0].tests.as_mut().unwrap().push("more".into());
            file.features[1].tests = Some(vec!["first".into()]);
            file.features[1].steps = Some(vec!["first".into()]);
            file.features.insert(0, Feature::new("FORGE-003", "n"));
            file.features[1].status = super::super::file::Status::Failing;
        });
        assert_eq!(none, []);
    }

    #[test]
    fn fewer_tests_and_more_left_out_ones_weaken_a_file() {
        let rust = "#[test]\nfn a() {}\n    #[tokio::test(flavor = \"x\")]\nasync fn b() {}\n// #[test]\n";
        let weak = weakened("src/a.rs", rust, "#[test]\nfn a() {}\n").unwrap();
        assert_eq!((weak.tests_before, weak.tests_after), (2, 1));
        let ignored = rust.replacen("fn a", "#[ignore = \"later\"]\nfn a", 1);
        assert_eq!(weakened("src/a.rs", rust, &ignored).unwrap().ignored_after, 1);
        assert_eq!(weakened("src/a.rs", &ignored, rust), None);
        assert_eq!(weakened("src/a.rs", rust, rust), None);
        assert_eq!(weakened("src/a.rs", rust, "").unwrap().tests_after, 0, "it is gone");
        for (path, text, worse) in [
            ("t/test_a.py", "def test_a():\n  pass\n", "@pytest.mark.skip\ndef test_a():\n  pass\n"),
            ("a_test.go", "func TestA(t *testing.T) {\n}\n", "func TestA(t *testing.T) {\n\tt.Skip(\"x\")\n}\n"),
            ("a.test.ts", "it('a', () => {})\ntest('b')\n", "it.skip('a', () => {})\ntest('b')\n"),
            ("a.test.ts", "it('a', () => {})\ntest('b')\n", "it('a', () => {})\n"),
        ] {
            assert!(weakened(path, text, worse).is_some(), "{path}");
            assert_eq!(weakened(path, text, text), None, "{path}");
        }
        assert_eq!(weakened("README.md", rust, ""), None);
    }
}
