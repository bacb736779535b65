//! Closing, opening and renaming issues, and `forge done`, killed between any two file operations.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use helmdeck_forge_documents::marks;

use super::{AddIssue, CloseIssue, IssueFields, Scope, Start};
use crate::environment::ProjectEnvironment;
use crate::features::{Add as AddFeature, BlockedBy, Features};
use crate::files::kill;
use crate::git::fixture::Repository;
use crate::layout::{CONFIG, HISTORY, ISSUES};
use crate::project::Project;
use crate::sessions::{Sessions, Start as StartSession};
use crate::work::{Done as Finish, Work};

/// File that tells the worker, which runs in the repository, what to do and where to die.
const WHERE: &str = ".git/forge-worker";
const KEY: &str = "LOCAL-1";
const OTHER: &str = "SX9-7";

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Close,
    Reopen,
    Rename,
    Finish,
}

const DEEDS: [Deed; 4] = [Deed::Close, Deed::Reopen, Deed::Rename, Deed::Finish];

fn act(project: &Project, deed: Deed) -> crate::error::Result<()> {
    let done = CloseIssue {
        anyway: Some("so".to_owned()),
        ..CloseIssue::default()
    };
    match deed {
        Deed::Close => project.issues().done(KEY, &done, None).map(drop),
        Deed::Reopen => project.issues().reopen(KEY, None).map(drop),
        Deed::Rename => project.issues().rename(KEY, OTHER).map(drop),
        Deed::Finish => {
            let finish = Finish {
                anyway: Some("so".to_owned()),
                ..Finish::default()
            };
            Work::new(project).done(&finish).map(drop)
        }
    }
}

fn open(root: &Path) -> Project {
    Project::open(root, ProjectEnvironment::default())
        .unwrap()
        .unwrap()
}

/// Not a test: the process that is killed.
#[test]
#[ignore = "run by the tests below in a process of its own"]
fn worker() {
    let Ok(place) = std::fs::read_to_string(WHERE) else {
        return;
    };
    let (deed, files) = place.split_once(' ').unwrap();
    let project = open(Path::new("."));
    kill::after(files.parse().unwrap());
    act(&project, DEEDS[deed.parse::<usize>().unwrap()]).unwrap();
}

/// Fixture: an issue with two comments and a criterion, another one and a feature that wait for it,
/// and a session.
fn prepare(deed: Deed) -> Repository {
    let repository = Repository::new();
    for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
        repository.run(&["config", name, value]);
    }
    repository.write(CONFIG, "[verify]\ncommands = [\"true\"]\n");
    repository.write(".forge/.gitignore", include_str!("../init/gitignore"));
    let project = open(repository.path());
    let issues = project.issues();
    let add = AddIssue {
        title: "One".into(),
        fields: IssueFields {
            criteria: Some(vec!["it works".into()]),
            ..IssueFields::default()
        },
        ..AddIssue::default()
    };
    assert_eq!(issues.add(&add).unwrap().issue.linear_id, KEY);
    for text in ["first", "second"] {
        issues.comment(KEY, text).unwrap();
    }
    issues
        .add(&AddIssue {
            title: "Two".into(),
            fields: IssueFields {
                blocked_by: Some(vec![KEY.into()]),
                ..IssueFields::default()
            },
            ..AddIssue::default()
        })
        .unwrap();
    let feature = AddFeature {
        name: "F".into(),
        blocked_by: Some(BlockedBy::One(KEY.into())),
        ..AddFeature::default()
    };
    Features::new(&project).add(&feature, None).unwrap();
    repository.commit("Begin");
    match deed {
        Deed::Close => {}
        Deed::Reopen => act(&project, Deed::Close).unwrap(),
        Deed::Rename | Deed::Finish => {
            Sessions::new(&project)
                .start(&StartSession {
                    no_probe: true,
                    ..StartSession::default()
                })
                .unwrap();
            issues
                .start(
                    KEY,
                    &Start {
                        no_branch: true,
                        ..Start::default()
                    },
                )
                .unwrap();
        }
    }
    repository
}

/// The issue is in one place, once, with everything it had.
fn check(project: &Project, deed: Deed, what: &str) {
    let key = if deed == Deed::Rename { OTHER } else { KEY };
    let shown = project.issues().show(key).unwrap();
    assert_eq!(
        project.issues().show(KEY).unwrap().etag,
        shown.etag,
        "{what}: the earlier key finds it"
    );
    let closed = matches!(deed, Deed::Close | Deed::Finish);
    assert_eq!(shown.item.over, closed, "{what}");
    let all = project.issues().list(Scope::All).unwrap();
    assert_eq!(
        (all.issues.len(), all.counts.done),
        (2, u64::from(closed)),
        "{what}"
    );
    let texts: Vec<&str> = shown
        .item
        .issue
        .comments
        .iter()
        .map(|comment| comment.text.as_str())
        .collect();
    let reopened = usize::from(deed == Deed::Reopen);
    assert_eq!(
        (&texts[..2], texts.len() - reopened),
        (&["first", "second"][..], 2),
        "{what}: {texts:?}"
    );
    assert_eq!(shown.item.issue.acceptance_criteria.len(), 1, "{what}");
    let names = |folder: &str| -> Vec<String> {
        project
            .files()
            .list(folder)
            .unwrap()
            .into_iter()
            .map(|entry| entry.name)
            .collect()
    };
    if !closed {
        let found = names(ISSUES);
        let found: BTreeSet<&str> = found
            .iter()
            .map(|name| marks::split(name.trim_end_matches(".json")).0)
            .collect();
        // The file of the earlier key stays, and says which one it has now.
        assert_eq!(found, [KEY, "LOCAL-2", key].into(), "{what}");
    }
    assert_eq!(names(HISTORY).len(), usize::from(closed), "{what}");
    let two = project.issues().show("LOCAL-2").unwrap().item.issue;
    assert_eq!(two.blocked_by, [key], "{what}");
    if deed == Deed::Rename {
        let feature = Features::new(project).read().unwrap().features.remove(0);
        assert_eq!(feature.blockers().collect::<Vec<_>>(), [OTHER], "{what}");
        let focus = Sessions::new(project)
            .focus_now()
            .unwrap()
            .show()
            .unwrap()
            .unwrap()
            .focus;
        assert_eq!(focus.linear_issue.as_deref(), Some(OTHER), "{what}");
    }
}

fn killed_anywhere(deed: Deed, at_least: usize) {
    let template = prepare(deed).snapshot();
    let number = DEEDS.iter().position(|one| *one == deed).unwrap();
    let mut deaths = 0;
    loop {
        let what = format!("{deed:?} after {deaths} files");
        let repository = template.repository();
        repository.write(WHERE, format!("{number} {deaths}"));
        let worker = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "issues::killed_tests::worker",
                "--ignored",
                "--nocapture",
            ])
            .current_dir(repository.path())
            .output()
            .unwrap();
        let project = open(repository.path());
        match act(&project, deed) {
            Ok(()) => {}
            // The session ended before the process died.
            Err(error) if deed == Deed::Finish && error.code == "E_NOT_FOUND" => {
                assert!(
                    Sessions::new(&project).current().unwrap().is_none(),
                    "{what}: {error}"
                );
            }
            Err(error) => panic!("{what}: {error}"),
        }
        check(&project, deed, &what);
        if deed == Deed::Finish {
            assert_eq!(
                repository.run(&["tag", "--list"]).lines().count(),
                1,
                "{what}"
            );
            assert!(
                Sessions::new(&project).current().unwrap().is_none(),
                "{what}"
            );
            assert_eq!(repository.run(&["status", "--porcelain"]), "", "{what}");
        }
        if worker.status.success() {
            break;
        }
        deaths += 1;
    }
    assert!(deaths >= at_least, "{deed:?}: only {deaths} deaths");
}

#[test]
fn killed_close_is_finished_by_the_next() {
    killed_anywhere(Deed::Close, 3);
}

#[test]
fn killed_reopening_is_finished_by_the_next() {
    killed_anywhere(Deed::Reopen, 3);
}

#[test]
fn killed_rename_is_finished_by_the_next() {
    killed_anywhere(Deed::Rename, 4);
}

#[test]
fn killed_finish_of_work_is_finished_by_the_next() {
    killed_anywhere(Deed::Finish, 10);
}
