//! Nothing that an agent or a person gets to read is a command that destroys something.

use std::path::{Path, PathBuf};

/// What destroys something, as the words of a command. Assembled here so that this file does not hold them.
fn destructive() -> Vec<String> {
    [
        &["reset", "--hard"][..],
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
        &["checkout", "."],
        &["checkout", "-f"],
        &["restore", "."],
        &["switch", "-f"],
        &["switch", "--discard-changes"],
        &["worktree", "remove"],
        &["tag", "-d"],
        &["update-ref", "-d"],
        &["rm", "-r"],
        &["rm", "-f"],
        &["gc", "--prune"],
        &["reflog", "expire"],
    ]
    .iter()
    .map(|words| words.join(" "))
    .collect()
}

/// Returns the files below a folder that somebody gets to read: sources without their tests, texts, manifests, scripts.
fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let test = matches!(name, "tests" | "trials" | "fixtures" | "tests.rs" | "trials.rs" | "fixture.rs");
        if path.is_dir() && !test {
            files(&path, all);
        } else if !test && path.is_file() {
            all.push(path);
        }
    }
}

/// Returns the literals of a source, each as it would be typed. Programs are not called in literals alone, but in lists of them: those
/// are the calls of git, which a test of the crate looks at.
fn literals(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut all = Vec::new();
    for line in source.lines().map(str::trim) {
        // What stands in comments of public items is read as well, in the documentation.
        if let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) {
            all.push(typed(text));
        }
        all.extend(line.split('"').skip(1).step_by(2).map(typed));
    }
    all
}

fn typed(text: &str) -> String {
    let text = text.replace(['`', '\''], "");
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | ';' | '|' | ','));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn found(text: &str) -> Option<String> {
    destructive().into_iter().find(|words| {
        let end = text.find(words.as_str()).map(|at| &text[at + words.len()..]);
        // `rm -r` and `rm -rf`, but `checkout .` only if the word ends there.
        end.is_some_and(|end| !words.ends_with('.') || end.is_empty() || end.starts_with(' '))
    })
}

#[test]
fn nothing_that_is_said_is_a_command_that_destroys() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = vec![root.join("docs/forge.md"), root.join("src/cli/args/forge.rs")];
    for folder in ["src/project", "src/cli/args/forge", "src/cli/commands/forge", "packs/forge"] {
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
        bad.extend(texts.iter().filter_map(|text| Some(format!("{}: {}: {text}", path.display(), found(text)?))));
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn the_search_would_find_them() {
    for words in destructive() {
        for text in [format!("try `git {words}`"), format!("run {words} to begin anew")] {
            let source = format!("fn f() {{\n    Error::new({text:?})\n}}\n");
            assert!(literals(&source).iter().any(|text| found(text).is_some()), "{words}");
        }
        assert!(
            literals(&format!("/// Runs `git {words}` first.\n")).iter().any(|text| found(text).is_some()),
            "{words}"
        );
    }
    assert_eq!(found("checkout ./x"), None);
}
