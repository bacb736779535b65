use super::super::fixture::{Repository, run_at};
use super::super::message::Severity;
use super::*;
use crate::git::Commits;

fn hook(repository: &Repository, name: &str) -> PathBuf {
    repository.path().join(".git/hooks").join(name)
}

fn executable(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Fake program: logs its arguments, and refuses a message that contains `BAD`.
fn program(folder: &Path) -> String {
    let path = folder.join("it's a program");
    executable(
        &path,
        "#!/bin/sh\necho \"$@\" >> .git/called\n! grep -q BAD \"$5\"\n",
    );
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_hook_runs_after_the_one_that_was_there() {
    let repository = Repository::new();
    let project = repository.project();
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    executable(
        &hook(&repository, "commit-msg"),
        "#!/bin/sh\necho before >> .git/called\n! grep -q WORSE \"$1\"\n",
    );
    let installed = Commits::new(&project)
        .install_hook(Hook::CommitMsg, &program)
        .unwrap();
    assert!(installed.changed && installed.before.is_some());
    assert!(
        !Commits::new(&project)
            .install_hook(Hook::CommitMsg, &program)
            .unwrap()
            .changed,
        "a second time changes nothing"
    );
    repository.commit("good");
    let called = || fs::read_to_string(repository.path().join(".git/called")).unwrap();
    assert_eq!(
        called(),
        "before\nforge hook run commit-msg .git/COMMIT_EDITMSG\n"
    );
    let git = repository.git();
    for bad in ["BAD", "WORSE"] {
        let output = git
            .run(
                &["commit", "--allow-empty", "-m", bad],
                &super::super::Run::writing().with_hooks(),
            )
            .unwrap();
        assert!(!output.ok(), "{bad}");
    }
    assert_eq!(
        called().lines().count(),
        5,
        "the one before refused on its own"
    );
    assert!(
        Commits::new(&project)
            .remove_hook(Hook::CommitMsg)
            .unwrap()
            .changed
    );
    let text = fs::read_to_string(hook(&repository, "commit-msg")).unwrap();
    assert!(text.contains("echo before") && !hook(&repository, "commit-msg.before-forge").exists());
    assert!(
        !Commits::new(&project)
            .remove_hook(Hook::CommitMsg)
            .unwrap()
            .changed,
        "it is not ours"
    );
}

#[test]
fn a_hook_does_nothing_without_a_memory_or_the_program() {
    let repository = Repository::new();
    let project = repository.project();
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    for each in Hook::ALL {
        Commits::new(&project).install_hook(each, &program).unwrap();
    }
    fs::rename(
        repository.path().join(".forge"),
        repository.path().join("away"),
    )
    .unwrap();
    repository.commit("BAD");
    fs::rename(
        repository.path().join("away"),
        repository.path().join(".forge"),
    )
    .unwrap();
    fs::remove_file(&program).unwrap();
    repository.commit("BAD again");
    assert!(!repository.path().join(".git/called").exists());
    Commits::new(&project)
        .remove_hook(Hook::PrepareCommitMsg)
        .unwrap();
    assert!(!hook(&repository, "prepare-commit-msg").exists());
}

#[test]
fn a_hook_finds_a_memory_below_the_root() {
    let repository = Repository::new();
    let below = repository.path().join("it's/below");
    fs::create_dir_all(below.join(".forge")).unwrap();
    let project = crate::Project::open(&below, crate::ProjectEnvironment::default())
        .unwrap()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    Commits::new(&project)
        .install_hook(Hook::CommitMsg, &program)
        .unwrap();
    repository.write("a", "b");
    repository.commit("good");
    let called = fs::read_to_string(repository.path().join(".git/called")).unwrap();
    assert_eq!(
        called,
        "forge --project it's/below hook run commit-msg .git/COMMIT_EDITMSG\n"
    );
    fs::remove_dir(below.join(".forge")).unwrap();
    repository.write("a", "c");
    repository.commit("again");
    assert_eq!(
        fs::read_to_string(repository.path().join(".git/called")).unwrap(),
        called
    );
}

#[test]
fn hooks_that_others_use_too_are_left_alone() {
    let repository = Repository::new();
    let project = repository.project();
    let elsewhere = tempfile::tempdir().unwrap();
    repository.run(&[
        "config",
        "core.hooksPath",
        elsewhere.path().to_str().unwrap(),
    ]);
    let error = Commits::new(&project)
        .install_hook(Hook::CommitMsg, "helmdeck")
        .unwrap_err();
    assert_eq!(error.category, Category::Refused);
    repository.run(&["config", "core.hooksPath", ".githooks"]);
    let installed = Commits::new(&project)
        .install_hook(Hook::CommitMsg, "helmdeck")
        .unwrap();
    assert!(installed.path.ends_with(".githooks/commit-msg") && installed.path.exists());
}

#[test]
fn work_trees_share_their_hooks() {
    let repository = Repository::new();
    repository.project();
    repository.commit("first");
    let folder = tempfile::tempdir().unwrap();
    run_at(
        repository.path(),
        &[
            "worktree",
            "add",
            "--quiet",
            folder.path().join("w").to_str().unwrap(),
        ],
    );
    let project = crate::Project::open(
        &folder.path().join("w"),
        crate::ProjectEnvironment::default(),
    )
    .unwrap()
    .unwrap();
    let installed = Commits::new(&project)
        .install_hook(Hook::CommitMsg, "helmdeck")
        .unwrap();
    assert_eq!(
        installed.path,
        hook(&repository, "commit-msg").canonicalize().unwrap()
    );
}

#[test]
fn a_message_is_given_its_trace() {
    let repository = Repository::new();
    let project = repository.project();
    let head = repository.commit("first");
    let origin = Origin {
        session: "2025-12-24-session-001".to_owned(),
        session_id: "0193f8a0-0000-7000-8000-000000000000".to_owned(),
        checkpoint: None,
    };
    let commits = Commits::new(&project);
    let comments = "# Please enter the message\n#\n";
    let text = format!("Wire it\n\n- one change\n\nBecause.\n\n{comments}");
    let prepared = commits
        .prepare_message(&text, Some("message"), Some("SX9-1"), &origin)
        .unwrap()
        .unwrap();
    assert!(
        prepared.starts_with("[SX9-1] Wire it\n\n## What\n- one change\n")
            && prepared.ends_with(comments)
    );
    assert!(prepared.contains(&format!("\nForge-Parent: {head}\n")));
    let errors: Vec<_> = commits
        .check_message(&prepared)
        .into_iter()
        .filter(|finding| finding.severity == Severity::Error)
        .collect();
    assert_eq!(errors, []);
    assert_eq!(
        commits
            .prepare_message(&prepared, None, Some("SX9-1"), &origin)
            .unwrap(),
        None
    );
    assert_eq!(
        commits
            .prepare_message("Merge", Some("merge"), None, &origin)
            .unwrap(),
        None
    );
    let empty = commits
        .prepare_message(&format!("\n{comments}"), None, None, &origin)
        .unwrap()
        .unwrap();
    assert!(
        empty.starts_with("[session]\n\n## Memory\n- None\n"),
        "{empty}"
    );
    assert!(!commits.check_message("Fix it\n# comment\n").is_empty());
}

#[test]
fn messages_that_git_makes_are_not_judged() {
    let repository = Repository::new();
    let project = repository.project();
    let commits = Commits::new(&project);
    let back =
        "Revert \"Add it\"\n\nThis reverts commit 0123456789012345678901234567890123456789.\n";
    for text in [
        "fixup! Add it\n",
        "squash! Add it\n\nMore\n",
        "amend! Add it\n\nAdd it\n",
        back,
    ] {
        assert_eq!(commits.check_message(text), [], "{text:?}");
    }
    for text in [
        "Revert \"Add it\"\n\nIt broke.\n",
        "fixup it\n",
        "Merge branch 'other'\n",
    ] {
        assert!(!commits.check_message(text).is_empty(), "{text:?}");
    }
    repository.write(
        ".git/MERGE_HEAD",
        "0123456789012345678901234567890123456789\n",
    );
    assert_eq!(commits.check_message("Merge branch 'other'\n"), []);
}
