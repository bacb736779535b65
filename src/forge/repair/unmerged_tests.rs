//! Merges that git made without our driver: in clones that lack it, and on servers.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{RepairRequest, Source};
use crate::environment::ProjectEnvironment;
use crate::features::{Add, Edit, Features};
use crate::git::fixture::{Repository, run_at};
use crate::health::{self, Code};
use crate::init::{self, Init, Problem};
use crate::project::Project;
use crate::recovery::Recovery;
use crate::repair;
use crate::sessions::{Sessions, Start};

/// The file of the feature that both sides change.
/// Returns the path of the feature.
fn file(clone: &Path) -> String {
    crate::fixture::file_of(clone, crate::layout::FEATURES_ENTRIES, "FORGE-001-one")
}

/// Gives the feature another test, and another name if it is asked for.
fn change(project: &Project, test: &str, name: Option<&str>) {
    let tests = Some(vec![test.to_owned()]);
    let edit = Edit {
        tests,
        name: name.map(str::to_owned),
        ..Edit::default()
    };
    Features::new(project)
        .set("FORGE-001", &edit, None)
        .unwrap();
}

fn open(root: &Path) -> Project {
    Project::open_anyway(root, ProjectEnvironment::default())
        .unwrap()
        .unwrap()
}

/// Fixture: a clone with an unfinished merge of two branches.
fn merging(work: impl Fn(&Project, &str)) -> (Repository, tempfile::TempDir, PathBuf) {
    let repository = Repository::new();
    for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
        repository.run(&["config", name, value]);
    }
    let (project, _) = init::init(
        repository.path(),
        ProjectEnvironment::default(),
        &Init {
            merge_driver: true,
            ..Init::default()
        },
    )
    .unwrap();
    Features::new(&project)
        .add(
            &Add {
                name: "One".into(),
                ..Add::default()
            },
            None,
        )
        .unwrap();
    repository.commit("first");
    let folder = tempfile::tempdir().unwrap();
    let clone = folder.path().join("clone");
    repository.run(&["clone", "-q", ".", clone.to_str().unwrap()]);
    for side in ["ours", "theirs"] {
        run_at(&clone, &["checkout", "-q", "-b", side, "origin/main"]);
        work(&open(&clone), side);
        run_at(&clone, &["add", "-A"]);
        run_at(&clone, &["commit", "-q", "-m", side]);
    }
    run_at(&clone, &["checkout", "-q", "ours"]);
    let merge = [
        "-c",
        "user.name=Ann",
        "-c",
        "user.email=ann@example.com",
        "merge",
        "-q",
        "--no-edit",
        "theirs",
    ];
    let output = Command::new("git")
        .args(merge)
        .current_dir(&clone)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output();
    assert!(!output.unwrap().status.success(), "there is a conflict");
    (repository, folder, clone)
}

fn unmerged(clone: &Path) -> String {
    run_at(clone, &["diff", "--name-only", "--diff-filter=U"])
}

#[test]
fn merge_without_driver_keeps_both_sides() {
    let (_repository, _folder, clone) = merging(|project, side| change(project, side, None));
    let (project, feature) = (open(&clone), file(&clone));
    assert_eq!(unmerged(&clone), feature);
    let next = &health::measure(&project).git.reasons[0].next;
    assert_eq!(*next, format!("helmdeck forge repair {feature}"));
    let shown = repair::repair(&project, &feature, RepairRequest::default()).unwrap();
    assert_eq!(
        shown
            .candidates
            .iter()
            .map(|one| one.source)
            .collect::<Vec<_>>(),
        [Source::Merge]
    );
    for from in [Source::LastGood, Source::Git, Source::Skeleton] {
        let error = repair::repair(
            &project,
            &feature,
            RepairRequest {
                yes: true,
                from: Some(from),
            },
        )
        .unwrap_err();
        assert_eq!(error.code, "E_REFUSED", "one side alone is never taken");
    }
    // The merge is finished in a pause too, which may wait for it.
    Recovery::new(&project)
        .pause("a path is unmerged", None)
        .unwrap();
    let done = repair::repair(
        &project,
        &feature,
        RepairRequest {
            yes: true,
            from: None,
        },
    )
    .unwrap();
    assert_eq!((done.applied, done.staged), (Some(Source::Merge), true));
    assert_eq!(
        Features::new(&project).read().unwrap().features[0].tests(),
        ["ours", "theirs"]
    );
    assert_eq!(unmerged(&clone), "");
}

#[test]
fn what_both_sides_changed_is_settled_by_a_person() {
    let (_repository, _folder, clone) = merging(|project, side| change(project, side, Some(side)));
    let (project, feature) = (open(&clone), file(&clone));
    let done = repair::repair(
        &project,
        &feature,
        RepairRequest {
            yes: true,
            from: None,
        },
    )
    .unwrap();
    assert_eq!((done.applied, done.staged), (Some(Source::Merge), false));
    assert!(done.hint.unwrap().contains("git add"));
    assert!(done.theirs.is_some());
    assert_eq!(
        Features::new(&project).read().unwrap().features[0].name,
        "ours"
    );
    let whole = repair::repair(
        &project,
        &feature,
        RepairRequest {
            yes: true,
            from: None,
        },
    )
    .unwrap();
    assert_eq!(
        (whole.damage, whole.applied),
        (None, None),
        "what was settled is not written over"
    );
    assert!(whole.hint.unwrap().contains("git add"));
    run_at(&clone, &["add", &feature]);
    run_at(&clone, &["commit", "-q", "--no-edit"]);
}

#[test]
fn clone_without_driver_is_told() {
    let (_repository, _folder, clone) = merging(|project, side| change(project, side, None));
    run_at(&clone, &["merge", "--abort"]);
    let project = open(&clone);
    let health = health::measure(&project);
    let next = "helmdeck forge init --merge-driver";
    let reason = health
        .git
        .reasons
        .iter()
        .find(|reason| reason.code == Code::MergeDriverMissing)
        .unwrap();
    assert_eq!(reason.next, next);
    let doctor = init::doctor(&project, false).unwrap();
    let found = doctor
        .found
        .iter()
        .find(|one| one.problem == Problem::MergeDriverMissing)
        .unwrap();
    assert_eq!((found.next.as_deref(), doctor.healthy), (Some(next), true));
    let start = || {
        Sessions::new(&project)
            .start(&Start {
                no_probe: true,
                ..Start::default()
            })
            .unwrap()
    };
    assert!(
        start()
            .warnings
            .iter()
            .any(|warning| warning.contains(next))
    );
    init::init(
        &clone,
        ProjectEnvironment::default(),
        &Init {
            merge_driver: true,
            ..Init::default()
        },
    )
    .unwrap();
    let project = open(&clone);
    assert!(
        health::measure(&project)
            .git
            .reasons
            .iter()
            .all(|reason| reason.code != Code::MergeDriverMissing)
    );
    assert!(
        init::doctor(&project, false)
            .unwrap()
            .found
            .iter()
            .all(|one| one.problem != Problem::MergeDriverMissing)
    );
}
