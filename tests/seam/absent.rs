//! Without memory: every command ends well, with an answer that is empty or lies in the project.

use std::process::Command;

use super::{Ended, Fixture};

/// Every command, with what it prints where there is nothing.
fn all_are_quiet(place: &Fixture, change: impl Fn(&mut Command)) {
    let harness = place.path("repo/.harness").display().to_string();
    for (words, expected) in [
        (&["recall-here"][..], String::new()),
        (
            &[
                "recall-here",
                "--phase",
                "plan",
                "--query",
                "a",
                "--limit",
                "10",
            ],
            String::new(),
        ),
        (&["state-path", "plan"], format!("{harness}/PLAN.md\n")),
        (
            &["state-path", "progress", "--plan", "foo"],
            format!("{harness}/progress-foo.md\n"),
        ),
        (
            &["state-path", "both"],
            format!("{harness}/PLAN.md\t{harness}/progress.md\n"),
        ),
        (
            &["offer-save-here", "--kind", "fix", "--slug", "a"],
            "[]\n".to_owned(),
        ),
        (&["plans"], String::new()),
    ] {
        let mut command = place.bare(words);
        change(&mut command);
        let ended = Ended::of(&mut command);
        assert_eq!(
            ended,
            Ended {
                code: 0,
                stdout: expected,
                stderr: String::new()
            },
            "{words:?}"
        );
    }
}

#[test]
fn empty_home_and_no_git_are_fine() {
    let place = Fixture::empty();
    let before = place.snapshot();
    all_are_quiet(&place, |_| {});
    assert_eq!(place.snapshot(), before);
}

#[test]
fn no_home_at_all_is_no_trouble() {
    all_are_quiet(&Fixture::empty(), |command| {
        command.env_remove("HOME");
    });
}

#[test]
fn missing_home_folder_is_fine() {
    let place = Fixture::empty();
    let gone = place.path("gone");
    all_are_quiet(&place, |command| {
        command
            .env("HOME", &gone)
            .env("XDG_CONFIG_HOME", gone.join("config"));
    });
    assert!(!gone.exists());
}

#[test]
fn broken_memory_is_as_absent_with_one_warning() {
    let place = Fixture::empty();
    place.write("home/.config/helmdeck/helmdeck.toml", b"[seam\n\xff");
    place.write("home/.claude/.agentm-config.json", b"{\xff");
    place.write("home/file", "");
    for vault in ["gone", "home/file"] {
        for words in [&["recall-here"][..], &["state-path", "plan"], &["plans"]] {
            let ended = Ended::of(
                place
                    .bare(words)
                    .env("MEMORY_VAULT_PATH", place.path(vault)),
            );
            assert_eq!(
                (ended.code, ended.stderr.lines().count()),
                (0, 1),
                "{vault} {words:?}: {ended:?}"
            );
            assert!(
                ended.stderr.starts_with("warning[memory-unreadable]: "),
                "{ended:?}"
            );
        }
    }
}

#[test]
fn the_settings_of_everything_else_do_not_matter() {
    let place = Fixture::empty();
    place.write(
        "home/.config/helmdeck/helmdeck.toml",
        "[server]\nlisten = 5\n",
    );
    all_are_quiet(&place, |command| {
        command
            .env("HELMDECK_UNKNOWN", "x")
            .env("HELMDECK_MEMORY_KEY", "no key")
            .env("HELMDECK_MEMORY_URL", "no:url");
    });
}
