//! Trigger rules: a pure function of the skills and the task, with the reasons.

use std::collections::{BTreeSet, HashMap, HashSet};

use frostem::{Algorithm, Stemmer};
use globset::GlobSetBuilder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

use crate::pattern::glob;
use crate::skill::Triggers;

/// The points of a keyword.
const KEYWORD: u32 = 3;
/// Maximum number of points of all keywords.
const KEYWORDS: u32 = 9;
/// The points of a pattern of files.
const PATTERN: u32 = 2;
/// Maximum number of points of all patterns.
const PATTERNS: u32 = 4;
/// The points of labels, however many fit.
const LABELS: u32 = 5;
/// Points at which a skill fires.
pub const FIRES: u32 = 3;
/// Maximum number of bytes of a text that are matched.
pub(crate) const TEXT: usize = 64 * 1024;
/// Maximum number of files that are looked at.
pub(crate) const FILES: usize = 2_000;

/// Query for skills: the task, its files and labels.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Query {
    /// The request: a task, a prompt, a title. The first 65,536 bytes count.
    pub task: String,
    /// The files it is about: paths below the root of the repository. The first 2,000 count.
    pub files: Vec<String>,
    /// The labels of its issue.
    pub labels: Vec<String>,
}

/// What kind of trigger fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A word or phrase.
    Keyword,
    /// A pattern of files.
    FilePattern,
    /// A label of an issue.
    LinearLabel,
}

/// Why a skill has points.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// What kind of trigger fitted.
    pub kind: Kind,
    /// The trigger, as the manifest has it.
    pub trigger: String,
    /// The first file that fits a pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The points it added: 0 once its kind has reached its maximum.
    pub points: u32,
}

/// A skill that has points.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Match {
    /// The name of the skill.
    pub skill: String,
    /// Its points.
    pub score: u32,
    /// Whether it fires: it has 3 points or more.
    pub fires: bool,
    /// How many triggers it has. Of two with equal points that with fewer comes first.
    pub triggers: usize,
    /// Where the points come from.
    pub reasons: Vec<Reason>,
}

/// Returns the skills that have points: most points first, then fewest triggers, then by name.
///
/// The same skills and the same query always have the same answer, in whichever order the skills
/// come.
pub fn matches<'s>(
    skills: impl IntoIterator<Item = (&'s str, &'s Triggers)>,
    query: &Query,
) -> Vec<Match> {
    let skills: Vec<_> = skills.into_iter().collect();
    let text = Text::new(&query.task);
    let files = fitting(
        skills
            .iter()
            .flat_map(|(_, triggers)| &triggers.file_patterns),
        &query.files,
    );
    let labels: HashSet<String> = query.labels.iter().map(|label| fold(label)).collect();
    let mut found: Vec<Match> = skills
        .into_iter()
        .filter_map(|(name, triggers)| {
            let reasons = reasons(triggers, &text, &files, &labels);
            let score = reasons.iter().map(|reason| reason.points).sum();
            (score > 0).then(|| Match {
                skill: name.to_owned(),
                score,
                fires: score >= FIRES,
                triggers: triggers.count(),
                reasons,
            })
        })
        .collect();
    found.sort_by(|a, b| (b.score, a.triggers, &a.skill).cmp(&(a.score, b.triggers, &b.skill)));
    found
}

/// Returns the first file that fits each pattern. All patterns are compared at once.
fn fitting<'a>(
    patterns: impl Iterator<Item = &'a String>,
    files: &'a [String],
) -> HashMap<&'a str, &'a str> {
    let mut fitting = HashMap::new();
    if files.is_empty() {
        return fitting;
    }
    let (mut set, mut known) = (GlobSetBuilder::new(), Vec::new());
    for pattern in patterns.collect::<BTreeSet<_>>() {
        // A skill with an invalid pattern is itself invalid, and is not matched.
        if let Ok(glob) = glob(pattern) {
            set.add(glob);
            known.push(pattern.as_str());
        }
    }
    let Ok(set) = set.build() else { return fitting };
    for file in files.iter().take(FILES) {
        for at in set.matches(file.strip_prefix("./").unwrap_or(file)) {
            fitting.entry(known[at]).or_insert(file.as_str());
        }
    }
    fitting
}

fn reasons(
    triggers: &Triggers,
    text: &Text,
    files: &HashMap<&str, &str>,
    labels: &HashSet<String>,
) -> Vec<Reason> {
    let mut all = Vec::new();
    let mut add = |kind, points: u32, most: u32, trigger: &String, file: Option<&str>| {
        let before: u32 = all
            .iter()
            .filter(|had: &&Reason| had.kind == kind)
            .map(|had| had.points)
            .sum();
        let points = points.min(most - before);
        all.push(Reason {
            kind,
            trigger: trigger.clone(),
            file: file.map(str::to_owned),
            points,
        });
    };
    let mut seen = HashSet::new();
    for keyword in &triggers.keywords {
        let phrase = tokens(keyword);
        if text.has(&phrase) && seen.insert(phrase) {
            add(Kind::Keyword, KEYWORD, KEYWORDS, keyword, None);
        }
    }
    let mut seen = HashSet::new();
    for pattern in &triggers.file_patterns {
        if let Some(file) = files.get(pattern.as_str()).filter(|_| seen.insert(pattern)) {
            add(Kind::FilePattern, PATTERN, PATTERNS, pattern, Some(file));
        }
    }
    let mut seen = HashSet::new();
    for label in &triggers.linear_labels {
        let folded = fold(label);
        if labels.contains(&folded) && seen.insert(folded) {
            add(Kind::LinearLabel, LABELS, LABELS, label, None);
        }
    }
    all
}

/// Text as a list of tokens.
struct Text {
    tokens: Vec<String>,
    known: HashSet<String>,
}

impl Text {
    fn new(text: &str) -> Self {
        let tokens = tokens(&text[..text.floor_char_boundary(TEXT)]);
        Self {
            known: tokens.iter().cloned().collect(),
            tokens,
        }
    }

    /// Says whether the tokens of a word or phrase follow each other somewhere.
    fn has(&self, phrase: &[String]) -> bool {
        // Most phrases fail here, without a look at every place.
        let may_be = !phrase.is_empty() && phrase.iter().all(|token| self.known.contains(token));
        may_be
            && self
                .tokens
                .windows(phrase.len())
                .any(|window| window == phrase)
    }
}

/// Splits a text into the stems of its words, by the English Snowball algorithm, and its other
/// characters.
fn tokens(text: &str) -> Vec<String> {
    let stemmer = Stemmer::new(Algorithm::English);
    let folded = fold(text);
    let mut rest = folded.as_str();
    let mut all = Vec::new();
    while let Some(first) = rest.chars().next() {
        let length = match rest.find(|char| !is_word(char)) {
            Some(0) => first.len_utf8(),
            Some(length) => length,
            None => rest.len(),
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        if is_word(first) {
            all.push(stemmer.stem(token).into_owned());
        } else if first != ' ' {
            all.push(token.to_owned());
        }
    }
    all
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Makes texts equal that differ only in case, in how an accent is written, or in white space.
fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !folded.is_empty() {
            folded.push(' ');
        }
        if word.is_ascii() {
            folded.extend(word.chars().map(|char| char.to_ascii_lowercase()));
        } else {
            folded.extend(word.nfc().flat_map(char::to_lowercase).nfc());
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn triggers(keywords: &[&str], patterns: &[&str], labels: &[&str]) -> Triggers {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Triggers {
            keywords: own(keywords),
            file_patterns: own(patterns),
            linear_labels: own(labels),
            tracker: false,
        }
    }

    fn query(text: &str, files: &[&str], labels: &[&str]) -> Query {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Query {
            task: text.to_owned(),
            files: own(files),
            labels: own(labels),
        }
    }

    fn rfc() -> Triggers {
        triggers(
            &["generate", "create", "implement", "add function"],
            &["*.rs", "Cargo.toml"],
            &["feature", "enhancement"],
        )
    }

    #[track_caller]
    fn score(triggers: &Triggers, query: &Query) -> (u32, bool) {
        let found = matches([("s", triggers)], query);
        found.first().map_or((0, false), |found| {
            assert_eq!(
                found.score,
                found
                    .reasons
                    .iter()
                    .map(|reason| reason.points)
                    .sum::<u32>()
            );
            (found.score, found.fires)
        })
    }

    #[test]
    fn each_kind_of_trigger_has_its_points_and_its_most() {
        let all = "Generate, create and implement; then add  function\nfoo";
        for (text, files, labels, points) in [
            ("", &[][..], &[][..], 0),
            ("generate it", &[], &[], 3),
            ("generate and generate", &[], &[], 3),
            ("generate and create", &[], &[], 6),
            ("generate, create, implement", &[], &[], 9),
            (all, &[], &[], 9),
            ("", &["src/a.rs"], &[], 2),
            ("", &["src/a.rs", "b.rs"], &[], 2),
            ("", &["src/a.rs", "x/Cargo.toml"], &[], 4),
            ("", &[], &["FEATURE"], 5),
            ("", &[], &["feature", "Enhancement"], 5),
            (all, &["a.rs", "Cargo.toml"], &["feature"], 18),
        ] {
            let (score, fires) = score(&rfc(), &query(text, files, labels));
            assert_eq!(
                (score, fires),
                (points, points >= 3),
                "{text} {files:?} {labels:?}"
            );
        }
        let patterns = triggers(&[], &["*.rs", "a.*", "a.rs", "src/*"], &[]);
        assert_eq!(
            score(&patterns, &query("", &["src/a.rs"], &[])),
            (4, true),
            "the most of all patterns"
        );
    }

    #[test]
    fn words_match_whole_by_their_stems() {
        for (keyword, text, hit) in [
            ("create", "CREATE it", true),
            ("create", "it creates", true),
            ("implement", "implementing a parser", true),
            ("implement", "the implementation", true),
            ("review", "Reviewed twice", true),
            ("issue", "three issues", true),
            ("generate", "in general", false),
            ("test", "the latest", false),
            ("create", "recreate", false),
            ("create", "create_all", false),
            ("create", "create-all", true),
            ("create", "(create)", true),
            ("add function", "Add\tFunction", true),
            ("add function", "adding functions", true),
            ("add function", "add, function", false),
            ("add function", "add a function", false),
            ("add function", "add add function", true),
            ("c++", "in C++ only", true),
            ("c++", "in c only", false),
            (".net", "on .NET", true),
            (".net", "the net", false),
            ("=>", "a => b", true),
            ("Überblick", "ein überblick", true),
            ("caf\u{e9}", "CAFE\u{301}", true),
            ("", "x", false),
            (" ", "x", false),
        ] {
            assert_eq!(
                score(&triggers(&[keyword], &[], &[]), &query(text, &[], &[])).1,
                hit,
                "{keyword} in {text}"
            );
        }
    }

    #[test]
    fn a_match_says_why() {
        let found = matches(
            [("s", &rfc())],
            &query("Implement this", &["docs/x.md", "src/a.rs"], &["Feature"]),
        );
        let reasons: Vec<_> = found[0]
            .reasons
            .iter()
            .map(|r| (r.kind, r.trigger.as_str(), r.file.as_deref(), r.points))
            .collect();
        assert_eq!(
            reasons,
            [
                (Kind::Keyword, "implement", None, 3),
                (Kind::FilePattern, "*.rs", Some("src/a.rs"), 2),
                (Kind::LinearLabel, "feature", None, 5),
            ]
        );
    }

    #[test]
    fn the_order_is_points_then_fewest_triggers_then_name() {
        let one = triggers(&["make"], &[], &[]);
        let two = triggers(&["make", "other"], &[], &[]);
        let best = triggers(&["make", "it"], &["*.rs", "*.py"], &["x"]);
        let none = triggers(&["never"], &[], &[]);
        let mut skills = vec![
            ("d", &two),
            ("e", &none),
            ("b", &one),
            ("z", &best),
            ("a", &two),
            ("c", &one),
        ];
        let query = query("make it", &[], &[]);
        let expected = ["z", "b", "c", "a", "d"];
        for _ in 0..skills.len() {
            skills.rotate_left(1);
            let names: Vec<_> = matches(skills.clone(), &query)
                .into_iter()
                .map(|found| found.skill)
                .collect();
            assert_eq!(names, expected);
        }
    }

    #[test]
    fn only_the_beginning_of_a_huge_text_counts() {
        let long = format!("{} generate", "é".repeat(TEXT));
        assert_eq!(score(&rfc(), &query(&long, &[], &[])), (0, false));
        let long = format!("generate {}", "é".repeat(TEXT));
        assert_eq!(score(&rfc(), &query(&long, &[], &[])), (3, true));
    }
}
