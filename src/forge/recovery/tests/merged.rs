//! Rollbacks and checkpoints where work is merged: what counts is the tree.

use super::fixture::Fixture;
use crate::checkpoints::{Checkpoints, Create};
use crate::environment::ProjectEnvironment;
use crate::features::{Add, Features};
use crate::git::fixture::Repository;
use crate::project::Project;
use crate::recovery::{Action, Apply, Assess, Class, Recovery};
use crate::sessions::{Sessions, Start};

/// A small project in some language, with two features.
struct Language {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    code: &'static str,
    wrong: &'static str,
    config: &'static str,
    tests: [&'static str; 2],
}

const LANGUAGES: [Language; 2] = [
    Language {
        name: "Rust",
        files: &[
            (
                "Cargo.toml",
                "[package]\nname = \"halving\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n",
            ),
            (
                "Cargo.lock",
                "version = 4\n\n[[package]]\nname = \"halving\"\nversion = \"0.1.0\"\n",
            ),
            (".gitignore", "/target\n"),
            (
                "tests/halves.rs",
                "#[test]\nfn even() {\n    assert_eq!(halving::half(4), 2);\n}\n\n#[test]\nfn odd() {\n    \
                 assert_eq!(halving::half(9), 4);\n}\n",
            ),
            ("src/lib.rs", "pub fn half(x: i32) -> i32 {\n    x / 2\n}\n"),
        ],
        code: "src/lib.rs",
        wrong: "pub fn half(x: i32) -> i32 {\n    x / 3\n}\n",
        config: "[verify]\ncommands = [\"cargo test --offline\"]\nrunner = \"cargo test --offline --test halves {prefix}\"\n",
        tests: ["even", "odd"],
    },
    Language {
        name: "Python",
        files: &[
            (
                "test_halves.py",
                "import unittest\nfrom halving import half\n\n\nclass Halves(unittest.TestCase):\n    def test_even(self):\n        \
                 self.assertEqual(half(4), 2)\n\n    def test_odd(self):\n        self.assertEqual(half(9), 4)\n",
            ),
            (".gitignore", "__pycache__/\n"),
            ("halving.py", "def half(x):\n    return x // 2\n"),
        ],
        code: "halving.py",
        wrong: "def half(x):\n    return x // 3\n",
        config: "[verify]\ncommands = [\"python3 -m unittest\"]\nrunner = \"python3 -m unittest {prefix}\"\ncount_regex = \"Ran (\\\\d+)\"\n",
        tests: [
            "test_halves.Halves.test_even",
            "test_halves.Halves.test_odd",
        ],
    },
];

fn project(repository: &Repository) -> Project {
    Project::open(repository.path(), ProjectEnvironment::default())
        .unwrap()
        .unwrap()
}

/// A repository with a checkpoint on `main`, whose two features pass, and `work` checked out.
fn begun(language: &Language) -> Repository {
    let repository = Repository::new();
    for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
        repository.run(&["config", name, value]);
    }
    for (path, text) in language.files {
        repository.write(path, text);
    }
    crate::init::init(
        repository.path(),
        ProjectEnvironment::default(),
        &crate::init::Init::default(),
    )
    .unwrap();
    repository.write(".forge/config.toml", language.config);
    let project = project(&repository);
    crate::trust::agree(&project, &crate::trust::state(&project).unwrap()).unwrap();
    for test in language.tests {
        let new = Add {
            name: test.to_owned(),
            tests: vec![test.to_owned()],
            ..Add::default()
        };
        Features::new(&project).add(&new, None).unwrap();
    }
    repository.commit("good");
    verify(&project, true);
    repository.commit("verified");
    Checkpoints::new(&project)
        .create(&Create {
            key: Some("A-1".into()),
            ..Create::default()
        })
        .unwrap();
    repository.commit("the manifest");
    repository.run(&["switch", "-q", "-c", "work"]);
    repository
}

fn verify(project: &Project, pass: bool) {
    for feature in Features::new(project).read().unwrap().features {
        let verified = Features::new(project).verify(&feature.id).unwrap();
        assert_eq!(verified.passed, pass, "{verified:?}");
    }
}

fn tree(repository: &Repository, commit: &str) -> String {
    let git = repository.git();
    let commit = git.resolve(commit).unwrap().unwrap();
    git.code_tree(&commit).unwrap()
}

fn spoil(repository: &Repository, language: &Language) {
    for number in 1..=3 {
        repository.write(
            language.code,
            format!("{}{}", language.wrong, "\n".repeat(number)),
        );
        repository.commit("wrong");
    }
    verify(&project(repository), false);
    repository.commit("[session] what fails");
    let report = Recovery::new(&project(repository))
        .assess(Assess::default())
        .unwrap();
    assert_eq!(
        (report.class, report.action),
        (Class::Major, Action::RollBack),
        "{}: {report}",
        language.name
    );
}

/// Asserts that the code of `main` is the checkpoint's, and that nobody proposes another rollback.
fn is_good(repository: &Repository, language: &Language, how: &str) {
    let what = format!("{}, {how}", language.name);
    assert_eq!(repository.run(&["branch", "--show-current"]), "main");
    assert_eq!(
        tree(repository, "HEAD"),
        tree(repository, "checkpoint/A-1-v1^{commit}"),
        "{what}"
    );
    let project = project(repository);
    let report = Recovery::new(&project).assess(Assess::default()).unwrap();
    assert_eq!(report.class, Class::InSync, "{what}: {report}");
    let started = Sessions::new(&project).start(&Start::default()).unwrap();
    assert_eq!(
        (started.recovery.as_deref(), started.paused),
        (Some("IN_SYNC"), None),
        "{what}"
    );
    assert!(
        !started
            .warnings
            .iter()
            .any(|warning| warning.contains("roll back")),
        "{what}: {:?}",
        started.warnings
    );
    verify(&project, true);
}

#[test]
fn rolled_back_code_stays_rolled_back_when_it_is_merged() {
    for language in &LANGUAGES {
        for how in ["merge", "rebase", "squash", "merged before", "on main"] {
            let repository = begun(language);
            if how == "on main" {
                repository.run(&["switch", "-q", "main"]);
            }
            spoil(&repository, language);
            if how == "merged before" {
                repository.run(&["switch", "-q", "main"]);
                repository.run(&["merge", "-q", "--no-ff", "--no-edit", "work"]);
                repository.run(&["switch", "-q", "-c", "back"]);
            }
            let done = Recovery::new(&project(&repository))
                .apply(&Apply::default())
                .unwrap()
                .rollback
                .unwrap();
            assert_eq!(repository.run(&["log", "-1", "--format=%H"]), done.made);
            let branch = done.branch.clone().unwrap();
            repository.run(&["switch", "-q", "main"]);
            match how {
                "merge" | "merged before" => {
                    drop(repository.run(&["merge", "-q", "--no-ff", "--no-edit", &branch]))
                }
                "rebase" => {
                    repository.run(&["switch", "-q", &branch]);
                    repository.run(&["rebase", "-q", "--force-rebase", "main"]);
                    repository.run(&["switch", "-q", "main"]);
                    repository.run(&["merge", "-q", "--ff-only", &branch]);
                }
                "squash" => {
                    repository.run(&["merge", "-q", "--squash", &branch]);
                    repository.commit("squashed");
                }
                _ => {}
            }
            is_good(&repository, language, how);
        }
    }
}

/// Makes a checkpoint on `work` after a change, and returns whether it can be gone back to from
/// `main` after what `merge` does there. `main` has no other checkpoint.
fn usable(merge: impl Fn(&Fixture)) -> bool {
    let fixture = Fixture::new();
    fixture.run(&["switch", "-q", "-c", "work"]);
    for number in 1..=2 {
        fixture.write("a.txt", format!("{number}\n"));
        fixture.commit("work");
    }
    Checkpoints::new(&fixture.project())
        .create(&Create {
            key: Some("A-2".into()),
            ..Create::default()
        })
        .unwrap();
    fixture.commit("[session] the manifest");
    merge(&fixture);
    fixture.write("a.txt", "later\n");
    fixture.commit("later");
    let project = fixture.project();
    let found = Checkpoints::new(&project).newest_usable().unwrap();
    let Some(found) = found else { return false };
    assert_eq!(
        Recovery::new(&project)
            .assess(Assess::default())
            .unwrap()
            .class,
        Class::Minor
    );
    Recovery::new(&project)
        .apply(&Apply {
            checkpoint: Some(found.name),
            ..Apply::default()
        })
        .unwrap();
    assert_eq!(fixture.read("a.txt"), "2\n");
    true
}

fn main_moves(fixture: &Fixture) {
    fixture.run(&["switch", "-q", "main"]);
    fixture.write("b.txt", "of others\n");
    fixture.commit("of others");
}

#[test]
fn checkpoint_lives_through_squash_rebase_amend_and_cherry_pick() {
    let squash = |fixture: &Fixture| {
        fixture.run(&["switch", "-q", "main"]);
        fixture.run(&["merge", "-q", "--squash", "work"]);
        fixture.commit("squashed");
        fixture.run(&["branch", "-q", "-D", "work"]);
    };
    assert!(usable(squash), "squash");
    assert!(
        usable(|fixture| {
            main_moves(fixture);
            squash(fixture);
        }),
        "squash onto a branch that moved"
    );
    assert!(
        usable(|fixture| {
            main_moves(fixture);
            fixture.run(&["switch", "-q", "work"]);
            fixture.run(&["rebase", "-q", "main"]);
        }),
        "rebase"
    );
    assert!(
        usable(|fixture| drop(fixture.run(&["commit", "-q", "--amend", "-m", "another message"]))),
        "amend"
    );
    assert!(
        usable(|fixture| {
            main_moves(fixture);
            fixture.run(&["cherry-pick", "main..work"]);
        }),
        "cherry-pick"
    );
    assert!(
        !usable(|fixture| drop(fixture.run(&["switch", "-q", "main"]))),
        "work that is not here"
    );
}

#[test]
fn shallow_clone_with_the_code_of_a_checkpoint_has_it() {
    let fixture = Fixture::new();
    Checkpoints::new(&fixture.project())
        .create(&Create {
            key: Some("A-1".into()),
            ..Create::default()
        })
        .unwrap();
    fixture.commit("[session] the manifest");
    let folder = tempfile::tempdir().unwrap();
    let clone = folder.path().join("clone");
    let from = format!("file://{}", fixture.path().display());
    fixture.run(&[
        "clone",
        "-q",
        "--depth",
        "1",
        &from,
        clone.to_str().unwrap(),
    ]);
    let found = Checkpoints::new(&Fixture::open(&clone))
        .newest_usable()
        .unwrap();
    assert_eq!(found.unwrap().name, "A-1-v1");
}

#[test]
fn projects_of_one_repository_do_not_see_each_other() {
    let repository = Repository::new();
    for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
        repository.run(&["config", name, value]);
    }
    repository.write("readme", "all\n");
    for folder in ["web", "api", "services/a b"] {
        repository.write(&format!("{folder}/app.txt"), "good\n");
        repository.write(
            &format!("{folder}/.forge/.gitignore"),
            ".local/\nmemory/short-term/*\n",
        );
        repository.write(
            &format!("{folder}/.forge/config.toml"),
            "[verify]\ncommands = [\"sh: ! grep -q BAD app.txt\"]\n",
        );
    }
    repository.commit("first");
    let open = |folder: &str| Fixture::open(&repository.path().join(folder));
    let create = |project: &Project, key: &str| {
        Checkpoints::new(project)
            .create(&Create {
                key: Some(key.into()),
                ..Create::default()
            })
            .unwrap()
            .tag
    };
    let assess = |project: &Project| Recovery::new(project).assess(Assess::default()).unwrap();
    assert_eq!(create(&open("web"), "A-1"), "checkpoint/web/A-1-v1");
    assert!(Checkpoints::new(&open("api")).list().unwrap().is_empty());
    assert_eq!(create(&open("api"), "A-1"), "checkpoint/api/A-1-v1");
    assert_eq!(
        create(&open("services/a b"), "A-1"),
        "checkpoint/services/a%20b/A-1-v1"
    );
    // Another team's dirty file, and its broken commit, refuse nothing.
    repository.write("api/app.txt", "BAD\n");
    assert_eq!(create(&open("web"), "A-1"), "checkpoint/web/A-1-v2");
    repository.commit("bad");
    assert_eq!(
        (
            assess(&open("web")).class,
            assess(&open("services/a b")).class
        ),
        (Class::InSync, Class::InSync)
    );
    assert_eq!(assess(&open("api")).class, Class::Minor);
    let asked = Apply {
        checkpoint: Some("A-1-v1".into()),
        ..Apply::default()
    };
    Recovery::new(&open("api")).apply(&asked).unwrap();
    assert_eq!(
        std::fs::read_to_string(repository.path().join("api/app.txt")).unwrap(),
        "good\n"
    );
    for folder in ["web", "api", "services/a b"] {
        assert_eq!(assess(&open(folder)).class, Class::InSync, "{folder}");
        let started = Sessions::new(&open(folder))
            .start(&Start::default())
            .unwrap();
        assert_eq!(started.paused, None, "{folder}");
    }
}
