use super::*;
use crate::files::{LOST, last_good};
use crate::git::fixture::Repository;
use crate::knowledge::KnowledgeFile;
use crate::layout::KNOWLEDGE_ENTRIES;

fn open(start: &Path) -> Option<Project> {
    Project::open(start, ProjectEnvironment::default()).unwrap()
}

#[test]
fn the_nearest_memory_counts_but_none_outside_the_repository() {
    let outer = tempfile::tempdir().unwrap();
    let base = outer.path().canonicalize().unwrap();
    let repository = base.join("repo");
    for folder in [".forge", "repo/.git", "repo/src/deep"] {
        std::fs::create_dir_all(base.join(folder)).unwrap();
    }
    std::fs::write(repository.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    assert!(open(&repository.join("src/deep")).is_none());
    std::fs::create_dir(repository.join(".forge")).unwrap();
    let project = open(&repository.join("src/deep")).unwrap();
    assert_eq!(project.root(), repository);
    let guard = project.common_lock().unwrap();
    assert!(repository.join(".git/forge/lock").is_file());
    drop(guard);
    std::fs::create_dir(repository.join("src/.forge")).unwrap();
    assert_eq!(
        open(&repository.join("src/deep")).unwrap().root(),
        repository.join("src")
    );
}

#[test]
fn work_trees_share_the_common_lock() {
    let outer = tempfile::tempdir().unwrap();
    let base = outer.path().canonicalize().unwrap();
    for folder in ["main/.git/worktrees/two", "main/.forge", "two/.forge"] {
        std::fs::create_dir_all(base.join(folder)).unwrap();
    }
    std::fs::write(base.join("main/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
    std::fs::write(base.join("main/.git/worktrees/two/commondir"), "../..\n").unwrap();
    std::fs::write(
        base.join("two/.git"),
        format!(
            "gitdir: {}\n",
            base.join("main/.git/worktrees/two").display()
        ),
    )
    .unwrap();
    let (one, two) = (
        open(&base.join("main")).unwrap(),
        open(&base.join("two")).unwrap(),
    );
    assert_eq!(one.found.common_dir, two.found.common_dir);
    assert!(two.found.common_dir.is_some());
}

#[test]
fn the_local_lock_is_never_taken_before_the_common_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(".git")).unwrap();
    std::fs::write(folder.path().join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    std::fs::create_dir(folder.path().join(".forge")).unwrap();
    let project = open(folder.path()).unwrap();
    let local = project.files().lock().unwrap();
    assert_eq!(project.common_lock().unwrap_err().code, "E_LOCK_ORDER");
    drop(local);
    let _common = project.common_lock().unwrap();
    let _local = project.files().lock().unwrap();
    assert!(project.common_lock().is_ok(), "it is held already");
}

#[test]
fn a_pause_stops_work_even_if_its_file_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(".forge/.local")).unwrap();
    let project = open(folder.path()).unwrap();
    assert!(project.check_not_paused().is_ok());
    for (text, says) in [
        (
            r#"{"reason":"the checkpoint was moved","since":"2025-12-24T12:00:00Z","report":null}"#,
            "the checkpoint was moved, since 2025",
        ),
        ("{", "cannot be read"),
        ("", "cannot be read"),
    ] {
        std::fs::write(folder.path().join(PAUSED), text).unwrap();
        let error = project.check_not_paused().unwrap_err();
        assert_eq!((error.code, error.category.exit_code()), ("E_PAUSED", 4));
        assert!(error.message.contains(says), "{error}");
    }
}

#[test]
fn damaged_settings_are_loud_and_copied_aside() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(".forge")).unwrap();
    assert!(open(folder.path()).is_some());
    std::fs::write(folder.path().join(CONFIG), "[recovery]\nfiles = 3\n").unwrap();
    assert_eq!(
        open(folder.path()).unwrap().config().recovery.limits.files,
        3
    );
    std::fs::write(folder.path().join(CONFIG), "[recovery\n").unwrap();
    assert_eq!(
        Project::open(folder.path(), ProjectEnvironment::default())
            .unwrap_err()
            .code,
        "E_CORRUPT"
    );
    let copies = std::fs::read_dir(folder.path().join(crate::layout::QUARANTINE)).unwrap();
    assert_eq!(copies.count(), 1);
    assert!(
        Project::open_anyway(folder.path(), ProjectEnvironment::default())
            .unwrap()
            .is_some()
    );
}

#[test]
fn a_missing_folder_that_git_tracks_is_lost() {
    // Asking git under the lock of the work tree panics here.
    let repository = Repository::new();
    repository.write(CONFIG, "");
    let project = open(repository.path()).unwrap();
    let edit = || {
        project.files().edit::<KnowledgeFile, _>(None, |file| {
            let number = file.other.0.len();
            file.other
                .0
                .insert(format!("n{number}"), crate::json::Json::Null);
            Ok(())
        })
    };
    let remove = |path: &str| std::fs::remove_dir_all(repository.path().join(path)).unwrap();
    edit().unwrap();
    remove(KNOWLEDGE_ENTRIES);
    assert!(
        edit().unwrap_err().message.ends_with(LOST),
        "its last good copies are there"
    );
    remove(&last_good(KNOWLEDGE_ENTRIES));
    edit().unwrap();
    repository.commit("It is kept");
    remove(KNOWLEDGE_ENTRIES);
    remove(&last_good(KNOWLEDGE_ENTRIES));
    assert!(edit().unwrap_err().message.ends_with(LOST), "git has it");
    assert!(!repository.path().join(KNOWLEDGE_ENTRIES).exists());
}
