//! Merges that git made without our driver: in clones that lack it, and on servers.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{RepairRequest, Source};
use crate::environment::ProjectEnvironment;
use crate::features::{Add, Features};
use crate::git::fixture::{Repository, run_at};
use crate::health::{self, Code};
use crate::init::{self, Init, Problem};
use crate::knowledge::{Knowledge, Learning, What};
use crate::layout::{FEATURES, KNOWLEDGE};
use crate::project::Project;
use crate::recovery::Recovery;
use crate::repair;
use crate::sessions::{Sessions, Start};

fn learn(project: &Project, context: &str) {
    let what = What::Successful { context: context.into(), approach: "do it".into() };
    Knowledge::new(project).add(&Learning::new(what), None).unwrap();
}

fn plan(project: &Project, name: &str) {
    Features::new(project)
        .add(&Add { name: name.into(), id: Some("FORGE-001".into()), ..Add::default() }, None)
        .unwrap();
}

fn open(root: &Path) -> Project {
    Project::open_anyway(root, ProjectEnvironment::default()).unwrap().unwrap()
}

/// Fixture: a clone with an unfinished merge of two branches.
fn merging(work: impl Fn(&Project, &str)) -> (Repository, tempfile::TempDir, PathBuf) {
    let repository = Repository::new();
    for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
        repository.run(&["config", name, value]);
    }
    let (project, _) =
        init::init(repository.path(), ProjectEnvironment::default(), &Init { merge_driver: true, ..Init::default() })
            .unwrap();
    // The form in which two additions can conflict.
    repository.write(crate::layout::CONFIG, "");
    drop(project);
    let project = open(repository.path());
    learn(&project, "before");
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
    let merge = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com", "merge", "-q", "--no-edit", "theirs"];
    let output = Command::new("git").args(merge).current_dir(&clone).env("GIT_CONFIG_GLOBAL", "/dev/null").output();
    assert!(!output.unwrap().status.success(), "there is a conflict");
    (repository, folder, clone)
}

fn unmerged(clone: &Path) -> String {
    run_at(clone, &["diff", "--name-only", "--diff-filter=U"])
}

#[test]
fn merge_without_driver_keeps_both_sides() {
    let (_repository, _folder, clone) = merging(|project, side| {
        // Both changes are next to the same entry, so they conflict.
        project
            .files()
            .edit::<crate::knowledge::KnowledgeFile, _>(None, |file| {
                let mut entry = file.patterns.successful[0].clone();
                entry.context = side.to_owned();
                entry.trace.id = None;
                file.patterns.successful.push(entry);
                Ok(())
            })
            .unwrap();
        plan(project, side);
    });
    assert_eq!(unmerged(&clone), format!("{FEATURES}\n{KNOWLEDGE}"));
    let project = open(&clone);
    let next = &health::measure(&project).git.reasons[0].next;
    assert_eq!(*next, format!("helmdeck forge repair {FEATURES}"));
    let shown = repair::repair(&project, KNOWLEDGE, RepairRequest::default()).unwrap();
    assert_eq!(shown.candidates.iter().map(|one| one.source).collect::<Vec<_>>(), [Source::Merge]);
    for from in [Source::LastGood, Source::Git, Source::Skeleton] {
        let error = repair::repair(&project, KNOWLEDGE, RepairRequest { yes: true, from: Some(from) }).unwrap_err();
        assert_eq!(error.code, "E_REFUSED", "one side alone is never taken");
    }
    let done = repair::repair(&project, KNOWLEDGE, RepairRequest { yes: true, from: None }).unwrap();
    assert_eq!((done.applied, done.staged), (Some(Source::Merge), true));
    let file = Knowledge::new(&project).read().unwrap();
    let contexts: Vec<&str> = file.patterns.successful.iter().map(|entry| entry.context.as_str()).collect();
    assert_eq!(contexts, ["before", "ours", "theirs"]);
    assert_eq!(unmerged(&clone), FEATURES);

    // Two features got the same id: both stay, and a person decides, because reports name the old id.
    let done = repair::repair(&project, FEATURES, RepairRequest { yes: true, from: None }).unwrap();
    assert_eq!((done.applied, done.staged), (Some(Source::Merge), false));
    assert!(done.hint.unwrap().contains("git add"));
    assert!(done.theirs.is_some());
    let listed = Features::new(&project).list(false).unwrap();
    let names: Vec<&str> = listed.features.iter().map(|item| item.feature.name.as_str()).collect();
    assert_eq!(names, ["ours", "theirs"]);
    let whole = repair::repair(&project, FEATURES, RepairRequest { yes: true, from: None }).unwrap();
    assert_eq!((whole.damage, whole.applied), (None, None), "what was settled is not written over");
    assert!(whole.hint.unwrap().contains("git add"));
    run_at(&clone, &["add", FEATURES]);
    run_at(&clone, &["commit", "-q", "--no-edit"]);
}

#[test]
fn unfinished_merge_pauses_until_committed() {
    let (_repository, _folder, clone) = merging(|project, side| {
        project
            .files()
            .edit::<crate::knowledge::KnowledgeFile, _>(None, |file| {
                file.patterns.successful[0].approach = side.to_owned();
                Ok(())
            })
            .unwrap();
    });
    let project = open(&clone);
    Recovery::new(&project).pause("two paths are unmerged", None).unwrap();
    assert_eq!(
        repair::repair(&project, KNOWLEDGE, RepairRequest { yes: true, from: None }).unwrap().applied,
        Some(Source::Merge)
    );
}

#[test]
fn additions_in_two_clones_merge_as_text() {
    let entries =
        ["Adding a route", "Naming tests", "Locking files", "Rounding", "Reading input", "Caching", "Retrying"];
    let repository = Repository::new();
    let project = repository.project();
    project
        .files()
        .create(
            KNOWLEDGE,
            b"{\"schema_version\": \"1.0\", \"patterns\": {\"successful\": [], \"failed\": []}, \"invariants\": []}",
        )
        .unwrap();
    entries.iter().for_each(|context| learn(&project, context));
    let ids: Vec<String> = Knowledge::new(&project).read().unwrap().entries().map(|entry| entry.id()).collect();
    assert!(ids.is_sorted(), "{ids:?}");
    repository.run(&["add", "-f", KNOWLEDGE]);
    repository.commit("first");
    let mut clean = 0;
    for round in 0..6 {
        repository.run(&["checkout", "-q", "main"]);
        let [ours, theirs] = ["ours", "theirs"].map(|side| {
            repository.run(&["checkout", "-q", "-B", side, "main"]);
            learn(&project, &format!("{side} learned {round}"));
            repository.commit(side)
        });
        let git = repository.git();
        clean += u32::from(git.merges(&ours, &theirs).unwrap() == crate::git::Merged::Cleanly);
    }
    // At the end of the list, each of them would be a conflict.
    assert!(clean >= 4, "{clean} of 6 merge without a driver");
}

#[test]
fn clone_without_driver_is_told() {
    let (_repository, _folder, clone) = merging(plan);
    run_at(&clone, &["merge", "--abort"]);
    let project = open(&clone);
    let health = health::measure(&project);
    let next = "helmdeck forge init --merge-driver";
    let reason = health.git.reasons.iter().find(|reason| reason.code == Code::MergeDriverMissing).unwrap();
    assert_eq!(reason.next, next);
    let doctor = init::doctor(&project, false).unwrap();
    let found = doctor.found.iter().find(|one| one.problem == Problem::MergeDriverMissing).unwrap();
    assert_eq!((found.next.as_deref(), doctor.healthy), (Some(next), true));
    let start = || Sessions::new(&project).start(&Start { no_probe: true, ..Start::default() }).unwrap();
    assert!(start().warnings.iter().any(|warning| warning.contains(next)));
    init::init(&clone, ProjectEnvironment::default(), &Init { merge_driver: true, ..Init::default() }).unwrap();
    let project = open(&clone);
    assert!(health::measure(&project).git.reasons.iter().all(|reason| reason.code != Code::MergeDriverMissing));
    assert!(init::doctor(&project, false).unwrap().found.iter().all(|one| one.problem != Problem::MergeDriverMissing));
}
