//! Check of `architecture.md`: the paths that it names in backticks must exist.

use std::sync::LazyLock;

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::files::check_path;
use crate::layout::ARCHITECTURE;
use crate::project::Project;

/// Result of checking the paths that `architecture.md` names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// How many paths it names.
    pub paths: usize,
    /// The named paths that do not exist. This is a warning, not an error.
    pub missing: Vec<Missing>,
}

/// A named path that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// The path.
    pub path: String,
    /// The line in which it is named, from 1.
    pub line: usize,
}

/// Checks that the paths in backticks in `architecture.md` exist.
///
/// Without that file, no path is named.
///
/// # Errors
/// The errors of reading the file.
pub fn check(project: &Project) -> Result<Checked> {
    let bytes = project.files().read(ARCHITECTURE)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut checked = Checked::default();
    for (line, path) in paths(&text) {
        // A path that leaves the root is not checked.
        if check_path(&path).is_err() {
            continue;
        }
        checked.paths += 1;
        if project.root().join(&path).symlink_metadata().is_err() {
            checked.missing.push(Missing { path, line });
        }
    }
    Ok(checked)
}

/// Returns the words in backticks that look like paths, each with its line.
///
/// Code blocks are left out.
fn paths(text: &str) -> Vec<(usize, String)> {
    static SPAN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("`([^`\n]+)`").ok());
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for (at, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => {
                let spans = SPAN.iter().flat_map(|span| span.captures_iter(line));
                let words = spans.filter_map(|span| span.get(1)).filter_map(|span| path(span.as_str()));
                found.extend(words.map(|path| (at + 1, path)));
            }
            _ => {}
        }
    }
    found
}

/// Returns the text in backticks as a path from the root, if it looks like one.
///
/// A path has parts with `/` between them, and the last part has a file extension or a `/` after it. `and/or`,
/// `a::b`, patterns and addresses are not paths.
fn path(span: &str) -> Option<String> {
    let span = span.trim().trim_start_matches("./");
    // `src/a.rs:12` and `src/a.rs#L12` name a line.
    let span = span.split(['#', ':']).next().unwrap_or_default();
    let odd = |c: char| c.is_whitespace() || "*?{}[]<>|\"'`$\\=,;()@".contains(c);
    if !span.contains('/') || span.starts_with(['/', '-', '~']) || span.contains(odd) || span.contains("//") {
        return None;
    }
    let folder = span.ends_with('/');
    let path = span.trim_end_matches('/');
    let last = path.rsplit('/').next().unwrap_or_default();
    let ending = last.rsplit_once('.').is_some_and(|(_, ending)| {
        (1..=8).contains(&ending.len()) && ending.starts_with(|c: char| c.is_ascii_alphabetic())
    });
    (folder || ending).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::ProjectEnvironment;

    #[test]
    fn only_what_looks_like_a_path_is_one() {
        for (span, expected) in [
            ("src/main.rs", Some("src/main.rs")),
            ("./src/main.rs:12", Some("src/main.rs")),
            ("src/a.rs#L3", Some("src/a.rs")),
            ("crates/core/", Some("crates/core")),
            (".forge/config.toml", Some(".forge/config.toml")),
            ("and/or", None),
            ("main.rs", None),
            ("a::b/c.rs", None),
            ("https://example.com/a.html", None),
            ("/etc/hosts.conf", None),
            ("src/*.rs", None),
            ("cargo test src/a.rs", None),
            ("v1/2.0", None),
        ] {
            assert_eq!(path(span).as_deref(), expected, "{span}");
        }
        let text = "one `src/a.rs` and `src/b.rs`\n```\n`src/no.rs`\n```\n`lib/`\n";
        let all: Vec<_> = paths(text).into_iter().collect();
        assert_eq!(all, [(1, "src/a.rs".into()), (1, "src/b.rs".into()), (5, "lib".into())]);
    }

    #[test]
    fn a_path_that_is_gone_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join(".forge/memory/long-term")).unwrap();
        let project = Project::open(folder.path(), ProjectEnvironment::default()).unwrap().unwrap();
        assert_eq!(check(&project).unwrap(), Checked::default(), "absent names nothing");
        std::fs::create_dir(folder.path().join("src")).unwrap();
        std::fs::write(folder.path().join("src/a.rs"), "").unwrap();
        let text = "# System\n\n- `src/a.rs` is there, `src/b.rs` is not\n- `../x/y.rs` is none of ours\n";
        std::fs::write(folder.path().join(ARCHITECTURE), text).unwrap();
        let checked = check(&project).unwrap();
        assert_eq!((checked.paths, checked.missing), (2, vec![Missing { path: "src/b.rs".into(), line: 3 }]));
    }
}
