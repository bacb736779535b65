//! Nothing that an agent or a person gets to read is a command that destroys something, and no
//! program is called with one.
//!
//! These tests read sources as text, because nothing else can say it of all texts: a text is not
//! run, and no lint knows git.

use std::path::{Path, PathBuf};

/// Command words that destroy something. Assembled here so that this file does not hold them.
fn destructive() -> Vec<String> {
    join(&[CALLED, SAID].concat())
}

/// What is never called either.
const CALLED: &[&[&str]] = &[
    &["reset", "--hard"],
    &["clean", "-f"],
    &["clean", "-x"],
    &["clean", "-d"],
    &["push", "--force"],
    &["push", "-f"],
    &["stash", "drop"],
    &["stash", "clear"],
    &["branch", "-D"],
    &["branch", "-f"],
    &["checkout", "--", "."],
    &["checkout", "-f"],
    &["switch", "-f"],
    &["switch", "--discard-changes"],
    &["rm", "-r"],
    &["gc", "--prune"],
    &["reflog", "expire"],
];

/// Words that code may use only on what it made itself, and for a named commit.
///
/// No text may suggest them.
const SAID: &[&[&str]] = &[
    &["checkout", "."],
    &["restore", "."],
    &["tag", "-d"],
    &["update-ref", "-d"],
    &["rm", "-f"],
    // git refuses it for a work tree with changes.
    &["worktree", "remove"],
];

fn join(all: &[&[&str]]) -> Vec<String> {
    all.iter().map(|words| words.join(" ")).collect()
}

/// Returns the files below a folder that a user gets to read.
///
/// They are sources without their tests, texts, manifests and scripts.
fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let test = matches!(name, "tests" | "fixtures" | "tests.rs" | "fixture.rs");
        if path.is_dir() && !test {
            files(&path, all);
        } else if !test && path.is_file() {
            all.push(path);
        }
    }
}

/// Returns the words of a source without what stands between them: arguments of a program, a list
/// of literals, read as in a shell.
fn as_typed(source: &str) -> String {
    let source = source
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let words = source.split(|c: char| {
        c.is_whitespace() || matches!(c, '"' | ',' | '[' | ']' | '&' | '`' | '(' | ')')
    });
    words
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the literals of a source, each as it would be typed.
fn literals(source: &str) -> Vec<String> {
    let source = source
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let mut all = Vec::new();
    for line in source.lines().map(str::trim) {
        // Comments of public items are read as well, in the documentation.
        if let Some(text) = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))
        {
            all.push(typed(text));
        }
        all.extend(line.split('"').skip(1).step_by(2).map(typed));
    }
    all
}

fn typed(text: &str) -> String {
    let text = text.replace(['`', '\''], "");
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | ';' | '|' | ','));
    words
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn found(text: &str) -> Option<String> {
    destructive().into_iter().find(|words| {
        let end = text
            .find(words.as_str())
            .map(|at| &text[at + words.len()..]);
        // `rm -r` and `rm -rf`, but `checkout .` only if the word ends there.
        end.is_some_and(|end| !words.ends_with('.') || end.is_empty() || end.starts_with(' '))
    })
}

#[test]
fn no_text_names_a_destructive_command() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = vec![
        root.join("docs/forge.md"),
        root.join("src/cli/args/forge.rs"),
    ];
    for folder in [
        "src/forge",
        "src/forge_files",
        "src/forge_documents",
        "src/skills",
        "src/cli/args/forge",
        "src/cli/commands/forge",
        "packs/forge",
    ] {
        let folder = root.join(folder);
        if folder.is_dir() {
            files(&folder, &mut all);
        }
    }
    assert!(all.len() > 100, "{all:?}");
    let mut bad = Vec::new();
    for path in all {
        let text = std::fs::read_to_string(&path).unwrap();
        let texts = if path.extension().is_some_and(|kind| kind == "rs") {
            literals(&text)
        } else {
            text.lines().map(typed).collect()
        };
        bad.extend(
            texts
                .iter()
                .filter_map(|text| Some(format!("{}: {}: {text}", path.display(), found(text)?))),
        );
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn no_call_uses_a_destructive_command() {
    let mut all = Vec::new();
    for folder in [
        "src/forge",
        "src/forge_files",
        "src/forge_documents",
        "src/skills",
        "src/cli/commands/forge",
        "packs/forge",
    ] {
        files(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join(folder),
            &mut all,
        );
    }
    all.retain(|path| path.extension().is_some_and(|kind| kind == "rs"));
    assert!(all.len() > 100, "{all:?}");
    let mut bad = Vec::new();
    for path in all {
        let typed = as_typed(&std::fs::read_to_string(&path).unwrap());
        let found = join(CALLED)
            .into_iter()
            .filter(|words| typed.contains(words.as_str()));
        bad.extend(found.map(|words| format!("{}: {words}", path.display())));
    }
    assert!(bad.is_empty(), "{bad:#?}");
    for words in CALLED {
        let list = words
            .iter()
            .map(|word| format!("{word:?}"))
            .collect::<Vec<_>>()
            .join(", ");
        assert!(
            as_typed(&format!("git.run(&[{list}], &run)")).contains(&words.join(" ")),
            "{words:?}"
        );
    }
}

#[test]
fn the_search_would_find_them() {
    for words in destructive() {
        for text in [
            format!("try `git {words}`"),
            format!("run {words} to begin anew"),
        ] {
            let source = format!("fn f() {{\n    Error::new({text:?})\n}}\n");
            assert!(
                literals(&source).iter().any(|text| found(text).is_some()),
                "{words}"
            );
        }
        assert!(
            literals(&format!("/// Runs `git {words}` first.\n"))
                .iter()
                .any(|text| found(text).is_some()),
            "{words}"
        );
    }
    assert_eq!(found("checkout ./x"), None);
}
