//! What the crate may not say, to git or to anybody.

use std::path::Path;

use crate::recovery::unknown::tests::every;

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
        &["checkout", "-f"],
        &["switch", "-f"],
        &["switch", "--discard-changes"],
        &["worktree", "remove"],
        &["rm", "-r"],
        &["gc", "--prune"],
        &["reflog", "expire"],
    ]
    .iter()
    .map(|words| words.join(" "))
    .collect()
}

fn sources(folder: &Path, all: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "tests" {
                sources(&path, all);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests.rs" {
            all.push(path);
        }
    }
}

/// Returns the words of a source, without quotes and commas: arguments of a program read as in a shell.
fn as_typed(source: &str) -> String {
    let words = source.split(|c: char| c.is_whitespace() || matches!(c, '"' | ',' | '[' | ']' | '&' | '`' | '(' | ')'));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[test]
fn no_source_of_this_crate_holds_a_command_that_destroys() {
    let mut all = Vec::new();
    sources(Path::new(env!("CARGO_MANIFEST_DIR")), &mut all);
    assert!(all.len() > 20, "{all:?}");
    let mut found = Vec::new();
    for path in all {
        // Tests may set up what they want.
        let source = std::fs::read_to_string(&path).unwrap();
        let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let typed = as_typed(source);
        for words in destructive() {
            if typed.contains(&words) {
                found.push(format!("{}: {words}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_search_would_find_one() {
    let source = format!("git.run(&[{:?}, {:?}], &run)", "reset", format!("--{}", "hard"));
    assert!(destructive().iter().any(|words| as_typed(&source).contains(words)), "{}", as_typed(&source));
}

#[test]
fn no_reason_proposes_a_command_that_destroys() {
    for reason in every() {
        let text = format!("{} {}", reason.text(), reason.next());
        assert!(destructive().iter().all(|words| !text.contains(words.as_str())), "{text}");
    }
}
