//! The driver, as git starts it.

use std::path::{Path, PathBuf};

use super::*;
use crate::environment::ProjectEnvironment;
use crate::features::Features;
use crate::git::fixture::{Repository, run_at};
use crate::project::Project;

/// The merge driver that git starts in the test below.
///
/// It is this test program; a variable passes it the arguments of git.
#[test]
#[ignore = "git starts it"]
fn the_driver_that_git_starts() {
    let Some((_, said)) = std::env::vars().find(|(name, _)| name == "FORGE_MERGE") else {
        return;
    };
    let words: Vec<&str> = said.split(' ').collect();
    let [base, ours, theirs, path] = words[..] else {
        panic!("{said}")
    };
    let root = std::env::current_dir().unwrap();
    let done = drive(
        &root,
        ProjectEnvironment::default(),
        Path::new(base),
        Path::new(ours),
        Path::new(theirs),
        path,
    )
    .unwrap();
    assert!(done.conflicts.is_empty(), "{:?}", done.conflicts);
}

fn with_driver(repository: &Repository) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let command = format!(
        "FORGE_MERGE='%O %A %B %P' '{}' --ignored --exact merge::tests::in_git::the_driver_that_git_starts",
        program.display()
    );
    repository.run(&["config", "merge.forge-json.driver", &command]);
    repository.write(
        ".gitattributes",
        ".forge/memory/long-term/**/*.json merge=forge-json\n",
    );
    repository.write(FEATURE, with(|_| ()));
    repository.commit("first");
    program
}

#[test]
fn two_branches_that_changed_one_entry_merge_in_git() {
    let repository = Repository::new();
    with_driver(&repository);
    let other = tempfile::tempdir().unwrap();
    let tree = other.path().join("tree");
    repository.run(&[
        "worktree",
        "add",
        "--quiet",
        "-b",
        "other",
        tree.to_str().unwrap(),
    ]);
    for (root, test) in [(repository.path(), "ours"), (&tree, "theirs")] {
        std::fs::write(
            root.join(FEATURE),
            with(|feature| feature.tests = Some(vec![test.into()])),
        )
        .unwrap();
        run_at(root, &["commit", "--quiet", "-a", "-m", test]);
    }
    repository.run(&["merge", "--quiet", "--no-edit", "other"]);
    let project = Project::open(repository.path(), ProjectEnvironment::default())
        .unwrap()
        .unwrap();
    let file = Features::new(&project).read().unwrap();
    assert_eq!(file.features[0].tests(), ["ours", "theirs"]);
    assert_eq!(
        repository.run(&["status", "--porcelain", "--untracked-files=no"]),
        ""
    );
}

#[test]
fn nested_memory_quarantines_theirs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("sub/.forge")).unwrap();
    let (ours, theirs) = (
        with(|one| one.name = "Ours".into()),
        with(|one| one.name = "Theirs".into()),
    );
    for (name, text) in [
        ("base", &with(|_| ())),
        ("ours", &ours),
        ("theirs", &theirs),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let [base, ours, theirs] = ["base", "ours", "theirs"].map(Path::new);
    let done = drive(
        folder.path(),
        ProjectEnvironment::default(),
        base,
        ours,
        theirs,
        &format!("sub/{FEATURE}"),
    )
    .unwrap();
    assert_eq!(done.conflicts, ["both sides changed name"]);
    let kept = folder.path().join("sub").join(done.quarantined.unwrap());
    assert!(std::fs::read_to_string(kept).unwrap().contains("Theirs"));
}

#[test]
fn a_file_that_the_settings_allow_is_merged() {
    let folder = tempfile::tempdir().unwrap();
    let one = with(|_| ());
    let large = format!("{one}{}", " ".repeat(17 << 20));
    for (name, text) in [("base", &one), ("ours", &one), ("theirs", &large)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    std::fs::create_dir_all(folder.path().join(".forge")).unwrap();
    let [base, ours, theirs] = ["base", "ours", "theirs"].map(Path::new);
    let drive = || {
        drive(
            folder.path(),
            ProjectEnvironment::default(),
            base,
            ours,
            theirs,
            FEATURE,
        )
    };
    assert_eq!(drive().unwrap_err().code, "E_TOO_LARGE");
    std::fs::write(
        folder.path().join(crate::layout::CONFIG),
        "[files]\nmax_bytes = 20000000\n",
    )
    .unwrap();
    assert_eq!(drive().unwrap().conflicts, Vec::<String>::new());
    assert_eq!(
        std::fs::read_to_string(folder.path().join("ours")).unwrap(),
        large
    );
}

#[test]
fn git_keeps_the_conflict_and_theirs_is_quarantined() {
    let repository = Repository::new();
    with_driver(&repository);
    repository.run(&["checkout", "--quiet", "-b", "other"]);
    repository.write(FEATURE, with(|feature| feature.name = "Theirs".into()));
    repository.commit("theirs");
    repository.run(&["checkout", "--quiet", "main"]);
    let ours = with(|feature| feature.name = "Ours".into());
    repository.write(FEATURE, &ours);
    repository.commit("ours");
    let merge = std::process::Command::new("git")
        .args([
            "-c",
            "user.name=Ann",
            "-c",
            "user.email=ann@example.com",
            "merge",
            "--quiet",
            "--no-edit",
            "other",
        ])
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .current_dir(repository.path())
        .output()
        .unwrap();
    assert!(!merge.status.success());
    assert_eq!(
        std::fs::read_to_string(repository.path().join(FEATURE)).unwrap(),
        ours
    );
    assert_eq!(
        repository
            .git()
            .status()
            .unwrap()
            .unmerged()
            .collect::<Vec<_>>(),
        [FEATURE]
    );
    let kept = std::fs::read_dir(repository.path().join(crate::layout::QUARANTINE)).unwrap();
    let kept: Vec<PathBuf> = kept.map(|file| file.unwrap().path()).collect();
    assert_eq!(kept.len(), 1);
    assert!(
        std::fs::read_to_string(&kept[0])
            .unwrap()
            .contains("Theirs")
    );
}
