//! What is corrupt, unsafe or makes no sense: the exit code, one line on stderr, nothing on stdout.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::{Ended, Fixture};

#[test]
fn every_corrupt_plan_binding_is_reported() {
    type Damage = fn(&Fixture);
    let damages: [(&str, Damage); 11] = [
        ("blank", |place| {
            place.write("repo/.harness/active-plan", "  \n")
        }),
        ("dangling", |place| {
            place.write("repo/.harness/active-plan", "gone\n")
        }),
        ("no text", |place| {
            place.write("repo/.harness/active-plan", b"\xff\xfe")
        }),
        ("a folder", |place| {
            std::fs::create_dir(place.path("repo/.harness/active-plan")).unwrap()
        }),
        ("a link to nowhere", |place| {
            std::os::unix::fs::symlink("nowhere", place.path("repo/.harness/active-plan")).unwrap();
        }),
        ("a blank plan", |place| {
            place.write("repo/.harness/active-plan", "foo");
            place.write("vault/projects/seam-fixture/_harness/PLAN-foo.md", " \n");
        }),
        ("too long", |place| {
            place.write("repo/.harness/active-plan", "a".repeat(5_000))
        }),
        ("project.json is no text", |place| {
            place.write(
                "repo/.harness/project.json",
                b"{\"vault_project\": \"\xff\"}",
            )
        }),
        ("project.json is a folder", |place| {
            std::fs::remove_file(place.path("repo/.harness/project.json")).unwrap();
            std::fs::create_dir(place.path("repo/.harness/project.json")).unwrap();
        }),
        (".project-mode is no text", |place| {
            place.write("repo/.harness/.project-mode", b"\xff")
        }),
        (".harness is a file", |place| {
            std::fs::remove_dir_all(place.path("repo/.harness")).unwrap();
            place.write("repo/.harness", "");
        }),
    ];
    for (what, damage) in damages {
        let place = Fixture::new();
        damage(&place);
        for which in ["plan", "progress", "tracker", "both"] {
            let ended = place.run(&["state-path", which]);
            assert_eq!(ended.code, 2, "{what}: {ended:?}");
            ended.is_loud(2, "corrupt-state");
        }
        for verb in [
            &["recall-here"][..],
            &["plans"],
            &["offer-save-here", "--kind", "fix", "--slug", "a"],
        ] {
            assert_eq!(place.run(verb).code, 0, "{what}: {verb:?}");
        }
    }
}

#[test]
fn names_with_path_parts_are_unsafe() {
    let place = Fixture::new();
    for name in ["../escape", "a/b", "..", "x\\y", "a\nb", "a\u{7}"] {
        place
            .run(&["state-path", "plan", "--plan", name])
            .is_loud(2, "unsafe-name");
    }
    assert!(
        place
            .run(&["state-path", "plan", "--plan", "../escape"])
            .stderr
            .contains("unsafe plan name")
    );
    place.write(
        "repo/.harness/project.json",
        "{\"vault_project\": \"../../etc\"}",
    );
    place.run(&["state-path", "plan"]).is_loud(2, "unsafe-name");
    let recall = place.run(&["recall-here"]);
    assert!(
        recall.code == 0 && recall.stdout.contains("ALWAYS") && !recall.stdout.contains("DECIDED"),
        "{recall:?}"
    );
}

#[test]
fn a_project_with_tasks_asks_for_the_name() {
    let place = Fixture::new();
    place.write(
        "vault/projects/seam-fixture/tasks/001-build-it/plan.md",
        "Status: open\n",
    );
    place
        .run(&["state-path", "plan"])
        .is_loud(4, "task-name-required");
    let named = place.run(&["state-path", "tracker", "--plan", "build-it"]);
    assert!(
        named.code == 0 && named.stdout.ends_with("tasks/001-build-it/tracker.md\n"),
        "{named:?}"
    );
}

#[test]
fn mistakes_are_told_on_one_line() {
    let place = Fixture::new();
    for words in [
        &[][..],
        &["state-path"],
        &["state-path", "bogus"],
        &["bogus"],
        &["recall-here", "--limit", "many"],
        &["recall-here", "--unknown"],
        &["offer-save-here", "--kind", "fix"],
        &[
            "offer-save-here",
            "--kind",
            "fix",
            "--slug",
            "a",
            "--body-file",
            "gone.txt",
        ],
        &[
            "offer-save-here",
            "--kind",
            "fix",
            "--slug",
            "a",
            "--body-file",
            ".",
        ],
        &[
            "offer-save-here",
            "--kind",
            "fix",
            "--slug",
            "a",
            "--confidence",
            "nan",
        ],
        &["offer-save-here", "--candidate-json", "-"],
        &["offer-save-here", "--candidate-json", "-", "--kind", "fix"],
    ] {
        place.run(words).is_loud(2, "usage");
    }
    let odd = OsStr::from_bytes(b"a\xff");
    Ended::of(place.command(&["state-path", "plan", "--plan"]).arg(odd)).is_loud(2, "usage");
    place.write("repo/body", b"a\xff");
    place
        .run(&[
            "offer-save-here",
            "--kind",
            "fix",
            "--slug",
            "a",
            "--body-file",
            "body",
        ])
        .is_loud(2, "usage");
}

#[test]
fn mistakes_get_a_suggestion_and_a_page() {
    let place = Fixture::new();
    for (words, meant, help) in [
        (
            &["recal-here"][..],
            "did you mean `recall-here`? see `helmdeck seam --help`",
            "",
        ),
        (
            &["state_path", "plan"],
            "did you mean `state-path`? see `helmdeck seam --help`",
            "",
        ),
        (
            &["state-path", "plans"],
            "did you mean `plan`? ",
            "state-path",
        ),
        (&["--json=x", "plans"], "", "plans"),
        (
            &["recall-here", "--phse", "plan"],
            "did you mean `--phase`? ",
            "recall-here",
        ),
        (&["offer-save-here", "--kind", "d"], "", "offer-save-here"),
        (&["plans", "--verbose", "x"], "", "plans"),
        (&["zzz"], "see `helmdeck seam --help`", ""),
    ] {
        let ended = place.run(words);
        ended.is_loud(2, "usage");
        assert!(ended.stderr.contains(meant), "{words:?}: {ended:?}");
        let help = format!(
            "see `helmdeck seam{}{help} --help`\n",
            if help.is_empty() { "" } else { " " }
        );
        assert!(ended.stderr.ends_with(&help), "{words:?}: {ended:?}");
        assert_eq!(
            ended.stderr.contains("did you mean"),
            meant.contains("did you mean"),
            "{ended:?}"
        );
    }
    for verb in [
        "recall-here",
        "state-path",
        "offer-save-here",
        "plans",
        "doctor",
    ] {
        let help = place.run(&[verb, "--help"]);
        let examples = help.stdout.split("Examples:\n").nth(1).unwrap_or_default();
        assert!(
            examples.contains(&format!("helmdeck seam {verb}")),
            "{verb}: {help:?}"
        );
    }
}

#[test]
fn folder_name_with_line_break_is_not_printed() {
    let place = Fixture::empty();
    std::fs::create_dir(place.path("repo/a\nb")).unwrap();
    let cwd = place.path("repo/a\nb");
    Ended::of(place.bare(&["state-path", "plan", "--cwd"]).arg(cwd)).is_loud(2, "unsafe-name");
}

#[test]
fn programs_that_want_json_get_a_problem() {
    let place = Fixture::new();
    place.write("repo/.harness/active-plan", "gone");
    for words in [
        ["--json", "state-path", "plan"],
        ["state-path", "plan", "--json"],
    ] {
        let ended = place.run(&words);
        let problem: serde_json::Value = serde_json::from_str(&ended.stderr).unwrap();
        assert_eq!(
            (problem["title"].as_str(), problem["exit"].as_u64()),
            (Some("corrupt-state"), Some(2))
        );
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""));
    }
}
