//! What sessions leave in git: few files, and few commits.

use std::collections::BTreeSet;

use super::*;
use crate::checkpoints::{Checkpoints, Create};
use crate::features::{Add, Features};
use crate::git::{Commits, NewCommit};
use crate::layout::CONFIG;
use crate::sessions::Sessions;

/// Tests that always pass, and a check that always succeeds.
const VERIFY: &str = "[verify]\nrunner = \"echo 1 passed {prefix}\"\ncount_regex = '(\\d+) passed'\ncommands = [\"true\"]\n";

/// Fixture: a project with three features, and these settings.
fn planned(settings: &str) -> (Fixture, Project, Vec<String>) {
    let fixture = Fixture::new();
    fixture
        .repository
        .write(CONFIG, format!("{VERIFY}{settings}"));
    let project = fixture.open();
    let add = |name: &str| Add {
        name: name.to_owned(),
        tests: vec!["a::*".to_owned()],
        ..Add::default()
    };
    let features = ["One", "Two", "Three"].map(|name| {
        Features::new(&project)
            .add(&add(name), None)
            .unwrap()
            .feature
            .id
    });
    fixture.repository.commit("Plan");
    (fixture, project, features.to_vec())
}

/// Does the work of one session: code, a verification, an entry, and a commit of code alone.
fn work(fixture: &Fixture, project: &Project, feature: &str, number: usize) {
    let session = start(project).session;
    fixture.minutes(30);
    Sessions::new(project)
        .log(&Log {
            text: format!("Did part {number}"),
            next: None,
        })
        .unwrap();
    fixture
        .repository
        .write("src/main.rs", format!("fn main() {{ {number}; }}\n"));
    assert!(Features::new(project).verify(feature).unwrap().passed);
    let new = NewCommit {
        key: Some("SX9-1".to_owned()),
        subject: format!("Do part {number}"),
        what: vec!["Change main".to_owned()],
        why: "It was asked for".to_owned(),
        paths: vec!["src".to_owned()],
        ..NewCommit::default()
    };
    let origin = Commits::new(project)
        .origin(&session.id, &session.uuid)
        .unwrap();
    Commits::new(project).create(&new, &origin).unwrap();
}

fn files(fixture: &Fixture) -> BTreeSet<String> {
    fixture
        .repository
        .run(&["ls-files", "--", ".forge"])
        .lines()
        .map(str::to_owned)
        .collect()
}

fn memory_commits(fixture: &Fixture) -> usize {
    fixture
        .repository
        .run(&["log", "--format=%s"])
        .lines()
        .filter(|subject| subject.starts_with("[session]"))
        .count()
}

#[test]
fn ten_sessions_add_few_files_and_no_commit() {
    let (fixture, project, features) = planned("");
    let before = files(&fixture);
    let mut made = 0;
    for number in 0..10 {
        work(&fixture, &project, &features[number % 3], number);
        if number % 4 == 3 {
            Checkpoints::new(&project)
                .create(&Create {
                    key: Some("SX9-1".to_owned()),
                    ..Create::default()
                })
                .unwrap();
            made += 1;
        }
        let ended = Sessions::new(&project).end(&End::default()).unwrap();
        assert_eq!(
            ended.commit,
            Some(fixture.repository.run(&["rev-parse", "HEAD"]))
        );
    }
    let after = files(&fixture);
    let added: Vec<_> = after.difference(&before).collect();
    // The progress of each, which says something; the newest report of each feature; the
    // checkpoints.
    assert!(
        added.len() <= 10 + 3 + made,
        "{} files: {added:#?}",
        added.len()
    );
    assert_eq!(
        (
            memory_commits(&fixture),
            fixture.repository.run(&["rev-list", "--count", "HEAD"])
        ),
        (0, "12".to_owned())
    );
    assert_eq!(fixture.repository.run(&["status", "--porcelain"]), "");
    // The newest report of each feature is still its evidence.
    let listed = Features::new(&project).list().unwrap().features;
    assert!(
        listed.iter().all(|item| item.standing.counts()),
        "{listed:#?}"
    );
    for checkpoint in Checkpoints::new(&project).list().unwrap() {
        assert!(
            checkpoint.can_rollback_to && checkpoint.notes.is_empty(),
            "{checkpoint:#?}"
        );
    }
}

/// Returns what git has of the last commit but its id: parents, author, message, and the tree
/// without the memory.
fn work_of(fixture: &Fixture, commit: &str) -> String {
    let about = fixture
        .repository
        .run(&["log", "-1", "--format=%P%n%an <%ae> %ad%n%B", commit]);
    about
        + &fixture
            .repository
            .run(&["ls-tree", "-r", commit, "--", "src"])
}

#[test]
fn memory_goes_into_the_commit_of_the_work() {
    use std::os::unix::fs::PermissionsExt as _;
    let (fixture, project, features) = planned("");
    work(&fixture, &project, &features[0], 0);
    let before = fixture.repository.run(&["rev-parse", "HEAD"]);
    Checkpoints::new(&project)
        .create(&Create {
            key: Some("SX9-1".to_owned()),
            ..Create::default()
        })
        .unwrap();
    // What is staged, and what is not, stays; no hook runs again.
    fixture.repository.write("staged.txt", "staged\n");
    fixture.repository.run(&["add", "staged.txt"]);
    fixture
        .repository
        .write("src/main.rs", "fn main() { loop {} }\n");
    let hook = fixture.path().join(".git/hooks/pre-commit");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    for name in [
        "pre-commit",
        "commit-msg",
        "post-commit",
        "post-rewrite",
        "reference-transaction",
    ] {
        let hook = hook.with_file_name(name);
        std::fs::write(&hook, "#!/bin/sh\ntouch hook-ran\nexit 1\n").unwrap();
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let end = End {
        leave_dirty: Some("Part 1 is begun".to_owned()),
        ..End::default()
    };
    let ended = Sessions::new(&project).end(&end).unwrap();
    let now = fixture.repository.run(&["rev-parse", "HEAD"]);
    assert_eq!(
        (ended.commit.as_ref(), ended.warnings),
        (Some(&now), Vec::new())
    );
    assert_ne!(now, before);
    assert_eq!(work_of(&fixture, &now), work_of(&fixture, &before));
    assert_eq!(
        fixture.repository.run(&["status", "--porcelain"]),
        " M src/main.rs\nA  staged.txt"
    );
    assert!(!fixture.path().join("hook-ran").exists());
    let changed = fixture
        .repository
        .run(&["diff", "--name-only", &before, &now]);
    assert!(
        changed.lines().count() > 1 && changed.lines().all(|path| path.starts_with(".forge/")),
        "{changed}"
    );
    let checkpoint = Checkpoints::new(&project).newest_usable().unwrap().unwrap();
    assert_eq!(
        (checkpoint.commit, checkpoint.notes),
        (Some(now), Vec::new()),
        "the new commit is the checkpoint"
    );
}

#[test]
fn commit_that_others_know_stays_as_it_is() {
    type Known = fn(&Fixture);
    let cases: [(&str, Known); 6] = [
        ("pushed", |fixture| {
            drop(
                fixture
                    .repository
                    .run(&["update-ref", "refs/remotes/origin/main", "HEAD"]),
            )
        }),
        ("of another branch", |fixture| {
            drop(fixture.repository.run(&["branch", "other"]))
        }),
        ("tagged", |fixture| {
            drop(fixture.repository.run(&["tag", "v1"]))
        }),
        ("stashed upon", |fixture| {
            drop(
                fixture
                    .repository
                    .run(&["update-ref", "refs/stash", "HEAD"]),
            )
        }),
        ("a merge", |fixture| {
            fixture
                .repository
                .run(&["switch", "--quiet", "-c", "side", "HEAD~1"]);
            fixture.repository.write("side.txt", "side\n");
            fixture.repository.run(&["add", "side.txt"]);
            fixture.repository.run(&["commit", "--quiet", "-m", "side"]);
            fixture.repository.run(&["switch", "--quiet", "main"]);
            fixture
                .repository
                .run(&["merge", "--quiet", "--no-edit", "side"]);
        }),
        ("by somebody else", |fixture| {
            let who = [
                "GIT_AUTHOR_NAME",
                "GIT_AUTHOR_EMAIL",
                "GIT_COMMITTER_NAME",
                "GIT_COMMITTER_EMAIL",
            ];
            let them = who
                .into_iter()
                .fold(crate::git::Run::writing(), |run, name| {
                    run.variable(name, "bob@example.com")
                });
            let project = fixture.open();
            project
                .git()
                .unwrap()
                .succeed(
                    &["commit", "--quiet", "--allow-empty", "-m", "Theirs"],
                    &them,
                )
                .unwrap();
        }),
    ];
    for (what, known) in cases {
        let (fixture, project, features) = planned("");
        work(&fixture, &project, &features[0], 0);
        known(&fixture);
        let before = fixture.repository.run(&["rev-parse", "HEAD"]);
        Sessions::new(&project).end(&End::default()).unwrap();
        assert_eq!(
            fixture.repository.run(&["rev-parse", "HEAD~1"]),
            before,
            "{what}"
        );
        assert_eq!(memory_commits(&fixture), 1, "{what}");
        assert_eq!(
            fixture.repository.run(&["status", "--porcelain"]),
            "",
            "{what}"
        );
    }
}

#[test]
fn session_without_work_commits_what_it_learned() {
    let (fixture, project, _) = planned("");
    for (learns, commits) in [(false, 0), (true, 1), (false, 1)] {
        start(&project);
        if learns {
            let what = crate::knowledge::What::Successful {
                context: "Git".into(),
                approach: "Ask it".into(),
            };
            Sessions::new(&project)
                .learn(crate::knowledge::Learning::new(what))
                .unwrap();
        }
        let ended = Sessions::new(&project).end(&End::default()).unwrap();
        assert_eq!(
            (ended.commit.is_some(), memory_commits(&fixture)),
            (learns, commits)
        );
        assert_eq!(fixture.repository.run(&["status", "--porcelain"]), "");
    }
}

#[test]
fn key_asks_for_a_commit_of_its_own() {
    let (fixture, project, features) = planned("");
    work(&fixture, &project, &features[0], 0);
    Sessions::new(&project)
        .end(&End {
            key: Some("SX9-1".to_owned()),
            ..End::default()
        })
        .unwrap();
    let subjects = fixture.repository.run(&["log", "-2", "--format=%s"]);
    assert_eq!(subjects, "[SX9-1] Session checkpoint\n[SX9-1] Do part 0");
}

#[test]
fn empty_joined_session_leaves_no_folder() {
    let fixture = Fixture::new();
    start(&fixture.open());
    let other = fixture.as_agent("Axiom");
    let joined = Sessions::new(&other)
        .start(&Start {
            join: true,
            ..Start::default()
        })
        .unwrap()
        .session;
    let ended = Sessions::new(&fixture.in_session(&joined.id))
        .end(&End::default())
        .unwrap();
    assert_eq!(ended.commit, None);
    assert!(
        !fixture
            .path()
            .join(crate::layout::SESSIONS)
            .join(joined.folder())
            .exists()
    );
}
