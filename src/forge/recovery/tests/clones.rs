//! Checkpoints in clones without tags, shallow or detached, as on a colleague's machine or in CI.

use std::path::{Path, PathBuf};

use super::fixture::Fixture;
use crate::checkpoints::{Checkpoints, Create};
use crate::error::Category;
use crate::git::fixture::run_at;
use crate::health::{self, Code};
use crate::project::Project;
use crate::recovery::{Ack, Assess, By, Recovery, Unknown};
use crate::sessions::{Sessions, Start, Started};

/// Fixture: a server, and a project with a committed checkpoint file whose tag is not pushed.
struct Team {
    fixture: Fixture,
    folder: tempfile::TempDir,
}

impl Team {
    fn new() -> Self {
        let fixture = Fixture::new();
        let asked = Create {
            key: Some("A-1".into()),
            ..Create::default()
        };
        Checkpoints::new(&fixture.project()).create(&asked).unwrap();
        fixture.write("later.txt", "later\n");
        fixture.commit("[A-1] Later, with the file of the checkpoint");
        let folder = tempfile::tempdir().unwrap();
        let team = Self { fixture, folder };
        team.fixture
            .run(&["clone", "-q", "--bare", "--no-tags", ".", &team.server()]);
        team.fixture
            .run(&["remote", "add", "origin", &team.server()]);
        team
    }

    fn server(&self) -> String {
        self.folder
            .path()
            .join("server.git")
            .to_str()
            .unwrap()
            .to_owned()
    }

    fn push_tags(&self) {
        self.fixture.run(&["push", "-q", "--tags", "origin"]);
    }

    fn clone(&self, args: &[&str]) -> PathBuf {
        let clone = self.folder.path().join("clone");
        let url = format!("file://{}", self.server());
        let all = [&["clone", "-q"][..], args, &[&url, clone.to_str().unwrap()]].concat();
        self.fixture.run(&all);
        for (name, value) in [("user.name", "Bob"), ("user.email", "bob@example.com")] {
            run_at(&clone, &["config", name, value]);
        }
        clone
    }
}

fn start(project: &Project) -> Started {
    Sessions::new(project)
        .start(&Start {
            no_probe: true,
            ..Start::default()
        })
        .unwrap()
}

fn codes(project: &Project) -> Vec<&'static str> {
    let report = Recovery::new(project)
        .assess(Assess { verify: false })
        .unwrap();
    report
        .unknown
        .iter()
        .map(|reason| reason.reason.code())
        .collect()
}

/// Runs the command that the report names as the next step.
fn run_next(at: &Path, next: &str) {
    let words: Vec<String> = next
        .split(' ')
        .map(|word| word.trim_matches('\'').to_owned())
        .collect();
    assert_eq!(words[0], "git", "{next}");
    run_at(
        at,
        &words[1..].iter().map(String::as_str).collect::<Vec<_>>(),
    );
}

#[test]
fn clone_without_tags_has_the_checkpoint() {
    let team = Team::new();
    let clone = team.clone(&[]);
    assert_eq!(run_at(&clone, &["tag"]), "");
    let project = Fixture::open(&clone);
    let all = Checkpoints::new(&project).list().unwrap();
    assert!(
        all[0].can_rollback_to
            && all[0]
                .notes
                .join("")
                .contains("its tag is not in this clone"),
        "{all:?}"
    );
    assert_eq!(codes(&project), [""; 0]);
    let started = start(&project);
    assert_eq!(
        (started.paused, started.recovery.as_deref()),
        (None, Some("MINOR"))
    );
    assert!(
        health::measure(&project)
            .git
            .reasons
            .iter()
            .all(|reason| reason.code != Code::NoCheckpoint)
    );
}

#[test]
fn shallow_clone_is_not_paused_and_can_be_completed() {
    let team = Team::new();
    team.push_tags();
    let clone = team.clone(&["--depth", "1"]);
    let project = Fixture::open(&clone);
    assert_eq!(codes(&project), ["checkpoints_not_here"]);
    assert_eq!(start(&project).paused, None);
    let git = health::measure(&project).git;
    let next = &git
        .reasons
        .iter()
        .find(|reason| reason.code == Code::NoCheckpoint)
        .unwrap()
        .next;
    assert_eq!(next, "git fetch --unshallow --tags origin");
    run_next(&clone, next);
    assert_eq!(codes(&project), [""; 0]);
    assert!(Checkpoints::new(&project).list().unwrap()[0].can_rollback_to);
}

#[test]
fn shallow_clone_with_the_tag_is_not_paused() {
    let team = Team::new();
    team.push_tags();
    let clone = team.clone(&["--depth", "1"]);
    // The tag and its commit are here, but HEAD is not known to descend from it in this clone.
    run_at(
        &clone,
        &[
            "fetch",
            "-q",
            "--depth",
            "1",
            "origin",
            "refs/tags/checkpoint/A-1-v1:refs/tags/checkpoint/A-1-v1",
        ],
    );
    let project = Fixture::open(&clone);
    assert_eq!(codes(&project), ["checkpoints_not_here"]);
    assert_eq!(start(&project).paused, None);
}

#[test]
fn ci_checkout_with_detached_head_is_not_paused() {
    let team = Team::new();
    let clone = team.clone(&["--depth", "1"]);
    run_at(&clone, &["checkout", "-q", "--detach"]);
    let project = Fixture::open(&clone);
    assert_eq!(start(&project).paused, None);
    assert_eq!(
        codes(&project),
        ["checkpoints_not_here"],
        "the session explains the detached HEAD"
    );
}

#[test]
fn session_start_lifts_a_pause_whose_reason_is_gone() {
    let fixture = Fixture::new();
    let asked = Create {
        key: Some("A-1".into()),
        ..Create::default()
    };
    Checkpoints::new(&fixture.project()).create(&asked).unwrap();
    fixture.write(".git/BISECT_LOG", "x");
    let project = fixture.project();
    assert!(start(&project).paused.is_some());
    let error = Sessions::new(&project)
        .start(&Start::default())
        .unwrap_err();
    assert_eq!(
        error.category,
        Category::Paused,
        "the reason is still there"
    );
    let found = health::measure(&project).short_term;
    let reason = found
        .reasons
        .iter()
        .find(|reason| reason.code == Code::Paused)
        .unwrap();
    assert!(
        reason.detail.contains("bisect") && reason.since.is_some(),
        "{reason:?}"
    );

    std::fs::remove_file(fixture.path().join(".git/BISECT_LOG")).unwrap();
    let started = start(&project);
    assert_eq!(started.paused, None);
    assert!(
        started
            .warnings
            .iter()
            .any(|warning| warning.contains("its reason is gone")),
        "{:?}",
        started.warnings
    );
    assert!(project.check_not_paused().is_ok());
    assert!(
        health::measure(&project)
            .short_term
            .reasons
            .iter()
            .all(|reason| reason.code != Code::Paused)
    );
}

#[test]
fn session_start_runs_the_verify_command_before_it_lifts_a_pause_of_it() {
    let fixture = Fixture::new();
    let asked = Create {
        key: Some("A-1".into()),
        ..Create::default()
    };
    Checkpoints::new(&fixture.project()).create(&asked).unwrap();
    let outside = tempfile::tempdir().unwrap();
    let broken = outside.path().join("broken");
    std::fs::write(&broken, "").unwrap();
    let project = fixture.project_with(&format!(
        "[verify]\ncommands = [\"sh: test ! -e {}\"]\n",
        broken.display()
    ));
    Recovery::new(&project)
        .apply(&crate::recovery::Apply::default())
        .unwrap_err();
    let paused = || {
        Sessions::new(&project)
            .start(&Start::default())
            .err()
            .map(|error| error.category)
    };
    assert_eq!(paused(), Some(Category::Paused));
    std::fs::remove_file(&broken).unwrap();
    let quick = Sessions::new(&project)
        .start(&Start {
            no_probe: true,
            ..Start::default()
        })
        .unwrap_err();
    assert_eq!(
        quick.category,
        Category::Paused,
        "nothing may be run, so nobody knows"
    );
    assert_eq!(paused(), None);
}

#[test]
fn a_pause_by_request_stays_until_a_person_ends_it() {
    let fixture = Fixture::new();
    let project = fixture.project();
    Recovery::new(&project)
        .pause("somebody must look", None)
        .unwrap();
    assert_eq!(
        Sessions::new(&project)
            .start(&Start::default())
            .unwrap_err()
            .category,
        Category::Paused
    );
}

#[test]
fn an_acknowledgement_holds_on_later_commits() {
    let fixture = Fixture::new();
    fixture.run(&["tag", "-a", "-m", "by hand", "checkpoint/A-1-v1"]);
    let project = fixture.project();
    assert!(
        start(&project)
            .paused
            .unwrap()
            .contains("none can be gone back to")
    );
    Recovery::new(&project)
        .ack(&Ack {
            reason: "it is fine".into(),
            by: By::Terminal,
        })
        .unwrap();
    fixture.commit("[session] Session checkpoint");
    let report = Recovery::new(&project)
        .assess(Assess { verify: false })
        .unwrap();
    assert!(
        matches!(report.unknown[0].reason, Unknown::NoUsableCheckpoint { .. }),
        "{:?}",
        report.unknown
    );
    assert!(report.acknowledged && !report.must_pause());
    assert_eq!(start(&project).paused, None);
    fixture.run(&["checkout", "-q", "--orphan", "elsewhere"]);
    fixture.commit("[session] Another root");
    let elsewhere = Recovery::new(&project)
        .assess(Assess { verify: false })
        .unwrap();
    assert!(!elsewhere.acknowledged, "no descendant");
}

#[test]
fn an_acknowledged_bisect_ends_with_the_next_commit() {
    let fixture = Fixture::new();
    let asked = Create {
        key: Some("A-1".into()),
        ..Create::default()
    };
    Checkpoints::new(&fixture.project()).create(&asked).unwrap();
    fixture.write(".git/BISECT_LOG", "x");
    let project = fixture.project();
    start(&project);
    Recovery::new(&project)
        .ack(&Ack {
            reason: "I bisect".into(),
            by: By::Terminal,
        })
        .unwrap();
    assert!(
        !Recovery::new(&project)
            .assess(Assess { verify: false })
            .unwrap()
            .must_pause()
    );
    fixture.commit("next");
    assert!(
        Recovery::new(&project)
            .assess(Assess { verify: false })
            .unwrap()
            .must_pause()
    );
}

#[test]
fn a_checkpoint_ends_a_pause_for_want_of_one() {
    let fixture = Fixture::new();
    fixture.run(&["tag", "-a", "-m", "by hand", "checkpoint/A-1-v1"]);
    let project = fixture.project();
    assert!(start(&project).paused.is_some());
    fixture.write("broken", "");
    fixture.commit("[A-1] Broken");
    assert_eq!(
        Checkpoints::new(&project)
            .create(&Create::default())
            .unwrap_err()
            .code,
        "E_CHECK"
    );
    assert!(
        project.check_not_paused().is_err(),
        "a check that fails ends no pause"
    );
    fixture.run(&["rm", "-q", "broken"]);
    fixture.commit("[A-1] Mended");
    assert!(
        Checkpoints::new(&project)
            .create(&Create::default())
            .unwrap()
            .can_rollback_to
    );
    assert!(project.check_not_paused().is_ok());
}

#[test]
fn push_checkpoints_pushes_each_tag() {
    let team = Team::new();
    let tags = || run_at(Path::new(&team.server()), &["tag"]);
    assert_eq!(tags(), "");
    let config =
        "[verify]\ncommands = [\"sh: test ! -e broken\"]\n[git]\npush_checkpoints = true\n";
    let project = team.fixture.project_with(config);
    let made = Checkpoints::new(&project)
        .create(&Create {
            key: Some("A-1".into()),
            ..Create::default()
        })
        .unwrap();
    assert!(made.pushed, "{:?}", made.warnings);
    assert_eq!(tags(), made.tag);
}
