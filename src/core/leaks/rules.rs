//! The rules, read from their files.
//!
//! A file is a list of stanzas. `[id]` begins a rule; `#` begins a comment. The lines of a rule:
//!
//! | line | meaning |
//! |---|---|
//! | `keyword TEXT` | the rule is tried near this text, in any case; a rule has one or more |
//! | `regex PATTERN` | what it finds. The first group that takes part is the value, or else the whole match |
//! | `entropy N` | the value must have more than N bits a character |
//! | `not PATTERN` | a value that this matches is none |
//! | `check NAME` | what else a value must be, by a function of `checks.rs` |
//!
//! In a pattern, `<name>` is the rest of a name, `<sets>` what stands between a name and its value,
//! and `<end>` the end of a value. With `<sets>` the rule says what a value is by the name before
//! it, so the value must look random.

use std::sync::{LazyLock, OnceLock};

use regex::bytes::{Regex, RegexBuilder};

use super::checks::{self, Check};

/// The files. An earlier rule names a text that several find.
pub(super) const FILES: [&str; 2] = [
    include_str!("gitleaks.rules"),
    include_str!("helmdeck.rules"),
];

/// What the words in patterns stand for.
const WORDS: [(&str, &str); 3] = [
    ("<name>", r#"(?:[ \t\w.-]{0,20})[\s'"]{0,3}"#),
    (
        "<sets>",
        r#"(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}"#,
    ),
    ("<end>", r#"(?:[\x60'"\s;,)\]}<>&\\]|\.(?:[\s"]|$)|$)"#),
];

/// Limit of the memory that a pattern takes for its states, for each thread that searches. Above
/// it, it searches slower.
const MAX_STATES_BYTES: usize = 128 << 10;

/// A shape of credentials.
pub(super) struct Rule {
    pub(super) id: &'static str,
    pub(super) keywords: Vec<&'static str>,
    pub(super) pattern: &'static str,
    pub(super) entropy: f64,
    pub(super) not: Vec<&'static str>,
    pub(super) check: Option<Check>,
    compiled: OnceLock<Option<Compiled>>,
}

/// The patterns of a rule.
pub(super) struct Compiled {
    pub(super) regex: Regex,
    pub(super) not: Vec<Regex>,
}

/// All rules.
pub(super) static RULES: LazyLock<Vec<Rule>> =
    LazyLock::new(|| FILES.iter().flat_map(|file| read(file)).collect());

/// Reads a file of rules. The tests see to it that the files have the right form.
fn read(file: &'static str) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for line in file.lines().filter(|line| !line.starts_with('#')) {
        if let Some(id) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            rules.push(Rule::new(id));
        }
        let (Some(rule), Some((name, value))) = (rules.last_mut(), line.split_once(' ')) else {
            continue;
        };
        match name {
            "keyword" => rule.keywords.push(value),
            "regex" => rule.pattern = value,
            "entropy" => rule.entropy = value.parse().unwrap_or(rule.entropy),
            "not" => rule.not.push(value),
            "check" => rule.check = checks::named(value),
            _ => {}
        }
        if rule.names_its_value() {
            rule.check = Some(checks::behind_a_name);
        }
    }
    rules
}

impl Rule {
    const fn new(id: &'static str) -> Self {
        Self {
            id,
            keywords: Vec::new(),
            pattern: "",
            entropy: 0.0,
            not: Vec::new(),
            check: None,
            compiled: OnceLock::new(),
        }
    }

    /// Returns whether a name before the value says what it is.
    pub(super) fn names_its_value(&self) -> bool {
        self.pattern.contains("<sets>")
    }

    /// Returns the pattern with its words replaced by what they stand for.
    pub(super) fn full_pattern(&self) -> String {
        WORDS
            .iter()
            .fold(self.pattern.to_owned(), |text, (word, means)| {
                text.replace(word, means)
            })
    }

    /// Returns the patterns, compiled by the first call.
    pub(super) fn compiled(&self) -> Option<&Compiled> {
        let make = || {
            let not = self
                .not
                .iter()
                .map(|pattern| compile(pattern))
                .collect::<Option<Vec<Regex>>>()?;
            Some(Compiled {
                regex: compile(&self.full_pattern())?,
                not,
            })
        };
        self.compiled.get_or_init(make).as_ref()
    }
}

fn compile(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(pattern)
        .unicode(false)
        .dfa_size_limit(MAX_STATES_BYTES)
        .build()
        .ok()
}
